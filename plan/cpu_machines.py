"""Defaults for machines without TPUs."""

# The usual machine of the system pool, and others for zones that lack the e2 family (keras-team/kinetic #305).
DEFAULT_MACHINE = "e2-standard-4"
MACHINE_IN_ZONE = {"us-central2-b": "n2-standard-4"}

# Families that take no persistent disk; all others start from pd-balanced.
HYPERDISK_FAMILIES = ("n4", "n4a", "n4d", "c4", "c4a", "c4d", "x4", "h4d")


def default_machine(zone: str) -> str:
    """CPU machine type for controllers, one that the zone offers."""
    return MACHINE_IN_ZONE.get(zone, DEFAULT_MACHINE)


def default_disk(machine_type: str) -> str:
    """Boot disk type that a CPU machine type takes."""
    return "hyperdisk-balanced" if machine_type.partition("-")[0] in HYPERDISK_FAMILIES else "pd-balanced"
