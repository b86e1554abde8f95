"""The platform's admission policies on a real API server: what they refuse, and what they let through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from plan import pod_security
from plan.admission_policy import Policy
from plan.workloads.job import Job
from plan.workloads.jobset import jobset
from plan.workloads.server import Server, inference_server
from sandbox.kubernetes.api import ApiClient, ApiError, Object
from tests.platforms import load
from tests.sandbox.admission import bare_cluster, install, within

pytestmark = pytest.mark.sandbox

SERVE = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "devices": "dra"}
# Namespaces: under the platform's policy, under Kubernetes' own baseline, and of nobody.
OURS, KUBERNETES_OWN, FREE = "tpu-workloads", "baseline", "free"
PLATFORM = load({"serve": SERVE})
PATIENCE = 120.0


@pytest.fixture(scope="module")
def client() -> Iterator[ApiClient]:
    """A cluster with the three namespaces and the policy for pods with TPU claims in force."""
    with bare_cluster() as cluster:
        found = cluster.plane.client
        labels = {KUBERNETES_OWN: {"pod-security.kubernetes.io/enforce": "baseline"}}
        for name in (OURS, KUBERNETES_OWN, FREE):
            metadata = {"name": name, "labels": labels.get(name, {})}
            found.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        policy = pod_security.policy(PLATFORM)
        assert isinstance(policy, Policy)
        install(found, policy)
        for name in (OURS, KUBERNETES_OWN, FREE):
            within(PATIENCE, lambda name=name: not refused(found, pod(), name))  # type: ignore[misc]
        # Without the account that every pod needs, pods of any kind are refused at first.
        for name in (OURS, KUBERNETES_OWN):
            within(PATIENCE, lambda name=name: refused(found, pod({"hostNetwork": True}), name))  # type: ignore[misc]
        yield found


def pod(
    spec: dict[str, Any] | None = None,
    container: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
) -> Object:
    own = {"name": "c", "image": "registry.k8s.io/pause:3.10", **(container or {})}
    metadata = {"name": "probe", "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [own], **(spec or {})}}


def context(**fields: Any) -> dict[str, Any]:
    return {"securityContext": fields}


def init(container: dict[str, Any]) -> dict[str, Any]:
    return {"initContainers": [{"name": "i", "image": "registry.k8s.io/pause:3.10", **container}]}


def get_from(host: str) -> dict[str, Any]:
    return {"httpGet": {"port": 80, "host": host}}


APPARMOR = "container.apparmor.security.beta.kubernetes.io/c"
WINDOWS: dict[str, Any] = {"windowsOptions": {"hostProcess": True, "runAsUserName": "x"}}
PODS: dict[str, Object] = {
    "plain": pod(),
    "hostNetwork": pod({"hostNetwork": True}),
    "hostPID": pod({"hostPID": True}),
    "hostIPC": pod({"hostIPC": True}),
    "privileged": pod(container=context(privileged=True)),
    "privileged, first": pod(init(context(privileged=True))),
    "privileged: false": pod(container=context(privileged=False)),
    "a default capability": pod(container=context(capabilities={"add": ["CHOWN"]})),
    "all capabilities": pod(container=context(capabilities={"add": ["ALL"]})),
    "SYS_ADMIN": pod(container=context(capabilities={"add": ["SYS_ADMIN"]})),
    "SYS_ADMIN, first": pod(init(context(capabilities={"add": ["SYS_ADMIN"]}))),
    "NET_RAW dropped": pod(container=context(capabilities={"drop": ["NET_RAW"]})),
    "hostPath": pod({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
    "emptyDir": pod({"volumes": [{"name": "v", "emptyDir": {}}]}),
    "hostPort": pod(container={"ports": [{"containerPort": 80, "hostPort": 8080}]}),
    "containerPort": pod(container={"ports": [{"containerPort": 80}]}),
    "probe of another host": pod(container={"livenessProbe": get_from("10.0.0.1")}),
    "probe over TCP": pod(container={"readinessProbe": {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}}),
    "hook to another host": pod(container={"lifecycle": {"postStart": get_from("10.0.0.1")}}),
    "probe of itself": pod(container={"livenessProbe": {"httpGet": {"port": 80}}}),
    "AppArmor off": pod(context(appArmorProfile={"type": "Unconfined"})),
    "AppArmor off in a container": pod(container=context(appArmorProfile={"type": "Unconfined"})),
    "AppArmor default": pod(context(appArmorProfile={"type": "RuntimeDefault"})),
    "AppArmor off, annotation": pod(annotations={APPARMOR: "unconfined"}),
    "SELinux type": pod(context(seLinuxOptions={"type": "spc_t"})),
    "SELinux container type": pod(context(seLinuxOptions={"type": "container_init_t"})),
    "SELinux user": pod(container=context(seLinuxOptions={"user": "system_u"})),
    "SELinux role": pod(container=context(seLinuxOptions={"role": "system_r"})),
    "SELinux level": pod(container=context(seLinuxOptions={"level": "s0:c1,c2"})),
    "procMount": pod({"hostUsers": False}, context(procMount="Unmasked")),
    "procMount default": pod(container=context(procMount="Default")),
    "seccomp off": pod(context(seccompProfile={"type": "Unconfined"})),
    "seccomp off in a container": pod(container=context(seccompProfile={"type": "Unconfined"})),
    "seccomp default": pod(context(seccompProfile={"type": "RuntimeDefault"})),
    "unsafe sysctl": pod(context(sysctls=[{"name": "kernel.msgmax", "value": "1"}])),
    "safe sysctl": pod(context(sysctls=[{"name": "net.ipv4.tcp_syncookies", "value": "1"}])),
    "hostProcess": pod({"hostNetwork": True, **context(**WINDOWS)}),
}


def refused(client: ApiClient, pod: Object, namespace: str) -> str:
    """Why the server does not take the pod, in a dry run; "" where it does."""
    wanted = {**pod, "metadata": {**pod["metadata"], "namespace": namespace}}
    try:
        client.create(wanted, dry_run=True)
    except ApiError as error:
        return error.message
    return ""


@pytest.mark.parametrize("name", PODS)
def test_the_policy_refuses_what_baseline_refuses_and_nothing_more(client: ApiClient, name: str) -> None:
    """H3: one slice with DRA switched Pod Security off in every namespace. Kubernetes' own enforcement is the judge."""
    assert not refused(client, PODS[name], FREE), "the pod is not even valid"
    judge, ours = (refused(client, PODS[name], namespace) for namespace in (KUBERNETES_OWN, OURS))
    assert bool(ours) == bool(judge), (ours, judge)


