"""Runs local programs that never outlive this process: logs to files, readiness probes, orderly stop."""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx

STOP_SECONDS = 12.0
PORTS = range(10_000, 65_536)
# How much a Go program's heap grows, in percent, before garbage is collected. With Go's own 100 a young API server, to
# which charts bring their definitions, spends a quarter to a half of its processor time on that.
COLLECTION = "200"
_claims: list[socket.socket] = []
GIVEN_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")  # first and last port the kernel gives to connections

# Run by a bare interpreter that then turns into the program. The kernel sends SIGKILL when the starting thread ends.
# SIGTERM would not do: with all programs told at once etcd goes first and the API server then hangs for a minute.
_LAUNCHER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    sys.exit("parent is gone")
os.environ.pop("LC_CTYPE", None)  # Python sets it for itself
os.execv(sys.argv[2], sys.argv[2:])
"""


class ProcessError(Exception):
    """A program stopped or did not become ready; the message carries the end of its log."""


def free_ports(count: int) -> list[int]:
    """`count` distinct TCP ports that nobody on 127.0.0.1 uses at this moment, in random order.

    Until the programs that get them listen, nobody else takes them: no call of this function in any process, while
    this process runs, and no client, because none is one that the kernel gives to connections, where there are others.
    """
    first, last = map(int, GIVEN_PORTS.read_text().split())
    candidates = [port for port in PORTS if not first <= port <= last] or list(PORTS)
    shuffled = random.sample(candidates, len(candidates))
    return list(itertools.islice((port for port in shuffled if port_is_free(port) and _claim(port)), count))


def _claim(port: int) -> bool:
    """Whether the port is this process's from now on. The claim is a name of the kernel's, which ends with the process
    and leaves no file."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0tpu-platform-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True


def port_is_free(port: int) -> bool:
    """Whether 127.0.0.1:`port` can be bound; a foreign server on a kept port would be taken for ours."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@dataclass
class Process:
    """One started program."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def tail(self, lines: int = 12) -> str:
        """The last lines of the program's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_ready(self, probe: Callable[[], bool], timeout: float) -> None:
        """Polls `probe` until it holds. Raises ProcessError when the program exits first or `timeout` seconds pass."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if not self.running:
                raise ProcessError(f"{self.name} exited with {self.popen.returncode} (log: {self.log}):\n{self.tail()}")
            if probe():
                return
            time.sleep(0.05)
        raise ProcessError(f"{self.name} is not ready after {timeout:.0f} s (log: {self.log}):\n{self.tail()}")

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after a while."""
        if self.running:
            self.popen.send_signal(signal.SIGTERM)
        try:
            self.popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


def http_ok(url: str, headers: dict[str, str] | None = None) -> Callable[[], bool]:
    """A readiness probe: GET `url` succeeds. Probed servers have certificates of their own making."""

    def probe() -> bool:
        try:
            return httpx.get(url, headers=headers, verify=False, timeout=2, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    return probe


class Supervisor:
    """Starts programs inside `run_dir` and stops them in reverse order.

    The programs see these environment variables only, so that a proxy or Kubernetes setting of the user cannot leak in:
    HOME, TMPDIR, PATH, GOMAXPROCS, GOGC, and what `start` is told.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._processes: list[Process] = []
        # The kernel ties a child's life to the thread that started it: that thread has to live as long as this object.
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")
        for folder in ("logs", "home", "tmp"):
            (run_dir / folder).mkdir(mode=0o700, parents=True, exist_ok=True)

    def start(
        self, name: str, program: Path, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Process:
        """Starts `program`; its output is appended to logs/<name>.log. Does not wait for readiness."""
        process = self._starter.submit(self._start, name, program, arguments, environment or {}).result()
        self._processes.append(process)
        return process

    def _start(self, name: str, program: Path, arguments: Sequence[str], extra: Mapping[str, str]) -> Process:
        environment = {
            "HOME": str(self._run_dir / "home"),
            "TMPDIR": str(self._run_dir / "tmp"),
            "PATH": "/usr/bin:/bin",
            "GOMAXPROCS": "2",
            "GOGC": COLLECTION,
            **extra,
        }
        log = self._run_dir / "logs" / f"{name}.log"
        command = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), str(program), *arguments]
        with log.open("ab") as output:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._run_dir,
                env=environment,
                start_new_session=True,
            )
        return Process(name, popen, log)

    def stop(self, process: Process) -> None:
        """Stops one program ahead of the others."""
        process.stop()
        self._processes.remove(process)

    def stop_all(self) -> None:
        """Stops everything, last started first. The supervisor cannot start anything afterwards."""
        while self._processes:
            self._processes.pop().stop()
        self._starter.shutdown()
