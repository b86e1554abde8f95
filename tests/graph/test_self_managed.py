"""Platforms without GKE: who may do what, what waits for what, and in which order it all goes."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from plan.hosts import JOIN_TOKEN
from sandbox.google.guests import GuestCloud, Machine, machine
from sandbox.google.world import World
from sandbox.guests.network import UnreachableError, require_machine
from tests.graph.conftest import recorded as recorded_stack
from tests.graph.emulated import recorded
from tests.graph.recording import (
    READ_SECRET,
    ROOT,
    STACK_FILES,
    GraphMonitor,
    Update,
    edges,
    inputs,
    inputs_of,
    named,
    reachable,
    record_main,
    short,
)
from tests.platforms import EXISTING, EXISTING_NETWORK, ZONES

Json = dict[str, Any]

TRAIN = {"machine_type": "ct6e-standard-4t", "topology": "4x4", "capacity": {"model": "reservation", "name": "r"}}
SERVE = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "count": 3}
BASE: Json = {"zone": ZONES["v6e"], "slices": {"train": TRAIN, "serve": SERVE}, "cluster": {"kind": "self-managed"}}
OFFICE = {"cidr": "192.0.2.0/24", "name": "office"}
TRIPLE = {
    **BASE,
    "cluster": {
        "kind": "self-managed",
        "control_plane": {
            "replicas": 3,
            "zones": ["us-east5-a", "us-east5-b"],
            "access": "external",
            "authorized_networks": [OFFICE],
            "backups": True,
        },
    },
}
GUEST = {**BASE, "cluster": EXISTING, "network": EXISTING_NETWORK}
PLATFORMS = {"one": BASE, "three": TRIPLE, "guest": GUEST}

GROUP = "gcp:compute/instanceGroupManager:InstanceGroupManager"
TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"
POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"
INSTANCE = "gcp:compute/instance:Instance"
FIREWALL = "gcp:compute/firewall:Firewall"


@cache
def graph_of(name: str, *, preview: bool = False) -> GraphMonitor:
    """The graph of one of the platforms above."""
    config = {"gcp:project": "my-project", "tpu-platform:platform": json.dumps(PLATFORMS[name])}
    return record_main(config, preview=preview)


@pytest.fixture(params=PLATFORMS)
def graph(request: pytest.FixtureRequest) -> GraphMonitor:
    """Each of them in turn."""
    return graph_of(request.param)


@pytest.fixture(params=["one", "three"])
def own(request: pytest.FixtureRequest) -> GraphMonitor:
    """Those with a control plane of their own."""
    return graph_of(request.param)


def kinds(graph: GraphMonitor, urns: set[str]) -> set[str]:
    return {graph.requests[urn].type for urn in urns}


# --- the same graph in a preview --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_first_preview_registers_the_same_and_asks_for_nothing(name: str) -> None:
    """That nothing is asked for is the recorder's doing: in a preview it refuses every call."""
    assert set(graph_of(name, preview=True).requests) == set(graph_of(name).requests)


def test_the_endpoint_is_asked_for_once_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def call(self: Update, args: Any) -> Json:
        calls.append((args.token, args.args))
        return {"secretData": json.dumps(Update.PUBLISHED)}

    monkeypatch.setattr(Update, "call", call)
    recorded(BASE)
    assert calls == [(READ_SECRET, {"project": "my-project", "secret": "tpu-endpoint"})]


# --- order ------------------------------------------------------------------------------------------------------------


def test_hosts_go_before_template_before_policy_before_network(own: GraphMonitor) -> None:
    """The engine deletes what depends on something before that."""
    group = named(own, "slices-train-0")
    (template,) = (urn for urn in edges(own, group) if own.requests[urn].type == TEMPLATE)
    assert POLICY in kinds(own, edges(own, template))
    for urn in (group, template):
        assert "gcp:compute/subnetwork:Subnetwork" in kinds(own, reachable(own, urn))


