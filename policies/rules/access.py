"""Who gets in: firewalls, public services, roles, keys, buckets, and secrets that stand in plain text."""

import re
from collections.abc import Iterator

from policies import tokens
from policies.registry import RESOURCE, Resource, Settings
from policies.rules.cluster import open_ranges
from policies.values import Finding, at, expect, is_set, items, known, mapping, refuse, strings, text
from spec.hosts import API_PORT

ADMIN_PORTS = (22, API_PORT, 10250, 2379)
"""SSH, the API server, the kubelet, etcd."""


@RESOURCE.rule(
    "firewall-open",
    tokens.FIREWALL,
    reason="A rule for 0.0.0.0/0 opens SSH, the API server, kubelets or everything to the whole internet.",
    remedy="Name the networks or service accounts that need it; people come in through Identity-Aware Proxy",
    source="CIS GKE Benchmark 5.6.6; the tpu-operator README and the DRA kubeadm script both default to 0.0.0.0/0",
    cis=("5.6.6",),
)
def firewall_open(firewall: Resource, settings: Settings) -> Iterator[Finding]:
    if text(firewall.props, "direction") == "EGRESS" or at(firewall.props, "disabled") is True:
        return
    if not is_set(firewall.props, "allows"):
        return
    found = open_ranges([each for each in items(firewall.props, "sourceRanges") if isinstance(each, str)])
    sources = ("sourceRanges", "sourceTags", "sourceServiceAccounts")
    if not found and not any(is_set(firewall.props, source) for source in sources):
        found = ["no source, which is everybody"]
    opened = [rule for rule in items(firewall.props, "allows") if _administrative(rule)]
    if found and opened:
        yield Finding("sourceRanges", f"has {found[0]} for {', '.join(map(_allowed, opened))}")


def _administrative(rule: object) -> bool:
    """Whether a rule allows one of the administrative ports, or all ports."""
    protocol, ports = text(rule, "protocol").lower(), items(rule, "ports")
    if protocol in ("icmp", "58", "1"):
        return False
    return protocol == "all" or not ports or any(_covers(str(span), port) for span in ports for port in ADMIN_PORTS)


def _covers(span: str, port: int) -> bool:
    first, _, last = span.partition("-")
    return first.isdigit() and int(first) <= port <= int(last if last.isdigit() else first)


def _allowed(rule: object) -> str:
    ports = ", ".join(str(port) for port in items(rule, "ports"))
    return f"{text(rule, 'protocol')} {ports or 'on all ports'}"


