"""The form of a case: a platform that breaks a rule, what is said, and the way out."""

from typing import Any, NamedTuple

from tests.platforms import ZONES

V6E: dict[str, Any] = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}


class Case(NamedTuple):
    """`wrong` and `right` are the slice `s` and settings of the platform; `path` lies below the platform."""

    rule: str
    wrong: tuple[dict[str, Any], dict[str, Any]]
    path: str
    message: str
    hint: str
    right: tuple[dict[str, Any], dict[str, Any]]


def at(generation: str, **platform: Any) -> dict[str, Any]:
    return {"zone": ZONES[generation], **platform}
