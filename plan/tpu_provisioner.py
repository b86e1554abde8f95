"""TPU Provisioner's settings, derived from the slices whose node pools it creates.

Source: ai-on-gke/tpu-provisioner @6789e2a, cmd/main.go, internal/cloud/gke.go, config/; later releases for
ENABLE_IMAGE_STREAMING, which the read version ignores: there the cluster's default decides.
"""

from collections.abc import Mapping

from plan.platform import Platform
from plan.slices import SlicePlan

NAMESPACE = "tpu-provisioner-system"
NAME = "tpu-provisioner-controller-manager"
CONFIG_MAP = "tpu-provisioner-manager"
MANAGED_BY = {"google.com/nodepool-manager": "tpu-provisioner"}
"""The label of every node pool that it creates."""
JOBSET_LABELS = ("google.com/tpu-provisioner-jobset-namespace", "google.com/tpu-provisioner-jobset-name")
"""Labels of such a pool with the namespace and name of the JobSet that it is for."""

CHIPS_PER_NODE = 4
"""It counts hosts as chips divided by this, whatever the machine."""

PODS_PER_NODE = 15
"""Most pods on a host that it creates."""
JOBSET_NAME_LIMIT = 34
"""It takes as many characters of a JobSet's name for a pool's. Pools of one name delete each other."""

PERMISSIONS = ("container.clusters.get", "container.clusters.update", "container.operations.get")
"""All that it may do in the project. There is no narrower permission for node pools than the cluster's update."""

SHARED_SETTINGS = {
    "GCP_NODE_TAGS": "tags",
    "GCP_NODE_SECONDARY_DISK": "secondary_boot_disks",
    "GCP_NODE_ADDITIONAL_NETWORKS": "additional_networks",
    "GCP_NODE_DISK_TYPE": "boot_disk.type",
    "GCP_NODE_BOOT_DISK_KMS_KEY": "kms_key",
    "GCP_NODE_SERVICE_ACCOUNT": "service_account",
    "ENABLE_IMAGE_STREAMING": "image_streaming",
}
"""Its settings that follow from a slice, and the slice's key: one value for all slices."""


def jobset_of(labels: Mapping[str, str]) -> str:
    """The JobSet that such a pool, or a node of it, is for: NAMESPACE/NAME, with ? for a label that is missing."""
    return "/".join(labels.get(key, "?") for key in JOBSET_LABELS)


def delete_command(platform: Platform, pool: str) -> str:
    """The command with which a person deletes a node pool of the platform's cluster."""
    return (
        f"gcloud container node-pools delete {pool} --cluster {platform.cluster_name}"
        f" --location {platform.location} --project {platform.project}"
    )


def environment_settings(plan: SlicePlan) -> dict[str, str]:
    """The values of SHARED_SETTINGS that a slice asks for; empty for the controller's or the platform's default."""
    spec = plan.spec
    networks = (f"{network.network}:{network.subnetwork}" for network in spec.additional_networks)
    return {
        "GCP_NODE_TAGS": ",".join(spec.tags),
        "GCP_NODE_SECONDARY_DISK": "".join(disk.image for disk in spec.secondary_boot_disks),
        "GCP_NODE_ADDITIONAL_NETWORKS": ",".join(networks),
        "GCP_NODE_DISK_TYPE": plan.boot_disk.type,
        "GCP_NODE_BOOT_DISK_KMS_KEY": spec.kms_key or "",
        "GCP_NODE_SERVICE_ACCOUNT": spec.service_account or "",
        "ENABLE_IMAGE_STREAMING": "true" if spec.image_streaming else "false",
    }


def environment(platform: Platform) -> Mapping[str, str]:
    """Its environment without the account of the hosts, if that is the platform's own."""
    settings = platform.software.tpu_provisioner
    cluster = {
        "GCP_PROJECT_ID": platform.project,
        "GCP_CLUSTER": platform.cluster_name,
        "GCP_CLUSTER_LOCATION": platform.location,
        "GCP_ZONE": platform.zone,
        "GCP_POD_TO_NODE_LABELS": ",".join(settings.pod_to_node_labels),
        "CONCURRENCY": str(settings.concurrency),
    }
    written = {**cluster, **environment_settings(platform.job_plans[0])}
    return {key: value for key, value in sorted(written.items()) if value}


def own_pools(namespace: str, name: str) -> str:
    """Selector of the node pools that TPU Provisioner creates for a JobSet: no two JobSets have the same.

    Without it another JobSet of the same shape would run on the pool, which goes with the first.
    """
    return f"{namespace}.{name}"
