"""What the sandbox is told of the program: the charts that it installs, names in its hosts, commands of the demo."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from rich.console import Console

from components.kubernetes import device_plugin
from plan.hosts import boot_metadata
from sandbox import adapter
from sandbox.kubernetes import registry
from sandbox.workload import WorkloadError, manifest
from sandbox_adapter import PROGRAM, Choice, choose, tables, workload_command
from tests.graph.conftest import recorded
from tests.graph.recording import STACK_FILES
from tests.platforms import SELF_MANAGED, load
from tests.sandbox.conftest import ROOT

OUTPUTS: dict[str, Any] = {
    "cluster": {"name": "tpu-dev", "endpoint": "gke-1.example"},
    "slices": {
        "serve": {
            "machine_type": "ct6e-standard-1t",
            "topology": "1x1",
            "capacity": "spot",
            "count": 2,
            "hosts_per_slice": 1,
            "chips_per_slice": 1,
            "group_price_per_hour_usd": None,
        }
    },
    "totals": {"chips": 2},
}


def test_the_settings_name_it() -> None:
    assert adapter.load(ROOT) is PROGRAM


def test_the_sandbox_runs_every_version_that_a_stack_file_may_name() -> None:
    """The versions of JobSet and Kueue are pinned a second time, with hashes, in sandbox/toolchain."""
    registry.require(PROGRAM.charts)


@pytest.mark.parametrize("stack_file", STACK_FILES, ids=lambda path: path.stem)
def test_it_names_the_charts_that_the_program_installs(stack_file: Path) -> None:
    named = {(chart.address, version) for chart in PROGRAM.charts for version in chart.versions}
    releases = [
        json_format.MessageToDict(request.object)
        for request in recorded(stack_file, preview=False).requests.values()
        if request.type == "kubernetes:helm.sh/v3:Release"
    ]
    assert releases
    assert {(release["chart"], release["version"]) for release in releases} <= named


def test_its_names_are_those_of_the_hosts() -> None:
    """The whole of it is in test_guests_stack.py: a self-managed stack does not come up with any of them wrong."""
    machines = PROGRAM.machines
    assert machines
    assert machines.device_plugin == device_plugin.NAME
    assert all(key.startswith(machines.attribute_prefix) for key in boot_metadata(load(cluster=SELF_MANAGED)))
    scripts = "".join(path.read_text() for path in (ROOT / "components" / "compute" / "bootstrap").glob("*.sh"))
    assert f"readonly DEVICE=/dev/disk/by-id/google-{machines.data_disk}\n" in scripts
    assert f"readonly ACCOUNT={machines.deployer}\n" in scripts
    assert f'name: "{machines.own_node}"' in scripts


@pytest.mark.parametrize(
    ("queues", "choice"),
    [
        ({"team": {"slices": {"serve": 1}}}, Choice("serve", "team", 1)),
        ({"team": {"slices": {"train": 8}}}, Choice("train", "team", 2)),
        ({"a": {"slices": {"one": 1}}, "b": {"slices": {"none": 0, "pair": 2}}}, Choice("pair", "b", 2)),
        ({"borrower": {"slices": {"train": 0}}}, None),
        ({}, None),
        (None, None),
    ],
)
def test_the_widest_job_is_chosen_of_queues_that_own_slices(queues: Any, choice: Choice | None) -> None:
    assert choose({"queues": queues}) == choice


def test_the_manifest_is_the_tools_own() -> None:
    job = manifest(workload_command("blueprint", Choice("train", "training", 2), "--name", "mine"), ROOT, 2.5)
    assert job["kind"] == "JobSet"
    assert job["metadata"]["name"] == "mine"
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "training"}
    [slices] = job["spec"]["replicatedJobs"]
    assert slices["replicas"] == 2


def test_a_workload_that_does_not_fit_is_refused_in_the_tools_words() -> None:
    with pytest.raises(WorkloadError, match="no queue nowhere: it has training"):
        manifest(workload_command("blueprint", Choice("train", "nowhere", 1)), ROOT, 1)


def test_tables_show_what_the_stack_exports() -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(*tables(OUTPUTS))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for word in ("serve", "ct6e-standard-1t", "1x1", "spot", "2", "unknown", "gke-1.example"):
        assert word in shown


def test_both_locks_pin_the_same() -> None:
    """The sandbox is tested with what its own lock says."""

    def pins(file: str) -> set[str]:
        return set(re.findall(r"^\S+==\S+", (ROOT / file).read_text(), re.MULTILINE))

    assert pins("sandbox/requirements.txt") <= pins("requirements-dev.txt")
