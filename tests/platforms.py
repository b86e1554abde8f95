"""Small platforms to vary."""

from typing import Any

from plan.platform import Platform
from platform_config.errors import ConfigError, ConfigErrors
from rules.load import load_platform

PROJECT = "my-project"
ZONES = {
    "v4": "us-central2-b",
    "v5e": "us-central1-a",
    "v5p": "us-east5-a",
    "v6e": "us-east5-b",
    "tpu7x": "us-central1-c",
}

SELF_MANAGED: dict[str, Any] = {"kind": "self-managed"}
EXISTING: dict[str, Any] = {
    "kind": "existing",
    "server": "https://10.0.0.10:6443",
    "ca": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    "join_secret": "projects/my-project/secrets/join",
    "access_secret": "projects/my-project/secrets/access",
}
EXISTING_NETWORK: dict[str, Any] = {"kind": "existing", "network": "n", "subnetwork": "s", "pods_range": "p"}


def raw(slices: dict[str, Any] | None = None, **platform: Any) -> dict[str, Any]:
    """A platform as YAML would give it; by default with one sound slice."""
    default = {"train": {"machine_type": "ct6e-standard-4t", "topology": "4x4"}}
    return {"zone": ZONES["v6e"], "slices": default if slices is None else slices, **platform}


def load(slices: dict[str, Any] | None = None, **platform: Any) -> Platform:
    """The platform of `raw`, checked."""
    return load_platform(raw(slices, **platform), project=PROJECT)


def errors(written: object, project: str | None = PROJECT) -> tuple[ConfigError, ...]:
    """What is wrong with a platform as YAML would give it."""
    try:
        load_platform(written, project=project)
    except ConfigErrors as refused:
        return refused.errors
    return ()
