"""Hosts that are not GKE's: instance templates and managed instance groups (MIGs) of Compute Engine.

A multi-host slice is one MIG in bulk mode with a workload policy: all hosts or none. Single-host slices share a MIG
that creates hosts one by one. Sources: Compute Engine documentation (bulk mode, workload policies);
gke-labs/tpu-operator converters; the TPU device plugin for `kube-labels`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from catalogue.labels import GROUP_LABEL, KUBERNETES_EFFECTS, NODE_POOL_LABEL, TAINT_EFFECTS, TPU_TAINT
from plan.capacity import ON_DEMAND, OnCompute, ReservationAffinity, scheduling
from plan.cpu_machines import default_machine
from plan.network import pod_prefix
from plan.platform import Platform
from plan.slices import CpuPoolPlan, Disk, NodeTaint, PoolPlan, SlicePlan
from platform_config.self_managed import ExistingCluster, SelfManagedCluster
from platform_config.slice import NodeDrain

API_PORT = 6443
"""Port of a control plane's API servers, kubeadm's default."""

KEYS = "keys"
"""The secret with a copy of the keys on a control plane's data disk. Snapshots of etcd are elsewhere."""

PEERS = "peers"
"""The secret that the machines of a control plane share."""

CPU_MAX_PODS = 110
CONTAINERD = "2.1.5-1~*"
"""Version of the containerd package that hosts install, on any release of Ubuntu. 2.x has CDI enabled by default."""

METADATA_GROUP = 47100
"""Group id of the platform's programs in the host's network that may call the metadata server; others may not."""

CREATE_MINUTES, DELETE_MINUTES = 60, 30
"""How long an update waits for the hosts of a group to be created, and to be deleted."""

DRAIN_MINUTES = 30
"""Longest drain of hosts before their group is deleted."""

HOST_DIGITS = 4
"""Digits of a host's number; a group has at most 2,000 hosts."""

GROUP_NAME_LIMIT = 53
"""Longest name of a group. Compute Engine's names have 63 characters; the provider adds ten to the name of a template,
and hosts add seven for their number."""

JOIN_TOKEN = re.compile(r"(?<![a-z0-9.])[a-z0-9]{6}\.(?=[a-z]*[0-9])[a-z0-9]{16}(?![a-z0-9.])")
"""Form of kubeadm's bootstrap tokens. None may be in instance metadata, since many people may read that.

It requires a digit after the dot, so that a name of six letters, a dot and sixteen letters is no token."""


@dataclass(frozen=True)
class HostTemplate:
    """What hosts boot with. `node_labels`, `taints`: as the kubelet registers them. `pod_prefix`: prefix length of each
    host's range for pods. `tpu_labels`: for the TPU device plugin, empty without TPUs."""

    name: str
    machine_type: str
    image: str
    disk: Disk
    kms_key: str | None
    scheduling: OnCompute
    max_run_seconds: int | None
    reservation: ReservationAffinity | None
    threads_per_core: int | None
    service_account: str | None
    tags: tuple[str, ...]
    resource_labels: Mapping[str, str]
    tpu_labels: Mapping[str, str]
    node_labels: Mapping[str, str]
    taints: tuple[NodeTaint, ...]
    max_pods: int

    @property
    def pod_prefix(self) -> int:
        return pod_prefix(self.max_pods)

    def metadata(self) -> dict[str, str]:
        """Instance metadata with the labels and taints of the node; nothing in it is secret."""
        taints = [f"{taint.key}={taint.value}:{KUBERNETES_EFFECTS[taint.effect]}" for taint in self.taints]
        values = {
            "kube-labels": _joined(self.tpu_labels),
            "tpu-role": "node",
            "tpu-node-labels": _joined(self.node_labels),
            "tpu-node-taints": ",".join(taints),
            "tpu-max-pods": str(self.max_pods),
            "block-project-ssh-keys": "TRUE",
        }
        return {key: value for key, value in values.items() if value}


