"""Slices whose node pools GKE or TPU Provisioner creates: what stands in the graph, and with which rights."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pulumi
import pytest

from components.kubernetes import left_pools
from plan.tpu_provisioner import NAME, NAMESPACE
from rules.load import load_platform
from tests.graph.recording import GraphMonitor, inputs_of, reachable, record_main
from tests.platforms import PROJECT, ZONES
from tests.schema.test_kubernetes_objects import validate, whole_numbers

Json = dict[str, Any]
RESERVED = {"model": "reservation", "name": "res", "project": "owner-project"}
V6E = {"machine_type": "ct6e-standard-4t", "topology": "4x4", "count": 2}
IRON = {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}
DISK = "projects/images/global/images/cache"
KEY = f"projects/{PROJECT}/locations/us-east5/keyRings/r/cryptoKeys/k"
IMAGE = f"example.com/images/tpu-provisioner@sha256:{'0' * 64}"
NODE_POOL = "gcp:container/nodePool:NodePool"


def graph(slices: Json, **platform: Any) -> GraphMonitor:
    written = {"zone": ZONES["v6e"], "name": "lab", "slices": slices, "protect": False, **platform}
    return record_main({"gcp:project": PROJECT, "tpu-platform:platform": json.dumps(written)})


def class_spec(spec: Json, **platform: Any) -> Json:
    """The spec of the ComputeClass of one slice group, valid by GKE's schema."""
    found = inputs_of(graph({"s": spec | {"provisioning": "compute-class"}}, **platform), "compute-classes-lab-s")
    found = whole_numbers(found)
    validate({"apiVersion": "cloud.google.com/v1", "kind": "ComputeClass", **found})
    return dict(found["spec"])


def provisioned(spec: Json | None = None, **settings: Any) -> GraphMonitor:
    """A platform with TPU Provisioner."""
    return graph(
        {"s": V6E | {"capacity": "spot", "provisioning": "tpu-provisioner"} | (spec or {})},
        cluster={"release_channel": "UNSPECIFIED"},
        software={"tpu_provisioner": {"image": IMAGE, **settings}},
    )


def test_a_class_says_all_that_a_declared_pool_would() -> None:
    capacity = [RESERVED, "on-demand", "spot", {"model": "flex-start", "max_run_duration": "1d"}]
    taint = {"key": "team", "value": "alpha"}
    spec = class_spec(V6E | {"capacity": capacity, "taints": [taint], "labels": {"a": "b"}, "kms_key": KEY})
    tpu = {"type": "tpu-v6e-slice", "count": 4, "topology": "4x4"}
    storage = {"bootDiskType": "hyperdisk-balanced", "bootDiskSize": 100, "bootDiskKMSKey": KEY}
    common = {"tpu": tpu, "maxPodsPerNode": 15, "storage": storage}
    here = {"location": {"zones": ["us-east5-b"]}}
    whole = {"name": "res", "project": "owner-project", "zones": ["us-east5-b"]}
    assert spec["priorities"] == [
        common | {"reservations": {"affinity": "Specific", "specific": [whole]}},
        common | here,
        common | here | {"spot": True},
        common | here | {"flexStart": {"enabled": True}, "maxRunDurationSeconds": 86400},
    ]
    assert spec["nodePoolAutoCreation"] == {"enabled": True}
    assert spec["whenUnsatisfiable"] == "DoNotScaleUp", "never hosts of another kind"
    assert spec["activeMigration"] == {"optimizeRulePriority": False}, "never away from a running job"
    assert spec["nodePoolConfig"] == {
        "serviceAccount": "node-identity-account@my-project.iam.gserviceaccount.com",
        "imageType": "cos_containerd",
        "imageStreaming": {"enabled": True},
        "gvnic": {"enabled": True},
        "ipType": "private",
        "nodeLabels": {"a": "b", "tpu-platform/slice": "s", "tpu-platform/flavor": "lab-s"},
        "taints": [{"key": "team", "value": "alpha", "effect": "NoSchedule"}],
    }


@pytest.mark.parametrize(
    ("parts", "specific"),
    [
        ({"block": "b"}, [{"reservationBlock": {"name": "b"}}]),
        (
            {"block": "b", "sub_block": ["s", "t"]},
            [
                {"reservationBlock": {"name": "b", "reservationSubBlock": {"name": "s"}}},
                {"reservationBlock": {"name": "b", "reservationSubBlock": {"name": "t"}}},
            ],
        ),
    ],
)
def test_a_class_takes_parts_of_a_reservation(parts: Json, specific: list[Json]) -> None:
    (priority,) = class_spec(V6E | {"capacity": RESERVED | parts})["priorities"]
    whole = {"name": "res", "project": "owner-project", "zones": ["us-east5-b"]}
    assert priority["reservations"]["specific"] == [whole | part for part in specific]
    assert "location" not in priority, "GKE refuses a location beside a specific reservation"


