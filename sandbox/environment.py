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
from pathlib import Path

from sandbox.run_directory import CHECKOUT, RUN_VARIABLE, RunDirectory
from sandbox.stacks import ENDPOINTS

VENV_BIN = Path(sys.executable).parent

# A plugin's real executable comes from `pulumi plugin install`; these modules stand in for it where it is not there.
PLUGINS = {"gcp": "sandbox.plugins.gcp", "kubernetes": "sandbox.plugins.kubernetes"}

# Variables that would lead the engine, a plugin, kubectl or gcloud to something other than the sandbox.
FOREIGN = ("PULUMI_", "GOOGLE_", "GCLOUD_", "CLOUDSDK_", "KUBECONFIG")


def install(run: RunDirectory, pulumi: Path, kubectl: Path, *, real_plugins: bool = True) -> dict[str, str]:
    """Write the executables of a sandbox; `pulumi` is the real engine, `kubectl` fits the clusters' version.

    A provider plugin that the user has installed is taken unless `real_plugins` is off. Returns where the engine and
    each plugin come from.
    """
    run.bin.mkdir()
    _module_shim(run.bin / "pulumi", "sandbox.stacks", str(run.root), str(pulumi))
    _module_shim(run.bin / "gcloud", "sandbox.gcloud", str(run.root))
    (run.bin / "kubectl").symlink_to(kubectl)
    _executable(run.bin / "gke-gcloud-auth-plugin", _auth_plugin(run.token_file))
    origins = {f"{name} plugin": _install_plugin(run, name, module, real_plugins) for name, module in PLUGINS.items()}
    return {"engine": str(pulumi), **origins}


def _install_plugin(run: RunDirectory, name: str, module: str, real_plugins: bool) -> str:
    """Put the plugin where the engine looks for installed ones, under the version that the SDK asks for."""
    version = importlib.metadata.version(f"pulumi-{name}")
    folder = run.pulumi_home / "plugins" / f"resource-{name}-v{version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    users_home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    real = users_home / "plugins" / folder.name
    if real_plugins and (real / f"pulumi-resource-{name}").exists():
        folder.symlink_to(real)
        return f"real plugin {version}"
    folder.mkdir()
    _module_shim(folder / f"pulumi-resource-{name}", module)
    return f"stand-in for {version}"


def _executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _module_shim(path: Path, module: str, *arguments: str) -> None:
    """An executable that runs a module of this checkout; -P and the explicit path keep the user's directory out."""
    code = (
        f"import runpy, sys; sys.path.insert(0, {str(CHECKOUT)!r}); "
        f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    )
    command = shlex.join([sys.executable, "-P", "-c", code, *arguments])
    _executable(path, f'#!/bin/sh\nexec {command} "$@"\n')


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
