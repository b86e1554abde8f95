"""Two stacks, a worker and its manager: what each registers, in which order, and that no credential is in the clear."""

import base64
import json
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime import rpc

from components.kubernetes.multikueue_worker import FRAMEWORK_RESOURCES
from plan.kueue_configuration import DISPATCHED
from tests.graph.recording import GraphMonitor, Preview, Update, inputs, reachable, record_main, short
from tests.graph.test_stacks import check_in_cluster_options
from tests.schema.test_kubernetes_objects import validate, whole_numbers

KUEUE = "kubernetes:kueue.x-k8s.io/v1beta2"
SECRET = "kubernetes:core/v1:Secret"
RBAC = "kubernetes:rbac.authorization.k8s.io/v1"
STACK_REFERENCE = "pulumi:pulumi:StackReference"
# The mark of a secret value between program and engine.
SIGNATURE, SECRET_SIGNATURE = rpc._special_sig_key, rpc._special_secret_sig

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
    monkeypatch.setitem(Update.COMPUTED, STACK_REFERENCE, reference)
    monkeypatch.setattr(Preview, "made", _read_in_preview)
    # What the token controller puts into a Secret of that type.
    monkeypatch.setitem(Update.COMPUTED, SECRET, {"data": {"token": base64.b64encode(TOKEN.encode()).decode()}})
    config = {"gcp:project": "my-project", "tpu-platform:platform": json.dumps(platform)}
    return record_main(config, preview=preview)


_made_in_preview = Preview.made


def _read_in_preview(self: Preview, type_: str, name: str) -> tuple[str, dict[str, Any]]:
    """Another stack is read, not made: the engine knows its outputs in a preview too."""
    return Update.made(self, type_, name) if type_ == STACK_REFERENCE else _made_in_preview(self, type_, name)


@pytest.fixture
def worker_graph(monkeypatch: pytest.MonkeyPatch) -> GraphMonitor:
    return recorded(monkeypatch, WORKER)


@pytest.fixture
def manager_graph(monkeypatch: pytest.MonkeyPatch) -> GraphMonitor:
    return recorded(monkeypatch, manager())


@pytest.fixture(params=["worker", "manager"])
def graph(request: pytest.FixtureRequest) -> GraphMonitor:
    """Each side in turn."""
    monitor: GraphMonitor = request.getfixturevalue(f"{request.param}_graph")
    return monitor


def named(graph: GraphMonitor, kind: str, name: str) -> Any:
    """The inputs of the resource of a type whose object has that name, secrets opened."""
    (found,) = (
        opened(inputs(request))
        for request in graph.of_type(kind).values()
        if request.object["metadata"]["name"] == name
    )
    return found


def opened(value: Any) -> Any:
    """A recorded value with its secrets in the clear, as the cluster gets it."""
    if isinstance(value, dict):
        if value.get(SIGNATURE) == SECRET_SIGNATURE:
            return opened(value["value"])
        return {key: opened(item) for key, item in value.items()}
    return [opened(item) for item in value] if isinstance(value, list) else value


def unsealed(value: Any) -> Any:
    """A recorded value without its secrets: what state and logs show."""
    if isinstance(value, dict):
        if value.get(SIGNATURE) == SECRET_SIGNATURE:
            return None
        return {key: unsealed(item) for key, item in value.items()}
    return [unsealed(item) for item in value] if isinstance(value, list) else value


def granted(graph: GraphMonitor, role: str) -> dict[tuple[str, str], set[str]]:
    rules = named(graph, f"{RBAC}:ClusterRole", role)["rules"]
    return {(rule["apiGroups"][0], rule["resources"][0]): set(rule["verbs"]) for rule in rules}


def test_a_manager_only_watches_what_is_in_all_namespaces(worker_graph: GraphMonitor) -> None:
    """H7: the token could write Jobs in every namespace, kube-system included."""
    (binding,) = (
        inputs(request)
        for request in worker_graph.of_type(f"{RBAC}:ClusterRoleBinding").values()
        if request.name.startswith("multikueue")
    )
    assert binding["roleRef"]["name"] == "multikueue-manager"
    assert granted(worker_graph, "multikueue-manager") == {
        ("kueue.x-k8s.io", "workloads"): {"list", "watch"},
        ("batch", "jobs"): {"watch"},
        ("jobset.x-k8s.io", "jobsets"): {"watch"},
    }


