"""What a cluster without GKE must satisfy, self-managed or existing."""

from collections.abc import Iterator
from ipaddress import ip_network

from catalogue import versions
from catalogue.labels import DRA_LABEL
from plan.hosts import GROUP_NAME_LIMIT, group_name
from plan.platform import Platform
from platform_config.cluster import CpuPool, SystemPool
from platform_config.network import CreatedNetwork, ExistingNetwork
from platform_config.self_managed import ControlPlane, ExistingCluster, InCluster, SelfManagedCluster
from rules.registry import PLATFORM, Finding

OLDEST_VERSIONS = {
    "self-managed": ("1.34", "the controllers and the DRA driver are tested with that version and later"),
    "existing": ("1.31", "hosts join with kubeadm's configuration v1beta4"),
}
"""By kind of cluster: the first minor version that hosts may have, and why."""

# Settings of software that the program reads even if it does not install it.
READ_ELSEWHERE = {"kueue": {"topology_aware"}}

WIDEST_SERVICES, NARROWEST_SERVICES = 12, 28
"""Widest and narrowest range for services that kubeadm accepts."""

ARM_FAMILIES = ("t2a", "c4a", "n4a", "a4x")


@PLATFORM.rule(
    "network-of-cluster",
    backend="compute",
    reason="Hosts join an existing cluster in its own network, so that network must exist too.",
    source="Kubernetes documentation, the node network",
)
def network_of_cluster(platform: Platform) -> Iterator[Finding]:
    if isinstance(platform.cluster, ExistingCluster) and isinstance(platform.network, CreatedNetwork):
        yield Finding(
            "network",
            "hosts join an existing cluster in its own network, not in a new one",
            "write network: {kind: existing, network: NAME, subnetwork: NAME, pods_range: NAME}",
        )


@PLATFORM.rule(
    "services-range",
    backend="gke",
    reason="GKE takes addresses of services from a range of the subnet.",
    source="GKE documentation, VPC-native clusters",
)
def services_range(platform: Platform) -> Iterator[Finding]:
    if isinstance(platform.network, ExistingNetwork) and platform.network.services_range is None:
        yield Finding("network.services_range", "is missing", "name the subnet's secondary range for services")


@PLATFORM.rule(
    "known-ranges",
    backend="compute",
    reason="Firewall rules and the control plane need addresses, and the name of a range does not give them.",
    source="kubeadm configuration v1beta4, networking.podSubnet; Compute Engine API, firewalls.sourceRanges",
)
def known_ranges(platform: Platform) -> Iterator[Finding]:
    if not isinstance(platform.cluster, SelfManagedCluster) or not isinstance(platform.network, ExistingNetwork):
        return
    for key, what in (("nodes_cidr", "the subnet"), ("pods_cidr", "the subnet's range for pods")):
        if getattr(platform.network, key) is None:
            yield Finding(f"network.{key}", "is missing: a control plane needs to know it", f"write what {what} has")


@PLATFORM.rule(
    "services-range-size",
    backend="compute",
    reason="kubeadm refuses other ranges, which would show only when the control plane does not come up.",
    source="kubernetes cmd/kubeadm/app/constants: MaximumBitsForServiceSubnet, MinimumAddressesInServiceSubnet",
)
def services_range_size(platform: Platform) -> Iterator[Finding]:
    prefix = ip_network(platform.network.services_cidr).prefixlen
    if isinstance(platform.cluster, SelfManagedCluster) and not WIDEST_SERVICES <= prefix <= NARROWEST_SERVICES:
        yield Finding(
            "network.services_cidr",
            f"is a /{prefix}; kubeadm takes /{WIDEST_SERVICES} to /{NARROWEST_SERVICES}",
            "a /20 has 4,096 services",
        )


def _control_plane(platform: Platform) -> ControlPlane | None:
    """The control plane that the platform creates, if any."""
    return platform.cluster.control_plane if isinstance(platform.cluster, SelfManagedCluster) else None


