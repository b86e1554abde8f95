"""Refuses Secrets that hold a token of a service account, in the namespaces of teams with members.

Kubernetes fills in such a token when the Secret is created. It never ends, so it would outlive a membership. Pods get
tokens that end, without a Secret.
"""

from plan.admission_policy import Check, Match, Policy
from plan.platform import Platform
from plan.teams import members

TYPE = "kubernetes.io/service-account-token"


def policy(platform: Platform) -> Policy | None:
    """The policy; None where no team has members. A Secret's type never changes, so its creation is all to check."""
    namespaces = tuple(team for team in sorted(platform.teams) if members(platform, team))
    if not namespaces:
        return None
    return Policy(
        name=f"{platform.name}-account-tokens",
        namespaces=namespaces,
        matches=(Match("", ("secrets",), ("CREATE",)),),
        checks=(
            Check(
                f"object.?type.orValue('') != '{TYPE}'",
                "a token that never ends would outlive a membership in the team: start a pod with the service account,"
                " which gets tokens that end",
            ),
        ),
    )
