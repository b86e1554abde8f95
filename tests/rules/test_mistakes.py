"""Twenty typical mistakes: one round of errors, each with its line, leads to a right file."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from platform_config.errors import ConfigError, ConfigErrors
from platform_config.lines import lines_if_same
from platform_config.reading import keys_meant
from rules.load import load_configuration, load_stack_file

RIGHT = """\
# yaml-language-server: $schema=schema/platform.schema.json
config:
  gcp:project: my-project
  tpu-platform:platform:
    name: tpu-prod
    zone: us-east5-b  # known for v6e
    protect: true
    cluster:
      security_group: gke-security-groups@example.com
      release_channel: STABLE
    network: {kind: create, nodes_cidr: 10.0.0.0/20}
    slices:
      train: {machine_type: ct6e-standard-4t,
        topology: 4x4,
        count: 2,
        capacity: {model: reservation, name: my-res}}
      batch:
        machine_type: ct6e-standard-4t
        topology: 2x4
        capacity: {model: flex-start, max_run_duration: 7d}
      serve:
        machine_type: ct6e-standard-1t
        topology: 1x1
        capacity: spot
        devices: dra
    teams:
      vision:
        members: [group:vision@example.com, user:eva@example.com]
      audio: {members: [serviceAccount:ci@p.iam.gserviceaccount.com]}
    queues:
      research: {namespaces: [vision], slices: {train: 2}}
      serving: {namespaces: [team-s], slices: {serve: 1}}
    priorities:
      low: 100
      high: 1000
"""


class Mistake(NamedTuple):
    """`wrong` is in one line of the file instead of `right`; the hint of its error says `says`, which is in `right`."""

    right: str
    wrong: str
    says: str


MISTAKES = [
    Mistake("gcp:project: my-project", "gcp:projects: my-project", "gcp:project"),
    Mistake("tpu-platform:platform:", "tpu-platform:platforms:", "tpu-platform:platform"),
    Mistake("name: tpu-prod", "name: TPU_Prod", "tpu-prod"),
    Mistake("zone: us-east5-b", "zone: us-east5", "us-east5-b"),
    Mistake("zone: us-east5-b", "zones: us-east5-b", "zone: "),
    Mistake("protect: true", "protect: yes", "true"),
    Mistake("release_channel: STABLE", "release_channel: stable", "STABLE"),
    Mistake("nodes_cidr: 10.0.0.0/20", "nodes_cidr: 10.0.0.1/20", "10.0.0.0/20"),
    Mistake("train: {machine_type: ct6e-standard-4t", "train: {machine_type: ct6e-standrd-4t", "ct6e-standard-4t"),
    Mistake("topology: 4x4", "topology: 4*4", "4x4"),
    Mistake("topology: 4x4", "topology: 4x5", "4x4"),
    Mistake("topology: 2x4", "topology: 4x2", "2x4"),
    Mistake("count: 2", "num_slices: 2", "count: "),
    Mistake("{model: reservation, name: my-res}", "reservation", "{model: reservation, name: "),
    Mistake("max_run_duration: 7d", "max_run_duration: 14d", "7d"),
    Mistake("max_run_duration: 7d", "max_run_duration: 7", "7d"),
    Mistake("capacity: spot", "capacity: preemptible", "spot"),
    Mistake("devices: dra", "device: dra", "devices"),
    Mistake("group:vision@example.com, ", "vision@example.com, ", "group:vision@example.com"),
    Mistake("serviceAccount:ci@p", "user:ci@p", "serviceAccount:ci@p"),
    Mistake("slices: {train: 2}", "slices: {trian: 2}", "train"),
    Mistake("slices: {train: 2}", "slices: {train: 3}", "2 in all"),
    Mistake("namespaces: [vision]", "namespace: [vision]", "namespaces"),
    Mistake("high: 1000", 'high: "1000"', "whole number"),
]
SAID_IN_WORDS = {"2 in all", "whole number"}


def found(path: Path) -> tuple[ConfigError, ...]:
    try:
        load_stack_file(path)
    except ConfigErrors as errors:
        return errors.errors
    return ()


def line_of(text: str, part: str) -> int:
    """The line of the last line of a part."""
    assert text.count(part) == 1, part
    return text[: text.index(part) + len(part.rstrip())].count("\n") + 1


def test_the_right_file_has_no_errors(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.prod.yaml"
    path.write_text(RIGHT)
    assert found(path) == ()


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.wrong)
def test_one_round(mistake: Mistake, tmp_path: Path) -> None:
    """Its only error is in its line, and what the hint says makes the file right."""
    assert RIGHT.count(mistake.right) == 1
    path = tmp_path / "Pulumi.prod.yaml"
    path.write_text(RIGHT.replace(mistake.right, mistake.wrong))
    (error,) = found(path)
    assert error.line == line_of(path.read_text(), mistake.wrong)
    assert mistake.says in error.hint
    assert mistake.says in mistake.right or mistake.says in SAID_IN_WORDS


def test_all_mistakes_in_one_round(tmp_path: Path) -> None:
    """One file with every mistake that leaves room for the others: an error for each line, in the order of the file."""
    text = RIGHT
    made: list[Mistake] = []
    for mistake in MISTAKES:
        if text.count(mistake.right) == 1:
            text = text.replace(mistake.right, mistake.wrong)
            made.append(mistake)
    assert len(made) >= 18
    path = tmp_path / "Pulumi.prod.yaml"
    path.write_text(text)
    errors = found(path)
    assert [error.line for error in errors] == sorted(line_of(text, mistake.wrong) for mistake in made)
    for mistake in made:
        assert [error for error in errors if mistake.says in error.hint], mistake


def test_what_cannot_be_known_is_not_guessed(tmp_path: Path) -> None:
    """Rules that need what is malformed say nothing; all others speak in the same round."""
    path = tmp_path / "Pulumi.prod.yaml"
    text = RIGHT.replace("topology: 4x4", "topology: 44").replace("count: 2", "count: two")
    text = text.replace("{train: 2}", "{train: 9}").replace("{serve: 1}", "{serve: 2}")
    path.write_text(text)
    assert [(error.line, error.path.rpartition("platform.")[2]) for error in found(path)] == [
        (line_of(text, "topology: 44"), "slices.train.topology"),
        (line_of(text, "count: two"), "slices.train.count"),
        (line_of(text, "{serve: 2}"), "queues.serving.slices.serve"),
    ]


def test_lines_follow_anchors_and_merged_keys(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.prod.yaml"
    path.write_text(
        "config:\n"
        "  gcp:project: my-project\n"
        "  platform:\n"
        "    zone: us-east5-b\n"
        "    labels: &l\n"
        "      Team: a\n"
        "    slices:\n"
        "      a: &a\n"
        "        machine_type: ct6e-standard-1t\n"
        "        topology: 1x2\n"
        "        resource_labels: *l\n"
        "      b: {<<: *a, topology: 1x1}\n"
    )
    assert {(error.line, error.path.rpartition("platform.")[2]) for error in found(path)} == {
        (6, "labels.Team"),
        (6, "slices.a.resource_labels.Team"),
        (6, "slices.b.resource_labels.Team"),
        (10, "slices.a.topology"),
    }


def given_to_the_program(text: str) -> dict[str, str]:
    """The configuration of a stack file as the engine passes it on: mappings as JSON, keys sorted."""
    config = yaml.safe_load(text)["config"]
    return {
        key: value if isinstance(value, str) else json.dumps(value, sort_keys=True) for key, value in config.items()
    }


def lines_in_a_program(path: Path, text: str) -> list[int | None]:
    """The lines of the errors of a program that was given `text`, where the stack's own file is `path`."""
    config = given_to_the_program(text)
    keys = keys_meant(config)
    with pytest.raises(ConfigErrors) as refused:
        load_configuration(config, stack="prod", lines=lambda: lines_if_same(path, config, keys))
    return [error.line for error in refused.value.errors]


