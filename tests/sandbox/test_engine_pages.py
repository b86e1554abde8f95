"""The commands of README and the pages of the first month, word for word, in one sandbox with one platform.

Each command is taken from its page, in the order of the pages, and typed into one shell, in which nothing is activated
at first. It must end as the page says, and print what the page shows (`Command.missing` says what may vary). Words that
an earlier page has are typed again only if this one shows what they print, or has something done before. What cannot be
run here is listed below with the reason. An entry that no page has any more fails the test, and a command that nobody
listed is run.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sandbox.conftest import PATIENCE, PLATFORM, Project
from tests.sandbox.pages import NOTHING, ROOT, Answer, Command, Shell, commands
from tools.init.questions import QUESTIONS, as_answer

README, START, MONTH = "README.md", "docs/new-stack.md", "docs/first-month.md"
JOBS, TEAMS, QUEUES, STATUS = "docs/workloads.md", "docs/teams.md", "docs/queues.md", "docs/status.md"
CHANGE, DRILLS, RECOVER, REAL = "docs/change.md", "docs/drills.md", "docs/recover.md", "docs/real-cloud.md"
PAGES = (README, START, MONTH, "docs/preflight.md", JOBS, TEAMS, QUEUES, STATUS, DRILLS, CHANGE, RECOVER, REAL)

# By page and first words of a command: why it does not run here.
GCLOUD = "a person's login, or gcloud itself, which has no stand-in here"
NO_CONTAINER = "hosts that kwok plays run no container; test_engine_real_jobs.py has real ones"
NOT_RUN = {
    (README, "make demo"): "test_engine_demonstration.py",
    (README, "make test"): "this is a part of it",
    (README, "make check"): "CI's own command",
    (README, "make policies"): "the environment is there already, and fetching it takes a minute",
    (README, "pulumi login"): "a bucket of one's own; the state is in the sandbox",
    (README, "pulumi install"): "the sandbox's language host is older than the engine; docs/new-stack.md",
    (README, "gcloud auth"): GCLOUD,
    (JOBS, "kubectl -n research logs -f"): NO_CONTAINER,
    (JOBS, "kubectl -n research exec -it"): NO_CONTAINER,
    (TEAMS, "gcloud container clusters get-credentials"): GCLOUD,
    (TEAMS, "kubectl -n research logs -f"): NO_CONTAINER,
    (TEAMS, "printf %s"): GCLOUD,
    (QUEUES, "kubectl get pods -A -o json | jq"): "needs jq",
    (DRILLS, "pulumi up -s prod --yes & sleep 20; kill -9"): "a minute; test_engine_failures.py kills engines",
}
# What ends with Ctrl-C, once it has printed this.
ENDED_BY_HAND = {
    (STATUS, "python -m tools status -s prod --watch"): "queues",
    (DRILLS, "python -m sandbox fault api-away"): "do not answer",
}
# Words in capitals that a person fills in, and the command that prints what to write.
A_NODE = "kubectl get nodes -l cloud.google.com/gke-nodepool=train-2 -o name | head -n 1 | cut -d / -f 2"
FILLED_IN = {
    (JOBS, "WORKLOAD"): "kubectl -n research get workloads -o name | head -n 1 | cut -d / -f 2",
    (QUEUES, "NAME"): "echo research",
    (DRILLS, "NODE"): A_NODE,
    (DRILLS, "URN"): "pulumi stack -s prod --show-urns | grep -o 'urn:.*::slices-train-3$'",
    (CHANGE, "NODE"): A_NODE,
}
HOSTS = 16  # of the reservation: one slice more than the stack file of new-stack.md has


class Reader:
    """What a person does between the commands: the pages say it in words."""

    def __init__(self, project: Project, shell: Shell) -> None:
        self.project, self.shell = project, shell
        self.file = project.folder / "Pulumi.prod.yaml"
        self.made: str | None = None

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        content = yaml.safe_load(self.file.read_text())
        change(content["config"][PLATFORM])
        self.file.write_text(yaml.safe_dump(content, sort_keys=False))

    def makes_a_stack_file(self, make: Callable[[], Answer]) -> Answer:
        """Where there is none yet. However it is made, it is the same; the one that is there already stays."""
        edited = self.file.read_text() if self.file.exists() else None
        self.file.unlink(missing_ok=True)
        answer = make()
        if self.file.exists():
            self.made = self.made or self.file.read_text()
            assert self.file.read_text() == self.made
        if edited:
            self.file.write_text(edited)
        return answer

    def types_the_answers(self) -> str:
        """Those of the answers file, on a terminal that stays open; the platform's name is left as it is offered."""
        ours, theirs = pty.openpty()
        answers = {key: as_answer(value) for key, value in yaml.safe_load(the_answers()).items()} | {"name": ""}
        os.write(ours, "".join(f"{answers[question.key]}\n" for question in QUESTIONS).encode())
        return os.ttyname(theirs)

    def adds_priorities(self) -> None:
        """Those of README's stack file."""
        (block,) = [each for each in blocks(README) if "priorities:" in each]
        grown = yaml.safe_load(block)["config"][PLATFORM]
        self.edit(lambda platform: platform.update(priorities=grown["priorities"]))

    def submits_two_jobs(self) -> None:
        """The first holds all slices, the second waits."""
        self.begins_without_jobs()
        self.submits("first", 3)
        self.submits("second", 1)
        self.succeeds(WAITS)

    def submits_a_job(self) -> None:
        self.begins_without_jobs()
        self.submits("train", 1)

    def submits(self, name: str, slices: int) -> None:
        """A job that lasts."""
        job = f"python -m tools workload train train --queue research -s prod --name {name} --slices {slices}"
        self.succeeds(f"{job} | python -m sandbox run-for 3600 | kubectl apply -f -")
        self.succeeds(f"until kubectl -n research get workloads -o name | grep -q jobset-{name}-; do sleep 0.1; done")

    def begins_without_jobs(self) -> None:
        """With all queues open."""
        self.succeeds("kubectl delete jobsets --all -A --wait")
        self.succeeds('kubectl patch clusterqueue research --type merge -p \'{"spec":{"stopPolicy":"None"}}\'')
        self.succeeds("kubectl wait clusterqueue/research --for=condition=Active --timeout=300s")

    def has_one_slice_more(self) -> None:
        self.edit(lambda platform: platform["slices"]["train"].update(count=4))

    def unprotects_the_group(self) -> None:
        self.edit(lambda platform: platform["slices"]["train"].update(protect=False))

    def wants_one_slice_less(self) -> None:
        """The group is not protected any more, since the drill of a stockout."""
        self.edit(lambda platform: platform["slices"]["train"].update(count=3))

    def has_a_credential_of_their_own(self) -> None:
        shutil.copy(self.project.folder / "kubeconfig", self.project.folder / "my-config")

    def succeeds(self, text: str) -> Answer:
        answer = self.shell.run(text)
        assert answer.code == 0, f"{text}\n{answer.printed}"
        return answer


