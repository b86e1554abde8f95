"""Which IAM permissions the engine needs for a resource of each type. A new type is one row.

Sources: the "Required permissions" of each method in Google's API references (Compute Engine, Kubernetes Engine,
Resource Manager, Service Usage, IAM, Secret Manager, Cloud KMS, Cloud Storage, Cloud Billing), Kubernetes Engine's
table of API permissions, and the calls that the gcp provider makes (recorded from the real plugin for GKE, read from
its sources for the rest). Permissions of objects inside a cluster follow Kubernetes Engine's names for Kubernetes
resources; objects of kinds that have no name of their own there go under `thirdPartyObjects`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

READ, CREATE, UPDATE, DELETE = "read", "create", "update", "delete"
VERBS = (READ, CREATE, UPDATE, DELETE)


@dataclass(frozen=True)
class Row:
    """Permissions to read (and so to refresh), create, update and delete one type; `having` are those that creating
    and updating need where an input is set: property path -> permissions, lists on the way taken whole."""

    read: tuple[str, ...] = ()
    create: tuple[str, ...] = ()
    update: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    having: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def needs(self, verb: str, inputs: Mapping[str, Any]) -> Iterator[str]:
        yield from getattr(self, verb)
        if verb in (CREATE, UPDATE):
            for path, permissions in self.having:
                if _is_set(inputs, path.split(".")):
                    yield from permissions


def _is_set(value: Any, steps: list[str]) -> bool:
    if isinstance(value, list):
        return any(_is_set(item, steps) for item in value)
    if not steps:
        return bool(value)
    return isinstance(value, dict) and _is_set(value.get(steps[0]), steps[1:])


def _row(
    collection: str,
    read: str = "get",
    create: str = "create",
    update: str = "update",
    delete: str = "delete",
    *,
    waits: str = "",
    having: Mapping[str, str] = MappingProxyType({}),
) -> Row:
    """A row in short form: words without a dot are verbs of `collection`, words with dots are whole permissions.

    An empty text means that there is nothing to call; `waits` is read after each change.
    """

    def whole(words: str) -> tuple[str, ...]:
        return tuple(word if "." in word else f"{collection}.{word}" for word in words.split())

    def changing(words: str) -> tuple[str, ...]:
        return whole(f"{words} {waits}") if words else ()

    return Row(
        whole(read),
        changing(create),
        changing(update),
        changing(delete),
        tuple((path, whole(words)) for path, words in having.items()),
    )


_GLOBAL, _REGION, _ZONE = (f"compute.{scope}Operations.get" for scope in ("global", "region", "zone"))
_ACT_AS = "iam.serviceAccounts.actAs"
_POLICY = "getIamPolicy setIamPolicy"
_IN_NETWORK = "compute.networks.updatePolicy"


def _member(collection: str) -> Row:
    """One member of one role in a resource's IAM policy: read, changed, written back."""
    return _row(collection, read="getIamPolicy", create=_POLICY, update=_POLICY, delete=_POLICY)


