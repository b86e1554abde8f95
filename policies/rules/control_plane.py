"""GKE control planes: who can reach them, and with which credentials."""

from collections.abc import Iterator

from plan.multikueue import ACCOUNT as MANAGER
from policies import tokens
from policies.ranges import everybody
from policies.registry import RESOURCE, STACK, Resource, Setting, Settings, Stack, StackFinding
from policies.values import UNKNOWN, Finding, at, expect, items, refuse, text

DNS_ENDPOINT = "controlPlaneEndpointsConfig.dnsEndpointConfig"


@RESOURCE.rule(
    "control-plane-access",
    tokens.CLUSTER,
    reason="The internet can reach a control plane whose IP endpoint has no authorized networks, or ranges that"
    " add up to more than one organization has.",
    remedy="Turn the IP endpoint off (the DNS endpoint is guarded by IAM), or name the networks that may use it",
    source="CIS GKE Benchmark 5.6.3; GKE documentation, control plane access",
    cis=("5.6.3",),
)
def control_plane_access(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    if not _has_ip_endpoint(cluster):
        return
    networks = at(cluster.props, "masterAuthorizedNetworksConfig")
    if networks is None:
        yield Finding("masterAuthorizedNetworksConfig", "is not set while the IP endpoint is on")
    ranges = [text(block, "cidrBlock") for block in items(networks, "cidrBlocks")]
    if found := everybody(ranges):
        yield Finding("masterAuthorizedNetworksConfig.cidrBlocks", f"holds {found}, which is everybody")
    yield from refuse(cluster.props, "masterAuthorizedNetworksConfig.gcpPublicCidrsAccessEnabled", True)


def _has_ip_endpoint(cluster: Resource) -> bool:
    """Whether the IP endpoint is known to be on, as it is by default."""
    enabled = at(cluster.props, "controlPlaneEndpointsConfig.ipEndpointsConfig.enabled")
    return enabled is not False and enabled is not UNKNOWN


@RESOURCE.rule(
    "control-plane-private",
    tokens.CLUSTER,
    level="advisory",
    reason="Only its list of networks protects a public IP endpoint.",
    remedy="Set privateClusterConfig.enablePrivateEndpoint: true, or turn the IP endpoint off",
    source="CIS GKE Benchmark 5.6.4",
    cis=("5.6.4",),
)
def control_plane_private(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    if _has_ip_endpoint(cluster):
        yield from expect(cluster.props, "privateClusterConfig.enablePrivateEndpoint", True)


@RESOURCE.rule(
    "legacy-authentication",
    tokens.CLUSTER,
    reason="Client certificates cannot be revoked, and legacy ABAC gives static rights beside RBAC.",
    remedy="Leave enableLegacyAbac, issueClientCertificate and enableK8sCertsViaDns false",
    source="CIS GKE Benchmark 2.1.1, 5.8.1, 5.8.3; GKE hardening guide",
    cis=("2.1.1", "5.8.1", "5.8.3"),
)
def legacy_authentication(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    yield from refuse(cluster.props, "enableLegacyAbac", True)
    yield from refuse(cluster.props, "masterAuth.clientCertificateConfig.issueClientCertificate", True)
    yield from refuse(cluster.props, f"{DNS_ENDPOINT}.enableK8sCertsViaDns", True)


@RESOURCE.rule(
    "anonymous-access",
    tokens.CLUSTER,
    reason="Bindings to everybody, or to every Google account, open a cluster to people nobody named.",
    remedy="Set anonymousAuthenticationConfig.mode: LIMITED and both insecure bindings to false",
    source="google/skills, GKE cluster baseline; CIS GKE Benchmark 4.1.8 to 4.1.10",
    cis=("4.1.8", "4.1.9", "4.1.10"),
)
def anonymous_access(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    yield from expect(cluster.props, "anonymousAuthenticationConfig.mode", "LIMITED")
    for who in ("Authenticated", "Unauthenticated"):
        yield from expect(cluster.props, f"rbacBindingConfig.enableInsecureBindingSystem{who}", False)


TOKEN_ACCOUNTS = Setting(
    "accounts",
    {
        "type": "array",
        "items": {"type": "string"},
        "default": [MANAGER],
        "description": "ServiceAccounts whose tokens may come in from the internet.",
    },
)


@STACK.rule(
    "dns-endpoint-tokens",
    reason="The DNS endpoint asks IAM who somebody is, unless it takes tokens of Kubernetes: then one that leaks works"
    " from the whole internet. The rule looks in the stack for an account that is meant to come in this way.",
    remedy="Leave enableK8sTokensViaDns out; name the account in the policy's configuration where one needs it",
    source="GKE documentation, DNS-based endpoint; CIS GKE Benchmark 5.6.3",
    settings=[TOKEN_ACCOUNTS],
)
def dns_endpoint_tokens(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    accounts = [at(account.props, "metadata.name") for account in stack.of_type(tokens.SERVICE_ACCOUNT)]
    if any(account is UNKNOWN or account in settings[TOKEN_ACCOUNTS.name] for account in accounts):
        return
    for cluster in stack.of_type(tokens.CLUSTER):
        endpoint = at(cluster.props, DNS_ENDPOINT)
        if at(endpoint, "enableK8sTokensViaDns") is True and at(endpoint, "allowExternalTraffic") is True:
            yield StackFinding(cluster.urn, f"{DNS_ENDPOINT}.enableK8sTokensViaDns", "is true on the internet")
