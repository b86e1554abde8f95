"""Files that upstream Go modules carry beside their code: kwok's stages, charts of JobSet, Kueue and
LeaderWorkerSet, a CRD of GKE's.

The modules are the ones the toolchain pins. What is needed is copied or packaged once into the per-user cache, so that
the Go module cache may be cleared afterwards.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from sandbox import toolchain
from sandbox.toolchain.kubernetes_binaries import (
    GATEWAY_API_VERSION,
    JOBSET_VERSION,
    KUEUE_VERSION,
    KWOK_VERSION,
    LWS_VERSION,
)

DRA_DRIVER = Path(__file__).parent / "charts" / "dra-driver-google-tpu"
_KWOK = f"sigs.k8s.io/kwok@v{KWOK_VERSION}"
_AUTOSCALER_APIS = "k8s.io/autoscaler/cluster-autoscaler/apis@v0.0.0-20240830133931-adfbe7e45277"

_KWOK_FILES = (
    "kustomize/stage/node/fast/node-initialize.yaml",
    "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "kustomize/stage/pod/fast/pod-ready.yaml",
    "kustomize/stage/pod/general/pod-complete.yaml",
    "kustomize/stage/pod/fast/pod-delete.yaml",
    "kustomize/rbac/role.yaml",
)


class AssetError(Exception):
    """A pinned Go module could not be fetched; the message says which and why."""


def program(name: str) -> Path:
    """The built binary of that name (see the toolchain's rows); builds it when it is missing."""
    row = toolchain.BINARIES[name]
    built = toolchain.built_path(row)
    return built if built.exists() else toolchain.build(row)


def kwok_files() -> dict[str, list[dict[str, Any]]]:
    """kwok's own stage and role files, parsed, by file name without ending."""
    folder = once(f"kwok-v{KWOK_VERSION}", _copy_kwok_files)
    return {Path(each).stem: _documents(folder / Path(each).name) for each in _KWOK_FILES}


def provisioning_request_crd() -> dict[str, Any]:
    """The ProvisioningRequest CRD (autoscaling.x-k8s.io), which GKE installs in every cluster."""
    name = "autoscaling.x-k8s.io_provisioningrequests.yaml"

    def copy(folder: Path) -> None:
        shutil.copy(_module(_AUTOSCALER_APIS) / "config" / "crd" / name, folder / name)

    return _documents(once("provisioning-request-crd", copy) / name)[0]


def gateway_crds() -> list[dict[str, Any]]:
    """The Gateway API's CRDs of its standard channel. GKE serves them in the version of its own release."""
    names = [f"gateway.networking.k8s.io_{plural}.yaml" for plural in ("gatewayclasses", "gateways", "httproutes")]

    def copy(folder: Path) -> None:
        source = _module(f"sigs.k8s.io/gateway-api@v{GATEWAY_API_VERSION}") / "config" / "crd" / "standard"
        for name in names:
            shutil.copyfile(source / name, folder / name)

    folder = once(f"gateway-api-v{GATEWAY_API_VERSION}", copy)
    return [each for name in names for each in _documents(folder / name)]


def jobset_chart() -> Path:
    """The released JobSet chart as an archive: the module's chart with the released image (its release script)."""

    def released(values: dict[str, Any]) -> None:
        values["image"] |= _released_image("jobset/jobset", JOBSET_VERSION)

    return _packaged_module_chart("jobset", JOBSET_VERSION, released)


def kueue_chart() -> Path:
    """The released Kueue chart as an archive: the module's chart with the released images (its release script)."""

    def released(values: dict[str, Any]) -> None:
        values["controllerManager"]["manager"]["image"] |= _released_image("kueue/kueue", KUEUE_VERSION)
        for side in ("backend", "frontend"):
            values["kueueViz"][side]["image"] |= _released_image(f"kueue/kueueviz-{side}", KUEUE_VERSION)

    return _packaged_module_chart("kueue", KUEUE_VERSION, released)


def lws_chart() -> Path:
    """The released LeaderWorkerSet chart as an archive: the module's chart with the released image (its release
    script)."""

    def released(values: dict[str, Any]) -> None:
        values["image"]["manager"] |= _released_image("lws/lws", LWS_VERSION)

    return _packaged_module_chart("lws", LWS_VERSION, released)


def dra_driver_versions() -> tuple[str, ...]:
    """The versions of the TPU DRA driver whose default values the stand-in chart has, oldest first."""
    return tuple(sorted(path.stem.removeprefix("values-") for path in DRA_DRIVER.glob("values-*.yaml")))


def dra_driver_chart(version: str) -> Path:
    """The stand-in chart of the TPU DRA driver (see charts/README.md) with the default values of `version`."""

    def build(folder: Path) -> None:
        chart = folder / "chart"
        _copy_tree(DRA_DRIVER, chart)
        (chart / f"values-{version}.yaml").rename(chart / "values.yaml")
        _package(chart, version, version, folder)

    folder = once(f"dra-driver-google-tpu-{version}-{_fingerprint(DRA_DRIVER)}", build)
    return folder / f"dra-driver-google-tpu-{version}.tgz"


def _released_image(name: str, version: str) -> dict[str, str]:
    return {"repository": f"registry.k8s.io/{name}", "tag": f"v{version}", "pullPolicy": "IfNotPresent"}


def _packaged_module_chart(name: str, version: str, edit_values: Callable[[dict[str, Any]], None]) -> Path:
    def build(folder: Path) -> None:
        chart = folder / "chart"
        _copy_tree(_module(f"sigs.k8s.io/{name}@v{version}") / "charts" / name, chart)
        values_file = chart / "values.yaml"
        values = yaml.safe_load(values_file.read_text())
        edit_values(values)
        values_file.write_text(yaml.safe_dump(values))
        _package(chart, version, f"v{version}", folder)

    return once(f"{name}-chart-{version}", build) / f"{name}-{version}.tgz"


def _package(chart: Path, version: str, app_version: str, destination: Path) -> None:
    command = [program("helm"), "package", "--version", version, "--app-version", app_version, "-d", destination, chart]
    subprocess.run([str(each) for each in command], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(chart)


def _copy_tree(source: Path, target: Path) -> None:
    """Copies contents only: the Go module cache is read-only, and so would be a copy that kept the modes."""
    for each in source.rglob("*"):
        if each.is_file():
            copy = target / each.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(each, copy)


def _copy_kwok_files(folder: Path) -> None:
    module = _module(_KWOK)
    for each in _KWOK_FILES:
        shutil.copyfile(module / each, folder / Path(each).name)


def _documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for each in sorted(folder.rglob("*")):
        if each.is_file():
            digest.update(each.relative_to(folder).as_posix().encode() + each.read_bytes())
    return digest.hexdigest()[:12]


def once(name: str, make: Callable[[Path], None]) -> Path:
    """`<cache>/kubernetes/<name>`, filled by `make` the first time; several processes may ask at once."""
    folder = toolchain.cache_dir() / "kubernetes" / name
    if folder.exists():
        return folder
    with _locked(folder.with_name(f"{name}.lock")):
        if not folder.exists():
            partial = folder.with_name(f"{name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            make(partial)
            partial.rename(folder)
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _module(module: str) -> Path:
    """Folder of a Go module ("path@version") in the module cache, downloaded when it is not there."""
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}
    command = [toolchain.go(), "mod", "download", "-json", module]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/", check=False)
    answer = json.loads(result.stdout or "{}")
    if result.returncode or "Dir" not in answer:
        raise AssetError(f"Go module {module} is not to be had: {answer.get('Error') or result.stderr.strip()}")
    return Path(answer["Dir"])
