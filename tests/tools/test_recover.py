"""`python -m tools recover`: what is planned for what was saved and found; nothing is asked and nothing is run here."""

from __future__ import annotations

import base64
import gzip
import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httplib2
import pytest
from typer.testing import CliRunner

from tools.__main__ import app
from tools.cluster_api import ClusterApi, ClusterAwayError, RefusedReadError
from tools.permission_table import BILLING_ACCOUNT, GOOGLE
from tools.preflight.cloud import Cloud, NoConnectionError, RefusedError
from tools.recover import run as runner
from tools.recover.attributes import half_written
from tools.recover.checkpoint import UNKNOWN, Checkpoint, CheckpointError, Resource, preview, read
from tools.recover.completion import completed
from tools.recover.engine import EngineError, _errors
from tools.recover.findings import Finding
from tools.recover.google import AGAIN, ROWS, GoogleLook
from tools.recover.inside import ClusterLook, release
from tools.recover.lock import Holder, holders
from tools.recover.plan import (
    Adopt,
    Complete,
    Connect,
    NamesError,
    Plan,
    Refresh,
    Settle,
    Told,
    Uninstall,
    Unlock,
    Wait,
    import_file,
    others_of,
    plan,
    wanted_of,
)
from tools.recover.report import as_json, as_text

Json = dict[str, Any]
CHECKPOINTS = Path(__file__).parents[1] / "data" / "checkpoints"
GRAPHS = Path(__file__).parents[1] / "graph" / "goldens"
START = datetime(2026, 11, 23, 10, 56, 25, tzinfo=UTC)
GONE = Holder("me", "vm", 7, START, gone=True)
ALIVE = replace(GONE, gone=False)
CLUSTER_ID = "projects/my-project/locations/us-east5/clusters/tpu-dev"
TOLD = Told(since=START)


def saved(name: str) -> Checkpoint:
    return read(json.loads((CHECKPOINTS / f"{name}.json").read_text()))


def planned(
    checkpoint: Checkpoint,
    findings: Mapping[str, Finding],
    told: Told = TOLD,
    held: tuple[Holder, ...] | None = (GONE,),
    creates: tuple[Resource, ...] = (),
) -> Plan:
    """The plan where findings are given by logical name."""
    wanted = wanted_of(checkpoint, creates)
    urns = {each.name: each.urn for each in (*wanted, *others_of(checkpoint))}
    rows = {urns[name]: finding for name, finding in findings.items()}
    return plan(checkpoint, wanted, rows, told, held, bool(held))


def present(identity: str, minutes: float = 1) -> Finding:
    return Finding("present", identity, START + timedelta(minutes=minutes))


# --- one killed creation ----------------------------------------------------------------------------------------------


def test_what_was_made_is_adopted_with_parent_provider_and_protection() -> None:
    checkpoint = saved("killed-cluster")
    found = planned(checkpoint, {"cluster-gke": present(CLUSTER_ID)})
    unlock, adopt, refresh, complete = found.steps
    assert unlock == Unlock((GONE,))
    assert isinstance(adopt, Adopt)
    assert not adopt.protect
    assert complete == Complete((), adopt.adoptions)
    assert refresh == Refresh(())
    assert found.left == ()
    file = import_file(adopt, checkpoint, {})
    assert file["resources"] == [
        {
            "type": "gcp:container/cluster:Cluster",
            "name": "r1",
            "logicalName": "cluster-gke",
            "id": CLUSTER_ID,
            "parent": "r0",
            "provider": "r2",
        }
    ]
    assert file["nameTable"] == {
        "r0": "urn:pulumi:killed::tpu-platform::tpu:gke:Cluster::cluster",
        "r2": "urn:pulumi:killed::tpu-platform::pulumi:providers:gcp::default_10_2_0",
    }


def test_a_protected_resource_is_adopted_protected() -> None:
    checkpoint = saved("killed-cluster")
    [operation] = checkpoint.pending
    locked = replace(operation, resource=replace(operation.resource, protect=True))
    found = planned(replace(checkpoint, pending=(locked,)), {"cluster-gke": present(CLUSTER_ID)})
    assert [each.protect for each in found.steps if isinstance(each, Adopt)] == [True]


@pytest.mark.parametrize("state", ["absent", "again"])
def test_what_did_not_come_to_be_is_forgotten(state: Any) -> None:
    found = planned(saved("killed-cluster"), {"cluster-gke": Finding(state)})
    assert found.steps == (Unlock((GONE,)), Refresh(("cluster-gke",)))
    assert found.left == ()


def test_what_google_is_at_is_waited_for() -> None:
    found = planned(saved("killed-cluster"), {"cluster-gke": Finding("changing", CLUSTER_ID, why="PROVISIONING")})
    assert found.steps == (Unlock((GONE,)), Wait(("cluster-gke",)))


def test_what_cannot_be_told_is_left_and_not_forgotten() -> None:
    found = planned(saved("killed-cluster"), {"cluster-gke": Finding("unknown", why="Google answers 500: no")})
    assert found.steps == (Unlock((GONE,)), Refresh(()))
    assert [(each.name, each.why) for each in found.left] == [("cluster-gke", "Google answers 500: no")]
    again = planned(saved("killed-cluster"), {"cluster-gke": Finding("unknown", why="no")}, held=())
    assert again.steps == ()
    told = replace(TOLD, forget=frozenset({"cluster-gke"}))
    forgotten = planned(saved("killed-cluster"), {"cluster-gke": Finding("unknown", why="no")}, told, ())
    assert (forgotten.steps, forgotten.left) == ((Refresh(("cluster-gke",)),), ())


@pytest.mark.parametrize(
    ("finding", "since", "why"),
    [
        (present(CLUSTER_ID, -60), START, "before the update began"),
        (present(CLUSTER_ID), None, "nothing shows when the update began"),
        (Finding("present", CLUSTER_ID), START, "nothing shows that this stack made it"),
    ],
)
def test_what_may_be_somebody_elses_is_not_adopted(finding: Finding, since: datetime | None, why: str) -> None:
    found = planned(saved("killed-cluster"), {"cluster-gke": finding}, Told(since=since))
    assert not [each for each in found.steps if isinstance(each, Adopt)]
    [left] = found.left
    assert why in left.why
    assert "--ours cluster-gke" in left.do
    told = planned(saved("killed-cluster"), {"cluster-gke": finding}, Told(ours=frozenset({"cluster-gke"})))
    assert [each for each in told.steps if isinstance(each, Adopt)]
    assert told.left == ()


