"""Files made from the program are up to date, and the schema accepts what the program accepts."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import BaseModel
from typer.testing import CliRunner

from catalogue import topology
from catalogue.generations import MACHINES, Machine
from platform_config.platform import below
from platform_config.slice import few_shapes
from tests.platforms import EXISTING, EXISTING_NETWORK, SELF_MANAGED, errors, raw
from tools.__main__ import app
from tools.generated import ROOT, Generated
from tools.schema import field_descriptions, models, render, title

STACK_FILES = sorted(ROOT.glob("Pulumi.*.yaml"))
SCHEMA = Draft202012Validator(json.loads(render()))
V6E = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}


@pytest.mark.parametrize("command", ["schema", "docs"])
def test_committed_files_are_fresh(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--check"])
    assert result.exit_code == 0, result.output


def test_a_stale_file_is_named_and_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.generated.ROOT", tmp_path)
    stale = CliRunner().invoke(app, ["schema", "--check"])
    assert stale.exit_code == 1
    assert "schema/platform.schema.json is out of date" in stale.output
    assert CliRunner().invoke(app, ["schema", "--write"]).exit_code == 0
    assert Generated("schema/platform.schema.json", render).is_fresh()
    assert CliRunner().invoke(app, ["schema", "--check"]).exit_code == 0


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA.schema)


@pytest.mark.parametrize("path", STACK_FILES, ids=lambda path: path.name)
def test_stack_files_fit_the_schema_and_refer_to_it(path: Path) -> None:
    text = path.read_text()
    assert "# yaml-language-server: $schema=schema/platform.schema.json" in text
    SCHEMA.validate(yaml.safe_load(text))


def config(platform: dict[str, Any]) -> dict[str, Any]:
    return {"config": {"gcp:project": "my-project", "tpu-platform:platform": platform}, "encryptionsalt": "x"}


@pytest.mark.parametrize(
    "platform",
    [
        raw(),
        raw({"s": {"generation": "v6e", "chips": 16, "capacity": "spot"}}),
        raw({"s": V6E | {"capacity": ["spot", {"model": "flex-start"}]}}),
        raw({"s": V6E | {"capacity": {"model": "reservation", "name": "r", "block": "b", "sub_block": "s"}}}),
        raw({"s": V6E | {"capacity": {"model": "reservation", "name": "r", "block": "b", "sub_block": ["s"]}}}),
        raw(network={"nodes_cidr": "10.8.0.0/20"}),
        raw(network={"kind": "existing", "network": "n", "subnetwork": "s", "pods_range": "p", "services_range": "v"}),
        raw(cluster={"version": "1.35", "maintenance": {"recurrence": "FREQ=DAILY"}}),
        raw(cluster=SELF_MANAGED | {"version": "1.34.2", "control_plane": {"replicas": 3, "access": "external"}}),
        raw(cluster=EXISTING, network=EXISTING_NETWORK | {"nodes_cidr": "10.1.0.0/20"}),
        raw(cluster=EXISTING | {"provides": ["jobset", "namespaces"]}, network=EXISTING_NETWORK),
        raw({"s": V6E | {"image": "projects/p/global/images/family/f"}}),
        raw({"s": V6E | {"instance_template": "projects/p/regions/r/instanceTemplates/t"}}),
    ],
)
def test_the_schema_accepts(platform: dict[str, Any]) -> None:
    SCHEMA.validate(config(platform))


@pytest.mark.parametrize(
    "platform",
    [
        {},
        raw(typo=1),
        raw(project="p"),
        raw({"s": {"topology": "4x4"}}),
        raw({"s": V6E | {"generation": "v6e"}}),
        raw({"s": V6E | {"machine_type": "ct6e"}}),
        raw({"s": V6E | {"count": 0}}),
        raw({"s": V6E | {"capacity": []}}),
        raw({"s": V6E | {"capacity": "reservation"}}),
        raw({"s": V6E | {"capacity": {"model": "spot", "name": "r"}}}),
        raw({"S": V6E}),
        raw(zone="us-east5"),
        raw(cluster={"version": "latest"}),
        raw(network={"kind": "existing"}),
        raw(cluster={"kind": "eks"}),
        raw(cluster=SELF_MANAGED | {"version": "1.34"}),
        raw(cluster=SELF_MANAGED | {"release_channel": "RAPID"}),
        raw(cluster=SELF_MANAGED | {"control_plane": {"replicas": 2}}),
        raw(cluster={"kind": "existing"}),
        raw(cluster=EXISTING | {"join_secret": "join"}),
        raw(cluster=EXISTING | {"provides": ["cert-manager"]}),
        raw(cluster=SELF_MANAGED | {"provides": ["jobset"]}),
        raw({"s": V6E | {"instance_template": "t"}}),
    ],
)
def test_the_schema_refuses(platform: dict[str, Any]) -> None:
    assert not SCHEMA.is_valid(config(platform))


@pytest.mark.parametrize("model", list(models()), ids=lambda model: model.__name__)
def test_every_key_says_what_it_is_for(model: type[BaseModel]) -> None:
    described = field_descriptions(model)
    inline = {key for key, field in model.model_fields.items() if field.description}
    assert set(model.model_fields) - {"project"} <= set(described) | inline


@pytest.mark.parametrize("model", list(models()), ids=lambda model: model.__name__)
def test_the_schema_takes_nothing_where_the_program_does(model: type[BaseModel]) -> None:
    """C10 of the fuzzer's findings: `network.project: null` was refused by editors and taken by the program."""
    properties = SCHEMA.schema["$defs"][title(model)]["properties"]
    for key in properties:
        property_ = Draft202012Validator({"$defs": SCHEMA.schema["$defs"], "allOf": [properties[key]]})
        assert property_.is_valid(None) == (type(None) in get_args(model.model_fields[key].annotation)), key


@pytest.mark.parametrize(
    "machine", [each for each in MACHINES.values() if few_shapes(each)], ids=lambda each: each.name
)
def test_the_schema_knows_the_topologies_of_a_machine_type(machine: Machine) -> None:
    for dims in topology.shapes(machine.generation)[:20]:
        spec = {"machine_type": machine.name, "topology": topology.render(dims)}
        platform = raw({"s": spec}, zone=machine.generation.zones[0])
        refused = [error for error in errors(platform) if error.path == below("slices.s.topology")]
        fits = SCHEMA.is_valid({"config": {"gcp:project": "my-project", "tpu-platform:platform": platform}})
        assert fits == (not refused), spec


def test_a_key_without_a_value_is_no_second_shape() -> None:
    SCHEMA.validate(config(raw({"s": V6E | {"generation": None, "chips": None}})))
    assert not SCHEMA.is_valid(config(raw({"s": {"machine_type": None, "topology": "4x4"}})))
