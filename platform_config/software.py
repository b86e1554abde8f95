"""Versions and a few settings of the controllers inside the cluster."""

from typing import Annotated, Literal

from platform_config.fields import Count, Duration, Flag, Model, Positive, text


class DraDriver(Model):
    """The TPU DRA driver, installed where a slice says `devices: dra`."""

    # 0.2.0 is tagged upstream, but only 0.1.0 is known to be in the public chart registry.
    version: Literal["0.1.0", "0.2.0"] = "0.1.0"
    """Chart version of the TPU DRA driver."""
    capabilities: Flag = True
    """Pods may add IPC_LOCK and SYS_RESOURCE, and generated ones do; false: plain Pod Security `baseline`."""


class JobSet(Model):
    """The JobSet controller."""

    version: Literal["0.12.0"] = "0.12.0"
    """Chart version of JobSet."""


class Lws(Model):
    """The LeaderWorkerSet controller, which model servers need."""

    version: Literal["0.9.0"] = "0.9.0"
    """Chart version of LeaderWorkerSet."""


class Kueue(Model):
    """The Kueue controller, installed where there are queues."""

    version: Literal["0.19.2"] = "0.19.2"
    """Chart version of Kueue."""
    pods_ready_timeout: Duration = "3600s"
    """An admitted workload whose pods are not ready by then goes back to its queue."""
    recovery_timeout: Duration = "900s"
    """The same for a workload that was ready before and lost a pod."""
    retries: Positive = 5
    """How often such a workload goes back to its queue before Kueue deactivates it."""
    provisioning_retries: Count = 3
    """How often Kueue repeats a request that queued provisioning could not serve."""
    keep_finished: Duration = "604800s"
    """How long finished workloads stay visible."""
    fair_sharing: Flag = True
    """Share idle slices of a cohort by the queues' weights, with preemption if necessary."""
    refuse_unqueued: Flag = True
    """In namespaces of queues, refuse pods that request TPUs without a queue."""
    topology_aware: Flag = False
    """Place pods by topology (TAS) on static device-plugin slices, instead of one Job per pool."""


_IMAGE_CHECK, _IMAGE_SCHEMA = text(
    r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+(:[A-Za-z0-9_.-]+)?(@sha256:[0-9a-f]{64})?",
    "a container image",
    "for example us-docker.pkg.dev/my-project/images/tpu-provisioner@sha256:DIGEST",
)


class TpuProvisioner(Model):
    """TPU Provisioner, installed where a slice says `provisioning: tpu-provisioner`."""

    image: Annotated[str, _IMAGE_CHECK, _IMAGE_SCHEMA] | None = None
    """Image that you built from ai-on-gke/tpu-provisioner; there is no public one."""
    concurrency: Positive = 3
    """How many node pools it creates at a time."""
    pod_to_node_labels: tuple[str, ...] = ()
    """Keys of pod labels that it copies to the hosts."""


class Software(Model):
    """Versions and settings of the controllers."""

    dra_driver: DraDriver = DraDriver()
    """The TPU DRA driver."""
    jobset: JobSet = JobSet()
    """The JobSet controller."""
    lws: Lws = Lws()
    """The LeaderWorkerSet controller."""
    kueue: Kueue = Kueue()
    """The Kueue controller."""
    tpu_provisioner: TpuProvisioner = TpuProvisioner()
    """TPU Provisioner."""
