"""Cloud Storage: buckets, their policies and their objects.

Google's text where a public source has it: a taken name, a bucket that is not empty, public members, tokens of
federation on a bucket with access lists. Other refusals have the emulator's own text. Objects are kept whole in the
store, so they are meant to be few and small. Not there: versions, holds, folders as things of their own, ACLs, soft
deleted objects (a deleted object is gone; they would not keep a bucket from being deleted), and lifecycle rules are
stored but never act.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP

from sandbox.google import machines
from sandbox.google.callers import is_federated
from sandbox.google.errors import GoogleError, invalid
from sandbox.google.operations import now
from sandbox.google.permissions import bucket_policy, require
from sandbox.google.policies import KIND as POLICIES
from sandbox.google.policies import get_policy, set_policy
from sandbox.google.project_numbers import project_number
from sandbox.google.service import BUCKET_OWNERS, Call, Media, dig, filled, fingerprint, handles
from sandbox.google.store import Change, Resource

BUCKETS = "storage.buckets"
OBJECTS = "storage.objects"  # store kind: "bucket/object" -> metadata, and `content` in base64
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
MULTI_REGIONS = ("ASIA", "EU", "US")
# What a new bucket has, by Google's description of the Bucket resource.
DEFAULTS = {
    "storageClass": "STANDARD",
    "iamConfiguration": {
        "bucketPolicyOnly": {"enabled": False},
        "publicAccessPrevention": "inherited",
        "uniformBucketLevelAccess": {"enabled": False},
    },
    "softDeletePolicy": {"retentionDurationSeconds": "604800"},
}
# Part of the URL or of the bucket's birth; a body that repeats them changes nothing.
FIXED = frozenset({"id", "kind", "location", "locationType", "name", "projectNumber", "selfLink", "timeCreated"})
DAY = 24 * 3600
SOFT_DELETE_DAYS = (7, 90)
PAGE = 1000
EVERYBODY = frozenset({"allUsers", "allAuthenticatedUsers"})


def _found(call: Call) -> Resource:
    bucket = call.store.get(BUCKETS, call.params["bucket"])
    if bucket is None:
        raise GoogleError("NOT_FOUND", "The specified bucket does not exist.")
    return bucket


def _saved(call: Call, bucket: Resource) -> Resource:
    bare = {key: value for key, value in bucket.items() if key != "etag"}
    generation = str(int(bare.get("metageneration", "0")) + 1)
    saved = {**bare, "metageneration": generation, "updated": now()}
    saved["etag"] = fingerprint(saved)
    call.store.put(BUCKETS, saved["name"], saved)
    return saved


@handles("storage.buckets.insert")
def create_bucket(call: Call) -> Resource:
    """Names are taken worldwide; the place is written in capitals; new buckets carry the legacy bindings."""
    name, project = call.body.get("name", ""), call.query.get("project", "")
    if not project:
        raise invalid("Required parameter: project", reason="required")
    if not NAME.fullmatch(name):
        raise invalid(f"Invalid bucket name: '{name}'")
    if call.store.get(BUCKETS, name):
        raise GoogleError(
            "ALREADY_EXISTS",
            "The requested bucket name is not available. The bucket namespace is shared by all users of the system."
            " Please select a different name and try again.",
            reason="conflict",
        )
    place = call.body.get("location", "US").upper()
    if place not in MULTI_REGIONS and place.lower() not in machines.REGIONS:
        raise invalid(f"The specified location constraint is not valid: {place}")
    own = {
        "kind": "storage#bucket",
        "id": name,
        "selfLink": f"https://www.googleapis.com/storage/v1/b/{name}",
        "location": place,
        "locationType": "multi-region" if place in MULTI_REGIONS else "region",
        "projectNumber": project_number(project),
        "timeCreated": now(),
    }
    bucket = filled({**call.body, **own}, DEFAULTS)
    _check_rules(bucket)
    legacy = {
        "bindings": [
            {
                "role": "roles/storage.legacyBucketOwner",
                "members": [f"projectEditor:{project}", f"projectOwner:{project}"],
            },
            {"role": "roles/storage.legacyBucketReader", "members": [f"projectViewer:{project}"]},
        ],
        "version": 1,
        "etag": "CAE=",
    }
    changes = [
        Change(BUCKET_OWNERS, name, {"project": project}),
        Change(POLICIES, bucket_policy(name), legacy),
    ]
    call.store.apply(changes)
    return _saved(call, bucket)


def _check_rules(bucket: Resource) -> None:
    """What a hierarchical namespace demands and excludes, and how long deleted objects may be kept.

    Sources: Google's pages "Hierarchical namespace" and "Soft delete".
    """
    if dig(bucket, "hierarchicalNamespace", "enabled"):
        if not _is_uniform(bucket):
            raise invalid("Hierarchical namespace can only be enabled with uniform bucket-level access.")
        for key, what in (("versioning", "object versioning"), ("autoclass", "Autoclass")):
            if dig(bucket, key, "enabled"):
                raise invalid(f"Hierarchical namespace cannot be enabled together with {what}.")
    kept = int(dig(bucket, "softDeletePolicy", "retentionDurationSeconds") or 0)
    least, most = SOFT_DELETE_DAYS
    if kept and not least * DAY <= kept <= most * DAY:
        raise invalid(f"Soft delete retention duration must be 0, or from {least} to {most} days.")


def _is_uniform(bucket: Resource) -> bool:
    return bool(dig(bucket, "iamConfiguration", "uniformBucketLevelAccess", "enabled"))


@handles("storage.buckets.get")
def get_bucket(call: Call) -> Resource:
    return _found(call)


@handles("storage.buckets.list")
def list_buckets(call: Call) -> Resource:
    owned = {name for name, row in call.store.all(BUCKET_OWNERS).items() if row["project"] == call.project}
    return {"kind": "storage#buckets", "items": [b for n, b in call.store.all(BUCKETS).items() if n in owned]}


@handles("storage.buckets.patch", "storage.buckets.update")
def change_bucket(call: Call) -> Resource:
    """PATCH merges objects by field, PUT replaces what is not fixed."""
    old = _found(call)
    sent = {key: value for key, value in call.body.items() if key not in FIXED}
    if call.method.endswith(".patch"):
        changed = filled(sent, old)
    else:
        kept = {key: value for key, value in old.items() if key in FIXED | {"metageneration"}}
        changed = filled({**sent, **kept}, DEFAULTS)
    if bool(dig(changed, "hierarchicalNamespace", "enabled")) != bool(dig(old, "hierarchicalNamespace", "enabled")):
        raise invalid("Hierarchical namespace can only be set when a bucket is created.")
    _check_rules(changed)
    return _saved(call, changed)


@handles("storage.buckets.delete")
def delete_bucket(call: Call) -> Resource:
    name = _found(call)["name"]
    if call.store.all(OBJECTS, f"{name}/"):
        raise GoogleError("ALREADY_EXISTS", "The bucket you tried to delete is not empty.", reason="conflict")
    kinds = ((BUCKETS, name), (BUCKET_OWNERS, name), (POLICIES, bucket_policy(name)))
    call.store.apply(Change(kind, key, None) for kind, key in kinds)
    return {}


@handles("storage.buckets.getIamPolicy")
def read_policy(call: Call) -> Resource:
    return _shown(call, get_policy(call.world, bucket_policy(_found(call)["name"])))


@handles("storage.buckets.setIamPolicy")
def write_policy(call: Call) -> Resource:
    bucket = _found(call)
    members = {each for binding in call.body.get("bindings", []) for each in binding.get("members", [])}
    if members & EVERYBODY and dig(bucket, "iamConfiguration", "publicAccessPrevention") == "enforced":
        raise GoogleError(
            "CONDITION_NOT_MET",
            "The member bindings allUsers and allAuthenticatedUsers are not allowed since public access prevention is"
            " enforced.",
        )
    return _shown(call, set_policy(call, bucket_policy(bucket["name"]), call.body))


def _shown(call: Call, policy: Resource) -> Resource:
    own = {"kind": "storage#policy", "resourceId": f"projects/_/buckets/{call.params['bucket']}"}
    return {**policy, **own}


# Objects


@dataclass(frozen=True)
class _Upload:
    metadata: Resource
    content: bytes
    type: str


def _uploaded(call: Call) -> _Upload:
    """What a request brings: the content alone (`uploadType=media`), or behind its metadata (`multipart`)."""
    kind = call.query.get("uploadType", "")
    if call.media is None or kind not in ("media", "multipart"):
        raise invalid(f"The emulator takes uploads of the types media and multipart, not '{kind}'.", reason="required")
    if kind == "media":
        return _Upload({}, call.media.content, call.media.type)
    head = b"Content-Type: " + call.media.type.encode() + b"\r\n\r\n"
    message = BytesParser(policy=HTTP).parsebytes(head + call.media.content)
    parts = list(message.iter_parts()) if message.is_multipart() else []
    if len(parts) != 2:
        raise invalid("Invalid multipart request with 0 mime parts.")
    metadata, content = (bytes(part.get_payload(decode=True) or b"") for part in parts)
    return _Upload(json.loads(metadata), content, parts[1].get_content_type())


@handles("storage.objects.insert")
def insert_object(call: Call) -> Resource:
    """Writes a whole object; over an older one only with the permission to delete that.

    A workload's own token is refused (412) where the bucket has access lists.
    """
    bucket = _found(call)
    upload = _uploaded(call)
    name = str(call.query.get("name") or upload.metadata.get("name") or "")
    if not name:
        raise invalid("Required parameter: name", reason="required")
    if is_federated(call.caller) and not _is_uniform(bucket):
        raise GoogleError(
            "CONDITION_NOT_MET",
            "The type of authentication token used for this request requires that Uniform Bucket Level Access be"
            " enabled.",
        )
    key = f"{bucket['name']}/{name}"
    old = call.store.get(OBJECTS, key)
    wanted = call.query.get("ifGenerationMatch")
    if wanted is not None and wanted != (old or {"generation": "0"})["generation"]:
        raise GoogleError("CONDITION_NOT_MET", "At least one of the pre-conditions you specified did not hold.")
    if old:
        require(call, "storage.objects.delete")
    generation = str(time.time_ns() // 1000)
    saved = {
        "kind": "storage#object",
        "id": f"{key}/{generation}",
        "selfLink": f"https://www.googleapis.com/storage/v1/b/{bucket['name']}/o/{name}",
        "name": name,
        "bucket": bucket["name"],
        "generation": generation,
        "metageneration": "1",
        "contentType": upload.metadata.get("contentType") or upload.type or "application/octet-stream",
        "storageClass": bucket["storageClass"],
        "size": str(len(upload.content)),
        "md5Hash": base64.b64encode(hashlib.md5(upload.content, usedforsecurity=False).digest()).decode(),
        "timeCreated": now(),
        "updated": now(),
        "content": base64.b64encode(upload.content).decode(),
        **({"metadata": upload.metadata["metadata"]} if upload.metadata.get("metadata") else {}),
    }
    saved["etag"] = fingerprint([generation, zlib.crc32(upload.content)])
    call.store.put(OBJECTS, key, saved)
    return _without_content(saved)


def _without_content(stored: Resource) -> Resource:
    return {key: value for key, value in stored.items() if key != "content"}


def _object(call: Call) -> tuple[str, Resource]:
    key = f"{_found(call)['name']}/{call.params['object']}"
    found = call.store.get(OBJECTS, key)
    if found is None:
        raise GoogleError("NOT_FOUND", f"No such object: {key}")
    return key, found


@handles("storage.objects.get")
def get_object(call: Call) -> Resource | Media:
    """The metadata, or with `alt=media` the content."""
    _, found = _object(call)
    if call.query.get("alt") == "media":
        return Media(base64.b64decode(found["content"]), found["contentType"])
    return _without_content(found)


@handles("storage.objects.delete")
def delete_object(call: Call) -> Resource:
    key, _ = _object(call)
    call.store.put(OBJECTS, key, None)
    return {}


@handles("storage.objects.list")
def list_objects(call: Call) -> Resource:
    """In order of their names, a page at a time; with a delimiter those below a prefix, and the prefixes below it."""
    bucket = _found(call)["name"]
    start, delimiter = call.query.get("prefix", ""), call.query.get("delimiter", "")
    names = sorted(key.partition("/")[2] for key in call.store.all(OBJECTS, f"{bucket}/{start}"))
    rows = list(dict.fromkeys(_cut(names, start, delimiter)))
    after = call.query.get("pageToken", "")
    left = [row for row in rows if row > after]
    page = left[: min(int(call.query.get("maxResults") or PAGE), PAGE)]
    whole = {name: call.store.get(OBJECTS, f"{bucket}/{name}") for name in page}
    items = [_without_content(found) for found in whole.values() if found]
    prefixes = [name for name, found in whole.items() if found is None]
    more = {"nextPageToken": page[-1]} if len(left) > len(page) else {}
    return {"kind": "storage#objects", "items": items, **({"prefixes": prefixes} if prefixes else {}), **more}


def _cut(names: list[str], start: str, delimiter: str) -> Iterator[str]:
    """The names, each cut behind the first delimiter that follows `start`."""
    for name in names:
        head, found, _ = name[len(start) :].partition(delimiter) if delimiter else (name[len(start) :], "", "")
        yield start + head + found
