"""What a sandbox has to know of the Pulumi program that it runs: one object, handed over by the program.

The program's pyproject.toml names it:

    [tool.sandbox]
    adapter = "sandbox_adapter:PROGRAM"

The module is imported with the program's folder on the path, by each process of a sandbox, so it should import little.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import RenderableType

SETTING = "adapter"
EXAMPLE = f'write {SETTING} = "module:object", or {SETTING} = "sandbox.adapter:PLAIN" for a program that needs nothing'

# A stack's outputs, as `pulumi stack output --json` prints them.
Outputs = Mapping[str, Any]


class AdapterError(Exception):
    """The program's adapter is missing, or is not what a sandbox can use; the message says what to write."""


@dataclass(frozen=True)
class Chart:
    """A Helm chart that the program installs: its address as its releases name it, and every version they may ask for.

    A sandbox serves these charts and no others; which ones it can serve is in `sandbox.kubernetes.registry.SOURCES`.
    """

    address: str
    versions: tuple[str, ...]


@dataclass(frozen=True)
class MachineNames:
    """The names that machines of the program's self-managed clusters use; `sandbox.guests` simulates these machines.

    `attribute_prefix` begins the instance metadata attributes that say what a machine is to be ("tpu-" for `tpu-role`);
    `data_disk` is the device name of the disk that holds a control plane's etcd. In the cluster: `deployer` is the
    ServiceAccount in kube-system whose token the control plane publishes, `own_node` the ClusterRole that lets nodes
    delete themselves, `device_plugin` the DaemonSet in kube-system that hands out chips.
    """

    attribute_prefix: str
    data_disk: str
    deployer: str
    own_node: str
    device_plugin: str


@dataclass(frozen=True)
class SampleJob:
    """A job that shows what a stack is for: the JobSet that a command prints, for a queue of Kueue in a cluster.

    `command` are the arguments of Python in the program's folder, `endpoint` is the address of the cluster.
    `leaves_no_hosts`: the hosts of the job are created for it, and go when it is over.
    """

    command: tuple[str, ...]
    endpoint: str
    leaves_no_hosts: bool = False


@dataclass(frozen=True)
class Others:
    """What others own in a project before a platform comes, and after it.

    `buckets`: name -> place; `secrets`: id -> text of the only version; `accounts`: ids of service accounts.
    """

    project: str
    buckets: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    accounts: Sequence[str] = ()


def _no_tables(_outputs: Outputs) -> Sequence[RenderableType]:
    return ()


def _plain_destroy(_outputs: Outputs) -> Sequence[str]:
    return ()


@dataclass(frozen=True)
class Program:
    """All of it. What is left out, the program does not have.

    For the demonstration: `explain` gives, for a stack's name, the arguments of Python that say in words what the stack
    is; `tables` shows the stack's outputs; `job` gives the job to run in it, None where this stack has none; `destroy`
    gives the arguments that `pulumi destroy` needs for this stack beside `--yes`.

    `images` are names of container images in the program's manifests, and which image of `sandbox.hosts.images` real
    hosts take each of them for: {"docker.io/my/jax:1": "sandbox/jax:1"}. `others` is what its stacks find in their
    project and do not make.
    """

    charts: tuple[Chart, ...] = ()
    machines: MachineNames | None = None
    explain: Callable[[str], Sequence[str]] | None = None
    tables: Callable[[Outputs], Sequence[RenderableType]] = _no_tables
    job: Callable[[str, Outputs], SampleJob | None] | None = None
    destroy: Callable[[Outputs], Sequence[str]] = _plain_destroy
    images: Mapping[str, str] = field(default_factory=dict)
    others: Others | None = None


PLAIN = Program()
"""For a program without charts, machines of its own and anything to show."""


def load(folder: Path) -> Program:
    """The adapter of the program in a folder. A process has one program. Raises AdapterError."""
    file = folder / "pyproject.toml"
    name = _named(file)
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute.isidentifier()):
        raise AdapterError(f"{file}: [tool.sandbox] {SETTING} is {name!r} -> {EXAMPLE}")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise AdapterError(f"{file}: [tool.sandbox] {SETTING} {name!r} cannot be had: {error}") from error
    if not isinstance(found, Program):
        raise AdapterError(f"{file}: [tool.sandbox] {SETTING} {name!r} is no sandbox.adapter.Program: {found!r}")
    return found


def _named(file: Path) -> str:
    """The setting, as text."""
    try:
        settings = tomllib.loads(file.read_text()).get("tool", {}).get("sandbox", {})
    except FileNotFoundError:
        raise AdapterError(f"there is no {file}; below [tool.sandbox] {EXAMPLE}") from None
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise AdapterError(f"{file} cannot be read: {error}") from None
    if unknown := settings.keys() - {SETTING}:
        raise AdapterError(f"{file}: [tool.sandbox] knows no {', '.join(sorted(unknown))} -> {EXAMPLE}")
    if SETTING not in settings:
        raise AdapterError(f"{file}: [tool.sandbox] {SETTING} is missing -> {EXAMPLE}")
    return str(settings[SETTING])
