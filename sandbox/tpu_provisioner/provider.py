"""Making and deleting pools: the calls in upstream's order, its events, and its errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from sandbox.kubernetes.api import Object
from sandbox.tpu_provisioner.cluster import Recorder
from sandbox.tpu_provisioner.google import CallError, ContainerApi, Json
from sandbox.tpu_provisioner.node_pool import HASH, JOB_KEY, JOBSET_NAME, creation_request
from sandbox.tpu_provisioner.settings import Settings
from sandbox.tpu_provisioner.work_queue import RequeueError


class DuplicateError(Exception):
    """The same is under way already."""


class Provider:
    """Pools of one cluster. Thread-safe. `give_up` ends the process; it is told why."""

    def __init__(
        self, settings: Settings, api: ContainerApi, recorder: Recorder, give_up: Callable[[str], None]
    ) -> None:
        self._settings, self._api, self._recorder, self._give_up = settings, api, recorder, give_up
        self._under_way: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def ensure_for_pod(self, pod: Object, why: str) -> None:
        """Makes the pod's pool unless it is there.

        Raises PodError, CallError, DuplicateError, and RequeueError after a pool that did not match has been deleted.
        """
        request = creation_request(pod, self._settings)
        wanted = request["nodePool"]
        name = wanted["name"]
        existing = self._existing(name)
        if existing is not None:
            if not _matches(wanted, existing):
                self.delete(name, pod, "existing node pool did not match pod and needed to be recreated")
                raise RequeueError
            return
        with self._only("create", name), self._only("job", pod["metadata"]["labels"].get(JOB_KEY, "")):
            jobset = pod["metadata"]["labels"].get(JOBSET_NAME, "")
            self._recorder.event(
                pod,
                "NodePoolCreationStarted",
                f"Starting creation of Node Pool {name} (size = {wanted['initialNodeCount']}) for JobSet {jobset}"
                f" because {why}",
            )
            self._create(name, request, pod)

    def _existing(self, name: str) -> Json | None:
        try:
            return self._api.get(name)
        except CallError as error:
            if error.status != 404:
                self._give_up(f"getting node pool {name}: {error}")
                raise
            return None

    def _create(self, name: str, request: Json, pod: Object) -> None:
        failed = "NodePoolCreationFailed"
        try:
            operation = self._api.create(request)
        except CallError as error:
            self._recorder.event(pod, failed, f"Request to create Node Pool {name} failed: {error}.", warning=True)
            raise
        try:
            self._api.wait(operation)
        except CallError as error:
            self._recorder.event(pod, failed, f"Operation to create Node Pool {name} failed: {error}.", warning=True)
            raise
        self._recorder.event(pod, "NodePoolCreationSucceeded", f"Successfully created Node Pool {name}.")

    def delete(self, name: str, about: Object, why: str) -> None:
        """Deletes a pool; events are about `about`. Raises CallError, DuplicateError."""
        with self._only("delete", name):
            self._recorder.event(
                about, "NodePoolDeletionStarted", f"Starting deletion of Node Pool {name} because {why}"
            )
            failed = "NodePoolDeletionFailed"
            try:
                operation = self._api.delete(name)
            except CallError as error:
                if error.status == 404:
                    message = "Node pool not found - ignoring deletion attempt."
                    self._recorder.event(about, "NodePoolNotFound", message)
                    return
                message = f"Request to delete Node Pool {name} failed: {error}."
                self._recorder.event(about, failed, message, warning=True)
                raise
            try:
                self._api.wait(operation)
            except CallError as error:
                message = f"Operation to delete Node Pool {name} failed: {error}."
                self._recorder.event(about, failed, message, warning=True)
                raise
            self._recorder.event(about, "NodePoolDeletionSucceeded", f"Successfully deleted Node Pool {name}.")

    def pools(self) -> list[Json]:
        """All pools of the cluster. Raises CallError."""
        return self._api.list_pools()

    @contextmanager
    def _only(self, what: str, name: str) -> Iterator[None]:
        """One at a time for each name; "" stands for any number. Raises DuplicateError."""
        entry = (what, name)
        with self._lock:
            if name and entry in self._under_way:
                raise DuplicateError(f"{what} ongoing for {name}")
            self._under_way.add(entry)
        try:
            yield
        finally:
            with self._lock:
                self._under_way.discard(entry)


def _matches(wanted: Json, existing: Json) -> bool:
    """Whether a pool that is there will do. One without labels, or without a hash, is taken for one of old times."""
    labels: Mapping[str, str] = existing.get("config", {}).get("labels") or {}
    return HASH not in labels or labels[HASH] == wanted["config"]["labels"][HASH]
