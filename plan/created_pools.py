"""Refuses pods and jobs that would make GKE or TPU Provisioner create more, or other, hosts than their queue counts.

Both create hosts for whoever asks, in every namespace, and count them by the topology alone: a job of one pod brings
the hosts of a whole slice. TPU Provisioner also deletes a pool with the JobSet for which it made it, and takes networks
and labels of hosts from pods (ai-on-gke/tpu-provisioner internal/controller/pod_utils.go, internal/cloud/gke.go).
"""

from catalogue.labels import (
    ACCELERATOR_LABEL,
    COMPUTE_CLASS_LABEL,
    JOBSET_LABEL,
    NODE_POOL_LABEL,
    RESERVATION_LABEL,
    TOPOLOGY_LABEL,
)
from plan.admission_policy import Check, Match, Policy, one_of
from plan.flavors import DEVICE_PLUGIN_RESOURCE
from plan.platform import Platform
from plan.slices import SlicePlan
from plan.tpu_provisioner import JOBSET_NAME_LIMIT
from plan.workloads.jobset import EXCLUSIVE
from platform_config.capacity import Reservation

SYSTEM_NAMESPACES = ("kube-system",)
"""Namespaces whose pods are not looked at, so that nothing here can stop the system's own."""
NAME = "jobset.sigs.k8s.io/jobset-name"
"""Annotation of a JobSet's pods."""
STEERING = "tpu-provisioner.cloud.google.com/"
"""Prefix of annotations by which a pod chooses networks, accounts and labels of hosts."""
INSTEAD = "python -m tools workload train prints a JobSet that fits"

# Templates of pods: of a pod itself, of a Job, or of each replicated job of a JobSet. With each its number of pods.
_TEMPLATES = (
    "(request.kind.kind == 'Pod' ? [{'pod': dyn(object), 'pods': dyn(0)}] : request.kind.kind == 'Job' ? "
    "[{'pod': dyn(object.spec.template), 'pods': dyn(int(object.spec.?parallelism.orValue(1)))}] : "
    "object.spec.replicatedJobs.map(j, "
    "{'pod': dyn(j.template.spec.template), 'pods': dyn(int(j.template.spec.?parallelism.orValue(1)))}))"
)
_CHIPS = (
    f"t.pod.spec.containers.map(c, '{DEVICE_PLUGIN_RESOURCE}' in c.?resources.?limits.orValue({{}}) ? "
    f"int(string(c.resources.limits['{DEVICE_PLUGIN_RESOURCE}'])) : 0)"
)


def _selector(key: str) -> str:
    return f"t.pod.spec.?nodeSelector[?'{key}'].orValue('')"


def policy(platform: Platform) -> Policy | None:
    """The policy; None where the program declares all node pools."""
    plans = [plan for plan in platform.slice_plans if not plan.provisioning.declared]
    if not plans:
        return None
    checks = [_queued(platform), _whole_slices(plans)]
    if platform.job_plans:
        checks += [_of_jobset(), _own_pools(), _exclusive(), _not_steering(), _reservations(platform.job_plans)]
    return Policy(
        name=f"{platform.name}-created-pools",
        namespaces=SYSTEM_NAMESPACES,
        elsewhere=True,
        matches=(
            Match("", ("pods",), ("CREATE",)),
            Match("batch", ("jobs",), ("CREATE",)),
            Match("jobset.x-k8s.io", ("jobsets",), ("CREATE",), version="v1alpha2"),
        ),
        variables={
            "asking": f"{_TEMPLATES}.filter(t, {_asks(platform)})",
            "jobset": (
                "request.kind.kind == 'JobSet' ? object.metadata.?name.orValue('') : "
                f"object.metadata.?annotations[?'{NAME}'].orValue('')"
            ),
        },
        checks=tuple(check for check in checks if check),
    )


def _asks(platform: Platform) -> str:
    """Whether a pod brings hosts: by its class; where TPU Provisioner runs, all slices are its own."""
    if platform.job_plans:
        return f"{_CHIPS}.exists(chips, chips > 0)"
    classes = one_of(tuple(each.name for each in platform.compute_classes if each.creates_pools))
    affinity = "t.pod.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms"
    by_affinity = (
        f"{affinity}.orValue([]).exists(term, term.?matchExpressions.orValue([]).exists(e, "
        f"e.key == '{COMPUTE_CLASS_LABEL}' && e.?values.orValue([]).exists(v, v in {classes})))"
    )
    return f"({_selector(COMPUTE_CLASS_LABEL)} in {classes} || {by_affinity})"


