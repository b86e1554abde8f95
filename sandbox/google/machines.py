"""Google's side of the contract: machine types, TPU topologies, zones, GKE versions and images the emulator knows.

This is deliberately a second, independent table: the program's own catalogue is checked against it, not derived from
it. TPU rows follow GKE's cluster-autoscaler source and the Cloud TPU documentation; zones are those named in Google's
documentation (more exist). GKE version strings are plausible builds of the minors a channel offers, not real releases.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from math import prod

SMALL_3D = frozenset({"2x2x1", "2x2x2", "2x2x4", "2x4x4"})
MULTI_HOST_2D = frozenset({"2x4", "4x4", "4x8", "8x8", "8x16", "16x16"})
MAX_GROUP_SIZE = 2000  # VMs in one managed instance group
ALL_DISKS = frozenset({"pd-standard", "pd-balanced", "pd-ssd", "hyperdisk-balanced"})


@dataclass(frozen=True)
class Generation:
    """One TPU generation. `cubes` bounds a 3-D slice, in 4x4x4 blocks; 0 means 2-D topologies.

    `quota` and `spot_quota` are the regional Compute Engine metrics that its chips count against.
    """

    name: str
    label: str
    family: str
    cubes: int
    disks: frozenset[str]
    default_disk: str
    quota: str
    spot_quota: str
    flex_start: bool = True
    workload_policy: bool = False
    on_compute: bool = True
    min_version: str = ""

    @property
    def dimensions(self) -> int:
        return 3 if self.cubes else 2


V4 = Generation(
    "v4",
    "tpu-v4-podslice",
    "CT4P",
    64,
    ALL_DISKS,
    "pd-standard",
    "TPU_V4_PODSLICE",
    "PREEMPTIBLE_TPU_V4_PODSLICE",
    flex_start=False,
    on_compute=False,
)
V5E = Generation(
    "v5e",
    "tpu-v5-lite-podslice",
    "CT5LP",
    0,
    frozenset({"pd-balanced", "pd-ssd"}),
    "pd-balanced",
    "TPU_LITE_PODSLICE_V5",
    "PREEMPTIBLE_TPU_LITE_PODSLICE_V5",
    on_compute=False,
)
V5P = Generation(
    "v5p",
    "tpu-v5p-slice",
    "CT5P",
    140,
    frozenset({"pd-balanced", "pd-ssd"}),
    "pd-balanced",
    "TPU_V5P",
    "PREEMPTIBLE_TPU_V5P",
)
V6E = Generation(
    "v6e",
    "tpu-v6e-slice",
    "CT6E",
    0,
    frozenset({"hyperdisk-balanced"}),
    "hyperdisk-balanced",
    "TPUS_PER_TPU_FAMILY:CT6E",
    "PREEMPTIBLE_TPU_V6E",
    min_version="1.31.1-gke.1846000",
)
TPU7X = Generation(
    "tpu7x",
    "tpu7x",
    "TPU7X",
    144,
    frozenset({"hyperdisk-balanced"}),
    "hyperdisk-balanced",
    "TPUS_PER_TPU_FAMILY:TPU7X",
    "PREEMPTIBLE_TPU7X",
    workload_policy=True,
    min_version="1.34.0-gke.2201000",
)
GENERATIONS = {g.name: g for g in (V4, V5E, V5P, V6E, TPU7X)}


@dataclass(frozen=True)
class MachineType:
    """A machine type; `chips` is 0 and `generation` None for machines without TPUs. Memory in GB."""

    name: str
    vcpus: int
    memory_gb: int
    chips: int = 0
    generation: Generation | None = None
    single_host: str = ""
    multi_host: bool = False
    threads_per_core: int = 0

    def hosts(self, topology: str) -> int | None:
        """How many of these machines form a slice of `topology`; None when no such slice exists."""
        if self.generation is None:
            return None
        if topology == self.single_host:
            return 1
        if not self.multi_host or not _is_slice(topology, self.generation):
            return None
        hosts = prod(parse_topology(topology)) // self.chips
        return hosts if 1 < hosts <= MAX_GROUP_SIZE else None


def parse_topology(topology: str) -> tuple[int, ...]:
    """("4x4x8") -> (4, 4, 8); an empty tuple for anything that is not numbers joined by x."""
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)+", topology):
        return ()
    return tuple(int(side) for side in topology.split("x"))


def _is_slice(topology: str, generation: Generation) -> bool:
    sides = parse_topology(topology)
    if len(sides) != generation.dimensions:
        return False
    if generation.dimensions == 2:
        return topology in MULTI_HOST_2D
    if topology in SMALL_3D:
        return True
    cubes = prod(side // 4 for side in sides)
    whole_cubes = all(side % 4 == 0 and side <= 256 for side in sides)
    return whole_cubes and list(sides) == sorted(sides) and 1 <= cubes <= generation.cubes


TPU_MACHINES = (
    MachineType("ct4p-hightpu-4t", 240, 407, 4, V4, "2x2x1", multi_host=True),
    MachineType("ct5lp-hightpu-1t", 24, 48, 1, V5E, "1x1"),
    MachineType("ct5lp-hightpu-4t", 112, 192, 4, V5E, "2x2", multi_host=True),
    MachineType("ct5lp-hightpu-8t", 224, 384, 8, V5E, "2x4"),
    MachineType("ct5p-hightpu-4t", 208, 448, 4, V5P, "2x2x1", multi_host=True),
    MachineType("ct6e-standard-1t", 44, 176, 1, V6E, "1x1"),
    MachineType("ct6e-standard-4t", 180, 720, 4, V6E, "2x2", multi_host=True),
    MachineType("ct6e-standard-8t", 180, 1440, 8, V6E, "2x4", threads_per_core=1),
    MachineType("tpu7x-standard-1t", 56, 248, 1, TPU7X, "1x1x1"),
    MachineType("tpu7x-standard-4t", 224, 992, 4, TPU7X, "2x2x1", multi_host=True),
)
_TPU_BY_NAME = {machine.name: machine for machine in TPU_MACHINES}

# General-purpose families: series, and GB of memory per vCPU of each shape.
CPU_SERIES = ("e2", "n1", "n2", "n2d", "n4", "c2", "c2d", "c3", "c3d", "c4", "c4a", "c4d", "t2d", "t2a")
CPU_SHAPES = {"standard": 4, "highmem": 8, "highcpu": 1}
CPU_SIZES = (1, 2, 4, 8, 16, 22, 30, 32, 44, 48, 60, 64, 80, 88, 90, 96, 112, 128, 176, 192, 224)
E2_SHARED = {"e2-micro": (2, 1), "e2-small": (2, 2), "e2-medium": (2, 4)}

ZONES: dict[str, frozenset[str]] = {
    "us-central2-b": frozenset({"v4"}),
    "us-central1-a": frozenset({"v5e", "v5p"}),
    "us-central1-b": frozenset({"v6e"}),
    "us-central1-c": frozenset({"tpu7x"}),
    "us-central1-ai1a": frozenset({"tpu7x"}),
    "us-south1-a": frozenset({"v5e"}),
    "us-south1-ai1b": frozenset({"v6e"}),
    "us-west1-c": frozenset({"v5e"}),
    "us-west4-a": frozenset({"v5e"}),
    "us-east1-d": frozenset({"v6e"}),
    "us-east5-a": frozenset({"v5p", "v6e"}),
    "us-east5-b": frozenset({"v6e"}),
    "europe-west4-a": frozenset({"v6e"}),
    "europe-west4-b": frozenset({"v5e", "v5p"}),
    "asia-northeast1-b": frozenset({"v6e"}),
}
NO_E2_ZONES = frozenset({"us-central2-b"})
_ORDINARY_LETTERS = ("a", "b", "c")


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


REGIONS = sorted({region_of(zone) for zone in ZONES})


def zones_of(region: str) -> list[str]:
    """The region's zones: three ordinary ones and those the TPU table names; none for an unknown region."""
    if region not in REGIONS:
        return []
    tpu_zones = {zone for zone in ZONES if region_of(zone) == region}
    return sorted(tpu_zones | {f"{region}-{letter}" for letter in _ORDINARY_LETTERS})


