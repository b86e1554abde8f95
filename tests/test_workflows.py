"""The workflows for GitHub Actions: what their linters say, whom they let in, and what their scripts do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox import toolchain

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
ACTIONS = sorted((GITHUB / "actions").glob("*/action.yml"))
PIN = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
POOL = "urn:pulumi:prod::tpu-platform::gcp:container/nodePool:NodePool::slices-train-{}"
SUMMARIES = {"dev": "### Stack `dev`: passes\n", "prod": "### Stack `prod`: stopped\n"}

# What the scripts call. GitHub's command line answers with a file of the test's, and writes down how it was called; it
# does not apply `--jq`. The engine does as it is told.
STAND_INS = {
    "gh": """echo "$@" >> "$CALLS"
case "$*" in
  *--method*) cp comment.md posted.md ;;
  *collaborators/*) name=${*#*collaborators/}; cat "roles/${name%%/*}" ;;
  *pulls/7/commits*) cat commits ;;
  *pulls/7*) cat author ;;
  *) cat "$ANSWER" ;;
esac""",
    "pulumi": 'echo "$@" >> "$CALLS"; exit "$PULUMI_CODE"',
    "make": ":",
}


def workflow(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((GITHUB / "workflows" / f"{name}.yml").read_text())
    return found


def steps(part: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = part["steps"]
    return found


def action(name: str) -> list[dict[str, Any]]:
    return steps(yaml.safe_load((GITHUB / "actions" / name / "action.yml").read_text())["runs"])


def script(steps: list[dict[str, Any]], name: str) -> str:
    [found] = [step["run"] for step in steps if step.get("name") == name]
    return str(found)


def lint(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.sandbox
def test_actionlint_finds_nothing() -> None:
    """With shellcheck, for the scripts in them."""
    programs = toolchain.ensure(["actionlint"])
    lint(programs["actionlint"], "-shellcheck", Path(sys.executable).parent / "shellcheck", *WORKFLOWS)


def test_zizmor_finds_nothing() -> None:
    lint(Path(sys.executable).parent / "zizmor", "--offline", "--no-progress", "--persona=auditor", GITHUB)


@pytest.mark.parametrize("name", [path.parent.name for path in ACTIONS])
def test_shellcheck_finds_nothing_in_actions(name: str) -> None:
    """actionlint looks at workflows only."""
    for step in action(name):
        if "run" in step:
            command = [str(Path(sys.executable).parent / "shellcheck"), "--shell=bash", "-"]
            done = subprocess.run(command, input=step["run"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", [*WORKFLOWS, *ACTIONS], ids=lambda path: str(path.relative_to(GITHUB)))
def test_actions_of_others_are_pinned_by_commit_and_named_by_version(file: Path) -> None:
    uses = [line.strip().removeprefix("- ") for line in file.read_text().splitlines() if "uses: " in line]
    assert [line for line in uses if not line.startswith("uses: ./") and not PIN.fullmatch(line)] == []


def test_an_action_has_one_version() -> None:
    """All workflows are updated together."""
    pins = {line for file in [*WORKFLOWS, *ACTIONS] for line in PIN.findall(file.read_text())}
    assert len(pins) == len({pin.partition("@")[0] for pin in pins})
    assert pins


def test_the_command_line_has_the_version_of_the_library() -> None:
    [pulumi] = [step for step in action("setup") if step.get("uses", "").startswith("pulumi/actions@")]
    assert f"pulumi=={pulumi['with']['pulumi-version']}\n" in (ROOT / "requirements.in").read_text()


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in WORKFLOWS:
        for job in workflow(file.stem)["jobs"].values():
            yield file.stem, job


def test_only_the_protected_deployment_becomes_the_deployer() -> None:
    deploying = [(name, job) for name, job in jobs() if "GCP_DEPLOY_SERVICE_ACCOUNT" in json.dumps(job)]
    assert [name for name, _ in deploying] == ["deploy"]
    [(_, job)] = deploying
    assert job["environment"] == "${{ matrix.stack }}"
    assert job["concurrency"] == {"group": "stack-${{ matrix.stack }}", "cancel-in-progress": False}
    # YAML reads the key `on` as a truth value.
    assert workflow("deploy")[True] == {"push": {"branches": ["main"]}}


def test_unreviewed_code_becomes_the_previewer_and_only_main_the_auditor() -> None:
    """C2 of security.md: any branch's workflow could become the previewer."""
    previewing = [(name, job) for name, job in jobs() if "GCP_PREVIEW_SERVICE_ACCOUNT" in json.dumps(job)]
    assert [(name, job["environment"]) for name, job in previewing] == [("pull-request", "preview")]
    auditing = [name for name, job in jobs() if "GCP_AUDIT_SERVICE_ACCOUNT" in json.dumps(job)]
    assert auditing == ["drift"]
    assert workflow("drift")[True].keys() == {"schedule", "workflow_dispatch"}
    page = (ROOT / "docs" / "ci.md").read_text()
    for account, subject in {"previewer": "environment:preview", "auditor": "ref:refs/heads/main"}.items():
        [binding] = re.findall(rf"add-iam-policy-binding tpu-{account}@.*\n.*", page)
        assert f'--member "principal://$POOL/subject/repo:$REPO:{subject}"' in binding
    assert "principalSet" not in page, "that would let in every workflow"


def test_no_job_holds_more_than_its_own_permissions() -> None:
    for name, job in jobs():
        assert workflow(name)["permissions"] == {}
        assert job["permissions"]
        if job["permissions"].get("pull-requests") == "write" or "issues" in job["permissions"]:
            assert not any("checkout" in step.get("uses", "") for step in steps(job)), (
                "no code of the branch runs there"
            )


def run(source: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step's script as GitHub does, with stand-ins for the programs that it calls."""
    programs = folder / "bin"
    programs.mkdir()
    for name, body in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    given = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "CALLS": str(folder / "calls"),
        "ANSWER": str(folder / "answer"),
        "GITHUB_REPOSITORY": "owner/repo",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_RUN_ID": "1",
        "GITHUB_SHA": "abc",
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_STEP_SUMMARY": str(folder / "step-summary.md"),
        "PULL_REQUEST": "7",
        "RUNNER_TEMP": str(folder),
        "PYTHONPATH": str(ROOT),
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", source]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **given, **variables}, capture_output=True, text=True, check=False
    )


COMMITS: tuple[list[str | None], ...] = (["c" * 40, "author", "web-flow"], ["d" * 40, "helper", "helper"])
"""Hash, author and committer."""


def prepare_gate(folder: Path, lost: int) -> None:
    """What the gate's step finds: a preview that deletes so many pools, and the program's environment."""
    steps = [{"op": "delete", "urn": POOL.format(index), "oldState": {"custom": True}} for index in range(lost)]
    (folder / "preview.json").write_text(json.dumps({"steps": steps, "changeSummary": {"delete": lost}}))
    (folder / ".venv").symlink_to(sys.prefix)


def answer_about_the_pull_request(
    folder: Path, comments: list[dict[str, Any]], commits: Sequence[list[str | None]] = COMMITS
) -> None:
    """What GitHub says: an author, whom somebody helped, and what each who commented may do."""
    (folder / "answer").write_text("".join(f"{json.dumps(each)}\n" for each in comments))
    (folder / "author").write_text('"author"\n')
    (folder / "commits").write_text("".join(f"{json.dumps(each)}\n" for each in commits))
    (folder / "roles").mkdir()
    for name, may in {"reviewer": "write", "maintainer": "admin", "member": "none", "reader": "read"}.items():
        (folder / "roles" / name).write_text(f"{json.dumps(may)}\n")


HEAD, OLD = "a" * 40, "b" * 40
BOTH = [f"/allow prod/slices-train-{index} @{HEAD}" for index in range(2)]


def comment(*lines: str, by: str = "reviewer", edited: bool = False, kind: str = "User") -> dict[str, Any]:
    """A comment, in the words that tools/consent.py asks GitHub for."""
    updated = "2026-01-02T00:00:00Z" if edited else "2026-01-01T00:00:00Z"
    return {
        "author": by,
        "type": kind,
        "created": "2026-01-01T00:00:00Z",
        "updated": updated,
        "body": "\r\n".join(lines),
    }


@pytest.mark.parametrize(
    ("comments", "code", "said"),
    [
        ([], 1, ""),
        ([comment(BOTH[0])], 1, ""),
        ([comment("Looks good, but:", *BOTH)], 0, ""),
        ([comment(BOTH[0]), comment(f"  /allow   prod/slices-train-1   @{HEAD} ", by="maintainer")], 0, ""),
        ([comment(BOTH[0], BOTH[1].replace("prod/", "dev/"))], 1, ""),
        ([comment(*BOTH, by="member")], 1, "they may not write to this repository"),
        ([comment(*BOTH, by="reader")], 1, "they may not write to this repository"),
        ([comment(*BOTH, by="Author")], 1, "somebody else must agree"),
        ([comment(*BOTH, by="helper")], 1, "somebody else must agree"),
        ([comment(*BOTH, edited=True)], 1, "the comment was edited"),
        ([comment(*BOTH, by="github-actions[bot]", kind="Bot")], 1, "a program wrote it"),
        ([comment(*(line.replace(HEAD, OLD) for line in BOTH))], 1, "the newest commit is aaaaaaaaaa"),
        ([comment(*(line.partition(" @")[0] for line in BOTH))], 1, "it names no commit"),
        ([comment(*(line.replace(HEAD, HEAD[:12]) for line in BOTH))], 1, ""),
        ([comment(f"do not {BOTH[0]}", f"{BOTH[1]} yet", f"> {BOTH[1]}")], 1, ""),
        ([comment(*(f"/allow prod/{POOL.format(index)} @{HEAD}" for index in range(2)))], 0, ""),
        ([comment(f"/allow prod/slices-train-9 @{HEAD}")], 1, ""),
        ([comment(*BOTH, f"/allow prod/slices-train-9 @{HEAD}")], 0, ""),
        ([comment(f"/allow prod/slices-train-*(2) @{HEAD}")], 0, ""),
        ([comment(f"/allow prod/slices-train-* @{HEAD}")], 1, ""),
        ([comment(f"/allow prod/slices-train-*(1) @{HEAD}")], 1, ""),
        ([comment(f"/allow prod/* @{HEAD}")], 1, ""),
        ([comment(f"/allow prod/slices-train-*(2) @{HEAD}", by="Author")], 1, "somebody else must agree"),
        ([comment(f"/allow prod/$(touch${{IFS}}broken) @{HEAD}")], 1, ""),
        ([comment(f"/allow prod/--help @{HEAD}")], 1, ""),
    ],
)
def test_comments_of_others_who_may_write_are_consent(
    comments: list[dict[str, Any]], code: int, said: str, tmp_path: Path
) -> None:
    """M1 of security.md: members without the right to write, the author, and comments on older commits counted."""
    prepare_gate(tmp_path, lost=2)
    answer_about_the_pull_request(tmp_path, comments)
    (tmp_path / "summary.md").write_text("no verdict\n")
    gate = script(action("gate"), "Gate")
    done = run(gate, tmp_path, STACK="prod", COMMIT=HEAD)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stderr
    summary = (tmp_path / "step-summary.md").read_text()
    assert "Stack `prod`" in summary
    offered = [line for line in summary.splitlines() if line.startswith("/allow ")]
    both, one = f"/allow prod/slices-train-*(2) @{HEAD}", f"/allow prod/slices-train-1 @{HEAD}"
    assert offered in ([[both], [one]] if code else [[]]), "ready to be copied"
    assert not (tmp_path / "broken").exists()


@pytest.mark.parametrize(
    ("commits", "said"),
    [
        ([["c" * 40, None, "helper"]], "the address in commit cccccccccc belongs to no account"),
        ([["c" * 40, "author", None]], "the address in commit cccccccccc belongs to no account"),
        ([["c" * 40, "author", "author"]] * 250, "no more than 250 commits"),
        ([["c" * 40, "author", "author"]] * 249, ""),
    ],
    ids=["author", "committer", "250", "249"],
)
def test_nobody_consents_where_the_authors_are_not_known(
    commits: list[list[str | None]], said: str, tmp_path: Path
) -> None:
    """Commits of unknown addresses counted as nobody's, and those after the first 250 were not asked for."""
    prepare_gate(tmp_path, lost=2)
    answer_about_the_pull_request(tmp_path, [comment(*BOTH)], commits)
    done = run(script(action("gate"), "Gate"), tmp_path, STACK="prod", COMMIT=HEAD)
    assert done.returncode == (1 if said else 0), done.stdout + done.stderr
    assert said in done.stderr


def test_a_deployment_that_failed_half_way_runs_again(tmp_path: Path) -> None:
    """Consent to what the first run has already deleted made the gate of the second one fail."""
    prepare_gate(tmp_path, lost=1)
    answer_about_the_pull_request(tmp_path, [comment(*BOTH)])
    done = run(script(action("gate"), "Gate"), tmp_path, STACK="prod", COMMIT=HEAD)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "consent to slices-train-1 names nothing that this preview gives up" in done.stdout


def test_a_gate_that_cannot_ask_github_does_not_pass(tmp_path: Path) -> None:
    prepare_gate(tmp_path, lost=0)
    done = run(script(action("gate"), "Gate"), tmp_path, STACK="prod", COMMIT=HEAD)
    assert done.returncode == 2
    assert "error: gh api" in done.stderr


def test_without_a_pull_request_nobody_has_consented(tmp_path: Path) -> None:
    prepare_gate(tmp_path, lost=1)
    gate = script(action("gate"), "Gate")
    assert run(gate, tmp_path, STACK="prod", PULL_REQUEST="").returncode == 1
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize("code", [0, 1])
def test_a_refusal_of_the_policy_pack_is_in_the_summary(code: int, tmp_path: Path) -> None:
    (tmp_path / "summary.md").write_text("### Stack `prod`: passes\n")
    done = run(script(action("gate"), "Preview for people"), tmp_path, STACK="prod", PULUMI_CODE=str(code))
    assert done.returncode == code
    assert ("policy pack fails" in (tmp_path / "summary.md").read_text()) is bool(code)
    assert "preview --stack prod --diff --policy-pack policies" in (tmp_path / "calls").read_text()


def test_a_preview_that_fails_leaves_no_verdict_of_its_own(tmp_path: Path) -> None:
    done = run(script(action("gate"), "Preview for the gate"), tmp_path, STACK="prod", PULUMI_CODE="255")
    assert done.returncode == 255
    assert (tmp_path / "summary.md").read_text() == "### Stack `prod`: no verdict, see the log\n"


@pytest.mark.parametrize(("number", "commit"), [("7", HEAD), ("", "")], ids=["merged", "pushed"])
def test_a_deployment_finds_the_pull_request_of_its_commit(number: str, commit: str, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(f"{number} {commit}\n" if number else "")
    done = run(script(steps(workflow("deploy")["jobs"]["up"]), "Find the merged pull request"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "calls").read_text().startswith("api repos/owner/repo/commits/abc/pulls ")
    assert (tmp_path / "output").read_text() == f"pull-request={number}\ncommit={commit}\n"


@pytest.mark.parametrize(
    ("existing", "call"),
    [("", "POST repos/owner/repo/issues/7/comments"), ("41\n42\n", "PATCH repos/owner/repo/issues/comments/41")],
)
def test_there_is_one_comment_and_it_is_kept_up_to_date(existing: str, call: str, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(existing)
    for stack, summary in SUMMARIES.items():
        folder = tmp_path / "summaries" / f"summary-{stack}"
        folder.mkdir(parents=True)
        (folder / "summary.md").write_text(summary)
    comment = script(steps(workflow("pull-request")["jobs"]["comment"]), "Write the comment, or bring it up to date")
    done = run(comment, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "calls").read_text().splitlines()[-1] == f"api --silent --method {call} --field body=@comment.md"
    posted = (tmp_path / "posted.md").read_text()
    assert posted.startswith("<!-- tpu-platform preview -->\nWritten by this branch's own code. ")
    assert all(summary in posted for summary in SUMMARIES.values())


@pytest.mark.parametrize(("existing", "call"), [("", "issue create"), ("5\n", "issue comment 5")])
def test_drift_has_one_open_issue(existing: str, call: str, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(existing)
    report = script(steps(workflow("drift")["jobs"]["report"]), "Open an issue, or add to the open one")
    done = run(report, tmp_path, TITLE="Drift")
    assert done.returncode == 0, done.stderr
    listed, acted, *body = (tmp_path / "calls").read_text().splitlines()
    assert listed.startswith("issue list")
    assert acted.startswith(call)
    assert body == ["https://github.com/owner/repo/actions/runs/1"]
