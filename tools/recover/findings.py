"""What can be found out about a resource that the engine began to make."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

State = Literal["absent", "present", "changing", "half-made", "again", "unknown"]
"""`changing`: Google or Kubernetes is still at work on it. `half-made`: a helm release whose installation or upgrade
did not end. `again`: making it again does no harm and changes nothing that is there. `unknown`: cannot be told, and
`why` says what prevents it."""


@dataclass(frozen=True)
class Release:
    """A helm release that was not brought to its end. `back_to`: the revision that a rollback takes; None where no
    rollback completes it, because it has hooks that run when it is installed, or helm was removing it."""

    name: str
    namespace: str
    status: str
    back_to: int | None
    seconds: int


@dataclass(frozen=True)
class Finding:
    """`id`: what `pulumi import` wants; `made`: when it was made, where that is told; `ours`: what else shows that it
    is this platform's, in words; `note`: what a person should know of it."""

    state: State
    id: str = ""
    made: datetime | None = None
    ours: str = ""
    why: str = ""
    note: str = ""
    release: Release | None = None

    @property
    def exists(self) -> bool:
        return self.state in ("present", "changing", "half-made")


Findings = Mapping[str, Finding]
"""By URN."""
