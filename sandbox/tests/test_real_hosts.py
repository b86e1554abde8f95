"""Real hosts: Nodes as GKE has them, pods that write logs, reach each other and outlive a kubelet; nothing is left."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from sandbox.hosts import cgroups
from sandbox.hosts.fabric import Fabric, FabricError
from sandbox.hosts.hosts import Real
from sandbox.kubernetes import assets, supervisor
from sandbox.kubernetes.api import ApiError, Object, is_true
from sandbox.kubernetes.gke import GkeCluster
from sandbox.kubernetes.nodes import parse_pool, remove_node
from sandbox.kubernetes.registry import ChartRegistry
from sandbox.kubernetes.releases import Helm, ReleaseSpec
from sandbox.run_directory import IMPORT_ROOT
from sandbox.tests.isolation import short_directory
from sandbox.tests.kubernetes_support import EVERY_CHART, JOBSET_CHART, node_pool
from sandbox.tests.real_hosts import cluster, eventually, forwarded, host_folders, kubectl, nodes
from sandbox.toolchain.kubernetes_binaries import JOBSET_VERSION

pytestmark = [pytest.mark.sandbox, pytest.mark.real_pods]

SLICE = node_pool("slice", "ct6e-standard-4t", 2, "2x4", labels={"team": "a"})
FETCH = "import urllib.request as u; print(u.urlopen('http://{}/', timeout=60).status)"
TOO_MUCH = node_pool("other", "ct6e-standard-4t", 2, "2x4")
SYSTEM = node_pool("system", "e2-standard-8", 1)


@pytest.fixture(scope="module")
def lab() -> Iterator[GkeCluster]:
    with cluster([SYSTEM, SLICE, TOO_MUCH], hosts=3) as made:
        for number, node in enumerate(nodes(made, "slice")):
            made.plane.client.create(web(f"web-{number}", node["metadata"]["name"]))
        service = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
        for name, spec in (("web", service), ("each", {"clusterIP": "None", "selector": {"app": "web"}})):
            made.plane.client.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
        for name in ("web-0", "web-1"):
            eventually(f"{name} runs", partial(runs, made, name))
        for address in ("web-0.each:8080", "web-1.each:8080", "web"):
            eventually(f"{address} is reached", partial(reaches, made, address))
        yield made


def web(name: str, node: str) -> Object:
    code = (
        f"print('{name} listens', flush=True); import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8080)"
    )
    return pod(name, node, ["python", "-c", code], "sandbox/python:1")


def pod(name: str, node: str, command: list[str], image: str) -> Object:
    asked = {"requests": {"cpu": "90", "memory": "300Gi", "google.com/tpu": "2"}, "limits": {"google.com/tpu": "2"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "hostname": name,
            "subdomain": "each",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "securityContext": {"runAsUser": 1000},
            "containers": [{"name": "c", "image": image, "command": command, "resources": asked}],
        },
    }


def runs(made: GkeCluster, name: str) -> bool:
    found = made.plane.client.get("v1", "Pod", name, "default")
    return bool(found and found["status"].get("phase") == "Running")


def node_of(made: GkeCluster, number: int) -> str:
    return str(nodes(made, "slice")[number]["metadata"]["name"])


def in_pod(made: GkeCluster, name: str, code: str) -> str:
    return kubectl(made, "exec", name, "--", "python", "-c", code).strip()


def reaches(made: GkeCluster, address: str) -> bool:
    """Whether a pod gets an answer; for names and services that takes a moment after the pods behind them run."""
    return "200" in kubectl(made, "exec", "web-0", "--", "python", "-c", FETCH.format(address), check=False)


def test_a_real_node_is_the_node_that_gke_gives(lab: GkeCluster) -> None:
    wanted = parse_pool(SLICE)
    for node in nodes(lab, "slice"):
        assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://2.2")
        assert wanted.labels.items() <= node["metadata"]["labels"].items()
        assert [each["key"] for each in node["spec"]["taints"]] == ["google.com/tpu"]
        assert node["status"]["capacity"]["cpu"] == str(wanted.machine.vcpus)
        eventually("chips of the device plugin", partial(has_chips, lab, node["metadata"]["name"]))
    addresses = {each["status"]["addresses"][0]["address"] for each in nodes(lab, "slice")}
    assert len(addresses) == 2


def has_chips(made: GkeCluster, node: str) -> bool:
    found = made.plane.client.get("v1", "Node", node)
    return bool(found and found["status"]["allocatable"].get("google.com/tpu") == "4")


def test_slices_are_real_as_a_whole_or_not_at_all(lab: GkeCluster) -> None:
    """With room for three hosts the second slice of two has none."""
    played = [each["status"]["nodeInfo"]["kernelVersion"] for pool in ("other", "system") for each in nodes(lab, pool)]
    assert played == ["kwok"] * 3


def test_logs_come_from_the_container(lab: GkeCluster) -> None:
    assert "web-0 listens" in kubectl(lab, "logs", "web-0")


def test_the_log_of_a_played_pod_is_refused_in_words(lab: GkeCluster) -> None:
    """A finding: "502 Bad Gateway" alone told nobody that this host is played."""
    [node] = nodes(lab, "system")
    lab.plane.client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "played"},
            "spec": {"nodeName": node["metadata"]["name"], "containers": [{"name": "c", "image": "sandbox/python:1"}]},
        }
    )
    eventually("the played pod runs", partial(runs, lab, "played"))
    command = [str(assets.program("kubectl")), f"--kubeconfig={lab.plane.kubeconfig_path}", "logs", "played"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "a host that kwok plays has no logs" in refused.stderr


def test_chips_and_their_environment_are_in_the_container(lab: GkeCluster) -> None:
    assert in_pod(lab, "web-0", "import os; print(sorted(os.listdir('/dev/vfio')))") == "['0', '1', '2', '3', 'vfio']"
    assert in_pod(lab, "web-0", "import os; print(os.environ['TPU_TOPOLOGY'], os.getuid())") == "2x4 1000"


def test_files_are_copied_into_a_pod(lab: GkeCluster, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("hello")
    kubectl(lab, "cp", str(tmp_path / "note"), "web-1:/tmp/note")
    assert in_pod(lab, "web-1", "print(open('/tmp/note').read())") == "hello"


def test_a_port_is_forwarded(lab: GkeCluster) -> None:
    with forwarded(lab, "web", 80) as port:
        assert eventually("an answer", lambda: answers(port))


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/", trust_env=False).is_success
    except httpx.HTTPError:
        return False


def test_pods_reach_pods_services_and_the_api_server_by_name(lab: GkeCluster) -> None:
    assert in_pod(lab, "web-0", FETCH.format("web-1.each:8080")) == "200"
    assert in_pod(lab, "web-0", FETCH.format("web-0.each:8080")) == "200"
    for _ in range(6):  # each of the pods behind it gets its turn, also the one that asks
        assert in_pod(lab, "web-0", FETCH.format("web")) == "200"
    token = "/var/run/secrets/kubernetes.io/serviceaccount"
    ask = (
        f"import ssl, urllib.request as u; c = ssl.create_default_context(cafile='{token}/ca.crt'); "
        f"h = {{'Authorization': 'Bearer ' + open('{token}/token').read()}}; "
        "print(u.urlopen(u.Request('https://kubernetes.default.svc/version', headers=h), context=c).status)"
    )
    assert in_pod(lab, "web-1", ask) == "200"


def test_the_api_server_reaches_pods_behind_a_service(lab: GkeCluster) -> None:
    answer = lab.plane.client.request("GET", "/api/v1/namespaces/default/services/web:80/proxy/")
    assert "Directory listing" in answer["text"]


def test_an_unknown_image_is_not_had(lab: GkeCluster) -> None:
    client = lab.plane.client
    unknown = pod("unknown", node_of(lab, 0), ["true"], "registry.example/nothing:1")
    unknown["spec"]["containers"][0].pop("resources")
    unknown["spec"]["tolerations"] = [{"operator": "Exists"}]
    client.create(unknown)

    def reason() -> bool:
        found = client.get("v1", "Pod", "unknown", "default") or {}
        states = [each["state"] for each in found.get("status", {}).get("containerStatuses", [])]
        return any(each.get("waiting", {}).get("reason") == "ImagePullBackOff" for each in states)

    assert eventually("ImagePullBackOff", reason)
    client.delete(unknown, grace_seconds=0)


def test_a_killed_kubelet_comes_back_and_its_pods_go_on(lab: GkeCluster) -> None:
    before = (lab.plane.client.get("v1", "Pod", "web-0", "default") or {})["status"]["containerStatuses"][0]
    kubelets = kubelet_processes(lab)
    for process in kubelets:
        process.kill()
    eventually("new kubelets", lambda: len(kubelet_processes(lab)) == len(kubelets))
    eventually("logs again", lambda: "web-0 listens" in kubectl(lab, "logs", "web-0", check=False))
    eventually("chips again", partial(has_chips, lab, node_of(lab, 0)))
    after = (lab.plane.client.get("v1", "Pod", "web-0", "default") or {})["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], before["restartCount"])


def kubelet_processes(made: GkeCluster) -> list[psutil.Process]:
    return [
        each for each in below(made.plane.run_dir) if command_of(each)[:1] and command_of(each)[0].endswith("/kubelet")
    ]


def below(run_dir: Path) -> list[psutil.Process]:
    """The processes of a cluster's hosts, from outside."""
    outer = [each for each in psutil.process_iter() if str(run_dir / "hosts") in " ".join(command_of(each))]
    inner = [child for each in outer if each.is_running() for child in each.children(recursive=True)]
    return list({each.pid: each for each in [*outer, *inner]}.values())


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_a_lost_host_restarts_the_job_on_another_one() -> None:
    """A host goes with its Node, as a lost machine does; the next has the Node's name, and JobSet begins again."""
    with cluster([SYSTEM, SLICE], hosts=2) as made, charts(made) as helm:
        client = made.plane.client
        client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "jobset-system"}})
        helm.install(ReleaseSpec("jobset", "jobset-system", JOBSET_CHART, JOBSET_VERSION, {}))
        job = client.apply(restarting_job())
        eventually("both workers run", lambda: [each["status"]["phase"] for each in workers(made)] == ["Running"] * 2)
        lost = workers(made)[0]["spec"]["nodeName"]
        assert made.hosts
        made.hosts.end(lost)
        remove_node(client, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": lost}})
        made.set_pools([SYSTEM, SLICE])
        done = eventually("the job is over", partial(completed, made, job))
        assert done["status"]["restarts"] == 1
        assert {kubectl(made, "logs", each["metadata"]["name"]).strip() for each in workers(made)} == {"attempt 1"}


@contextmanager
def charts(made: GkeCluster) -> Iterator[Helm]:
    registry = ChartRegistry(made.plane.authority, EVERY_CHART)
    try:
        yield Helm(made.plane.kubeconfig_path, registry.variables(made.plane.authority.pair.certificate))
    finally:
        registry.stop()


def restarting_job() -> Object:
    """Two workers that would work for ten minutes; after a restart they are done at once."""
    attempt = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"
    code = "import os, time; print('attempt', os.environ['ATTEMPT']); os.environ['ATTEMPT'] == '0' and time.sleep(600)"
    container = {
        "name": "c",
        "image": "sandbox/python:1",
        "command": ["python", "-u", "-c", code],
        "env": [{"name": "ATTEMPT", "valueFrom": {"fieldRef": {"fieldPath": attempt}}}],
        "resources": {"limits": {"google.com/tpu": "4"}},
    }
    pod_spec = {"restartPolicy": "Never", "containers": [container]}
    job = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 0}
    template = {"spec": {**job, "template": {"spec": pod_spec}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "long", "namespace": "default"},
        "spec": {
            "failurePolicy": {"maxRestarts": 3, "restartStrategy": "BlockingRecreate"},
            "replicatedJobs": [{"name": "slice", "replicas": 1, "template": template}],
        },
    }


