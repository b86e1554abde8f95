"""Rules that hold for the graph of every stack file, in preview and in update."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from plan import recreation
from rules.load import load_stack_file
from tests.graph.recording import (
    ROOT,
    STACK_FILES,
    GraphMonitor,
    Update,
    edges,
    inputs,
    outline,
    reachable,
    record,
    record_main,
    record_stack,
    short,
    stack_config,
)
from tests.platforms import ZONES

NODE_POOL = "gcp:container/nodePool:NodePool"
HOST_GROUP = "gcp:compute/instanceGroupManager:InstanceGroupManager"
INSTANCE = "gcp:compute/instance:Instance"
KUBERNETES_PROVIDER = "pulumi:providers:kubernetes"
# What tells one cluster from the next in its place.
GENERATIONS = (Update.ENDPOINT, "number of control-plane-disk-0")
# Objects that own cloud resources are deleted while the cluster still works, so they are not deleted with it.
OWNS_CLOUD_RESOURCES = {
    "kubernetes:core/v1:PersistentVolumeClaim",
    "kubernetes:core/v1:Service",
    "kubernetes:gateway.networking.k8s.io/v1:Gateway",
    "kubernetes:networking.k8s.io/v1:Ingress",
}


def identity(monitor: GraphMonitor) -> tuple[str, Any]:
    """What a cluster stands and falls with: itself, or the disk that holds it."""
    (found,) = (
        (urn, request)
        for urn, request in monitor.requests.items()
        if request.name in ("cluster-gke", "control-plane-disk-0")
    )
    return found


def hosts(monitor: GraphMonitor, prefix: str = "") -> dict[str, Any]:
    """Node pools or groups of hosts whose name begins so."""
    found = {**monitor.of_type(NODE_POOL), **monitor.of_type(HOST_GROUP)}
    return {urn: request for urn, request in found.items() if request.name.startswith(prefix)}


def declares_slices(stack_file: Path) -> bool:
    """Whether hosts of slices are in the graph. GKE or TPU Provisioner creates those of other stacks."""
    return any(plan.provisioning.declared for plan in load_stack_file(stack_file).slice_plans)


def test_what_was_interrupted_can_be_taken_down(
    stack_file: Path, update: GraphMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a resource whose creation was cut short the state knows what was asked for, and nothing that Google adds.

    A missing status of a group of hosts once ended `pulumi destroy --run-program` in a traceback.
    """
    monkeypatch.setattr(Update, "COMPUTED", {})
    monkeypatch.setattr(Update, "ENDPOINT", None)
    assert set(record_stack(stack_file).requests) == set(update.requests)


def test_there_are_stacks() -> None:
    assert [path.name for path in STACK_FILES], "no stack file found: every test below would pass on nothing"


def test_preview_and_update_register_the_same_resources(preview: GraphMonitor, update: GraphMonitor) -> None:
    assert set(preview.requests) == set(update.requests)


def test_components_complete_and_parent_their_children(update: GraphMonitor) -> None:
    components = {urn for urn, request in update.requests.items() if not request.custom}
    assert len(components) > 5
    for urn in components:
        assert urn in update.outputs, f"{short(urn)} never registered its outputs"
    for urn, request in update.requests.items():
        if request.custom:
            assert request.parent in components, f"{short(urn)} is not the child of a component"
            component = update.requests[request.parent]
            assert request.name.startswith(component.name), f"{short(urn)} does not carry its component's name"


def test_type_tokens_have_three_parts(update: GraphMonitor) -> None:
    own = [r.type for r in update.requests.values() if not r.custom and r.type != "pulumi:pulumi:Stack"]
    assert own
    assert all(len(token.split(":")) == 3 for token in own), own


