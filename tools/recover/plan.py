"""What is to be done, in which order, and what is left to a person: from what was saved and what was found.

Nothing here asks anybody or changes anything.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from tools.recover.checkpoint import CREATING, DELETING, PROVIDER, RELEASE, STACK, Checkpoint, Resource
from tools.recover.findings import Finding, Findings, Release
from tools.recover.lock import Holder

CLOCKS_DIFFER = timedelta(minutes=2)
"""How much this machine's clock may differ from Google's and the cluster's."""
LEFT = "left to you"
HOLDER = "when that process is gone: --holder-is-gone"
ENGINE_ONLY = ("pulumi:", "tpu:")
"""Beginnings of types that exist in the state only."""
Key = Callable[[str], str]
"""What an import file calls a resource, by URN."""


@dataclass(frozen=True)
class Remove:
    """Files beside the state that are half written (`tools/recover/attributes.py`)."""

    files: tuple[Path, ...]


@dataclass(frozen=True)
class Unlock:
    holders: tuple[Holder, ...]


@dataclass(frozen=True)
class Wait:
    """Until Google or Kubernetes has done what it is at."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Settle:
    """Roll a helm release back; `revision` as in `Release.back_to`."""

    release: Release


@dataclass(frozen=True)
class Uninstall:
    release: Release


@dataclass(frozen=True)
class Adoption:
    resource: Resource
    id: str


@dataclass(frozen=True)
class Adopt:
    """Import these, and the components that they are in; all of them protected, or none."""

    adoptions: tuple[Adoption, ...]
    protect: bool


@dataclass(frozen=True)
class Complete:
    """Write what an import leaves out (`tools/recover/completion.py`). `replacing`: those that took the place of a
    resource in the state; `imported`: the others."""

    replacing: tuple[Adoption, ...]
    imported: tuple[Adoption, ...]


@dataclass(frozen=True)
class Connect:
    """Register the platform's connection to its cluster, without which nothing inside can be imported."""


@dataclass(frozen=True)
class Refresh:
    """Bring the state up to date; `forget`: and drop the creations that are noted as pending."""

    forget: tuple[str, ...]


Step = Remove | Unlock | Wait | Settle | Uninstall | Adopt | Complete | Connect | Refresh


@dataclass(frozen=True)
class Left:
    """Something that only a person can decide. `do`: what to type or to look at."""

    name: str
    why: str
    do: str


@dataclass(frozen=True)
class Item:
    """What was found of a resource that the engine began to make, or that is missing in the state, in words."""

    name: str
    type: str
    found: str
    action: str


@dataclass(frozen=True)
class Told:
    """What a person has told the command. `ours`: names or URNs of resources that are the platform's;
    `forget`: of those whose creation is not to be pending any more, whatever came of it; `since`: when
    the update began that was interrupted, as far as that is known."""

    holder_is_gone: bool = False
    uninstall: bool = False
    lost_state: bool = False
    ours: frozenset[str] = frozenset()
    forget: frozenset[str] = frozenset()
    since: datetime | None = None


@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...]
    items: tuple[Item, ...]
    left: tuple[Left, ...]


@dataclass
class _Sorted:
    """Where each resource goes."""

    items: list[Item] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    settles: list[Step] = field(default_factory=list)
    adoptions: list[Adoption] = field(default_factory=list)

    def note(self, resource: Resource, found: str, action: str) -> None:
        self.items.append(Item(resource.name, resource.type, found, action))

    def leave(self, resource: Resource, found: str, why: str, do: str) -> None:
        self.note(resource, found, LEFT)
        self.left.append(Left(resource.name, why, do))