def test_what_lies_in_something_of_ours_needs_no_time() -> None:
    found = planned(saved("killed-cluster"), {"cluster-gke": Finding("present", CLUSTER_ID, ours="in the cluster tpu")})
    assert [each for each in found.steps if isinstance(each, Adopt)]


def test_a_broken_cluster_is_adopted_and_named() -> None:
    found = planned(saved("killed-cluster"), {"cluster-gke": replace(present(CLUSTER_ID), note="it is in ERROR")})
    assert [each for each in found.steps if isinstance(each, Adopt)]
    [left] = found.left
    assert left.do.startswith("pulumi up --replace 'urn:pulumi:killed")
    assert Refresh(()) in found.steps


def test_what_was_adopted_already_is_only_forgotten() -> None:
    """A recovery that was killed after its import goes on with the rest."""
    checkpoint = saved("killed-cluster")
    cluster = checkpoint.pending[0].resource
    half = replace(checkpoint, resources={**checkpoint.resources, cluster.urn: replace(cluster, id=CLUSTER_ID)})
    found = planned(half, {"cluster-gke": present(CLUSTER_ID)}, held=())
    assert found.steps == (Refresh(("cluster-gke",)),)
    assert [each.action for each in found.items] == ["nothing: the state has it"]


# --- killed in the middle of a replacement ------------------------------------------------------------------------


def with_row(checkpoint: Checkpoint, **more: Any) -> Checkpoint:
    """The checkpoint in which the state has a row of the resource that is being made."""
    [operation] = checkpoint.pending
    row = {**operation.resource.row, "id": CLUSTER_ID, "outputs": {"a": 1}, **more}
    [old] = read({"deployment": {"resources": [row]}}).resources.values()
    return replace(checkpoint, resources={**checkpoint.resources, old.urn: old})


def test_what_was_made_in_place_of_what_was_deleted_takes_its_row() -> None:
    """The engine keeps the row of what it deleted, and neither refreshes nor imports over it."""
    checkpoint = with_row(saved("killed-cluster"), pendingReplacement=True)
    found = planned(checkpoint, {"cluster-gke": present(CLUSTER_ID)})
    unlock, complete, refresh = found.steps
    assert isinstance(unlock, Unlock)
    assert isinstance(complete, Complete)
    assert [(each.resource.name, each.id) for each in complete.replacing] == [("cluster-gke", CLUSTER_ID)]
    assert isinstance(refresh, Refresh)
    absent = planned(checkpoint, {"cluster-gke": Finding("absent")})
    assert absent.steps == (Unlock((GONE,)), Refresh(("cluster-gke",)))


def test_what_the_state_has_is_not_the_replacement() -> None:
    """The creation under the same name failed, or had not begun."""
    found = planned(with_row(saved("killed-cluster")), {"cluster-gke": present(CLUSTER_ID)})
    assert found.steps == (Unlock((GONE,)), Refresh(("cluster-gke",)))
    checkpoint = with_row(saved("killed-cluster"))
    [urn] = [urn for urn in checkpoint.resources if urn.endswith("::cluster-gke")]
    rows = dict(checkpoint.resources)
    rows["urn:other::renamed"] = replace(rows.pop(urn), urn="urn:other::renamed")
    renamed = planned(replace(checkpoint, resources=rows), {"cluster-gke": present(CLUSTER_ID)})
    assert [each.action for each in renamed.items] == ["nothing: the state has it as renamed"]


def test_one_that_was_made_before_the_old_one_was_deleted_takes_its_place() -> None:
    found = planned(with_row(saved("killed-cluster"), id="projects/old"), {"cluster-gke": present(CLUSTER_ID)})
    assert [type(each) for each in found.steps] == [Unlock, Complete, Refresh]


def test_rows_to_be_deleted_are_not_the_resource() -> None:
    row = saved("killed-cluster").pending[0].resource.row
    exported = {"deployment": {"resources": [{**row, "id": CLUSTER_ID}, {**row, "id": "old", "delete": True}]}}
    checkpoint = read(exported)
    assert [each.id for each in checkpoint.resources.values()] == [CLUSTER_ID]
    assert {identity for _, identity in checkpoint.identities} == {CLUSTER_ID, "old"}


def test_what_google_is_deleting_is_waited_for() -> None:
    """A refresh in the meantime would leave it in the state, and the next `up` would not make it again."""
    checkpoint = saved("killed-cluster")
    [operation] = checkpoint.pending
    going = replace(with_row(checkpoint), pending=(replace(operation, kind="deleting"),))
    finding = Finding("changing", CLUSTER_ID, why="Google says STOPPING")
    assert planned(going, {"cluster-gke": finding}).steps == (Unlock((GONE,)), Wait(("cluster-gke",)))
    assert planned(going, {"cluster-gke": Finding("absent")}).steps == (Unlock((GONE,)), Refresh(()))


# --- what an import leaves out ------------------------------------------------------------------------------------


def exported(*rows: Json) -> Json:
    return {"version": 3, "deployment": {"manifest": {}, "resources": list(rows)}}


def row(name: str, **more: Any) -> Json:
    return {"urn": f"urn::{name}", "type": f"gcp:{name}", "custom": True, "id": name, "outputs": {"a": 1}, **more}


def noted(*rows: Json) -> list[Resource]:
    pending = [{"type": "creating", "resource": each} for each in rows]
    return [each.resource for each in read({"deployment": {"pending_operations": pending}}).pending]


def test_what_was_imported_gets_what_it_depends_on_and_is_kept_if_it_is_to_be_kept() -> None:
    options = {
        "dependencies": ["urn::network", "urn::nowhere"],
        "propertyDependencies": {"network": ["urn::network"], "other": None},
        "deletedWith": "urn::network",
        "retainOnDelete": True,
        "customTimeouts": {"create": 7},
    }
    before = exported(row("bucket"), row("network"), row("other", deletedWith="urn::bucket"))
    [bucket] = noted(row("bucket", **options))
    found = completed(before, [bucket], {})
    assert [each["urn"] for each in found["deployment"]["resources"]] == ["urn::network", "urn::bucket", "urn::other"]
    assert found["deployment"]["resources"][1] == {
        **row("bucket"),
        **options,
        "dependencies": ["urn::network"],
        "propertyDependencies": {"network": ["urn::network"], "other": []},
    }
    assert before == exported(row("bucket"), row("network"), row("other", deletedWith="urn::bucket"))