def test_hosts_come_after_all_they_need_to_join(graph: GraphMonitor) -> None:
    needed = {"gcp:projects/iAMMember:IAMMember", "gcp:secretmanager/secretIamMember:SecretIamMember", TEMPLATE}
    if graph is not graph_of("guest"):
        needed |= {INSTANCE, FIREWALL, "gcp:compute/routerNat:RouterNat", "gcp:compute/forwardingRule:ForwardingRule"}
    groups = graph.of_type(GROUP)
    assert len(groups) >= 2
    for urn in groups:
        assert needed <= kinds(graph, reachable(graph, urn)), short(urn)


def test_hosts_do_not_wait_for_the_cluster_to_answer(graph: GraphMonitor) -> None:
    """They boot while the control plane starts, and ask for their token until there is one."""
    for urn in graph.of_type(GROUP):
        assert not any(
            kind.startswith(("kubernetes:", "pulumi:providers")) for kind in kinds(graph, reachable(graph, urn))
        )


def test_machines_of_a_control_plane_come_after_their_rights(own: GraphMonitor) -> None:
    writers = {named(own, f"bootstrap-secrets-{part}-writer") for part in ("join", "endpoint", "access")}
    machines = own.of_type(INSTANCE)
    assert machines
    for urn in machines:
        assert writers <= edges(own, urn)


def test_everything_inside_waits_for_the_cloud_controller(own: GraphMonitor) -> None:
    controller = named(own, "cloud-controller-daemons")
    inside = [urn for urn, request in own.requests.items() if request.type.startswith("kubernetes:")]
    others = [urn for urn in inside if not own.requests[urn].name.startswith("cloud-controller")]
    assert len(others) > 3
    for urn in others:
        assert controller in reachable(own, urn), short(urn)


# --- who may do what --------------------------------------------------------------------------------------------------

NODES, CONTROL = (
    f"serviceAccount:{name}-identity-account@my-project.iam.gserviceaccount.com" for name in ("node", "control-plane")
)
READ, WRITE = "roles/secretmanager.secretAccessor", "roles/secretmanager.secretVersionManager"
ADD = "roles/secretmanager.secretVersionAdder"  # neither reads nor destroys what it has put away
WRITTEN = {("tpu-join", READ, NODES), *((f"tpu-{part}", WRITE, CONTROL) for part in ("join", "endpoint", "access"))}


def grants(graph: GraphMonitor) -> set[tuple[str, str, str]]:
    found = graph.of_type("gcp:secretmanager/secretIamMember:SecretIamMember").values()
    return {(row["secretId"], row["role"], row["member"]) for row in map(inputs, found)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("one", WRITTEN),
        ("three", WRITTEN | {("tpu-peers", WRITE, CONTROL), ("tpu-peers", READ, CONTROL), ("tpu-keys", ADD, CONTROL)}),
        ("guest", {("join", READ, NODES)}),
    ],
)
def test_who_may_read_and_write_secrets(name: str, expected: set[tuple[str, str, str]]) -> None:
    assert grants(graph_of(name)) == expected


def test_accounts_of_slices_may_join_too() -> None:
    account = "own@my-project.iam.gserviceaccount.com"
    platform = {**BASE, "slices": {"train": {**TRAIN, "service_account": account}}}
    graph = recorded(platform)
    assert ("tpu-join", READ, f"serviceAccount:{account}") in grants(graph)
    firewall = inputs_of(graph, "network-internal")
    assert account in firewall["targetServiceAccounts"]


def test_roles_in_the_project(graph: GraphMonitor) -> None:
    found = graph.of_type("gcp:projects/iAMMember:IAMMember").values()
    roles: dict[str, set[str]] = {}
    for row in map(inputs, found):
        roles.setdefault(row["member"], set()).add(row["role"])
    write = {"roles/logging.logWriter", "roles/monitoring.metricWriter"}
    expected = {NODES: {*write, "roles/artifactregistry.reader"}}
    if graph is not graph_of("guest"):
        expected[CONTROL] = {*write, "roles/compute.viewer"}
    assert roles == expected


