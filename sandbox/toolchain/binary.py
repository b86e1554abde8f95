"""What the toolchain has to know about one program it can build, and which version of a Go module it pins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Binary:
    """One program to build: `module` is the folder with its go.mod, `seconds` a cold build on two cores."""

    name: str
    module: str
    package: str
    seconds: int
    ldflags: str = "-s -w"
    build_flags: tuple[str, ...] = ()


def pinned_version(folder: str, module: str) -> str:
    """The version of a Go module, without its v, that the go.mod of one of the folders beside this file requires."""
    text = (HERE / folder / "go.mod").read_text()
    [version] = re.findall(rf"^\s+{re.escape(module)} v(\S+)", text, re.MULTILINE)
    return str(version)
