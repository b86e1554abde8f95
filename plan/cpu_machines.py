"""Machines without TPUs: defaults and memory."""

from math import ceil

# The usual machine of the system pool, and others for zones that lack the e2 family (keras-team/kinetic #305).
DEFAULT_MACHINE = "e2-standard-4"
MACHINE_IN_ZONE = {"us-central2-b": "n2-standard-4"}

# Families that take no persistent disk; all others start from pd-balanced.
HYPERDISK_FAMILIES = ("n4", "n4a", "n4d", "c4", "c4a", "c4d", "x4", "h4d")


# GiB of memory for each vCPU. Of other families and types it is not the same for all sizes, or not a round number.
MEMORY_PER_CPU = {"standard": 4, "highmem": 8}
ROUND_FAMILIES = ("e2", "n2", "n2d", "n4", "c3", "c3d", "c4a", "t2d")


def memory_mib(machine_type: str) -> int | None:
    """Memory of a CPU machine type in MiB; None where its name does not tell.

    Source: Compute Engine documentation, machine families.
    """
    family, _, rest = machine_type.partition("-")
    kind, _, cpus = rest.partition("-")
    if family not in ROUND_FAMILIES or kind not in MEMORY_PER_CPU or not cpus.isdigit():
        return None
    return int(cpus) * MEMORY_PER_CPU[kind] * 1024


def memory_for_pods_mib(memory: int) -> int:
    """What GKE leaves to pods of a node's memory, in MiB.

    GKE keeps 25 % of the first 4 GiB, 20 % of the next 4, 10 % of the next 8, 6 % of the next 112 and 2 % of the rest,
    and 100 MiB for evictions. Source: GKE documentation, node sizes (for machines with 1 GiB and more).
    """
    kept, left = 100.0, memory
    for part, share in ((4, 0.25), (4, 0.2), (8, 0.1), (112, 0.06)):
        step = min(left, part * 1024)
        kept, left = kept + step * share, left - step
    return memory - ceil(kept + left * 0.02)


def default_machine(zone: str) -> str:
    """CPU machine type for controllers, one that the zone offers."""
    return MACHINE_IN_ZONE.get(zone, DEFAULT_MACHINE)


def default_disk(machine_type: str) -> str:
    """Boot disk type that a CPU machine type takes."""
    return "hyperdisk-balanced" if machine_type.partition("-")[0] in HYPERDISK_FAMILIES else "pd-balanced"
