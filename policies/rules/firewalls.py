"""Access by address: firewalls of networks, folders and organizations, and services with a public address."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from plan.hosts import API_PORT
from policies import tokens
from policies.ranges import covers, everybody, opened
from policies.registry import RESOURCE, Resource, Settings
from policies.values import UNKNOWN, Finding, at, is_set, items, mapping, text

SOURCES = ("sourceRanges", "sourceTags", "sourceServiceAccounts")
# Sources of rules in policies; the last two are lists that others maintain, of countries and of whole clouds.
POLICY_SOURCES = ("srcIpRanges", "srcSecureTags", "srcAddressGroups", "srcFqdns", "srcNetworks")
PUBLIC_SOURCES = ("srcRegionCodes", "srcThreatIntelligences")
SCOPES = ("srcNetworkScope", "srcNetworkContext")
LETTING_IN = ("allow", "apply_security_profile_group")


class Opening(NamedTuple):
    """What a firewall rule opens to everybody: the path of its sources, the open sources, and the ports."""

    path: str
    found: str
    ports: list[str]


@RESOURCE.rule(
    "firewall-open",
    tokens.FIREWALL,
    *tokens.FIREWALL_POLICY_RULES,
    *tokens.FIREWALL_POLICIES,
    reason="A rule for 0.0.0.0/0 opens SSH, the API server, kubelets, etcd, node ports or TPU runtimes to the internet;"
    " the ranges of a rule are added up, since four of /2 are 0.0.0.0/0.",
    remedy="Name the networks or service accounts that need it; people come in through Identity-Aware Proxy",
    source="CIS GKE Benchmark 5.6.6; the tpu-operator README and the DRA kubeadm script both default to 0.0.0.0/0",
    cis=("5.6.6",),
)
def firewall_open(firewall: Resource, settings: Settings) -> Iterator[Finding]:
    for opening in _openings(firewall):
        if opening.ports:
            yield Finding(opening.path, f"has {opening.found} for {', '.join(opening.ports)}")


def _openings(firewall: Resource) -> Iterator[Opening]:
    """What a firewall rule, or each rule of a policy, opens to everybody."""
    props = firewall.props
    if firewall.type == tokens.FIREWALL:
        if text(props, "direction") != "EGRESS" and at(props, "disabled") is not True:
            found = everybody(items(props, "sourceRanges"))
            if not found and not any(is_set(props, source) for source in SOURCES):
                found = "no source, which is everybody"
            if found:
                yield Opening("sourceRanges", found, _ports(items(props, "allows"), "protocol"))
    elif firewall.type in tokens.FIREWALL_POLICY_RULES:
        yield from _policy_rule(props, "match")
    else:
        for index, rule in enumerate(items(props, "rules")):
            yield from _policy_rule(rule, f"rules.{index}.match")


def _policy_rule(rule: Any, path: str) -> Iterator[Opening]:
    if text(rule, "action").lower() not in LETTING_IN or text(rule, "direction") == "EGRESS":
        return
    match = at(rule, "match")
    if at(rule, "disabled") is True or match is UNKNOWN:
        return
    if source := _open_source(match):
        yield Opening(f"{path}.{source[0]}", source[1], _ports(items(match, "layer4Configs"), "ipProtocol"))


def _open_source(match: Any) -> tuple[str, str] | None:
    """The property, and a text, of the sources of a policy's rule that include everybody."""
    scopes = [at(match, scope) for scope in SCOPES]
    if any(scope not in (None, "", "UNSPECIFIED", "INTERNET") for scope in scopes):
        return None  # from the same VPC or other internal networks, or not known yet
    if found := everybody(items(match, "srcIpRanges")):
        return "srcIpRanges", found
    for public in PUBLIC_SOURCES:
        if items(match, public):
            return public, ", ".join(map(str, items(match, public)))
    if any(is_set(match, source) for source in (*POLICY_SOURCES, *PUBLIC_SOURCES)):
        return None
    return "srcIpRanges", "no source, which is everybody"


def _ports(allowed: list[Any], protocol_key: str) -> list[str]:
    return [words for each in allowed if (words := opened(each, protocol_key))]


@RESOURCE.rule(
    "service-exposed",
    tokens.SERVICE,
    level="advisory",
    reason="A Service of type LoadBalancer gets a public address, for example a model server without authentication.",
    remedy="Set the annotation networking.gke.io/load-balancer-type: Internal, or use a Gateway with authentication",
    source="CIS GKE Benchmark 5.6.7; GKE's DRA tutorial exposes a public model endpoint",
    cis=("5.6.7",),
)
def service_exposed(service: Resource, settings: Settings) -> Iterator[Finding]:
    if text(service.props, "spec.type") != "LoadBalancer":
        return
    annotations = mapping(service.props, "metadata.annotations")
    keys = ("networking.gke.io/load-balancer-type", "cloud.google.com/load-balancer-type")
    if not any(annotations.get(key) == "Internal" for key in keys):
        yield Finding("spec.type", "is LoadBalancer, with a public address")


@RESOURCE.rule(
    "api-exposed",
    tokens.FORWARDING_RULE,
    level="advisory",
    reason="A load balancer with a public address leaves only the firewall between the internet and the API server.",
    remedy="Set loadBalancingScheme: INTERNAL, and come in through a VPN or Identity-Aware Proxy",
    source="CIS GKE Benchmark 5.6.4, for control planes of one's own",
    cis=("5.6.4",),
)
def api_exposed(rule: Resource, settings: Settings) -> Iterator[Finding]:
    scheme = at(rule.props, "loadBalancingScheme")
    spans = [*map(str, items(rule.props, "ports")), text(rule.props, "portRange")]
    if scheme in (None, "EXTERNAL") and any(covers(span, API_PORT, API_PORT) for span in spans):
        yield Finding("loadBalancingScheme", f"is {scheme or 'not set, which is EXTERNAL'} for port {API_PORT}")
