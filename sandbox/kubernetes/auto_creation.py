"""Stand-in for GKE's node pool auto-creation: a pod that selects a ComputeClass makes GKE create a node pool.

What it keeps of the real one: priorities are tried in order. A pool begins with no nodes, gets them once it is made (a
slice all of them at once), and is deleted when it has none left. One that could not be made or filled is deleted, its
priority is passed over for a while, and the next one is tried. Jobs of a JobSet with exclusive topology get one each.
Pods are told in events why they wait, with the autoscaler's own reasons and words. A class that is edited holds for new
pools: an older one gets no more nodes. The pool of a class that is gone, or no longer creates pools, shrinks like any
other, and stays without nodes unless cluster auto-provisioning is on.
Where it differs: see `class_pools`; limits of cluster auto-provisioning, `activeMigration`, `autoscalingPolicy` and
`capacityCheckWaitTimeSeconds` have no effect (flex-start fails at once where there is no stock); classes get no status.
Events name the selectors that do not match, and in brackets the refusal that GKE only calls an internal error. While an
update of the cluster runs, the creation is tried again without passing the priority over.
"""

from __future__ import annotations

import datetime
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sandbox.google.errors import GoogleError
from sandbox.google.faults import STOCKOUT
from sandbox.kubernetes import class_pools, fitting
from sandbox.kubernetes.api import ApiClient, ApiError, Object
from sandbox.kubernetes.class_pools import COMPUTE_CLASS, Option
from sandbox.kubernetes.growth import BACK_OFF_SECONDS, SETTLE_SECONDS, Growth, is_leader
from sandbox.kubernetes.nodes import Pool

COMPONENT = "cluster-autoscaler"
CLASS = ("cloud.google.com/v1", "ComputeClass")
_LOG = logging.getLogger(__name__)
_STABLE = frozenset({"RUNNING", "RUNNING_WITH_ERROR", "ERROR"})
_FAILURES = {
    "quotaExceeded": "GCE quota exceeded",
    "QUOTA_EXCEEDED": "GCE quota exceeded",
    STOCKOUT: "GCE out of resources",
}


class NodePools(Protocol):
    """A cluster's node pools as its cloud has them, in container v1beta1 JSON. Refusals are GoogleErrors."""

    def cluster(self) -> Object: ...

    def pools(self) -> list[Object]:
        """Each with `currentNodeCount`, its nodes per zone."""

    def create(self, pool: Object) -> str:
        """Begins to make a pool; the name of the operation."""

    def delete(self, name: str) -> str: ...

    def resize(self, name: str, nodes: int) -> None:
        """At once; `nodes` per zone."""

    def is_done(self, operation: str) -> bool:
        """Raises GoogleError when the operation has failed."""


@dataclass
class _Upcoming:
    """A pool from its creation until its nodes have had time to take their pods."""

    option: Option
    growth: Growth
    operation: str
    settled_at: float = 0.0


