"""What a MultiKueue manager may do on a worker, asked of a real API server with the manager's own token."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sandbox.kubernetes.api import ApiClient, ApiError, Object
from sandbox.kubernetes.assets import program
from sandbox.kubernetes.gke import GkeCluster
from tests.graph.recording import GraphMonitor
from tests.graph.test_multikueue import WORKER, recorded
from tests.sandbox.admission import apply_recorded, bare_cluster, within

pytestmark = pytest.mark.sandbox

SYSTEM, TEAM, OTHER = "kueue-system", "team", "default"
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "RoleBinding")
JOBS, WORKLOADS, JOBSETS = "jobs.batch", "workloads.kueue.x-k8s.io", "jobsets.jobset.x-k8s.io"

# Verb, resource and namespace ("" for all), and whether the manager may.
QUESTIONS = [
    ("watch", WORKLOADS, "", True),
    ("list", WORKLOADS, "", True),
    ("watch", JOBS, "", True),
    ("watch", JOBSETS, "", True),
    ("create", WORKLOADS, TEAM, True),
    ("delete", WORKLOADS, TEAM, True),
    ("create", JOBS, TEAM, True),
    ("patch", JOBS, TEAM, True),
    ("create", JOBSETS, TEAM, True),
    ("delete", JOBSETS, TEAM, True),
    ("create", JOBS, "kube-system", False),
    ("create", JOBS, OTHER, False),
    ("create", JOBS, SYSTEM, False),
    ("delete", JOBS, "", False),
    ("create", JOBSETS, "kube-system", False),
    ("create", WORKLOADS, OTHER, False),
    ("update", WORKLOADS, "", False),
    ("get", JOBS, OTHER, False),
    ("get", "secrets", TEAM, False),
    ("list", "secrets", SYSTEM, False),
    ("create", "pods", TEAM, False),
    ("create", "pods/exec", TEAM, False),
    ("get", "nodes", "", False),
    ("create", "serviceaccounts/token", SYSTEM, False),
    ("create", "rolebindings.rbac.authorization.k8s.io", TEAM, False),
    ("bind", "clusterroles.rbac.authorization.k8s.io", "", False),
    ("*", "*", "", False),
]


@dataclass(frozen=True)
class Worker:
    """A worker's cluster with what its stack puts there for the manager."""

    cluster: GkeCluster
    graph: GraphMonitor

    @property
    def client(self) -> ApiClient:
        return self.cluster.plane.client

    def token(self, secret: str) -> str:
        """The token that the cluster puts into a Secret of the worker's stack."""
        found = within(
            120, lambda: (self.client.get("v1", "Secret", secret, SYSTEM) or {}).get("data", {}).get("token")
        )
        return base64.b64decode(found).decode()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with bare_cluster() as cluster, pytest.MonkeyPatch.context() as monkeypatch:
        graph = recorded(monkeypatch, WORKER)
        made = Worker(cluster, graph)
        for name in (SYSTEM, TEAM):
            made.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for resource, kind in ((WORKLOADS, "Workload"), (JOBSETS, "JobSet")):
            made.client.apply(definition(resource, kind))
        apply_recorded(made.client, graph, *RIGHTS, named="multikueue")
        apply_recorded(made.client, graph, "Secret", named="multikueue-token")
        yield made


def definition(resource: str, kind: str) -> Object:
    """As much of a CRD as kubectl needs to know the resource's group."""
    plural, _, group = resource.partition(".")
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": plural, "singular": plural[:-1], "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource, "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def may(worker: Worker, token: str, verb: str, resource: str, namespace: str) -> bool:
    """What `kubectl auth can-i` says."""
    where = ["--namespace", namespace] if namespace else ["--all-namespaces"]
    server = [f"--server=https://{worker.cluster.plane.endpoint}", f"--token={token}"]
    trust = [f"--certificate-authority={worker.cluster.plane.authority.pair.certificate}", "--kubeconfig=/dev/null"]
    command = [str(program("kubectl")), *server, *trust, "auth", "can-i", verb, resource, *where]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    said = answer.stdout.strip()
    assert said in ("yes", "no"), answer.stderr
    return said == "yes"


def test_the_managers_token_may_do_what_kueue_does_and_no_more(worker: Worker) -> None:
    """H7: the token wrote Jobs in every namespace, and so was a cluster administrator's."""
    token = worker.token("multikueue-manager-token")
    found = {question: may(worker, token, *question) for question in (each[:3] for each in QUESTIONS)}
    assert found == {each[:3]: each[3] for each in QUESTIONS}


def test_another_name_ends_the_old_token(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Secret of another name holds another token, and the old one ends with its Secret."""
    old = worker.token("multikueue-manager-token")
    renamed = recorded(monkeypatch, WORKER | {"multikueue": {"role": "worker", "token": "second"}})
    apply_recorded(worker.client, renamed, "Secret", named="multikueue-token")
    new = worker.token("multikueue-manager-second")
    assert new != old
    worker.client.delete(_secret("multikueue-manager-token"))
    within(120, lambda: not _is_accepted(worker, old))
    assert _is_accepted(worker, new)


def _secret(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": SYSTEM}}


def _is_accepted(worker: Worker, token: str) -> bool:
    plane = worker.cluster.plane
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    try:
        answer = plane.client.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    except ApiError as error:
        pytest.fail(error.message)
    return bool(answer["status"].get("authenticated"))
