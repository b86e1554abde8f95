"""Bodies, queries and URLs are held against Google's discovery documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.google.discovery import checked_body, document, find_route, unknown_query
from sandbox.google.errors import GoogleError

CLUSTERS = "/container/v1beta1/projects/p/locations/us-east5/clusters"
NETWORKS = "/compute/beta/projects/p/global/networks"
ADDRESSES = "/compute/beta/projects/p/regions/us-east5/addresses"


def check(path: str, body: Any, method: str = "POST") -> dict[str, Any]:
    route = find_route(method, path)
    assert route is not None
    return checked_body(route.document, route.method, body, route.params)


def messages(path: str, body: Any) -> list[str]:
    with pytest.raises(GoogleError) as caught:
        check(path, body)
    assert caught.value.body()["error"]["status"] == "INVALID_ARGUMENT"
    [details] = caught.value.details
    return [violation["description"] for violation in details["fieldViolations"]]


@pytest.mark.parametrize(
    ("method", "path", "expected", "params"),
    [
        (
            "POST",
            CLUSTERS,
            "container.projects.locations.clusters.create",
            {"projectsId": "p", "locationsId": "us-east5"},
        ),
        (
            "POST",
            f"{CLUSTERS}/c/nodePools/n:setSize",
            "container.projects.locations.clusters.nodePools.setSize",
            {"projectsId": "p", "locationsId": "us-east5", "clustersId": "c", "nodePoolsId": "n"},
        ),
        (
            "POST",
            "/iam/v1/projects/p/serviceAccounts/a%40p.iam.gserviceaccount.com:getIamPolicy",
            "iam.projects.serviceAccounts.getIamPolicy",
            {"projectsId": "p", "serviceAccountsId": "a@p.iam.gserviceaccount.com"},
        ),
        ("GET", "/compute/v1/projects/p/global/networks/n", "compute.networks.get", {"project": "p", "network": "n"}),
        ("POST", "/crm/v1/projects/p:getIamPolicy", "cloudresourcemanager.projects.getIamPolicy", {"resource": "p"}),
        ("GET", "/crm/v3/projects/p", "cloudresourcemanager.projects.get", {"projectsId": "p"}),
        ("GET", "/v1/projects/p/locations/-/clusters", "container.projects.locations.clusters.list", None),
    ],
)
def test_a_url_is_found_in_its_document(method: str, path: str, expected: str, params: dict[str, str] | None) -> None:
    route = find_route(method, path)
    assert route is not None
    assert route.method.id == expected
    assert params is None or route.params == params


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{NETWORKS}/n/nothing"),
        ("PUT", NETWORKS),
        ("GET", "/compute/v7/projects/p/global/networks"),
        ("POST", f"{CLUSTERS}/c:setNothing"),
        ("GET", "/"),
    ],
)
def test_a_url_without_a_method_is_not_routed(method: str, path: str) -> None:
    assert find_route(method, path) is None


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            CLUSTERS,
            {"cluster": {"x": 1}},
            "Invalid JSON payload received. Unknown name \"x\" at 'cluster': Cannot find field.",
        ),
        (CLUSTERS, {"x": 1}, 'Invalid JSON payload received. Unknown name "x": Cannot find field.'),
        (
            CLUSTERS,
            {"cluster": {"nodePools": [{}, {"config": {"spott": True}}]}},
            'Invalid JSON payload received. Unknown name "spott"'
            " at 'cluster.node_pools[1].config': Cannot find field.",
        ),
        (
            CLUSTERS,
            {"cluster": {"releaseChannel": {"channel": "FAST"}}},
            "Invalid value at 'cluster.release_channel.channel'"
            ' (type.googleapis.com/google.container.v1beta1.ReleaseChannel.Channel), "FAST"',
        ),
        (
            CLUSTERS,
            {"cluster": {"initialNodeCount": "two"}},
            "Invalid value at 'cluster.initial_node_count' (TYPE_INT32), \"two\"",
        ),
        (
            CLUSTERS,
            {"cluster": {"initialNodeCount": 2**31}},
            "Invalid value at 'cluster.initial_node_count' (TYPE_INT32), 2147483648",
        ),
        (
            CLUSTERS,
            {"cluster": {"locations": "us-east5-b"}},
            "Invalid value at 'cluster.locations' (Cluster.locations), \"us-east5-b\"",
        ),
        (CLUSTERS, {"cluster": {"enableTpu": "yes"}}, "Invalid value at 'cluster.enable_tpu' (TYPE_BOOLEAN), \"yes\""),
        (
            CLUSTERS,
            {"cluster": {"nodePools": [{"config": {"maxRunDuration": "1 day"}}]}},
            "Invalid value at 'cluster.node_pools[0].config.max_run_duration' (TYPE_GOOGLE-DURATION), \"1 day\"",
        ),
        (
            CLUSTERS,
            {"cluster": {"status": "RUNNING"}},
            "Invalid value at 'cluster.status': the field is output only, \"RUNNING\"",
        ),
        (NETWORKS, {"name": "Net"}, "Invalid value at 'resource.name' (TYPE_STRING), \"Net\""),
        (
            NETWORKS,
            {"name": "net", "mtuu": 1},
            "Invalid JSON payload received. Unknown name \"mtuu\" at 'resource': Cannot find field.",
        ),
        (NETWORKS, [], "Invalid value at 'resource' (Network), []"),
        (
            "/sm/v1/projects/p/secrets",
            {"replication": {"automatic": {}}, "colour": "red"},
            "Invalid JSON payload received. Unknown name \"colour\" at 'secret': Cannot find field.",
        ),
    ],
)
def test_a_body_the_schema_does_not_allow_is_refused(path: str, body: Any, message: str) -> None:
    assert messages(path, body) == [message]


def test_all_violations_are_reported_at_once() -> None:
    assert len(messages(CLUSTERS, {"cluster": {"x": 1, "initialNodeCount": "y"}, "z": 2})) == 3


def test_nulls_count_as_absent_and_64_bit_integers_may_be_strings() -> None:
    body = {"name": "n", "mtu": "1500", "routingConfig": None, "description": ""}
    assert check(NETWORKS, body) == {"name": "n", "mtu": "1500", "description": ""}
    assert check(CLUSTERS, {"cluster": {"locations": [None, "us-east5-b"]}}) == {
        "cluster": {"locations": ["us-east5-b"]}
    }


def test_labels_take_any_name_and_only_strings() -> None:
    assert check(ADDRESSES, {"labels": {"any-name": "v"}}) == {"labels": {"any-name": "v"}}
    assert messages(ADDRESSES, {"labels": {"a": 1}}) == ["Invalid value at 'resource.labels.a' (TYPE_STRING), 1"]


def test_the_tolerated_deviations_are_dropped_and_only_they() -> None:
    routing = {"routingMode": "REGIONAL", "deleteBgpAlwaysCompareMed": False}
    assert check(NETWORKS, {"routingConfig": routing}) == {"routingConfig": {"routingMode": "REGIONAL"}}
    assert len(messages(NETWORKS, {"deleteBgpAlwaysCompareMed": False})) == 1
    assert check(ADDRESSES, {"region": "projects/p/global/regions/us-east5"}) == {}
    assert len(messages(ADDRESSES, {"region": "us-west1"})) == 1


def test_unknown_query_parameters_are_found() -> None:
    route = find_route("GET", NETWORKS)
    assert route is not None
    assert unknown_query(route.method, ["filter", "alt", "prettyPrint"]) == []
    [(name, text)] = unknown_query(route.method, ["fliter"])
    assert name == "fliter"
    assert "Cannot bind query parameter" in text


def test_every_recorded_body_passes_and_none_does_with_one_field_more() -> None:
    """The walker accepts what the real plugin sends, and would notice anything else in the same place."""
    recording = json.loads((Path(__file__).parent / "data" / "provider_traffic.json").read_text())
    calls = [call for row in recording for call in row["calls"] if call.get("body")]
    for call in calls:
        check(call["path"], call["body"], call["method"])
        route = find_route(call["method"], call["path"])
        assert route is not None
        with pytest.raises(GoogleError, match="Unknown name"):
            checked_body(route.document, route.method, {**call["body"], "notAField": 1}, route.params)
    assert len(calls) > 40


def test_documents_are_parsed_once() -> None:
    assert document("container.v1beta1") is document("container.v1beta1")
