"""Previews by the real engine of the program, beside bare programs that register the same provider resources.

Two bare programs, in turn with this one. `plain` hands the recorded inputs to the engine as they are, and loads no
provider SDK. `typed` calls the provider SDK's class for each resource of Google's, with the same inputs. Neither has a
component, a dependency or an option, apart from the provider of what is inside the cluster.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from google.protobuf import json_format

from sandbox.run_directory import RunDirectory
from sandbox.session import Plan, running
from tests.bench.platforms import config
from tests.bench.runs import Run, fastest, preview
from tests.graph.recording import record_main
from tests.sandbox.conftest import link_checkout

SIZES = (100, 1000)
ROUNDS = {100: 5, 1000: 2}
STACK = "bench"
MOST = 1.15
"""What a preview may take beside a bare program's."""
READ = """
import importlib, json, re
from pathlib import Path
import pulumi
RESOURCES = json.loads(Path("resources.json").read_text())
"""
PLAIN = """
provider = None
for type_, name, inputs in RESOURCES:
    if type_ == "pulumi:providers:kubernetes":
        provider = pulumi.ProviderResource("kubernetes", name, inputs)
    else:
        inside = type_.startswith("kubernetes:")
        pulumi.CustomResource(type_, name, inputs, pulumi.ResourceOptions(provider=provider) if inside else None)
"""
TYPED = """
import pulumi_kubernetes
def snake(key):
    return re.sub(r"([a-z0-9])([A-Z])", r"\\1_\\2", key).lower()
provider = None
for type_, name, inputs in RESOURCES:
    package, module, class_ = type_.split(":")
    if type_ == "pulumi:providers:kubernetes":
        provider = pulumi_kubernetes.Provider(name, **{snake(key): value for key, value in inputs.items()})
    elif package == "gcp":
        made = getattr(importlib.import_module("pulumi_gcp." + module.split("/")[0]), class_)
        made(name, **{snake(key): value for key, value in inputs.items()})
    else:
        pulumi.CustomResource(type_, name, inputs, pulumi.ResourceOptions(provider=provider))
"""
IMPORTS = """
import gc, time
import pulumi
import rules.load
gc.disable()
start = time.process_time()
import components.inside_cluster, components.gke.back_end, components.platform
report(time.process_time() - start, 1)
"""
BARE = {"plain": READ + PLAIN, "typed": READ + TYPED}


def recorded(size: int) -> list[tuple[str, str, Any]]:
    """Type, name and inputs of every resource of a platform, as after a finished update: all inputs are known."""
    requests = record_main(config(size)).requests.values()
    return [(each.type, each.name, _whole(json_format.MessageToDict(each.object))) for each in requests if each.custom]


def _whole(value: Any) -> Any:
    """Numbers as Python programs write them; the protocol knows floating-point numbers only."""
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def folders(scratch: Path, size: int) -> dict[str, Path]:
    """A project for each program, with a stack."""
    scratch.mkdir()
    program = link_checkout(scratch / "program")
    settings = {key: json.loads(value) if value.startswith("{") else value for key, value in config(size).items()}
    (program / f"Pulumi.{STACK}.yaml").write_text(yaml.safe_dump({"config": settings}))
    resources = json.dumps(recorded(size))
    project = yaml.safe_load((program / "Pulumi.yaml").read_text())
    found = {"program": program}
    for name, code in BARE.items():
        found[name] = folder = scratch / name
        folder.mkdir()
        (folder / "Pulumi.yaml").write_text(yaml.safe_dump({each: project[each] for each in ("name", "runtime")}))
        (folder / ".venv").symlink_to(sys.prefix)
        (folder / "__main__.py").write_text(code)
        (folder / "resources.json").write_text(resources)
        (folder / f"Pulumi.{STACK}.yaml").write_text(
            yaml.safe_dump({"config": {key: value for key, value in settings.items() if key.startswith("gcp:")}})
        )
    return found


def section(scratch: Path, show: Callable[[str], None]) -> list[str]:
    """The ratios by size."""
    rows, imports = [], fastest(IMPORTS, 0, 3)
    for size in SIZES:
        projects = folders(scratch / str(size), size)
        runs: dict[str, list[Run]] = {name: [] for name in projects}
        with running(RunDirectory(scratch / "run"), Plan(), projects["program"]) as session:
            for _ in range(ROUNDS[size]):
                for name, folder in projects.items():
                    runs[name].append(preview(replace(session, program_dir=folder), STACK)[0])
        seconds = {name: min(run.seconds for run in each) for name, each in runs.items()}
        busy = {name: min(run.busy for run in each) for name, each in runs.items()}
        for name, each in runs.items():
            rows.append(
                f"| {size} | {name} | {each[0].resources} | {seconds[name]:.2f} "
                f"| {seconds['program'] / seconds[name]:.2f} | {busy[name]:.2f} | {busy['program'] / busy[name]:.2f} |"
            )
            show(rows[-1])
    return [
        "A first preview by the real engine and the sandbox's plugins, of this program and of two bare programs that",
        "register the same provider resources; in turn, the fastest of "
        + " and ".join(f"{rounds} ({size} slices)" for size, rounds in ROUNDS.items())
        + ". `plain` loads no",
        "provider SDK and hands the recorded inputs on; `typed` uses the classes of the provider SDK for what is",
        f"Google's. The target is {MOST} beside a bare program.",
        "",
        "| slices | program | resources | seconds | the program beside it | processor seconds | beside it |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"At 100 slices the import of the provider SDKs weighs most: {imports.seconds:.1f} s of processor time, which",
        "`plain` does without and `typed` pays too (`python -X importtime __main__.py` shows where: half of it is",
        "`pulumi_gcp.compute`, which defines all classes of Compute Engine to make a network). The program registers",
        "the Google APIs first, and imports the rest in a thread while the engine starts the plugins.",
    ]
