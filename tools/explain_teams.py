"""Shows a person what the teams of a platform may do, where their data lies, and what of it costs money."""

from collections.abc import Iterator
from typing import Any

from plan.images import ImagePlan, repositories
from plan.platform import Platform
from plan.storage import DiskPlan, StorePlan, bucket_name, disks, disks_of, stores, stores_of
from plan.teams import members, secret_variables
from tools.paragraphs import Paragraph

WITHOUT_COST = "no cost: namespaces, rights, network policies, volumes, an empty bucket or registry"
COST = (
    "costs by use: what lies in buckets and registries"
    "{soft}, requests to them, traffic out of the region, access to secrets"
)


DISK_COST = (
    "costs by the hour, used or not: the size and the throughput of each disk, outside of this platform's estimate"
)


def teams_summary(platform: Platform) -> dict[str, Any]:
    """By team: `members`, `queues`, `storage` (by store: address, access, mount, `kept_on_destroy`), `secrets` (by
    variable the secret's name)."""
    return {
        name: {
            "members": [member.written for member in members(platform, name)],
            "queues": _queues(platform, name),
            "storage": {
                store.name: {
                    "address": store.uri,
                    "access": store.access,
                    "mount": store.spec.mount,
                    "kept_on_destroy": store.kept,
                }
                for store in stores_of(platform, name)
            }
            | {
                disk.name: {
                    "address": disk.handle,
                    "access": disk.access,
                    "mount": disk.spec.mount,
                    "kept_on_destroy": True,
                }
                for disk in disks_of(platform, name)
            },
            "secrets": {each.variable: each.secret for each in secret_variables(platform, name)},
        }
        for name in platform.teams
    }


def team_lines(platform: Platform) -> Iterator[Paragraph]:
    """Who may do what, where data lies, what costs money; nothing where there are neither teams nor registries."""
    for name in platform.teams:
        people = ", ".join(member.written for member in members(platform, name)) or "nobody"
        queues = _queues(platform, name)
        through = f" through {' and '.join(queues)}" if queues else ""
        yield Paragraph(f"{people} may submit jobs{through}, in namespace {name} only", f"team {name}")
        for store in stores_of(platform, name):
            yield Paragraph(_store(platform, store), indent=2)
        for disk in disks_of(platform, name):
            yield Paragraph(_disk(disk), indent=2)
        if found := secret_variables(platform, name):
            yield Paragraph("secrets: " + ", ".join(f"{each.variable} from {each.secret}" for each in found), indent=2)
    for plan in repositories(platform):
        yield Paragraph(f"{plan.address}; {_rights(platform, plan)}", f"images {plan.name}")
    if platform.teams or platform.images:
        soft = any(store.made and store.spec.soft_delete for store in stores(platform))
        yield Paragraph(WITHOUT_COST)
        yield Paragraph(COST.format(soft=", deleted objects for seven more days" if soft else ""))
        if disks(platform):
            yield Paragraph(DISK_COST)


def _queues(platform: Platform, namespace: str) -> list[str]:
    return [name for name, queue in platform.queues.items() if namespace in queue.namespaces]


def _store(platform: Platform, store: StorePlan) -> str:
    words = [f"{store.name}: {store.uri}, members and pods {store.access}"]
    if store.spec.mount:
        words.append(f"mounted in jobs at {store.spec.mount} (use: {store.use})")
    if not store.made and store.bucket == bucket_name(platform, store.team, store.name):
        words.append("taken over from an earlier run, with its own rules: never changed or deleted any more")
    elif not store.made:
        words.append("exists, never changed or deleted")
    else:
        words.append("kept on destroy, with all objects" if store.kept else "DELETED WITH ALL OBJECTS on destroy")
        if store.expire_days:
            words.append(f"objects are deleted after {store.expire_days} days")
    return "; ".join(words)


def _disk(disk: DiskPlan) -> str:
    return (
        f"{disk.name}: disk {disk.disk} in {disk.zone}, pods read, in jobs at {disk.spec.mount};"
        " exists, never changed or deleted"
    )


def _rights(platform: Platform, plan: ImagePlan) -> str:
    if not plan.made:
        return "hosts pull; it exists, and is not changed otherwise"
    who = "hosts and members of teams" if platform.teams else "hosts"
    if plan.mirror:
        return f"{who} pull, by way of it, from {plan.mirror}"
    pushers = (
        f"members of {' and '.join(plan.pushers)} push" if plan.pushers else "nobody pushes by the platform's rights"
    )
    return f"{who} pull, {pushers}; deleted with its images on destroy"
