"""Variables and arguments of a container: what a kubelet would hand over, and what it would complain about."""

from __future__ import annotations

import base64
import re
from typing import Any, cast

import pytest

from sandbox.google.backend import ClusterRef
from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.hosting import ContainerError, image_named
from sandbox.kubernetes.metadata_server import Cloud
from sandbox.kubernetes.plain_programs import provisioner_image
from sandbox.kubernetes.pod_environment import arguments, environment

POD: Object = {
    "metadata": {"name": "pod", "namespace": "team", "uid": "1"},
    "spec": {"nodeName": "host", "serviceAccountName": "robot"},
}


class Played:
    """An API server with a ConfigMap "settings" and a Secret "keys"."""

    def get(self, _api_version: str, kind: str, name: str, namespace: str) -> Object | None:
        assert namespace == "team"
        found: dict[tuple[str, str], Object] = {
            ("ConfigMap", "settings"): {"data": {"ZONE": "us-east5-b", "COUNT": "3"}},
            ("Secret", "keys"): {"data": {"KEY": base64.b64encode(b"secret").decode()}},
        }
        return found.get((kind, name))


def variables(**container: Any) -> dict[str, str]:
    return environment(cast(ApiClient, Played()), POD, container)


def test_variables_come_from_everywhere_and_a_variable_of_its_own_wins() -> None:
    found = variables(
        envFrom=[
            {"configMapRef": {"name": "settings"}},
            {"secretRef": {"name": "keys"}, "prefix": "MY_"},
            {"configMapRef": {"name": "absent", "optional": True}},
        ],
        env=[
            {"name": "COUNT", "value": "4"},
            {"name": "PLAIN"},
            {"name": "WHERE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}},
            {"name": "PICKED", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "ZONE"}}},
            {"name": "KEPT", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "KEY"}}},
            {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "OTHER", "optional": True}}},
            {"name": "BOTH", "value": "$(ZONE)/$(COUNT)/$(UNKNOWN)/$$(ZONE)"},
        ],
    )
    assert found == {
        "ZONE": "us-east5-b",
        "COUNT": "4",
        "MY_KEY": "secret",
        "PLAIN": "",
        "WHERE": "team",
        "WHO": "robot",
        "PICKED": "us-east5-b",
        "KEPT": "secret",
        "BOTH": "us-east5-b/4/$(UNKNOWN)/$(ZONE)",
    }


def test_arguments_have_the_variables_filled_in() -> None:
    assert arguments({"args": ["--zone=$(ZONE)", "--raw"]}, {"ZONE": "z"}) == ["--zone=z", "--raw"]


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"envFrom": [{"configMapRef": {"name": "absent"}}]}, 'configmap "absent" not found'),
        ({"envFrom": [{"secretRef": {"name": "absent"}}]}, 'secret "absent" not found'),
        (
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "B"}}}]},
            "couldn't find key B in ConfigMap team/settings",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]},
            "the sandbox does not know the field status.hostIP of a pod",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]},
            "the sandbox does not know the source of the variable A",
        ),
    ],
)
def test_what_is_missing_is_a_kubelets_error(container: dict[str, Any], message: str) -> None:
    with pytest.raises(ContainerError, match=re.escape(message)) as refused:
        variables(**container)
    assert refused.value.reason == "CreateContainerConfigError"


def no_cloud() -> Cloud:
    raise AssertionError("not asked for")


@pytest.mark.parametrize(
    ("image", "hosted"),
    [
        ("us-docker.pkg.dev/p/tools/tpu-provisioner@sha256:0123", True),
        ("localhost:5000/tpu-provisioner:v1", True),
        ("gcr.io/p/tpu-provisioner", True),
        ("tpu-provisioner:v1", False),
        ("gcr.io/p/my-tpu-provisioner:v1", False),
        ("gcr.io/p/tpu-provisioner-webhook:v1", False),
        ("gcr.io/tpu-provisioner/other:v1", False),
    ],
)
def test_the_name_of_an_image_decides_whether_it_is_tpu_provisioner(image: str, hosted: bool) -> None:
    known = [provisioner_image(ClusterRef("p", "l", "c"), no_cloud)]
    assert (image_named(known, image) is not None) is hosted
