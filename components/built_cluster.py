"""What both back ends return: a cluster with its slices."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from components.kubernetes.cluster_access import ClusterAccess


@dataclass(frozen=True)
class Built:
    """`access`: creates objects inside, after the nodes that run them. `name`: of the cluster. `connect`: the command
    with which a person reaches it. `facts`: further exports of the stack."""

    access: ClusterAccess
    name: pulumi.Input[str]
    connect: str
    facts: Mapping[str, Any]
