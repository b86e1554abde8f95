"""The table of edits: for each key of the configuration what an edit of it does to slices that run.

It is the source of the table in docs/operations.md. tests/graph/test_edit_table.py holds every row against the graph
and every key against the table; `python -m tests.edits` makes the edits one by one on a running stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from catalogue.generations import V6E
from tests.edits.arguments import ABSENT, put
from tests.graph.emulated import PROJECT
from tests.platforms import EXISTING, EXISTING_NETWORK, ZONES

Json = dict[str, Any]


class Effect(Enum):
    """What an edit does to slices that run. The first of these that applies counts."""

    REFUSED = "refused"
    ANOTHER_CLUSTER = "another cluster"
    REPLACED = "slice replaced"
    HOSTS = "hosts anew"
    OTHERS = "others anew"
    IN_PLACE = "in place"
    ADDED = "added or removed"
    NOTHING = "nothing"


REFUSED, ANOTHER_CLUSTER, REPLACED, HOSTS = Effect.REFUSED, Effect.ANOTHER_CLUSTER, Effect.REPLACED, Effect.HOSTS
OTHERS, IN_PLACE, ADDED, NOTHING = Effect.OTHERS, Effect.IN_PLACE, Effect.ADDED, Effect.NOTHING

GKE, SELF_MANAGED, GUEST = "gke", "self-managed", "existing"

KEY = f"projects/{PROJECT}/locations/us-east5/keyRings/r/cryptoKeys/k"
IMAGE = f"projects/{PROJECT}/global/images/own"
UBUNTU = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"
TPU_IMAGE = V6E.host_image
ACCOUNT = f"b@{PROJECT}.iam.gserviceaccount.com"
RESERVED = {"model": "reservation", "name": "first"}
OFFICE = {"cidr": "192.0.2.0/24", "name": "office"}
HEAD = {"machine_type": "n2-standard-8", "min": 1}
CHANNEL = "123"
TAINT = {"key": "k", "value": "v", "effect": "NoExecute"}
EXCLUSION = {"name": "a", "start": "2026-01-01T00:00:00Z"}
NETWORK = {"kind": "existing", "network": "n", "subnetwork": "s", "pods_range": "p", "services_range": "q"}
CUBE = {
    "machine_type": "tpu7x-standard-4t",
    "topology": "4x4x4",
    "capacity": {**RESERVED, "name": "cubes", "block": "block-0001", "sub_block": ["block-0001-subblock-0001"]},
}

PROVISIONER = "example.com/images/tpu-provisioner:v1"
BY_PROVISIONER = {
    "cluster.release_channel": "UNSPECIFIED",
    "slices.train.provisioning": "tpu-provisioner",
    "slices.serve": ABSENT,
    "software.tpu_provisioner": {"image": PROVISIONER},
}

# Words of docs/operations.md that several rows share.
SHAPE = "`slices.*`: another machine type, generation, topology or number of chips"
COUNT = "`slices.*.count`"
MODEL = "`slices.*.capacity`: another model"
PRICES = "`prices`"
FIRST_NETWORK = "`cluster.control_plane.authorized_networks`: the first, or none any more"

# A slice of several hosts, a pool of single hosts, and a queue.
_BASE: Json = {
    "zone": ZONES["v6e"],
    "allow_unlisted_zone": True,
    "protect": False,
    "slices": {
        "train": {"machine_type": "ct6e-standard-4t", "topology": "4x4", "capacity": RESERVED},
        "serve": {"machine_type": "ct6e-standard-1t", "topology": "1x1", "count": 2},
    },
    "queues": {"team": {"namespaces": ["team"], "slices": {"train": 1}}},
}
BASES: dict[str, Json] = {
    GKE: {**_BASE, "cluster": {"kind": GKE, "release_channel": "RAPID"}},
    SELF_MANAGED: {**_BASE, "cluster": {"kind": SELF_MANAGED}},
    GUEST: {**_BASE, "cluster": EXISTING, "network": EXISTING_NETWORK},
}


@dataclass(frozen=True)
class Row:
    """One edit: `after` is what changes of the base with `before`, both as dotted keys; ABSENT takes a key away.

    `gke`, `without`: what it does on GKE and without GKE. None: the row is not about that; another row is, or the
    setting does not exist there. `guest`: it is about a cluster that somebody else runs. `unsafe_to_keep`: edits after
    it would be refused while it stands. `words`: what it is called in docs/operations.md, where its keys do not say.
    """

    after: Json
    gke: Effect | None
    without: Effect | None
    before: Json = field(default_factory=dict)
    guest: bool = False
    unsafe_to_keep: bool = False
    words: str = ""

    @property
    def id(self) -> str:
        return " ".join(f"{key}={'-' if value is ABSENT else value}" for key, value in self.after.items())

    @property
    def backends(self) -> Iterator[tuple[str, Effect]]:
        """The bases that the row is about, with the effect there."""
        if self.gke:
            yield GKE, self.gke
        if self.without:
            yield (GUEST if self.guest else SELF_MANAGED), self.without

    def platforms(self, backend: str) -> tuple[Json, Json]:
        """The configuration before and after."""
        before = put(BASES[backend], self.before)
        return before, put(before, self.after)


def both(after: Json, effect: Effect, before: Json | None = None, words: str = "") -> Row:
    return Row(after, effect, effect, before or {}, words=words)


def gke(after: Json, effect: Effect, before: Json | None = None, words: str = "") -> Row:
    return Row(after, effect, None, before or {}, words=words)


def without(after: Json, effect: Effect, before: Json | None = None, words: str = "") -> Row:
    return Row(after, None, effect, before or {}, words=words)


def guest(after: Json, effect: Effect) -> Row:
    return Row(after, None, effect, guest=True)


def _slices() -> Iterator[Row]:
    """What a slice is, then where its hosts come from, then what they are like."""
    train, serve = "slices.train", "slices.serve"
    yield both(
        {f"{train}.machine_type": ABSENT, f"{train}.generation": "v6e"},
        NOTHING,
        words="the same shape, written otherwise",
    )
    chips = {f"{train}.machine_type": ABSENT, f"{train}.topology": ABSENT, f"{train}.generation": "v6e"}
    yield both({**chips, f"{train}.chips": 16}, NOTHING, words="the same shape, written otherwise")
    yield both({f"{train}.topology": "4x8"}, REPLACED, words=SHAPE)
    shape = {f"{serve}.machine_type": "ct6e-standard-8t", f"{serve}.topology": "2x4"}
    yield Row(shape, REPLACED, HOSTS, words=SHAPE)
    yield both({f"{train}.count": 2}, ADDED, words=COUNT)
    yield both({f"{train}.count": 1}, ADDED, {f"{train}.count": 2}, COUNT)
    yield both({f"{serve}.count": 3}, ADDED, words=COUNT)
    yield both({f"{serve}.count": 1}, ADDED, words=COUNT)
    yield both({"slices.more": {"machine_type": "ct6e-standard-1t", "topology": "1x1"}}, ADDED, words="a slice")
    yield both({"slices.serve": ABSENT}, ADDED, words="a slice")

    yield both({f"{train}.capacity": "spot"}, REPLACED, words=MODEL)
    yield Row({f"{serve}.capacity": "spot"}, REPLACED, HOSTS, words=MODEL)
    for key, value in {"name": "second", "project": "owner-project", "block": "block-0001"}.items():
        yield both({f"{train}.capacity.{key}": value}, REPLACED)
    part = {f"{train}.capacity.block": "block-0001", f"{train}.capacity.sub_block": ["block-0001-subblock-0001"]}
    yield both(part, REPLACED, words="`slices.*.capacity.sub_block`")
    yield Row({f"{train}.capacity.active": False}, ADDED, REPLACED)
    yield both({f"{train}.capacity.ends": "2027-01-31"}, NOTHING)
    yield both({f"{train}.capacity.maintenance": "PERIODIC"}, NOTHING)
    duration = {f"{serve}.capacity": {"model": "on-demand", "max_run_duration": "2d"}}
    on_demand = {f"{serve}.capacity": {"model": "on-demand"}}
    yield Row(duration, REPLACED, HOSTS, on_demand, words="`slices.*.capacity.max_run_duration`")
    yield gke({f"{train}.capacity": [RESERVED, "spot"]}, REPLACED, words="`slices.*.capacity`: a list")
    turned = {f"{train}.capacity": ["spot", RESERVED]}
    yield gke(turned, IN_PLACE, {f"{train}.capacity": [RESERVED, "spot"]}, "the order in `slices.*.capacity`")
    yield Row({f"{train}.capacity": "queued"}, REPLACED, REFUSED, words="`slices.*.capacity`: queued")
    yield Row({f"{serve}.provisioning": "autoscaled"}, IN_PLACE, REFUSED)
    by_class = {f"{serve}.provisioning": "compute-class"}
    yield gke(by_class, ADDED, words="`slices.*.provisioning`: from or to compute-class")
    yield gke({f"{serve}.capacity": "spot"}, IN_PLACE, by_class, "`slices.*` with provisioning: compute-class: any key")
    dynamic = {"slices.cube": CUBE}
    yield gke({"slices.cube.dynamic_slicing": True}, REPLACED, dynamic)
    yield without({f"{train}.dynamic_slicing": True}, REFUSED)

    yield Row({f"{train}.devices": "dra"}, IN_PLACE, REPLACED)
    yield Row({f"{train}.boot_disk.size_gb": 200}, HOSTS, REPLACED)
    yield both({f"{serve}.boot_disk.size_gb": 200}, HOSTS)
    yield both({f"{train}.boot_disk.type": "hyperdisk-balanced"}, NOTHING)
    yield Row({f"{train}.secondary_boot_disks": [{"image": IMAGE}]}, REPLACED, REFUSED)
    yield Row({f"{train}.image_streaming": False}, HOSTS, NOTHING)
    yield Row({f"{train}.dranet": True}, REPLACED, REFUSED)
    more = {f"{train}.additional_networks": [{"network": "m", "subnetwork": "t"}]}
    yield Row(more, REPLACED, REFUSED)
    yield both({f"{train}.max_pods_per_node": 64}, REPLACED)
    yield Row({f"{train}.host_maintenance": "AS_NEEDED"}, REPLACED, REFUSED)
    for key, value in {"respect_pdb": False, "grace": "10m", "pdb_timeout": "15m"}.items():
        yield Row({f"{train}.node_drain.{key}": value}, IN_PLACE, NOTHING, {f"{train}.node_drain": {}})
    yield Row({f"{train}.labels": {"a": "b"}}, IN_PLACE, REPLACED)
    yield Row({f"{serve}.labels": {"a": "b"}}, IN_PLACE, HOSTS)
    yield Row({f"{train}.taints": [TAINT]}, IN_PLACE, REPLACED)
    yield Row({f"{serve}.taints": [TAINT]}, IN_PLACE, HOSTS)
    yield Row({f"{train}.tags": ["x"]}, IN_PLACE, REPLACED)
    yield Row({f"{serve}.tags": ["x"]}, IN_PLACE, HOSTS)
    yield Row({f"{train}.resource_labels": {"team": "a"}}, IN_PLACE, REPLACED)
    yield Row({f"{serve}.resource_labels": {"team": "a"}}, IN_PLACE, HOSTS)
    yield both({f"{train}.service_account": ACCOUNT}, REPLACED)
    yield Row({f"{serve}.service_account": ACCOUNT}, REPLACED, HOSTS)
    yield both({f"{train}.kms_key": KEY}, REPLACED)
    yield Row({f"{serve}.kms_key": KEY}, REPLACED, HOSTS)
    yield Row({f"{train}.image": IMAGE}, REFUSED, REPLACED)
    yield Row({f"{serve}.image": IMAGE}, REFUSED, HOSTS)
    template = {f"{train}.instance_template": f"projects/{PROJECT}/global/instanceTemplates/own"}
    yield Row(template, REFUSED, REPLACED)
    yield Row({f"{train}.protect": True}, NOTHING, NOTHING, unsafe_to_keep=True)


def _teams() -> Iterator[Row]:
    """Who works on the platform, and with what."""
    team, people = "teams.research", ["user:eva@example.com"]
    yield both({team: {}}, ADDED, words="a team")
    yield both({f"{team}.members": people}, ADDED, {team: {}}, words="the first member of all teams")
    yield both({f"{team}.members": [*people, "user:max@example.com"]}, IN_PLACE, {f"{team}.members": people})
    yield both({f"{team}.load_balancers": 1}, IN_PLACE, {team: {}})
    data, stored = f"{team}.storage.data", {f"{team}.storage.data": {}}
    yield both({data: {}}, ADDED, {team: {}}, words="a store of a team")
    yield both({f"{data}.bucket": "acme-c4"}, ADDED, stored)
    yield both({f"{data}.mode": "read"}, ADDED, stored)
    yield both({f"{data}.soft_delete": False}, IN_PLACE, stored)
    yield both({f"{data}.expire": "30d"}, IN_PLACE, stored)
    yield both({f"{data}.keep": False}, IN_PLACE, stored)
    yield Row({f"{data}.mount": "/data"}, ADDED, REFUSED, stored)
    yield gke({f"{data}.disk": "weights"}, IN_PLACE, {data: {"mount": "/data"}})
    yield without({f"{data}.disk": "weights"}, REFUSED, stored)
    yield gke({f"{data}.use": "models"}, IN_PLACE, {data: {"mount": "/data"}})
    yield without({f"{data}.use": "models"}, REFUSED, stored)
    yield Row({f"{team}.secrets": {"HF_TOKEN": "hf-token"}}, IN_PLACE, REFUSED, {team: {}})
    ml = {"images": {"ml": {}}}
    yield both(ml, ADDED, words="a registry of images")
    anew = "`images.*.mirror`, which makes the registry anew, without its images"
    yield both({"images.ml.mirror": "docker-hub"}, IN_PLACE, ml, anew)
    named = f"projects/{PROJECT}/locations/us-east5/repositories/own"
    yield both({"images.ml.repository": named}, IN_PLACE, ml)
    yield both({"images.ml.teams": []}, IN_PLACE, {f"{team}.members": people} | ml, "`images.*.teams`: who may push")


def _monitoring() -> Iterator[Row]:
    """What is shown and told about the platform."""
    told = {"monitoring.notify": ["ops@example.com"]}
    queues = {"monitoring.queue_metrics": "own"}
    yield both({"monitoring.dashboard": False}, ADDED)
    yield both({"monitoring.count_errors": False}, IN_PLACE)
    yield Row({"monitoring.drop_sidecar_logs": False}, ADDED, NOTHING, {"slices.serve.devices": "dra"})
    yield both(told, ADDED)
    yield both({"monitoring.channels": [f"projects/{PROJECT}/notificationChannels/{CHANNEL}"]}, ADDED)
    yield both(queues, IN_PLACE)
    yield both({"monitoring.queue_metrics": "install"}, IN_PLACE)
    yield Row({"monitoring.device_metrics": True}, REFUSED, IN_PLACE, {"monitoring.queue_metrics": "install"})
    yield gke({"monitoring.silent": ["not-ready"]}, ADDED, told)
    yield without({"monitoring.silent": ["hosts-missing"]}, ADDED, told)
    budget = {"monitoring.budget": {"billing_account": "01ABCD-23EF45-678901", "amount": 1_000_000}}
    yield both(budget, ADDED, words="a budget")
    anew = "`monitoring.budget.billing_account`, which makes the budget anew"
    yield both({"monitoring.budget.billing_account": "098765-FEDCBA-123456"}, IN_PLACE, budget, anew)
    changed = {"amount": 2_000_000, "currency": "EUR", "of": "platform", "spent": [1.0], "forecast": [1.0]}
    for key, new in changed.items():
        yield both({f"monitoring.budget.{key}": new}, IN_PLACE, budget)
    of_queues = {"idle_usd_an_hour": 20.0, "idle_for": "3h", "free_but_waiting_for": "1h", "stuck_for": "3h"}
    for key, value in {"slice_down_for": "30m", "reservation_share": 0.8, **of_queues}.items():
        yield both({f"monitoring.thresholds.{key}": value}, IN_PLACE, told | queues)
    on_gke = {
        "node_down_for": "30m",
        "interruptions": 5,
        "autoscaler_fails_for": "1h",
        "idle_share": 0.8,
        "restarts": 5,
    }
    for key, number in on_gke.items():
        yield Row({f"monitoring.thresholds.{key}": number}, IN_PLACE, NOTHING, told)


def _platform() -> Iterator[Row]:
    yield Row({"protect": True}, IN_PLACE, IN_PLACE, unsafe_to_keep=True)
    yield Row({"labels": {"env": "prod"}}, IN_PLACE, REPLACED)
    yield both({"allow_unlisted_zone": False}, NOTHING)
    yield both({"overcommit": True}, NOTHING)
    yield Row({"zone": "us-east5-a"}, REPLACED, ANOTHER_CLUSTER)
    yield both({"name": "other"}, ANOTHER_CLUSTER)
    price = {"usd_per_chip_hour": 2.5, "as_of": "2026-06-01", "source": "contract"}
    yield both({"prices.v6e": price}, NOTHING, words=PRICES)
    yield both({"prices.v6e.spot_usd_per_chip_hour": 1.5}, NOTHING, {"prices.v6e": price}, PRICES)
    yield both({"prices.v6e.flex_start_usd_per_chip_hour": 2}, NOTHING, {"prices.v6e": price}, PRICES)
    yield both({"network.mtu": 1500}, IN_PLACE)
    yield both({"network.nodes_cidr": "10.0.0.0/19"}, IN_PLACE, words="`network.nodes_cidr`: a larger range around it")
    yield both({"network.nodes_cidr": "10.1.0.0/20"}, ANOTHER_CLUSTER, words="`network.nodes_cidr`: another range")
    yield both({"network.pods_cidr": "10.8.0.0/14"}, ANOTHER_CLUSTER)
    yield both({"network.services_cidr": "10.0.48.0/20"}, ANOTHER_CLUSTER)
    foreign = {**NETWORK, "nodes_cidr": "10.0.0.0/20", "pods_cidr": "10.16.0.0/14"}
    yield Row({"network": NETWORK}, ANOTHER_CLUSTER, None, words="`network.kind`")
    yield Row({"network": foreign}, None, ANOTHER_CLUSTER, words="`network.kind`")
    for key in ("network", "subnetwork", "project", "pods_range", "services_range"):
        yield gke({f"network.{key}": "other-one"}, ANOTHER_CLUSTER, {"network": NETWORK})


def _cluster() -> Iterator[Row]:
    yield gke({"cluster.release_channel": "REGULAR"}, IN_PLACE)
    yield Row({"cluster.version": "1.36"}, NOTHING, None)
    full = {"cluster.version": "1.36.1-gke.1500000"}
    yield gke({"cluster.version": "1.36.2-gke.1000000"}, HOSTS, full, "`cluster.version`: a full version")
    yield without({"cluster.version": "1.35.0"}, REPLACED)
    yield gke({"cluster.regional": False}, ANOTHER_CLUSTER)
    yield gke({"cluster.authorized_networks": [OFFICE]}, IN_PLACE)
    yield gke({"cluster.authorized_networks": []}, IN_PLACE, {"cluster.authorized_networks": [OFFICE]})
    for key, value in {"start": "2026-01-03T02:00:00Z", "end": "2026-01-03T06:00:00Z"}.items():
        yield gke({f"cluster.maintenance.{key}": value}, IN_PLACE)
    yield gke({"cluster.maintenance.recurrence": "FREQ=DAILY"}, IN_PLACE)
    yield gke({"cluster.maintenance.exclusions": []}, IN_PLACE)
    for changed in (
        {"start": "2026-02-01T00:00:00Z"},
        {"name": "b"},
        {"end": "2026-03-01T00:00:00Z"},
        {"scope": "NO_MINOR_UPGRADES"},
    ):
        before = {"cluster.maintenance.exclusions": [EXCLUSION]}
        yield gke({"cluster.maintenance.exclusions": [{**EXCLUSION, **changed}]}, IN_PLACE, before)
    yield gke({"cluster.kms_key": KEY}, IN_PLACE)
    yield without({"cluster.kms_key": KEY}, ANOTHER_CLUSTER)
    yield gke({"cluster.security_group": "gke-security-groups@example.com"}, IN_PLACE)
    yield gke({"cluster.binary_authorization": True}, IN_PLACE)
    yield gke({"cluster.gcs_fuse": False}, IN_PLACE)
    yield gke({"cluster.image_streaming": False}, OTHERS)
    proxies = {"network.proxy_only_cidr": "10.0.64.0/23"}
    behind = {"cluster.gateway": True, **proxies}
    yield gke(behind, IN_PLACE, words="`cluster.gateway`, with `network.proxy_only_cidr`")
    anew = "`network.proxy_only_cidr`: another range, the subnet anew (delete gateways first)"
    yield gke({"network.proxy_only_cidr": "10.0.96.0/23"}, IN_PLACE, behind, anew)
    yield gke({"network.proxy_only_cidr": "10.0.64.0/22"}, IN_PLACE, behind, anew)
    told = {"cluster.gateway": True, "network": {**NETWORK, "proxy_only_cidr": "10.0.64.0/23"}}
    named = "`network.proxy_only_cidr` of an existing network"
    yield gke({"network.proxy_only_cidr": "10.0.96.0/23"}, NOTHING, told, named)
    yield gke({"cluster.metric_autoscaling": True}, IN_PLACE)
    yield without(proxies, REFUSED)

    yield without({"cluster.image": UBUNTU}, OTHERS)
    images = {"cluster.image": UBUNTU, "slices.train.image": TPU_IMAGE, "slices.serve.image": TPU_IMAGE}
    yield without({"cluster.bootstrap": False}, REPLACED, images)
    yield without({"cluster.control_plane.machine_type": "n2-standard-8"}, OTHERS)
    yield without({"cluster.control_plane.replicas": 3}, IN_PLACE)
    yield without({"cluster.control_plane.disk_size_gb": 100}, IN_PLACE)
    yield without({"cluster.control_plane.zones": ["us-east5-a"]}, ANOTHER_CLUSTER)
    networks = "cluster.control_plane.authorized_networks"
    yield without({networks: [OFFICE]}, ADDED, words=FIRST_NETWORK)
    yield without({networks: [{**OFFICE, "cidr": "198.51.100.0/24"}]}, IN_PLACE, {networks: [OFFICE]})
    name = "`cluster.control_plane.authorized_networks.name`"
    yield without({networks: [{**OFFICE, "name": "home"}]}, NOTHING, {networks: [OFFICE]}, name)
    yield without({networks: []}, ADDED, {networks: [OFFICE]}, FIRST_NETWORK)
    yield without({"cluster.control_plane.access": "external"}, IN_PLACE, {networks: [OFFICE]})
    yield without({"cluster.control_plane.backups": True}, IN_PLACE)
    yield without({"cluster.control_plane.backup_days": 7}, IN_PLACE, {"cluster.control_plane.backups": True})

    for pool, before in (("system_pool", {}), ("cpu_pools.head", {"cluster.cpu_pools": {"head": HEAD}})):
        for key, value in {
            "machine_type": "n2-standard-4",
            "disk_type": "pd-ssd",
            "disk_size_gb": 200,
            "labels": {"a": "b"},
            "taints": [TAINT],
        }.items():
            kept = key in ("labels", "taints")
            yield Row({f"cluster.{pool}.{key}": value}, IN_PLACE if kept else OTHERS, OTHERS, before)
        yield both({f"cluster.{pool}.min": 3}, IN_PLACE, before)
        yield Row({f"cluster.{pool}.max": 12}, IN_PLACE, REFUSED, before)
    yield both({"cluster.cpu_pools": {"head": HEAD}}, ADDED, words="a CPU pool")
    yield both({"cluster.cpu_pools": {}}, ADDED, {"cluster.cpu_pools": {"head": HEAD}}, "a CPU pool")

    yield guest({"cluster.server": "https://10.0.0.11:6443"}, IN_PLACE)
    yield guest({"cluster.ca": EXISTING["ca"].replace("MIIB", "MIIC")}, IN_PLACE)
    yield guest({"cluster.access_secret": f"projects/{PROJECT}/secrets/other"}, IN_PLACE)
    yield guest({"cluster.join_secret": f"projects/{PROJECT}/secrets/join-2"}, REPLACED)
    yield guest({"cluster.provides": ["jobset"]}, ADDED)


def _inside() -> Iterator[Row]:
    """What lives inside the cluster: queues, namespaces, controllers."""
    yield both({"namespaces": ["tpu-workloads", "more"]}, ADDED)
    yield both({"namespaces": ["more"]}, ADDED)
    yield both({"queues.other": {"namespaces": ["other"], "slices": {"serve": 1}}}, ADDED, words="a queue")
    team = "queues.team"
    yield both({f"{team}.namespaces": ["team", "second"]}, IN_PLACE)
    yield both({f"{team}.slices": {"train": 1, "serve": 1}}, IN_PLACE)
    yield both({f"{team}.cohort": "lab"}, IN_PLACE)
    yield both({f"{team}.borrow": True}, IN_PLACE)
    yield both({f"{team}.lend": False}, IN_PLACE)
    yield both({f"{team}.weight": 2}, IN_PLACE)
    yield both({f"{team}.strategy": "StrictFIFO"}, IN_PLACE)
    yield both({f"{team}.preempt": "Never"}, IN_PLACE)
    crew = {"queues": {"crew": {"namespaces": ["team"], "slices": {"train": 1}}}}
    yield both(crew, ADDED, words="the name of a queue")
    lab = {f"{team}.cohort": "lab", "cohorts": {"lab": {}, "house": {}}}
    yield both({"cohorts": {"lab": {}}}, ADDED, {f"{team}.cohort": "lab"}, "a cohort")
    yield both({"cohorts.lab.parent": "house"}, IN_PLACE, lab)
    yield both({"cohorts.lab.weight": 2}, IN_PLACE, lab)
    yield both({"priorities": {"urgent": 100}}, ADDED, words="a priority")
    yield both({"priorities.urgent": 200}, IN_PLACE, {"priorities": {"urgent": 100}}, "the value of a priority")
    for key, value in {
        "pods_ready_timeout": "1800s",
        "recovery_timeout": "600s",
        "retries": 7,
        "keep_finished": "1d",
        "fair_sharing": False,
    }.items():
        yield both({f"software.kueue.{key}": value}, IN_PLACE)
    yield gke({"software.kueue.provisioning_retries": 4}, IN_PLACE, {"slices.train.capacity": "queued"})
    yield without({"software.kueue.provisioning_retries": 4}, NOTHING)
    yield both({"software.kueue.topology_aware": True}, IN_PLACE)
    for key, value in {"image": f"{PROVISIONER}2", "concurrency": 2, "pod_to_node_labels": ["team"]}.items():
        yield gke({f"software.tpu_provisioner.{key}": value}, IN_PLACE, BY_PROVISIONER)
        yield without({f"software.tpu_provisioner.{key}": value}, REFUSED)
    yield both({"software.dra_driver.version": "0.2.0"}, IN_PLACE, {"slices.train.devices": "dra"})
    yield both({"software.dra_driver.capabilities": False}, IN_PLACE, {"slices.train.devices": "dra"})
    yield both({"software.kueue.refuse_unqueued": False}, ADDED)
    yield both({"software.kueue.version": "0.19.1"}, REFUSED)
    yield both({"software.jobset.version": "0.11.0"}, REFUSED)
    yield both({"software.lws.version": "0.8.0"}, REFUSED)
    yield Row({"multikueue": {"role": "worker"}}, IN_PLACE, REFUSED, words="`multikueue.role`: worker")
    yield gke({"multikueue.token": "second"}, IN_PLACE, {"multikueue": {"role": "worker"}})
    front = {
        "slices": {},
        "multikueue": {
            "role": "manager",
            "workers": {"us": {"secret": "us"}},
            "slices": {"train": _BASE["slices"]["train"]},
        },
    }
    yield both({"multikueue.workers.eu": {"secret": "eu"}}, IN_PLACE, front)
    yield both({"multikueue.workers.us": {"secret": "other"}}, IN_PLACE, front)
    yield both({"multikueue.workers.us": {"stack": "organization/tpu-platform/us"}}, IN_PLACE, front)
    yield both({"multikueue.slices.train.count": 2}, NOTHING, front, "`multikueue.slices`")


ROWS: tuple[Row, ...] = (*_inside(), *_teams(), *_monitoring(), *_platform(), *_cluster(), *_slices())
