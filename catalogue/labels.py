"""Keys of labels, taints and resources of nodes, pods and namespaces, and of machines. Each is defined only here."""

# Google Cloud's, of machines and buckets
PLATFORM_LABEL = "tpu-platform"
"""Names the platform."""

# GKE's, of nodes
ACCELERATOR_LABEL = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"
CHIPS_LABEL = "cloud.google.com/gke-accelerator-count"
NODE_POOL_LABEL = "cloud.google.com/gke-nodepool"
COMPUTE_CLASS_LABEL = "cloud.google.com/compute-class"
DRA_LABEL = "cloud.google.com/gke-tpu-dra-driver"
DRANET_LABEL = "cloud.google.com/gke-networking-dra-driver"
QUEUED_LABEL = "cloud.google.com/gke-queued"
"""Label and taint of pools with queued provisioning; GKE sets the taint, the program the label."""
SPOT_LABEL = "cloud.google.com/gke-spot"
RESERVATION_LABEL = "cloud.google.com/reservation-name"
RESERVATION_PROJECT_LABEL = "cloud.google.com/reservation-project"
"""These three are selectors of pods, from which TPU Provisioner reads the capacity of the pool it creates."""
GROUP_LABEL = "cloud.google.com/tpu-node-group"
"""Node label that names platform and slice, as gke-labs/tpu-operator names its groups."""
TPU_TAINT = "google.com/tpu"

# Kubernetes'
HOSTNAME_LABEL = "kubernetes.io/hostname"
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
"""Label that Kubernetes sets on every namespace; nobody can change it."""

# Kueue's
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"

# The platform's own
SLICE_LABEL = "tpu-platform/slice"
"""Node label that names the slice group of a host; the same for all pools of the group, so queues can select it."""
FLAVOR_LABEL = "tpu-platform/flavor"
"""Node label that names the flavor of a host. The platform sets it, so that a flavor selects exactly its pools."""
JOBSET_LABEL = "tpu-platform/jobset"
"""Selector of pods, and so label of the hosts that TPU Provisioner creates for them: the pools of one JobSet only."""
OPT_IN_LABEL = "tpu-platform/queues"
"""Label of namespaces whose workloads Kueue manages. The chart copies the selector into the webhooks, so a broken Kueue
blocks nothing outside these namespaces."""

LABEL_VALUE_LIMIT = 63
"""Most characters of a label's value."""

TAINT_EFFECTS = {
    "NoSchedule": "NO_SCHEDULE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
}
"""The GKE API's spelling of a taint's effect, by Kubernetes'."""
KUBERNETES_EFFECTS = {api: effect for effect, api in TAINT_EFFECTS.items()}
"""Kubernetes' spelling of a taint's effect, by the GKE API's."""


def tpu_labels(accelerator: str, topology: str, chips_per_host: int) -> dict[str, str]:
    """The labels with a node's TPU type, topology and chips: GKE sets them on its nodes, the kubelet on all others."""
    return {ACCELERATOR_LABEL: accelerator, TOPOLOGY_LABEL: topology, CHIPS_LABEL: str(chips_per_host)}
