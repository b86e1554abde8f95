"""What goes wrong: each kind of fault, where it can strike, and what a person does after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CREATE, UPDATE, DELETE = PHASES = ("create", "update", "delete")
GOOGLE, CLUSTER = "gcp:", "kubernetes:"
"""Beginnings of the types of resources that a fault can strike."""
MACHINES = (
    "gcp:container/nodePool:NodePool",
    "gcp:compute/instance:Instance",
    "gcp:compute/instanceGroupManager:InstanceGroupManager",
)
"""Types whose creation needs machines."""
OPERATIONS = (
    "gcp:artifactregistry/repository:Repository",
    "gcp:compute/",
    "gcp:container/",
    "gcp:iam/workloadIdentityPool",
    "gcp:projects/service:Service",
)
"""Types, by their beginnings, whose requests Google answers with an operation; others it answers with the resource."""
API = "gcp:projects/service:Service"
"""An API is on from its creation: it stays on when the resource is deleted, and no request says so."""
NOTHING = "nothing: the command gets over it"
AGAIN = "the same command again"
RECOVER = "`python -m tools recover -s STACK`, then the same command again"
SETTLE = (
    "the same command again; if helm says `another operation (install/upgrade/rollback) is in progress`:"
    " `python -m tools recover -s STACK` before it"
)
ADOPT = (
    "the same command again; if it says `already exists`: `python -m tools recover -s STACK --lost-state` before it; if"
    " it says `fingerprint`: `python -m tools recover -s STACK`"
)
REPLACE = (
    "the same command again; for a cluster or pool `pulumi up --replace URN`, since GKE keeps it in ERROR and never"
    " repairs it"
)
RELEASE = "kubernetes:helm.sh/v3:Release"
CUT_AFTER = "cut after"
OPERATION_SECONDS = 3.0
"""How long what was asked for takes where a process is killed meanwhile: Google is still at it."""


@dataclass(frozen=True)
class Kind:
    """`fault`: fields of `sandbox.google.faults.Fault`. `where`: types, by their beginnings. `phases`: of a resource.

    `after`: what a person does. `deadly`: a process ends, so no more than one can strike in one command.
    """

    name: str
    fault: dict[str, Any]
    after: str
    where: tuple[str, ...] = (GOOGLE, CLUSTER)
    phases: tuple[str, ...] = PHASES
    deadly: bool = False


def _killed(victim: str) -> dict[str, Any]:
    return {"kind": "kill", "victim": victim, "seconds": OPERATION_SECONDS}


KINDS = (
    Kind("engine killed", _killed("engine"), RECOVER, deadly=True),
    Kind("plugin killed", _killed("plugin"), ADOPT, deadly=True),
    # `destroy` runs no program.
    Kind("program killed", _killed("program"), SETTLE, phases=(CREATE, UPDATE), deadly=True),
    Kind("429, three times", {"kind": "status", "status": 429, "times": 3}, NOTHING),
    Kind("503, three times", {"kind": "status", "status": 503, "times": 3}, NOTHING, (GOOGLE,)),
    Kind("503", {"kind": "status", "status": 503}, AGAIN, (CLUSTER,)),
    Kind("cut before", {"kind": "cut"}, AGAIN),
    Kind(CUT_AFTER, {"kind": "cut", "processed": True}, ADOPT),
    Kind("expired token", {"kind": "status", "status": 401}, AGAIN),
    Kind("operation error", {"kind": "operation", "code": "INTERNAL_ERROR"}, REPLACE, OPERATIONS),
    Kind("stockout", {"kind": "operation", "code": "ZONE_RESOURCE_POOL_EXHAUSTED"}, REPLACE, MACHINES, (CREATE,)),
    Kind("slow operation", {"kind": "slow-operation", "seconds": 5}, NOTHING, OPERATIONS),
    Kind("webhook 500", {"kind": "webhook"}, AGAIN, (CLUSTER,)),
    Kind("API server restart", {"kind": "kill", "victim": "api-server"}, AGAIN, (CLUSTER,), deadly=True),
)
BY_NAME = {kind.name: kind for kind in KINDS}
