"""The preview gate: finds losses in a preview that are costly or hard to get back, and whether somebody agreed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from plan.recreation import makes_hosts_anew
from tools.gate_consent import AllowError, consented
from tools.gate_preview import UNKNOWN, Effect, Preview, Step
from tools.gate_words import TEMPLATE, in_words, value


@dataclass(frozen=True)
class Guarded:
    """A kind of resource that may be deleted only with consent. `types`: Pulumi types, or prefixes that end in / or :.
    `loss`: what is lost with it."""

    name: str
    types: tuple[str, ...]
    loss: str

    def covers(self, type_: str) -> bool:
        return any(type_.startswith(each) if each[-1] in "/:" else type_ == each for each in self.types)


GUARDED = (
    Guarded("cluster", ("gcp:container/cluster:Cluster",), "everything that runs in it"),
    Guarded("control plane", ("gcp:compute/instance:Instance",), "the API server, until its replacement is up"),
    Guarded(
        "slice",
        (
            "gcp:container/nodePool:NodePool",
            "gcp:compute/instanceGroupManager:InstanceGroupManager",
            "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager",
        ),
        "its capacity, which may not be free again, and the jobs on it",
    ),
    Guarded("workload policy", ("gcp:compute/resourcePolicy:ResourcePolicy",), "the slices that it places"),
    Guarded("queue", ("kubernetes:kueue.x-k8s.io/",), "the work that waits for it"),
    Guarded("controller", ("kubernetes:helm.sh/",), "its CRDs, and with them every object of its kinds"),
    Guarded(
        "daemon",
        ("kubernetes:apps/v1:DaemonSet", "kubernetes:apps/v1:Deployment", "kubernetes:apps/v1:StatefulSet"),
        "what it does for nodes and pods, as handing out devices",
    ),
    Guarded(
        "device class", ("kubernetes:resource.k8s.io/", "kubernetes:cloud.google.com/"), "the pods that ask for it"
    ),
    Guarded("namespace", ("kubernetes:core/v1:Namespace",), "everything in it"),
    Guarded(
        "admission policy",
        ("kubernetes:admissionregistration.k8s.io/",),
        "what it refuses: pods with more rights than teams may have, TPUs past the queues",
    ),
    Guarded("configuration", ("kubernetes:core/v1:ConfigMap",), "what reads it cannot start again"),
    Guarded("provider", ("pulumi:providers:",), "the connection by which its resources are managed"),
    Guarded("data disk", ("gcp:compute/disk:Disk", "gcp:compute/regionDisk:RegionDisk"), "the data on it"),
    Guarded("bucket", ("gcp:storage/bucket:Bucket",), "the objects in it"),
    Guarded("registry", ("gcp:artifactregistry/repository:Repository",), "the images in it"),
    Guarded(
        "volume",
        ("kubernetes:core/v1:PersistentVolume", "kubernetes:core/v1:PersistentVolumeClaim"),
        "the way of pods to its data",
    ),
    Guarded("limit", ("kubernetes:core/v1:ResourceQuota",), "what keeps a team from load balancers"),
    Guarded("network policy", ("kubernetes:networking.k8s.io/",), "what keeps other namespaces away"),
    Guarded(
        "secret's source",
        ("kubernetes:secrets-store.csi.x-k8s.io/", "kubernetes:secret-sync.gke.io/"),
        "the secrets of a team's pods",
    ),
    Guarded(
        "secret",
        (
            "gcp:secretmanager/secret:Secret",
            "gcp:secretmanager/secretVersion:SecretVersion",
            "gcp:secretmanager/regionalSecret:RegionalSecret",
            "gcp:secretmanager/regionalSecretVersion:RegionalSecretVersion",
            "kubernetes:core/v1:Secret",
        ),
        "its content",
    ),
    Guarded(
        "alert",
        (
            "gcp:billing/budget:Budget",
            "gcp:monitoring/alertPolicy:AlertPolicy",
            "gcp:monitoring/notificationChannel:NotificationChannel",
        ),
        "the word to somebody that something is wrong",
    ),
    Guarded("key", ("gcp:kms/keyRing:KeyRing", "gcp:kms/cryptoKey:CryptoKey"), "what is encrypted with it"),
    Guarded(
        "network",
        (
            "gcp:compute/network:Network",
            "gcp:compute/subnetwork:Subnetwork",
            "gcp:compute/address:Address",
            "gcp:compute/globalAddress:GlobalAddress",
            "gcp:compute/forwardingRule:ForwardingRule",
            "gcp:compute/globalForwardingRule:GlobalForwardingRule",
            "gcp:compute/backendService:BackendService",
            "gcp:compute/regionBackendService:RegionBackendService",
            "gcp:compute/healthCheck:HealthCheck",
            "gcp:compute/regionHealthCheck:RegionHealthCheck",
            "gcp:compute/router:Router",
            "gcp:compute/routerNat:RouterNat",
            "gcp:compute/route:Route",
            "gcp:compute/firewall:Firewall",
            "gcp:compute/networkFirewallPolicy:NetworkFirewallPolicy",
            "gcp:compute/networkFirewallPolicyRule:NetworkFirewallPolicyRule",
        ),
        "every connection over it",
    ),
    Guarded(
        "identity",
        (
            "gcp:serviceaccount/account:Account",
            "gcp:iam/workloadIdentityPool:WorkloadIdentityPool",
            "gcp:iam/workloadIdentityPoolProvider:WorkloadIdentityPoolProvider",
            "kubernetes:core/v1:ServiceAccount",
        ),
        "what runs as it",
    ),
    Guarded(
        "right",
        (
            "gcp:projects/iAMMember:IAMMember",
            "gcp:projects/iAMBinding:IAMBinding",
            "gcp:projects/iAMPolicy:IAMPolicy",
            "gcp:projects/iAMCustomRole:IAMCustomRole",
            "gcp:serviceaccount/iAMMember:IAMMember",
            "gcp:serviceaccount/iAMBinding:IAMBinding",
            "gcp:serviceaccount/iAMPolicy:IAMPolicy",
            "gcp:secretmanager/secretIamMember:SecretIamMember",
            "gcp:secretmanager/secretIamBinding:SecretIamBinding",
            "gcp:secretmanager/secretIamPolicy:SecretIamPolicy",
            "gcp:storage/bucketIAMMember:BucketIAMMember",
            "gcp:storage/bucketIAMBinding:BucketIAMBinding",
            "gcp:storage/bucketIAMPolicy:BucketIAMPolicy",
            "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember",
            "gcp:artifactregistry/repositoryIamBinding:RepositoryIamBinding",
            "gcp:artifactregistry/repositoryIamPolicy:RepositoryIamPolicy",
            "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember",
            "gcp:kms/cryptoKeyIAMBinding:CryptoKeyIAMBinding",
            "gcp:kms/cryptoKeyIAMPolicy:CryptoKeyIAMPolicy",
            "kubernetes:rbac.authorization.k8s.io/",
        ),
        "what its members may do",
    ),
)

# Kinds whose property values a comment may show: names, places and shapes, nothing confidential.
SPOKEN = ("cluster", "slice", "workload policy", "network")

# How many hosts a pool or group has at most, and at least, by the first of these that it states.
FIXED_HOSTS = ("nodeCount", "targetSize")
MOST_HOSTS = (*FIXED_HOSTS, "autoscaling.maxNodeCount", "autoscaling.totalMaxNodeCount")
FEWEST_HOSTS = ("autoscaling.minNodeCount", "autoscaling.totalMinNodeCount")
MADE_OF_TEMPLATES = (
    "gcp:compute/instanceGroupManager:InstanceGroupManager",
    "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager",
)
PROTECTION = "deletionProtection"
BUCKET, EMPTIES = "gcp:storage/bucket:Bucket", "forceDestroy"
EMPTIED = "updated: objects go that would have stayed"


@dataclass(frozen=True)
class Finding:
    """A guarded resource that the preview deletes or replaces, or whose hosts an update recreates or removes.

    `outcome`: what happens to it, in words; `loss`: what is lost with it. `causes` are properties, with what changes,
    or other resources that it follows; empty where the engine names none, as for `--replace`, a taint or a trigger.
    """

    urn: str
    name: str
    guarded: Guarded
    effect: Effect
    outcome: str
    causes: tuple[str, ...]
    loss: str


@dataclass(frozen=True)
class Verdict:
    """The gate's verdict. `allowed`: URNs of findings that somebody agreed to; `patterns`: by pattern the URNs that it
    agreed to; `unused`: each consent without effect, with the reason."""

    preview: Preview
    findings: tuple[Finding, ...]
    allowed: frozenset[str]
    patterns: Mapping[str, tuple[str, ...]]
    unused: tuple[str, ...] = ()

    @property
    def stopped(self) -> tuple[Finding, ...]:
        """Findings that nobody agreed to."""
        return tuple(finding for finding in self.findings if finding.urn not in self.allowed)

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """Why the preview cannot be relied on, whatever its steps say."""
        found = [_without_severity(each.message) for each in self.preview.diagnostics if each.severity == "error"]
        if self.preview.change_summary is None:
            found.append("the preview was cut short: it has no summary of its changes")
        elif unlisted := self.preview.unlisted:
            found.append(f"the preview is not whole: its summary counts {unlisted}, and no step is of that kind")
        if not self.preview.steps:
            found.append("the preview lists nothing, not even its stack")
        if self.preview.maybe_corrupt:
            found.append("the engine says that the stack's state may be corrupt")
        return tuple(dict.fromkeys(found))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the gate lets pass, but a reviewer should see."""
        warnings = [_without_severity(each.message) for each in self.preview.diagnostics if each.severity == "warning"]
        unprotected = [note for step in self.preview.steps for note in _unprotected(step)]
        return tuple(dict.fromkeys([*unprotected, *self.unused, *warnings]))

    def handle(self, finding: Finding) -> str:
        """What to write after --allow: the logical name, or the URN where several findings have that name."""
        return finding.name if [each.name for each in self.findings].count(finding.name) == 1 else finding.urn

    @property
    def passes(self) -> bool:
        return not self.stopped and not self.problems


