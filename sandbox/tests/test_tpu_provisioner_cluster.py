"""TPU Provisioner's stand-in as a process of a real control plane, with JobSet, kwok and the emulated cloud."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sandbox.kubernetes import supervisor
from sandbox.kubernetes.api import Object, is_true
from sandbox.kubernetes.nodes import POOL_LABEL
from sandbox.kubernetes.plain_programs import PROVISIONER_VARIABLE, STAND_IN
from sandbox.tests.emulated_google import ACCOUNTS, POOLS, PROJECT, eventually
from sandbox.tests.kubernetes_support import UNTIL_TOLD, end
from sandbox.tests.provisioner_support import (
    EMAIL,
    JOBSET_API,
    NAME,
    NAMESPACE,
    WORKLOAD,
    Lab,
    config_map,
    deployment,
    grant,
    jobset,
    manifests,
    running_lab,
)

pytestmark = pytest.mark.sandbox

SECONDS = 240


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """The project with the controller's manifests, its least rights, and without its ConfigMap."""
    with running_lab() as lab:
        grant(lab.cloud)
        lab.apply(*manifests())
        yield lab


@pytest.fixture
def controller(lab: Lab) -> Iterator[Lab]:
    """A running controller; afterwards the JobSets and pools of a test are gone."""
    grant(lab.cloud)
    lab.apply(config_map())
    eventually(lambda: bool(lab.container().get("ready")), SECONDS)
    yield lab
    for log in sorted((lab.cluster.plane.run_dir / "logs").glob("tpu-provisioner-*")):
        print(log.name, log.read_text()[-3000:], sep="\n")  # pytest shows it where the test failed
    for each in lab.client.list_all(JOBSET_API, "JobSet"):
        lab.client.delete(each)
    lab.cloud.ok("DELETE", "/sandbox/faults")
    eventually(lambda: not lab.client.list_all("batch/v1", "Job", "default"), SECONDS)
    eventually(lambda: not lab.client.list_all("v1", "Pod", "default"), SECONDS)
    for name in lab.pools():
        lab.cloud.http.delete(f"{POOLS}/{name}")
    # A node outlives its pool for a moment, and would take the next test's pods along.
    eventually(lambda: not lab.pools() and not nodes(lab), SECONDS)


def processes(lab: Lab) -> list[psutil.Process]:
    """The controller's own processes: one, but while it is being replaced."""
    mark = f"--kubeconfig={lab.cluster.plane.run_dir}/controllers/tpu-provisioner"
    children = psutil.Process().children(recursive=True)
    return [each for each in children if any(argument.startswith(mark) for argument in arguments(each))]