USED = "-o jsonpath='{.status.flavorsUsage[*].resources[*].total}'"
WAITS = (
    "until kubectl -n research get workloads -o yaml | grep -q 'insufficient unused quota' && "
    f"kubectl get clusterqueue research {USED} | grep -q 48; do sleep 0.2; done"
)
# What a person has done before a command.
BEFORE: dict[tuple[str, str], Callable[[Reader], None]] = {
    (README, "pulumi stack init prod"): Reader.adds_priorities,
    (MONTH, "python -m tools workload train train"): Reader.begins_without_jobs,
    (JOBS, "python -m tools workload train train --queue research -s prod --slices 2"): Reader.begins_without_jobs,
    (JOBS, "python -m tools why second"): Reader.submits_two_jobs,
    (JOBS, "kubectl -n research patch workload WORKLOAD"): Reader.submits_a_job,
    (TEAMS, "python -m tools workload train train"): Reader.begins_without_jobs,
    (STATUS, "python -m tools status -s prod --watch"): Reader.begins_without_jobs,
    (STATUS, "python -m tools status -s prod --kubeconfig"): Reader.has_a_credential_of_their_own,
    (DRILLS, "python -m tools workload train train"): Reader.begins_without_jobs,
    (DRILLS, "pulumi up -s prod # fails"): Reader.has_one_slice_more,
    (DRILLS, "pulumi up -s prod --replace"): Reader.unprotects_the_group,
    (CHANGE, "pulumi preview -s prod # one deletion"): Reader.wants_one_slice_less,
    (CHANGE, "pulumi up -s prod # deletes it"): Reader.wants_one_slice_less,
}


