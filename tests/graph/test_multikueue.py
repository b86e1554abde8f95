"""Two stacks, a worker and its manager: what each registers, in which order, and that no credential is in the clear."""

import base64
import json
from typing import Any

import pulumi
import pytest
import yaml
from google.protobuf import json_format

from components.multikueue_worker import FRAMEWORK_RESOURCES
from spec.kueue import FRAMEWORKS
from tests.graph.recording import GraphMonitor, Update, reachable, record_main, short
from tests.graph.test_stacks import check_in_cluster_options
from tests.schema.test_kubernetes_objects import validate, whole_numbers

KUEUE = "kubernetes:kueue.x-k8s.io/v1beta2"
SECRET = "kubernetes:core/v1:Secret"
# The mark of a secret value on the wire between program and engine (Pulumi SDK, `_special_sig_key` and `_special_secret_sig`).
SIGNATURE, SECRET_SIGNATURE = "4dabf18193072939515e22adb298388d", "1b47061264138c4ac30d75fd1eb44270"

TOKEN = "token-of-the-manager"
KUBECONFIG = json.dumps({"users": [{"name": "m", "user": {"token": TOKEN}}]})
TRAIN = {"machine_type": "ct6e-standard-4t", "topology": "4x4", "count": 2}
QUEUES = {"team": {"namespaces": ["team"], "slices": {"train": 2}}}
WORKER = {"zone": "us-east5-b", "slices": {"train": TRAIN}, "queues": QUEUES, "multikueue": {"role": "worker"}}
EXPORTED = {"multikueue": KUBECONFIG, "queues": {"team": {"namespaces": ["team"], "slices": {"train": 2}}}}


def manager(**settings: Any) -> dict[str, Any]:
    """A manager of a stack and of a cluster that somebody else made."""
    workers = {"us": {"stack": "organization/tpu-platform/us"}, "lab": {"secret": "lab-kubeconfig"}}
    return {
        "zone": "us-east5-b",
        "queues": QUEUES,
        "multikueue": {"role": "manager", "workers": workers, "slices": {"train": TRAIN}},
        **settings,
    }


def recorded(
    monkeypatch: pytest.MonkeyPatch,
    platform: dict[str, Any],
    *,
    exported: dict[str, Any] | None = None,
    preview: bool = False,
) -> GraphMonitor:
    """The graph of a platform; `exported` stands for the outputs of the worker's stack."""
    outputs = EXPORTED if exported is None else exported
    reference = {"outputs": outputs, "secretOutputNames": [key for key in outputs if key == "multikueue"]}
    monkeypatch.setitem(Update.COMPUTED, "pulumi:pulumi:StackReference", reference)
    # What the token controller puts into a Secret of that type.
    monkeypatch.setitem(Update.COMPUTED, SECRET, {"data": {"token": base64.b64encode(TOKEN.encode()).decode()}})
    config = {"gcp:project": "my-project", "tpu-platform:platform": json.dumps(platform)}
    return record_main(config, preview=preview)


@pytest.fixture
def worker_graph(monkeypatch: pytest.MonkeyPatch) -> GraphMonitor:
    return recorded(monkeypatch, WORKER)


@pytest.fixture
def manager_graph(monkeypatch: pytest.MonkeyPatch) -> GraphMonitor:
    return recorded(monkeypatch, manager())


@pytest.fixture(params=[WORKER, manager(), manager() | {"multikueue": manager()["multikueue"] | {}}][:2], ids=["worker", "manager"])
def graph(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> GraphMonitor:
    return recorded(monkeypatch, request.param)
