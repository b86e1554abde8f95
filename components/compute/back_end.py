"""Platforms on Compute Engine: a self-managed or existing cluster, with slices as managed instance groups."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pulumi

from components.built_cluster import Built
from components.compute import published_endpoint
from components.compute.control_plane import ControlPlane
from components.compute.data_disks import DataDisks
from components.compute.host_groups import HostGroups
from components.compute.joined_hosts import JoinedHosts
from components.compute.own_template import OwnTemplate, own_templates
from components.compute.published_endpoint import PublishedEndpoint
from components.gcp.backups import Backups
from components.gcp.bootstrap_secrets import BootstrapSecrets, JoinGrants
from components.gcp.enabled_apis import Services
from components.gcp.network import Machines, Network
from components.gcp.node_identity import CONTROL_PLANE, NodeIdentity
from components.gcp.workload_policies import WorkloadPolicies
from components.kubernetes.cloud_controller import CloudController
from components.kubernetes.cluster_access import Access, ClusterAccess, Endpoint, secret_kubeconfig
from components.protection import protected
from plan import hosts
from plan.platform import SYSTEM_POOL, Platform
from platform_config.self_managed import ExistingCluster, SelfManagedCluster

CPU_POOLS = "cpu-pools"


@dataclass(frozen=True)
class JoinTarget:
    """A cluster that hosts join.

    - `cluster_text`: a text that differs for every cluster, so that a new cluster replaces the host templates
    - `join_secret`: short name of the secret that holds the join token
    - `ready`: resources that must exist before hosts
    - `access`: creates objects inside the cluster
    - `published`: what a self-managed control plane has written
    """

    network: Network
    cluster_text: pulumi.Input[str]
    join_secret: pulumi.Input[str]
    ready: Sequence[pulumi.Resource]
    access: ClusterAccess
    published: pulumi.Output[Endpoint] | None


def build_compute(platform: Platform, services: Services, identity: NodeIdentity, drain: pulumi.ResourceHook) -> Built:
    """Register the control plane, unless the cluster exists already, and the hosts. `drain`: hook that drains hosts."""
    templates = own_templates(platform)
    accounts = host_accounts(platform, templates)
    nodes = [identity.email, *accounts.values()]
    cluster = platform.compute
    if isinstance(cluster, SelfManagedCluster):
        target = _own_cluster(platform, cluster, services, nodes)
    else:
        target = _existing_cluster(platform, cluster, services, nodes)
    members: dict[str, pulumi.Input[str]] = {
        "nodes": identity.member,
        **{key: pulumi.Output.concat("serviceAccount:", account) for key, account in accounts.items()},
    }
    grants = JoinGrants(
        "join-grants",
        project=hosts.join_secret(platform).split("/")[1],
        secret=target.join_secret,
        members=members,
        after=services.enabled,
    )
    after = [*identity.ready, *target.network.ready, *target.network.firewalls, *grants.ready, *target.ready]
    groups = _host_groups(platform, services, identity, target, templates, after, drain)
    access, needed = target.access, list[pulumi.Resource]()
    if isinstance(cluster, SelfManagedCluster):
        controller = CloudController("cloud-controller", platform=platform, access=access, opts=protected(platform))
        # Controllers run on the system hosts, where nothing runs before the cloud-controller has initialised them.
        access = access.behind(groups[CPU_POOLS].groups[SYSTEM_POOL], controller.daemons)
        needed = [controller.daemons]
    _wait_for_hosts(platform, groups, needed)
    return Built(
        access,
        platform.cluster_name,
        f"pulumi stack output kubeconfig --stack {pulumi.get_stack()} > kubeconfig",
        {},
        members,
        target.published,
        _facts(platform, groups.values()),
    )


def host_accounts(platform: Platform, templates: Mapping[str, OwnTemplate]) -> dict[str, pulumi.Input[str]]:
    """Emails of hosts' service accounts, without the platform's own. Keys: the email, or the template's name."""
    accounts: dict[str, pulumi.Input[str]] = {
        plan.spec.service_account: plan.spec.service_account
        for plan in platform.slice_plans
        if plan.spec.service_account
    }
    return accounts | {f"template-{own.name}": own.email for own in templates.values()}