def blocks(page: str) -> list[str]:
    """The YAML of a page."""
    return re.findall(r"^```yaml\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def the_answers() -> str:
    """The answers file of docs/new-stack.md."""
    (text,) = [each for each in blocks(START) if each.startswith("# answers.yaml")]
    return text


def noted(table: dict[tuple[str, str], Any], command: Command) -> Any:
    """What a table says of a command."""
    found = [value for (page, words), value in table.items() if page == command.page and is_begun(command, words)]
    return found[0] if found else None


def is_begun(command: Command, words: str) -> bool:
    return f"{command.words} ".startswith(words)


@pytest.fixture
def shell(project: Project, tmp_path: Path) -> Iterator[Shell]:
    """A person's own shell: Pulumi and the rest of the toolchain, the system's programs, and no environment active."""
    (project.folder / "sandbox").symlink_to(ROOT / "sandbox")
    project.copy_stack("team")
    (project.folder / "answers.yaml").write_text(the_answers())
    system = [each for each in ("/usr/local/bin", "/usr/bin", "/bin") if Path(each).is_dir()]
    environment = {
        **{key: value for key, value in project.session.environment.items() if key != "VIRTUAL_ENV"},
        "PATH": os.pathsep.join([str(project.session.run.bin), *system]),
        "PULUMI_SKIP_CONFIRMATIONS": "true",  # a person says yes
        "PYTHONUNBUFFERED": "1",  # a terminal shows each line at once
        "COLUMNS": "80",
        "TERM": "dumb",
    }
    (tmp_path / "typed").mkdir()
    made = Shell(project.folder, tmp_path / "typed", environment, PATIENCE)
    yield made
    made.close()


@dataclass
class Tried:
    """What came of the commands."""

    ran: int = 0
    failures: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def test_what_is_listed_is_on_the_pages() -> None:
    """An entry of a command that no page has any more says something about nothing."""
    found = [each for page in PAGES for each in commands(page)]
    for page, words in (*NOT_RUN, *ENDED_BY_HAND, *BEFORE):
        assert any(each.page == page and is_begun(each, words) for each in found), f"{page} has no command {words}"
    for page, word in FILLED_IN:
        assert any(each.page == page and re.search(rf"\b{word}\b", each.text) for each in found), f"{page}: {word}"
    other = [page for page in PAGES if re.search(r"^ *```(?:bash|sh|shell)\b", (ROOT / page).read_text(), re.MULTILINE)]
    assert not other, "commands are written in ```console blocks, with a prompt"


def test_the_table_of_the_first_month_names_commands_that_are_tried() -> None:
    known = {each.bare.removeprefix(".venv/bin/") for page in PAGES for each in commands(page)}
    named = re.findall(r"^\| `([^`]+)` \|", (ROOT / MONTH).read_text(), re.MULTILINE)
    assert len(named) > 3
    assert {*named} - known == set()


def test_the_commands_of_the_pages_do_what_the_pages_say(project: Project, shell: Shell) -> None:
    reservation = {"project": "my-project", "zone": "us-east5-b", "name": "my-res"}
    project.call("POST", "reservations", {**reservation, "machine_type": "ct6e-standard-4t", "count": HOSTS})
    reader, tried, known = Reader(project, shell), Tried(), set[str]()
    for page in PAGES:
        before = frozenset(known)
        for command in commands(page):
            if reason := noted(NOT_RUN, command):
                tried.left_out[reason] += 1
            elif command.bare not in before or command.output or noted(BEFORE, command):
                known.add(command.bare)
                tried.ran += 1
                if failure := type_in(reader, command):
                    tried.failures.append(failure)
    reasons = "; ".join(f"{number} {reason}" for reason, number in tried.left_out.items())
    print(
        f"commands tried {tried.ran}, failures {len(tried.failures)}, not run here {tried.left_out.total()} ({reasons})"
    )
    assert not tried.failures, "\n\n".join(tried.failures)
    project.assert_clean("prod")
    reader.edit(lambda platform: platform.update(protect=False))
    project.up("prod")
    project.destroy("prod")


def type_in(reader: Reader, command: Command) -> str | None:
    """Run a command as a person would; what is wrong with how it ended, or with what it printed."""
    if prepare := noted(BEFORE, command):
        prepare(reader)
    text = filled_in(reader, command)
    by_hand = noted(ENDED_BY_HAND, command)
    makes = " tools init prod" in command.text
    typed = reader.types_the_answers() if makes and "--answers" not in command.text else NOTHING

    def type_it() -> Answer:
        return reader.shell.run(text, typed, interrupt=(lambda said: by_hand in said) if by_hand else None)

    answer = reader.makes_a_stack_file(type_it) if makes else type_it()
    as_told = by_hand in answer.printed if by_hand else command.ends_with(answer.code)
    missing = command.missing(answer.printed)
    if as_told and missing is None:
        return None
    wrong = f"did not print: {missing}" if as_told else f"ended with exit code {answer.code}"
    return f"{command.page}: {text}\n{wrong}\n{answer.printed}"


def filled_in(reader: Reader, command: Command) -> str:
    """The command's text, with what a person writes for the words in capitals."""
    text = command.text
    for (page, word), asked in FILLED_IN.items():
        if page == command.page and re.search(rf"\b{word}\b", text.partition(" #")[0]):
            value = reader.succeeds(asked).printed.strip()
            assert value, f"{page}: nothing to write for {word}"
            text = text.replace(word, value, 1)
    return text
