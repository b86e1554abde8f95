"""Every rule: what it refuses, where, with which way out; and what it lets pass."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from platform_config.platform import below
from rules.check import SCOPES, warnings
from rules.registry import Finding, Rule
from tests.platforms import errors, load, raw
from tests.rules import cases_configuration, cases_provisioning, cases_serving, cases_teams, cases_without_gke
from tests.rules.cases import V6E, Case, at

SINGLE = {"machine_type": "ct6e-standard-8t", "topology": "2x4"}
IRON = {"machine_type": "tpu7x-standard-4t", "topology": "4x4x4"}
CUBE = IRON | {
    "dynamic_slicing": True,
    "capacity": {"model": "reservation", "name": "r", "block": "b", "sub_block": "s"},
}
RAPID = {"release_channel": "RAPID"}
RESERVED = {"model": "reservation", "name": "r"}
MULTIKUEUE: dict[str, Any] = {"role": "manager", "workers": {"us": {"stack": "o/p/us"}}, "slices": {"s": V6E}}
MANAGER: dict[str, Any] = {
    "slices": {},
    "multikueue": MULTIKUEUE,
    "queues": {"q": {"namespaces": ["a"], "slices": {"s": 1}}},
}


ERRORS = [
    Case("one-shape", ({"topology": "4x4"}, {}), "slices.s", "topology given", "machine_type", (V6E, {})),
    Case("one-shape", ({}, {}), "slices.s", "nothing given", "machine_type", (V6E, {})),
    Case("one-shape", (V6E | {"generation": "v6e"}, {}), "slices.s", "exactly one of", "machine_type", (V6E, {})),
    Case(
        "no-bare-suffix",
        ({"generation": "v5p-8", "topology": "2x2x1"}, at("v5p")),
        "slices.s.generation",
        "8 TensorCores are 4 chips (xpk), or 8 chips (cluster-toolkit)",
        "topology: 2x2x1 for the first, or topology: 2x2x2 for the second",
        ({"generation": "v5p", "topology": "2x2x1"}, at("v5p")),
    ),
    Case(
        "no-bare-suffix",
        ({"machine_type": "v6e-16", "topology": "4x4"}, {}),
        "slices.s.machine_type",
        "names a whole slice",
        "generation: v6e and topology: 4x4",
        ({"generation": "v6e", "topology": "4x4"}, {}),
    ),
    Case(
        "known-generation",
        ({"generation": "Trillium", "topology": "4x4"}, {}),
        "slices.s.generation",
        "not a TPU generation",
        "did you mean v6e?",
        ({"generation": "v6e", "topology": "4x4"}, {}),
    ),
    Case(
        "known-generation",
        ({"generation": "h100", "topology": "4x4"}, {}),
        "slices.s.generation",
        "not a TPU generation",
        "one of v4, v5e, v5p, v6e, tpu7x",
        ({"generation": "v6e", "topology": "4x4"}, {}),
    ),
    Case(
        "known-machine-type",
        ({"machine_type": "ct6e-standrd-4t", "topology": "4x4"}, {}),
        "slices.s.machine_type",
        "not a TPU machine type",
        "did you mean ct6e-standard-4t?",
        (V6E, {}),
    ),
    Case(
        "known-machine-type",
        ({"machine_type": "ct5p-hightpu-2t", "topology": "2x2x1"}, at("v5p")),
        "slices.s.machine_type",
        "Compute Engine documents it",
        "ct5p-hightpu-4t",
        ({"machine_type": "ct5p-hightpu-4t", "topology": "2x2x1"}, at("v5p")),
    ),
    Case("topology-form", (V6E | {"topology": "2*4"}, {}), "slices.s.topology", "'2*4'", "write 2x4", (V6E, {})),
    Case("topology-form", (V6E | {"topology": "big"}, {}), "slices.s.topology", "'big'", "for example 4x4", (V6E, {})),
    Case(
        "topology-dimensions",
        (V6E | {"topology": "4x4x4"}, {}),
        "slices.s.topology",
        "three dimensions; v6e has two",
        "8x8 (64 chips)",
        (V6E | {"topology": "8x8"}, {}),
    ),
    Case("topology-order", (V6E | {"topology": "4x2"}, {}), "slices.s.topology", "usual order", "write 2x4", (V6E, {})),
    Case(
        "topology-exists",
        (V6E | {"topology": "3x3"}, {}),
        "slices.s.topology",
        "v6e has no topology 3x3",
        "2x4 (8 chips)",
        (V6E | {"topology": "2x4"}, {}),
    ),
    Case(
        "topology-exists",
        ({"generation": "v4", "topology": "4x4x260"}, at("v4")),
        "slices.s.topology",
        "at most 64 4x4x4 cubes",
        "chips)",
        (
            {"generation": "v4", "topology": "4x4x256"},
            at("v4", network={"nodes_cidr": "10.0.0.0/18", "services_cidr": "10.0.64.0/20"}),
        ),
    ),
    Case(
        "machine-fits-topology",
        (SINGLE | {"topology": "4x4"}, {}),
        "slices.s.topology",
        "ct6e-standard-8t is a slice by itself, 2x4",
        "topology: 2x4, or machine_type: ct6e-standard-4t",
        (SINGLE, {}),
    ),
    Case(
        "machine-fits-topology",
        (V6E | {"topology": "1x1"}, {}),
        "slices.s.topology",
        "cannot build 1x1",
        "topology: 2x2, or machine_type: ct6e-standard-1t",
        (V6E | {"topology": "2x2"}, {}),
    ),
    Case(
        "one-machine-type",
        ({"generation": "v6e", "topology": "2x4"}, {}),
        "slices.s.topology",
        "2 hosts of ct6e-standard-4t or 1 host of ct6e-standard-8t",
        "machine_type: ct6e-standard-4t or ct6e-standard-8t",
        (SINGLE, {}),
    ),
    Case(
        "chips-unambiguous",
        ({"generation": "v5p", "chips": 256}, at("v5p")),
        "slices.s.chips",
        "2 topologies of v5p have 256 chips",
        "4x4x16 or 4x8x8",
        ({"generation": "v5p", "topology": "4x8x8"}, at("v5p")),
    ),
    Case(
        "chips-unambiguous",
        ({"generation": "v6e", "chips": 12}, {}),
        "slices.s.chips",
        "no topology of v6e has 12 chips",
        "2x4 (8 chips)",
        ({"generation": "v6e", "chips": 16}, {}),
    ),
    Case(
        "chips-unambiguous",
        ({"generation": "v6e", "chips": 8}, {}),
        "slices.s.chips",
        "2 hosts of ct6e-standard-4t or 1 host of ct6e-standard-8t",
        "machine_type: ct6e-standard-4t or ct6e-standard-8t",
        ({"generation": "v6e", "chips": 4}, {}),
    ),
    Case(
        "pool-size",
        ({"machine_type": "ct5p-hightpu-4t", "topology": "16x16x32"}, at("v5p")),
        "slices.s.topology",
        "takes 2048 hosts; a slice has at most 2000",
        "8000 chips",
        ({"machine_type": "ct5p-hightpu-4t", "topology": "16x16x28"}, at("v5p")),
    ),
    Case(
        "pool-size",
        (SINGLE | {"count": 2001}, {}),
        "slices.s.count",
        "share one pool",
        "several entries",
        (SINGLE | {"count": 2000}, {}),
    ),
    Case(
        "generation-in-zone",
        ({"generation": "v5e", "topology": "4x4"}, {}),
        "slices.s.generation",
        "v5e is not known in us-east5-b, which offers v6e",
        "us-central1-a",
        ({"generation": "v5e", "topology": "4x4"}, {"allow_unlisted_zone": True}),
    ),
    Case(
        "generation-in-zone",
        (IRON, {}),
        "slices.s.machine_type",
        "tpu7x is not known in us-east5-b",
        "us-central1-c",
        (IRON, {"zone": "some-region9-z"}),
    ),
    Case(
        "dws-generation",
        ({"generation": "v4", "topology": "2x2x2", "capacity": "flex-start"}, at("v4")),
        "slices.s.capacity.model",
        "flex-start is not available for v4",
        "on-demand, spot or reservation",
        ({"generation": "v4", "topology": "2x2x2", "capacity": "spot"}, at("v4")),
    ),
    Case(
        "dws-duration",
        (V6E | {"capacity": {"model": "queued", "max_run_duration": "8d"}}, {}),
        "slices.s.capacity.max_run_duration",
        "longer than seven days",
        "7d or less",
        (V6E | {"capacity": {"model": "queued", "max_run_duration": "7d"}}, {}),
    ),
    Case(
        "dws-autoscales",
        (V6E | {"capacity": "flex-start", "provisioning": "fixed"}, {}),
        "slices.s.provisioning",
        "hosts come when pods wait",
        "leave provisioning out",
        (V6E | {"capacity": "flex-start", "provisioning": "autoscaled"}, {}),
    ),
    Case(
        "fallback-order",
        (V6E | {"capacity": ["spot", "queued"]}, {}),
        "slices.s.capacity[1]",
        "queued cannot be one of several",
        "flex-start",
        (V6E | {"capacity": ["spot", "flex-start"]}, {}),
    ),
    Case(
        "fallback-order",
        (V6E | {"capacity": ["spot", "spot"]}, {}),
        "slices.s.capacity[1]",
        "in the list twice",
        "once",
        (V6E | {"capacity": ["spot"]}, {}),
    ),
    Case(
        "fallback-order",
        (V6E | {"capacity": ["on-demand", "spot"], "provisioning": "fixed"}, {}),
        "slices.s.provisioning",
        "contradicts a list",
        "leave it out",
        (V6E | {"capacity": ["on-demand", "spot"]}, {}),
    ),
    Case(
        "reservation-parts",
        (V6E | {"capacity": RESERVED | {"sub_block": "s"}}, {}),
        "slices.s.capacity.block",
        "is missing",
        "name the block",
        (V6E | {"capacity": RESERVED | {"block": "b", "sub_block": "s"}}, {}),
    ),
    Case(
        "reservation-parts",
        (V6E | {"count": 3, "capacity": RESERVED | {"block": "b", "sub_block": ["s", "t"]}}, {}),
        "slices.s.capacity.sub_block",
        "2 sub-blocks for 3 slices",
        "one for each",
        (V6E | {"count": 2, "capacity": RESERVED | {"block": "b", "sub_block": ["s", "t"]}}, {}),
    ),
    Case(
        "reservation-parts",
        (SINGLE | {"count": 2, "capacity": RESERVED | {"block": "b", "sub_block": ["s", "t"]}}, {}),
        "slices.s.capacity.sub_block",
        "share one pool",
        "several entries",
        (SINGLE | {"count": 2, "capacity": RESERVED | {"block": "b", "sub_block": "s"}}, {}),
    ),
    Case(
        "sub-block-size",
        (IRON | {"count": 2, "capacity": RESERVED | {"block": "b", "sub_block": "s"}}, at("tpu7x")),
        "slices.s.capacity.sub_block",
        "32 hosts do not fit a sub-block of 16",
        "for each slice",
        (IRON | {"count": 2, "capacity": RESERVED | {"block": "b", "sub_block": ["s", "t"]}}, at("tpu7x")),
    ),
    Case(
        "inactive-reservation",
        (V6E | {"provisioning": "autoscaled", "capacity": RESERVED | {"active": False}}, {}),
        "slices.s.capacity.active",
        "false has no effect here",
        "provisioning: fixed",
        (V6E | {"capacity": RESERVED | {"active": False}}, {}),
    ),
    Case(
        "periodic-maintenance",
        (V6E | {"host_maintenance": "PERIODIC"}, {}),
        "slices.s.host_maintenance",
        "needs a reservation with periodic maintenance",
        "AS_NEEDED",
        (V6E | {"host_maintenance": "PERIODIC", "capacity": RESERVED | {"maintenance": "PERIODIC"}}, {}),
    ),
    Case(
        "dra-generation",
        (IRON | {"devices": "dra"}, at("tpu7x")),
        "slices.s.devices",
        "does not support tpu7x",
        "devices: device-plugin",
        (IRON, at("tpu7x")),
    ),
    Case(
        "dra-queued",
        (V6E | {"devices": "dra", "capacity": "queued"}, {}),
        "slices.s.devices",
        "never requests hosts for pods with DRA claims",
        "devices: device-plugin, or capacity: flex-start",
        (V6E | {"devices": "dra", "capacity": "flex-start"}, {}),
    ),
    Case(
        "boot-disk-type",
        (V6E | {"boot_disk": {"type": "pd-balanced"}}, {}),
        "slices.s.boot_disk.type",
        "pd-balanced is not a boot disk of v6e",
        "hyperdisk-balanced",
        (V6E | {"boot_disk": {"type": "hyperdisk-balanced"}}, {}),
    ),
    Case(
        "secondary-disk-needs-streaming",
        (V6E | {"secondary_boot_disks": [{"image": "global/images/i"}], "image_streaming": False}, {}),
        "slices.s.image_streaming",
        "need image streaming",
        "leave image_streaming out",
        (V6E | {"secondary_boot_disks": [{"image": "global/images/i"}]}, {}),
    ),
    Case(
        "dranet-machine",
        ({"generation": "v5e", "topology": "4x4", "dranet": True}, at("v5e")),
        "slices.s.dranet",
        "has no accelerator network interfaces",
        "tpu7x-standard-4t",
        (V6E | {"dranet": True}, {}),
    ),
    Case(
        "one-network-model",
        (V6E | {"dranet": True, "additional_networks": [{"network": "n", "subnetwork": "s"}]}, {}),
        "slices.s.additional_networks",
        "cannot be combined with dranet",
        "keep one",
        (V6E | {"additional_networks": [{"network": "n", "subnetwork": "s"}]}, {}),
    ),
    Case(
        "dynamic-slicing",
        (V6E | {"dynamic_slicing": True, "capacity": RESERVED | {"block": "b", "sub_block": "s"}}, {"cluster": RAPID}),
        "slices.s.dynamic_slicing",
        "v6e has no dynamic slicing",
        "use tpu7x",
        (CUBE, at("tpu7x", cluster=RAPID)),
    ),
    Case(
        "dynamic-slicing",
        (CUBE | {"topology": "2x4x4"}, at("tpu7x", cluster=RAPID)),
        "slices.s.topology",
        "joins 4x4x4 cubes",
        "write 4x4x4",
        (CUBE, at("tpu7x", cluster=RAPID)),
    ),
    Case(
        "dynamic-slicing",
        (IRON | {"dynamic_slicing": True}, at("tpu7x", cluster=RAPID)),
        "slices.s.capacity",
        "needs a reservation",
        "block and sub_block",
        (CUBE, at("tpu7x", cluster=RAPID)),
    ),
    Case(
        "dynamic-slicing",
        (IRON | {"dynamic_slicing": True, "capacity": RESERVED}, at("tpu7x", cluster=RAPID)),
        "slices.s.capacity.sub_block",
        "1 cubes need as many sub-blocks",
        "one for each",
        (CUBE, at("tpu7x", cluster=RAPID)),
    ),
    Case(
        "dynamic-slicing",
        (CUBE, at("tpu7x")),
        "slices.s.dynamic_slicing",
        "RAPID release channel only",
        "cluster.release_channel: RAPID",
        (CUBE, at("tpu7x", cluster=RAPID)),
    ),
    *[
        Case(
            "version-floor",
            (spec, at(generation, cluster={"version": below_floor, **RAPID})),
            f"slices.s.{key}",
            f"needs GKE {floor}",
            f"{floor} or later",
            (spec, at(generation, cluster={"version": floor, **RAPID})),
        )
        for spec, generation, key, below_floor, floor in [
            (V6E, "v6e", "machine_type", "1.30", "1.31.1-gke.1846000"),
            (IRON, "tpu7x", "machine_type", "1.34.0-gke.2200999", "1.34.0-gke.2201000"),
            (V6E | {"devices": "dra"}, "v6e", "devices", "1.34.0", "1.34.1-gke.1127000"),
            (V6E | {"dranet": True}, "v6e", "dranet", "1.33", "1.34.1-gke.1829001"),
            (V6E | {"capacity": "queued"}, "v6e", "capacity", "1.32.9", "1.33.0-gke.1712000"),
            (CUBE, "tpu7x", "dynamic_slicing", "1.35.1", "1.35.2-gke.1842000"),
        ]
    ],
    Case(
        "pool-name",
        (V6E | {"capacity": ["spot", "flex-start"]}, {"slice": "a-name-that-leaves-no-room-for-it"}),
        "slices.a-name-that-leaves-no-room-for-it",
        "more than 40 characters",
        "shorten the name by 6",
        (V6E | {"capacity": ["spot", "flex-start"]}, {"slice": "a-name-that-leaves-room-for"}),
    ),
    Case(
        "node-labels",
        (V6E | {"labels": {"cloud.google.com/gke-tpu-topology": "4x4"}}, {}),
        "slices.s.labels.cloud.google.com/gke-tpu-topology",
        "set for you",
        "leave it out",
        (V6E | {"labels": {"example.com/team": "a"}}, {}),
    ),
    Case(
        "node-labels",
        (V6E | {"labels": {"te am": "a b"}}, {}),
        "slices.s.labels.te am",
        "not a label",
        "letters, digits",
        (V6E | {"labels": {"team": "a"}}, {}),
    ),
    Case(
        "node-labels",
        (V6E | {"taints": [{"key": "google.com/tpu", "value": "present"}]}, {}),
        "slices.s.taints[0].key",
        "set for you",
        "leave it out",
        (V6E | {"taints": [{"key": "team", "value": "a"}]}, {}),
    ),
    Case(
        "resource-labels",
        (V6E | {"resource_labels": {"Team": "A"}}, {}),
        "slices.s.resource_labels.Team",
        "not a Google Cloud label",
        "lower-case",
        (V6E | {"resource_labels": {"team": "a"}}, {}),
    ),
    Case(
        "network-tags",
        (V6E | {"tags": ["Tag"]}, {}),
        "slices.s.tags[0]",
        "'Tag'",
        "lower-case",
        (V6E | {"tags": ["tag"]}, {}),
    ),
    *[
        Case(
            rule,
            ({**V6E, **wrong_slice}, wrong_platform),
            path,
            "the key is in europe-west4, what it encrypts in us-east5",
            "a key in us-east5",
            (V6E, {}),
        )
        for key in ["projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k"]
        for rule, wrong_slice, wrong_platform, path in [
            ("disk-key-region", {"kms_key": key}, {}, "slices.s.kms_key"),
            ("cluster-key-region", {}, {"cluster": {"kms_key": key}}, "cluster.kms_key"),
        ]
    ],
    Case(
        "pool-names-unique",
        (V6E, {"more": {"s-0": SINGLE}}),
        "slices.s-0",
        "is also a pool of slices.s",
        "another name",
        (V6E, {"more": {"s0": SINGLE}}),
    ),
    Case(
        "pool-names-unique",
        (V6E, {"cluster": {"cpu_pools": {"system": {"machine_type": "n2-standard-4"}}}}),
        "cluster.cpu_pools.system",
        "is also the system pool",
        "another name",
        (V6E, {"cluster": {"cpu_pools": {"cpu": {"machine_type": "n2-standard-4"}}}}),
    ),
    Case(
        "pool-names-unique",
        (V6E | {"capacity": ["spot", "flex-start"]}, {"more": {"s-spot": SINGLE}}),
        "slices.s-spot",
        "slices.s has a fallback of that name",
        "another name",
        (V6E | {"capacity": ["spot", "flex-start"]}, {"more": {"spot": SINGLE}}),
    ),
    Case(
        "access-not-open",
        (V6E, {"cluster": {"authorized_networks": [{"cidr": "0.0.0.0/0", "name": "all"}]}}),
        "cluster.authorized_networks[0].cidr",
        "whole internet",
        "DNS endpoint",
        (V6E, {"cluster": {"authorized_networks": [{"cidr": "192.0.2.0/24", "name": "office"}]}}),
    ),
    Case(
        "ranges-apart",
        (V6E, {"network": {"services_cidr": "10.0.0.0/20"}}),
        "network.services_cidr",
        "overlaps nodes_cidr 10.0.0.0/20",
        "do not overlap",
        (V6E, {"network": {"services_cidr": "10.1.0.0/20"}}),
    ),
    Case(
        "ranges-large-enough",
        (V6E | {"topology": "16x16", "count": 4}, {"network": {"nodes_cidr": "10.0.0.0/24"}}),
        "network.nodes_cidr",
        "266 nodes need 270",
        "use a /23",
        (V6E | {"topology": "16x16", "count": 4}, {"network": {"nodes_cidr": "10.0.0.0/23"}}),
    ),
    Case(
        "ranges-large-enough",
        (V6E | {"topology": "16x16", "count": 4}, {"network": {"pods_cidr": "10.4.0.0/20"}}),
        "network.pods_cidr",
        "the pods of 266 nodes need 10752",
        "use a /18",
        (V6E | {"topology": "16x16", "count": 4}, {"network": {"pods_cidr": "10.4.0.0/18"}}),
    ),
    Case(
        "maintenance-window",
        (V6E, {"cluster": {"maintenance": {"start": "2026-01-03T00:00:00Z", "end": "2026-01-03T02:00:00Z"}}}),
        "cluster.maintenance.end",
        "lasts 2 hours",
        "a few hours after start",
        (V6E, {"cluster": {"maintenance": {"start": "2026-01-03T00:00:00Z", "end": "2026-01-03T06:00:00Z"}}}),
    ),
    Case(
        "maintenance-window",
        (V6E, {"cluster": {"maintenance": {"recurrence": "FREQ=WEEKLY;BYDAY=SA"}}}),
        "cluster.maintenance",
        "leave 32 hours in 32 days; GKE wants 48",
        "longer window or more days",
        (V6E, {"cluster": {"maintenance": {"recurrence": "FREQ=DAILY"}}}),
    ),
    *[
        Case(
            "maintenance-exclusions",
            (V6E, {"cluster": {"maintenance": {"exclusions": wrong}}}),
            f"cluster.maintenance.exclusions[{len(wrong) - 1}].{key}",
            message,
            hint,
            (V6E, {"cluster": {"maintenance": {"exclusions": [freeze]}}}),
        )
        for freeze in [
            {"name": "a", "start": "2026-12-20T00:00:00Z", "end": "2027-01-03T00:00:00Z", "scope": "NO_UPGRADES"}
        ]
        for wrong, key, message, hint in [
            ([freeze, freeze], "name", "there twice", "another name"),
            ([freeze | {"end": "2026-12-01T00:00:00Z"}], "end", "not after start", "later end"),
            ([freeze | {"end": None}], "end", "cannot last until end of support", "NO_MINOR_OR_NODE_UPGRADES"),
        ]
    ],
    Case(
        "cpu-machine-in-zone",
        (
            {"generation": "v4", "topology": "2x2x2"},
            at("v4", cluster={"system_pool": {"machine_type": "e2-standard-4"}}),
        ),
        "cluster.system_pool.machine_type",
        "us-central2-b does not offer e2-standard-4",
        "n2-standard-4",
        (
            {"generation": "v4", "topology": "2x2x2"},
            at("v4", cluster={"system_pool": {"machine_type": "n2d-standard-8"}}),
        ),
    ),
    Case(
        "pool-bounds",
        (V6E, {"cluster": {"system_pool": {"min": 5, "max": 3}}}),
        "cluster.system_pool.min",
        "5 is more than max 3",
        "raise max",
        (V6E, {"cluster": {"system_pool": {"min": 3, "max": 3}}}),
    ),
    Case(
        "pool-labels",
        (
            V6E,
            {"cluster": {"cpu_pools": {"c": {"machine_type": "n2-standard-4", "labels": {"kubernetes.io/os": "x"}}}}},
        ),
        "cluster.cpu_pools.c.labels.kubernetes.io/os",
        "set for you",
        "leave it out",
        (V6E, {"cluster": {"cpu_pools": {"c": {"machine_type": "n2-standard-4", "labels": {"team": "x"}}}}}),
    ),
    Case(
        "namespaces",
        (V6E, {"namespaces": ["kube-system"]}),
        "namespaces[0]",
        "system",
        "another",
        (V6E, {"namespaces": ["a"]}),
    ),
    Case(
        "namespaces",
        (V6E, {"namespaces": ["a", "a"]}),
        "namespaces[1]",
        "twice",
        "once",
        (V6E, {"namespaces": ["a", "b"]}),
    ),
    Case(
        "prices",
        (V6E, {"prices": {"v7": {"usd_per_chip_hour": 1, "as_of": "2026-11-01", "source": "s"}}}),
        "prices.v7",
        "not a TPU generation",
        "tpu7x",
        (V6E, {"prices": {"v6e": {"usd_per_chip_hour": 1, "as_of": "2026-11-01", "source": "s"}}}),
    ),
    Case(
        "platform-labels",
        (V6E, {"labels": {"Team": "a"}}),
        "labels.Team",
        "not a Google Cloud label",
        "lower-case",
        (V6E, {"labels": {"team": "a"}}),
    ),
    Case(
        "queue-slices",
        (V6E, {"queues": {"q": {"namespaces": ["a"], "slices": {"t": 1}}}}),
        "queues.q.slices.t",
        "there are no slices t",
        "one of s",
        (V6E, {"queues": {"q": {"namespaces": ["a"], "slices": {"s": 1}}}}),
    ),
    Case(
        "queue-slices",
        (
            V6E,
            {
                "queues": {
                    "q": {"namespaces": ["a"], "slices": {"s": 1}},
                    "r": {"namespaces": ["b"], "slices": {"s": 1}},
                }
            },
        ),
        "queues.r.slices.s",
        "queues own 2 slices of s, which has 1",
        "raise slices.s.count",
        (
            V6E | {"count": 2},
            {
                "queues": {
                    "q": {"namespaces": ["a"], "slices": {"s": 1}},
                    "r": {"namespaces": ["b"], "slices": {"s": 1}},
                }
            },
        ),
    ),
    Case(
        "queue-cohorts",
        (V6E, {"cohorts": {"a": {"parent": "b"}}}),
        "cohorts.a.parent",
        "no cohort b",
        "under cohorts",
        (V6E, {"cohorts": {"a": {"parent": "b"}, "b": {}}}),
    ),
    Case(
        "queue-cohorts",
        (V6E, {"cohorts": {"a": {"parent": "a"}}}),
        "cohorts.a.parent",
        "its own ancestor",
        "break the circle",
        (V6E, {"cohorts": {"a": {}}}),
    ),
    *[
        Case("multikueue-role", ({}, MANAGER | {"multikueue": wrong}), path, message, hint, ({}, MANAGER))
        for wrong, path, message, hint in [
            (MULTIKUEUE | {"workers": {}}, "multikueue.workers", "needs workers", "at least one"),
            (MULTIKUEUE | {"slices": {}}, "multikueue.slices", "needs slices", "repeat the workers'"),
        ]
    ],
    Case(
        "multikueue-role",
        (V6E, {"multikueue": MULTIKUEUE, "queues": MANAGER["queues"]}),
        "slices",
        "runs no work itself",
        "a worker's stack",
        ({}, MANAGER),
    ),
    *[
        Case(
            "multikueue-role",
            (V6E, {"multikueue": {"role": "worker", key: MULTIKUEUE[key]}, "queues": MANAGER["queues"]}),
            f"multikueue.{key}",
            "a setting of managers",
            "role: manager",
            (V6E, {"multikueue": {"role": "worker"}, "queues": MANAGER["queues"]}),
        )
        for key in ("workers", "slices")
    ],
    *[
        Case(
            "multikueue-workers",
            ({}, MANAGER | {"multikueue": MULTIKUEUE | {"workers": wrong}}),
            path,
            message,
            hint,
            ({}, MANAGER | {"multikueue": MULTIKUEUE | {"workers": right}}),
        )
        for wrong, path, message, hint, right in [
            (
                {f"w{index}": {"secret": f"s{index}"} for index in range(21)},
                "multikueue.workers",
                "at most 20",
                "second manager",
                {f"w{index}": {"secret": f"s{index}"} for index in range(20)},
            ),
            ({"us": {}}, "multikueue.workers.us", "neither stack nor secret", "secret: NAME", {"us": {"secret": "s"}}),
            (
                {"us": {"stack": "o/p/us", "secret": "s"}},
                "multikueue.workers.us",
                "both stack and secret",
                "stack: ORGANIZATION/PROJECT/STACK",
                {"us": {"stack": "o/p/us"}},
            ),
            (
                {"us": {"stack": "o/p/us"}, "eu": {"stack": "o/p/us"}},
                "multikueue.workers.eu.stack",
                "is also worker us",
                "once",
                {"us": {"stack": "o/p/us"}, "eu": {"stack": "o/p/eu"}},
            ),
        ]
    ],
    *[
        Case(
            "multikueue-slices",
            ({}, MANAGER | {"multikueue": MULTIKUEUE | {"slices": {"s": V6E | wrong}}}),
            f"multikueue.slices.s.{path}",
            message,
            hint,
            ({}, MANAGER | {"multikueue": MULTIKUEUE | {"slices": {"s": V6E | {"capacity": "queued"}}}}),
        )
        for wrong, path, message, hint in [
            ({"dranet": True}, "dranet", "about node pools", "leave it out"),
            ({"capacity": ["spot", "on-demand"]}, "capacity", "order of fallback", "another entry"),
        ]
    ],
    Case(
        "multikueue-queues",
        (V6E, {"multikueue": {"role": "worker"}}),
        "queues",
        "a worker without queues takes no work",
        "same names",
        (V6E, {"multikueue": {"role": "worker"}, "queues": MANAGER["queues"]}),
    ),
    Case(
        "multikueue-queues",
        ({}, MANAGER | {"queues": {}}),
        "queues",
        "a manager without queues hands out no work",
        "same names",
        ({}, MANAGER),
    ),
    *cases_configuration.ERRORS,
    *cases_provisioning.ERRORS,
    *cases_serving.ERRORS,
    *cases_teams.ERRORS,
    *cases_without_gke.ERRORS,
]

WARNINGS = [
    *cases_configuration.WARNINGS,
    *cases_provisioning.WARNINGS,
    *cases_teams.WARNINGS,
    *cases_without_gke.WARNINGS,
    Case(
        "zone-unlisted",
        (V6E, {"zone": "some-region9-z"}),
        "slices.s.machine_type",
        "not in the list",
        "us-east5-b",
        (V6E, {}),
    ),
    Case(
        "flex-multi-host",
        (V6E | {"capacity": "flex-start"}, {}),
        "slices.s.capacity.model",
        "not documented",
        "try it",
        (SINGLE | {"capacity": "flex-start"}, {}),
    ),
    Case(
        "reservation-ends",
        (V6E | {"capacity": RESERVED | {"ends": "2027-01-31"}}, {}),
        "slices.s.capacity.ends",
        "back on 2027-01-31",
        "active: false",
        (V6E | {"capacity": RESERVED}, {}),
    ),
    Case(
        "dra-from-zero",
        (V6E | {"devices": "dra", "provisioning": "autoscaled"}, {}),
        "slices.s.devices",
        "predicted attributes",
        "tpuGen",
        (V6E | {"devices": "dra"}, {}),
    ),
    Case(
        "version-unknown",
        (V6E | {"devices": "dra"}, {}),
        "slices.s.devices",
        "left to the release channel",
        "cluster.version",
        (V6E | {"devices": "dra"}, {"cluster": {"version": "1.35"}}),
    ),
    Case(
        "beyond-documented-size",
        ({"generation": "v5p", "topology": "16x20x20"}, at("v5p")),
        "slices.s.topology",
        "the largest documented slice has 6144",
        "ask Google",
        ({"generation": "v5p", "topology": "16x16x24"}, at("v5p")),
    ),
    Case(
        "price-unknown",
        (IRON, at("tpu7x")),
        "slices.s",
        "no price is known for tpu7x",
        "prices.tpu7x",
        (IRON, at("tpu7x", prices={"tpu7x": {"usd_per_chip_hour": 5, "as_of": "2026-11-01", "source": "contract"}})),
    ),
    Case(
        "quota-unknown",
        ({"generation": "v5p", "topology": "2x2x1"}, at("v5p")),
        "slices.s",
        "quota name of v5p",
        "console",
        (V6E, {}),
    ),
    Case("no-slices", ({}, {"slices": {}}), "slices", "there are none", "at least one", (V6E, {})),
    Case("unprotected", (V6E, {"protect": False}), "protect", "may delete", "leave it out", (V6E, {})),
]


def written(case: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    """The platform of a case: its slice is called `s` unless `slice` says otherwise; `more` are further slices."""
    spec, settings = case[0], dict(case[1])
    slices = {settings.pop("slice", "s"): spec, **settings.pop("more", {})}
    return raw(slices) | settings


def ident(case: Case) -> str:
    return f"{case.rule}: {case.message}"


@pytest.mark.parametrize("case", ERRORS, ids=ident)
def test_refusal(case: Case) -> None:
    found = [error for error in errors(written(case.wrong)) if error.path == below(case.path)]
    assert found, errors(written(case.wrong))
    assert case.message in found[0].message
    assert case.hint in found[0].hint


@pytest.mark.parametrize("case", ERRORS, ids=ident)
def test_way_out(case: Case) -> None:
    assert errors(written(case.right)) == ()


@pytest.mark.parametrize("case", WARNINGS, ids=ident)
def test_warning(case: Case) -> None:
    def found(platform: dict[str, Any]) -> list[str]:
        slices = platform.pop("slices")
        return [str(w) for w in warnings(load(slices, **platform)) if case.message in w.message]

    (warning,) = found(written(case.wrong))
    assert below(case.path) in warning
    assert case.hint in warning
    assert found(written(case.right)) == []


def all_rules() -> list[Rule[Any]]:
    return [rule for scope in SCOPES.values() for rule in scope.rules]


def test_every_rule_has_a_case() -> None:
    levels = {rule.id: rule.level for rule in all_rules()}
    assert {case.rule for case in ERRORS} == {name for name, level in levels.items() if level == "error"}
    assert {case.rule for case in WARNINGS} == {name for name, level in levels.items() if level == "warning"}


def test_rules_have_distinct_names() -> None:
    names = [rule.id for rule in all_rules()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("case", [*ERRORS, *WARNINGS], ids=ident)
def test_the_named_rule_is_the_one_that_speaks(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    spoken: list[str] = []

    def overheard(rule: Rule[Any]) -> Rule[Any]:
        def check(view: Any) -> Iterator[Finding]:
            for finding in rule.check(view):
                spoken.append(finding.message)
                yield finding

        return replace(rule, check=check) if rule.id == case.rule else rule

    for scope in SCOPES.values():
        monkeypatch.setattr(scope, "rules", [overheard(rule) for rule in scope.rules])  # type: ignore[attr-defined]
    platform = written(case.wrong)
    if case in ERRORS:
        errors(platform)
    else:
        assert warnings(load(platform.pop("slices"), **platform))
    assert any(case.message in message for message in spoken)