@RESOURCE.rule(
    "service-exposed",
    tokens.SERVICE,
    level="advisory",
    reason="A Service of type LoadBalancer gets a public address, for example a model server that asks nobody's name.",
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
    if scheme in (None, "EXTERNAL") and any(_covers(span, API_PORT) for span in spans):
        yield Finding("loadBalancingScheme", f"is {scheme or 'not set, which is EXTERNAL'} for port {API_PORT}")


BROAD_ROLES = tuple(
    f"roles/{role}"
    for role in (
        "owner",
        "editor",
        "container.admin",
        "container.clusterAdmin",
        "compute.admin",
        "storage.admin",
        "secretmanager.admin",
        "iam.securityAdmin",
        "iam.serviceAccountAdmin",
        "iam.serviceAccountKeyAdmin",
        "resourcemanager.projectIamAdmin",
    )
)
PROJECT_WIDE_ROLES = (
    "roles/iam.serviceAccountUser",
    "roles/iam.serviceAccountTokenCreator",
    "roles/secretmanager.secretAccessor",
)
EVERYBODY = ("allUsers", "allAuthenticatedUsers")


@RESOURCE.rule(
    "broad-roles",
    *tokens.PROJECT_IAM,
    reason="A host, and every pod that breaks out of it, would own the project.",
    remedy="Grant what is needed: nodes need roles/container.defaultNodeServiceAccount",
    source="CIS GKE Benchmark 5.2.1; GKE hardening guide, least privilege",
    cis=("5.2.1",),
)
def broad_roles(grant: Resource, settings: Settings) -> Iterator[Finding]:
    yield from refuse(grant.props, "role", *BROAD_ROLES)


@RESOURCE.rule(
    "project-wide-grant",
    *tokens.PROJECT_IAM,
    level="advisory",
    reason="On the project these roles mean every service account and every secret in it.",
    remedy="Grant them on the one service account or secret",
    source="Google Cloud IAM documentation, roles for service accounts; Secret Manager best practices",
)
def project_wide_grant(grant: Resource, settings: Settings) -> Iterator[Finding]:
    yield from refuse(grant.props, "role", *PROJECT_WIDE_ROLES)


@RESOURCE.rule(
    "public-grant",
    *tokens.IAM_GRANTS,
    reason="allUsers is the internet, and allAuthenticatedUsers is everybody with a Google account.",
    remedy="Name the accounts or groups",
    source="Google Cloud IAM documentation, principal identifiers",
)
def public_grant(grant: Resource, settings: Settings) -> Iterator[Finding]:
    members = [("member", text(grant.props, "member")), *(("members", each) for each in items(grant.props, "members"))]
    for path, member in members:
        if member in EVERYBODY:
            yield Finding(path, f"is {member}")


@RESOURCE.rule(
    "service-account-key",
    tokens.SERVICE_ACCOUNT_KEY,
    reason="A key file works for years, from anywhere, for whoever copies it; its private half lies in the state.",
    remedy="Use Workload Identity in clusters, and workload identity federation in CI",
    source="Google Cloud IAM documentation, best practices for service account keys",
)
def service_account_key(key: Resource, settings: Settings) -> Iterator[Finding]:
    yield Finding("", "is a service account key")


@RESOURCE.rule(
    "bucket-private",
    tokens.BUCKET,
    reason="Snapshots of a cluster hold its secrets; access by object can open one file unnoticed.",
    remedy="Set uniformBucketLevelAccess: true and publicAccessPrevention: enforced",
    source="CIS Google Cloud Foundation Benchmark 5.1, 5.2",
)
def bucket_private(bucket: Resource, settings: Settings) -> Iterator[Finding]:
    yield from expect(bucket.props, "uniformBucketLevelAccess", True)
    yield from expect(bucket.props, "publicAccessPrevention", "enforced")


SECRETS = {
    "a Kubernetes bootstrap token": re.compile(r"(?<![a-z0-9.])[a-z0-9]{6}\.[a-z0-9]{16}(?![a-z0-9.])"),
    "a private key": re.compile(r"-----BEGIN ([A-Z]+ )?PRIVATE KEY-----"),
    "a service account key": re.compile(r'"private_key_id"\s*:'),
    "a Google API key": re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b"),
    "a Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{30,}\b"),
    "a GitHub token": re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36}\b"),
    "a JSON web token": re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
}
READABLE = {
    tokens.TEMPLATE: ("metadata", "metadataStartupScript"),
    tokens.REGION_TEMPLATE: ("metadata", "metadataStartupScript"),
    tokens.INSTANCE: ("metadata", "metadataStartupScript"),
    tokens.MIG: ("allInstancesConfig",),
    tokens.NODE_POOL: ("nodeConfig.metadata", "nodeConfig.labels"),
    tokens.CONFIG_MAP: ("data",),
    tokens.RELEASE: ("values",),
    tokens.KUBERNETES_PROVIDER: ("kubeconfig",),
}


@RESOURCE.rule(
    "secret-in-plain-text",
    *READABLE,
    reason="Instance metadata, ConfigMaps and chart values can be read by everybody who may look at the resource.",
    remedy="Keep it in Secret Manager or a Kubernetes Secret, and give its name instead",
    source="tpu-operator puts join tokens into metadata; Compute Engine documentation, instance metadata",
    cis=("4.4.2",),
)
def secret_in_plain_text(resource: Resource, settings: Settings) -> Iterator[Finding]:
    for root in READABLE[resource.type]:
        for path, value in strings(at(resource.props, root), root):
            for what, pattern in SECRETS.items():
                if pattern.search(value):
                    yield Finding(path, f"holds {what}")


@RESOURCE.rule(
    "secret-in-state",
    tokens.SECRET_VERSION,
    level="advisory",
    reason="A version made here puts its payload into the stack's state, encrypted or not.",
    remedy="Make only the Secret, and let its writer add versions; or use secretDataWo",
    source="provider: secret_data is kept in state, secret_data_wo is not read back",
)
def secret_in_state(version: Resource, settings: Settings) -> Iterator[Finding]:
    if known(at(version.props, "secretData")):
        yield Finding("secretData", "is set")
