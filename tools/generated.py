"""Files that are made from the program and committed, so that editors and readers have them without running it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Generated:
    """A committed file, by its path below the repository, and what makes its text."""

    path: str
    render: Callable[[], str]

    def write(self) -> bool:
        """Brings the file up to date. Returns whether it changed."""
        if self.is_fresh():
            return False
        target = ROOT / self.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.render(), encoding="utf-8")
        return True

    def is_fresh(self) -> bool:
        target = ROOT / self.path
        return target.is_file() and target.read_text(encoding="utf-8") == self.render()
