"""Errors of a platform, with what a person must change."""

from collections.abc import Iterable
from dataclasses import dataclass

LONGEST = 1200


@dataclass(frozen=True, order=True)
class ConfigError:
    """One thing to correct.

    `path` is its place in `Pulumi.<stack>.yaml` below `config:`, for example
    `tpu-platform:platform.slices.train.topology`; `message` says what is wrong and why, `hint` what to write instead.
    `line` is the line of the stack file, counted from 1, if it is known; of what is missing that of the mapping around.
    """

    path: str
    message: str
    hint: str = ""
    line: int | None = None

    def __post_init__(self) -> None:
        # All three contain what a person wrote, which may be a pasted file.
        for key in ("path", "message", "hint"):
            if len(text := getattr(self, key)) > LONGEST:
                object.__setattr__(self, key, f"{text[:LONGEST]}... ({len(text)} characters)")

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        lines = [f"  {where}{self.path}", f"    {self.message}"]
        return "\n".join([*lines, f"    -> {self.hint}"] if self.hint else lines)


@dataclass(frozen=True, order=True)
class ConfigWarning(ConfigError):
    """A legal but risky setting; shown, never fatal."""


class ConfigErrors(Exception):
    """All errors of one platform; `str()` is the text for a person."""

    def __init__(self, errors: Iterable[ConfigError], origin: str = "") -> None:
        self.errors = tuple(errors)
        self.origin = origin
        super().__init__(str(self))

    def __str__(self) -> str:
        count = "1 error" if len(self.errors) == 1 else f"{len(self.errors)} errors"
        where = f" of {self.origin}" if self.origin else ""
        return "\n\n".join([f"The configuration{where} has {count}:", *map(str, self.errors)])
