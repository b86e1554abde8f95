"""Cloud Storage: what a bucket's rules refuse, its objects, and who may touch them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from google.auth.credentials import Credentials
from google_auth_httplib2 import AuthorizedHttp
from googleapiclient.discovery import build
from googleapiclient.http import MediaIoBaseUpload
from httplib2 import Http

from sandbox.google.callers import PERSON_TOKEN, WORKLOAD_TOKEN, workload_caller
from sandbox.google.project_numbers import project_number
from sandbox.tests.emulated_google import PROJECT, Body, Cloud, connected

BUCKETS = f"/storage/v1/b?project={PROJECT}"
BUCKET = "/storage/v1/b/data"
UNIFORM = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
HIERARCHY = {"hierarchicalNamespace": {"enabled": True}, **UNIFORM}
DAY = 24 * 3600


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with connected() as cloud:
        cloud.make_cluster()
        yield cloud


def make(cloud: Cloud, **settings: Any) -> Body:
    found: Body = cloud.ok("POST", BUCKETS, {"name": "data", "location": "us-east5", **settings})
    return found


def write(cloud: Cloud, name: str, content: str = "x", token: str = "token", **query: str) -> Any:
    """The answer to an upload."""
    return cloud.http.post(
        "/upload/storage/v1/b/data/o",
        params={"uploadType": "media", "name": name, **query},
        content=content,
        headers={"Authorization": f"Bearer {token}", "Content-Type": "text/plain"},
    )


def grant(cloud: Cloud, *bindings: tuple[str, str]) -> None:
    policy = cloud.ok("GET", f"{BUCKET}/iam")
    rows = [{"role": role, "members": [member]} for role, member in bindings]
    cloud.ok("PUT", f"{BUCKET}/iam", {**policy, "bindings": [*policy["bindings"], *rows]})


REFUSED: dict[str, tuple[Body, str]] = {
    "access lists": ({"hierarchicalNamespace": {"enabled": True}}, "uniform bucket-level access"),
    "versions": ({**HIERARCHY, "versioning": {"enabled": True}}, "object versioning"),
    "autoclass": ({**HIERARCHY, "autoclass": {"enabled": True}}, "Autoclass"),
    "a day": ({"softDeletePolicy": {"retentionDurationSeconds": str(DAY)}}, "from 7 to 90 days"),
    "a year": ({"softDeletePolicy": {"retentionDurationSeconds": str(365 * DAY)}}, "from 7 to 90 days"),
    "nowhere": ({"location": "us-nowhere9"}, "location constraint is not valid"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_bucket_cannot_be(cloud: Cloud, case: str) -> None:
    settings, message = REFUSED[case]
    body = {"name": "data", "location": "us-east5", **settings}
    assert message in cloud.refused(400, "POST", BUCKETS, body)["message"]
    cloud.refused(404, "GET", BUCKET)


def test_a_hierarchy_is_there_from_birth_or_never(cloud: Cloud) -> None:
    make(cloud, **UNIFORM)
    assert "when a bucket is created" in cloud.refused(400, "PATCH", BUCKET, HIERARCHY)["message"]
    cloud.ok("PATCH", BUCKET, {"softDeletePolicy": {"retentionDurationSeconds": "0"}})
    cloud.refused(400, "PATCH", BUCKET, {"softDeletePolicy": {"retentionDurationSeconds": "1"}})


def test_a_bucket_that_is_not_public_takes_no_public_member(cloud: Cloud) -> None:
    make(cloud, iamConfiguration={"publicAccessPrevention": "enforced"})
    policy = {"bindings": [{"role": "roles/storage.objectViewer", "members": ["allUsers"]}]}
    assert "public access prevention" in cloud.refused(412, "PUT", f"{BUCKET}/iam", policy)["message"]


def test_objects_are_written_listed_read_and_deleted(cloud: Cloud) -> None:
    make(cloud)
    names = ["a.txt", "step/100/model", "step/100/opt", "step/200/model"]
    for name in names:
        assert write(cloud, name, content=name).status_code == 200
    everything = cloud.ok("GET", f"{BUCKET}/o")
    assert [each["name"] for each in everything["items"]] == [
        "a.txt",
        "step/100/model",
        "step/100/opt",
        "step/200/model",
    ]
    below = cloud.ok("GET", f"{BUCKET}/o?prefix=step/&delimiter=/")
    assert (below["items"], below["prefixes"]) == ([], ["step/100/", "step/200/"])
    first = cloud.ok("GET", f"{BUCKET}/o?maxResults=3")
    rest = cloud.ok("GET", f"{BUCKET}/o?pageToken={first['nextPageToken']}")
    assert [len(first["items"]), len(rest["items"]), "nextPageToken" in rest] == [3, 1, False]
    path = f"{BUCKET}/o/step%2F100%2Fmodel"
    assert cloud.ok("GET", path)["size"] == str(len("step/100/model"))
    assert cloud.http.get(path, params={"alt": "media"}).text == "step/100/model"
    assert "not empty" in cloud.refused(409, "DELETE", BUCKET)["message"]
    cloud.ok("DELETE", path)
    assert cloud.refused(404, "GET", path)["message"] == "No such object: data/step/100/model"


def test_a_write_can_depend_on_what_is_there(cloud: Cloud) -> None:
    make(cloud)
    first = write(cloud, "lock", ifGenerationMatch="0").json()
    assert write(cloud, "lock", ifGenerationMatch="0").status_code == 412
    assert write(cloud, "lock", ifGenerationMatch=first["generation"]).status_code == 200


def test_googles_own_client_writes_and_reads(cloud: Cloud) -> None:
    """Of the package that has the API's description: it writes in parts, metadata first."""
    make(cloud)
    options = {"api_endpoint": f"{cloud.emulator.url}/storage/v1/"}
    client = build("storage", "v1", credentials=_Token(), client_options=options, static_discovery=True)
    client._rootDesc["rootUrl"] = f"{cloud.emulator.url}/"
    media = MediaIoBaseUpload(io.BytesIO(b"weights"), "application/octet-stream")
    body = {"name": "model", "metadata": {"step": "7"}}
    request = client.objects().insert(bucket="data", body=body, media_body=media)
    request.uri = request.uri.replace("https://storage.googleapis.com", cloud.emulator.url)
    made = request.execute(http=_authorized())
    assert (made["name"], made["metadata"], made["size"]) == ("model", {"step": "7"}, "7")
    assert client.objects().get_media(bucket="data", object="model").execute() == b"weights"


