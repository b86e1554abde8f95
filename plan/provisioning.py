"""Ways in which the hosts of a slice come to be, and everything that each of them determines.

One object for each way, without defaults. Sources: GKE documentation, node pool auto-creation and ComputeClasses;
ai-on-gke/tpu-provisioner @6789e2a; GKE's autoscaler.
"""

from dataclasses import dataclass
from typing import get_args

from plan.backend import Backend
from plan.capacity import model_of
from platform_config.slice import Provisioning as Written
from platform_config.slice import Slice


@dataclass(frozen=True, kw_only=True)
class Provisioning:
    """One way.

    - `declared`: whether the program declares the node pools; if not, they are not in the stack's state
    - `autoscaled`: whether node pools have bounds instead of a fixed number of hosts
    - `by_class`: whether a ComputeClass of its own stands for the slice group
    - `serves`: whether hosts come for model servers too, and not only for jobs
    - `wait`: how long hosts may take to come, in words; empty where the capacity model decides
    - `begins`: the hosts that exist after `up`, in words; `comes`: what brings further hosts; `goes`: what takes them
      away, and how long that takes. All three empty: the number of hosts does not change.
    """

    name: Written
    declared: bool
    autoscaled: bool
    by_class: bool
    serves: bool
    wait: str
    begins: str
    comes: str
    goes: str

    @property
    def on_demand(self) -> bool:
        """Whether hosts exist only while work needs them."""
        return self.autoscaled or not self.declared


FIXED = Provisioning(
    name="fixed",
    declared=True,
    autoscaled=False,
    by_class=False,
    serves=True,
    wait="",
    begins="all hosts",
    comes="",
    goes="",
)
AUTOSCALED = Provisioning(
    name="autoscaled",
    declared=True,
    autoscaled=True,
    by_class=False,
    serves=True,
    wait="",
    begins="node pools without hosts",
    comes="GKE adds a slice's hosts when pods wait for them",
    goes="GKE removes them about 10 minutes after the last pod",
)
COMPUTE_CLASS = Provisioning(
    name="compute-class",
    declared=False,
    autoscaled=True,
    by_class=True,
    serves=True,
    wait="",
    begins="a ComputeClass and no node pool",
    comes="GKE creates a node pool for each slice that pods wait for",
    goes="GKE deletes it about 10 minutes after the last pod",
)
TPU_PROVISIONER = Provisioning(
    name="tpu-provisioner",
    declared=False,
    autoscaled=False,
    by_class=False,
    serves=False,
    wait="minutes; a pool that fails is not tried again",
    begins="the controller and no node pool",
    comes="TPU Provisioner creates a node pool for each Job of a JobSet",
    goes="TPU Provisioner deletes it within about 5 minutes of the JobSet's end",
)

PROVISIONING = {way.name: way for way in (FIXED, AUTOSCALED, COMPUTE_CLASS, TPU_PROVISIONER)}
"""By name."""

if PROVISIONING.keys() != set(get_args(Written)):
    raise AssertionError("platform_config and plan do not have the same ways of provisioning")


def provisioning_of(backend: Backend, spec: Slice) -> Provisioning:
    """The way that a person wrote, or the one that follows from the capacity."""
    if spec.provisioning:
        return PROVISIONING[spec.provisioning]
    scaled = len(spec.capacity) > 1 or any(model_of(capacity).gke.always_autoscaled for capacity in spec.capacity)
    return AUTOSCALED if backend == "gke" and scaled else FIXED
