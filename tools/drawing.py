"""A picture of a platform: network, cluster, pools, controllers, slices with their cost and placement, queues."""

import textwrap
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from plan.hosts import replica_zones
from plan.platform import Platform
from plan.queues import Share, shares
from plan.slices import SlicePlan
from platform_config.cluster import GkeCluster
from platform_config.queues import Queue, SliceCounts
from platform_config.self_managed import SelfManagedCluster

WIDTH, HEIGHT, GAP, MARGIN, COLUMNS = 260, 134, 16, 18, 3
TITLE = 26
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#202124}.t{font-weight:600}.s{fill:#5f6368}"
    "rect{rx:8px;stroke-width:1.5}.vpc{fill:#f8f9fa;stroke:#9aa0a6}.cluster{fill:#e8f0fe;stroke:#1a73e8}"
    ".cpu{fill:#fff;stroke:#9aa0a6}.controllers{fill:#f3e8fd;stroke:#8430ce}.tpu{fill:#e6f4ea;stroke:#188038}.queue{fill:#fef7e0;stroke:#b06000}"
    "@media(prefers-color-scheme:dark){text{fill:#e8eaed}.s{fill:#bdc1c6}.vpc{fill:#202124;stroke:#80868b}"
    ".cluster{fill:#1b2a41;stroke:#8ab4f8}.cpu{fill:#292a2d;stroke:#80868b}.tpu{fill:#16301f;stroke:#81c995}"
    ".controllers{fill:#2f2140;stroke:#c58af9}"
    ".queue{fill:#3a2f12;stroke:#fdd663}}"
)
"""Light, and dark where the reader's screen is."""
LONGEST = 34
"""Characters that fit into a box."""
LONGEST_TITLE = 104
"""The same of the cluster's frame."""
NAMED = 2
"""Namespaces of a queue that are named."""

Box = tuple[str, tuple[str, ...]]
"""CSS class and lines of text, the first of them a title."""


def boxes(platform: Platform) -> Iterator[Box]:
    """What stands in the cluster, in the order in which it is drawn: hosts without TPUs and what runs there, slices,
    then the queues before them."""
    if isinstance(platform.cluster, SelfManagedCluster):
        yield "cpu", ("control plane", *_control_plane_lines(platform, platform.cluster))
    for pool in platform.all_cpu_pools:
        bounds = f"{pool.min_nodes} to {pool.max_nodes}" if platform.backend == "gke" else f"{pool.min_nodes}"
        yield "cpu", (pool.name, pool.machine_type, f"{bounds} nodes")
    yield "controllers", ("controllers", *_controller_lines(platform))
    for plan in platform.slice_plans:
        yield "tpu", (plan.name, *_slice_lines(plan))
    shared = shares(platform)
    for name, queue in platform.queues.items():
        yield "queue", (f"queue {name}", *_queue_lines(queue, shared[name]))


def _controller_lines(platform: Platform) -> Iterator[str]:
    """What the program installs, and what is there already; namespaces are no controllers."""
    used = [part for part in platform.used_inside if part != "namespaces"]
    installed = [part for part in used if platform.installs(part)]
    provided = [part for part in used if not platform.installs(part)]
    for words, parts in (("installed", installed), ("there already", provided)):
        if parts:
            yield from textwrap.wrap(f"{words}: {', '.join(parts)}", LONGEST, break_on_hyphens=False)


def _queue_lines(queue: Queue, of_queue: Sequence[Share]) -> Iterator[str]:
    more = len(queue.namespaces) - NAMED
    yield f"for {', '.join(queue.namespaces[:NAMED])}{f' and {more} more' if more > 0 else ''}"
    owned = [f"{count} x {group}" for group, count in queue.slices.items() if count]
    yield f"owns {', '.join(owned) or 'nothing'}"
    reached = [f"{share.most} x {' or '.join(share.groups)}" for share in of_queue if share.most]
    yield f"can reach {', '.join(reached) or 'nothing'}"
    yield f"borrows: {_limit(queue.borrow)}"
    yield f"lends: {_limit(queue.lend)}; weight {queue.weight:g}"


def _limit(limit: bool | SliceCounts) -> str:
    if isinstance(limit, bool):
        return "what is idle" if limit else "nothing"
    return ", ".join(f"up to {count} x {group}" for group, count in limit.items()) or "nothing"


def _control_plane_lines(platform: Platform, cluster: SelfManagedCluster) -> Iterator[str]:
    control_plane, zones = cluster.control_plane, dict.fromkeys(replica_zones(platform))
    yield f"{_machines(control_plane.replicas)} in {', '.join(zones)}"
    yield f"{control_plane.access} address{', backups' if control_plane.backups else ''}"


def _machines(number: int) -> str:
    return "1 machine" if number == 1 else f"{number} machines"


