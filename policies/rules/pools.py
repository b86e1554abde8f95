"""GKE node pools: what the API would refuse after minutes."""

import re
from collections.abc import Iterator

from policies import tokens
from policies.nodes import CONFIG, keeps_default_pool, node_configs
from policies.registry import PRODUCTION, RESOURCE, Resource, Settings, in_production
from policies.tpu import looks_like_tpu, uses_flex_start
from policies.values import Finding, at, is_set, items, known, number, refuse, require, text
from rules.slices import GKE_POOL_NAME_LIMIT

POOL_NAME = re.compile(rf"[a-z]([-a-z0-9]{{0,{GKE_POOL_NAME_LIMIT - 2}}}[a-z0-9])?")


@RESOURCE.rule(
    "pool-name",
    tokens.NODE_POOL,
    reason=f"The API takes {GKE_POOL_NAME_LIMIT} characters, generated names are longer, and a name decides what can be"
    " replaced how.",
    remedy=f"Name the pool: lower-case letters, digits and hyphens, at most {GKE_POOL_NAME_LIMIT} characters",
    source="GKE API, NodePool.name; pulumi-gcp autonaming",
)
def pool_name(pool: Resource, settings: Settings) -> Iterator[Finding]:
    yield from require(pool.props, "name")
    name = text(pool.props, "name")
    if name and not POOL_NAME.fullmatch(name):
        yield Finding("name", f"is {name!r}")


@RESOURCE.rule(
    "pool-management",
    tokens.NODE_POOL,
    reason="A release channel refuses pools without automatic upgrade; broken hosts are not replaced without repair.",
    remedy="Set autoUpgrade: true and autoRepair: true; hold upgrades back by a maintenance exclusion",
    source="GKE API: Auto_upgrade must be true when release_channel is set; CIS GKE Benchmark 5.5.2, 5.5.3",
    cis=("5.5.2", "5.5.3"),
)
def pool_management(pool: Resource, settings: Settings) -> Iterator[Finding]:
    yield from refuse(pool.props, "management.autoUpgrade", False)
    if not uses_flex_start(pool):
        yield from refuse(pool.props, "management.autoRepair", False)


@RESOURCE.rule(
    "pool-size",
    tokens.NODE_POOL,
    reason="The provider and the API take one way of sizing a pool, and refuse two.",
    remedy="Set nodeCount, or bounds under autoscaling; of the bounds either per zone or in total",
    source="provider: Cannot set both initial_node_count and node_count; GKE API, NodePoolAutoscaling",
)
def pool_size(pool: Resource, settings: Settings) -> Iterator[Finding]:
    if at(pool.props, "nodeCount") is not None and at(pool.props, "initialNodeCount") is not None:
        yield Finding("nodeCount", "is set together with initialNodeCount")
    per_zone = any(number(pool.props, f"autoscaling.{key}") is not None for key in ("minNodeCount", "maxNodeCount"))
    total = any(
        number(pool.props, f"autoscaling.{key}") is not None for key in ("totalMinNodeCount", "totalMaxNodeCount")
    )
    if per_zone and total:
        yield Finding("autoscaling", "has bounds per zone and in total")


@RESOURCE.rule(
    "pool-networks",
    tokens.NODE_POOL,
    reason="The accelerator network profile makes the networks itself.",
    remedy="Keep acceleratorNetworkProfile, or additionalNodeNetworkConfigs",
    source="cluster-toolkit #5896",
)
def pool_networks(pool: Resource, settings: Settings) -> Iterator[Finding]:
    keys = ("acceleratorNetworkProfile", "additionalNodeNetworkConfigs")
    if all(known(at(pool.props, f"networkConfig.{key}")) for key in keys):
        yield Finding("networkConfig", f"has {' and '.join(keys)}")


@RESOURCE.rule(
    "boot-disk-key",
    tokens.NODE_POOL,
    *tokens.TEMPLATES,
    level="advisory",
    reason="What jobs leave on boot disks is encrypted with Google's key, which you cannot withdraw.",
    remedy="Set a Cloud KMS key of the region; in a stack file it is kms_key of the slice",
    source="CIS GKE Benchmark 5.9.2",
    cis=("5.9.2",),
    settings=[PRODUCTION],
)
def boot_disk_key(resource: Resource, settings: Settings) -> Iterator[Finding]:
    if not in_production(resource, settings):
        return
    if resource.type == tokens.NODE_POOL:
        yield from require(resource.props, f"{CONFIG}.bootDiskKmsKey")
        return
    for index, disk in enumerate(items(resource.props, "disks")):
        if at(disk, "boot") is True and not is_set(disk, "diskEncryptionKey"):
            yield Finding(f"disks.{index}.diskEncryptionKey", "is not set")


@RESOURCE.rule(
    "default-pool",
    tokens.CLUSTER,
    reason="A cluster's default pool cannot be changed without replacing the cluster, and TPU hosts in it with it.",
    remedy="Set removeDefaultNodePool: true, and make pools resources of their own",
    source="provider: nodeConfig of a cluster replaces it; GKE documentation, TPU node pools",
)
def default_pool(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    if not keeps_default_pool(cluster):
        return
    for config in node_configs(cluster):
        machine = text(cluster.props, f"{config}.machineType")
        if looks_like_tpu(machine):
            yield Finding("removeDefaultNodePool", f"is not true, so the cluster keeps its pool of {machine}")