def arguments(process: psutil.Process) -> list[str]:
    """Its command line; empty for one that has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def process(lab: Lab) -> psutil.Process:
    """The one that runs, once it is one."""
    eventually(lambda: len(processes(lab)) == 1, SECONDS)
    [found] = processes(lab)
    return found


def is_another(lab: Lab, process: psutil.Process) -> bool:
    """Whether the controller runs in one process, which is not this one."""
    found = [each.pid for each in processes(lab)]
    return len(found) == 1 and process.pid not in found


def posts(lab: Lab) -> list[Object]:
    return [each for each in lab.cloud.ok("GET", "/sandbox/traffic") if each["method"] == "POST"]


def gets(lab: Lab) -> list[Object]:
    """The looks at pools of the test of a stockout."""
    traffic = lab.cloud.ok("GET", "/sandbox/traffic")
    return [each for each in traffic if each["method"] == "GET" and "nodePools/stockout-" in each["path"]]


def nodes(lab: Lab) -> dict[str, str]:
    """Name -> pool of the TPU nodes."""
    found = lab.client.list_all("v1", "Node", labelSelector="google.com/nodepool-manager=tpu-provisioner")
    return {each["metadata"]["name"]: each["metadata"]["labels"][POOL_LABEL] for each in found}


def running(lab: Lab, count: int) -> list[Object]:
    """The pods of JobSets, once so many run."""
    found: list[Object] = []

    def all_run() -> bool:
        found[:] = [each for each in lab.pods("default") if each["status"].get("phase") == "Running"]
        return len(found) == count

    eventually(all_run, SECONDS)
    return found


def test_without_its_config_map_the_container_is_not_made(lab: Lab) -> None:
    eventually(lambda: bool(lab.waiting()), SECONDS)
    assert lab.waiting() == {
        "reason": "CreateContainerConfigError",
        "message": 'configmap "tpu-provisioner-manager" not found',
    }
    [pod] = lab.pods()
    assert pod["status"]["phase"] == "Pending"
    lab.apply(config_map())
    eventually(lambda: bool(lab.container().get("ready")), SECONDS)
    made = ("apps/v1", "Deployment", NAME, NAMESPACE)
    eventually(lambda: is_true(lab.client.get(*made) or {}, "Available"), SECONDS)


def test_two_slices_get_their_pools_and_give_them_back(controller: Lab) -> None:
    lab = controller
    lab.apply(jobset("train", slices=2, seconds=UNTIL_TOLD))
    eventually(lambda: len(nodes(lab)) == 8, SECONDS)
    eventually(lambda: sorted(lab.pools().values()) == ["RUNNING", "RUNNING"], SECONDS)
    assert all(name.startswith("train-") for name in lab.pools())
    by_job: dict[str, set[str]] = {}
    pods = running(lab, 8)
    for pod in pods:
        pool = nodes(lab)[pod["spec"]["nodeName"]]
        by_job.setdefault(pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"], set()).add(pool)
    assert sorted(map(len, by_job.values())) == [1, 1], "each job has a pool of its own"
    end(lab.client, pods)
    eventually(lambda: is_true(lab.client.get(JOBSET_API, "JobSet", "train", "default") or {}, "Completed"), SECONDS)
    eventually(lambda: not lab.pools() and not nodes(lab), SECONDS)
    for reason in ("NodePoolCreationStarted", "NodePoolCreationSucceeded"):
        eventually(lambda reason=reason: len(lab.events(reason)) == 2, SECONDS)  # type: ignore[misc]
    eventually(lambda: len(lab.events("NodePoolDeletionSucceeded")) == 2, SECONDS)
    assert "execution has ended" in lab.events("NodePoolDeletionStarted")[0]
    created = [each["body"]["nodePool"] for each in posts(lab) if each["path"].endswith("/nodePools")]
    assert [each["management"] for each in created if each["name"].startswith("train-")] == [{"autoRepair": True}] * 2


def test_a_missing_identity_binding_is_named_where_the_container_crashes(controller: Lab) -> None:
    lab = controller
    lab.cloud.bind(f"{ACCOUNTS}/{EMAIL}")
    lab.apply(deployment(attempt="unbound"))
    eventually(lambda: bool(lab.container().get("ready")), SECONDS)
    lab.apply(jobset("unbound", slices=1))
    crashed: list[Object] = []

    def crashes() -> bool:
        crashed.append(lab.waiting())
        return crashed[-1].get("reason") == "CrashLoopBackOff"

    eventually(crashes, SECONDS)
    message = crashed[-1]["message"]
    assert "IAM returned 403 Forbidden" in message
    assert all(part in message for part in WORKLOAD)
    eventually(lambda: lab.container().get("restartCount", 0) > 1, SECONDS)
    eventually(lambda: lab.container().get("lastState", {}).get("terminated", {}).get("exitCode") == 2, SECONDS)
    assert lab.pools() == {}
    lab.cloud.bind(f"{ACCOUNTS}/{EMAIL}", WORKLOAD)
    running(lab, 4)


def test_without_rights_in_the_cluster_the_controller_sees_no_pods(controller: Lab) -> None:
    lab = controller
    binding = next(each for each in manifests() if each["kind"] == "ClusterRoleBinding")
    lab.client.delete(binding)
    try:
        process(lab).kill()  # one that watches already goes on
        log = lab.cluster.plane.run_dir / "logs"
        eventually(lambda: any("pods is forbidden" in each.read_text() for each in log.glob("tpu-*")), SECONDS)
        lab.apply(jobset("forbidden", slices=1))
        eventually(lambda: any("forbidden" in each["metadata"]["name"] for each in lab.pods("default")), SECONDS)
        assert lab.pools() == {}
    finally:
        lab.apply(binding)
    eventually(lambda: bool(lab.pools()), SECONDS)


def test_a_stockout_leaves_a_broken_pool_and_a_pod_that_waits(controller: Lab) -> None:
    lab = controller
    before = len(lab.events("NodePoolCreationSucceeded"))
    lab.cloud.control(
        "faults",
        {"kind": "operation", "method": "POST", "path": "/nodePools$", "code": "ZONE_RESOURCE_POOL_EXHAUSTED"},
    )
    lab.apply(jobset("stockout", slices=1))
    eventually(lambda: list(lab.pools().values()) == ["ERROR"], SECONDS)
    eventually(lambda: len(lab.events("NodePoolCreationSucceeded")) == before + 1, SECONDS)
    [leader, *_] = [each for each in lab.pods("default") if each["metadata"]["name"].startswith("stockout-workers-0-0")]
    assert (leader["status"]["phase"], nodes(lab)) == ("Pending", {})
    looked = len(gets(lab))
    lab.client.patch(leader, {"metadata": {"annotations": {"looked": "at"}}})
    eventually(lambda: len(gets(lab)) > looked, SECONDS)
    assert len([each for each in posts(lab) if "stockout" in json.dumps(each["body"])]) == 1, "no second creation"


def test_a_killed_controller_changes_nothing_for_running_pods(controller: Lab) -> None:
    lab = controller
    lab.apply(jobset("steady", slices=1, seconds=UNTIL_TOLD))
    before = {each["metadata"]["uid"] for each in running(lab, 4)}
    restarts = lab.container()["restartCount"]
    process(lab).kill()
    eventually(lambda: lab.container().get("restartCount", 0) > restarts, SECONDS)
    eventually(lambda: bool(lab.container().get("ready")), SECONDS)
    assert {each["metadata"]["uid"] for each in running(lab, 4)} == before
    assert list(lab.pools().values()) == ["RUNNING"]


def test_a_controller_that_hangs_is_restarted(controller: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = controller
    monkeypatch.setattr(supervisor, "STOP_SECONDS", 0.5)  # SIGTERM does not reach it
    restarts, hung = lab.container()["restartCount"], process(lab)
    hung.suspend()
    eventually(lambda: lab.container().get("restartCount", 0) > restarts, SECONDS)
    eventually(lambda: bool(lab.container().get("ready")), SECONDS)
    eventually(lambda: is_another(lab, hung), SECONDS)


def test_a_new_pod_template_is_a_new_process(controller: Lab) -> None:
    lab = controller
    old = process(lab)
    lab.apply(deployment(attempt="second"))
    eventually(lambda: not old.is_running() or old.status() == psutil.STATUS_ZOMBIE, SECONDS)
    eventually(lambda: bool(lab.container().get("ready")), SECONDS)
    eventually(lambda: is_another(lab, old), SECONDS)


STUB = """#!{python} -I
import json, os, ssl, sys, time, urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
import threading

