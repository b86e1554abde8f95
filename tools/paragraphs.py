"""Paragraphs for a terminal: lines after the first are indented, so that the eye finds where each begins."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text


@dataclass(frozen=True)
class Paragraph:
    """`label: text`, or only the text; `indent`: of the first line, in characters. Further lines have two more."""

    text: str
    label: str = ""
    indent: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = " " * self.indent + (f"{self.label}: " if self.label else "")
        filled = textwrap.fill(
            head + self.text,
            options.max_width,
            subsequent_indent=" " * (self.indent + 2),
            break_on_hyphens=False,
        )
        line = Text(filled)
        line.stylize("bold", 0, len(head) if self.label else 0)
        yield line


def few(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return f"{', '.join(names[:most])}{f' and {more:,} more' if more > 0 else ''}"
