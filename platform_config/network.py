"""The network of a platform: a new one, or an existing one that is only referenced."""

import re
from ipaddress import IPv4Network
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from platform_config.fields import Model, Name, Project, refusal, shown

_CIDR = r"[0-9]{1,3}(\.[0-9]{1,3}){3}/(0|[1-9][0-9]?)"


def _cidr(value: str) -> str:
    if not re.fullmatch(_CIDR, value):
        raise refusal(f"{shown(value)} is not an IPv4 range", "for example 10.0.0.0/20")
    try:
        return str(IPv4Network(value))
    except ValueError as error:
        if "host bits" in str(error):
            raise refusal(
                f"{value} is an address inside a range, not a range", f"write {IPv4Network(value, strict=False)}"
            ) from None
        raise refusal(f"{shown(value)} is not an IPv4 range", "for example 10.0.0.0/20") from None


Cidr = Annotated[str, AfterValidator(_cidr), Field(json_schema_extra={"pattern": f"^{_CIDR}$"})]
"""An IPv4 range such as `10.0.0.0/20`."""


class CreatedNetwork(Model):
    """A new VPC: a subnet in the platform's region, NAT for private nodes, no public address."""

    kind: Literal["create"] = "create"
    """A VPC of its own, the default."""
    nodes_cidr: Cidr = "10.0.0.0/20"
    """Addresses of nodes, one each."""
    pods_cidr: Cidr = "10.4.0.0/14"
    """Addresses of pods: each node reserves a block of them."""
    services_cidr: Cidr = "10.0.32.0/20"
    """Addresses of Kubernetes services."""
    proxy_only_cidr: Cidr | None = None
    """Addresses of the load balancers' proxies, for `cluster.gateway`: a /26 or larger, Google advises a /23."""
    mtu: Annotated[int, Field(strict=True, ge=1300, le=8896)] = 8896
    """MTU of the network in bytes; 8896 is best for TPUs."""

    @property
    def pods_range(self) -> str:
        """Name of the subnet's secondary range for pods."""
        return "pods"

    @property
    def services_range(self) -> str:
        """Name of the subnet's secondary range for services."""
        return "services"


class ExistingNetwork(Model):
    """An existing VPC and subnet: referenced, never changed. Private nodes must be able to reach image registries."""

    kind: Literal["existing"]
    """A VPC that exists."""
    network: Name
    """Name of the VPC."""
    subnetwork: Name
    """Name of the subnet, in the platform's region."""
    pods_range: Name
    """Name of the subnet's secondary range for pods."""
    services_range: Name | None = None
    """Name of the subnet's secondary range for services; only GKE needs one."""
    nodes_cidr: Cidr | None = None
    """Addresses of the subnet; only a self-managed control plane needs to know them."""
    pods_cidr: Cidr | None = None
    """Addresses of the range for pods; only a self-managed control plane needs to know them."""
    services_cidr: Cidr = "10.0.32.0/20"
    """Addresses that a self-managed cluster gives to services; no range of the subnet."""
    proxy_only_cidr: Cidr | None = None
    """Addresses of the proxy-only subnet that is there, for `cluster.gateway`; only gateways of teams need to know."""
    project: Project | None = None
    """Host project of a shared VPC; own project if unset."""


def _kind(value: Any) -> Any:
    return {"kind": "create", **value} if isinstance(value, dict) else value


Network = Annotated[CreatedNetwork | ExistingNetwork, Field(discriminator="kind"), BeforeValidator(_kind)]
"""A new network (`kind: create`, the default) or an existing one (`kind: existing`)."""


class AuthorizedNetwork(Model):
    """Addresses that may reach the control plane's IP endpoint."""

    cidr: Cidr
    """The addresses, such as 192.0.2.0/24."""
    name: Annotated[str, Field(min_length=1)]
    """Owner of the addresses, for people."""
