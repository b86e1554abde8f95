"""Whatever is written in a stack file, the answer is a platform or errors with a path each, soon; and what is accepted
is not refused later. `python -m tests.fuzz` tries more cases of the same kinds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.graph.emulated import FOREIGN_NETWORK, EmulatedCloud
from tests.platforms import raw

from . import generate, outcomes
from .campaign import clouds, search
from .generate import EXISTING
from .outcomes import Broken
from .webhooks import refused


def alone() -> Iterator[dict[str, Any]]:
    """The accepted platforms, in order of their cases, that ask nobody else for anything."""
    for number in count():
        platform = generate.platform(Random(number))
        accepted = outcomes.of_platform(platform).platform
        if accepted is not None and outcomes.stands_alone(accepted):
            yield platform


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "Pulumi.fuzz.yaml"


@pytest.fixture(scope="module")
def cloud() -> Iterator[EmulatedCloud]:
    with clouds() as made:
        yield made


def test_any_text_is_a_platform_or_errors(path: Path) -> None:
    for number in range(500):
        outcomes.of_text(generate.text(Random(number)), path)


def test_any_platform_is_accepted_or_refused_with_errors() -> None:
    for number in range(700):
        outcomes.of_platform(generate.platform(Random(number)))


def test_what_is_accepted_is_what_kubernetes_and_kueue_take() -> None:
    for platform in islice(alone(), 15):
        outcomes.registered(platform)


def test_what_is_accepted_can_be_created(cloud: EmulatedCloud) -> None:
    for platform in islice(alone(), 4):
        accepted = outcomes.of_platform(platform).platform
        assert accepted is not None
        outcomes.created(accepted, outcomes.registered(platform), cloud)


@pytest.mark.parametrize("cluster", [EXISTING, {"kind": "gke"}])
def test_a_network_of_others_is_there_by_the_names_it_is_given(cloud: EmulatedCloud, cluster: dict[str, Any]) -> None:
    """Hosts whose range for pods is not there never come: once a case waited fifteen minutes for them."""
    network = {**FOREIGN_NETWORK, "pods_range": "their-pods", "services_range": "their-services"}
    platform = raw(cluster=cluster, network=network)
    accepted = outcomes.of_platform(platform).platform
    assert accepted is not None
    outcomes.created(accepted, outcomes.registered(platform), cloud)


def test_every_kind_of_case_turns_up() -> None:
    """The search is of use only while many cases are accepted and many refused, of every kind."""
    platforms = [generate.sound(Random(number)) for number in range(150)]
    accepted = [found for found in platforms if outcomes.of_platform(found).platform]
    assert len(accepted) > 75
    assert {found["cluster"]["kind"] for found in accepted} == {"gke", "self-managed", "existing"}
    slices = [spec for found in accepted for spec in found["slices"].values()]
    assert {spec["machine_type"].partition("-")[0] for spec in slices} == {"ct4p", "ct5lp", "ct5p", "ct6e", "tpu7x"}
    capacities = [spec.get("capacity", "on-demand") for spec in slices]
    models = {item if isinstance(item, str) else "list" if isinstance(item, list) else item["model"]
              for item in capacities}  # fmt: skip
    assert models == {"on-demand", "spot", "reservation", "flex-start", "queued", "list"}
    assert any("queues" in found for found in accepted)
    assert any("cohorts" in found for found in accepted)
    assert any("multikueue" in found for found in accepted)
    assert any("network" in found for found in accepted)


@pytest.mark.parametrize(
    ("answer", "promise"),
    [
        (KeyError("x"), "crash: KeyError"),
        (RecursionError(), "crash: RecursionError"),
    ],
)
def test_a_crash_is_found(monkeypatch: pytest.MonkeyPatch, answer: Exception, promise: str) -> None:
    def crash(*_args: Any, **_settings: Any) -> None:
        raise answer

    monkeypatch.setattr(outcomes, "load_platform", crash)
    with pytest.raises(Broken, match=promise):
        outcomes.of_platform(raw())


def test_what_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "SECONDS", 0.0)
    with pytest.raises(Broken, match="slow"):
        outcomes.of_platform(raw())


def test_what_the_schema_refuses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "SCHEMA", outcomes.jsonschema.Draft202012Validator(False))
    with pytest.raises(Broken, match="JSON schema"):
        outcomes.of_platform(raw())


def test_a_duplicate_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue with the same namespace twice once passed all rules."""
    monkeypatch.setattr("rules.load.check", lambda *_args, **_settings: ())
    platform = raw(queues={"q": {"namespaces": ["a", "a"], "slices": {"train": 1}}})
    outcomes.of_platform(platform)
    with pytest.raises(Broken, match="Duplicate resource URN"):
        outcomes.registered(platform)


