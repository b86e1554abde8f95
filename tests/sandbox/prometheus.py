"""A real Prometheus that scrapes a few targets, and what it answers to queries."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from sandbox import toolchain
from sandbox.kubernetes.supervisor import free_ports

START_SECONDS = 180
SCRAPED_EVERY = "1s"


@dataclass(frozen=True)
class Prometheus:
    """One that runs, at `url`."""

    url: str

    def ask(self, query: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Labels (sorted, without the name of the metric) -> value of every series now. Raises where the query is
        wrong."""
        answer = self._get("query", query=query)["result"]
        return {
            tuple(sorted((key, value) for key, value in series["metric"].items() if key != "__name__")): float(
                series["value"][1]
            )
            for series in answer
        }

    def was_empty(self, query: str, since: float) -> bool:
        """Whether the query had no series at some second since a moment (UNIX time). Raises where it is wrong."""
        seconds = int(time.time() - since)
        period = {"start": f"{since:.3f}", "end": f"{since + seconds:.3f}", "step": "1"}
        answer = self._get("query_range", query=query, **period)["result"]
        return len({moment for series in answer for moment, _ in series["values"]}) <= seconds

    def names(self) -> set[str]:
        """Names of all metrics that it has."""
        return set(self._get("label/__name__/values"))

    def check(self, query: str) -> None:
        """Raises ValueError with Prometheus' own words where the query does not parse."""
        self._get("format_query", query=query)

    def _get(self, path: str, **parameters: str) -> Any:
        response = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, trust_env=False, timeout=30)
        answer = response.json()
        if answer["status"] != "success":
            raise ValueError(f"{answer['error']}: {parameters['query']}")
        return answer["data"]


@contextmanager
def prometheus(*targets: str, **labels: str) -> Iterator[Prometheus]:
    """Prometheus, scraping targets (host:port). Its series get these labels as well."""
    static = {"targets": list(targets), "labels": labels}
    job = {"job_name": "kueue", "static_configs": [static]}
    with configured({"global": {"scrape_interval": SCRAPED_EVERY}, "scrape_configs": [job]}) as found:
        yield found


@contextmanager
def configured(settings: Mapping[str, Any], *flags: str) -> Iterator[Prometheus]:
    """Prometheus with these settings and further flags."""
    program = toolchain.build(toolchain.PROMETHEUS)
    with tempfile.TemporaryDirectory(prefix="prometheus-") as scratch:
        folder, (port,) = Path(scratch), free_ports(1)
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(dict(settings)))
        with (folder / "log").open("wb") as log:
            command = [
                str(program),
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                *flags,
            ]
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        try:
            running = Prometheus(f"http://127.0.0.1:{port}")
            _await(running, process, folder / "log")
            yield running
        finally:
            process.terminate()
            process.wait(timeout=30)


def _await(running: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"{running.url}/-/ready", trust_env=False, timeout=5).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"Prometheus does not start:\n{log.read_text()[-2000:]}")
