"""The three loops: creation for pods, deletion on events of nodes, and removal of broken pools that nobody misses."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

from sandbox.kubernetes.api import ApiClient, Object, condition, is_true
from sandbox.tpu_provisioner.cluster import Informer, Key, key_of
from sandbox.tpu_provisioner.google import CallError, Json
from sandbox.tpu_provisioner.node_pool import (
    JOBSET_NAME,
    LABEL_JOBSET,
    LABEL_JOBSET_NAMESPACE,
    LABEL_POOL_ID,
    MANAGED_BY_THIS,
    MANAGER,
    POOL_LABEL,
    TOPOLOGY,
)
from sandbox.tpu_provisioner.provider import DuplicateError, Provider
from sandbox.tpu_provisioner.settings import Settings
from sandbox.tpu_provisioner.work_queue import WorkQueue

JOBSET_API = "jobset.x-k8s.io/v1alpha2"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
DISABLED = "tpu-provisioner.cloud.google.com/disable-autoprovisioning"
GARBAGE_SECONDS = 60.0
SYSTEM_NAMESPACE: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tpu-provisioner-system"}}
_LOG = logging.getLogger(__name__)


class Creation:
    """Makes pools for pods that cannot be scheduled."""

    def __init__(self, client: ApiClient, provider: Provider, settings: Settings) -> None:
        self._provider, self._resource = provider, settings.pod_resource_type
        self._queue: WorkQueue[Key] = WorkQueue("creation", settings.concurrency, self._reconcile)
        self._pods = Informer(client, "v1", "Pod", changed=self._changed)

    def start(self) -> None:
        """Raises SyncError."""
        self._pods.wait()
        self._queue.start()

    def _changed(self, pod: Object) -> None:
        if wants_pool(pod, self._resource):
            self._queue.add(key_of(pod))

    def _reconcile(self, key: Key) -> None:
        pod = self._pods.get(key)
        if pod is None:
            return
        try:
            self._provider.ensure_for_pod(pod, "pod is currently unschedulable")
        except DuplicateError as error:
            _LOG.info("ignoring duplicate request to create node pool: %s", error)


def wants_pool(pod: Object, resource: str) -> bool:
    """Whether a pod starts a creation: the leader of a JobSet's job that waits for TPUs of a topology."""
    metadata, spec = pod["metadata"], pod["spec"]
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    scheduled = condition(pod, "PodScheduled")
    return (
        bool(annotations.get(JOBSET_NAME))
        and annotations.get(COMPLETION_INDEX) == "0"
        and pod.get("status", {}).get("phase") == "Pending"
        and (scheduled.get("status"), scheduled.get("reason")) == ("False", "Unschedulable")
        and any(resource in (each.get("resources", {}).get("requests") or {}) for each in spec["containers"])
        and TOPOLOGY in (spec.get("nodeSelector") or {})
        and "true" not in (labels.get(DISABLED), annotations.get(DISABLED))
        and "deletionTimestamp" not in metadata
    )


class JobSets:
    """The cluster's JobSets; looked at from the first question on."""

    def __init__(self, client: ApiClient) -> None:
        self._informer = Informer(client, JOBSET_API, "JobSet")

    def get(self, namespace: str, name: str) -> Object | None:
        """Raises SyncError."""
        self._informer.wait()
        return self._informer.get((namespace, name))


class Deletion:
    """Deletes the pools of JobSets that have ended, whenever one of their nodes changes."""

    def __init__(self, client: ApiClient, provider: Provider, settings: Settings, jobsets: JobSets) -> None:
        self._provider, self._jobsets, self._min_lifespan = provider, jobsets, settings.node_min_lifespan
        self._queue: WorkQueue[Key] = WorkQueue("deletion", settings.concurrency, self._reconcile)
        selector = f"{MANAGER}={MANAGED_BY_THIS}"
        self.nodes = Informer(client, "v1", "Node", selector, lambda node: self._queue.add(key_of(node)))

    def start(self) -> None:
        """Raises SyncError."""
        self.nodes.wait()
        self._queue.start()

    def _reconcile(self, key: Key) -> float | None:
        node = self.nodes.get(key)
        if node is None or _shutting_down(node):
            return None
        age = (datetime.now(UTC) - datetime.fromisoformat(node["metadata"]["creationTimestamp"])).total_seconds()
        if age < self._min_lifespan:
            return self._min_lifespan - age + 1
        labels = node["metadata"]["labels"]
        jobset = labels.get(LABEL_JOBSET) or labels.get(LABEL_POOL_ID)
        if POOL_LABEL not in labels or not jobset:
            return None
        found = self._jobsets.get(labels.get(LABEL_JOBSET_NAMESPACE, "default"), jobset)
        if found is None:
            self._delete(node, f"JobSet {jobset} no longer exists")
        elif is_true(found, "Completed") or is_true(found, "Failed"):
            self._delete(node, f"JobSet {jobset} execution has ended (completed or failed)")
        return None

    def _delete(self, node: Object, why: str) -> None:
        try:
            self._provider.delete(node["metadata"]["labels"][POOL_LABEL], node, why)
        except (CallError, DuplicateError) as error:  # upstream drops it: the node's next event tries again
            _LOG.debug("%s", error)


def _shutting_down(node: Object) -> bool:
    ready = condition(node, "Ready")
    said = (ready.get("status"), ready.get("reason"), ready.get("message"))
    return said == ("False", "KubeletNotReady", "node is shutting down")


class GarbageCollection:
    """Deletes pools in ERROR that have no nodes and whose JobSet is gone."""

    def __init__(self, provider: Provider, jobsets: JobSets, nodes: Informer) -> None:
        self._provider, self._jobsets, self._nodes = provider, jobsets, nodes

    def run(self, seconds: float = GARBAGE_SECONDS) -> None:
        """Looks every so many seconds, for ever."""
        while True:
            time.sleep(seconds)
            try:
                self.step()
            except Exception as error:
                _LOG.error("failed to list errored node pools: %s", error)

    def step(self) -> None:
        """One look at all pools. Raises CallError where they cannot be listed."""
        for pool in self._provider.pools():
            if pool.get("status") == "ERROR":
                try:
                    self._collect(pool)
                except (CallError, DuplicateError) as error:
                    _LOG.error("failed to garbage collect node pool %s: %s", pool["name"], error)

    def _collect(self, pool: Json) -> None:
        labels = pool["config"].get("labels") or {}
        jobset = labels.get(LABEL_JOBSET) or labels.get(LABEL_POOL_ID)
        namespace = labels.get(LABEL_JOBSET_NAMESPACE, "default")
        if not jobset or self._jobsets.get(namespace, jobset):
            return
        name = pool["name"]
        self._nodes.wait()
        if any(each["metadata"]["labels"].get(POOL_LABEL) == name for each in self._nodes.all()):
            return
        why = (
            f"the node pool has no corresponding Nodes, the Pod ({namespace}/{jobset}) that triggered its creation no"
            f" longer exists, and node pool is in an error state: {pool.get('statusMessage', '')}"
        )
        self._provider.delete(name, SYSTEM_NAMESPACE, why)