GOOGLE: dict[str, Row] = {
    "gcp:projects/service:Service": _row(
        "serviceusage.services",
        read="list resourcemanager.projects.get",
        create="enable serviceusage.operations.get",
        update="",
        delete="",  # stays enabled
    ),
    # Identity
    "gcp:serviceaccount/account:Account": _row("iam.serviceAccounts"),
    "gcp:serviceaccount/iAMMember:IAMMember": _member("iam.serviceAccounts"),
    "gcp:projects/iAMCustomRole:IAMCustomRole": _row("iam.roles", create="create get"),
    "gcp:projects/iAMMember:IAMMember": _member("resourcemanager.projects"),
    "gcp:iam/workloadIdentityPool:WorkloadIdentityPool": _row("iam.workloadIdentityPools"),
    "gcp:iam/workloadIdentityPoolProvider:WorkloadIdentityPoolProvider": _row("iam.workloadIdentityPoolProviders"),
    "gcp:secretmanager/secret:Secret": _row("secretmanager.secrets"),
    "gcp:secretmanager/secretIamMember:SecretIamMember": _member("secretmanager.secrets"),
    "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember": _member("cloudkms.cryptoKeys"),
    "gcp:storage/bucket:Bucket": _row(
        "storage.buckets",
        # A bucket is emptied before; its caches go first (hashicorp/terraform-provider-google#25343).
        delete="delete storage.objects.list storage.objects.delete storage.anywhereCaches.list",
    ),
    "gcp:storage/bucketIAMMember:BucketIAMMember": _member("storage.buckets"),
    # Images
    "gcp:artifactregistry/repository:Repository": _row("artifactregistry.repositories"),
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": _member("artifactregistry.repositories"),
    # Monitoring
    "gcp:monitoring/dashboard:Dashboard": _row("monitoring.dashboards"),
    "gcp:monitoring/alertPolicy:AlertPolicy": _row("monitoring.alertPolicies"),
    "gcp:monitoring/notificationChannel:NotificationChannel": _row("monitoring.notificationChannels"),
    "gcp:logging/metric:Metric": _row("logging.logMetrics"),
    "gcp:logging/projectExclusion:ProjectExclusion": _row("logging.exclusions"),
    # Network
    "gcp:compute/network:Network": _row("compute.networks", waits=_GLOBAL),
    "gcp:compute/subnetwork:Subnetwork": _row(
        "compute.subnetworks",
        create=f"create {_IN_NETWORK}",
        update="update expandIpCidrRange setPrivateIpGoogleAccess",
        waits=_REGION,
    ),
    "gcp:compute/router:Router": _row("compute.routers", create=f"create {_IN_NETWORK}", waits=_REGION),
    "gcp:compute/routerNat:RouterNat": _row("compute.routers", create="update", delete="update", waits=_REGION),
    "gcp:compute/firewall:Firewall": _row(
        "compute.firewalls", create=f"create {_IN_NETWORK}", update=f"update {_IN_NETWORK}", waits=_GLOBAL
    ),
    "gcp:compute/address:Address": _row(
        "compute.addresses",
        # The provider sets the labels again after it creates the address.
        create="create setLabels",
        update="setLabels",
        having={"subnetwork": "createInternal compute.subnetworks.use"},
        delete="delete deleteInternal",
        waits=_REGION,
    ),
    # Load balancer
    "gcp:compute/regionHealthCheck:RegionHealthCheck": _row("compute.regionHealthChecks", waits=_REGION),
    "gcp:compute/regionBackendService:RegionBackendService": _row(
        "compute.regionBackendServices",
        waits=_REGION,
        having={
            "healthChecks": "compute.regionHealthChecks.useReadOnly",
            "backends": "compute.instanceGroups.use",
            "network": "compute.networks.use",
        },
    ),
    "gcp:compute/forwardingRule:ForwardingRule": _row(
        "compute.forwardingRules",
        update="update setLabels",
        waits=_REGION,
        having={
            "backendService": "compute.regionBackendServices.use",
            "ipAddress": "compute.addresses.use compute.addresses.useInternal",
            "subnetwork": "compute.subnetworks.use",
            "network": "compute.networks.use",
        },
    ),
    "gcp:compute/instanceGroup:InstanceGroup": _row(
        "compute.instanceGroups", read="get list", waits=_ZONE, having={"instances": "compute.instances.use update"}
    ),
    # Machines
    "gcp:compute/resourcePolicy:ResourcePolicy": _row("compute.resourcePolicies", update="", waits=_REGION),
    "gcp:compute/disk:Disk": _row(
        "compute.disks", update="resize setLabels", waits=_ZONE, having={"labels": "setLabels"}
    ),
    "gcp:compute/instance:Instance": _row(
        "compute.instances",
        read="get compute.disks.get",
        create="create compute.disks.create compute.subnetworks.use",
        update="start stop setMachineType setMetadata setLabels setDeletionProtection",
        waits=_ZONE,
        having={
            "attachedDisks": "compute.disks.use",
            "labels": "setLabels",
            "metadata": "setMetadata",
            "networkInterfaces.networkIp": "compute.addresses.useInternal",
            "serviceAccount": f"setServiceAccount {_ACT_AS}",
            "tags": "setTags",
        },
    ),
    "gcp:compute/instanceTemplate:InstanceTemplate": _row(
        "compute.instanceTemplates",
        update="",
        waits=_GLOBAL,
        having={"serviceAccount": _ACT_AS, "networkInterfaces.subnetwork": "compute.subnetworks.use"},
    ),
    "gcp:compute/instanceGroupManager:InstanceGroupManager": _row(
        "compute.instanceGroupManagers",
        # the instances are made with the rights of whoever makes their group
        create="create compute.instanceTemplates.get compute.instanceTemplates.useReadOnly compute.instances.create"
        " compute.disks.create compute.instances.setMetadata compute.subnetworks.use",
        update="update compute.instanceTemplates.useReadOnly",
        waits=_ZONE,
        having={"resourcePolicies.workloadPolicy": "compute.resourcePolicies.use compute.resourcePolicies.useReadOnly"},
    ),
    # Kubernetes Engine
    "gcp:container/cluster:Cluster": _row(
        "container.clusters",
        # the default pool goes as soon as the cluster is there
        create="create update",
        waits="container.operations.get",
        having={"nodeConfig.serviceAccount": _ACT_AS},
    ),
    "gcp:container/nodePool:NodePool": _row(
        "container.clusters",
        read="get compute.instanceGroupManagers.list",
        create="update",
        delete="update",
        waits="container.operations.get",
        having={"nodeConfig.serviceAccount": _ACT_AS},
    ),
}


