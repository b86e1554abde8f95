"""Which Google APIs a platform needs: those of what it uses, and no others."""

from typing import Any

import pytest

from plan.google_apis import google_apis
from tests.platforms import load

KEY = "projects/p/locations/us-east5/keyRings/r/cryptoKeys/k"
OWN = {"cluster": {"kind": "self-managed"}}


def names(**platform: Any) -> set[str]:
    found = google_apis(load(**platform))
    assert found == tuple(sorted(found))
    return {name.removesuffix(".googleapis.com") for name in found}


@pytest.mark.parametrize(
    ("setting", "needed"),
    [
        ({"cluster": {"binary_authorization": True}}, {"binaryauthorization"}),
        ({"cluster": {"kms_key": KEY}}, {"cloudkms"}),
    ],
)
def test_a_feature_brings_its_apis_and_no_others(setting: dict[str, Any], needed: set[str]) -> None:
    assert names(**setting) - names() == needed


def test_image_streaming_needs_two_apis() -> None:
    """H8: both were missing, with image streaming on by default."""
    without = names(cluster={"image_streaming": False})
    assert names() - without == {"artifactregistry", "containerfilesystem"}


def test_gke_clusters_with_the_secret_manager_add_on_enable_its_api() -> None:
    """M5: the add-on is on for every cluster, and the API was enabled only without GKE."""
    assert "secretmanager" in names()


def test_a_platform_without_gke_enables_nothing_of_gkes() -> None:
    gke = {"container", "containersecurity", "containerfilesystem", "artifactregistry", "iamcredentials"}
    assert gke <= names()
    assert gke.isdisjoint(names(**OWN))