def call(url, token="", context=None, proxies=None, headers=()):
    handlers = [urllib.request.ProxyHandler(proxies or {{}})]
    handlers += [urllib.request.HTTPSHandler(context=context)] if context else []
    sent = {{"Authorization": "Bearer " + token, **dict(headers)}}
    try:
        with urllib.request.build_opener(*handlers).open(urllib.request.Request(url, headers=sent)) as answer:
            return [answer.status, json.load(answer)]
    except urllib.error.HTTPError as error:
        return [error.code, json.load(error)]

class Probe(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

flags = dict(each.partition("=")[::2] for each in sys.argv[1:])
host, port = flags["--health-probe-bind-address"].split(":")
threading.Thread(target=HTTPServer((host, int(port)), Probe).serve_forever, daemon=True).start()
config = json.loads(Path(flags["--kubeconfig"]).read_text())
server = config["clusters"][0]["cluster"]["server"]
user = config["users"][0]["user"]["token"]
insecure = ssl._create_unverified_context()
metadata = "http://" + os.environ["GCE_METADATA_HOST"] + "/computeMetadata/v1/instance/service-accounts/default/token"
token = call(metadata, headers=[("Metadata-Flavor", "Google")])[1]["access_token"]
google = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
proxies = {{"https": os.environ["HTTPS_PROXY"]}}
base = "https://container.googleapis.com/v1beta1/projects/proj/locations/us-east5/clusters"
Path(os.environ["RESULT"]).write_text(json.dumps({{
    "variables": {{key: os.environ[key] for key in ("GCP_PROJECT_ID", "POD_NAMESPACE", "KUBECONFIG")}},
    "arguments": sys.argv[1:],
    "pools": call(base + "/tpu/nodePools", token, google, proxies),
    "clusters": call(base, token, google, proxies),
    "pods": call(server + "/api/v1/pods", user, insecure)[0],
    "secrets": call(server + "/api/v1/secrets", user, insecure)[0],
}}))
time.sleep(600)
"""


def test_an_executable_of_ones_own_gets_what_the_real_one_needs(
    controller: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lab, result = controller, tmp_path / "result.json"
    stub = tmp_path / "provisioner"
    stub.write_text(STUB.format(python=sys.executable))
    monkeypatch.setenv(PROVISIONER_VARIABLE, str(stub))
    lab.apply(config_map(RESULT=str(result)), deployment(attempt="own"))
    eventually(lambda: lab.waiting().get("reason") == "CreateContainerError", SECONDS)
    assert f"{PROVISIONER_VARIABLE}={stub} is not" in lab.waiting()["message"]
    stub.chmod(0o755)
    eventually(lambda: result.exists() and bool(lab.container().get("ready")), SECONDS)
    found = json.loads(result.read_text())
    kubeconfig = found["variables"].pop("KUBECONFIG")
    assert found["variables"] == {"GCP_PROJECT_ID": PROJECT, "POD_NAMESPACE": NAMESPACE}
    assert f"--kubeconfig={kubeconfig}" in found["arguments"]
    assert not [each for each in found["arguments"] if each.startswith("--leader-elect")]
    status, answer = found["pools"]
    assert (status, [each["name"] for each in answer["nodePools"]]) == (200, ["system"])
    status, answer = found["clusters"]
    assert (status, "container.clusters.list" in answer["error"]["message"]) == (403, True)
    assert (found["pods"], found["secrets"]) == (200, 403)
    monkeypatch.delenv(PROVISIONER_VARIABLE)
    lab.apply(deployment(attempt="stand-in"))
    eventually(lambda: any(STAND_IN in "".join(arguments(each)) for each in processes(lab)), SECONDS)


def test_no_key_of_the_front_is_in_a_file(controller: Lab) -> None:
    folder = controller.cluster.plane.run_dir / "controllers"
    [own] = folder.glob("tpu-provisioner-*")
    assert {each.name for each in own.iterdir()} == {"kubeconfig", "google.crt"}
    assert "PRIVATE KEY" not in (own / "google.crt").read_text()
    assert json.loads((own / "kubeconfig").read_text())["users"][0]["user"].keys() == {"token"}
