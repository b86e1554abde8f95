"""ValidatingAdmissionPolicies for pods in the platform's namespaces, as plain values.

Expressions are CEL, with optional fields (`.?`), which every supported version of Kubernetes reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Match:
    """Requests that a policy checks: an API group, its resources, and the operations on them."""

    group: str
    resources: tuple[str, ...]
    operations: tuple[str, ...]
    version: str = "v1"


@dataclass(frozen=True)
class Check:
    """An expression that must be true, and the message to the person where it is not."""

    expression: str
    message: str


@dataclass(frozen=True)
class Policy:
    """Checks of requests in some namespaces, or with `elsewhere` in all others; `variables` are expressions that the
    checks share, by name."""

    name: str
    namespaces: tuple[str, ...]
    matches: tuple[Match, ...]
    checks: tuple[Check, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    elsewhere: bool = False


def one_of(values: tuple[str, ...]) -> str:
    """The values as a CEL list."""
    quoted = ", ".join(f"'{value}'" for value in values)
    return f"[{quoted}]"
