"""Functions a program may call (`gcp.container.get_engine_versions(...)`), one row each."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from sandbox.plugins.gcp import links
from sandbox.plugins.gcp.client import Client, Deadline, GoogleError
from sandbox.plugins.gcp.mapping import Json
from sandbox.plugins.gcp.resources.compute import INSTANCE_TEMPLATE, REGION_INSTANCE_TEMPLATE
from sandbox.plugins.gcp.resources.rest import Context, Rest
from sandbox.plugins.gcp.schema import Property, of
from sandbox.plugins.provider import ProviderError
from sandbox.plugins.values import Secret, has_unknown

Arguments = Mapping[str, Any]
# How long a function may take, in seconds; functions have no custom timeouts.
LIMIT = 120.0


def _described(row: Rest) -> Callable[[Client, Arguments], Json]:
    """A function that reads a resource by its name and place, in the form of a data source."""

    def read(client: Client, arguments: Arguments) -> Json:
        schema = of(row.type)
        context = Context(client, schema, Deadline(LIMIT))
        other = sorted({"filter", "mostRecent", "selfLinkUnique"} & {k for k, v in arguments.items() if v is not None})
        if other:
            raise ProviderError(f"the sandbox's gcp plugin finds a {schema.title} by its name, not by {other[0]}")
        variables = row.variables(client.settings, arguments)
        found = row.fetch(context, variables)
        if found is None:
            raise ProviderError(f"{schema.title} {row.id(variables)} not found")
        return listed(schema.properties, row.outputs(context, row.id(variables), variables, found, {}))

    return read


def listed(properties: Mapping[str, Property], values: Mapping[str, Any]) -> Json:
    """A resource's outputs as a data source has them: a list, under a plural name, where the resource has one block."""
    result: Json = {}
    for name, value in values.items():
        each = properties.get(name)
        if each is None or each.kind not in ("List", "Set"):
            result[name] = value
            continue
        entries = [value] if each.is_single else value
        shown = [listed(each.properties, entry) for entry in entries] if each.properties else entries
        result[_plural(name) if each.is_single else name] = shown
    return result


def _plural(name: str) -> str:
    if name.endswith("s"):
        return name
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def _secret_version(client: Client, arguments: Arguments) -> Json:
    """The content of a version, by default the newest. A secret may be given by its full name."""
    secret = str(arguments["secret"])
    project = secret.split("/")[1] if links.is_link(secret) else arguments.get("project") or client.settings.project
    version = arguments.get("version") or "latest"
    url = f"projects/{project}/secrets/{links.last(secret)}/versions/{version}"
    found = client.call("GET", "secret_manager", f"{url}:access", Deadline(LIMIT))
    data, is_base64 = found["payload"]["data"], bool(arguments.get("isSecretDataBase64"))
    return {
        "id": found["name"],
        "name": found["name"],
        "project": project,
        "secret": links.last(secret),
        "version": links.last(found["name"]),
        "isSecretDataBase64": is_base64,
        "secretData": Secret(data if is_base64 else base64.b64decode(data).decode()),
    }


def _project(client: Client, arguments: Arguments) -> Json:
    """A project and its number, by default the provider's own; the account for its bills is read too, as upstream does.

    Upstream: `data_source_google_project.go`.
    """
    asked = arguments.get("projectId") or client.settings.project
    found = client.call("GET", "resource_manager", f"projects/{asked}", Deadline(LIMIT))
    billing = client.call("GET", "billing", f"projects/{asked}/billingInfo", Deadline(LIMIT))
    return {
        "id": f"projects/{found['projectId']}",
        "projectId": found["projectId"],
        "name": found["name"],
        "number": found["projectNumber"],
        "billingAccount": links.last(billing.get("billingAccountName", "")),
        "labels": found.get("labels", {}),
    }


FUNCTIONS: Mapping[str, Callable[[Client, Arguments], Json]] = {
    "gcp:compute/getInstanceTemplate:getInstanceTemplate": _described(INSTANCE_TEMPLATE),
    "gcp:compute/getRegionInstanceTemplate:getRegionInstanceTemplate": _described(REGION_INSTANCE_TEMPLATE),
    "gcp:organizations/getProject:getProject": _project,
    "gcp:secretmanager/getSecretVersionAccess:getSecretVersionAccess": _secret_version,
}


def invoke(client: Client, token: str, arguments: Arguments) -> Json:
    """The result of a function. Raises ProviderError for one the stand-in does not have, and for unknown arguments."""
    if token not in FUNCTIONS:
        raise ProviderError(f"the sandbox's gcp plugin does not know {token}; it knows {', '.join(sorted(FUNCTIONS))}")
    if has_unknown(arguments):
        raise ProviderError(f"{token}: an argument is not known yet; call the function in its output form")
    try:
        return FUNCTIONS[token](client, arguments)
    except GoogleError as error:
        raise ProviderError(f"{token}: {error}") from error