class _Token(Credentials):
    """Any text is a token of the deployer's."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.token = "token"

    def refresh(self, request: Any) -> None:
        """It never expires."""


def _authorized() -> Any:
    return AuthorizedHttp(_Token(), Http())


# Who may do what

IDENTITY_POOL = f"{PROJECT}.svc.id.goog"
POOLS = f"iam.googleapis.com/projects/{project_number(PROJECT)}/locations/global/workloadIdentityPools"
POOL = f"{POOLS}/{IDENTITY_POOL}"
PODS = f"principalSet://{POOL}/namespace/research"
CLUSTER = f"projects/{PROJECT}/locations/us-east5/clusters/tpu"


def pod(namespace: str, name: str = "default") -> str:
    return WORKLOAD_TOKEN + workload_caller(PROJECT, CLUSTER, IDENTITY_POOL, namespace, name)


def allowed(cloud: Cloud, token: str) -> dict[str, int]:
    """What a caller gets for each kind of call."""
    headers = {"Authorization": f"Bearer {token}"}
    return {
        "bucket": cloud.http.get(BUCKET, headers=headers).status_code,
        "list": cloud.http.get(f"{BUCKET}/o", headers=headers).status_code,
        "read": cloud.http.get(f"{BUCKET}/o/old", headers=headers).status_code,
        "write": write(cloud, "new", token=token).status_code,
        "overwrite": write(cloud, "old", token=token).status_code,
    }


GRANTS: dict[str, tuple[tuple[str, ...], dict[str, int]]] = {
    "nothing": ((), {"bucket": 403, "list": 403, "read": 403, "write": 403, "overwrite": 403}),
    "user": (("roles/storage.objectUser",), {"bucket": 403, "list": 200, "read": 200, "write": 200, "overwrite": 200}),
    "write": (
        ("roles/storage.objectUser", "roles/storage.legacyBucketReader"),
        {"bucket": 200, "list": 200, "read": 200, "write": 200, "overwrite": 200},
    ),
    "read": (
        ("roles/storage.objectViewer", "roles/storage.legacyBucketReader"),
        {"bucket": 200, "list": 200, "read": 200, "write": 403, "overwrite": 403},
    ),
    "create": (
        ("roles/storage.objectCreator",),
        {"bucket": 403, "list": 403, "read": 403, "write": 200, "overwrite": 403},
    ),
}


@pytest.mark.parametrize("case", GRANTS)
def test_a_grant_to_a_namespace_holds_for_its_pods(cloud: Cloud, case: str) -> None:
    roles, expected = GRANTS[case]
    make(cloud, **UNIFORM)
    assert write(cloud, "old").status_code == 200
    grant(cloud, *((role, PODS) for role in roles))
    assert allowed(cloud, pod("research")) == expected
    assert allowed(cloud, pod("serving")) == GRANTS["nothing"][1]


SETS = {
    "account": f"principal://{POOL}/subject/ns/research/sa/default",
    "old form": f"serviceAccount:{PROJECT}.svc.id.goog[research/default]",
    "cluster": f"principalSet://{POOL}/kubernetes.cluster/https://container.googleapis.com/v1/{CLUSTER}",
    "pool": f"principalSet://{POOL}/*",
}


@pytest.mark.parametrize("case", SETS)
def test_every_way_to_name_a_pod_counts(cloud: Cloud, case: str) -> None:
    make(cloud, **UNIFORM)
    grant(cloud, ("roles/storage.objectUser", SETS[case]))
    assert write(cloud, "new", token=pod("research")).status_code == 200


def test_pods_cannot_write_where_objects_have_access_lists(cloud: Cloud) -> None:
    make(cloud)
    grant(cloud, ("roles/storage.objectUser", PODS))
    answer = write(cloud, "new", token=pod("research"))
    assert (answer.status_code, "Uniform Bucket Level Access" in answer.text) == (412, True)


def test_people_have_the_rights_of_their_groups(cloud: Cloud) -> None:
    make(cloud, **UNIFORM)
    grant(cloud, ("roles/storage.objectUser", "group:research@example.com"))
    person = f"{PERSON_TOKEN}user:eva@example.com"
    refused = write(cloud, "new", token=person)
    assert refused.status_code == 403
    assert "eva@example.com does not have storage.objects.create access" in refused.text
    assert write(cloud, "new", token=f"{person},group:research@example.com").status_code == 200


# Members

WRONG: dict[str, tuple[str, str]] = {
    "another number": (
        f"principalSet://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/{PROJECT}.svc.id.goog/*",
        f"Identity Pool does not exist ({PROJECT}.svc.id.goog)",
    ),
    "the project's id": (PODS.replace(project_number(PROJECT), PROJECT), "Identity Pool does not exist"),
    "another project's pool": (PODS.replace(f"{PROJECT}.svc", "other.svc"), "Identity Pool does not exist"),
    "no such pool": (PODS.replace(f"{PROJECT}.svc.id.goog", "none"), "Identity Pool does not exist (none)"),
    "a set of nothing known": (PODS.replace("/namespace/", "/team/"), "Invalid principal or principalSet member"),
    "a principal without a subject": (PODS.replace("principalSet:", "principal:"), "Invalid principal"),
    "an unknown kind": ("team:research@example.com", "Invalid member"),
    "no kind": ("research@example.com", "Invalid member"),
}


@pytest.mark.parametrize("case", WRONG)
def test_members_that_do_not_exist_are_refused(cloud: Cloud, case: str) -> None:
    member, message = WRONG[case]
    make(cloud, **UNIFORM)
    body = {"bindings": [{"role": "roles/storage.objectUser", "members": [member]}]}
    assert message in cloud.refused(400, "PUT", f"{BUCKET}/iam", body)["message"]


def test_the_pool_of_a_project_comes_with_its_first_cluster() -> None:
    with connected(fresh_project=True) as cloud:
        for api in ("storage", "compute", "container", "iam", "cloudresourcemanager"):
            cloud.ok("POST", f"/su/v1/projects/{PROJECT}/services/{api}.googleapis.com:enable", {})
        make(cloud, **UNIFORM)
        body = {"bindings": [{"role": "roles/storage.objectUser", "members": [PODS]}]}
        text = f"Identity Pool does not exist ({PROJECT}.svc.id.goog)"
        assert text in cloud.refused(400, "PUT", f"{BUCKET}/iam", body)["message"]
        cloud.make_cluster()
        cloud.ok("PUT", f"{BUCKET}/iam", body)


def test_roles_of_buckets_are_for_buckets(cloud: Cloud) -> None:
    body = {"policy": {"bindings": [{"role": "roles/storage.legacyBucketReader", "members": ["user:eva@example.com"]}]}}
    error = cloud.refused(400, "POST", f"/crm/v1/projects/{PROJECT}:setIamPolicy", body)
    assert "not supported for this resource" in error["message"]