def judge(preview: Preview, allow: Sequence[str] = (), consents: Sequence[str] = ()) -> Verdict:
    """Find the losses of the preview. Each of `allow` and of `consents` is the logical name or URN of one finding, or a
    pattern (tools/gate_consent.py).

    One in `allow` that does not say exactly what it is for raises AllowError. A consent is older than the preview, and
    an interrupted update may have deleted its resource: then it is only noted.
    """
    order = {guarded: place for place, guarded in enumerate(GUARDED)}
    findings = tuple(sorted(_findings(preview), key=lambda each: (order[each.guarded], each.urn)))
    meant = {name: consented(findings, name, "--allow", older=False) for name in allow}
    unused = []
    for name in consents:
        try:
            meant[name] = consented(findings, name, "consent to", older=True)
        except AllowError as error:
            unused.append(str(error))
    names = {finding.name for finding in findings}
    patterns = {name: urns for name, urns in meant.items() if "*" in name and name not in names}
    return Verdict(
        preview, findings, frozenset(urn for urns in meant.values() for urn in urns), patterns, tuple(unused)
    )


def _findings(preview: Preview) -> Iterator[Finding]:
    lost: dict[str, list[Step]] = {}
    for step in preview.steps:
        if step.effect in (Effect.DELETE, Effect.REPLACE):
            lost.setdefault(step.urn, []).append(step)
    for urn, steps in lost.items():
        if guarded := _guard(steps[0]):
            replaced = any(step.effect is Effect.REPLACE for step in steps)
            causes = tuple(_causes(steps, guarded, lost)) if replaced else ()
            effect, outcome = (Effect.REPLACE, "replaced") if replaced else (Effect.DELETE, "deleted")
            yield Finding(urn, steps[0].name, guarded, effect, outcome, causes, _loss(steps, guarded, replaced))
    for step in preview.steps:
        guarded = _guard(step)
        if guarded and step.effect is Effect.UPDATE and step.urn not in lost:
            if anew := tuple(_in_words(step, _remaking(step), values=True)):
                yield _of_update(step, guarded, "updated: its hosts are made anew", anew)
            elif fewer := tuple(_fewer_hosts(step)):
                yield _of_update(step, guarded, "updated: it loses hosts", fewer)
            elif emptied := tuple(_lost_objects(step)):
                yield _of_update(step, guarded, EMPTIED, emptied)


