"""What a platform as a whole must satisfy: names, addresses, access, maintenance."""

import math
from collections.abc import Iterator
from datetime import datetime
from ipaddress import IPv4Network, collapse_addresses
from itertools import combinations

from catalogue.generations import GENERATIONS
from plan import queue_metrics
from plan.charts import CHARTS
from plan.cpu_machines import default_machine
from plan.hosts import CPU_MAX_PODS
from plan.network import pod_block
from plan.platform import SYSTEM_POOL, Platform
from platform_config.cluster import GkeCluster
from platform_config.network import CreatedNetwork
from platform_config.self_managed import ExistingCluster, SelfManagedCluster
from rules.clusters import written_pools
from rules.registry import PLATFORM, Finding
from rules.slices import GKE_POOL_NAME_LIMIT, cloud_labels, key_region, node_marks

RESERVED_NAMESPACES = ("default", "istio-system", *(chart.namespace for chart in CHARTS), queue_metrics.NAMESPACE)
RESERVED_PREFIXES = ("kube-", "gke-", "gmp-")
GOOGLE_RESERVED_ADDRESSES = 4
LARGEST_RANGE = 4
WIDEST_ACCESS = 6
MOST_ADDRESSES = 2**28
"""The most addresses that may reach a control plane, all networks together: those of sixteen large providers."""

PROHIBITED_RANGES = {
    "0.0.0.0/8": "this network's own",
    "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local",
    "224.0.0.0/4": "multicast",
}
WINDOW_MIN_HOURS = 4
AVAILABLE_HOURS, ROLLING_DAYS = 48, 32

# Machine families of zones that lack the usual ones (keras-team/kinetic #305).
FAMILIES_IN_ZONE = {"us-central2-b": ("f1", "g1", "n1", "n2", "n2d", "n4", "t2d")}


@PLATFORM.rule(
    "pool-names-unique",
    reason="A cluster's pools share one set of names.",
    source="GKE and Compute Engine APIs: 409 already exists",
)
def pool_names_unique(platform: Platform) -> Iterator[Finding]:
    owners = {SYSTEM_POOL: "the system pool"}
    for name in platform.cluster.cpu_pools:
        if name in owners:
            yield Finding(f"cluster.cpu_pools.{name}", f"{name} is also {owners[name]}", "choose another name")
        owners[name] = f"cluster.cpu_pools.{name}"
    plans: dict[str, str] = {}
    for plan in platform.slice_plans:
        if plan.name in plans and plans[plan.name] == plan.group:
            continue  # the same model twice in a list of fallbacks, which `fallback_order` refuses
        if plan.name in plans:
            yield Finding(
                f"slices.{plan.group}", f"slices.{plans[plan.name]} has a fallback of that name", "choose another name"
            )
        plans[plan.name] = plan.group
        for pool in plan.pools:
            if pool.name in owners:
                yield Finding(
                    f"slices.{plan.group}",
                    f"its pool {pool.name} is also a pool of {owners[pool.name]}",
                    "choose another name",
                )
                break
            owners[pool.name] = f"slices.{plan.group}"


@PLATFORM.rule(
    "access-not-open",
    reason="A control plane must not be open to the whole internet.",
    source="CIS GKE benchmark 5.6.3",
)
def access_not_open(platform: Platform) -> Iterator[Finding]:
    cluster = platform.cluster
    if isinstance(cluster, GkeCluster):
        path, networks = "cluster.authorized_networks", cluster.authorized_networks
        instead = "the DNS endpoint is reachable and guarded by IAM"
    elif isinstance(cluster, SelfManagedCluster):
        path, networks = "cluster.control_plane.authorized_networks", cluster.control_plane.authorized_networks
        instead = "from within the VPC's node range the API server is reachable anyway"
    else:
        return
    hint = f"name the addresses you call from, or leave it out: {instead}"
    for index, network in enumerate(networks):
        if IPv4Network(network.cidr).prefixlen < WIDEST_ACCESS:
            what = "the whole internet" if network.cidr.endswith("/0") else "a large part of the internet"
            yield Finding(f"{path}[{index}].cidr", f"{network.cidr} is {what}", hint)
            return
    together = sum(network.num_addresses for network in collapse_addresses(IPv4Network(n.cidr) for n in networks))
    if together > MOST_ADDRESSES:
        yield Finding(path, "are together a large part of the internet", hint)


