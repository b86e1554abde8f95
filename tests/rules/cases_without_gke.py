"""Cases of rules about hosts and clusters that are not GKE's, and of what only GKE takes."""

from typing import Any

from tests.platforms import EXISTING, EXISTING_NETWORK, SELF_MANAGED
from tests.rules.cases import V6E, Case, at

OWN: dict[str, Any] = {"cluster": SELF_MANAGED}
RESERVED: dict[str, Any] = {"model": "reservation", "name": "r"}
V5P = {"machine_type": "ct5p-hightpu-4t", "topology": "2x2x2"}
SINGLE = {"machine_type": "ct6e-standard-8t", "topology": "2x4"}
TEMPLATE = "projects/my-project/global/instanceTemplates/t"
GOOGLES = "projects/ubuntu-os-accelerator-images/global/images"
RANGES = {"nodes_cidr": "10.1.0.0/20", "pods_cidr": "10.64.0.0/14"}
JOINED: dict[str, Any] = {"cluster": EXISTING, "network": EXISTING_NETWORK}
DRA = SINGLE | {"devices": "dra"}


def cluster(**settings: Any) -> dict[str, Any]:
    """A self-managed cluster with these settings."""
    return {"cluster": SELF_MANAGED | settings}


def provided(*parts: str, **settings: Any) -> dict[str, Any]:
    """A cluster that exists and has these."""
    return JOINED | {"cluster": EXISTING | {"provides": list(parts)}, **settings}


def control_plane(**settings: Any) -> dict[str, Any]:
    """A self-managed cluster whose control plane has these settings."""
    return cluster(control_plane=settings)


