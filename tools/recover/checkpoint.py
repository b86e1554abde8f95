"""What the engine has saved of a stack: its resources, and the operations that it began and never ended.

The format is that of `pulumi stack export` (upstream: sdk/go/common/apitype, `UntypedDeployment`, version 3); the
steps of `pulumi preview --json` describe resources in the same way.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Json = dict[str, Any]

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What the engine writes for a value that it does not know yet (upstream: sdk/go/common/resource/plugin)."""
CREATING, DELETING = "creating", "deleting"
STACK = "pulumi:pulumi:Stack"
PROVIDER = "pulumi:providers:"
RELEASE = "kubernetes:helm.sh/v3:Release"


class CheckpointError(Exception):
    """What was exported is not a stack; the message says what is wrong with it."""


@dataclass(frozen=True)
class Resource:
    """A resource as the state or a preview describes it. `inputs` may have UNKNOWN in them; `provider` is the
    provider's URN, "" for none; `depends` names, by input, the resources that it comes from; `made`: when the engine
    noted its creation. `id`: what the provider calls it, "" where it is not made; `deleted`: it was deleted to make it
    anew, which is still to be done; `unread`: the state has its id, and nothing that the provider says of it. `row`:
    all that the engine wrote."""

    urn: str
    type: str
    custom: bool
    inputs: Mapping[str, Any]
    parent: str
    provider: str
    protect: bool
    depends: Mapping[str, tuple[str, ...]]
    made: datetime | None = None
    id: str = ""
    deleted: bool = False
    unread: bool = False
    row: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        return self.urn.rpartition("::")[2]

    @property
    def in_cluster(self) -> bool:
        return self.type.startswith("kubernetes:")


@dataclass(frozen=True)
class Operation:
    """Something that the engine began: `creating`, `updating`, `deleting`, `reading` or `importing` a resource."""

    kind: str
    resource: Resource


@dataclass(frozen=True)
class Checkpoint:
    """A stack: its resources by URN, and what is pending; `saved`: when the engine wrote it. `replaced`: resources that
    were made anew, and are still to be deleted; they have the URNs of those that took their place."""

    resources: Mapping[str, Resource]
    pending: tuple[Operation, ...]
    saved: datetime | None = None
    replaced: tuple[Resource, ...] = ()

    @property
    def identities(self) -> Mapping[tuple[str, str], Resource]:
        """What exists as far as the state knows, by type and id."""
        rows = (*self.resources.values(), *self.replaced)
        return {(each.type, each.id): each for each in rows if each.id and not each.deleted}

    @property
    def first_made(self) -> datetime | None:
        """When the first resource was made, as far as the engine has noted that."""
        return min((each.made for each in self.resources.values() if each.made), default=None)


def read(exported: Any) -> Checkpoint:
    """The stack that `pulumi stack export` has printed. Raises CheckpointError."""
    try:
        deployment = exported["deployment"] or {}
        rows = deployment.get("resources") or ()
        resources = [_resource(each) for each in rows if not each.get("delete")]
        replaced = tuple(_resource(each) for each in rows if each.get("delete"))
        pending = tuple(
            Operation(str(each["type"]), _resource(each["resource"]))
            for each in deployment.get("pending_operations") or ()
        )
        saved = moment(deployment.get("manifest", {}).get("time"))
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"`pulumi stack export` printed something else than a stack ({error!r})") from None
    return Checkpoint({each.urn: each for each in resources}, pending, saved, replaced)


@dataclass(frozen=True)
class Preview:
    """What `up` would do: how many resources for each operation, which by URN, and those that it would create."""

    counts: Mapping[str, int]
    changes: Mapping[str, str]
    creates: tuple[Resource, ...] = field(default=())


def preview(printed: Any) -> Preview:
    """What `pulumi preview --json` has printed. Raises CheckpointError."""
    try:
        steps = printed.get("steps") or ()
        counts = {str(op): int(count) for op, count in (printed.get("changeSummary") or {}).items()}
        changes = {str(each["urn"]): str(each["op"]) for each in steps if each["op"] != "same"}
        creates = tuple(_resource(each["newState"]) for each in steps if each["op"] == "create")
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"`pulumi preview --json` printed something else than a preview ({error!r})") from None
    return Preview(counts, changes, creates)


def _resource(row: Mapping[str, Any]) -> Resource:
    return Resource(
        urn=str(row["urn"]),
        type=str(row["type"]),
        custom=bool(row.get("custom")),
        inputs=row.get("inputs") or {},
        parent=str(row.get("parent") or ""),
        provider=str(row.get("provider") or "").rpartition("::")[0],
        protect=bool(row.get("protect")),
        depends={key: tuple(urns or ()) for key, urns in (row.get("propertyDependencies") or {}).items()},
        made=moment(row.get("created")),
        id=str(row.get("id") or ""),
        deleted=bool(row.get("pendingReplacement")),
        unread=bool(row.get("id")) and not row.get("outputs"),
        row=row,
    )


def moment(text: Any) -> datetime | None:
    """A time as the engine, Google and Kubernetes write it, if there is one."""
    try:
        found = datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None
    return found if found and found.tzinfo else None


def known(value: Any) -> bool:
    """Whether a value is there and has no unknown part."""
    if isinstance(value, Mapping):
        return all(map(known, value.values()))
    return value is not None and value != "" and UNKNOWN not in str(value)


def ancestors(urn: str, rows: Mapping[str, Resource]) -> Iterator[Resource]:
    """The components that a resource is in, outermost first, without the stack itself."""
    parent = rows[urn].parent if urn in rows else ""
    if parent in rows and rows[parent].type != STACK:
        yield from ancestors(parent, rows)
        yield rows[parent]
