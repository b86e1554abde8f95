"""What members of a team, its pods and its account of secrets may do, on a platform that the real engine made.

Each action is tried: on the real API server with the rights that the program made, as a person of the team
(impersonated), and on the emulated Google Cloud with that person's or a pod's own token. And each new call is refused
for a while, until an update makes it good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest

from sandbox.google.backend import ClusterRef
from sandbox.google.callers import PERSON_TOKEN, WORKLOAD_TOKEN, workload_caller
from sandbox.kubernetes.api import ApiClient, ApiError, is_true
from sandbox.session import Session
from sandbox.workload import manifest
from tests.sandbox.conftest import Project, link_checkout
from tests.sandbox.workloads import eventually

PROJECT, STACK, PLACE = "my-project", "team", "us-east5"
MINE, OTHERS = "research", "product"
EVA = ("eva@example.com", ("research@example.com",))
OWN_BUCKET, READ_BUCKET, OTHER_BUCKET = (
    "my-project_tpu-team_research_checkpoints",
    "acme-c4",
    "my-project_tpu-team_product_models",
)
JOBSET, KUEUE = "jobset.x-k8s.io/v1alpha2", "kueue.x-k8s.io/v1beta2"
Json = dict[str, Any]


@dataclass(frozen=True)
class Standing:
    """The stack that is up, and its cluster as an administrator and as a person of the team see it."""

    project: Project
    admin: ApiClient
    eva: ApiClient

    @property
    def cluster(self) -> ClusterRef:
        [path] = self.project.session.inventory()["container.clusters"]
        return ClusterRef(PROJECT, PLACE, path)

    def google(self, caller: str, method: str, path: str, **more: Any) -> int:
        """The status that Google's API gives to a caller: "eva", "pod" of the team, or the account of its secrets."""
        url = f"{self.project.session.emulator_url}{path}"
        headers = {"Authorization": f"Bearer {self._token(caller)}"}
        return httpx.request(method, url, headers=headers, timeout=30, trust_env=False, **more).status_code

    def _token(self, caller: str) -> str:
        if caller == "eva":
            return f"{PERSON_TOKEN}user:{EVA[0]},group:{EVA[1][0]}"
        if caller == "stranger":
            return f"{PERSON_TOKEN}user:mallory@example.com"
        name = {"pod": "default", "secrets": "secrets"}[caller]
        return WORKLOAD_TOKEN + workload_caller(PROJECT, self.cluster.path, f"{PROJECT}.svc.id.goog", MINE, name)