def test_what_took_a_place_is_as_noted_and_unread() -> None:
    cluster = "gcp:container/cluster:Cluster"
    inputs = {"name": "tpu", "removeDefaultNodePool": True}
    [resource] = noted(row("a", type=cluster, inputs=inputs, provider="urn::p::new"))
    provider = row("p", id="old")
    deleted = completed(
        exported(provider, row("a", type=cluster, pendingReplacement=True)), [resource], {"urn::a": "i"}
    )
    assert deleted["deployment"]["resources"][1:] == [
        {
            **row("a", type=cluster, id="i", inputs={"name": "tpu"}, outputs={}, provider="urn::p::old"),
            "dependencies": [],
            "propertyDependencies": {},
        }
    ]
    assert read(deleted).resources["urn::a"].unread
    beside = completed(exported(provider, row("a", type=cluster)), [resource], {"urn::a": "i"})
    assert [(each["id"], each.get("delete", False)) for each in beside["deployment"]["resources"]] == [
        ("old", False),
        ("i", False),
        ("a", True),
    ]


# --- the lock ---------------------------------------------------------------------------------------------------------


def test_a_lock_whose_holder_may_be_alive_stops_everything() -> None:
    checkpoint = saved("killed-cluster")
    found = planned(checkpoint, {"cluster-gke": present(CLUSTER_ID)}, held=(ALIVE,))
    assert found.steps == ()
    assert [each.do for each in found.left] == ["when that process is gone: --holder-is-gone"]
    told = planned(checkpoint, {"cluster-gke": present(CLUSTER_ID)}, replace(TOLD, holder_is_gone=True), (ALIVE,))
    assert told.steps[0] == Unlock((ALIVE,))


def test_a_backend_that_says_nothing_is_unlocked_only_when_told() -> None:
    checkpoint = saved("killed-cluster")
    finding = {"cluster-gke": Finding("absent")}
    assert planned(checkpoint, finding, held=None).steps == (Refresh(("cluster-gke",)),)
    told = planned(checkpoint, finding, replace(TOLD, holder_is_gone=True), None)
    assert told.steps[0] == Unlock(())


def test_an_update_that_ended_in_nothing_pending_is_refreshed() -> None:
    checkpoint = replace(saved("killed-cluster"), pending=())
    assert planned(checkpoint, {}).steps == (Unlock((GONE,)), Refresh(()))
    assert planned(checkpoint, {}, held=()).steps == ()


def holding(backend: str, folder: Path = Path("/"), cloud: Cloud | None = None) -> tuple[Holder, ...] | None:
    return holders(backend, folder, "tpu-platform", "dev", cloud or Cloud({}))


def test_the_holder_of_a_lock_is_read_from_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / ".pulumi" / "locks" / "organization" / "tpu-platform" / "dev"
    folder.mkdir(parents=True)
    ended = subprocess.Popen(["true"])
    ended.wait()

    def lock(pid: int, host: str) -> bool:
        row = {"pid": pid, "username": "me", "hostname": host, "timestamp": "2026-11-23T10:56:25.481813826Z"}
        (folder / "one.json").write_text(json.dumps(row))
        (folder / "one.json.attrs").write_text("{}")
        [holder] = holding(tmp_path.as_uri()) or ()
        assert holder.since == START.replace(microsecond=481813)
        return holder.gone

    here = socket.gethostname()
    assert not lock(os.getpid(), here)
    assert not lock(ended.pid, f"not-{here}")
    assert not lock(0, here)
    assert lock(ended.pid, here) == (here != "localhost")
    assert holding(f"{tmp_path.as_uri()}?no_tmp_dir=false")
    assert holding("file://./", tmp_path)
    assert holding("file://.", tmp_path)
    assert holding((tmp_path / "other").as_uri()) == ()
    (folder / "one.json").write_text('{"pid": 7, "host')
    [broken] = holding(tmp_path.as_uri()) or ()
    assert (broken.gone, str(broken)) == (False, f"somebody: {folder / 'one.json'} cannot be read")


# --- helm -------------------------------------------------------------------------------------------------------------


def test_helm_is_not_asked_while_nobody_can_say_who_holds_the_lock() -> None:
    """The engine is asked first: it ends where somebody holds it."""
    findings = {"jobset-release": look(secret(1, "pending-install")), "lws-release": look()}
    found = planned(saved("killed-helm"), findings, held=None)
    assert [type(each) for each in found.steps] == [Refresh, Settle, Adopt, Refresh, Complete]
    assert found.steps[0] == Refresh(())
    told = planned(saved("killed-helm"), findings, replace(TOLD, holder_is_gone=True), held=None)
    assert [type(each) for each in told.steps] == [Unlock, Settle, Adopt, Refresh, Complete]


def secret(revision: int, status: str, hooks: list[str] | None = None) -> Json:
    content = {"hooks": [{"name": "job", "events": hooks}] if hooks else []}
    packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(content).encode())))
    return {
        "metadata": {
            "labels": {"version": str(revision), "status": status},
            "creationTimestamp": "2026-11-23T10:57:03Z",
        },
        "data": {"release": packed.decode()},
    }


def look(*secrets: Json) -> Finding:
    return release(list(secrets), "jobset", "jobset-system", 600)


@pytest.mark.parametrize(
    ("secrets", "state", "back_to"),
    [
        ((), "absent", None),
        ((secret(1, "deployed"),), "present", None),
        ((secret(1, "pending-install"),), "half-made", 1),
        ((secret(1, "failed"),), "half-made", 1),
        ((secret(1, "pending-install", ["post-install"]),), "half-made", None),
        ((secret(1, "pending-install", ["test"]),), "half-made", 1),
        ((secret(10, "pending-upgrade"), secret(9, "deployed"), secret(8, "superseded")), "half-made", 9),
        ((secret(2, "uninstalling"), secret(1, "superseded")), "half-made", None),
        ((secret(1, "uninstalled"),), "unknown", None),
    ],
)
def test_a_release_by_helms_own_records(secrets: tuple[Json, ...], state: str, back_to: int | None) -> None:
    found = look(*secrets)
    assert found.state == state
    assert (found.release.back_to if found.release else None) == back_to


