"""What a failed install or upgrade leaves behind: a release that helm has recorded stays in the state, as upstream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.kubernetes.releases import Helm, ReleaseError, ReleaseFailedError, ReleaseSpec

SPEC = ReleaseSpec("kueue", "kueue-system", "oci://charts/kueue", "1.0.0", {})


class Scripted(Helm):
    """helm whose install and upgrade fail with `error`, and whose record has `status`; "" for none."""

    def __init__(self, error: str, status: str) -> None:
        super().__init__(Path("nowhere"))
        self.error, self.status = error, status

    def _run(self, arguments: list[str]) -> str:
        if arguments[0] in ("install", "upgrade"):
            raise ReleaseError(self.error)
        if not self.status:
            raise ReleaseError("release: not found")
        if arguments[0] == "list":
            return json.dumps([{"chart": "kueue-1.0.0", "app_version": "1"}])
        info = {"status": self.status}
        return json.dumps({"name": "kueue", "namespace": "kueue-system", "version": 1, "info": info, "manifest": ""})


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("context deadline exceeded", "failed"),
        ("context canceled", "failed"),
        ('INSTALLATION FAILED: 1 error occurred: * Post "https://x/clusterroles": connection reset by peer', "failed"),
        ("INSTALLATION FAILED: update: failed to update: the server is currently unable", "pending-install"),
    ],
)
def test_a_release_that_helm_has_recorded_is_kept(error: str, status: str) -> None:
    helm = Scripted(error, status)
    for action in (helm.install, helm.upgrade):
        with pytest.raises(ReleaseFailedError, match=r"^" + error.split(":")[0]) as caught:
            action(SPEC)
        assert caught.value.release.status["status"] == status


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("INSTALLATION FAILED: failed to install CRD crds/jobsets.yaml: EOF", ""),
        ("INSTALLATION FAILED: cannot re-use a name that is still in use", "failed"),
        ("UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress", "pending-install"),
        ("Kubernetes cluster unreachable", "deployed"),
    ],
)
def test_what_is_anothers_or_was_not_made_is_not(error: str, status: str) -> None:
    helm = Scripted(error, status)
    for action in (helm.install, helm.upgrade):
        with pytest.raises(ReleaseError) as caught:
            action(SPEC)
        assert not isinstance(caught.value, ReleaseFailedError)