@pytest.fixture(scope="module")
def standing(sandbox_session: Session, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    folder = link_checkout(tmp_path_factory.mktemp("teams") / "project")
    made = Project(replace(sandbox_session, program_dir=folder))
    made.start_over()
    made.copy_stack(STACK)
    made.up(STACK)
    client = made.cluster_client()
    assert client
    with client, client.impersonate(EVA[0], (*EVA[1], "system:authenticated"), {}) as eva:
        eventually("quotas in force", lambda: all("hard" in each.get("status", {}) for each in quotas(client)))
        yield Standing(made, client, eva)
    made.start_over()


def quotas(client: ApiClient) -> list[Json]:
    """A quota is in force once a controller has written its status."""
    found: list[Json] = client.list_all("v1", "ResourceQuota", MINE)
    assert found
    return found


# What a member tries. Kubernetes: verb, API, kind, namespace, and the subresource where it is about one.


@dataclass(frozen=True)
class Try:
    """One action, and whether it is allowed. `api` "" with a `kind` of Google: a call of `kind` at `namespace`."""

    allowed: bool
    verb: str
    api: str
    kind: str
    namespace: str = MINE
    subresource: str = ""
    body: Json = field(default_factory=dict)

    def __str__(self) -> str:
        verdict = "may" if self.allowed else "may not"
        return f"{verdict} {self.verb} {self.kind}{self.subresource} in {self.namespace or 'the cluster'}"


CONTAINER = {"name": "c", "image": "sandbox/python:1"}
POD = {"spec": {"containers": [CONTAINER]}}
JOB = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}}}
SETS = {"spec": {"replicatedJobs": [{"name": "a", "template": JOB}]}}
RULES = {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
RBAC = "rbac.authorization.k8s.io/v1"
BINDING = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}
SERVICE = {"spec": {"ports": [{"port": 80}]}}
BALANCED = {"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}
WITH_NODE_PORT = {"spec": {"type": "NodePort", "ports": [{"port": 80}]}}
INGRESS = {"spec": {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}}
CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
POLICY = {"spec": {"podSelector": {}}}
DEPLOYMENT = {
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}},
    }
}
ACCOUNT_TOKEN = {
    "type": "kubernetes.io/service-account-token",
    "metadata": {"annotations": {"kubernetes.io/service-account.name": "default"}},
}
YES, NO = True, False
KUBERNETES = [
    Try(YES, "create", JOBSET, "JobSet", body=SETS),
    Try(YES, "list", JOBSET, "JobSet"),
    Try(YES, "delete", JOBSET, "JobSet"),
    Try(YES, "create", "batch/v1", "Job", body=JOB),
    Try(YES, "create", "apps/v1", "Deployment", body=DEPLOYMENT),
    Try(YES, "create", "v1", "Pod", body=POD),
    Try(YES, "list", "v1", "Pod"),
    Try(YES, "list", "v1", "Event"),
    Try(YES, "create", "v1", "ConfigMap"),
    Try(YES, "create", "v1", "Secret"),
    Try(YES, "create", "v1", "Service", body=SERVICE),
    Try(YES, "create", "v1", "PersistentVolumeClaim", body=CLAIM),
    Try(YES, "create", "networking.k8s.io/v1", "NetworkPolicy", body=POLICY),
    Try(YES, "list", KUEUE, "Workload"),
    Try(YES, "list", KUEUE, "LocalQueue"),
    Try(YES, "list", KUEUE, "ClusterQueue", ""),
    Try(YES, "list", "v1", "Node", ""),
    Try(YES, "list", "v1", "ServiceAccount"),
    Try(NO, "create", "v1", "Service", body=BALANCED),
    Try(NO, "create", "v1", "Service", body=WITH_NODE_PORT),
    Try(NO, "create", "networking.k8s.io/v1", "Ingress", body=INGRESS),
    Try(NO, "delete", "v1", "ResourceQuota"),
    Try(NO, "create", KUEUE, "Workload", body={"spec": {"podSets": []}}),
    Try(NO, "delete", KUEUE, "LocalQueue"),
    Try(NO, "create", KUEUE, "ClusterQueue", "", body={"spec": {}}),
    Try(NO, "delete", KUEUE, "ClusterQueue", ""),
    Try(NO, "create", RBAC, "Role", body=RULES),
    Try(NO, "create", RBAC, "RoleBinding", body=BINDING),
    Try(NO, "create", RBAC, "ClusterRoleBinding", "", body=BINDING),
    Try(NO, "create", "v1", "Namespace", ""),
    Try(NO, "delete", "v1", "Namespace", ""),
    Try(NO, "create", "v1", "ServiceAccount"),
    Try(NO, "create", "v1", "ServiceAccount", subresource="/token"),
    Try(NO, "create", "v1", "Secret", body=ACCOUNT_TOKEN),
    Try(NO, "delete", "v1", "Node", ""),
    Try(NO, "create", "v1", "PersistentVolume", "", body={"spec": {}}),
    Try(NO, "list", "v1", "Secret", "kube-system"),
    Try(NO, "list", "v1", "Secret", ""),
    Try(NO, "list", "v1", "Pod", ""),
    Try(NO, "create", JOBSET, "JobSet", OTHERS, body=SETS),
    Try(NO, "list", JOBSET, "JobSet", OTHERS),
    Try(NO, "create", "v1", "Pod", OTHERS, body=POD),
    Try(NO, "list", "v1", "Pod", OTHERS),
    Try(NO, "list", "v1", "Secret", OTHERS),
    Try(NO, "list", KUEUE, "Workload", OTHERS),
    Try(NO, "delete", "v1", "ConfigMap", OTHERS),
    Try(NO, "create", "networking.k8s.io/v1", "NetworkPolicy", OTHERS, body=POLICY),
]


