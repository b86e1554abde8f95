"""Objects of a cluster as its API server gives them, put together by hand, and a stand-in for that server.

The stand-in differs from the server: it knows no selectors, so what it is given is what it answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from plan.platform import Platform
from tools.cluster_api import ClusterApi, RefusedReadError
from tools.status.cluster import EVERY_LIST, read_cluster
from tools.status.judgement import judge
from tools.status.readings import GoogleReadings, PoolReading, Readings
from tools.status.report import Report

Json = dict[str, Any]
NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def ago(**time: int) -> str:
    """A moment before NOW, as the API server writes it."""
    return f"{NOW - timedelta(**time):%Y-%m-%dT%H:%M:%SZ}"


LONG = ago(hours=5)


def condition(kind: str, true: bool = True, since: str = LONG, reason: str = "", message: str = "") -> Json:
    status = "True" if true else "False"
    return {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}


@dataclass
class World:
    """A platform and what there is of it."""

    platform: Platform
    objects: dict[str, list[Json]] = field(default_factory=dict)
    refusals: dict[str, RefusedReadError] = field(default_factory=dict)
    google: GoogleReadings = field(default_factory=GoogleReadings)

    def report(self) -> Report:
        return judge(self.platform, "test", Readings(NOW, read_cluster(self.platform, _Server(self), NOW), self.google))

    def add(self, kind: str, *objects: Json) -> None:
        self.objects.setdefault(kind, []).extend(objects)

    def stand(self) -> None:
        """All hosts of all declared pools, ready; Google has them, too."""
        pools = {}
        for plan in self.platform.slice_plans:
            for pool in plan.pools:
                self.add("nodes", *(node(plan, pool.name, number) for number in range(pool.node_count or 0)))
                pools[pool.name] = PoolReading(pool.name, "RUNNING", "", pool.node_count or 0, 0, {})
        self.google = GoogleReadings(pools=pools)


class _Server(ClusterApi):
    def __init__(self, world: World) -> None:
        super().__init__(Path("/nowhere"))
        self._by_path = {path: kind for kind, (path, _) in EVERY_LIST.items()}
        self._world = world

    def items(self, path: str, **query: str) -> list[Json]:
        kind = self._by_path[path]
        if kind in self._world.refusals:
            raise self._world.refusals[kind]
        return self._world.objects.get(kind, [])


def node(plan: Any, pool: str, number: int, *, ready: bool = True, since: str = LONG, chips: int | None = None) -> Json:
    """A host of a plan, in a pool."""
    shown = plan.chips_per_host if chips is None else chips
    return {
        "metadata": {
            "name": f"{pool}-h{number}",
            "creationTimestamp": LONG,
            "labels": {**plan.labels, **plan.tpu_labels, "cloud.google.com/gke-nodepool": pool},
        },
        "spec": {},
        "status": {
            "allocatable": {"google.com/tpu": str(shown), "cpu": "100"},
            "conditions": [condition("Ready", ready, since, message="" if ready else "kubelet stopped posting status")],
        },
    }


def pod(name: str, host: str, chips: int = 4, *, jobset: str = "", server: bool = False, ready: str = LONG) -> Json:
    container: Json = {"name": "c", "resources": {"limits": {"google.com/tpu": str(chips)}}}
    if server:
        container["readinessProbe"] = {"httpGet": {"path": "/health", "port": 8000}}
    owner = {"kind": "Job", "name": jobset or name, "uid": "u", "controller": True}
    return {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "creationTimestamp": LONG,
            "labels": {"jobset.sigs.k8s.io/jobset-name": jobset} if jobset else {},
            "ownerReferences": [owner],
        },
        "spec": {"containers": [container], **({"nodeName": host} if host else {})},
        "status": {"phase": "Running", "conditions": [condition("Ready", since=ready)]},
    }


def cluster_queue(name: str, owned: int, used: int = 0, borrowed: int = 0, why_inactive: str = "") -> Json:
    usage = [{"name": "flavor", "resources": [{"name": "google.com/tpu", "total": str(used), "borrowed": borrowed}]}]
    quota = {"name": "flavor", "resources": [{"name": "google.com/tpu", "nominalQuota": str(owned)}]}
    return {
        "metadata": {"name": name, "creationTimestamp": LONG},
        "spec": {"resourceGroups": [{"coveredResources": ["google.com/tpu"], "flavors": [quota]}]},
        "status": {
            "flavorsUsage": usage,
            "flavorsReservation": usage,
            "conditions": [condition("Active", not why_inactive, message=why_inactive)],
        },
    }


def local_queue(name: str) -> Json:
    return {"metadata": {"name": name, "namespace": "team-a"}, "spec": {"clusterQueue": name}}


def workload(name: str, queue: str, chips: int, *conditions: Json, made: str = LONG, **status: Any) -> Json:
    container = {"name": "c", "resources": {"requests": {"google.com/tpu": str(chips)}}}
    return {
        "metadata": {
            "name": f"jobset-{name}",
            "namespace": "team-a",
            "creationTimestamp": made,
            "ownerReferences": [{"kind": "JobSet", "name": name, "uid": name, "controller": True}],
        },
        "spec": {
            "queueName": queue,
            "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}],
        },
        "status": {"conditions": list(conditions), **status},
    }


def jobset(name: str, restarts: int, most: int = 3, ready: int = 1, *conditions: Json) -> Json:
    return {
        "metadata": {"name": name, "namespace": "team-a", "creationTimestamp": LONG},
        "spec": {"failurePolicy": {"maxRestarts": most}, "replicatedJobs": [{"name": "slice", "replicas": 1}]},
        "status": {
            "restarts": restarts,
            "restartsCountTowardsMax": restarts,
            "conditions": list(conditions),
            "replicatedJobsStatus": [{"name": "slice", "ready": ready}],
        },
    }


def refused(status: int, message: str) -> RefusedReadError:
    return RefusedReadError(status, message)


def findings(report: Report) -> list[tuple[str, str, str]]:
    """Level, kind and what each is about."""
    return [(each.level, each.kind, each.about) for each in report.findings]


def named(rows: Any) -> Mapping[str, Any]:
    return {row.name: row for row in rows}