def test_images_of_a_class_name_their_project() -> None:
    disks = [{"image": DISK}, {"image": "global/images/own"}]
    (priority,) = class_spec(V6E | {"capacity": "spot", "secondary_boot_disks": disks})["priorities"]
    assert priority["storage"]["secondaryBootDisks"] == [
        {"diskImageName": "cache", "project": "images", "mode": "CONTAINER_IMAGE_CACHE"},
        {"diskImageName": "own", "project": PROJECT, "mode": "CONTAINER_IMAGE_CACHE"},
    ]


def test_a_class_of_tpu7x_waits_for_its_workload_policy() -> None:
    (priority,) = class_spec(IRON | {"capacity": "spot"}, zone=ZONES["tpu7x"])["priorities"]
    assert priority["placement"] == {"policyName": "lab-2x2x2"}
    found = graph({"s": IRON | {"capacity": "spot", "provisioning": "compute-class"}}, zone=ZONES["tpu7x"])
    (made,) = (urn for urn, request in found.requests.items() if request.name == "compute-classes-lab-s")
    (policy,) = found.of_type("gcp:compute/resourcePolicy:ResourcePolicy")
    assert policy in reachable(found, made)


@pytest.mark.parametrize(
    ("spec", "closed"),
    [(V6E | {"capacity": "spot", "provisioning": "compute-class"}, True), (V6E | {"capacity": "spot"}, False)],
)
def test_pools_that_gke_creates_have_no_readonly_port(spec: Json, closed: bool) -> None:
    """A ComputeClass cannot say it, so the cluster does. A cluster without such pools stays as it was."""
    found = inputs_of(graph({"s": spec}), "cluster-gke").get("nodePoolAutoConfig")
    expected = {"nodeKubeletConfig": {"insecureKubeletReadonlyPortEnabled": "FALSE"}}
    assert found == (expected if closed else None)


def test_no_slice_is_declared_where_pools_are_created() -> None:
    for found in (graph({"s": V6E | {"capacity": "spot", "provisioning": "compute-class"}}), provisioned()):
        assert [request.name for request in found.of_type(NODE_POOL).values()] == ["cpu-pools-system"]


# --- TPU Provisioner --------------------------------------------------------------------------------------------------


def test_tpu_provisioner_may_manage_pools_and_nothing_else() -> None:
    found = provisioned()
    assert inputs_of(found, "tpu-provisioner-identity-role")["permissions"] == [
        "container.clusters.get",
        "container.clusters.update",
        "container.operations.get",
    ]
    role = "tpu-provisioner-identity-role"
    assert inputs_of(found, "tpu-provisioner-identity-manage-pools")["role"] == f"projects/my-project/roles/{role}"
    roles = {
        name: (inputs["serviceAccountId"], inputs["role"], inputs["member"])
        for name in ("act-as", "pods")
        for inputs in [inputs_of(found, f"tpu-provisioner-identity-{name}")]
    }
    own = "tpu-provisioner-identity-account@my-project.iam.gserviceaccount.com"
    nodes = "node-identity-account@my-project.iam.gserviceaccount.com"
    assert roles == {
        "act-as": (
            f"projects/{PROJECT}/serviceAccounts/{nodes}",
            "roles/iam.serviceAccountUser",
            f"serviceAccount:{own}",
        ),
        "pods": (
            f"projects/my-project/serviceAccounts/{own}",
            "roles/iam.workloadIdentityUser",
            f"serviceAccount:{PROJECT}.svc.id.goog[{NAMESPACE}/{NAME}]",
        ),
    }


def test_a_new_account_gets_a_role_of_another_id() -> None:
    """A deleted role keeps its id for weeks: `up` after `destroy` once would have been refused."""
    assert inputs_of(provisioned(), "tpu-provisioner-identity-role")["roleId"].endswith(
        "number of tpu-provisioner-identity-account"
    )


