"""Instance metadata that says what a machine boots into: names, forms, and what is wrong with a value.

The names begin with the prefix of the program's adapter: with "tpu-", the field `join_secret` is `tpu-join-secret`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

SCRIPT = "startup-script"
CONTROL_PLANE, NODE = "control-plane", "node"


class MetadataError(Exception):
    """A machine's metadata does not hold what its script needs; the message names the attributes."""


def pairs(text: str) -> dict[str, str]:
    """{"a": "b"} from "a=b"; several are separated by commas. Raises ValueError."""
    found = {}
    for each in filter(None, text.split(",")):
        key, equals, value = each.partition("=")
        if not key or not equals:
            raise ValueError(f"'{each}' is not key=value")
        found[key] = value
    return found


def _taints(text: str) -> list[dict[str, str]]:
    found = []
    for each in filter(None, text.split(",")):
        pair, colon, effect = each.rpartition(":")
        key, _, value = pair.partition("=")
        if not key or not colon:
            raise ValueError(f"'{each}' is not key=value:Effect")
        found.append({"key": key, "value": value, "effect": effect})
    return found


def _cidr(text: str) -> str:
    return str(ipaddress.ip_network(text))


Labels = Annotated[dict[str, str], BeforeValidator(pairs)]
Taints = Annotated[list[dict[str, str]], BeforeValidator(_taints)]
Cidr = Annotated[str, BeforeValidator(_cidr)]
Version = Annotated[str, Field(pattern=r"^1\.\d+\.\d+$")]
Secret = Annotated[str, Field(pattern=r"^projects/[^/]+/secrets/[\w-]+$")]


def role(attributes: Mapping[str, str], prefix: str) -> str:
    """CONTROL_PLANE, NODE, or something that nobody here plays."""
    return attributes.get(f"{prefix}role", "")


class _Attributes(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    kubernetes_version: Version
    containerd_version: str = Field(min_length=1)
    join_secret: Secret
    max_pods: int = Field(gt=0)

    @classmethod
    def of(cls, attributes: Mapping[str, str], prefix: str) -> Self:
        """Raises MetadataError, naming every attribute that is missing or wrong."""
        own = {key: value for key, value in attributes.items() if key.startswith(prefix)}
        fields = {key.removeprefix(prefix).replace("-", "_"): value for key, value in own.items()}
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise MetadataError("; ".join(_said(each, prefix) for each in error.errors())) from None


def _said(error: Any, prefix: str) -> str:
    return f"attribute {prefix}{str(error['loc'][0]).replace('_', '-')}: {error['msg']}"


class NodeAttributes(_Attributes):
    """Of a machine that joins a cluster."""

    node_labels: Labels
    node_taints: Taints = []


class ControlPlaneAttributes(_Attributes):
    """Of a control-plane machine. `peer_secret` is there where there are several, `first_address` on later ones."""

    cluster_name: str = Field(min_length=1)
    api_address: Annotated[str, Field(pattern=r"^[\d.]+$")]
    pods_cidr: Cidr
    services_cidr: Cidr
    endpoint_secret: Secret
    access_secret: Secret
    replicas: int = Field(ge=1, le=3)
    replica: int = Field(ge=0, le=2)
    first_address: str = ""
    peer_secret: Secret | None = None

    def peers(self, prefix: str) -> str:
        """The peers' secret. Raises MetadataError where there is none though there are peers."""
        if self.peer_secret is None:
            raise MetadataError(f"attribute {prefix}peer-secret: missing, though there are {self.replicas} replicas")
        return self.peer_secret
