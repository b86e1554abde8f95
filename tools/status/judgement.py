"""Judges what was read: which slices are whole and why not, what is used, what it costs, and who must act.

Pure functions of a platform and its readings.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from catalogue.labels import FLAVOR_LABEL, RESERVATION_LABEL, SLICE_LABEL, SPOT_LABEL
from plan import unqueued_tpus
from plan.hosts import node_pool
from plan.platform import Platform
from plan.provisioning import TPU_PROVISIONER
from plan.slices import PoolPlan, SlicePlan
from plan.tpu_provisioner import delete_command
from plan.words import counted
from platform_config.capacity import Reservation
from tools.drawing import cluster_words
from tools.kueue_readings import QueueReading, WorkloadReading
from tools.status.google import BROKEN, LOAD_WINDOW
from tools.status.readings import (
    Holder,
    Host,
    Interruption,
    JobSetReading,
    PoolReading,
    Readings,
    ReservationReading,
)
from tools.status.report import Finding, Kind, Level, QueueRow, Report, SliceRow, joined

FLEX_LABEL = "cloud.google.com/gke-flex-start"

STOCKOUT = re.compile(
    r"STOCKOUT|ZONE_RESOURCE_POOL_EXHAUSTED|out of resources|does not( currently)? have (enough|sufficient)", re.I
)
"""Google's words for no capacity: of node pools, of Compute Engine, of GKE's autoscaler."""
FULL_RESERVATION = re.compile(
    r"capacity in (your|the) reservation|reservation.{0,80}(exhausted|insufficient|full)", re.I
)
UNDER_WAY = ("PROVISIONING", "RECONCILING", "STOPPING")
"""States of a node pool in which Google is at work."""
REPAIR = timedelta(minutes=10)
"""After that, GKE repairs a node that is not ready (GKE documentation, node auto-repair)."""
STARTING = timedelta(minutes=10)
"""A new host needs as long to show its chips, and a server to load its model."""
FAILED_LATELY = timedelta(hours=24)
KUEUE_GAVE_UP = "RequeuingLimitExceeded"
SHOWN_INTERRUPTIONS = 5


@dataclass(frozen=True)
class _Pool:
    """A node pool or group of a plan: what it is to have, and what is there. A multi-host slice is one of them."""

    name: str
    wanted: int
    hosts: Sequence[Host]
    google: PoolReading | None
    declared: bool

    def usable(self, plan: SlicePlan) -> list[Host]:
        return [host for host in self.hosts if host.ready and host.chips >= plan.chips_per_host]


@dataclass(frozen=True)
class _Scene:
    platform: Platform
    stack: str
    readings: Readings

    @property
    def at(self) -> datetime:
        return self.readings.at

    @property
    def hosts_known(self) -> bool:
        return self.readings.cluster.hosts is not None


def judge(platform: Platform, stack: str, readings: Readings) -> Report:
    """The report of a platform; `stack` is its stack's name."""
    scene = _Scene(platform, stack, readings)
    pools = _pools(scene)
    held: dict[str, int] = defaultdict(int)
    for holder in readings.cluster.holders or ():
        held[holder.host] += holder.chips
    findings = [finding for plan in platform.slice_plans for finding in _slice_findings(scene, plan, pools[plan.name])]
    findings += [*_growth(scene), *_work(scene), *_idle(scene, pools), *_unqueued(scene)]
    findings += _queue_findings(readings.cluster.queues or ())
    findings += _worker_findings(readings.cluster.workers or {})
    cluster, google = readings.cluster, readings.google
    return Report(
        platform=platform.name,
        project=platform.project,
        place=f"{cluster_words(platform)}, slices in {platform.zone}",
        at=readings.at,
        slices=tuple(_row(scene, plan, pools[plan.name], held) for plan in platform.slice_plans),
        queues=_queue_rows(scene) if cluster.queues is not None else None,
        reservations=google.reservations,
        interruptions=_interruptions(scene),
        findings=joined(findings),
        unread=(*cluster.unread, *google.unread),
        known=cluster.queues is not None if platform.is_manager else scene.hosts_known,
    )


