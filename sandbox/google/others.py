"""What others own in a project before a platform comes: buckets, secrets, accounts. The inventory leaves it out."""

from __future__ import annotations

import base64
from typing import Any

from sandbox.adapter import Others
from sandbox.google.dispatch import routed
from sandbox.google.service import HANDLERS, Call
from sandbox.google.store import Change
from sandbox.google.world import SEEDED, World


def lay(world: World, others: Others) -> None:
    """Makes all of it, whatever APIs are enabled. Raises GoogleError for what is there already."""
    project = f"projects/{others.project}"
    uniform = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
    seeded = []
    for name, place in others.buckets.items():
        body = {"name": name, "location": place, **uniform}
        _call(world, "/storage/v1/b", body, ("project", others.project))
        seeded.append(name)
    for secret, text in others.secrets.items():
        _call(world, f"/sm/v1/{project}/secrets", {"replication": {"automatic": {}}}, ("secretId", secret))
        payload = {"payload": {"data": base64.b64encode(text.encode()).decode()}}
        _call(world, f"/sm/v1/{project}/secrets/{secret}:addVersion", payload)
        seeded += [f"{project}/secrets/{secret}", f"{project}/secrets/{secret}/versions/1"]
    for account in others.accounts:
        _call(world, f"/iam/v1/{project}/serviceAccounts", {"accountId": account})
        seeded.append(f"{project}/serviceAccounts/{account}@{others.project}.iam.gserviceaccount.com")
    world.store.apply(Change(SEEDED, name, {}) for name in seeded)


def _call(world: World, path: str, body: dict[str, Any], *query: tuple[str, str]) -> None:
    route = routed("POST", path)
    HANDLERS[route.method.id](Call(world, route, body, query))
