"""Platforms on Compute Engine: a control plane of their own or a cluster that exists, slices as groups of hosts."""

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
class Home:
    """A cluster that hosts join.

    - `described`: a text that differs for every cluster, so that a new cluster makes new host templates
    - `join_secret`: short name of the secret that holds the join token
    - `ready`: what hosts come after
    - `access`: how to make objects inside the cluster
    """

    network: Network
    described: pulumi.Input[str]
    join_secret: pulumi.Input[str]
    ready: Sequence[pulumi.Resource]
    access: ClusterAccess


def build_compute(platform: Platform, services: Services, identity: NodeIdentity, drain: pulumi.ResourceHook) -> Built:
    """Register a control plane, or nothing of an existing one, and the hosts that join. `drain`: empties hosts."""
    templates = own_templates(platform)
    accounts = host_accounts(platform, templates)
    nodes = [identity.email, *accounts.values()]
    cluster = platform.compute
    if isinstance(cluster, SelfManagedCluster):
        home = _own_cluster(platform, cluster, services, nodes)
    else:
        home = _existing_cluster(platform, cluster, services, nodes)
    grants = JoinGrants(
        "join-grants",
        project=hosts.join_secret(platform).split("/")[1],
        secret=home.join_secret,
        members={
            "nodes": identity.member,
            **{key: pulumi.Output.concat("serviceAccount:", account) for key, account in accounts.items()},
        },
        after=services.enabled,
    )
    after = [*identity.ready, *home.network.ready, *home.network.firewalls, *grants.ready, *home.ready]
    groups = _host_groups(platform, services, identity, home, templates, after, drain)
    access, needed = home.access, list[pulumi.Resource]()
    if isinstance(cluster, SelfManagedCluster):
        controller = CloudController("cloud-controller", platform=platform, access=access, opts=protected(platform))
        # Controllers run on the system hosts, on which nothing runs before the cloud-controller has seen them.
        access = access.behind(groups[CPU_POOLS].groups[SYSTEM_POOL], controller.daemons)
        needed = [controller.daemons]
    _wait_for_hosts(platform, groups, needed)
    return Built(
        access,
        platform.cluster_name,
        f"pulumi stack output kubeconfig --stack {pulumi.get_stack()} > kubeconfig",
        _facts(platform, groups.values()),
    )


def host_accounts(platform: Platform, templates: Mapping[str, OwnTemplate]) -> dict[str, pulumi.Input[str]]:
    """What hosts run as besides the platform's own account: by address, or by the template that says it."""
    accounts: dict[str, pulumi.Input[str]] = {
        plan.spec.service_account: plan.spec.service_account
        for plan in platform.slice_plans
        if plan.spec.service_account
    }
    return accounts | {f"template-{own.name}": own.email for own in templates.values()}


def _own_cluster(
    platform: Platform, cluster: SelfManagedCluster, services: Services, nodes: Sequence[pulumi.Input[str]]
) -> Home:
    """A control plane of the platform's own. `nodes`: what hosts run as."""
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
    return Home(
        network,
        pulumi.Output.concat("the cluster of disk ", generation),
        secrets.join.secret_id,
        control_plane.ready,
        _access(platform, published.found, disks.first, generation),
    )


def _existing_cluster(
    platform: Platform, cluster: ExistingCluster, services: Services, nodes: Sequence[pulumi.Input[str]]
) -> Home:
    """A cluster that somebody else runs. `nodes`: what hosts run as."""
    machines = Machines(nodes)
    network = Network("network", platform=platform, machines=machines, after=services.enabled, opts=protected(platform))
    known = pulumi.Output.from_input(published_endpoint.existing(cluster))
    # It has no generation: that it is another one is refused before, and another address of it changes nothing inside.
    access = _access(platform, known, identity=None, generation=None)
    return Home(network, "an existing cluster", cluster.join_secret.rpartition("/")[2], [], access)


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
    home: Home,
    templates: Mapping[str, OwnTemplate],
    after: Sequence[pulumi.Resource],
    drain: pulumi.ResourceHook,
) -> dict[str, HostGroups]:
    """All hosts, by the name of their component: those without TPUs, then those of each group of slices."""
    policies = {}
    if platform.workload_policies:
        policies = WorkloadPolicies("workload-policies", platform=platform, after=services.enabled).by_name
    make = partial(
        HostGroups,
        platform=platform,
        network=home.network,
        cluster=home.described,
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
    """Where a group's hosts come at once, an update ends when they are nodes. `needed`: what makes nodes of them."""
    for name, component in made.items():
        waited = {key: group for key, group in component.described.items() if group.wait and group.size}
        if waited:
            JoinedHosts(f"joined-{name}", platform=platform, groups=waited, made=component, after=needed)


def _facts(platform: Platform, groups: Iterable[HostGroups]) -> dict[str, Any]:
    """`hosts`: names of each slice's hosts, which are its nodes'; `ready`: whether all hosts of a group run."""
    return {
        "hosts": {
            plan.name: [name for group in hosts.slice_groups(platform, plan) for name in group.host_names]
            for plan in platform.slice_plans
        },
        "ready": {name: stable for component in groups for name, stable in component.stable.items()},
    }
