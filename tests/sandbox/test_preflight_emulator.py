"""`python -m tools preflight` with Google's client against the emulator, which knows Google's API descriptions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sandbox.google.project_numbers import project_number
from sandbox.stacks import endpoints
from sandbox.tests.emulated_google import Cloud, connected, subnetwork
from tests.graph.emulated import EmulatedCloud, lay_for_teams, recorded
from tests.platforms import raw
from tests.sandbox.conftest import ROOT
from tools.__main__ import app

Json = dict[str, Any]
PROJECT = "my-project"
ZONE, REGION = "us-east5-b", "us-east5"
RESERVATION = {"project": PROJECT, "zone": ZONE, "name": "res", "machine_type": "ct6e-standard-4t", "count": 8}
RESERVED = {"machine_type": "ct6e-standard-4t", "topology": "4x4", "capacity": {"model": "reservation", "name": "res"}}
LENT = {"model": "reservation", "name": "res", "project": "lender"}
SPOT = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "capacity": "spot", "count": 3}

Run = Callable[..., tuple[int, list[Json]]]


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with connected() as made:
        yield made


@pytest.fixture
def run(cloud: Cloud, tmp_path: Path) -> Run:
    return partial(preflight, cloud, tmp_path)


def preflight(cloud: Cloud, folder: Path, slices: Json | None = None, **platform: Any) -> tuple[int, list[Json]]:
    """Preflight of a platform; exit code and findings. Nothing but reading may reach the cloud."""
    # Google's client and the provider are told by the same settings where the cloud is.
    settings = endpoints(cloud.emulator.url, "token")
    config = {"gcp:project": PROJECT, "tpu-platform:platform": raw(slices, **platform), **settings}
    path = folder / "Pulumi.test.yaml"
    path.write_text(yaml.safe_dump({"config": config}))
    before = len(cloud.emulator.world.traffic)
    result = CliRunner().invoke(app, ["preflight", "-f", str(path), "--json"])
    calls = list(cloud.emulator.world.traffic)[before:]
    assert all(call["method"] == "GET" or call["path"].endswith(":testIamPermissions") for call in calls)
    assert result.exit_code in (0, 1), result.output
    findings: list[Json] = json.loads(result.output)["findings"]
    return result.exit_code, findings


def make(cloud: Cloud, platform: Json) -> None:
    """Create a platform's resources."""
    with closing(EmulatedCloud(cloud.emulator.url)) as made:
        made.make(recorded(platform))


def of(findings: list[Json], check: str) -> list[str]:
    return [f"{each['level']}: {each['what']}" for each in findings if each["check"] == check]


def test_a_project_that_has_everything(run: Run) -> None:
    code, findings = run({"s": SPOT}, protect=True)
    assert code == 0
    assert [each for each in findings if each["level"] != "ok"] == []
    assert of(findings, "zone") == [f"ok: {ZONE} offers ct6e-standard-1t, e2-standard-4"]
    assert of(findings, "disks") == [f"ok: hyperdisk-balanced in {ZONE}, pd-balanced in {ZONE}"]
    assert of(findings, "version") == ["ok: REGULAR's default is 1.35.6-gke.1200000"]


def test_a_fresh_project_is_told_what_to_switch_on(tmp_path: Path) -> None:
    with connected(fresh_project=True) as fresh:
        code, findings = preflight(fresh, tmp_path, {"s": SPOT})
    assert code == 0
    [services] = [each for each in findings if each["check"] == "services"]
    assert services["level"] == "warning"
    assert "compute.googleapis.com" in services["what"]
    [zone] = [each for each in findings if each["check"] == "zone"]
    assert zone["level"] == "not checked"
    assert zone["next_step"] == f"gcloud services enable compute.googleapis.com --project={PROJECT}"


def test_a_missing_quota(cloud: Cloud, run: Run) -> None:
    cloud.control("quotas", {REGION: {"PREEMPTIBLE_TPU_V6E": 2, "TPUS_PER_TPU_FAMILY:CT6E": 31, "CPUS": 7}})
    train = {"machine_type": "ct6e-standard-4t", "topology": "4x4", "count": 2}
    code, findings = run({"s": SPOT, "train": train})
    assert code == 1
    assert of(findings, "TPU quota") == [
        f"blocks: PREEMPTIBLE_TPU_V6E in {REGION}: 3 chips needed, limit 2",
        f"blocks: TPUS_PER_TPU_FAMILY of family CT6E in {REGION}: 32 chips needed, limit 31",
    ]
    assert of(findings, "CPU quota") == [f"blocks: CPUS in {REGION}: 8 vCPUs needed, limit 7, 0 in use"]


def test_a_reservation_that_fits(cloud: Cloud, run: Run) -> None:
    cloud.control("reservations", RESERVATION)
    code, findings = run({"s": RESERVED})
    assert code == 0
    assert of(findings, "reservations") == [f"ok: {PROJECT}/res is ready, 8 of 8 hosts free; 4 needed"]
    assert of(findings, "TPU quota") == ["ok: no quota needed: the slices' hosts are reserved, or there are none"]


