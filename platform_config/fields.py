"""The base class of configuration models, and the field types that they share."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from catalogue.generations import KNOWN_ZONES


class UnknownValueError(Exception):
    """A value that a person wrote could not be read, and somebody looked at it. See `platform_config.partial`."""


class Model(BaseModel):
    """Frozen. An unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _missing(self: Model, name: str) -> Any:
    """Python asks this only for an attribute that is not there."""
    if name in type(self).model_fields:
        raise UnknownValueError(name)
    return BaseModel.__getattr__(self, name)  # type: ignore[attr-defined]


Model.__getattr__ = _missing  # type: ignore[attr-defined]  # a method of the class would make mypy accept any attribute


class Unread:
    """In place of a model that could not be read at all."""

    def __getattr__(self, name: str) -> Any:
        raise UnknownValueError(name)


_LONGEST_SHOWN = 80

MOST_LEVELS = 64
"""Most levels of nested mappings and lists in a configuration."""

MOST_VALUES = 100_000
"""Most values in a configuration; a platform of a thousand slices has about ten thousand."""


def refusal(message: str, hint: str) -> PydanticCustomError:
    """An error for a validator to raise: what is wrong with the value, and what to write instead."""
    return PydanticCustomError("refused", "{message}", {"message": message, "hint": hint})


def shown(value: object) -> str:
    """A value as it was written, short enough for a message."""
    if isinstance(value, dict | list):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > _LONGEST_SHOWN:
        return "a number of many digits"
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"


Nearest = Callable[[str], str | None]
"""From a value that is refused to what to write, if that can be told."""


def matching(pattern: str, what: str, hint: str, nearest: Nearest = lambda _: None) -> Callable[[str], str]:
    """Validator for text of a given form; `what` names the form in the message."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            instead = nearest(value)
            raise refusal(f"{shown(value)} is not {what}", f"write {instead}" if instead else hint)
        return value

    return check


def text(pattern: str, what: str, hint: str, nearest: Nearest = lambda _: None) -> Any:
    """Metadata of a text field: the check, and the same pattern for the JSON Schema."""
    check = AfterValidator(matching(pattern, what, hint, nearest))
    return (check, Field(json_schema_extra={"pattern": f"^(?:{pattern})$"}))


NAME = "[a-z]([a-z0-9-]{0,61}[a-z0-9])?"


def near_name(value: str) -> str | None:
    """A value as a name, if little is wrong with it."""
    name = re.sub(r"[^a-z0-9]+", "-", value[:_LONGEST_SHOWN].lower()).strip("-")
    return name if re.fullmatch(NAME, name) else None


_NAME_CHECK, _NAME_SCHEMA = text(
    NAME,
    "a name of lower-case letters, digits and hyphens that starts with a letter and ends with a letter or digit",
    "for example train-large, at most 63 characters",
    near_name,
)
Name = Annotated[str, _NAME_CHECK, _NAME_SCHEMA]
"""Lower-case letters, digits and hyphens, starting with a letter: valid in Google Cloud and in Kubernetes."""

PROJECT = "[a-z0-9]([a-z0-9.:-]{0,61}[a-z0-9])?"
_PROJECT_CHECK, _PROJECT_SCHEMA = text(PROJECT, "a project", "a project's id, for example my-project, or its number")
Project = Annotated[str, _PROJECT_CHECK, _PROJECT_SCHEMA]
"""A project of Google Cloud, by its id or number."""

# Numbers and Booleans are strict: `count: true` or `count: "2"` is a mistake, not a number.
Flag = Annotated[bool, Field(strict=True)]
INT32 = 2**31 - 1
"""The largest whole number of most fields of Google's and Kubernetes' APIs."""
Count = Annotated[int, Field(strict=True, ge=0, le=INT32)]
Positive = Annotated[int, Field(strict=True, ge=1, le=INT32)]
DiskSize = Annotated[int, Field(strict=True, ge=10, le=65_536)]
"""Size of a boot disk in GB, within Compute Engine's limits."""

_DURATION = "([1-9][0-9]{0,9})([smhd])"
LONGEST_SECONDS = 10 * 365 * 86400
"""The longest duration; Google's own limit is 315,576,000,000 seconds."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration_seconds(value: object) -> int | None:
    """Seconds of `7d`, `36h`, `90m` or `3600s`; None if it is no duration."""
    match = re.fullmatch(_DURATION, value) if isinstance(value, str) else None
    return int(match[1]) * _UNITS[match[2]] if match else None


def duration_shown(duration: str) -> str:
    """A duration in whole seconds (`1209600s`), as a person writes it: `14d`."""
    seconds = int(duration.removesuffix("s"))
    unit = next(unit for unit in ("d", "h", "m", "s") if seconds % _UNITS[unit] == 0)
    return f"{seconds // _UNITS[unit]}{unit}"


def _seconds(value: object) -> str:
    """A duration in whole seconds, as Google's APIs need: `604800s`."""
    seconds = duration_seconds(value)
    if seconds is None:
        raise refusal(f"{shown(value)} is not a duration", "a whole number with its unit: 90m, 36h, 7d or 3600s")
    if seconds > LONGEST_SECONDS:
        raise refusal(f"{value} is longer than ten years", "a shorter time, or leave it out")
    return f"{seconds}s"


