"""`init`: what is missing or wrong is said at once, and what is written has no errors."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from catalogue.generations import GENERATIONS, MACHINES_BY_GENERATION
from plan.capacity import CAPACITY_MODELS
from plan.platform import Platform
from platform_config import engine_yaml
from rules.load import load_stack_file
from tools.__main__ import app
from tools.init import run
from tools.init.questions import BY_KEY, QUESTIONS

ROOT = Path(__file__).parents[2]
SCHEMA = Draft202012Validator(json.loads((ROOT / "schema" / "platform.schema.json").read_text()))
SOUND = {
    "project": "my-project",
    "zone": "us-east5-b",
    "machine": "v6e",
    "size": "4x4",
    "capacity": "spot",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `init` writes."""
    monkeypatch.setattr(run, "ROOT", tmp_path)
    return tmp_path


def init(*arguments: object, typed: str = "", stack: str = "prod") -> Any:
    environment = {"COLUMNS": "300", "TERM": "dumb"}
    return CliRunner().invoke(app, ["init", stack, *map(str, arguments)], input=typed, env=environment)


def options(answers: dict[str, str]) -> list[str]:
    return [part for key, answer in answers.items() for part in (BY_KEY[key].option, answer)]


def written(folder: Path, **changed: str) -> Platform:
    """The platform that `init` writes for sound answers with changes."""
    made = init("--overwrite", *options(SOUND | changed))
    assert made.exit_code == 0, made.output
    return load_stack_file(folder / "Pulumi.prod.yaml")


def problems(**answers: str) -> dict[str, str]:
    """What is wrong, by question."""
    refused = init("--json", *options(answers))
    assert refused.exit_code == 1, refused.output
    return {each["answer"]: f"{each['message']} -> {each['hint']}" for each in json.loads(refused.stdout)["errors"]}


def test_what_is_written_is_protected_and_explained_at_once(folder: Path) -> None:
    made = init(*options(SOUND | {"size": "16", "count": "3", "teams": "ml, vision"}))
    assert made.exit_code == 0, made.output
    path = folder / "Pulumi.prod.yaml"
    platform = load_stack_file(path)
    assert platform.protect
    assert (platform.name, platform.project, platform.zone) == ("tpu-prod", "my-project", "us-east5-b")
    plan = platform.slice_plans[0]
    assert (plan.machine.name, plan.topology, plan.count, plan.capacity) == ("ct6e-standard-4t", "4x4", 3, "spot")
    assert {name: queue.slices for name, queue in platform.queues.items()} == {
        "ml": {"train": 2},
        "vision": {"train": 1},
    }
    explained = CliRunner().invoke(app, ["explain", "-f", str(path)])
    assert explained.exit_code == 0, explained.output
    for command in ("explain -s prod", "pulumi stack init prod", "preflight -s prod", "pulumi up -s prod"):
        assert command in made.output
    assert path.read_text().count("#") > 10


def test_every_generation_and_capacity_on_both_back_ends_is_written_or_refused_with_a_way_out(folder: Path) -> None:
    """The file has no errors, whatever was asked for: what cannot be is refused before it is written."""
    taken = set()
    largest = [machines[-1] for machines in MACHINES_BY_GENERATION.values()]
    for machine, capacity, kind in itertools.product(largest, CAPACITY_MODELS, ("gke", "self-managed")):
        answers = SOUND | {"zone": machine.generation.zones[0], "machine": machine.name, "size": machine.topology}
        answers |= {"capacity": capacity, "kind": kind}
        answers |= {"reservation": "my-res"} if capacity == "reservation" else {}
        made = init("--overwrite", *options(answers))
        if made.exit_code == 0:
            platform = load_stack_file(folder / "Pulumi.prod.yaml")
            assert (platform.slice_plans[0].machine, platform.cluster.kind) == (machine, kind)
            SCHEMA.validate(yaml.safe_load((folder / "Pulumi.prod.yaml").read_text()))
            taken.add((kind, machine.generation.name))
        else:
            assert made.exit_code == 1
            assert "-> " in made.output
    assert {kind: {name for where, name in taken if where == kind} for kind in ("gke", "self-managed")} == {
        "gke": set(GENERATIONS),
        "self-managed": {"v5p", "v6e", "tpu7x"},
    }


def test_all_that_is_missing_is_named_at_once(folder: Path) -> None:
    missing = problems()
    assert list(missing) == ["project", "zone", "machine", "size", "capacity"]
    assert "us-east5-b" in missing["zone"]
    assert "--machine, one of ct4p-hightpu-4t" in missing["machine"]
    assert not list(folder.iterdir())