ERRORS = [
    # Each pod alone would find room, and the pool does not grow.
    Case(
        "controllers-fit",
        (V6E | {"topology": "16x16", "count": 5}, OWN | {"queues": {"q": {"namespaces": ["a"], "slices": {"s": 5}}}}),
        "cluster.system_pool.machine_type",
        "The pool has at most 2 nodes, and e2-standard-4 has 12,597 MiB for them",
        "write e2-standard-8",
        (V6E | {"topology": "16x16", "count": 4}, OWN | {"queues": {"q": {"namespaces": ["a"], "slices": {"s": 4}}}}),
    ),
    *[
        Case(
            "generation-without-gke",
            ({"generation": generation, "topology": shape}, at(generation, **OWN)),
            "slices.s.generation",
            f"{generation} slices need GKE: {why}",
            "v5p, v6e, tpu7x, or cluster: {kind: gke}",
            ({"generation": generation, "topology": shape}, at(generation)),
        )
        for generation, shape, why in [
            ("v5e", "4x4", "its machine types are made by GKE and the Cloud TPU API only"),
            ("v4", "2x2x2", "workload policies"),
        ]
    ],
    Case(
        "shape-without-gke",
        (V6E | {"topology": "2x4"}, OWN),
        "slices.s.machine_type",
        "only GKE joins 2 hosts of ct6e-standard-4t to 2x4",
        "machine_type: ct6e-standard-8t",
        (SINGLE, OWN),
    ),
    *[
        Case(
            "services-range-size",
            (SINGLE, OWN | {"network": {"services_cidr": f"{address}/{prefix}"}}),
            "network.services_cidr",
            f"is a /{prefix}; kubeadm takes /12 to /28",
            "a /20 has 4,096 services",
            (SINGLE, OWN | {"network": {"services_cidr": f"{address}/{taken}"}}),
        )
        for address, prefix, taken in (("172.0.0.0", 11, 12), ("172.16.0.0", 29, 28))
    ],
    Case(
        "capacity-without-gke",
        (V6E | {"capacity": "queued"}, OWN),
        "slices.s.capacity.model",
        "queued needs GKE",
        "use flex-start",
        (V6E | {"capacity": "flex-start"}, OWN),
    ),
    Case(
        "capacity-without-gke",
        (V6E | {"capacity": ["spot", "flex-start"]}, OWN),
        "slices.s.capacity",
        "order of fallback, which only GKE's autoscaler follows",
        "name one",
        (V6E | {"capacity": ["flex-start"]}, OWN),
    ),
    Case(
        "shortest-flex-start",
        (V6E | {"capacity": {"model": "flex-start", "max_run_duration": "5m"}}, OWN),
        "slices.s.capacity.max_run_duration",
        "shorter than ten minutes",
        "10m or more",
        (V6E | {"capacity": {"model": "flex-start", "max_run_duration": "10m"}}, OWN),
    ),
    Case(
        "dws-duration",
        (V6E | {"capacity": {"model": "flex-start", "max_run_duration": "8d"}}, OWN),
        "slices.s.capacity.max_run_duration",
        "longer than seven days",
        "7d or less",
        (V6E | {"capacity": {"model": "flex-start", "max_run_duration": "7d"}}, OWN),
    ),
    *[
        Case(
            "settings-of-gke",
            (V6E | {"capacity": RESERVED, key: value}, OWN),
            f"slices.s.{key}",
            f"needs GKE: {why}",
            "leave it out, or use cluster: {kind: gke}",
            (V6E | {"capacity": RESERVED} | without, OWN),
        )
        for key, value, why, without in [
            ("provisioning", "autoscaled", "nothing adds or removes slices", {"provisioning": "fixed"}),
            ("secondary_boot_disks", [{"image": "global/images/cache"}], "it is GKE that finds", {}),
            ("image_streaming", True, "containers start when", {"image_streaming": False}),
            ("dranet", True, "the driver", {"dranet": False}),
            ("additional_networks", [{"network": "n", "subnetwork": "s"}], "hosts have one interface", {}),
            ("dynamic_slicing", True, "the slice controller", {"dynamic_slicing": False}),
            ("host_maintenance", "AS_NEEDED", "Compute Engine asks the reservation", {}),
        ]
    ],
    *[
        Case("hosts-of-gke", (V6E | {key: value}, {}), f"slices.s.{key}", "not GKE's", "self-managed", (V6E, {}))
        for key, value in [("image", f"{GOOGLES}/x"), ("instance_template", TEMPLATE)]
    ],
    *[
        Case(
            "own-template",
            (V6E | {"instance_template": TEMPLATE, key: value}, OWN),
            f"slices.s.{key}",
            "what instance_template says already",
            "leave out one",
            (V6E | {"instance_template": TEMPLATE}, OWN),
        )
        for key, value in [
            ("image", "projects/my-project/global/images/mine"),
            ("boot_disk", {"size_gb": 250}),
            ("kms_key", "projects/p/locations/us-east5/keyRings/r/cryptoKeys/k"),
            ("service_account", "a@my-project.iam.gserviceaccount.com"),
            ("tags", ["t"]),
            ("resource_labels", {"team": "a"}),
        ]
    ],
    *[
        Case(
            "own-template",
            (V6E | {"instance_template": template}, OWN),
            "slices.s.instance_template",
            message,
            hint,
            (V6E | {"instance_template": "projects/my-project/regions/us-east5/instanceTemplates/t"}, OWN),
        )
        for template, message, hint in [
            ("projects/other/global/instanceTemplates/t", "in project other, the platform in my-project", "copy"),
            ("projects/my-project/regions/us-east1/instanceTemplates/t", "in us-east1, the platform", "global"),
        ]
    ],
    Case(
        "own-template",
        (
            V6E
            | {"count": 2, "instance_template": TEMPLATE}
            | {"capacity": RESERVED | {"block": "b", "sub_block": ["x", "y"]}},
            OWN,
        ),
        "slices.s.capacity.sub_block",
        "slices of one template are in one sub-block",
        "an entry under slices for each",
        (
            V6E
            | {"count": 2, "instance_template": TEMPLATE}
            | {"capacity": RESERVED | {"block": "b", "sub_block": "x"}},
            OWN,
        ),
    ),
    *[
        Case(
            "image-of-generation",
            (V6E | {"image": image}, OWN),
            "slices.s.image",
            "is not an image for v6e",
            "ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e",
            (V6E | {"image": right}, OWN),
        )
        for image, right in [
            (
                f"{GOOGLES}/ubuntu-accel-2404-amd64-tpu-tpu7x-v20260320",
                f"{GOOGLES}/family/ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e",
            ),
            ("global/images/family/ubuntu-accel-2404-amd64-tpu-tpu7x", "projects/p/global/images/of-our-own"),
        ]
    ],
    Case(
        "group-name",
        (V6E, OWN | {"slice": "s" * 48}),
        "slices." + "s" * 48,
        "more than 53 characters",
        "shorten the name by 1",
        (V6E, OWN | {"slice": "s" * 47}),
    ),
    Case(
        "cpu-group-name",
        (V6E, cluster(cpu_pools={"c" * 50: {"machine_type": "n2-standard-4", "min": 1}})),
        "cluster.cpu_pools." + "c" * 50,
        "more than 53 characters",
        "shorten the name by 1",
        (V6E, cluster(cpu_pools={"c" * 49: {"machine_type": "n2-standard-4", "min": 1}})),
    ),
    Case(
        "dra-kubernetes",
        (V6E | {"devices": "dra"}, JOINED | {"cluster": EXISTING | {"version": "1.33.5"}}),
        "slices.s.devices",
        "dra needs Kubernetes 1.34; cluster.version is 1.33.5",
        "1.34 or later",
        (V6E | {"devices": "dra"}, JOINED | {"cluster": EXISTING | {"version": "1.34.0"}}),
    ),
    Case(
        "dra-generation",
        ({"machine_type": "tpu7x-standard-4t", "topology": "2x2x2", "devices": "dra"}, at("tpu7x", **OWN)),
        "slices.s.devices",
        "does not support tpu7x",
        "device-plugin",
        ({"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}, at("tpu7x", **OWN)),
    ),
    *[
        Case(
            "no-token-in-metadata",
            (V6E | marks, OWN),
            f"slices.s.{path}",
            "looks like a join token",
            "another text",
            (V6E | {"labels": {"release": "v1.2.3", "scope": "server.interconnections"}}, OWN),
        )
        for path, marks in [
            ("labels.team", {"labels": {"team": "abcdef.0123456789abcdef"}}),
            ("taints[0]", {"taints": [{"key": "abcdef.0123456789abcdef", "value": "a"}]}),
        ]
    ],
    Case(
        "drain-time",
        (V6E | {"node_drain": {"grace": "20m", "pdb_timeout": "11m"}}, OWN),
        "slices.s.node_drain",
        "31 minutes together; an update waits 30",
        "30m together",
        (V6E | {"node_drain": {"grace": "20m", "pdb_timeout": "10m"}}, OWN),
    ),
    Case(
        "image-that-joins",
        (V6E, cluster(bootstrap=False, image="projects/p/global/images/ours")),
        "slices.s.image",
        "join only if their image does it",
        "instance_template",
        (V6E | {"instance_template": TEMPLATE}, cluster(bootstrap=False, image="projects/p/global/images/ours")),
    ),
    Case(
        "images-that-join",
        (V6E | {"instance_template": TEMPLATE}, cluster(bootstrap=False)),
        "cluster.image",
        "with bootstrap: false",
        "image of your own",
        (
            V6E | {"image": "projects/p/global/images/ours"},
            JOINED | {"cluster": EXISTING | {"bootstrap": False}},
        ),
    ),
    Case(
        "network-of-cluster",
        (V6E, {"cluster": EXISTING}),
        "network",
        "in its own network",
        "kind: existing",
        (V6E, JOINED),
    ),
    Case(
        "services-range",
        (V6E, {"network": EXISTING_NETWORK}),
        "network.services_range",
        "is missing",
        "secondary range for services",
        (V6E, {"network": EXISTING_NETWORK | {"services_range": "services"}}),
    ),
    *[
        Case(
            "known-ranges",
            (V6E, OWN | {"network": EXISTING_NETWORK | {other: RANGES[other]}}),
            f"network.{key}",
            "is missing",
            "write what the subnet",
            (V6E, OWN | {"network": EXISTING_NETWORK | RANGES}),
        )
        for key, other in [("nodes_cidr", "pods_cidr"), ("pods_cidr", "nodes_cidr")]
    ],
    Case(
        "ranges-apart",
        (V6E, OWN | {"network": EXISTING_NETWORK | RANGES | {"services_cidr": "10.1.0.0/20"}}),
        "network.services_cidr",
        "10.1.0.0/20 overlaps nodes_cidr 10.1.0.0/20",
        "do not overlap",
        (V6E, OWN | {"network": EXISTING_NETWORK | RANGES}),
    ),
    Case(
        "ranges-large-enough",
        (V6E, OWN | {"network": EXISTING_NETWORK | RANGES | {"pods_cidr": "10.64.0.0/24"}}),
        "network.pods_cidr",
        "the pods of 7 nodes need 896",
        "/22 or larger",
        (V6E, OWN | {"network": EXISTING_NETWORK | RANGES | {"pods_cidr": "10.64.0.0/22"}}),
    ),
    Case(
        "external-access",
        (V6E, control_plane(access="external")),
        "cluster.control_plane.authorized_networks",
        "nobody could use the address",
        "addresses you call from",
        (
            V6E,
            control_plane(access="external", authorized_networks=[{"cidr": "192.0.2.0/24", "name": "office"}]),
        ),
    ),
    Case(
        "access-not-open",
        (V6E, control_plane(authorized_networks=[{"cidr": "0.0.0.0/0", "name": "all"}])),
        "cluster.control_plane.authorized_networks[0].cidr",
        "whole internet",
        "node range",
        (V6E, control_plane(authorized_networks=[{"cidr": "192.0.2.0/24", "name": "office"}])),
    ),
    *[
        Case(
            "control-plane-zones",
            (V6E, control_plane(replicas=replicas, zones=zones)),
            f"cluster.control_plane.zones{part}",
            message,
            hint,
            (V6E, control_plane(replicas=3, zones=["us-east5-a", "us-east5-b", "us-east5-c"])),
        )
        for replicas, zones, part, message, hint in [
            (3, ["us-east5-a", "us-east1-b"], "[1]", "not a zone of us-east5", "zones of us-east5"),
            (3, ["us-east5-a", "us-east5-a"], "[1]", "twice", "once"),
            (1, ["us-east5-a", "us-east5-b"], "", "2 zones for a control plane of 1", "as replicas at most"),
        ]
    ],
    Case(
        "backup-days",
        (V6E, control_plane(backup_days=7)),
        "cluster.control_plane.backup_days",
        "no backups to keep",
        "backups: true",
        (V6E, control_plane(backups=True, backup_days=7)),
    ),
    Case(
        "kubernetes-version",
        (V6E, cluster(version="1.33.5")),
        "cluster.version",
        "1.33.5 is too old",
        "1.34 or later",
        (V6E, cluster(version="1.34.0")),
    ),
    Case(
        "kubernetes-version",
        (V6E, JOINED | {"cluster": EXISTING | {"version": "1.30.1"}}),
        "cluster.version",
        "v1beta4",
        "1.31 or later",
        (V6E, JOINED | {"cluster": EXISTING | {"version": "1.31.0"}}),
    ),
    Case(
        "image-architecture",
        (V6E, cluster(system_pool={"machine_type": "c4a-standard-4"})),
        "cluster.system_pool.machine_type",
        "an Arm machine, and cluster.image is for the other kind",
        "an x86 machine type",
        (
            V6E,
            cluster(
                image="projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-arm64",
                system_pool={"machine_type": "c4a-standard-4"},
                control_plane={"machine_type": "c4a-standard-4"},
            ),
        ),
    ),
    Case(
        "cpu-machine-in-zone",
        (
            {"generation": "v6e", "topology": "4x4"},
            {"zone": "us-central2-b", "allow_unlisted_zone": True, **control_plane(machine_type="e2-standard-4")},
        ),
        "cluster.control_plane.machine_type",
        "us-central2-b does not offer e2-standard-4",
        "n2-standard-4",
        (
            {"generation": "v6e", "topology": "4x4"},
            {"zone": "us-central2-b", "allow_unlisted_zone": True, **control_plane(machine_type="n2-standard-4")},
        ),
    ),
    Case(
        "fixed-pools",
        (V6E, cluster(system_pool={"min": 12, "max": 20})),
        "cluster.system_pool.max",
        "nothing adds hosts",
        "min is the number",
        (V6E, cluster(system_pool={"min": 12})),
    ),
    Case(
        "secrets-apart",
        (V6E, JOINED | {"cluster": EXISTING | {"access_secret": EXISTING["join_secret"]}}),
        "cluster.access_secret",
        "every host may read",
        "two secrets",
        (V6E, JOINED),
    ),
    Case(
        "worker-without-gke",
        (
            V6E,
            OWN | {"multikueue": {"role": "worker"}, "queues": {"q": {"namespaces": ["a"], "slices": {"s": 1}}}},
        ),
        "multikueue.role",
        "worker needs GKE",
        "kubeconfig of your own",
        (V6E, OWN | {"queues": {"q": {"namespaces": ["a"], "slices": {"s": 1}}}}),
    ),
    Case(
        "provides-once",
        (V6E, provided("jobset", "kueue", "jobset")),
        "cluster.provides[2]",
        "jobset is in the list twice",
        "once",
        # What is not used yet may be listed all the same: it says what the cluster has.
        (V6E, provided("device-plugin", "dra-driver", "jobset", "kueue", "namespaces", namespaces=["a"])),
    ),
    *[
        Case(
            "provides-settings",
            (slice_, provided(part, software={key: {setting: value}})),
            f"software.{key}.{setting}",
            f"cluster.provides has {part}",
            "leave it out",
            right,
        )
        for slice_, part, key, setting, value, right in [
            (V6E, "kueue", "kueue", "fair_sharing", False, (V6E, JOINED | {"software": {"kueue": {"retries": 3}}})),
            (V6E, "kueue", "kueue", "version", "0.19.2", (V6E, provided("kueue", software={"kueue": {}}))),
            (
                V6E,
                "kueue",
                "kueue",
                "retries",
                3,
                (V6E, provided("kueue", software={"kueue": {"topology_aware": True}})),
            ),
            (
                V6E,
                "jobset",
                "jobset",
                "version",
                "0.12.0",
                (V6E, provided("jobset", software={"kueue": {"retries": 3}})),
            ),
            (DRA, "dra-driver", "dra_driver", "version", "0.2.0", (DRA, provided("dra-driver"))),
        ]
    ],
    Case(
        "provides-namespaces",
        (V6E, provided("namespaces")),
        "namespaces",
        "cluster.provides has them",
        "namespaces that the cluster has",
        (V6E, provided("namespaces", namespaces=[])),
    ),
    *[
        Case(
            "node-labels",
            (V6E | {"taints": [{"key": "team", "value": "a"} | wrong]}, settings),
            f"slices.s.taints[0].{key}",
            message,
            "letters, digits",
            (V6E | {"taints": [{"key": "team", "value": "a"}]}, settings),
        )
        for settings in ({}, OWN)
        for key, wrong, message in [
            ("key", {"key": "a,b"}, "not a label key"),
            ("value", {"value": "x:y"}, "not a label value"),
        ]
    ],
]

WARNINGS = [
    Case(
        "v5p-without-gke",
        (V5P, at("v5p", **OWN)),
        "slices.s.machine_type",
        "no tool is known to use it",
        "one slice",
        (V6E, OWN),
    ),
    *[
        Case(
            "bulk-capacity",
            (V6E | {"capacity": model}, OWN),
            "slices.s.capacity.model",
            f"disagree whether {model} hosts",
            "reservation or flex-start",
            right,
        )
        for model, right in [
            ("spot", (SINGLE | {"capacity": "spot"}, OWN)),
            ("on-demand", (V6E | {"capacity": RESERVED}, OWN)),
        ]
    ],
    *[
        Case(
            "provides-one-driver",
            (wrong, provided(part)),
            "cluster.provides",
            f"{part} is the cluster's own, and some slices use the {other}",
            "hosts with the label cloud.google.com/gke-tpu-dra-driver=true",
            (right, provided(part)),
        )
        for wrong, right, part, other in [
            (DRA, SINGLE, "device-plugin", "dra-driver"),
            (SINGLE, DRA, "dra-driver", "device-plugin"),
        ]
    ],
    Case(
        "one-zone",
        (V6E, control_plane(replicas=3)),
        "cluster.control_plane.zones",
        "all 3 machines of the control plane are in one zone",
        "three zones of us-east5",
        (V6E, control_plane(replicas=3, zones=["us-east5-a", "us-east5-b", "us-east5-c"])),
    ),
    Case(
        "policies-of-networks",
        (V6E, OWN | {"namespaces": ["team-a", "team-b"]}),
        "cluster.kind",
        "NetworkPolicies have no effect",
        "use GKE, or a platform for each team",
        (V6E, OWN | {"namespaces": ["team-a"]}),
    ),
    Case(
        "no-backups",
        (V6E, OWN),
        "cluster.control_plane.backups",
        "the only copy of etcd",
        "backups: true",
        (V6E, control_plane(backups=True)),
    ),
    Case(
        "empty-pool",
        (V6E, cluster(cpu_pools={"c": {"machine_type": "n2-standard-4"}})),
        "cluster.cpu_pools.c.min",
        "nothing adds any",
        "how many",
        (V6E, cluster(cpu_pools={"c": {"machine_type": "n2-standard-4", "min": 1}})),
    ),
]
