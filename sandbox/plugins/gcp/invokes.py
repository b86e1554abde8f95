"""Functions a program may call (`gcp.container.get_engine_versions(...)`), one row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sandbox.plugins.gcp.client import Client, Deadline, GoogleError
from sandbox.plugins.gcp.mapping import Json
from sandbox.plugins.gcp.resources.compute import RESERVATION
from sandbox.plugins.gcp.resources.rest import Context
from sandbox.plugins.gcp.schema import of
from sandbox.plugins.provider import ProviderError

Arguments = Mapping[str, Any]
# How long a function may take, in seconds; functions have no custom timeouts.
LIMIT = 120.0


def _client_config(client: Client, arguments: Arguments) -> Json:
    settings = client.settings
    return {
        "id": f"projects/{settings.project}/regions/{settings.region}/zones/{settings.zone}",
        "project": settings.project,
        "region": settings.region,
        "zone": settings.zone,
        "accessToken": settings.access_token,
        "defaultLabels": dict(settings.default_labels),
    }


def _project(client: Client, arguments: Arguments) -> Json:
    project = arguments.get("projectId") or client.settings.project
    found = client.call("GET", "resource_manager", f"projects/{project}", Deadline(LIMIT))
    return {
        "id": f"projects/{project}",
        "projectId": found.get("projectId", project),
        "name": found.get("name", project),
        "number": str(found.get("projectNumber", "")),
        "labels": found.get("labels", {}),
        "effectiveLabels": found.get("labels", {}),
        "pulumiLabels": {},
        "autoCreateNetwork": False,
        "billingAccount": "",
        "deletionPolicy": "PREVENT",
        "folderId": "",
        "orgId": "",
        "tags": {},
    }


def _engine_versions(client: Client, arguments: Arguments) -> Json:
    settings = client.settings
    project = arguments.get("project") or settings.project
    location = arguments.get("location") or settings.zone or settings.region
    url = f"projects/{project}/locations/{location}/serverConfig"
    found = client.call("GET", "container", url, Deadline(LIMIT))
    prefix = arguments.get("versionPrefix") or ""
    masters = [v for v in found.get("validMasterVersions", ()) if v.startswith(prefix)]
    nodes = [v for v in found.get("validNodeVersions", ()) if v.startswith(prefix)]
    channels = found.get("channels", ())
    return {
        "id": url,
        "location": location,
        "project": project,
        "versionPrefix": prefix or None,
        "defaultClusterVersion": found.get("defaultClusterVersion", ""),
        "validMasterVersions": masters,
        "validNodeVersions": nodes,
        "latestMasterVersion": masters[0] if masters else "",
        "latestNodeVersion": nodes[0] if nodes else "",
        "releaseChannelDefaultVersion": {c["channel"]: c.get("defaultVersion", "") for c in channels},
        "releaseChannelLatestVersion": {c["channel"]: _latest(c, prefix) for c in channels},
        "releaseChannelUpgradeTargetVersion": {
            c["channel"]: c.get("upgradeTargetVersion", c.get("defaultVersion", "")) for c in channels
        },
    }


def _latest(channel: Json, prefix: str) -> str:
    return next((v for v in channel.get("validVersions", ()) if v.startswith(prefix)), "")


def _reservation(client: Client, arguments: Arguments) -> Json:
    context = Context(client, of(RESERVATION.type), Deadline(LIMIT))
    variables = RESERVATION.variables(client.settings, arguments)
    found = RESERVATION.fetch(context, variables)
    if found is None:
        raise ProviderError(f"reservation {RESERVATION.id(variables)} not found")
    return RESERVATION.outputs(context, RESERVATION.id(variables), variables, found, {})


FUNCTIONS: Mapping[str, Callable[[Client, Arguments], Json]] = {
    "gcp:compute/getReservation:getReservation": _reservation,
    "gcp:container/getEngineVersions:getEngineVersions": _engine_versions,
    "gcp:organizations/getClientConfig:getClientConfig": _client_config,
    "gcp:organizations/getProject:getProject": _project,
}


def invoke(client: Client, token: str, arguments: Arguments) -> Json:
    """The result of a function. Raises ProviderError for one the stand-in does not have."""
    if token not in FUNCTIONS:
        raise ProviderError(f"the sandbox's gcp plugin has no function {token}; it has {', '.join(sorted(FUNCTIONS))}")
    try:
        return FUNCTIONS[token](client, arguments)
    except GoogleError as error:
        raise ProviderError(f"{token}: {error}") from error
