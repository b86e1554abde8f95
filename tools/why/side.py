"""One thing that a job must pass."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Side:
    """What was seen of it. `holds`: whether it holds the job back; `todo`: what a person must do about it; empty if it
    passes by itself."""

    name: str
    text: str
    holds: bool = False
    todo: str = ""
