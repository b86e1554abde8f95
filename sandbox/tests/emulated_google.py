"""A small client for the Google Cloud emulator, and the requests its tests share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from sandbox.google import Emulator, serving
from sandbox.google.callers import ACCOUNT_TOKEN

PROJECT = "proj"
ZONE = "us-east5-b"
REGION = "us-east5"
COMPUTE = f"/compute/beta/projects/{PROJECT}"
CLUSTERS = f"/container/v1beta1/projects/{PROJECT}/locations/{REGION}/clusters"
POOLS = f"{CLUSTERS}/tpu/nodePools"
ACCOUNT = f"tpu-nodes@{PROJECT}.iam.gserviceaccount.com"
ACCOUNTS = f"/iam/v1/projects/{PROJECT}/serviceAccounts"
TEMPLATES = f"{COMPUTE}/global/instanceTemplates"
GROUPS = f"{COMPUTE}/zones/{ZONE}/instanceGroupManagers"
INSTANCES = f"{COMPUTE}/zones/{ZONE}/instances"
SUBNETWORK = f"projects/{PROJECT}/regions/{REGION}/subnetworks/sub"
IN_USE = "resourceInUseByAnotherResource"
UBUNTU = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
TPU_IMAGE = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accel-2404-amd64-tpu-tpu7x"
NO_RESERVATION = {"consumeReservationType": "NO_RESERVATION"}
Body = dict[str, Any]


@dataclass(frozen=True)
class Cloud:
    """An emulator and an authenticated client of it; calls return the decoded answer and check the status."""

    emulator: Emulator
    http: httpx.Client

    def ok(self, method: str, path: str, body: Body | None = None) -> Any:
        answer = self.http.request(method, path, json=body)
        assert answer.status_code == 200, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def refused(self, status: int, method: str, path: str, body: Body | None = None) -> Body:
        """The `error` of an answer that must be a refusal in Google's shape."""
        answer = self.http.request(method, path, json=body)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        error: Body = answer.json()["error"]
        assert error["code"] == status
        assert error["errors"][0]["message"] == error["message"]
        return error

    def control(self, path: str, body: Any = None) -> Any:
        return self.ok("POST", f"/sandbox/{path}", body)

    def inventory(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = self.ok("GET", "/sandbox/inventory")
        return found

    @contextmanager
    def acting_as(self, email: str) -> Iterator[Cloud]:
        """The same cloud, called with the token of a service account."""
        headers = {"Authorization": f"Bearer {ACCOUNT_TOKEN}{email}"}
        with httpx.Client(base_url=self.emulator.url, headers=headers, timeout=120, trust_env=False) as http:
            yield Cloud(self.emulator, http)

    def bind(self, policy: str, *bindings: tuple[str, str]) -> None:
        """Replaces the policy of an API path by these bindings of a role to a member."""
        rows = [{"role": role, "members": [member]} for role, member in bindings]
        self.ok("POST", f"{policy}:setIamPolicy", {"policy": {"bindings": rows}})

    # What most tests stand on

    def make_network(self) -> None:
        self.ok("POST", f"{COMPUTE}/global/networks", {"name": "net", "autoCreateSubnetworks": False})
        self.ok("POST", f"{COMPUTE}/regions/{REGION}/subnetworks", subnetwork())

    def make_cluster(self, **extra: Any) -> None:
        """Network, subnetwork, node service account, and the cluster "tpu" without its default pool."""
        self.make_network()
        account = {"accountId": "tpu-nodes", "serviceAccount": {"displayName": "TPU nodes"}}
        self.ok("POST", ACCOUNTS, account)
        self.ok("POST", CLUSTERS, {"cluster": cluster(**extra)})
        self.ok("DELETE", f"{POOLS}/default-pool")

    def make_policy(self, name: str, topology: str, region: str = REGION, **workload: Any) -> None:
        policy = {"type": "HIGH_THROUGHPUT", "acceleratorTopology": topology, **workload}
        self.ok("POST", f"{COMPUTE}/regions/{region}/resourcePolicies", {"name": name, "workloadPolicy": policy})

    def make_slice_parts(self) -> None:
        """A template "tm" of a machine with four chips and a workload policy "wp" for a slice of two."""
        self.offer("tpu7x", "v5e", "v6e")
        self.make_policy("wp", "2x2x2")
        self.ok("POST", TEMPLATES, template())

    def offer(self, *generations: str) -> None:
        """Makes the tests' zone offer these TPU generations."""
        self.control("zones", {"zone": ZONE, "generations": list(generations)})


def subnetwork(name: str = "sub", cidr: str = "10.0.0.0/18") -> Body:
    ranges = [
        {"rangeName": "pods", "ipCidrRange": "10.16.0.0/14"},
        {"rangeName": "services", "ipCidrRange": "10.20.0.0/20"},
    ]
    own = {"name": name, "ipCidrRange": cidr, "network": f"projects/{PROJECT}/global/networks/net"}
    return {**own, "secondaryIpRanges": ranges if name == "sub" else []}


def cluster(**extra: Any) -> Body:
    return {
        "name": "tpu",
        "initialNodeCount": 1,
        "locations": [ZONE],
        "network": f"projects/{PROJECT}/global/networks/net",
        "subnetwork": f"projects/{PROJECT}/regions/{REGION}/subnetworks/sub",
        "ipAllocationPolicy": {"clusterSecondaryRangeName": "pods", "servicesSecondaryRangeName": "services"},
        "networkConfig": {"datapathProvider": "ADVANCED_DATAPATH", "defaultEnablePrivateNodes": True},
        "releaseChannel": {"channel": "RAPID"},
        "workloadIdentityConfig": {"workloadPool": f"{PROJECT}.svc.id.goog"},
        **extra,
    }


def pool(name: str = "pool", machine: str = "ct6e-standard-4t", nodes: int = 0, **extra: Any) -> Body:
    """A CreateNodePoolRequest; `config` in `extra` is merged into the node configuration."""
    config = {"machineType": machine, "serviceAccount": ACCOUNT, "reservationAffinity": NO_RESERVATION}
    config |= extra.pop("config", {})
    management = {"autoRepair": True, "autoUpgrade": True}
    own = {"name": name, "initialNodeCount": nodes, "config": config, "management": management}
    return {"nodePool": {**own, **extra}}


def compact(topology: str) -> Body:
    return {"type": "COMPACT", "tpuTopology": topology}


def instance(**extra: Any) -> Body:
    disk = {"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": UBUNTU, "diskSizeGb": "50"}}
    own = {"name": "vm", "machineType": f"zones/{ZONE}/machineTypes/n2-standard-4", "disks": [disk]}
    return {**own, "networkInterfaces": [{"subnetwork": SUBNETWORK}], **extra}


