"""Google's side of the contract: machine types, TPU topologies, zones, GKE versions and images the emulator knows.

The tables are in `machines.yaml`, with their origin. They are deliberately independent: the program's own catalogue is
checked against them, not derived from them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import yaml

_TABLES: dict[str, Any] = yaml.load(Path(__file__).with_suffix(".yaml").read_text(), yaml.CSafeLoader)
MAX_GROUP_SIZE = 2000  # VMs in one managed instance group


@dataclass(frozen=True)
class Generation:
    """One TPU generation. `cubes` bounds a 3-D slice, in 4x4x4 blocks; 0 means 2-D topologies.

    `quota` and `spot_quota` are the regional Compute Engine metrics that its chips count against; `devices_per_chip` is
    how many devices frameworks show for a chip.
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
    devices_per_chip: int = 1

    @property
    def dimensions(self) -> int:
        return 3 if self.cubes else 2


GENERATIONS = {
    name: Generation(name, **{**row, "disks": frozenset(row["disks"])}) for name, row in _TABLES["generations"].items()
}


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
        return topology in _TABLES["multi_host_2d"]
    if topology in _TABLES["small_3d"]:
        return True
    cubes = prod(side // 4 for side in sides)
    whole_cubes = all(side % 4 == 0 and side <= 256 for side in sides)
    return whole_cubes and list(sides) == sorted(sides) and 1 <= cubes <= generation.cubes


TPU_MACHINES = {
    name: MachineType(name, **{**row, "generation": GENERATIONS[row["generation"]]})
    for name, row in _TABLES["tpu_machines"].items()
}
SHARED_CORE = {name: MachineType(name, **row) for name, row in _TABLES["shared_core"].items()}
# GB of memory per vCPU.
CPU_SHAPES: dict[str, int] = _TABLES["cpu_shapes"]
ZONES: dict[str, frozenset[str]] = {zone: frozenset(names) for zone, names in _TABLES["zones"].items()}
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
    if named := TPU_MACHINES.get(name) or SHARED_CORE.get(name):
        return named
    series, _, rest = name.partition("-")
    shape, _, size = rest.partition("-")
    if series not in _TABLES["cpu_series"] or shape not in CPU_SHAPES:
        return None
    if not size.isdigit() or int(size) not in _TABLES["cpu_sizes"]:
        return None
    return MachineType(name, int(size), int(size) * CPU_SHAPES[shape])


def offered(name: str, zone: str, zones: dict[str, frozenset[str]] = ZONES) -> MachineType | None:
    """A machine type if `zone` offers it. TPU offers are only refused in zones that `zones` lists."""
    machine = machine_type(name)
    if machine is None or (name.startswith("e2-") and zone in _TABLES["no_e2_zones"]):
        return None
    if machine.generation and zone in zones and machine.generation.name not in zones[zone]:
        return None
    return machine


def machines_in(zone: str, zones: dict[str, frozenset[str]] = ZONES) -> list[MachineType]:
    """Every machine type a zone lists: the TPU types the table places there and the general-purpose ones."""
    here = zones.get(zone, frozenset())
    tpus = [m for m in TPU_MACHINES.values() if m.generation and m.generation.name in here]
    usual = product(_TABLES["cpu_series"], CPU_SHAPES, _TABLES["cpu_sizes"])
    names = [*SHARED_CORE, *(f"{series}-{shape}-{size}" for series, shape, size in usual)]
    return tpus + [machine for name in names if (machine := offered(name, zone, zones))]


CHANNELS: dict[str, list[str]] = _TABLES["channels"]


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


IMAGE_FAMILIES: dict[str, dict[str, str]] = _TABLES["image_families"]


def image_in_family(project: str, family: str) -> str | None:
    return IMAGE_FAMILIES.get(project, {}).get(family)


def image_family(project: str, image: str) -> str | None:
    """The family of a dated public image; builds of a known family are accepted whatever their date."""
    for family, current in IMAGE_FAMILIES.get(project, {}).items():
        undated = re.sub(r"-v?\d{8}[a-z]?$", "", current)
        if image == current or re.fullmatch(re.escape(undated) + r"-v?\d{8}[a-z]?", image):
            return family
    return None
