"""Refuses pods that request TPUs without a queue, in the namespaces of queues.

Of what may request chips, Kueue queues Jobs, JobSets and LeaderWorkerSets that carry a queue's label. So only these may
request them, and the policy knows their pods by their creator, the Job or StatefulSet controller. It never trusts
labels and owners alone, because anybody can write them. Pods of a LeaderWorkerSet are also known by Kueue's gate, which
only Kueue may open: a pod that was made while Kueue did not answer has none, and is refused.
"""

from catalogue.labels import QUEUE_LABEL
from plan.admission_policy import Check, Match, Policy, one_of
from plan.charts import JOBSET, KUEUE, LWS
from plan.flavors import DEVICE_PLUGIN_RESOURCE
from plan.platform import Platform

# The service accounts of JobSet's namespace: its controller creates the Jobs of a JobSet, which carry no queue label.
JOBSET_GROUP = f"system:serviceaccounts:{JOBSET.namespace}"
# The Job controller: its own account, or the one that all controllers share.
JOB_CONTROLLERS = ("system:serviceaccount:kube-system:job-controller", "system:kube-controller-manager")
# The same for a LeaderWorkerSet: its controller makes StatefulSets, whose controller makes the pods.
LWS_GROUP = f"system:serviceaccounts:{LWS.namespace}"
STATEFUL_SET_CONTROLLERS = (
    "system:serviceaccount:kube-system:statefulset-controller",
    "system:kube-controller-manager",
)
KUEUE_GROUP = f"system:serviceaccounts:{KUEUE.namespace}"
GATE = "kueue.x-k8s.io/admission"
"""Scheduling gate of a pod that Kueue has not admitted."""
WRITE_INSTEAD = (
    "chips here are shared out by queues: write a Job, a JobSet or a LeaderWorkerSet with the label "
    f"{QUEUE_LABEL}: QUEUE (python -m tools workload prints one; kubectl get localqueues shows the queues)"
)


def _asks(of: str) -> str:
    """CEL: whether the pods of `of` (`object`, or `oldObject` before an update) request TPUs."""
    group = f"{of}.spec.leaderWorkerTemplate"
    pods = (
        f"(request.kind.kind == 'Pod' ? [{of}.spec] : request.kind.kind == 'JobSet' ? "
        f"{of}.spec.replicatedJobs.map(j, j.template.spec.template.spec) : "
        f"request.kind.kind == 'LeaderWorkerSet' ? [{group}.workerTemplate.spec] + "
        f"(has({group}.leaderTemplate) ? [{group}.leaderTemplate.spec] : []) : [{of}.spec.template.spec])"
    )
    # Any claim counts, because the policy cannot see what the claim's template requests.
    return (
        f"{pods}.exists(p, p.?resourceClaims.orValue([]).size() > 0 || "
        "(p.containers + p.?initContainers.orValue([])).exists(c, "
        f"'{DEVICE_PLUGIN_RESOURCE}' in c.?resources.?limits.orValue({{}}) || "
        f"'{DEVICE_PLUGIN_RESOURCE}' in c.?resources.?requests.orValue({{}})))"
    )


def _queued(of: str) -> str:
    return f"{of}.metadata.?labels[?'{QUEUE_LABEL}'].orValue('') != ''"


def _gated(of: str) -> str:
    return f"{of}.spec.?schedulingGates.orValue([]).exists(g, g.name == '{GATE}')"


def _rises(key: str, default: int) -> str:
    return f"object.spec.?{key}.orValue({default}) > oldObject.spec.?{key}.orValue({default})"


VARIABLES = {
    "asks": _asks("object"),
    "queued": _queued("object"),
    # A job that requested chips without a queue before the policy existed.
    "askedUnqueued": f"request.operation == 'UPDATE' && !({_queued('oldObject')}) && {_asks('oldObject')}",
    "ofJob": (
        f"request.userInfo.username in {one_of(JOB_CONTROLLERS)} && object.metadata.?ownerReferences.orValue([])"
        ".exists(o, o.kind == 'Job' && o.apiVersion == 'batch/v1' && o.?controller.orValue(false))"
    ),
    "ofServer": (
        f"request.kind.kind == 'StatefulSet' ? '{LWS_GROUP}' in request.userInfo.groups : "
        f"request.kind.kind == 'Pod' && request.userInfo.username in {one_of(STATEFUL_SET_CONTROLLERS)} && "
        f"{_gated('object')}"
    ),
    "opensGate": (
        f"request.kind.kind == 'Pod' && request.operation == 'UPDATE' && {_gated('oldObject')} && "
        f"!({_gated('object')}) && !('{KUEUE_GROUP}' in request.userInfo.groups)"
    ),
    "ofJobSet": f"request.kind.kind == 'Job' && '{JOBSET_GROUP}' in request.userInfo.groups",
    "isJob": "request.kind.kind in ['Job', 'JobSet', 'LeaderWorkerSet']",
    # JobSet's own Jobs carry no label either: whoever may change them could start more pods than Kueue has counted.
    "grows": (
        f"request.operation == 'UPDATE' && request.kind.kind == 'Job' && !({_queued('oldObject')}) && "
        f"!('{JOBSET_GROUP}' in request.userInfo.groups) && ({_rises('parallelism', 1)} || {_rises('completions', 0)} "
        "|| (oldObject.spec.?suspend.orValue(false) && !object.spec.?suspend.orValue(false)))"
    ),
}


def policy(platform: Platform) -> Policy | None:
    """The policy; None where there are no queues, where the cluster has a Kueue of its own, or where it is off."""
    if not (platform.queues and platform.installs("kueue") and platform.software.kueue.refuse_unqueued):
        return None
    return Policy(
        name=f"{platform.name}-unqueued-tpus",
        namespaces=platform.queue_namespaces,
        matches=(
            Match("", ("pods",), ("CREATE", "UPDATE")),
            Match("apps", ("daemonsets", "deployments", "replicasets", "statefulsets"), ("CREATE",)),
            Match("batch", ("jobs",), ("CREATE", "UPDATE")),
            Match("jobset.x-k8s.io", ("jobsets",), ("CREATE", "UPDATE"), version="v1alpha2"),
            Match("leaderworkerset.x-k8s.io", ("leaderworkersets",), ("CREATE", "UPDATE")),
        ),
        variables=VARIABLES,
        checks=(
            # Jobs from before the policy that never had a queue may still be changed.
            Check(
                "!variables.isJob || !variables.asks || variables.queued || variables.ofJobSet || "
                "variables.askedUnqueued",
                WRITE_INSTEAD,
            ),
            Check("!variables.grows || !variables.asks", f"a job without a queue takes no more pods: {WRITE_INSTEAD}"),
            Check(
                "variables.isJob || request.operation == 'UPDATE' || !variables.asks || variables.ofJob || "
                "variables.ofServer",
                WRITE_INSTEAD,
            ),
            Check("!variables.asks || !variables.opensGate", "the pod waits in its queue: only Kueue lets it start"),
        ),
    )
