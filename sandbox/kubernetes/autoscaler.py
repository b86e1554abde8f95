"""Stand-in for GKE's cluster autoscaler: pods that cannot be placed grow a pool, idle pools shrink.

What it keeps of the real one: only autoscaled pools move, between their bounds; a multi-host slice goes from zero to
all its hosts and back at once; of claims only the generation can be predicted for a pool at zero; queued pools serve
ProvisioningRequests of class `queued-provisioning.gke.io` and nothing else; `auto_creation` makes pools for classes.
Where it differs: of affinity between pods it only knows the exclusive topology of JobSet and of LeaderWorkerSet, and it
does not weigh prices.
A pod it misjudges stays pending and is looked at again. A pool shrinks as a whole, when none of its nodes is in use.
One ProvisioningRequest may be served by several identical slices.
"""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable, Iterable

from sandbox.google.errors import GoogleError
from sandbox.kubernetes import fitting
from sandbox.kubernetes.api import ApiClient, Object, condition, is_true
from sandbox.kubernetes.auto_creation import AutoCreation
from sandbox.kubernetes.growth import BACK_OFF_SECONDS, SETTLE_SECONDS, Growth
from sandbox.kubernetes.nodes import POOL_LABEL, Pool

PROVISIONING_CLASS = "queued-provisioning.gke.io"
BOOKED_POOLS = "NodePoolName"  # key of status.provisioningClassDetails
_LOG = logging.getLogger(__name__)
_CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
_REQUEST_API = "autoscaling.x-k8s.io/v1"
_DRA_API = "resource.k8s.io/v1"

# Sets a pool's nodes per zone. Called from the autoscaler's thread; a GoogleError says why it is not possible now.
Resize = Callable[[str, int], None]