def test_tpu_provisioner_only_reads_in_the_cluster() -> None:
    found = provisioned()
    rules = {
        (resource, verb)
        for rule in inputs_of(found, "tpu-provisioner-role")["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    seen = {(resource, verb) for resource in ("nodes", "pods", "jobsets") for verb in ("get", "list", "watch")}
    assert rules == seen | {("events", "create"), ("events", "patch")}


def test_tpu_provisioner_acts_as_the_account_that_its_hosts_have() -> None:
    other = "hosts@other-project.iam.gserviceaccount.com"
    found = provisioned({"service_account": other})
    account = inputs_of(found, "tpu-provisioner-identity-act-as")["serviceAccountId"]
    assert account == f"projects/-/serviceAccounts/{other}"
    assert inputs_of(found, "tpu-provisioner-config")["data"]["GCP_NODE_SERVICE_ACCOUNT"] == other


def test_every_setting_of_tpu_provisioner_follows_from_the_platform() -> None:
    spec = {
        "tags": ["a", "b"],
        "kms_key": KEY,
        "secondary_boot_disks": [{"image": DISK}],
        "additional_networks": [{"network": "n", "subnetwork": "s"}],
        "image_streaming": True,
    }
    found = provisioned(spec, concurrency=5, pod_to_node_labels=["team", "job"])
    assert inputs_of(found, "tpu-provisioner-config")["data"] == {
        "CONCURRENCY": "5",
        "ENABLE_IMAGE_STREAMING": "true",
        "GCP_CLUSTER": "lab",
        "GCP_CLUSTER_LOCATION": "us-east5",
        "GCP_NODE_ADDITIONAL_NETWORKS": "n:s",
        "GCP_NODE_BOOT_DISK_KMS_KEY": KEY,
        "GCP_NODE_DISK_TYPE": "hyperdisk-balanced",
        "GCP_NODE_SECONDARY_DISK": DISK,
        "GCP_NODE_SERVICE_ACCOUNT": "node-identity-account@my-project.iam.gserviceaccount.com",
        "GCP_NODE_TAGS": "a,b",
        "GCP_POD_TO_NODE_LABELS": "team,job",
        "GCP_PROJECT_ID": PROJECT,
        "GCP_ZONE": "us-east5-b",
    }


def config_hash(monitor: GraphMonitor) -> str:
    template = inputs_of(monitor, "tpu-provisioner-deployment")["spec"]["template"]
    return str(template["metadata"]["annotations"]["tpu-platform/config-hash"])


def test_other_settings_start_the_controller_anew() -> None:
    assert config_hash(provisioned()) == config_hash(provisioned())
    assert config_hash(provisioned()) != config_hash(provisioned(concurrency=2))


def test_policies_of_tpu7x_have_the_names_that_tpu_provisioner_looks_for() -> None:
    found = graph(
        {"s": IRON | {"capacity": "spot", "provisioning": "tpu-provisioner"}},
        zone=ZONES["tpu7x"],
        cluster={"release_channel": "UNSPECIFIED"},
        software={"tpu_provisioner": {"image": IMAGE}},
    )
    (policy,) = found.of_type("gcp:compute/resourcePolicy:ResourcePolicy").values()
    assert policy.object["name"] == "tpu-provisioner-2x2x2"


def test_a_cluster_without_a_channel_has_no_exclusion_that_needs_one() -> None:
    cluster = inputs_of(provisioned(), "cluster-gke")
    assert cluster["releaseChannel"] == {"channel": "UNSPECIFIED"}
    assert not cluster["maintenancePolicy"].get("maintenanceExclusions")


# --- what stays when the controller goes ------------------------------------------------------------------------------


def node(pool: str, jobset: str) -> Json:
    labels = {
        "cloud.google.com/gke-nodepool": pool,
        "google.com/tpu-provisioner-jobset-namespace": "team-a",
        "google.com/tpu-provisioner-jobset-name": jobset,
    }
    return {"metadata": {"labels": labels}}


async def _named(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[str]:
    warnings: list[str] = []
    hooks: list[Any] = []
    monkeypatch.setattr(pulumi.log, "warn", warnings.append)
    monkeypatch.setattr(left_pools, "kubectl", answer)
    monkeypatch.setattr(left_pools.pulumi, "ResourceHook", lambda _name, callback: hooks.append(callback))
    platform = load_platform({"zone": ZONES["v6e"], "slices": {"s": V6E}}, project=PROJECT)
    left_pools.left_pools_hook(platform, pulumi.Output.from_input("kubeconfig"))
    await hooks[0](None)
    return warnings


def test_pools_that_stay_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def two_pools(_kubeconfig: str, arguments: list[str], _seconds: int) -> str:
        assert "--selector=google.com/nodepool-manager=tpu-provisioner" in arguments
        return json.dumps({"items": [node("b-1", "train"), node("a-1", "eval"), node("a-1", "eval")]})

    (warning,) = asyncio.run(_named(monkeypatch, two_pools))
    assert "a-1 (of JobSet team-a/eval), b-1 (of JobSet team-a/train)" in warning
    assert "--cluster tpu --location us-east5 --project my-project" in warning


def test_nothing_is_said_where_no_pool_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(_kubeconfig: str, _arguments: list[str], _seconds: int) -> str:
        return json.dumps({"items": []})

    assert asyncio.run(_named(monkeypatch, none)) == []


def test_a_cluster_that_does_not_answer_does_not_stop_a_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_kubeconfig: str, _arguments: list[str], _seconds: int) -> str:
        raise left_pools.KubectlError("connection refused")

    (warning,) = asyncio.run(_named(monkeypatch, fails))
    assert "cannot be listed: connection refused" in warning
