"""TPU generations and machine types that GKE and Compute Engine offer, as tables: each is one row.

Sources: vCPU, memory, boot disks, network interfaces, price ranking and Dynamic Workload Scheduler (DWS) support from
GKE's own autoscaler (GoogleCloudPlatform/cluster-autoscaler @7d25050); FLOP/s, HBM and pod size from the Cloud TPU
documentation; cube limits from AI-Hypercomputer/xpk @367c838 and GoogleCloudPlatform/cluster-toolkit @1047080;
DRA support from kubernetes-sigs/dra-driver-google-tpu @f5a9d8c.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Price:
    """What one chip costs for an hour: an estimate, with the day on which it was read and where, never a bill."""

    amount: float
    currency: str
    as_of: str
    source: str


@dataclass(frozen=True)
class QuotaMetrics:
    """Compute Engine quota ids counted in chips per region; the Cloud TPU API's quota does not count for GKE."""

    on_demand: str
    preemptible: str


@dataclass(frozen=True)
class Generation:
    """What all machine types of one TPU generation share.

    - `accelerator`: value of the node label `cloud.google.com/gke-tpu-accelerator`
    - `hbm_gib`, `bf16_tflops`, `fp8_tflops`, `tensor_cores`: per chip
    - `tensor_cores_as_devices`: devices that frameworks show per chip, as JAX does
    - `cubes`: limit of (A/4)(B/4)(C/4) of three-dimensional shapes; None in two dimensions
    - `documented_cubes`: the largest shape Google documents as schedulable, where smaller
    - `placement`: how GKE is told to keep the hosts of a slice together (other hosts always have a workload policy)
    - `dws`: flex-start and queued provisioning; `dra`: the TPU DRA driver; `dynamic_slicing`: cubes joined at run time
    - `min_version`: first GKE version that offers it
    - `boot_disks`: legal types, the default first
    - `zones`: where documentation and sources have seen it; not exhaustive
    - `spot_factor`: spot price as a part of the list price
    - `image`: family of Google's disk images with the drivers of this generation, for hosts that are not GKE's
    - `off_compute`: why Compute Engine makes no slices of it without GKE, where it does not
    """

    name: str
    accelerator: str
    dimensions: Literal[2, 3]
    hbm_gib: int
    bf16_tflops: int
    tensor_cores: int
    pod_chips: int
    placement: Literal["compact", "workload-policy"]
    boot_disks: tuple[str, ...]
    zones: tuple[str, ...]
    fp8_tflops: int | None = None
    cubes: int | None = None
    documented_cubes: int | None = None
    dws: bool = True
    dra: bool = True
    dynamic_slicing: bool = False
    min_version: str | None = None
    price: Price | None = None
    spot_factor: float = 0.5
    tensor_cores_as_devices: int = 1
    quota: QuotaMetrics | None = None
    image: str | None = None
    off_compute: str | None = None


@dataclass(frozen=True)
class Machine:
    """A TPU machine type: `chips` per host, `memory_gb` of the host, `topology` of the host by itself.

    `multi_host`: whether slices are built of several such hosts. `threads_per_core`: what GKE sets on its nodes, where
    it does. `accelerator_nics`: network interfaces that DRANET may hand to pods, 0 where it cannot.
    """

    name: str
    generation: Generation
    chips: int
    vcpus: int
    memory_gb: int
    topology: str
    multi_host: bool = False
    threads_per_core: int | None = None
    accelerator_nics: int = 0


def _list_price(amount: float) -> Price:
    return Price(
        amount, "USD", "2026-11-21", "list price, US, as GKE's autoscaler ranks it (cluster-autoscaler @7d25050)"
    )


