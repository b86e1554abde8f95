"""What the pages tell people to type and to expect, read from their text; and a shell in which it is typed."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^( *)```console\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
PROMPT = "$ "
ELLIPSIS = "..."
NOTHING = "/dev/null"
DURATION = re.compile(r"\d+(?:\.\d+)?(?= (?:s|min|h|days?)\b)")
LOOK_EVERY_SECONDS = 0.05
# Becomes bash. Whoever started the tests in the background has made all of them deaf to Ctrl-C.
HEARS_CTRL_C = """\
import os, signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp("bash", ["bash", "--noprofile", "--norc"])
"""


@dataclass(frozen=True)
class Command:
    """A command of a page, as it is written, and the lines that the page shows of its output."""

    page: str
    text: str
    output: tuple[str, ...]

    @property
    def words(self) -> str:
        """The text with one space between words; names the command in messages and tables."""
        return " ".join(self.text.split())

    @property
    def bare(self) -> str:
        """The command's words without the comment: what makes two commands the same."""
        return shlex.join(shlex.split(self.text.replace("\\\n", " "), comments=True))

    def ends_with(self, code: int) -> bool:
        """Whether the page says so at the begin of the comment: `fails`, `refused` or `exit code 1`; else it is 0."""
        if said := re.search(r"\s#\s+exit code (\d+)\b", self.text):
            return code == int(said[1])
        return (code != 0) == (re.search(r"\s#\s+(?:fails|refused)\b", self.text) is not None)

    def missing(self, printed: str) -> str | None:
        """The first line of the page that is not in what was printed, in the page's order.

        What varies: what `...` stands for, and how many seconds, minutes, hours and days something took or will take.
        """
        lines = iter(line.rstrip() for line in printed.splitlines())
        for line in self.output:
            pattern = re.compile(as_pattern(line))
            if line.strip() not in ("", ELLIPSIS) and not any(pattern.fullmatch(each) for each in lines):
                return line
        return None


def as_pattern(line: str) -> str:
    parts = line.rstrip().split(ELLIPSIS)
    return ".*".join(r"\d+(?:\.\d+)?".join(map(re.escape, DURATION.split(part))) for part in parts)


def commands(page: str) -> Iterator[Command]:
    """The commands of a page's ```console blocks, in its order."""
    for _, block in BLOCK.findall((ROOT / page).read_text()):
        lines = textwrap.dedent(block).splitlines()
        while lines:
            text = lines.pop(0)
            assert text.startswith(PROMPT), f"{page}: a block begins without a command: {text}"
            text = text.removeprefix(PROMPT)
            while lines and goes_on(text):
                text += "\n" + lines.pop(0)
            output = []
            while lines and not lines[0].startswith(PROMPT):
                output.append(lines.pop(0))
            yield Command(page, text, tuple(output))


def goes_on(text: str) -> bool:
    """Whether the next line belongs to the command."""
    if text.endswith("\\"):
        return True
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return False


@dataclass(frozen=True)
class Answer:
    """How a command has ended, and what it has printed."""

    code: int
    printed: str


class Shell:
    """One bash, in which commands are typed one after another: what one exports or activates holds for the next."""

    def __init__(self, folder: Path, scratch: Path, environment: Mapping[str, str], seconds: float) -> None:
        self._scratch = scratch
        self._seconds = seconds
        self._bash = subprocess.Popen(
            [sys.executable, "-c", HEARS_CTRL_C], cwd=folder, env=dict(environment), stdin=subprocess.PIPE, text=True
        )
        self._number = 0

    def run(self, text: str, stdin: str = NOTHING, interrupt: Callable[[str], bool] | None = None) -> Answer:
        """Type a command, and wait for its end. Where what it has printed satisfies `interrupt`, Ctrl-C is pressed.

        Raises AssertionError if it does not end.
        """
        self._number += 1
        typed, printed, code = (self._scratch / f"{self._number}.{kind}" for kind in ("typed", "printed", "code"))
        typed.write_text(text)
        line = f'eval "$(<{typed})" <{stdin} >{printed} 2>&1; echo $? >{code}.part; mv {code}.part {code}\n'
        assert self._bash.stdin
        self._bash.stdin.write(line)
        self._bash.stdin.flush()
        deadline = time.monotonic() + self._seconds
        while not code.exists():
            said = printed.read_text(errors="replace") if printed.exists() else ""
            assert self._bash.poll() is None, f"{text}\nended the shell\n{said}"
            assert time.monotonic() < deadline, f"{text}\nhas not ended after {self._seconds:.0f} s\n{said}"
            if interrupt and interrupt(said):
                interrupt = None
                for child in psutil.Process(self._bash.pid).children():
                    child.send_signal(signal.SIGINT)
            time.sleep(LOOK_EVERY_SECONDS)
        return Answer(int(code.read_text()), printed.read_text(errors="replace"))

    def close(self) -> None:
        """Leaves nothing behind, whatever a command that has not ended has started."""
        family = [*psutil.Process(self._bash.pid).children(recursive=True)] if self._bash.poll() is None else []
        self._bash.kill()
        for each in family:
            if each.is_running():
                each.kill()
        self._bash.wait()
