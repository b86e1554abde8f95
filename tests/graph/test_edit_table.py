"""The table of edits (tests/edits/table.py): no key is left out, and every row does to running slices what it says."""

from __future__ import annotations

import json
import os

import pytest

from plan.platform import Platform
from platform_config.cluster import GkeCluster
from platform_config.self_managed import ExistingCluster, SelfManagedCluster
from rules.cluster_identity import another_cluster
from rules.load import load_platform
from tests.edits import page
from tests.edits.arguments import arguments, edited
from tests.edits.plans import effect_of, predicted, strays
from tests.edits.table import GKE, GUEST, ROWS, SELF_MANAGED, Effect, Row
from tests.graph.emulated import Clouds
from tests.graph.recording import ROOT, Update
from tests.graph.test_multikueue import EXPORTED, STACK_REFERENCE
from tests.graph.test_own_template import sound
from tests.platforms import PROJECT, errors

# Neighbours begin with the same platform, so that each process of the tests makes few of them.
CASES = sorted(
    (pytest.param(row, backend, effect, id=f"{backend}: {row.id}") for row in ROWS for backend, effect in row.backends),
    key=lambda case: json.dumps(case.values[0].platforms(case.values[1])[0], sort_keys=True),
)


@pytest.fixture(autouse=True)
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The template and the worker's stack that edits name exist."""
    template = sound() | {"selfLinkUnique": f"projects/{PROJECT}/global/instanceTemplates/own"}
    monkeypatch.setitem(Update.TEMPLATES, "own", template)
    reference = {"outputs": EXPORTED, "secretOutputNames": ["multikueue"]}
    monkeypatch.setitem(Update.COMPUTED, STACK_REFERENCE, reference)


@pytest.mark.parametrize(("row", "backend", "effect"), CASES)
def test_an_edit_does_what_the_table_says(clouds: Clouds, row: Row, backend: str, effect: Effect) -> None:
    before, after = row.platforms(backend)
    assert not errors(before)
    found = errors(after)
    if effect is Effect.REFUSED:
        assert found
        return
    assert not found
    refused = another_cluster(load_platform(after, project=PROJECT), clouds(before).state)
    assert bool(refused) == (effect is Effect.ANOTHER_CLUSTER), refused
    if refused:
        return
    steps = predicted(clouds(before), after)
    assert effect_of(steps) is effect, steps
    assert not strays([row], steps)


# --- no key is left out -----------------------------------------------------------------------------------------------

CLUSTERS = {GKE: GkeCluster, SELF_MANAGED: SelfManagedCluster, GUEST: ExistingCluster}
# Set once for a stack; another kind of cluster is another platform.
NOT_EDITED = {"project", "cluster.kind", "network.kind"}
# Which range of somebody else's network is whose: GKE's rows stand for both.
OF_GKE_NETWORKS = {f"network.{key}" for key in ("network", "subnetwork", "project", "pods_range", "services_range")}
# A manager's slices are only counted, key by key as its own would be.
COUNTED = "multikueue.slices"
# Of a worker, which is always on GKE.
OF_WORKERS = {"multikueue.token"}


def keys_of(backend: str) -> set[str]:
    """Every key that a platform with such a cluster can have; what a manager says of slices is one of them."""
    around = {key for key in arguments(Platform) if not key.startswith(("cluster.", COUNTED))}
    return around | {COUNTED} | arguments(CLUSTERS[backend], "cluster.")


def edited_on(backend: str) -> set[str]:
    """The keys that some row of the table edits there."""
    known = arguments(Platform)
    pairs = [row.platforms(backend) for row in ROWS if backend in dict(row.backends)]
    return {COUNTED if key.startswith(COUNTED) else key for key in edited(pairs, known)}


@pytest.mark.parametrize("backend", [GKE, SELF_MANAGED])
def test_every_key_has_a_row(backend: str) -> None:
    unused = {GKE: set(), SELF_MANAGED: OF_GKE_NETWORKS | OF_WORKERS}[backend]
    assert keys_of(backend) - NOT_EDITED - unused - edited_on(backend) == set()


def test_every_key_of_a_cluster_that_exists_has_a_row() -> None:
    """Its other keys are those of a self-managed cluster."""
    own = arguments(ExistingCluster, "cluster.") - arguments(SelfManagedCluster, "cluster.")
    assert own - edited_on(GUEST) == set()


def test_the_keys_are_those_of_the_schema() -> None:
    """Of the file that editors use; a list or mapping below a key is the key's."""
    schema = json.loads((ROOT / "schema" / "platform.schema.json").read_text())
    top = schema["properties"]["config"]["properties"]["tpu-platform:platform"]
    top = schema["$defs"][top["$ref"].rpartition("/")[2]] if "$ref" in top else top
    assert set(top["properties"]) == {key.partition(".")[0] for key in arguments(Platform)} - {"project"}


def test_the_table_of_the_docs_is_fresh() -> None:
    text = page.PAGE.read_text()
    if os.environ.get("UPDATE_GOLDENS"):
        page.PAGE.write_text(page.fresh(text))
    assert page.PAGE.read_text() == page.fresh(text), "the table of edits is stale: rerun with UPDATE_GOLDENS=1"
