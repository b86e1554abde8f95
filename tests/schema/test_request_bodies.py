"""The bodies that reach Google's APIs: for every TPU family, shape and capacity model, and for every stack file.

The real program is recorded, its Google resources are created by the stand-in plugin in the emulated cloud, and the
requests are taken from there. They must validate against Google's discovery documents and equal the goldens, one file
a family: what all pools say stands once, below it what only some say. The group's own name is written NAME.
UPDATE_GOLDENS=1 rewrites them.
"""

from __future__ import annotations

import copy
import math
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from catalogue import topology
from catalogue.generations import GENERATIONS, MACHINES_BY_GENERATION, Generation
from catalogue.labels import SLICE_LABEL
from sandbox.google.discovery import UNLISTED_FIELDS, Route, checked_body, find_route, unknown_query
from sandbox.google.errors import GoogleError
from tests.graph.conftest import recorded as recorded_stack
from tests.graph.emulated import PROJECT, emulated_cloud, lay_for_teams, recorded
from tests.graph.recording import STACK_FILES
from tests.platforms import ZONES

GOLDENS = Path(__file__).parent / "goldens"
OWNER = "owner-project"
Json = dict[str, Any]


def shapes(generation: Generation) -> dict[str, tuple[str, str]]:
    """Machine type and topology of a slice of one host, and of the smallest one that only several hosts build."""
    machines = MACHINES_BY_GENERATION[generation.name]
    single = max(machines, key=lambda machine: (not machine.multi_host, machine.chips))
    joined = next(machine for machine in machines if machine.multi_host)
    own = [topology.parse(machine.topology) for machine in machines]
    multi = next(dims for dims in topology.shapes(generation) if math.prod(dims) > joined.chips and dims not in own)
    return {"single": (single.name, single.topology), "multi": (joined.name, topology.render(multi))}


SHAPES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    name: shapes(generation) for name, generation in GENERATIONS.items()
}
"""By generation: shape of the slice -> machine type, topology."""
BLOCK, SUB_BLOCK, CUBE = "block-0001", "block-0001-subblock-0001", "block-0001-subblock-0002"


def capacities(shape: str) -> dict[str, Any]:
    """Capacity models by the name of their section; reservations are of the machine type of the shape."""
    reserved = {"model": "reservation", "name": f"reserved-{shape}"}
    return {
        "on-demand": "on-demand",
        "spot": "spot",
        "reservation": reserved,
        "shared-reservation": {**reserved, "project": OWNER},
        "block": {**reserved, "block": BLOCK},
        "sub-block": {**reserved, "project": OWNER, "block": BLOCK, "sub_block": SUB_BLOCK},
        "future": {**reserved, "active": False},
        "flex-start": {"model": "flex-start", "max_run_duration": "1d"},
        "queued": {"model": "queued", "max_run_duration": "36h"},
        "fallback": [reserved, "spot", "flex-start"],
    }


def offered(family: str, shape: str) -> dict[str, Any]:
    """The capacity models that Google has for a family."""
    found = capacities(shape)
    if GENERATIONS[family].dws:
        return found
    without = {name: model for name, model in found.items() if name not in ("flex-start", "queued")}
    return {**without, "fallback": found["fallback"][:2]}


def platform(family: str) -> Json:
    """One platform with a group of slices for each shape and capacity model of a family."""
    slices: Json = {
        f"{shape}-{name}": {"machine_type": machine, "topology": topology, "capacity": capacity}
        for shape, (machine, topology) in SHAPES[family].items()
        for name, capacity in offered(family, shape).items()
    }
    if GENERATIONS[family].dynamic_slicing:
        slices["cube-dynamic-slicing"] = {
            "machine_type": "tpu7x-standard-4t",
            "topology": "4x4x4",
            "dynamic_slicing": True,
            "capacity": {**capacities("multi")["sub-block"], "sub_block": [CUBE]},
        }
    return {
        "zone": ZONES[family],
        "allow_unlisted_zone": True,
        "protect": False,
        "cluster": {"release_channel": "RAPID"},
        "slices": slices,
    }


