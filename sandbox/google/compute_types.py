"""The Compute Engine resource types the emulator keeps, one row each, and the links between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox.google.machines import region_of
from sandbox.google.service import COMPUTE, compute_scope
from sandbox.google.store import Resource

TEMPLATES = "instanceTemplates"
IDLE_ACTIONS = (
    "abandoning",
    "deleting",
    "recreating",
    "refreshing",
    "restarting",
    "verifying",
    "creatingWithoutRetries",
)
"""What a managed instance group counts besides `none` and `creating`, which the emulator's never do."""


@dataclass(frozen=True)
class Collection:
    """A resource type.

    `name` is the collection in URLs and method ids, `scope` its level ("global", "regions", "zones"). `links` lists
    (path, collections) pairs: fields that name other resources, which must exist and cannot be deleted meanwhile;
    "[]" in a path stands for every element. `tokens` are the fingerprints it carries, `defaults` what Google fills in.
    `at_once` resources can be read while they are being created. `alias` is the URL collection where the method id
    uses another word.
    """

    name: str
    kind: str
    scope: str
    links: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tokens: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    at_once: bool = False
    alias: str = ""

    @property
    def path(self) -> str:
        return self.alias or self.name

    @property
    def store_kind(self) -> str:
        return f"compute.{self.name}"


NETWORK = ("network", ("networks",))
SUBNETWORK = ("subnetwork", ("subnetworks",))
LABELS = ("labelFingerprint",)
HEALTH_CHECK = {"checkIntervalSec": 5, "timeoutSec": 5, "healthyThreshold": 2, "unhealthyThreshold": 2}
GROUP_LINKS = (
    ("versions[].instanceTemplate", (TEMPLATES, "regionInstanceTemplates")),
    ("instanceTemplate", (TEMPLATES, "regionInstanceTemplates")),
    ("resourcePolicies.workloadPolicy", ("resourcePolicies",)),
    ("autoHealingPolicies[].healthCheck", ("healthChecks", "regionHealthChecks")),
)
ADDRESS = {"addressType": "EXTERNAL", "status": "RESERVED", "description": "", "networkTier": "PREMIUM"}
TEMPLATE_LINKS = tuple((f"properties.networkInterfaces[].{path}", targets) for path, targets in (NETWORK, SUBNETWORK))
GROUP = {
    "targetSize": 0,
    "targetStoppedSize": 0,
    "targetSuspendedSize": 0,
    "listManagedInstancesResults": "PAGELESS",
    "targetSizePolicy": {"mode": "INDIVIDUAL"},
    "standbyPolicy": {"initialDelaySec": 0, "mode": "MANUAL"},
    "instanceLifecyclePolicy": {
        "defaultActionOnFailure": "REPAIR",
        "forceUpdateOnRepair": "NO",
        "onFailedHealthCheck": "DEFAULT_ACTION",
        "onRepair": {"allowChangingZone": "NO"},
    },
    "updatePolicy": {
        "type": "OPPORTUNISTIC",
        "minimalAction": "REPLACE",
        "replacementMethod": "SUBSTITUTE",
        "maxSurge": {"fixed": 1, "calculated": 1},
        "maxUnavailable": {"fixed": 1, "calculated": 1},
    },
}

