"""`python -m tools kueue`: what a Kueue that somebody else runs is held against."""

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from typer.testing import CliRunner, Result

from plan import kueue_configuration
from platform_config.self_managed import InCluster
from rules.load import load_stack_file
from tests.platforms import EXISTING, EXISTING_NETWORK
from tools.__main__ import app
from tools.generated import ROOT

SERVE = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "devices": "dra"}
QUEUES = {"team": {"namespaces": ["a"], "slices": {"serve": 1}}}


@pytest.fixture
def with_queues(stack_file: Any) -> Any:
    """The stack file of a platform in a cluster that has Kueue."""
    cluster = EXISTING | {"provides": ["kueue"]}
    return stack_file({"serve": SERVE}, cluster=cluster, network=EXISTING_NETWORK, queues=QUEUES)


def printed(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["kueue", *map(str, arguments)])


def test_it_is_the_configuration_that_the_platforms_own_kueue_would_have(with_queues: Path) -> None:
    result = printed("-f", with_queues)
    assert result.exit_code == 0, result.output
    expected = kueue_configuration.configuration(load_stack_file(with_queues))
    assert kueue_configuration.Configuration.model_validate(yaml.safe_load(result.stdout)) == expected
    assert expected.resources.device_class_mappings, "of a platform with claims it maps their classes"


def test_it_says_what_it_was_tried_with(with_queues: Path) -> None:
    comments = " ".join(line for line in printed("-f", with_queues).stdout.splitlines() if line.startswith("#"))
    as_json = json.loads(printed("-f", with_queues, "--json").stdout)
    assert as_json["apis"] == ["kueue.x-k8s.io/v1beta2", "jobset.x-k8s.io/v1alpha2"]
    assert as_json["charts"].keys() == {"kueue", "jobset"}
    for text in (*as_json["apis"], *as_json["charts"].values()):
        assert text in comments


def test_for_machines_it_is_the_same(with_queues: Path) -> None:
    as_json = json.loads(printed("-f", with_queues, "--json").stdout)
    assert as_json["configuration"] == yaml.safe_load(printed("-f", with_queues).stdout)


def test_without_queues_there_is_nothing_to_configure(stack_file: Any) -> None:
    result = printed("-f", stack_file())
    assert result.exit_code == 1
    assert "no queues" in result.stderr


@pytest.mark.parametrize("part", get_args(InCluster))
def test_the_page_says_what_a_provided_part_must_be_like(part: str) -> None:
    page = (ROOT / "docs" / "existing-cluster.md").read_text()
    assert f"\n| `{part}` | " in page.partition("| `provides` |")[2].partition("\n\n")[0]


def schema_of(model: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The properties of a model, through whatever refers to it."""
    for candidate in (model, *model.get("anyOf", ()), model.get("items", {})):
        if "$ref" in candidate:
            return dict(definitions[candidate["$ref"].rpartition("/")[2]]["properties"])
    return {}


def test_the_page_names_settings_that_there_are() -> None:
    schema = kueue_configuration.Configuration.model_json_schema(by_alias=True)
    page = (ROOT / "docs" / "existing-cluster.md").read_text()
    table = page.partition("| Kueue's setting |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| `([A-Za-z.]+)`", table, re.MULTILINE)
    assert len(named) >= 6
    for path in named:
        properties = schema["properties"]
        for key in path.split("."):
            assert key in properties, path
            properties = schema_of(properties[key], schema["$defs"])
