"""Long operations: they wait, run for a realistic time divided by the time scale, and only then change the world."""

from __future__ import annotations

import heapq
import logging
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from sandbox.google.store import Change, Store

log = logging.getLogger(__name__)

# Seconds on the real service, by method; rounded from published timings and experience. Anything else takes DEFAULT.
DEFAULT_SECONDS = 5.0
SECONDS: dict[str, float] = {
    "compute.networks.insert": 12,
    "compute.networks.delete": 15,
    "compute.subnetworks.insert": 15,
    "compute.subnetworks.delete": 15,
    "compute.firewalls.insert": 8,
    "compute.routers.insert": 8,
    "compute.instances.insert": 25,
    "compute.instances.delete": 40,
    "compute.instanceGroupManagers.insert": 15,
    "compute.instanceGroupManagers.delete": 90,
    "compute.regionInstanceGroupManagers.insert": 15,
    "compute.regionInstanceGroupManagers.delete": 90,
    "compute.groupMembers.create": 100,  # the instances of a group, after the group's own operation
    "compute.groupMembers.queue": 400,  # the same for flex-start machines, which may as well take hours
    "container.projects.locations.clusters.create": 420,
    "container.projects.locations.clusters.update": 60,
    "container.projects.locations.clusters.delete": 240,
    "container.projects.locations.clusters.nodePools.create": 150,
    "container.projects.locations.clusters.nodePools.update": 60,
    "container.projects.locations.clusters.nodePools.setSize": 90,
    "container.projects.locations.clusters.nodePools.delete": 120,
    "serviceusage.services.enable": 10,
    "serviceusage.services.batchEnable": 20,
}
PENDING_SHARE = 0.1  # of the duration, before an operation starts to run
# A request whose operation needs no time answers with it done; one that waits for a real control plane does not block.
PROMPT_SECONDS = 1.0


@dataclass
class Operation:
    """A change that is under way.

    `target` is the full name of what changes and `target_id` its number; `changes` are applied at the end, `on_error`
    instead when `error` ({"code", "message"}) is set. `follow` says what else has to happen before the operation is
    over: "create", "delete" or "pools" of the API server of `cluster`, or one of the steps in `world.LAST`. `response`
    is what the operation shows once it is done, where its API has that.
    """

    method: str
    project: str
    location: str
    kind: str
    target: str
    target_id: str = ""
    changes: list[Change] = field(default_factory=list)
    on_error: list[Change] = field(default_factory=list)
    follow: str = ""
    cluster: str = ""
    error: dict[str, Any] | None = None
    response: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    started: float = 0.0
    seconds: float = 0.0
    ended: float = 0.0

    @property
    def api(self) -> str:
        return self.method.partition(".")[0]

    @property
    def done(self) -> bool:
        return self.ended > 0

    @property
    def status(self) -> str:
        if self.done:
            return "DONE"
        return "RUNNING" if time.time() - self.started >= self.seconds * PENDING_SHARE else "PENDING"

    @property
    def progress(self) -> int:
        """Percent of the expected duration that has passed; 100 only when done."""
        if self.done:
            return 100
        return min(int(100 * (time.time() - self.started) / max(self.seconds, 0.001)), 99)


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def now() -> str:
    return timestamp(time.time())


