"""Long operations, faults, persistence, the cluster back end, permissions, and the emulator as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from sandbox.google import ClusterEndpoint, ClusterRef
from sandbox.google.discovery import MOUNTS, document
from sandbox.google.permissions import needed, permission_for
from sandbox.google.service import HANDLERS
from sandbox.plugins.steps import KILL_HEADER, STEP_HEADER
from sandbox.tests.emulated_google import (
    CLUSTERS,
    COMPUTE,
    POOLS,
    PROJECT,
    REGION,
    ZONE,
    Cloud,
    cluster,
    compact,
    connected,
    eventually,
    pool,
    subnetwork,
)

NETWORKS = f"{COMPUTE}/global/networks"
SINGLE = "ct6e-standard-1t"


@pytest.fixture
def cloud(server: Cloud) -> Cloud:
    server.control("reset")
    return server


# Operations


def test_without_time_an_operation_is_answered_done(cloud: Cloud) -> None:
    operation = cloud.ok("POST", NETWORKS, {"name": "net"})
    assert (operation["status"], operation["progress"]) == ("DONE", 100)
    assert operation["targetId"] == cloud.ok("GET", f"{NETWORKS}/net")["id"]
    assert operation["targetLink"].endswith("/global/networks/net")
    path = f"{COMPUTE}/global/operations/{operation['name']}"
    assert cloud.ok("GET", path) == operation
    assert cloud.ok("POST", f"{path}/wait") == operation
    cloud.refused(404, "GET", f"{COMPUTE}/global/operations/other")


def test_operations_pend_run_and_end_in_their_time() -> None:
    """12 s for a network, divided by 6; long enough that a busy machine sees each phase."""
    with connected(time_scale=6) as cloud:
        operation = cloud.ok("POST", NETWORKS, {"name": "net"})
        path = f"{COMPUTE}/global/operations/{operation['name']}"
        seen = [operation["status"]]
        cloud.refused(404, "GET", f"{NETWORKS}/net")
        assert cloud.refused(409, "POST", NETWORKS, {"name": "net"})["status"] == "ALREADY_EXISTS"
        while seen[-1] != "DONE":
            time.sleep(0.02)
            seen.append(cloud.ok("GET", path)["status"])
        assert list(dict.fromkeys(seen)) == ["PENDING", "RUNNING", "DONE"]
        assert cloud.ok("GET", f"{NETWORKS}/net")["name"] == "net"
        assert cloud.ok("DELETE", f"{NETWORKS}/net")["status"] == "PENDING"
        assert (
            cloud.refused(400, "PATCH", f"{NETWORKS}/net", {"mtu": 1500})["errors"][0]["reason"] == "resourceNotReady"
        )
        assert cloud.ok("GET", f"{NETWORKS}/net")["name"] == "net"


def test_clusters_and_pools_are_seen_while_they_come_and_go() -> None:
    with connected(time_scale=300) as cloud:

        def finish(operation: dict[str, Any], base: str) -> None:
            eventually(lambda: cloud.ok("GET", f"{base}/operations/{operation['name']}")["status"] == "DONE")

        finish(cloud.ok("POST", NETWORKS, {"name": "net"}), f"{COMPUTE}/global")
        region = f"{COMPUTE}/regions/{REGION}"
        finish(cloud.ok("POST", f"{region}/subnetworks", subnetwork()), region)
        place = CLUSTERS.removesuffix("/clusters")
        creation = cloud.ok("POST", CLUSTERS, {"cluster": cluster()})
        assert cloud.ok("GET", f"{CLUSTERS}/tpu")["status"] == "PROVISIONING"
        error = cloud.refused(400, "POST", POOLS, pool())
        assert error["status"] == "FAILED_PRECONDITION"
        assert error["message"] == f"Cluster is running incompatible operation {creation['name']}."
        finish(creation, place)
        own = pool(machine=SINGLE, nodes=1, config={"serviceAccount": "default"})
        creation = cloud.ok("POST", POOLS, own)
        assert cloud.ok("GET", f"{POOLS}/pool")["status"] == "PROVISIONING"
        finish(creation, place)
        assert cloud.ok("GET", f"{POOLS}/pool")["status"] == "RUNNING"
        deletion = cloud.ok("DELETE", f"{CLUSTERS}/tpu")
        assert cloud.ok("GET", f"{CLUSTERS}/tpu")["status"] == "STOPPING"
        finish(deletion, place)
        cloud.refused(404, "GET", f"{CLUSTERS}/tpu")


def test_enabling_services_is_an_operation(cloud: Cloud) -> None:
    services = f"/su/v1beta1/projects/{PROJECT}/services"
    operation = cloud.ok("POST", f"{services}:batchEnable", {"serviceIds": ["tpu.googleapis.com"]})
    assert cloud.ok("GET", f"/su/v1beta1/{operation['name']}")["done"] is True
    enabled = cloud.ok("GET", f"{services}?filter=state:ENABLED")["services"]
    assert "tpu.googleapis.com" in [service["config"]["name"] for service in enabled]
    cloud.ok("POST", f"{services}/tpu.googleapis.com:disable", {})
    assert cloud.ok("GET", f"{services}/tpu.googleapis.com")["state"] == "DISABLED"
    cloud.refused(404, "POST", f"{services}/nonsense:enable", {})


def finished(cloud: Cloud, operation: dict[str, Any]) -> bool:
    return bool(cloud.ok("GET", f"/su/v1/{operation['name']}")["done"])


def test_services_that_are_enabled_at_once_are_all_on() -> None:
    services = f"/su/v1/projects/{PROJECT}/services"
    with connected(fresh_project=True) as cloud:
        for _ in range(2):
            cloud.control("faults", {"kind": "slow-operation", "seconds": 0.3, "path": ":enable$"})
        begun = [cloud.ok("POST", f"{services}/{api}.googleapis.com:enable", {}) for api in ("compute", "iam")]
        for operation in begun:
            eventually(partial(finished, cloud, operation))
        on = {each["config"]["name"] for each in cloud.ok("GET", f"{services}?filter=state:ENABLED")["services"]}
        assert {"compute.googleapis.com", "iam.googleapis.com"} <= on


def test_a_fresh_project_has_to_enable_what_it_uses() -> None:
    with connected(fresh_project=True) as cloud:
        error = cloud.refused(403, "POST", NETWORKS, {"name": "net"})
        assert "compute.googleapis.com has not been used in project proj before or it is disabled" in error["message"]
        assert error["details"][0]["reason"] == "SERVICE_DISABLED"
        for service in ("compute", "container", "iam"):
            cloud.ok("POST", f"/su/v1/projects/{PROJECT}/services/{service}.googleapis.com:enable", {})
        cloud.ok("POST", f"/iam/v1/projects/{PROJECT}/serviceAccounts", {"accountId": "tpu-nodes"})
        account = f"/iam/v1/projects/{PROJECT}/serviceAccounts/tpu-nodes@{PROJECT}.iam.gserviceaccount.com"
        member = f"serviceAccount:{PROJECT}.svc.id.goog[ns/ksa]"
        body = {"policy": {"bindings": [{"role": "roles/iam.workloadIdentityUser", "members": [member]}]}}
        error = cloud.refused(400, "POST", f"{account}:setIamPolicy", body)
        assert "Identity Pool does not exist (proj.svc.id.goog)" in error["message"]
        cloud.make_network()
        guarded = cluster(binaryAuthorization={"evaluationMode": "PROJECT_SINGLETON_POLICY_ENFORCE"})
        error = cloud.refused(403, "POST", CLUSTERS, {"cluster": guarded})
        assert "binaryauthorization.googleapis.com has not been used" in error["message"]
        cloud.ok("POST", CLUSTERS, {"cluster": cluster()})
        cloud.ok("POST", f"{account}:setIamPolicy", body)


# Requests


def test_callers_without_a_token_are_refused(cloud: Cloud) -> None:
    answer = httpx.get(f"{cloud.emulator.url}{NETWORKS}", trust_env=False)
    assert (answer.status_code, answer.json()["error"]["status"]) == (401, "UNAUTHENTICATED")


def test_urls_and_methods_google_does_not_have_are_not_found(cloud: Cloud) -> None:
    assert cloud.refused(404, "GET", "/compute/beta/projects/p/nothing")["status"] == "NOT_FOUND"
    assert cloud.refused(501, "GET", f"{COMPUTE}/global/sslPolicies")["status"] == "UNIMPLEMENTED"
    error = cloud.refused(400, "GET", f"{NETWORKS}?colour=red")
    assert "Cannot bind query parameter" in error["message"]
    answer = cloud.http.post(NETWORKS, content=b"{")
    assert (answer.status_code, answer.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")


def test_unknown_fields_and_wrong_enums_are_refused_over_http(cloud: Cloud) -> None:
    body = {"cluster": cluster(x=1, releaseChannel={"channel": "FAST"})}
    error = cloud.refused(400, "POST", CLUSTERS, body)
    assert error["status"] == "INVALID_ARGUMENT"
    texts = [violation["description"] for violation in error["details"][0]["fieldViolations"]]
    assert "Invalid JSON payload received. Unknown name \"x\" at 'cluster': Cannot find field." in texts
    assert any("Invalid value at 'cluster.release_channel.channel'" in text for text in texts)


def test_traffic_is_recorded_with_bodies(cloud: Cloud) -> None:
    cloud.ok("POST", NETWORKS, {"name": "net"})
    cloud.refused(404, "GET", f"{NETWORKS}/other?alt=json")
    first, second = cloud.ok("GET", "/sandbox/traffic")
    assert (first["method"], first["path"], first["body"], first["status"]) == ("POST", NETWORKS, {"name": "net"}, 200)
    assert (second["query"], second["body"], second["status"]) == ("alt=json", None, 404)
    assert cloud.ok("GET", f"/sandbox/traffic?since={first['seq']}") == [second]
    cloud.refused(400, "GET", "/sandbox/traffic?since=yesterday")


# Faults


def test_a_fault_answers_with_its_status_as_often_as_asked(cloud: Cloud) -> None:
    fault = {"kind": "status", "method": "POST", "path": "/networks$", "status": 429, "retry_after": 7, "times": 2}
    cloud.control("faults", fault)
    for _ in range(2):
        answer = cloud.http.post(NETWORKS, json={"name": "net"})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
        assert answer.json()["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert cloud.ok("GET", NETWORKS)["items"] == []
    cloud.ok("POST", NETWORKS, {"name": "net"})


def test_a_stockout_leaves_a_pool_in_error(cloud: Cloud) -> None:
    cloud.make_cluster()
    fault = {"kind": "operation", "path": "/nodePools$", "method": "POST", "code": "ZONE_RESOURCE_POOL_EXHAUSTED"}
    cloud.control("faults", fault)
    operation = cloud.ok("POST", POOLS, pool(nodes=4, placementPolicy=compact("4x4")))
    assert operation["status"] == "DONE"
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in operation["error"]["message"]
    assert cloud.ok("GET", f"{POOLS}/pool")["status"] == "ERROR"
    assert cloud.ok("GET", f"{CLUSTERS}/tpu")["currentNodeCount"] == 0
    cloud.ok("DELETE", f"{POOLS}/pool")
    assert "error" not in cloud.ok("POST", POOLS, pool(nodes=4, placementPolicy=compact("4x4")))


def test_a_failed_insert_leaves_nothing(cloud: Cloud) -> None:
    cloud.control("faults", {"kind": "operation", "path": "/networks$", "code": "QUOTA_EXCEEDED"})
    operation = cloud.ok("POST", NETWORKS, {"name": "net"})
    assert operation["error"]["errors"][0]["code"] == "QUOTA_EXCEEDED"
    assert cloud.inventory() == {}


@pytest.mark.parametrize(("processed", "left"), [(False, {}), (True, {"compute.networks": ["net"]})])
def test_a_cut_connection_may_or_may_not_have_been_processed(
    cloud: Cloud, processed: bool, left: dict[str, list[str]]
) -> None:
    cloud.control("faults", {"kind": "cut", "path": "/networks$", "processed": processed})
    with pytest.raises(httpx.TransportError):
        cloud.http.post(NETWORKS, json={"name": "net"})
    assert cloud.inventory() == left


def test_slow_answers_and_changed_etags(cloud: Cloud) -> None:
    cloud.control("faults", {"kind": "slow", "seconds": 0.2})
    start = time.monotonic()
    cloud.ok("GET", NETWORKS)
    assert time.monotonic() - start >= 0.2
    cloud.control("faults", {"kind": "slow", "seconds": 600})
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(cloud.ok, "GET", NETWORKS)
        eventually(lambda: cloud.ok("GET", "/sandbox/faults") == [])
        cloud.ok("DELETE", "/sandbox/faults")
        slow.result()  # faults that are cleared hold up nothing
    cloud.control("faults", {"kind": "etag", "path": ":setIamPolicy"})
    error = cloud.refused(409, "POST", f"/crm/v1/projects/{PROJECT}:setIamPolicy", {"policy": {}})
    assert "concurrent policy changes" in error["message"]


STEP = "create gcp:compute/network:Network::net"


def test_a_fault_may_strike_one_step_only_and_not_its_first_requests(cloud: Cloud) -> None:
    cloud.control("faults", {"kind": "status", "step": STEP, "skip": 1, "status": 401})
    cloud.ok("GET", NETWORKS)
    named = {STEP_HEADER: STEP}
    assert cloud.http.get(NETWORKS, headers={STEP_HEADER: "create gcp:compute/network:Network::other"}).is_success
    assert cloud.http.get(NETWORKS, headers=named).is_success
    assert cloud.ok("GET", "/sandbox/faults/struck") == []
    answer = cloud.http.get(NETWORKS, headers=named)
    assert (answer.status_code, answer.json()["error"]["status"]) == (401, "UNAUTHENTICATED")
    [struck] = cloud.ok("GET", "/sandbox/faults/struck")
    assert (struck["step"], cloud.ok("GET", "/sandbox/faults")) == (STEP, [])


def test_a_fault_of_an_operation_waits_for_a_request_that_has_one(cloud: Cloud) -> None:
    cloud.control("faults", {"kind": "operation", "times": 2})
    for _ in range(3):
        cloud.ok("GET", NETWORKS)
    [waiting] = cloud.ok("GET", "/sandbox/faults")
    assert (waiting["times"], cloud.ok("GET", "/sandbox/faults/struck")) == (2, [])
    assert "error" in cloud.ok("POST", NETWORKS, {"name": "net"})
    [waiting] = cloud.ok("GET", "/sandbox/faults")
    assert (waiting["times"], len(cloud.ok("GET", "/sandbox/faults/struck"))) == (1, 1)


def test_an_operation_takes_as_long_as_a_fault_says(cloud: Cloud) -> None:
    cloud.control("faults", {"kind": "slow-operation", "method": "POST", "seconds": 0.5})
    operation = cloud.ok("POST", NETWORKS, {"name": "net"})
    assert operation["status"] != "DONE"
    eventually(lambda: cloud.inventory() == {"compute.networks": ["net"]})


def test_who_is_killed_is_told_with_the_answer_while_the_operation_goes_on(cloud: Cloud) -> None:
    cloud.control("faults", {"kind": "kill", "victim": "program", "method": "POST", "seconds": 0.5})
    answer = cloud.http.post(NETWORKS, json={"name": "net"})
    assert (answer.status_code, answer.headers[KILL_HEADER]) == (200, "program")
    assert answer.json()["status"] != "DONE"
    eventually(lambda: cloud.inventory() == {"compute.networks": ["net"]})


def test_a_plugin_asks_what_strikes_its_request_to_an_api_server(cloud: Cloud) -> None:
    asked = {"step": "delete kubernetes:core/v1:Namespace::a", "method": "DELETE", "path": "/api/v1/namespaces/a"}
    cloud.control("faults", {"kind": "webhook", "step": asked["step"]})
    assert cloud.control("faults/strike", {**asked, "step": "create kubernetes:core/v1:Namespace::a"}) == {}
    assert cloud.control("faults/strike", asked)["kind"] == "webhook"
    assert cloud.control("faults/strike", asked) == {}


def test_faults_are_listed_removed_and_checked(cloud: Cloud) -> None:
    cloud.control("faults", {"kind": "status"})
    assert [fault["kind"] for fault in cloud.ok("GET", "/sandbox/faults")] == ["status"]
    cloud.ok("DELETE", "/sandbox/faults")
    assert cloud.ok("GET", "/sandbox/faults") == []
    answer = cloud.http.post("/sandbox/faults", json={"kind": "earthquake", "path": "("})
    assert answer.status_code == 400
    assert {error["path"] for error in answer.json()["errors"]} == {"kind", "path"}


# State


def test_the_state_survives_a_restart(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with connected(state=state) as cloud:
        cloud.make_cluster()
        cloud.ok("POST", POOLS, pool(nodes=4, placementPolicy=compact("4x4")))
        before = cloud.ok("GET", f"{CLUSTERS}/tpu")
        cloud.ok("POST", NETWORKS, {"name": "gone"})
        cloud.ok("DELETE", f"{NETWORKS}/gone")
    with connected(state=state) as cloud:
        after = cloud.ok("GET", f"{CLUSTERS}/tpu")
        ca = ("masterAuth", "clusterCaCertificate")
        assert {**after, ca[0]: None} == {**before, ca[0]: None}
        assert cloud.inventory()["compute.networks"] == ["net"]
        cloud.control("reset")
    with connected(state=state) as cloud:
        assert cloud.inventory() == {}


def test_operations_go_on_after_a_restart(tmp_path: Path) -> None:
    with connected(state=tmp_path / "state", time_scale=10) as cloud:
        operation = cloud.ok("POST", NETWORKS, {"name": "net"})
        assert operation["status"] != "DONE"
    with connected(state=tmp_path / "state", time_scale=10) as cloud:
        path = f"{COMPUTE}/global/operations/{operation['name']}"
        assert cloud.ok("POST", f"{path}/wait")["status"] == "DONE"
        assert cloud.inventory() == {"compute.networks": ["net"]}


# The control plane behind a cluster


class RecordingBackend:
    """Stands for a control plane: notes what it is asked, and fails on demand."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.threads: set[str] = set()
        self.problem = ""
        self.policy_topologies: dict[str, str] = {}

    def create(self, ref: ClusterRef, cluster: dict[str, Any]) -> ClusterEndpoint:
        self._note("create", ref.path, cluster["name"])
        return ClusterEndpoint("127.0.0.1:6443", "Y2E=")

    def delete(self, ref: ClusterRef) -> None:
        self._note("delete", ref.path)

    def pools_changed(self, ref: ClusterRef, pools: list[dict[str, Any]]) -> None:
        self._note("pools", {pool["name"]: pool["currentNodeCount"] for pool in pools})
        self.policy_topologies = {pool["name"]: pool["policyTopology"] for pool in pools}

    def _note(self, *call: Any) -> None:
        self.threads.add(threading.current_thread().name)
        if self.problem:
            raise RuntimeError(self.problem)
        self.calls.append(call)


