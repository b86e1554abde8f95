"""What changes of a slice's hosts, in the words of the stack file: `capacity: spot -> flex-start`, not property paths.

Read from the resource's own inputs before and after, so it holds for whoever wrote the program. What has no word here
is named by its property path.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tools.gate_preview import Step

POOL, TEMPLATE = "gcp:container/nodePool:NodePool", "gcp:compute/instanceTemplate:InstanceTemplate"
Inputs = dict[str, Any]


@dataclass(frozen=True)
class Word:
    """A key of the stack file. `paths`: properties that follow from it, each with all below it; `read`: its value in a
    resource's inputs, None where they do not tell."""

    key: str
    paths: tuple[str, ...]
    read: Callable[[Inputs], str | None]

    def covers(self, path: str) -> bool:
        return any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in self.paths)


def value(inputs: Inputs, path: str) -> Any:
    """The value at a dotted path, None where there is none."""
    found: Any = inputs
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _text(path: str) -> Callable[[Inputs], str | None]:
    def read(inputs: Inputs) -> str | None:
        found = value(inputs, path)
        return str(found) if isinstance(found, str | int | float) and not isinstance(found, bool) else None

    return read


def _reservation(affinity: Any) -> str | None:
    """`reservation NAME` where hosts are taken from one; sub-blocks are the last parts of the name."""
    if not isinstance(affinity, dict) or affinity.get("consumeReservationType") != "SPECIFIC_RESERVATION":
        return None
    names = [str(each) for each in affinity.get("values") or ()]
    return f"reservation {', '.join(names)}" if names else "reservation"


def _pool_capacity(inputs: Inputs) -> str | None:
    if not isinstance(node := inputs.get("nodeConfig"), dict):
        return None
    if reserved := _reservation(node.get("reservationAffinity")):
        return reserved
    if value(inputs, "queuedProvisioning.enabled") is True:
        return "queued"
    return "spot" if node.get("spot") is True else "flex-start" if node.get("flexStart") is True else "on-demand"


MODELS = {"SPOT": "spot", "FLEX_START": "flex-start", "RESERVATION_BOUND": "reservation", "STANDARD": "on-demand"}


def _template_capacity(inputs: Inputs) -> str | None:
    return _reservation(inputs.get("reservationAffinity")) or MODELS.get(
        str(value(inputs, "scheduling.provisioningModel"))
    )


def _first_zone(inputs: Inputs) -> str | None:
    zones = inputs.get("nodeLocations")
    return ", ".join(map(str, zones)) if isinstance(zones, list) and zones else None


WORDS = {
    POOL: (
        Word(
            "capacity",
            ("nodeConfig.spot", "nodeConfig.flexStart", "nodeConfig.reservationAffinity", "queuedProvisioning"),
            _pool_capacity,
        ),
        Word("topology", ("placementPolicy.tpuTopology",), _text("placementPolicy.tpuTopology")),
        Word("machine_type", ("nodeConfig.machineType",), _text("nodeConfig.machineType")),
        Word("zone", ("nodeLocations",), _first_zone),
        Word("max_run_duration", ("nodeConfig.maxRunDuration",), _text("nodeConfig.maxRunDuration")),
        Word("boot_disk.type", ("nodeConfig.diskType", "nodeConfig.bootDisk.diskType"), _text("nodeConfig.diskType")),
        Word("boot_disk.size_gb", ("nodeConfig.diskSizeGb",), _text("nodeConfig.diskSizeGb")),
        Word("service_account", ("nodeConfig.serviceAccount",), _text("nodeConfig.serviceAccount")),
        Word("max_pods_per_node", ("maxPodsPerNode",), _text("maxPodsPerNode")),
    ),
    TEMPLATE: (
        Word("capacity", ("scheduling", "reservationAffinity"), _template_capacity),
        Word("machine_type", ("machineType",), _text("machineType")),
    ),
}
"""By Pulumi type. `max_run_duration` and the rest stand below the slice's own entry in the stack file."""


def in_words(step: Step, paths: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """What these changed properties come from: `KEY: OLD -> NEW` with None, or a path that has no word with itself."""
    old = step.old_state.inputs if step.old_state else {}
    new = step.new_state.inputs if step.new_state else {}
    said: set[str] = set()
    for path in paths:
        word = next((each for each in WORDS.get(step.type, ()) if each.covers(path)), None)
        before, after = (word.read(old), word.read(new)) if word else (None, None)
        if word is None or before is None or after is None or before == after:
            yield path, path
        elif word.key not in said:
            said.add(word.key)
            yield f"{word.key}: {before} -> {after}", None
