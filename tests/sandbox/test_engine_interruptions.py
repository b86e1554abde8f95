"""An update that is ended in its middle, by whatever signal, and what it takes to go on."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import Any

import psutil

from tests.sandbox.conftest import SLIM, Project

CREATE_NETWORK = {"method": "POST", "path": "/networks$"}
CREATE_CLUSTER = {"method": "POST", "path": "/clusters$"}
DELETE_CLUSTER = {"method": "DELETE", "path": "/clusters/[^/]*$"}
UP = ("up", "--yes", "--skip-preview")
DESTROY = ("destroy", "--yes", "--skip-preview")


def end(project: Project, stack: str, command: tuple[str, ...], request: dict[str, str], number: signal.Signals) -> str:
    """Start an engine command; send it a signal while the cloud takes its time over `request`. Returns its output."""
    project.inject(kind="slow", seconds=2, **request)
    engine = project.session.start_pulumi(*command, "-s", stack, capture=True)
    try:
        deadline = time.monotonic() + 60
        while project.pending_faults():
            assert engine.poll() is None, engine.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        parts = psutil.Process(engine.pid).children(recursive=True)
        engine.send_signal(number)
        output, _ = engine.communicate(timeout=60)
        # A killed engine leaves its language host and plugins behind; those only notice after a while.
        for part in parts:
            with contextlib.suppress(psutil.NoSuchProcess):
                part.kill()
    finally:
        engine.kill()
        engine.wait()
    assert engine.returncode != 0
    return output


def wait_for_inventory(project: Project, kind: str) -> None:
    """What the killed engine had asked for goes on in the cloud."""
    deadline = time.monotonic() + 30
    while kind not in project.session.inventory():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_after_ctrl_c_or_a_cancelled_job_the_next_up_goes_on(project: Project) -> None:
    """SIGINT and SIGTERM: the engine waits for the running steps, saves and ends. No other command is needed."""
    project.write_stack("interrupted", **SLIM)
    for request, number in ((CREATE_NETWORK, signal.SIGINT), (CREATE_CLUSTER, signal.SIGTERM)):
        end(project, "interrupted", UP, request, number)
        assert not project.state("interrupted").get("pending_operations")
    project.up("interrupted")
    project.assert_clean("interrupted")


def test_after_a_kill_the_stack_is_unlocked_and_what_was_being_made_is_adopted(project: Project) -> None:
    """SIGKILL: nothing is saved and the lock stays. Only a creation that was under way needs more than unlocking."""
    project.write_stack("killed", **SLIM)
    end(project, "killed", UP, CREATE_CLUSTER, signal.SIGKILL)
    wait_for_inventory(project, "container.clusters")
    assert "the stack is currently locked" in project.fail(*UP, "-s", "killed")
    project.succeed("cancel", "-s", "killed", "--yes")

    [begun] = [each["resource"] for each in project.state("killed")["pending_operations"]]
    assert begun["type"] == "gcp:container/cluster:Cluster"
    name = begun["urn"].rsplit("::", 1)[-1]
    project.succeed(
        *("import", begun["type"], name, cluster_id(begun["inputs"]), "--parent", f"parent={begun['parent']}"),
        *("-s", "killed", "--yes", "--skip-preview", "--protect=false", "--generate-code=false"),
    )
    project.up("killed")
    project.assert_clean("killed")

    end(project, "killed", DESTROY, DELETE_CLUSTER, signal.SIGKILL)
    project.succeed("cancel", "-s", "killed", "--yes")
    project.destroy("killed")


def cluster_id(inputs: dict[str, Any]) -> str:
    """The id of a cluster, as the provider's import page spells it."""
    return f"projects/{inputs['project']}/locations/{inputs['location']}/clusters/{inputs['name']}"
