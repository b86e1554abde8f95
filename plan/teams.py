"""What follows from teams: who their members are to Kubernetes, their rights there, and their secrets."""

from dataclasses import dataclass
from typing import Literal

from plan.platform import Platform
from platform_config.teams import Team

SECRETS = "secrets"
"""Name of a team's service account that reads secrets, of what it reads, and of the Secret that holds them."""

READ = ("get", "list", "watch")
CHANGE = (*READ, "create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True)
class Right:
    """Verbs on resources of one API group, as in a rule of RBAC."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]


# Neither roles, bindings, tokens and impersonation, which would hand on rights, nor writing workloads of Kueue, which
# would let a job pass its queue. Who deletes a JobSet cancels it.
IN_NAMESPACE = (
    Right("jobset.x-k8s.io", ("jobsets",), CHANGE),
    Right("jobset.x-k8s.io", ("jobsets/status",), ("get",)),
    Right("leaderworkerset.x-k8s.io", ("leaderworkersets",), CHANGE),
    Right("leaderworkerset.x-k8s.io", ("leaderworkersets/scale",), ("get", "update", "patch")),
    Right("leaderworkerset.x-k8s.io", ("leaderworkersets/status",), ("get",)),
    Right("autoscaling", ("horizontalpodautoscalers",), CHANGE),
    Right("autoscaling.gke.io", ("autoscalingmetrics",), CHANGE),
    Right("batch", ("jobs", "cronjobs"), CHANGE),
    Right("batch", ("jobs/status", "cronjobs/status"), ("get",)),
    Right("apps", ("deployments", "statefulsets"), CHANGE),
    Right("apps", ("deployments/scale", "statefulsets/scale"), ("get", "update", "patch")),
    Right("apps", ("deployments/status", "statefulsets/status"), ("get",)),
    Right("apps", ("replicasets", "controllerrevisions"), READ),
    Right("", ("pods", "services", "configmaps", "secrets", "persistentvolumeclaims"), CHANGE),
    Right("", ("pods/log", "pods/status"), ("get", "list", "watch")),
    Right("", ("pods/exec", "pods/attach", "pods/portforward"), ("get", "create")),
    Right("", ("events", "serviceaccounts", "resourcequotas", "limitranges", "endpoints"), READ),
    Right("events.k8s.io", ("events",), READ),
    Right("kueue.x-k8s.io", ("workloads", "workloads/status", "localqueues", "localqueues/status"), READ),
    Right("visibility.kueue.x-k8s.io", ("localqueues", "localqueues/pendingworkloads"), READ),
    Right("autoscaling.x-k8s.io", ("provisioningrequests",), READ),
    Right("resource.k8s.io", ("resourceclaims",), READ),
    Right("resource.k8s.io", ("resourceclaimtemplates",), CHANGE),
    Right("networking.k8s.io", ("networkpolicies", "ingresses"), CHANGE),
    Right("policy", ("poddisruptionbudgets",), CHANGE),
    Right("metrics.k8s.io", ("pods",), ("get", "list")),
)
"""What members of a team may do in its namespace."""

IN_CLUSTER = (
    Right("", ("nodes",), READ),
    Right("resource.k8s.io", ("resourceslices", "deviceclasses"), READ),
    Right(
        "kueue.x-k8s.io",
        ("clusterqueues", "cohorts", "resourceflavors", "topologies", "workloadpriorityclasses"),
        READ,
    ),
    Right("storage.k8s.io", ("storageclasses",), READ),
    Right("scheduling.k8s.io", ("priorityclasses",), READ),
)
"""What members of any team may see of the cluster as a whole."""


@dataclass(frozen=True)
class Member:
    """Somebody in a team. `written`: in IAM's spelling."""

    written: str

    @property
    def kind(self) -> Literal["Group", "User"]:
        """Kind of the subject in RBAC: to Kubernetes a service account of Google is a user too."""
        return "Group" if self.is_group else "User"

    @property
    def is_group(self) -> bool:
        return self.written.startswith("group:")

    @property
    def address(self) -> str:
        """Email address, which is the name in RBAC."""
        return self.written.partition(":")[2]


@dataclass(frozen=True)
class SecretVariable:
    """An environment variable whose value is the newest version of a secret in Secret Manager."""

    variable: str
    project: str
    secret: str

    @property
    def newest(self) -> str:
        """Full name of the newest version."""
        return f"projects/{self.project}/secrets/{self.secret}/versions/latest"


def object_limits(team: Team) -> dict[str, str]:
    """Most objects of a kind in the namespace of a team, as a ResourceQuota counts them.

    Kubernetes counts the node ports of a load balancer too, so a team that may have load balancers has no limit of
    node ports.
    """
    most = str(team.load_balancers)
    limits = {"services.loadbalancers": most, "count/ingresses.networking.k8s.io": most}
    return limits if team.load_balancers else {**limits, "services.nodeports": "0"}


def role_name(platform: Platform) -> str:
    """The ClusterRole of teams in their namespaces."""
    return f"{platform.name}-team"


def viewer_role_name(platform: Platform) -> str:
    """The ClusterRole of teams outside of their namespaces."""
    return f"{platform.name}-team-viewer"


def members(platform: Platform, team: str) -> tuple[Member, ...]:
    """Members of a team, each once."""
    return tuple(Member(written) for written in dict.fromkeys(platform.teams[team].members))


def all_members(platform: Platform) -> tuple[Member, ...]:
    """Members of all teams, each once, sorted."""
    return tuple(
        Member(written) for written in sorted({each for team in platform.teams.values() for each in team.members})
    )


def secret_variables(platform: Platform, team: str) -> tuple[SecretVariable, ...]:
    """Secrets of a team, by variable."""
    return tuple(
        _secret(platform, variable, written) for variable, written in sorted(platform.teams[team].secrets.items())
    )


def _secret(platform: Platform, variable: str, written: str) -> SecretVariable:
    if "/" not in written:
        return SecretVariable(variable, platform.project, written)
    _, project, _, secret = written.split("/")
    return SecretVariable(variable, project, secret)


def teams_with_secrets(platform: Platform) -> tuple[str, ...]:
    """Teams whose pods get secrets."""
    return tuple(name for name in sorted(platform.teams) if platform.teams[name].secrets)