def check_in_cluster_options(monitor: GraphMonitor) -> int:
    """Every in-cluster resource names its provider and goes with its cluster. Returns how many were looked at."""
    cluster, _ = identity(monitor)
    provider, provider_request = monitor.one(KUBERNETES_PROVIDER)
    # A replaced Provider leaves objects in the state that refer to a provider that is gone.
    assert not provider_request.replace_with
    assert not provider_request.deletedWith
    assert not provider_request.HasField("replacement_trigger")
    looked_at = 0
    for urn, request in monitor.requests.items():
        if not request.type.startswith("kubernetes:"):
            continue
        looked_at += 1
        assert request.provider.rsplit("::", 1)[0] == provider, f"{short(urn)} uses another provider"
        trigger = request.replacement_trigger.string_value
        assert trigger.startswith(GENERATIONS), f"{short(urn)} would be lost when the cluster is replaced"
        assert request.deleteBeforeReplace, f"{short(urn)} would be deleted after its replacement, and that with it"
        assert not request.replace_with, f"{short(urn)} would be deleted out of order"
        if request.type not in OWNS_CLOUD_RESOURCES:
            assert request.deletedWith == cluster, f"{short(urn)} would be deleted in a dying cluster"
    return looked_at


def test_in_cluster_resources_go_with_their_cluster(update: GraphMonitor) -> None:
    assert check_in_cluster_options(update) > 0


@pytest.mark.parametrize("field", ["provider", "deletedWith", "replacement_trigger", "deleteBeforeReplace"])
@pytest.mark.parametrize("stack", ["dev", "gce"])
def test_the_in_cluster_check_can_fail(stack: str, field: str) -> None:
    monitor = record_main(stack_config(ROOT / f"Pulumi.{stack}.yaml"))
    victim = next(request for request in monitor.requests.values() if request.type.startswith("kubernetes:"))
    victim.ClearField(field)
    with pytest.raises(AssertionError):
        check_in_cluster_options(monitor)


def test_in_cluster_resources_wait_for_the_system_pool(update: GraphMonitor) -> None:
    (system,) = hosts(update, "cpu-pools-system")
    # The cloud-controller runs on the control plane, and without it nothing runs on other hosts.
    inside = [
        urn
        for urn, request in update.requests.items()
        if request.type.startswith("kubernetes:") and not request.name.startswith("cloud-controller")
    ]
    assert inside
    for urn in inside:
        assert system in reachable(update, urn), f"{short(urn)} could start before there is a node to run on"


def test_in_cluster_resources_do_not_name_what_their_dependencies_wait_for(update: GraphMonitor) -> None:
    """A refused `destroy` computed for 50 s: the engine follows every path of dependencies, and 29 million of them."""
    (system,) = hosts(update, "cpu-pools-system")
    inside = {urn for urn, request in update.requests.items() if request.type.startswith("kubernetes:")}
    for urn in inside:
        behind = [other for other in edges(update, urn) & inside if system in reachable(update, other)]
        assert not behind or system not in edges(update, urn), f"{short(urn)} and {short(behind[0])}"


def test_slices_and_controllers_do_not_wait_for_each_other(stack_file: Path, update: GraphMonitor) -> None:
    slices = set(hosts(update, "slices-"))
    assert bool(slices) == declares_slices(stack_file)
    for urn, request in update.requests.items():
        if request.type.startswith("kubernetes:"):
            assert not slices & reachable(update, urn), f"{short(urn)} waits for TPU capacity"
    for urn in slices:
        assert not any(update.requests[other].type.startswith("kubernetes:") for other in reachable(update, urn))


def test_the_graph_has_no_cycle(update: GraphMonitor) -> None:
    for urn in update.requests:
        assert urn not in reachable(update, urn), short(urn)


NEEDED = (
    "gcp:container/cluster:Cluster",
    "gcp:compute/disk:Disk",
    "gcp:compute/network:Network",
    "gcp:compute/subnetwork:Subnetwork",
    "gcp:compute/router:Router",
    "gcp:compute/routerNat:RouterNat",
    "gcp:compute/regionHealthCheck:RegionHealthCheck",
    "gcp:serviceaccount/account:Account",
    "gcp:projects/iAMMember:IAMMember",
    "gcp:secretmanager/secret:Secret",
    "gcp:storage/bucket:Bucket",
    "kubernetes:helm.sh/v3:Release",
    "kubernetes:apps/v1:DaemonSet",
)


# An edit of these is another slice, though the provider would plan an update.
REPLACES_SLICE = {
    NODE_POOL: {"placementPolicy.tpuTopology", "nodeConfig.machineType", "nodeLocations"},
    HOST_GROUP: {"targetSize", "versions", "resourcePolicies", "targetSizePolicies", "description"},
}