def plan(
    checkpoint: Checkpoint,
    wanted: Iterable[Resource],
    findings: Findings,
    told: Told,
    holders: tuple[Holder, ...] | None,
    interrupted: bool,
) -> Plan:
    """The plan of one round. `wanted`: resources that may exist without being in the state; `holders`: of the lock,
    None where nobody can say; `interrupted`: whether an update failed or did not end, and the state may be behind."""
    if left := locked(holders, told):
        return Plan((), (), left)
    sorted_ = _Sorted()
    known_as = checkpoint.identities
    for resource in wanted:
        finding = findings[resource.urn]
        _sort(sorted_, resource, finding, told, known_as.get((resource.type, finding.id)))
    for operation in checkpoint.pending:
        if operation.kind != CREATING and operation.resource.urn in findings:
            _sort_other(sorted_, operation.resource, findings[operation.resource.urn], told)
    for resource in _settled_releases(checkpoint):
        half = findings.get(resource.urn)
        if half and half.state == "half-made":
            _sort_other(sorted_, resource, half, told)
    steps: list[Step] = []
    if holders or (holders is None and told.holder_is_gone):
        steps.append(Unlock(holders or ()))
    if sorted_.waits:
        return Plan((*steps, Wait(tuple(sorted_.waits))), tuple(sorted_.items), tuple(sorted_.left))
    if holders is None and not steps and sorted_.settles:
        steps.append(Refresh(()))  # helm asks nobody for the lock; the engine does, and ends if somebody holds it
    steps += sorted_.settles
    replacing = [each for each in sorted_.adoptions if each.resource.urn in checkpoint.resources]
    imported = [each for each in sorted_.adoptions if each.resource.urn not in checkpoint.resources]
    steps += _adopt(checkpoint, imported)
    if not any(isinstance(each, Connect) for each in steps):
        steps += _finish(checkpoint, sorted_, replacing, imported, interrupted or bool(sorted_.settles))
    return Plan(tuple(steps), tuple(sorted_.items), tuple(sorted_.left))


def _finish(
    checkpoint: Checkpoint,
    sorted_: _Sorted,
    replacing: Sequence[Adoption],
    imported: Sequence[Adoption],
    interrupted: bool,
) -> Iterator[Step]:
    """Pending creations are forgotten together, so only once none of them is left to a person."""
    creating = [each.resource for each in checkpoint.pending if each.kind == CREATING]
    is_left = {each.name for each in sorted_.items if each.action == LEFT}
    if any(each.name in is_left for each in creating):
        if interrupted:
            yield Refresh(())
        return
    complete = Complete(tuple(replacing), tuple(imported))
    if replacing:
        yield complete
        yield Refresh(tuple(each.name for each in creating))
    elif imported:
        # What is pending shows that a refresh is due, until the last step drops it.
        if interrupted or checkpoint.pending:
            yield Refresh(())
        yield complete
    elif interrupted or checkpoint.pending:
        yield Refresh(tuple(each.name for each in creating))


class NamesError(Exception):
    """A person has named a resource that is not one of those that are looked up."""


def check_names(told: Told, wanted: Iterable[Resource], checkpoint: Checkpoint) -> None:
    """Raises NamesError for names in `ours` and `forget` that nothing here has; what is adopted already counts."""
    missing = tuple(wanted)
    names = {name for each in (*missing, *checkpoint.resources.values()) for name in (each.name, each.urn)}
    if strange := sorted((told.ours | told.forget) - names):
        there = ", ".join(sorted(each.name for each in missing)) or "nothing"
        raise NamesError(f"nothing that was begun is called {', '.join(strange)}; there is: {there}")


def locked(holders: tuple[Holder, ...] | None, told: Told) -> tuple[Left, ...]:
    """What to say where the lock may not be taken away."""
    if told.holder_is_gone:
        return ()
    return tuple(Left("the lock", f"held by {each}", HOLDER) for each in holders or () if not each.gone)