@PLATFORM.rule(
    "ranges-usable",
    reason="Some ranges are never addresses of machines.",
    source="VPC documentation, prohibited IPv4 subnet ranges",
)
def ranges_usable(platform: Platform) -> Iterator[Finding]:
    for key, given in _known_ranges(platform).items():
        for prohibited, what in PROHIBITED_RANGES.items():
            if given.overlaps(IPv4Network(prohibited)):
                yield Finding(
                    f"network.{key}", f"{given} has {what} addresses ({prohibited})", "for example 10.0.0.0/20"
                )


@PLATFORM.rule(
    "ranges-apart",
    reason="Nodes, pods and services need addresses of their own.",
    source="GKE documentation, VPC-native clusters; kubeadm documentation",
)
def ranges_apart(platform: Platform) -> Iterator[Finding]:
    ranges = _known_ranges(platform)
    for key, other in combinations(ranges, 2):
        if ranges[key].overlaps(ranges[other]):
            yield Finding(
                f"network.{other}",
                f"{ranges[other]} overlaps {key} {ranges[key]}",
                "use ranges that do not overlap",
            )


@PLATFORM.rule(
    "ranges-large-enough",
    reason="Each node takes one address and a block for its pods, of at least twice its pods.",
    source="GKE documentation, IP address allocation for Pods",
)
def ranges_large_enough(platform: Platform) -> Iterator[Finding]:
    hosts = [(count, plan.spec.max_pods_per_node) for plan, count in platform.most_hosts]
    hosts.append((platform.most_nodes - sum(count for count, _ in hosts), CPU_MAX_PODS))
    nodes = platform.most_nodes
    pods = sum(count * pod_block(max_pods) for count, max_pods in hosts)
    ranges = _known_ranges(platform)
    for key, needed, what in (
        ("nodes_cidr", nodes + GOOGLE_RESERVED_ADDRESSES, f"{nodes} nodes"),
        ("pods_cidr", pods, f"the pods of {nodes} nodes"),
    ):
        if key in ranges and needed > ranges[key].num_addresses:
            prefix = 32 - math.ceil(math.log2(needed))
            yield Finding(
                f"network.{key}",
                f"{ranges[key]} has {ranges[key].num_addresses} addresses; {what} need {needed}",
                f"use a /{prefix} or larger" if prefix >= LARGEST_RANGE else "no range is that large: ask for fewer",
            )


def _known_ranges(platform: Platform) -> dict[str, IPv4Network]:
    """Ranges by key: all of a created network, and those of an existing network that the person gave."""
    network = platform.network
    keys = ["nodes_cidr", "pods_cidr", "proxy_only_cidr"]
    # In an existing network GKE takes services from a range of the subnet, of which only the name is known.
    if isinstance(network, CreatedNetwork) or isinstance(platform.cluster, SelfManagedCluster):
        keys.append("services_cidr")
    return {key: IPv4Network(getattr(network, key)) for key in keys if getattr(network, key)}


@PLATFORM.rule(
    "maintenance-window",
    backend="gke",
    reason="GKE wants windows of 4 hours or more that leave 48 hours for maintenance in any 32 days.",
    source="GKE documentation, maintenance windows",
)
def maintenance_window(platform: Platform) -> Iterator[Finding]:
    window = platform.gke.maintenance
    hours = (_moment(window.end) - _moment(window.start)).total_seconds() / 3600
    if not WINDOW_MIN_HOURS <= hours <= 24:
        yield Finding(
            "cluster.maintenance.end",
            f"the window lasts {hours:g} hours; it may last {WINDOW_MIN_HOURS} to 24",
            "set end a few hours after start",
        )
    elif (available := hours * _occurrences(window.recurrence)) < AVAILABLE_HOURS:
        yield Finding(
            "cluster.maintenance",
            f"the windows leave {available:g} hours in {ROLLING_DAYS} days; GKE wants {AVAILABLE_HOURS}",
            "use a longer window or more days",
        )


