"""Which pods have a node pool for themselves."""

from __future__ import annotations

import pytest

from sandbox.kubernetes.api import Object
from sandbox.kubernetes.growth import exclusive_job, is_leader
from sandbox.kubernetes.nodes import POOL_LABEL

JOB = ("alpha.jobset.sigs.k8s.io/exclusive-topology", "jobset.sigs.k8s.io/job-key")
GROUP = ("leaderworkerset.sigs.k8s.io/exclusive-topology", "leaderworkerset.sigs.k8s.io/group-key")


def pod(annotation: str, label: str, topology: str = POOL_LABEL, **selector: str) -> Object:
    metadata = {"annotations": {annotation: topology}, "labels": {label: "a1b2"}}
    return {"metadata": metadata, "spec": {"nodeSelector": selector}}


@pytest.mark.parametrize("of", [JOB, GROUP], ids=["job of a jobset", "group of a leaderworkerset"])
def test_the_first_pod_brings_the_others_to_its_pool(of: tuple[str, str]) -> None:
    leader, follower = pod(*of), pod(*of, **{POOL_LABEL: "pool-1"})
    assert exclusive_job(leader) == exclusive_job(follower) == "a1b2"
    assert is_leader(leader)
    assert not is_leader(follower)


@pytest.mark.parametrize("of", [JOB, GROUP], ids=["job of a jobset", "group of a leaderworkerset"])
def test_pods_that_share_a_rack_share_pools(of: tuple[str, str]) -> None:
    assert exclusive_job(pod(*of, topology="rack")) == ""
    assert exclusive_job({"metadata": {}, "spec": {}}) == ""
