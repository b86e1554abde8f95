"""Controllers that run inside the cluster: which versions, and the few settings a person has an opinion on."""

from dataclasses import dataclass
from math import ceil
from typing import Literal

from spec.model import Count, Duration, Flag, Model, Positive


class DraDriver(Model):
    """The TPU DRA driver, installed where a slice says `devices: dra`."""

    # 0.2.0 is tagged upstream, but only 0.1.0 is known to lie in the public chart registry.
    version: Literal["0.1.0", "0.2.0"] = "0.1.0"
    """Chart version of the TPU DRA driver."""
    capabilities: Flag = True
    """Pods may add IPC_LOCK and SYS_RESOURCE, and generated ones do; false: Pod Security `baseline` as it stands."""


class JobSet(Model):
    """The JobSet controller."""

    version: Literal["0.12.0"] = "0.12.0"
    """Chart version of JobSet."""


class Kueue(Model):
    """The Kueue controller, installed where there are queues."""

    version: Literal["0.19.2"] = "0.19.2"
    """Chart version of Kueue."""
    pods_ready_timeout: Duration = "3600s"
    """An admitted workload whose pods are not ready by then goes back to its queue."""
    recovery_timeout: Duration = "900s"
    """The same for a workload that was ready before and lost a pod."""
    retries: Positive = 5
    """How often such a workload goes back to its queue before it is switched off."""
    provisioning_retries: Count = 3
    """How often Kueue asks anew for capacity that queued provisioning did not get."""
    keep_finished: Duration = "604800s"
    """How long finished workloads stay visible."""
    fair_sharing: Flag = True
    """Share what a cohort does not use by the queues' weights, by preemption if need be."""
    refuse_unqueued: Flag = True
    """In namespaces of queues, refuse pods that ask for TPUs past the queues."""
    topology_aware: Flag = False
    """Place pods by topology (TAS) on static device-plugin slices, instead of one Job per pool."""


class Software(Model):
    """Versions and settings of the controllers."""

    dra_driver: DraDriver = DraDriver()
    """The TPU DRA driver."""
    jobset: JobSet = JobSet()
    """The JobSet controller."""
    kueue: Kueue = Kueue()
    """The Kueue controller."""


@dataclass(frozen=True)
class Size:
    """What a controller may use, requests and limits alike: `cpu` in cores, `memory_mib` in MiB."""

    cpu: float
    memory_mib: int

    def resources(self) -> dict[str, dict[str, str]]:
        """The `resources` of a container."""
        amounts = {"cpu": f"{self.cpu:g}", "memory": f"{self.memory_mib}Mi"}
        return {"requests": amounts, "limits": amounts}


def kueue_size(nodes: int) -> Size:
    """Kueue's size for a cluster of so many nodes, as AI-Hypercomputer/xpk found it to need (`utils/kueue.py`)."""
    return Size(max(2, round(0.004 * nodes, 1)), max(4096, 32 * nodes))


def jobset_size(nodes: int) -> Size:
    """JobSet's size for a cluster of so many nodes, from the same source."""
    return Size(1, max(4096, ceil(1.2 * nodes)))
