"""The provider's configuration (`gcp:project`, `gcp:containerCustomEndpoint`...), checked.

The names are the real provider's. The stand-in knows only what it can honour, and it refuses to run without custom
endpoints on this machine: it must never talk to the real cloud.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from sandbox.plugins.provider import Failure
from sandbox.plugins.values import UNKNOWN

# API name used by resource rows -> configuration key that says where it is.
ENDPOINTS = {
    "artifact_registry": "artifactRegistryCustomEndpoint",
    "billing": "cloudBillingCustomEndpoint",
    "budgets": "billingCustomEndpoint",
    "compute": "computeCustomEndpoint",
    "container": "containerCustomEndpoint",
    "iam": "iamBetaCustomEndpoint",
    "kms": "kmsCustomEndpoint",
    "logging": "loggingCustomEndpoint",
    "monitoring": "monitoringCustomEndpoint",
    "resource_manager": "resourceManagerCustomEndpoint",
    "resource_manager_v3": "resourceManagerV3CustomEndpoint",
    "secret_manager": "secretManagerCustomEndpoint",
    "service_usage": "serviceUsageCustomEndpoint",
    "storage": "storageCustomEndpoint",
}
REQUIRED = ("compute", "container", "iam", "resource_manager", "service_usage")
KEYS = frozenset(
    {
        *ENDPOINTS.values(),
        "accessToken",
        "addPulumiAttributionLabel",
        "batching",
        "billingProject",
        "defaultLabels",
        "pollInterval",
        "project",
        "region",
        "requestTimeout",
        "userProjectOverride",
        "zone",
    }
)
# Sent by the engine and the SDK beside the provider's own keys.
INTERNAL = frozenset({"version", "pluginDownloadURL", "__internal", "__defaults"})
LOCAL_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
ATTRIBUTION_LABEL = {"goog-pulumi-provisioned": "true"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|us|h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}


@dataclass(frozen=True)
class Settings:
    """Where and how to call. `endpoints` maps an API name of `ENDPOINTS` to its base URL; times are in seconds.

    `quota_project`: whose quota calls use, if not that of the credential's own project.
    """

    project: str = ""
    region: str = ""
    zone: str = ""
    access_token: str = ""
    endpoints: Mapping[str, str] = field(default_factory=dict)
    poll_interval: float = 10.0
    request_timeout: float = 120.0
    default_labels: Mapping[str, str] = field(default_factory=dict)
    attribution: bool = True
    quota_project: str = ""

    @property
    def added_labels(self) -> dict[str, str]:
        """The labels every labelled resource gets beside its own."""
        return {**(ATTRIBUTION_LABEL if self.attribution else {}), **self.default_labels}


class SettingsError(ValueError):
    """The configuration is refused; `failures` say key by key why."""

    def __init__(self, failures: list[Failure]) -> None:
        super().__init__("\n".join(f.reason for f in failures))
        self.failures = failures


def seconds(text: str) -> float:
    """A Go duration like `500ms` or `1m30s` in seconds. Raises ValueError."""
    parts = _DURATION.findall(text)
    if not parts or "".join(n + u for n, u in parts) != text:
        raise ValueError(f"{text!r} is not a duration: write 500ms, 10s or 1m30s")
    return sum(float(n) * _SECONDS[u] for n, u in parts)


def parse(properties: Mapping[str, Any]) -> Settings:
    """Settings from the properties of a provider resource. Raises SettingsError with everything that is wrong."""
    failures: list[Failure] = []
    given = {k: v for k, v in properties.items() if k not in INTERNAL and v is not None and v is not UNKNOWN}
    for key in sorted(set(given) - KEYS):
        close = get_close_matches(key, KEYS, n=1)
        hint = f" Did you mean 'gcp:{close[0]}'?" if close else " Remove it."
        failures.append(Failure(key, f"gcp:{key}: the sandbox's gcp plugin has no such setting.{hint}"))
    endpoints = {api: str(given[key]).rstrip("/") for api, key in ENDPOINTS.items() if key in given}
    for api, key in ENDPOINTS.items():
        failures += _endpoint_failures(api, key, endpoints, unknown=properties.get(key) is UNKNOWN)
    if not given.get("accessToken") and properties.get("accessToken") is not UNKNOWN:
        reason = "gcp:accessToken is not set: the sandbox takes any text, and no credentials are ever looked up."
        failures.append(Failure("accessToken", reason))
    values = {key: _parsed(key, given[key], failures) for key in given if key in KEYS}
    batching = values.get("batching")
    if isinstance(batching, Mapping) and "sendAfter" in batching:
        _parsed("batching.sendAfter", batching["sendAfter"], failures)
    if failures:
        raise SettingsError(failures)
    return Settings(
        project=values.get("project", ""),
        region=values.get("region", ""),
        zone=values.get("zone", ""),
        access_token=values.get("accessToken", ""),
        endpoints=endpoints,
        poll_interval=values.get("pollInterval", Settings.poll_interval),
        request_timeout=values.get("requestTimeout", Settings.request_timeout),
        default_labels=values.get("defaultLabels", {}),
        attribution=values.get("addPulumiAttributionLabel", True),
        quota_project=_quota_project(values),
    )


def _quota_project(values: Mapping[str, Any]) -> str:
    return str(values.get("billingProject") or values.get("project", "")) if values.get("userProjectOverride") else ""


def _endpoint_failures(api: str, key: str, endpoints: Mapping[str, str], *, unknown: bool) -> list[Failure]:
    if api not in endpoints:
        if unknown or api not in REQUIRED:
            return []
        reason = "The sandbox's gcp plugin is a stand-in and never talks to the real cloud: point it at the emulator."
        return [Failure(key, f"gcp:{key} is not set. {reason}")]
    if urlsplit(endpoints[api]).hostname in LOCAL_HOSTS:
        return []
    return [Failure(key, f"gcp:{key}: {endpoints[api]} is not on this machine; the sandbox only calls 127.0.0.1.")]


def _parsed(key: str, value: Any, failures: list[Failure]) -> Any:
    """One value in its own type: the engine sends all configuration as strings, structured values as JSON."""
    try:
        if key in ("pollInterval", "requestTimeout", "batching.sendAfter"):
            return seconds(str(value))
        if key in ("batching", "defaultLabels", "addPulumiAttributionLabel", "userProjectOverride"):
            return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        failures.append(Failure(key, f"gcp:{key}: {error}"))
        return None
    return str(value)
