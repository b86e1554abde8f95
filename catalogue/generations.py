"""TPU generations and the machine types of each, as tables: an entry has no defaults, so nothing can be left out.

Sources: vCPU, memory, boot disks, network interfaces, price ranking and Dynamic Workload Scheduler (DWS) support from
GKE's own autoscaler (GoogleCloudPlatform/cluster-autoscaler @7d25050); FLOP/s, HBM and pod size from the Cloud TPU
documentation; cube limits from AI-Hypercomputer/xpk @367c838 and GoogleCloudPlatform/cluster-toolkit @1047080;
DRA support from kubernetes-sigs/dra-driver-google-tpu @f5a9d8c; Hyperdisk ML from
kubernetes-sigs/gcp-compute-persistent-disk-csi-driver @b560165 (deploy/disk_type_labels.sh).
"""

from dataclasses import dataclass
from typing import Literal

IMAGE_PROJECT = "ubuntu-os-accelerator-images"
"""Google Cloud project of the disk images of hosts that are not GKE's."""


@dataclass(frozen=True)
class Price:
    """The price of one chip for an hour: an estimate, with its source and the day on which it was read.

    `upper_bound`: what is paid may be less, and no source says how much.
    """

    amount: float
    currency: str
    as_of: str
    source: str
    upper_bound: bool


@dataclass(frozen=True)
class QuotaMetrics:
    """Compute Engine quota ids counted in chips per region; the Cloud TPU API's quota does not count for GKE."""

    on_demand: str
    preemptible: str


@dataclass(frozen=True)
class HostImage:
    """Disk images of hosts that are not GKE's, in `IMAGE_PROJECT`. `tried`: whether a known tool makes such slices."""

    family: str
    tried: bool


@dataclass(frozen=True)
class OnlyOnGke:
    """Why slices of a generation need GKE."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What all machine types of one TPU generation share. No field has a default.

    - `other_names`: what people also call it; `driver_name`: what the TPU DRA driver calls it
    - `accelerator`: value of the node label `cloud.google.com/gke-tpu-accelerator`
    - `hbm_gib`, `bf16_tflops`, `fp8_tflops`, `tensor_cores`: per chip
    - `tensor_cores_as_devices`: devices that frameworks show per chip, as JAX does
    - `cubes`: limit of (A/4)(B/4)(C/4) of three-dimensional shapes; None in two dimensions
    - `documented_cubes`: the same for the largest shape that Google documents, where that is smaller
    - `placement`: how GKE keeps the hosts of a slice together (without GKE always by a workload policy)
    - `dws`: flex-start and queued provisioning; `dra`: the TPU DRA driver; `dynamic_slicing`: cubes joined at run time
    - `min_version`: first GKE version that offers it
    - `boot_disks`: allowed types, the default first
    - `hyperdisk_ml`: whether hosts can have a Hyperdisk ML disk attached
    - `zones`: known from documentation and sources; not exhaustive
    - `spot_factor`: spot price divided by list price
    - `sub_block_hosts`: hosts of a reservation's sub-block; None where reservations have none
    - `without_gke`: the disk images with the drivers of this generation, or why its slices need GKE
    """

    name: str
    other_names: tuple[str, ...]
    driver_name: str
    accelerator: str
    dimensions: Literal[2, 3]
    hbm_gib: int
    bf16_tflops: int
    tensor_cores: int
    pod_chips: int
    placement: Literal["compact", "workload-policy"]
    boot_disks: tuple[str, ...]
    hyperdisk_ml: bool
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
        """Full name of the image family of hosts without GKE; a rule refuses slices that have none."""
        assert isinstance(self.without_gke, HostImage)
        return f"projects/{IMAGE_PROJECT}/global/images/family/{self.without_gke.family}"


@dataclass(frozen=True)
class Machine:
    """A TPU machine type, without defaults: `chips` per host, `memory_gb` of the host, `topology` of one host.

    `multi_host`: whether several such hosts can form a slice. `threads_per_core`: set by GKE on its nodes, None where
    it sets none. `accelerator_nics`: network interfaces that DRANET can give to pods.
    """

    name: str
    generation: Generation
    chips: int
    vcpus: int
    memory_gb: int
    topology: str
    multi_host: bool
    threads_per_core: int | None
    accelerator_nics: int


def _list_price(amount: float) -> Price:
    return Price(
        amount,
        "USD",
        "2026-11-21",
        "list price, US, as GKE's autoscaler ranks it (cluster-autoscaler @7d25050)",
        upper_bound=False,
    )


