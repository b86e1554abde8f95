"""Compute Engine: the verbs every collection shares. Rules of single types are in `networking` and `instances`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from sandbox.google.backend import ClusterRef
from sandbox.google.compute_types import (
    COLLECTIONS,
    Collection,
    full_name,
    linked,
    mapped,
    relative,
    self_link,
    users_of,
)
from sandbox.google.errors import GoogleError, exists, in_use, invalid, not_found
from sandbox.google.machines import region_of, zones_of
from sandbox.google.operations import Operation, now
from sandbox.google.service import (
    HANDLERS,
    Call,
    Handler,
    compute_scope,
    dig,
    filled,
    fingerprint,
    handles,
    new_id,
    render,
)
from sandbox.google.store import Change, Resource
from sandbox.google.world import World

# Hooks by collection name.
COMPLETE: dict[str, Callable[[Call, str, Resource], Resource]] = {}  # fills in and checks a new or changed resource
SHOW: dict[str, Callable[[World, str, Resource], Resource]] = {}  # adds what is only known when it is read
ALONG: dict[str, Callable[[World, str, Resource | None, Resource | None], list[Change]]] = {}  # (before, after): rest
DERIVED: dict[str, Callable[[World, str], dict[str, Resource]]] = {}  # resources other services own, under a parent
USERS: dict[str, Callable[[World, Resource], list[str]]] = {}  # full names of what uses one other than by a link
FOLLOWS: dict[str, str] = {}  # what happens when an operation on one of them ends, by `world.LAST` and `world.AFTER`
IMMUTABLE = frozenset({"id", "name", "kind", "creationTimestamp", "selfLink", "region", "zone", "selfLinkWithId"})


def location(call: Call) -> str:
    return call.params.get("zone") or call.params.get("region") or "global"


def parent(call: Call, collection: Collection) -> str:
    """The full name's part before the resource's own name; 400 for a zone or region that does not exist."""
    zone, region = call.params.get("zone"), call.params.get("region")
    if zone and zone not in zones_of(region_of(zone)):
        raise invalid(f"Invalid value for field 'zone': '{zone}'. Unknown zone.")
    if region and not zones_of(region):
        raise invalid(f"Invalid value for field 'region': '{region}'. Unknown region.")
    return f"projects/{call.project}/{compute_scope(location(call))}/{collection.path}/"


def find(world: World, collection: Collection, name: str) -> Resource | None:
    """A resource by full name, or by its number in the name's place."""
    found = world.store.get(collection.store_kind, name)
    base, _, last = name.rpartition("/")
    if found is None and last.isdigit():
        siblings = world.store.all(collection.store_kind, f"{base}/").values()
        found = next((r for r in siblings if r["id"] == last), None)
    if found is None and collection.name in DERIVED:
        found = DERIVED[collection.name](world, f"{base}/").get(name)
    return found


def resolve(world: World, reference: str, targets: tuple[str, ...], project: str, place: str) -> tuple[str, Resource]:
    """The full name and the resource a link names; 404 when there is none."""
    names = []
    for target in targets:
        collection = COLLECTIONS[target]
        name = full_name(reference, collection, project, place)
        found = find(world, collection, name)
        if found:
            return relative(found["selfLink"]), found
        names.append(name)
    raise not_found(names[0], compute=True)


def shown(world: World, collection: Collection, resource: Resource) -> Resource:
    show = SHOW.get(collection.name)
    return show(world, relative(resource["selfLink"]), resource) if show else resource


def stored(call: Call, collection: Collection) -> tuple[str, Resource]:
    """The resource the URL addresses: full name and stored value; 404 when it does not exist."""
    last = list(call.params.values())[-1]
    name = parent(call, collection) + last
    found = find(call.world, collection, name)
    if found is None:
        raise not_found(name, compute=True)
    return relative(found["selfLink"]), found


def _resolved_links(call: Call, collection: Collection, resource: Resource) -> Resource:
    def link(targets: tuple[str, ...], reference: str) -> str:
        return self_link(resolve(call.world, reference, targets, call.project, location(call))[0])

    for path, targets in collection.links:
        resource = mapped(resource, path, partial(link, targets))
    return resource


def _with_tokens(collection: Collection, resource: Resource) -> Resource:
    bare = {key: value for key, value in resource.items() if key not in collection.tokens}
    sources = {"fingerprint": bare, "labelFingerprint": bare.get("labels", {})}
    return {**bare, **{token: fingerprint(sources[token]) for token in collection.tokens}}