class Operations:
    """Runs operations in worker threads when their time has come, and again after a restart of the emulator.

    `follow` is called first, in the worker, without the store's lock, and returns the changes that end the operation;
    an exception it raises fails the operation. `after` returns the operations that one which has succeeded sets going.
    """

    def __init__(
        self,
        store: Store,
        time_scale: float,
        follow: Callable[[Operation], list[Change]],
        after: Callable[[Operation], list[Operation]],
    ) -> None:
        self.store = store
        self.time_scale = time_scale
        self._follow = follow
        self._after = after
        self._workers = ThreadPoolExecutor(max_workers=16, thread_name_prefix="operation")
        self._queue: list[tuple[float, str]] = []
        self._wake = threading.Condition()
        self._closed = False
        self._clock = threading.Thread(target=self._run_clock, name="operation-clock", daemon=True)
        self._clock.start()

    def start(self, operation: Operation) -> None:
        """Names and records an operation and lets it run. Must be called without the store's lock held."""
        self.register(operation)
        self.launch(operation)

    def start_for(self, operation: Operation, seconds: float) -> None:
        """The same for an operation that takes this time, whatever the time scale."""
        self.register(operation, seconds)
        self._enqueue(operation)

    def note(self, operation: Operation) -> None:
        """Records an operation of Google's own that is over already."""
        self._name(operation)
        operation.ended = operation.started
        self._save(operation)

    def register(self, operation: Operation, seconds: float | None = None) -> None:
        """Names and records an operation. `seconds`: how long it takes, if not what is realistic for it."""
        self._name(operation)
        realistic = SECONDS.get(operation.method, DEFAULT_SECONDS)
        operation.seconds = realistic / self.time_scale if self.time_scale else 0.0
        if seconds is not None:
            operation.seconds = seconds
        self._save(operation)

    def _name(self, operation: Operation) -> None:
        operation.name = f"operation-{int(time.time() * 1000)}-{uuid.uuid4().hex[:13]}"
        operation.started = time.time()

    def launch(self, operation: Operation) -> None:
        if operation.seconds == 0:
            wait_for([self._submit(operation.name)], timeout=PROMPT_SECONDS)
        else:
            self._enqueue(operation)

    def resume(self) -> None:
        """Takes up what was under way when an earlier emulator process ended."""
        for operation in self.all():
            if not operation.done:
                self._enqueue(operation)

    def finish(self, name: str) -> None:
        """Ends an operation now, whatever time it has left."""
        self._submit(name).result()

    def get(self, name: str) -> Operation | None:
        record = self.store.get("operations", name)
        return _restore(record) if record else None

    def all(self) -> list[Operation]:
        return [_restore(record) for record in self.store.all("operations").values()]

    def under_way(self, target: str) -> Operation | None:
        """The unfinished operation on `target`, if there is one."""
        pointer = self.store.get("busy", target)
        operation = self.get(pointer["operation"]) if pointer else None
        return operation if operation and not operation.done else None

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._clock.join()
        self._workers.shutdown(wait=True, cancel_futures=True)

    def _save(self, operation: Operation) -> None:
        busy = None if operation.done else {"operation": operation.name}
        self.store.apply(
            [Change("operations", operation.name, asdict(operation)), Change("busy", operation.target, busy)]
        )

    def _enqueue(self, operation: Operation) -> None:
        with self._wake:
            heapq.heappush(self._queue, (operation.started + operation.seconds, operation.name))
            self._wake.notify()

    def _submit(self, name: str) -> Future[None]:
        return self._workers.submit(self._finish, name)

    def _run_clock(self) -> None:
        with self._wake:
            while not self._closed:
                wait = self._queue[0][0] - time.time() if self._queue else None
                if wait is not None and wait <= 0:
                    self._submit(heapq.heappop(self._queue)[1])
                else:
                    self._wake.wait(wait)

    def _finish(self, name: str) -> None:
        operation = self.get(name)
        if operation is None or operation.done:
            return  # the world was reset meanwhile, or somebody else ended it
        changes = operation.on_error
        if operation.error is None:
            try:
                changes = self._follow(operation)
            except Exception as problem:  # whatever the back end raises ends up in the operation
                log.exception("operation %s on %s failed", operation.kind, operation.target)
                operation.error = {"code": 13, "message": f"Internal error: {problem}", "reason": "INTERNAL_ERROR"}
        with self.store.lock:
            if self.store.get("operations", name) is None:
                return
            operation.ended = time.time()
            operation.changes = operation.on_error = []
            self.store.apply(changes)
            self._save(operation)
            following = [] if operation.error else self._after(operation)
            for each in following:
                self.register(each)
        for each in following:
            if each.seconds:
                self._enqueue(each)
            else:
                self._finish(each.name)


def _restore(record: dict[str, Any]) -> Operation:
    changes = {key: [Change(*change) for change in record[key]] for key in ("changes", "on_error")}
    return Operation(**{**record, **changes})
