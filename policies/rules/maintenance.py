"""When Google may upgrade a GKE cluster."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from plan import tpu_provisioner
from platform_config.cluster import MAX_EXCLUSIONS
from policies import tokens
from policies.registry import RESOURCE, STACK, Resource, Settings, Stack, StackFinding
from policies.values import UNKNOWN, Finding, at, is_set, items, refuse, require, settled, text

HELD_SCOPES = ("NO_MINOR_OR_NODE_UPGRADES", "NO_UPGRADES")

BEFORE_START = timedelta(days=1)
"""How far in the future an exclusion may begin: for time zones, and for an update on the next day."""


NO_CHANNEL = "UNSPECIFIED"


@RESOURCE.rule(
    "release-channel",
    tokens.CLUSTER,
    reason="Off the channels there are no maintenance exclusions, and upgrades are forced at end of support.",
    remedy="Choose RAPID, REGULAR, STABLE or EXTENDED",
    source="CIS GKE Benchmark 5.5.4; GKE documentation, release channels",
    cis=("5.5.4",),
)
def release_channel(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    yield from require(cluster.props, "releaseChannel.channel")


@STACK.rule(
    "no-release-channel",
    reason="Off the channels there are no maintenance exclusions, and upgrades are forced at end of support. Only TPU"
    " Provisioner needs such a cluster: its pools have no automatic upgrades.",
    remedy="Choose RAPID, REGULAR, STABLE or EXTENDED",
    source="CIS GKE Benchmark 5.5.4; GKE documentation, release channels; ai-on-gke/tpu-provisioner README.md",
    cis=("5.5.4",),
)
def no_release_channel(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    deployments = stack.of_type("kubernetes:apps/v1:Deployment")
    if any(at(each.props, "metadata.namespace") == tpu_provisioner.NAMESPACE for each in deployments):
        return
    for cluster in stack.of_type(tokens.CLUSTER):
        for found in refuse(cluster.props, "releaseChannel.channel", NO_CHANNEL):
            yield StackFinding(cluster.urn, found.path, found.message)


@RESOURCE.rule(
    "maintenance-window",
    tokens.CLUSTER,
    reason="Without a window Google upgrades at any hour of any day.",
    remedy="Set one of recurringWindow, recurringMaintenanceWindow and dailyMaintenanceWindow",
    source="google/gke-policy-automation; GKE documentation, maintenance windows",
)
def maintenance_window(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    windows = ("recurringWindow", "recurringMaintenanceWindow", "dailyMaintenanceWindow")
    given = [window for window in windows if is_set(cluster.props, f"maintenancePolicy.{window}")]
    policy = at(cluster.props, "maintenancePolicy")
    if policy is not UNKNOWN and len(given) != 1:
        yield Finding("maintenancePolicy", f"has {' and '.join(given) or 'no window'}; it takes exactly one")


@RESOURCE.rule(
    "maintenance-exclusion",
    tokens.CLUSTER,
    reason="A node upgrade recreates all hosts of a slice in one step, and ends the job that runs on them; an exclusion"
    " that is over, or not yet begun, has no effect.",
    remedy="Add a maintenance exclusion of scope NO_MINOR_OR_NODE_UPGRADES; upgrade when a slice is free",
    source="GKE documentation: node upgrades of multi-host TPU slices; cluster-toolkit's TPU blueprints",
)
def maintenance_exclusion(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    path = "maintenancePolicy.maintenanceExclusions"
    if not settled(cluster.props, path) or at(cluster.props, "releaseChannel.channel") == NO_CHANNEL:
        return
    exclusions = items(cluster.props, path)
    holding = [each for each in exclusions if text(each, "exclusionOptions.scope") in HELD_SCOPES]
    if not holding:
        yield Finding(path, "holds no node upgrades back")
    elif not any(map(_in_force, holding)):
        spans = [f"{text(each, 'startTime') or 'now'} to {text(each, 'endTime') or 'open'}" for each in holding]
        yield Finding(path, f"holds node upgrades back from {', '.join(spans)}, not now")
    if len(exclusions) > MAX_EXCLUSIONS:
        yield Finding(path, f"has {len(exclusions)} entries; GKE takes {MAX_EXCLUSIONS}")


def _in_force(exclusion: Any) -> bool:
    """Whether an exclusion is in force today. One without an end lasts as long as its version."""
    now = datetime.now(UTC)
    start, end = _instant(text(exclusion, "startTime")), _instant(text(exclusion, "endTime"))
    return (start is None or start <= now + BEFORE_START) and (end is None or end > now)


def _instant(written: str) -> datetime | None:
    """A time in RFC 3339; None where there is none, or where the API refuses it."""
    try:
        instant = datetime.fromisoformat(written)
    except ValueError:
        return None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
