"""What all commands have in common: help, JSON, exit codes, and no traceback on bad input."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tools.__main__ import app
from tools.workload_commands import app as workloads

OF_WORKLOADS = [
    f"workload {command.callback.__name__}" for command in workloads.registered_commands if command.callback
]
COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
OF_A_STACK: dict[str, list[str]] = {
    "explain": [],
    "workload train": ["train"],
    "workload serve": ["serve", "--model", "m"],
    "preflight": [],
    "permissions": [],
    "kueue": [],
    "why": [],
}


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("command", [*COMMANDS, *OF_WORKLOADS])
def test_help_says_what_the_exit_codes_mean(command: str, option: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), option], env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code == 0
    assert "Exit code 1" in shown.output
    assert "--json" in shown.output


@pytest.mark.parametrize("command", OF_A_STACK)
def test_a_bad_stack_file_is_a_finding_also_for_machines(command: str, tmp_path: Path) -> None:
    stack = tmp_path / "Pulumi.bad.yaml"
    stack.write_text("config: {gcp:project: my-project, tpu-platform:platform: {zone: 7}}\n")
    refused = CliRunner().invoke(app, [*command.split(), *OF_A_STACK[command], "-f", str(stack), "--json"])
    assert refused.exit_code == 1, refused.output
    assert isinstance(refused.exception, SystemExit)
    assert [error["path"] for error in json.loads(refused.stdout)["errors"]] == ["tpu-platform:platform.zone"]


@pytest.mark.parametrize("command", OF_A_STACK)
def test_a_missing_stack_is_wrong_usage(command: str) -> None:
    refused = CliRunner().invoke(app, [*command.split(), *OF_A_STACK[command], "-s", "there-is-none"])
    assert refused.exit_code == 2
    words = " ".join(refused.output.replace("│", " ").split())
    assert "there is no file Pulumi.there-is-none.yaml; stacks here: blueprint, dev, gce, ondemand" in words


def test_without_a_stack_it_says_how_to_name_one() -> None:
    refused = CliRunner().invoke(app, ["explain"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert refused.exit_code == 2
    assert "give either -s STACK or -f FILE, for example -s dev" in refused.output


def test_a_workload_as_json_is_what_it_is_as_yaml() -> None:
    arguments = ["workload", "train", "serve", "-s", "dev", "--queue", "team"]
    as_json = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert as_json == list(yaml.safe_load_all(CliRunner().invoke(app, arguments).stdout))


@pytest.mark.parametrize("command", ["schema", "docs"])
def test_stale_files_for_machines(command: str) -> None:
    assert json.loads(CliRunner().invoke(app, [*command.split(), "--check", "--json"]).stdout) == {"stale": []}
