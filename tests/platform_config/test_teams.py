"""The form of what a stack file says of teams: what is refused, and with which words."""

from typing import Any

import pytest

from tests.platforms import errors, raw

GROUPS = {"cluster": {"security_group": "gke-security-groups@example.com"}}


def said(**team: Any) -> list[str]:
    return [f"{each.message} -> {each.hint}" for each in errors(raw(teams={"a": team}, **GROUPS))]


@pytest.mark.parametrize(
    "member",
    [
        "roles/container.admin",
        "user:Eva@example.com",
        "allUsers",
        "allAuthenticatedUsers",
        "domain:example.com",
        "group:research",
        "user: eva@example.com",
        "principalSet://iam.googleapis.com/x",
    ],
)
def test_members_are_groups_users_and_service_accounts_in_iams_spelling(member: str) -> None:
    (message,) = said(members=[member])
    assert "is not a member in IAM's spelling" in message
    assert "group:research@example.com, user:eva@example.com" in message


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("eva@example.com", "write user:eva@example.com or group:eva@example.com"),
        ("ci@p.iam.gserviceaccount.com", "write serviceAccount:ci@p.iam.gserviceaccount.com"),
    ],
)
def test_of_a_bare_address_the_kind_is_asked(address: str, hint: str) -> None:
    (message,) = said(members=[address])
    assert hint in message


def test_members_of_each_kind_are_taken() -> None:
    assert not said(
        members=["group:r@example.com", "user:eva@example.com", "serviceAccount:c@p.iam.gserviceaccount.com"]
    )


@pytest.mark.parametrize("variable", ["HF_TOKEN", "A", "TOKEN2", "WANDB_API_KEY", "lower"])
def test_variables_that_secret_sync_takes(variable: str) -> None:
    assert not said(secrets={variable: "hf-token"})


@pytest.mark.parametrize(
    "token",
    [
        "hf_" + "a" * 34,
        "AIza" + "b" * 35,
        "ya29.a0b-c",
        "ghp_" + "c" * 36,
        "sk-proj-" + "d" * 40,
        "eyJhbGciOi.eyJ.x",
        "a+b/c=",
    ],
)
def test_the_value_of_a_secret_is_refused_and_not_repeated(token: str) -> None:
    (message,) = said(secrets={"HF_TOKEN": token})
    assert token not in message
    assert "hf-token" in message


@pytest.mark.parametrize("name", ["hf_token", "HF_TOKEN", "projects/other/secrets/hf_token", "sk-prod"])
def test_names_of_secrets_are_taken(name: str) -> None:
    assert not said(secrets={"HF_TOKEN": name})


def test_a_wrong_security_group_is_one_error() -> None:
    wrong = raw(teams={"a": {"members": ["group:r@example.com"]}}, cluster={"security_group": "r@example.com"})
    (error,) = errors(wrong)
    assert error.path.endswith("cluster.security_group")


@pytest.mark.parametrize("variable", ["_A", "A_B", "TOKEN_", "A__B", "HF-TOKEN", "1A", "HF__TOKEN"])
def test_variables_that_secret_sync_would_refuse_as_keys(variable: str) -> None:
    """kubernetes-sigs/secrets-store-sync-controller, the pattern of `targetKey`."""
    assert said(secrets={variable: "hf-token"})


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ({"bucket": "gs://acme"}, "its name without gs://"),
        ({"mount": "data"}, "an absolute path"),
        ({"mount": "/data/../etc"}, "an absolute path"),
        ({"expire": 30}, ""),
        ({"expire": "36h"}, "for example 30d"),
        ({"mode": "readwrite"}, ""),
        ({"keep": "no"}, ""),
    ],
)
def test_a_store_of_another_form_is_refused(store: dict[str, Any], words: str) -> None:
    (message,) = said(storage={"d": store})
    assert words in message
