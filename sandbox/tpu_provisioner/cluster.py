"""What the controller sees of its cluster: copies of objects kept by list and watch, and events that it writes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import httpx

from sandbox.kubernetes.api import ApiClient, ApiError, Object

WATCH_SECONDS = 45
RETRY_SECONDS = 1.0
SYNC_SECONDS = 120.0  # a kind that cannot be listed for so long ends the process, as in controller-runtime
COMPONENT = "tpu-provisioner"
_LOG = logging.getLogger(__name__)

Key = tuple[str, str]
"""Namespace ("" for kinds without) and name."""


def key_of(obj: Object) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


class SyncError(Exception):
    """A kind could not be listed; the message says why."""


class Informer:
    """A copy of all objects of a kind that match a label selector.

    `changed` hears of each object that is new or has changed.
    """

    def __init__(
        self,
        client: ApiClient,
        api_version: str,
        kind: str,
        selector: str = "",
        changed: Callable[[Object], None] = lambda _: None,
    ) -> None:
        self._client, self._api_version, self._kind = client, api_version, kind
        self._selectors = {"labelSelector": selector} if selector else {}
        self._changed = changed
        self._objects: dict[Key, Object] = {}
        self._lock = threading.Lock()
        self._synced = threading.Event()
        self._started = False
        self._problem = ""

    def start(self) -> None:
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name=f"informer-{self._kind}", daemon=True).start()

    def wait(self) -> None:
        """Starts it if need be, and returns when the copy is there. Raises SyncError."""
        self.start()
        if not self._synced.wait(SYNC_SECONDS):
            raise SyncError(f"timed out waiting for cache to be synced for Kind *{self._kind}: {self._problem}")

    def get(self, key: Key) -> Object | None:
        return self._objects.get(key)

    def all(self) -> list[Object]:
        return list(self._objects.values())

    def _run(self) -> None:
        while True:
            try:
                version = self._list()
                self._synced.set()
                while True:
                    version = self._watch(version)
            except (ApiError, httpx.HTTPError) as error:
                self._problem = str(error)
                if not (isinstance(error, ApiError) and error.status == 410):
                    _LOG.error("failed to watch %s: %s", self._kind, error)
                    time.sleep(RETRY_SECONDS)

    def _list(self) -> str:
        answer = self._client.request("GET", self._client.path(self._api_version, self._kind), **self._selectors)
        found = {
            key_of(each): {"apiVersion": self._api_version, "kind": self._kind, **each} for each in answer["items"]
        }
        old, self._objects = self._objects, found
        for key, obj in found.items():
            if key not in old or old[key]["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
                self._changed(obj)
        return str(answer["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> str:
        client = self._client
        for event, obj in client.watch(self._api_version, self._kind, version, WATCH_SECONDS, self._selectors):
            version = obj["metadata"]["resourceVersion"]
            if event == "DELETED":
                self._objects.pop(key_of(obj), None)
            elif event != "BOOKMARK":
                self._objects[key_of(obj)] = obj
                self._changed(obj)
        return version


class Recorder:
    """Writes events about objects; one that is refused is logged and lost."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def event(self, obj: Object, reason: str, message: str, *, warning: bool = False) -> None:
        namespace, name = key_of(obj)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {"name": f"{name}.{time.time_ns():x}", "namespace": namespace or "default"}
        involved = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": name, "namespace": namespace}
        if "uid" in obj["metadata"]:
            involved["uid"] = obj["metadata"]["uid"]
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": metadata,
            "involvedObject": involved,
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "message": message,
            "source": {"component": COMPONENT},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        _LOG.info("%s %s: %s", reason, name, message)
        try:
            self._client.create(event, COMPONENT)
        except (ApiError, httpx.HTTPError) as error:
            _LOG.error("event of %s: %s", name, error)
