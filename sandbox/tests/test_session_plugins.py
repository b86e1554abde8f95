"""Which provider plugins a sandbox takes, how the engine finds them, and where their charts come from."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import certifi
import httpx
import pytest

from sandbox import environment, toolchain
from sandbox.environment import PLUGINS_VARIABLE, Plugins
from sandbox.kubernetes import assets
from sandbox.kubernetes.pki import CertificateAuthority
from sandbox.kubernetes.registry import SOURCES, ChartRegistry
from sandbox.run_directory import IMPORT_ROOT, RUN_VARIABLE, RunDirectory
from sandbox.tests.command import FOREIGN
from sandbox.tests.isolation import short_directory
from sandbox.tests.kubernetes_support import EVERY_CHART

pytestmark = pytest.mark.sandbox

NAMES = ("gcp", "kubernetes")
VERSIONS = [(chart.address, version) for chart in EVERY_CHART for version in chart.versions]
SAY_WHERE = '#!/bin/sh\necho "$0 $HTTPS_PROXY"\n'


@dataclass(frozen=True)
class Lab:
    """The executables of a sandbox without an emulator, and a user's home with plugins beside it."""

    run: RunDirectory
    home: Path
    registry: ChartRegistry

    def folder(self, name: str, version: str = "") -> Path:
        """Where `pulumi install` puts the plugin; by default in the version that the SDK asks for."""
        version = version or importlib.metadata.version(f"pulumi-{name}")
        return self.home / "plugins" / f"resource-{name}-v{version}"

    def add(self, name: str, text: str = SAY_WHERE, version: str = "") -> Path:
        folder = self.folder(name, version)
        folder.mkdir(parents=True)
        path = folder / f"pulumi-resource-{name}"
        path.write_text(text)
        path.chmod(0o755)
        (folder / "PulumiPlugin.yaml").write_text("runtime: go\n")
        return path

    def install(self, plugins: Plugins = Plugins.INSTALLED) -> dict[str, str]:
        return environment.install(self.run, toolchain.engine(), assets.program("kubectl"), plugins)

    def executable(self, name: str) -> Path:
        """What the engine starts."""
        return self.run.pulumi_home / "plugins" / self.folder(name).name / f"pulumi-resource-{name}"

    def start(self, name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Start the plugin as the engine does, in the sandbox's environment."""
        given = {**environment.variables(self.run, {"PATH": os.environ["PATH"]}), **variables}
        command = [str(self.executable(name)), *arguments]
        return subprocess.run(command, env=given, cwd=self.run.root, capture_output=True, text=True, check=False)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    with short_directory() as scratch:
        run = RunDirectory(scratch / "run")
        run.kubernetes.mkdir(parents=True)
        run.backend.mkdir()
        authority = CertificateAuthority(run.kubernetes / "authority")
        run.trust_file.write_text(Path(certifi.where()).read_text() + authority.pair.certificate.read_text())
        registry = ChartRegistry(authority, EVERY_CHART)
        run.registry_file.write_text(registry.url)
        monkeypatch.setenv("PULUMI_HOME", str(scratch / "home"))
        yield Lab(run, scratch / "home", registry)
        registry.stop()


def test_the_engine_finds_the_users_plugins_and_starts_them(lab: Lab) -> None:
    """A link to the user's folder is not enough: the engine looks at real folders only."""
    users = {name: lab.add(name) for name in NAMES}
    origins = lab.install()
    listed = subprocess.run(
        [lab.run.bin / "pulumi", "plugin", "ls", "--json"],
        env=environment.variables(lab.run),
        cwd=lab.run.root,
        capture_output=True,
        text=True,
        check=True,
    )
    versions = {each["name"]: each["version"] for each in json.loads(listed.stdout)}
    assert versions == {name: importlib.metadata.version(f"pulumi-{name}") for name in NAMES}
    for name, path in users.items():
        assert origins[f"{name} plugin"] == f"{versions[name]}, installed in {path.parent}"
        assert lab.start(name).stdout.split()[0] == str(path)
        assert lab.executable(name).with_name("PulumiPlugin.yaml").read_text() == "runtime: go\n"


def test_stand_ins_by_choice(lab: Lab) -> None:
    for name in NAMES:
        lab.add(name)
    origins = lab.install(Plugins.STAND_IN)
    assert origins["choice of plugins"] == "SANDBOX_PLUGINS=stand-in"
    for name in NAMES:
        assert origins[f"{name} plugin"].startswith("stand-in for ")
        assert "sandbox.plugins" in lab.executable(name).read_text()


def test_stand_ins_where_no_complete_plugin_of_the_right_version_is_installed(lab: Lab) -> None:
    lab.add("gcp", version="9.0.0")
    lab.add("kubernetes")
    lab.folder("kubernetes").with_name(f"{lab.folder('kubernetes').name}.partial").touch()
    origins = lab.install()
    for name in NAMES:
        assert origins[f"{name} plugin"].startswith("stand-in for ")


def test_one_plugin_may_be_installed_and_the_other_not(lab: Lab) -> None:
    lab.add("kubernetes")
    origins = lab.install()
    assert origins["gcp plugin"].startswith("stand-in for ")
    assert "installed in" in origins["kubernetes plugin"]


def test_a_plugin_without_its_sdk_is_left_out(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that puts nothing into its clusters has no kubernetes SDK."""
    version = importlib.metadata.version

    def without_kubernetes(name: str) -> str:
        if name == "pulumi-kubernetes":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", without_kubernetes)
    origins = lab.install()
    assert origins["kubernetes plugin"] == "none: the package pulumi-kubernetes is not installed beside the sandbox"
    assert [path.name for path in (lab.run.pulumi_home / "plugins").iterdir()] == [lab.folder("gcp").name]


def test_an_unknown_choice_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "sandbox", "up"],
        env={
            **os.environ,
            PLUGINS_VARIABLE: "real",
            RUN_VARIABLE: str(tmp_path / "run"),
            "PYTHONPATH": str(IMPORT_ROOT),
        },
        cwd=FOREIGN,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert refused.stdout == "error: SANDBOX_PLUGINS: 'real' is not known -> write installed or stand-in\n"
    assert not (tmp_path / "run").exists()


def test_only_the_kubernetes_plugin_is_led_to_the_chart_registry(lab: Lab) -> None:
    for name in NAMES:
        lab.add(name)
    lab.install()
    assert lab.start("kubernetes").stdout.split()[1:] == [lab.registry.url]
    assert lab.start("gcp").stdout.split()[1:] == []
    assert "HTTPS_PROXY" not in environment.variables(lab.run, {})


@pytest.fixture
def helm(lab: Lab) -> Lab:
    """A user's kubernetes plugin that is helm: the real plugin has the same helm library inside."""
    path = lab.add("kubernetes")
    path.unlink()
    path.symlink_to(assets.program("helm"))
    lab.install()
    return lab


@pytest.mark.parametrize(("chart", "version"), VERSIONS)
def test_helm_pulls_each_chart_by_its_real_address(helm: Lab, tmp_path: Path, chart: str, version: str) -> None:
    """The real plugin has no other way to a chart, also where there is no network."""
    users_cache = tmp_path / "cache"
    done = helm.start(
        *("kubernetes", "pull", chart, "--version", version, "-d", str(tmp_path)),
        NO_PROXY="registry.k8s.io",
        HELM_CACHE_HOME=str(users_cache),
    )
    assert done.returncode == 0, done.stderr
    archive = SOURCES[chart].archive(version)
    assert (tmp_path / archive.name).read_bytes() == archive.read_bytes()
    assert not users_cache.exists(), "the user's own charts are not mixed with the sandbox's"
    shown = helm.start("kubernetes", "show", "chart", chart, "--version", version)
    assert f"\nversion: {version}\n" in shown.stdout


def test_without_a_version_helm_takes_the_newest(helm: Lab) -> None:
    chart = "oci://registry.k8s.io/dra-driver-google/charts/dra-driver-google-tpu"
    assert "\nversion: 0.2.0\n" in helm.start("kubernetes", "show", "chart", chart).stdout


@pytest.mark.parametrize(
    ("chart", "version", "reason"),
    [
        ("oci://registry.k8s.io/kueue/charts/kueue", "0.18.0", "the sandbox has no version 0.18.0 of oci://registry"),
        ("oci://registry.k8s.io/charts/redis", "1.0.0", "no chart oci://registry.k8s.io/charts/redis; known charts:"),
        ("oci://example.com/charts/redis", "1.0.0", "has no registry example.com; it has registry.k8s.io"),
    ],
)
def test_what_the_sandbox_does_not_have_is_refused_with_a_reason(
    helm: Lab, tmp_path: Path, chart: str, version: str, reason: str
) -> None:
    done = helm.start("kubernetes", "pull", chart, "--version", version, "-d", str(tmp_path))
    assert done.returncode != 0
    assert reason in done.stderr


def test_a_client_that_does_not_trust_the_sandbox_pulls_nothing(helm: Lab, tmp_path: Path) -> None:
    chart, version = VERSIONS[0]
    arguments = ("kubernetes", "pull", chart, "--version", version, "-d", str(tmp_path))
    done = helm.start(*arguments, SSL_CERT_FILE=certifi.where())
    assert done.returncode != 0
    assert "certificate signed by unknown authority" in done.stderr


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_the_registry_is_read_only(lab: Lab, method: str) -> None:
    answer = httpx.request(method, f"{lab.registry.url}/v2/kueue/charts/kueue/manifests/1.0.0", trust_env=False)
    assert answer.status_code == 501