def test_what_is_offered_fits_the_other_answers(folder: Path) -> None:
    assert problems(machine="v4")["zone"].endswith("one of us-central2-b")
    assert "ct6e-standard-4t" in (offered := problems(zone="us-east5-b")["machine"])
    assert "tpu7x" not in offered
    assert "ct5lp" not in problems(kind="self-managed")["machine"]
    assert "queued" not in problems(kind="self-managed")["capacity"]


@pytest.mark.parametrize(
    ("changed", "question", "says"),
    [
        ({"project": "My Project"}, "project", "the id, not the display name"),
        ({"kind": "eks"}, "kind", "one of gke, self-managed"),
        ({"zone": "us-eest5-b"}, "zone", "write us-east5-b, or give --allow-unlisted-zone"),
        ({"zone": "us-east5"}, "zone", "write us-east5-a or us-east5-b"),
        ({"machine": "trillium"}, "machine", "did you mean v6e?"),
        ({"machine": "ct6e-standrd-4t"}, "machine", "did you mean ct6e-standard-4t?"),
        ({"machine": "v5p-8"}, "machine", "two readings"),
        ({"machine": "v5p", "size": "2x2x1"}, "machine", "use a zone among us-central1-a, us-east5-a"),
        ({"size": "3x5"}, "size", "for example"),
        ({"size": "15"}, "size", "write 2x4 (8 chips) or 4x4 (16 chips)"),
        ({"machine": "v6e", "size": "2x4"}, "size", "write machine_type: ct6e-standard-4t or ct6e-standard-8t"),
        ({"machine": "v5p", "zone": "us-east5-a", "size": "256"}, "size", "topologies of v5p have 256 chips"),
        ({"machine": "ct6e-standard-1t", "size": "16"}, "size", "no topology of ct6e-standard-1t has 16 chips"),
        ({"count": "0"}, "count", "write 1 or more"),
        ({"count": "two"}, "count", "a whole number"),
        ({"count": "9" * 5000}, "count", "a whole number"),
        ({"size": "9" * 5000}, "size", "for example 4x4"),
        ({"project": ""}, "project", "is empty -> give --project a value"),  # as of a variable that is not set
        ({"teams": " "}, "teams", "is empty"),
        ({"count": "500"}, "count", "begin with less; then set cluster.system_pool.machine_type in the file"),
        ({"capacity": "sport"}, "capacity", "did you mean spot?"),
        ({"capacity": "reservation"}, "reservation", "give --reservation"),
        ({"capacity": "reservation", "reservation": "projects/p/x"}, "reservation", "the bare name"),
        ({"reservation": "my-res"}, "capacity", "leave its name out"),
        ({"kind": "self-managed", "capacity": "queued"}, "capacity", "use flex-start"),
        ({"teams": "Big Team"}, "teams", "write big"),
        ({"teams": "kube-system"}, "teams", "belongs to the system"),
        ({"teams": ","}, "teams", "name at least one"),
        ({"name": "TPU_Prod"}, "name", "write tpu-prod"),
    ],
    ids=str,
)
def test_each_wrong_answer(folder: Path, changed: dict[str, str], question: str, says: str) -> None:
    found = problems(**(SOUND | changed))
    assert says in found[question], found
    assert list(found) == [question]
    assert not list(folder.iterdir())


def test_everything_wrong_is_said_at_once(folder: Path) -> None:
    found = problems(project="x", zone="us-eest5-b", machine="v7", count="0", capacity="sport", teams="A", name="1")
    assert list(found) == ["project", "zone", "machine", "size", "count", "capacity", "teams", "name"]


def test_an_unlisted_zone_can_be_taken(folder: Path) -> None:
    made = init("--allow-unlisted-zone", *options(SOUND | {"zone": "us-west8-b"}))
    assert made.exit_code == 0, made.output
    assert load_stack_file(folder / "Pulumi.prod.yaml").zone == "us-west8-b"


def test_names_that_yaml_takes_for_something_else_are_quoted(folder: Path) -> None:
    platform = written(folder, teams="null,true,yes", capacity="reservation", reservation="false")
    assert list(platform.teams) == ["null", "true", "yes"]


def test_answers_from_a_file(folder: Path, tmp_path: Path) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text(yaml.safe_dump(SOUND | {"count": 2, "teams": ["ml", "vision"], "zone": "us-east5"}))
    assert "write us-east5-a or us-east5-b" in init("--answers", answers).output
    made = init("--answers", answers, "--zone", "us-east5-b", "--json")
    assert made.exit_code == 0, made.output
    said = json.loads(made.stdout)
    assert said["written"] == "Pulumi.prod.yaml"
    assert said["next"][1] == "pulumi stack init prod"
    assert list(load_stack_file(folder / "Pulumi.prod.yaml").queues) == ["ml", "vision"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("zoen: us-east5-b", "zoen: did you mean zone?"),
        ("[", "cannot be read"),
        ("3", "has no answers"),
        ("teams: {ml: {}}", "no plain answer for teams"),
        ("teams: [[ml]]", "no plain answer for teams"),
    ],
)
def test_bad_answers_files_are_wrong_usage(folder: Path, tmp_path: Path, text: str, says: str) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text(text)
    refused = init("--answers", answers)
    assert refused.exit_code == 2
    assert says in " ".join(refused.output.replace("│", " ").split())


