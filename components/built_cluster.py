"""What both back ends hand on: a cluster with its slices, ready for what runs inside."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from components.kubernetes.cluster_access import ClusterAccess


@dataclass(frozen=True)
class Built:
    """`access`: how to make things inside, once there is somewhere for them to run. `name`: of the cluster. `connect`:
    what a person types to reach it. `facts`: further exports of the stack."""

    access: ClusterAccess
    name: pulumi.Input[str]
    connect: str
    facts: Mapping[str, Any]
