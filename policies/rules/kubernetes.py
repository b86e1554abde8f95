"""Objects in clusters: their provider, charts and namespaces."""

import re
from collections.abc import Iterator
from pathlib import Path

from catalogue.labels import DRA_LABEL
from plan.charts import DRA_DRIVER
from policies import tokens
from policies.pods import images
from policies.registry import RESOURCE, STACK, Resource, Setting, Settings, Stack, StackFinding
from policies.tpu import may_have_tpus
from policies.values import UNKNOWN, Finding, at, is_set, mapping, require, settled, text

DEVICE_PLUGIN = re.compile(r"(^|/)tpu-device-plugin(:|@|$)")
DRA_CHART = DRA_DRIVER.release
POD_SECURITY = "pod-security.kubernetes.io"
EXACT_VERSION = re.compile(r"v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?")
# An archive, a tag or a digest of a chart also gives its version.
VERSION_IN_CHART = re.compile(r".*(-v?[0-9]+\.[0-9]+\.[0-9]+[^/]*\.tgz|/[^/]+(:v?[0-9]+\.[0-9]+\.[0-9]+.*|@sha256:.+))")
# Folders of charts in a checkout; other names with one slash may be those of a repository on this machine.
CHART_FOLDERS = ("chart", "charts", "deploy", "deployments", "helm", "k8s", "kubernetes", "manifests", "vendor")
CHECKOUT = Path(__file__).resolve().parents[2]


@RESOURCE.rule(
    "explicit-provider",
    tokens.IN_CLUSTER,
    reason="The default provider uses kubectl's current cluster on the machine that runs the update.",
    remedy="Pass the stack's own Kubernetes Provider in the resource's options",
    source="Pulumi documentation, default and explicit providers",
)
def explicit_provider(resource: Resource, settings: Settings) -> Iterator[Finding]:
    if resource.provider is None:
        yield Finding("", "uses the default Kubernetes provider")


@RESOURCE.rule(
    "provider-identity",
    tokens.KUBERNETES_PROVIDER,
    reason="Without an identity any change of its kubeconfig replaces a Provider and all its resources.",
    remedy="Set clusterIdentifier to a name that stays, and give the kubeconfig",
    source="pulumi-kubernetes provider DiffConfig",
)
def provider_identity(provider: Resource, settings: Settings) -> Iterator[Finding]:
    yield from require(provider.props, "clusterIdentifier")
    yield from require(provider.props, "kubeconfig")


@RESOURCE.rule(
    "chart-pinned",
    tokens.RELEASE,
    tokens.CHART,
    reason="A chart without a version is another one at every update, unless it is an archive of one version or lies"
    " in the checkout.",
    remedy="Set an exact version",
    source="Helm documentation; pulumi-kubernetes Release",
)
def chart_pinned(release: Resource, settings: Settings) -> Iterator[Finding]:
    chart, version = text(release.props, "chart"), at(release.props, "version")
    if version is UNKNOWN or VERSION_IN_CHART.fullmatch(chart):
        return
    if not is_set(release.props, "repositoryOpts.repo") and _in_checkout(chart):
        return  # the checkout pins a chart inside it
    if not EXACT_VERSION.fullmatch(str(version or "")):
        yield Finding("version", f"is {version!r}" if version else "is not set")


def _in_checkout(chart: str) -> bool:
    """Whether a chart is a folder, or an archive, beside the program."""
    if "://" in chart:
        return chart.startswith("file://")
    if chart.startswith((".", "/", "~")):
        return True
    folder, slash, _ = chart.partition("/")
    return bool(slash and folder in CHART_FOLDERS) or any(
        (root / chart / "Chart.yaml").is_file() for root in (Path.cwd(), CHECKOUT) if chart
    )


@RESOURCE.rule(
    "pod-security",
    tokens.NAMESPACE,
    level="advisory",
    reason="In a namespace without a level, pods may be privileged and mount the host.",
    remedy="Set the label pod-security.kubernetes.io/enforce, or warn where the level cannot be enforced yet",
    source="CIS GKE Benchmark 4.2.1",
    cis=("4.2.1",),
)
def pod_security(namespace: Resource, settings: Settings) -> Iterator[Finding]:
    labels, levels = mapping(namespace.props, "metadata.labels"), ("enforce", "warn", "audit")
    if settled(namespace.props, "metadata.labels") and not any(f"{POD_SECURITY}/{level}" in labels for level in levels):
        yield Finding("metadata.labels", "has no level of Pod Security")


