"""The `pulumi` commands that a recovery consists of."""

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOCKED = ("the stack is currently locked", "Another update is currently in progress")
"""Words of the engine (upstream: pkg/backend/diy/lock.go) and of Pulumi Cloud."""
ROOM = "make room, or set TMPDIR"
LINES = 6
"""Of the engine's errors, in a message."""
CONNECTION = ("**::access", "**::access-*")
"""Targets that are the platform's connection to its cluster (`components/kubernetes/access.py`)."""


class EngineError(Exception):
    """A `pulumi` command failed; the message says which, and has the engine's own words."""


class Engine:
    """`pulumi` on one stack. `folder` has the project's Pulumi.yaml."""

    def __init__(self, folder: Path, stack: str) -> None:
        self._folder, self._stack = folder, stack

    @property
    def folder(self) -> Path:
        return self._folder

    def backend(self) -> str:
        """The address of the state's backend."""
        return str(self._json("whoami", "--json").get("url", ""))

    def export(self) -> Any:
        return self._json("stack", "export", "--stack", self._stack)

    def last_failed(self) -> bool:
        """Whether the newest update, refresh or import of the stack ended with an error."""
        newest = self._json("stack", "history", "--stack", self._stack, "--json", "--page-size", "1")
        return any(each.get("result") == "failed" for each in newest)

    def preview(self) -> Any:
        return self._json("preview", "--stack", self._stack, "--json")

    def cancel(self) -> None:
        self._run("cancel", "--stack", self._stack, "--yes")

    def adopt(self, file: Mapping[str, object], *, protect: bool) -> None:
        flags = ("--yes", "--skip-preview", "--generate-code=false", f"--protect={str(protect).lower()}")
        with _written(file) as path:
            self._run("import", "--stack", self._stack, "--file", path, *flags)

    def save(self, exported: Mapping[str, object]) -> None:
        """Replaces the state by what `export` gave and somebody changed. The engine checks it, and drops what is
        pending."""
        with _written(exported) as path:
            self._run("stack", "import", "--stack", self._stack, "--file", path)

    def connect(self) -> None:
        targets = [word for target in CONNECTION for word in ("--target", target)]
        self._run("up", "--stack", self._stack, "--yes", "--skip-preview", *targets)

    def refresh(self, *, forget: bool, leave: Sequence[str] = ()) -> None:
        """`leave`: patterns of URNs that are not read."""
        flag = "--clear-pending-creates" if forget else "--skip-pending-creates"
        left = [word for pattern in leave for word in ("--exclude", pattern)]
        self._run("refresh", "--stack", self._stack, "--yes", "--skip-preview", flag, *left)

    def _json(self, *arguments: str) -> Any:
        printed = self._run(*arguments)
        try:
            return json.loads(printed)
        except ValueError:
            raise EngineError(f"pulumi {arguments[0]} printed no JSON") from None

    def _run(self, *arguments: str) -> str:
        command = ["pulumi", *arguments, "--non-interactive", "--color", "never"]
        try:
            done = subprocess.run(
                command, cwd=self._folder, capture_output=True, stdin=subprocess.DEVNULL, text=True, check=False
            )
        except OSError as error:
            raise EngineError(f"pulumi cannot be run: {error.strerror} -> install pulumi") from None
        if done.returncode:
            words = _errors(done.stdout, done.stderr)
            raise EngineError(f"pulumi {' '.join(arguments[:2])}: {words}")
        return done.stdout


@contextmanager
def _written(content: Mapping[str, object]) -> Iterator[str]:
    """A file with this content, that only this user may read. Raises EngineError."""
    try:
        with tempfile.TemporaryDirectory(prefix="tpu-") as folder:
            path = Path(folder) / "content.json"
            path.write_text(json.dumps(content))
            yield str(path)
    except OSError as error:
        raise EngineError(f"a temporary file cannot be written: {error.strerror} -> {ROOM}") from None


def is_locked(words: str) -> bool:
    """Whether the engine says that somebody else has locked the stack."""
    return any(each in words for each in LOCKED)


def _errors(printed: str, errors: str) -> str:
    """The engine's words for what went wrong: its errors, or else its last lines."""
    try:
        rows = json.loads(printed).get("diagnostics") or ()
        said = [str(row["message"]).strip() for row in rows if row.get("severity") == "error"]
    except (ValueError, AttributeError, KeyError, TypeError):
        said = []
    lines = "\n".join((printed, errors)).splitlines()
    about = [line.strip() for line in lines if "error:" in line]
    if is_locked(errors + printed):  # who holds the lock is in the lines after
        about = lines[next(index for index, line in enumerate(lines) if is_locked(line)) :]
    last = [line.strip() for line in lines if line.strip()]
    chosen = said or [line.strip() for line in about if line.strip()] or last[-LINES:]
    return "\n".join(dict.fromkeys(chosen[:LINES])) or "it says nothing"


class HelmError(Exception):
    """helm refused or failed; the message is helm's own."""


class Helm:
    """helm against the platform's cluster. `kubeconfig` is the path of a file."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def rollback(self, name: str, namespace: str, revision: int, seconds: int) -> None:
        self._run("rollback", name, str(revision), "--namespace", namespace, "--wait", "--timeout", f"{seconds}s")

    def uninstall(self, name: str, namespace: str, seconds: int) -> None:
        self._run("uninstall", name, "--namespace", namespace, "--wait", "--timeout", f"{seconds}s")

    def _run(self, *arguments: str) -> None:
        command = ["helm", *arguments, f"--kubeconfig={self._kubeconfig}"]
        try:
            done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, text=True, check=False)
        except OSError as error:
            raise HelmError(f"helm cannot be run: {error.strerror} -> install helm 3") from None
        if done.returncode:
            raise HelmError(f"helm {' '.join(arguments[:2])}: {done.stderr.strip() or 'it says nothing'}")
