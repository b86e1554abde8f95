"""Whose rights a program in a cluster has at Google: what GKE's metadata server gives it, and what that opens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from sandbox.google.backend import ClusterRef
from sandbox.google.project_numbers import project_number
from sandbox.google.workload_identity import WorkloadIdentity
from sandbox.kubernetes.metadata_server import MetadataServer, Workload
from sandbox.tests.emulated_google import (
    ACCOUNTS,
    CLUSTERS,
    POOLS,
    PROJECT,
    REGION,
    ZONE,
    Cloud,
    connected,
)

NAMESPACE, NAME = "tpu-provisioner-system", "tpu-provisioner-controller-manager"
EMAIL = f"provisioner@{PROJECT}.iam.gserviceaccount.com"
MEMBER = f"serviceAccount:{PROJECT}.svc.id.goog[{NAMESPACE}/{NAME}]"
BOUND = ("roles/iam.workloadIdentityUser", MEMBER)
PROJECT_POLICY = f"/crm/v1/projects/{PROJECT}"
ROLE = f"projects/{PROJECT}/roles/pools"
PRINCIPAL = (
    f"principal://iam.googleapis.com/projects/{project_number(PROJECT)}/locations/global/workloadIdentityPools/"
    f"{PROJECT}.svc.id.goog/subject/ns/{NAMESPACE}/sa/{NAME}"
)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """A cluster, an account for a program in it, and a role of the project with one permission."""
    with connected() as cloud:
        cloud.make_cluster()
        cloud.ok("POST", ACCOUNTS, {"accountId": "provisioner"})
        role = {"includedPermissions": ["container.clusters.get"]}
        cloud.ok("POST", f"/iam/v1/projects/{PROJECT}/roles", {"roleId": "pools", "role": role})
        yield cloud


@contextmanager
def metadata(cloud: Cloud, google_account: Callable[[], str] = lambda: EMAIL) -> Iterator[httpx.Client]:
    """The metadata server of a program, asked as client libraries ask it."""
    workload = Workload(ClusterRef(PROJECT, REGION, "tpu"), ZONE, NAMESPACE, NAME)
    identity = WorkloadIdentity(cloud.emulator.world, cloud.emulator.url)
    server = MetadataServer(workload, lambda: identity, google_account)
    headers = {"Metadata-Flavor": "Google"}
    try:
        url = f"http://{server.address}/computeMetadata/v1/"
        with httpx.Client(base_url=url, headers=headers, trust_env=False) as client:
            yield client
    finally:
        server.stop()


def token(client: httpx.Client) -> str:
    answer = client.get("instance/service-accounts/default/token")
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"])


def status(cloud: Cloud, token: str, path: str = f"{POOLS}/none") -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{cloud.emulator.url}{path}", headers=headers, trust_env=False).status_code


def test_a_program_learns_where_it_runs(cloud: Cloud) -> None:
    with metadata(cloud) as client:
        found = {
            path: client.get(path).text
            for path in (
                "project/project-id",
                "instance/attributes/cluster-name",
                "instance/attributes/cluster-location",
                "instance/zone",
                "instance/service-accounts/default/email",
            )
        }
        assert list(found.values()) == [
            PROJECT,
            "tpu",
            REGION,
            f"projects/{project_number(PROJECT)}/zones/{ZONE}",
            EMAIL,
        ]
        unknown = client.get("instance/attributes/other")
        assert (unknown.status_code, unknown.headers["Metadata-Flavor"]) == (404, "Google")


def test_it_answers_only_those_who_know_what_they_ask(cloud: Cloud) -> None:
    with metadata(cloud) as client:
        bare = client.get("project/project-id", headers={"Metadata-Flavor": ""})
        assert (bare.status_code, bare.text) == (403, "Missing Metadata-Flavor:Google header.\n")
        assert client.get("project/project-id", headers={"X-Forwarded-For": "10.0.0.1"}).status_code == 403
        assert client.base_url.host == "127.0.0.1"


def test_the_token_is_the_accounts_whose_policy_names_the_service_account(cloud: Cloud) -> None:
    cloud.bind(PROJECT_POLICY, (ROLE, f"serviceAccount:{EMAIL}"))
    with metadata(cloud) as client:
        refused = client.get("instance/service-accounts/default/token")
        assert refused.status_code == 403
        assert "Unable to generate access token; IAM returned 403 Forbidden" in refused.text
        assert "missing IAM policy binding" in refused.text
        assert MEMBER in refused.text
        cloud.bind(f"{ACCOUNTS}/{EMAIL}", BOUND)
        granted = token(client)
        assert status(cloud, granted) == 404
        assert status(cloud, granted, CLUSTERS) == 403, "the custom role has no container.clusters.list"
        cloud.bind(f"{ACCOUNTS}/{EMAIL}")
        assert client.get("instance/service-accounts/default/token").status_code == 403


@pytest.mark.parametrize(
    "binding",
    [
        ("roles/iam.workloadIdentityUser", f"serviceAccount:{PROJECT}.svc.id.goog[{NAMESPACE}/other]"),
        ("roles/iam.workloadIdentityUser", f"serviceAccount:{PROJECT}.svc.id.goog[other/{NAME}]"),
        ("roles/iam.serviceAccountUser", MEMBER),
    ],
)
def test_a_binding_for_somebody_else_or_of_another_role_does_not_count(cloud: Cloud, binding: tuple[str, str]) -> None:
    cloud.bind(f"{ACCOUNTS}/{EMAIL}", binding)
    with metadata(cloud) as client:
        assert client.get("instance/service-accounts/default/token").status_code == 403


def test_an_account_that_does_not_exist_gives_no_token(cloud: Cloud) -> None:
    with metadata(cloud, lambda: f"nobody@{PROJECT}.iam.gserviceaccount.com") as client:
        answer = client.get("instance/service-accounts/default/token")
        assert (answer.status_code, "IAM returned 404 Not Found" in answer.text) == (404, True)


@pytest.mark.parametrize("member", [PRINCIPAL, MEMBER])
def test_without_an_annotation_the_service_account_has_rights_of_its_own(cloud: Cloud, member: str) -> None:
    with metadata(cloud, lambda: "") as client:
        own = token(client)
        assert status(cloud, own) == 403
        cloud.bind(PROJECT_POLICY, (ROLE, member))
        assert status(cloud, own) == 404
        assert client.get("instance/service-accounts/default/email").text == f"{PROJECT}.svc.id.goog"


def test_a_cluster_without_workload_identity_gives_no_token(cloud: Cloud) -> None:
    cloud.ok("DELETE", f"{CLUSTERS}/tpu")
    with metadata(cloud) as client:
        answer = client.get("instance/service-accounts/default/token")
        assert (answer.status_code, "no workload identity pool" in answer.text) == (404, True)


CLIENT = """
import google.auth
from google_auth_httplib2 import Request
from httplib2 import Http

credentials, project = google.auth.default()
credentials.refresh(Request(Http()))
print(project, credentials.service_account_email, credentials.token)
"""


def test_googles_own_client_library_gets_its_credentials_there(cloud: Cloud, tmp_path: Path) -> None:
    cloud.bind(PROJECT_POLICY, (ROLE, f"serviceAccount:{EMAIL}"))
    with metadata(cloud) as client:
        address = client.base_url.netloc.decode()
        variables = {"GCE_METADATA_HOST": address, "GCE_METADATA_IP": address, "HOME": str(tmp_path), "PATH": ""}

        def run() -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-c", CLIENT]
            return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

        assert "missing IAM policy binding" in run().stderr
        cloud.bind(f"{ACCOUNTS}/{EMAIL}", BOUND)
        project, email, granted = run().stdout.split()
        assert (project, email) == (PROJECT, EMAIL)
        assert status(cloud, granted) == 404
