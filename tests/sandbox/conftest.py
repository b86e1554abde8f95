"""A running sandbox for the tests that need the real engine."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx
import pytest
import yaml

from sandbox.kubernetes.api import ApiClient, is_true
from sandbox.run_directory import RunDirectory
from sandbox.session import Plan, SandboxError, Session, running
from sandbox.tests.isolation import short_directory
from tests.program import ADAPTER, PROGRAM
from tests.sandbox.warm_python import warm_up

ROOT = Path(__file__).parents[2]
PLATFORM = "tpu-platform:platform"
PATIENCE = 500.0  # seconds; above that a command hangs, and pytest's own limit would lose what it has printed
LINES = 12  # of a log, in a message
PACK = ("--policy-pack", "policies")
# What a test leaves out of the dev stack when it is not about what runs inside: no queues, so no Kueue, and no claims.
SLIM: dict[str, Any] = {"queues": {}, "slices": {"serve": {"machine_type": "ct6e-standard-1t", "topology": "1x1"}}}


@pytest.fixture(scope="session")
def sandbox_session() -> Iterator[Session]:
    """One sandbox per test process, on the stand-in plugins, whose long operations end at once."""
    with short_directory() as scratch, running(RunDirectory(scratch / "run"), Plan(), ROOT) as session:
        warm_up(session.run)
        yield session


@dataclass(frozen=True)
class Project:
    """The program of this checkout with stack files of the test's own, run by the real engine in the sandbox.

    The folder links to the checkout's code, so that nothing a test writes can end up in the checkout.
    """

    session: Session

    @property
    def folder(self) -> Path:
        return self.session.program_dir

    def write_stack(self, stack: str, **platform: Any) -> None:
        """Write `Pulumi.<stack>.yaml`: the dev stack's platform with these top-level keys set anew."""
        content = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())
        content["config"][PLATFORM].update(platform)
        (self.folder / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))

    def copy_stack(self, stack: str) -> Path:
        """Take over a stack file of the checkout as it is."""
        return Path(shutil.copy(ROOT / f"Pulumi.{stack}.yaml", self.folder))

    def succeed(self, *arguments: str) -> str:
        """Run `pulumi`, which must succeed; returns its output."""
        done = self._run(*arguments)
        assert done.returncode == 0, f"pulumi {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def fail(self, *arguments: str) -> str:
        """Run `pulumi`, which must fail; returns its output."""
        done = self._run(*arguments)
        assert done.returncode != 0, f"pulumi {' '.join(arguments)} succeeded\n{done.stdout}"
        return done.stdout + done.stderr

    def _run(self, *arguments: str) -> CompletedProcess[str]:
        try:
            return self.session.pulumi(*arguments, seconds=PATIENCE)
        except SandboxError as error:
            raise AssertionError("\n".join((str(error), *self._obstacles()))) from None

    def _obstacles(self) -> list[str]:
        """What a command may have waited for: the end of the sandbox's log, and Nodes that are not Ready."""
        lines = self.session.run.log.read_text(errors="replace").splitlines()[-LINES:]
        if client := self.cluster_client():
            with client:
                nodes = client.list_all("v1", "Node")
            lines += [f"{each['metadata']['name']}: {each['status']}" for each in nodes if not is_true(each, "Ready")]
        return lines

    def outputs(self, stack: str) -> dict[str, Any]:
        """The stack's outputs."""
        found: dict[str, Any] = json.loads(self.succeed("stack", "output", "--json", "-s", stack))
        return found

    def state(self, stack: str) -> dict[str, Any]:
        """The stack's deployment as the engine keeps it: `resources`, `pending_operations`. Empty before any update.

        Read from the backend's file: `pulumi stack export` prints the same, with its secrets encrypted anew.
        """
        [file] = self.session.run.backend.glob(f".pulumi/stacks/*/{stack}.json")
        found: dict[str, Any] = json.loads(file.read_text())["checkpoint"].get("latest") or {}
        return found

    def recorded(self, stack: str) -> dict[str, Any]:
        """What the state says of each resource, by URN: without outputs, whose secrets are encrypted anew each time,
        and without the provider of the engine's own functions, which stands for nothing."""
        rows = self.state(stack)["resources"]
        ours = [each for each in rows if each["type"] != "pulumi:providers:pulumi"]
        return {each["urn"]: {key: value for key, value in each.items() if key != "outputs"} for each in ours}

    def cluster_client(self) -> ApiClient | None:
        """An administrator's client for the cluster that kubectl would talk to; None while there is no cluster."""
        file = self.session.run.kubeconfig
        if not file.exists():
            return None
        content = json.loads(file.read_text())
        servers = {each["name"]: each["cluster"]["server"] for each in content["clusters"]}
        return self.session.cluster_client(servers[content["current-context"]])

    def up(self, stack: str, *flags: str) -> dict[str, int]:
        """Bring the stack up; returns how many resources each operation touched."""
        self.succeed("up", "-s", stack, "--yes", "--skip-preview", *flags)
        # What `pulumi stack history` prints; the files' names end in the time of the update.
        *_, last = sorted(self.session.run.backend.glob(f".pulumi/history/*/{stack}/*.history.json"))
        changes: dict[str, int] = json.loads(last.read_text())["resourceChanges"]
        return changes

    def assert_clean(self, stack: str) -> None:
        """A preview finds nothing to change."""
        self.succeed("preview", "-s", stack, "--expect-no-changes", "--diff")

    def destroy(self, stack: str, *flags: str) -> None:
        """Destroy the stack; nothing may be left of it, in the state or in the cloud."""
        self.succeed("destroy", "-s", stack, "--yes", "--skip-preview", *flags)
        assert not self.state(stack).get("resources")
        assert self.session.inventory() == {}

    def start_over(self) -> None:
        """Empty the cloud, forget every stack and its lock: tests of another file may use the same name."""
        self.call("POST", "reset")
        for folder in (self.session.run.backend, self.session.run.stacks):
            shutil.rmtree(folder)
            folder.mkdir()  # as the session made it

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Talk to the emulator's own interface below /sandbox."""
        url = f"{self.session.emulator_url}/sandbox/{path}"
        answer = httpx.request(method, url, json=body, timeout=30, trust_env=False)
        answer.raise_for_status()
        return answer.json()

    def inject(self, **fault: Any) -> None:
        """Let the cloud do something wrong; the fields are those of `sandbox.google.faults.Fault`."""
        self.call("POST", "faults", fault)

    def pending_faults(self) -> list[dict[str, Any]]:
        """Faults that have not struck yet."""
        found: list[dict[str, Any]] = self.call("GET", "faults")
        return found

    def requests(self) -> list[dict[str, Any]]:
        """The requests that the emulated cloud has received."""
        found: list[dict[str, Any]] = self.call("GET", "traffic")
        return found


def link_checkout(folder: Path) -> Path:
    """A new folder with the program of this checkout, and without its stack files."""
    folder.mkdir()
    for part in (*PROGRAM, *ADAPTER):
        (folder / part).symlink_to(ROOT / part)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@pytest.fixture
def project(sandbox_session: Session, tmp_path: Path) -> Iterator[Project]:
    """A project without stacks in an empty cloud without faults."""
    folder = link_checkout(tmp_path / "project")
    made = Project(replace(sandbox_session, program_dir=folder))
    made.start_over()
    yield made
    made.start_over()


@pytest.fixture
def guarded(project: Project) -> Project:
    """A project whose policy pack can run, for commands with PACK."""
    environment = project.folder / "policies" / ".venv" / "bin" / "python"
    assert environment.exists(), "the policy pack has no environment yet: run `make policies`"
    return project
