"""Control planes come up, keep their data, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sandbox.google.backend import ClusterRef
from sandbox.kubernetes.api import ApiClient, ApiError, UnknownKindError, condition
from sandbox.kubernetes.backend import AUTHORITY, KubernetesBackend
from sandbox.kubernetes.control_plane import FAKE_NODE, PROGRAMS, ControlPlane, Setup
from sandbox.kubernetes.pki import CertificateAuthority
from sandbox.kubernetes.supervisor import GIVEN_PORTS, ProcessError, Supervisor, free_ports, http_ok, port_is_free

pytestmark = pytest.mark.sandbox

REF = ClusterRef("my-project", "us-east5", "lab")
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "b"}}


@pytest.fixture
def run_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tpu-") as scratch:
        yield Path(scratch)


def programs_in(run_dir: Path) -> list[psutil.Process]:
    """Running processes whose working directory is the run directory or below."""
    found = []
    for each in psutil.process_iter():
        try:
            if each.cwd().startswith(str(run_dir)) and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return found


def within(seconds: float, probe: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not probe():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_a_node_writes_an_unchanged_status_and_an_api_server_that_ends_starts_again(run_dir: Path) -> None:
    plane = ControlPlane(run_dir, setup=Setup(status_seconds=1))
    plane.start()
    try:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "host", "annotations": dict(FAKE_NODE)}}
        plane.client.create(node)
        seen: set[str] = set()

        def several() -> bool:
            found = plane.client.get("v1", "Node", "host") or {}
            seen.add(condition(found, "Ready").get("lastHeartbeatTime", ""))
            return len(seen - {""}) > 3

        assert within(120, several), f"written at {seen}"

        [api] = [each for each in programs_in(run_dir) if each.name() == "kube-apiserver"]
        api.kill()
        api.wait(60)
        assert within(
            120, http_ok(f"https://{plane.endpoint}/readyz", {"Authorization": f"Bearer {plane.admin_token}"})
        )
        seen.clear()
        assert within(120, several), "who wrote it has found the new one"
    finally:
        plane.stop()


def test_a_cluster_keeps_address_and_data_over_a_restart_and_is_removed_whole(run_dir: Path) -> None:
    first = KubernetesBackend(run_dir)
    endpoint = first.create(REF, {})
    assert first.create(REF, {}) == endpoint
    client = first.cluster(REF).plane.client
    assert_closed_to_others(run_dir, endpoint.host, first.cluster(REF).plane.authority.pair.certificate)
    assert client.request("GET", "/version")["gitVersion"].startswith("v1.36.")
    client.create(CONFIG_MAP)
    with pytest.raises(UnknownKindError, match='no matches for kind "Nothing"'):
        client.get("example.com/v1", "Nothing", "x")
    with pytest.raises(ApiError, match=r"kept.* already exists") as caught:
        client.create(CONFIG_MAP)
    assert caught.value.reason == "AlreadyExists"
    assert client.get("autoscaling.x-k8s.io/v1", "ProvisioningRequest", "none", "default") is None
    pool = {"name": "system", "config": {"machineType": "e2-standard-4"}, "currentNodeCount": 2, "locations": ["a-b-c"]}
    first.pools_changed(REF, [pool])
    assert len(client.list_all("v1", "Node")) == 2
    first.close()
    assert within(60, lambda: not programs_in(run_dir))

    second = KubernetesBackend(run_dir)
    assert second.create(REF, {}) == endpoint
    client = second.cluster(REF).plane.client
    kept = client.get("v1", "ConfigMap", "kept", "default")
    assert kept
    assert kept["data"] == {"a": "b"}
    second.pools_changed(REF, [pool | {"currentNodeCount": 1}])
    assert len(client.list_all("v1", "Node")) == 1
    second.delete(REF)
    second.delete(REF)
    assert {each.name for each in run_dir.iterdir()} == {"admin-token", AUTHORITY}
    assert within(60, lambda: not programs_in(run_dir))


def assert_closed_to_others(run_dir: Path, host: str, authority: Path) -> None:
    """A wrong token is refused, and nothing listens on other addresses than loopback."""
    with ApiClient(host, "wrong", authority) as stranger, pytest.raises(ApiError) as caught:
        stranger.request("GET", "/version")
    assert caught.value.status == 401
    listening = [
        connection.laddr.ip
        for program in programs_in(run_dir)
        for connection in program.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= len(PROGRAMS)
    assert set(listening) <= {"127.0.0.1", "::1"}


KILLED = """
import sys, time
from pathlib import Path
from sandbox.kubernetes.control_plane import ControlPlane
plane = ControlPlane(Path(sys.argv[1]))
plane.start()
print("ready", flush=True)
time.sleep(600)
"""


def test_nothing_outlives_a_killed_parent(run_dir: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", KILLED, str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout
        first_line = parent.stdout.readline()
        programs = programs_in(run_dir)
        parent.send_signal(signal.SIGKILL)
    assert first_line == "ready\n"
    assert len(programs) == len(PROGRAMS)
    assert within(60, lambda: not programs_in(run_dir))


def test_a_program_that_fails_is_reported_with_the_end_of_its_log(run_dir: Path) -> None:
    supervisor = Supervisor(run_dir)
    process = supervisor.start("failing", Path("/bin/sh"), ["-c", "echo no such thing >&2; exit 3"])
    with pytest.raises(ProcessError, match=r"failing exited with 3 .*\nno such thing"):
        process.wait_ready(lambda: False, 10)
    supervisor.stop_all()


def test_a_program_sees_nothing_of_the_users_environment(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.com")
    supervisor = Supervisor(run_dir)
    process = supervisor.start("env", Path("/usr/bin/env"), [])
    process.popen.wait(60)
    names = {line.partition("=")[0] for line in process.log.read_text().splitlines()}
    assert names == {"HOME", "TMPDIR", "PATH", "GOMAXPROCS", "GOGC"}
    supervisor.stop_all()


def test_ports_are_distinct_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(port_is_free(each) for each in ports)


def test_no_client_can_take_a_port_before_its_program_listens() -> None:
    """The kernel gave a port of a starting control plane to another process's connection."""
    first, last = map(int, GIVEN_PORTS.read_text().split())
    assert not [port for port in free_ports(20) if first <= port <= last]


def test_a_port_is_given_once_also_by_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A past bug: two sandboxes that started at a time got one port, and the API server of one ended."""
    (port,) = free_ports(1)
    again = (
        f"from sandbox.kubernetes import supervisor as s; s.PORTS = range({port}, {port + 1}); print(s.free_ports(1))"
    )
    assert subprocess.run([sys.executable, "-c", again], capture_output=True, text=True, check=True).stdout == "[]\n"
    monkeypatch.setattr("sandbox.kubernetes.supervisor.PORTS", range(port, port + 1))
    assert free_ports(1) == []


def test_certificates_are_kept(run_dir: Path) -> None:
    made = CertificateAuthority(run_dir / "pki").issue("server", ["127.0.0.1", "localhost"]).certificate_base64()
    assert CertificateAuthority(run_dir / "pki").issue("server", ["127.0.0.1"]).certificate_base64() == made
