"""The base of every configuration model, and the field types they share."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError


class Model(BaseModel):
    """Frozen, and closed: an unknown key is an error, never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def refusal(message: str, hint: str) -> PydanticCustomError:
    """An error for a validator to raise: what is wrong with the value, and what to write instead."""
    return PydanticCustomError("refused", "{message}", {"message": message, "hint": hint})


def matching(pattern: str, what: str, hint: str) -> Callable[[str], str]:
    """Validator for text of a given form; `what` names the form in the message."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise refusal(f"{value!r} is not {what}", hint)
        return value

    return check


def text(pattern: str, what: str, hint: str) -> Any:
    """Metadata of a text field: the check, and the same pattern for the JSON Schema."""
    return (AfterValidator(matching(pattern, what, hint)), Field(json_schema_extra={"pattern": f"^(?:{pattern})$"}))


_NAME_CHECK, _NAME_SCHEMA = text(
    "[a-z]([a-z0-9-]*[a-z0-9])?",
    "a name of lower-case letters, digits and hyphens that starts with a letter and ends with a letter or digit",
    "for example train-large",
)
Name = Annotated[str, _NAME_CHECK, _NAME_SCHEMA]
"""Lower-case letters, digits and hyphens, starting with a letter: what Google Cloud and Kubernetes both accept."""

# Numbers and switches are taken as they stand: `count: true` or `count: "2"` is a slip, not a number.
Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=0)]
Positive = Annotated[int, Field(strict=True, ge=1)]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _seconds(value: object) -> str:
    """`7d`, `36h`, `90m` and `3600s` as the whole seconds that Google's APIs speak: `604800s`."""
    match = re.fullmatch(r"([1-9][0-9]*)([smhd])", value) if isinstance(value, str) else None
    if match is None:
        raise refusal(f"{value!r} is not a duration", "a whole number with its unit: 90m, 36h, 7d or 3600s")
    return f"{int(match[1]) * _UNITS[match[2]]}s"


Duration = Annotated[str, BeforeValidator(_seconds), Field(json_schema_extra={"pattern": "^[1-9][0-9]*[smhd]$"})]
"""A duration, kept as whole seconds with the unit (`86400s`)."""


def _utc(value: object) -> str:
    """A moment as `2026-01-03T02:00:00Z`: GKE answers in UTC, so any other form would differ in every plan."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime) and (value.tzinfo is None or value.utcoffset()):
            raise ValueError
        if isinstance(value, datetime):
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise ValueError
    except ValueError:
        raise refusal(f"{value!s} is not a moment in UTC", "write it with a Z: 2026-01-03T02:00:00Z") from None


UtcTime = Annotated[str, BeforeValidator(_utc), Field(json_schema_extra={"format": "date-time", "pattern": "Z$"})]
"""A moment in UTC, kept as `2026-01-03T02:00:00Z`."""


def _day(value: object) -> str:
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError:
        raise refusal(f"{value!s} is not a day", "write it as 2026-11-21") from None


Day = Annotated[str, BeforeValidator(_day), Field(json_schema_extra={"format": "date"})]


def quoted(value: object) -> object:
    """YAML reads `1.30` as the number 1.3: a version must arrive as text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise refusal(f"{value} is a number here, which loses trailing zeros", 'quote it: "1.35"')
    return value


_VERSION_CHECK, _VERSION_SCHEMA = text(
    r"1\.[0-9]{2}(\.[0-9]+(-gke\.[0-9]+)?)?", "a GKE version", 'for example "1.35", "1.35.2" or "1.35.2-gke.1842000"'
)
Version = Annotated[str, BeforeValidator(quoted), _VERSION_CHECK, _VERSION_SCHEMA]

_ZONE_CHECK, _ZONE_SCHEMA = text(
    "[a-z]+-[a-z]+[0-9]+-[a-z]{1,2}[0-9]*[a-z]?", "a zone", "for example us-east5-b; the region follows from it"
)
Zone = Annotated[str, _ZONE_CHECK, _ZONE_SCHEMA]
"""A zone of Google Cloud."""

_KMS_CHECK, _KMS_SCHEMA = text(
    "projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+",
    "the full name of a Cloud KMS key",
    "projects/PROJECT/locations/REGION/keyRings/RING/cryptoKeys/KEY",
)
KmsKey = Annotated[str, _KMS_CHECK, _KMS_SCHEMA]

Labels = dict[str, str]