V4 = Generation(
    name="v4",
    accelerator="tpu-v4-podslice",
    dimensions=3,
    hbm_gib=32,
    bf16_tflops=275,
    tensor_cores=2,
    pod_chips=4096,
    cubes=64,
    placement="compact",
    boot_disks=("pd-standard", "pd-balanced", "pd-ssd", "hyperdisk-balanced"),
    zones=("us-central2-b",),
    dws=False,
    price=_list_price(3.22),
    spot_factor=0.30,
    off_compute="workload policies, which hold the hosts of a slice together there, do not cover it",
)
V5E = Generation(
    name="v5e",
    accelerator="tpu-v5-lite-podslice",
    dimensions=2,
    hbm_gib=16,
    bf16_tflops=197,
    tensor_cores=1,
    pod_chips=256,
    placement="compact",
    boot_disks=("pd-balanced", "pd-ssd"),
    zones=("us-central1-a", "us-south1-a", "us-west1-c", "us-west4-a", "europe-west4-b"),
    price=_list_price(1.20),
    quota=QuotaMetrics(
        "TPU-LITE-PODSLICE-V5-per-project-region", "PREEMPTIBLE-TPU-LITE-PODSLICE-V5-per-project-region"
    ),
    off_compute="its machine types are made by GKE and the Cloud TPU API only",
)
V5P = Generation(
    name="v5p",
    accelerator="tpu-v5p-slice",
    dimensions=3,
    hbm_gib=95,
    bf16_tflops=459,
    tensor_cores=2,
    pod_chips=8960,
    cubes=140,
    documented_cubes=96,
    image="ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e",
    placement="compact",
    boot_disks=("pd-balanced", "pd-ssd"),
    zones=("us-central1-a", "us-east5-a", "europe-west4-b"),
    price=_list_price(4.20),
)
V6E = Generation(
    name="v6e",
    accelerator="tpu-v6e-slice",
    dimensions=2,
    hbm_gib=32,
    bf16_tflops=918,
    tensor_cores=1,
    pod_chips=256,
    placement="compact",
    boot_disks=("hyperdisk-balanced",),
    zones=(
        "us-central1-b",
        "us-east1-d",
        "us-east5-a",
        "us-east5-b",
        "europe-west4-a",
        "asia-northeast1-b",
        "us-central1-ai1",
        "us-south1-ai1b",
    ),
    min_version="1.31.1-gke.1846000",
    image="ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e",
    price=_list_price(2.70),
    quota=QuotaMetrics("TPUS-PER-TPU-FAMILY-per-project-region", "PREEMPTIBLE-TPU-V6E-per-project-region"),
)
TPU7X = Generation(
    name="tpu7x",
    accelerator="tpu7x",
    dimensions=3,
    hbm_gib=192,
    bf16_tflops=2307,
    fp8_tflops=4614,
    tensor_cores=2,
    pod_chips=9216,
    cubes=144,
    placement="workload-policy",
    boot_disks=("hyperdisk-balanced",),
    zones=("us-central1-c", "us-central1-ai1a"),
    dra=False,
    dynamic_slicing=True,
    tensor_cores_as_devices=2,
    image="ubuntu-accel-2404-amd64-tpu-tpu7x",
    min_version="1.34.0-gke.2201000",
    quota=QuotaMetrics("TPUS-PER-TPU-FAMILY-per-project-region", "PREEMPTIBLE-TPU7X-per-project-region"),
)

GENERATIONS = {generation.name: generation for generation in (V4, V5E, V5P, V6E, TPU7X)}

MACHINES = {
    machine.name: machine
    for machine in (
        Machine("ct4p-hightpu-4t", V4, 4, 240, 407, "2x2x1", multi_host=True),
        Machine("ct5lp-hightpu-1t", V5E, 1, 24, 48, "1x1"),
        Machine("ct5lp-hightpu-4t", V5E, 4, 112, 192, "2x2", multi_host=True),
        Machine("ct5lp-hightpu-8t", V5E, 8, 224, 384, "2x4"),
        Machine("ct5p-hightpu-4t", V5P, 4, 208, 448, "2x2x1", multi_host=True),
        Machine("ct6e-standard-1t", V6E, 1, 44, 176, "1x1", accelerator_nics=1),
        Machine("ct6e-standard-4t", V6E, 4, 180, 720, "2x2", multi_host=True, accelerator_nics=2),
        Machine("ct6e-standard-8t", V6E, 8, 180, 1440, "2x4", threads_per_core=1, accelerator_nics=4),
        Machine("tpu7x-standard-1t", TPU7X, 1, 56, 248, "1x1x1"),
        Machine("tpu7x-standard-4t", TPU7X, 4, 224, 992, "2x2x1", multi_host=True, accelerator_nics=2),
    )
}

MACHINES_BY_GENERATION = {
    name: tuple(machine for machine in MACHINES.values() if machine.generation.name == name) for name in GENERATIONS
}

# Machine types people meet elsewhere, and why they are not offered here.
FOREIGN_MACHINES = {
    "ct5p-hightpu-1t": "Compute Engine documents it, GKE's autoscaler does not know it",
    "ct5p-hightpu-2t": "Compute Engine documents it, GKE's autoscaler does not know it",
    "ct5p-hightpu-1t-tpu": "Compute Engine documents it, no known tool builds slices of it",
    "ct5p-hightpu-2t-tpu": "Compute Engine documents it, no known tool builds slices of it",
    **{f"ct5l-hightpu-{chips}t": "it is a single TPU device (tpu-v5-lite-device), not a slice" for chips in (1, 4, 8)},
}

IMAGE_PROJECT = "ubuntu-os-accelerator-images"
"""Google Cloud project of the disk images of `Generation.image`."""

KNOWN_ZONES = frozenset(zone for generation in GENERATIONS.values() for zone in generation.zones)

MAX_NODES = 15_000
"""Nodes of a cluster, whoever runs it (GKE documentation, quotas and limits)."""

MAX_HOSTS_PER_POOL = 2000
"""A pool is one managed instance group, GKE's or the platform's, with at most 2,000 VMs (`gceLimitOnMigSizes`)."""

HOSTS_PER_SUB_BLOCK = 16
"""A tpu7x reservation sub-block is one 4x4x4 cube."""