def _sort(into: _Sorted, resource: Resource, finding: Finding, told: Told, same: Resource | None) -> None:
    """`same`: what the state has under the type and id that were found."""
    found = _words(finding)
    if {resource.name, resource.urn} & told.forget:
        into.note(resource, found, "forget, as you say")
    elif same is not None and finding.exists:
        into.note(resource, found, f"nothing: the state has it{'' if same.urn == resource.urn else f' as {same.name}'}")
    elif finding.state in ("again", "absent"):
        into.note(resource, found, "`up` makes it")
    elif finding.state == "changing":
        into.note(resource, found, "wait")
        into.waits.append(resource.name)
    elif finding.state == "unknown":
        into.leave(
            resource, found, finding.why, f"run this command again when that can be told, or --forget {resource.name}"
        )
    elif doubt := _doubt(resource, finding, told):
        into.leave(
            resource, found, doubt, f"if it is this platform's: --ours {resource.name}; else --forget {resource.name}"
        )
    elif finding.state == "half-made":
        _sort_half_made(into, resource, finding, told)
    else:
        into.note(resource, found, "adopt")
        into.adoptions.append(Adoption(resource, finding.id))
        if finding.note:
            into.left.append(Left(resource.name, finding.note, f"pulumi up --replace '{resource.urn}'"))


def _doubt(resource: Resource, finding: Finding, told: Told) -> str:
    """Why something that exists may not be what the engine began to make; "" where it is."""
    if told.lost_state or finding.ours or {resource.name, resource.urn} & told.ours:
        return ""
    if finding.made is None:
        return "nothing shows that this stack made it"
    if told.since is None:
        return f"it is from {finding.made:%Y-%m-%d %H:%M} UTC, and nothing shows when the update began"
    if finding.made < told.since - CLOCKS_DIFFER:
        return f"it is from {finding.made:%Y-%m-%d %H:%M} UTC, before the update began"
    return ""


def _sort_half_made(into: _Sorted, resource: Resource, finding: Finding, told: Told) -> None:
    release = finding.release
    assert release is not None
    if release.back_to is not None:
        into.note(resource, _words(finding), f"helm rollback to revision {release.back_to}, then adopt")
        into.settles.append(Settle(release))
        into.adoptions.append(Adoption(resource, finding.id))
    elif told.uninstall:
        into.note(resource, _words(finding), "helm uninstall")
        into.settles.append(Uninstall(release))
    else:
        into.leave(resource, _words(finding), finding.why, _uninstall_words(release))


def _sort_other(into: _Sorted, resource: Resource, finding: Finding, told: Told) -> None:
    """A release that the state has, and whose upgrade was cut short; or what Google is deleting."""
    release = finding.release
    if resource.type != RELEASE:
        if finding.state == "changing":
            into.note(resource, _words(finding), "wait")
            into.waits.append(resource.name)
    elif finding.state == "unknown":
        into.leave(resource, _words(finding), finding.why, "run this command again when that can be told")
    elif release and release.back_to is not None:
        into.note(resource, _words(finding), f"helm rollback to revision {release.back_to}")
        into.settles.append(Settle(release))
    elif release and told.uninstall:
        into.note(resource, _words(finding), "helm uninstall")
        into.settles.append(Uninstall(release))
    elif release:
        into.leave(resource, _words(finding), finding.why, _uninstall_words(release))


def _uninstall_words(release: Release) -> str:
    return f"--uninstall, or by hand: helm uninstall {release.name} -n {release.namespace}"


def _words(finding: Finding) -> str:
    words = {
        "absent": "does not exist",
        "present": f"exists{f', {finding.ours}' if finding.ours else ''}",
        "changing": "exists, and is not ready",
        "half-made": "half made",
        "again": "may be made again",
        "unknown": "unknown",
    }[finding.state]
    return f"{words}: {finding.why}" if finding.why and finding.state != "again" else words


def _adopt(checkpoint: Checkpoint, adoptions: Iterable[Adoption]) -> Iterator[Step]:
    """What can be imported now. Objects whose connection the state does not have yet come in a later round."""
    ready: list[Adoption] = []
    later: list[Adoption] = []
    for each in adoptions:
        provider = each.resource.provider
        (later if each.resource.in_cluster and provider not in checkpoint.resources else ready).append(each)
    for protect in (False, True):
        group = tuple(each for each in ready if each.resource.protect == protect)
        if group:
            yield Adopt(group, protect)
    if later:
        yield Connect()


