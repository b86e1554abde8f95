"""What goes wrong in the middle of an update: the cloud fails, or the update is ended; and what it takes to go on."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

from tests.faults.engine import Engine
from tests.faults.kinds import DELETE
from tests.faults.points import points, sample
from tests.faults.results import AGAIN, ITSELF, RECOVER
from tests.faults.trial import Pass
from tests.sandbox.conftest import SLIM, Project
from tests.sandbox.recovery import UP, actions, during, during_nothing_but, end, recover, row
from tests.sandbox.workloads import has_release

CREATE_POOL = {"method": "POST", "path": "/nodePools$"}
CREATE_NETWORK = {"method": "POST", "path": "/networks$"}
CREATE_CLUSTER = {"method": "POST", "path": "/clusters$"}
DELETE_CLUSTER = {"method": "DELETE", "path": "/clusters/[^/]*$"}
DESTROY = ("destroy", "--yes", "--skip-preview")
# What the cloud does wrong for a while, and the provider gets over by itself.
PASSING = (
    {"kind": "status", "status": 429, "times": 3},
    {"kind": "status", "status": 503, "times": 3},
    {"kind": "cut", "method": "GET", "times": 2},
)


def test_passing_trouble_is_got_over_and_a_stockout_is_mended_by_the_next_update(project: Project) -> None:
    """Google's passing errors fail nothing. A pool that found no capacity stays in state ERROR until it is replaced."""
    project.write_stack("trouble", **SLIM)
    for fault in PASSING:
        project.inject(**fault)
    project.inject(kind="operation", code="ZONE_RESOURCE_POOL_EXHAUSTED", **CREATE_POOL)
    output = project.fail("up", "-s", "trouble", "--yes", "--skip-preview")
    assert not project.pending_faults(), "every fault has struck"
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in output
    assert not any(word in output for word in ("RESOURCE_EXHAUSTED", "UNAVAILABLE", "disconnected"))
    [broken] = [each["urn"] for each in project.state("trouble")["resources"] if each.get("initErrors")]
    project.up("trouble", "--replace", broken)
    project.assert_clean("trouble")
    lose_nothing_while_it_is_destroyed(project, "trouble")


def lose_nothing_while_it_is_destroyed(project: Project, stack: str) -> None:
    """A sample of the fault campaign (`make faults`), at what is always asked to be deleted."""
    engine = Engine(project, stack)
    names = sorted(each for each in engine.resources() if each.startswith(("gcp:compute/", "gcp:container/")))
    every = [point for point in points(stack, names) if point.fault != "slow operation"]
    chosen = sample(every, DELETE, {}, random.Random(1), costly=0)
    results = Pass(engine, DELETE, names, print).run(chosen)
    assert {each.outcome for each in results} <= {ITSELF, AGAIN, RECOVER}, results
    assert len(results) == len(names) > 5


def during_helm(project: Project, _stack: str) -> Callable[[], bool]:
    """While helm waits for a controller that it has just installed."""

    def installing() -> bool:
        client = project.cluster_client()
        if client is None:
            return False
        with client:
            return has_release(client, "jobset", "pending-install")

    return installing


def test_after_ctrl_c_or_a_cancelled_job_the_next_up_goes_on(project: Project) -> None:
    """SIGINT and SIGTERM: the engine waits for the running steps, saves and ends. No other command is needed."""
    project.write_stack("interrupted", **SLIM)
    interruptions = (
        (during(CREATE_NETWORK), signal.SIGINT),
        (during(CREATE_CLUSTER), signal.SIGTERM),
        (during_helm, signal.SIGINT),
    )
    for moment, number in interruptions:
        end(project, "interrupted", UP, moment, number)
        assert not project.state("interrupted").get("pending_operations")
        # What was cut short is in the state without what Google says about it.
        project.succeed("preview", "-s", "interrupted")
    project.up("interrupted")
    project.assert_clean("interrupted")


def write_attributes_in_part(project: Project, stack: str) -> Path:
    """What a kill in between two writes of the engine leaves beside the state, which the fault campaign met once."""
    [file] = project.session.run.backend.glob(f".pulumi/stacks/*/{stack}.json.attrs")
    file.write_text("")
    return file


def test_after_a_kill_one_command_brings_the_stack_back(project: Project) -> None:
    """SIGKILL: nothing is saved and the lock stays. What was being made is adopted, helm's releases are completed."""
    project.write_stack("killed", **SLIM)
    end(project, "killed", UP, during_nothing_but(CREATE_CLUSTER), signal.SIGKILL)
    assert "the stack is currently locked" in project.fail(*UP, "-s", "killed")
    planned = recover(project, "killed", "--dry-run", code=1)
    assert planned["lock"][0]["gone"]
    assert planned["planned"][0] == "pulumi cancel"
    assert not planned["done"]
    report = recover(project, "killed")
    assert actions(report) == {"cluster-gke": "adopt"}
    cluster = row(project, "killed", "cluster-gke")
    assert cluster["parent"].endswith("::cluster")
    assert any(urn.endswith("::network-subnet") for urn in cluster["dependencies"]), (
        "`destroy` would not know the order"
    )
    assert not project.state("killed").get("pending_operations")

    end(project, "killed", UP, during_helm, signal.SIGKILL)
    attributes = write_attributes_in_part(project, "killed")
    assert "failed to load checkpoint: EOF" in project.fail(*UP, "-s", "killed")
    [step] = recover(project, "killed", "--dry-run", code=1)["planned"]
    assert step == f"rm {attributes}, which was not written to its end"
    assert attributes.exists()
    report = recover(project, "killed")
    assert [each["step"] for each in report["done"][:2]] == [step, "pulumi cancel"]
    assert actions(report)["jobset-release"] == "helm rollback to revision 1, then adopt"
    changes = {urn.rpartition("::")[2]: op for urn, op in report["up"]["changes"].items()}
    assert changes.get("jobset-release", "update") == "update"
    project.up("killed")
    project.assert_clean("killed")

    # The engine keeps the row of what it has deleted. It would not look at the new pool, and create it once more.
    pool = row(project, "killed", "slices-serve-0")
    end(project, "killed", (*UP, "--replace", pool["urn"]), during_nothing_but(CREATE_POOL), signal.SIGKILL)
    assert row(project, "killed", "slices-serve-0")["pendingReplacement"]
    assert actions(recover(project, "killed")) == {"slices-serve-0": "adopt"}
    assert not {"create", "replace"} & project.up("killed").keys()
    project.assert_clean("killed")

    end(project, "killed", DESTROY, during_nothing_but(DELETE_CLUSTER), signal.SIGKILL)
    recover(project, "killed")
    project.destroy("killed")
