"""Would a pod fit on a new node of a pool? The part of the scheduler's rules that decides which pool to grow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from sandbox.kubernetes.api import Object
from sandbox.kubernetes.dra import tpu_generation
from sandbox.kubernetes.nodes import ACCELERATOR_LABEL, Pool

ZONE_LABEL = "topology.kubernetes.io/zone"
CLAIMED_CHIPS = "claimed chips"  # counts DRA devices among a node's resources
_DECIMAL = {"m": Decimal("0.001"), **{unit: Decimal(1000) ** power for power, unit in enumerate(("", *"kMGTP"))}}
_BINARY = {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTP", start=1)}
_UNITS = {**_DECIMAL, **_BINARY}

Resources = Counter[str]


def milli(quantity: str | float) -> int:
    """A Kubernetes quantity in thousandths, rounded up: "100m" is 100, "1Gi" 1024**3 * 1000."""
    match = re.fullmatch(r"([+-]?[\d.]+(?:[eE][+-]?\d+)?)([a-zA-Z]*)", str(quantity))
    if not match or match[2] not in _UNITS:
        raise ValueError(f"not a quantity: {quantity}")
    return int(-(-Decimal(match[1]) * _UNITS[match[2]] * 1000 // 1))


def pod_requests(spec: Object) -> Resources:
    """What a pod asks of its node, in thousandths; limits stand in for requests that are not given.

    Sidecars count; other init containers, which ask for no more than the pod's own in this project, do not.
    """
    total: Resources = Counter({"pods": 1000})
    sidecars = [each for each in spec.get("initContainers") or [] if each.get("restartPolicy") == "Always"]
    for container in (*spec["containers"], *sidecars):
        resources = container.get("resources", {})
        asked = {**resources.get("limits", {}), **resources.get("requests", {})}
        total.update({name: milli(value) for name, value in asked.items()})
    return total


def node_resources(pool: Pool) -> Resources:
    """What an empty node of the pool offers, in thousandths, claimable chips included."""
    offered: Resources = Counter({name: milli(value) for name, value in pool.allocatable.items()})
    if pool.dra:
        offered[CLAIMED_CHIPS] = pool.machine.chips * 1000
    return offered


def fits(requests: Mapping[str, int], room: Mapping[str, int]) -> bool:
    return all(room.get(name, 0) >= amount for name, amount in requests.items())


def admits(pool: Pool, spec: Object) -> bool:
    """Whether node selector, required node affinity and taints let the pod onto the pool's nodes."""
    return not misfit(pool, spec)


def misfit(pool: Pool, spec: Object) -> str:
    """Why node selector, node affinity or taints keep a pod off the pool's nodes, in the scheduler's words; "" if not.

    Selectors that do not match are named, which the scheduler does not do.
    """
    for taint in pool.taints:
        if not _tolerated(taint, spec.get("tolerations", [])):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint['value']}}}"
    if any(_selected({**pool.labels, ZONE_LABEL: zone}, spec) for zone in pool.zones):
        return ""
    selector = spec.get("nodeSelector", {})
    wrong = [f"{key}={value}" for key, value in selector.items() if pool.labels.get(key, value) != value]
    wrong += [f"{key}={value}" for key, value in selector.items() if key not in {*pool.labels, ZONE_LABEL}]
    return "node(s) didn't match Pod's node affinity/selector" + (f" ({', '.join(wrong)})" if wrong else "")


def _selected(labels: Mapping[str, str], spec: Object) -> bool:
    if not spec.get("nodeSelector", {}).items() <= labels.items():
        return False
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    terms = (term.get("matchExpressions", []) for term in required["nodeSelectorTerms"])
    return any(all(_matches(labels, each) for each in term) for term in terms)


def _matches(labels: Mapping[str, str], expression: Object) -> bool:
    value, wanted = labels.get(expression["key"]), expression.get("values", [])
    match expression["operator"]:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(wanted[0])
        case "Lt":
            return value is not None and int(value) < int(wanted[0])
    raise ValueError(f"node affinity operator {expression['operator']}")


def _tolerated(taint: Mapping[str, str], tolerations: Iterable[Mapping[str, str]]) -> bool:
    if taint["effect"] == "PreferNoSchedule":
        return True
    return any(
        each.get("effect", taint["effect"]) == taint["effect"]
        and each.get("key", taint["key"]) == taint["key"]
        and (each.get("operator", "Equal") == "Exists" or each.get("value", "") == taint["value"])
        for each in tolerations
    )


def predicted_match(pool: Pool, expressions: Iterable[str]) -> bool:
    """Whether devices of a node that does not exist yet would pass these CEL expressions of classes and claims.

    GKE predicts `index`, `uuid` and `tpuGen` only. Of CEL this reads equality tests: the generation's is compared, one
    guarded with `orValue` holds when the default does, and a test of any other attribute cannot hold.
    """
    generation = tpu_generation(pool.labels.get(ACCELERATOR_LABEL, ""))
    for expression in expressions:
        if any(wanted != generation for wanted in re.findall(r'tpuGen\s*==\s*"([^"]*)"', expression)):
            return False
        guards = re.findall(r"\.\?(?!tpuGen)\w+\.orValue\(([^)]*)\)\s*==\s*([^\s&|)]+)", expression)
        if any(default != wanted for default, wanted in guards):
            return False
        if re.search(r'attributes\["tpu\.google\.com"\]\.(?!tpuGen|index|uuid|\?)\w+', expression):
            return False
    return True


def exact_requests(template: Object) -> list[dict[str, Any]]:
    """The `exactly` device requests of a ResourceClaim or ResourceClaimTemplate spec; others cannot be predicted."""
    requests = template.get("devices", {}).get("requests", [])
    return [each["exactly"] for each in requests if "exactly" in each]
