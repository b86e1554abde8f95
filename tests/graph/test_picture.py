"""The picture in the README is drawn from the graph that the program really registers."""

import os
import re

from tests.graph.conftest import recorded
from tests.graph.picture import mermaid, reduced
from tests.graph.recording import ROOT

FENCE = re.compile(r"(<!-- graph of the dev stack -->\n```mermaid\n).*?(```)", re.DOTALL)


def test_the_readme_shows_the_graph_of_the_dev_stack() -> None:
    readme = ROOT / "README.md"
    drawn = mermaid(recorded(ROOT / "Pulumi.dev.yaml", preview=False))
    text = FENCE.sub(lambda match: match[1] + drawn + match[2], readme.read_text())
    assert drawn in text, "README.md has lost its marker <!-- graph of the dev stack -->"
    if os.environ.get("UPDATE_GOLDENS"):
        readme.write_text(text)
    assert readme.read_text() == text, "the picture is stale: rerun with UPDATE_GOLDENS=1"


def test_edges_that_a_longer_way_shows_are_left_out() -> None:
    graph = {"a": set(), "b": {"a"}, "c": {"a", "b"}}
    assert reduced(graph) == {"a": set(), "b": {"a"}, "c": {"b"}}