def machine_type(name: str) -> MachineType | None:
    """A machine type by name, TPU or general purpose, wherever it is offered."""
    if name in _TPU_BY_NAME:
        return _TPU_BY_NAME[name]
    if name in E2_SHARED:
        return MachineType(name, *E2_SHARED[name])
    series, _, rest = name.partition("-")
    shape, _, size = rest.partition("-")
    if series not in CPU_SERIES or shape not in CPU_SHAPES or not size.isdigit() or int(size) not in CPU_SIZES:
        return None
    return MachineType(name, int(size), int(size) * CPU_SHAPES[shape])


def offered(name: str, zone: str, zones: dict[str, frozenset[str]] = ZONES) -> MachineType | None:
    """A machine type if `zone` offers it. TPU offers are only refused in zones that `zones` lists."""
    machine = machine_type(name)
    if machine is None or (name.startswith("e2-") and zone in NO_E2_ZONES):
        return None
    if machine.generation and zone in zones and machine.generation.name not in zones[zone]:
        return None
    return machine


def machines_in(zone: str, zones: dict[str, frozenset[str]] = ZONES) -> list[MachineType]:
    """Every machine type a zone lists: the TPU types the table places there and the general-purpose ones."""
    here = zones.get(zone, frozenset())
    tpus = [m for m in TPU_MACHINES if m.generation and m.generation.name in here]
    names = [*E2_SHARED, *("-".join((s, k, str(n))) for s, k, n in product(CPU_SERIES, CPU_SHAPES, CPU_SIZES))]
    return tpus + [machine for name in names if (machine := offered(name, zone, zones))]