def test_a_program_knows_the_lines_only_of_the_file_that_it_was_given(tmp_path: Path) -> None:
    wrong = RIGHT.replace("topology: 4x4", "topology: 4*4")
    path = tmp_path / "Pulumi.prod.yaml"
    path.write_text(wrong)
    assert lines_in_a_program(path, wrong) == [line_of(wrong, "topology: 4*4")]
    path.write_text("# one line more\n" + RIGHT)  # `--config-file` names another file
    assert lines_in_a_program(path, wrong) == [None]
    path.unlink()
    assert lines_in_a_program(path, wrong) == [None]
    path.write_text("config: [")
    assert lines_in_a_program(path, wrong) == [None]


def test_a_program_names_the_line_of_a_misspelt_platform(tmp_path: Path) -> None:
    wrong = RIGHT.replace("tpu-platform:platform:", "tpu-platform:platfrom:").replace("zone: us-east5-b", "zone: x")
    path = tmp_path / "Pulumi.prod.yaml"
    path.write_text(wrong)
    assert lines_in_a_program(path, wrong) == [4, 6]


def test_a_setting_beside_the_platform_is_not_silently_ignored(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.prod.yaml"
    path.write_text(RIGHT.replace("  gcp:project", "  tpu-platform:protect: false\n  gcp:project"))
    (error,) = found(path)
    assert (error.line, error.path) == (3, "tpu-platform:protect")
    assert error.hint == "write protect: below tpu-platform:platform:"


@pytest.mark.parametrize(("key", "hint"), [("confg", "did you mean config:?"), ("zone", "write config: above zone:")])
def test_a_file_without_config_says_so(key: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.prod.yaml"
    path.write_text(f"{key}: {{}}\n")
    (error,) = found(path)
    assert hint in error.hint


def test_an_encrypted_value_does_not_hide_other_errors(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.prod.yaml"
    wrong = RIGHT.replace("gcp:project: my-project", "gcp:project: {secure: AAAB}")
    wrong = wrong.replace("release_channel: STABLE", "release_channel: {secure: AAAB}").replace("2x4", "2x5")
    path.write_text(wrong)
    errors = found(path)
    assert [error.line for error in errors] == [3, 10, line_of(wrong, "topology: 2x5")]
    assert ["encrypted" in error.message for error in errors] == [True, True, False]
    path.write_text(RIGHT.replace("protect: true", "labels: {secure: AAAB}"))
    assert [error.path for error in found(path)] == ["tpu-platform:platform.labels"]
