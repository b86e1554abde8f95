"""Edits of the table (tests/edits/table.py) through the real engine: one for each effect, and some with a story.

`python -m tests.edits` makes all of them; this is the sample that runs with every change.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox import google
from tests.edits.campaign import Campaign, prepare
from tests.edits.table import BASES, GKE, ROWS, Effect, Row
from tests.sandbox.conftest import Project

# The keys of the sample, as they stand in the table. GKE keeps authorized networks when they are left out of a request,
# so turning them off is an edit of its own.
SAMPLE = [
    "slices.train.capacity.maintenance=PERIODIC",
    "slices.serve.count=3",
    "slices.train.labels={'a': 'b'}",
    "cluster.authorized_networks=[]",
    "cluster.image_streaming=False",
    "slices.serve.boot_disk.size_gb=200",
    "slices.train.topology=4x8",
    "name=other",
    "slices.train.image=projects/my-project/global/images/own",
]


@pytest.fixture(scope="module")
def predictions() -> Iterator[str]:
    """The address of an emulator of its own, for what the graph predicts."""
    with google.serving() as emulator:
        yield emulator.url


def sample() -> list[Row]:
    """The rows of the table, in the order of the sample."""
    known = {row.id: row for row in ROWS if row.gke}
    return [known[name] for name in SAMPLE]


def test_the_sample_has_every_effect() -> None:
    assert {row.gke for row in sample()} == set(Effect)


def test_edits_do_what_the_table_says(project: Project, predictions: str) -> None:
    """The engine plans what the graph predicts, the update is made, and a second preview finds nothing."""
    prepare(project, project.session.emulator_url, str(BASES[GKE]["zone"]))
    campaign = Campaign(project, predictions, GKE)
    campaign.begin()
    outcomes = list(campaign.run(sample()))
    assert len(outcomes) == len(SAMPLE)
    assert not {str([row.id for row in outcome.rows]): outcome.wrong for outcome in outcomes if outcome.wrong}
    project.succeed("destroy", "-s", "edits", "--yes", "--skip-preview")