@PLATFORM.rule(
    "external-access",
    backend="compute",
    reason="The firewall admits only the named networks to an external address: without any, nobody can use it.",
    source="Compute Engine documentation, external passthrough load balancers and firewall rules",
)
def external_access(platform: Platform) -> Iterator[Finding]:
    control_plane = _control_plane(platform)
    if control_plane and control_plane.access == "external" and not control_plane.authorized_networks:
        yield Finding(
            "cluster.control_plane.authorized_networks",
            "are missing: nobody could use the address that access: external gives the API server",
            "name the addresses you call from, or leave access out",
        )


@PLATFORM.rule(
    "control-plane-zones",
    backend="compute",
    reason="The machines of a control plane share a regional load balancer and a subnet.",
    source="Compute Engine documentation, internal passthrough load balancers",
)
def control_plane_zones(platform: Platform) -> Iterator[Finding]:
    control_plane = _control_plane(platform)
    if control_plane is None:
        return
    for index, zone in enumerate(control_plane.zones):
        path = f"cluster.control_plane.zones[{index}]"
        if zone.rpartition("-")[0] != platform.region:
            yield Finding(path, f"{zone} is not a zone of {platform.region}", f"name zones of {platform.region}")
        elif zone in control_plane.zones[:index]:
            yield Finding(path, f"{zone} is in the list twice", "name it once")
    if len(control_plane.zones) > control_plane.replicas:
        yield Finding(
            "cluster.control_plane.zones",
            f"{len(control_plane.zones)} zones for a control plane of {control_plane.replicas}",
            "name as many zones as replicas at most",
        )


@PLATFORM.rule(
    "one-zone",
    backend="compute",
    level="warning",
    reason="Three machines in one zone survive the loss of one machine, but not of the zone.",
    source="Kubernetes documentation, highly available clusters",
)
def one_zone(platform: Platform) -> Iterator[Finding]:
    control_plane = _control_plane(platform)
    if control_plane and control_plane.replicas > 1 and len(control_plane.zones) < 2:
        yield Finding(
            "cluster.control_plane.zones",
            f"all {control_plane.replicas} machines of the control plane are in one zone",
            f"name three zones of {platform.region}",
        )


@PLATFORM.rule(
    "no-backups",
    backend="compute",
    level="warning",
    reason="etcd and the cluster's keys on one disk are lost with the disk; hosts and jobs would have to start again.",
    source="Kubernetes documentation, operating etcd clusters",
)
def no_backups(platform: Platform) -> Iterator[Finding]:
    control_plane = _control_plane(platform)
    if control_plane and platform.protect and control_plane.replicas == 1 and not control_plane.backups:
        yield Finding(
            "cluster.control_plane.backups",
            "the only copy of etcd is on one disk",
            "set backups: true, or replicas: 3",
        )


@PLATFORM.rule(
    "policies-of-networks",
    backend="compute",
    level="warning",
    reason="Without GKE the VPC routes pods' addresses, and nothing enforces a NetworkPolicy.",
    source="Kubernetes documentation, network policies; containernetworking, plugin ptp",
)
def policies_of_networks(platform: Platform) -> Iterator[Finding]:
    own = platform.namespaces if "namespaces" in platform.model_fields_set else ()
    if _control_plane(platform) and len({*own, *platform.teams, *platform.queue_namespaces}) > 1:
        yield Finding(
            "cluster.kind",
            "NetworkPolicies have no effect in a self-managed cluster: pods of all namespaces reach each other",
            "to separate teams, use GKE, or a platform for each team",
        )


@PLATFORM.rule(
    "backup-days",
    backend="compute",
    reason="A setting that nothing reads is refused rather than ignored.",
    source="this program",
)
def backup_days(platform: Platform) -> Iterator[Finding]:
    control_plane = _control_plane(platform)
    if control_plane and "backup_days" in control_plane.model_fields_set and not control_plane.backups:
        yield Finding("cluster.control_plane.backup_days", "there are no backups to keep", "set backups: true as well")


