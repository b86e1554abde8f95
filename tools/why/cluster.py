"""What is read of a stack's cluster: only `kubectl get`, with the credential that the person's kubeconfig names."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.cluster_api import INSTALL_KUBECTL

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
NO_KUBECONFIG = "localhost:8080 was refused"
"""What kubectl says without a kubeconfig: it then asks its own machine."""
KUBECONFIG_STEP = "pulumi stack output kubeconfig -s {stack} > kubeconfig && export KUBECONFIG=$PWD/kubeconfig"


class ClusterError(Exception):
    """The cluster cannot be read; the message is kubectl's last line, and after an arrow what to do, where that is
    known."""


class Cluster:
    """One cluster of a kubeconfig: that of the context, or of the current context if it is None.

    `kubeconfig`: a file instead of the person's own; `stack`: whose cluster it is, for messages. `unread` collects what
    the person may not read, in the API server's words.
    """

    def __init__(self, context: str | None, kubeconfig: Path | None, stack: str) -> None:
        self._options = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
        self._options += [f"--context={context}"] if context else []
        self._stack = stack
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
            raise self._error(errors)
        self.unread += forbidden
        found: Sequence[Object] = json.loads(printed)["items"]
        return found

    def _serves(self, plural: str) -> bool:
        """Whether the server knows the kind's API group."""
        if self._groups is None:
            printed, errors = self._kubectl("get", "--raw", "/apis")
            if not printed:
                raise self._error(errors)
            self._groups = {group["name"] for group in json.loads(printed)["groups"]}
        group = plural.partition(".")[2]
        return not group or group in self._groups

    def _error(self, printed: str) -> ClusterError:
        said = printed.strip().rpartition("\n")[2] or "kubectl printed nothing"
        step = f" -> {KUBECONFIG_STEP.format(stack=self._stack)}" if NO_KUBECONFIG in said else ""
        return ClusterError(f"{said}{step}")

    def _kubectl(self, *arguments: str) -> tuple[str, str]:
        command = ["kubectl", *self._options, f"--request-timeout={SECONDS}s", *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * SECONDS)
        except OSError as error:
            raise ClusterError(f"kubectl cannot be run: {error.strerror}{INSTALL_KUBECTL}") from None
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"kubectl cannot be used: {error}") from None
        return done.stdout, done.stderr if done.returncode else ""
