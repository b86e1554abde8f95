"""Cases of rules about slices whose node pools GKE or TPU Provisioner creates."""

from typing import Any

from tests.rules.cases import V6E, Case, at

IMAGE = "example.com/images/tpu-provisioner"
DIGEST = f"{IMAGE}@sha256:{'0' * 64}"
RESERVED: dict[str, Any] = {"model": "reservation", "name": "r"}
CLASS = V6E | {"capacity": "spot", "provisioning": "compute-class"}
SCALED = V6E | {"capacity": "spot", "provisioning": "autoscaled"}
JOBS = V6E | {"capacity": "spot", "provisioning": "tpu-provisioner"}
QUEUED = {"queues": {"q": {"namespaces": ["team-a"], "slices": {"s": 1}}}}
OFF: dict[str, Any] = {
    "cluster": {"release_channel": "UNSPECIFIED"},
    "software": {"tpu_provisioner": {"image": DIGEST}},
    **QUEUED,
}
"""A platform on which TPU Provisioner can run."""


def off(**cluster: Any) -> dict[str, Any]:
    """The same with these settings of the cluster."""
    return OFF | {"cluster": OFF["cluster"] | cluster}


def two(**second: Any) -> dict[str, Any]:
    """The same with a second group of slices."""
    return OFF | {"slices": {"s": JOBS, "t": JOBS | second}}


ERRORS = [
    *[
        Case(
            "class-settings",
            (CLASS | {key: value}, QUEUED),
            f"slices.s.{key}",
            f"has no effect with provisioning: compute-class: {why}",
            "leave it out, or write autoscaled",
            (SCALED | {key: value}, {}),
        )
        for key, value, why in [
            ("tags", ["t"], "GKE gives all pools"),
            ("resource_labels", {"a": "b"}, "a ComputeClass has no Google Cloud labels"),
            ("node_drain", {}, "GKE deletes a pool only when it is idle"),
            ("additional_networks", [{"network": "n", "subnetwork": "s"}], "a ComputeClass has no further networks"),
            ("dranet", True, "GKE documents it"),
            ("host_maintenance", "AS_NEEDED", "a ComputeClass has no maintenance interval"),
            ("protect", True, "no resource stands"),
        ]
    ],
    *[
        Case(
            "class-taints",
            (CLASS | {"taints": [{"key": "team", "value": value}]}, QUEUED),
            "slices.s.taints[0].value",
            "a taint of a ComputeClass needs a value",
            "three to 63 that",
            (CLASS | {"taints": [{"key": "team", "value": "alpha"}]}, QUEUED),
        )
        for value in ("", "ab", "Alpha")
    ],
    Case(
        "class-devices",
        (CLASS | {"devices": "dra"}, QUEUED),
        "slices.s.devices",
        "not known to create pools for DRA",
        "autoscaled",
        (SCALED | {"devices": "dra"}, {}),
    ),
    Case(
        "class-capacity",
        (CLASS | {"capacity": "queued"}, QUEUED),
        "slices.s.capacity.model",
        "queued needs node pools that `up` creates",
        "flex-start",
        (CLASS | {"capacity": "flex-start"}, QUEUED),
    ),
    Case(
        "class-name",
        (CLASS, QUEUED | {"name": "gke-lab"}),
        "slices.s",
        "gke-lab-s has a name that GKE keeps for itself",
        "other than gke or autopilot",
        (CLASS, QUEUED | {"name": "lab"}),
    ),
    *[
        Case(
            "provisioner-settings",
            (JOBS | {key: value}, OFF),
            f"slices.s.{path}",
            message,
            hint,
            (JOBS | {"provisioning": "autoscaled"} | {key: value}, QUEUED),
        )
        for key, value, path, message, hint in [
            ("labels", {"a": "b"}, "labels", "the selectors of pods only", "leave it out"),
            ("taints", [{"key": "k"}], "taints", "taints spot hosts only", "leave it out"),
            ("resource_labels", {"a": "b"}, "resource_labels", "sets no Google Cloud labels", "leave it out"),
            ("node_drain", {}, "node_drain", "deletes a pool when its JobSet", "leave it out"),
            ("dranet", True, "dranet", "does not know it", "leave it out"),
            ("host_maintenance", "AS_NEEDED", "host_maintenance", "does not know it", "leave it out"),
            ("protect", True, "protect", "no resource stands", "leave it out"),
            ("max_pods_per_node", 32, "max_pods_per_node", "hosts of 15 pods", "leave it out"),
            ("boot_disk", {"size_gb": 200}, "boot_disk.size_gb", "GKE's default size", "leave it out"),
            (
                "secondary_boot_disks",
                [{"image": "global/images/a"}, {"image": "global/images/b"}],
                "secondary_boot_disks",
                "knows one such disk",
                "name one",
            ),
            ("devices", "dra", "devices", "pods that request google.com/tpu only", "device-plugin"),
        ]
    ],
    *[
        Case(
            "provisioner-capacity",
            (JOBS | {"capacity": capacity}, OFF),
            f"slices.s.{path}",
            message,
            hint,
            (JOBS | {"capacity": right}, OFF),
        )
        for capacity, path, message, hint, right in [
            (["spot", "on-demand"], "capacity", "has no order of fallback", "compute-class", "on-demand"),
            ("flex-start", "capacity.model", "does not know flex-start", "spot or reservation", "spot"),
            ("queued", "capacity.model", "does not know queued", "spot or reservation", "spot"),
            (RESERVED | {"block": "b"}, "capacity.block", "a whole reservation", "provisioning: fixed", RESERVED),
            (
                {"model": "spot", "max_run_duration": "1h"},
                "capacity.max_run_duration",
                "does not limit the run time",
                "leave it out",
                "spot",
            ),
        ]
    ],
    Case(
        "provisioner-shape",
        (JOBS | {"machine_type": "ct6e-standard-8t", "topology": "2x4"}, OFF),
        "slices.s.machine_type",
        "would ask for 2 hosts of ct6e-standard-8t, not 1",
        "4 chips",
        (JOBS | {"machine_type": "ct6e-standard-4t", "topology": "2x4"}, OFF),
    ),
    Case(
        "provisioner-shape",
        (JOBS | {"machine_type": "ct5lp-hightpu-4t", "topology": "2x2"}, OFF | at("v5e")),
        "slices.s.machine_type",
        "asks for placement of a single ct5lp-hightpu-4t",
        "several hosts",
        (JOBS | {"machine_type": "ct5lp-hightpu-4t", "topology": "4x4"}, OFF | at("v5e")),
    ),
    Case(
        "provisioner-alike",
        (JOBS, two(tags=["t"])),
        "slices.t.tags",
        "differs from that of slices.s",
        "the same for both",
        (JOBS, two()),
    ),
    Case(
        "created-on-worker",
        (CLASS, QUEUED | {"multikueue": {"role": "worker"}}),
        "slices.s.provisioning",
        "does not serve jobs of a manager",
        "autoscaled",
        (SCALED, QUEUED | {"multikueue": {"role": "worker"}}),
    ),
    Case(
        "provisioner-image",
        (JOBS, OFF | {"software": {}}),
        "software.tpu_provisioner.image",
        "there is no public image",
        "by digest",
        (JOBS, OFF),
    ),
    Case(
        "provisioner-unused",
        (V6E, {"software": {"tpu_provisioner": {"concurrency": 2}}}),
        "software.tpu_provisioner.concurrency",
        "no slice has provisioning: tpu-provisioner",
        "leave it out",
        (V6E, {}),
    ),
    Case(
        "no-channel",
        (JOBS, off(release_channel="RAPID")),
        "cluster.release_channel",
        "works only without one",
        "compute-class",
        (JOBS, OFF),
    ),
    Case(
        "channel-unspecified",
        (V6E, {"cluster": {"release_channel": "UNSPECIFIED"}}),
        "cluster.release_channel",
        "UNSPECIFIED is for slices with provisioning: tpu-provisioner",
        "REGULAR",
        (V6E, {"cluster": {"release_channel": "STABLE"}}),
    ),
    Case(
        "provisioner-alone",
        (JOBS, OFF | {"slices": {"s": JOBS, "t": CLASS}}),
        "slices.t.provisioning",
        "compute-class does not go together with tpu-provisioner",
        "another platform",
        (JOBS, two()),
    ),
    Case(
        "no-channel-exclusions",
        (JOBS, off(maintenance={"exclusions": [{"name": "a", "start": "2026-01-01T00:00:00Z"}]})),
        "cluster.maintenance.exclusions[0].scope",
        "needs a release channel",
        "NO_UPGRADES",
        (JOBS, OFF),
    ),
    Case(
        "provisioner-labels",
        (JOBS, OFF | {"software": {"tpu_provisioner": {"image": DIGEST, "pod_to_node_labels": ["team", "a,b"]}}}),
        "software.tpu_provisioner.pod_to_node_labels[1]",
        "'a,b' is not a label key",
        "one key for each entry",
        (JOBS, OFF | {"software": {"tpu_provisioner": {"image": DIGEST, "pod_to_node_labels": ["team", "x/b"]}}}),
    ),
]


