"""Stands for `gcloud` on the sandbox's PATH: the commands that a kubeconfig and a person in trouble need.

They ask the emulated APIs as the real ones ask the real services, as the sandbox's own caller.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import httpx
import typer

from sandbox.run_directory import RunDirectory

# The first argument of every command: the run directory, put there by the executable on PATH.
Root = Annotated[Path, typer.Argument(hidden=True)]
Project = Annotated[str, typer.Option(help="The project's id.")]


def access(
    root: Root,
    version: Annotated[str, typer.Argument(help='A number, or "latest".')],
    secret: Annotated[str, typer.Option(help="The secret's name in its project.")],
    project: Project,
) -> None:
    """Print what a version of a secret holds."""
    answer = _get(root, f"sm/v1/projects/{project}/secrets/{secret}/versions/{version}:access")
    sys.stdout.buffer.write(base64.b64decode(answer["payload"]["data"]))


def get_serial_port_output(
    root: Root,
    instance: Annotated[str, typer.Argument(help="The instance's name.")],
    zone: Annotated[str, typer.Option(help="The instance's zone.")],
    project: Project,
) -> None:
    """Print what an instance has written to its first serial port."""
    print(_get(root, f"compute/v1/projects/{project}/zones/{zone}/instances/{instance}/serialPort")["contents"])


COMMANDS: dict[tuple[str, ...], Callable[..., None]] = {
    ("secrets", "versions", "access"): access,
    ("compute", "instances", "get-serial-port-output"): get_serial_port_output,
}


def _get(root: Path, path: str) -> Any:
    run = RunDirectory(root)
    try:
        url = run.emulator_url
        headers = {"Authorization": f"Bearer {run.token_file.read_text()}"}
        answer = httpx.get(f"{url}/{path}", headers=headers, trust_env=False, timeout=30)
    except (OSError, httpx.HTTPError) as error:
        _fail(f"the sandbox does not answer: {error}")
    content = answer.json()
    if not answer.is_success:
        _fail(f"{content['error']['status']}: {content['error']['message']}")
    return content


def _fail(message: str) -> NoReturn:
    sys.exit(f"ERROR: {message}")


def main() -> None:
    """Run the command line of the executable on PATH."""
    program, root, *arguments = sys.argv
    for words, command in COMMANDS.items():
        if tuple(arguments[: len(words)]) == words:
            sys.argv = [f"{program} {' '.join(words)}", root, *arguments[len(words) :]]
            return typer.run(command)
    known = ", ".join(f"`gcloud {' '.join(words)}`" for words in COMMANDS)
    _fail(f"the sandbox's gcloud knows only {known}, not `gcloud {' '.join(arguments)}`")


if __name__ == "__main__":
    main()