@dataclass(frozen=True)
class HostGroup:
    """A managed instance group of `size` hosts. `policy`: name of its workload policy, where the hosts form one slice.

    `own_template`: full name of an instance template that somebody else made, used instead of `template`.
    """

    name: str
    size: int
    policy: str | None
    template: HostTemplate
    own_template: str | None = None

    @property
    def bulk(self) -> bool:
        """Whether Google creates all hosts or none: a slice needs all its hosts."""
        return self.policy is not None

    @property
    def wait(self) -> bool:
        """Whether an update waits until all hosts run."""
        return self.template.scheduling.up_waits

    @property
    def repair(self) -> bool:
        """Whether Google recreates a failed host: not in a multi-host slice, and not where hosts are queued for (bulk
        mode and flex-start do not allow it)."""
        return not self.bulk and self.wait

    @property
    def base_name(self) -> str:
        """Pattern of the hosts' names, in the Compute API's spelling: numbered from 1."""
        return f"{self.name}-w-{'#' * HOST_DIGITS}[1]"

    @property
    def host_names(self) -> tuple[str, ...]:
        """Names of the hosts, the same as their nodes'."""
        return tuple(f"{self.name}-w-{number:0{HOST_DIGITS}d}" for number in range(1, self.size + 1))


def group_name(platform: Platform, pool: str) -> str:
    """Name of the group of a pool."""
    return f"{platform.name}-{pool}"


def node_pool(platform: Platform, pool: str) -> str:
    """Value of the node pool label on the nodes of a pool: the pool's name on GKE, else its group's."""
    return pool if platform.backend == "gke" else group_name(platform, pool)


def on_system_pool(platform: Platform) -> Mapping[str, str]:
    """Node selector of the system pool: controllers do not run on TPU hosts, and an uninstall still has nodes to run
    on.

    An existing cluster has no such pool; there the taint of TPU hosts keeps controllers off them.
    """
    pool = platform.system_pool
    return {NODE_POOL_LABEL: node_pool(platform, pool.name)} if pool else {}


def join_secret(platform: Platform) -> str:
    """Full name of the secret that holds the join token."""
    cluster = platform.compute
    return cluster.join_secret if isinstance(cluster, ExistingCluster) else secret(platform, "join")


def access_secret(platform: Platform) -> str:
    """Full name of the secret that holds this program's credential."""
    cluster = platform.compute
    return cluster.access_secret if isinstance(cluster, ExistingCluster) else secret(platform, "access")


def secret(platform: Platform, part: str) -> str:
    """Full name of one of the secrets that a self-managed control plane writes."""
    return f"projects/{platform.project}/secrets/{platform.name}-{part}"


def secret_parts(platform: Platform) -> tuple[str, ...]:
    """The secrets that a self-managed control plane writes; only several machines need PEERS."""
    cluster = platform.compute
    assert isinstance(cluster, SelfManagedCluster)
    return ("join", "endpoint", "access", *((PEERS,) if cluster.control_plane.replicas > 1 else ()))


def boot_metadata(platform: Platform) -> dict[str, str]:
    """Instance metadata of every machine: what it installs, and the secret with the join token."""
    return {
        "tpu-kubernetes-version": platform.compute.version,
        "tpu-containerd-version": CONTAINERD,
        "tpu-join-secret": join_secret(platform),
        # In an existing cluster, programs of others may use the host's network, too.
        **({"tpu-metadata-group": str(METADATA_GROUP)} if isinstance(platform.cluster, SelfManagedCluster) else {}),
    }


@dataclass(frozen=True)
class ControlPlaneMachine:
    """One machine of a self-managed control plane. `disk`: name of the disk that holds etcd and the cluster's keys."""

    replica: int
    name: str
    disk: str
    zone: str
    machine_type: str


def control_plane_machines(platform: Platform) -> tuple[ControlPlaneMachine, ...]:
    """The machines of a self-managed control plane, in its zones in turn."""
    cluster = platform.compute
    assert isinstance(cluster, SelfManagedCluster)
    name = f"{platform.name}-control-plane"
    return tuple(
        ControlPlaneMachine(
            replica=replica,
            name=f"{name}-{replica}",
            disk=f"{name}-data-{replica}",
            zone=zone,
            machine_type=cluster.control_plane.machine_type or default_machine(zone),
        )
        for replica, zone in enumerate(replica_zones(platform))
    )


