"""Node VMs of a platform."""

from __future__ import annotations

from plan.hosts import boot_metadata, slice_groups
from tests.bootstrap.conftest import MakeMachine
from tests.bootstrap.google import ACCESSOR, NODES, Secrets
from tests.bootstrap.machine import Machine
from tests.platforms import SELF_MANAGED, load

PLATFORM = load(
    {"train": {"machine_type": "ct6e-standard-4t", "topology": "4x4", "max_pods_per_node": 64}}, cluster=SELF_MANAGED
)
METADATA = {
    **boot_metadata(PLATFORM),
    **slice_groups(PLATFORM, PLATFORM.slice_plans[0])[0].template.metadata(),
    "created-by": "projects/123456/zones/us-east5-b/instanceGroupManagers/prod-train",
}
LABELS = METADATA["tpu-node-labels"]


def make_node(machine: MakeMachine, secrets: Secrets, account: str = NODES, **attributes: str) -> Machine:
    """A node of MIG "prod-train", with the metadata that the program gives it, and these. Its join secret is made, too:
    without a version yet, and for the account NODES to read."""
    secrets.create("join", NODES, ACCESSOR)
    return machine("node", account, **{**METADATA, "tpu_join_secret": secrets.name("join"), **attributes})