@pytest.mark.parametrize(
    ("changed", "capacity", "what"),
    [
        (
            {"machine_type": "ct6e-standard-8t"},
            RESERVED["capacity"],
            f"{PROJECT}/res is for ct6e-standard-8t; slices.s is of ct6e-standard-4t",
        ),
        ({"count": 3}, RESERVED["capacity"], f"{PROJECT}/res has 3 free hosts; 4 needed"),
        ({"name": "other"}, RESERVED["capacity"], f"there is no reservation res in {ZONE} of {PROJECT}"),
        ({"project": "lender"}, LENT, f"lender/res is not shared with {PROJECT}"),
        ({}, {**RESERVED["capacity"], "block": "nowhere"}, f"{PROJECT}/res/nowhere is not there"),
    ],
)
def test_a_mismatched_reservation(cloud: Cloud, run: Run, changed: Json, capacity: Json, what: str) -> None:
    cloud.control("reservations", {**RESERVATION, **changed})
    code, findings = run({"s": {**RESERVED, "capacity": capacity}})
    assert code == 1
    assert of(findings, "reservations") == [f"blocks: {what}"]


def test_a_shared_reservation_and_a_part_of_it(cloud: Cloud, run: Run) -> None:
    cloud.control("reservations", {**RESERVATION, "project": "lender", "share_with": [PROJECT]})
    code, findings = run({"s": {**RESERVED, "capacity": {**LENT, "block": "res-block-0001"}}})
    assert code == 0
    assert of(findings, "reservations") == ["ok: lender/res is ready, 8 of 8 hosts free; 4 needed"]


def test_missing_permissions(cloud: Cloud, run: Run) -> None:
    _, all_fine = run({"s": SPOT})
    assert of(all_fine, "permissions")[0].startswith("ok: ")
    reading = ["resourcemanager.projects.get", "serviceusage.services.list"]
    cloud.control("permissions", {"granted": reading})
    code, findings = run({"s": SPOT})
    assert code == 1
    [permissions] = of(findings, "permissions")
    assert "are missing: compute.firewalls.create, compute.firewalls.delete" in permissions
    [zone] = of(findings, "zone")
    assert zone == f"not checked: Google answers 403: Required 'compute.zones.get' permission for 'projects/{PROJECT}'"


@pytest.mark.parametrize("cluster", [{}, {"kind": "self-managed"}], ids=["gke", "self-managed"])
def test_what_the_page_says_it_needs_to_read_is_enough(cloud: Cloud, run: Run, cluster: Json) -> None:
    section = (ROOT / "docs" / "preflight.md").read_text().partition("## What it needs to read")[2]
    named = re.findall(r"`([a-z]+\.[a-zA-Z]+\.[a-zA-Z]+)`", section)
    assert "compute.zones.get" in named
    cloud.control("reservations", RESERVATION)
    cloud.control("permissions", {"granted": named})
    block = {**RESERVED["capacity"], "block": "res-block-0001"}
    _, findings = run({"s": {**RESERVED, "capacity": block}, "t": SPOT}, cluster=cluster)
    assert [each for each in findings if each["level"] == "not checked"] == []
    assert len({each["check"] for each in findings}) >= 10


def test_an_existing_network(cloud: Cloud, run: Run) -> None:
    network = {
        "kind": "existing",
        "network": "net",
        "subnetwork": "sub",
        "pods_range": "pods",
        "services_range": "services",
    }
    code, findings = run({"s": SPOT}, network=network)
    assert code == 1
    assert of(findings, "network")[0] == f"blocks: there is no network net in {PROJECT}"
    base = f"/compute/beta/projects/{PROJECT}"
    cloud.ok("POST", f"{base}/global/networks", {"name": "net", "autoCreateSubnetworks": False})
    full_name = f"projects/{PROJECT}/global/networks/net"
    small = {**subnetwork(cidr="10.0.0.0/29"), "network": full_name, "privateIpGoogleAccess": True}
    cloud.ok("POST", f"{base}/regions/{REGION}/subnetworks", small)
    code, findings = run({"s": SPOT}, network=network)
    assert code == 1
    assert of(findings, "network") == ["blocks: 10.0.0.0/29 has 8 addresses; 13 nodes need 17"]
    cloud.ok("POST", f"{base}/regions/{REGION}/subnetworks/sub/expandIpCidrRange", {"ipCidrRange": "10.0.0.0/24"})
    code, findings = run({"s": SPOT}, network=network)
    assert code == 0
    assert of(findings, "network") == ["ok: sub has room for 13 nodes and their pods"]