def template(
    name: str = "tm", machine: str = "tpu7x-standard-4t", disk: str = "hyperdisk-balanced", **extra: Any
) -> Body:
    boot = {"boot": True, "initializeParams": {"sourceImage": TPU_IMAGE, "diskType": disk}}
    nics = [{"subnetwork": SUBNETWORK}]
    return {"name": name, "properties": {"machineType": machine, "disks": [boot], "networkInterfaces": nics, **extra}}


def group(size: int = 2, **extra: Any) -> Body:
    policy = f"projects/{PROJECT}/regions/{REGION}/resourcePolicies/wp"
    own = {"name": "mig", "baseInstanceName": "w-###[1]", "targetSize": size, "targetSizePolicy": {"mode": "BULK"}}
    links = {
        "versions": [{"instanceTemplate": "global/instanceTemplates/tm"}],
        "resourcePolicies": {"workloadPolicy": policy},
    }
    return {**own, **links, **extra}


FLEX_SCHEDULING: Body = {
    "provisioningModel": "FLEX_START",
    "maxRunDuration": {"seconds": "3600"},
    "automaticRestart": False,
}


def eventually(check: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


@contextmanager
def connected(**arguments: Any) -> Iterator[Cloud]:
    """An emulator with the arguments of `serving` and a client."""
    with serving(**arguments) as emulator:
        headers = {"Authorization": "Bearer token"}
        with httpx.Client(base_url=emulator.url, headers=headers, timeout=120, trust_env=False) as http:
            yield Cloud(emulator, http)