def test_a_record_of_helms_that_cannot_be_read_is_not_rolled_back_to() -> None:
    broken = {**secret(1, "pending-install"), "data": {"release": "bm90aGluZw=="}}
    found = look(broken)
    assert found.release
    assert found.release.back_to is None


def test_a_half_made_release_is_completed_and_one_that_helm_had_not_begun_is_forgotten() -> None:
    found = planned(saved("killed-helm"), {"jobset-release": look(secret(1, "pending-install")), "lws-release": look()})
    unlock, settle, adopt, refresh, complete = found.steps
    assert isinstance(complete, Complete)
    assert isinstance(settle, Settle)
    assert (settle.release.name, settle.release.back_to, settle.release.seconds) == ("jobset", 1, 600)
    assert isinstance(adopt, Adopt)
    assert [(each.resource.name, each.id) for each in adopt.adoptions] == [("jobset-release", "jobset-system/jobset")]
    assert refresh == Refresh(())
    assert unlock == Unlock((GONE,))


def test_a_release_with_hooks_is_uninstalled_only_when_told() -> None:
    findings = {"jobset-release": look(secret(1, "pending-install", ["pre-install"])), "lws-release": look()}
    found = planned(saved("killed-helm"), findings)
    assert not [each for each in found.steps if isinstance(each, Settle | Uninstall | Adopt)]
    assert [each.do for each in found.left] == ["--uninstall, or by hand: helm uninstall jobset -n jobset-system"]
    told = planned(saved("killed-helm"), findings, replace(TOLD, uninstall=True))
    assert [type(each) for each in told.steps] == [Unlock, Uninstall, Refresh]
    assert told.left == ()


def test_an_upgrade_that_was_cut_short_is_rolled_back_and_not_adopted() -> None:
    checkpoint = saved("killed-helm")
    jobset = next(each.resource for each in checkpoint.pending if each.resource.name == "jobset-release")
    operation = replace(checkpoint.pending[0], kind="updating", resource=jobset)
    half = replace(checkpoint, pending=(operation,), resources={**checkpoint.resources, jobset.urn: jobset})
    found = planned(half, {"jobset-release": look(secret(2, "pending-upgrade"), secret(1, "deployed"))})
    assert [type(each) for each in found.steps] == [Unlock, Settle, Refresh]


def test_a_release_that_helm_did_not_finish_is_settled_even_if_the_engine_noted_an_end() -> None:
    """A killed program: the engine goes on, and notes that the upgrade failed; helm refuses every other one."""
    checkpoint = saved("killed-helm")
    jobset = next(each.resource for each in checkpoint.pending if each.resource.name == "jobset-release")
    ended = replace(checkpoint, pending=(), resources={**checkpoint.resources, jobset.urn: jobset})
    cut_short = look(secret(2, "pending-upgrade"), secret(1, "deployed"))
    assert [type(each) for each in planned(ended, {"jobset-release": cut_short}, held=()).steps] == [Settle, Refresh]
    for whole in (look(secret(1, "deployed")), Finding("unknown", why="the cluster is away")):
        found = planned(ended, {"jobset-release": whole}, held=())
        assert (found.steps, found.items, found.left) == ((), (), ())


# --- a lost state -----------------------------------------------------------------------------------------------------

LOST = replace(TOLD, lost_state=True, since=None)
URN = "urn:pulumi:dev::tpu-platform::"


def create(kind: str, name: str, inputs: Json, parent: str = "", provider: str = "") -> Json:
    state = {"urn": f"{URN}{kind}::{name}", "type": kind.rpartition("$")[2], "inputs": inputs, "parent": parent}
    return {"op": "create", "urn": state["urn"], "newState": {**state, "custom": "$" in kind, "provider": provider}}


NETWORK = f"{URN}tpu:gcp:Network::network"
ACCESS = f"{URN}pulumi:providers:kubernetes::access-provider"
GOOGLE_PROVIDER = f"{URN}pulumi:providers:gcp::default_10_2_0::{UNKNOWN}"
STEPS = [
    create("pulumi:pulumi:Stack", "tpu-platform-dev", {}),
    create("tpu:gcp:Network", "network", {}, f"{URN}pulumi:pulumi:Stack::tpu-platform-dev"),
    create(
        "tpu:gcp:Network$gcp:compute/network:Network",
        "network-vpc",
        {"name": "tpu", "project": "p"},
        NETWORK,
        GOOGLE_PROVIDER,
    ),
    create("tpu:kubernetes:Namespaces", "namespaces", {}),
    create(
        "tpu:kubernetes:Namespaces$kubernetes:core/v1:Namespace",
        "namespaces-a",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}},
        f"{URN}tpu:kubernetes:Namespaces::namespaces",
        f"{ACCESS}::{UNKNOWN}",
    ),
]
EMPTY = Checkpoint({}, ())
OLD = {"network-vpc": present("projects/p/global/networks/tpu", -9e4), "namespaces-a": present("a", -9e4)}


def test_a_lost_state_is_adopted_from_outside_to_inside() -> None:
    creates = preview({"steps": STEPS}).creates
    found = planned(EMPTY, OLD, LOST, (), creates)
    adopt, connect = found.steps
    assert connect == Connect()
    assert isinstance(adopt, Adopt)
    file = import_file(adopt, EMPTY, {each.urn: each for each in creates})
    assert file == {
        "nameTable": {},
        "resources": [
            {"type": "tpu:gcp:Network", "name": "r0", "logicalName": "network", "component": True},
            {
                "type": "gcp:compute/network:Network",
                "name": "r1",
                "logicalName": "network-vpc",
                "id": "projects/p/global/networks/tpu",
                "parent": "r0",
                "version": "10.2.0",
            },
        ],
    }
    inside = tuple(each for each in creates if each.name != "network-vpc")
    only_inside = planned(EMPTY, {"namespaces-a": OLD["namespaces-a"]}, LOST, (), inside)
    assert only_inside.steps == (Connect(),)
    provider = replace(creates[0], urn=ACCESS)
    connected = planned(
        replace(EMPTY, resources={ACCESS: provider}), {"namespaces-a": OLD["namespaces-a"]}, LOST, (), inside
    )
    assert [type(each) for each in connected.steps] == [Adopt, Complete]


def test_a_stack_without_resources_is_read() -> None:
    assert read({"deployment": {}}) == read({"deployment": None}) == Checkpoint({}, ())


# --- looking up -------------------------------------------------------------------------------------------------------