def test_the_back_end_follows_clusters_and_pools() -> None:
    backend = RecordingBackend()
    with connected(backend=backend) as cloud:
        cloud.make_cluster()
        found = cloud.ok("GET", f"{CLUSTERS}/tpu")
        assert found["endpoint"] == "127.0.0.1:6443"
        assert found["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"] == "127.0.0.1:6443"
        cloud.ok("POST", POOLS, pool(nodes=4, placementPolicy=compact("4x4")))
        cloud.ok("POST", f"{POOLS}/pool:setSize", {"nodeCount": 0})
        cloud.ok("DELETE", f"{CLUSTERS}/tpu")
    path = f"projects/{PROJECT}/locations/{REGION}/clusters/tpu"
    assert backend.calls == [
        ("create", path, "tpu"),
        ("pools", {"default-pool": 1}),
        ("pools", {}),
        ("pools", {"pool": 4}),
        ("pools", {"pool": 0}),
        ("delete", path),
    ]
    assert all(name.startswith("operation") for name in backend.threads)


def test_the_back_end_learns_the_topology_of_a_pools_workload_policy() -> None:
    backend = RecordingBackend()
    with connected(backend=backend) as cloud:
        cloud.make_cluster()
        cloud.offer("tpu7x")
        cloud.make_policy("wp", "2x2x2")
        cloud.ok("POST", POOLS, pool(machine="tpu7x-standard-4t", nodes=2, placementPolicy={"policyName": "wp"}))
        assert backend.policy_topologies == {"pool": "2x2x2"}


