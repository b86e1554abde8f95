"""Edits of the table (tests/edits/table.py) through the real engine: for each back end one of every effect.

`python -m tests.edits` makes all of them; this is the sample that runs with every change.
"""

from __future__ import annotations

import pytest

from tests.edits.arguments import put
from tests.edits.campaign import STACK, Campaign, edited, prepare
from tests.edits.table import BASES, GKE, ROWS, SELF_MANAGED, Effect, Row
from tests.sandbox.conftest import Project

# The keys of the sample, as they stand in the table. GKE keeps authorized networks when they are left out of a request,
# so turning them off is an edit of its own.
SAMPLE = {
    GKE: [
        "slices.train.capacity.maintenance=PERIODIC",
        "slices.serve.count=3",
        "slices.train.labels={'a': 'b'}",
        "cluster.authorized_networks=[]",
        "cluster.image_streaming=False",
        "slices.serve.boot_disk.size_gb=200",
        "slices.train.topology=4x8",
        "name=other",
        "slices.train.image=projects/my-project/global/images/own",
    ],
    SELF_MANAGED: [
        "slices.train.capacity.maintenance=PERIODIC",
        "slices.serve.count=3",
        "cluster.control_plane.disk_size_gb=100",
        "cluster.system_pool.disk_size_gb=200",
        "slices.serve.labels={'a': 'b'}",
        "slices.train.topology=4x8",
        "cluster.control_plane.zones=['us-east5-a']",
        "slices.train.host_maintenance=AS_NEEDED",
    ],
}
# No edit of the sample is about queues: without them nothing has to be installed in the cluster.
WITHOUT_QUEUES = {"queues": {}, "namespaces": []}


def sample(backend: str) -> list[Row]:
    """The rows of the table, in the order of the sample."""
    known = {row.id: row for row in ROWS if backend in dict(row.backends)}
    return [known[name] for name in SAMPLE[backend]]


@pytest.mark.parametrize("backend", SAMPLE)
def test_the_sample_has_every_effect(backend: str) -> None:
    assert {dict(row.backends)[backend] for row in sample(backend)} == set(Effect)


@pytest.mark.parametrize("backend", SAMPLE)
def test_edits_do_what_the_table_says(project: Project, backend: str) -> None:
    """The engine plans each row's effect; all are then made in one update, after which a preview finds nothing."""
    prepare(project, project.session.emulator_url, str(BASES[backend]["zone"]))
    rows = sample(backend)
    before = {key: value for row in rows for key, value in row.before.items()}
    campaign = Campaign(project, backend, put({**BASES[backend], **WITHOUT_QUEUES}, before))
    campaign.begin()
    outcomes = [campaign.look([row]) for row in rows]
    assert not {outcome.rows[0].id: outcome.wrong for outcome in outcomes if outcome.wrong}
    campaign.settle(edited(campaign.base, [row for row in rows if not campaign.is_refused(row)]))
    campaign.assert_clean()
    project.succeed("destroy", "-s", STACK, "--yes", "--skip-preview")
    project.succeed("stack", "rm", STACK, "--yes")
