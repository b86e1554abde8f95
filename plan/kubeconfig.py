"""Kubeconfigs without a credential: whoever uses one brings their own."""

from collections.abc import Mapping
from typing import Any

EXEC_API = "client.authentication.k8s.io"
GKE_PLUGIN = {
    "apiVersion": f"{EXEC_API}/v1beta1",
    "command": "gke-gcloud-auth-plugin",
    "installHint": "gcloud components install gke-gcloud-auth-plugin",
    "interactiveMode": "IfAvailable",
    "provideClusterInfo": True,
}


def gke_kubeconfig(server: Any, context: str) -> dict[str, Any]:
    """For a GKE DNS endpoint, `server` with https://: Google's public certificate, access by IAM."""
    return kubeconfig(context, {"server": server}, GKE_PLUGIN)


def kubeconfig(context: str, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> dict[str, Any]:
    """One cluster and one user, whose credential a program prints (`user`: an ExecConfig)."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": {"exec": user}}],
    }


def secret_kubeconfig(server: str, ca: str, secret: str, context: str) -> dict[str, Any]:
    """For a cluster without GKE: its short-lived credential is read from Secret Manager, under IAM, when it is used.

    `ca`: its certificate authority in base64; `secret`: projects/P/secrets/S, whose newest version is an
    ExecCredential.
    """
    _, project, _, name = secret.split("/")
    gcloud = {
        "apiVersion": f"{EXEC_API}/v1",
        "command": "gcloud",
        "args": ["secrets", "versions", "access", "latest", f"--secret={name}", f"--project={project}"],
        "installHint": "the gcloud CLI, logged in as somebody who may read the secret",
        "interactiveMode": "Never",
    }
    return kubeconfig(context, {"server": server, "certificate-authority-data": ca}, gcloud)