def test_a_control_plane_that_does_not_start_fails_the_operation(caplog: pytest.LogCaptureFixture) -> None:
    backend = RecordingBackend()
    with connected(backend=backend) as cloud:
        cloud.make_network()
        backend.problem = "etcd is not to be had"
        operation = cloud.ok("POST", CLUSTERS, {"cluster": cluster()})
        assert "etcd is not to be had" in operation["error"]["message"]
        assert cloud.ok("GET", f"{CLUSTERS}/tpu")["status"] == "ERROR"
        backend.problem = ""
        cloud.ok("DELETE", f"{CLUSTERS}/tpu")
    assert "failed" in caplog.text


# Permissions


def test_every_served_method_has_a_permission() -> None:
    documents = [document(mount.document) for mount in MOUNTS]
    served = {method for found in documents for method in found.methods if method in HANDLERS}
    assert len(served) > 150
    free = {"sts.token", *(method for method in served if method.endswith(".operations.get"))}
    for method in served - {m for m in free if not m.startswith(("compute.", "container."))}:
        assert permission_for(method).count(".") == 2, method
    assert permission_for("compute.networks.insert") == "compute.networks.create"
    assert permission_for("container.projects.locations.clusters.nodePools.create") == "container.clusters.update"
    body = {"nodePool": {"config": {"serviceAccount": "a"}}}
    method = "container.projects.locations.clusters.nodePools.create"
    assert needed(method, body) == ["container.clusters.update", "iam.serviceAccounts.actAs"]


