"""The sample workload of the demonstration: which one, from which command, and when it counts as failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import workload
from sandbox.kubernetes.api import ApiClient
from sandbox.kubernetes.pki import CertificateAuthority
from sandbox.run_directory import CHECKOUT
from sandbox.workload import Choice, Sight, WorkloadError, arguments, choose, manifest, watch

BLUEPRINT = CHECKOUT / "Pulumi.blueprint.yaml"


@pytest.mark.parametrize(
    ("queues", "choice"),
    [
        ({"team": {"slices": {"serve": 1}}}, Choice("serve", "team", 1)),
        ({"team": {"slices": {"train": 8}}}, Choice("train", "team", 2)),
        ({"a": {"slices": {"one": 1}}, "b": {"slices": {"none": 0, "pair": 2}}}, Choice("pair", "b", 2)),
        ({"borrower": {"slices": {"train": 0}}}, None),
        ({}, None),
        (None, None),
    ],
)
def test_the_widest_job_is_chosen_of_queues_that_own_slices(queues: Any, choice: Choice | None) -> None:
    assert choose({"queues": queues}) == choice


def test_the_manifest_is_the_tools_own_with_a_run_time() -> None:
    job = manifest(arguments(Choice("train", "training", 2), BLUEPRINT, "--name", "mine"), 2.5)
    assert job["kind"] == "JobSet"
    assert job["metadata"]["name"] == "mine"
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "training"}
    [slices] = job["spec"]["replicatedJobs"]
    assert slices["replicas"] == 2
    assert slices["template"]["spec"]["template"]["metadata"]["annotations"] == {"sandbox/run-for": "2.5s"}


def test_a_workload_that_does_not_fit_is_refused_in_the_tools_words() -> None:
    with pytest.raises(WorkloadError, match="no queue nowhere: it has training"):
        manifest(arguments(Choice("train", "nowhere", 1), BLUEPRINT), 1)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ApiClient]:
    """A client whose cluster is never asked."""
    authority = CertificateAuthority(tmp_path)
    with ApiClient("127.0.0.1:1", "token", authority.pair.certificate) as made:
        yield made


@pytest.mark.parametrize(
    ("sights", "message"),
    [
        ([Sight({"job": "failed: out of retries"}, over=False, failed=True)], "has failed: failed: out of retries"),
        ([Sight({"queue": "queued", "job": ""}, over=False, failed=False)], r"not over after 0 s \(queue: queued\)"),
    ],
)
def test_a_job_that_fails_or_hangs_ends_the_watch(
    client: ApiClient, monkeypatch: pytest.MonkeyPatch, sights: list[Sight], message: str
) -> None:
    waiting = iter(sights)
    monkeypatch.setattr(workload, "look", lambda _client, _job: next(waiting))
    with pytest.raises(WorkloadError, match=message):
        list(watch(client, {}, 0))


def test_the_watch_ends_when_the_quota_is_free_again(client: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "LOOK_EVERY_SECONDS", 0)
    sights = [
        Sight({"quota": words}, over=words == "0 chips in use", failed=False) for words in ("8", "0 chips in use")
    ]
    waiting = iter(sights)
    monkeypatch.setattr(workload, "look", lambda _client, _job: next(waiting))
    assert list(watch(client, {}, 60)) == sights
