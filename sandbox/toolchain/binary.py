"""What the toolchain has to know about one program it can build."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Binary:
    """One program to build: `module` is the folder with its go.mod, `seconds` a cold build on two cores."""

    name: str
    module: str
    package: str
    seconds: int
    ldflags: str = "-s -w"
    build_flags: tuple[str, ...] = ()
