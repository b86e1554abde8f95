"""The stand-in against the emulator: what a team gets. Buckets, repositories, secrets, identity pools, members."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from sandbox import google
from sandbox.google.project_numbers import project_number
from sandbox.plugins.provider import ProviderError
from sandbox.tests.gcp_plugin_support import config_at, configured, plain_outputs, subject
from sandbox.tests.test_gcp_plugin_self_managed import Platform

Json = dict[str, Any]
REGION, PROJECT = "us-central1", "proj"
NUMBER = project_number(PROJECT)
GKE_POOL = f"iam.googleapis.com/projects/{NUMBER}/locations/global/workloadIdentityPools/{PROJECT}.svc.id.goog"
PODS = f"principalSet://{GKE_POOL}/namespace/research"
ISSUER = "https://kubernetes.default.svc.cluster.local"

TEAM: dict[str, tuple[str, Callable[[dict[str, Json]], Json]]] = {
    "store": (
        "gcp:storage/bucket:Bucket",
        lambda o: {
            "name": "proj-research-checkpoints",
            "location": REGION,
            "uniformBucketLevelAccess": True,
            "publicAccessPrevention": "enforced",
            "hierarchicalNamespace": {"enabled": True},
            "softDeletePolicy": {"retentionDurationSeconds": 0},
            "lifecycleRules": [
                {"action": {"type": "Delete"}, "condition": {"age": 30}},
                {"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 7}},
            ],
            "labels": {"team": "research"},
        },
    ),
    "pods": (
        "gcp:storage/bucketIAMMember:BucketIAMMember",
        lambda o: {"bucket": o["store"]["name"], "role": "roles/storage.objectUser", "member": PODS},
    ),
    "pods-bucket": (
        "gcp:storage/bucketIAMMember:BucketIAMMember",
        lambda o: {"bucket": o["store"]["name"], "role": "roles/storage.legacyBucketReader", "member": PODS},
    ),
    "people": (
        "gcp:projects/iAMMember:IAMMember",
        lambda o: {
            "project": PROJECT,
            "role": "roles/container.clusterViewer",
            "member": "group:research@example.com",
        },
    ),
    "images": (
        "gcp:artifactregistry/repository:Repository",
        lambda o: {
            "repositoryId": "ml",
            "location": REGION,
            "format": "DOCKER",
            "dockerConfig": {"immutableTags": True},
            "cleanupPolicies": [{"id": "old", "action": "DELETE", "condition": {"olderThan": "2592000s"}}],
            "labels": {"team": "research"},
        },
    ),
    "hub": (
        "gcp:artifactregistry/repository:Repository",
        lambda o: {
            "repositoryId": "hub",
            "location": REGION,
            "format": "DOCKER",
            "mode": "REMOTE_REPOSITORY",
            "remoteRepositoryConfig": {"dockerRepository": {"publicRepository": "DOCKER_HUB"}},
        },
    ),
    "pull": (
        "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember",
        lambda o: {
            "location": REGION,
            "repository": o["images"]["name"],
            "role": "roles/artifactregistry.reader",
            "member": "group:research@example.com",
        },
    ),
    "token": (
        "gcp:secretmanager/secret:Secret",
        lambda o: {"secretId": "hf-token", "replication": {"auto": {}}},
    ),
    "reads": (
        "gcp:secretmanager/secretIamMember:SecretIamMember",
        lambda o: {
            "secretId": "hf-token",
            "role": "roles/secretmanager.secretAccessor",
            "member": f"principal://{GKE_POOL}/subject/ns/research/sa/secrets",
        },
    ),
    "pool": (
        "gcp:iam/workloadIdentityPool:WorkloadIdentityPool",
        lambda o: {"workloadIdentityPoolId": "dev-4f2a", "displayName": "dev"},
    ),
    "keys": (
        "gcp:iam/workloadIdentityPoolProvider:WorkloadIdentityPoolProvider",
        lambda o: {
            "workloadIdentityPoolId": o["pool"]["workloadIdentityPoolId"],
            "workloadIdentityPoolProviderId": "cluster",
            "oidc": {"issuerUri": ISSUER, "jwksJson": '{"keys": []}'},
            "attributeMapping": {
                "google.subject": "assertion.sub",
                "attribute.namespace": "assertion['kubernetes.io']['namespace']",
            },
        },
    ),
    "other pods": (
        "gcp:storage/bucketIAMMember:BucketIAMMember",
        lambda o: {
            "bucket": o["store"]["name"],
            "role": "roles/storage.objectViewer",
            "member": f"principalSet://iam.googleapis.com/{o['pool']['name']}/attribute.namespace/research",
        },
    ),
}


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    with google.serving() as running:
        yield running.url


@pytest.fixture
def team(emulator: str) -> Iterator[Platform]:
    provider = configured(**config_at(emulator))
    made = Platform(emulator, provider, TEAM)
    made.call("POST", "/sandbox/reset")
    yield made
    provider.cancel()


def put(team: Platform, bucket: str, name: str, content: str = "x") -> None:
    url = f"{team.url}/upload/storage/v1/b/{bucket}/o"
    query = {"uploadType": "media", "name": name}
    answer = httpx.post(url, params=query, content=content, headers={"Authorization": "Bearer token"})
    assert answer.status_code == 200, answer.text


def test_everything_lives_settles_and_dies(team: Platform) -> None:
    team.up()
    assert {name: found for name in TEAM if (found := team.plan(name))} == {}
    for name in TEAM:
        team.refresh(name)
    assert {name: found for name in TEAM if (found := team.plan(name))} == {}
    pool = f"projects/{NUMBER}/locations/global/workloadIdentityPools/dev-4f2a"
    assert (team.outputs["pool"]["name"], team.outputs["pool"]["state"]) == (pool, "ACTIVE")
    assert team.outputs["keys"]["name"] == f"{pool}/providers/cluster"
    assert team.ids["images"] == f"projects/{PROJECT}/locations/{REGION}/repositories/ml"
    assert (team.outputs["images"]["name"], team.outputs["store"]["url"]) == ("ml", "gs://proj-research-checkpoints")
    assert team.outputs["images"]["registryUri"] == f"{REGION}-docker.pkg.dev/{PROJECT}/ml"
    team.destroy()
    assert team.inventory() == {}


EDITS: dict[str, tuple[str, Json]] = {
    "store, rules": ("store", {"lifecycleRules": [{"action": {"type": "Delete"}, "condition": {"age": 7}}]}),
    "store, soft delete": ("store", {"softDeletePolicy": {"retentionDurationSeconds": 604800}}),
    "images, labels": ("images", {"labels": {"team": "serving"}}),
    "images, policies": ("images", {"cleanupPolicies": [{"id": "few", "action": "DELETE"}]}),
    "images, description": ("images", {"description": "images of the team"}),
    "pool": ("pool", {"displayName": "other"}),
    "keys": ("keys", {"attributeCondition": "assertion.sub.startsWith('system:')"}),
}


@pytest.mark.parametrize("case", EDITS)
def test_an_edit_is_made_in_place_and_undone(team: Platform, case: str) -> None:
    name, changed = EDITS[case]
    team.up(*list(TEAM)[: list(TEAM).index(name) + 1])
    before = {key: team.inputs[name].get(key) for key in changed}
    for values in (changed, before):
        planned = team.plan(name, **values)
        assert list(planned.values()) == [False] * max(len(planned), 1), planned
        team.update(name, **values)
        assert team.plan(name) == {}
        team.refresh(name)
        assert team.plan(name) == {}


REPLACED: dict[str, tuple[str, Json]] = {
    "place of a bucket": ("store", {"location": "us-east5"}),
    "hierarchical namespace": ("store", {"hierarchicalNamespace": {"enabled": False}}),
    "upstream": ("hub", {"remoteRepositoryConfig": {"dockerRepository": {"customRepository": {"uri": "https://x"}}}}),
    "member of a repository": ("pull", {"member": "group:other@example.com"}),
    "id of a pool": ("pool", {"workloadIdentityPoolId": "dev-0000"}),
}


@pytest.mark.parametrize("case", REPLACED)
def test_a_plan_says_that_a_change_replaces(team: Platform, case: str) -> None:
    name, changed = REPLACED[case]
    team.up(*list(TEAM)[: list(TEAM).index(name) + 1])
    assert any(team.plan(name, **changed).values())


def test_a_bucket_with_objects_is_deleted_only_by_force(team: Platform) -> None:
    team.up("store")
    put(team, "proj-research-checkpoints", "step/100")
    about, outputs = subject(TEAM["store"][0], "store"), team.outputs["store"]
    with pytest.raises(ProviderError, match="containing objects without `force_destroy` set to true"):
        team.provider.delete(about, team.ids["store"], outputs, 60)
    assert team.inventory()["storage.objects"] == ["100"]
    team.update("store", forceDestroy=True)
    team.destroy()
    assert team.inventory() == {}


def test_a_name_that_is_taken_ends_the_creation(team: Platform) -> None:
    team.up("store")
    with pytest.raises(ProviderError, match="Error 409: The requested bucket name is not available"):
        team.create("store")


def test_a_deleted_pool_counts_as_gone_and_keeps_its_id(team: Platform) -> None:
    team.up("store", "pool", "keys")
    state = team.inputs["pool"], team.outputs["pool"], team.ids["pool"]
    for name in ("keys", "pool"):
        team.provider.delete(subject(TEAM[name][0], name), team.ids.pop(name), team.outputs[name], 60)
    gone = team.provider.read(subject(TEAM["pool"][0], "pool"), state[2], state[0], state[1])
    assert gone.id == ""
    with pytest.raises(ProviderError, match="Error 409: Requested entity already exists"):
        team.create("pool")
    team.call("POST", f"/iam/v1/{state[1]['name']}:undelete", {})
    back = team.provider.read(subject(TEAM["pool"][0], "pool"), state[2], state[0], state[1])
    assert back.outputs["state"] == "ACTIVE"


def test_a_project_is_read_by_a_function(team: Platform) -> None:
    token = "gcp:organizations/getProject:getProject"
    found = team.provider.invoke(token, {"projectId": PROJECT})
    assert (found["number"], found["projectId"], found["id"]) == (NUMBER, PROJECT, f"projects/{PROJECT}")
    assert team.provider.invoke(token, {})["number"] == NUMBER


def test_an_imported_bucket_stays_the_bucket_that_its_program_describes(team: Platform) -> None:
    """Its state has the place in capitals, as Google writes it; as a change that would replace the bucket."""
    team.up()
    kind, inputs = TEAM["store"]
    news = {**inputs({}), "project": PROJECT, "forceDestroy": False}
    state = team.provider.read(subject(kind, "store"), "proj-research-checkpoints", {}, {})
    changes = team.provider.diff(subject(kind, "store"), plain_outputs(state.outputs), news, ()).changes
    assert [change.path for change in changes if change.replace] == []
    moved = team.provider.diff(
        subject(kind, "store"), plain_outputs(state.outputs), news | {"location": "us-east5"}, ()
    ).changes
    assert [change.path for change in moved if change.replace] == ["location"]
