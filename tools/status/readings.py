"""What was read of a platform, from its cluster and from Google, before anybody judges it. Times are in UTC."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tools.kueue_readings import QueueReading, WorkloadReading


@dataclass(frozen=True)
class Unread:
    """Something that could not be read, and why, in a line."""

    what: str
    why: str


@dataclass(frozen=True)
class Host:
    """A node with TPUs.

    - `pool`: its node pool or group
    - `ready`: whether its kubelet says so, `since` when, and `why` not
    - `chips`: that pods can get
    - `leaves`: why and when it is going to end, empty if nothing is announced
    """

    name: str
    pool: str
    labels: Mapping[str, str]
    ready: bool
    since: datetime
    why: str
    chips: int
    cordoned: bool
    leaves: str


@dataclass(frozen=True)
class Holder:
    """A pod that has chips, or waits for a host with them (`host` is empty then).

    `owner`: the job that it belongs to; `server`: whether it answers requests; `ready_since`: None while it is not
    ready.
    """

    namespace: str
    name: str
    host: str
    chips: int
    owner: str
    server: bool
    ready_since: datetime | None


@dataclass(frozen=True)
class JobSetReading:
    """A JobSet. `restarts` are those that count towards `most_restarts`; `ready` of `wanted` Jobs run with all pods, or
    have succeeded."""

    namespace: str
    name: str
    suspended: bool
    end: Literal["", "Completed", "Failed"]
    restarts: int
    most_restarts: int
    ready: int
    wanted: int
    since: datetime


@dataclass(frozen=True)
class ScaleUpFailure:
    """GKE's autoscaler could not add hosts for a pod."""

    namespace: str
    pod: str
    at: datetime
    message: str


@dataclass(frozen=True)
class PoolReading:
    """A node pool, or a managed instance group, as Google describes it.

    - `status`: in GKE's words; a group is RUNNING or PROVISIONING
    - `error`: Google's message about why hosts are not there, with its code
    - `target`: hosts that it is to have, `coming` of them are being made; None where Google did not say
    - `labels`, `spot`, `flex_start`, `reserved`: of hosts
    """

    name: str
    status: str
    error: str
    target: int | None
    coming: int
    labels: Mapping[str, str]
    spot: bool = False
    flex_start: bool = False
    reserved: bool = False


@dataclass(frozen=True)
class ReservationReading:
    """A reservation. `used` of `count` hosts are in use, by whoever may use it; None where it counts accelerators."""

    project: str
    name: str
    status: str
    used: int | None
    count: int | None


@dataclass(frozen=True)
class Interruption:
    """Something that stopped a host or a job."""

    at: datetime
    what: str
    why: str


@dataclass(frozen=True)
class ClusterReadings:
    """What the cluster says; None for what was not read. `workers`: of a MultiKueue manager, with why one is away."""

    hosts: tuple[Host, ...] | None = None
    holders: tuple[Holder, ...] | None = None
    queues: tuple[QueueReading, ...] | None = None
    workloads: tuple[WorkloadReading, ...] | None = None
    jobsets: tuple[JobSetReading, ...] | None = None
    workers: Mapping[str, str] | None = None
    failures: tuple[ScaleUpFailure, ...] = ()
    unread: tuple[Unread, ...] = ()


@dataclass(frozen=True)
class GoogleReadings:
    """What Google says; None for what was not read.

    - `pools`: by name
    - `load`: by host, the highest load of its chips in the last minutes, in percent; no entry where nothing measures it
    """

    pools: Mapping[str, PoolReading] | None = None
    reservations: tuple[ReservationReading, ...] = ()
    interruptions: tuple[Interruption, ...] = ()
    load: Mapping[str, float] | None = None
    unread: tuple[Unread, ...] = ()


@dataclass(frozen=True)
class Readings:
    """All of it, as of one moment."""

    at: datetime
    cluster: ClusterReadings
    google: GoogleReadings