def test_a_snapshot_can_be_added_and_nothing_else() -> None:
    graph = graph_of("three")
    _, member = graph.one("gcp:storage/bucketIAMMember:BucketIAMMember")
    assert (member.object["role"], member.object["member"]) == ("roles/storage.objectCreator", CONTROL)
    bucket = inputs(graph.one("gcp:storage/bucket:Bucket")[1])
    assert bucket["uniformBucketLevelAccess"] is True
    assert bucket["publicAccessPrevention"] == "enforced"
    assert bucket["forceDestroy"] is False, "the platform is protected"


# --- nothing secret, nothing public -----------------------------------------------------------------------------------


def test_no_secret_is_in_any_input(graph: GraphMonitor) -> None:
    assert not graph.of_type("gcp:secretmanager/secretVersion:SecretVersion")
    for urn, request in graph.requests.items():
        text = json.dumps(inputs(request))
        assert not JOIN_TOKEN.search(text), f"{short(urn)} has what looks like a join token"
        assert "PRIVATE KEY" not in text, short(urn)


def test_a_token_would_be_found() -> None:
    assert JOIN_TOKEN.search('{"metadata": {"kubeadm-join-token": "abcdef.0123456789abcdef"}}')
    assert not JOIN_TOKEN.search('{"metadata": {"note": "server.interconnections"}}')


def test_the_kubeconfig_asks_for_its_credential(graph: GraphMonitor) -> None:
    kubeconfig = json.loads(graph.exports["kubeconfig"])
    (user,) = kubeconfig["users"]
    assert user["user"].keys() == {"exec"}
    secret = "access" if graph is graph_of("guest") else "tpu-access"
    assert user["user"]["exec"]["args"] == [
        *("secrets", "versions", "access", "latest"),
        f"--secret={secret}",
        "--project=my-project",
    ]


def test_no_machine_has_a_public_address(graph: GraphMonitor) -> None:
    machines = [*graph.of_type(INSTANCE).values(), *graph.of_type(TEMPLATE).values()]
    assert len(machines) >= 2
    for request in machines:
        (interface,) = inputs(request)["networkInterfaces"]
        assert "accessConfigs" not in interface, request.name


def test_machines_are_shielded(graph: GraphMonitor) -> None:
    """TPU hosts without secure boot, as Google's guides have it."""
    for request in (*graph.of_type(INSTANCE).values(), *graph.of_type(TEMPLATE).values()):
        shield = inputs(request)["shieldedInstanceConfig"]
        assert shield["enableVtpm"] is True
        assert shield["enableIntegrityMonitoring"] is True
        assert shield["enableSecureBoot"] is not request.name.startswith("slices-")


INTERNAL = {"10.0.0.0/20", "10.4.0.0/14"}
PROBERS = {"35.191.0.0/16", "130.211.0.0/22"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("one", {"internal": INTERNAL, "control-plane": INTERNAL, "health-checks": PROBERS}),
        (
            "three",
            {
                "internal": INTERNAL,
                "control-plane": INTERNAL,
                "api": {OFFICE["cidr"]},
                "health-checks": {*PROBERS, "209.85.152.0/22", "209.85.204.0/22"},
            },
        ),
        ("guest", {}),
    ],
)
def test_what_the_firewall_lets_in(name: str, expected: dict[str, set[str]]) -> None:
    rules = {
        request.name.removeprefix("network-"): inputs(request) for request in graph_of(name).of_type(FIREWALL).values()
    }
    control = CONTROL.removeprefix("serviceAccount:")
    if expected:
        assert rules["replicas"]["sourceServiceAccounts"] == rules["replicas"]["targetServiceAccounts"] == [control]
        assert "sourceRanges" not in rules.pop("replicas")
    assert {key: set(rule["sourceRanges"]) for key, rule in rules.items()} == expected
    for key, rule in rules.items():
        assert rule["targetServiceAccounts"], "a rule without targets is for every machine of the network"
        if key == "internal":
            assert control not in rule["targetServiceAccounts"]
            continue
        assert rule["targetServiceAccounts"] == [control]
        if key != "control-plane":
            assert rule["allows"] == [{"protocol": "tcp", "ports": ["6443"]}]