def control_plane_metadata(platform: Platform, replica: int) -> dict[str, str]:
    """Instance metadata of one machine of the control plane, without the addresses, which are known later."""
    cluster, network = platform.compute, platform.network
    assert isinstance(cluster, SelfManagedCluster)
    return {
        **boot_metadata(platform),
        "tpu-role": "control-plane",
        "block-project-ssh-keys": "TRUE",
        "tpu-cluster-name": platform.cluster_name,
        "tpu-pods-cidr": network.pods_cidr or "",
        "tpu-services-cidr": network.services_cidr,
        "tpu-max-pods": str(CPU_MAX_PODS),
        "tpu-endpoint-secret": secret(platform, "endpoint"),
        "tpu-access-secret": secret(platform, "access"),
        "tpu-replicas": str(cluster.control_plane.replicas),
        "tpu-replica": str(replica),
        **({"tpu-keys-secret": secret(platform, KEYS)} if cluster.control_plane.backups else {}),
        **({"tpu-peer-secret": secret(platform, PEERS)} if PEERS in secret_parts(platform) else {}),
    }


def slice_groups(platform: Platform, plan: SlicePlan) -> tuple[HostGroup, ...]:
    """The groups of a plan: one for each multi-host slice, or one for all single-host slices."""
    templates = _templates(platform, plan)
    policy = plan.placement.policy if plan.placement else None
    own = plan.spec.instance_template
    return tuple(
        HostGroup(group_name(platform, pool.name), pool.most_nodes, policy, templates[pool.reservation], own)
        for pool in plan.pools
    )


def cpu_group(platform: Platform, pool: CpuPoolPlan) -> HostGroup:
    """The group of a pool without TPUs."""
    template = HostTemplate(
        name=pool.name,
        machine_type=pool.machine_type,
        image=platform.compute.image,
        disk=Disk(pool.disk_type, pool.disk_size_gb),
        kms_key=None,
        scheduling=scheduling(ON_DEMAND),
        max_run_seconds=None,
        reservation=None,
        threads_per_core=None,
        service_account=None,
        tags=(),
        resource_labels=platform.machine_labels,
        tpu_labels={},
        node_labels={**pool.labels, GROUP_LABEL: group_name(platform, pool.name)},
        taints=pool.taints,
        max_pods=CPU_MAX_PODS,
    )
    return HostGroup(group_name(platform, pool.name), pool.min_nodes, None, template)


def replica_zones(platform: Platform) -> tuple[str, ...]:
    """Zone of each machine of the control plane, in order: the given zones in turn, or the platform's."""
    cluster = platform.compute
    assert isinstance(cluster, SelfManagedCluster)
    zones = cluster.control_plane.zones or (platform.zone,)
    return tuple(zones[replica % len(zones)] for replica in range(cluster.control_plane.replicas))


def drain_seconds(drain: NodeDrain) -> int:
    """The longest drain of hosts: the wait for disruption budgets, then the grace period of pods."""
    given = [int(duration.removesuffix("s")) for duration in (drain.pdb_timeout, drain.grace) if duration]
    return sum(given) if given else DRAIN_MINUTES * 60


def _templates(platform: Platform, plan: SlicePlan) -> dict[ReservationAffinity, HostTemplate]:
    """One template for all groups of a plan, or one for each sub-block of the reservation."""
    affinities: dict[ReservationAffinity, PoolPlan] = {}
    for pool in plan.pools:
        affinities.setdefault(pool.reservation, pool)
    return {
        affinity: _template(platform, plan, plan.name if len(affinities) == 1 else pool.name, affinity)
        for affinity, pool in affinities.items()
    }


def _template(platform: Platform, plan: SlicePlan, name: str, affinity: ReservationAffinity) -> HostTemplate:
    seconds = int(plan.max_run_duration.removesuffix("s")) if plan.max_run_duration else None
    made_as = scheduling(plan.model)
    if seconds and made_as.termination is None:
        made_as = replace(made_as, termination="DELETE")
    return HostTemplate(
        name=name,
        machine_type=plan.machine.name,
        image=plan.spec.image or plan.generation.host_image,
        disk=plan.boot_disk,
        kms_key=plan.spec.kms_key,
        scheduling=made_as,
        max_run_seconds=seconds,
        reservation=affinity,
        threads_per_core=plan.machine.threads_per_core,
        service_account=plan.spec.service_account,
        tags=plan.spec.tags,
        resource_labels=plan.resource_labels,
        tpu_labels=plan.tpu_labels,
        node_labels={**plan.labels, **plan.tpu_labels, GROUP_LABEL: f"{platform.name}-{plan.name}"},
        taints=(NodeTaint(TPU_TAINT, "present", TAINT_EFFECTS["NoSchedule"]), *plan.taints),
        max_pods=plan.spec.max_pods_per_node,
    )


def _joined(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