@pytest.mark.parametrize("case", KUBERNETES, ids=str)
def test_what_a_member_may_do_in_the_cluster(standing: Standing, case: Try) -> None:
    """Writes are a dry run: the API server decides as it would otherwise, and stores nothing."""
    assert (status_of(standing, case) != 403) == case.allowed


def status_of(standing: Standing, case: Try) -> int:
    """What the API server answers. Something invalid, or nothing there, is no refusal."""
    eva, admin = standing.eva, standing.admin
    name = "tried" if case.verb == "create" else "none"
    method = {"create": "POST", "list": "GET", "delete": "DELETE"}[case.verb]
    if case.subresource:
        path = f"{admin.path(case.api, case.kind, 'default', case.namespace)}{case.subresource}"
        body: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    else:
        path = admin.path(case.api, case.kind, name if case.verb == "delete" else "", case.namespace)
        metadata: Json = {"name": name, **({"namespace": case.namespace} if case.namespace else {})}
        metadata |= case.body.get("metadata", {})
        body = {"apiVersion": case.api, "kind": case.kind, **case.body, "metadata": metadata}
    try:
        eva.request(method, path, body if method == "POST" else None, **({} if method == "GET" else {"dryRun": "All"}))
    except ApiError as error:
        return error.status
    return 200


OBJECT = "/upload/storage/v1/b/{}/o?uploadType=media&name=tried"
SECRET = f"/sm/v1/projects/{PROJECT}/secrets/hf-token"
REPOSITORY = f"/ar/v1/projects/{PROJECT}/locations/{PLACE}/repositories/tpu-team-ml"
CLUSTERS = f"/container/v1/projects/{PROJECT}/locations/{PLACE}/clusters"
GOOGLE: list[tuple[bool, str, str, str]] = [
    (YES, "pod", "POST", OBJECT.format(OWN_BUCKET)),
    (YES, "pod", "GET", f"/storage/v1/b/{OWN_BUCKET}"),
    (YES, "pod", "GET", f"/storage/v1/b/{OWN_BUCKET}/o"),
    (YES, "pod", "GET", f"/storage/v1/b/{READ_BUCKET}/o"),
    (YES, "pod", "GET", f"/storage/v1/b/{READ_BUCKET}"),
    (NO, "pod", "POST", OBJECT.format(READ_BUCKET)),
    (NO, "pod", "GET", f"/storage/v1/b/{OTHER_BUCKET}/o"),
    (NO, "pod", "GET", f"/storage/v1/b/{OTHER_BUCKET}"),
    (NO, "pod", "POST", OBJECT.format(OTHER_BUCKET)),
    (NO, "pod", "DELETE", f"/storage/v1/b/{OWN_BUCKET}"),
    (NO, "pod", "GET", f"{SECRET}/versions/latest:access"),
    (YES, "secrets", "GET", f"{SECRET}/versions/latest:access"),
    (NO, "secrets", "POST", f"{SECRET}:addVersion"),
    (YES, "eva", "GET", f"/storage/v1/b/{OWN_BUCKET}/o"),
    (YES, "eva", "POST", OBJECT.format(OWN_BUCKET)),
    (NO, "eva", "GET", f"/storage/v1/b/{OTHER_BUCKET}/o"),
    (NO, "eva", "DELETE", f"/storage/v1/b/{OWN_BUCKET}"),
    (YES, "eva", "GET", REPOSITORY),
    (NO, "eva", "DELETE", REPOSITORY),
    (YES, "eva", "GET", CLUSTERS),
    (NO, "eva", "DELETE", f"{CLUSTERS}/tpu-team"),
    (NO, "eva", "GET", f"{SECRET}/versions/latest:access"),
    (NO, "stranger", "GET", f"/storage/v1/b/{OWN_BUCKET}/o"),
    (NO, "stranger", "GET", CLUSTERS),
]