def workers(made: GkeCluster) -> list[Object]:
    selector = "jobset.sigs.k8s.io/jobset-name=long"
    return made.plane.client.list_all("v1", "Pod", "default", labelSelector=selector)


def completed(made: GkeCluster, job: Object) -> Object | None:
    found = made.plane.client.get(job["apiVersion"], job["kind"], job["metadata"]["name"], "default")
    assert found
    assert not is_true(found, "Failed"), found["status"]
    return found if is_true(found, "Completed") else None


KILLED = """
import sys, time
from pathlib import Path
from sandbox.hosts.hosts import Real
from sandbox.kubernetes.gke import GkeCluster
from sandbox.tests.kubernetes_support import EVERY_CHART, JOBSET_CHART, node_pool
made = GkeCluster(Path(sys.argv[1]), "lab", "my-project", lambda _pool, _nodes: None, real=Real(1))
made.start()
made.set_pools([node_pool("one", "ct6e-standard-1t", 1)])
time.sleep(600)
"""


def test_a_killed_sandbox_leaves_only_what_the_next_start_removes() -> None:
    with short_directory() as folder:
        command = [sys.executable, "-c", KILLED, str(folder)]
        with subprocess.Popen(command, cwd=IMPORT_ROOT) as killed:
            try:
                eventually("a kubelet's cgroups", lambda: any(pod_cgroups(folder)))
                eventually("all programs of a host", lambda: names(below(folder)) >= OF_A_HOST)
                processes = below(folder)
            finally:
                killed.send_signal(signal.SIGKILL)
        gone, alive = psutil.wait_procs(processes, timeout=120)
        assert (alive, bool(gone)) == ([], True)
        eventually("only cgroups are left", lambda: traces(folder) == ["cgroups"])
        cgroups.remove(folder)
        assert traces(folder) == []


