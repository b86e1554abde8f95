"""What is put into clusters: through which provider, from which charts and images, with which rights."""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from policies import tokens
from policies.registry import RESOURCE, STACK, Resource, Settings, Stack, StackFinding
from policies.tpu import may_have_tpus
from policies.values import UNKNOWN, Finding, at, is_set, items, known, mapping, require, settled, strings, text
from spec.queueing import TOPOLOGY_LABEL
from spec.slices import DRA_LABEL

DEVICE_PLUGIN = re.compile(r"(^|/)tpu-device-plugin(:|@|$)")
DRA_CHART = "dra-driver-google-tpu"
POD_SECURITY = "pod-security.kubernetes.io"
OLD_REGISTRIES = ("k8s.gcr.io/",)
EXACT_VERSION = re.compile(r"v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?")


@RESOURCE.rule(
    "explicit-provider",
    tokens.IN_CLUSTER,
    reason="The default provider is whatever cluster kubectl points at on the machine that runs the update.",
    remedy="Pass the stack's own Kubernetes Provider in the resource's options",
    source="Pulumi documentation, default and explicit providers",
)
def explicit_provider(resource: Resource, settings: Settings) -> Iterator[Finding]:
    if resource.provider is None:
        yield Finding("", "uses the default Kubernetes provider")


@RESOURCE.rule(
    "provider-identity",
    tokens.KUBERNETES_PROVIDER,
    reason="Without an identity a Provider is replaced, and all that it made, when its kubeconfig changes a word.",
    remedy="Set clusterIdentifier to a name that stays, and give the kubeconfig",
    source="pulumi-kubernetes provider DiffConfig",
)
def provider_identity(provider: Resource, settings: Settings) -> Iterator[Finding]:
    yield from require(provider.props, "clusterIdentifier")
    yield from require(provider.props, "kubeconfig")


@RESOURCE.rule(
    "provider-credential",
    tokens.KUBERNETES_PROVIDER,
    reason="A token or key in a kubeconfig lies in the stack's state, and works for whoever reads it.",
    remedy="Let the kubeconfig run a command (exec) that asks for a short-lived credential",
    source="Kubernetes documentation, client-go credential plugins",
)
def provider_credential(provider: Resource, settings: Settings) -> Iterator[Finding]:
    for index, user in enumerate(items(_kubeconfig(provider), "users")):
        for key in ("token", "client-key-data", "password"):
            if is_set(user, f"user.{key}"):
                yield Finding(f"kubeconfig.users.{index}.{key}", "is set")


def _kubeconfig(provider: Resource) -> Any:
    """The parsed kubeconfig; empty where it is not known, or only names a file."""
    try:
        return yaml.safe_load(text(provider.props, "kubeconfig"))
    except yaml.YAMLError:
        return {}


@RESOURCE.rule(
    "chart-pinned",
    tokens.RELEASE,
    tokens.CHART,
    reason="A chart without a version is another one at every update.",
    remedy="Set an exact version",
    source="Helm documentation; pulumi-kubernetes Release",
)
def chart_pinned(release: Resource, settings: Settings) -> Iterator[Finding]:
    chart, version = text(release.props, "chart"), at(release.props, "version")
    if version is UNKNOWN or chart.startswith(("./", "../", "/")):
        return  # a chart in the checkout is as old as the checkout
    if not EXACT_VERSION.fullmatch(str(version or "")):
        yield Finding("version", f"is {version!r}" if version else "is not set")


@RESOURCE.rule(
    "image-pinned",
    *tokens.WORKLOADS,
    reason="An image without a tag, or with latest, is another one on every host that pulls it.",
    remedy="Name a version or, better, a digest",
    source="Kubernetes documentation, images; seen in the TPU DRA recipe and GKE's DRA tutorial",
)
def image_pinned(workload: Resource, settings: Settings) -> Iterator[Finding]:
    for path, image in _images(workload):
        if "@sha256:" in image:
            continue
        tag = image.rpartition("/")[2].partition(":")[2]
        if tag in ("", "latest"):
            yield Finding(path, f"is {image}")


@RESOURCE.rule(
    "image-registry",
    *tokens.WORKLOADS,
    level="advisory",
    reason="These registries are frozen or closed.",
    remedy="Use registry.k8s.io",
    source="Kubernetes documentation: k8s.gcr.io is frozen since April 2023",
)
def image_registry(workload: Resource, settings: Settings) -> Iterator[Finding]:
    for path, image in _images(workload):
        if image.startswith(OLD_REGISTRIES):
            yield Finding(path, f"is {image}")


def _images(workload: Resource) -> Iterator[tuple[str, str]]:
    """Images of all containers, wherever the kind keeps its pod template."""
    for path, value in strings(at(workload.props, "spec"), "spec"):
        if re.search(r"ontainers\.[0-9]+\.image$", path):
            yield path, value


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


@RESOURCE.rule(
    "default-namespace",
    *tokens.WORKLOADS,
    tokens.LOCAL_QUEUE,
    tokens.CLAIM_TEMPLATE,
    level="advisory",
    reason="What belongs to nobody in particular ends up in the default namespace, without limits or queues.",
    remedy="Set metadata.namespace",
    source="CIS GKE Benchmark 4.6.4",
    cis=("4.6.1", "4.6.4"),
)
def default_namespace(resource: Resource, settings: Settings) -> Iterator[Finding]:
    namespace = at(resource.props, "metadata.namespace")
    if namespace is None or namespace == "default":
        yield Finding("metadata.namespace", "is default" if namespace else "is not set")


UNNAMED_SUBJECTS = ("system:anonymous", "system:unauthenticated", "system:authenticated")