# What belongs to which plan


def _pools(scene: _Scene) -> dict[str, list[_Pool]]:
    """By plan, its pools: those that are declared, and those that GKE or TPU Provisioner created."""
    platform, google = scene.platform, scene.readings.google
    hosts: dict[str, list[Host]] = defaultdict(list)
    for host in scene.readings.cluster.hosts or ():
        hosts[host.pool].append(host)
    known = google.pools or {}
    found: dict[str, list[_Pool]] = {plan.name: [] for plan in platform.slice_plans}
    taken = set()
    for plan in platform.slice_plans:
        for pool in plan.pools:
            name = node_pool(platform, pool.name)
            taken.add(name)
            found[plan.name].append(_declared(plan, pool, name, hosts.get(name, []), known.get(name)))
    undeclared = [plan for plan in platform.slice_plans if not plan.provisioning.declared]
    for name in sorted({*hosts, *known} - taken) if undeclared else ():
        plan_of_it = _plan_of(undeclared, hosts.get(name, []), known.get(name))
        if plan_of_it:
            wanted = _created_size(plan_of_it, hosts.get(name, []), known.get(name))
            found[plan_of_it.name].append(_Pool(name, wanted, hosts.get(name, []), known.get(name), False))
    return found


def _declared(plan: SlicePlan, pool: PoolPlan, name: str, hosts: Sequence[Host], google: PoolReading | None) -> _Pool:
    if pool.node_count is not None:
        return _Pool(name, pool.node_count, hosts, google, True)
    return _Pool(name, _created_size(plan, hosts, google), hosts, google, True)


def _created_size(plan: SlicePlan, hosts: Sequence[Host], google: PoolReading | None) -> int:
    """Hosts that a pool which comes and goes is to have now: what Google wants, else a whole slice or none."""
    if google and google.target is not None:
        return max(google.target, plan.hosts if plan.multi_host and (hosts or google.target) else 0)
    return (plan.hosts if plan.multi_host else len(hosts)) if hosts else 0


def _plan_of(plans: Sequence[SlicePlan], hosts: Sequence[Host], google: PoolReading | None) -> SlicePlan | None:
    """The plan that a created pool is for: by its group or flavor, then by its capacity."""
    labels = hosts[0].labels if hosts else google.labels if google else {}
    of_group = [plan for plan in plans if labels.get(SLICE_LABEL) == plan.group]
    fitting = of_group or [plan for plan in plans if labels.get(FLAVOR_LABEL) == plan.flavor]
    spot = google.spot if google else SPOT_LABEL in labels
    flex = google.flex_start if google else FLEX_LABEL in labels
    reserved = google.reserved if google else RESERVATION_LABEL in labels
    for plan in fitting:
        if (plan.model.gke.spot, plan.model.gke.flex_start, isinstance(plan.alternative, Reservation)) == (
            spot,
            flex,
            reserved,
        ):
            return plan
    return fitting[0] if fitting else None


# Slices


def _row(scene: _Scene, plan: SlicePlan, pools: Sequence[_Pool], held: Mapping[str, int]) -> SliceRow:
    wanted_hosts = sum(pool.wanted for pool in pools)
    existing = _existing(scene, pools)
    usable = [host for pool in pools for host in pool.usable(plan)]
    used = sum(held[host.name] for pool in pools for host in pool.hosts if host.name in held)
    idle = sum(max(host.chips - held.get(host.name, 0), 0) for host in usable)
    paid = _paid(plan, existing, wanted_hosts)
    known, held_known = scene.hosts_known, scene.readings.cluster.holders is not None
    return SliceRow(
        name=plan.name,
        shape=f"{plan.generation.name} {plan.topology}",
        one=counted(plan.hosts, "host") + f", {counted(plan.chips, 'chip')}",
        capacity=plan.capacity,
        whole=_whole(plan, pools) if known else None,
        wanted=sum(1 for pool in pools if pool.wanted) if plan.multi_host else wanted_hosts,
        most=plan.count,
        hosts=existing,
        hosts_ready=sum(host.ready for pool in pools for host in pool.hosts) if known else None,
        hosts_wanted=wanted_hosts,
        chips_used=used if known and held_known else None,
        chips_idle=idle if known and held_known else None,
        cost=_cost(plan, None if paid is None else paid * plan.chips_per_host),
        idle_cost=_cost(plan, idle) if known and held_known else None,
    )