def seeds(family: str) -> Iterator[Json]:
    """The reservations that the platform of a family refers to."""
    for shape, (machine, _) in SHAPES[family].items():
        common = {"zone": ZONES[family], "name": f"reserved-{shape}", "machine_type": machine, "count": 100}
        yield {**common, "project": PROJECT}
        yield {**common, "project": OWNER, "share_with": [PROJECT]}


def sent(family: str, platform: Json) -> list[Json]:
    """The requests with a body that creating the Google resources of a platform of the family's slices sends."""
    with emulated_cloud() as cloud:
        cloud.control("zones", zone=ZONES[family], generations=[family])
        for seed in seeds(family):
            cloud.control("reservations", **seed)
        cloud.make(recorded(platform))
        return cloud.writes()


@cache
def sent_by_family(family: str) -> list[Json]:
    """The same of a family's platform."""
    return sent(family, platform(family))


@cache
def sent_by_stack(stack_file: Path) -> list[Json]:
    """The same of a stack file."""
    with emulated_cloud() as cloud:
        lay_for_teams(cloud, "us-east5")
        before = len(cloud.writes())
        cloud.make(recorded_stack(stack_file, preview=False))
        return cloud.writes()[before:]


SOURCES = [pytest.param(sent_by_family, family, id=family) for family in SHAPES] + [
    pytest.param(sent_by_stack, path, id=path.name.split(".")[1]) for path in STACK_FILES
]


def route_of(request: Json) -> Route:
    route = find_route(request["method"], request["path"])
    assert route is not None, f"Google has no {request['method']} {request['path']}"
    return route


# --- goldens ----------------------------------------------------------------------------------------------------------