class Google(Cloud):
    """Answers from a table: by method, a description, None, or an error."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__({})
        self.answers, self.asked = answers, list[tuple[str, Json]]()

    def find(self, api: str, method: str, **parameters: Any) -> Json | None:
        self.asked.append((method, parameters))
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        found: Json | None = answer
        return found

    def pages(self, api: str, method: str, items: str, **parameters: Any) -> list[Json]:
        self.asked.append((method, parameters))
        rows: list[Json] = self.answers[method]
        return rows


def resource(kind: str, inputs: Json, **more: Any) -> Resource:
    return Resource(f"{URN}{kind}::one", kind, True, inputs, "", "", False, more.pop("depends", {}), **more)


def asked(kind: str, inputs: Json, answers: Mapping[str, Any], **more: Any) -> Finding:
    others = more.pop("others", {})
    return GoogleLook(Google(answers), "p").find(resource(kind, inputs, **more), others)


POOL = "gcp:container/nodePool:NodePool"
POOLS = "projects.locations.clusters.nodePools.get"


def test_every_google_type_of_the_program_can_be_looked_up_or_made_again() -> None:
    google = {name for name in (*GOOGLE, *BILLING_ACCOUNT) if name.startswith("gcp:")}
    assert google == {*ROWS, *AGAIN}
    assert not set(ROWS) & set(AGAIN)
    used = {
        line.removeprefix("  type: ").strip()
        for path in GRAPHS.glob("*.yaml")
        for line in path.read_text().splitlines()
        if line.startswith("  type: gcp:")
    }
    assert used <= google


def test_a_resource_is_looked_up_by_its_own_inputs() -> None:
    found = asked(
        "gcp:compute/subnetwork:Subnetwork",
        {"name": "s", "region": "r"},
        {"subnetworks.get": {"creationTimestamp": "2026-11-23T02:56:25.000-08:00"}},
    )
    assert found == Finding("present", "projects/p/regions/r/subnetworks/s", START)


def test_an_unknown_input_comes_from_what_it_names() -> None:
    cluster = resource("gcp:container/cluster:Cluster", {"name": "tpu", "location": "r"})
    inputs = {"name": "serve", "cluster": UNKNOWN}
    found = asked(
        POOL,
        inputs,
        {POOLS: {"status": "RUNNING"}},
        depends={"cluster": (cluster.urn,)},
        others={cluster.urn: cluster},
    )
    identity = "projects/p/locations/r/clusters/tpu/nodePools/serve"
    assert found == Finding("present", identity, ours="in projects/p/locations/r/clusters/tpu")
    assert asked(POOL, inputs, {}) == Finding("unknown", why="its cluster is not known yet")


@pytest.mark.parametrize(("status", "state"), [("PROVISIONING", "changing"), ("STOPPING", "changing")])
def test_a_pool_that_google_is_at(status: str, state: str) -> None:
    found = asked(POOL, {"name": "s", "location": "r", "cluster": "c"}, {POOLS: {"status": status}})
    assert found.state == state


def test_a_pool_in_error_says_what_helps() -> None:
    found = asked(POOL, {"name": "s", "location": "r", "cluster": "c"}, {POOLS: {"status": "ERROR"}})
    assert found.state == "present"
    assert "--replace" in found.note


@pytest.mark.parametrize(("text", "ours"), [("Nodes of tpu", "with the same displayName"), ("of somebody else", "")])
def test_an_account_is_known_by_its_text(text: str, ours: str) -> None:
    found = asked(
        "gcp:serviceaccount/account:Account",
        {"accountId": "a", "displayName": "Nodes of tpu"},
        {"projects.serviceAccounts.get": {"displayName": text}},
    )
    assert found.id == "projects/p/serviceAccounts/a@p.iam.gserviceaccount.com"
    assert found.ours == ours


def test_a_dashboard_is_known_by_its_title_if_only_one_has_it() -> None:
    inputs = {"dashboardJson": json.dumps({"displayName": "TPU platform"})}
    rows = [{"name": "projects/1/dashboards/x", "displayName": "TPU platform"}, {"name": "y", "displayName": "other"}]
    kind = "gcp:monitoring/dashboard:Dashboard"
    found = asked(kind, inputs, {"projects.dashboards.list": rows})
    assert (found.state, found.id, found.ours) == ("present", "projects/1/dashboards/x", "with the same displayName")
    assert asked(kind, inputs, {"projects.dashboards.list": rows[1:]}).state == "absent"
    assert asked(kind, inputs, {"projects.dashboards.list": [rows[0], rows[0]]}).state == "unknown"


def test_a_template_whose_name_the_provider_made() -> None:
    kind, method = "gcp:compute/instanceTemplate:InstanceTemplate", "instanceTemplates.list"
    rows = [{"name": "tpu-a-20261123105"}, {"name": "tpu-a-b-20261123105"}, {"name": "tpu-a-20261123106"}]
    old = {(kind, "projects/p/global/instanceTemplates/tpu-a-20261123105")}
    look = GoogleLook(Google({method: rows}), "p", old)
    assert look.find(resource(kind, {"namePrefix": "tpu-a-"}), {}).id.endswith("/tpu-a-20261123106")
    found = asked(kind, {"namePrefix": "tpu-a-"}, {method: rows[:2]})
    assert found.id == "projects/p/global/instanceTemplates/tpu-a-20261123105"
    assert asked(kind, {"namePrefix": "tpu-a-"}, {method: rows[1:2]}).state == "absent"
    assert asked(kind, {"namePrefix": "tpu-a-"}, {method: rows}).state == "unknown"
    assert asked(kind, {"name": "t"}, {"instanceTemplates.get": {}}).id == "projects/p/global/instanceTemplates/t"


def test_what_google_keeps_as_deleted_is_unknown() -> None:
    pool = {"workloadIdentityPoolId": "w"}
    kind, method = "gcp:iam/workloadIdentityPool:WorkloadIdentityPool", "projects.locations.workloadIdentityPools.get"
    assert asked(kind, pool, {method: {"state": "DELETED"}}).state == "unknown"
    assert asked(kind, pool, {method: {"state": "ACTIVE"}}).state == "present"


def test_a_nat_lies_in_its_router() -> None:
    inputs = {"name": "n", "region": "r", "router": "one"}
    kind = "gcp:compute/routerNat:RouterNat"
    found = asked(kind, inputs, {"routers.get": {"nats": [{"name": "n"}]}})
    assert (found.id, found.ours) == ("p/r/one/n", "in the router one")
    assert asked(kind, inputs, {"routers.get": {"nats": []}}).state == "absent"
    assert asked(kind, inputs, {"routers.get": None}).state == "absent"


def test_what_google_does_not_answer_is_unknown() -> None:
    inputs = {"name": "n"}
    kind = "gcp:compute/network:Network"
    assert asked(kind, inputs, {"networks.get": None}).state == "absent"
    assert (
        asked(kind, inputs, {"networks.get": RefusedError(403, "SERVICE_DISABLED", "off", "compute")}).state == "absent"
    )
    refused = asked(kind, inputs, {"networks.get": RefusedError(403, "", "you may not", "")})
    assert (refused.state, refused.why) == ("unknown", "Google answers 403: you may not")
    look = GoogleLook(Google({"networks.get": NoConnectionError("no credentials", "log in")}), "p")
    first, second = (look.find(resource(kind, inputs), {}) for _ in range(2))
    assert first == second == Finding("unknown", why="no credentials -> log in")
    assert isinstance(look.cloud, Google)
    assert len(look.cloud.asked) == 1
    assert asked("gcp:other/thing:Thing", {}, {}).state == "unknown"


class Inside(ClusterApi):
    """Answers from a table: by path, what is there."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__(Path("/nowhere"))
        self.answers = answers

    def find(self, path: str) -> Json | None:
        answer = self.answers.get(path)
        if isinstance(answer, Exception):
            raise answer
        found: Json | None = answer
        return found

    def items(self, path: str, **query: str) -> list[Json]:
        rows: list[Json] = self.answers.get(path, [])
        return rows


