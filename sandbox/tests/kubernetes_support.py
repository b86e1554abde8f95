"""What tests put into an emulated cluster: node pools, and the charts of JobSet and Kueue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sandbox.adapter import Chart
from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.control_plane import RUN_FOR
from sandbox.kubernetes.registry import SOURCES
from sandbox.kubernetes.releases import ReleaseSpec
from sandbox.toolchain.kubernetes_binaries import KUEUE_VERSION

JOBSET_CHART = "oci://registry.k8s.io/jobset/charts/jobset"
KUEUE_CHART = "oci://registry.k8s.io/kueue/charts/kueue"
KUEUE_API = "kueue.x-k8s.io/v1beta2"
ZONE = "us-east5-b"
UNTIL_TOLD = 3600
"""Seconds for which played pods run when a test ends them: see `end`."""
EVERY_CHART = tuple(Chart(address, source.versions) for address, source in SOURCES.items())
"""What the adapter of a program can name."""


def node_pool(name: str, machine: str, nodes: int, topology: str = "", **extra: Any) -> dict[str, Any]:
    """A NodePool as the emulator hands it over. `labels` go into its node configuration."""
    config = {"machineType": machine, "labels": extra.pop("labels", {}), **extra.pop("config", {})}
    pool = {"name": name, "config": config, "currentNodeCount": nodes, "locations": [ZONE], **extra}
    return pool | ({"placementPolicy": {"type": "COMPACT", "tpuTopology": topology}} if topology else {})


def kueue_release(configuration: str, **options: Any) -> ReleaseSpec:
    values = {"managerConfig": {"controllerManagerConfigYaml": configuration}}
    return ReleaseSpec("kueue", "kueue-system", KUEUE_CHART, KUEUE_VERSION, values, **options)


def end(client: ApiClient, pods: Iterable[Object]) -> None:
    """The work of these played pods is done: they succeed now. So nobody has to see within a time that they run."""
    for pod in pods:
        client.patch(pod, {"metadata": {"annotations": {RUN_FOR: "0s"}}})
