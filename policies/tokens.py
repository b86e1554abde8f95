"""Type tokens of the resources that rules look at; tests compare them with the provider SDKs."""

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"

INSTANCE = "gcp:compute/instance:Instance"
TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"
REGION_TEMPLATE = "gcp:compute/regionInstanceTemplate:RegionInstanceTemplate"
TEMPLATES = (TEMPLATE, REGION_TEMPLATE)
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
FORWARDING_RULE = "gcp:compute/forwardingRule:ForwardingRule"

SERVICE_ACCOUNT_KEY = "gcp:serviceaccount/key:Key"
BUCKET = "gcp:storage/bucket:Bucket"
SECRET = "gcp:secretmanager/secret:Secret"
SECRET_VERSION = "gcp:secretmanager/secretVersion:SecretVersion"
PROJECT_IAM = (
    "gcp:projects/iAMMember:IAMMember",
    "gcp:projects/iAMBinding:IAMBinding",
)
# Every gcp resource that grants a role, whatever it is granted on.
IAM_GRANTS = ("gcp:*IAMMember", "gcp:*IAMBinding", "gcp:*IamMember", "gcp:*IamBinding")

KUBERNETES_PROVIDER = "pulumi:providers:kubernetes"
IN_CLUSTER = "kubernetes:*"
RELEASE = "kubernetes:helm.sh/v3:Release"
CHART = "kubernetes:helm.sh/v4:Chart"
NAMESPACE = "kubernetes:core/v1:Namespace"
SERVICE = "kubernetes:core/v1:Service"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
DAEMON_SET = "kubernetes:apps/v1:DaemonSet"
ROLE_BINDING = "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding"
CLUSTER_ROLE = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:Role"
CLUSTER_ROLE_BINDING = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding"
POD = "kubernetes:core/v1:Pod"
# What runs pods, beside Pod itself; of JobSet any version.
WORKLOADS = (
    POD,
    DAEMON_SET,
    "kubernetes:apps/v1:Deployment",
    "kubernetes:apps/v1:StatefulSet",
    "kubernetes:apps/v1:ReplicaSet",
    "kubernetes:batch/v1:CronJob",
    "kubernetes:batch/v1:Job",
    "kubernetes:jobset.x-k8s.io/*:JobSet",
)
# Kinds of Kueue and of DRA, in any version of their APIs.
CLUSTER_QUEUE = "kubernetes:kueue.x-k8s.io/*:ClusterQueue"
LOCAL_QUEUE = "kubernetes:kueue.x-k8s.io/*:LocalQueue"
RESOURCE_FLAVOR = "kubernetes:kueue.x-k8s.io/*:ResourceFlavor"
CLAIM_TEMPLATE = "kubernetes:resource.k8s.io/*:ResourceClaimTemplate"