@PLATFORM.rule(
    "kubernetes-version",
    backend="compute",
    reason="Hosts and the software on them need a minimum version of Kubernetes.",
    source="kubeadm documentation, v1beta4; kubernetes-sigs/dra-driver-google-tpu",
)
def kubernetes_version(platform: Platform) -> Iterator[Finding]:
    cluster = platform.compute
    oldest, why = OLDEST_VERSIONS[cluster.kind]
    if not versions.reaches(cluster.version, oldest):
        yield Finding(
            "cluster.version", f"{cluster.version} is too old: {why}", f"use {oldest} or later, all numbers given"
        )


@PLATFORM.rule(
    "images-that-join",
    backend="compute",
    reason="Without bootstrap nothing turns the usual image into a node or a control plane.",
    source="this program",
)
def images_that_join(platform: Platform) -> Iterator[Finding]:
    cluster = platform.compute
    machines = platform.all_cpu_pools or isinstance(cluster, SelfManagedCluster)
    if machines and not cluster.bootstrap and "image" not in cluster.model_fields_set:
        yield Finding(
            "cluster.image",
            "is missing: with bootstrap: false machines join only if their image does it",
            "give an image of your own, or leave bootstrap out",
        )


@PLATFORM.rule(
    "image-architecture",
    backend="compute",
    reason="An image boots only on its own processor architecture, and all machines without TPUs share one image.",
    source="Compute Engine documentation, Arm machine types",
)
def image_architecture(platform: Platform) -> Iterator[Finding]:
    image = platform.compute.image
    for path, machine_type in platform.cpu_machines:
        arm = machine_type.partition("-")[0] in ARM_FAMILIES
        if ("amd64" if arm else "arm64") in image:
            yield Finding(
                f"{path}.machine_type",
                f"{machine_type} is {'an Arm' if arm else 'an x86'} machine, and cluster.image is for the other kind",
                f"use {'an x86' if arm else 'an Arm'} machine type, or another image for all",
            )


@PLATFORM.rule(
    "fixed-pools",
    backend="compute",
    reason="Without GKE nothing adds or removes hosts: a pool has as many as `min` says.",
    source="this program",
)
def fixed_pools(platform: Platform) -> Iterator[Finding]:
    for path, pool in written_pools(platform):
        if "max" in pool.model_fields_set:
            yield Finding(f"{path}.max", "needs GKE: nothing adds hosts without it", "leave it out; min is the number")


@PLATFORM.rule(
    "empty-pool",
    backend="compute",
    level="warning",
    reason="Without GKE nothing adds hosts to a pool that begins with none.",
    source="this program",
)
def empty_pool(platform: Platform) -> Iterator[Finding]:
    for path, pool in written_pools(platform):
        if pool.min == 0:
            yield Finding(f"{path}.min", "0: the pool has no hosts, and nothing adds any", "say how many you want")


def written_pools(platform: Platform) -> Iterator[tuple[str, CpuPool | SystemPool]]:
    """Path and settings of every pool without TPUs."""
    if not isinstance(platform.cluster, ExistingCluster):
        yield "cluster.system_pool", platform.cluster.system_pool
    for name, pool in platform.cluster.cpu_pools.items():
        yield f"cluster.cpu_pools.{name}", pool


@PLATFORM.rule(
    "cpu-group-name",
    backend="compute",
    reason="Hosts and templates are named after their group, and names have at most 63 characters.",
    source="Compute Engine API, instanceGroupManagers.baseInstanceName; Terraform provider, name_prefix",
)
def cpu_group_name(platform: Platform) -> Iterator[Finding]:
    for name in platform.cluster.cpu_pools:
        yield from fits_group(f"cluster.cpu_pools.{name}", group_name(platform, name))


def fits_group(path: str, group: str) -> Iterator[Finding]:
    """Whether a group's name is short enough; `path`: the key that names it."""
    if (excess := len(group) - GROUP_NAME_LIMIT) > 0:
        yield Finding(
            path, f"its group {group} has more than {GROUP_NAME_LIMIT} characters", f"shorten the name by {excess}"
        )


