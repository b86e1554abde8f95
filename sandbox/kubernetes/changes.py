"""Says when objects of a cluster change, so that the loops that look at them need not look all the time.

A change is only a hint to look: what a loop does follows from what it then sees. While a watch is interrupted changes
are missed, so a loop also looks now and then without one.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable

import httpx

from sandbox.kubernetes.api import ApiClient, ApiError, Object, UnknownKindError

Kind = tuple[str, str]
"""API version and kind."""

POD: Kind = ("v1", "Pod")
NODE: Kind = ("v1", "Node")
SECRET: Kind = ("v1", "Secret")

WATCH_SECONDS = 50  # the server ends a watch after that; the client gives up after a minute without an answer
AGAIN_SECONDS = 1.0  # after a watch that could not begin, or has broken off
UNKNOWN_SECONDS = 5.0  # the same, of a kind that the cluster does not have (yet)
_LOG = logging.getLogger(__name__)


class Changes:
    """Of one cluster, from `start` to `stop`."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._watches: dict[Kind, _Watch] = {}

    def of(self, *kinds: Kind) -> threading.Event:
        """A new event that is set whenever an object of these kinds changes; to be called before `start`."""
        event = threading.Event()
        for kind in kinds:
            if kind not in self._watches:
                self._watches[kind] = _Watch(self._client, kind)
            self._watches[kind].events.append(event)
        return event

    def start(self) -> None:
        """Returns at once."""
        for each in self._watches.values():
            each.thread.start()

    def stop(self) -> None:
        """Returns when all connections are closed."""
        for each in self._watches.values():
            each.cancel()
        for each in self._watches.values():
            if each.thread.is_alive():
                each.thread.join()


class _Watch:
    """Watches the objects of one kind, in a thread."""

    def __init__(self, client: ApiClient, kind: Kind) -> None:
        self.events: list[threading.Event] = []
        self.thread = threading.Thread(target=self._run, name=f"changes of {kind[1]}", daemon=True)
        self._client, self._kind = client, kind
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._cut: Callable[[], None] | None = None
        self._seen: dict[str, str] = {}  # uid of a Node -> what was last seen of it
        self._broken = False

    def cancel(self) -> None:
        with self._lock:
            self._stopping.set()
            if self._cut:
                self._cut()

    def _run(self) -> None:
        version = ""
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                if not version:
                    version = self._version()
                    self._tell()  # of what may have changed while nobody watched
                version = self._follow(version)
                pause = AGAIN_SECONDS if time.monotonic() - began < AGAIN_SECONDS else 0.0
            except UnknownKindError:
                version, pause = "", UNKNOWN_SECONDS
            except (ApiError, httpx.HTTPError, ValueError) as error:  # ValueError: a line that was cut off
                self._complain(error)
                version, pause = "", AGAIN_SECONDS
            self._stopping.wait(pause)

    def _version(self) -> str:
        """The present version of the collection."""
        found = self._client.request("GET", self._client.path(*self._kind), limit="1")
        self._broken = False
        return str(found["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> str:
        """Tells of all changes since a version, until the server ends the watch; the last version."""
        try:
            for event, changed in self._client.watch(*self._kind, version, WATCH_SECONDS, opened=self._opened):
                version = changed["metadata"]["resourceVersion"]
                if event != "BOOKMARK" and self._is_news(event, changed):
                    self._tell()
        finally:
            with self._lock:
                self._cut = None
        return version

    def _opened(self, cut: Callable[[], None]) -> None:
        with self._lock:
            self._cut = cut
            if self._stopping.is_set():
                cut()

    def _is_news(self, event: str, changed: Object) -> bool:
        """Whether there is more to a change than that a Node is still alive, which each says every few seconds."""
        if self._kind != NODE:
            return True
        uid, present = changed["metadata"]["uid"], "" if event == "DELETED" else _without_heartbeat(changed)
        before = self._seen.pop(uid, "")
        if present:
            self._seen[uid] = present
        return present != before or not present

    def _tell(self) -> None:
        for each in self.events:
            each.set()

    def _complain(self, error: Exception) -> None:
        """Once for each interruption."""
        if not self._broken and not self._stopping.is_set():
            _LOG.info("%s: %s", self.thread.name, error)
        self._broken = True


def _without_heartbeat(node: Object) -> str:
    metadata = {key: node["metadata"].get(key) for key in ("labels", "annotations", "deletionTimestamp", "finalizers")}
    status = dict(node.get("status", {}))
    status["conditions"] = [{**each, "lastHeartbeatTime": ""} for each in status.get("conditions") or []]
    return json.dumps([metadata, node["spec"], status], sort_keys=True)
