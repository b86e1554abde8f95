"""Passthrough load balancers: health checks, backend services, forwarding rules, and the groups behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.plugins.gcp import links
from sandbox.plugins.gcp.mapping import Json, as_list, int64, renamed
from sandbox.plugins.gcp.resources.compute import REGION, SET_LABELS, ZONE, Relabelled
from sandbox.plugins.gcp.resources.rest import Context, Inputs, Rest, Variables
from sandbox.plugins.provider import ProviderError

# The block of a health check -> its type in the API.
CHECK_TYPES = {"httpsHealthCheck": "HTTPS", "tcpHealthCheck": "TCP"}
# What only backends of proxies have (provider: backendServiceOnlyManagedApiFieldNames); others must not send it.
MANAGED_ONLY = (
    "capacityScaler",
    "maxConnections",
    "maxConnectionsPerEndpoint",
    "maxConnectionsPerInstance",
    "maxRate",
    "maxRatePerEndpoint",
    "maxRatePerInstance",
    "maxUtilization",
)


@dataclass(frozen=True, kw_only=True)
class HealthCheck(Rest):
    """The API wants the type beside the block that says it."""

    def body(self, context: Context, variables: Variables, inputs: Inputs) -> Json:
        body = super().body(context, variables, inputs)
        kind = next((kind for block, kind in CHECK_TYPES.items() if block in body), None)
        if kind is None:
            raise ProviderError(f"one of {', '.join(CHECK_TYPES)} must be given")
        return {**body, "type": kind}


REGION_HEALTH_CHECK = HealthCheck(
    type="gcp:compute/regionHealthCheck:RegionHealthCheck",
    api="compute",
    collection=f"{REGION}/healthChecks",
    item=f"{REGION}/healthChecks/{{name}}",
    fields={"healthCheckId": int64("id")},
    place="region",
    patches="PUT",
)


@dataclass(frozen=True, kw_only=True)
class BackendService(Rest):
    """Backends of a passthrough load balancer carry no settings of proxies, whatever their defaults are."""

    def body(self, context: Context, variables: Variables, inputs: Inputs) -> Json:
        body = super().body(context, variables, inputs)
        if str(inputs.get("loadBalancingScheme", "")).endswith("_MANAGED"):
            return body
        # Of a passthrough balancer inside the network the provider says that it is not subset.
        subset = {} if body.get("loadBalancingScheme") == "EXTERNAL" else {"subsetting": {"policy": "NONE"}}
        backends = [{k: v for k, v in b.items() if k not in MANAGED_ONLY} for b in body.get("backends", ())]
        return {**body, **subset, "backends": backends}


REGION_BACKEND_SERVICE = BackendService(
    type="gcp:compute/regionBackendService:RegionBackendService",
    api="compute",
    collection=f"{REGION}/backendServices",
    item=f"{REGION}/backendServices/{{name}}",
    fields={
        "connectionDrainingTimeoutSec": renamed("connectionDraining.drainingTimeoutSec"),
        "generatedId": int64("id"),
        "healthChecks": as_list(),
    },
    always={"iap": None},
    place="region",
    patches="PUT",
    fingerprinted=True,
)


@dataclass(frozen=True, kw_only=True)
class ForwardingRule(Relabelled):
    """The backend service of a rule is sent as a whole URL, below the API's address if the program wrote less."""

    def body(self, context: Context, variables: Variables, inputs: Inputs) -> Json:
        body = super().body(context, variables, inputs)
        service = body.get("backendService", "")
        if service and not service.startswith("https://"):
            body["backendService"] = f"{context.client.base(self.api)}/{_from_project(service, variables)}"
        return body


def _from_project(link: str, variables: Variables) -> str:
    """A partial link, with what is missing at its front."""
    if link.startswith("projects/"):
        return link
    project, place = "projects/{project}".format(**variables), "regions/{region}".format(**variables)
    return f"{project}/{link}" if link.startswith(("regions/", "zones/")) else f"{project}/{place}/{link}"


FORWARDING_RULE = ForwardingRule(
    type="gcp:compute/forwardingRule:ForwardingRule",
    api="compute",
    collection=f"{REGION}/forwardingRules",
    item=f"{REGION}/forwardingRules/{{name}}",
    fields={
        "forwardingRuleId": int64("id"),
        "ipAddress": renamed("IPAddress"),
        "ipProtocol": renamed("IPProtocol"),
    },
    place="region",
    setters=(SET_LABELS,),
)


@dataclass(frozen=True, kw_only=True)
class InstanceGroup(Rest):
    """An unmanaged group. Its members are no part of its body: they are added, removed and listed by other calls."""

    def settled(self, context: Context, identity: str, variables: Variables, inputs: Inputs) -> Json:
        if inputs.get("instances") is not None:
            present = {links.relative(member): member for member in self._members(context, variables)}
            wanted = {links.relative(member): member for member in inputs["instances"]}
            gone, new = sorted(present.keys() - wanted.keys()), sorted(wanted.keys() - present.keys())
            self._move(context, variables, "removeInstances", [present[member] for member in gone])
            self._move(context, variables, "addInstances", [wanted[member] for member in new])
        return super().settled(context, identity, variables, inputs)

    def outputs(self, context: Context, identity: str, variables: Variables, found: Json, known: Inputs) -> Json:
        values = super().outputs(context, identity, variables, found, known)
        return {**values, "instances": self._members(context, variables)}

    def _members(self, context: Context, variables: Variables) -> list[str]:
        url = f"{self.item.format(**variables)}/listInstances"
        # The group may have gone between the two calls.
        found = context.client.find("POST", self.api, url, context.deadline, {"instanceState": "ALL"}) or {}
        return [str(item["instance"]) for item in found.get("items", ())]

    def _move(self, context: Context, variables: Variables, verb: str, instances: Sequence[str]) -> None:
        if not instances:
            return
        body = {"instances": [{"instance": instance} for instance in instances]}
        self.act(context, variables, "POST", f"/{verb}", f"{verb} of {variables['name']}", body)


INSTANCE_GROUP = InstanceGroup(
    type="gcp:compute/instanceGroup:InstanceGroup",
    api="compute",
    collection=f"{ZONE}/instanceGroups",
    item=f"{ZONE}/instanceGroups/{{name}}",
    fields={"instances": None},
    patches="",
)

ROWS = (REGION_HEALTH_CHECK, REGION_BACKEND_SERVICE, FORWARDING_RULE, INSTANCE_GROUP)