def _queued(platform: Platform) -> Check | None:
    """Hosts only for namespaces of queues: nothing else limits their number."""
    if not platform.queues or not platform.software.kueue.refuse_unqueued:
        return None
    return Check(
        f"variables.asking.size() == 0 || request.namespace in {one_of(platform.queue_namespaces)}",
        f"slices come on demand, for jobs in queues only: use a namespace of a queue ({INSTEAD})",
    )


def _whole_slices(plans: list[SlicePlan]) -> Check:
    """A Job has a pod for each host of its slice, and each pod all chips of its host: so Kueue counts what comes."""
    shapes = {
        f"'{plan.generation.accelerator} {plan.topology}'": f"[{plan.hosts}, {plan.chips_per_host}]" for plan in plans
    }
    known = "{" + ", ".join(f"{shape}: {size}" for shape, size in shapes.items()) + "}"
    shape = f"({_selector(ACCELERATOR_LABEL)} + ' ' + {_selector(TOPOLOGY_LABEL)})"
    return Check(
        f"variables.asking.all(t, {shape} in {known} && {_CHIPS}.sum() == {known}[{shape}][1] && "
        f"(t.pods == 0 || {known}[{shape}][0] == 1 || t.pods == {known}[{shape}][0]))",
        f"a job on these slices selects {ACCELERATOR_LABEL} and {TOPOLOGY_LABEL} of one of them, has a pod for each"
        f" host of the slice, and each pod has all chips of its host ({INSTEAD})",
    )


def _of_jobset() -> Check:
    return Check(
        "variables.asking.size() == 0 || request.kind.kind == 'Job' || variables.jobset != ''",
        f"TPU Provisioner creates hosts for JobSets only: write a JobSet with a name ({INSTEAD})",
    )


def _own_pools() -> Check:
    return Check(
        f"request.kind.kind == 'Job' || variables.asking.all(t, {_selector(JOBSET_LABEL)} == "
        f"request.namespace + '.' + variables.jobset && variables.jobset.size() <= {JOBSET_NAME_LIMIT})",
        f"pods that request TPUs need the node selector {JOBSET_LABEL}: NAMESPACE.JOBSET, or they run on the node pool"
        f" of another JobSet, and end with it; a JobSet's name has at most {JOBSET_NAME_LIMIT} characters ({INSTEAD})",
    )


def _exclusive() -> Check:
    of_object = f"object.metadata.?annotations[?'{EXCLUSIVE}'].orValue('')"
    of_jobs = (
        "request.kind.kind == 'JobSet' && object.spec.replicatedJobs.all(j, "
        f"j.template.?metadata.?annotations[?'{EXCLUSIVE}'].orValue('') == '{NODE_POOL_LABEL}')"
    )
    return Check(
        "variables.asking.size() == 0 || request.kind.kind == 'Job' || "
        f"{of_object} == '{NODE_POOL_LABEL}' || {of_jobs}",
        f"a JobSet that requests TPUs needs the annotation {EXCLUSIVE}: {NODE_POOL_LABEL}, or its pods do not follow"
        f" the leader for which TPU Provisioner creates the node pool ({INSTEAD})",
    )


def _not_steering() -> Check:
    return Check(
        "variables.asking.all(t, t.pod.?metadata.?annotations.orValue({}).all(key, "
        f"!key.startsWith('{STEERING}')) && t.pod.?metadata.?labels.orValue({{}}).all(key, "
        "!key.startsWith('google.com/')))",
        f"pods cannot choose networks, accounts or labels of hosts here: leave out annotations {STEERING}... and labels"
        " google.com/...",
    )


def _reservations(plans: tuple[SlicePlan, ...]) -> Check:
    names = tuple(plan.alternative.name for plan in plans if isinstance(plan.alternative, Reservation))
    return Check(
        f"variables.asking.all(t, {_selector(RESERVATION_LABEL)} in {one_of(('', *sorted(set(names))))})",
        f"these slices do not use that reservation: leave {RESERVATION_LABEL} out ({INSTEAD})",
    )
