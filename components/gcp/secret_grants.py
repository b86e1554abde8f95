"""Lets a team's own service account read the team's secrets. Its pods read nothing in Secret Manager."""

import pulumi
import pulumi_gcp as gcp

from components.gcp.bootstrap_secrets import READER, grant
from components.gcp.pod_identities import PodIdentities
from plan.platform import Platform
from plan.teams import SECRETS, secret_variables, teams_with_secrets


class SecretGrants(pulumi.ComponentResource):
    """One grant for each secret of each team. The secrets and their values are somebody else's."""

    TYPE = "tpu:gcp:SecretGrants"
    by_team: dict[str, list[gcp.secretmanager.SecretIamMember]]

    def __init__(
        self, name: str, *, platform: Platform, pods: PodIdentities, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self.by_team = {}
        for team in teams_with_secrets(platform):
            member = pods.of_account(team, SECRETS)
            secrets = dict.fromkeys((each.project, each.secret) for each in secret_variables(platform, team))
            self.by_team[team] = [
                grant(
                    f"{name}-{team}/{project}/{secret}", project, secret, READER, member, parent=self, after=pods.after
                )
                for project, secret in secrets
            ]
        self.register_outputs({"teams": list(self.by_team)})