KINDS = {"resources": [{"name": "namespaces", "kind": "Namespace", "namespaced": False}]}
NAMESPACE = resource(
    "kubernetes:core/v1:Namespace", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
)
QUEUE = resource(
    "kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue",
    {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "q", "namespace": "a"}},
)
QUEUES = {
    "/apis/kueue.x-k8s.io/v1beta2": {"resources": [{"name": "localqueues", "kind": "LocalQueue", "namespaced": True}]}
}
MADE = {"creationTimestamp": "2026-11-23T10:56:25Z"}


def test_an_object_of_the_cluster() -> None:
    there = {"/api/v1": KINDS, "/api/v1/namespaces/a": {"metadata": MADE}}
    assert ClusterLook(Inside(there)).find(NAMESPACE) == Finding("present", "a", START)
    assert ClusterLook(Inside({"/api/v1": KINDS})).find(NAMESPACE).state == "absent"
    going = {**there, "/api/v1/namespaces/a": {"metadata": {**MADE, "deletionTimestamp": "2026-11-23T10:57:25Z"}}}
    assert ClusterLook(Inside(going)).find(NAMESPACE).state == "changing"
    queue = {**QUEUES, "/apis/kueue.x-k8s.io/v1beta2/namespaces/a/localqueues/q": {"metadata": MADE}}
    assert ClusterLook(Inside(queue)).find(QUEUE).id == "a/q"
    assert ClusterLook(Inside({})).find(QUEUE).state == "absent"


def test_a_cluster_that_cannot_be_asked() -> None:
    refused = Inside({"/api/v1": RefusedReadError(403, "you may not")})
    assert ClusterLook(refused).find(NAMESPACE).why == "the cluster answers 403: you may not"
    away = ClusterLook(Inside({"/api/v1": ClusterAwayError("it does not answer")}))
    assert away.find(NAMESPACE) == away.find(QUEUE) == Finding("unknown", why="it does not answer")
    assert ClusterLook(None, away="no kubectl").find(NAMESPACE) == Finding("unknown", why="no kubectl")
    assert ClusterLook(None, gone=True).find(NAMESPACE).state == "absent"


def test_a_name_that_the_engine_would_have_chosen_is_unknown() -> None:
    nameless = replace(NAMESPACE, inputs={**NAMESPACE.inputs, "metadata": {}})
    assert ClusterLook(Inside({})).find(nameless).why == "its name is not known yet"


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "exported", [[], "text", {}, {"deployment": {"resources": [{}]}}, {"deployment": {"resources": 1}}]
)
def test_something_else_than_a_stack_is_refused(exported: Any) -> None:
    with pytest.raises(CheckpointError, match="something else than a stack"):
        read(exported)


def test_the_engines_words_are_found() -> None:
    diagnostics = json.dumps({"diagnostics": [{"severity": "error", "message": "no cluster\n"}]})
    assert _errors(diagnostics, "") == "no cluster"
    locked = "error: the stack is currently locked by 1 lock(s).\n  file:///x: created by me@vm (pid 7) at noon"
    assert "created by me@vm (pid 7)" in _errors("", locked)
    assert _errors("", "warning: x\nerror: broken\n") == "error: broken"
    assert _errors("", "") == "it says nothing"


def test_without_a_stack_that_can_be_read_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise EngineError("pulumi stack export: error: no stack named 'dev' found")

    monkeypatch.setattr(runner, "read", fails)
    monkeypatch.setattr(runner.Engine, "backend", lambda _: "gs://state")
    monkeypatch.setattr(runner.Engine, "export", lambda _: {})
    shown = CliRunner().invoke(app, ["recover", "-s", "dev", "--yes"])
    assert shown.exit_code == 2
    assert "error: pulumi stack export: error: no stack named 'dev' found" in shown.output


class Scripted(runner.Engine):
    """An engine whose stack changes as its commands say; `fails`: the command that does not work, with its error."""

    def __init__(self, fails: tuple[str, str] = ("", "")) -> None:
        super().__init__(Path(), "killed")
        self.row = json.loads((CHECKPOINTS / "killed-cluster.json").read_text())
        self.calls: list[str] = []
        self.fails = fails
        self.failed = False

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.fails[0] == name:
            raise EngineError(self.fails[1])

    def backend(self) -> str:
        return "s3://state"

    def last_failed(self) -> bool:
        return self.failed

    def export(self) -> Any:
        return self.row

    def preview(self) -> Any:
        self._call("preview")
        return {"changeSummary": {"same": 4, "create": 1}, "steps": STEPS[2:3]}

    def cancel(self) -> None:
        self._call("cancel")

    def adopt(self, file: Mapping[str, object], *, protect: bool) -> None:
        self._call("import")
        deployment = self.row["deployment"]
        deployment["resources"].append(
            {**deployment["pending_operations"][0]["resource"], "id": CLUSTER_ID, "outputs": {"a": 1}}
        )

    def save(self, exported: Mapping[str, object]) -> None:
        self._call("save")
        self.row = json.loads(json.dumps(exported))
        self.row["deployment"]["pending_operations"] = []

    def refresh(self, *, forget: bool, leave: Sequence[str] = ()) -> None:
        self._call(" ".join((f"refresh {forget}", *leave)))
        if forget:
            self.row["deployment"]["pending_operations"] = []


