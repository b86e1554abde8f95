"""The sandbox's `pulumi` command: which stack it is about, what configuration the engine gets, what stays as it is."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.stacks import SECRET_PLACEHOLDER, endpoints, merged, option, with_runnable_packs, words
from sandbox.tests.tiny import Run, tiny_engine
from sandbox.toolchain.kubernetes_binaries import KUBERNETES_VERSION

PROJECT = "name: tiny\nruntime: {name: python, options: {virtualenv: .venv}}\n"
PROGRAM = """
import pulumi

pulumi.export("shape", pulumi.Config().get("shape"))
pulumi.export("endpoint", pulumi.Config("gcp").get("containerCustomEndpoint"))
pulumi.export("password", pulumi.Config().get_secret("password"))
"""

pytestmark = pytest.mark.sandbox

STACK_FILE = "# kept as it is\nconfig:\n  tiny:shape: 2x4  # with its comment\n"


@pytest.mark.parametrize(
    ("arguments", "stack"),
    [
        ("preview -s dev", "dev"),
        ("preview --stack dev", "dev"),
        ("preview --stack=dev", "dev"),
        ("-s=dev preview", "dev"),
        ("up -sdev", "dev"),
        ("up --yes", None),
        ("up --show-reads", None),
        ("up -- -s dev", None),
        ("preview -s", None),
    ],
)
def test_option(arguments: str, stack: str | None) -> None:
    assert option(arguments.split(), "--stack", "-s") == stack


def test_words_leave_out_flags_and_their_values() -> None:
    arguments = ["-C", "folder", "--color", "never", "stack", "-s", "dev", "init", "other", "--no-select"]
    assert words(arguments) == ["stack", "init", "other"]


def test_packs_are_named_by_their_executable_in_every_spelling(tmp_path: Path) -> None:
    pack = tmp_path / "policies"
    pack.mkdir()
    (pack / "run").touch(mode=0o755)
    run = str(pack / "run")
    assert with_runnable_packs(["preview", "--policy-pack", "policies"], tmp_path) == ["preview", "--policy-pack", run]
    assert with_runnable_packs([f"--policy-pack={pack}", "up"], tmp_path) == [f"--policy-pack={run}", "up"]
    others = ["preview", "-s", "policies", "--policy-pack", "elsewhere", "--policy-pack-config", "policies"]
    assert with_runnable_packs(others, tmp_path) == others
    assert words(["--policy-pack", "policies", "preview"]) == ["preview"]


def test_merged_adds_endpoints_and_keeps_the_rest() -> None:
    extra = endpoints("http://127.0.0.1:1", "token")
    committed = "config: {'gcp:project': p, 'tpu:x': {a: [1]}}\nenvironment: [e]\n"
    content = yaml.safe_load(merged(committed, "salt", extra))
    assert content["environment"] == ["e"]
    assert content["encryptionsalt"] == "salt"
    assert content["config"] == {"gcp:project": "p", "tpu:x": {"a": [1]}, **extra}
    assert content["config"]["gcp:containerCustomEndpoint"] == "http://127.0.0.1:1/container/v1beta1/"


def test_merged_replaces_secrets_and_what_encrypts_them() -> None:
    committed = {
        "secretsprovider": "gcpkms://somewhere",
        "encryptedkey": "k",
        "config": {"a:password": {"secure": "v1:x"}, "a:list": [{"key": {"secure": "v1:y"}}], "a:plain": "v"},
    }
    content = yaml.safe_load(merged(yaml.safe_dump(committed), None, {}))
    assert content == {
        "config": {"a:password": SECRET_PLACEHOLDER, "a:list": [{"key": SECRET_PLACEHOLDER}], "a:plain": "v"}
    }


def test_merged_leaves_every_value_as_it_is_written() -> None:
    """PyYAML writes `yes` as true, `010` as 8 and a day as a day; the engine is to see what a person wrote."""
    values = [
        "yes",
        "010",
        "0o10",
        "1e1",
        "1:30",
        "2026-12-01",
        "2026-12-01T10:00:00Z",
        "'5'",
        '"\\t"',
        "~",
        "!!int '5'",
    ]
    merging = merged(f"config: {{a:x: [{', '.join(values)}, &a {{b: null}}], a:y: {{<<: *a}}}}\n", None, {})
    assert [line.strip().removeprefix("- ") for line in merging.splitlines()[2:]] == [
        *values,
        "&a",
        "b: null",
        "a:y:",
        "<<: *a",
    ]


@pytest.mark.parametrize(("empty", "extra"), [("", {}), ("# nothing\n", {"a:b": "c"}), ("config:\n", {"a:b": "c"})])
def test_merged_adds_to_an_empty_file(empty: str, extra: dict[str, str]) -> None:
    assert yaml.safe_load(merged(empty, None, extra))["config"] == extra


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A program without any provider, with one committed stack file."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text(PROJECT)
    (folder / "__main__.py").write_text(PROGRAM)
    (folder / "Pulumi.dev.yaml").write_text(STACK_FILE)
    return folder


@pytest.fixture
def pulumi(project: Path) -> Iterator[Run]:
    with tiny_engine(project) as run:
        yield run


def outputs(run: Run, *arguments: str) -> dict[str, Any]:
    printed = run("stack", "output", "--json", "--show-secrets", *arguments)
    found: dict[str, Any] = json.loads(printed.stdout)
    return found


def test_a_committed_stack_works_as_named_and_its_file_stays(pulumi: Run, project: Path) -> None:
    """No `stack init`: the first command that names the stack finds it. An edit is seen by the next command."""
    done = pulumi("up", "-s", "dev", "--yes", "--skip-preview")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout + done.stderr
    assert outputs(pulumi, "-s", "dev") == {
        "shape": "2x4",
        "endpoint": "http://127.0.0.1:1/container/v1beta1/",
    }
    assert {p.name for p in project.iterdir()} == {"Pulumi.yaml", "__main__.py", "Pulumi.dev.yaml"}
    assert (project / "Pulumi.dev.yaml").read_text() == STACK_FILE

    (project / "Pulumi.dev.yaml").write_text(STACK_FILE.replace("2x4", "4x4"))
    assert '"2x4" => "4x4"' in pulumi("preview", PULUMI_STACK="dev").stdout
    assert pulumi("up", "--yes", "--skip-preview", PULUMI_STACK="dev").returncode == 0
    assert outputs(pulumi, "-s", "dev")["shape"] == "4x4"


def test_init_select_and_rm_leave_the_committed_file_alone(pulumi: Run, project: Path) -> None:
    created = pulumi("stack", "init", "dev")
    assert created.returncode == 0, created.stderr
    assert pulumi("stack", "--show-name").stdout.strip() == "dev"
    assert pulumi("preview").returncode == 0, "the selected stack is found from a bare command"
    assert pulumi("stack", "rm", "dev", "--yes").returncode == 0
    assert (project / "Pulumi.dev.yaml").read_text() == STACK_FILE


def test_a_committed_secret_becomes_a_placeholder(pulumi: Run, project: Path) -> None:
    foreign = {"encryptionsalt": "v1:AAAAAAAAAAA=:v1:AAAA:BBBB", "config": {"tiny:password": {"secure": "v1:CC:DD"}}}
    (project / "Pulumi.prod.yaml").write_text(yaml.safe_dump(foreign))
    done = pulumi("up", "-s", "prod", "--yes", "--skip-preview")
    assert done.returncode == 0, done.stdout + done.stderr
    assert outputs(pulumi, "-s", "prod")["password"] == SECRET_PLACEHOLDER
    assert yaml.safe_load((project / "Pulumi.prod.yaml").read_text()) == foreign


def test_an_unknown_stack_gets_the_engines_own_answer(pulumi: Run) -> None:
    done = pulumi("preview", "-s", "dve")
    assert done.returncode != 0
    assert "no stack named 'dve' found" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "reason"),
    [("config: [unclosed\n", "expected ',' or ']'"), ("- a\n", "expected a mapping, found list")],
)
def test_a_broken_stack_file_is_named(pulumi: Run, project: Path, content: str, reason: str) -> None:
    (project / "Pulumi.dev.yaml").write_text(content)
    done = pulumi("preview", "-s", "dev")
    assert done.returncode == 1
    assert "Pulumi.dev.yaml" in done.stderr
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_commands_without_a_stack_pass_through(pulumi: Run, tmp_path: Path) -> None:
    assert pulumi("version", cwd=tmp_path).stdout.startswith("v")


@pytest.mark.parametrize("arguments", ["install", "new --dir x python", "new -y"])
def test_nothing_is_installed_in_the_sandbox(pulumi: Run, project: Path, arguments: str) -> None:
    """The language host of the sandbox would make `bin` and `lib` in the project's own folder."""
    refused = pulumi(*arguments.split())
    assert refused.returncode == 1
    assert "does not run in the sandbox" in refused.stderr
    assert {p.name for p in project.iterdir()} == {"Pulumi.yaml", "__main__.py", "Pulumi.dev.yaml"}


def test_kubectl_is_the_sandboxs_own(pulumi: Run) -> None:
    location = pulumi("version").args[0].parent / "kubectl"
    version = subprocess.run([location, "version", "--client"], capture_output=True, text=True, check=True).stdout
    assert f"Client Version: v{KUBERNETES_VERSION}" in version


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["compute", "instances", "list"], "knows only `gcloud secrets versions access`"),
        ([], "knows only"),
        (["secrets", "versions", "access", "latest", "--secret=a"], "Missing option '--project'"),
        (["secrets", "versions", "access", "latest", "--secret=a", "--project=b"], "the sandbox does not answer"),
    ],
)
def test_gcloud_says_what_it_cannot_do(pulumi: Run, arguments: list[str], reason: str) -> None:
    location = pulumi("version").args[0].parent / "gcloud"
    done = subprocess.run([location, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode
    assert done.stdout == ""
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_the_auth_plugin_hands_out_the_sandboxs_token(pulumi: Run) -> None:
    location = pulumi("version").args[0].parent / "gke-gcloud-auth-plugin"
    credential = json.loads(subprocess.run([location], capture_output=True, text=True, check=True).stdout)
    assert credential["kind"] == "ExecCredential"
    assert credential["status"] == {"token": "token"}