def _slice_lines(plan: SlicePlan) -> Iterator[str]:
    yield f"{plan.count} x {plan.generation.name} {plan.topology}, {plan.capacity}"
    yield f"{plan.machine.name}, {plan.hosts} host{'s' if plan.hosts > 1 else ''} each"
    if plan.placement:
        yield f"placed by {plan.placement.policy or plan.placement.type}"
    else:
        yield f"devices: {plan.devices}"
    yield _cost(plan.price_per_hour, plan.price_is_upper_bound)


def _cost(price: float | None, upper_bound: bool) -> str:
    return "cost unknown" if price is None else f"{'at most ' if upper_bound else ''}{price:,.2f} USD/h"


def svg(platform: Platform) -> str:
    """The platform as an SVG document."""
    items = list(boxes(platform))
    rows = -(-len(items) // COLUMNS)
    inner_width = COLUMNS * WIDTH + (COLUMNS + 1) * GAP
    inner_height = 2 * TITLE + rows * (HEIGHT + GAP) + GAP
    width, height = inner_width + 4 * MARGIN, inner_height + 2 * TITLE + 4 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>TPU platform {escape(platform.name)}</title><style>{STYLE}</style>",
        *_frame("vpc", MARGIN, MARGIN, width - 2 * MARGIN, height - 2 * MARGIN, _network_title(platform)),
        *_frame("cluster", 2 * MARGIN, MARGIN + 2 * TITLE, inner_width, inner_height, _cluster_title(platform)),
        f'<text class="s" x="{2 * MARGIN + 12}" y="{MARGIN + 3 * TITLE + 16}">{escape(_costs(platform))}</text>',
    ]
    for index, (kind, lines) in enumerate(items):
        row, column = divmod(index, COLUMNS)
        x = 2 * MARGIN + GAP + column * (WIDTH + GAP)
        y = MARGIN + 4 * TITLE + GAP + row * (HEIGHT + GAP)
        parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}"/>')
        parts += [
            f'<text class="{"s" if number else "t"}" x="{x + 12}" y="{y + 22 + 20 * number}">{escape(line)}</text>'
            for number, line in enumerate(map(_fitting, lines))
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _fitting(line: str, longest: int = LONGEST) -> str:
    return line if len(line) <= longest else f"{line[: longest - 1]}\N{HORIZONTAL ELLIPSIS}"


def _frame(kind: str, x: int, y: int, width: int, height: int, title: str) -> Iterator[str]:
    yield f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}"/>'
    yield f'<text class="t" x="{x + 12}" y="{y + 22}">{escape(title)}</text>'


def mermaid(platform: Platform) -> str:
    """The platform as a Mermaid flowchart."""
    lines = [
        "flowchart LR",
        f'  network["{_network_title(platform)}"] --> cluster["{_cluster_title(platform)}<br/>{_costs(platform)}"]',
    ]
    for policy in platform.workload_policies:
        lines.append(f'  {_id(policy.name)}(["workload policy {policy.name}"])')
    items = list(boxes(platform))
    for index, (_, text) in enumerate(items):
        lines.append(f'  cluster --> box{index}["{"<br/>".join(text)}"]')
    plans = [index for index, (kind, _) in enumerate(items) if kind == "tpu"]
    for index, plan in zip(plans, platform.slice_plans, strict=True):
        if plan.placement and plan.placement.policy:
            lines.append(f"  {_id(plan.placement.policy)} -.-> box{index}")
    return "\n".join(lines) + "\n"


def _id(name: str) -> str:
    """A Mermaid identifier: no hyphens, which can read as arrows."""
    return "policy_" + name.replace("-", "_")


def _network_title(platform: Platform) -> str:
    kind = "own VPC" if platform.network.kind == "create" else f"existing VPC {platform.network.network}"
    return f"{kind} in {platform.project}, {platform.region}"


def _cluster_title(platform: Platform) -> str:
    return _fitting(f"{platform.cluster_name}: {cluster_words(platform)}", LONGEST_TITLE)


def _costs(platform: Platform) -> str:
    """What chips cost while all run, and while nothing does, where that is less."""
    if not platform.slices:
        return "no slices of its own"
    price = platform.totals["price_per_hour_usd"]
    if price is None:
        return f"slices in {platform.zone}: cost unknown"
    full = f"slices in {platform.zone}: {_cost(price, platform.price_is_upper_bound)} while all run"
    if not any(plan.provisioning.on_demand for plan in platform.slice_plans):
        return full
    return f"{full}, {_cost(platform.idle_price_per_hour, upper_bound=False)} while nothing runs"


def cluster_words(platform: Platform) -> str:
    """What kind of cluster the platform has, for people."""
    cluster = platform.cluster
    if isinstance(cluster, GkeCluster):
        channel = cluster.release_channel if platform.in_channel else "without a release channel"
        return f"GKE {channel} in {platform.location}"
    if isinstance(cluster, SelfManagedCluster):
        replicas = _machines(cluster.control_plane.replicas)
        return f"self-managed Kubernetes {cluster.version}, control plane on {replicas} in {platform.region}"
    return f"existing Kubernetes cluster at {cluster.server}"