def test_pods_may_add_what_the_tpu_runtime_needs(client: ApiClient) -> None:
    needs = pod(container=context(capabilities={"add": ["IPC_LOCK", "SYS_RESOURCE"]}))
    assert "IPC_LOCK" in refused(client, needs, KUBERNETES_OWN)
    assert not refused(client, needs, OURS)
    more = pod(container=context(capabilities={"add": ["IPC_LOCK", "NET_ADMIN"]}))
    assert "IPC_LOCK and SYS_RESOURCE for TPUs" in refused(client, more, OURS)


def test_the_generated_workloads_are_accepted(client: ApiClient) -> None:
    (plan,) = PLATFORM.slice_plans
    job = jobset(PLATFORM, plan, Job("train", OURS, 1))
    of_job = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    server, _ = inference_server(PLATFORM, plan, Server(Job("serve", OURS, 1), "m"))
    of_server = server["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    for spec in (of_job, of_server):
        assert spec["containers"][0]["securityContext"]["capabilities"]["add"] == ["IPC_LOCK", "SYS_RESOURCE"]
        assert not refused(client, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}, OURS)


def test_a_debugging_container_is_held_to_the_same(client: ApiClient) -> None:
    metadata = {"name": "debugged", "namespace": OURS}
    made = client.create({**pod(), "metadata": metadata})
    del made["metadata"]["resourceVersion"]  # others write to the pod meanwhile
    path = client.path("v1", "Pod", "debugged", OURS) + "/ephemeralcontainers"
    debugger = {"name": "d", "image": "registry.k8s.io/pause:3.10"}
    bad = {**made, "spec": {**made["spec"], "ephemeralContainers": [{**debugger, **context(privileged=True)}]}}
    with pytest.raises(ApiError, match="privileged must not be true"):
        client.request("PUT", path, bad)
    good = {**made, "spec": {**made["spec"], "ephemeralContainers": [debugger]}}
    assert client.request("PUT", path, good)["spec"]["ephemeralContainers"][0]["name"] == "d"