BILLING_ACCOUNT: dict[str, Row] = {"gcp:billing/budget:Budget": _row("billing.budgets")}
"""Of resources that belong to a billing account. A role of a project cannot grant these."""


def _inside(*kinds: str) -> Row:
    """Objects inside a cluster; an update is a patch, and who awaits an object also lists it."""

    def all_of(*verbs: str) -> tuple[str, ...]:
        return tuple(f"container.{kind}.{verb}" for kind in kinds for verb in verbs)

    return Row(all_of("get", "list"), all_of("create"), all_of("update"), all_of("delete"))


# What the charts consist of that the program installs, and the Secrets in which helm keeps its releases.
CHART_KINDS = (
    "apiServices",
    "clusterRoleBindings",
    "clusterRoles",
    "configMaps",
    "customResourceDefinitions",
    "daemonSets",
    "deployments",
    "mutatingWebhookConfigurations",
    "namespaces",
    "podDisruptionBudgets",
    "priorityClasses",
    "roleBindings",
    "roles",
    "secrets",
    "serviceAccounts",
    "services",
    "thirdPartyObjects",
    "validatingWebhookConfigurations",
)
# Without these, nobody can grant rights that they do not have.
_GIVING_RIGHTS = tuple(
    f"container.{kind}.{verb}" for kind in ("clusterRoles", "roles") for verb in ("bind", "escalate")
)
_CHARTS = _inside(*CHART_KINDS)

PROVIDER = "pulumi:providers:kubernetes"
# A cluster that is not GKE's does not ask IAM; the credential for it is a secret.
OTHER_CLUSTER = {PROVIDER: Row(read=("secretmanager.versions.access",))}

KUBERNETES: dict[str, Row] = {
    # The cluster's DNS endpoint asks IAM.
    PROVIDER: Row(read=("container.clusters.connect",)),
    "kubernetes:core/v1:Namespace": _inside("namespaces"),
    "kubernetes:core/v1:Secret": _inside("secrets"),
    "kubernetes:core/v1:ConfigMap": _inside("configMaps"),
    "kubernetes:core/v1:ServiceAccount": _inside("serviceAccounts"),
    "kubernetes:core/v1:PersistentVolume": _inside("persistentVolumes"),
    "kubernetes:core/v1:PersistentVolumeClaim": _inside("persistentVolumeClaims"),
    "kubernetes:core/v1:ResourceQuota": _inside("resourceQuotas"),
    "kubernetes:networking.k8s.io/v1:NetworkPolicy": _inside("networkPolicies"),
    "kubernetes:apps/v1:DaemonSet": _inside("daemonSets"),
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole": _inside("clusterRoles"),
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding": _inside("clusterRoleBindings"),
    "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding": _inside("roleBindings"),
    "kubernetes:helm.sh/v3:Release": Row(
        _CHARTS.read, (*_CHARTS.create, *_GIVING_RIGHTS), (*_CHARTS.update, *_GIVING_RIGHTS), _CHARTS.delete
    ),
}
_OTHER_KIND = _inside("thirdPartyObjects")


def kubernetes_row(type_: str) -> Row | None:
    """The row of a type inside the cluster; None for types that are not there."""
    return KUBERNETES.get(type_) or (_OTHER_KIND if type_.startswith("kubernetes:") else None)