@pytest.mark.parametrize("name", ["one", "three"])
def test_hosts_are_let_in_before_an_older_rule_is_narrowed(name: str) -> None:
    """A finding: in stacks of an earlier version the edit of `internal` could come before the rule that replaces it for
    the control plane, and cut all hosts off from the API server."""
    graph = graph_of(name)
    internal = graph.requests[named(graph, "network-internal")]
    before = {named(graph, f"network-{rule}") for rule in ("control-plane", "replicas")}
    assert before <= set(internal.dependencies)


@pytest.mark.parametrize("name", ["one", "three"])
def test_pods_and_hosts_do_not_reach_etcd(name: str) -> None:
    """A finding: every port of a control plane was open to all pods, etcd's too. The emulator's own check decides."""
    rules = [inputs(request) for request in graph_of(name).of_type(FIREWALL).values()]
    cloud = FirewalledCloud(rules)
    host = cloud.machine("10.0.0.9", cloud.account_of("internal"), pods="10.4.1.0/24")
    master, peer = (cloud.machine(f"10.0.0.{number}", CONTROL.removeprefix("serviceAccount:")) for number in (2, 3))
    for pod in ("", "10.4.1.7"):
        assert cloud.open_ports(host, master, pod) == {53, 6443, 10250}
        assert cloud.open_ports(host, host, pod) == FirewalledCloud.TRIED
    assert cloud.open_ports(peer, master, "") == FirewalledCloud.TRIED


class FirewalledCloud:
    """Machines between which the firewall rules of a graph stand, in the sandbox's network."""

    TRIED = {22, 53, 2379, 2380, 6443, 8471, 10250, 10257, 10259}

    def __init__(self, rules: list[Json]) -> None:
        self._rules = rules
        self._world = World()
        for number, rule in enumerate(rules):
            allowed = [
                {"IPProtocol": each["protocol"], **({"ports": each["ports"]} if each.get("ports") else {})}
                for each in rule["allows"]
            ]
            self._world.store.put(
                "compute.firewalls",
                f"projects/p/global/firewalls/{number}",
                {**rule, "network": "n", "allowed": allowed},
            )

    def account_of(self, rule: str) -> str:
        """The account of the machines that a rule is for."""
        (found,) = (each for each in self._rules if each["name"].endswith(f"-{rule}"))
        return str(found["targetServiceAccounts"][0])

    def machine(self, address: str, account: str, pods: str = "") -> Machine:
        nic = {"network": "n", "networkIP": address, "aliasIpRanges": [{"ipCidrRange": pods}] if pods else []}
        accounts = [{"email": account, "scopes": []}]
        record = {"id": address, "networkInterfaces": [nic], "serviceAccounts": accounts, "disks": []}
        return machine(self._world, f"projects/p/zones/z/instances/{address}", record)

    def open_ports(self, source: Machine, target: Machine, pod: str) -> set[int]:
        """Which of the ports answer to a machine, or to a pod on it."""
        return {port for port in self.TRIED if self._answers(source, target, port, pod)}

    def _answers(self, source: Machine, target: Machine, port: int, pod: str) -> bool:
        try:
            require_machine(GuestCloud(self._world), source, target, port, pod=pod)
        except UnreachableError:
            return False
        return True


def test_a_shared_networks_firewall_is_its_own_projects() -> None:
    network = {**EXISTING_NETWORK, "project": "host", "nodes_cidr": "10.0.0.0/20", "pods_cidr": "10.16.0.0/14"}
    rules = recorded({**BASE, "network": network}).of_type(FIREWALL).values()
    assert {inputs(request)["project"] for request in rules} == {"host"}
    assert {inputs(request)["network"] for request in rules} == {"projects/host/global/networks/n"}


# --- control planes ---------------------------------------------------------------------------------------------------


