"""Keys of other tools, and what to write here instead."""

from typing import NamedTuple


class Word(NamedTuple):
    """What to write for a key of another tool (`instead`), and why the key does not exist here (`why`)."""

    why: str
    instead: str


_HOSTS = Word("hosts follow from the topology; count is the number of slices", "leave it out, or write count: SLICES")
_BOUNDS = Word(
    "a slice has all its hosts or none", "write count: SLICES, and provisioning: autoscaled to begin with none"
)
_AUTOSCALE = Word("is called provisioning now", "write provisioning: autoscaled for true, or leave it out for false")
_REPAIR = Word("follows from the capacity model", "leave it out")
_SPOT = Word("spot is a capacity model", "write capacity: spot")
_FLEX = Word(
    "flex-start is a capacity model", "write capacity: flex-start, or capacity: queued for whole slices by Kueue"
)
_RESERVATION = Word("a reservation is a capacity model", "write capacity: {model: reservation, name: NAME}")
_ON_DEMAND = Word("on-demand is a capacity model", "write capacity: on-demand")
_TOPOLOGY = Word("is called topology here", "write topology: SHAPE, for example 4x4")
_TYPE = Word(
    "a name such as v5p-8 is read differently by different tools",
    "write generation: v5p and topology: SHAPE, or machine_type: MACHINE and topology: SHAPE",
)
_MACHINE = Word("is called machine_type here", "write machine_type: MACHINE, for example ct6e-standard-4t")
_SLICES = Word("the number of slices is count", "write count: SLICES")
_PLACEMENT = Word("follows from the topology: hosts of a slice are always placed together", "leave it out")
_NAME = Word("a group of slices is named by its key", "write slices: {NAME: {...}}")
_DISK_SIZE = Word("is part of boot_disk", "write boot_disk: {size_gb: 100}")
_DISK_TYPE = Word("is part of boot_disk", "write boot_disk: {type: hyperdisk-balanced}")
_ZONE = Word("all slices of a platform are in its zone", "write zone: once, beside slices:")
_LABELS = Word("is called labels here", "write labels: {KEY: VALUE}")
_DURATION = Word("belongs to the capacity model", "write capacity: {model: MODEL, max_run_duration: 7d}")

SLICE: dict[str, Word] = {
    **dict.fromkeys(
        ("node_count", "num_nodes", "nodes", "initial_node_count", "static_node_count", "num_hosts", "hosts"), _HOSTS
    ),
    **dict.fromkeys(
        ("min_nodes", "max_nodes", "min_node_count", "max_node_count", "total_min_nodes", "total_max_nodes",
         "autoscaling", "enable_autoscaling"),
        _BOUNDS,
    ),
    "autoscale": _AUTOSCALE,
    **dict.fromkeys(
        ("compute_class", "computeClass", "node_auto_provisioning", "auto_provisioning"),
        Word("is a way of provisioning", "write provisioning: compute-class"),
    ),
    **dict.fromkeys(("auto_repair", "auto_upgrade", "management", "enable_autorepair", "enable_autoupgrade"), _REPAIR),
    **dict.fromkeys(("spot", "preemptible", "use_spot", "provisioning_model"), _SPOT),
    **dict.fromkeys(
        ("flex", "flex_start", "enable_flex_start", "dws", "queued_provisioning", "enable_queued_provisioning"), _FLEX
    ),
    **dict.fromkeys(
        ("reservation", "reservation_name", "reservation_affinity", "specific_reservation", "reservation_block"),
        _RESERVATION,
    ),
    **dict.fromkeys(("on_demand", "ondemand"), _ON_DEMAND),
    **dict.fromkeys(("tpu_topology", "shape", "slice_topology"), _TOPOLOGY),
    **dict.fromkeys(
        ("tpu_type", "accelerator", "accelerator_type", "device_type", "type", "tpu_accelerator", "tpu"), _TYPE
    ),
    **dict.fromkeys(("machine", "instance_type", "node_type"), _MACHINE),
    **dict.fromkeys(("num_slices", "slices", "replicas", "slice_count"), _SLICES),
    **dict.fromkeys(("placement_policy", "placement", "compact_placement", "placement_type"), _PLACEMENT),
    **dict.fromkeys(("name", "node_pool_name"), _NAME),
    **dict.fromkeys(("disk_size_gb", "disk_size"), _DISK_SIZE),
    **dict.fromkeys(("disk_type",), _DISK_TYPE),
    **dict.fromkeys(("zone", "zones", "location", "node_locations", "region"), _ZONE),
    **dict.fromkeys(("node_labels", "kubernetes_labels"), _LABELS),
    **dict.fromkeys(("max_run_duration", "run_duration"), _DURATION),
}  # fmt: skip
"""Keys that xpk, cluster-toolkit, Terraform's google_container_node_pool, gcloud, tpu-provisioner and tpu-operator have
for a node pool or slice."""

CAPACITY_MODELS: dict[str, str] = {
    **dict.fromkeys(("preemptible", "use_spot"), "spot"),
    **dict.fromkeys(("flex", "flex_start", "dws"), "flex-start, or queued for whole slices by Kueue"),
    **dict.fromkeys(("standard", "on_demand", "ondemand"), "on-demand"),
    **dict.fromkeys(("specific_reservation", "reserved", "calendar"), "{model: reservation, name: NAME}"),
}
"""Other tools' names of capacity models, and what to write here."""

RESERVATION: dict[str, Word] = dict.fromkeys(
    ("reservation", "reservation_name", "specific_reservation"), Word("is called name here", "write name: NAME")
)
"""The same for a reservation."""

PLATFORM: dict[str, Word] = {
    **{key: Word(word.why, f"below slices: NAME: {word.instead}") for key, word in SLICE.items()},
    **dict.fromkeys(
        ("region", "location", "zones", "node_locations"),
        Word("slices are in one zone; the region follows from it", "write zone: ZONE"),
    ),
    **dict.fromkeys(("project_id",), Word("the project is set once for all", "write gcp:project beside the platform")),
    **dict.fromkeys(
        ("node_pools", "node_pool", "tpu_slices", "tpus"), Word("TPU pools are slices", "write slices: {NAME: {...}}")
    ),
    **dict.fromkeys(("cluster_name",), Word("the cluster is named after the platform", "write name: NAME")),
    **dict.fromkeys(
        ("kueue", "jobset"),
        Word("is below software; queues are below queues", "write software: {...}, or queues: {...}"),
    ),
    **dict.fromkeys(
        ("release_channel", "gke_version", "version", "cpu_pools"),
        Word("is a setting of the cluster", "write it below cluster:"),
    ),
}
"""The same for a cluster or deployment."""
