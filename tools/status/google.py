"""Reads what Google says of a platform: pools or groups, reservations, interruptions, the load of chips.

Each of them may fail alone: then it is noted as not read. Methods are those of Compute Engine v1, Kubernetes Engine v1
and Monitoring v3.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from plan.hosts import node_pool
from plan.platform import Platform
from platform_config.capacity import Reservation
from tools.kueue_readings import moment
from tools.preflight.cloud import Cloud, Json, NoConnectionError, RefusedError
from tools.preflight.reservations import Place, place_of
from tools.status.readings import GoogleReadings, Interruption, PoolReading, ReservationReading, Unread

T = TypeVar("T")

LOAD_WINDOW = timedelta(minutes=10)
LOAD_METRIC = "kubernetes.io/node/accelerator/duty_cycle"
"""Written by the TPU device plugin of GKE: not of hosts whose chips are claimed, and nowhere without GKE."""
REMEMBERED = timedelta(days=7)
INTERRUPTIONS = {
    "compute.instances.preempted": "Google took the spot host back",
    "compute.instances.hostError": "the machine failed",
    "compute.instances.terminateOnHostMaintenance": "maintenance of the machine",
}
"""Operations that Google starts by itself, and what they mean."""
MOST_ASKED = 20
"""Groups that are not stable and are asked why: one call each."""


@dataclass
class _Reader:
    """Collects what cannot be read instead of ending."""

    platform: Platform
    cloud: Cloud
    unread: list[Unread] = field(default_factory=list)
    away: bool = False

    def attempt(self, what: str, read: Callable[[], T]) -> T | None:
        if self.away:
            return None
        try:
            return read()
        except RefusedError as error:
            off = f"{error.service} is off in {self.platform.project}"
            self.unread.append(Unread(what, off if error.switched_off else f"Google answers {error.status}: {error}"))
        except NoConnectionError as error:
            self.away = True
            self.unread.append(Unread("Google", str(error)))
        return None

    @property
    def zone(self) -> dict[str, str]:
        return {"project": self.platform.project, "zone": self.platform.zone}


def gke_cluster(platform: Platform, cloud: Cloud) -> Json | None:
    """Google's description of the platform's cluster; None where it does not exist, or is not GKE's.

    Raises RefusedError and NoConnectionError.
    """
    if platform.backend != "gke":
        return None
    name = f"projects/{platform.project}/locations/{platform.location}/clusters/{platform.cluster_name}"
    return cloud.find("container", "projects.locations.clusters.get", name=name)


def read_google(
    platform: Platform, cloud: Cloud, cluster: Json | None, at: datetime, *, cluster_known: bool = True
) -> GoogleReadings:
    """Everything that Google says. `cluster`: as `gke_cluster` gives it, if that could be read (`cluster_known`)."""
    reader = _Reader(platform, cloud)
    if not platform.slices:
        return GoogleReadings()
    managers = reader.attempt("groups of hosts", lambda: _managers(reader))
    pools: dict[str, PoolReading] | None = None
    if platform.backend == "gke":
        if cluster_known:
            pools = _node_pools(reader, cluster or {}, managers or {})
    elif managers is not None:
        pools = _groups(reader, managers)
    found = reader.attempt("interruptions", lambda: tuple(_interruptions(reader, cluster or {}, managers or {}, at)))
    return GoogleReadings(
        pools=pools,
        reservations=tuple(_reservations(reader)),
        interruptions=found or (),
        load=_load(reader, at),
        unread=tuple(reader.unread),
    )


def _managers(reader: _Reader) -> dict[str, Json]:
    """Every managed instance group of the zone, by name: also GKE makes one for each node pool."""
    found = reader.cloud.pages("compute", "instanceGroupManagers.list", "items", **reader.zone)
    return {each["name"]: each for each in found}


def _coming(manager: Json) -> int:
    actions = manager.get("currentActions", {})
    return sum(int(actions.get(key, 0)) for key in ("creating", "creatingWithoutRetries", "recreating", "restarting"))


def _groups(reader: _Reader, managers: Mapping[str, Json]) -> dict[str, PoolReading]:
    """The platform's groups, of a platform without GKE."""
    names = [node_pool(reader.platform, pool.name) for plan in reader.platform.slice_plans for pool in plan.pools]
    found, asked = {}, 0
    for name in names:
        if name not in managers:
            continue
        manager = managers[name]
        stable = manager.get("status", {}).get("isStable", False)
        error = ""
        if not stable and asked < MOST_ASKED:
            asked += 1
            error = reader.attempt(f"errors of {name}", partial(_error, reader, name)) or ""
        status = "RUNNING" if stable else "PROVISIONING"
        found[name] = PoolReading(name, status, error, int(manager.get("targetSize", 0)), _coming(manager), {})
    return found


