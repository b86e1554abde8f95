"""Workload identity pools: tokens of a cluster's own keys traded for Google's, and what each side can get wrong."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from sandbox.google.federation import EXCHANGE, JWT
from sandbox.google.project_numbers import project_number
from sandbox.tests.emulated_google import PROJECT, Body, Cloud, connected

POOLS = f"/iam/v1/projects/{PROJECT}/locations/global/workloadIdentityPools"
NAME = f"projects/{project_number(PROJECT)}/locations/global/workloadIdentityPools/pool-dev"
AUDIENCE = f"//iam.googleapis.com/{NAME}/providers/cluster"
ISSUER = "https://kubernetes.default.svc.cluster.local"
MAPPING = {"google.subject": "assertion.sub", "attribute.namespace": "assertion['kubernetes.io']['namespace']"}
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def jwks(kid: str = "k1") -> str:
    numbers = KEY.public_key().public_numbers()
    parts = {"n": numbers.n.to_bytes(256, "big"), "e": numbers.e.to_bytes(3, "big")}
    key = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": kid, **{k: _text(v) for k, v in parts.items()}}
    return json.dumps({"keys": [key]})


def token(changed: Body | None = None, key: rsa.RSAPrivateKey = KEY) -> str:
    """A token as an API server writes it for a pod of the namespace research."""
    claims = {
        "iss": ISSUER,
        "sub": "system:serviceaccount:research:default",
        "aud": [f"https:{AUDIENCE}"],
        "iat": time.time(),
        "exp": time.time() + 3600,
        "kubernetes.io": {"namespace": "research"},
        **(changed or {}),
    }
    signed = ".".join(_text(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "k1"}, claims))
    return f"{signed}.{_text(key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """A pool with a cluster's keys, and a bucket that the pods of one namespace may write to."""
    with connected() as cloud:
        cloud.ok("POST", f"{POOLS}?workloadIdentityPoolId=pool-dev", {})
        cloud.ok("POST", f"{POOLS}/pool-dev/providers?workloadIdentityPoolProviderId=cluster", provider())
        uniform = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
        cloud.ok("POST", f"/storage/v1/b?project={PROJECT}", {"name": "data", "location": "us-east5", **uniform})
        member = f"principalSet://iam.googleapis.com/{NAME}/attribute.namespace/research"
        binding = {"role": "roles/storage.objectViewer", "members": [member]}
        cloud.ok("PUT", "/storage/v1/b/data/iam", {"bindings": [binding]})
        yield cloud


def provider(**changed: Any) -> Body:
    return {"oidc": {"issuerUri": ISSUER, "jwksJson": jwks()}, "attributeMapping": MAPPING, **changed}


def trade(cloud: Cloud, subject_token: str, audience: str = AUDIENCE) -> httpx.Response:
    """As Google's client libraries do: a form, and no credentials."""
    form = {"grant_type": EXCHANGE, "audience": audience, "subject_token_type": JWT, "subject_token": subject_token}
    return httpx.post(f"{cloud.emulator.url}/sts/v1/token", data=form, trust_env=False)


def reads(cloud: Cloud, granted: str) -> int:
    headers = {"Authorization": f"Bearer {granted}"}
    return httpx.get(f"{cloud.emulator.url}/storage/v1/b/data/o", headers=headers, trust_env=False).status_code


def test_a_pods_token_opens_what_its_namespace_may(cloud: Cloud) -> None:
    answer = trade(cloud, token()).json()
    assert (answer["token_type"], answer["issued_token_type"]) == (
        "Bearer",
        "urn:ietf:params:oauth:token-type:access_token",
    )
    assert reads(cloud, answer["access_token"]) == 200
    other = token({"sub": "system:serviceaccount:serving:default", "kubernetes.io": {"namespace": "serving"}})
    assert reads(cloud, trade(cloud, other).json()["access_token"]) == 403