def metadata(graph: GraphMonitor, name: str) -> Json:
    result: Json = inputs_of(graph, name)["metadata"]
    return result


def test_replicas_know_the_first_one_and_share_a_secret() -> None:
    graph = graph_of("three")
    first, *others = (metadata(graph, f"control-plane-machine-{replica}") for replica in range(3))
    assert "tpu-first-address" not in first
    for replica, found in enumerate((first, *others)):
        assert (found["tpu-replicas"], found["tpu-replica"]) == ("3", str(replica))
        assert found["tpu-peer-secret"] == "projects/my-project/secrets/tpu-peers"
    assert {found["tpu-first-address"] for found in others} == {"address of control-plane-address-0"}
    zones = [inputs(request)["zone"] for request in graph.of_type(INSTANCE).values()]
    assert sorted(zones) == ["us-east5-a", "us-east5-a", "us-east5-b"]


def test_one_machine_has_no_peers() -> None:
    found = metadata(graph_of("one"), "control-plane-machine-0")
    assert found.keys().isdisjoint({"tpu-first-address", "tpu-peer-secret", "tpu-public-address", "tpu-backup-bucket"})


def test_an_external_address_comes_beside_the_internal_one() -> None:
    graph = graph_of("three")
    rules = [inputs(request) for request in graph.of_type("gcp:compute/forwardingRule:ForwardingRule").values()]
    assert {rule["loadBalancingScheme"] for rule in rules} == {"INTERNAL", "EXTERNAL"}
    assert {tuple(rule["ports"]) for rule in rules} == {("6443",)}
    found = metadata(graph, "control-plane-machine-0")
    assert found["tpu-api-address"] == "address of control-plane-addresses-internal"
    assert found["tpu-public-address"] == "address of control-plane-addresses-external"


def test_each_machine_has_a_disk_that_outlives_it(own: GraphMonitor) -> None:
    for request in own.of_type(INSTANCE).values():
        replica = request.name.rpartition("-")[2]
        (disk,) = inputs(request)["attachedDisks"]
        assert disk == {"source": f"link of control-plane-disk-{replica}", "deviceName": "data"}
        assert own.requests[named(own, f"control-plane-disk-{replica}")].protect
        assert not request.protect, "a machine may be replaced; the API keeps it from being deleted by mistake"


DISK = "control-plane-disk-0"


def depends_by(graph: GraphMonitor, request: Any, name: str) -> set[str]:
    """The properties of a resource that another one's outputs are in."""
    return {key for key, found in request.propertyDependencies.items() if named(graph, name) in found.urns}


def test_machines_go_before_their_disks(own: GraphMonitor) -> None:
    """A disk in use cannot be deleted, and the provider would take it from the machine in place."""
    for request in own.of_type(INSTANCE).values():
        assert list(request.replaceOnChanges) == ["attachedDisks"]
        assert request.deleteBeforeReplace
        assert depends_by(own, request, f"control-plane-disk-{request.name.rpartition('-')[2]}") == {"attachedDisks"}


def test_a_disk_says_what_the_cluster_cannot_change(own: GraphMonitor) -> None:
    for request in own.of_type("gcp:compute/disk:Disk").values():
        description = inputs(request)["description"]
        assert request.deleteBeforeReplace
        if request.name == DISK:
            assert depends_by(own, request, "network-subnet") == {"description"}
            assert "with pods 10.4.0.0/14, services 10.0.32.0/20" in description
        else:
            assert depends_by(own, request, DISK) == {"description"}
            assert f"number of {DISK}" in description


def test_hosts_go_before_the_cluster_that_they_have_joined(own: GraphMonitor) -> None:
    """So they are drained while there is an API server, and none of them looks for one that is gone."""
    for request in own.of_type(GROUP).values():
        assert depends_by(own, request, DISK) == {"description"}
        assert "description" in request.replaceOnChanges
        assert request.deleteBeforeReplace