PRIVILEGED = Setting(
    "namespaces",
    {
        "type": "array",
        "items": {"type": "string"},
        "default": ["kube-system", DRA_CHART],
        "description": "Namespaces that may enforce the level privileged: those of device drivers.",
    },
)


@RESOURCE.rule(
    "privileged-namespace",
    tokens.NAMESPACE,
    tokens.NAMESPACE_PATCH,
    reason="The label switches Pod Security off: every pod of the namespace may become root on its host.",
    remedy="Enforce baseline or restricted; keep what drives devices in a namespace of its own",
    source="CIS GKE Benchmark 4.2.1; Kubernetes documentation, Pod Security Admission",
    cis=("4.2.1",),
    settings=[PRIVILEGED],
)
def privileged_namespace(namespace: Resource, settings: Settings) -> Iterator[Finding]:
    name = at(namespace.props, "metadata.name")
    if name is UNKNOWN or name in settings[PRIVILEGED.name]:
        return
    level = mapping(namespace.props, "metadata.labels").get(f"{POD_SECURITY}/enforce")
    if level is not UNKNOWN and str(level).lower() == "privileged":
        yield Finding("metadata.labels", f"has {POD_SECURITY}/enforce: privileged")


@RESOURCE.rule(
    "default-namespace",
    *tokens.WORKLOADS,
    tokens.LOCAL_QUEUE,
    tokens.CLAIM_TEMPLATE,
    level="advisory",
    reason="The default namespace has no owner, no limits and no queues.",
    remedy="Set metadata.namespace",
    source="CIS GKE Benchmark 4.6.4",
    cis=("4.6.1", "4.6.4"),
)
def default_namespace(resource: Resource, settings: Settings) -> Iterator[Finding]:
    namespace = at(resource.props, "metadata.namespace")
    if namespace is None or namespace == "default":
        yield Finding("metadata.namespace", "is default" if namespace else "is not set")


@STACK.rule(
    "release-after-nodes",
    reason="A release waits for its pods, which need a node: without a dependency on the pool it may time out.",
    remedy="Let the release depend on the pool or group that carries it",
    source="pulumi-kubernetes Release: waits until all objects are ready",
)
def release_after_nodes(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    # Nodes that are not only for TPU work.
    nodes = stack.of_type(tokens.NODE_POOL, *tokens.MIGS)
    carriers = {each.urn for each in nodes if not may_have_tpus(stack, each)}
    if not carriers:
        return  # the cluster brings its own nodes
    for release in stack.of_type(tokens.RELEASE):
        if carriers.isdisjoint(stack.reachable(release)):
            yield StackFinding(release.urn, "", "depends on no nodes")


@STACK.rule(
    "one-device-driver",
    reason="The device plugin and the DRA driver on one host hand out every chip twice.",
    remedy=f"Keep the plugin off hosts with the label {DRA_LABEL}, and the driver on them, by node affinity",
    source="TPU device plugin; kubernetes-sigs/dra-driver-google-tpu: runs everywhere by default",
)
def one_device_driver(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    drivers = [release for release in stack.of_type(tokens.RELEASE) if DRA_CHART in text(release.props, "chart")]
    plugins = [each for each in stack.of_type(tokens.DAEMON_SET) if _is_device_plugin(each)]
    for driver in drivers:
        if not _looks_at(driver, "values.kubeletPlugin"):
            yield StackFinding(driver.urn, "values.kubeletPlugin.affinity", f"does not ask for {DRA_LABEL}")
    for plugin in plugins if drivers else []:
        if not _looks_at(plugin, "spec.template.spec"):
            yield StackFinding(plugin.urn, "spec.template.spec.affinity", f"does not look at {DRA_LABEL}")


def _is_device_plugin(daemon_set: Resource) -> bool:
    return any(DEVICE_PLUGIN.search(image) for _, image in images(daemon_set))


def _looks_at(resource: Resource, path: str) -> bool:
    """Whether the settings that select nodes for pods contain the label, anywhere."""
    places = (f"{path}.affinity", f"{path}.nodeSelector")
    if not all(settled(resource.props, place) for place in places):
        return True
    return any(DRA_LABEL in str(at(resource.props, place)) for place in places)
