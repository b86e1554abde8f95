"""Keys that hosts are marked with, and the two spellings of a taint's effect: what slices and queues must agree on."""

NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
"""Label that Kubernetes sets on every namespace, and that nobody can change."""
COMPUTE_CLASS_LABEL = "cloud.google.com/compute-class"
QUEUED_LABEL = "cloud.google.com/gke-queued"
"""Label and taint of pools with queued provisioning; GKE sets the taint, the label is for us to declare."""

TAINT_EFFECTS = {
    "NoSchedule": "NO_SCHEDULE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
}
"""The GKE API's spelling of a taint's effect, by Kubernetes'."""