def _error(reader: _Reader, group: str) -> str:
    """Why Google could not create hosts of a group, the last time it tried."""
    found = reader.cloud.pages(
        "compute", "instanceGroupManagers.listErrors", "items", instanceGroupManager=group, **reader.zone
    )
    if not found:
        return ""
    error = max(found, key=lambda each: str(each.get("timestamp", "")))["error"]
    return f"{error.get('code', '')}: {error.get('message', '')}".strip(": ")


def _node_pools(reader: _Reader, cluster: Json, managers: Mapping[str, Json]) -> dict[str, PoolReading]:
    pools = cluster.get("nodePools", [])
    silent = [each for each in pools if each.get("status") in BROKEN and not _pool_error(each)]
    ended = (reader.attempt("errors of node pools", lambda: _failed_operations(reader)) or {}) if silent else {}
    return {each["name"]: _node_pool(each, managers, ended) for each in pools}


BROKEN = ("ERROR", "RUNNING_WITH_ERROR")
"""States of a node pool in which something failed."""


def _node_pool(pool: Json, managers: Mapping[str, Json], ended: Mapping[str, str]) -> PoolReading:
    groups = [url.rpartition("/")[2] for url in pool.get("instanceGroupUrls", [])]
    known = [managers[name] for name in groups if name in managers]
    config = pool.get("config", {})
    affinity = config.get("reservationAffinity", {}).get("consumeReservationType", "")
    return PoolReading(
        name=pool["name"],
        status=pool.get("status", "RUNNING"),
        error=(_pool_error(pool) or ended.get(pool["name"], "")) if pool.get("status") in BROKEN else "",
        target=sum(int(each.get("targetSize", 0)) for each in known) if groups and len(known) == len(groups) else None,
        coming=sum(map(_coming, known)),
        labels=config.get("labels", {}),
        spot=bool(config.get("spot")),
        flex_start=bool(config.get("flexStart")),
        reserved=affinity == "SPECIFIC_RESERVATION",
    )


def _pool_error(pool: Json) -> str:
    words = [f"{each.get('code', '')}: {each.get('message', '')}".strip(": ") for each in pool.get("conditions", ())]
    return "; ".join(words) or pool.get("statusMessage", "")


def _failed_operations(reader: _Reader) -> dict[str, str]:
    """By node pool, why the last operation on it failed."""
    platform = reader.platform
    parent = f"projects/{platform.project}/locations/{platform.location}"
    found = reader.cloud.get("container", "projects.locations.operations.list", parent=parent).get("operations", ())
    errors = {}
    for each in sorted(found, key=lambda each: str(each.get("startTime", ""))):
        cluster, _, pool = each.get("targetLink", "").partition("/nodePools/")
        message = each.get("error", {}).get("message") or each.get("statusMessage")
        if message and cluster.endswith(f"/{platform.cluster_name}"):
            errors[pool] = message
    return errors