def _whole(plan: SlicePlan, pools: Sequence[_Pool]) -> int:
    if plan.multi_host:
        return sum(1 for pool in pools if pool.wanted and len(pool.usable(plan)) >= plan.hosts)
    return sum(len(pool.usable(plan)) for pool in pools)


def _existing(scene: _Scene, pools: Sequence[_Pool]) -> int | None:
    """Hosts that exist, as the cluster says, else Google."""
    if scene.hosts_known:
        return sum(len(pool.hosts) for pool in pools)
    if scene.readings.google.pools is None:
        return None
    return sum((pool.google.target or 0) - pool.google.coming for pool in pools if pool.google)


def _paid(plan: SlicePlan, existing: int | None, wanted: int) -> int | None:
    """Hosts that cost something now. What is reserved is paid for, whether its hosts run or not."""
    if isinstance(plan.alternative, Reservation):
        return max(existing or 0, wanted)
    return existing


def _cost(plan: SlicePlan, chips: int | None) -> float | None:
    price = plan.price_per_chip_hour
    return None if price is None or chips is None else round(chips * price.amount, 2)


def _slice_findings(scene: _Scene, plan: SlicePlan, pools: Sequence[_Pool]) -> Iterator[Finding]:
    missing = sum(max(pool.wanted - len(pool.hosts), 0) for pool in pools) if scene.hosts_known else 0
    for pool in pools:
        yield from _pool_findings(scene, plan, pool, missing)
        for host in pool.hosts:
            yield from _host_findings(scene, plan, host)


def _pool_findings(scene: _Scene, plan: SlicePlan, pool: _Pool, missing: int) -> Iterator[Finding]:
    """What Google says of a pool, else what the cluster lacks of it. `missing`: hosts of all pools of the plan."""
    google = pool.google
    if google is None and scene.readings.google.pools is not None:
        if pool.wanted or pool.declared:
            kind = "node pool" if scene.platform.backend == "gke" else "instance group"
            step = f"pulumi refresh -s {scene.stack}, then pulumi up -s {scene.stack}"
            yield _of(plan, "act", "pool-missing", f"its {kind} does not exist", step, pool.name)
        return
    lacking = max(pool.wanted - len(pool.hosts), 0) if scene.hosts_known else 0
    if google and (google.status in BROKEN or (google.error and (lacking or not scene.hosts_known))):
        yield _failed(scene, plan, pool, google)
    elif lacking:
        yield _lacking(scene, plan, pool, lacking, missing)
    elif google and not scene.hosts_known and (google.status in UNDER_WAY or google.coming):
        yield _of(plan, "note", "hosts-coming", f"Google is at work on it ({google.status})", "", pool.name)


def _failed(scene: _Scene, plan: SlicePlan, pool: _Pool, google: PoolReading) -> Finding:
    said = google.error or "Google gives no reason"
    if FULL_RESERVATION.search(said):
        return _exhausted(plan, said, pool.name)
    if STOCKOUT.search(said):
        level: Level = "note" if _asks_again(plan) else "act"
        again = "; it asks again by itself" if level == "note" else ""
        step = "" if level == "note" else _after_a_stockout(scene, plan, pool, google)
        return _of(plan, level, "stockout", f"Google has no capacity for its hosts{again} ({said})", step, pool.name)
    if plan.provisioning is TPU_PROVISIONER:
        step = delete_command(scene.platform, pool.name)
    else:
        step = f"remove the cause, then pulumi up -s {scene.stack}; docs/operations.md has how to replace one slice"
    what = "its hosts could not be made" if google.status != "RUNNING_WITH_ERROR" else "something failed on it"
    return _of(plan, "act", "pool-error", f"{what}: {said}", step, pool.name)