REFUSED: dict[str, tuple[str, str]] = {
    "another key": (token(key=OTHER_KEY), "Unable to verify the signature"),
    "another issuer": (token({"iss": "https://example.com"}), "issuer in ID Token"),
    "another audience": (token({"aud": ["https://kubernetes.default.svc"]}), "does not match the expected audience"),
    "no audience": (token({"aud": []}), "does not match the expected audience"),
    "expired": (token({"exp": time.time() - 1}), "expired"),
    "no namespace": (token({"kubernetes.io": {}}), "mapped attribute"),
    "no token": ("abc", "Unable to parse"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_token_that_is_not_the_clusters_is_refused(cloud: Cloud, case: str) -> None:
    subject_token, message = REFUSED[case]
    answer = trade(cloud, subject_token)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
    assert message in answer.json()["error_description"]


def test_a_key_that_was_not_published_is_not_known(cloud: Cloud) -> None:
    """Whoever replaces the keys of a cluster must publish them again."""
    path = f"{POOLS}/pool-dev/providers/cluster"
    cloud.ok("PATCH", f"{path}?updateMask=oidc", {"oidc": {"issuerUri": ISSUER, "jwksJson": jwks("k2")}})
    assert "credential's issuer" in trade(cloud, token()).json()["error_description"]


@pytest.mark.parametrize("part", ["pool-dev", "pool-dev/providers/cluster"])
def test_what_is_deleted_or_disabled_gives_nothing(cloud: Cloud, part: str) -> None:
    granted = trade(cloud, token()).json()["access_token"]
    cloud.ok("PATCH", f"{POOLS}/{part}?updateMask=disabled", {"disabled": True})
    assert trade(cloud, token()).json()["error"] == "invalid_target"
    cloud.ok("PATCH", f"{POOLS}/{part}?updateMask=disabled", {"disabled": False})
    assert trade(cloud, token()).status_code == 200
    cloud.ok("DELETE", f"{POOLS}/{part}")
    assert trade(cloud, token()).json()["error"] == "invalid_target"
    assert reads(cloud, granted) == (401 if part == "pool-dev" else 200)
    cloud.ok("POST", f"{POOLS}/{part}:undelete", {})
    assert trade(cloud, token()).status_code == 200


def test_ids_stay_taken_after_deletion(cloud: Cloud) -> None:
    for path, query in (
        ("/pool-dev/providers", "workloadIdentityPoolProviderId=cluster"),
        ("", "workloadIdentityPoolId=pool-dev"),
    ):
        item = f"{POOLS}{path}/{query.partition('=')[2]}"
        cloud.ok("DELETE", item)
        assert cloud.ok("GET", item)["state"] == "DELETED"
        assert (
            "already exists"
            in cloud.refused(409, "POST", f"{POOLS}{path}?{query}", provider() if path else {})["message"]
        )
    assert cloud.ok("GET", POOLS) == {"workloadIdentityPools": []}
    assert len(cloud.ok("GET", f"{POOLS}?showDeleted=true")["workloadIdentityPools"]) == 1
    assert "iam.workloadIdentityPools" not in cloud.inventory()


def test_a_condition_narrows_who_is_let_in(cloud: Cloud) -> None:
    path = f"{POOLS}/pool-dev/providers/cluster?updateMask=attributeCondition"
    for condition, status in (
        ("assertion.sub.startsWith('system:serviceaccount:') && attribute.namespace != 'kube-system'", 200),
        ("attribute.namespace in ['serving', 'other']", 400),
        ("google.subject == 'system:serviceaccount:research:default' || false", 200),
        ("!(attribute.namespace == 'research')", 400),
    ):
        cloud.ok("PATCH", path, {"attributeCondition": condition})
        assert trade(cloud, token()).status_code == status, condition


WRONG: dict[str, tuple[int, Body, str]] = {
    "no subject": (400, provider(attributeMapping={"attribute.a": "assertion.a"}), "google.subject"),
    "a key that is none": (400, provider(attributeMapping={**MAPPING, "team": "assertion.a"}), "mapping key 'team'"),
    "an issuer in the clear": (400, provider(oidc={"issuerUri": "http://x"}), "https://"),
    "no JWKS": (400, provider(oidc={"issuerUri": ISSUER, "jwksJson": "[]"}), "Invalid JWKS"),
    "a private key": (
        400,
        provider(oidc={"issuerUri": ISSUER, "jwksJson": '{"keys": [{"kty": "RSA", "d": "x"}]}'}),
        "unknown field d",
    ),
    "more than is known": (501, provider(attributeCondition="assertion.sub.matches('a.*')"), "does not know"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_provider_that_could_not_work_is_refused(cloud: Cloud, case: str) -> None:
    status, body, message = WRONG[case]
    path = f"{POOLS}/pool-dev/providers?workloadIdentityPoolProviderId=other"
    assert message in cloud.refused(status, "POST", path, body)["message"]


CLIENT = """
import google.auth
from google_auth_httplib2 import Request
from httplib2 import Http

credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
credentials.refresh(Request(Http()))
print(credentials.token)
"""


def test_googles_own_client_library_trades_the_projected_token(cloud: Cloud, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(token())
    configuration = {
        "type": "external_account",
        "audience": AUDIENCE,
        "subject_token_type": JWT,
        "token_url": f"{cloud.emulator.url}/sts/v1/token",
        "credential_source": {"file": str(tmp_path / "token")},
    }
    (tmp_path / "credentials.json").write_text(json.dumps(configuration))
    variables = {
        "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "credentials.json"),
        "GOOGLE_CLOUD_PROJECT": PROJECT,
        "HOME": str(tmp_path),
        "PATH": "",
    }
    command = [sys.executable, "-c", CLIENT]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert reads(cloud, done.stdout.strip()) == 200
