"""Finds who agreed, in comments of a pull request, to losses that the gate stops.

Consent is a line `/allow STACK/NAME @COMMIT` in a comment; NAME may be a pattern, which tools/gate_consent.py reads. It
counts if
- the commit is the pull request's newest: a later one may lose something else under the same name;
- its author may write to the repository, which not every member or collaborator may;
- its author is a person who wrote no part of the pull request. GitHub finds authors by the addresses in commits, which
  anybody can choose in an unsigned commit. If it does not know one, no consent counts;
- the comment was never edited: whoever may write can edit the comments of others.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

LINE = re.compile(r"\s*/allow\s+(?P<stack>[^\s/]+)/(?P<name>\S+)(?:\s+@(?P<commit>[0-9a-f]{40}))?\s*")
MOST_COMMITS = 250
"""GitHub lists only this many commits of a pull request."""
WRITING = ("admin", "write")
"""What GitHub calls the permissions of those who may push; it calls maintainers `write` here, triagers `read`."""


class ConsentError(Exception):
    """GitHub could not be asked; the message says what failed."""


@dataclass(frozen=True)
class Comment:
    """A comment as GitHub has it; `human` is whether a person's account wrote it."""

    author: str
    human: bool
    edited: bool
    body: str


@dataclass(frozen=True)
class Consents:
    """`names`: of the resources that somebody agreed to lose; `ignored`: why other lines do not count."""

    names: tuple[str, ...]
    ignored: tuple[str, ...]


def agreed(
    comments: Iterable[Comment],
    *,
    stack: str,
    commit: str,
    authors: Iterable[str],
    may_write: Callable[[str], bool],
    doubt: str | None = None,
) -> Consents:
    """The consents in comments for a stack at a commit. `authors`: of the pull request; `doubt`: why they are not
    known, so that no consent counts."""
    names, ignored, own = [], [], {author.casefold() for author in authors}
    for comment in comments:
        for line in comment.body.splitlines():
            match = LINE.fullmatch(line)
            if not match or match["stack"] != stack:
                continue
            if reason := doubt or _objection(comment, match["commit"], commit, own, may_write):
                ignored.append(f"/allow {stack}/{match['name']} of {comment.author} does not count: {reason}")
            else:
                names.append(match["name"])
    return Consents(tuple(dict.fromkeys(names)), tuple(dict.fromkeys(ignored)))


def _objection(
    comment: Comment, named: str | None, commit: str, authors: set[str], may_write: Callable[[str], bool]
) -> str | None:
    if not comment.human:
        return "a program wrote it"
    if named is None:
        return f"it names no commit; write it again with @{commit} behind it"
    if named != commit:
        return f"it is for {named[:10]}, and the newest commit is {commit[:10]}; look again, and write it for that one"
    if comment.edited:
        return "the comment was edited; write a new one"
    if comment.author.casefold() in authors:
        return "they wrote a part of the pull request; somebody else must agree"
    if not may_write(comment.author):
        return "they may not write to this repository"
    return None


def as_json(consents: Consents) -> str:
    """`{names, ignored}`."""
    return json.dumps(asdict(consents), indent=2)


def ask(repository: str, pull_request: int, *, stack: str, commit: str) -> Consents:
    """What was agreed to in a pull request, asked of GitHub by its command line. Raises ConsentError."""
    issue, pull = f"repos/{repository}/issues/{pull_request}", f"repos/{repository}/pulls/{pull_request}"
    comments = [
        Comment(
            each["author"] or "ghost", each["type"] == "User", each["created"] != each["updated"], each["body"] or ""
        )
        for each in _lines(
            f"{issue}/comments",
            "{author: .user.login, type: .user.type, created: .created_at, updated: .updated_at, body: .body}",
        )
    ]
    commits = [*_lines(f"{pull}/commits", "[.sha, .author.login, .committer.login]")]
    authors = [
        *_lines(pull, ".user.login", many=False),
        *(name for _, *names in commits for name in names if name),
    ]

    @cache
    def may_write(author: str) -> bool:
        return (
            next(_lines(f"repos/{repository}/collaborators/{author}/permission", ".permission", many=False)) in WRITING
        )

    return agreed(
        comments,
        stack=stack,
        commit=commit,
        authors=[*map(str, authors)],
        may_write=may_write,
        doubt=_doubt(commits),
    )


def _doubt(commits: Sequence[Sequence[str | None]]) -> str | None:
    """Why nobody can tell who wrote these commits: each its hash, its author and its committer."""
    if len(commits) >= MOST_COMMITS:
        return f"GitHub lists no more than {MOST_COMMITS} commits of a pull request; split it, or squash commits"
    for sha, *names in commits:
        if not all(names):
            return (
                f"the address in commit {str(sha)[:10]} belongs to no account of GitHub, so anybody may have written "
                "it; add the address to the account, or commit with another one"
            )
    return None


def _lines(path: str, query: str, *, many: bool = True) -> Iterator[Any]:
    """The answer's entries as the query makes them, of all pages."""
    query = f".[] | {query} | tojson" if many else f"{query} | tojson"
    yield from map(json.loads, _gh(["api", *(["--paginate"] if many else []), path, "--jq", query]).splitlines())


def _gh(arguments: Sequence[str]) -> str:
    try:
        return subprocess.run(["gh", *arguments], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise ConsentError("GitHub's command line `gh` is not installed") from None
    except subprocess.CalledProcessError as error:
        raise ConsentError(f"gh {' '.join(arguments[:3])}: {error.stderr.strip()}") from None
