"""The sample workload of the demonstration: from which command, and when it counts as failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import workload
from sandbox.kubernetes.api import ApiClient
from sandbox.kubernetes.pki import CertificateAuthority
from sandbox.workload import Sight, WorkloadError, manifest, watch

JOB_SET = """
print('{"kind": "JobSet", "spec": {"replicatedJobs": [{"template": {"spec": {"template": {}}}}]}}')
"""


def test_the_manifest_is_the_commands_own_with_a_run_time(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB_SET)
    [slices] = manifest(["job.py"], tmp_path, 2.5)["spec"]["replicatedJobs"]
    assert slices["template"]["spec"]["template"]["metadata"]["annotations"] == {"sandbox/run-for": "2.5s"}


def test_a_command_that_fails_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("raise SystemExit('no queue nowhere')")
    with pytest.raises(WorkloadError, match=r"job.py` failed:\nno queue nowhere"):
        manifest(["job.py"], tmp_path, 1)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ApiClient]:
    """A client whose cluster is never asked."""
    authority = CertificateAuthority(tmp_path)
    with ApiClient("127.0.0.1:1", "token", authority.pair.certificate) as made:
        yield made


@pytest.mark.parametrize(
    ("sights", "message"),
    [
        (
            [Sight({"job": "failed: out of retries"}, over=False, failed=True, hosts=0)],
            "has failed: failed: out of retries",
        ),
        (
            [Sight({"queue": "queued", "job": ""}, over=False, failed=False, hosts=0)],
            r"not over after 0 s \(queue: queued\)",
        ),
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
        Sight({"quota": words}, over=words == "0 chips in use", failed=False, hosts=2)
        for words in ("8", "0 chips in use")
    ]
    waiting = iter(sights)
    monkeypatch.setattr(workload, "look", lambda _client, _job: next(waiting))
    assert list(watch(client, {}, 60)) == sights