def renamed(value: Any, old: str, new: str) -> Any:
    """`value` with one text replaced by another everywhere in its strings."""
    if isinstance(value, dict):
        return {key: renamed(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [renamed(item, old, new) for item in value]
    return value.replace(old, new) if isinstance(value, str) else value


def shared(bodies: list[Json]) -> Json:
    """What all bodies say alike, object by object."""
    first, *others = bodies
    result: Json = {}
    for key, value in first.items():
        if not all(key in other for other in others):
            continue
        if isinstance(value, dict) and all(isinstance(other[key], dict) for other in others):
            if below := shared([body[key] for body in bodies]):
                result[key] = below
        elif all(other[key] == value for other in others):
            result[key] = value
    return result


def beyond(body: Json, common: Json) -> Json:
    """What a body says beyond `common`."""
    result: Json = {}
    for key, value in body.items():
        if key not in common:
            result[key] = value
        elif isinstance(value, dict) and (below := beyond(value, common[key])):
            result[key] = below
    return result


def factored(bodies: Mapping[str, Json]) -> Json:
    """The bodies with what they share stated once, under `all`."""
    common = shared(list(bodies.values()))
    return {"all": common, **{name: beyond(body, common) for name, body in bodies.items()}}


def pools_by_shape(requests: list[Json]) -> dict[str, dict[str, Json]]:
    """Bodies of slice pools: shape -> name of the capacity model -> node pool, with the group's name as NAME."""
    found: dict[str, dict[str, Json]] = {}
    for request in requests:
        pool = request["body"].get("nodePool", {})
        group = pool.get("config", {}).get("labels", {}).get(SLICE_LABEL)
        if group is not None:
            shape, _, section = pool["name"].removesuffix("-0").partition("-")
            found.setdefault(shape, {})[section] = renamed(pool, group, "NAME")
    return found


def picture(requests: list[Json]) -> Json:
    """A golden's content."""
    shapes = pools_by_shape(requests)
    common = shared([pool for pools in shapes.values() for pool in pools.values()])
    policies = [r["body"] for r in requests if route_of(r).method.id == "compute.resourcePolicies.insert"]
    return {
        "all": common,
        **{
            shape: factored({section: beyond(pool, common) for section, pool in pools.items()})
            for shape, pools in shapes.items()
        },
        **({"workload policies": policies} if policies else {}),
    }


def check_golden(name: str, drawn: Json) -> None:
    """Compare with what is stored; `UPDATE_GOLDENS=1` rewrites it for review."""
    golden = GOLDENS / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDENS"):
        golden.write_text(yaml.safe_dump(drawn, default_flow_style=None, width=120))
    assert yaml.safe_load(golden.read_text()) == drawn, "the golden is stale: rerun with UPDATE_GOLDENS=1"


@pytest.mark.parametrize("family", SHAPES)
def test_pools_of_every_capacity_model_are_requested_as_in_the_golden(family: str) -> None:
    check_golden(family, picture(sent_by_family(family)))


@pytest.mark.parametrize("family", SHAPES)
def test_every_capacity_model_has_its_section(family: str) -> None:
    found = pools_by_shape(sent_by_family(family))
    cube = found.pop("cube", {})
    assert list(cube) == ["dynamic-slicing"] * GENERATIONS[family].dynamic_slicing
    assert found.keys() == SHAPES[family].keys()
    for shape, pools in found.items():
        alternatives = {name for name in pools if name.startswith("fallback-")}
        assert pools.keys() - alternatives == offered(family, shape).keys() - {"fallback"}
        assert len(alternatives) == len(offered(family, shape)["fallback"])


def test_a_golden_says_everything() -> None:
    """Factoring loses nothing: common part and difference make the body again."""
    bodies = {"a": {"x": 1, "y": {"z": [1], "only": 2}}, "b": {"x": 2, "y": {"z": [1]}}, "c": {"y": {"z": [1]}, "w": 3}}
    result = factored(bodies)
    assert result == {"all": {"y": {"z": [1]}}, "a": {"x": 1, "y": {"only": 2}}, "b": {"x": 2}, "c": {"w": 3}}


# --- discovery --------------------------------------------------------------------------------------------------------

# What creates a resource of each type, where it takes a body; a service is enabled by its URL alone.
CREATED_BY = {
    "gcp:artifactregistry/repository:Repository": "artifactregistry.projects.locations.repositories.create",
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": (
        "artifactregistry.projects.locations.repositories.setIamPolicy"
    ),
    "gcp:billing/budget:Budget": "billingbudgets.billingAccounts.budgets.create",
    "gcp:compute/address:Address": "compute.addresses.insert compute.addresses.setLabels",
    "gcp:compute/disk:Disk": "compute.disks.insert",
    "gcp:compute/firewall:Firewall": "compute.firewalls.insert",
    "gcp:compute/forwardingRule:ForwardingRule": "compute.forwardingRules.insert",
    "gcp:compute/instance:Instance": "compute.instances.insert",
    "gcp:compute/instanceGroup:InstanceGroup": "compute.instanceGroups.insert compute.instanceGroups.addInstances",
    "gcp:compute/instanceGroupManager:InstanceGroupManager": "compute.instanceGroupManagers.insert",
    "gcp:compute/instanceTemplate:InstanceTemplate": "compute.instanceTemplates.insert",
    "gcp:compute/network:Network": "compute.networks.insert",
    "gcp:compute/regionBackendService:RegionBackendService": "compute.regionBackendServices.insert",
    "gcp:compute/regionHealthCheck:RegionHealthCheck": "compute.regionHealthChecks.insert",
    "gcp:compute/resourcePolicy:ResourcePolicy": "compute.resourcePolicies.insert",
    "gcp:compute/router:Router": "compute.routers.insert",
    "gcp:compute/routerNat:RouterNat": "compute.routers.patch",
    "gcp:compute/subnetwork:Subnetwork": "compute.subnetworks.insert",
    "gcp:container/cluster:Cluster": "container.projects.locations.clusters.create",
    "gcp:container/nodePool:NodePool": "container.projects.locations.clusters.nodePools.create",
    "gcp:logging/metric:Metric": "logging.projects.metrics.create",
    "gcp:logging/projectExclusion:ProjectExclusion": "logging.projects.exclusions.create",
    "gcp:monitoring/alertPolicy:AlertPolicy": "monitoring.projects.alertPolicies.create",
    "gcp:monitoring/dashboard:Dashboard": "monitoring.projects.dashboards.create",
    "gcp:monitoring/notificationChannel:NotificationChannel": "monitoring.projects.notificationChannels.create",
    "gcp:projects/iAMCustomRole:IAMCustomRole": "iam.projects.roles.create",
    "gcp:projects/iAMMember:IAMMember": "cloudresourcemanager.projects.setIamPolicy",
    "gcp:secretmanager/secret:Secret": "secretmanager.projects.secrets.create",
    "gcp:secretmanager/secretIamMember:SecretIamMember": "secretmanager.projects.secrets.setIamPolicy",
    "gcp:serviceaccount/account:Account": "iam.projects.serviceAccounts.create",
    "gcp:serviceaccount/iAMMember:IAMMember": "iam.projects.serviceAccounts.setIamPolicy",
    "gcp:storage/bucket:Bucket": "storage.buckets.insert",
    "gcp:storage/bucketIAMMember:BucketIAMMember": "storage.buckets.setIamPolicy",
}
WITHOUT_BODY = {"gcp:projects/service:Service"}


def check(request: Json) -> None:
    """Raises GoogleError where the discovery document does not allow the request."""
    route = route_of(request)
    names = [part.partition("=")[0] for part in request["query"].split("&") if part]
    # The documents know fields in camel case. Google takes the names of the protocol buffers too.
    assert not unknown_query(route.method, [re.sub("_([a-z])", lambda each: each[1].upper(), name) for name in names])
    checked_body(route.document, route.method, request["body"], route.params)


@pytest.mark.parametrize(("requests_of", "source"), SOURCES)
def test_every_body_is_what_google_documents(requests_of: Any, source: Any) -> None:
    for request in requests_of(source):
        assert request["status"] == 200
        check(request)


@pytest.mark.parametrize("stack_file", STACK_FILES, ids=lambda path: path.name.split(".")[1])
def test_every_type_of_a_stack_is_among_the_bodies(stack_file: Path) -> None:
    types = {r.type for r in recorded_stack(stack_file, preview=False).requests.values() if r.type.startswith("gcp:")}
    reads = {
        "cloudresourcemanager.projects.getIamPolicy",
        "compute.instanceGroups.listInstances",
        "iam.projects.serviceAccounts.getIamPolicy",
    }
    methods = {route_of(request).method.id for request in sent_by_stack(stack_file)} - reads
    assert methods == {method for kind in types - WITHOUT_BODY for method in CREATED_BY[kind].split()}


def scalars(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of everything in a body that is neither object nor list."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from scalars(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from scalars(item, (*path, index))
    else:
        yield path


def broken(body: Json, path: tuple[str | int, ...]) -> Json:
    """The body with an object where a scalar belongs."""
    result = copy.deepcopy(body)
    target: Any = result
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = {"not": "a scalar"}
    return result


@pytest.mark.parametrize(("requests_of", "source"), SOURCES)
def test_any_broken_field_is_refused(requests_of: Any, source: Any) -> None:
    """Every single value of every body is one that the document would refuse in another form.

    But for the few fields that the real provider sends although Google does not list them.
    """
    assert unnoticed(requests_of(source)) == []


def unnoticed(requests: list[Json]) -> list[tuple[str, tuple[str | int, ...]]]:
    """The values of bodies that may have any form, by request path and place in the body."""
    unlisted = {field for _, field in UNLISTED_FIELDS}
    found = []
    for request in requests:
        for path in scalars(request["body"]):
            with_broken = {**request, "body": broken(request["body"], path)}
            try:
                check(with_broken)
            except GoogleError:
                continue
            if path[-1] not in unlisted:
                found.append((request["path"], path))
        with pytest.raises(GoogleError, match="Cannot find field"):
            check({**request, "body": {**request["body"], "nothingGoogleKnows": 1}})
    return found
