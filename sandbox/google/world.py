"""Everything the emulated cloud consists of, and the questions the APIs ask about one another's resources."""

from __future__ import annotations

import math
import re
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sandbox.google import machines
from sandbox.google.backend import ClusterBackend, ClusterRef, NoBackend
from sandbox.google.compute_types import COLLECTIONS, full_name
from sandbox.google.errors import GoogleError, invalid, quota_exceeded
from sandbox.google.faults import Faults
from sandbox.google.guests import INSTANCES, Guests, Messenger, NoGuests
from sandbox.google.operations import Operation, Operations
from sandbox.google.project_numbers import project_number
from sandbox.google.service import dig, short
from sandbox.google.store import Change, Resource, Store

# What Google enables in every new project, and the APIs the emulator serves.
BORN_SERVICES = ("logging", "monitoring", "servicemanagement", "serviceusage", "storage", "storage-api", "bigquery")
SERVED_SERVICES = (
    "artifactregistry",
    "billingbudgets",
    "cloudkms",
    "cloudresourcemanager",
    "compute",
    "container",
    "iam",
    "logging",
    "monitoring",
    "secretmanager",
    "storage",
    "sts",
)
# APIs behind features of other APIs, which is all that the emulator knows of them.
FEATURE_SERVICES = (
    "binaryauthorization",
    "containerfilesystem",
    "containersecurity",
    "iamcredentials",
)
DEFAULT_QUOTA = 1_000_000.0  # of every metric in every region, unless set
# Store kind: the full names of the instances of a group, managed or not, by the group's full name.
LOST = "sandbox.lost"  # "<pool or group>/<host>" -> {"zone"}: hosts that Google has taken away for a while
MEMBERS = "compute.groupInstances"
# Store kind: the names of what was there before, made by nobody who uses the emulator.
SEEDED = "sandbox.seeded"
TRAFFIC_KEPT = 100_000  # newest requests
# A reservation, or a part of it, as reservation affinities name it: of the own project by its bare name.
RESERVATION_VALUE = re.compile(
    r"(?:projects/(?P<project>[^/]+)/reservations/)?(?P<name>[a-z][a-z0-9-]*)"
    r"(?:/reservationBlocks/[^/]+(?:/reservationSubBlocks/[^/]+)?)?"
)


# Steps of operations that follow from what the world is by then; modules of resource types add theirs, by
# `Operation.follow`. LAST: what else changes when the operation ends. AFTER: the operations it then sets going.
LAST: dict[str, Callable[[World, Operation], list[Change]]] = {}
AFTER: dict[str, Callable[[World, Operation], list[Operation]]] = {}


