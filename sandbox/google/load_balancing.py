"""Compute Engine's passthrough load balancers: health checks, backend services and forwarding rules."""

from __future__ import annotations

from ipaddress import ip_address

from sandbox.google.compute import COMPLETE, location
from sandbox.google.compute_types import relative
from sandbox.google.errors import invalid
from sandbox.google.networking import external_address, in_range, internal_address
from sandbox.google.service import Call, filled
from sandbox.google.store import Resource

# Health check protocols: type -> (block of the body, port Google assumes).
PROTOCOLS = {
    "GRPC": ("grpcHealthCheck", 0),
    "HTTP": ("httpHealthCheck", 80),
    "HTTP2": ("http2HealthCheck", 443),
    "HTTPS": ("httpsHealthCheck", 443),
    "SSL": ("sslHealthCheck", 443),
    "TCP": ("tcpHealthCheck", 80),
}
MAX_PORTS = 5  # of a forwarding rule that names its ports
PASSTHROUGH = ("EXTERNAL", "INTERNAL")


def _health_check(call: Call, name: str, resource: Resource) -> Resource:
    """The type and the one protocol block it goes with; no check may take longer than the time between two."""
    kind = resource.get("type", "")
    if kind not in PROTOCOLS:
        raise invalid(f"Invalid value for field 'resource.type': '{kind}'. Must be one of {', '.join(PROTOCOLS)}.")
    block, port = PROTOCOLS[kind]
    others = [other for other, _ in PROTOCOLS.values() if other != block and other in resource]
    if others:
        raise invalid(f"Invalid value for field 'resource.{others[0]}': the type of the health check is {kind}.")
    if resource["timeoutSec"] > resource["checkIntervalSec"]:
        raise invalid(
            f"Invalid value for field 'resource.timeoutSec': '{resource['timeoutSec']}'. Must be less than or equal to"
            " checkIntervalSec."
        )
    defaults = {"port": port, "proxyHeader": "NONE"} if port else {}
    return filled(resource, {block: defaults, "logConfig": {"enable": False}})


def _backend_service(call: Call, name: str, resource: Resource) -> Resource:
    """Passthrough backend services balance connections, and only over groups of their own region and network."""
    scheme = resource.get("loadBalancingScheme", "EXTERNAL")
    if scheme in PASSTHROUGH:
        for i, backend in enumerate(resource.get("backends", [])):
            _check_backend(i, backend, scheme)
        if len(resource.get("healthChecks", [])) != 1:
            raise invalid(f"A backend service with load balancing scheme {scheme} needs exactly one health check.")
    region = location(call)
    for group in (backend.get("group", "") for backend in resource.get("backends", [])):
        if "/zones/" in group and not group.partition("/zones/")[2].startswith(f"{region}-"):
            raise invalid(f"Invalid value for field 'resource.backends.group': '{group}' is not in region {region}.")
    backends = [{"failover": False, **backend} for backend in resource.get("backends", [])]
    defaults = {"loadBalancingScheme": scheme, "protocol": "TCP", "description": ""}
    return filled({**resource, **({"backends": backends} if backends else {})}, defaults)


def _check_backend(index: int, backend: Resource, scheme: str) -> None:
    mode = backend.get("balancingMode", "CONNECTION")
    if mode != "CONNECTION":
        raise invalid(
            f"Invalid value for field 'resource.backends[{index}].balancingMode': '{mode}'. Balancing mode must be"
            f" CONNECTION for an {scheme} backend service."
        )
    managed_only = [field for field in ("capacityScaler", "maxUtilization", "maxConnections") if field in backend]
    if managed_only:
        raise invalid(
            f"Invalid value for field 'resource.backends[{index}].{managed_only[0]}': not supported for load balancing"
            f" scheme {scheme}."
        )


def _forwarding_rule(call: Call, name: str, resource: Resource) -> Resource:
    """A rule takes its address from a reservation, from its subnetwork, or from Google's external ones."""
    scheme = resource.get("loadBalancingScheme", "EXTERNAL")
    service = call.store.get("compute.regionBackendServices", relative(resource.get("backendService", "")))
    if service and service["loadBalancingScheme"] != scheme:
        raise invalid(
            f"Invalid value for field 'resource.backendService': the backend service is"
            f" {service['loadBalancingScheme']}, the forwarding rule {scheme}."
        )
    if scheme == "INTERNAL" and not service:
        raise invalid("Required field 'resource.backendService' not specified", reason="required")
    if len(resource.get("ports", [])) > MAX_PORTS:
        raise invalid(f"Invalid value for field 'resource.ports': at most {MAX_PORTS} ports can be given.")
    if scheme == "INTERNAL" and not (resource.get("ports") or resource.get("allPorts")):
        raise invalid("Invalid value for field 'resource.ports': ports or allPorts must be given.")
    resource = {**resource, "loadBalancingScheme": scheme}
    if scheme == "INTERNAL":
        return _internal(call, name, resource)
    return {**resource, "IPAddress": _given_address(call, name, resource) or external_address(call.world)}


def _internal(call: Call, name: str, resource: Resource) -> Resource:
    subnetwork = call.store.get("compute.subnetworks", relative(resource.get("subnetwork", "")))
    if subnetwork is None:
        raise invalid("Invalid value for field 'resource.subnetwork': an internal rule in a custom network needs one.")
    address = _given_address(call, name, resource) or internal_address(call.world, subnetwork)
    if not in_range(subnetwork, address):
        raise invalid(
            f"Invalid value for field 'resource.IPAddress': '{address}'. IP address is not in the subnetwork's range"
            f" {subnetwork['ipCidrRange']}."
        )
    return {"allowGlobalAccess": False, **resource, "network": subnetwork["network"], "IPAddress": address}


def _given_address(call: Call, name: str, resource: Resource) -> str:
    """The address a rule asks for, by number or by a reservation's name; "" where it leaves the choice to Google."""
    given = resource.get("IPAddress", "")
    if not given:
        return ""
    reserved = call.store.get("compute.addresses", relative(given))
    address = str(reserved["address"]) if reserved else given
    try:
        ip_address(address)
    except ValueError as problem:
        raise invalid(f"Invalid value for field 'resource.IPAddress': '{given}'. {problem}.") from problem
    for other, rule in call.store.all("compute.forwardingRules").items():
        if (
            other != name
            and rule["IPAddress"] == address
            and not set(rule.get("ports", [])).isdisjoint(resource.get("ports", []))
        ):
            raise invalid(
                f"Invalid value for field 'resource.IPAddress': '{address}'. Specified IP address is in-use by"
                f" '{other}' and would result in a conflict."
            )
    return address


COMPLETE |= {
    "healthChecks": _health_check,
    "regionHealthChecks": _health_check,
    "regionBackendServices": _backend_service,
    "forwardingRules": _forwarding_rule,
}
