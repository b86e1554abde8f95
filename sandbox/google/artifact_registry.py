"""Artifact Registry: repositories of images and their policies. No image is ever kept in one.

Rules: a repository's place is a region or a multi-region, its format and mode are fixed, a remote repository names its
upstream and a standard one none. Deleting a repository asks nothing, as at Google.
"""

from __future__ import annotations

import re

from sandbox.google import machines
from sandbox.google.errors import GoogleError, invalid, not_found
from sandbox.google.operations import Operation, now
from sandbox.google.policies import KIND as POLICIES
from sandbox.google.policies import get_policy, set_policy
from sandbox.google.service import Call, handles, render
from sandbox.google.store import Change, Resource

KIND = "artifactregistry.repositories"
MULTI_REGIONS = frozenset({"asia", "europe", "us"})
REPOSITORY_ID = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
FIXED = ("name", "format", "mode", "createTime", "registryUri")
_REPOSITORY = "artifactregistry.projects.locations.repositories"


def _parent(call: Call) -> str:
    return f"projects/{call.project}/locations/{call.params['locationsId']}"


def _found(call: Call) -> tuple[str, Resource]:
    name = f"{_parent(call)}/repositories/{call.params['repositoriesId']}"
    found = call.store.get(KIND, name)
    if found is None:
        raise GoogleError("NOT_FOUND", "Requested entity was not found.")
    return name, found


def _operation(call: Call, verb: str, name: str, changes: list[Change], response: Resource) -> Operation:
    place = call.params["locationsId"]
    return Operation(call.method, call.project, place, verb, name, changes=changes, response=response)


@handles(f"{_REPOSITORY}.create")
def create_repository(call: Call) -> Operation:
    place, wanted = call.params["locationsId"], call.query.get("repositoryId", "")
    if place not in machines.REGIONS and place not in MULTI_REGIONS:
        raise invalid(f'Location "{place}" is not supported by Artifact Registry.')
    if not REPOSITORY_ID.fullmatch(wanted):
        raise invalid(f'Invalid repository id "{wanted}": it must match {REPOSITORY_ID.pattern}.')
    name = f"{_parent(call)}/repositories/{wanted}"
    if call.store.get(KIND, name) or call.world.operations.under_way(name):
        raise GoogleError("ALREADY_EXISTS", "the repository already exists")
    body = {"mode": "STANDARD_REPOSITORY", **call.body}
    if body.get("format", "FORMAT_UNSPECIFIED") == "FORMAT_UNSPECIFIED":
        raise invalid("Repository.format is required.")
    if (body["mode"] == "REMOTE_REPOSITORY") != bool(body.get("remoteRepositoryConfig")):
        raise invalid("A repository of mode REMOTE_REPOSITORY, and no other, has a remote_repository_config.")
    host = f"{place}-docker.pkg.dev"
    made = {**body, "name": name, "createTime": now(), "updateTime": now()}
    made["registryUri"] = f"{host}/{call.project}/{wanted}"
    return _operation(call, "create", name, [Change(KIND, name, made)], made)


@handles(f"{_REPOSITORY}.get")
def get_repository(call: Call) -> Resource:
    return _found(call)[1]


@handles(f"{_REPOSITORY}.list")
def list_repositories(call: Call) -> Resource:
    return {"repositories": list(call.store.all(KIND, f"{_parent(call)}/repositories/").values())}


@handles(f"{_REPOSITORY}.patch")
def change_repository(call: Call) -> Resource:
    name, old = _found(call)
    mask = [field for field in call.query.get("updateMask", "").split(",") if field]
    sent = {key: call.body[key] for key in mask if key in call.body} if mask else dict(call.body)
    changed = {**old, **sent, **{key: old[key] for key in FIXED if key in old}, "updateTime": now()}
    gone = [key for key in mask if key not in call.body and key not in FIXED]
    changed = {key: value for key, value in changed.items() if key not in gone}
    call.store.put(KIND, name, changed)
    return changed


@handles(f"{_REPOSITORY}.delete")
def delete_repository(call: Call) -> Operation:
    name, _ = _found(call)
    return _operation(call, "delete", name, [Change(KIND, name, None), Change(POLICIES, name, None)], {})


@handles(f"{_REPOSITORY}.getIamPolicy", f"{_REPOSITORY}.setIamPolicy")
def repository_policy(call: Call) -> Resource:
    name, _ = _found(call)
    return set_policy(call, name) if call.method.endswith(".setIamPolicy") else get_policy(call.world, name)


@handles("artifactregistry.projects.locations.operations.get")
def get_operation(call: Call) -> Resource:
    operation = call.world.operations.get(call.params["operationsId"])
    if operation is None or operation.api != "artifactregistry":
        raise not_found(f"operations/{call.params['operationsId']}")
    return render(operation)