def prepared(call: Call, collection: Collection, name: str, resource: Resource) -> Resource:
    """A new or changed resource with links resolved and checked, defaults filled in and tokens renewed."""
    resource = filled(_resolved_links(call, collection, resource), collection.defaults)
    complete = COMPLETE.get(collection.name)
    if complete:
        resource = complete(call, name, resource)
    return _with_tokens(collection, resource)


def _born(collection: Collection, name: str, project: str, place: str, resource: Resource) -> Resource:
    number = new_id()
    own = {"kind": collection.kind, "id": number, "creationTimestamp": now(), "selfLink": self_link(name)}
    if place != "global":
        own[collection.scope.removesuffix("s")] = self_link(f"projects/{project}/{compute_scope(place)}")
    if collection.name == "networks":
        own["selfLinkWithId"] = self_link(f"projects/{project}/global/networks/{number}")
    return {**resource, **own}


def start(call: Call, verb: str, name: str, resource: Resource, changes: list[Change]) -> Operation:
    follow = FOLLOWS.get(call.method.split(".")[1], "")
    return Operation(call.method, call.project, location(call), verb, name, resource["id"], changes, follow=follow)


def ready(world: World, name: str) -> None:
    """400 resourceNotReady while another operation changes the resource."""
    if world.operations.under_way(name):
        raise invalid(f"The resource '{name}' is not ready", reason="resourceNotReady")


def along(world: World, collection: Collection, name: str, old: Resource | None, new: Resource | None) -> list[Change]:
    rest = ALONG.get(collection.name)
    return rest(world, name, old, new) if rest else []


def insert(call: Call, collection: Collection) -> Operation:
    if not call.body.get("name"):
        raise invalid("Required field 'resource.name' not specified", reason="required")
    name = parent(call, collection) + call.body["name"]
    if find(call.world, collection, name) or call.world.operations.under_way(name):
        raise exists(name, compute=True)
    born = _born(collection, name, call.project, location(call), call.body)
    resource = prepared(call, collection, name, born)
    put = Change(collection.store_kind, name, resource)
    if collection.at_once:
        call.store.apply([put])
    changes = [put, *along(call.world, collection, name, None, resource)]
    operation = start(call, "insert", name, resource, changes)
    operation.on_error = [Change(collection.store_kind, name, None)]
    return operation


def get(call: Call, collection: Collection) -> Resource:
    return shown(call.world, collection, stored(call, collection)[1])


def members(call: Call, collection: Collection, prefix: str) -> list[Resource]:
    """What a list shows under a full-name prefix, resources of other services included."""
    derived = DERIVED[collection.name](call.world, prefix) if collection.name in DERIVED else {}
    resources = [*call.store.all(collection.store_kind, prefix).values(), *derived.values()]
    wanted = _filter(call.query.get("filter", ""))
    return [shown(call.world, collection, r) for r in resources if wanted(r)]


def list_all(call: Call, collection: Collection) -> Resource:
    prefix = parent(call, collection)
    items = members(call, collection, prefix)
    return {
        "kind": f"{collection.kind}List",
        "id": prefix.rstrip("/"),
        "items": items,
        "selfLink": self_link(prefix[:-1]),
    }


@handles("compute.zoneOperations.list")
def list_operations(call: Call) -> Resource:
    """A zone's operations, the newest first."""
    place = (call.project, call.params["zone"])
    found = [each for each in call.world.operations.all() if (each.project, each.location) == place]
    shown_ones = [render(each) for each in found if each.api == "compute"]
    wanted = _filter(call.query.get("filter", ""))
    return {"kind": "compute#operationList", "items": [each for each in reversed(shown_ones) if wanted(each)]}


def aggregated(call: Call, collection: Collection) -> Resource:
    items: dict[str, Resource] = {}
    for resource in members(call, collection, f"projects/{call.project}/"):
        scope = "/".join(relative(resource["selfLink"]).split("/")[2:4])
        scope = "global" if scope.startswith("global") else scope
        items.setdefault(scope, {collection.path: []})[collection.path].append(resource)
    return {"kind": f"{collection.kind}AggregatedList", "items": items}


def _filter(expression: str) -> Callable[[Resource], bool]:
    """One comparison ("name = x", "status != y", "name eq x"); anything longer is refused rather than ignored.

    `eq` and `ne` take a regular expression that matches the whole value.
    """
    if not expression:
        return lambda resource: True
    term = re.fullmatch(r"\(?([\w.]+)\s*(=|!=|eq|ne)\s*(\"[^\"]+\"|[^\s\"()]+)\)?", expression)
    if term is None:
        raise invalid(f"Invalid value for field 'filter': '{expression}'. Invalid list filter expression.")
    equal, path, value = term[2] in ("=", "eq"), term[1].split("."), term[3].strip('"')
    wanted = re.compile(value if term[2] in ("eq", "ne") else re.escape(value))
    return lambda resource: bool(wanted.fullmatch(str(dig(resource, *path)))) == equal


