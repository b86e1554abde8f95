"""Check: inputs are completed as the real plugin completes them, and refused as it refuses them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sandbox.plugins.gcp import schema
from sandbox.plugins.gcp.check import DEFAULTS, check
from sandbox.plugins.gcp.plugin import GcpProvider
from sandbox.plugins.gcp.resources.compute import unique_name
from sandbox.plugins.gcp.settings import Settings, SettingsError, parse, seconds
from sandbox.plugins.provider import ProviderError
from sandbox.plugins.values import UNKNOWN
from sandbox.tests.gcp_plugin_support import CONFIG, configured, recorded_names, recorded_state, subject

Json = dict[str, Any]
POOL = "gcp:container/nodePool:NodePool"
NETWORK = "gcp:compute/network:Network"


def _as_written(value: Any) -> Any:
    """Inputs as the program wrote them: without what the provider filled in."""
    if isinstance(value, dict):
        filled = {DEFAULTS, *value.get(DEFAULTS, ())}
        return {k: _as_written(v) for k, v in value.items() if k not in filled}
    return [_as_written(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", recorded_names())
def test_inputs_are_completed_as_recorded(name: str) -> None:
    row = recorded_state(name)
    checked = check(schema.of(row["type"]), name, {}, _as_written(row["inputs"]))
    assert list(checked.failures) == []
    assert checked.inputs == row["inputs"]


def _pool(**changed: Any) -> Json:
    return {**_as_written(recorded_state("v6e-4x4")["inputs"]), **changed}


def _config(**changed: Any) -> Json:
    return _pool(nodeConfig={**_pool()["nodeConfig"], **changed})


REFUSED: dict[str, tuple[str, Json, str, str]] = {
    "unknown": (POOL, _pool(nodeCnt=4), "nodeCnt", "Did you mean 'nodeCount'?"),
    "unknown, nested": (POOL, _config(machineTyp="x"), "nodeConfig.machineTyp", "Did you mean 'machineType'?"),
    "unknown, unlike any": (POOL, _pool(zzz=1), "zzz", "Examine values at 'zzz'"),
    "computed": (POOL, _pool(instanceGroupUrls=["x"]), "instanceGroupUrls", "is set by the provider"),
    "missing": (
        POOL,
        {k: v for k, v in _pool().items() if k != "cluster"},
        "cluster",
        'The argument "cluster" is required',
    ),
    "missing, nested": (
        POOL,
        _pool(placementPolicy={"tpuTopology": "4x4"}),
        "placementPolicy.type",
        'The argument "placementPolicy.type" is required',
    ),
    "missing, in a list": (
        POOL,
        _config(taints=[{"key": "k", "effect": "NO_SCHEDULE"}]),
        "nodeConfig.taints[0].value",
        "is required",
    ),
    "number": (POOL, _pool(nodeCount="four"), "nodeCount", "expected number type, got 'four' of type string"),
    "boolean": (POOL, _config(spot="yes"), "nodeConfig.spot", "expected bool type"),
    "string": (POOL, _config(machineType=["x"]), "nodeConfig.machineType", "expected string type"),
    "object": (POOL, _pool(nodeConfig="x"), "nodeConfig", "expected object type"),
    "list": (POOL, _pool(nodeLocations="us-east5-b"), "nodeLocations", "expected list type"),
    "element": (POOL, _pool(nodeLocations=["a", {"b": 1}]), "nodeLocations[1]", "expected string type"),
    "map value": (POOL, _config(labels={"a": {"b": 1}}), 'nodeConfig.labels["a"]', "expected string type"),
    "conflict": (
        "gcp:container/cluster:Cluster",
        {"name": "c", "clusterIpv4Cidr": "10.0.0.0/14", "ipAllocationPolicy": {}},
        "clusterIpv4Cidr",
        '"clusterIpv4Cidr" conflicts with ipAllocationPolicy',
    ),
    "too many": (
        "gcp:compute/firewall:Firewall",
        {
            "name": "f",
            "network": "n",
            "allows": [{"protocol": "tcp"}],
            "sourceServiceAccounts": [f"a{n}" for n in range(11)],
        },
        "sourceServiceAccounts",
        "takes at most 10, 11 were given",
    ),
    "not known here, in a block": (
        POOL,
        _config(linuxNodeConfig={"cgroupMode": "CGROUP_MODE_V2"}),
        "nodeConfig.linuxNodeConfig",
        "the sandbox's gcp plugin does not know nodeConfig.linuxNodeConfig of NodePool",
    ),
    "not known here": (
        "gcp:container/cluster:Cluster",
        {"name": "c", "nodePools": [{"name": "p"}]},
        "nodePools",
        "the sandbox's gcp plugin does not know nodePools of Cluster; leave it out",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_inputs_are_refused(case: str) -> None:
    token, inputs, path, reason = REFUSED[case]
    checked = configured().check(subject(token, "x"), {}, inputs, b"")
    assert [(f.property, reason in f.reason) for f in checked.failures] == [(path, True)], checked.failures


@pytest.mark.parametrize("chosen", [(), ("tcpHealthCheck",), ("httpsHealthCheck", "tcpHealthCheck")])
def test_one_of_a_group_is_enough_and_needed(chosen: tuple[str, ...]) -> None:
    table = schema.of("gcp:compute/regionHealthCheck:RegionHealthCheck")
    failures = check(table, "x", {}, {block: {} for block in chosen}).failures
    assert any("Exactly one of" in f.reason for f in failures) == (len(chosen) != 1)


def test_unknown_values_pass_everywhere() -> None:
    """During a preview any value may be unknown; its checks wait for the update."""
    inputs = _pool(cluster=UNKNOWN, nodeCount=UNKNOWN, nodeLocations=[UNKNOWN], placementPolicy=UNKNOWN)
    checked = check(schema.of(POOL), "x", {}, inputs)
    assert list(checked.failures) == []
    assert checked.inputs["placementPolicy"] is UNKNOWN


def test_numbers_and_booleans_may_be_written_as_text() -> None:
    checked = check(schema.of(POOL), "x", {}, _pool(nodeCount="4", autoscaling=None))
    assert checked.inputs["nodeCount"] == 4
    assert check(schema.of(POOL), "x", {}, _config(spot="true")).inputs["nodeConfig"]["spot"] is True


def test_a_generated_name_is_kept() -> None:
    table = schema.of(NETWORK)
    first = check(table, "vpc", {}, {}, b"seed").inputs
    assert first["name"].startswith("vpc-")
    assert "name" in first[DEFAULTS]
    assert check(table, "vpc", {}, {}, b"seed").inputs == first
    assert check(table, "vpc", first, {}, b"other seed").inputs["name"] == first["name"]
    assert check(table, "vpc", {**first, DEFAULTS: []}, {}, b"other seed").inputs["name"] != first["name"]


def test_only_an_explicit_name_asks_for_delete_before_replace() -> None:
    provider = configured()
    about = subject(NETWORK, "vpc")
    for given, expected in (({}, False), ({"name": "vpc"}, True)):
        news = dict(provider.check(about, {}, given, b"").inputs)
        olds = {**news, "description": "old"}
        plan = provider.diff(about, olds, news, ())
        assert plan.replaces
        assert plan.delete_before_replace is expected


TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"


def test_the_suffix_of_a_template_is_short_after_a_long_prefix() -> None:
    """It always had 26 characters, so that good names of about 30 characters failed in the sandbox only."""
    for length, suffix in ((37, 26), (38, 9), (54, 9)):
        first, second = (unique_name("x" * length) for _ in range(2))
        assert re.fullmatch(rf"x{{{length}}}[0-9a-f]{{{suffix}}}", first)
        assert first != second
    assert re.fullmatch(r"x{38}\d{6}[0-9a-f]{3}", unique_name("x" * 38))


@pytest.mark.parametrize(("length", "refused"), [(54, False), (55, True)])
def test_a_prefix_too_long_for_any_suffix_is_refused(length: int, refused: bool) -> None:
    row = recorded_state("tm")["inputs"]
    inputs = {**_as_written(row), "name": None, "namePrefix": "x" * length}
    failures = configured().check(subject(TEMPLATE, "tm"), {}, inputs, b"").failures
    text = '"name_prefix" cannot be longer than 54 characters, name is limited to 63'
    assert [(f.property, f.reason) for f in failures] == ([("namePrefix", text)] if refused else [])


def test_a_version_of_nodes_that_a_new_cluster_will_not_have_is_refused() -> None:
    """Finding: the provider refuses a node version for a default pool that goes at once; the stand-in took it."""
    about = subject("gcp:container/cluster:Cluster", "cl")
    given = {**recorded_state("cl")["inputs"], "removeDefaultNodePool": True, "nodeVersion": "1.36.2-gke.1"}
    [failure] = GcpProvider().check(about, {}, given, b"").failures
    assert failure.reason == "node_version can only be specified if remove_default_node_pool is not true"
    assert GcpProvider().check(about, given, given, b"").failures == []


def test_a_type_it_does_not_have_is_named() -> None:
    with pytest.raises(ProviderError, match=r"does not know gcp:x/y:Y; it knows gcp:artifactregistry/repo"):
        configured().check(subject("gcp:x/y:Y", "y"), {}, {}, b"")


def test_a_preview_knows_inputs_and_leaves_the_rest_unknown() -> None:
    row = recorded_state("cl")
    planned = configured().create(subject(row["type"], "cl"), row["inputs"], 0, True)
    assert planned.id == ""
    assert planned.outputs["name"] == "tpu"
    assert planned.outputs["endpoint"] is UNKNOWN
    assert planned.outputs["masterAuth"] is UNKNOWN
    assert planned.outputs["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"] is UNKNOWN


# --- configuration ----------------------------------------------------------------------------------------------------


def test_configuration_comes_as_text() -> None:
    settings = parse(
        {
            **CONFIG,
            "batching": '{"sendAfter": "0.1s"}',
            "defaultLabels": '{"team": "a"}',
            "addPulumiAttributionLabel": "false",
            "pollInterval": "1m30s",
            "version": "10.2.0",
        }
    )
    assert settings.added_labels == {"team": "a"}
    assert settings.poll_interval == 90
    assert Settings().added_labels == {"goog-pulumi-provisioned": "true"}


SETTINGS_REFUSED: dict[str, tuple[Json, str, str]] = {
    "no endpoint": ({"computeCustomEndpoint": None}, "computeCustomEndpoint", "never talks to the real cloud"),
    "the real cloud": (
        {"computeCustomEndpoint": "https://compute.googleapis.com/compute/v1/"},
        "computeCustomEndpoint",
        "only calls 127.0.0.1",
    ),
    "no token": ({"accessToken": None}, "accessToken", "no credentials are ever looked up"),
    "unknown key": ({"projet": "x"}, "projet", "Did you mean 'gcp:project'?"),
    "bad duration": ({"pollInterval": "soon"}, "pollInterval", "'soon' is not a duration"),
    "bad JSON": ({"defaultLabels": "{"}, "defaultLabels", "gcp:defaultLabels:"),
    "bad batching": ({"batching": '{"sendAfter": "x"}'}, "batching.sendAfter", "is not a duration"),
}


@pytest.mark.parametrize("case", SETTINGS_REFUSED)
def test_bad_configuration_is_refused(case: str) -> None:
    changed, key, reason = SETTINGS_REFUSED[case]
    with pytest.raises(SettingsError) as refused:
        parse({**CONFIG, **changed})
    assert [(f.property, reason in f.reason) for f in refused.value.failures] == [(key, True)]
    [failure] = GcpProvider().check_config({**CONFIG, **changed}).failures
    assert failure.property == key
    with pytest.raises(ProviderError):
        GcpProvider().configure({**CONFIG, **changed})


@pytest.mark.parametrize(("text", "expected"), [("500ms", 0.5), ("10s", 10), ("1h2m3s", 3723), ("0.1s", 0.1)])
def test_durations(text: str, expected: float) -> None:
    assert seconds(text) == pytest.approx(expected)


def test_a_place_that_is_set_nowhere_is_named() -> None:
    row = recorded_state("sub")
    inputs = {k: v for k, v in row["inputs"].items() if k != "region"}
    with pytest.raises(
        ProviderError, match="region: required field is not set; set it on the resource or as gcp:region"
    ):
        configured(region="", zone="").create(subject(row["type"], "sub"), inputs, 0, False)
