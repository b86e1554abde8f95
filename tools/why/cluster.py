"""What is read of a stack's cluster: only `kubectl get`, with the credential that the person's kubeconfig names."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

Object = Mapping[str, Any]

KINDS = {
    "JobSet": "jobsets.jobset.x-k8s.io",
    "LeaderWorkerSet": "leaderworkersets.leaderworkerset.x-k8s.io",
    "Job": "jobs.batch",
    "Pod": "pods",
}
"""Kinds of jobs, those first that make the others."""
WORKLOADS = "workloads.kueue.x-k8s.io"
BESIDES = (
    "events",
    "resourceclaims.resource.k8s.io",
    "localqueues.kueue.x-k8s.io",
    "provisioningrequests.autoscaling.x-k8s.io",
)
"""What else is looked at in a job's namespace."""
OF_CLUSTER = ("nodes", "clusterqueues.kueue.x-k8s.io")
SECONDS = 60


class ClusterError(Exception):
    """The cluster cannot be read; the message is kubectl's last line."""


class Cluster:
    """One cluster of a kubeconfig: that of the context, or of the current context if it is None.

    `unread` collects what the person may not read, in the API server's words.
    """

    def __init__(self, context: str | None) -> None:
        self._context = [f"--context={context}"] if context else []
        self._groups: set[str] | None = None
        self.unread: list[str] = []

    def list(self, plurals: Sequence[str], namespace: str | None = None) -> Sequence[Object]:
        """Objects of these kinds: of a namespace, or of all and of the cluster. Kinds that the server does not serve
        have none."""
        served = [plural for plural in plurals if self._serves(plural)]
        if not served:
            return []
        where = f"--namespace={namespace}" if namespace else "--all-namespaces"
        printed, errors = self._kubectl("get", ",".join(served), where, "--output=json")
        forbidden = [line for line in errors.splitlines() if "forbidden" in line]
        if not printed or (errors and not forbidden):
            raise ClusterError(errors.strip().rpartition("\n")[2] or "kubectl printed nothing")
        self.unread += forbidden
        found: Sequence[Object] = json.loads(printed)["items"]
        return found

    def _serves(self, plural: str) -> bool:
        """Whether the server knows the kind's API group."""
        if self._groups is None:
            printed, errors = self._kubectl("get", "--raw", "/apis")
            if not printed:
                raise ClusterError(errors.strip().rpartition("\n")[2])
            self._groups = {group["name"] for group in json.loads(printed)["groups"]}
        group = plural.partition(".")[2]
        return not group or group in self._groups

    def _kubectl(self, *arguments: str) -> tuple[str, str]:
        command = ["kubectl", *self._context, f"--request-timeout={SECONDS}s", *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ClusterError(f"kubectl cannot be used: {error}") from None
        return done.stdout, done.stderr if done.returncode else ""