def _own_cluster(
    platform: Platform, cluster: SelfManagedCluster, services: Services, nodes: Sequence[pulumi.Input[str]]
) -> JoinTarget:
    """A self-managed control plane. `nodes`: emails of the service accounts of hosts."""
    after = services.enabled
    identity = NodeIdentity(
        "control-plane-identity", platform=platform, account=CONTROL_PLANE, after=after, opts=protected(platform)
    )
    machines = Machines(nodes, [identity.email])
    network = Network("network", platform=platform, machines=machines, after=after, opts=protected(platform))
    disks = DataDisks(
        "control-plane-disk", platform=platform, cluster=cluster, network=network, after=after, opts=protected(platform)
    )
    generation = disks.generation
    secrets = BootstrapSecrets(
        "bootstrap-secrets",
        platform=platform,
        cluster=cluster,
        member=identity.member,
        generation=generation,
        after=after,
        opts=protected(platform),
    )
    needed = [*identity.ready, *network.ready, *network.firewalls, *secrets.ready]
    bucket = None
    if cluster.control_plane.backups:
        backups = Backups(
            "backups", platform=platform, cluster=cluster, member=identity.member, after=after, opts=protected(platform)
        )
        bucket = backups.bucket
        needed += backups.ready
    control_plane = ControlPlane(
        "control-plane",
        platform=platform,
        cluster=cluster,
        network=network,
        email=identity.email,
        disks=disks.by_machine,
        backups=bucket,
        after=after,
        needed=needed,
    )
    published = PublishedEndpoint("endpoint", platform=platform, generation=generation, after=control_plane.ready)
    return JoinTarget(
        network,
        pulumi.Output.concat("the cluster of disk ", generation),
        secrets.join.secret_id,
        control_plane.ready,
        _access(platform, published.found, disks.first, generation),
        published.found,
    )


def _existing_cluster(
    platform: Platform, cluster: ExistingCluster, services: Services, nodes: Sequence[pulumi.Input[str]]
) -> JoinTarget:
    """A cluster that somebody else runs. `nodes`: emails of the service accounts of hosts."""
    machines = Machines(nodes)
    network = Network("network", platform=platform, machines=machines, after=services.enabled, opts=protected(platform))
    known = pulumi.Output.from_input(published_endpoint.existing(cluster))
    # No generation: `cluster_identity` refuses another cluster, and a new address changes nothing inside.
    access = _access(platform, known, identity=None, generation=None)
    return JoinTarget(network, "an existing cluster", cluster.join_secret.rpartition("/")[2], [], access, None)


def _access(
    platform: Platform,
    found: pulumi.Output[Endpoint],
    identity: pulumi.Resource | None,
    generation: pulumi.Input[str] | None,
) -> ClusterAccess:
    secret = hosts.access_secret(platform)
    return Access(
        "access",
        kubeconfig=found.apply(lambda known: secret_kubeconfig(known, secret, platform.cluster_name)),
        endpoint=found.apply(lambda known: known.host),
        identity=identity,
        generation=generation,
        opts=protected(platform),
    ).cluster


def _host_groups(
    platform: Platform,
    services: Services,
    identity: NodeIdentity,
    target: JoinTarget,
    templates: Mapping[str, OwnTemplate],
    after: Sequence[pulumi.Resource],
    drain: pulumi.ResourceHook,
) -> dict[str, HostGroups]:
    """All hosts, by the name of their component: hosts without TPUs, then those of each group of slices."""
    policies = {}
    if platform.workload_policies:
        policies = WorkloadPolicies("workload-policies", platform=platform, after=services.enabled).by_name
    make = partial(
        HostGroups,
        platform=platform,
        network=target.network,
        cluster=target.cluster_text,
        email=identity.email,
        policies=policies,
        after=after,
    )
    found: dict[str, HostGroups] = {}
    if platform.all_cpu_pools:
        pools = {pool.name: hosts.cpu_group(platform, pool) for pool in platform.all_cpu_pools}
        found[CPU_POOLS] = make(CPU_POOLS, groups=pools, kept=[SYSTEM_POOL] if platform.protect else [])
    for plan in platform.slice_plans:
        name = f"slices-{plan.name}"
        found[name] = make(
            name,
            groups={str(index): group for index, group in enumerate(hosts.slice_groups(platform, plan))},
            own_template=templates[plan.name].link if plan.name in templates else None,
            hooks=pulumi.ResourceHookBinding(before_delete=[drain]) if plan.spec.node_drain else None,
            opts=pulumi.ResourceOptions(protect=plan.protect),
        )
    return found


def _wait_for_hosts(platform: Platform, made: Mapping[str, HostGroups], needed: Sequence[pulumi.Resource]) -> None:
    """Makes an update wait for nodes, except hosts that Google queues. `needed`: what turns hosts into nodes."""
    for name, component in made.items():
        waited = {key: group for key, group in component.plans.items() if group.wait and group.size}
        if waited:
            JoinedHosts(f"joined-{name}", platform=platform, groups=waited, made=component, after=needed)


def _facts(platform: Platform, groups: Iterable[HostGroups]) -> dict[str, Any]:
    """`hosts`: names of each slice's hosts, the same as its nodes'; `ready`: whether all hosts of a group run."""
    return {
        "hosts": {
            plan.name: [name for group in hosts.slice_groups(platform, plan) for name in group.host_names]
            for plan in platform.slice_plans
        },
        "ready": {name: stable for component in groups for name, stable in component.stable.items()},
    }