def reservation_places(platform: Platform) -> tuple[Place, ...]:
    """Each reservation of the plan, whole."""
    found = {
        place_of(value, platform.project)
        for plan in platform.slice_plans
        if isinstance(plan.alternative, Reservation)
        for affinity in plan.model.affinities(plan.alternative)
        for value in affinity.values
    }
    return tuple(sorted({Place(place.project, place.name) for place in found}))


def _reservations(reader: _Reader) -> Iterator[ReservationReading]:
    for place in reservation_places(reader.platform):
        known = reader.attempt(f"reservation {place.name}", partial(_reservation, reader, place))
        if known:
            yield known


def _reservation(reader: _Reader, place: Place) -> ReservationReading:
    where = {"project": place.project, "zone": reader.platform.zone}
    found = reader.cloud.find("compute", "reservations.get", reservation=place.name, **where)
    if found is None:
        return ReservationReading(place.project, place.name, "missing", None, None)
    specific = found.get("specificReservation")
    used = int(specific.get("inUseCount", 0)) if specific else None
    count = int(specific.get("count", 0)) if specific else None
    return ReservationReading(place.project, place.name, found.get("status", "unknown"), used, count)


def _interruptions(
    reader: _Reader, cluster: Json, managers: Mapping[str, Json], at: datetime
) -> Iterator[Interruption]:
    """Of the platform's hosts, which are known by the names that their groups give."""
    own = (managers[name] for name in _own_groups(reader.platform, cluster) if name in managers)
    bases = tuple(re.sub(r"#+(\[\d+\])?", "", str(each.get("baseInstanceName", each["name"]))) for each in own)
    # The literal of `eq` is a regular expression (Compute Engine, filters of lists).
    kinds = f'operationType eq "{"|".join(map(re.escape, INTERRUPTIONS))}"'
    for each in reader.cloud.pages("compute", "zoneOperations.list", "items", filter=kinds, **reader.zone):
        host, since = each.get("targetLink", "").rpartition("/")[2], moment(each["insertTime"])
        if each.get("operationType") in INTERRUPTIONS and host.startswith(bases) and at - since < REMEMBERED:
            yield Interruption(since, f"host {host}", INTERRUPTIONS[each["operationType"]])


def _own_groups(platform: Platform, cluster: Json) -> set[str]:
    """Names of the groups that the platform's hosts are in."""
    if platform.backend == "gke":
        urls = (url for pool in cluster.get("nodePools", []) for url in pool.get("instanceGroupUrls", []))
        return {url.rpartition("/")[2] for url in urls}
    return {node_pool(platform, pool.name) for plan in platform.slice_plans for pool in plan.pools}


def _load(reader: _Reader, at: datetime) -> dict[str, float] | None:
    """By host, the highest load of its chips; None where nothing measures it or it cannot be read."""
    platform = reader.platform
    if platform.backend != "gke" or not any(plan.devices == "device-plugin" for plan in platform.slice_plans):
        return None
    found = reader.attempt(
        "load of chips",
        lambda: reader.cloud.pages(
            "monitoring",
            "projects.timeSeries.list",
            "timeSeries",
            name=f"projects/{platform.project}",
            filter=f'metric.type = "{LOAD_METRIC}" AND resource.labels.cluster_name = "{platform.cluster_name}"'
            f' AND resource.labels.location = "{platform.location}"',
            interval_startTime=_written(at - LOAD_WINDOW),
            interval_endTime=_written(at),
            aggregation_alignmentPeriod=f"{LOAD_WINDOW.seconds}s",
            aggregation_perSeriesAligner="ALIGN_MAX",
            aggregation_crossSeriesReducer="REDUCE_MAX",
            aggregation_groupByFields="resource.labels.node_name",
        ),
    )
    if found is None:
        return None
    return dict(_host_load(each) for each in found if each.get("points"))


def _written(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def _host_load(series: Any) -> tuple[str, float]:
    values = (each["value"] for each in series["points"])
    most = max(float(value.get("doubleValue", value.get("int64Value", 0))) for value in values)
    return series["resource"]["labels"]["node_name"], most
