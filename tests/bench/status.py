"""`python -m tests.bench.status [SLICES]`: how long `python -m tools status` looks at 1,000 slices in 300 queues.

kubectl is the real one. The API server and Google are stand-ins with answers of realistic size: the first serves pages
over HTTP from a process of its own, and knows no selectors; the second hands over what Google's client would have
parsed, so it leaves out the network and that parsing. Ends with code 1 above the budget, or where a collection is
listed twice for one look.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from rich.console import Console

from plan.platform import Platform
from rules.load import load_platform
from sandbox import toolchain
from tests.bench.platforms import platform
from tests.tools.status_worlds import cluster_queue, jobset, local_queue, node, pod, workload
from tools.cluster_api import PAGE
from tools.status import run
from tools.status.cluster import EVERY_LIST
from tools.status.screen import as_text

SLICES, LOOKS = 1000, 5
BUDGET_SECONDS = 3.0
IMAGES = [
    {"names": [f"registry.example/images/image-{number}@sha256:{'0' * 64}"], "sizeBytes": 1} for number in range(40)
]
"""A node lists its images; they are the largest part of it."""


def objects(planned: Platform) -> dict[str, list[Any]]:
    """Every host is there; half of the slices are in use; one job waits in every second queue."""
    nodes, slices, pods, jobsets, workloads = [], [], [], [], []
    for plan in planned.slice_plans:
        for index in range(plan.count):
            name = f"{plan.name}-{index}"
            for number in range(plan.hosts):
                pool, at = (name, number) if plan.multi_host else (plan.name, index)
                made = node(plan, pool, at)
                made["status"]["images"] = IMAGES
                nodes.append(made)
                if plan.devices == "dra":
                    devices = [{"name": str(chip)} for chip in range(plan.chips_per_host)]
                    slices.append({"spec": {"nodeName": f"{pool}-h{at}", "devices": devices}})
                elif index % 2:
                    pods.append(pod(f"{name}-{number}", f"{pool}-h{at}", plan.chips_per_host, jobset=name))
            jobsets.append(jobset(name, 0))
            queue = f"queue-{len(workloads) % len(planned.queues)}"
            admission = {
                "clusterQueue": queue,
                "podSetAssignments": [{"name": "main", "resourceUsage": {"google.com/tpu": str(plan.chips)}}],
            }
            workloads.append(workload(name, queue, plan.chips, **({"admission": admission} if index % 2 else {})))
    return {
        "nodes": nodes,
        "resourceslices": slices,
        "pods": pods,
        "jobsets": jobsets,
        "workloads": workloads,
        "clusterqueues": [cluster_queue(f"queue-{number}", 16, 16) for number in range(len(planned.queues))],
        "localqueues": [local_queue(f"queue-{number}") for number in range(len(planned.queues))],
    }


def _starts(rows: list[Any]) -> range:
    return range(0, max(len(rows), 1), PAGE)


def _page(rows: list[Any], start: int) -> bytes:
    more = str(start + PAGE) if start + PAGE < len(rows) else ""
    return json.dumps({"metadata": {"continue": more}, "items": rows[start : start + PAGE]}).encode()


def serve(found: dict[str, list[Any]], address: Any) -> None:
    """The API server's lists, until the process is ended; sends its port, and then each path that is asked for."""
    pages = {
        (EVERY_LIST[kind][0], start): _page(rows, start) for kind, rows in found.items() for start in _starts(rows)
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            query = parse_qs(asked.query)
            start = int(query.get("continue", ["0"])[0])
            body = pages.get((asked.path, start), b'{"items":[]}')
            address.send(f"{asked.path} {start}")
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    address.send(str(server.server_port))
    server.serve_forever()


class StandInCloud:
    """Google's answers about the same platform."""

    def __init__(self, planned: Platform) -> None:
        pools = [(pool.name, plan) for plan in planned.slice_plans for pool in plan.pools]
        self.cluster = {
            "nodePools": [
                {
                    "name": name,
                    "status": "RUNNING",
                    "config": {"labels": plan.labels},
                    "instanceGroupUrls": [f"https://www.googleapis.com/zones/z/instanceGroupManagers/gke-{name}-grp"],
                }
                for name, plan in pools
            ]
        }
        self.groups = [
            {
                "name": f"gke-{name}-grp",
                "baseInstanceName": f"gke-{name}",
                "targetSize": plan.hosts,
                "currentActions": {"none": plan.hosts},
                "status": {"isStable": True},
            }
            for name, plan in pools
        ]

    def find(self, api: str, method: str, **_parameters: Any) -> Any:
        """The cluster, or a reservation."""
        if api == "container":
            return self.cluster
        return {"status": "READY", "specificReservation": {"count": "500", "inUseCount": "500"}}

    def pages(self, _api: str, method: str, _items: str, **_parameters: Any) -> Any:
        """The groups; no interruptions and no load."""
        return self.groups if method.startswith("instanceGroupManagers") else []


@contextmanager
def standing(planned: Platform) -> Iterator[tuple[Path, Any]]:
    """A kubeconfig of the stand-in API server, and the end of a pipe that tells what is asked of it."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(objects(planned), theirs), daemon=True)
    process.start()
    try:
        port = ours.recv()
        with tempfile.TemporaryDirectory(prefix="tpu-") as folder:
            (Path(folder) / "kubectl").symlink_to(toolchain.ensure(("kubectl",))["kubectl"])
            path = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
            cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
            context = {"name": "c", "context": {"cluster": "c", "user": ""}}
            config = {"apiVersion": "v1", "kind": "Config", "current-context": "c"}
            file = Path(folder) / "kubeconfig"
            file.write_text(json.dumps({**config, "clusters": [cluster], "contexts": [context]}))
            with mock.patch.dict(os.environ, path):
                yield file, ours
    finally:
        process.terminate()
        process.join()


def planned(slices: int) -> Platform:
    """Slices of all shapes, in three queues for every ten slices."""
    written = platform(slices)
    groups = list(written["slices"])  # type: ignore[call-overload]
    queues = {
        f"queue-{number}": {"namespaces": [f"team-{number}"], "slices": {groups[number % len(groups)]: 1}}
        for number in range(slices * 3 // 10)
    }
    # Kueue keeps all nodes in memory, and runs on the system pool.
    cluster = {"kind": "gke", "system_pool": {"machine_type": "n2-highmem-32"}}
    return load_platform({**written, "cluster": cluster, "queues": queues}, project="my-project")


def main(slices: int = SLICES) -> None:
    """Measure, print, and judge."""
    found = planned(slices)
    google = mock.patch.object(run, "Cloud", return_value=StandInCloud(found))
    with standing(found) as (kubeconfig, asked), google:
        seconds, busy = [], []
        with run.watching(found, "bench", {}, kubeconfig) as look:
            for _ in range(LOOKS):
                start, began = time.perf_counter(), time.process_time()
                report = look()
                Console(file=open(os.devnull, "w")).print(as_text(report))  # noqa: PTH123, SIM115
                seconds.append(time.perf_counter() - start)
                busy.append(time.process_time() - began)
        paths = Counter()
        while asked.poll():
            paths[asked.recv()] += 1
    hosts = sum(row.hosts or 0 for row in report.slices)
    twice = [path for path, times in paths.items() if times > len(seconds)]
    print(
        f"{slices} slices, {hosts} hosts, {len(found.queues)} queues, {len(report.findings)} findings, "
        f"not read: {report.unread}"
    )
    print(f"first look, with the start of kubectl: {seconds[0]:.2f} s; again: {min(seconds[1:]):.2f} s")
    load = os.getloadavg()[0]
    print(
        f"processor time of the command without kubectl: {min(busy):.2f} s; load of {os.cpu_count()} cores: {load:.0f}"
    )
    print(f"{len(paths)} pages of {len({path.split()[0] for path in paths})} collections for each look")
    if twice or min(seconds) > BUDGET_SECONDS or report.unread:
        sys.exit(f"over the budget of {BUDGET_SECONDS} s, or listed twice: {twice}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
