"""A cluster with real hosts, for tests, and what can be seen of it from outside."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sandbox.hosts.hosts import Real
from sandbox.kubernetes import assets
from sandbox.kubernetes.api import Object, is_true
from sandbox.kubernetes.gke import GkeCluster
from sandbox.tests.isolation import short_directory

T = TypeVar("T")


def eventually(what: str, probe: Callable[[], T | None], seconds: float = 240) -> T:
    """The first true result of `probe`; fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while not (result := probe()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.2)
    return result


@contextmanager
def cluster(pools: list[dict[str, Any]], hosts: int, network_policies: bool = True) -> Iterator[GkeCluster]:
    """A cluster with these pools and so many real hosts, all Ready."""
    with short_directory() as folder:
        made = GkeCluster(
            folder,
            "lab",
            "my-project",
            lambda _pool, _nodes: None,
            real=Real(hosts),
            network_policies=network_policies,
        )
        made.start()
        try:
            made.set_pools(pools)
            eventually("all Nodes Ready", lambda: all(is_true(each, "Ready") for each in nodes(made)))
            yield made
        finally:
            made.stop()


def nodes(made: GkeCluster, pool: str = "") -> list[Object]:
    selector = {"labelSelector": f"cloud.google.com/gke-nodepool={pool}"} if pool else {}
    return made.plane.client.list_all("v1", "Node", **selector)


def kubectl(made: GkeCluster, *arguments: str, check: bool = True) -> str:
    """What kubectl prints."""
    command = [str(assets.program("kubectl")), f"--kubeconfig={made.plane.kubeconfig_path}", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert not check or ran.returncode == 0, ran.stderr
    return ran.stdout


@contextmanager
def forwarded(made: GkeCluster, service: str, port: int, namespace: str = "default") -> Iterator[int]:
    """The port of this machine that kubectl forwards to a Service."""
    command = [str(assets.program("kubectl")), f"--kubeconfig={made.plane.kubeconfig_path}", "port-forward"]
    words = ["--namespace", namespace, f"service/{service}", f":{port}"]
    with subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True) as forwarding:
        try:
            assert forwarding.stdout
            said = forwarding.stdout.readline()  # Forwarding from 127.0.0.1:40001 -> 8080
            yield int(said.split(" -> ")[0].rpartition(":")[2])
        finally:
            forwarding.terminate()


def host_folders(run_dir: Path) -> list[Path]:
    return sorted((run_dir / "hosts").glob("h*"))