def test_a_platform_is_not_overwritten_without_being_told(folder: Path) -> None:
    path = folder / "Pulumi.prod.yaml"
    written(folder)
    before = path.read_text()
    refused = init(*options(SOUND | {"zone": "us-east5-a"}))
    assert refused.exit_code == 2
    assert "Pulumi.prod.yaml has a platform already; --overwrite replaces it" in refused.output
    assert path.read_text() == before
    assert written(folder, zone="us-east5-a").zone == "us-east5-a"


OTHER = "config:\n  gcp:project: {project}\n  tpu-platform:platform: {{name: tpu-prod, zone: us-east5-b}}\n"


def test_the_name_of_another_stack_file_in_the_same_project_is_taken(folder: Path) -> None:
    """Google would refuse the second network of that name, in the middle of an update."""
    (folder / "Pulumi.old.yaml").write_text(OTHER.format(project="my-project"))
    assert "the platform of Pulumi.old.yaml" in problems(**SOUND)["name"]
    assert written(folder, name="tpu-new").name == "tpu-new"
    (folder / "Pulumi.old.yaml").write_text(OTHER.format(project="another-project"))
    assert written(folder).name == "tpu-prod"


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("config:\n  tpu-platform:platfrom: {zone: us-east5-b}\n", 2, "has tpu-platform:platfrom already"),
        ("config:\n  tpu-platform:config:platform: {zone: us-east5-b}\n", 2, "has a platform already"),
        ("config:\n  platform: {zone: us-east5-b}\n", 2, "has a platform already"),
        ("config:\n  tpu-platform:zone: {a: b}\n", 2, "has tpu-platform:zone already"),
        ("confg:\n  tpu-platform:platform: {zone: us-east5-b}\n", 2, "did you mean config:?"),
        ("tpu-platform:platform: {zone: us-east5-b}\n", 2, "write config: above"),
        ("config: [a]\n", 2, "has no config: mapping"),
        ("- a\n", 2, "has no config: mapping"),
    ],
)
def test_what_somebody_wrote_is_not_lost(folder: Path, text: str, code: int, says: str) -> None:
    """Also where a misspelt key hides it from the program."""
    path = folder / "Pulumi.prod.yaml"
    path.write_text(text)
    refused = init(*options(SOUND))
    assert refused.exit_code == code
    assert says in refused.output
    assert path.read_text() == text


def test_other_settings_keep_their_values(folder: Path) -> None:
    """Text that YAML 1.1 and the engine's YAML tell apart from numbers by different rules stays text."""
    path = folder / "Pulumi.prod.yaml"
    kept = {"a:x": "1e3", "a:y": "0o10", "a:z": "010", "a:t": "yes", "a:l": [1, "2", {"b": "1e5"}], "a:m": "x\n y\n"}
    path.write_text(f"config: {json.dumps(kept | {'a:s': {'secure': 'AAAB=='}})[:-1]}, a:n: {{1: x}}}}\n")
    before = engine_yaml.document(path.read_text())["config"]
    assert init(*options(SOUND)).exit_code == 0
    after = engine_yaml.document(path.read_text())["config"]
    assert {key: after[key] for key in before} == before
    assert [type(key) for key in after["a:n"]] == [engine_yaml.NotText]


def test_only_a_queue_that_can_borrow_says_so(folder: Path) -> None:
    """`explain` warns of a `borrow` without effect."""
    queues = written(folder, teams="ml,vision", count="1").queues
    assert {name: queue.borrow for name, queue in queues.items()} == {"ml": False, "vision": True}


def test_what_pulumi_new_wrote_becomes_a_stack_file(folder: Path) -> None:
    """`pulumi new` writes its answers as settings of the project. The salt of the stack's secrets stays."""
    path = folder / "Pulumi.prod.yaml"
    template = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["template"]["config"]
    assert {key.rpartition(":")[2] for key in template} == {*SOUND, "teams"}
    settings = {key: SOUND.get(key.rpartition(":")[2], "ml, vision") for key in template}
    settings["gcp:disableGlobalProjectWarning"] = "true"
    path.write_text(yaml.safe_dump({"encryptionsalt": "v1:abc=", "config": settings}))
    made = init()
    assert made.exit_code == 0, made.output
    assert list(load_stack_file(path).queues) == ["ml", "vision"]
    content = yaml.safe_load(path.read_text())
    assert content["encryptionsalt"] == "v1:abc="
    assert list(content["config"]) == ["gcp:project", "gcp:disableGlobalProjectWarning", "tpu-platform:platform"]