ABSENT = Finding("absent")


class Looks(runner.Looker):
    """Finds one thing after the other of the cluster, and what is given of all else."""

    def __init__(self, *cluster: Finding, network: Finding = ABSENT) -> None:
        self.cluster, self.network, self.settings = list(cluster), network, {}

    def look(self, resources: Any, others: Any, taken: Any) -> dict[str, Finding]:
        return {
            each.urn: self.network
            if each.name == "network-vpc"
            else self.cluster.pop(0)
            if len(self.cluster) > 1
            else self.cluster[0]
            for each in resources
        }


def recovery(engine: Scripted, looks: Looks, monkeypatch: pytest.MonkeyPatch, **told: Any) -> runner.Recovery:
    monkeypatch.setattr(runner.time, "sleep", lambda _: None)
    told = {"holder_is_gone": True, "ours": frozenset({"cluster-gke"}), **told}
    return runner.Recovery(engine, looks, "tpu-platform", "killed", Told(**told), lambda _: True, lambda _: None)


def test_it_waits_adopts_and_says_what_up_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Scripted()
    looks = Looks(Finding("changing", CLUSTER_ID), Finding("changing", CLUSTER_ID), present(CLUSTER_ID))
    report = recovery(engine, looks, monkeypatch).run(dry=False)
    assert engine.calls == ["cancel", "import", "refresh False", "save", "preview"]
    assert [each.step for each in report.done][1] == "wait for cluster-gke"
    assert report.recovered
    assert report.up
    assert report.up.counts["create"] == 1
    assert [each.action for each in report.items.values()] == ["adopt"]


