"""The sandbox's `pulumi` command: which stack it is about, what configuration the engine gets, what stays as it is."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox import environment, toolchain
from sandbox.kubernetes import assets
from sandbox.run_directory import RunDirectory
from sandbox.stacks import SECRET_PLACEHOLDER, endpoints, merged, option, words
from sandbox.toolchain.kubernetes_binaries import KUBERNETES_VERSION
from tests.sandbox.conftest import short_directory

PROJECT = "name: tiny\nruntime: {name: python, options: {virtualenv: .venv}}\n"
PROGRAM = """
import pulumi

pulumi.export("shape", pulumi.Config().get("shape"))
pulumi.export("endpoint", pulumi.Config("gcp").get("containerCustomEndpoint"))
pulumi.export("password", pulumi.Config().get_secret("password"))
"""
STACK_FILE = "# kept as it is\nconfig:\n  tiny:shape: 2x4  # with its comment\n"

Run = Callable[..., subprocess.CompletedProcess[str]]


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


def test_merged_adds_endpoints_and_keeps_the_rest() -> None:
    extra = endpoints("http://127.0.0.1:1", "token")
    content = merged({"config": {"gcp:project": "p", "tpu:x": {"a": [1]}}, "environment": ["e"]}, "salt", extra)
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
    content = merged(committed, None, {})
    assert content == {
        "config": {"a:password": SECRET_PLACEHOLDER, "a:list": [{"key": SECRET_PLACEHOLDER}], "a:plain": "v"}
    }


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
    """The sandbox's `pulumi`, run in the project, with an emulator address but no emulator: no provider is used."""
    with short_directory() as scratch:
        run = RunDirectory(scratch / "run")
        run.root.mkdir()
        run.backend.mkdir()
        run.ready_file.write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": os.getpid()}))
        run.kubernetes.mkdir()
        run.token_file.write_text("token")
        environment.install(run, toolchain.engine(), assets.program("kubectl"), environment.Plugins.STAND_IN)

        def call(*arguments: str, cwd: Path = project, **extra: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [run.bin / "pulumi", *arguments],
                cwd=cwd,
                env={**environment.variables(run), **extra},
                capture_output=True,
                text=True,
                check=False,
            )

        yield call


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
