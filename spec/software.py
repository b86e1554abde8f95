"""Controllers that run inside the cluster: which versions, and the few settings a person has an opinion on."""

from dataclasses import dataclass
from math import ceil
from typing import Annotated, Literal

from pydantic import Field

from spec.model import Count, Duration, Flag, Model, Positive


class DraDriver(Model):
    """The TPU DRA driver, installed where a slice says `devices: dra`."""

    # 0.2.0 is tagged upstream, but only 0.1.0 is known to lie in the public chart registry.
    version: Annotated[Literal["0.1.0", "0.2.0"], Field(description="Chart version of the TPU DRA driver.")] = "0.1.0"


class JobSet(Model):
    """The JobSet controller."""

    version: Annotated[Literal["0.12.0"], Field(description="Chart version of JobSet.")] = "0.12.0"


class Kueue(Model):
    """The Kueue controller, installed where there are queues."""

    version: Annotated[Literal["0.19.2"], Field(description="Chart version of Kueue.")] = "0.19.2"
    pods_ready_timeout: Annotated[
        Duration, Field(description="An admitted workload whose pods are not ready by then goes back to its queue.")
    ] = "3600s"
    recovery_timeout: Annotated[
        Duration, Field(description="The same for a workload that was ready before and lost a pod.")
    ] = "900s"
    retries: Annotated[
        Positive, Field(description="How often such a workload goes back to its queue before it is switched off.")
    ] = 5
    provisioning_retries: Annotated[
        Count, Field(description="How often Kueue asks anew for capacity that queued provisioning did not get.")
    ] = 3
    keep_finished: Annotated[Duration, Field(description="How long finished workloads stay visible.")] = "604800s"
    fair_sharing: Annotated[
        Flag, Field(description="Share what a cohort does not use by the queues' weights, by preemption if need be.")
    ] = True
    topology_aware: Annotated[
        Flag,
        Field(description="Place pods by topology (TAS) on static device-plugin slices, instead of one Job per pool."),
    ] = False


class Software(Model):
    """Versions and settings of the controllers."""

    dra_driver: Annotated[DraDriver, Field(description="The TPU DRA driver.")] = DraDriver()
    jobset: Annotated[JobSet, Field(description="The JobSet controller.")] = JobSet()
    kueue: Annotated[Kueue, Field(description="The Kueue controller.")] = Kueue()


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