OF_A_HOST = {"kubelet", "containerd", "kube-proxy", "kube-router"}


def names(processes: list[psutil.Process]) -> set[str]:
    return {Path(words[0]).name for each in processes if (words := command_of(each))}


def pod_cgroups(folder: Path) -> list[Path]:
    own = cgroups.name_of(folder / "hosts" / "h1")
    return [each / own / "kubepods" for each in cgroups.hierarchies() if (each / own / "kubepods").exists()]


def traces(folder: Path) -> list[str]:
    """What there is of a sandbox outside its folder."""
    found = {
        "mounts": str(folder) in Path("/proc/self/mountinfo").read_text(),
        "wires": any(name.startswith(("veth", "w0a80")) for _, name in socket.if_nameindex()),
        "rules": b"KUBE-" in subprocess.run(["iptables-save"], capture_output=True, check=True).stdout,
        "sets": subprocess.run(["ipset", "list", "-name"], capture_output=True, check=True).stdout != b"",
        "cgroups": any((each / cgroups.name_of(folder)).exists() for each in cgroups.hierarchies()),
    }
    return [name for name, there in found.items() if there]


def test_a_cluster_that_starts_again_has_its_hosts_again() -> None:
    with short_directory() as folder:
        for _ in range(2):
            made = GkeCluster(folder, "lab", "my-project", lambda _pool, _nodes: None, real=Real(1))
            made.start()
            try:
                before = renewals(made)
                made.set_pools([node_pool("one", "ct6e-standard-1t", 1)])
                eventually("the Node's lease is renewed", partial(has_other_renewals, made, before))
                [node] = nodes(made)
                eventually("Ready", partial(is_ready, made, node["metadata"]["name"]))
            finally:
                made.stop()