def test_a_manager_writes_in_namespaces_of_queues_only(worker_graph: GraphMonitor) -> None:
    bindings = [inputs(request) for request in worker_graph.of_type(f"{RBAC}:RoleBinding").values()]
    assert [binding["metadata"]["namespace"] for binding in bindings] == ["team"]
    assert bindings[0]["roleRef"]["name"] == "multikueue-manager-writer"
    everything = {"create", "delete", "get", "patch", "update"}
    assert granted(worker_graph, "multikueue-manager-writer") == {
        ("kueue.x-k8s.io", "workloads"): everything,
        ("kueue.x-k8s.io", "workloads/status"): {"get", "patch", "update"},
        ("batch", "jobs"): everything,
        ("batch", "jobs/status"): {"get"},
        ("jobset.x-k8s.io", "jobsets"): everything,
        ("jobset.x-k8s.io", "jobsets/status"): {"get"},
    }


def test_another_name_makes_another_token(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = recorded(monkeypatch, WORKER | {"multikueue": {"role": "worker", "token": "token-2026-11"}})
    assert named(graph, SECRET, "multikueue-manager-token-2026-11")["type"] == "kubernetes.io/service-account-token"


def test_every_framework_that_a_manager_queues_can_be_handed_out() -> None:
    assert set(DISPATCHED) == set(FRAMEWORK_RESOURCES)


def test_a_worker_exports_a_kubeconfig_that_kueue_accepts(worker_graph: GraphMonitor) -> None:
    """Kueue refuses kubeconfigs with token files, files of certificates, or unverified servers."""
    assert worker_graph.exports["multikueue"][SIGNATURE] == SECRET_SIGNATURE
    config = yaml.safe_load(opened(worker_graph.exports)["multikueue"])
    (user,) = config["users"]
    (cluster,) = config["clusters"]
    assert user["user"] == {"token": TOKEN}
    assert cluster["cluster"] == {"server": f"https://{Update.ENDPOINT}"}
    (context,) = config["contexts"]
    assert config["current-context"] == context["name"]
    assert context["context"] == {"cluster": cluster["name"], "user": user["name"]}


def test_a_token_that_the_cluster_has_yet_to_fill_in_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """So an update that ended while the Secret was made can be followed by a preview, or by a destroy."""
    recorded(monkeypatch, WORKER)
    monkeypatch.delitem(Update.COMPUTED, SECRET)
    config = {"gcp:project": "my-project", "tpu-platform:platform": json.dumps(WORKER)}
    assert opened(record_main(config).exports)["multikueue"] == rpc.UNKNOWN


def test_only_a_workers_endpoint_takes_the_token(worker_graph: GraphMonitor, manager_graph: GraphMonitor) -> None:
    """By default GKE takes no Kubernetes tokens at the DNS endpoint, which is the one the kubeconfig names."""
    found = {}
    for role, graph in (("worker", worker_graph), ("manager", manager_graph)):
        _, cluster = graph.one("gcp:container/cluster:Cluster")
        endpoint = inputs(cluster)["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]
        found[role] = endpoint.get("enableK8sTokensViaDns")
    assert found == {"worker": True, "manager": None}


def test_the_token_belongs_to_the_account_that_is_bound_to_the_role(worker_graph: GraphMonitor) -> None:
    secret = named(worker_graph, SECRET, "multikueue-manager-token")
    account = named(worker_graph, "kubernetes:core/v1:ServiceAccount", "multikueue-manager")
    binding = named(worker_graph, "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding", "multikueue-manager")
    assert secret["type"] == "kubernetes.io/service-account-token"
    assert secret["metadata"]["annotations"] == {"kubernetes.io/service-account.name": account["metadata"]["name"]}
    assert secret["metadata"]["namespace"] == account["metadata"]["namespace"] == "kueue-system"
    (subject,) = binding["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": "multikueue-manager", "namespace": "kueue-system"}
    assert binding["roleRef"]["name"] == "multikueue-manager"


def test_only_workers_export_a_kubeconfig_with_a_credential(manager_graph: GraphMonitor) -> None:
    assert "multikueue" not in manager_graph.exports


def test_a_manager_reaches_each_worker_by_a_secret(manager_graph: GraphMonitor) -> None:
    secret = named(manager_graph, SECRET, "multikueue-us")
    assert secret["metadata"]["namespace"] == "kueue-system"
    assert secret["stringData"] == {"kubeconfig": KUBECONFIG}
    locations = {
        name: named(manager_graph, f"{KUEUE}:MultiKueueCluster", name)["spec"]["clusterSource"]["kubeConfig"]
        for name in ("us", "lab")
    }
    assert locations == {
        "us": {"locationType": "Secret", "location": "multikueue-us"},
        "lab": {"locationType": "Secret", "location": "lab-kubeconfig"},
    }
    assert len(manager_graph.of_type(SECRET)) == 1, "the other worker's Secret exists"


def test_a_managers_queues_hand_out_all_their_work(manager_graph: GraphMonitor) -> None:
    config = named(manager_graph, f"{KUEUE}:MultiKueueConfig", "multikueue")
    assert config["spec"] == {"clusters": ["us", "lab"]}
    check = named(manager_graph, f"{KUEUE}:AdmissionCheck", "multikueue")
    assert check["spec"]["controllerName"] == "kueue.x-k8s.io/multikueue"
    assert check["spec"]["parameters"]["name"] == "multikueue"
    queue = named(manager_graph, f"{KUEUE}:ClusterQueue", "team")
    # For all flavors: Kueue keeps a queue with a MultiKueue check for some of them inactive.
    assert queue["spec"]["admissionChecksStrategy"] == {"admissionChecks": [{"name": "multikueue"}]}


def test_a_manager_comes_up_in_order(manager_graph: GraphMonitor) -> None:
    (queue,) = manager_graph.of_type(f"{KUEUE}:ClusterQueue")
    before = {short(urn).split()[0] for urn in reachable(manager_graph, queue)}
    assert {"Release", "Secret", "MultiKueueCluster", "MultiKueueConfig", "AdmissionCheck"} <= before


def test_a_manager_makes_no_slices_and_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = manager()
    settings["multikueue"]["slices"] = {"train": TRAIN | {"devices": "dra"}}
    graph = recorded(monkeypatch, settings)
    pools = {request.name for request in graph.of_type("gcp:container/nodePool:NodePool").values()}
    assert pools == {"cpu-pools-system"}
    releases = {request.object["name"] for request in graph.of_type("kubernetes:helm.sh/v3:Release").values()}
    assert releases == {"jobset", "kueue"}
    # Kueue counts the devices of a job before it hands the job out, and looks them up where it runs.
    assert graph.of_type("kubernetes:resource.k8s.io/v1:DeviceClass")
    assert graph.of_type("kubernetes:resource.k8s.io/v1:ResourceClaimTemplate")


def test_a_manager_asks_for_no_capacity_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = manager()
    settings["multikueue"]["slices"] = {"train": TRAIN | {"capacity": "queued"}}
    graph = recorded(monkeypatch, settings)
    assert len(graph.of_type(f"{KUEUE}:AdmissionCheck")) == 1
    assert not graph.of_type(f"{KUEUE}:ProvisioningRequestConfig")


def test_no_credential_is_in_the_clear(graph: GraphMonitor) -> None:
    values = [inputs(request) for request in graph.requests.values()]
    values += graph.outputs.values()
    assert TOKEN in json.dumps(opened(values)), "the token is nowhere: the next line would pass on nothing"
    assert TOKEN not in json.dumps(unsealed(values))


def test_a_worker_that_does_not_say_its_output_is_secret_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulumi.StackReference, "_StackReference__is_secret_name", _not_secret)
    graph = recorded(monkeypatch, manager())
    values = [inputs(request) for request in graph.requests.values()]
    assert TOKEN not in json.dumps(unsealed(values))


async def _not_secret(_reference: pulumi.StackReference, _name: pulumi.Input[str]) -> bool:
    return False


def test_objects_go_with_their_cluster(graph: GraphMonitor) -> None:
    assert check_in_cluster_options(graph) > 0


def test_objects_are_valid(graph: GraphMonitor) -> None:
    looked_at = set()
    for request in graph.requests.values():
        if request.type.startswith("kubernetes:") and "helm" not in request.type:
            _, version, kind = request.type.split(":")
            manifest = opened(whole_numbers(inputs(request)))
            validate({"apiVersion": version.removeprefix("core/"), "kind": kind, **manifest})
            looked_at.add(kind)
    assert {"Secret", "ClusterQueue"} <= looked_at


@pytest.mark.parametrize("platform", [WORKER, manager()], ids=["worker", "manager"])
def test_a_first_preview_shows_what_an_update_makes(monkeypatch: pytest.MonkeyPatch, platform: dict[str, Any]) -> None:
    preview = recorded(monkeypatch, platform, preview=True)
    assert set(preview.requests) == set(recorded(monkeypatch, platform).requests)


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
@pytest.mark.parametrize(
    ("exported", "message"),
    [
        ({}, "stack organization/tpu-platform/us exports no multikueue: write multikueue: {role: worker}"),
        ({"multikueue": KUBECONFIG, "queues": {}}, "worker us has no queue team"),
        ({"multikueue": KUBECONFIG, "queues": {"team": {"namespaces": ["x"]}}}, "takes no work from team: only x"),
    ],
)
def test_a_worker_that_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, exported: dict[str, Any], message: str, preview: bool
) -> None:
    with pytest.raises(pulumi.RunError, match=message.replace("{", r"\{")):
        recorded(monkeypatch, manager(), exported=exported, preview=preview)