@RESOURCE.rule(
    "unnamed-subjects",
    tokens.ROLE_BINDING,
    tokens.CLUSTER_ROLE_BINDING,
    reason="These groups are everybody: in GKE system:authenticated is anybody with a Google account.",
    remedy="Bind the role to accounts or groups that you name",
    source="CIS GKE Benchmark 4.1.8 to 4.1.10; GKE documentation, RBAC best practices",
    cis=("4.1.8", "4.1.9", "4.1.10"),
)
def unnamed_subjects(binding: Resource, settings: Settings) -> Iterator[Finding]:
    for index, subject in enumerate(items(binding.props, "subjects")):
        if text(subject, "name") in UNNAMED_SUBJECTS:
            yield Finding(f"subjects.{index}", f"is {text(subject, 'name')}")


@RESOURCE.rule(
    "cluster-admin",
    tokens.ROLE_BINDING,
    tokens.CLUSTER_ROLE_BINDING,
    level="advisory",
    reason="cluster-admin, and the group system:masters, may do everything, unseen by admission.",
    remedy="Bind a role that lists what is needed",
    source="CIS GKE Benchmark 4.1.1, 4.1.6",
    cis=("4.1.1", "4.1.6"),
)
def cluster_admin(binding: Resource, settings: Settings) -> Iterator[Finding]:
    if text(binding.props, "roleRef.name") == "cluster-admin":
        yield Finding("roleRef", "is cluster-admin")
    for index, subject in enumerate(items(binding.props, "subjects")):
        if text(subject, "name") == "system:masters":
            yield Finding(f"subjects.{index}", "is system:masters")


ESCALATING = ("bind", "escalate", "impersonate")


@RESOURCE.rule(
    "wide-role",
    tokens.ROLE,
    tokens.CLUSTER_ROLE,
    level="advisory",
    reason="A wildcard, or the verbs that hand on rights, make a small role as large as its owner likes.",
    remedy="List API groups, resources and verbs",
    source="CIS GKE Benchmark 4.1.3, 4.1.7",
    cis=("4.1.3", "4.1.7"),
)
def wide_role(role: Resource, settings: Settings) -> Iterator[Finding]:
    for index, rule in enumerate(items(role.props, "rules")):
        for key in ("apiGroups", "resources", "verbs"):
            if "*" in items(rule, key):
                yield Finding(f"rules.{index}.{key}", "has a wildcard")
        for verb in ESCALATING:
            if verb in items(rule, "verbs"):
                yield Finding(f"rules.{index}.verbs", f"has {verb}")


@STACK.rule(
    "release-after-nodes",
    reason="A chart waits for its pods, and they for a node: started beside its pool, it runs into its time limit.",
    remedy="Let the release depend on the pool or group that carries it",
    source="pulumi-kubernetes Release: waits until all objects are ready",
)
def release_after_nodes(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    # Nodes that are there for more than TPU work.
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
    return any(DEVICE_PLUGIN.search(image) for _, image in _images(daemon_set))


def _looks_at(resource: Resource, path: str) -> bool:
    """Whether what decides on which nodes pods run names the label; where in it, is the author's to know."""
    places = (f"{path}.affinity", f"{path}.nodeSelector")
    if not all(settled(resource.props, place) for place in places):
        return True
    return any(DRA_LABEL in str(at(resource.props, place)) for place in places)


@STACK.rule(
    "queue-flavors",
    reason="A queue whose flavor does not exist stays inactive, and takes no work.",
    remedy="Name a ResourceFlavor of the stack, or make the one that is missing",
    source="Kueue documentation, ClusterQueue: FlavorNotFound",
)
def queue_flavors(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    named = [at(flavor.props, "metadata.name") for flavor in stack.matching(tokens.RESOURCE_FLAVOR)]
    if UNKNOWN in named:
        return
    for queue in stack.matching(tokens.CLUSTER_QUEUE):
        for flavor in flavors_of(queue):
            if settled(flavor, "name") and text(flavor, "name") not in named:
                yield StackFinding(queue.urn, "spec.resourceGroups", f"names the flavor {text(flavor, 'name')}")


def flavors_of(queue: Resource) -> Iterator[Any]:
    """The flavors of a ClusterQueue, each with its quotas."""
    for group in items(queue.props, "spec.resourceGroups"):
        yield from items(group, "flavors")


@RESOURCE.rule(
    "queue-namespaces",
    tokens.CLUSTER_QUEUE,
    reason="An empty selector lets every namespace use the queue, one that is left out none.",
    remedy="Set namespaceSelector to the namespaces that the queue is for",
    source="Kueue documentation, ClusterQueue.namespaceSelector",
)
def queue_namespaces(queue: Resource, settings: Settings) -> Iterator[Finding]:
    selector = at(queue.props, "spec.namespaceSelector")
    if selector is None or (known(selector) and not selector):
        yield Finding("spec.namespaceSelector", "is not set" if selector is None else "is empty, which is everybody")


@RESOURCE.rule(
    "flavor-selects",
    tokens.RESOURCE_FLAVOR,
    reason="A flavor without node labels promises chips of any host, of whatever generation and topology.",
    remedy=f"Set nodeLabels, at least {TOPOLOGY_LABEL}",
    source="Kueue documentation, ResourceFlavor.nodeLabels",
)
def flavor_selects(flavor: Resource, settings: Settings) -> Iterator[Finding]:
    labels = at(flavor.props, "spec.nodeLabels")
    if labels is not UNKNOWN and not mapping(flavor.props, "spec.nodeLabels"):
        yield Finding("spec.nodeLabels", "is not set")
