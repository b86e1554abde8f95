"""TPU machine types that GKE and Compute Engine offer: each is one row. Sources as in `generations`."""

from dataclasses import dataclass

from catalogue.generations import GENERATIONS, TPU7X, V4, V5E, V5P, V6E, Generation


@dataclass(frozen=True)
class Machine:
    """A TPU machine type, without defaults: `chips` per host, `memory_gb` of the host, `topology` of one host.

    `multi_host`: whether slices are built of several such hosts. `threads_per_core`: what GKE sets on its nodes, where
    it does. `accelerator_nics`: network interfaces that DRANET may hand to pods, 0 where it cannot.
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

# Machine types people meet elsewhere, and why they are not offered here.
FOREIGN_MACHINES = {
    "ct5p-hightpu-1t": "Compute Engine documents it, GKE's autoscaler does not know it",
    "ct5p-hightpu-2t": "Compute Engine documents it, GKE's autoscaler does not know it",
    "ct5p-hightpu-1t-tpu": "Compute Engine documents it, no known tool builds slices of it",
    "ct5p-hightpu-2t-tpu": "Compute Engine documents it, no known tool builds slices of it",
    **{f"ct5l-hightpu-{chips}t": "it is a single TPU device (tpu-v5-lite-device), not a slice" for chips in (1, 4, 8)},
}
