"""Flavors, quotas and claims follow from slices and queues."""

from typing import Any

import pytest
import yaml

from plan import flavors, kueue_configuration, queues
from plan.platform import Platform
from rules.load import load_platform
from tests.platforms import PROJECT, raw

PAIR = {"machine_type": "ct5lp-hightpu-4t", "topology": "2x4", "count": 2}
V6E = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}


def platform(slices: dict[str, Any], **settings: Any) -> Platform:
    return load_platform(raw(slices, allow_unlisted_zone=True, **settings), project=PROJECT)


def queue(slices: dict[str, int], **settings: Any) -> dict[str, Any]:
    return {"namespaces": ["team"], "slices": slices, **settings}


def quotas(value: Platform) -> dict[str, dict[str, tuple[int, int | None, int | None]]]:
    return {
        cluster_queue.name: {
            quota.flavor.name: (quota.nominal, quota.borrowing_limit, quota.lending_limit)
            for group in cluster_queue.quotas.values()
            for quota in group
        }
        for cluster_queue in queues.cluster_queues(value)
    }


def test_a_quota_is_counted_in_chips() -> None:
    value = platform({"train": V6E | {"count": 3}}, queues={"a": queue({"train": 2}), "b": queue({"train": 1})})
    assert quotas(value) == {
        "a": {"v6e-4x4-4t-on-demand": (32, 0, None)},
        "b": {"v6e-4x4-4t-on-demand": (16, 0, None)},
    }


@pytest.mark.parametrize(("borrow", "limit"), [(True, None), (False, 0), ({"train": 1}, 16), ({}, 0)])
def test_limits_are_said_in_slices(borrow: Any, limit: int | None) -> None:
    value = platform({"train": V6E}, queues={"a": queue({"train": 1}, borrow=borrow, lend=borrow)})
    assert quotas(value) == {"a": {"v6e-4x4-4t-on-demand": (16, limit, limit)}}


def test_groups_of_one_shape_and_capacity_share_a_flavor() -> None:
    value = platform(
        {"a": V6E, "b": V6E, "c": V6E | {"capacity": "spot"}}, queues={"q": queue({"a": 1, "b": 1, "c": 1})}
    )
    assert quotas(value)["q"] == {
        "v6e-4x4-4t-on-demand": (32, 0, None),
        "v6e-4x4-4t-spot": (16, 0, None),
    }


def test_one_topology_on_two_kinds_of_host_is_two_flavors() -> None:
    value = platform({"pair": PAIR, "one": {"machine_type": "ct5lp-hightpu-8t", "topology": "2x4"}})
    assert set(flavors.flavors(value)) == {"v5e-2x4-4t-on-demand", "v5e-2x4-8t-on-demand"}


def test_claimed_chips_and_device_plugin_chips_are_never_one_quota() -> None:
    value = platform(
        {"plugin": PAIR, "claims": PAIR | {"devices": "dra"}}, queues={"q": queue({"plugin": 2, "claims": 2})}
    )
    (cluster_queue,) = queues.cluster_queues(value)
    assert {resource: [q.nominal for q in group] for resource, group in cluster_queue.quotas.items()} == {
        "google.com/tpu": [16],
        "google.com/tpu-dra": [16],
    }


def test_queued_flavors_wait_for_a_check_of_their_topology() -> None:
    value = platform(
        {"train": V6E | {"capacity": "queued"}, "spot": V6E | {"capacity": "spot"}},
        queues={"q": queue({"train": 1, "spot": 1})},
    )
    (cluster_queue,) = queues.cluster_queues(value)
    assert cluster_queue.checks == {"queued-4x4": ("v6e-4x4-4t-queued",)}


def test_every_device_class_is_mapped_and_asks_only_what_is_predicted() -> None:
    """A class outside the mapping makes a workload inadmissible; another attribute blocks scaling from zero."""
    value = platform({"a": PAIR | {"devices": "dra"}, "b": V6E | {"devices": "dra"}})
    classes = flavors.device_classes(value)
    assert set(classes) == {"tpu-v5e", "tpu-v6e"}
    assert 'tpuGen == "v5litepod"' in classes["tpu-v5e"]
    (mapping,) = kueue_configuration.configuration(value).resources.device_class_mappings
    assert mapping.name == flavors.DRA_RESOURCE
    assert set(mapping.device_class_names) == set(classes)
    assert {template.device_class for template in flavors.claim_templates(value)} == set(classes)


def test_a_claim_takes_all_chips_of_a_host() -> None:
    value = platform({"a": PAIR | {"devices": "dra"}}, namespaces=["one"], queues={"q": queue({"a": 2})})
    templates = {(template.namespace, template.name, template.count) for template in flavors.claim_templates(value)}
    assert templates == {("one", "tpu-v5e-4", 4), ("team", "tpu-v5e-4", 4)}


def test_pods_ready_is_always_said() -> None:
    """Kueue's own default evicts after 30 minutes, in a loop, what takes longer to start."""
    value = kueue_configuration.configuration(platform({"a": V6E}))
    read = yaml.safe_load(kueue_configuration.render(value))
    assert read["waitForPodsReady"]["timeout"] == "3600s"
    assert read["integrations"]["frameworks"] == [
        "batch/job",
        "jobset.x-k8s.io/jobset",
        "leaderworkerset.x-k8s.io/leaderworkerset",
        "pod",
    ]
    assert read["managedJobsNamespaceSelector"] == {"matchLabels": {"tpu-platform/queues": "true"}}
    assert "deviceClassMappings" not in read["resources"] or not read["resources"]["deviceClassMappings"]


@pytest.mark.parametrize("framework", ["deployment", "statefulset"])
def test_frameworks_that_queue_pods_twice_are_refused(framework: str) -> None:
    with pytest.raises(ValueError, match=framework):
        kueue_configuration.Integrations(frameworks=("batch/job", framework))


def test_a_device_class_is_mapped_once() -> None:
    mapping = kueue_configuration.DeviceClassMapping(name="a", device_class_names=("x",))
    with pytest.raises(ValueError, match="more than once: x"):
        kueue_configuration.Resources(device_class_mappings=(mapping, mapping))