@PLATFORM.rule(
    "secrets-apart",
    backend="compute",
    reason="Every host, and every job that escapes its container, can read the join secret; the other is admin.",
    source="Secret Manager documentation, access control; Kubernetes documentation, cluster-admin",
)
def secrets_apart(platform: Platform) -> Iterator[Finding]:
    cluster = platform.compute
    if isinstance(cluster, ExistingCluster) and cluster.join_secret == cluster.access_secret:
        yield Finding(
            "cluster.access_secret",
            "is also join_secret, which every host may read",
            "keep the two credentials in two secrets",
        )


@PLATFORM.rule(
    "worker-without-gke",
    backend="compute",
    reason="A manager reaches a worker from outside, by a public name and certificate that only GKE gives.",
    source="Kueue documentation, MultiKueue; GKE documentation, DNS-based endpoints",
)
def worker_without_gke(platform: Platform) -> Iterator[Finding]:
    if platform.is_worker:
        yield Finding(
            "multikueue.role",
            "worker needs GKE: what its stack exports for a manager is the DNS endpoint of a GKE cluster",
            "leave multikueue out, and give the manager a kubeconfig of your own: workers: {NAME: {secret: SECRET}}",
        )


@PLATFORM.rule(
    "provides-once",
    backend="compute",
    reason="Each part needs to be named only once.",
    source="this program",
)
def provides_once(platform: Platform) -> Iterator[Finding]:
    for index, part in enumerate(platform.provided):
        if part in platform.provided[:index]:
            yield Finding(f"cluster.provides[{index}]", f"{part} is in the list twice", "name it once")


@PLATFORM.rule(
    "provides-settings",
    backend="compute",
    reason="A setting that nothing reads is refused rather than ignored: software of the cluster is configured there.",
    source="this program",
)
def provides_settings(platform: Platform) -> Iterator[Finding]:
    for part in dict.fromkeys(platform.provided):
        key = part.replace("-", "_")
        settings = getattr(platform.software, key, None)
        if settings is None:
            continue
        for setting in sorted(settings.model_fields_set - READ_ELSEWHERE.get(key, set())):
            yield Finding(
                f"software.{key}.{setting}",
                f"would do nothing: cluster.provides has {part}, so this program does not install it",
                "leave it out, and set it where the cluster's own is configured",
            )


@PLATFORM.rule(
    "provides-namespaces",
    backend="compute",
    reason="The program uses namespaces that the cluster has, and cannot know their names.",
    source="this program",
)
def provides_namespaces(platform: Platform) -> Iterator[Finding]:
    if "namespaces" in platform.provided and "namespaces" not in platform.model_fields_set:
        yield Finding(
            "namespaces",
            "are missing, and cluster.provides has them",
            "name namespaces that the cluster has; [] if there are none besides those of queues",
        )


OTHER_DRIVER: dict[InCluster, tuple[InCluster, str]] = {
    "device-plugin": ("dra-driver", f"keep it off hosts with the label {DRA_LABEL}=true, by node affinity"),
    "dra-driver": ("device-plugin", f"let it run only on hosts with the label {DRA_LABEL}=true, by node affinity"),
}
"""For each driver that a cluster provides: the other driver, and how the cluster must separate the two."""


@PLATFORM.rule(
    "provides-one-driver",
    backend="compute",
    level="warning",
    reason="The device plugin and the DRA driver on one host hand out every chip twice; this program keeps them apart.",
    source="TPU device plugin; kubernetes-sigs/dra-driver-google-tpu: runs everywhere by default",
)
def provides_one_driver(platform: Platform) -> Iterator[Finding]:
    for part, (other, apart) in OTHER_DRIVER.items():
        if part in platform.provided and other in platform.used_inside:
            yield Finding(
                "cluster.provides",
                f"{part} is the cluster's own, and some slices use the {other}: on one host both hand out its chips",
                apart,
            )
