"""The permission list against the emulator's own knowledge: it suffices, and nothing in it is superfluous.

Every request of a stack's whole life is first made without any right; each right that the emulator then demands by name
is granted, and the request made again, until it passes. What was demanded is what a deployer needs, and to take any of
it away would fail a request. The life is led without the engine: each Google resource is created, read, edited and
deleted through the stand-in plugin.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from rules.load import load_platform, load_stack_file
from sandbox import google
from sandbox.plugins.provider import ProviderError, Subject
from sandbox.plugins.values import plain
from sandbox.tests.gcp_plugin_support import config_at, configured
from tests.graph.emulated import PROJECT, EmulatedCloud, lay_for_teams, recorded
from tests.graph.recording import READ_SECRET, GraphMonitor, record_stack
from tools.generated import ROOT
from tools.permissions import needed, needed_on_billing_account
from tools.registrations import registrations

Json = dict[str, Any]
STACKS = sorted(path.name.split(".")[1] for path in ROOT.glob("Pulumi.*.yaml"))
# Long operations take some time, so that they have to be asked about.
TIME_SCALE = 1e6

# Every part of a self-managed platform at once.
KEY = "projects/my-project/locations/us-central1/keyRings/ring/cryptoKeys/key"
FULL: Json = {
    "name": "full",
    "zone": "us-central1-c",
    "protect": False,
    "cluster": {
        "kind": "self-managed",
        "kms_key": KEY,
        "control_plane": {
            "replicas": 3,
            "backups": True,
            "access": "external",
            "authorized_networks": [{"cidr": "192.0.2.0/24", "name": "office"}],
        },
    },
    "slices": {"train": {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}},
    "teams": {"research": {"storage": {"data": {}}}},
    "monitoring": {
        "notify": ["ops@example.com"],
        "budget": {"billing_account": "01ABCD-23EF45-678901", "amount": 20_000},
    },
}

# What the program may change of a resource that stands, by type; each edit is an update.
EDITS: dict[str, list[Json]] = {
    "gcp:serviceaccount/account:Account": [{"displayName": "Another name"}],
    "gcp:secretmanager/secret:Secret": [{"labels": {"team": "a"}}],
    "gcp:storage/bucket:Bucket": [{"labels": {"team": "a"}}],
    "gcp:iam/workloadIdentityPool:WorkloadIdentityPool": [{"displayName": "Another name"}],
    "gcp:iam/workloadIdentityPoolProvider:WorkloadIdentityPoolProvider": [{"displayName": "Another name"}],
    "gcp:artifactregistry/repository:Repository": [{"labels": {"team": "a"}}],
    "gcp:billing/budget:Budget": [{"displayName": "Another name"}],
    "gcp:monitoring/dashboard:Dashboard": [{"dashboardJson": '{"displayName":"Another","gridLayout":{}}'}],
    "gcp:monitoring/alertPolicy:AlertPolicy": [{"displayName": "Another name"}],
    "gcp:monitoring/notificationChannel:NotificationChannel": [{"displayName": "Another name"}],
    "gcp:logging/metric:Metric": [{"description": "Another description"}],
    "gcp:logging/projectExclusion:ProjectExclusion": [{"description": "Another description"}],
    "gcp:compute/network:Network": [{"mtu": 1460}],
    "gcp:compute/subnetwork:Subnetwork": [
        {"ipCidrRange": "10.0.0.0/19"},
        {"privateIpGoogleAccess": False},
        {"logConfig": {"aggregationInterval": "INTERVAL_5_SEC"}},
    ],
    "gcp:compute/router:Router": [{"description": "Another description"}],
    "gcp:compute/routerNat:RouterNat": [{"minPortsPerVm": 128}],
    "gcp:compute/firewall:Firewall": [{"description": "Another description"}],
    "gcp:compute/address:Address": [{"labels": {"team": "a"}}],
    "gcp:compute/regionHealthCheck:RegionHealthCheck": [{"checkIntervalSec": 10}],
    "gcp:compute/regionBackendService:RegionBackendService": [{"connectionDrainingTimeoutSec": 30}],
    "gcp:compute/forwardingRule:ForwardingRule": [{"labels": {"team": "a"}}, {"allowGlobalAccess": True}],
    "gcp:compute/disk:Disk": [{"labels": {"team": "a"}}, {"size": 60}],
    "gcp:compute/instance:Instance": [
        {"machineType": "e2-standard-8"},
        {"metadata": {"tpu-role": "control-plane"}},
        {"labels": {"team": "a"}},
        {"deletionProtection": True},
        {"deletionProtection": False},
    ],
    "gcp:compute/instanceGroupManager:InstanceGroupManager": [
        {"updatePolicy": {"minimalAction": "RESTART", "type": "PROACTIVE", "replacementMethod": "RECREATE"}}
    ],
    "gcp:container/cluster:Cluster": [{"resourceLabels": {"team": "a"}}],
    "gcp:projects/iAMCustomRole:IAMCustomRole": [{"title": "Another title"}],
}
# Permissions that Google asks for and the emulator does not.
NOT_ASKED = {
    "compute.addresses.createInternal",  # asked for beside compute.addresses.create
    "compute.addresses.deleteInternal",
    "compute.addresses.use",
    "compute.addresses.useInternal",
    "compute.networks.use",
    "compute.resourcePolicies.useReadOnly",
    "serviceusage.operations.get",
    "storage.anywhereCaches.list",  # the emulator has no caches
    "storage.objects.delete",  # the bucket stays empty here
}


class Asking(httpx.BaseTransport):
    """Makes each request with no rights, then with those demanded, until it is let through; `asked` are all of them."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=120, trust_env=False)
        self.asked: set[str] = set()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        granted: list[str] = []
        while True:
            self.grant(granted)
            response = self._http.send(request)
            demanded = _demanded(response)
            if demanded is None:
                return response
            assert demanded not in granted, f"{demanded} was granted, and {request.method} {request.url} refused"
            granted.append(demanded)
            self.asked.add(demanded)

    def grant(self, permissions: list[str] | None) -> None:
        self._http.post("/sandbox/permissions", json={"granted": permissions}).raise_for_status()

    def close(self) -> None:
        self._http.close()


