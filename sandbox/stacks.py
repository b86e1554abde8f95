"""The sandbox's `pulumi` command: the real engine, with the stack's configuration pointed at the emulator.

A stack's committed file stays as it is. Each command gets a fresh copy of it in the run directory, with the endpoints
added, through the engine's own `--config-file` flag; so an edit of the committed file is seen by the next command.
A stack that has a committed file exists in the sandbox as soon as it is named.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sandbox import stack_text
from sandbox.run_directory import RunDirectory

# Paths of the emulator behind the real provider's own endpoint settings; each ends in the API's version.
ENDPOINTS = {
    "containerCustomEndpoint": "container/v1beta1/",
    "computeCustomEndpoint": "compute/beta/",
    "iamBetaCustomEndpoint": "iam/v1/",
    "serviceUsageCustomEndpoint": "su/v1beta1/",
    "resourceManagerCustomEndpoint": "crm/v1/",
    "resourceManagerV3CustomEndpoint": "crm/v3/",
    "secretManagerCustomEndpoint": "sm/v1/",
    "kmsCustomEndpoint": "kms/v1/",
    "storageCustomEndpoint": "storage/v1/",
    "artifactRegistryCustomEndpoint": "ar/v1/",
    "loggingCustomEndpoint": "logging/v2/",
    "billingCustomEndpoint": "budgets/v1/",
    "cloudBillingCustomEndpoint": "billing/v1/",
    "monitoringCustomEndpoint": "monitoring/",
}
# Commands that read a stack's configuration and know --config-file, under all their names. `pulumi config` knows it
# too, but is there to read and edit the committed file.
CONFIGURED = {"preview", "pre", "up", "update", "destroy", "down", "dn", "refresh", "import", "watch", "logs"}
# Commands that need the stack to exist, but not its configuration.
STACK_COMMANDS = {"stack", "state", "cancel", "console", "config"}
# Commands that install packages. The language host here is of an older SDK, which takes the project's folder for the
# environment, whatever `virtualenv:` says.
INSTALLING = {"install", "new"}
# Flags with a value of their own, which is not a word of the command.
PACK_FLAG = "--policy-pack"
VALUE_FLAGS = {"-C", "--cwd", "-s", "--stack", "-v", "--verbose", "--color", PACK_FLAG, f"{PACK_FLAG}-config"}
# A secret of the committed file is encrypted for its owner, not for the sandbox.
SECRET_PLACEHOLDER = "sandbox-placeholder"
SECRET_SETTINGS = ("secretsprovider", "encryptedkey", "encryptionsalt")
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


class StackFileError(Exception):
    """A project or stack file cannot be read; the message names the file."""


def endpoints(emulator_url: str, token: str) -> dict[str, Any]:
    """Configuration keys and values that lead the gcp provider to the emulator."""
    return {
        **{f"gcp:{key}": f"{emulator_url}/{path}" for key, path in ENDPOINTS.items()},
        "gcp:accessToken": token,
        "gcp:pollInterval": "500ms",
        "gcp:batching": {"sendAfter": "0.1s"},
    }


def merged(committed: str, own_salt: str | None, extra: Mapping[str, Any]) -> str:
    """A stack file's text for the sandbox: the committed one plus `extra`, with placeholders for its secrets.

    `own_salt` is the encryption salt of the stack in the sandbox. Values stay as they are written: what they mean is
    for the engine to say.
    """
    tree = stack_text.parse(committed)
    for key in SECRET_SETTINGS:
        tree.remove(key)
    if own_salt:
        tree.put("encryptionsalt", own_salt)
    tree.replace_secrets(SECRET_PLACEHOLDER)
    config = tree.mapping("config")
    for key, value in extra.items():
        config.put(key, value)
    return tree.text()


def option(arguments: Sequence[str], long: str, short: str) -> str | None:
    """The value of a flag in any of the spellings that the CLI accepts: --flag v, --flag=v, -f v, -f=v, -fv."""
    for argument, following in zip(arguments, [*arguments[1:], None], strict=True):
        if argument == "--":
            return None
        if argument in (long, short):
            return following
        if argument.startswith(f"{long}="):
            return argument.removeprefix(f"{long}=")
        if argument.startswith(short) and not argument.startswith("--"):
            return argument.removeprefix(short).removeprefix("=")
    return None


def words(arguments: Sequence[str]) -> list[str]:
    """The command and its positional arguments, without flags."""
    previous = [None, *arguments]
    return [a for a, before in zip(arguments, previous, strict=False) if a[:1] != "-" and before not in VALUE_FLAGS]


def with_runnable_packs(arguments: Sequence[str], folder: Path) -> list[str]:
    """The arguments with policy packs named by the executable in their folder, where there is one.

    The engine itself starts an executable; a folder it leaves to the language host, and the one here starts programs
    only. `folder` is where relative paths start.
    """
    joined = f"{PACK_FLAG}="
    return [
        joined + _runnable(argument.removeprefix(joined), folder)
        if argument.startswith(joined)
        else _runnable(argument, folder)
        if before == PACK_FLAG
        else argument
        for before, argument in zip(["", *arguments], arguments, strict=False)
    ]


def _runnable(pack: str, folder: Path) -> str:
    executable = folder / pack / "run"
    return str(executable) if os.access(executable, os.X_OK) else pack


def _load(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise StackFileError(f"{path}: {error}") from None
    if not isinstance(content, dict):
        raise StackFileError(f"{path}: expected a mapping, found {type(content).__name__}")
    return content


def find_project(start: Path) -> Path | None:
    """The folder with Pulumi.yaml at or above `start`, as the engine finds it."""
    return next((d for d in (start, *start.parents) if (d / "Pulumi.yaml").is_file()), None)


class Command:
    """One call of `pulumi` in a project, seen from the sandbox."""

    def __init__(self, run: RunDirectory, pulumi: str, project: Path, arguments: Sequence[str]) -> None:
        self.run = run
        self.pulumi = pulumi
        self.project = project
        self.arguments = arguments
        self.words = words(arguments)

    def stack(self) -> str | None:
        """The stack this call is about: named, from PULUMI_STACK, or the selected one."""
        named = option(self.arguments, "--stack", "-s") or self._positional() or os.environ.get("PULUMI_STACK")
        if not named:
            asked = self._engine("stack", "--show-name", "--non-interactive")
            named = asked.stdout.strip() if asked.returncode == 0 else ""
        return named.rsplit("/", 1)[-1] or None

    def _positional(self) -> str | None:
        """`pulumi stack select|init|rm NAME`."""
        takes_name = len(self.words) > 2 and self.words[0] == "stack" and self.words[1] in ("select", "init", "rm")
        return self.words[2] if takes_name else None

    def _engine(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.pulumi, *arguments], cwd=cwd or self.project, capture_output=True, text=True, check=False
        )

    def prepare(self) -> dict[str, str]:
        """Make the stack exist and write its configuration; returns the variables to run the engine with."""
        stack = self.stack()
        committed_file = self.project / f"Pulumi.{stack}.yaml"
        if not stack or not committed_file.is_file():
            return {}  # an unknown stack: the engine has the right words for that
        name = _load(self.project / "Pulumi.yaml").get("name", "")
        folder = self.run.stacks / str(name)
        own_file = folder / committed_file.name
        if not (self.run.backend / ".pulumi" / "stacks" / str(name) / f"{stack}.json").exists():
            self._create(stack, folder)
        # The engine removes the stack's file with the stack; this one is the user's.
        variables = {"PULUMI_OPTION_PRESERVE_CONFIG": "true"}
        if self.words[0] in CONFIGURED:
            self._write_config(committed_file, own_file)
            variables["PULUMI_OPTION_CONFIG_FILE"] = str(own_file)
        return variables

    def _create(self, stack: str, folder: Path) -> None:
        """Create the stack from a copy of the project, so that its encryption salt is written beside the copy."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "Pulumi.yaml").write_bytes((self.project / "Pulumi.yaml").read_bytes())
        created = self._engine("stack", "init", stack, "--no-select", "--non-interactive", cwd=folder)
        if created.returncode and "already exists" not in created.stderr:
            raise StackFileError(f"stack {stack} could not be created in the sandbox:\n{created.stderr.strip()}")

    def _write_config(self, committed_file: Path, own_file: Path) -> None:
        own_salt = _load(own_file).get("encryptionsalt") if own_file.exists() else None
        try:
            emulator_url = self.run.emulator_url
        except FileNotFoundError:
            raise StackFileError("the sandbox is not running; start it with `make shell`") from None
        try:
            committed = committed_file.read_text(encoding="utf-8-sig")
            content = merged(committed, own_salt, endpoints(emulator_url, self.run.token_file.read_text()))
        except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
            raise StackFileError(f"{committed_file}: {error}") from None
        own_file.parent.mkdir(parents=True, exist_ok=True)
        scratch = own_file.with_name(f"{own_file.name}.{os.getpid()}")
        scratch.write_text(content)
        scratch.replace(own_file)