_ROWS = (
    Collection(
        "networks",
        "compute#network",
        "global",
        defaults={
            "mtu": 1460,
            "routingConfig": {"routingMode": "REGIONAL", "bgpBestPathSelectionMode": "LEGACY"},
            "networkFirewallPolicyEnforcementOrder": "AFTER_CLASSIC_FIREWALL",
        },
    ),
    Collection(
        "subnetworks",
        "compute#subnetwork",
        "regions",
        links=(NETWORK,),
        tokens=("fingerprint",),
        defaults={
            "purpose": "PRIVATE",
            "stackType": "IPV4_ONLY",
            "privateIpGoogleAccess": False,
            "privateIpv6GoogleAccess": "DISABLE_GOOGLE_ACCESS",
            "enableFlowLogs": False,
            "allowSubnetCidrRoutesOverlap": False,
        },
    ),
    Collection(
        "firewalls",
        "compute#firewall",
        "global",
        links=(NETWORK,),
        defaults={"direction": "INGRESS", "disabled": False, "priority": 1000, "logConfig": {"enable": False}},
    ),
    Collection("routes", "compute#route", "global", links=(NETWORK,), defaults={"priority": 1000}),
    Collection(
        "routers", "compute#router", "regions", links=(NETWORK, ("nats[].subnetworks[].name", ("subnetworks",)))
    ),
    Collection(
        "addresses",
        "compute#address",
        "regions",
        links=(NETWORK, SUBNETWORK),
        tokens=LABELS,
        defaults=ADDRESS,
        at_once=True,
    ),
    Collection(
        "globalAddresses",
        "compute#address",
        "global",
        links=(NETWORK,),
        tokens=LABELS,
        defaults=ADDRESS,
        alias="addresses",
    ),
    Collection("resourcePolicies", "compute#resourcePolicy", "regions", defaults={"status": "READY"}),
    Collection(
        "disks",
        "compute#disk",
        "zones",
        tokens=LABELS,
        defaults={"status": "READY", "physicalBlockSizeBytes": "4096"},
    ),
    Collection(
        "instances",
        "compute#instance",
        "zones",
        links=(
            ("networkInterfaces[].network", ("networks",)),
            ("networkInterfaces[].subnetwork", ("subnetworks",)),
            ("disks[].source", ("disks",)),
            ("resourcePolicies[]", ("resourcePolicies",)),
        ),
        tokens=("fingerprint", "labelFingerprint"),
        at_once=True,
    ),
    Collection(TEMPLATES, "compute#instanceTemplate", "global", links=TEMPLATE_LINKS),
    Collection("regionInstanceTemplates", "compute#instanceTemplate", "regions", links=TEMPLATE_LINKS, alias=TEMPLATES),
    Collection(
        "instanceGroupManagers",
        "compute#instanceGroupManager",
        "zones",
        links=GROUP_LINKS,
        tokens=("fingerprint",),
        defaults=GROUP,
        at_once=True,
    ),
    Collection(
        "regionInstanceGroupManagers",
        "compute#instanceGroupManager",
        "regions",
        links=GROUP_LINKS,
        tokens=("fingerprint",),
        defaults=GROUP,
        at_once=True,
        alias="instanceGroupManagers",
    ),
    Collection(
        "reservations",
        "compute#reservation",
        "zones",
        defaults={
            "status": "READY",
            "specificReservationRequired": False,
            "shareSettings": {"shareType": "LOCAL"},
            "reservationSharingPolicy": {"serviceShareType": "DISALLOW_ALL"},
        },
    ),
    Collection("futureReservations", "compute#futureReservation", "zones", defaults={"planningStatus": "DRAFT"}),
    Collection("healthChecks", "compute#healthCheck", "global", defaults=HEALTH_CHECK),
    Collection("regionHealthChecks", "compute#healthCheck", "regions", defaults=HEALTH_CHECK, alias="healthChecks"),
    Collection(
        "regionBackendServices",
        "compute#backendService",
        "regions",
        links=(
            ("healthChecks[]", ("healthChecks", "regionHealthChecks")),
            NETWORK,
            ("backends[].group", ("instanceGroups",)),
        ),
        tokens=("fingerprint",),
        defaults={"timeoutSec": 30, "connectionDraining": {"drainingTimeoutSec": 0}, "sessionAffinity": "NONE"},
        alias="backendServices",
    ),
    Collection(
        "instanceGroups",
        "compute#instanceGroup",
        "zones",
        links=(NETWORK, SUBNETWORK),
        tokens=("fingerprint",),
        defaults={"size": 0},
    ),
    Collection(
        "forwardingRules",
        "compute#forwardingRule",
        "regions",
        links=(NETWORK, SUBNETWORK, ("backendService", ("regionBackendServices",))),
        tokens=("fingerprint", "labelFingerprint"),
        defaults={"networkTier": "PREMIUM", "IPProtocol": "TCP", "description": ""},
        at_once=True,
    ),
)
COLLECTIONS = {row.name: row for row in _ROWS}


def users_of(collection: str) -> Iterator[tuple[Collection, str]]:
    """(collection, path) of every field that can name a resource of `collection`."""
    for row in _ROWS:
        for path, targets in row.links:
            if collection in targets:
                yield row, path


def mapped(value: Any, path: str, change: Callable[[str], str]) -> Any:
    """A copy of `value` with `change` applied to the strings at a link path; absent fields stay absent."""
    head, _, rest = path.partition(".")
    key, each = head.removesuffix("[]"), head.endswith("[]")
    if not isinstance(value, dict) or not value.get(key):
        return value
    step = (lambda item: mapped(item, rest, change)) if rest else change
    return {**value, key: [step(item) for item in value[key]] if each else step(value[key])}


def linked(value: Resource, path: str) -> list[str]:
    """The strings at a link path."""
    found: list[str] = []

    def note(reference: str) -> str:
        found.append(reference)
        return reference

    mapped(value, path, note)
    return found


def relative(reference: str) -> str:
    """A resource URL as "projects/..." where it is one: of any API version, with any scheme and host or none.

    Clients write links with the address at which they reach the API. `?uniqueId=` is dropped.
    """
    return re.sub(r"^https?://[^/]+/(compute/)?(v1|beta)/", "", reference).partition("?")[0]


def full_name(reference: str, collection: Collection, project: str, location: str) -> str:
    """The full name "projects/P/.../COLLECTION/NAME" for a URL, a partial path or a bare name used at `location`."""
    name = relative(reference)
    if name.startswith("projects/"):
        return name
    if "/" in name:
        return f"projects/{project}/{name}"
    if collection.scope == "global":
        scope = "global"
    elif collection.scope == "regions" and location.count("-") > 1:
        scope = compute_scope(region_of(location))
    else:
        scope = compute_scope(location)
    return f"projects/{project}/{scope}/{collection.path}/{name}"


def self_link(name: str) -> str:
    return COMPUTE + name
