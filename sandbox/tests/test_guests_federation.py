"""Pods of a self-managed cluster at Google: tokens of its real API server, verified with the keys that it published."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import httpx
import pytest

from sandbox.google.federation import EXCHANGE, JWT
from sandbox.google.project_numbers import project_number
from sandbox.kubernetes.api import ApiClient
from sandbox.kubernetes.control_plane import KUBEADM_ISSUER
from sandbox.tests.emulated_google import PROJECT, REGION
from sandbox.tests.guests_support import Lab, eventually, running_platform

pytestmark = pytest.mark.sandbox

POOLS = f"/iam/v1/projects/{PROJECT}/locations/global/workloadIdentityPools"
NAME = f"projects/{project_number(PROJECT)}/locations/global/workloadIdentityPools/lab-pods"
AUDIENCE = f"{PROJECT}/lab"
MAPPING = {"google.subject": "assertion.sub", "attribute.namespace": "assertion['kubernetes.io']['namespace']"}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A cluster that is known to a pool by its published keys, and a bucket for the pods of one namespace."""
    with running_platform() as made:
        keys = eventually("an endpoint", lambda: made.payload("endpoint"))["jwks"]
        oidc = {
            "issuerUri": KUBEADM_ISSUER,
            "jwksJson": base64.b64decode(keys).decode(),
            "allowedAudiences": [AUDIENCE],
        }
        made.cloud.ok("POST", f"{POOLS}?workloadIdentityPoolId=lab-pods", {})
        provider = {"oidc": oidc, "attributeMapping": MAPPING}
        made.cloud.ok("POST", f"{POOLS}/lab-pods/providers?workloadIdentityPoolProviderId=cluster", provider)
        uniform = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
        made.cloud.ok("POST", f"/storage/v1/b?project={PROJECT}", {"name": "data", "location": REGION, **uniform})
        member = f"principalSet://iam.googleapis.com/{NAME}/attribute.namespace/default"
        made.cloud.ok(
            "PUT",
            "/storage/v1/b/data/iam",
            {"bindings": [{"role": "roles/storage.objectViewer", "members": [member]}]},
        )
        yield made


@pytest.fixture(scope="module")
def client(lab: Lab) -> Iterator[ApiClient]:
    with lab.client() as made:
        yield made


def trade(lab: Lab, client: ApiClient, namespace: str, audience: str = AUDIENCE) -> httpx.Response:
    """The token of a pod's account, as the API server signs it for a projected volume, against one of Google's."""
    path = client.path("v1", "ServiceAccount", "default", namespace)
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [audience]}}
    token = client.request("POST", f"{path}/token", wanted)["status"]["token"]
    form = {
        "grant_type": EXCHANGE,
        "audience": f"//iam.googleapis.com/{NAME}/providers/cluster",
        "subject_token_type": JWT,
        "subject_token": token,
    }
    return httpx.post(f"{lab.cloud.emulator.url}/sts/v1/token", data=form, trust_env=False)


@pytest.mark.parametrize(("namespace", "status"), [("default", 200), ("kube-public", 403)])
def test_a_grant_to_a_namespace_holds_for_its_pods(lab: Lab, client: ApiClient, namespace: str, status: int) -> None:
    answer = trade(lab, client, namespace)
    assert answer.status_code == 200, answer.text
    headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
    url = f"{lab.cloud.emulator.url}/storage/v1/b/data/o"
    assert httpx.get(url, headers=headers, trust_env=False).status_code == status


def test_a_token_for_the_api_server_itself_is_not_taken(lab: Lab, client: ApiClient) -> None:
    answer = trade(lab, client, "default", KUBEADM_ISSUER)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
    assert "audience" in answer.json()["error_description"]