def _occurrences(recurrence: str) -> int:
    """The fewest times that a window opens within the rolling days."""
    if recurrence == "FREQ=DAILY":
        return ROLLING_DAYS
    return len(recurrence.split(",")) * (ROLLING_DAYS // 7)


def _moment(value: str) -> datetime:
    return datetime.fromisoformat(value)


@PLATFORM.rule(
    "maintenance-exclusions",
    backend="gke",
    reason="Names identify exclusions; NO_UPGRADES can last for a limited time only.",
    source="GKE documentation, maintenance exclusions",
)
def maintenance_exclusions(platform: Platform) -> Iterator[Finding]:
    names: set[str] = set()
    for index, exclusion in enumerate(platform.gke.maintenance.exclusions):
        path = f"cluster.maintenance.exclusions[{index}]"
        if exclusion.name in names:
            yield Finding(f"{path}.name", f"{exclusion.name} is there twice", "choose another name")
        names.add(exclusion.name)
        if exclusion.end is not None and _moment(exclusion.end) <= _moment(exclusion.start):
            yield Finding(f"{path}.end", f"{exclusion.end} is not after start {exclusion.start}", "set a later end")
        if exclusion.end is None and exclusion.scope == "NO_UPGRADES":
            yield Finding(
                f"{path}.end",
                "is missing: NO_UPGRADES cannot last until end of support",
                "set an end, or scope: NO_MINOR_OR_NODE_UPGRADES",
            )


@PLATFORM.rule(
    "cpu-machine-in-zone",
    reason="Some TPU zones lack common machine families; a wrong one fails the whole cluster.",
    source="keras-team/kinetic #305",
)
def cpu_machine_in_zone(platform: Platform) -> Iterator[Finding]:
    families = FAMILIES_IN_ZONE.get(platform.zone)
    for path, machine_type in platform.cpu_machines:
        if families and machine_type.partition("-")[0] not in families:
            yield Finding(
                f"{path}.machine_type",
                f"{platform.zone} does not offer {machine_type}",
                f"use a family among {', '.join(families)}, for example {default_machine(platform.zone)}",
            )


@PLATFORM.rule(
    "pool-bounds",
    backend="gke",
    reason="The minimum of a pool cannot be above its maximum.",
    source="GKE API, autoscaling",
)
def pool_bounds(platform: Platform) -> Iterator[Finding]:
    for path, pool in written_pools(platform):
        if pool.min > pool.max:
            yield Finding(f"{path}.min", f"{pool.min} is more than max {pool.max}", "raise max or lower min")


@PLATFORM.rule(
    "cpu-pool-name",
    backend="gke",
    reason="A node pool's name has at most 40 characters.",
    source="GKE API, NodePool.name",
)
def cpu_pool_name(platform: Platform) -> Iterator[Finding]:
    for name in platform.cluster.cpu_pools:
        if (excess := len(name) - GKE_POOL_NAME_LIMIT) > 0:
            yield Finding(
                f"cluster.cpu_pools.{name}",
                f"the name has more than {GKE_POOL_NAME_LIMIT} characters",
                f"shorten the name by {excess}",
            )


@PLATFORM.rule(
    "pool-labels",
    reason="Google and Kubernetes set the labels in their domains; these drift when declared.",
    source="Kubernetes label syntax",
)
def pool_labels(platform: Platform) -> Iterator[Finding]:
    for path, pool in written_pools(platform):
        yield from node_marks(f"{path}.", pool.labels, pool.taints)


@PLATFORM.rule(
    "namespaces",
    reason="System namespaces are not for workloads, and exist already.",
    source="Kubernetes and GKE documentation",
)
def namespaces(platform: Platform) -> Iterator[Finding]:
    lists = {"namespaces": platform.namespaces}
    lists |= {f"queues.{name}.namespaces": queue.namespaces for name, queue in platform.queues.items()}
    for path, names in lists.items():
        seen: set[str] = set()
        for index, name in enumerate(names):
            if name in RESERVED_NAMESPACES or name.startswith(RESERVED_PREFIXES):
                yield Finding(f"{path}[{index}]", f"{name} belongs to the system", "choose another name")
            if name in seen:
                yield Finding(f"{path}[{index}]", f"{name} is in the list twice", "name it once")
            seen.add(name)
    for name in platform.teams:
        if name in RESERVED_NAMESPACES or name.startswith(RESERVED_PREFIXES):
            yield Finding(f"teams.{name}", f"{name} belongs to the system", "choose another name")


@PLATFORM.rule(
    "sub-blocks-once",
    reason="Slices of two groups in one sub-block must fit it together; a tpu7x sub-block has 16 hosts.",
    source="GKE documentation, TPU sub-blocks; cluster-toolkit gke-tpu-7x",
)
def sub_blocks_once(platform: Platform) -> Iterator[Finding]:
    taken: dict[str, int] = {}
    for plan in platform.slice_plans:
        if plan.generation.sub_block_hosts is None:
            continue
        own: dict[str, int] = {}
        for affinity, hosts in plan.asks:
            for name in (value for value in affinity.values if "/reservationSubBlocks/" in value):
                own[name] = own.get(name, 0) + hosts
        for name, hosts in own.items():
            if name in taken and taken[name] + hosts > plan.generation.sub_block_hosts:
                yield Finding(
                    f"slices.{plan.group}.capacity.sub_block",
                    f"{name.rpartition('/')[2]} has other slices already: {taken[name] + hosts} hosts together, "
                    f"in a sub-block of {plan.generation.sub_block_hosts}",
                    "name a sub-block for each group",
                )
            taken[name] = taken.get(name, 0) + hosts


@PLATFORM.rule("prices", reason="Prices are given for each TPU generation.", source="this program")
def prices(platform: Platform) -> Iterator[Finding]:
    for name in platform.prices:
        if name not in GENERATIONS:
            yield Finding(f"prices.{name}", f"{name} is not a TPU generation", f"one of {', '.join(GENERATIONS)}")


@PLATFORM.rule(
    "platform-labels",
    reason="Google Cloud labels are lower case and at most 63 characters.",
    source="Google Cloud documentation, labels",
)
def platform_labels(platform: Platform) -> Iterator[Finding]:
    yield from cloud_labels("labels", platform.labels)


@PLATFORM.rule(
    "cluster-key-region",
    reason="The key for a cluster's secrets and disks must be in its region.",
    source="GKE documentation, application-layer secrets encryption; Compute Engine, customer-managed keys",
)
def cluster_key_region(platform: Platform) -> Iterator[Finding]:
    if not isinstance(platform.cluster, ExistingCluster):
        yield from key_region("cluster.kms_key", platform.cluster.kms_key, platform.region)


@PLATFORM.rule(
    "no-slices",
    level="warning",
    reason="A platform without slices has nothing to schedule onto.",
    source="this program",
)
def no_slices(platform: Platform) -> Iterator[Finding]:
    if not platform.slices and not platform.is_manager:
        yield Finding("slices", "there are none", "describe at least one slice")


@PLATFORM.rule(
    "unprotected",
    level="warning",
    reason="Without protection a plan may delete slices that took weeks to get.",
    source="Pulumi documentation, protect; GKE deletion protection does not save node pools",
)
def unprotected(platform: Platform) -> Iterator[Finding]:
    if not platform.protect:
        yield Finding("protect", "false: a plan may delete the cluster and its slices", "leave it out in production")