DURATION_SCHEMA = Field(json_schema_extra={"pattern": f"^{_DURATION}$"})
Duration = Annotated[str, BeforeValidator(_seconds), DURATION_SCHEMA]
"""A duration, kept as whole seconds with the unit (`86400s`)."""


_EARLIEST = 2000
_MOMENT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|\+00:00| \+0000 UTC)"
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}( 00:00:00 \+0000 UTC)?"
_GO_UTC = " +0000 UTC"
"""Pulumi passes on an unquoted day or moment as Go prints it, and writes that form when it edits the file."""


def _utc(value: object) -> str:
    """A moment as `2026-01-03T02:00:00Z`: GKE answers in UTC, so any other form would differ in every preview."""
    try:
        if not isinstance(value, str) or not re.fullmatch(_MOMENT, value):
            raise ValueError
        moment = datetime.fromisoformat(value.replace(_GO_UTC, "Z"))
    except ValueError:
        raise refusal(f"{shown(value)} is not a moment in UTC", "write it with a Z: 2026-01-03T02:00:00Z") from None
    if moment.year < _EARLIEST:
        raise refusal(f"{value} is before the year {_EARLIEST}", "write the year in four digits")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


UtcTime = Annotated[str, BeforeValidator(_utc), Field(json_schema_extra={"pattern": f"^{_MOMENT}$"})]
"""A moment in UTC, kept as `2026-01-03T02:00:00Z`."""


def _day(value: object) -> str:
    try:
        if not isinstance(value, str) or not re.fullmatch(_DAY, value):
            raise ValueError
        day = date.fromisoformat(value[:10])
    except ValueError:
        raise refusal(f"{shown(value)} is not a day", "write it as 2026-11-21") from None
    if day.year < _EARLIEST:
        raise refusal(f"{value} is before the year {_EARLIEST}", "write the year in four digits")
    return day.isoformat()


Day = Annotated[str, BeforeValidator(_day), Field(json_schema_extra={"pattern": f"^{_DAY}$"})]
"""A day, kept as `2026-11-21`."""


def quoted(value: object) -> object:
    """YAML reads `1.30` as the number 1.3: a version must arrive as text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise refusal(
            f"{shown(value)} is a number here, which loses trailing zeros",
            f'write it in quotes, "{shown(value)}" if that is what was meant',
        )
    return value


_VERSION_CHECK, _VERSION_SCHEMA = text(
    r"1\.[0-9]{2}(\.[0-9]{1,4}(-gke\.[0-9]{1,9})?)?",
    "a GKE version",
    'for example "1.35", "1.35.2" or "1.35.2-gke.1842000"',
)
Version = Annotated[str, BeforeValidator(quoted), _VERSION_CHECK, _VERSION_SCHEMA]

_MACHINE_CHECK, _MACHINE_SCHEMA = text(
    "[a-z][a-z0-9]{0,15}(-[a-z0-9]{1,20}){1,4}", "a machine type", "for example n2-standard-8 or e2-medium"
)
MachineType = Annotated[str, _MACHINE_CHECK, _MACHINE_SCHEMA]
"""A machine type of Compute Engine without TPUs; whether the zone offers it, only Google knows."""


def near_zone(value: str) -> str | None:
    """The known zones of a region, or the known zone that looks most like a value."""
    lowered = value[:_LONGEST_SHOWN].lower()
    inside = sorted(zone for zone in KNOWN_ZONES if zone.startswith(f"{lowered}-"))
    return " or ".join(inside or get_close_matches(lowered, sorted(KNOWN_ZONES), 1)) or None


_ZONE_CHECK, _ZONE_SCHEMA = text(
    "[a-z]{2,20}-[a-z]{2,20}[0-9]{1,3}-[a-z]{1,2}[0-9]{0,3}[a-z]?",
    "a zone",
    "for example us-east5-b; the region follows from it",
    near_zone,
)
Zone = Annotated[str, _ZONE_CHECK, _ZONE_SCHEMA, Field(examples=sorted(KNOWN_ZONES))]
"""A zone of Google Cloud."""

_KMS_CHECK, _KMS_SCHEMA = text(
    f"projects/({PROJECT})/locations/[a-z0-9-]+/keyRings/[A-Za-z0-9_-]+/cryptoKeys/[A-Za-z0-9_-]+",
    "the full name of a Cloud KMS key",
    "projects/PROJECT/locations/REGION/keyRings/RING/cryptoKeys/KEY",
)
KmsKey = Annotated[str, _KMS_CHECK, _KMS_SCHEMA]

Amount = Annotated[float, Field(strict=True, gt=0, le=1_000_000, allow_inf_nan=False)]
"""An amount of money for a chip and an hour."""

Labels = dict[str, str]
