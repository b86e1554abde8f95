"""Quota: what the plan needs against what the project may use.

Compute Engine describes a region with limit and usage, but leaves out metrics with a dimension of their own
(`tpu_family`) and the newer preemptible ones; Service Usage knows the limits of all. Quota is permission, not capacity.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from plan.slices import SlicePlan
from plan.words import counted
from tools.preflight.cloud import Json
from tools.preflight.findings import Finding
from tools.preflight.scene import Scene, machines

COMPUTE = "compute.googleapis.com"
FAMILY_METRIC = "tpus_per_tpu_family"
UNLIMITED = -1
# Families whose vCPUs share one metric; others have one of their own.
PLAIN_CPUS = ("e2", "n1", "f1", "g1")


class Key(NamedTuple):
    """A quota: its metric in a region; `family` where the metric has that dimension."""

    metric: str
    region: str
    family: str | None

    def __str__(self) -> str:
        family = f" of family {self.family}" if self.family else ""
        return f"{self.metric.upper()}{family} in {self.region}"


@dataclass(frozen=True)
class State:
    """A quota's limit and, where Google shows it, how much of it is in use."""

    limit: int
    usage: int | None


def chip_quota(scene: Scene) -> Iterator[Finding]:
    """Chips of the plan by metric; alternatives of a fallback count once for a metric, reserved hosts not at all."""
    total, missing = _chips(scene, built=True), _chips(scene, built=False)
    for key, chips in sorted(total.items()):
        state = _state(scene, key)
        if state is None:
            yield Finding(
                "warning",
                f"{key}: {counted(chips, 'chip')} needed; Google shows no such quota",
                "look it up in the console",
            )
        else:
            yield _compared(scene, f"{key}", chips, missing[key], state, "chip")
    unnamed = sorted(
        {p.generation.name for p in scene.platform.slice_plans if p.capacity != "reservation" and not p.quota}
    )
    for generation in unnamed:
        yield Finding(
            "not checked", f"the quota names of {generation} are in no public source", _console(scene.platform.project)
        )
    if not total and not unnamed:
        yield Finding("ok", "no quota needed: the slices' hosts are reserved, or there are none")


def _chips(scene: Scene, *, built: bool) -> Counter[Key]:
    """Chips by quota; `built`: with those of pools that stand already."""
    by_group: dict[tuple[str, Key], int] = {}
    for plan in scene.platform.slice_plans:
        if plan.quota is None:
            continue
        hosts = plan.asks if built else scene.missing(plan)
        chips = sum(number for _, number in hosts) * plan.chips_per_host
        of_group = (plan.group, _key(plan))
        by_group[of_group] = max(chips, by_group.get(of_group, 0))
    found: Counter[Key] = Counter()
    for (_, key), chips in by_group.items():
        found[key] += chips
    return found


def _key(plan: SlicePlan) -> Key:
    assert plan.quota is not None
    metric = plan.quota.metric.removesuffix("-per-project-region").replace("-", "_").lower()
    family = plan.machine.name.partition("-")[0].upper() if metric == FAMILY_METRIC else None
    return Key(metric, plan.quota.region, family)


def _state(scene: Scene, key: Key) -> State | None:
    region = scene.region_quotas(key.region).get(key.metric.upper())
    if region is not None and key.family is None:
        return State(int(region["limit"]), int(region["usage"]))
    buckets = [bucket for bucket in scene.quota_buckets(f"{COMPUTE}/{key.metric}") if _covers(bucket, key)]
    # Google lists the most specific last.
    return State(int(buckets[-1]["effectiveLimit"]), None) if buckets else None


def _covers(bucket: Json, key: Key) -> bool:
    own = {"region": key.region, "tpu_family": key.family}
    return all(own.get(name) == value for name, value in bucket.get("dimensions", {}).items())


def _compared(scene: Scene, name: str, total: int, missing: int, state: State, unit: str) -> Finding:
    """What is in use may be this platform's own, so of what stands nothing is needed again."""
    used = "" if state.usage is None else f", {state.usage} in use"
    limit = "no limit" if state.limit == UNLIMITED else f"limit {state.limit}"
    what = f"{name}: {counted(total, unit)} needed, {limit}{used}"
    if state.limit == UNLIMITED:
        return Finding("ok", what)
    if total > state.limit:
        return Finding("blocks", what, f"ask for {total - state.limit} more: {_console(scene.platform.project)}")
    if state.usage is not None and missing > state.limit - state.usage:
        short = missing - (state.limit - state.usage)
        return Finding("blocks", what, f"free {short}, or ask for more: {_console(scene.platform.project)}")
    return Finding("ok", what)


def _console(project: str) -> str:
    return f"https://console.cloud.google.com/iam-admin/quotas?project={project}"


def cpu_quota(scene: Scene) -> Iterator[Finding]:
    """vCPUs of machines without TPUs: the fewest must fit, the most should."""
    fewest: Counter[Key] = Counter()
    most: Counter[Key] = Counter()
    for each in machines(scene.platform):
        found = scene.machine_types[each.zone, each.machine_type]
        if each.chips is None and found is not None:
            family = each.machine_type.partition("-")[0]
            metric = "cpus" if family in PLAIN_CPUS else f"{family}_cpus"
            key = Key(metric, each.zone.rpartition("-")[0], None)
            fewest[key] += each.fewest * found["guestCpus"]
            most[key] += each.most * found["guestCpus"]
    stands = any(map(scene.stands, scene.platform.all_cpu_pools))
    for key in sorted(fewest):
        state = _state(scene, key)
        if state is None:
            yield Finding("not checked", f"{key}: {counted(fewest[key], 'vCPU')} needed; Google shows no such quota")
            continue
        finding = _compared(scene, f"{key}", fewest[key], 0 if stands else fewest[key], state, "vCPU")
        yield finding
        if finding.level == "ok" and UNLIMITED != state.limit < most[key]:
            yield Finding(
                "warning",
                f"{key}: {most[key]} vCPUs when all pools are at their largest, limit {state.limit}",
                f"lower max, or ask for more: {_console(scene.platform.project)}",
            )
