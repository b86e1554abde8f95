"""The rows against Google's discovery documents: every input has a place in the REST schema, in the right form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import googleapiclient
import pytest

from sandbox.plugins.gcp import schema
from sandbox.plugins.gcp.mapping import Field, from_rest, to_rest
from sandbox.plugins.gcp.resources import ROWS
from sandbox.plugins.gcp.resources.container import _DESIRED, _DESIRED_PARTS, _POOL_UPDATES, NODE_POOL
from sandbox.plugins.gcp.resources.rest import COMMON, PLACES
from sandbox.plugins.gcp.schema import Property

DOCUMENTS = Path(googleapiclient.__file__).parent / "discovery_cache/documents"
Json = dict[str, Any]

# Type -> (document, REST schema of its body).
REST = {
    "gcp:compute/network:Network": ("compute.beta", "Network"),
    "gcp:compute/subnetwork:Subnetwork": ("compute.beta", "Subnetwork"),
    "gcp:compute/firewall:Firewall": ("compute.beta", "Firewall"),
    "gcp:compute/router:Router": ("compute.beta", "Router"),
    "gcp:compute/routerNat:RouterNat": ("compute.beta", "RouterNat"),
    "gcp:compute/address:Address": ("compute.beta", "Address"),
    "gcp:compute/resourcePolicy:ResourcePolicy": ("compute.beta", "ResourcePolicy"),
    "gcp:compute/instanceTemplate:InstanceTemplate": ("compute.beta", "InstanceProperties"),
    "gcp:compute/instanceGroupManager:InstanceGroupManager": ("compute.beta", "InstanceGroupManager"),
    "gcp:compute/instance:Instance": ("compute.beta", "Instance"),
    "gcp:compute/disk:Disk": ("compute.beta", "Disk"),
    "gcp:compute/forwardingRule:ForwardingRule": ("compute.beta", "ForwardingRule"),
    "gcp:compute/instanceGroup:InstanceGroup": ("compute.beta", "InstanceGroup"),
    "gcp:compute/regionBackendService:RegionBackendService": ("compute.beta", "BackendService"),
    "gcp:compute/regionHealthCheck:RegionHealthCheck": ("compute.beta", "HealthCheck"),
    "gcp:storage/bucket:Bucket": ("storage.v1", "Bucket"),
    "gcp:artifactregistry/repository:Repository": ("artifactregistry.v1", "Repository"),
    "gcp:iam/workloadIdentityPool:WorkloadIdentityPool": ("iam.v1", "WorkloadIdentityPool"),
    "gcp:iam/workloadIdentityPoolProvider:WorkloadIdentityPoolProvider": ("iam.v1", "WorkloadIdentityPoolProvider"),
    "gcp:container/cluster:Cluster": ("container.v1beta1", "Cluster"),
    "gcp:container/nodePool:NodePool": ("container.v1beta1", "NodePool"),
    "gcp:serviceaccount/account:Account": ("iam.v1", "ServiceAccount"),
    "gcp:secretmanager/secret:Secret": ("secretmanager.v1", "Secret"),
    "gcp:logging/metric:Metric": ("logging.v2", "LogMetric"),
    "gcp:logging/projectExclusion:ProjectExclusion": ("logging.v2", "LogExclusion"),
    "gcp:billing/budget:Budget": ("billingbudgets.v1", "GoogleCloudBillingBudgetsV1Budget"),
    "gcp:monitoring/alertPolicy:AlertPolicy": ("monitoring.v3", "AlertPolicy"),
    "gcp:monitoring/notificationChannel:NotificationChannel": ("monitoring.v3", "NotificationChannel"),
}
# Properties whose place the row's own code decides, not its table (they are covered by the recorded bodies).
BY_CODE = {
    "gcp:compute/instanceTemplate:InstanceTemplate": {"name", "disks", "instanceDescription"},
}
# Become the keys of a map in REST; the converter of the list takes them.
CONVERTED_KEYS = {
    ("gcp:container/cluster:Cluster", "maintenancePolicy.maintenanceExclusions.exclusionName"),
}
# Sent by the real plugin although the documents do not know them.
UNDOCUMENTED = {
    ("gcp:compute/routerNat:RouterNat", "initialNatIps"),
}


@cache
def _schemas(document: str) -> Json:
    found: Json = json.loads((DOCUMENTS / f"{document}.json").read_text())["schemas"]
    return found


class Node:
    """A place in a REST schema; `many` where it is a list or a map of objects."""

    def __init__(self, document: str, spec: Json) -> None:
        self.document = document
        self.many = spec.get("type") == "array"
        inner = spec["items"] if self.many else spec
        self.spec: Json = _schemas(document)[inner["$ref"]] if "$ref" in inner else inner

    def child(self, name: str) -> Node | None:
        found = self.spec.get("properties", {}).get(name)
        if found is None and "additionalProperties" in self.spec:
            return Node(self.document, self.spec["additionalProperties"]).child(name)
        return None if found is None else Node(self.document, found)

    def at(self, path: str) -> Node | None:
        node: Node | None = self
        for step in path.split("."):
            node = node.child(step) if node else None
        return node


def _places(token: str) -> Iterator[tuple[str, Property, Field, Node | None]]:
    """Every input that the table places, with its node in the REST schema (None: no such place)."""
    document, name = REST[token]
    root = Node(document, {"$ref": name})
    fields = {**dict.fromkeys(PLACES), **COMMON, **ROWS[token].fields}
    yield from _walk(token, root, root, schema.of(token).properties, fields, "")


def _walk(
    token: str, root: Node, node: Node, properties: Mapping[str, Property], fields: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, Property, Field, Node | None]]:
    for name, each in properties.items():
        field = fields.get(prefix + name, Field())
        if not each.is_input or field is None or prefix + name in BY_CODE.get(token, ()):
            continue
        rest = field.rest or name
        place = (root if rest.startswith("/") else node).at(rest.lstrip("/"))
        moved = field.send({}) is None if each.is_object and field.rest == "" and place is None else False
        if not moved:
            yield prefix + name, each, field, place
        if each.properties and (place or moved):
            yield from _walk(token, root, place or node, each.properties, fields, f"{prefix}{name}.")


@pytest.mark.parametrize("token", REST)
def test_every_input_has_a_place_in_the_api(token: str) -> None:
    lost = [p for p, _, _, place in _places(token) if place is None and (token, p) not in UNDOCUMENTED | CONVERTED_KEYS]
    assert lost == []


def test_rows_of_every_body_are_covered() -> None:
    """A row without a REST schema here has a body made by code alone; those are named, so that none slips through."""
    by_code = {
        "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember",
        "gcp:monitoring/dashboard:Dashboard",
        "gcp:storage/bucketIAMMember:BucketIAMMember",
        "gcp:projects/iAMCustomRole:IAMCustomRole",
        "gcp:projects/iAMMember:IAMMember",
        "gcp:secretmanager/secretIamMember:SecretIamMember",
        "gcp:serviceaccount/iAMMember:IAMMember",
        "gcp:projects/service:Service",
    }
    assert set(ROWS) == set(REST) | by_code


@pytest.mark.parametrize("token", REST)
def test_scalars_travel_in_the_apis_form(token: str) -> None:
    """64-bit numbers as strings, 32-bit ones as numbers, tri-state texts as booleans.

    The provider's generated code, which also sends the place, sends 64-bit numbers as the program has them; the API
    takes both.
    """
    samples: Mapping[str, Any] = {"String": "64", "Int": 7, "Float": 0.5, "Bool": True}
    json_types = {"string": str, "integer": int, "number": int | float, "boolean": bool}
    wrong = []
    for path, each, field, place in _places(token):
        if place is None or each.kind not in samples or "$ref" in place.spec or place.many:
            continue
        sent = field.send(samples[each.kind])
        expected = json_types.get(place.spec.get("type", ""))
        if ROWS[token].place and place.spec.get("format") == "int64":
            expected = type(samples[each.kind])
        if sent is not None and expected and not isinstance(sent, expected):
            wrong.append(f"{path}: {place.spec.get('type')} ({place.spec.get('format')}) is sent as {sent!r}")
    assert wrong == []


@pytest.mark.parametrize("token", REST)
def test_objects_and_lists_match_the_api(token: str) -> None:
    """A block is an object and a list is a list on both sides, unless the row converts it."""
    wrong = []
    for path, each, field, place in _places(token):
        if place is None or each.element != "object":
            continue
        entry = dict.fromkeys(each.properties, "x")
        sent = field.send(entry if each.is_object else [entry])
        if sent is not None and isinstance(sent, list) != place.many:
            wrong.append(path)
    assert wrong == []


def test_cluster_updates_are_fields_of_cluster_update() -> None:
    document, _ = REST["gcp:container/cluster:Cluster"]
    update, cluster = Node(document, {"$ref": "ClusterUpdate"}), Node(document, {"$ref": "Cluster"})
    table = schema.of("gcp:container/cluster:Cluster")
    for source in (_DESIRED, _DESIRED_PARTS):
        for path, (desired, place) in source.items():
            assert table.at(path) is not None, path
            assert update.at(desired) is not None, desired
            assert cluster.at(place) is not None, place


# Sent by calls of their own, or settings of the provider that no API knows.
OTHERWISE = {"enableLegacyAbac", "maintenancePolicy", "nodeLocations", "removeDefaultNodePool", "resourceLabels"}
PROVIDERS = {"deletionPolicy", "deletionProtection", "skipNodePoolRefresh"}
# Of the pools that come with a cluster, which are no resources of the program.
DEFAULT_POOL = {"nodeVersion"}


def _can_change(each: Property) -> bool:
    blocks = [_can_change(below) for below in each.properties.values()]
    return each.is_input and not each.force_new and (any(blocks) if blocks else True)


def test_what_can_change_of_a_cluster_is_sent() -> None:
    """The real provider has more updates; what they are for is refused by name, so that no change is lost."""
    table = schema.of("gcp:container/cluster:Cluster")
    changeable = {name for name, each in table.properties.items() if _can_change(each)}
    parts = {path.partition(".")[0] for path in _DESIRED_PARTS}
    assert changeable - OTHERWISE - PROVIDERS - DEFAULT_POOL == (_DESIRED.keys() | parts) & changeable
    assert "fleet" in table.unknown


def test_pool_updates_are_fields_of_update_node_pool() -> None:
    update = Node("container.v1beta1", {"$ref": "UpdateNodePoolRequest"})
    full = {
        "config": {"machineType": "m", "diskType": "d", "diskSizeGb": 1, "bootDisk": {}},
        "version": "1.36",
    }
    for path, make in _POOL_UPDATES.items():
        assert schema.of(NODE_POOL.type).at(path) is not None, path
        assert [n for n in make(full) if update.child(n) is None] == []


def test_what_is_sent_is_read_back() -> None:
    """A body made from inputs maps back to the same inputs (blocks, renamed and moved properties, 64-bit numbers)."""
    row, table = ROWS["gcp:container/cluster:Cluster"], schema.of("gcp:container/cluster:Cluster")
    inputs = {
        "defaultMaxPodsPerNode": 9,
        "enableShieldedNodes": False,
        "maintenancePolicy": {
            "maintenanceExclusions": [
                {"exclusionName": "hold", "startTime": "t", "exclusionOptions": {"scope": "NO_UPGRADES"}}
            ],
            "recurringWindow": {"startTime": "a", "endTime": "b", "recurrence": "FREQ=DAILY"},
        },
        "masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": "10.0.0.0/8"}]},
        "networkingMode": "VPC_NATIVE",
        "nodeConfig": {
            "kubeletConfig": {
                "cpuCfsQuota": True,
                "insecureKubeletReadonlyPortEnabled": "FALSE",
            }
        },
        "privateClusterConfig": {
            "enablePrivateEndpoint": True,
            "enablePrivateNodes": True,
            "masterGlobalAccessConfig": {"enabled": True},
        },
    }
    fields = {**dict.fromkeys(PLACES), **COMMON, **row.fields}
    body = to_rest(table.properties, inputs, fields)
    assert body["networkConfig"] == {"defaultEnablePrivateNodes": True}
    assert body["controlPlaneEndpointsConfig"]["ipEndpointsConfig"]["enablePublicEndpoint"] is False
    assert body["maintenancePolicy"]["window"]["maintenanceExclusions"].keys() == {"hold"}
    read = from_rest(table.properties, body, fields)
    assert {name: read[name] for name in inputs} == inputs