def _after_a_stockout(scene: _Scene, plan: SlicePlan, pool: _Pool, google: PoolReading) -> str:
    """GKE never repairs a pool in ERROR, and refuses to update it."""
    if plan.provisioning is TPU_PROVISIONER:
        return delete_command(scene.platform, pool.name)
    stays = scene.platform.backend == "gke" and google.status == "ERROR"
    again = (
        "wait, then replace the pool: docs/operations.md" if stays else f"wait and repeat pulumi up -s {scene.stack}"
    )
    return f"{again}; or take another zone or capacity: docs/capacity.md"


def _asks_again(plan: SlicePlan) -> bool:
    """Whether somebody goes on asking Google for hosts, so that nobody must."""
    if plan.provisioning is TPU_PROVISIONER:
        return False
    return plan.provisioning.on_demand or (plan.backend == "compute" and plan.model.dws)


def _exhausted(plan: SlicePlan, said: str, pool: str) -> Finding:
    step = f"free hosts of the reservation, enlarge it, or lower slices.{plan.group}.count"
    return _of(plan, "act", "reservation-exhausted", said, step, pool)


def _lacking(scene: _Scene, plan: SlicePlan, pool: _Pool, lacking: int, missing: int) -> Finding:
    full = _full_reservation(scene, plan, missing)
    if full:
        return _exhausted(plan, full, pool.name)
    google = pool.google
    hosts = f"{lacking} of {counted(pool.wanted, 'host')}"
    if google and (google.coming or google.status in UNDER_WAY):
        return _of(plan, "note", "hosts-coming", f"{hosts} still to come: Google is making them", "", pool.name)
    if plan.provisioning.on_demand and not pool.hosts:
        return _of(plan, "note", "hosts-coming", f"{hosts} still to come", "", pool.name)
    there = " (Google has it)" if google and google.target == pool.wanted else ""
    step = _look_at_pool(scene, pool.name)
    return _of(plan, "act", "host-missing", f"{hosts} not in the cluster{there}", step, pool.name)


def _look_at_pool(scene: _Scene, pool: str) -> str:
    platform = scene.platform
    if platform.backend == "gke":
        return (
            f"gcloud container node-pools describe {pool} --cluster {platform.cluster_name}"
            f" --location {platform.location} --project {platform.project}"
        )
    return (
        f"gcloud compute instance-groups managed list-instances {pool} --zone {platform.zone}"
        f" --project {platform.project}"
    )


def _full_reservation(scene: _Scene, plan: SlicePlan, missing: int) -> str:
    """Why the plan's reservation cannot give the missing hosts; empty if it can, or nobody knows."""
    if not isinstance(plan.alternative, Reservation):
        return ""
    project = plan.alternative.project or scene.platform.project
    for each in scene.readings.google.reservations:
        if (each.project, each.name) == (project, plan.alternative.name):
            return _why_full(each, missing)
    return ""


def _why_full(reservation: ReservationReading, missing: int) -> str:
    if reservation.status == "missing":
        return f"there is no reservation {reservation.name} in {reservation.project}"
    if reservation.count is None or reservation.used is None or missing <= reservation.count - reservation.used:
        return ""
    left = reservation.count - reservation.used
    words = f"has {counted(left, 'free host')}, and {missing} are missing" if left > 0 else "is used up"
    return f"reservation {reservation.name} {words}: {reservation.used} of {counted(reservation.count, 'host')} in use"


def _host_findings(scene: _Scene, plan: SlicePlan, host: Host) -> Iterator[Finding]:
    age = scene.at - host.since
    describe = f"kubectl describe node {host.name}"
    if not host.ready:
        repairing = plan.backend == "gke" and plan.model.gke.auto_repair and age < REPAIR
        repair = "; GKE repairs it after 10 minutes" if repairing else ""
        what = f"a host is not ready: {host.why}{repair}"
        yield _of(plan, "note" if repairing else "act", "host-not-ready", what, describe, host.name)
    elif host.chips < plan.chips_per_host:
        part = "device plugin" if plan.devices == "device-plugin" else "DRA driver"
        what = f"a host shows {host.chips} of {counted(plan.chips_per_host, 'chip')}: look at the {part} there"
        yield _of(plan, "note" if age < STARTING else "act", "chips-missing", what, describe, host.name)
    if host.leaves:
        yield _of(plan, "note", "host-leaving", f"a host will be away: {host.leaves}", "", host.name)
    if host.cordoned:
        step = f"kubectl uncordon {host.name}, when it may take pods again"
        yield _of(plan, "note", "host-cordoned", "a host takes no new pods", step, host.name)


