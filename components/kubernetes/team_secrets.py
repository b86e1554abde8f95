"""Secrets of Secret Manager as environment variables of a team's pods, by GKE's own add-on.

Kinds: secrets-store.csi.x-k8s.io/v1 SecretProviderClass, secret-sync.gke.io/v1 SecretSync. The values never pass
through this program or its state.
"""

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import yaml

from components.kubernetes.cluster_access import ClusterAccess
from plan.platform import Platform
from plan.teams import SECRETS, secret_variables, teams_with_secrets

STORE_API, SYNC_API = "secrets-store.csi.x-k8s.io/v1", "secret-sync.gke.io/v1"


class TeamSecrets(pulumi.ComponentResource):
    """For each team: the account that reads its secrets, what to read, and what makes a Secret named `secrets` of it.

    `grants`: by team, the account's rights. `gate`: retries while GKE installs the add-on.
    """

    TYPE = "tpu:kubernetes:TeamSecrets"

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        access: ClusterAccess,
        namespaces: Mapping[str, Sequence[pulumi.Resource]],
        grants: Mapping[str, Sequence[pulumi.Resource]],
        gate: pulumi.ResourceHookBinding,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._name, self._access, self._gate = name, access, gate
        for team in teams_with_secrets(platform):
            account = self._account(team, namespaces[team])
            source = self._object(STORE_API, "SecretProviderClass", team, _source(platform, team), namespaces[team])
            self._object(SYNC_API, "SecretSync", team, _copy(platform, team), [account, source, *grants[team]])
        self.register_outputs({"teams": list(teams_with_secrets(platform))})

    def _account(self, team: str, depends_on: Sequence[pulumi.Resource]) -> k8s.core.v1.ServiceAccount:
        return k8s.core.v1.ServiceAccount(
            f"{self._name}-{team}",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=SECRETS, namespace=team),
            automount_service_account_token=False,
            opts=self._access.options(self, depends_on=depends_on),
        )

    def _object(
        self, api: str, kind: str, team: str, spec: Mapping[str, Any], depends_on: Sequence[pulumi.Resource]
    ) -> pulumi.CustomResource:
        return pulumi.CustomResource(
            f"kubernetes:{api}:{kind}",
            f"{self._name}-{kind.lower()}-{team}",
            {"apiVersion": api, "kind": kind, "metadata": {"name": SECRETS, "namespace": team}, "spec": spec},
            pulumi.ResourceOptions.merge(
                self._access.options(self, depends_on=depends_on),
                pulumi.ResourceOptions(hooks=self._gate, version=importlib.metadata.version("pulumi-kubernetes")),
            ),
        )


def _source(platform: Platform, team: str) -> dict[str, Any]:
    """Each secret's newest version, under the name of its variable."""
    secrets = [{"resourceName": each.newest, "path": each.variable} for each in secret_variables(platform, team)]
    return {"provider": "gke", "parameters": {"secrets": yaml.safe_dump(secrets, sort_keys=False)}}


def _copy(platform: Platform, team: str) -> dict[str, Any]:
    """A Secret with a key for each variable."""
    variables = [each.variable for each in secret_variables(platform, team)]
    return {
        "serviceAccountName": SECRETS,
        "secretProviderClassName": SECRETS,
        "secretObject": {
            "type": "Opaque",
            "data": [{"sourcePath": variable, "targetKey": variable} for variable in variables],
        },
    }