def _demanded(response: httpx.Response) -> str | None:
    """The permission whose lack a refusal names."""
    if response.status_code != 403:
        return None
    details = response.json()["error"].get("details", [])
    reasons = [each["metadata"]["permission"] for each in details if each.get("reason") == "IAM_PERMISSION_DENIED"]
    return reasons[0] if reasons else None


class Life(EmulatedCloud):
    """A graph's resources from creation to deletion."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._provider.cancel()
        self.transport = Asking(self.url)
        self._provider = configured(self.transport, **config_at(self.url))

    def lead(self, monitor: GraphMonitor) -> set[str]:
        """Create, read, edit, delete; the permissions that was asked for."""
        self.make(monitor)
        for urn in self.standing:
            self._read(urn)
        for urn in self.standing:
            for edit in EDITS.get(Subject.of(urn).type, ()):
                self._edit(urn, edit)
        self._read_credential(monitor)
        for urn in reversed(list(self.standing)):
            self._delete(urn)
        self.transport.grant(None)
        return self.transport.asked

    def _read(self, urn: str) -> None:
        standing = self.standing[urn]
        self._provider.read(Subject.of(urn), standing.outputs["id"], standing.inputs, standing.outputs)

    def _read_credential(self, monitor: GraphMonitor) -> None:
        """What the program and kubectl do to reach a self-managed cluster; nobody has written the secrets here."""
        for _urn, request in monitor.of_type("gcp:secretmanager/secret:Secret").items():
            with pytest.raises(ProviderError, match="404"):
                self._provider.invoke(READ_SECRET, {"project": PROJECT, "secret": request.object["secretId"]})

    def _edit(self, urn: str, edit: Json) -> None:
        subject, standing = Subject.of(urn), self.standing[urn]
        news = self._checked(subject, standing.inputs, {**standing.inputs, **edit})
        planned = self._provider.diff(subject, standing.outputs, news, [])
        assert planned.changes, f"{subject.name}: {edit} changes nothing"
        assert not planned.replaces, f"{subject.name}: {edit} replaces it"
        identity = standing.outputs["id"]
        outputs = self._provider.update(subject, identity, copy.deepcopy(standing.outputs), news, (), 0, False)
        self.standing[urn] = replace(standing, inputs=news, outputs=plain(dict(outputs)))

    def _delete(self, urn: str) -> None:
        standing = self.standing[urn]
        self._provider.delete(Subject.of(urn), standing.outputs["id"], standing.outputs, 0)


@contextmanager
def life() -> Iterator[Life]:
    """A cloud whose project is as Google hands it out."""
    with google.serving(time_scale=TIME_SCALE, fresh_project=True) as emulator, closing(Life(emulator.url)) as cloud:
        yield cloud


@pytest.mark.parametrize("stack", STACKS)
def test_the_list_is_what_a_stacks_life_asks_for(stack: str) -> None:
    path = ROOT / f"Pulumi.{stack}.yaml"
    listed = set(needed(registrations(load_stack_file(path), stack=stack), "deployer").google)
    with life() as cloud:
        if stack == "team":
            # Somebody who has a bucket and a secret has switched on their APIs.
            for service in ("cloudresourcemanager", "secretmanager", "storage"):
                cloud.call("POST", f"/su/v1/projects/{PROJECT}/services/{service}.googleapis.com:enable", {})
            lay_for_teams(cloud, "us-east5")
        asked = cloud.lead(record_stack(path))
    assert asked - listed == set(), "the list lacks something"
    assert listed - asked == NOT_ASKED & listed, "nothing would fail without these"


def test_every_part_of_a_self_managed_platform() -> None:
    platform = load_platform(FULL, project=PROJECT)
    registered = registrations(platform, stack="full")
    parts = (needed(registered, "deployer").google, needed_on_billing_account(registered, "deployer").google)
    assert not parts[0].keys() & parts[1].keys()
    listed = {*parts[0], *parts[1]}
    with life() as cloud:
        ring, key = KEY.split("/cryptoKeys/")
        parent, name = ring.split("/keyRings/")
        for service in ("cloudkms", "cloudresourcemanager"):
            cloud.call("POST", f"/su/v1/projects/{PROJECT}/services/{service}.googleapis.com:enable", {})
        cloud.call("POST", f"/kms/v1/{parent}/keyRings?keyRingId={name}", {})
        cloud.call("POST", f"/kms/v1/{ring}/cryptoKeys?cryptoKeyId={key}", {"purpose": "ENCRYPT_DECRYPT"})
        asked = cloud.lead(recorded(FULL))
    assert asked - listed == set(), "the list lacks something"
    assert listed - asked == NOT_ASKED & listed, "nothing would fail without these"


def test_a_viewers_list_is_what_reading_asks_for() -> None:
    path = ROOT / "Pulumi.dev.yaml"
    listed = set(needed(registrations(load_stack_file(path), stack="dev"), "viewer").google)
    with life() as cloud:
        cloud.make(record_stack(path))
        cloud.transport.asked.clear()
        for urn in cloud.standing:
            cloud._read(urn)
        asked = cloud.transport.asked
    assert asked == listed
