"""The emulator answers the recorded calls of the real gcp provider plugin with the recorded statuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.tests.emulated_google import COMPUTE, Cloud, connected

RECORDING = Path(__file__).parent / "data" / "provider_traffic.json"
TEMPLATE_NUMBER = "223153789960344845"  # the recorded instance template's id, which every server assigns anew
# The recorded project offers these generations in one zone.
ZONE = {"zone": "us-east5-b", "generations": ["v5p", "v6e", "tpu7x"]}


class Replay:
    """Sends recorded calls; numbers and tokens the server assigned are replaced by those of this server."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.template = TEMPLATE_NUMBER
        self.tokens: dict[str, str] = {}

    def status(self, call: dict[str, Any]) -> int:
        path = call["path"].replace(TEMPLATE_NUMBER, self.template)
        body = json.loads(json.dumps(call.get("body")).replace(TEMPLATE_NUMBER, self.template))
        owner = path.rpartition(":" if "IamPolicy" in path else "/")[0]
        if "policy" in (body or {}):
            body["policy"]["etag"] = self.tokens[owner]
        if "labelFingerprint" in (body or {}):
            body["labelFingerprint"] = self.tokens[owner]
        answer = self.cloud.http.request(call["method"], f"{path}?{call.get('query', '')}", json=body)
        self._learn(path, owner, answer.json())
        return answer.status_code

    def _learn(self, path: str, owner: str, answer: dict[str, Any]) -> None:
        if "IamPolicy" in path and "etag" in answer:
            self.tokens[owner] = answer["etag"]
        if "labelFingerprint" in answer:
            self.tokens[path] = answer["labelFingerprint"]
        if answer.get("kind") == "compute#operation" and "/instanceTemplates/" in answer["targetLink"]:
            self.template = answer["targetId"]


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with connected() as cloud:
        cloud.control("zones", ZONE)
        yield cloud


def test_every_recorded_call_gets_the_recorded_status(cloud: Cloud) -> None:
    rows = json.loads(RECORDING.read_text())
    replay = Replay(cloud)
    wrong = [
        f"{row['phase']} {row['name']}: {call['method']} {call['path']} {status}, recorded {call['status']}"
        for row in rows
        for call in row["calls"]
        if (status := replay.status(call)) != call["status"]
    ]
    assert wrong == []
    assert sum(len(row["calls"]) for row in rows) > 200
    assert cloud.inventory() == {}


def test_the_recorded_platform_is_complete_before_its_destruction(cloud: Cloud) -> None:
    cloud.control("reset")
    cloud.control("zones", ZONE)
    replay = Replay(cloud)
    for row in json.loads(RECORDING.read_text()):
        if row["phase"] in ("up", "edit"):
            for call in row["calls"]:
                replay.status(call)
    found = cloud.inventory()
    assert len(found["container.nodePools"]) == 7
    assert found["compute.instanceGroupManagers"] == ["tpu-mig"]
    assert len(found["compute.instances"]) == 3  # the control plane and the two hosts of the group
    zone = f"{COMPUTE}/zones/us-east5-b"
    group = cloud.ok("GET", f"{zone}/instanceGroupManagers/tpu-mig")
    assert group["status"]["isStable"] is True
    assert group["status"]["versionTarget"]["isReached"] is True
    assert group["versions"][0]["instanceTemplate"].endswith("/instanceTemplates/tpu-20261121113211058200000001")
    disk = cloud.ok("GET", f"{zone}/disks/control-plane")
    assert disk["users"] == [cloud.ok("GET", f"{zone}/instances/control-plane")["selfLink"]]


def test_what_the_plugin_reads_back_agrees_with_what_it_sent(cloud: Cloud) -> None:
    """The facts without which the plugin's second preview is not clean."""
    cloud.control("reset")
    cloud.control("zones", ZONE)
    replay = Replay(cloud)
    for row in json.loads(RECORDING.read_text()):
        for call in row["calls"] if row["phase"] == "up" else ():
            replay.status(call)
    base = "/container/v1beta1/projects/proj/locations/us-east5/clusters/tpu"
    cluster = cloud.ok("GET", base)
    assert cluster["networkConfig"]["network"] == "projects/proj/global/networks/net"
    assert cluster["networkConfig"]["subnetwork"] == "projects/proj/regions/us-east5/subnetworks/sub"
    assert cluster["status"] == "RUNNING"
    listed = cloud.ok("GET", f"{COMPUTE}/zones/us-east5-b/instanceGroupManagers")["items"]
    sizes = {group["selfLink"]: group["targetSize"] for group in listed}
    counts = {p["name"]: [sizes[url] for url in p["instanceGroupUrls"]] for p in cluster["nodePools"]}
    assert counts == {
        "system": [1],
        "v6e-1": [1],
        "v6e-4x4": [4],
        "v5p-res": [16],
        "v6e-flex": [0],
        "v6e-dws": [0],
        "tpu7x-2x2x2": [2],
    }
    placements = {p["name"]: p.get("placementPolicy") for p in cluster["nodePools"]}
    assert placements["v6e-4x4"] == {"type": "COMPACT", "tpuTopology": "4x4"}
    assert placements["tpu7x-2x2x2"] == {"policyName": "wp-2x2x2", "tpuTopology": "2x2x2"}