def test_callers_need_the_permission_of_each_call(cloud: Cloud) -> None:
    cloud.control("permissions", {"granted": ["compute.networks.create", "compute.networks.get"]})
    cloud.ok("POST", NETWORKS, {"name": "net"})
    cloud.ok("GET", f"{NETWORKS}/net")
    error = cloud.refused(403, "DELETE", f"{NETWORKS}/net")
    assert error["status"] == "PERMISSION_DENIED"
    assert error["message"] == f"Required 'compute.networks.delete' permission for 'projects/{PROJECT}'"
    error = cloud.refused(403, "GET", CLUSTERS)
    assert error["message"] == f'Required "container.clusters.list" permission(s) for "projects/{PROJECT}".'
    asked = {"permissions": ["compute.networks.get", "container.clusters.create"]}
    granted = cloud.ok("POST", f"/crm/v1/projects/{PROJECT}:testIamPermissions", asked)
    assert granted == {"permissions": ["compute.networks.get"]}
    cloud.control("permissions", {"granted": None})
    cloud.ok("DELETE", f"{NETWORKS}/net")


def test_using_a_service_account_needs_act_as(cloud: Cloud) -> None:
    cloud.make_cluster()
    cloud.control("permissions", {"granted": ["container.clusters.update"]})
    error = cloud.refused(403, "POST", POOLS, pool(machine=SINGLE))
    assert "The user does not have access to service account" in error["message"]