class World:
    """One emulated Google Cloud.

    `time_scale` divides realistic durations (0: no operation takes any time). `fresh_project` starts projects the way
    Google hands them out, with few APIs enabled and no workload identity pool; otherwise projects have been in use.
    `guests` is what runs inside machines; nothing by default. `lay_others` makes what others own in an empty world.
    """

    def __init__(
        self,
        state: Path | None = None,
        time_scale: float = 0,
        backend: ClusterBackend | None = None,
        fresh_project: bool = False,
        guests: Guests | None = None,
    ) -> None:
        self.store = Store(state)
        self.lay_others: Callable[[], None] = lambda: None
        self.backend = backend or NoBackend()
        self.fresh_project = fresh_project
        self.faults = Faults()
        self.traffic: deque[Resource] = deque(maxlen=TRAFFIC_KEPT)
        self._sequence = 0
        self._cluster_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self.operations = Operations(self.store, time_scale, self._follow, self._after)
        self._restart_clusters()
        self.operations.resume()
        self._messenger = Messenger(self, guests or NoGuests())
        with self.store.lock:
            self.store.watcher = self._messenger.note
            self._messenger.note(Change(INSTANCES, name, i) for name, i in self.store.all(INSTANCES).items())

    def close(self) -> None:
        self.operations.close()
        self._messenger.close()
        self.store.close()

    def reset(self) -> None:
        """Forgets everything, faults and recorded traffic included; stops the clusters' API servers."""
        with self.store.lock:
            clusters = list(self.store.all("container.clusters"))
            self.store.clear()
        self.faults = Faults()
        self.traffic.clear()
        for path in clusters:
            self.backend.delete(ClusterRef.parse(path))
        self.lay_others()

    def record(self, request: Resource) -> None:
        with self.store.lock:
            self._sequence += 1
            self.traffic.append({"seq": self._sequence, **request})

    # Clusters and what runs behind them

    def pools(self, cluster: str) -> dict[str, Resource]:
        """Full name -> node pool of a cluster given by its full name."""
        return self.store.all("container.nodePools", f"{cluster}/nodePools/")

    def pool_size(self, pool: str) -> int:
        """The nodes a pool has now in each of its zones."""
        size = self.store.get("container.poolSizes", pool)
        return size["nodes"] if size else 0

    def lost_nodes(self, pool: str, zone: str = "") -> list[str]:
        """The names of a pool's nodes that are lost: all, or those in a zone."""
        rows = self.store.all(LOST, f"{pool}/").items()
        return [path.rpartition("/")[2] for path, row in rows if zone in ("", row["zone"])]

    def tell_pools(self, cluster: str) -> None:
        """Lets the cluster's back end see its pools as they are now, unless the cluster is gone."""
        with self._cluster_locks[cluster]:
            if self.store.get("container.clusters", cluster) is None:
                return
            pools = self.pools(cluster).items()
            shown = [
                {
                    **p,
                    "currentNodeCount": self.pool_size(n),
                    "policyTopology": self.policy_topology(p),
                    "lostNodes": self.lost_nodes(n),
                }
                for n, p in pools
            ]
            self.backend.pools_changed(ClusterRef.parse(cluster), shown)

    def policy_topology(self, pool: Resource) -> str:
        """The accelerator topology of the workload policy a pool names; "" without one."""
        name = dig(pool, "placementPolicy", "policyName")
        if not name:
            return ""
        project = pool["selfLink"].partition("projects/")[2].split("/")[0]
        full = full_name(name, COLLECTIONS["resourcePolicies"], project, pool["locations"][0])
        policy = self.store.get("compute.resourcePolicies", full) or {}
        return str(dig(policy, "workloadPolicy", "acceleratorTopology") or "")

    def _follow(self, operation: Operation) -> list[Change]:
        """What is left to apply once the back end has done its part of an operation."""
        if operation.follow == "create":
            self.store.apply([*operation.changes, *self._create_backend(operation.cluster)])
            self.tell_pools(operation.cluster)
            return []
        if operation.follow == "pools":
            self.store.apply(operation.changes)  # the nodes have to follow what the operation brings about
            self.tell_pools(operation.cluster)
            return []
        if operation.follow == "delete":
            with self._cluster_locks[operation.cluster]:
                self.backend.delete(ClusterRef.parse(operation.cluster))
        if operation.follow in LAST:
            with self.store.lock:
                self.store.apply(operation.changes)
                return LAST[operation.follow](self, operation)
        return operation.changes

    def _after(self, operation: Operation) -> list[Operation]:
        step = AFTER.get(operation.follow)
        return step(self, operation) if step else []

    def _create_backend(self, path: str) -> list[Change]:
        cluster = self.store.get("container.clusters", path)
        if cluster is None:
            return []
        with self._cluster_locks[path]:
            endpoint = self.backend.create(ClusterRef.parse(path), cluster)
        auth = {**cluster.get("masterAuth", {}), "clusterCaCertificate": endpoint.ca_certificate_base64}
        private = {**cluster["privateClusterConfig"], "publicEndpoint": endpoint.host}
        endpoints = cluster["controlPlaneEndpointsConfig"]
        ip = {**endpoints["ipEndpointsConfig"], "publicEndpoint": endpoint.host}
        dns = {**endpoints["dnsEndpointConfig"], "endpoint": endpoint.dns_name or endpoint.host}
        ready = {
            "status": "RUNNING",
            "endpoint": endpoint.host,
            "masterAuth": auth,
            "privateClusterConfig": private,
            "controlPlaneEndpointsConfig": {**endpoints, "ipEndpointsConfig": ip, "dnsEndpointConfig": dns},
        }
        return [Change("container.clusters", path, {**cluster, **ready})]

    def _restart_clusters(self) -> None:
        for path, cluster in self.store.all("container.clusters").items():
            if cluster["status"] in ("RUNNING", "RECONCILING"):
                self.store.apply(self._create_backend(path))
                self.tell_pools(path)

    # Projects

    def enabled_services(self, project: str) -> list[str]:
        """Full service names such as "compute.googleapis.com", sorted."""
        born = BORN_SERVICES if self.fresh_project else BORN_SERVICES + SERVED_SERVICES + FEATURE_SERVICES
        enabled = {f"{name}.googleapis.com": True for name in born} | self.switched_services(project)
        return sorted(name for name, on in enabled.items() if on)

    def switched_services(self, project: str) -> dict[str, bool]:
        """By full name, the services that somebody has switched on or off. A row each: switches of several overlap."""
        found = {}
        for name, row in self.store.all("serviceusage.services").items():
            owner, _, service = name.partition("/")
            # Google also takes a project's number, which names of long operations have.
            if project in (owner, project_number(owner)):
                found[service] = row["on"]
        return found

    def require_service(self, project: str, api: str) -> None:
        """403 SERVICE_DISABLED unless the API a method belongs to is enabled in the project."""
        service = f"{api}.googleapis.com"
        if api not in SERVED_SERVICES + FEATURE_SERVICES or service in self.enabled_services(project):
            return
        url = f"https://console.developers.google.com/apis/api/{service}/overview?project={project}"
        info = {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "SERVICE_DISABLED",
            "domain": "googleapis.com",
            "metadata": {"service": service, "consumer": f"projects/{project}"},
        }
        raise GoogleError(
            "PERMISSION_DENIED",
            f"{service} has not been used in project {project} before or it is disabled. Enable it by visiting {url}"
            " then retry. If you enabled this API recently, wait a few minutes for the action to propagate to our"
            " systems and retry.",
            reason="accessNotConfigured",
            details=[info],
        )

    def has_identity_pool(self, pool: str) -> bool:
        """Whether a workload identity pool exists; Google creates it with a project's first cluster that uses it."""
        return not self.fresh_project or self.store.get("iam.identityPools", pool) is not None

    def check_service_account(self, project: str, email: str) -> None:
        """400 unless `email` is an account of the project, a Google-made default, or another project's."""
        if email == "default" or not email.endswith(f"@{project}.iam.gserviceaccount.com"):
            return
        if self.store.get("iam.serviceAccounts", f"projects/{project}/serviceAccounts/{email}") is None:
            raise invalid(f'Service account "{email}" does not exist.')

    # Places and capacity

    def zones(self) -> dict[str, frozenset[str]]:
        """Zone -> TPU generations offered there: the published table and what was set for this world."""
        own = {zone: frozenset(row["generations"]) for zone, row in self.store.all("sandbox.zones").items()}
        return {**machines.ZONES, **own}

    def machine(self, name: str, zone: str) -> machines.MachineType:
        """A machine type the zone offers; 400 in Google's words otherwise."""
        machine = machines.offered(name, zone, self.zones())
        if machine is None:
            raise invalid(f"Machine type with name '{name}' does not exist in zone '{zone}'.")
        return machine

    def quota(self, region: str, metric: str) -> float:
        return float((self.store.get("sandbox.quotas", region) or {}).get(metric, DEFAULT_QUOTA))

    def usage(self, project: str, region: str) -> dict[str, float]:
        """Metric -> what the project's node pools and instances use in a region (chips or vCPUs)."""
        used: dict[str, float] = defaultdict(float)
        for zone, name, model, count in self._machines_in_use(project):
            if machines.region_of(zone) == region:
                for metric, amount in demand(name, model, count).items():
                    used[metric] += amount
        return dict(used)

    def free_machines(self, zone: str, machine: str, model: str) -> float:
        """How many more machines of a type a zone has; reserved ones (model as in `demand`) are not of its stock."""
        if model == "reserved":
            return math.inf
        return min(self._free(zone, machine, ""), self._free(zone, machine, model))

    def _free(self, zone: str, machine: str, model: str) -> float:
        """What is left of one stock: of all machines of a type, or of those of one capacity model."""
        stock: int | None = (self.store.get("sandbox.stock", stock_name(zone, machine, model)) or {}).get("machines")
        if stock is None:
            return math.inf
        used = sum(
            count
            for project in self._projects()
            for place, name, taken_as, count in self._machines_in_use(project)
            if place == zone and name == machine and taken_as != "reserved" and model in ("", taken_as)
        )
        return max(stock - used, 0)

    def _projects(self) -> set[str]:
        kinds = ("container.nodePools", "compute.instances")
        return {name.split("/")[1] for kind in kinds for name in self.store.all(kind)}

    def check_quota(self, project: str, zone: str, machine: str, model: str, count: int) -> None:
        """403 when `count` more machines (capacity model as in `demand`) do not fit the region's quotas."""
        region = machines.region_of(zone)
        limits = self.store.get("sandbox.quotas", region) or {}
        wanted = {m: amount for m, amount in demand(machine, model, count).items() if m in limits and amount > 0}
        used = self.usage(project, region) if wanted else {}
        for metric, amount in wanted.items():
            if used.get(metric, 0) + amount > limits[metric]:
                raise quota_exceeded(metric, region, project, amount, limits[metric], used.get(metric, 0))

    def _machines_in_use(self, project: str) -> Iterator[tuple[str, str, str, int]]:
        for path, pool in self.store.all("container.nodePools", f"projects/{project}/").items():
            for zone in pool["locations"]:
                yield zone, pool["config"]["machineType"], pool_model(pool["config"]), self.pool_size(path)
        for path, instance in self.store.all("compute.instances", f"projects/{project}/").items():
            yield path.split("/")[3], short(instance["machineType"]), instance_model(instance), 1

    def reservation(self, project: str, zone: str, value: str) -> Resource | None:
        """The reservation an affinity value names, or None while this world knows no reservation at all.

        `value` has the form of `RESERVATION_VALUE`. 404 when the reservation does not exist in the zone, 400 when it is
        another project's and not shared with this one.
        """
        if not self.store.all("compute.reservations"):
            return None
        owner, name = _owner_and_name(value, project)
        path = f"projects/{owner}/zones/{zone}/reservations/{name}"
        found = self.store.get("compute.reservations", path)
        if found is None:
            raise invalid(f"The resource '{path}' was not found", reason="notFound")
        if owner != project and project not in (dig(found, "shareSettings", "projectMap") or {}):
            raise invalid(f"Specified reservation {name} is not shared with project {project}.")
        return found

    def reserved_in_use(self, reservation: str) -> int:
        """VMs that consume a reservation, given by its full name."""
        _, owner, _, zone, _, name = reservation.split("/")
        total = 0
        for path, pool in self.store.all("container.nodePools").items():
            if zone in pool["locations"] and _consumes(pool["config"], path.split("/")[1], owner, name):
                total += self.pool_size(path)
        for path, instance in self.store.all("compute.instances").items():
            same_zone = path.split("/")[3] == zone
            total += same_zone and _consumes(instance, path.split("/")[1], owner, name)
        return total

    def check_reservation(self, project: str, zone: str, affinity: Resource, machine: str, count: int) -> None:
        """400 unless the reservation an affinity names exists, is for `machine` and has `count` VMs free."""
        if affinity.get("consumeReservationType") != "SPECIFIC_RESERVATION":
            return
        found = self.reservation(project, zone, affinity["values"][0])
        if found is None:
            return
        held = dig(found, "specificReservation", "instanceProperties", "machineType")
        if held and held != machine:
            raise invalid(
                f"No available resources in specified reservation {found['name']}: it is for machine type {held},"
                f" not {machine}."
            )
        total = int(dig(found, "specificReservation", "count") or 0)
        free = total - self.reserved_in_use(found["selfLink"].partition("/v1/")[2])
        if count > free:
            raise invalid(
                f"Specified reservation {found['name']} does not have available resources for the request:"
                f" {count} VMs requested, {free} of {total} free."
            )