def _of(plan: SlicePlan, level: Level, kind: Kind, what: str, step: str, name: str) -> Finding:
    return Finding(level, kind, f"slices {plan.name}", what, step, (name,))


def _growth(scene: _Scene) -> Iterator[Finding]:
    """What GKE's autoscaler says about pods that wait for hosts."""
    owners = {(each.namespace, each.name): each.owner for each in scene.readings.cluster.holders or ()}
    for each in scene.readings.cluster.failures:
        stockout = bool(STOCKOUT.search(each.message))
        about = owners.get((each.namespace, each.pod), f"pod {each.namespace}/{each.pod}")
        if stockout:
            yield Finding("note", "stockout", about, f"GKE finds no capacity, and asks again: {each.message}")
        else:
            step = f"kubectl -n {each.namespace} describe pod {each.pod}"
            yield Finding("act", "pool-error", about, f"GKE cannot add hosts: {each.message}", step)


# Queues and work


def _queue_rows(scene: _Scene) -> tuple[QueueRow, ...]:
    workloads = scene.readings.cluster.workloads
    waiting: dict[str, list[WorkloadReading]] = defaultdict(list)
    for each in workloads or ():
        if each.waits:
            waiting[each.queue].append(each)
    return tuple(
        _queue_row(scene, queue, waiting[queue.name] if workloads is not None else None)
        for queue in scene.readings.cluster.queues or ()
    )


def _queue_row(scene: _Scene, queue: QueueReading, waiting: Sequence[WorkloadReading] | None) -> QueueRow:
    longest = max((scene.at - each.since for each in waiting or ()), default=None)
    return QueueRow(
        name=queue.name,
        owned=queue.owned,
        used=queue.used,
        reserved=queue.reserved,
        borrowed=queue.borrowed,
        waiting=None if waiting is None else len(waiting),
        waiting_chips=None if waiting is None else sum(each.chips for each in waiting),
        longest_wait=None if longest is None else max(int(longest.total_seconds()), 0),
    )


def _queue_findings(queues: Iterable[QueueReading]) -> Iterator[Finding]:
    for queue in queues:
        if queue.why_inactive:
            step = f"kubectl describe clusterqueue {queue.name}"
            yield Finding("act", "queue-inactive", f"queue {queue.name}", f"admits nothing: {queue.why_inactive}", step)


def _worker_findings(workers: Mapping[str, str]) -> Iterator[Finding]:
    for name, away in workers.items():
        if away:
            step = f"kubectl describe multikueuecluster {name}; docs/multikueue.md"
            yield Finding("act", "worker-away", f"worker {name}", f"gets no work: {away}", step)


def _work(scene: _Scene) -> Iterator[Finding]:
    for each in scene.readings.cluster.workloads or ():
        yield from _workload_findings(each)
    for jobset in scene.readings.cluster.jobsets or ():
        yield from _jobset_findings(scene, jobset)


def _workload_findings(work: WorkloadReading) -> Iterator[Finding]:
    if work.state == "waiting" and (work.never or not work.queue):
        step = "ask for fewer slices, or raise the queue's slices or borrow in the stack file"
        what = f"never starts: {work.why}" if work.queue else "never starts: its namespace has no queue of that name"
        yield Finding("act", "never-admitted", work.title, what, step if work.queue else "docs/queues.md")
    if work.state == "stopped" and work.evicted and KUEUE_GAVE_UP in work.evicted.reason:
        step = f"remove the cause, then submit it again; kubectl -n {work.namespace} describe workload {work.name}"
        yield Finding("act", "job-stopped", work.title, f"Kueue has given it up: {work.why}", step)


