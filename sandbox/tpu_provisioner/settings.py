"""What the controller is told: environment variables (upstream's `cmd/main.go`), and the cluster that it serves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False", "")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"([0-9.]+)(h|ms|m|s)")


class SettingError(ValueError):
    """A variable has a value that the controller does not understand; the message names both."""


@dataclass(frozen=True)
class Settings:
    """`location` is the cluster's, `zone` the one zone of every pool. Empty strings: not set."""

    project: str = ""
    cluster: str = ""
    location: str = ""
    zone: str = ""
    node_service_account: str = ""
    node_tags: tuple[str, ...] = ()
    pod_to_node_labels: tuple[str, ...] = ()
    node_secondary_disk: str = ""
    node_secure_boot: bool = True
    node_additional_networks: str = ""
    node_disk_type: str = ""
    node_confidential_storage: bool = False
    node_boot_disk_kms_key: str = ""
    force_on_demand: bool = False
    node_min_lifespan: float = 10.0  # seconds
    pod_resource_type: str = "google.com/tpu"
    concurrency: int = 3

    @property
    def parent(self) -> str:
        """The cluster's full name."""
        return f"projects/{self.project}/locations/{self.location}/clusters/{self.cluster}"


def read(environment: Mapping[str, str]) -> Settings:
    """The settings of an environment. Raises SettingError."""
    names = {
        "project": "GCP_PROJECT_ID",
        "cluster": "GCP_CLUSTER",
        "location": "GCP_CLUSTER_LOCATION",
        "zone": "GCP_ZONE",
        "node_service_account": "GCP_NODE_SERVICE_ACCOUNT",
        "node_secondary_disk": "GCP_NODE_SECONDARY_DISK",
        "node_additional_networks": "GCP_NODE_ADDITIONAL_NETWORKS",
        "node_disk_type": "GCP_NODE_DISK_TYPE",
        "node_boot_disk_kms_key": "GCP_NODE_BOOT_DISK_KMS_KEY",
    }
    provider = environment.get("PROVIDER", "gke")
    if provider.lower() != "gke":
        raise SettingError(f"PROVIDER={provider}: the stand-in knows gke only")
    return Settings(
        **{field: environment.get(name, "") for field, name in names.items()},
        node_tags=_words(environment, "GCP_NODE_TAGS"),
        pod_to_node_labels=_words(environment, "GCP_POD_TO_NODE_LABELS"),
        node_secure_boot=_flag(environment, "GCP_NODE_SECURE_BOOT", default=True),
        node_confidential_storage=_flag(environment, "GCP_NODE_CONFIDENTIAL_STORAGE", default=False),
        force_on_demand=_flag(environment, "GCP_FORCE_ON_DEMAND", default=False),
        node_min_lifespan=_seconds(environment, "NODE_MIN_LIFESPAN", default="10s"),
        pod_resource_type=environment.get("POD_RESOURCE_TYPE", "google.com/tpu"),
        concurrency=_count(environment, "CONCURRENCY", default="3"),
    )


def _words(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    text = environment.get(name, "")
    return tuple(text.split(",")) if text.strip() else ()


def _flag(environment: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = environment.get(name, str(default).lower())
    if value not in (*_TRUE, *_FALSE):
        raise SettingError(f"{name}={value} is neither true nor false")
    return value in _TRUE


def _seconds(environment: Mapping[str, str], name: str, *, default: str) -> float:
    value = environment.get(name, default)
    parts = _PART.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise SettingError(f"{name}={value} is not a duration such as 10s")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _count(environment: Mapping[str, str], name: str, *, default: str) -> int:
    value = environment.get(name, default)
    if not value.isdigit():
        raise SettingError(f"{name}={value} is not a number")
    return int(value)