class AutoCreation:
    """Knows one cluster's classes. `node_pools` gives its pools, None where there is no cloud behind the cluster."""

    def __init__(
        self,
        client: ApiClient,
        node_pools: Callable[[], NodePools | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._clock = clock
        self._node_pools = node_pools
        self._cloud: NodePools | None = None
        self._cluster: Object = {}
        self._pools: list[Object] = []
        self._classes: dict[str, Object] = {}
        self._offered: dict[str, Option] = {}  # names that this round may create
        self._upcoming: dict[str, _Upcoming] = {}
        self._failed_at: dict[str, float] = {}  # key of an option
        self._told: set[tuple[str, str]] = set()  # uid of a pod, message

    def begin(self) -> bool:
        """Looks at classes and pools, and carries on what is under way; False where there is nothing to look after."""
        self._classes = {each["metadata"]["name"]: each for each in self._client.list_all(*CLASS)}
        self._offered = {}
        self._cloud = self._node_pools()
        if self._cloud is None:
            return False
        try:
            self._cluster, self._pools = self._cloud.cluster(), self._cloud.pools()
        except GoogleError as error:
            _LOG.info("no auto-creation: %s", error)
            self._cloud = None
            return False
        self._carry_on(self._cloud)
        return any(map(class_pools.creates_pools, self._classes.values())) or any(map(_is_auto_created, self._pools))

    def growth(self) -> dict[str, Growth]:
        """What is on its way, by pool name."""
        return {name: each.growth for name, each in self._upcoming.items()}

    def holds(self, pod: Object) -> bool:
        """Whether a pool is on its way for the pod."""
        uid = pod["metadata"]["uid"]
        return any(uid == each["metadata"]["uid"] for up in self._upcoming.values() for each in up.growth.pods)

    def candidates(self, pod: Object, pools: list[Pool], growth: Mapping[str, Growth]) -> list[Pool]:
        """Where the pod may go, best first: existing pools, those on their way, and those that may be created.

        Pools are in the order of the pod's class, if it selects one; else all of `pools`, as they are.
        """
        compute_class = self._classes.get(_selected_class(pod))
        if compute_class is None:
            return pools
        by_name = {each.name: each for each in pools}
        found: list[Pool] = []
        for choice in class_pools.choices(compute_class, self._cluster) if self._cloud else _named(compute_class):
            if isinstance(choice, str):
                found += [by_name[choice]] if choice in by_name else []
            elif not _decided_by_class(pod):
                found += [each.pool for name, each in growth.items() if self._option_of(name) == choice]
                if not self._backs_off(choice):
                    found += [*self._existing(choice, pod, by_name), self._offer(choice)]
        return found

    def _existing(self, option: Option, pod: Object, by_name: Mapping[str, Pool]) -> list[Pool]:
        """Pools that were created for an option. A Job with a pool to itself can only have one that is empty."""
        made = [each for each in self._pools if _is_auto_created(each) and each["status"] == "RUNNING"]
        names = [each["name"] for each in made if option.is_made(each) and each["name"] not in self._upcoming]
        pools = [by_name[name] for name in names if name in by_name]
        return [each for each in pools if each.size == 0 or not is_leader(pod)]

    def _option_of(self, pool: str) -> Option | None:
        upcoming = self._upcoming.get(pool)
        return upcoming.option if upcoming else self._offered.get(pool)

    def _backs_off(self, option: Option) -> bool:
        return self._clock() < self._failed_at.get(option.key, -BACK_OFF_SECONDS) + BACK_OFF_SECONDS

    def _offer(self, option: Option) -> Pool:
        name = option.new_name()
        self._offered[name] = option
        return option.pool(name)

    def start(self, growth: Growth) -> bool:
        """Begins to create the pool of a growth; False when the pool exists."""
        name = growth.pool.name
        if name in self._upcoming:
            return True
        option = self._offered.get(name)
        if option is None or self._cloud is None:
            return False
        try:
            operation = self._cloud.create({**option.body, "name": name})
        except GoogleError as error:
            if not _is_busy(error):
                self._fail(option, growth, error)
            return True
        _LOG.info("node pool %s is being created", name)
        self._upcoming[name] = _Upcoming(option, growth, operation)
        return True

    def _carry_on(self, cloud: NodePools) -> None:
        now = self._clock()
        for name, each in list(self._upcoming.items()):
            try:
                if each.growth.closed and now >= each.settled_at:
                    del self._upcoming[name]
                elif not each.growth.closed and cloud.is_done(each.operation):
                    self._fill(cloud, name, each)
            except GoogleError as error:
                del self._upcoming[name]
                self._fail(each.option, each.growth, error)

    def _fill(self, cloud: NodePools, name: str, upcoming: _Upcoming) -> None:
        """Gives a new pool its nodes."""
        growth = upcoming.growth
        cloud.resize(name, growth.size)
        growth.closed, upcoming.settled_at = True, self._clock() + SETTLE_SECONDS
        for pod in growth.pods:
            bounds = f"0->{growth.size} (max: {growth.pool.max_nodes})"
            self._tell(pod, "Normal", "TriggeredScaleUp", f"pod triggered scale-up: [{{{name} {bounds}}}]")

    def _fail(self, option: Option, growth: Growth, error: GoogleError) -> None:
        _LOG.warning("node pool %s: %s", growth.pool.name, error)
        self._failed_at[option.key] = self._clock()
        zones, reason = ", ".join(growth.pool.zones), _FAILURES.get(error.reason, f"Internal error ({error})")
        message = f"Node scale up in zones {zones} associated with this pod failed: {reason}."
        for pod in growth.pods:
            self._tell(pod, "Warning", "FailedScaleUp", f"{message} Pod is at risk of not being scheduled.")

    def remove_unneeded(self) -> bool:
        """Deletes the created pools that have no nodes, failed ones among them; whether one is still to be deleted."""
        if self._cloud is None:
            return False
        created = [each for each in self._cloud.pools() if _is_auto_created(each) and each["currentNodeCount"] == 0]
        unneeded = [each for each in created if each["name"] not in self._upcoming and self._looks_after(each)]
        for pool in unneeded:
            if pool["status"] in _STABLE:
                try:
                    self._cloud.delete(pool["name"])
                except GoogleError as error:
                    _LOG.info("node pool %s stays for now: %s", pool["name"], error)
        return bool(unneeded)

    def _looks_after(self, pool: Object) -> bool:
        compute_class = self._classes.get(pool["config"].get("labels", {}).get(COMPUTE_CLASS, ""))
        if compute_class is None:
            return class_pools.provisions_cluster(self._cluster)
        return not class_pools.refusal(compute_class, self._cluster)

    def explain(self, pod: Object, requests_on: Callable[[Pool], fitting.Resources | None]) -> None:
        """Tells a pod that selects a class why it gets no pool. `requests_on`: None where the pod has no room."""
        reason = self._reason(pod, requests_on) if self._cloud and _selected_class(pod) else ""
        if reason:
            self._tell(pod, "Normal", "NotTriggerScaleUp", f"pod didn't trigger scale-up: {reason}")

    def _reason(self, pod: Object, requests_on: Callable[[Pool], fitting.Resources | None]) -> str:
        name = _selected_class(pod)
        compute_class = self._classes.get(name)
        if compute_class is None:
            return f"ComputeClass {name} of type CCC not found"
        if not class_pools.has_tpus(compute_class):
            return ""
        if refusal := class_pools.refusal(compute_class, self._cluster):
            return refusal
        if keys := _decided_by_class(pod):
            return f"Pod incompatible with requested ComputeClass {name} of type CCC (selects {', '.join(keys)})"
        reasons = Counter(class_pools.problems(compute_class, self._cluster))
        for choice in class_pools.choices(compute_class, self._cluster):
            if isinstance(choice, Option) and (reason := self._obstacle(choice, pod, requests_on)):
                reasons[reason] += 1
        return ", ".join(f"{count} {reason}" for reason, count in reasons.items())

    def _obstacle(self, option: Option, pod: Object, requests_on: Callable[[Pool], fitting.Resources | None]) -> str:
        pool = option.pool()
        if misfit := fitting.misfit(pool, pod["spec"]):
            return misfit
        if requests_on(pool) is None:
            offered = fitting.node_resources(pool)
            lacking = [key for key, amount in fitting.pod_requests(pod["spec"]).items() if offered[key] < amount]
            return f"Insufficient {', '.join(lacking)}" if lacking else "cannot allocate all claims"
        return "in backoff after failed scale-up" if self._backs_off(option) else ""

    def forget_all_but(self, pending: set[str]) -> None:
        """What pods were told is only kept for those that still wait, given by uid."""
        self._told = {(uid, message) for uid, message in self._told if uid in pending}

    def _tell(self, pod: Object, kind: str, reason: str, message: str) -> None:
        """Records an event about a pod, once."""
        metadata = pod["metadata"]
        if (metadata["uid"], message) in self._told:
            return
        self._told.add((metadata["uid"], message))
        try:
            self._client.create(_event(metadata, kind, reason, message), COMPONENT)
        except ApiError as error:  # the pod or its namespace may be going away
            _LOG.info("no event about pod %s/%s: %s", metadata["namespace"], metadata["name"], error)


def _selected_class(pod: Object) -> str:
    return str(pod["spec"].get("nodeSelector", {}).get(COMPUTE_CLASS, ""))


def _named(compute_class: Object) -> list[str | Option]:
    return [name for each in compute_class["spec"]["priorities"] for name in each.get("nodepools", [])]


def _decided_by_class(pod: Object) -> list[str]:
    return [key for key in pod["spec"].get("nodeSelector", {}) if key in class_pools.DECIDED_BY_CLASS]


def _is_auto_created(pool: Object) -> bool:
    return bool(pool.get("autoscaling", {}).get("autoprovisioned"))


def _is_busy(error: GoogleError) -> bool:
    return error.status == "FAILED_PRECONDITION" and "incompatible operation" in error.message


def _event(pod: Object, kind: str, reason: str, message: str) -> Object:
    """A core/v1 Event about a pod, given by its metadata."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    unique = hashlib.sha256(f"{pod['uid']}/{message}/{now}".encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod['name']}.{unique}", "namespace": pod["namespace"]},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod["name"],
            "namespace": pod["namespace"],
            "uid": pod["uid"],
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