def _of_update(step: Step, guarded: Guarded, outcome: str, causes: tuple[str, ...]) -> Finding:
    return Finding(step.urn, step.name, guarded, step.effect, outcome, causes, guarded.loss)


def _loss(steps: Sequence[Step], guarded: Guarded, replaced: bool) -> str:
    """What is lost. Of a bucket the old state decides, not what the stack file says now: the engine and the provider
    ask it whether the bucket stays, and whether its objects are deleted."""
    state = next((step.old_state for step in steps if step.old_state), None)
    if guarded.name != "bucket" or state is None:
        return guarded.loss
    name = state.inputs.get("name", "NAME")
    if state.retain_on_delete and replaced:
        first = f"write `bucket: {name}` and `mode: write` first"
        return f"the rights on it. The new one cannot be made, because the old one keeps the name: {first}"
    if state.retain_on_delete:
        return "nothing that is in it: it leaves the stack, the objects stay"
    if state.inputs.get(EMPTIES) is True:
        rescue = "To keep them: set keep: true and run `pulumi up` first"
        return f"the bucket and all objects in it are deleted. {rescue}"
    return "the bucket; while it holds objects, Google refuses to delete it"


def _guard(step: Step) -> Guarded | None:
    return next((each for each in GUARDED if each.covers(step.type)), None)


def _remaking(step: Step) -> Iterator[str]:
    """Changed properties for which the provider's update recreates all hosts."""
    for path in step.detailed_diff or ():
        if makes_hosts_anew(step.type, path):
            yield path


