"""Shows a person who gets which slices: queues with what they own and can reach, and slices that no queue has."""

from collections.abc import Iterator
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from plan.platform import Platform
from plan.queues import Share, cohort_root, owned_slices, shares
from plan.words import counted
from tools.paragraphs import Paragraph, few


def queues_summary(platform: Platform) -> dict[str, Any]:
    """By queue: `cohort`, `namespaces`, `weight`, `borrow` and `lend` as they are written, and its `slices`: for each
    flavor the `groups`, how many it `owns`, how many the other queues of its cohort's tree lend (`lent`), and the
    `most` that it can have at once."""
    return {
        name: {
            "cohort": platform.queues[name].cohort or platform.name,
            "namespaces": list(platform.queues[name].namespaces),
            "weight": platform.queues[name].weight,
            "borrow": platform.queues[name].borrow,
            "lend": platform.queues[name].lend,
            "slices": [
                {"groups": list(share.groups), "owns": share.owns, "lent": share.lent, "most": share.most}
                for share in of_queue
            ],
        }
        for name, of_queue in shares(platform).items()
    }


def unowned_slices(platform: Platform) -> dict[str, int]:
    """By group, the slices that no queue owns; empty where there are no queues."""
    owned = owned_slices(platform)
    left = {group: spec.count - owned[group] for group, spec in platform.shared_slices.items()}
    return {group: number for group, number in left.items() if number > 0} if platform.queues else {}


def queue_table(platform: Platform) -> Table:
    """A row for each queue."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("queue", "namespaces", "owns", "can reach", "weight"):
        table.add_column(column, overflow="fold", justify="right" if column == "weight" else "left")
    several = len(_trees(platform)) > 1
    for name, of_queue in shares(platform).items():
        queue = platform.queues[name]
        table.add_row(
            name + (f"\ncohort {queue.cohort or platform.name}" if several else ""),
            few(queue.namespaces),
            "\n".join(f"{share.owns} x {group_names(share)}" for share in of_queue),
            "\n".join(reached(share) for share in of_queue),
            f"{queue.weight:g}",
        )
    return table


def queue_lines(platform: Platform) -> Iterator[Paragraph]:
    """What the table does not say: who shares, and what no queue has."""
    if not platform.queues:
        yield Paragraph("none: pods get chips as they come, and nothing shares them out", "queues")
        return
    for root, members in _trees(platform).items():
        if len(members) > 1:
            words = f"{few(members, 6)} lend each other what is idle, as far as borrow and lend allow"
            yield Paragraph(words, f"cohort {root}")
    past_queues = [each for each in platform.workload_namespaces if each not in platform.queue_namespaces]
    # Where pools are made for jobs, an admission policy refuses jobs past the queues in every namespace.
    refused = {plan.group for plan in platform.shared_plans if not plan.provisioning.declared}
    for group, number in unowned_slices(platform).items():
        usable = past_queues and group not in refused and not platform.is_manager
        users = f"; pods in {few(past_queues)} can use them past the queues" if usable else ""
        yield Paragraph(f"{counted(number, 'slice')} of {group}{users}", "in no queue")


def group_names(share: Share) -> str:
    """Groups of one flavor, whose quota is one."""
    return " or ".join(share.groups)


def reached(share: Share) -> str:
    """The most slices at once, in words."""
    if share.most > share.owns:
        return f"{share.most}, {share.most - share.owns} borrowed"
    return str(share.most) if share.most else "nothing"


def _trees(platform: Platform) -> dict[str, list[str]]:
    """Queues by the root of their cohort's tree."""
    trees: dict[str, list[str]] = {}
    for name, queue in platform.queues.items():
        trees.setdefault(cohort_root(platform, queue.cohort or platform.name), []).append(name)
    return trees