class Autoscaler:
    """Looks at one cluster. `pools` gives the pools as they are now; `idle_seconds` is how long a pool stays unused."""

    def __init__(
        self,
        client: ApiClient,
        pools: Callable[[], Iterable[Pool]],
        resize: Resize,
        idle_seconds: float,
        creation: AutoCreation,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._creation = creation
        self._clock = clock
        self._pools = pools
        self._resize_pool = resize
        self._idle_seconds = idle_seconds
        self._waiting_since: dict[str, float] = {}  # uid of a pod that caused growth
        self._idle_since: dict[str, float] = {}  # pool name
        self._refused_at: dict[str, float] = {}  # pool name

    def step(self) -> None:
        creates = self._creation.begin()
        pools = [each for each in self._pools() if each.autoscaled]
        if not pools and not creates:
            return
        pods = self._client.list_all("v1", "Pod")
        self._grow([each for each in pools if not each.queued], pods)
        booked = self._serve_requests([each for each in pools if each.queued])
        self._shrink(pools, pods, booked)
        self._creation.remove_unneeded()

    def _resize(self, pool: str, nodes: int) -> None:
        try:
            self._resize_pool(pool, nodes)
        except GoogleError as error:
            _LOG.warning("node pool %s cannot have %d nodes: %s", pool, nodes, error)
            self._refused_at[pool] = self._clock()

    def _grow(self, pools: list[Pool], pods: list[Object]) -> None:
        now = self._clock()
        pending = [each for each in pods if _unschedulable(each)]
        uids = {each["metadata"]["uid"] for each in pending}
        self._waiting_since = {uid: since for uid, since in self._waiting_since.items() if uid in uids}
        self._creation.forget_all_but(uids)
        growth = self._creation.growth()
        for pod in pending:
            uid = pod["metadata"]["uid"]
            settled = now >= self._waiting_since.get(uid, now - SETTLE_SECONDS) + SETTLE_SECONDS
            if not settled or self._creation.holds(pod):
                continue
            place = self._place(pod, pools, growth)
            if place in pools:
                self._waiting_since[uid] = now
        for each in growth.values():
            if not self._creation.start(each):
                self._resize(each.pool.name, each.size)

    def _place(self, pod: Object, pools: list[Pool], growth: dict[str, Growth]) -> Pool | None:
        """Finds the pod a place on nodes to be; None when no pool can give it one."""
        namespace, spec = pod["metadata"]["namespace"], pod["spec"]
        for pool in self._creation.candidates(pod, pools, growth):
            requests = self._requests_on(pool, namespace, spec)
            if requests is None:
                continue
            planned = growth.get(pool.name) or Growth(pool)
            if planned.take(pod, requests):
                return pool
            if not self._backs_off(pool) and planned.grow(pod):
                growth[pool.name] = planned
                planned.take(pod, requests)
                return pool
        self._creation.explain(pod, lambda pool: self._requests_on(pool, namespace, spec))
        return None

    def _backs_off(self, pool: Pool) -> bool:
        return self._clock() < self._refused_at.get(pool.name, -BACK_OFF_SECONDS) + BACK_OFF_SECONDS

    def _requests_on(self, pool: Pool, namespace: str, spec: Object) -> fitting.Resources | None:
        """What the pod would take of an empty node of the pool; None when it cannot run there."""
        if not fitting.admits(pool, spec):
            return None
        requests = fitting.pod_requests(spec)
        for claim in spec.get("resourceClaims", []):
            chips = self._claimed_chips(pool, namespace, claim)
            if chips is None:
                return None
            requests[fitting.CLAIMED_CHIPS] += chips * 1000
        return requests if fitting.fits(requests, fitting.node_resources(pool)) else None

    def _claimed_chips(self, pool: Pool, namespace: str, claim: Object) -> int | None:
        name = claim.get("resourceClaimTemplateName")
        template = self._client.get(_DRA_API, "ResourceClaimTemplate", name, namespace) if name else None
        if not template or not pool.dra:
            return None
        chips = 0
        for request in fitting.exact_requests(template["spec"]["spec"]):
            device_class = self._client.get(_DRA_API, "DeviceClass", request["deviceClassName"]) or {"spec": {}}
            selectors = [*device_class["spec"].get("selectors", []), *request.get("selectors", [])]
            if not fitting.predicted_match(pool, [each["cel"]["expression"] for each in selectors]):
                return None
            chips += pool.machine.chips if request.get("allocationMode") == "All" else request.get("count", 1)
        return chips

    def _serve_requests(self, pools: list[Pool]) -> set[str]:
        """Moves every ProvisioningRequest one step on; returns the names of booked pools."""
        requests = [
            each
            for each in self._client.list_all(_REQUEST_API, "ProvisioningRequest")
            if each["spec"]["provisioningClassName"] == PROVISIONING_CLASS
        ]
        booked = {name for each in requests if not is_true(each, "Failed") for name in _booked(each)}
        for each in requests:
            if is_true(each, "Provisioned") or is_true(each, "Failed"):
                continue
            if not is_true(each, "Accepted"):
                self._set_condition(each, "Accepted", "Accepted", "The request waits for capacity")
            elif names := _booked(each):
                self._provision(each, [pool for pool in pools if pool.name in names])
            else:
                booked |= self._book(each, pools, booked)
        return booked

    def _provision(self, request: Object, pools: list[Pool]) -> None:
        """Gives the booked pools their nodes, then says so."""
        for pool in pools:
            if pool.size == 0 and not self._backs_off(pool):
                self._resize(pool.name, pool.hosts if pool.multi_host else _count(request))
        if self._nodes_ready(pools):
            names = ", ".join(pool.name for pool in pools)
            self._set_condition(request, "Provisioned", "Provisioned", f"Nodes are ready in {names}")

    def _book(self, request: Object, pools: list[Pool], booked: set[str]) -> set[str]:
        """Writes down in the request which pools serve it: enough for all its pods, or none."""
        chosen: set[str] = set()
        for pod_set in request["spec"]["podSets"]:
            namespace = request["metadata"]["namespace"]
            template = self._client.get("v1", "PodTemplate", pod_set["podTemplateRef"]["name"], namespace)
            if not template:
                return set()
            spec = template["template"]["spec"]
            fitting_pools = [each for each in pools if self._requests_on(each, namespace, spec) is not None]
            if not _enough(fitting_pools, pod_set["count"]):
                message = f"no queued node pools give {pod_set['count']} nodes for pod set {pod_set}"
                self._set_condition(request, "Failed", "CapacityIsNotFound", message)
                return set()
            free = [each for each in fitting_pools if each.name not in booked | chosen and each.size == 0]
            share = _enough(free, pod_set["count"])
            if not share:
                return set()  # waits until other requests give their pools back
            chosen |= {pool.name for pool in share}
        details = {BOOKED_POOLS: ",".join(sorted(chosen))}
        self._client.patch(request, {"status": {"provisioningClassDetails": details}}, subresource="status")
        return chosen

    def _nodes_ready(self, pools: list[Pool]) -> bool:
        for pool in pools:
            nodes = self._client.list_all("v1", "Node", labelSelector=f"{POOL_LABEL}={pool.name}")
            if not nodes or not all(is_true(each, "Ready") for each in nodes):
                return False
        return True

    def _set_condition(self, request: Object, kind: str, reason: str, message: str) -> None:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        new = {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        conditions = [*request.get("status", {}).get("conditions", []), new]
        self._client.patch(request, {"status": {"conditions": conditions}}, subresource="status")

    def _shrink(self, pools: list[Pool], pods: list[Object], booked: set[str]) -> None:
        now = self._clock()
        used = _used_nodes(pods)
        for pool in pools:
            nodes = self._client.list_all("v1", "Node", labelSelector=f"{POOL_LABEL}={pool.name}")
            busy = any(each["metadata"]["name"] in used for each in nodes)
            if busy or pool.name in booked or pool.size <= pool.min_nodes:
                self._idle_since.pop(pool.name, None)
            elif now - self._idle_since.setdefault(pool.name, now) >= self._idle_seconds:
                del self._idle_since[pool.name]
                self._resize(pool.name, pool.min_nodes)


def _unschedulable(pod: Object) -> bool:
    scheduled = condition(pod, "PodScheduled")
    annotations = pod["metadata"].get("annotations", {})
    return (
        scheduled.get("reason") == "Unschedulable"
        and not pod["spec"].get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
        and _CONSUMES not in annotations
    )


def _booked(request: Object) -> list[str]:
    names = request.get("status", {}).get("provisioningClassDetails", {}).get(BOOKED_POOLS, "")
    return names.split(",") if names else []


def _count(request: Object) -> int:
    return sum(each["count"] for each in request["spec"]["podSets"])


def _enough(pools: list[Pool], count: int) -> list[Pool]:
    """Pools that together give exactly `count` nodes: one single-host pool, or whole slices; empty when none do."""
    for pool in pools:
        if not pool.multi_host and pool.max_nodes >= count:
            return [pool]
    for hosts in {each.hosts for each in pools if each.multi_host}:
        slices = [each for each in pools if each.hosts == hosts and each.max_nodes >= hosts]
        if count % hosts == 0 and len(slices) >= count // hosts:
            return slices[: count // hosts]
    return []


def _used_nodes(pods: list[Object]) -> set[str]:
    """Nodes with a pod that is neither finished nor a DaemonSet's."""
    return {
        each["spec"]["nodeName"]
        for each in pods
        if each["spec"].get("nodeName")
        and each["status"].get("phase") not in ("Succeeded", "Failed")
        and not any(owner["kind"] == "DaemonSet" for owner in each["metadata"].get("ownerReferences", []))
    }
