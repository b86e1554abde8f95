"""Pods as the stand-ins for programs in them need them: which ones run, and with whose rights they act."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox.kubernetes.api import ApiClient, Object


def running(pods: Iterable[Object]) -> list[Object]:
    """Those of the pods whose programs run."""
    present = (each for each in pods if "deletionTimestamp" not in each["metadata"])
    return [each for each in present if each["status"].get("phase") == "Running"]


def as_pod(client: ApiClient, pod: Object) -> ApiClient:
    """A client with the identity of the pod's service account, bound to its node: RBAC and admission rules apply."""
    namespace, account = pod["metadata"]["namespace"], pod["spec"].get("serviceAccountName", "default")
    user = f"system:serviceaccount:{namespace}:{account}"
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    node = {"authentication.kubernetes.io/node-name": pod["spec"]["nodeName"]}
    return client.impersonate(user, groups, node)


def of_daemon_set(pod: Object, name: str) -> bool:
    """Whether the DaemonSet of that name made the pod."""
    owners = pod["metadata"].get("ownerReferences", [])
    return any(owner["kind"] == "DaemonSet" and owner["name"] == name for owner in owners)