WARNINGS = [
    Case(
        "class-secure-boot",
        (CLASS, QUEUED),
        "slices.s.provisioning",
        "without secure boot",
        "autoscaled",
        (SCALED, {}),
    ),
    Case(
        "on-demand-limit",
        (CLASS, {}),
        "slices.s.count",
        "no queue owns slices of s",
        "queues: {NAME",
        (CLASS, QUEUED),
    ),
    Case(
        "on-demand-limit",
        (CLASS, QUEUED | {"software": {"kueue": {"refuse_unqueued": False}}}),
        "slices.s.count",
        "pods past a queue are not refused",
        "refuse_unqueued",
        (CLASS, QUEUED),
    ),
    Case(
        "provisioner-spare",
        (JOBS, OFF),
        "slices.s.count",
        "queues own all 1 slices",
        "fewer slices than count",
        (JOBS | {"count": 2}, OFF),
    ),
    Case(
        "provisioner-digest",
        (JOBS, OFF | {"software": {"tpu_provisioner": {"image": f"{IMAGE}:v1"}}}),
        "software.tpu_provisioner.image",
        "a tag, which can move",
        "IMAGE@sha256",
        (JOBS, OFF),
    ),
    Case(
        "no-channel-ends",
        (JOBS, OFF),
        "cluster.release_channel",
        "14 June 2027",
        "compute-class",
        (CLASS, QUEUED),
    ),
]