def test_slice_pools_guard_their_capacity(stack_file: Path, update: GraphMonitor) -> None:
    pools = hosts(update, "slices-")
    assert bool(pools) == declares_slices(stack_file)
    for urn, request in pools.items():
        assert request.deleteBeforeReplace, short(urn)
        assert set(request.replaceOnChanges) == REPLACES_SLICE[request.type]
        assert ("initialNodeCount" in request.ignoreChanges) == (request.type == NODE_POOL)


def test_replace_on_changes_comes_with_delete_before_replace(stack_file: Path, update: GraphMonitor) -> None:
    """Alone it makes the engine create the second resource of a name before it deletes the first."""
    forced = [request for request in update.requests.values() if request.replaceOnChanges]
    assert bool(forced) == declares_slices(stack_file)
    assert all(request.deleteBeforeReplace for request in forced)


def test_another_shape_is_another_workload_policy() -> None:
    """The provider plans a rename in place, which the API cannot do: so names and shapes go together."""
    config = stack_config(ROOT / "Pulumi.dev.yaml")
    platform = json.loads(config["tpu-platform:platform"])
    shapes = ("2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8")
    slices = {f"s{shape}": {"machine_type": "tpu7x-standard-4t", "topology": shape} for shape in shapes}
    platform |= {"name": "tpu", "zone": ZONES["tpu7x"], "slices": slices, "queues": {}}
    graph = record_main({**config, "tpu-platform:platform": json.dumps(platform)})
    policies = graph.of_type("gcp:compute/resourcePolicy:ResourcePolicy").values()
    for shape, request in zip(shapes, policies, strict=True):
        assert request.object["workloadPolicy"]["acceleratorTopology"] == shape
        assert request.object["name"] == f"tpu-{shape}"
        assert request.name.endswith(f"tpu-{shape}"), "a policy of another name is another resource"
        assert list(request.replaceOnChanges) == ["name"]


def test_protection_is_one_switch(stack_file: Path) -> None:
    config = stack_config(stack_file)
    platform = json.loads(config["tpu-platform:platform"])
    for protect in (True, False):
        platform["protect"] = protect
        monitor = record_main({**config, "tpu-platform:platform": json.dumps(platform)})
        guarded = [identity(monitor)[1], *hosts(monitor, "slices-").values()]
        assert len(guarded) >= 1 + declares_slices(stack_file)
        assert {request.protect for request in guarded} == {protect}
        undeletable = [r for r in monitor.requests.values() if "deletionProtection" in r.object]
        assert undeletable
        assert {request.object["deletionProtection"] for request in undeletable} == {protect}


CLUSTER = "gcp:container/cluster:Cluster"
PRIVATE_ENDPOINT = "privateClusterConfig.enablePrivateEndpoint"


def dev_cluster_request(**cluster: Any) -> Any:
    """How the dev stack registers its cluster with these settings."""
    config = stack_config(ROOT / "Pulumi.dev.yaml")
    platform = json.loads(config["tpu-platform:platform"])
    platform["cluster"] = cluster
    _, request = record_main({**config, "tpu-platform:platform": json.dumps(platform)}).one(CLUSTER)
    return request


def dev_cluster(**cluster: Any) -> dict[str, Any]:
    return inputs(dev_cluster_request(**cluster))


def test_a_zonal_cluster_does_not_name_its_own_zone_again() -> None:
    """The real provider refuses it, so that zonal clusters could not be made at all."""
    assert dev_cluster()["nodeLocations"] == ["us-east5-b"]
    zonal = dev_cluster(regional=False)
    assert zonal["location"] == "us-east5-b"
    assert "nodeLocations" not in zonal


def test_the_kind_of_an_ip_endpoint_that_is_off_is_ignored() -> None:
    """What GKE answers there is in no public source; the second preview of every such cluster found a change."""
    office = [{"cidr": "192.0.2.0/24", "name": "office"}]
    assert PRIVATE_ENDPOINT in dev_cluster_request().ignoreChanges
    assert PRIVATE_ENDPOINT not in dev_cluster_request(authorized_networks=office).ignoreChanges


def test_platforms_are_protected_unless_they_say_otherwise() -> None:
    config = stack_config(ROOT / "Pulumi.dev.yaml")
    platform = json.loads(config["tpu-platform:platform"])
    del platform["protect"]
    monitor = record_main({**config, "tpu-platform:platform": json.dumps(platform)})
    assert identity(monitor)[1].protect