def _fewer_hosts(step: Step) -> Iterator[str]:
    """Limits on the number of hosts that an update lowers."""
    if not step.old_state or not step.new_state:
        return
    before, after = step.old_state.inputs, step.new_state.inputs
    pairs = [
        (_first_number(before, MOST_HOSTS), _first_number(after, MOST_HOSTS)),
        (_fewest_hosts(before), _fewest_hosts(after)),
    ]
    yield from dict.fromkeys(
        f"{new[0]}: {old[1]:g} -> {new[1]:g}" for old, new in pairs if old and new and new[1] < old[1]
    )


def _fewest_hosts(inputs: dict[str, Any]) -> tuple[str, float] | None:
    """How many hosts stay in any case: of a fixed number all; below that an autoscaler may go down to its minimum."""
    if isinstance(inputs.get("autoscaling"), dict):
        return _first_number(inputs, FEWEST_HOSTS) or (FEWEST_HOSTS[0], 0)
    return _first_number(inputs, FIXED_HOSTS)


def _lost_objects(step: Step) -> Iterator[str]:
    """Settings of a bucket by which objects go that would have stayed: with the bucket, or at an earlier age."""
    if step.type != BUCKET or not step.old_state or not step.new_state:
        return
    before, after = step.old_state.inputs, step.new_state.inputs
    if after.get(EMPTIES) is True and before.get(EMPTIES) is not True:
        yield f"{EMPTIES}: False -> True"
    old, new = _deleted_at(before), _deleted_at(after)
    if new is not None and (old is None or new < old):
        yield f"objects are deleted at an age of {new:g} days"


def _deleted_at(bucket: dict[str, Any]) -> float | None:
    """The age in days at which a bucket's objects are deleted."""
    rules = [rule for rule in bucket.get("lifecycleRules") or () if value(rule, "action.type") == "Delete"]
    ages = [age for rule in rules if isinstance(age := value(rule, "condition.age"), int | float)]
    return min(ages, default=None)


def _first_number(inputs: dict[str, Any], keys: Sequence[str]) -> tuple[str, float] | None:
    """The first of the properties that states a number, and that number."""
    for key in keys:
        found = value(inputs, key)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return key, found
    return None


def _causes(steps: Sequence[Step], guarded: Guarded, lost: dict[str, list[Step]]) -> Iterator[str]:
    """Properties that force the replacement; without any, the lost resources that this one depends on."""
    step = next((step for step in steps if step.detailed_diff or step.replace_reasons), steps[0])
    forcing = [path for path, diff in (step.detailed_diff or {}).items() if diff.kind.endswith("-replace")]
    forcing = forcing or list(step.replace_reasons or ())
    yield from _in_words(step, forcing, values=guarded.name in SPOKEN)
    for urn in _supports(step) if step.type in MADE_OF_TEMPLATES else ():
        yield from (words for each in lost.get(urn, ())[:1] for words in _of_template(each))
    if not forcing:
        yield from (f"follows {lost[urn][0].name}" for urn in _supports(step) if urn in lost)


def _in_words(step: Step, paths: Iterable[str], *, values: bool) -> Iterator[str]:
    """Changed properties, in the words of the stack file where there are any; `values`: with what they change to."""
    for words, path in in_words(step, paths) if values else ((path, path) for path in paths):
        yield words if path is None or not values else f"{path}{_change(step, path)}"


def _of_template(step: Step) -> Iterator[str]:
    """What changes of the hosts of a template: a template is replaced as a whole, so its group names no property."""
    if step.type == TEMPLATE:
        yield from (words for words, path in in_words(step, step.detailed_diff or ()) if path is None)


def _supports(step: Step) -> tuple[str, ...]:
    """URNs that the resource needs: the one that it is deleted with, or else all that it depends on."""
    state = step.old_state or step.new_state
    if state is None:
        return ()
    return (state.deleted_with,) if state.deleted_with else tuple(sorted(state.dependencies))


def _change(step: Step, path: str) -> str:
    before, after = (_scalar(state.inputs, path) if state else None for state in (step.old_state, step.new_state))
    return f": {before} -> {after}" if before != after and None not in (before, after) else ""


def _scalar(inputs: dict[str, Any], path: str) -> str | None:
    """The value at a dotted path, as text; None where there is none, or none that fits into a line."""
    found = value(inputs, path)
    if found == UNKNOWN:
        return "known after the update"
    return str(found) if isinstance(found, str | int | float) else None


def _unprotected(step: Step) -> Iterator[str]:
    """Updates that drop a protection."""
    if step.effect is not Effect.UPDATE or not step.old_state or not step.new_state:
        return
    before, after = step.old_state.inputs, step.new_state.inputs
    if before.get(PROTECTION) is True and after.get(PROTECTION) is not True:
        yield f"{step.name} loses its deletion protection"


def _without_severity(message: str) -> str:
    return message.strip().removeprefix("error: ").removeprefix("warning: ")
