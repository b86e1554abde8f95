"""Secret Manager and Cloud KMS: secrets with versions, key rings with keys, and their policies."""

from __future__ import annotations

import re

from sandbox.google.errors import GoogleError, invalid, precondition
from sandbox.google.operations import now
from sandbox.google.policies import KIND as POLICIES
from sandbox.google.policies import get_policy, set_policy
from sandbox.google.service import Call, fingerprint, handles
from sandbox.google.store import Change, Resource

SECRETS = "secretmanager.secrets"
VERSIONS = "secretmanager.versions"
SECRET_ID = re.compile(r"[a-zA-Z0-9_-]{1,255}")
_SECRET = "secretmanager.projects.secrets"
_RING = "cloudkms.projects.locations.keyRings"
RINGS = "cloudkms.keyRings"
KEYS = "cloudkms.cryptoKeys"
KEY_VERSIONS = "cloudkms.cryptoKeyVersions"


def _find(call: Call, kind: str, name: str, what: str) -> Resource:
    found = call.store.get(kind, name)
    if found is None:
        raise GoogleError("NOT_FOUND", f"{what} [{name}] not found.")
    return found


def _new_name(call: Call, kind: str, parent: str, item: str, what: str) -> str:
    if not SECRET_ID.fullmatch(item):
        raise invalid(f'The provided {what} ID "{item}" does not match the expected format [{SECRET_ID.pattern}].')
    name = f"{parent}/{item}"
    if call.store.get(kind, name):
        raise GoogleError("ALREADY_EXISTS", f"{what} [{name}] already exists.")
    return name


# Secrets


def _secret(call: Call) -> tuple[str, Resource]:
    name = f"projects/{call.project}/secrets/{call.params['secretsId']}"
    return name, _find(call, SECRETS, name, "Secret")


def _save(call: Call, kind: str, name: str, value: Resource) -> Resource:
    bare = {key: item for key, item in value.items() if key != "etag"}
    saved = {**bare, "etag": fingerprint(bare)}
    call.store.put(kind, name, saved)
    return saved


@handles(f"{_SECRET}.create")
def create_secret(call: Call) -> Resource:
    name = _new_name(call, SECRETS, f"projects/{call.project}/secrets", call.query.get("secretId", ""), "Secret")
    if not call.body.get("replication"):
        raise invalid("Secret.replication is required.")
    return _save(call, SECRETS, name, {**call.body, "name": name, "createTime": now()})


@handles(f"{_SECRET}.get")
def get_secret(call: Call) -> Resource:
    return _secret(call)[1]


@handles(f"{_SECRET}.list")
def list_secrets(call: Call) -> Resource:
    found = list(call.store.all(SECRETS, f"projects/{call.project}/").values())
    return {"secrets": found, "totalSize": len(found)}


@handles(f"{_SECRET}.patch")
def patch_secret(call: Call) -> Resource:
    name, secret = _secret(call)
    fields = [field for field in call.query.get("updateMask", "").split(",") if field]
    if not fields:
        raise invalid("update_mask is required.")
    return _save(call, SECRETS, name, {**secret, **{f: call.body[f] for f in fields if f in call.body}})


@handles(f"{_SECRET}.delete")
def delete_secret(call: Call) -> Resource:
    name, _ = _secret(call)
    versions = [Change(VERSIONS, version, None) for version in call.store.all(VERSIONS, f"{name}/")]
    call.store.apply([*versions, Change(SECRETS, name, None), Change(POLICIES, name, None)])
    return {}


@handles(f"{_SECRET}.getIamPolicy")
def secret_policy(call: Call) -> Resource:
    return get_policy(call.world, _secret(call)[0])


@handles(f"{_SECRET}.setIamPolicy")
def set_secret_policy(call: Call) -> Resource:
    return set_policy(call, _secret(call)[0])


@handles(f"{_SECRET}.addVersion")
def add_version(call: Call) -> Resource:
    secret, _ = _secret(call)
    number = len(call.store.all(VERSIONS, f"{secret}/")) + 1
    name = f"{secret}/versions/{number}"
    version = {"name": name, "createTime": now(), "state": "ENABLED", "replicationStatus": {"automatic": {}}}
    data = dict(call.body.get("payload") or {}).get("data", "")
    call.store.put("secretmanager.payloads", name, {"data": data})
    return _save(call, VERSIONS, name, version)


def _version(call: Call) -> tuple[str, Resource]:
    """A version by number, or the newest enabled one for "latest"."""
    secret, _ = _secret(call)
    wanted = call.params["versionsId"]
    if wanted == "latest":
        enabled = [n for n, v in call.store.all(VERSIONS, f"{secret}/").items() if v["state"] == "ENABLED"]
        wanted = enabled[-1].rsplit("/", 1)[-1] if enabled else wanted
    name = f"{secret}/versions/{wanted}"
    return name, _find(call, VERSIONS, name, "Secret Version")


@handles(f"{_SECRET}.versions.get")
def get_version(call: Call) -> Resource:
    return _version(call)[1]


