"""TPU generations and machine types that GKE and Compute Engine offer, as tables: each is one row.

Sources: vCPU, memory, boot disks, network interfaces, price ranking and Dynamic Workload Scheduler (DWS) support from
GKE's own autoscaler (GoogleCloudPlatform/cluster-autoscaler @7d25050); FLOP/s, HBM and pod size from the Cloud TPU
documentation; cube limits from AI-Hypercomputer/xpk @367c838 and GoogleCloudPlatform/cluster-toolkit @1047080;
DRA support from kubernetes-sigs/dra-driver-google-tpu @f5a9d8c.
"""

from dataclasses import dataclass
from typing import Literal

IMAGE_PROJECT = "ubuntu-os-accelerator-images"
"""Google Cloud project of the disk images of hosts that are not GKE's."""


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
class HostImage:
    """Disk images of hosts that are not GKE's, in `IMAGE_PROJECT`."""

    family: str


@dataclass(frozen=True)
class OnlyOnGke:
    """Why there are no slices of a generation without GKE."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What all machine types of one TPU generation share; nothing is left to a default.

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
    - `sub_block_hosts`: hosts of a reservation's sub-block; None where reservations have none
    - `without_gke`: the disk images with the drivers of this generation, or why there are no slices of it
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
    fp8_tflops: int | None
    cubes: int | None
    documented_cubes: int | None
    dws: bool
    dra: bool
    dynamic_slicing: bool
    min_version: str | None
    price: Price | None
    spot_factor: float
    tensor_cores_as_devices: int
    quota: QuotaMetrics | None
    sub_block_hosts: int | None
    without_gke: HostImage | OnlyOnGke

    @property
    def host_image(self) -> str:
        """Full name of the family of disk images of hosts without GKE; a rule refuses slices that have none."""
        assert isinstance(self.without_gke, HostImage)
        return f"projects/{IMAGE_PROJECT}/global/images/family/{self.without_gke.family}"


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
    placement="compact",
    boot_disks=("pd-standard", "pd-balanced", "pd-ssd", "hyperdisk-balanced"),
    zones=("us-central2-b",),
    fp8_tflops=None,
    cubes=64,
    documented_cubes=None,
    dws=False,
    dra=True,
    dynamic_slicing=False,
    min_version=None,
    price=_list_price(3.22),
    spot_factor=0.3,
    tensor_cores_as_devices=1,
    quota=None,
    sub_block_hosts=None,
    without_gke=OnlyOnGke("workload policies, which hold the hosts of a slice together there, do not cover it"),
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
    fp8_tflops=None,
    cubes=None,
    documented_cubes=None,
    dws=True,
    dra=True,
    dynamic_slicing=False,
    min_version=None,
    price=_list_price(1.20),
    spot_factor=0.5,
    tensor_cores_as_devices=1,
    quota=QuotaMetrics(
        "TPU-LITE-PODSLICE-V5-per-project-region", "PREEMPTIBLE-TPU-LITE-PODSLICE-V5-per-project-region"
    ),
    sub_block_hosts=None,
    without_gke=OnlyOnGke("its machine types are made by GKE and the Cloud TPU API only"),
)
V5P = Generation(
    name="v5p",
    accelerator="tpu-v5p-slice",
    dimensions=3,
    hbm_gib=95,
    bf16_tflops=459,
    tensor_cores=2,
    pod_chips=8960,
    placement="compact",
    boot_disks=("pd-balanced", "pd-ssd"),
    zones=("us-central1-a", "us-east5-a", "europe-west4-b"),
    fp8_tflops=None,
    cubes=140,
    documented_cubes=96,
    dws=True,
    dra=True,
    dynamic_slicing=False,
    min_version=None,
    price=_list_price(4.20),
    spot_factor=0.5,
    tensor_cores_as_devices=1,
    quota=None,
    sub_block_hosts=None,
    without_gke=HostImage("ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e"),
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
    fp8_tflops=None,
    cubes=None,
    documented_cubes=None,
    dws=True,
    dra=True,
    dynamic_slicing=False,
    min_version="1.31.1-gke.1846000",
    price=_list_price(2.70),
    spot_factor=0.5,
    tensor_cores_as_devices=1,
    quota=QuotaMetrics("TPUS-PER-TPU-FAMILY-per-project-region", "PREEMPTIBLE-TPU-V6E-per-project-region"),
    sub_block_hosts=None,
    without_gke=HostImage("ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e"),
)
TPU7X = Generation(
    name="tpu7x",
    accelerator="tpu7x",
    dimensions=3,
    hbm_gib=192,
    bf16_tflops=2307,
    tensor_cores=2,
    pod_chips=9216,
    placement="workload-policy",
    boot_disks=("hyperdisk-balanced",),
    zones=("us-central1-c", "us-central1-ai1a"),
    fp8_tflops=4614,
    cubes=144,
    documented_cubes=None,
    dws=True,
    dra=False,
    dynamic_slicing=True,
    min_version="1.34.0-gke.2201000",
    price=None,
    spot_factor=0.5,
    tensor_cores_as_devices=2,
    quota=QuotaMetrics("TPUS-PER-TPU-FAMILY-per-project-region", "PREEMPTIBLE-TPU7X-per-project-region"),
    sub_block_hosts=16,  # one 4x4x4 cube
    without_gke=HostImage("ubuntu-accel-2404-amd64-tpu-tpu7x"),
)

GENERATIONS = {generation.name: generation for generation in (V4, V5E, V5P, V6E, TPU7X)}

KNOWN_ZONES = frozenset(zone for generation in GENERATIONS.values() for zone in generation.zones)