# The process


def start(arguments: list[str], ready: Path, **popen: Any) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    command = [sys.executable, "-m", "sandbox.google", "--ready-file", str(ready), *arguments]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2], **popen)
    eventually(ready.exists)
    return process, json.loads(ready.read_text())


def test_the_process_announces_itself_and_listens_locally(tmp_path: Path) -> None:
    arguments = ["--state", str(tmp_path / "state"), "--parent-pid", str(os.getpid())]
    process, ready = start(arguments, tmp_path / "ready")
    try:
        assert ready["pid"] == process.pid
        assert httpx.get(f"{ready['url']}/sandbox/health", trust_env=False).json()["status"] == "ok"
        listening = [c for c in psutil.Process(process.pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}
    finally:
        process.terminate()
        process.wait(60)


def test_the_process_ends_with_the_process_it_serves(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process, _ = start(["--parent-pid", str(owner.pid)], tmp_path / "ready")
    assert process.poll() is None
    owner.kill()
    owner.communicate()
    assert process.wait(60) is not None


def test_bad_arguments_are_explained(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sandbox.google", "--time-scale", "-1"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_two_emulators_do_not_share_anything(cloud: Cloud) -> None:
    with connected() as other:
        cloud.ok("POST", NETWORKS, {"name": "net"})
        assert other.inventory() == {}
        assert cloud.inventory() == {"compute.networks": ["net"]}
        assert ZONE in cloud.ok("GET", f"{COMPUTE}/zones/{ZONE}")["selfLink"]