def _die_with_parent() -> None:
    """Cancel the engine when the command that called it dies: an orphan would write into a later sandbox's state."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def main(root: str, pulumi: str, *arguments: str) -> None:
    """Run the real engine in place of this process, prepared for the sandbox in the run directory `root`."""
    folder = Path(option(arguments, "--cwd", "-C") or ".").resolve()
    project = find_project(folder)
    extra: dict[str, str] = {}
    if (first := words(arguments)[:1]) and first[0] in INSTALLING and not {"--generate-only", "-g"} & {*arguments}:
        sys.exit(
            f"error: `pulumi {first[0]}` does not run in the sandbox, which has its packages already: "
            "use a terminal of your own"
        )
    if project and not {*words(arguments)[:1]}.isdisjoint(CONFIGURED | STACK_COMMANDS):
        command = Command(RunDirectory(Path(root)), pulumi, project, arguments)
        try:
            extra = command.prepare()
        except StackFileError as error:
            sys.exit(f"error: {error}")
        if command.words[:2] == ["stack", "init"] and extra:
            # Done already, beside the copy of the project; what is left of `init` is to select the stack.
            arguments = ("stack", "select", str(command.stack()))
    _die_with_parent()
    os.execve(pulumi, [pulumi, *with_runnable_packs(arguments, folder)], {**os.environ, **extra})


if __name__ == "__main__":
    main(*sys.argv[1:])
