"""Type tokens of the resources that rules check; tests compare them with the provider SDKs."""

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"

INSTANCE = "gcp:compute/instance:Instance"
TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"
REGION_TEMPLATE = "gcp:compute/regionInstanceTemplate:RegionInstanceTemplate"
TEMPLATES = (TEMPLATE, REGION_TEMPLATE)
INSTANCE_FROM_TEMPLATE = "gcp:compute/instanceFromTemplate:InstanceFromTemplate"
INSTANCE_FROM_IMAGE = "gcp:compute/instanceFromMachineImage:InstanceFromMachineImage"
# Machines that take missing settings from a template.
DERIVED_INSTANCES = (INSTANCE_FROM_TEMPLATE, INSTANCE_FROM_IMAGE)
TPU_VM = "gcp:tpu/v2Vm:V2Vm"
QUEUED_RESOURCE = "gcp:tpu/v2QueuedResource:V2QueuedResource"
MIG = "gcp:compute/instanceGroupManager:InstanceGroupManager"
REGION_MIG = "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager"
MIGS = (MIG, REGION_MIG)
AUTOSCALER = "gcp:compute/autoscaler:Autoscaler"
REGION_AUTOSCALER = "gcp:compute/regionAutoscaler:RegionAutoscaler"
RESIZE_REQUEST = "gcp:compute/resizeRequest:ResizeRequest"
RESOURCE_POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"
DISK = "gcp:compute/disk:Disk"
NETWORK = "gcp:compute/network:Network"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
ROUTER_NAT = "gcp:compute/routerNat:RouterNat"
FIREWALL = "gcp:compute/firewall:Firewall"
FIREWALL_POLICY_RULES = (
    "gcp:compute/networkFirewallPolicyRule:NetworkFirewallPolicyRule",
    "gcp:compute/regionNetworkFirewallPolicyRule:RegionNetworkFirewallPolicyRule",
    "gcp:compute/firewallPolicyRule:FirewallPolicyRule",
)
# Firewall policies with their rules inside.
FIREWALL_POLICIES = (
    "gcp:compute/networkFirewallPolicyWithRules:NetworkFirewallPolicyWithRules",
    "gcp:compute/regionNetworkFirewallPolicyWithRules:RegionNetworkFirewallPolicyWithRules",
    "gcp:compute/firewallPolicyWithRules:FirewallPolicyWithRules",
)
FORWARDING_RULE = "gcp:compute/forwardingRule:ForwardingRule"

SERVICE_ACCOUNT_KEY = "gcp:serviceaccount/key:Key"
BUCKET = "gcp:storage/bucket:Bucket"
SECRET = "gcp:secretmanager/secret:Secret"
SECRET_VERSION = "gcp:secretmanager/secretVersion:SecretVersion"
PROJECT_IAM = (
    "gcp:projects/iAMMember:IAMMember",
    "gcp:projects/iAMBinding:IAMBinding",
    "gcp:projects/iAMPolicy:IAMPolicy",
)
# Grants on folders and organizations, which contain projects.
PARENT_IAM = (
    "gcp:folder/iAMMember:IAMMember",
    "gcp:folder/iAMBinding:IAMBinding",
    "gcp:folder/iAMPolicy:IAMPolicy",
    "gcp:organizations/iAMMember:IAMMember",
    "gcp:organizations/iAMBinding:IAMBinding",
    "gcp:organizations/iAMPolicy:IAMPolicy",
)
CUSTOM_ROLES = (
    "gcp:projects/iAMCustomRole:IAMCustomRole",
    "gcp:organizations/iAMCustomRole:IAMCustomRole",
)
# Every gcp resource that grants a role on anything.
IAM_GRANTS = (
    "gcp:*IAMMember",
    "gcp:*IAMBinding",
    "gcp:*IAMPolicy",
    "gcp:*IamMember",
    "gcp:*IamBinding",
    "gcp:*IamPolicy",
)
# Access lists, which are older than roles.
ACCESS_LISTS = (
    "gcp:storage/bucketACL:BucketACL",
    "gcp:storage/defaultObjectACL:DefaultObjectACL",
    "gcp:storage/objectACL:ObjectACL",
    "gcp:storage/bucketAccessControl:BucketAccessControl",
    "gcp:storage/defaultObjectAccessControl:DefaultObjectAccessControl",
    "gcp:storage/objectAccessControl:ObjectAccessControl",
    "gcp:bigquery/datasetAccess:DatasetAccess",
)

KUBERNETES_PROVIDER = "pulumi:providers:kubernetes"
IN_CLUSTER = "kubernetes:*"
RELEASE = "kubernetes:helm.sh/v3:Release"
CHART = "kubernetes:helm.sh/v4:Chart"
NAMESPACE = "kubernetes:core/v1:Namespace"
NAMESPACE_PATCH = "kubernetes:core/v1:NamespacePatch"
SERVICE = "kubernetes:core/v1:Service"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
DAEMON_SET = "kubernetes:apps/v1:DaemonSet"
ROLE_BINDING = "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding"
CLUSTER_ROLE = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:Role"
CLUSTER_ROLE_BINDING = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding"
SERVICE_ACCOUNT = "kubernetes:core/v1:ServiceAccount"
# Kinds that run pods, in any version, with patches and lists, and kinds of other controllers.
WORKLOADS = (
    "kubernetes:core/v1:Pod",
    "kubernetes:core/v1:PodList",
    "kubernetes:core/v1:PodPatch",
    "kubernetes:core/v1:PodTemplate*",
    "kubernetes:core/v1:ReplicationController*",
    "kubernetes:apps/*:DaemonSet*",
    "kubernetes:apps/*:Deployment*",
    "kubernetes:apps/*:ReplicaSet*",
    "kubernetes:apps/*:StatefulSet*",
    "kubernetes:extensions/*:DaemonSet*",
    "kubernetes:extensions/*:Deployment*",
    "kubernetes:batch/*:CronJob*",
    "kubernetes:batch/*:Job*",
    "kubernetes:jobset.x-k8s.io/*:JobSet*",
    "kubernetes:leaderworkerset.x-k8s.io/*:LeaderWorkerSet*",
    "kubernetes:ray.io/*:*",
)
# Kinds of Kueue and of DRA, in any API version.
CLUSTER_QUEUE = "kubernetes:kueue.x-k8s.io/*:ClusterQueue"
LOCAL_QUEUE = "kubernetes:kueue.x-k8s.io/*:LocalQueue"
RESOURCE_FLAVOR = "kubernetes:kueue.x-k8s.io/*:ResourceFlavor"
CLAIM_TEMPLATE = "kubernetes:resource.k8s.io/*:ResourceClaimTemplate"