def test_the_provider_outlives_its_cluster(preview: GraphMonitor, stack_file: Path) -> None:
    """Its identity is known in a first preview, and does not follow the cluster's name or place: a new identity would
    replace the Provider."""
    _, provider = preview.one(KUBERNETES_PROVIDER)
    config = stack_config(stack_file)
    platform = json.loads(config["tpu-platform:platform"])
    platform |= {"name": "other", "zone": "us-central1-a", "allow_unlisted_zone": True}
    moved = record_main({**config, "tpu-platform:platform": json.dumps(platform)}, stack=stack_file.name.split(".")[1])
    _, moved_provider = moved.one(KUBERNETES_PROVIDER)
    assert provider.object["clusterIdentifier"] == moved_provider.object["clusterIdentifier"]
    assert place(moved) != place(preview)


def place(monitor: GraphMonitor) -> str:
    """Where a cluster is."""
    found = identity(monitor)[1].object
    return str(found["location"] if "location" in found else found["zone"])


def inputs_without_scripts(request: Any) -> str:
    """The inputs of a resource, but for the text of boot scripts: their routes have a word for everywhere."""
    found = inputs(request)
    found.get("metadata", {}).pop("startup-script", None)
    return json.dumps(found)


def test_nothing_is_open_to_the_world(update: GraphMonitor) -> None:
    text = "".join(inputs_without_scripts(request) for request in update.requests.values())
    assert "0.0.0.0/0" not in text
    assert "::/0" not in text


def service_account(request: Any) -> str | None:
    """What the machines run as that a resource makes."""
    found = inputs(request)
    if request.type == NODE_POOL:
        return str(found["nodeConfig"]["serviceAccount"])
    return str(found["serviceAccount"]["email"]) if "serviceAccount" in found else None


def test_no_resource_uses_the_default_service_account(stack_file: Path, update: GraphMonitor) -> None:
    machines = [
        request
        for request in update.requests.values()
        if request.type in (NODE_POOL, INSTANCE, "gcp:compute/instanceTemplate:InstanceTemplate")
    ]
    assert len(machines) >= 1 + declares_slices(stack_file)
    for request in machines:
        account = service_account(request)
        assert account is not None, request.name
        assert account.endswith(".iam.gserviceaccount.com"), request.name


def test_the_order_of_the_graph(update: GraphMonitor) -> None:
    """design: services -> network and identity -> cluster -> pools and access."""
    (cluster,) = (urn for urn, r in update.requests.items() if r.name in ("cluster-gke", "control-plane-machine-0"))
    before = {update.requests[urn].type for urn in reachable(update, cluster)}
    assert "gcp:projects/service:Service" in before
    assert "gcp:projects/iAMMember:IAMMember" in before
    pools = hosts(update)
    assert pools
    for urn in pools:
        assert cluster in reachable(update, urn)


def test_everything_of_googles_waits_for_the_apis(update: GraphMonitor) -> None:
    """In a project that nobody has used yet, a request to an API that is not on is refused."""
    apis = update.of_type("gcp:projects/service:Service").keys()
    assert apis
    for urn, request in update.requests.items():
        if request.custom and request.type.startswith("gcp:") and urn not in apis:
            assert apis <= reachable(update, urn), request.name