def test_nothing_that_the_last_cluster_wrote_is_believed(own: GraphMonitor) -> None:
    """But for the copy of the cluster's keys: that the disk is lost is what it is for."""
    secrets = {request.name: request for request in own.of_type("gcp:secretmanager/secret:Secret").values()}
    kept = secrets.pop("backups-keys", None)
    assert (kept is None) is (own is graph_of("one"))
    assert kept is None or not kept.HasField("replacement_trigger")
    assert len(secrets) == (3 if own is graph_of("one") else 4)
    for request in secrets.values():
        assert request.replacement_trigger.string_value == f"number of {DISK}"
        assert request.deleteBeforeReplace


def test_a_machines_group_is_replaced_with_it_and_not_before(own: GraphMonitor) -> None:
    groups = own.of_type("gcp:compute/instanceGroup:InstanceGroup")
    assert len(groups) == len(own.of_type(INSTANCE))
    for request in groups.values():
        replica = request.name.rpartition("-")[2]
        assert request.replacement_trigger.string_value == f"number of control-plane-machine-{replica}"
        assert not request.deleteBeforeReplace
        assert "name" not in request.object
        assert depends_by(own, request, f"control-plane-machine-{replica}") == {"instances"}


def test_a_cluster_of_others_is_only_referenced() -> None:
    graph = graph_of("guest")
    made = kinds(graph, set(graph.requests))
    assert made.isdisjoint({INSTANCE, FIREWALL, "gcp:secretmanager/secret:Secret", "gcp:compute/disk:Disk"})
    assert not any(request.name.startswith("cloud-controller") for request in graph.requests.values())
    inside = [request for request in graph.requests.values() if request.type.startswith("kubernetes:")]
    assert inside
    for request in inside:
        assert not request.HasField("replacement_trigger"), "another address of the same cluster replaces nothing"
        assert not request.deletedWith, "a cluster that stays keeps what is not deleted"
    (cluster,) = json.loads(graph.exports["kubeconfig"])["clusters"]
    assert cluster["cluster"]["server"] == EXISTING["server"]


# --- hosts ------------------------------------------------------------------------------------------------------------


def test_hosts_boot_the_script_unless_their_images_do_without() -> None:
    assert metadata(graph_of("one"), "slices-train-template-train")["startup-script"].startswith(
        "#!/usr/bin/env bash\n"
    )
    image = "projects/my-project/global/images/own"
    graph = recorded(
        {
            **BASE,
            "cluster": {"kind": "self-managed", "bootstrap": False, "image": image},
            "slices": {"train": {**TRAIN, "image": image}},
        }
    )
    for template in ("slices-train-template-train", "cpu-pools-template-system"):
        assert "startup-script" not in metadata(graph, template)
    assert "startup-script" in metadata(graph, "control-plane-machine-0"), "the control plane is still the program's"


def test_templates_are_made_before_the_last_ones_go(graph: GraphMonitor) -> None:
    templates = graph.of_type(TEMPLATE)
    assert templates
    for urn, request in templates.items():
        assert "name" not in request.object, f"{short(urn)} has a fixed name: two of it cannot exist"
        assert request.object["namePrefix"]
        assert not request.deleteBeforeReplace
        assert not request.protect, "what holds nothing need not be kept"


def test_hosts_of_one_slice_come_at_once_and_others_one_by_one(graph: GraphMonitor) -> None:
    train = inputs_of(graph, "slices-train-0")
    assert train["targetSizePolicies"] == [{"mode": "BULK"}]
    assert train["targetSize"] == 4
    assert train["resourcePolicies"]["workloadPolicy"]
    assert train["instanceLifecyclePolicy"] == {"defaultActionOnFailure": "DO_NOTHING"}
    serve = inputs_of(graph, "slices-serve-0")
    assert serve["targetSizePolicies"] == [{"mode": "INDIVIDUAL"}]
    assert serve["targetSize"] == 3
    assert "resourcePolicies" not in serve
    assert serve["updatePolicy"]["maxUnavailableFixed"] == 1


