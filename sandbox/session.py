"""One running sandbox: the emulator process, its run directory, and the plain `pulumi` command pointed at it."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import certifi
import httpx
import psutil

from sandbox import adapter, environment, toolchain
from sandbox.hosts import choice
from sandbox.kubernetes import registry
from sandbox.kubernetes.api import ApiClient
from sandbox.kubernetes.backend import AUTHORITY
from sandbox.kubernetes.pki import CertificateAuthority
from sandbox.run_directory import IMPORT_ROOT, RunDirectory
from sandbox.toolchain.kubernetes_binaries import BINARIES as KUBERNETES_BINARIES

START_SECONDS = 180
STOP_SECONDS = 30
# How long the engine may take to end after an interrupt, before it is killed.
CANCEL_SECONDS = 10
# How often a command whose output goes into a file is asked for its progress.
TICK_SECONDS = 1.0
ALREADY_RUNNING = (
    "a sandbox of this program is running already. Look at it with `python -m sandbox status`, "
    "open a shell in it with `python -m sandbox shell`, or stop it with `python -m sandbox down`"
)


class SandboxError(Exception):
    """The sandbox cannot do what was asked; the message says why and what to do."""


@dataclass(frozen=True)
class Session:
    """A sandbox that is up. `program_dir` is the folder with the Pulumi.yaml to run."""

    run: RunDirectory
    emulator_url: str
    emulator_pid: int
    program_dir: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables in which `pulumi` means the sandbox."""
        return environment.variables(self.run)

    def start_pulumi(
        self, *arguments: str, capture: bool | IO[str], extra: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start `pulumi` in the program's folder, in the sandbox's environment.

        Its output is shown, or captured: in pipes, or in an open file.
        """
        output = (subprocess.PIPE if capture else None) if isinstance(capture, bool) else capture
        return subprocess.Popen(
            [str(self.run.bin / "pulumi"), *arguments],
            cwd=self.program_dir,
            env={**self.environment, **(extra or {})},
            stdin=subprocess.DEVNULL if capture else None,
            stdout=output,
            stderr=output,
            text=True,
        )

    def pulumi(self, *arguments: str, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
        """Run `pulumi` to its end, output captured. The return code is the caller's to judge.

        Raises SandboxError, with the output so far, where it has not ended after `seconds`.
        """
        process = self.start_pulumi(*arguments, capture=True)
        try:
            with _ended(process):
                stdout, stderr = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            output = "\n".join(process.communicate())
            message = f"pulumi {' '.join(arguments)} has not ended after {seconds:.0f} s\n{output}"
            raise SandboxError(message) from None
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def show_pulumi(self, *arguments: str, extra: Mapping[str, str]) -> int:
        """Run `pulumi` to its end before the person's eyes; returns its exit code."""
        process = self.start_pulumi(*arguments, capture=False, extra=extra)
        with _ended(process):
            return process.wait()

    def log_pulumi(self, *arguments: str, log: Path, extra: Mapping[str, str], tick: Callable[[], None]) -> int:
        """Run `pulumi` to its end with its output in a file, calling `tick` meanwhile; returns its exit code."""
        with log.open("w") as output:
            process = self.start_pulumi(*arguments, capture=output, extra=extra)
            with _ended(process):
                while True:
                    try:
                        return process.wait(TICK_SECONDS)
                    except subprocess.TimeoutExpired:
                        tick()

    def inventory(self) -> dict[str, list[str]]:
        """What exists in the emulated cloud, names by type. Raises SandboxError where the emulator does not answer."""
        try:
            answer = httpx.get(f"{self.emulator_url}/sandbox/inventory", timeout=30, trust_env=False)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            raise SandboxError(f"the emulator at {self.emulator_url} does not answer ({error})") from None
        return {kind: names for kind, names in answer.json().items() if names}

    def cluster_client(self, endpoint: str) -> ApiClient:
        """An administrator's client for a cluster of the emulated cloud; `endpoint` is the stack's own output.

        It is an address, with or without https:// in front. Raises SandboxError where no cluster answers there.
        """
        server = f"https://{endpoint.removeprefix('https://')}"
        clusters = json.loads(self.run.kubeconfig.read_text())["clusters"] if self.run.kubeconfig.exists() else []
        for each in clusters:
            if each["cluster"]["server"] == server:
                authority = base64.b64decode(each["cluster"]["certificate-authority-data"]).decode()
                return ApiClient(server.removeprefix("https://"), self.run.token_file.read_text(), authority)
        raise SandboxError(f"no cluster of the sandbox answers at {server}")


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Leave no engine behind: on an exception it is told to cancel; what is left of it after a while is killed."""
    try:
        yield
    except BaseException as reason:
        if process.poll() is None:
            engine = psutil.Process(process.pid)
            family = [engine, *engine.children(recursive=True)]
            if not isinstance(reason, KeyboardInterrupt):  # Ctrl-C has reached the engine already, and twice means now
                process.send_signal(signal.SIGINT)
            _, alive = psutil.wait_procs(family, CANCEL_SECONDS)
            for survivor in alive:
                survivor.kill()
            process.wait()
        raise


@dataclass(frozen=True)
class Plan:
    """How to run a sandbox.

    `time_scale` divides the real durations of Google's long operations; 0 ends them at once. A `kept` sandbox outlives
    the process that started it. `pods` says how many hosts run containers, by default none. `plugins`: which provider
    plugins the engine gets; by default nothing of the user's.
    """

    time_scale: float = 0
    kept: bool = False
    pods: choice.Choice = choice.PLAYED
    plugins: environment.Plugins = environment.Plugins.STAND_IN


def start(run: RunDirectory, plan: Plan, program_dir: Path, tick: toolchain.Tick = toolchain.silent) -> Session:
    """Start a sandbox in its run directory, which is made anew: what a killed sandbox left there is removed.

    `program_dir` is the folder of the program that it is for. Raises SandboxError where one is running there already or
    the emulator does not come up, ToolchainError where the engine cannot be built, AdapterError where the program's
    adapter cannot be used.
    """
    registry.require(adapter.load(program_dir).charts)
    pulumi = toolchain.engine(tick)
    clients = toolchain.ensure(programs(plan.pods), tick)
    with run.hold() as lock:
        if lock is None:
            raise SandboxError(ALREADY_RUNNING)
        if run.root.exists():  # left by a sandbox that was killed
            run.clear()
        _prepare(run, pulumi, clients, plan, program_dir)
        process = _start_emulator(run, plan, program_dir, lock)
        try:
            url = _wait_ready(run, process)
        except BaseException:
            process.kill()
            process.wait()
            raise
    return Session(run, url, process.pid, program_dir)


def programs(pods: choice.Choice) -> tuple[str, ...]:
    """What a sandbox needs built, apart from the engine."""
    return (*KUBERNETES_BINARIES, *(toolchain.NODE_BINARIES if pods.real else ()))


def _prepare(run: RunDirectory, pulumi: Path, clients: Mapping[str, Path], plan: Plan, program_dir: Path) -> None:
    run.root.mkdir(parents=True, mode=0o700)
    run.program_file.write_text(str(program_dir))
    run.backend.mkdir()
    run.stacks.mkdir()
    run.kubernetes.mkdir()
    run.token_file.touch(mode=0o600)
    run.token_file.write_text(secrets.token_hex(16))
    authority = CertificateAuthority(run.kubernetes / AUTHORITY)
    run.trust_file.write_text(Path(certifi.where()).read_text() + authority.pair.certificate.read_text())
    origins = environment.install(run, pulumi, clients["kubectl"], plan.plugins)
    (run.bin / "helm").symlink_to(clients["helm"])
    run.origins_file.write_text(json.dumps({**origins, "pods": plan.pods.words}))


def _start_emulator(run: RunDirectory, plan: Plan, program_dir: Path, lock: int) -> subprocess.Popen[bytes]:
    """The emulator inherits the lock, and with it the ownership of the run directory."""
    command = [
        *(sys.executable, "-m", "sandbox.cloud", "--program-dir", str(program_dir)),
        *("--kubernetes", str(run.kubernetes)),
        *("--state", str(run.cloud_state), "--registry-file", str(run.registry_file)),
        *("--ready-file", str(run.ready_file), "--time-scale", str(plan.time_scale)),
        *("--real-hosts", str(plan.pods.hosts)),
        *(() if plan.kept else ("--parent-pid", str(os.getpid()))),
    ]
    with run.log.open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=IMPORT_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(lock,),
            # Ctrl-C is for the person's command; the sandbox is stopped by its owner afterwards.
            start_new_session=True,
        )


def _wait_ready(run: RunDirectory, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + START_SECONDS
    while not run.ready_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SandboxError(f"the emulator did not start (log: {run.log}):\n{_tail(run.log)}")
        time.sleep(0.05)
    return run.emulator_url


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def attach(run: RunDirectory) -> Session | None:
    """The sandbox that is running in this run directory, if any."""
    if not run.locked():
        return None
    try:
        ready = json.loads(run.ready_file.read_text())
    except FileNotFoundError:
        raise SandboxError("a sandbox of this program is starting or stopping right now; try again") from None
    return Session(run, ready["url"], ready["pid"], Path(run.program_file.read_text()))


def stop(session: Session) -> None:
    """Stop the emulator and everything it started, and remove the run directory."""
    if session.run.locked():  # else the emulator ended by itself, and its pid may be another process by now
        emulator = psutil.Process(session.emulator_pid)
        family = [emulator, *emulator.children(recursive=True)]
        emulator.terminate()
        _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
        for process in alive:
            process.kill()
        psutil.wait_procs(alive, timeout=STOP_SECONDS)
    session.run.remove()


@contextmanager
def running(
    run: RunDirectory, plan: Plan, program_dir: Path, tick: toolchain.Tick = toolchain.silent
) -> Iterator[Session]:
    """A sandbox for the length of a `with` block."""
    session = start(run, plan, program_dir, tick)
    try:
        yield session
    finally:
        stop(session)