def golden(path: Path, value: object) -> None:
    """Compare with the stored text; `UPDATE_GOLDENS=1` rewrites it for review."""
    text = yaml.safe_dump(value, sort_keys=False, width=120)
    if os.environ.get("UPDATE_GOLDENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text, f"the graph changed: review, then rerun with UPDATE_GOLDENS=1 ({path.name})"


def test_graph_matches_its_golden(stack_file: Path, update: GraphMonitor) -> None:
    golden(Path(__file__).parent / "goldens" / f"{stack_file.name.split('.')[1]}.yaml", outline(update))


def test_the_graph_does_not_depend_on_the_hash_seed() -> None:
    script = (
        "import json; from tests.graph.recording import *;"
        "print(json.dumps([outline(record_stack(path)) for path in STACK_FILES]))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "77")
    }
    assert len(seen) == 1


def test_a_back_end_is_imported_only_where_it_is_used() -> None:
    """Each loads large parts of the provider SDK: both together made every command a second slower."""
    script = (
        "import sys; import components.platform; assert 'components.compute.back_end' not in sys.modules;"
        "import components.gke.back_end; assert 'components.compute.back_end' not in sys.modules;"
        "assert 'pulumi_gcp.storage.bucket' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_an_error_in_an_apply_fails_the_recording() -> None:
    import pulumi_gcp as gcp

    def program() -> None:
        gcp.storage.Bucket("bucket", location="US").location.apply(lambda _location: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        record(program)


def test_a_duplicate_urn_fails_the_recording() -> None:
    import pulumi_gcp as gcp

    def program() -> None:
        gcp.storage.Bucket("bucket", location="US")
        gcp.storage.Bucket("bucket", location="EU")

    with pytest.raises(ValueError, match="Duplicate"):
        record(program)


def test_destroy_of_a_protected_platform_meets_what_is_protected_first(stack_file: Path) -> None:
    """B1 of users.md: the engine deletes what nothing depends on first, and spares what a protected resource needs."""
    config = stack_config(stack_file)
    platform = json.loads(config["tpu-platform:platform"])
    monitor = record_main({**config, "tpu-platform:platform": json.dumps({**platform, "protect": True})})
    protection, request = monitor.one("tpu:platform:Protection")
    assert request.protect
    assert reachable(monitor, protection) == {urn for urn, each in monitor.requests.items() if each.custom}
    assert not any(protection in each.dependencies for each in monitor.requests.values()), "it can go alone"


TEAMS = "::team-members-"
"""In the URNs of what teams' members may do, which people edit."""


def test_what_a_platform_cannot_live_without_is_protected_and_what_teams_edit_is_not(stack_file: Path) -> None:
    """Queues, namespaces, devices' classes, further CPU pools and templates come and go one by one."""
    config = stack_config(stack_file)
    platform = json.loads(config["tpu-platform:platform"])
    monitor = record_main({**config, "tpu-platform:platform": json.dumps({**platform, "protect": True})})
    protected = {short(urn) for urn, request in monitor.requests.items() if request.custom and request.protect}
    needed = {short(urn) for kind in NEEDED for urn in monitor.of_type(kind) if TEAMS not in urn}
    assert protected >= needed | {"kubernetes access-provider", "Firewall network-internal"}
    system = {short(urn) for kind in (NODE_POOL, HOST_GROUP) for urn in monitor.of_type(kind) if "system" in urn}
    assert len(system) == 1
    assert protected >= system
    edited = ("kubernetes:kueue.x-k8s.io/", "kubernetes:resource.k8s.io/", "gcp:compute/instanceTemplate:")
    for urn, request in monitor.requests.items():
        if request.type.startswith(edited) or request.parent.endswith("::namespaces") or TEAMS in urn:
            assert not request.protect, short(urn)


def test_a_protected_slice_alone_is_reason_enough_to_stop_destroy() -> None:
    config = stack_config(ROOT / "Pulumi.dev.yaml")
    platform = json.loads(config["tpu-platform:platform"])
    name = next(iter(platform["slices"]))
    platform["slices"][name]["protect"] = True
    monitor = record_main({**config, "tpu-platform:platform": json.dumps(platform)})
    assert platform["protect"] is False
    assert monitor.one("tpu:platform:Protection")[1].protect


def test_edits_that_make_the_hosts_of_a_protected_slice_anew_are_replacements(stack_file: Path) -> None:
    """H2 of security.md: so the engine refuses them; other slices keep their pool, and the update is made in place."""
    config = stack_config(stack_file)
    platform = json.loads(config["tpu-platform:platform"])
    paths = {NODE_POOL: set(recreation.NODE_POOL), HOST_GROUP: set(recreation.HOST_GROUP)}
    for protect in (True, False):
        monitor = record_main({**config, "tpu-platform:platform": json.dumps({**platform, "protect": protect})})
        for request in hosts(monitor, "slices-").values():
            assert (paths[request.type] <= set(request.replaceOnChanges)) or not protect
            if request.type == NODE_POOL:
                assert (paths[NODE_POOL] <= set(request.replaceOnChanges)) is protect