def test_answers_under_the_name_of_a_new_project_are_read(folder: Path) -> None:
    """`pulumi new -n my-tpus -c zone=...` writes them as `my-tpus:zone`."""
    (folder / "Pulumi.yaml").write_text("name: my-tpus\nruntime: python\n")
    settings = {"gcp:project" if key == "project" else f"my-tpus:{key}": answer for key, answer in SOUND.items()}
    path = folder / "Pulumi.prod.yaml"
    path.write_text(yaml.safe_dump({"config": settings | {"my-tpus:teams": "ml", "tpu-platform:teams": "research"}}))
    made = init()
    assert made.exit_code == 0, made.output
    assert list(load_stack_file(path).queues) == ["ml"]
    assert list(yaml.safe_load(path.read_text())["config"]) == ["gcp:project", "tpu-platform:platform"]


def test_what_pulumi_new_wrote_is_no_platform_yet(folder: Path) -> None:
    path = folder / "Pulumi.prod.yaml"
    path.write_text(
        "config:\n  gcp:project: my-project\n  tpu-platform:machine: v6e\n  tpu-platform:zone: us-east5-b\n"
    )
    refused = CliRunner().invoke(app, ["explain", "-f", str(path), "--json"])
    (error,) = json.loads(refused.stdout)["errors"]
    assert error["path"] == "tpu-platform:platform"
    assert error["hint"].startswith("python -m tools init STACK writes it")


@pytest.mark.parametrize("stack", ["org/prod", "pr od", "../x"])
def test_a_stack_is_a_name(folder: Path, stack: str) -> None:
    assert init(*options(SOUND), stack=stack).exit_code == 2
    assert not list(folder.iterdir())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "is_terminal", lambda: True)


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_it_asks_until_the_answer_is_sound(folder: Path) -> None:
    typed = ["my-project", "", "us-eest5-b", "us-east5-b", "trillium", "v6e", "15", "16", "2"]
    typed += ["reservation", "my-res", "ml,vision", ""]
    made = init(typed="\n".join(typed) + "\n")
    assert made.exit_code == 0, made.output
    for said in (
        "write us-east5-b",
        "did you mean v6e?",
        "4x4 (16 chips)",
        "us-east5-b: v6e",
        "4x4: 16 chips, 4 hosts",
    ):
        assert said in made.output
    platform = load_stack_file(folder / "Pulumi.prod.yaml")
    assert platform.name == "tpu-prod"
    (plan,) = platform.slice_plans
    assert (plan.topology, plan.count, plan.capacity) == ("4x4", 2, "reservation")


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_only_what_is_open_is_asked(folder: Path) -> None:
    typed = "\n".join(["", "2", "", ""]) + "\n"  # kind, count, teams, name
    made = init(*options(SOUND), typed=typed)
    assert made.exit_code == 0, made.output
    assert "Google Cloud project" not in made.output
    assert load_stack_file(folder / "Pulumi.prod.yaml").slice_plans[0].count == 2


@pytest.mark.usefixtures("terminal")
def test_nothing_is_written_when_somebody_gives_up(folder: Path) -> None:
    assert init(typed="my-project\n").exit_code == 1
    assert not list(folder.iterdir())


def test_every_question_has_an_option() -> None:
    shown = CliRunner().invoke(app, ["init", "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    assert all(question.option in shown for question in QUESTIONS)


@pytest.mark.usefixtures("terminal")
def test_the_readme_leads_to_an_explained_stack_file_in_three_commands(folder: Path) -> None:
    """From a clone, with nothing activated."""
    page = (ROOT / "README.md").read_text()
    section = page[page.index("## Run it on Google Cloud") :]
    commands = [line.split("#")[0].removeprefix("$ ").strip() for line in section.splitlines() if line.startswith("$ ")]
    first = commands[: 1 + next(index for index, command in enumerate(commands) if " explain " in command)]
    assert len(first) <= 3
    install, make, explain = first
    assert install == "pulumi install"  # makes .venv
    tools = ".venv/bin/python -m tools "
    assert make == f"{tools}init prod"
    project, *of_hardware, capacity = SOUND.values()
    typed = "\n".join([project, "", *of_hardware, "", capacity, "", "", ""])
    made = init(typed=typed)
    assert made.exit_code == 0, made.output
    assert explain == f"{tools}explain -s prod"
    assert CliRunner().invoke(app, ["explain", "-f", str(folder / "Pulumi.prod.yaml")]).exit_code == 0