@pytest.mark.parametrize("case", GOOGLE, ids=lambda case: " ".join(map(str, case[1:])))
def test_what_a_team_may_do_at_google(standing: Standing, case: tuple[bool, str, str, str]) -> None:
    allowed, caller, method, path = case
    body: Json = {"content": b"x"} if "/upload/" in path else {"json": {}} if method == "POST" else {}
    assert (standing.google(caller, method, path, **body) != 403) == allowed


def test_the_tables_have_forty_actions() -> None:
    tried = [case.allowed for case in KUBERNETES] + [case[0] for case in GOOGLE]
    assert len(tried) >= 40
    assert min(tried.count(True), tried.count(False)) >= 20


def test_a_second_preview_finds_nothing_to_change(standing: Standing) -> None:
    standing.project.assert_clean(STACK)


def test_the_teams_secret_is_there(standing: Standing) -> None:
    eventually("the Secret", lambda: standing.eva.get("v1", "Secret", "secrets", MINE))


def test_a_member_submits_a_job_that_mounts_the_buckets(standing: Standing) -> None:
    tool = ("-m", "tools", "workload", "train", "train", "--queue", MINE, "-f", f"Pulumi.{STACK}.yaml")
    wanted = manifest(tool, standing.project.folder, 1)
    job = standing.eva.create(wanted)
    metadata = job["metadata"]

    def finished() -> bool:
        found = standing.eva.get(job["apiVersion"], job["kind"], metadata["name"], metadata["namespace"])
        return is_true(found or {}, "Completed")

    eventually("it has run", finished)
    standing.eva.delete(job)


# Faults at each new call: what Google refuses for a while is made good by the next update.

CALLS = {
    "a bucket": {"method": "POST", "path": "/storage/v1/b$"},
    "rights on a bucket": {"method": "PUT", "path": "/storage/v1/b/.*/iam"},
    "a repository": {"method": "POST", "path": "/repositories$"},
    "rights on a repository": {"method": "POST", "path": "/repositories/.*:setIamPolicy"},
    "rights on a secret": {"method": "POST", "path": "/secrets/.*:setIamPolicy"},
    "members of the project": {"method": "POST", "path": "/crm/v1/projects/[^/]*:setIamPolicy"},
    "the project's number": {"method": "GET", "path": "/billingInfo"},
}


def test_faults_at_each_new_call_are_made_good_by_the_next_update(standing: Standing) -> None:
    project = standing.project
    project.start_over()
    project.write_stack(
        "faulty",
        zone=f"{PLACE}-b",
        queues={},
        slices={"serve": {"machine_type": "ct6e-standard-1t", "topology": "1x1", "capacity": "spot"}},
        teams={
            MINE: {
                "members": ["user:eva@example.com"],
                "storage": {"scratch": {"keep": False, "mount": "/scratch"}},
                "secrets": {"HF_TOKEN": "hf-token"},
            }
        },
        images={"ml": {}},
    )
    for request in CALLS.values():
        project.inject(kind="status", status=429, times=2, **request)
        project.inject(kind="status", status=503, times=2, **request)
        project.inject(kind="status", status=403, times=1, **request)
    ends = []
    while len(ends) <= len(CALLS) and 0 not in ends:
        ends.append(project.session.pulumi("up", "-s", "faulty", "--yes", "--skip-preview").returncode)
    assert ends[0] != 0, "a refusal ends an update"
    assert ends[-1] == 0, ends
    assert not project.pending_faults(), "every fault has struck"
    project.assert_clean("faulty")
    project.destroy("faulty")