def test_exports_name_hosts_and_say_whether_they_run(graph: GraphMonitor) -> None:
    assert graph.exports["hosts"]["serve"] == [f"tpu-serve-w-000{number}" for number in (1, 2, 3)]
    assert graph.exports["ready"]["tpu-train-0"] is True


def test_many_slices_are_many_groups_and_one_template() -> None:
    """Each further slice costs one resource with the same few dependencies."""

    def size(count: int) -> tuple[int, int]:
        graph = recorded({**BASE, "slices": {"train": {**TRAIN, "count": count}}})
        resources = [request for request in graph.requests.values() if request.custom]
        return len(graph.requests), sum(len(request.dependencies) for request in resources)

    (few, few_edges), (more, more_edges), (many, many_edges) = map(size, (1, 2, 300))
    assert more - few == 1
    assert many - few == 299
    assert many_edges - few_edges == 299 * (more_edges - few_edges)
    assert more_edges - few_edges <= 5


# --- devices ----------------------------------------------------------------------------------------------------------

PLUGIN = "device-plugin-daemons"


def affinity(pod: Json) -> list[Json]:
    node = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = node["nodeSelectorTerms"]
    result: list[Json] = term["matchExpressions"]
    return result


def test_plugin_and_driver_share_no_host() -> None:
    graph = recorded({**BASE, "slices": {"train": TRAIN, "serve": {**SERVE, "devices": "dra"}}})
    pod = inputs_of(graph, PLUGIN)["spec"]["template"]["spec"]
    driver = inputs_of(graph, "dra-driver-release")["values"]["kubeletPlugin"]
    opt_in = "cloud.google.com/gke-tpu-dra-driver"
    assert {"key": opt_in, "operator": "NotIn", "values": ["true"]} in affinity(pod)
    assert {"key": opt_in, "operator": "In", "values": ["true"]} in affinity(driver)
    labels = metadata(graph, "slices-serve-template-serve")["tpu-node-labels"]
    assert f"{opt_in}=true" in labels.split(",")
    assert opt_in not in metadata(graph, "slices-train-template-train")["tpu-node-labels"]


def test_without_a_slice_that_wants_it_there_is_no_plugin() -> None:
    graph = recorded({**BASE, "slices": {"serve": {**SERVE, "devices": "dra"}}})
    assert not [request for request in graph.requests.values() if request.name == PLUGIN]


@pytest.mark.parametrize("path", [path for path in STACK_FILES if "gce" not in path.name], ids=lambda path: path.stem)
def test_gke_brings_its_own_plugin_and_cloud_controller(path: Any) -> None:
    graph = recorded_stack(path, preview=False)
    assert not [r for r in graph.requests.values() if r.name.startswith(("device-plugin", "cloud-controller"))]


def test_nothing_waits_for_tpu_hosts_to_come() -> None:
    graph = graph_of("one")
    daemons = inputs_of(graph, PLUGIN)
    assert daemons["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}
    waiting = [request.name for urn, request in graph.requests.items() if named(graph, PLUGIN) in edges(graph, urn)]
    assert waiting == ["protection"], "which is nothing in the cloud, and comes last"


def test_controllers_run_on_system_hosts() -> None:
    graph = graph_of("one")
    (release,) = (r for r in graph.of_type("kubernetes:helm.sh/v3:Release").values() if r.object["name"] == "jobset")
    # What a node of the group calls itself: its group's name.
    selector = {"cloud.google.com/gke-nodepool": "tpu-system"}
    assert inputs(release)["values"]["controller"]["nodeSelector"] == selector
    assert inputs_of(graph, "cpu-pools-system")["name"] == "tpu-system"


def test_the_stack_is_the_operators_example() -> None:
    graph = recorded_stack(ROOT / "Pulumi.gce.yaml", preview=False)
    assert graph.exports["hosts"] == {"train": ["tpu-gce-train-0-w-0001", "tpu-gce-train-0-w-0002"]}
    assert graph.exports["cluster"]["endpoint"] == "10.0.0.5:6443"