def stock_name(zone: str, machine: str, model: str) -> str:
    """The name under which the store keeps a zone's stock of a machine type; model "": of all capacity models."""
    return f"{zone}/{machine}/{model}" if model else f"{zone}/{machine}"


def pool_model(config: Resource) -> str:
    """The capacity model of a GKE node config: "reserved", "spot", "flex" or "on-demand"."""
    if dig(config, "reservationAffinity", "consumeReservationType") == "SPECIFIC_RESERVATION":
        return "reserved"
    if config.get("flexStart"):
        return "flex"
    return "spot" if config.get("spot") or config.get("preemptible") else "on-demand"


def instance_model(instance: Resource) -> str:
    """The capacity model of a Compute instance (or instance template's properties), in `pool_model`'s words."""
    model = dig(instance, "scheduling", "provisioningModel") or "STANDARD"
    return {"RESERVATION_BOUND": "reserved", "FLEX_START": "flex", "SPOT": "spot"}.get(model, "on-demand")


def demand(machine_name: str, model: str, count: int) -> dict[str, float]:
    """Quota metric -> amount for `count` machines. Reserved capacity was charged when the reservation was made."""
    machine = machines.machine_type(machine_name)
    if machine is None or model == "reserved":
        return {}
    if machine.generation is None:
        return {"CPUS": float(machine.vcpus * count)}
    generation = machine.generation
    metric = generation.quota if model == "on-demand" else generation.spot_quota
    return {metric: float(machine.chips * count)}


def _owner_and_name(value: str, project: str) -> tuple[str, str]:
    """The project and name of the reservation that an affinity of `project` names by `value`."""
    match = RESERVATION_VALUE.fullmatch(value)
    return (match["project"] or project, match["name"]) if match else (project, value)


def _consumes(config: Any, project: str, owner: str, name: str) -> bool:
    affinity = config.get("reservationAffinity") or {}
    return any(_owner_and_name(value, project) == (owner, name) for value in affinity.get("values", []))