@handles(f"{_SECRET}.versions.list")
def list_versions(call: Call) -> Resource:
    """Newest first; destroyed ones stay in the list, so that a filter on the state is worth its while."""
    asked = call.query.get("filter", "")
    state = re.fullmatch(r"state[:=](ENABLED|DISABLED|DESTROYED)", asked)
    if asked and not state:
        raise invalid(
            f"Invalid filter '{asked}': only state:ENABLED, state:DISABLED and state:DESTROYED are supported."
        )
    versions = call.store.all(VERSIONS, f"{_secret(call)[0]}/").values()
    found = [version for version in versions if state is None or version["state"] == state[1]]
    return {"versions": found[::-1], "totalSize": len(found)}


@handles(f"{_SECRET}.versions.access")
def access_version(call: Call) -> Resource:
    name, version = _version(call)
    if version["state"] != "ENABLED":
        raise precondition(f"Secret Version [{name}] is in {version['state']} state.")
    payload = call.store.get("secretmanager.payloads", name) or {}
    return {"name": name, "payload": {"data": payload.get("data", "")}}


@handles(*(f"{_SECRET}.versions.{verb}" for verb in ("enable", "disable", "destroy")))
def change_version(call: Call) -> Resource:
    name, version = _version(call)
    if version["state"] == "DESTROYED":
        raise precondition(f"Secret Version [{name}] is in DESTROYED state.")
    verb = call.method.rpartition(".")[2]
    state = {"enable": "ENABLED", "disable": "DISABLED", "destroy": "DESTROYED"}[verb]
    gone = {"destroyTime": now()} if state == "DESTROYED" else {}
    if gone:
        call.store.put("secretmanager.payloads", name, None)
    return _save(call, VERSIONS, name, {**version, "state": state, **gone})


# Keys


def _ring(call: Call) -> tuple[str, Resource]:
    name = f"projects/{call.project}/locations/{call.params['locationsId']}/keyRings/{call.params['keyRingsId']}"
    return name, _find(call, RINGS, name, "KeyRing")


def _key(call: Call) -> tuple[str, Resource]:
    name = f"{_ring(call)[0]}/cryptoKeys/{call.params['cryptoKeysId']}"
    return name, _find(call, KEYS, name, "CryptoKey")


@handles(f"{_RING}.create")
def create_ring(call: Call) -> Resource:
    parent = f"projects/{call.project}/locations/{call.params['locationsId']}/keyRings"
    name = _new_name(call, RINGS, parent, call.query.get("keyRingId", ""), "KeyRing")
    ring = {"name": name, "createTime": now()}
    call.store.put(RINGS, name, ring)
    return ring


@handles(f"{_RING}.get")
def get_ring(call: Call) -> Resource:
    return _ring(call)[1]


@handles(f"{_RING}.getIamPolicy", f"{_RING}.setIamPolicy")
def ring_policy(call: Call) -> Resource:
    name, _ = _ring(call)
    return set_policy(call, name) if call.method.endswith(".setIamPolicy") else get_policy(call.world, name)


@handles(f"{_RING}.cryptoKeys.create")
def create_key(call: Call) -> Resource:
    ring, _ = _ring(call)
    name = _new_name(call, KEYS, f"{ring}/cryptoKeys", call.query.get("cryptoKeyId", ""), "CryptoKey")
    template = {"protectionLevel": "SOFTWARE", "algorithm": "GOOGLE_SYMMETRIC_ENCRYPTION"}
    template |= call.body.get("versionTemplate", {})
    version = {"name": f"{name}/cryptoKeyVersions/1", "state": "ENABLED", "createTime": now(), **template}
    own = {"name": name, "createTime": now(), "versionTemplate": template, "destroyScheduledDuration": "2592000s"}
    key = {"purpose": "ENCRYPT_DECRYPT", **own, **call.body, "primary": version}
    call.store.apply([Change(KEYS, name, key), Change(KEY_VERSIONS, version["name"], version)])
    return key


@handles(f"{_RING}.cryptoKeys.get")
def get_key(call: Call) -> Resource:
    return _key(call)[1]


@handles(f"{_RING}.cryptoKeys.patch")
def patch_key(call: Call) -> Resource:
    name, key = _key(call)
    fields = call.query.get("updateMask", "").split(",")
    return _save_key(call, name, {**key, **{f: call.body[f] for f in fields if f in call.body}})


def _save_key(call: Call, name: str, key: Resource) -> Resource:
    call.store.put(KEYS, name, key)
    return key


@handles(f"{_RING}.cryptoKeys.getIamPolicy", f"{_RING}.cryptoKeys.setIamPolicy")
def key_policy(call: Call) -> Resource:
    name, _ = _key(call)
    return set_policy(call, name) if call.method.endswith(".setIamPolicy") else get_policy(call.world, name)


@handles(f"{_RING}.cryptoKeys.cryptoKeyVersions.list")
def list_key_versions(call: Call) -> Resource:
    found = list(call.store.all(KEY_VERSIONS, f"{_key(call)[0]}/").values())
    return {"cryptoKeyVersions": found, "totalSize": len(found)}


@handles(f"{_RING}.cryptoKeys.cryptoKeyVersions.destroy")
def destroy_key_version(call: Call) -> Resource:
    """Keys cannot be deleted; their versions are, after a waiting time."""
    key, value = _key(call)
    name = f"{key}/cryptoKeyVersions/{call.params['cryptoKeyVersionsId']}"
    version = {**_find(call, KEY_VERSIONS, name, "CryptoKeyVersion"), "state": "DESTROY_SCHEDULED"}
    call.store.apply([Change(KEY_VERSIONS, name, version), Change(KEYS, key, {**value, "primary": version})])
    return version
