"""What both back ends return: a cluster with its slices."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from components.kubernetes.cluster_access import ClusterAccess, Endpoint


@dataclass(frozen=True)
class Built:
    """A cluster with its slices.

    - `access`: creates objects inside, after the nodes that run them
    - `name`: of the cluster
    - `connect`: the command with which a person reaches it
    - `policies`: workload policies by name
    - `hosts`: IAM members that hosts run as, by a short name
    - `published`: what a self-managed control plane has written
    - `facts`: further exports of the stack
    """

    access: ClusterAccess
    name: pulumi.Input[str]
    connect: str
    policies: Mapping[str, pulumi.Resource]
    hosts: Mapping[str, pulumi.Input[str]]
    published: pulumi.Output[Endpoint] | None
    facts: Mapping[str, Any]
