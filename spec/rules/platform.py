"""What a platform as a whole must satisfy: names, addresses, access, maintenance."""

import math
from collections.abc import Iterator
from datetime import datetime
from ipaddress import IPv4Network, ip_network
from itertools import combinations

from spec.catalogue import GENERATIONS
from spec.cluster import GkeCluster
from spec.hosts import CPU_MAX_PODS
from spec.network import CreatedNetwork, pod_block
from spec.platform import SYSTEM_POOL, Platform, default_machine
from spec.rules.clusters import written_pools
from spec.rules.registry import PLATFORM, Finding
from spec.rules.slices import cloud_labels, key_region, node_marks
from spec.self_managed import ExistingCluster, SelfManagedCluster

RESERVED_NAMESPACES = ("default", "kube-", "gke-", "gmp-", "kueue-system", "jobset-system")
GOOGLE_RESERVED_ADDRESSES = 4
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
    for index, network in enumerate(networks):
        if ip_network(network.cidr).prefixlen == 0:
            yield Finding(
                f"{path}[{index}].cidr",
                f"{network.cidr} is the whole internet",
                f"name the addresses you call from, or leave it out: {instead}",
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
    hosts = [(sum(pool.most_nodes for pool in plan.pools), plan.max_pods_per_node) for plan in platform.slice_plans]
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
                f"use a /{prefix} or larger",
            )


def _known_ranges(platform: Platform) -> dict[str, IPv4Network]:
    """Ranges by their key: all of a network of the platform's own, and what is said of one that exists."""
    network = platform.network
    keys = ["nodes_cidr", "pods_cidr"]
    # Services of GKE in a network that exists have a range of the subnet, of which only the name is known.
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
    """How often a window surely opens within the rolling days."""
    if recurrence == "FREQ=DAILY":
        return ROLLING_DAYS
    return len(recurrence.split(",")) * (ROLLING_DAYS // 7)


def _moment(value: str) -> datetime:
    return datetime.fromisoformat(value)


@PLATFORM.rule(
    "maintenance-exclusions",
    backend="gke",
    reason="Exclusions are told apart by name; all upgrades can be held for a limited time only.",
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
    reason="TPU zones can lack common machine families, which fails the whole cluster.",
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
    reason="A pool has at least its fewest nodes.",
    source="GKE API, autoscaling",
)
def pool_bounds(platform: Platform) -> Iterator[Finding]:
    for path, pool in written_pools(platform):
        if pool.min > pool.max:
            yield Finding(f"{path}.min", f"{pool.min} is more than max {pool.max}", "raise max or lower min")


@PLATFORM.rule(
    "pool-labels",
    reason="Labels in Google's and Kubernetes' domains are set for you, and drift when declared.",
    source="Kubernetes label syntax",
)
def pool_labels(platform: Platform) -> Iterator[Finding]:
    for path, pool in written_pools(platform):
        yield from node_marks(f"{path}.", pool.labels, pool.taints)


@PLATFORM.rule(
    "namespaces",
    reason="Namespaces of the system are not for workloads, and exist already.",
    source="Kubernetes and GKE documentation",
)
def namespaces(platform: Platform) -> Iterator[Finding]:
    for index, name in enumerate(platform.namespaces):
        if name.startswith(RESERVED_NAMESPACES):
            yield Finding(f"namespaces[{index}]", f"{name} belongs to the system", "choose another name")
        if name in platform.namespaces[:index]:
            yield Finding(f"namespaces[{index}]", f"{name} is in the list twice", "name it once")


@PLATFORM.rule("prices", reason="A price is that of a generation.", source="this program")
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
    reason="A cluster encrypts secrets and disks with a key of its own region.",
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