V4 = Generation(
    name="v4",
    other_names=(),
    driver_name="v4",
    accelerator="tpu-v4-podslice",
    dimensions=3,
    hbm_gib=32,
    bf16_tflops=275,
    tensor_cores=2,
    pod_chips=4096,
    placement="compact",
    boot_disks=("pd-standard", "pd-balanced", "pd-ssd", "hyperdisk-balanced"),
    hyperdisk_ml=False,
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
    other_names=("v5litepod", "v5lite"),
    driver_name="v5litepod",
    accelerator="tpu-v5-lite-podslice",
    dimensions=2,
    hbm_gib=16,
    bf16_tflops=197,
    tensor_cores=1,
    pod_chips=256,
    placement="compact",
    boot_disks=("pd-balanced", "pd-ssd"),
    hyperdisk_ml=True,
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
    other_names=(),
    driver_name="v5p",
    accelerator="tpu-v5p-slice",
    dimensions=3,
    hbm_gib=95,
    bf16_tflops=459,
    tensor_cores=2,
    pod_chips=8960,
    placement="compact",
    boot_disks=("pd-balanced", "pd-ssd"),
    hyperdisk_ml=True,
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
    without_gke=HostImage("ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e", tried=False),
)
V6E = Generation(
    name="v6e",
    other_names=("trillium",),
    driver_name="v6e",
    accelerator="tpu-v6e-slice",
    dimensions=2,
    hbm_gib=32,
    bf16_tflops=918,
    tensor_cores=1,
    pod_chips=256,
    placement="compact",
    boot_disks=("hyperdisk-balanced",),
    hyperdisk_ml=True,
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
    without_gke=HostImage("ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e", tried=True),
)
TPU7X = Generation(
    name="tpu7x",
    other_names=("ironwood", "v7x", "tpu7"),
    driver_name="tpu7x",
    accelerator="tpu7x",
    dimensions=3,
    hbm_gib=192,
    bf16_tflops=2307,
    tensor_cores=2,
    pod_chips=9216,
    placement="workload-policy",
    boot_disks=("hyperdisk-balanced",),
    hyperdisk_ml=True,
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
    without_gke=HostImage("ubuntu-accel-2404-amd64-tpu-tpu7x", tried=True),
)

GENERATIONS = {generation.name: generation for generation in (V4, V5E, V5P, V6E, TPU7X)}

KNOWN_ZONES = frozenset(zone for generation in GENERATIONS.values() for zone in generation.zones)

MACHINES = {
    machine.name: machine
    for machine in (
        Machine("ct4p-hightpu-4t", V4, 4, 240, 407, "2x2x1", True, None, 0),
        Machine("ct5lp-hightpu-1t", V5E, 1, 24, 48, "1x1", False, None, 0),
        Machine("ct5lp-hightpu-4t", V5E, 4, 112, 192, "2x2", True, None, 0),
        Machine("ct5lp-hightpu-8t", V5E, 8, 224, 384, "2x4", False, None, 0),
        Machine("ct5p-hightpu-4t", V5P, 4, 208, 448, "2x2x1", True, None, 0),
        Machine("ct6e-standard-1t", V6E, 1, 44, 176, "1x1", False, None, 1),
        Machine("ct6e-standard-4t", V6E, 4, 180, 720, "2x2", True, None, 2),
        Machine("ct6e-standard-8t", V6E, 8, 180, 1440, "2x4", False, 1, 4),
        Machine("tpu7x-standard-1t", TPU7X, 1, 56, 248, "1x1x1", False, None, 0),
        Machine("tpu7x-standard-4t", TPU7X, 4, 224, 992, "2x2x1", True, None, 2),
    )
}

MACHINES_BY_GENERATION = {
    name: tuple(machine for machine in MACHINES.values() if machine.generation.name == name) for name in GENERATIONS
}

# Machine types that exist elsewhere, and why the program does not offer them.
FOREIGN_MACHINES = {
    "ct5p-hightpu-1t": "Compute Engine documents it, GKE's autoscaler does not know it",
    "ct5p-hightpu-2t": "Compute Engine documents it, GKE's autoscaler does not know it",
    "ct5p-hightpu-1t-tpu": "Compute Engine documents it, no known tool builds slices of it",
    "ct5p-hightpu-2t-tpu": "Compute Engine documents it, no known tool builds slices of it",
    **{f"ct5l-hightpu-{chips}t": "it is a single TPU device (tpu-v5-lite-device), not a slice" for chips in (1, 4, 8)},
}