def check_token(sent: object, current: object) -> None:
    """412 unless the fingerprint a client read is still the current one."""
    if sent != current:
        raise GoogleError("CONDITION_NOT_MET", "Supplied fingerprint does not match current metadata fingerprint.")


def change(
    call: Call, collection: Collection, name: str, old: Resource, new: Resource, verb: str = "update"
) -> Operation:
    """An operation that turns `old` into `new` after all checks."""
    ready(call.world, name)
    resource = prepared(call, collection, name, new)
    put = Change(collection.store_kind, name, resource)
    return start(call, verb, name, resource, [put, *along(call.world, collection, name, old, resource)])


def patch(call: Call, collection: Collection) -> Operation:
    """Merges the body into the resource: objects by field, lists as a whole."""
    name, old = stored(call, collection)
    if "fingerprint" in call.body:
        check_token(call.body["fingerprint"], old.get("fingerprint"))
    sent = {key: value for key, value in call.body.items() if key not in IMMUTABLE}
    return change(call, collection, name, old, filled(sent, old), "patch")


def update(call: Call, collection: Collection) -> Operation:
    """Replaces the resource by the body; identity and creation stay. Some update methods are patches by HTTP verb."""
    if call.route.method.http_method == "PATCH":
        return patch(call, collection)
    name, old = stored(call, collection)
    if "fingerprint" in call.body:
        check_token(call.body["fingerprint"], old.get("fingerprint"))
    kept = {key: value for key, value in old.items() if key in IMMUTABLE}
    return change(call, collection, name, old, {**call.body, **kept})


def set_labels(call: Call, collection: Collection) -> Operation:
    name, old = stored(call, collection)
    check_token(call.body.get("labelFingerprint"), old["labelFingerprint"])
    return change(call, collection, name, old, {**old, "labels": call.body.get("labels", {})}, "setLabels")


def delete(call: Call, collection: Collection) -> Operation:
    name, old = stored(call, collection)
    if old.get("deletionProtection"):
        raise invalid(
            f"Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion: {name}'.",
            reason="resourceInUseByAnotherResource",
        )
    ready(call.world, name)
    user = next(_users(call.world, collection, name), None)
    if user:
        raise in_use(collection.kind.removeprefix("compute#"), name, user)
    gone = Change(collection.store_kind, name, None)
    return start(call, "delete", name, old, [gone, *along(call.world, collection, name, old, None)])


# Fields of Kubernetes Engine's own resources that name Compute resources: store kind, link path.
GKE_LINKS = {
    "networks": ("container.clusters", "network"),
    "subnetworks": ("container.clusters", "subnetwork"),
    "resourcePolicies": ("container.nodePools", "placementPolicy.policyName"),
}


def _users(world: World, collection: Collection, name: str) -> Iterator[str]:
    """Full names of the resources that refer to `name`."""
    for row, path in users_of(collection.name):
        for resource in world.store.all(row.store_kind).values():
            if name in map(relative, linked(resource, path)):
                yield relative(resource["selfLink"])
    if collection.name in USERS:
        yield from USERS[collection.name](world, world.store.get(collection.store_kind, name) or {})
    kind, path = GKE_LINKS.get(collection.name, ("", ""))
    for owner, resource in world.store.all(kind).items():
        ref = ClusterRef.parse(owner)
        place = next(iter(resource.get("locations", [])), ref.location)
        if any(full_name(reference, collection, ref.project, place) == name for reference in linked(resource, path)):
            yield owner


VERBS: dict[str, Callable[[Call, Collection], Resource | Operation]] = {
    "insert": insert,
    "get": get,
    "list": list_all,
    "aggregatedList": aggregated,
    "patch": patch,
    "update": update,
    "setLabels": set_labels,
    "delete": delete,
}


def _bound(handler: Callable[[Call, Collection], Resource | Operation], collection: Collection) -> Handler:
    return lambda call: handler(call, collection)


for _collection in COLLECTIONS.values():
    for _verb, _handler in VERBS.items():
        HANDLERS[f"compute.{_collection.name}.{_verb}"] = _bound(_handler, _collection)