def test_a_self_managed_platform(cloud: Cloud, run: Run) -> None:
    place = {"zone": "us-central1-c", "machine_type": "tpu7x-standard-4t"}
    cloud.control("reservations", {**RESERVATION, **place, "count": 2})
    slices = {"train": {**RESERVED, "machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}}
    platform = {"zone": "us-central1-c", "cluster": {"kind": "self-managed"}, "protect": True}
    code, findings = run(slices, **platform)
    assert code == 0
    assert of(findings, "version") == []
    assert of(findings, "images") == [
        "ok: projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accel-2404-amd64-tpu-tpu7x is there",
        "ok: projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64 is there",
    ]
    assert of(findings, "reservations") == [f"ok: {PROJECT}/res is ready, 2 of 2 hosts free; 2 needed"]
    make(cloud, raw(slices, **platform))
    code, findings = run(slices, **platform)
    assert code == 0
    assert of(findings, "reservations") == [f"ok: {PROJECT}/res is ready, 0 of 2 hosts free; 0 needed"]


def test_what_stands_is_not_needed_again(cloud: Cloud, run: Run) -> None:
    """The second run of a platform whose slices fill their reservation and their quota."""
    cloud.control("reservations", {**RESERVATION, "count": 4})
    make(cloud, raw({"s": RESERVED}))
    code, findings = run({"s": RESERVED})
    assert code == 0
    assert of(findings, "reservations") == [f"ok: {PROJECT}/res is ready, 0 of 4 hosts free; 0 needed"]
    [version] = of(findings, "version")
    assert version.startswith("ok: the cluster runs 1.")
    code, findings = run({"s": RESERVED | {"count": 2}})
    assert code == 1
    assert of(findings, "reservations") == [f"blocks: {PROJECT}/res has 0 free hosts; 4 needed"]


def test_what_teams_name(cloud: Cloud, run: Run) -> None:
    """Cloud Storage, Secret Manager and Artifact Registry by Google's own client."""
    with closing(EmulatedCloud(cloud.emulator.url)) as made:
        lay_for_teams(made, REGION)
        labels = {"tpu-platform": "tpu", "tpu-team": "a", "tpu-store": "kept"}
        left = {"name": "my-project_tpu_a_kept", "location": REGION, "labels": labels}
        made.call("POST", f"/storage/v1/b?project={PROJECT}", left)
        squatted = {"name": "my-project_tpu_a_guessed", "location": REGION, "labels": labels | {"tpu-store": "guessed"}}
        made.call("POST", "/storage/v1/b?project=somebody", squatted)
        repository = {"format": "DOCKER"}
        made.call("POST", f"/ar/v1/projects/{PROJECT}/locations/{REGION}/repositories?repositoryId=base", repository)
    place = f"projects/{PROJECT}/locations/{REGION}/repositories"
    code, findings = run(
        {"s": SPOT},
        teams={
            "a": {
                "storage": {
                    "kept": {},
                    "free": {},
                    "guessed": {},
                    "data": {"bucket": "acme-c4"},
                    "none": {"bucket": "acme-none"},
                },
                "secrets": {"HF_TOKEN": "hf-token", "NONE": "none"},
            }
        },
        images={"base": {"repository": f"{place}/base"}, "none": {"repository": f"{place}/none"}},
    )
    assert code == 1
    assert of(findings, "buckets") == [
        "ok: acme-c4 is there",
        "ok: the name my-project_tpu_a_free is free",
        "blocks: there is a bucket my-project_tpu_a_guessed already, and it is not this platform's: it is in project"
        f" {project_number('somebody')}",
        "blocks: this platform's bucket my-project_tpu_a_kept is there already, from an earlier run",
        "blocks: there is no bucket acme-none",
    ]
    assert of(findings, "team secrets") == [
        "blocks: hf-token is not there in my-project, or has no version",
        "blocks: none is not there in my-project, or has no version",
    ]
    assert of(findings, "registries") == [f"ok: {place}/base is there", f"blocks: there is no repository {place}/none"]


def test_a_budget_is_of_the_account_that_pays(run: Run, cloud: Cloud) -> None:
    """The emulator's projects are paid for by one account."""
    paying, other = "000000-000000-000000", "01ABCD-23EF45-678901"

    def findings(account: str) -> list[str]:
        budget = {"billing_account": account, "amount": 1_000_000}
        return of(run({"s": SPOT}, monitoring={"budget": budget})[1], "budget")

    assert findings(paying) == [f"ok: billingAccounts/{paying} pays for {PROJECT}, and you may make budgets there"]
    assert findings(other) == [f"blocks: billingAccounts/{paying} pays for {PROJECT}, not billingAccounts/{other}"]
    cloud.control("permissions", {"granted": ["resourcemanager.projects.get", "billing.budgets.get"]})
    assert findings(paying) == [
        "blocks: you lack billing.budgets.create, billing.budgets.delete, billing.budgets.update on"
        f" billingAccounts/{paying}"
    ]