def test_what_the_cloud_refuses_is_found(monkeypatch: pytest.MonkeyPatch, cloud: EmulatedCloud) -> None:
    monkeypatch.setattr("rules.load.check", lambda *_args, **_settings: ())
    platform = raw(cluster={"version": "1.10"})
    accepted = outcomes.of_platform(platform).platform
    assert accepted is not None
    with pytest.raises(Broken, match="refused by the emulator"):
        outcomes.created(accepted, outcomes.registered(platform), cloud)


QUOTA = {"name": "google.com/tpu", "nominalQuota": 4}
QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "q"},
    "spec": {
        "cohortName": "c",
        "resourceGroups": [{"coveredResources": ["google.com/tpu"], "flavors": [{"name": "f", "resources": [QUOTA]}]}],
    },
}


def queue(quota: dict[str, Any], **spec: Any) -> dict[str, Any]:
    group = {"coveredResources": ["google.com/tpu"], "flavors": [{"name": "f", "resources": [QUOTA | quota]}]}
    return {**QUEUE, "spec": {"cohortName": "c", "resourceGroups": [group], **spec}}


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (queue({"lendingLimit": 5}), "lendingLimit above nominalQuota"),
        (queue({"borrowingLimit": -1}), "borrowingLimit -1"),
        (queue({"name": "cpu"}), "other resources than its group"),
        ({**queue({}), "metadata": {"name": "Q"}}, "no name"),
        (queue({}, cohortName="-"), "no name of a cohort"),
        (queue({}, preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}), "without reclaiming"),
        ({**QUEUE, "kind": "ResourceFlavor", "spec": {"topologyName": "t"}}, "without labels"),
        ({**QUEUE, "kind": "ResourceFlavor", "spec": {"tolerations": [{"operator": "Equal"}]}}, "without key"),
        ({**QUEUE, "kind": "ResourceFlavor", "spec": {"nodeTaints": [{"key": "a", "effect": "No"}]}}, "no taint"),
        ({**QUEUE, "kind": "Namespace", "metadata": {"name": "kube-system"}}, "the system's"),
    ],
)
def test_what_kueue_refuses_is_found(manifest: dict[str, Any], reason: str) -> None:
    assert list(refused([QUEUE])) == []
    assert any(reason in found for found in refused([manifest]))


def test_a_limit_without_a_cohort_is_found() -> None:
    manifest = queue({"borrowingLimit": 1})
    del manifest["spec"]["cohortName"]
    assert list(refused([manifest])) == ["ClusterQueue q: f: borrowingLimit without a cohort"]


def test_a_search_counts_and_names_its_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    tally = search(1, 5, shown.append, graph=10**6, cloud=10**6)
    assert (tally.tried, shown) == ({"text": 5, "platform": 5}, [])
    assert "cases tried            10 (5 texts, 5 platforms)" in tally.summary()
    monkeypatch.setattr(outcomes, "SECONDS", 0.0)
    assert [case for _, _, case in search(1, 2, shown.append, graph=10**6, cloud=10**6).broken] == [
        "text 1", "platform 1", "text 2", "platform 2"
    ]  # fmt: skip
