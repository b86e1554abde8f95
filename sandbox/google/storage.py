"""Cloud Storage: buckets and their policies. Objects are not kept: a bucket lists none."""

from __future__ import annotations

import re

from sandbox.google import machines
from sandbox.google.errors import GoogleError, invalid
from sandbox.google.operations import now
from sandbox.google.permissions import bucket_policy
from sandbox.google.policies import KIND as POLICIES
from sandbox.google.policies import get_policy, set_policy
from sandbox.google.projects import project_number
from sandbox.google.service import BUCKET_OWNERS, Call, filled, fingerprint, handles
from sandbox.google.store import Change, Resource

BUCKETS = "storage.buckets"
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
    return _saved(call, filled({**call.body, **own}, DEFAULTS))


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
        return _saved(call, filled(sent, old))
    kept = {key: value for key, value in old.items() if key in FIXED | {"metageneration"}}
    return _saved(call, filled({**sent, **kept}, DEFAULTS))


@handles("storage.buckets.delete")
def delete_bucket(call: Call) -> Resource:
    name = _found(call)["name"]
    kinds = ((BUCKETS, name), (BUCKET_OWNERS, name), (POLICIES, bucket_policy(name)))
    call.store.apply(Change(kind, key, None) for kind, key in kinds)
    return {}


@handles("storage.buckets.getIamPolicy")
def read_policy(call: Call) -> Resource:
    return _shown(call, get_policy(call.world, bucket_policy(_found(call)["name"])))


@handles("storage.buckets.setIamPolicy")
def write_policy(call: Call) -> Resource:
    return _shown(call, set_policy(call, bucket_policy(_found(call)["name"]), call.body))


def _shown(call: Call, policy: Resource) -> Resource:
    own = {"kind": "storage#policy", "resourceId": f"projects/_/buckets/{call.params['bucket']}"}
    return {**policy, **own}


@handles("storage.objects.list")
def list_objects(call: Call) -> Resource:
    _found(call)
    return {"kind": "storage#objects", "items": []}
