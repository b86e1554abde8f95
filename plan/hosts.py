"""Hosts that are not GKE's: what a Compute Engine machine boots with, and the group it belongs to.

A slice of several hosts is one managed instance group (MIG) in bulk mode with a workload policy: all hosts or none.
Single-host slices share a group that makes hosts one by one. Sources: Compute Engine documentation (bulk mode, workload
policies); gke-labs/tpu-operator converters; the TPU device plugin for `kube-labels`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from catalogue.labels import GROUP_LABEL, KUBERNETES_EFFECTS, TAINT_EFFECTS, TPU_TAINT
from plan.capacity import ON_DEMAND, OnCompute, ReservationAffinity, scheduling
from plan.cpu_machines import default_machine
from plan.network import pod_prefix
from plan.platform import Platform
from plan.slices import CpuPoolPlan, Disk, NodeTaint, PoolPlan, SlicePlan
from platform_config.self_managed import ExistingCluster, SelfManagedCluster
from platform_config.slice import NodeDrain

API_PORT = 6443
"""Where a control plane's API servers listen, as kubeadm has it."""

KEYS = "keys"
"""The secret that keeps a copy of the keys on a control plane's data disk, beside snapshots of etcd."""

PEERS = "peers"
"""The secret that the machines of a control plane keep among themselves."""

CPU_MAX_PODS = 110
CONTAINERD = "2.1.5-1~*"
"""Package of containerd that hosts install, for whatever release of Ubuntu: 2.x hands out devices by CDI without being
told to."""

METADATA_GROUP = 47100
"""Group of the platform's own programs in the host's network that ask the metadata server; others there are refused."""

CREATE_MINUTES, DELETE_MINUTES = 60, 30
"""How long an update waits for the hosts of a group to come, and to go."""

DRAIN_MINUTES = 30
"""Longest time that hosts are emptied for before their group is deleted."""

HOST_DIGITS = 4
"""Digits of a host's number; a group has at most 2,000 hosts."""

GROUP_NAME_LIMIT = 53
"""Longest name of a group: Compute Engine's names have 63 characters, of which the provider takes nine to tell one
template from the next, and a hyphen before them; hosts take seven for their number."""

JOIN_TOKEN = re.compile(r"(?<![a-z0-9.])[a-z0-9]{6}\.(?=[a-z]*[0-9])[a-z0-9]{16}(?![a-z0-9.])")
"""What a bootstrap token of kubeadm looks like; instance metadata is no place for one, since many may read it.

A name of six letters, a dot and sixteen letters is no token: a token's random half has digits."""


@dataclass(frozen=True)
class HostTemplate:
    """What hosts boot with. `node_labels`, `taints`: as the kubelet registers them. `pod_prefix`: length of the prefix
    of each host's range for pods. `tpu_labels`: what the TPU device plugin reads, empty without TPUs."""

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
        """Instance metadata that says what kind of node the host becomes; nothing in it is secret."""
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
        """All hosts at once or none: the hosts of one slice are worth nothing without each other."""
        return self.policy is not None

    @property
    def wait(self) -> bool:
        """Whether an update waits until all hosts run."""
        return self.template.scheduling.up_waits

    @property
    def repair(self) -> bool:
        """Whether a host that fails is made anew by itself: never one of a slice alone, nor where capacity is queued
        for (bulk mode and flex-start allow nothing else)."""
        return not self.bulk and self.wait

    @property
    def base_name(self) -> str:
        """Pattern of the hosts' names, in the Compute API's spelling: numbered from 1."""
        return f"{self.name}-w-{'#' * HOST_DIGITS}[1]"

    @property
    def host_names(self) -> tuple[str, ...]:
        """Names of the hosts, which are those of their nodes."""
        return tuple(f"{self.name}-w-{number:0{HOST_DIGITS}d}" for number in range(1, self.size + 1))


def group_name(platform: Platform, pool: str) -> str:
    """Name of the group of a pool."""
    return f"{platform.name}-{pool}"


def node_pool(platform: Platform, pool: str) -> str:
    """What the nodes of a pool carry as their node pool: its own name on GKE, else that of its group."""
    return pool if platform.backend == "gke" else group_name(platform, pool)


def join_secret(platform: Platform) -> str:
    """Full name of the secret that hosts take their join token from."""
    cluster = platform.compute
    return cluster.join_secret if isinstance(cluster, ExistingCluster) else secret(platform, "join")


def access_secret(platform: Platform) -> str:
    """Full name of the secret that this program takes its credential from."""
    cluster = platform.compute
    return cluster.access_secret if isinstance(cluster, ExistingCluster) else secret(platform, "access")


def secret(platform: Platform, part: str) -> str:
    """Full name of one of the secrets that a self-managed control plane writes."""
    return f"projects/{platform.project}/secrets/{platform.name}-{part}"


def secret_parts(platform: Platform) -> tuple[str, ...]:
    """The secrets that a self-managed control plane writes: several machines have one among themselves."""
    cluster = platform.compute
    assert isinstance(cluster, SelfManagedCluster)
    return ("join", "endpoint", "access", *((PEERS,) if cluster.control_plane.replicas > 1 else ()))


def boot_metadata(platform: Platform) -> dict[str, str]:
    """Instance metadata of every machine: what it installs, and where it finds how to join."""
    return {
        "tpu-kubernetes-version": platform.compute.version,
        "tpu-containerd-version": CONTAINERD,
        "tpu-join-secret": join_secret(platform),
        # In a cluster that exists others may have programs in the host's network, too.
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
    """The machines of a self-managed control plane, one in each of its zones in turn."""
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
    """Instance metadata of one machine of the control plane, but for the addresses, which are known later."""
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
    """The groups of a plan: one for each slice of several hosts, one in all for slices of one host."""
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
    """Zone of each machine of the control plane, by its number: the given zones in turn, or the platform's."""
    cluster = platform.compute
    assert isinstance(cluster, SelfManagedCluster)
    zones = cluster.control_plane.zones or (platform.zone,)
    return tuple(zones[replica % len(zones)] for replica in range(cluster.control_plane.replicas))


def drain_seconds(drain: NodeDrain) -> int:
    """How long hosts may be emptied for: until budgets let go of the last pod, and then until it has ended."""
    given = [int(duration.removesuffix("s")) for duration in (drain.pdb_timeout, drain.grace) if duration]
    return sum(given) if given else DRAIN_MINUTES * 60


def _templates(platform: Platform, plan: SlicePlan) -> dict[ReservationAffinity, HostTemplate]:
    """One template for all groups of a plan, or one for each sub-block of its reservation."""
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
