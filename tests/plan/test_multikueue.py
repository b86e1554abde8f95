"""What a manager counts is what its workers have, and what keeps them from working together is said."""

from typing import Any

import pytest
import yaml

from plan import flavors, kueue_configuration, multikueue, queues
from plan.workloads.job import plan_named
from platform_config.platform import below
from rules.check import warnings
from tests.platforms import errors, load, raw

V6E = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}
QUEUES = {"team": {"namespaces": ["a", "b"], "slices": {"train": 2}}}


def manager(spec: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """A manager of two workers that have three slices together."""
    workers = {"us": {"stack": "organization/tpu-platform/us"}, "eu": {"secret": "eu-kubeconfig"}}
    return raw(
        {},
        multikueue={"role": "manager", "workers": workers, "slices": {"train": spec | {"count": 3}}},
        queues=QUEUES,
        **settings,
    )


def flavors_of_both(spec: dict[str, Any]) -> tuple[flavors.Flavor, flavors.Flavor]:
    """The flavor as a worker has it, and as its manager has it."""
    worker = load({"train": spec | {"count": 2}}, multikueue={"role": "worker"}, queues=QUEUES)
    written = manager(spec)
    (here,) = flavors.flavors(worker).values()
    (there,) = flavors.flavors(load(written.pop("slices"), **written)).values()
    return here, there


@pytest.mark.parametrize(
    "spec",
    [
        V6E,
        V6E | {"capacity": {"model": "reservation", "name": "r"}},
        V6E | {"devices": "dra"},
        V6E | {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]},
    ],
    ids=["plain", "reservation", "dra", "taints"],
)
def test_a_manager_names_a_flavor_as_its_workers_do(spec: dict[str, Any]) -> None:
    """The job that a manager hands out carries the flavor's node labels: a worker must have hosts with them."""
    here, there = flavors_of_both(spec)
    assert here == there


def test_queued_capacity_is_asked_for_by_the_worker_alone() -> None:
    """Kueue keeps a queue with both checks inactive (MultiKueueWithProvisioningRequest)."""
    here, there = flavors_of_both(V6E | {"capacity": "queued"})
    assert here.check == "queued-4x4"
    assert there.check is None
    assert (here.node_labels, here.tolerations) == (there.node_labels, there.tolerations)


def test_a_managers_quota_is_of_slices_elsewhere() -> None:
    written = manager(V6E)
    platform = load(written.pop("slices"), **written)
    (queue,) = queues.cluster_queues(platform)
    assert [quota.nominal for quota in queue.quotas[flavors.DEVICE_PLUGIN_RESOURCE]] == [32]
    assert queue.checks == {multikueue.CHECK: ()}
    assert platform.slice_plans == ()
    assert platform.totals["chips"] == 0
    assert platform.most_nodes == platform.system_pool.max_nodes


def test_a_manager_counts_claims_as_its_workers_do() -> None:
    written = manager(V6E | {"devices": "dra"})
    platform = load(written.pop("slices"), **written)
    assert {template.namespace for template in flavors.claim_templates(platform)} >= {"a", "b"}
    assert set(flavors.device_classes(platform)) == {"tpu-v6e"}


def test_jobs_are_made_for_slices_elsewhere() -> None:
    written = manager(V6E)
    plan = plan_named(load(written.pop("slices"), **written), "train")
    assert (plan.topology, plan.count) == ("4x4", 3)


def test_a_manager_marks_what_it_makes_on_its_workers() -> None:
    """Kueue removes what carries its own mark and is not known to it; the default mark is the same for all."""
    written = manager(V6E, name="front")
    read = yaml.safe_load(
        kueue_configuration.render(kueue_configuration.configuration(load(written.pop("slices"), **written)))
    )
    assert read["multiKueue"] == {"origin": "front"}
    assert kueue_configuration.configuration(load({"train": V6E})).multi_kueue is None


def test_a_manager_is_not_warned_that_it_has_no_slices() -> None:
    written = manager(V6E)
    assert not [warning for warning in warnings(load(written.pop("slices"), **written)) if "none" in warning.message]


def test_a_worker_is_an_ordinary_platform_to_its_queues() -> None:
    plain = load({"train": V6E | {"count": 2}}, queues=QUEUES)
    worker = load({"train": V6E | {"count": 2}}, queues=QUEUES, multikueue={"role": "worker"})
    assert queues.cluster_queues(plain) == queues.cluster_queues(worker)


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        ({"train": V6E | {"topology": "3x3", "count": 2}}, "multikueue.slices.train.topology", "no topology 3x3"),
        ({"train": V6E}, "queues.team.slices.train", "queues own 2 slices of train, which has 1"),
        ({"other": V6E}, "queues.team.slices.train", "there are no slices train"),
    ],
)
def test_slices_elsewhere_keep_the_rules_of_slices_here(change: dict[str, Any], path: str, message: str) -> None:
    written = manager(V6E)
    written["multikueue"]["slices"] = change
    (error,) = errors(written)
    assert error.path == below(path)
    assert message in error.message


@pytest.mark.parametrize(
    ("settings", "path", "hint"),
    [
        ({"role": "boss"}, "role", "one of manager, worker"),
        ({"role": "worker", "workers": {"us": {"stack": "us"}}}, "workers.us.stack", "ORGANIZATION/PROJECT/STACK"),
        ({"role": "worker", "workers": {"U S": {}}}, "workers.U S", "write u-s"),
        ({"workers": {}}, "role", "add role:"),
        ({"role": "worker", "worker": {}}, "worker", "did you mean workers?"),
    ],
)
def test_malformed(settings: dict[str, Any], path: str, hint: str) -> None:
    found = [error for error in errors(raw(multikueue=settings)) if error.path == below(f"multikueue.{path}")]
    assert found, errors(raw(multikueue=settings))
    assert hint in found[0].hint


@pytest.mark.parametrize(
    ("exported", "said"),
    [
        ({"team": {"namespaces": ["a", "b", "c"]}, "other": {"namespaces": ["d"]}}, []),
        ({"other": {"namespaces": ["a"]}}, ["worker us has no queue team: it has other"]),
        ({}, ["worker us has no queue team: it has none"]),
        ({"team": {"namespaces": ["a"]}}, ["queue team of worker us takes no work from b: only a"]),
    ],
)
def test_what_keeps_a_worker_from_taking_work(exported: dict[str, Any], said: list[str]) -> None:
    written = manager(V6E)
    platform = load(written.pop("slices"), **written)
    assert list(multikueue.mismatches(platform, "us", exported)) == said


def test_a_manager_has_no_queue_for_jobs_that_name_none() -> None:
    """It sent Jobs without TPUs to a worker, too, where nothing else of their namespace is."""
    written = manager(V6E)
    assert load(written.pop("slices"), **written).default_queues == {}
    worker = load({"train": V6E | {"count": 2}}, queues=QUEUES, multikueue={"role": "worker"})
    assert set(worker.default_queues.values()) == {"team"}
