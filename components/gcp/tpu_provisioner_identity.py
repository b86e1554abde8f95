"""What TPU Provisioner is in Google Cloud: an account that may manage node pools, and nothing else."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from components.known_output import unknown_if_absent
from plan.platform import Platform
from plan.tpu_provisioner import NAME, NAMESPACE, PERMISSIONS

ACT_AS = "roles/iam.serviceAccountUser"
WORKLOAD_IDENTITY = "roles/iam.workloadIdentityUser"


class TpuProvisionerIdentity(pulumi.ComponentResource):
    """A service account with a custom role of three permissions, which one Kubernetes ServiceAccount may use.

    GKE asks for no narrower permission to create a node pool than that to update the cluster.
    """

    TYPE = "tpu:gcp:TpuProvisionerIdentity"
    email: pulumi.Output[str]
    node_email: pulumi.Input[str]
    ready: list[pulumi.Resource]
    """The bindings: without them the controller ends with its first call."""

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        node_email: pulumi.Input[str],
        cluster: pulumi.Resource | None,
        before_delete: pulumi.ResourceHook,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        given = platform.job_plans[0].spec.service_account
        self.node_email = given or node_email
        account = self._account(f"{name}-account", platform, after)
        self.email = unknown_if_absent(account.email)
        member = unknown_if_absent(account.member)
        self.ready = [
            self._pools(name, platform, account),
            self._member(f"{name}-act-as", _resource_name(platform, given, node_email), ACT_AS, member),
            self._member(
                f"{name}-pods",
                unknown_if_absent(account.name),
                WORKLOAD_IDENTITY,
                f"serviceAccount:{platform.identity_pool}[{NAMESPACE}/{NAME}]",
                # The project has this pool of identities once it has a cluster that uses it. So this also goes before
                # the cluster, whether the controller is taken out or everything is destroyed.
                depends_on=[cluster] if cluster else [],
                hooks=pulumi.ResourceHookBinding(before_delete=[before_delete]),
            ),
        ]
        self.register_outputs({"email": self.email})

    def _account(self, name: str, platform: Platform, after: Sequence[pulumi.Resource]) -> gcp.serviceaccount.Account:
        return gcp.serviceaccount.Account(
            name,
            project=platform.project,
            account_id=f"{platform.name}-pools",
            display_name=f"TPU Provisioner of TPU platform {platform.name}",
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)),
        )

    def _pools(self, name: str, platform: Platform, account: gcp.serviceaccount.Account) -> gcp.projects.IAMMember:
        """A role in the project: IAM has no policy of a cluster."""
        role = gcp.projects.IAMCustomRole(
            f"{name}-role",
            project=platform.project,
            # A deleted role's id cannot be used again for weeks. Each new account has another unique id.
            role_id=pulumi.Output.concat("tpuProvisioner.", unknown_if_absent(account.unique_id)),
            title=f"TPU Provisioner of {platform.name}",
            description="Creates and deletes node pools for JobSets.",
            permissions=list(PERMISSIONS),
            opts=pulumi.ResourceOptions(parent=self),
        )
        return gcp.projects.IAMMember(
            f"{name}-manage-pools",
            project=platform.project,
            role=unknown_if_absent(role.name),
            member=unknown_if_absent(account.member),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _member(
        self,
        name: str,
        account: pulumi.Input[str],
        role: str,
        member: pulumi.Input[str],
        depends_on: Sequence[pulumi.Resource] = (),
        hooks: pulumi.ResourceHookBinding | None = None,
    ) -> gcp.serviceaccount.IAMMember:
        return gcp.serviceaccount.IAMMember(
            name,
            service_account_id=account,
            role=role,
            member=member,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(depends_on), hooks=hooks),
        )


def _resource_name(platform: Platform, given: str | None, node_email: pulumi.Input[str]) -> pulumi.Input[str]:
    """Full name of the hosts' account. An address is enough for IAM, which then takes `-` for the project."""
    if given:
        return f"projects/-/serviceAccounts/{given}"
    return pulumi.Output.concat(f"projects/{platform.project}/serviceAccounts/", node_email)
