"""What a TPU host's chips look like to a container: device files and environment. There is no chip behind them.

The environment is what the TPU DRA driver injects (kubernetes-sigs/dra-driver-google-tpu, 0.2.0), here for the device
plugin's pods, too. Each device file is the machine's /dev/null under the name that a chip has. One variable is the
sandbox's own: with XLA_FLAGS a JAX that computes on processors shows as many devices as it would show for the chips.
"""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.google.machines import GENERATIONS
from sandbox.kubernetes.nodes import ACCELERATOR_LABEL, CHIPS_LABEL, TOPOLOGY_LABEL

_CHIP_BOUNDS = {1: (1, 1, 1), 2: (1, 2, 1), 4: (2, 2, 1), 8: (2, 4, 1)}
_GENERATION_OF = {each.label: each for each in GENERATIONS.values()}
NO_CHIP = "/dev/null"


def device_files(labels: Mapping[str, str], chips: int) -> list[str]:
    """Where containers find the chips: /dev/accel0 on v4, /dev/vfio/0 later, where there is /dev/vfio/vfio too."""
    generation = _GENERATION_OF.get(labels.get(ACCELERATOR_LABEL, ""))
    if generation and generation.name == "v4":
        return [f"/dev/accel{number}" for number in range(chips)]
    return ["/dev/vfio/vfio", *(f"/dev/vfio/{number}" for number in range(chips))]


def environment(labels: Mapping[str, str]) -> dict[str, str]:
    """The variables that follow from a host's labels. Worker id and peers only where the host is a whole slice."""
    chips = int(labels.get(CHIPS_LABEL, 0))
    accelerator, topology = labels.get(ACCELERATOR_LABEL, ""), labels.get(TOPOLOGY_LABEL, "")
    known = _GENERATION_OF.get(accelerator)
    devices = chips * (known.devices_per_chip if known else 1)
    variables = {"TPU_SKIP_MDS_QUERY": "true", "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    if not (topology and chips in _CHIP_BOUNDS):
        return variables
    generation = known.name if known else ""
    shape = [int(each) for each in topology.split("x")]
    padded = shape + [1] * (3 - len(shape))
    total = padded[0] * padded[1] * padded[2]
    cores = 2 if generation in ("v4", "v5p") else 1
    name = {"v5e": "v5litepod"}.get(generation, generation)
    variables |= {"TPU_TOPOLOGY": topology, "TPU_ACCELERATOR_TYPE": f"{name}-{total * cores}"}
    if accelerator.endswith("slice"):
        hosts = [size // bound for size, bound in zip(padded, _CHIP_BOUNDS[chips], strict=True)]
        variables |= {
            **_both("HOST_BOUNDS", ",".join(map(str, hosts))),
            **_both("CHIPS_PER_HOST_BOUNDS", ",".join(map(str, _CHIP_BOUNDS[chips]))),
            **_both("TOPOLOGY_WRAP", _wrap(generation, padded), "WRAP"),
            **_both("TOPOLOGY_ALT", "false", "ALT"),
        }
    if total == chips:
        variables |= {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"}
    return variables


def _both(name: str, value: str, short: str = "") -> dict[str, str]:
    return {f"TPU_{name}": value, short or name: value}


def _wrap(generation: str, shape: list[int]) -> str:
    if generation in ("v4", "v5p"):
        return ",".join(["true" if min(shape) >= 4 else "false"] * 3)
    return ",".join("true" if size == 16 else "false" for size in shape)
