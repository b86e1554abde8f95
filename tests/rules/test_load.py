"""Reading a platform: what is malformed, all at once, in words, and never as a traceback."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from platform_config.errors import ConfigErrors
from platform_config.platform import below
from rules.load import load_platform, load_stack_file
from tests.platforms import EXISTING, errors, load, raw
from tests.rules.cases import V6E
from tests.rules.cases_provisioning import JOBS, OFF

KMS = "projects/p/locations/us-east5/keyRings/r/cryptoKeys/k"

# (slice settings, platform settings, path, message, hint)
MALFORMED: list[tuple[dict[str, Any], dict[str, Any], str, str, str]] = [
    ({"toplogy": "4x4"}, {}, "slices.s.toplogy", "unknown key", "did you mean topology?"),
    ({}, {"zoen": "a"}, "zoen", "unknown key", "did you mean zone?"),
    ({}, {"project": "p"}, "project", "unknown key", "gcp:project"),
    ({}, {"xyz": 1}, "xyz", "unknown key", "one of name, zone"),
    (
        {},
        {"cluster": {"kind": "gke", "relese_channel": "RAPID"}},
        "cluster.relese_channel",
        "unknown key",
        "release_channel",
    ),
    ({"boot_disk": {"size": 100}}, {}, "slices.s.boot_disk.size", "unknown key", "size_gb"),
    ({"count": 0}, {}, "slices.s.count", "0 is not possible here", "write 1 or more"),
    ({"count": "2"}, {}, "slices.s.count", "'2' is not possible here", "write a whole number"),
    ({"count": True}, {}, "slices.s.count", "true is not possible here", "write a whole number"),
    ({"count": 1.5}, {}, "slices.s.count", "1.5 is not possible here", "write a whole number"),
    ({"topology": 44}, {}, "slices.s.topology", "44 is not possible here", "write text"),
    ({"dranet": "yes"}, {}, "slices.s.dranet", "'yes' is not possible here", "write true or false"),
    ({"autoscale": True}, {}, "slices.s.autoscale", "is called provisioning now", "provisioning: autoscaled"),
    ({"capacity": "spott"}, {}, "slices.s.capacity", "'spott' is not possible here", "did you mean spot?"),
    (
        {"capacity": {"model": "free"}},
        {},
        "slices.s.capacity.model",
        "'free' is not possible",
        "one of on-demand, spot",
    ),
    ({"capacity": {"name": "r"}}, {}, "slices.s.capacity.model", "is missing", "one of on-demand, spot"),
    ({"capacity": {"model": "reservation"}}, {}, "slices.s.capacity.name", "is missing", "add name:"),
    ({"capacity": ["spot", {"model": "reservation"}]}, {}, "slices.s.capacity[1].name", "is missing", "add name:"),
    (
        {},
        {"monitoring": {"thresholds": {"idle_for": "4hours"}}},
        "monitoring.thresholds.idle_for",
        "not a duration",
        "90m, 6h or 3600s",
    ),
    (
        {},
        {"monitoring": {"thresholds": {"idle_for": "36h"}}},
        "monitoring.thresholds.idle_for",
        "36h is not between a minute and 23 hours",
        "90m, 6h or 3600s",
    ),
    ({"capacity": {"model": "spot", "nam": 1}}, {}, "slices.s.capacity.nam", "unknown key", "model"),
    ({"capacity": []}, {}, "slices.s.capacity", "an empty list is not possible", "at least 1"),
    ({"capacity": 3}, {}, "slices.s.capacity", "3 is not a capacity model", "on-demand, spot"),
    (
        {"capacity": {"model": "queued", "max_run_duration": 7}},
        {},
        "slices.s.capacity.max_run_duration",
        "not a duration",
        "7d",
    ),
    (
        {"capacity": {"model": "reservation", "name": "A/b"}},
        {},
        "slices.s.capacity.name",
        "not a resource name",
        "bare name",
    ),
    (
        {"capacity": {"model": "reservation", "name": "r", "ends": "soon"}},
        {},
        "slices.s.capacity.ends",
        "not a day",
        "2026",
    ),
    ({"devices": "gpu"}, {}, "slices.s.devices", "'gpu' is not possible here", "one of device-plugin, dra"),
    ({"max_pods_per_node": 4}, {}, "slices.s.max_pods_per_node", "4 is not possible here", "write 8 or more"),
    (
        {"service_account": "1-compute@developer.gserviceaccount.com"},
        {},
        "slices.s.service_account",
        "service account",
        "NAME@",
    ),
    (
        {"secondary_boot_disks": [{"image": "x"}]},
        {},
        "slices.s.secondary_boot_disks[0].image",
        "not a disk image",
        "global",
    ),
    (
        {"taints": [{"key": "a", "effect": "NO_SCHEDULE"}]},
        {},
        "slices.s.taints[0].effect",
        "not possible",
        "NoSchedule",
    ),
    ({"labels": {"a": 1}}, {}, "slices.s.labels.a", "1 is not possible here", "write text"),
    ({"kms_key": "k"}, {}, "slices.s.kms_key", "full name of a Cloud KMS key", "projects/PROJECT"),
    ({}, {"zone": "us-east5"}, "zone", "'us-east5' is not a zone", "us-east5-b"),
    ({}, {"zone": None}, "zone", "nothing is not possible here", "write text"),
    ({}, {"name": "Big"}, "name", "'Big' is not a name", "write big"),
    ({}, {"name": "a" * 23}, "name", "is not possible", "at most 22 characters"),
    ({}, {"slices": {"Bad_Name": V6E}}, "slices.Bad_Name", "not a name of lower-case letters", "write bad-name"),
    ({}, {"slices": {"s": None}}, "slices.s", "nothing is not possible", "a mapping"),
    ({}, {"slices": [V6E]}, "slices", "a list is not possible", "a mapping"),
    ({}, {"cluster": {"kind": "eks"}}, "cluster.kind", "'eks' is not possible here", "one of gke"),
    ({}, {"cluster": {"kind": "self-manged"}}, "cluster.kind", "'self-manged' is not possible", "mean self-managed?"),
    ({}, {"cluster": 3}, "cluster", "3 is not possible here", "a mapping"),
    (
        {},
        {"cluster": {"kind": "self-managed", "release_channel": "RAPID"}},
        "cluster.release_channel",
        "is a setting of kind: gke",
        "leave it out, or write kind: gke",
    ),
    (
        {},
        {"cluster": {"control_plane": {"replicas": 3}}},
        "cluster.control_plane",
        "is a setting of kind: self-managed",
        "or write kind: self-managed",
    ),
    (
        {},
        {"cluster": {"image": "projects/p/global/images/i"}},
        "cluster.image",
        "is a setting of kind: self-managed or kind: existing",
        "leave it out",
    ),
    *[
        (
            {},
            {"cluster": {"kind": kind, "provides": ["jobset"]}},
            "cluster.provides",
            "is a setting of kind: existing",
            "or write kind: existing",
        )
        for kind in ("gke", "self-managed")
    ],
    ({}, {"cluster": EXISTING | {"provides": ["job-set"]}}, "cluster.provides[0]", "not possible", "mean jobset?"),
    ({}, {"cluster": {"kind": "existing"}}, "cluster.join_secret", "is missing", "add join_secret:"),
    (
        {},
        {"cluster": {"kind": "self-managed", "control_plane": {"replicas": 2}}},
        "cluster.control_plane.replicas",
        "2 is not possible here",
        "one of 1, 3",
    ),
    (
        {},
        {"cluster": {"kind": "self-managed", "version": "1.34"}},
        "cluster.version",
        "not an exact Kubernetes version",
        "1.34.2",
    ),
    (
        {},
        {"cluster": {"kind": "self-managed", "version": 1.34}},
        "cluster.version",
        "loses trailing zeros",
        "write it in quotes",
    ),
    ({}, {"cluster": EXISTING | {"server": "10.0.0.1"}}, "cluster.server", "not", "https://10.0.0.10:6443"),
    ({}, {"cluster": EXISTING | {"ca": "MIIB"}}, "cluster.ca", "not a certificate", "BEGIN CERTIFICATE"),
    ({}, {"cluster": EXISTING | {"join_secret": "join"}}, "cluster.join_secret", "not a secret", "projects/PROJECT"),
    (
        {"instance_template": "t"},
        {"cluster": {"kind": "self-managed"}},
        "slices.s.instance_template",
        "not an instance template",
        "projects/PROJECT/global",
    ),
    (
        {},
        {"network": {"subnetwork": "s"}},
        "network.subnetwork",
        "is a setting of kind: existing",
        "write kind: existing",
    ),
    (
        {"capacity": {"model": "spot", "block": "b"}},
        {},
        "slices.s.capacity.block",
        "is a setting of model: reservation",
        "write model: reservation",
    ),
    ({}, {"cluster": {"release_channel": "rapid"}}, "cluster.release_channel", "'rapid'", "did you mean RAPID?"),
    ({}, {"cluster": {"version": 1.3}}, "cluster.version", "loses trailing zeros", "write it in quotes"),
    ({}, {"cluster": {"version": "latest"}}, "cluster.version", "not a GKE version", "1.35"),
    (
        {},
        {"cluster": {"security_group": "me@x.com"}},
        "cluster.security_group",
        "Google Groups",
        "gke-security-groups@",
    ),
    (
        {},
        {"cluster": {"maintenance": {"start": "2026-01-03T00:00:00"}}},
        "cluster.maintenance.start",
        "in UTC",
        "with a Z",
    ),
    (
        {},
        {"cluster": {"maintenance": {"recurrence": "FREQ=YEARLY"}}},
        "cluster.maintenance.recurrence",
        "not a recurrence",
        "FREQ=DAILY",
    ),
    (
        {},
        {"cluster": {"authorized_networks": [{"cidr": "10.0.0.1/8", "name": "n"}]}},
        "cluster.authorized_networks[0].cidr",
        "an address inside a range",
        "write 10.0.0.0/8",
    ),
    ({}, {"network": {"kind": "exists"}}, "network.kind", "'exists' is not possible", "did you mean existing?"),
    ({}, {"network": {"kind": "existing", "network": "n"}}, "network.subnetwork", "is missing", "add subnetwork:"),
    ({}, {"network": {"pods_cidr": "10.0.0/8"}}, "network.pods_cidr", "not an IPv4 range", "10.0.0.0/20"),
    ({}, {"network": {"mtu": 9000}}, "network.mtu", "9000 is not possible here", "write 8896 or less"),
    (
        {},
        {"prices": {"v6e": {"usd_per_chip_hour": 0}}},
        "prices.v6e.usd_per_chip_hour",
        "0 is not possible",
        "more than 0",
    ),
]


@pytest.mark.parametrize(
    ("spec", "platform", "path", "message", "hint"), MALFORMED, ids=[case[2] for case in MALFORMED]
)
def test_malformed(spec: dict[str, Any], platform: dict[str, Any], path: str, message: str, hint: str) -> None:
    written = raw({"s": V6E | spec}) | platform
    found = [error for error in errors(written) if error.path == below(path)]
    assert found, errors(written)
    assert message in found[0].message
    assert hint
    assert hint in found[0].hint


@pytest.mark.parametrize(
    ("project", "message"), [(None, "is missing"), ("", "is missing"), ("My Project", "not a project id")]
)
def test_project(project: str | None, message: str) -> None:
    (error,) = errors(raw(), project)
    assert error.path == "gcp:project"
    assert message in error.message
    assert error.hint


@pytest.mark.parametrize(("written", "message"), [(None, "is missing"), ([], "not a mapping"), ("x", "not a mapping")])
def test_no_platform_at_all(written: object, message: str) -> None:
    (error,) = errors(written)
    assert error.path == "tpu-platform:platform"
    assert message in error.message


def test_everything_wrong_is_said_at_once() -> None:
    found = errors(
        {
            "slices": {
                "a": V6E | {"count": 0, "boot_disk": {"type": "pd-ssd"}},
                "b": V6E | {"topology": "3x3"},
                "c": {"typo": 1},
                "d": V6E | {"capacity": {"model": "queued", "max_run_duration": "9d"}},
            },
            "cluster": {"version": 1.3, "authorized_networks": [{"cidr": "0.0.0.0/0", "name": "all"}]},
            "namespaces": ["default"],
        },
        project=None,
    )
    assert [error.path for error in found] == [
        "gcp:project",
        *map(
            below,
            [
                "zone",
                "cluster.version",
                "slices.a.count",
                "slices.c.typo",
                "slices.b.topology",
                "slices.d.capacity.max_run_duration",
                "slices.a.boot_disk.type",
                "cluster.authorized_networks[0].cidr",
                "namespaces[0]",
            ],
        ),
    ]


def test_a_malformed_entry_of_a_list_is_not_also_a_list_too_short() -> None:
    (error,) = errors(raw({"s": V6E | {"capacity": ["spott"]}}))
    assert error.path == below("slices.s.capacity[0]")


@pytest.mark.parametrize(
    "cluster",
    [{"kind": "self-managed", "version": 1.34}, {"kind": "existing"}, EXISTING | {"ca": "x"}],
    ids=["version", "existing", "ca"],
)
def test_rules_of_a_back_end_speak_although_the_cluster_is_malformed(cluster: dict[str, Any]) -> None:
    spec = V6E | {"capacity": "queued"}
    paths = [error.path for error in errors(raw({"s": spec}, cluster=cluster, network={"nodes_cidr": "x"}))]
    assert below("slices.s.capacity.model") in paths
    assert below("network.nodes_cidr") in paths
    # An existing cluster needs an existing network, whatever its ranges.
    assert (below("network") in paths) == (cluster["kind"] == "existing")


def test_rules_of_no_back_end_speak_while_it_is_unknown_which_is_meant() -> None:
    spec = V6E | {"image": "projects/p/global/images/i", "boot_disk": {"type": "pd-ssd"}}
    assert [error.path for error in errors(raw({"s": spec}, cluster={"kind": "selfmanaged"}))] == [
        below("cluster.kind"),
        below("slices.s.boot_disk.type"),
    ]


def test_a_missing_slice_is_not_said_of_one_that_is_malformed() -> None:
    queues = {"q": {"namespaces": ["a"], "slices": {"s": 1}}}
    assert [error.path for error in errors(raw({"s": {"typo": 1}}, queues=queues))] == [below("slices.s.typo")]
    assert [error.path for error in errors(raw({"s": V6E | {"topology": "3x3"}}, queues=queues))] == [
        below("slices.s.topology")
    ]


@pytest.mark.parametrize(
    ("spec", "platform"),
    [
        (JOBS | {"provisioning": "tpu-provisionr"}, OFF),
        (JOBS, OFF | {"cluster": {"release_chanel": "UNSPECIFIED"}}),
    ],
)
def test_one_typo_is_one_error(spec: dict[str, Any], platform: dict[str, Any]) -> None:
    """Rules took the default of the misspelt key for what was written."""
    assert len(errors(raw({"s": spec}, **platform))) == 1


def test_errors_read_as_a_list() -> None:
    with pytest.raises(ConfigErrors) as refused:
        load_platform(raw({"s": V6E | {"topology": "2*4"}}), project=None, stack="prod")
    assert str(refused.value) == (
        "The configuration of stack prod has 2 errors:\n"
        "\n"
        "  gcp:project\n"
        "    is missing\n"
        "    -> pulumi config set gcp:project YOUR-PROJECT\n"
        "\n"
        "  tpu-platform:platform.slices.s.topology\n"
        "    '2*4' is not a topology\n"
        "    -> write 2x4"
    )


def test_shorthands_stand_for_what_they_shorten() -> None:
    long = load({"s": V6E | {"capacity": [{"model": "spot"}]}}, network={"kind": "create"}, cluster={"kind": "gke"})
    assert load({"s": V6E | {"capacity": "spot"}}) == long


def test_values_are_kept_as_google_gives_them_back() -> None:
    """Else every plan would differ: durations in seconds, moments in UTC with a Z."""
    platform = load(
        {"s": V6E | {"capacity": {"model": "queued", "max_run_duration": "36h"}}},
        cluster={"maintenance": {"start": "2026-01-03T00:00:00+00:00", "end": "2026-01-03T08:00:00Z"}},
    )
    assert platform.slice_plans[0].max_run_duration == "129600s"
    assert platform.cluster.maintenance.start == "2026-01-03T00:00:00Z"


def test_a_platform_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().zone = "us-east5-a"


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | st.integers(0, 2), inner, max_size=3)
    ),
    max_leaves=8,
)
platform_keys = st.sampled_from(["zone", "name", "cluster", "network", "slices", "labels", "queues", "prices", "x"])
slice_keys = st.sampled_from(
    ["machine_type", "generation", "topology", "chips", "count", "capacity", "boot_disk", "taints"]
)


@given(st.one_of(junk, st.dictionaries(platform_keys | st.integers(0, 1), junk)))
def test_junk_is_refused_and_nothing_else_happens(written: Any) -> None:
    errors(written)


@given(
    st.dictionaries(
        slice_keys, junk | st.sampled_from(["v5p-8", "4x4", "v6e", "ct6e-standard-4t", "spot", "0x0", "4x4x0"])
    )
)
def test_junk_slices_are_refused_with_a_path(spec: dict[str, Any]) -> None:
    for error in errors(raw({"s": spec})):
        assert error.path.startswith(below("slices.s"))
        assert error.message
        assert error.hint


cluster_keys = st.sampled_from(
    ["version", "control_plane", "system_pool", "cpu_pools", "bootstrap", "image", "ca", "server", "maintenance", "x"]
)


@given(st.sampled_from(["gke", "self-managed", "existing"]), st.dictionaries(cluster_keys, junk))
def test_junk_clusters_are_refused_with_a_path(kind: str, cluster: dict[str, Any]) -> None:
    for error in errors(raw(cluster=cluster | {"kind": kind})):
        assert error.path.startswith((below("cluster"), below("network"), below("slices.train.image")))
        assert error.message
        assert error.hint


def test_stack_file(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(
        "config:\n  gcp:project: my-project\n  tpu-platform:platform:\n    zone: us-east5-b\n"
        "    slices: {s: {machine_type: ct6e-standard-1t, topology: 1x1}}\n"
    )
    assert load_stack_file(path).slice_plans[0].chips == 1


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("a: [", "Pulumi.x.yaml", "is not YAML"),
        ("a: b: c", "Pulumi.x.yaml", "is not YAML"),
        ("config: {a: 1, a: 2}", "Pulumi.x.yaml", "a is there twice in line 1, column 16"),
        ("", "tpu-platform:platform", "is missing"),
        ("- 1", "Pulumi.x.yaml", "has no config: mapping"),
        ("config: {gcp:project: my-project}", "tpu-platform:platform", "is missing"),
        ("\x00", "Pulumi.x.yaml", "is not YAML"),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: str, path: str, message: str) -> None:
    file = tmp_path / "Pulumi.x.yaml"
    file.write_text(text)
    with pytest.raises(ConfigErrors) as refused:
        load_stack_file(file)
    (error,) = [error for error in refused.value.errors if error.path == path]
    assert message in error.message
    assert error.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors, match="there is no such file"):
        load_stack_file(tmp_path / "Pulumi.none.yaml")


@pytest.mark.parametrize("key", ["tpu-platform:platforms", "tpu-platform:plattform", "tpu_platform:platform"])
def test_a_misspelt_top_key_is_recognised(tmp_path: Path, key: str) -> None:
    """B8 of users.md."""
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(yaml.safe_dump({"config": {"gcp:project": "my-project", key: {"zone": "us-east5"}}}))
    with pytest.raises(ConfigErrors) as refused:
        load_stack_file(file)
    assert [(error.line, error.path, error.hint) for error in refused.value.errors] == [
        (3, key, "did you mean tpu-platform:platform?"),
        (4, below("zone"), "write us-east5-a or us-east5-b"),
    ]