@pytest.mark.parametrize("failed", [True, False])
def test_an_update_that_failed_is_followed_by_a_refresh(failed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault campaign killed a plugin while Google set labels: `up` named the old fingerprint for ever."""
    engine = Scripted()
    engine.failed, engine.row["deployment"]["pending_operations"] = failed, []
    recovering = recovery(engine, Looks(present(CLUSTER_ID)), monkeypatch, holder_is_gone=False, ours=frozenset())
    assert recovering.run(dry=False).recovered
    assert engine.calls == (["refresh False", "preview"] if failed else ["preview"])


@pytest.mark.parametrize(("history", "failed"), [("[]", False), ('[{"result": "failed"}]', True)])
def test_the_newest_update_says_whether_it_failed(history: str, failed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner.Engine, "_run", lambda *_: history)
    assert runner.Engine(Path(), "dev").last_failed() is failed


def test_a_dry_run_runs_nothing_and_neither_does_a_person_who_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Scripted()
    report = recovery(engine, Looks(present(CLUSTER_ID)), monkeypatch).run(dry=True)
    refused = recovery(engine, Looks(present(CLUSTER_ID)), monkeypatch)
    refused.agree = lambda _: False
    assert refused.run(dry=False) == report
    assert engine.calls == []
    assert report.planned[0] == "pulumi cancel"
    assert not report.recovered


def test_a_step_that_fails_is_named_and_the_next_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Scripted(fails=("refresh False", "no network"))
    report = recovery(engine, Looks(present(CLUSTER_ID)), monkeypatch).run(dry=False)
    assert [(each.step.partition(" ")[2][:6], each.error) for each in report.done][-1] == ("refres", "no network")
    assert report.left[-1].why == "no network"
    assert not report.recovered
    engine.fails, engine.calls = ("", ""), []
    assert recovery(engine, Looks(present(CLUSTER_ID)), monkeypatch).run(dry=False).recovered
    assert engine.calls == ["cancel", "refresh True", "preview"]


def test_a_replacement_takes_its_row_and_is_read_even_if_the_recovery_is_stopped_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Scripted(fails=("refresh True", "no network"))
    deployment = engine.row["deployment"]
    noted = deployment["pending_operations"][0]["resource"]
    deployment["resources"].append({**noted, "id": "old", "outputs": {"id": "old"}, "pendingReplacement": True})
    assert not recovery(engine, Looks(present(CLUSTER_ID)), monkeypatch).run(dry=False).recovered
    assert engine.calls == ["cancel", "save", "refresh True"]
    [taken] = [each for each in engine.row["deployment"]["resources"] if each["urn"] == noted["urn"]]
    assert (taken["id"], taken["outputs"], taken.get("pendingReplacement")) == (CLUSTER_ID, {}, None)
    # Nothing is pending any more, and the lock is gone; the row without outputs says that a refresh is due.
    engine.fails, engine.calls = ("", ""), []
    again = recovery(engine, Looks(present(CLUSTER_ID)), monkeypatch, holder_is_gone=False, ours=frozenset())
    assert again.run(dry=False).recovered
    assert engine.calls == ["refresh False", "preview"]


@pytest.mark.parametrize(
    ("kind", "state", "expected"),
    [
        ("creating", "absent", True),
        ("creating", "present", False),
        ("deleting", "present", True),
        ("deleting", "absent", False),
    ],
)
def test_a_request_may_still_be_under_way(kind: str, state: Any, expected: bool) -> None:
    checkpoint = saved("killed-cluster")
    [operation] = checkpoint.pending
    begun = replace(checkpoint, pending=(replace(operation, kind=kind),))
    assert runner._may_come(begun, {operation.resource.urn: Finding(state)}) is expected


AWAY = "configured Kubernetes cluster is unreachable: no route"


def test_where_the_cluster_is_out_of_reach_all_else_is_settled_and_up_repairs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refresh reads what is inside, too: without that it works, and the creation is no longer noted as pending."""
    engine = Scripted(fails=("refresh True", AWAY))
    types = "urn:pulumi:killed::tpu-platform::tpu:gke:Namespaces$kubernetes:core/v1:Namespace"
    rows = engine.row["deployment"]["resources"]
    for name in ("a", "b"):
        rows.append({"urn": f"{types}::{name}", "type": "kubernetes:core/v1:Namespace", "custom": True, "id": name})
    report = recovery(engine, Looks(ABSENT), monkeypatch).run(dry=False)
    assert engine.calls == ["cancel", "refresh True", f"refresh True {types}::**", "preview"]
    assert not engine.row["deployment"]["pending_operations"]
    assert [(each.why, "`pulumi up`, which repairs it" in each.do) for each in report.left] == [(AWAY, True)]
    assert not report.recovered


def test_a_cluster_that_is_out_of_reach_and_of_which_nothing_is_known_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Scripted(fails=("refresh False", AWAY))
    [*_, left] = recovery(engine, Looks(present(CLUSTER_ID)), monkeypatch).run(dry=False).left
    assert "`pulumi up`, which repairs it" in left.do


def test_a_webhook_without_its_controller_needs_an_up_without_preview(monkeypatch: pytest.MonkeyPatch) -> None:
    """A preview sends dry runs, and has no patience with webhooks; an update waits for the controller."""
    engine = Scripted(fails=("preview", 'Internal error occurred: failed calling webhook "vresourceflavor.kb.io"'))
    [left] = recovery(engine, Looks(present(CLUSTER_ID)), monkeypatch).run(dry=False).left
    assert "`pulumi up --skip-preview`" in left.do


def test_a_disk_that_is_full_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(EngineError, match="No space left on device -> make room"):
        runner.Engine(Path(), "dev").adopt({}, protect=False)


def test_a_lock_that_only_the_engine_sees_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Scripted(fails=("import", "the stack is currently locked by 1 lock(s)"))
    run = recovery(engine, Looks(present(CLUSTER_ID)), monkeypatch, holder_is_gone=False)
    assert run.run(dry=False).left[-1].do == "when that process is gone: --holder-is-gone"
    assert engine.calls == ["import"]


def test_a_name_that_nothing_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = recovery(Scripted(), Looks(present(CLUSTER_ID)), monkeypatch, forget=frozenset({"clutser-gke"}))
    with pytest.raises(NamesError, match="nothing that was begun is called clutser-gke; there is: cluster-gke"):
        run.run(dry=False)


def test_what_up_would_stumble_over_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(present(CLUSTER_ID), network=present("projects/p/global/networks/tpu"))
    report = recovery(Scripted(), looks, monkeypatch).run(dry=False)
    assert [(each.name, "--lost-state" in each.do) for each in report.left] == [("network-vpc", True)]


class Recorder:
    """Stands for the connection to Google: answers every request with nothing, and remembers its address."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

    def request(self, uri: str, *_: Any, **__: Any) -> tuple[Any, bytes]:
        self.addresses.append(unquote(uri.partition("?")[0]))
        return httplib2.Response({"status": 200, "content-type": "application/json"}), b"{}"


class Anything(dict[str, str]):
    """Every input, with its own name as its value."""

    def __missing__(self, key: str) -> str:
        return key


@pytest.mark.parametrize("kind", ROWS)
def test_googles_own_client_knows_each_lookup(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods and parameters are those of Google's discovery documents, and the address is that of the import id."""
    recorder = Recorder()
    monkeypatch.setattr(Cloud, "_authorized", lambda _: recorder)
    row = ROWS[kind]
    values = Anything(cluster="projects/p/locations/l/clusters/c")
    row.find(Cloud({}), values)
    [address] = recorder.addresses
    if kind in ("gcp:compute/routerNat:RouterNat", "gcp:logging/metric:Metric") or not row.id:
        assert "/projects/project/" in address or "/billingAccounts/billingAccount/" in address
    else:
        assert address.endswith(f"/{row.id.format_map(values)}")


# --- attributes -------------------------------------------------------------------------------------------------------


def state_folder(root: Path, attributes: Mapping[str, str]) -> Path:
    """A backend's folder with these `.attrs` files, by path below `.pulumi`."""
    for name, text in attributes.items():
        file = root / ".pulumi" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


HALF = "stacks/tpu-platform/killed.json.attrs"
WHOLE = json.dumps({"user.content_type": "text/plain", "md5": "AA=="})


def test_attributes_that_were_not_written_to_their_end_are_found(tmp_path: Path) -> None:
    lock = "locks/organization/tpu-platform/killed/one.json.attrs"
    others = {"stacks/tpu-platform/other.json.attrs": "", "stacks/other/killed.json.attrs": ""}
    state_folder(tmp_path, {HALF: "", lock: WHOLE[:9], HALF.replace(".json", ".json.bak"): WHOLE, **others})
    found = half_written(tmp_path.as_uri(), Path(), "tpu-platform", "killed")
    assert found == (tmp_path / ".pulumi" / lock, tmp_path / ".pulumi" / HALF)
    assert half_written("gs://state", tmp_path, "tpu-platform", "killed") == ()
    assert half_written((tmp_path / "none").as_uri(), Path(), "tpu-platform", "killed") == ()


class Unreadable(Scripted):
    """An engine that cannot read its state while attributes are half written."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = state_folder(root, {HALF: ""})

    @property
    def half(self) -> Path:
        return self.root / ".pulumi" / HALF

    def backend(self) -> str:
        return self.root.as_uri()

    def export(self) -> Any:
        if self.half.exists():
            raise EngineError("pulumi stack export: error: failed to load checkpoint: EOF")
        return super().export()


def test_a_state_whose_attributes_a_kill_cut_short_is_readable_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Unreadable(tmp_path)
    step = f"rm {engine.half}, which was not written to its end"
    dry = recovery(engine, Looks(present(CLUSTER_ID)), monkeypatch).run(dry=True)
    assert (dry.planned, dry.recovered) == ([step], False)
    assert engine.half.exists()
    report = recovery(engine, Looks(present(CLUSTER_ID)), monkeypatch).run(dry=False)
    assert report.recovered
    lines = as_text(report).splitlines()
    assert lines[lines.index("done:") + 1] == f"  {step}"
    assert json.loads(as_json(report))["done"][0]["step"] == step


def test_attributes_are_left_to_an_engine_that_may_be_writing_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Unreadable(tmp_path)
    run = recovery(engine, Looks(present(CLUSTER_ID)), monkeypatch, holder_is_gone=False)
    monkeypatch.setattr(run, "_held", lambda: (ALIVE,))
    report = run.run(dry=False)
    assert (report.planned, [each.name for each in report.left]) == ([], ["the lock"])
    assert engine.half.exists()