def has_other_renewals(made: GkeCluster, before: list[str]) -> bool:
    return renewals(made) not in ([], before)


def renewals(made: GkeCluster) -> list[str]:
    leases = made.plane.client.list_all("coordination.k8s.io/v1", "Lease", "kube-node-lease")
    return [each["spec"]["renewTime"] for each in leases]


def is_ready(made: GkeCluster, node: str) -> bool:
    return is_true(made.plane.client.get("v1", "Node", node) or {}, "Ready")


def test_two_clusters_with_the_same_addresses_do_not_meet() -> None:
    pools = [node_pool("one", "ct6e-standard-1t", 1)]
    with cluster(pools, hosts=1) as first, cluster(pools, hosts=1) as second:
        [mine], [other] = nodes(first), nodes(second)
        assert mine["status"]["addresses"] == other["status"]["addresses"]
        assert mine["metadata"]["uid"] != other["metadata"]["uid"]
        assert kubectl(first, "get", "--raw", f"/api/v1/nodes/{mine['metadata']['name']}/proxy/healthz") == "ok"
        assert kubectl(second, "get", "--raw", f"/api/v1/nodes/{other['metadata']['name']}/proxy/healthz") == "ok"


def test_a_stopped_cluster_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a program that has to be killed: that would take longer than the test waits."""
    monkeypatch.setattr(supervisor, "STOP_SECONDS", 300)
    with short_directory() as folder:
        made = GkeCluster(folder, "lab", "my-project", lambda _pool, _nodes: None, real=Real(1))
        made.start()
        made.set_pools([node_pool("one", "ct6e-standard-1t", 1)])
        eventually("a kubelet's cgroups", lambda: any(pod_cgroups(folder)))
        started = time.monotonic()
        made.stop()
        assert time.monotonic() - started < 120
        assert below(folder) == []
        eventually("no trace is left", lambda: traces(folder) == [])
        assert host_folders(folder) == []


def test_a_removed_node_takes_its_host_along() -> None:
    with cluster([node_pool("one", "ct6e-standard-1t", 1)], hosts=1) as made:
        made.set_pools([node_pool("one", "ct6e-standard-1t", 0)])
        eventually("the host is gone", lambda: not host_folders(made.plane.run_dir))
        made.set_pools([node_pool("two", "ct6e-standard-1t", 1)])
        [node] = eventually("a new host", lambda: nodes(made, "two"))
        eventually("it is real", lambda: kernel(made, node) not in ("", "kwok"))


def test_a_host_whose_start_fails_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stayed NotReady for ever, and an `up` on a busy machine waited for it for twenty minutes."""
    attach, failures = Fabric.attach, [subprocess.CalledProcessError(1, "cp"), FabricError("no wire")]

    def attach_later(self: Fabric, *arguments: Any) -> None:
        if failures:
            raise failures.pop()
        attach(self, *arguments)

    monkeypatch.setattr(Fabric, "attach", attach_later)
    with cluster([node_pool("one", "ct6e-standard-1t", 1)], hosts=1) as made:
        [node] = nodes(made, "one")
        assert kernel(made, node) not in ("", "kwok")
        assert not failures


def kernel(made: GkeCluster, node: Object) -> str:
    try:
        found = made.plane.client.get("v1", "Node", node["metadata"]["name"]) or {}
    except ApiError:
        return ""
    return str(found.get("status", {}).get("nodeInfo", {}).get("kernelVersion", ""))