def is_engine_only(resource: Resource) -> bool:
    """Whether nothing outside the engine comes of a resource."""
    return not resource.custom or resource.type.startswith(ENGINE_ONLY)


def wanted_of(checkpoint: Checkpoint, creates: Iterable[Resource]) -> tuple[Resource, ...]:
    """What may exist without being in the state: pending creations, and those of a preview (`creates`)."""
    pending = tuple(each.resource for each in checkpoint.pending if each.kind == CREATING)
    missing = (each for each in creates if each.urn not in checkpoint.resources)
    rows = {each.urn: each for each in (*missing, *pending)}
    return tuple(each for each in rows.values() if not is_engine_only(each))


def others_of(checkpoint: Checkpoint) -> tuple[Resource, ...]:
    """What the state has, and was being changed: what Google was asked to delete, and helm releases. These all: an
    engine that goes on after its program or connection has failed notes that an upgrade ended, also where helm did not
    end it, and then helm refuses every other one."""
    pending = (
        each.resource
        for each in checkpoint.pending
        if each.resource.type == RELEASE
        or (each.kind == DELETING and not each.resource.in_cluster and not is_engine_only(each.resource))
        if each.kind != CREATING
    )
    return (*pending, *_settled_releases(checkpoint))


def _settled_releases(checkpoint: Checkpoint) -> tuple[Resource, ...]:
    """Releases of the state at which the engine was not."""
    at = {each.resource.urn for each in checkpoint.pending}
    return tuple(each for urn, each in checkpoint.resources.items() if each.type == RELEASE and urn not in at)


def import_file(step: Adopt, checkpoint: Checkpoint, others: Mapping[str, Resource]) -> dict[str, object]:
    """The file for `pulumi import`; `others`: resources by URN, among them the components that are not in the state.

    Each entry is known by its position, because names alone need not be unique.
    """
    table: dict[str, str] = {}
    rows: list[dict[str, object]] = []
    keys: dict[str, str] = {}

    def key(urn: str) -> str:
        """What the file calls a resource: an entry of its own, or one of the state."""
        if urn not in keys:
            keys[urn] = f"r{len(keys)}"
            if urn in checkpoint.resources:
                table[keys[urn]] = urn
        return keys[urn]

    def within(resource: Resource) -> dict[str, object]:
        """The entry's parent, which becomes an entry itself where the state does not have it."""
        parent = resource.parent
        known_parent = checkpoint.resources.get(parent) or others.get(parent)
        if known_parent is None or known_parent.type == STACK:
            return {}
        if parent not in checkpoint.resources and parent not in keys:
            component(known_parent)
        return {"parent": key(parent)}

    def component(resource: Resource) -> None:
        inside = within(resource)
        rows.append(
            {
                "type": resource.type,
                "name": key(resource.urn),
                "logicalName": resource.name,
                **inside,
                "component": True,
            }
        )

    for each in step.adoptions:
        inside = within(each.resource)
        row = {"type": each.resource.type, "name": key(each.resource.urn), "logicalName": each.resource.name}
        rows.append({**row, "id": each.id, **inside, **_provider(each.resource, checkpoint, key)})
    return {"nameTable": table, "resources": rows}


def _provider(resource: Resource, checkpoint: Checkpoint, key: Key) -> dict[str, object]:
    """The provider of an entry: that of the state, or the default one in its version."""
    if resource.provider in checkpoint.resources:
        return {"provider": key(resource.provider)}
    name = resource.provider.rpartition("::")[2]
    version = name.removeprefix("default_").replace("_", ".")
    return {"version": version} if name.startswith("default_") and PROVIDER in resource.provider else {}
