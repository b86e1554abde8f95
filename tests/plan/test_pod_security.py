"""Who enforces Pod Security in the platform's namespaces: Kubernetes, or a policy of the platform's own."""

import pytest

from plan import pod_security
from plan.platform import Platform
from plan.workloads.job import Job
from plan.workloads.jobset import jobset
from tests.platforms import load

SINGLE = {"machine_type": "ct6e-standard-1t", "topology": "1x1"}
ENFORCED = {"pod-security.kubernetes.io/enforce": "baseline"}


def platform(*, dra: bool, capabilities: bool = True) -> Platform:
    slices = {"serve": {**SINGLE, **({"devices": "dra"} if dra else {})}}
    return load(slices, software={"dra_driver": {"capabilities": capabilities}})


@pytest.mark.parametrize(("dra", "capabilities"), [(False, True), (True, False)])
def test_kubernetes_enforces_baseline_where_no_pod_may_add_capabilities(dra: bool, capabilities: bool) -> None:
    found = platform(dra=dra, capabilities=capabilities)
    assert pod_security.namespace_labels(found) == ENFORCED
    assert pod_security.policy(found) is None


def test_with_claims_a_policy_covers_every_namespace_of_the_platform() -> None:
    """H3: one slice with DRA left every namespace with warnings only."""
    slices = {"serve": {**SINGLE, "devices": "dra"}}
    queues = {"team": {"namespaces": ["team-a", "team-b"], "slices": {"serve": 1}}}
    policy = pod_security.policy(load(slices, queues=queues))
    assert policy is not None
    assert policy.namespaces == ("tpu-workloads", "team-a", "team-b")


def test_generated_pods_add_no_capabilities_where_they_may_not() -> None:
    found = platform(dra=True, capabilities=False)
    (plan,) = found.slice_plans
    job = jobset(found, plan, Job("j", "tpu-workloads", 1))
    assert "capabilities" not in str(job)
