"""What makes the plain `pulumi` command work against the sandbox: executables on PATH, plugins, and variables.

Nothing of the user's is touched: the engine gets a home, a backend and a PATH of its own below the run directory.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from sandbox.kubernetes.tunnels import NO_PROXY
from sandbox.run_directory import IMPORT_ROOT, RUN_VARIABLE, RunDirectory
from sandbox.stacks import ENDPOINTS

VENV_BIN = Path(sys.executable).parent

# The modules that stand in for provider plugins.
STAND_INS = {"gcp": "sandbox.plugins.gcp", "kubernetes": "sandbox.plugins.kubernetes"}

# Variables that would lead the engine, a plugin, helm, kubectl or gcloud to something other than the sandbox.
FOREIGN = ("PULUMI_", "GOOGLE_", "GCLOUD_", "CLOUDSDK_", "KUBECONFIG", "HELM_")

# The person's choice between the values of `Plugins`.
PLUGINS_VARIABLE = "SANDBOX_PLUGINS"


class Plugins(StrEnum):
    """Which provider plugins a sandbox takes."""

    INSTALLED = "installed"
    """The user's own, as `pulumi install` leaves them, where they have the version that the SDK asks for."""
    STAND_IN = "stand-in"
    """None of the user's own, wherever they are."""


def install(run: RunDirectory, pulumi: Path, kubectl: Path, plugins: Plugins) -> dict[str, str]:
    """Write the executables of a sandbox; `pulumi` is the real engine, `kubectl` fits the clusters' version.

    Returns where the engine and each plugin come from.
    """
    run.bin.mkdir()
    _module_shim(run.bin / "pulumi", "sandbox.stacks", str(run.root), str(pulumi))
    _module_shim(run.bin / "gcloud", "sandbox.gcloud", str(run.root))
    (run.bin / "kubectl").symlink_to(kubectl)
    _executable(run.bin / "gke-gcloud-auth-plugin", _auth_plugin(run.token_file))
    origins = {f"{name} plugin": _install_plugin(run, name, module, plugins) for name, module in STAND_INS.items()}
    return {"engine": str(pulumi), **origins, "choice of plugins": f"{PLUGINS_VARIABLE}={plugins}"}


def _install_plugin(run: RunDirectory, name: str, module: str, plugins: Plugins) -> str:
    """Put the plugin where the engine looks for installed ones, under the version that the SDK asks for.

    The folder is a real one, since the engine takes no links to folders for plugins. Without the SDK in this
    environment no program can ask for the plugin.
    """
    try:
        version = importlib.metadata.version(f"pulumi-{name}")
    except importlib.metadata.PackageNotFoundError:
        return f"none: the package pulumi-{name} is not installed beside the sandbox"
    executable = f"pulumi-resource-{name}"
    folder = run.pulumi_home / "plugins" / f"resource-{name}-v{version}"
    folder.mkdir(parents=True)
    installed = _installed(folder.name, executable) if plugins is Plugins.INSTALLED else None
    command = [str(installed / executable)] if installed else module_command(module)
    _executable(folder / executable, _with_charts(run, command) if name == "kubernetes" else _running(command))
    for beside in installed.iterdir() if installed else ():
        if beside.name != executable:
            (folder / beside.name).symlink_to(beside)
    return f"{version}, installed in {installed}" if installed else f"stand-in for {version}"


def _installed(folder: str, executable: str) -> Path | None:
    """The user's plugin folder of that name, where the engine itself would find a complete plugin in it."""
    home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    found = home / "plugins" / folder
    incomplete = found.is_symlink() or found.with_name(f"{folder}.partial").exists()
    return found if not incomplete and os.access(found / executable, os.X_OK) else None


def _with_charts(run: RunDirectory, command: list[str]) -> str:
    """A program that pulls charts from the sandbox's registry; nothing else in a sandbox gets these variables.

    The registry's address is read when the program starts. What helm caches stays below the run directory.
    """
    helm = run.root / "helm"
    variables = {
        "NO_PROXY": NO_PROXY,
        **{f"HELM_{kind}_HOME": str(helm / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")},
    }
    return "".join(
        (
            "#!/bin/sh\n",
            f"HTTPS_PROXY=$(cat {shlex.quote(str(run.registry_file))}) || exit 1\n",
            f"export HTTPS_PROXY {shlex.join(f'{name}={value}' for name, value in variables.items())}\n",
            f'exec {shlex.join(command)} "$@"\n',
        )
    )


def _executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _module_shim(path: Path, module: str, *arguments: str) -> None:
    """An executable that runs a module of the sandbox."""
    _executable(path, _running(module_command(module, *arguments)))


def _running(command: list[str]) -> str:
    return f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n'


def module_command(module: str, *arguments: str) -> list[str]:
    """Runs a module of the sandbox; -P and the explicit path keep the user's directory out."""
    code = (
        f"import runpy, sys; sys.path.insert(0, {str(IMPORT_ROOT)!r}); "
        f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-P", "-c", code, *arguments]


def _auth_plugin(token_file: Path) -> str:
    """Stands for Google's kubectl credential plugin: hands out the sandbox's token instead of asking gcloud for one."""
    credential = (
        '{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": {"token": "%s"}}'
    )
    return f'#!/bin/sh\nprintf {shlex.quote(credential)} "$(cat {shlex.quote(str(token_file))})"\n'


def variables(run: RunDirectory, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment in which `pulumi`, `kubectl` and the program meet the sandbox, and nothing else.

    `base` without what points elsewhere, plus the sandbox's own.
    """
    kept = {k: v for k, v in base.items() if not k.startswith(FOREIGN)}
    no_proxy = ",".join(filter(None, (base.get("NO_PROXY") or base.get("no_proxy"), "127.0.0.1", "localhost")))
    return {
        **kept,
        RUN_VARIABLE: str(run.root),
        "PATH": os.pathsep.join((str(run.bin), str(VENV_BIN), kept.get("PATH", os.defpath))),
        "VIRTUAL_ENV": str(VENV_BIN.parent),
        # Stands for the public certificate that Google serves at a cluster's DNS endpoint.
        "SSL_CERT_FILE": str(run.trust_file),
        "KUBECONFIG": str(run.kubeconfig),
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
        "PULUMI_HOME": str(run.pulumi_home),
        "PULUMI_BACKEND_URL": run.backend.as_uri(),
        "PULUMI_CONFIG_PASSPHRASE": "sandbox",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",
        "PULUMI_GCP_SKIP_REGION_VALIDATION": "true",
        **_google(run),
    }


def _google(run: RunDirectory) -> dict[str, str]:
    """The gcp provider's own variables for endpoints and token, for tools that read no stack configuration."""
    if not run.ready_file.exists():
        return {}
    url = run.emulator_url
    named = {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", setting).upper(): path for setting, path in ENDPOINTS.items()}
    return {
        **{f"GOOGLE_{name}": f"{url}/{path}" for name, path in named.items()},
        "GOOGLE_OAUTH_ACCESS_TOKEN": run.token_file.read_text(),
    }