# Newest first; the first entry is the channel's default.
CHANNELS: dict[str, tuple[str, ...]] = {
    "RAPID": ("1.36.2-gke.1000000", "1.36.1-gke.1500000", "1.35.6-gke.1200000"),
    "REGULAR": ("1.35.6-gke.1200000", "1.35.3-gke.1100000", "1.34.9-gke.1400000"),
    "STABLE": ("1.34.9-gke.1400000", "1.34.6-gke.1000000", "1.33.11-gke.1300000"),
    "EXTENDED": ("1.34.9-gke.1400000", "1.33.11-gke.1300000", "1.32.13-gke.1200000"),
}


def version_key(version: str) -> tuple[int, ...]:
    """Orders "1.36.2-gke.1000000"; missing parts count as 0."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


ALL_VERSIONS = tuple(sorted({v for vs in CHANNELS.values() for v in vs}, key=version_key, reverse=True))


def resolve_version(wanted: str, channel: str) -> str | None:
    """The newest offered version for "", "-", "latest", a prefix such as "1.36", or an exact version; else None."""
    versions = CHANNELS.get(channel, ALL_VERSIONS)
    if wanted in ("", "-"):
        return CHANNELS.get(channel, CHANNELS["REGULAR"])[0]
    if wanted == "latest":
        return versions[0]
    return next((v for v in versions if v == wanted or v.startswith((f"{wanted}.", f"{wanted}-"))), None)


# Public image projects: family -> the image it resolves to.
IMAGE_FAMILIES: dict[str, dict[str, str]] = {
    "ubuntu-os-accelerator-images": {
        "ubuntu-accel-2404-amd64-tpu-tpu7x": "ubuntu-accel-2404-amd64-tpu-tpu7x-v20260320",
        "ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e": "ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e-v20260320",
    },
    "ubuntu-os-cloud": {
        "ubuntu-2404-lts-amd64": "ubuntu-2404-noble-amd64-v20260905",
        "ubuntu-2204-lts": "ubuntu-2204-jammy-v20260905",
    },
    "debian-cloud": {"debian-12": "debian-12-bookworm-v20260910", "debian-13": "debian-13-trixie-v20260910"},
    "cos-cloud": {"cos-stable": "cos-125-19216-104-100", "cos-121-lts": "cos-121-18867-294-100"},
}


def image_in_family(project: str, family: str) -> str | None:
    return IMAGE_FAMILIES.get(project, {}).get(family)


def image_family(project: str, image: str) -> str | None:
    """The family of a dated public image; builds of a known family are accepted whatever their date."""
    for family, current in IMAGE_FAMILIES.get(project, {}).items():
        undated = re.sub(r"-v?\d{8}[a-z]?$", "", current)
        if image == current or re.fullmatch(re.escape(undated) + r"-v?\d{8}[a-z]?", image):
            return family
    return None