def _jobset_findings(scene: _Scene, jobset: JobSetReading) -> Iterator[Finding]:
    about = f"JobSet {jobset.namespace}/{jobset.name}"
    step = f"kubectl -n {jobset.namespace} describe jobset {jobset.name}"
    if jobset.end == "Failed" and scene.at - jobset.since < FAILED_LATELY:
        yield Finding("note", "job-failed", about, f"failed after {counted(jobset.restarts, 'restart')}", step)
    if jobset.end or not jobset.restarts:
        return
    left = max(jobset.most_restarts - jobset.restarts, 0)
    starting = jobset.ready < jobset.wanted or jobset.suspended
    state = "is starting again" if starting else "runs again"
    what = f"{state} after {counted(jobset.restarts, 'restart')}, {left} left"
    yield Finding("act" if starting and not left else "note", "job-restarting", about, what, step)


def _unqueued(scene: _Scene) -> Iterator[Finding]:
    """Chips of pods that Kueue does not know, so that it counts them as free."""
    platform = scene.platform
    held = [each for each in scene.readings.cluster.holders or () if each.host and _outside_queues(scene, each)]
    if platform.queues and held:
        chips = counted(sum(each.chips for each in held), "chip")
        owners = tuple(sorted({each.owner for each in held}))
        step = "no queue counts them: docs/queues.md"
        yield Finding("note", "chips-unqueued", "queues", f"{chips} held outside queues", step, owners)


def _outside_queues(scene: _Scene, pod: Holder) -> bool:
    """Whether a pod passed no queue: of its namespace, or because pods without a queue are not refused there."""
    if pod.namespace not in scene.platform.queue_namespaces:
        return True
    workloads = scene.readings.cluster.workloads
    if unqueued_tpus.policy(scene.platform) or workloads is None:
        return False
    # Kueue is not the controller of a server's workloads, so they do not name it; its pods wait for Kueue's gate.
    return not pod.owner.startswith("LeaderWorkerSet ") and pod.owner not in {each.title for each in workloads}


def _idle(scene: _Scene, pools: Mapping[str, Sequence[_Pool]]) -> Iterator[Finding]:
    """Work whose chips have done nothing for minutes, where something measures that."""
    load = scene.readings.google.load
    if load is None:
        return
    prices = {
        host.name: plan.price_per_chip_hour.amount
        for plan in scene.platform.slice_plans
        if plan.price_per_chip_hour
        for pool in pools[plan.name]
        for host in pool.hosts
    }
    held: dict[str, list[Holder]] = defaultdict(list)
    for holder in scene.readings.cluster.holders or ():
        held[holder.owner].append(holder)
    for owner, pods in held.items():
        if all(_does_nothing(scene, pod, load) for pod in pods):
            chips = sum(pod.chips for pod in pods)
            cost = sum(pod.chips * prices.get(pod.host, 0) for pod in pods)
            minutes = LOAD_WINDOW.seconds // 60
            what = f"{counted(chips, 'chip')} did nothing for {minutes} minutes, {cost:,.2f} USD/h"
            step = "let it go, or ask for fewer slices" if any(pod.server for pod in pods) else "look at its log"
            kind: Kind = "server-idle" if any(pod.server for pod in pods) else "job-idle"
            yield Finding("note", kind, owner, what, step)


def _does_nothing(scene: _Scene, pod: Holder, load: Mapping[str, float]) -> bool:
    """A pod that has long been ready, on a host whose chips are measured and did nothing."""
    settled = pod.ready_since is not None and scene.at - pod.ready_since > max(STARTING, LOAD_WINDOW)
    return settled and load.get(pod.host) == 0


# Interruptions


def _interruptions(scene: _Scene) -> tuple[Interruption, ...]:
    """The last ones, of hosts and of jobs, the newest first."""
    evicted = [
        Interruption(each.evicted.since, each.title, each.evicted.message or each.evicted.reason)
        for each in scene.readings.cluster.workloads or ()
        if each.evicted and each.evicted.true
    ]
    found = sorted([*scene.readings.google.interruptions, *evicted], key=lambda each: each.at, reverse=True)
    return tuple(found[:SHOWN_INTERRUPTIONS])
