"""What makes pods of a self-managed cluster known to Google Cloud: a pool of identities with the cluster's own keys."""

import secrets
from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from components.gcp.pod_identities import PodIdentities, project_number
from components.known_output import unknown_if_absent
from plan.federation import ISSUER, MAPPING, PROVIDER, token_audience
from plan.platform import Platform


class IdentityPool(pulumi.ComponentResource):
    """A workload identity pool, and the cluster as its provider. Google verifies pods' tokens with the cluster's public
    keys, so that it need not reach the cluster.

    Google keeps the id of a deleted pool for 30 days. So each pool has a random one, which the state remembers.
    """

    TYPE = "tpu:gcp:IdentityPool"
    pods: PodIdentities
    audience: pulumi.Output[str]
    """Full name of the provider, for Google's token service."""

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        keys: pulumi.Output[str],
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`keys`: the cluster's public keys as a JSON Web Key Set. `after`: the project's APIs."""
        super().__init__(self.TYPE, name, None, opts)
        chosen = pulumi.Stash(
            f"{name}-id",
            input=secrets.token_hex(4),
            # Chosen once: every run of the program would choose another one.
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=["input"]),
        )
        pool = gcp.iam.WorkloadIdentityPool(
            f"{name}-pool",
            project=platform.project,
            # The random part first: Google refuses ids that begin with gcp-, which a platform's name may.
            workload_identity_pool_id=pulumi.Output.concat(unknown_if_absent(chosen.output), f"-{platform.name}"),
            display_name=platform.name,
            description=f"Pods of the cluster of TPU platform {platform.name}",
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(after), delete_before_replace=True),
        )
        provider = gcp.iam.WorkloadIdentityPoolProvider(
            f"{name}-provider",
            project=platform.project,
            workload_identity_pool_id=pool.workload_identity_pool_id,
            workload_identity_pool_provider_id=PROVIDER,
            display_name=platform.name,  # at most 32 characters
            attribute_mapping=dict(MAPPING),
            oidc=gcp.iam.WorkloadIdentityPoolProviderOidcArgs(
                issuer_uri=ISSUER, jwks_json=keys, allowed_audiences=[token_audience(platform)]
            ),
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
        number = project_number(platform, after)
        path = pulumi.Output.concat(
            "projects/", number, "/locations/global/workloadIdentityPools/", pool.workload_identity_pool_id
        )
        self.pods = PodIdentities(path, "attribute.namespace", [provider])
        self.audience = pulumi.Output.concat("//iam.googleapis.com/", path, f"/providers/{PROVIDER}")
        self.register_outputs({"audience": self.audience})
