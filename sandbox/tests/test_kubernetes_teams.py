"""What GKE's add-ons do for a team, on played hosts: the FUSE driver's webhook and checks, and copies of secrets."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from sandbox.kubernetes.api import ApiError, Object, condition
from sandbox.kubernetes.fuse import DRIVER, ENABLED, PREFETCH, SIDECAR
from sandbox.kubernetes.nodes import METADATA_LABEL
from sandbox.tests.emulated_google import PROJECT
from sandbox.tests.kubernetes_support import node_pool
from sandbox.tests.real_hosts import eventually
from sandbox.tests.team_support import (
    BUCKET,
    READER,
    TEAM,
    WRITE,
    Site,
    claim,
    pod,
    secret_objects,
    set_secret,
    site,
)

pytestmark = pytest.mark.sandbox

ASKS = {ENABLED: "true"}
CLAIM: Object = {"persistentVolumeClaim": {"claimName": "data"}}


@pytest.fixture(scope="module")
def place() -> Iterator[Site]:
    pools = [node_pool("system", "e2-standard-8", 1), node_pool("tpu", "ct6e-standard-1t", 1)]
    with site(pools) as made:
        eventually("the driver is on", lambda: made.client.get("storage.k8s.io/v1", "CSIDriver", DRIVER))
        for each in claim():
            made.client.create(each)
        yield made


@pytest.fixture(autouse=True)
def tidy(place: Site) -> Iterator[None]:
    place.grant_bucket(*WRITE)
    yield
    for each in place.client.list_all("v1", "Pod"):
        place.client.delete(each, grace_seconds=0)


def runs(place: Site, name: str) -> bool:
    found = place.client.get("v1", "Pod", name, TEAM)
    return bool(found and found["status"].get("phase") == "Running")


def failures(place: Site, name: str, namespace: str = TEAM) -> list[str]:
    events = place.events(name, namespace)
    return [each for each in events if each.startswith("MountVolume.SetUp failed for volume ")]


def refused(place: Site, name: str) -> str:
    """The driver's part of the event of a pod that is not mounted; the pod must still be being created."""
    mine = eventually("an event", lambda: failures(place, name))
    found = place.client.get("v1", "Pod", name, TEAM)
    assert found
    assert found["status"]["phase"] == "Pending"
    assert found["status"]["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    return mine[0].partition(" : rpc error: code = ")[2]


def test_a_pod_with_annotation_and_grant_gets_its_sidecar_and_runs(place: Site) -> None:
    made = place.client.create(pod("good", CLAIM, ASKS))
    first = made["spec"]["initContainers"][0]
    assert (first["name"], first["restartPolicy"], first["securityContext"]["runAsUser"]) == (SIDECAR, "Always", 65534)
    assert first["resources"] == {
        "limits": {"cpu": "250m", "memory": "256Mi", "ephemeral-storage": "5Gi"},
        "requests": {"cpu": "250m", "memory": "256Mi", "ephemeral-storage": "5Gi"},
    }
    assert {each["name"] for each in made["spec"]["volumes"]} >= {"gke-gcsfuse-tmp", "gke-gcsfuse-buffer"}
    eventually("runs", lambda: runs(place, "good"))


def test_annotations_set_the_sidecars_resources(place: Site) -> None:
    wanted = {
        **ASKS,
        "gke-gcsfuse/cpu-limit": "0",
        "gke-gcsfuse/ephemeral-storage-limit": "0",
        "gke-gcsfuse/memory-limit": "20Gi",
    }
    made = place.client.create(pod("sized", CLAIM, wanted))
    assert made["spec"]["initContainers"][0]["resources"] == {
        "limits": {"memory": "20Gi"},
        "requests": {"cpu": "250m", "memory": "20Gi", "ephemeral-storage": "5Gi"},
    }


def test_a_volume_that_wants_its_metadata_first_gets_a_second_container(place: Site) -> None:
    for each in claim("early", gcsfuseMetadataPrefetchOnMount="true"):
        place.client.create(each)
    made = place.client.create(pod("early", {"persistentVolumeClaim": {"claimName": "early"}}, ASKS))
    assert [each["name"] for each in made["spec"]["initContainers"]] == [SIDECAR, PREFETCH]
    assert made["spec"]["initContainers"][1]["volumeMounts"][0] == {
        "name": "data",
        "mountPath": "/volumes/data",
        "readOnly": True,
    }


def test_without_the_annotation_there_is_no_sidecar_and_no_mount(place: Site) -> None:
    made = place.client.create(pod("bare", CLAIM))
    assert "initContainers" not in made["spec"]
    assert refused(place, "bare") == "FailedPrecondition desc = failed to find the sidecar container in Pod spec"


def test_a_missing_grant_holds_the_pod_until_it_is_given(place: Site) -> None:
    place.grant_bucket()
    place.client.create(pod("early-bird", CLAIM, ASKS))
    assert refused(place, "early-bird") == (
        f'PermissionDenied desc = failed to get GCS bucket "{BUCKET}": googleapi: Error 403: Caller does not have'
        " storage.objects.list access to the Google Cloud Storage bucket. Permission 'storage.objects.list' denied on"
        " resource (or it may not exist)., forbidden"
    )
    place.grant_bucket(*WRITE)
    eventually("runs", lambda: runs(place, "early-bird"))


def test_without_the_check_beforehand_gcsfuse_itself_is_refused(place: Site) -> None:
    place.grant_bucket()
    attributes = {"bucketName": BUCKET, "skipCSIBucketAccessCheck": "true"}
    volume: Object = {"csi": {"driver": DRIVER, "volumeAttributes": attributes}}
    place.client.create(pod("skips", volume, ASKS))
    assert refused(place, "skips").startswith("PermissionDenied desc = gcsfuse failed with error: googleapi: Error 403")


def test_a_bucket_that_is_not_there_is_named(place: Site) -> None:
    volume: Object = {"csi": {"driver": DRIVER, "volumeAttributes": {"bucketName": "nowhere"}}}
    place.client.create(pod("lost", volume, ASKS))
    expected = 'NotFound desc = failed to get GCS bucket "nowhere": storage: bucket doesn\'t exist'
    assert refused(place, "lost") == expected


def test_a_pod_of_another_namespace_has_not_the_teams_rights(place: Site) -> None:
    volume: Object = {"csi": {"driver": DRIVER, "volumeAttributes": {"bucketName": BUCKET}}}
    other = pod("stranger", volume, ASKS)
    other["metadata"]["namespace"] = "product"
    place.client.create(other)
    [event] = eventually("an event", lambda: failures(place, "stranger", "product"))
    assert "code = PermissionDenied" in event


def test_a_node_without_workload_identity_mounts_nothing(place: Site) -> None:
    [node] = place.client.list_all("v1", "Node", labelSelector="cloud.google.com/gke-nodepool=tpu")
    place.client.patch(node, {"metadata": {"labels": {METADATA_LABEL: None}}})
    try:
        place.client.create(pod("keyless", CLAIM, ASKS, nodeName=node["metadata"]["name"]))
        expected = "FailedPrecondition desc = Workload Identity Federation is not enabled"
        assert refused(place, "keyless").startswith(expected)
    finally:
        place.client.patch(node, {"metadata": {"labels": {METADATA_LABEL: "true"}}})


# Secrets


def value(place: Site) -> str:
    found = place.client.get("v1", "Secret", "secrets", TEAM)
    return base64.b64decode(found["data"]["HF_TOKEN"]).decode() if found else ""


def test_a_secret_is_copied_as_the_named_account_may_read_it(place: Site) -> None:
    place.grant_secret()
    eventually("the kinds are there", place.has_kinds)
    for each in secret_objects():
        place.client.create(each)
    api = "secret-sync.gke.io/v1"

    def shown(kind: str) -> Object | None:
        return condition(place.client.get(api, "SecretSync", "secrets", TEAM) or {}, kind)

    failed = eventually("a condition", lambda: shown("SecretCreated"))
    assert (failed["status"], failed["reason"]) == ("False", "ProviderError")
    assert "code = PermissionDenied" in failed["message"]
    assert f"projects/{PROJECT}/secrets/hf-token" in failed["message"]
    assert value(place) == ""
    place.grant_secret(READER)
    eventually("the Secret", lambda: value(place) == "one")
    eventually("up to date", lambda: (shown("SecretUpdated") or {}).get("reason") == "SecretUpToDate")
    set_secret(place.cloud, "two")
    [sync] = place.client.list_all(api, "SecretSync")
    place.client.patch(sync, {"spec": {"forceSynchronization": "now"}})
    eventually("the new version", lambda: value(place) == "two")


@pytest.mark.parametrize("key", ["X_TOKEN", "TOKEN_", "A__B"])
def test_keys_that_the_kind_does_not_take(place: Site, key: str) -> None:
    """Its pattern wants a letter, digit or dash behind the first character, and no two separators in a row."""
    sync = secret_objects()[2]
    sync["metadata"] = {"name": "other", "namespace": TEAM}
    sync["spec"]["secretObject"]["data"] = [{"sourcePath": key, "targetKey": key}]
    eventually("the kinds are there", place.has_kinds)
    with pytest.raises(ApiError, match="should match"):
        place.client.create(sync)
