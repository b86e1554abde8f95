"""Node VMs of a platform."""

from __future__ import annotations

from tests.bootstrap.conftest import MakeMachine
from tests.bootstrap.google import NODES, Secrets
from tests.bootstrap.machine import Machine

LABELS = "cloud.google.com/gke-tpu-accelerator=tpu7x,cloud.google.com/gke-tpu-topology=2x2x2,tpu-platform/flavor=f"


def make_node(machine: MakeMachine, secrets: Secrets, account: str = NODES, **attributes: str) -> Machine:
    own = {
        "created_by": "projects/123456/zones/us-east5-b/instanceGroupManagers/prod-train",
        "tpu_containerd_version": "2.1.*",
        "tpu_join_secret": secrets.name("join"),
        "tpu_kubernetes_version": "1.34.2",
        "tpu_max_pods": "64",
        "tpu_node_labels": LABELS,
        "tpu_node_taints": "google.com/tpu=present:NoSchedule",
    }
    return machine("node", account, **{**own, **attributes})
