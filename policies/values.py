"""Reads the properties of a planned resource. Some are not known before an update.

Properties are camelCase, as the engine sends them. A property that is not known yet is `UNKNOWN`; rules accept it,
because the update checks the resource again when the value is known.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple


class Unknown(Enum):
    """A value that only exists once its resource does. Neither true nor false, so that no rule decides by accident."""

    VALUE = "unknown"

    def __bool__(self) -> bool:
        raise TypeError("an unknown value cannot be judged; ask `known` first")

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown.VALUE

Props = Mapping[str, Any]


class Finding(NamedTuple):
    """Something to correct: the property, as a path below the resource, and what is wrong with it."""

    path: str
    message: str


def at(props: Any, path: str) -> Any:
    """The value at a dotted path such as `nodeConfig.labels`; None where there is none, UNKNOWN below an unknown value.

    Numbers pick elements of lists, as in `versions.0`.
    """
    value = props
    for part in path.split("."):
        if value is UNKNOWN:
            return UNKNOWN
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def known(value: Any) -> bool:
    """Whether there is a value, and it is known."""
    return value is not None and value is not UNKNOWN


def settled(props: Any, path: str) -> bool:
    """Whether everything at and below a path is known, so that what is missing there is really missing."""
    return _all_known(at(props, path))


def _all_known(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_all_known, value.values()))
    return all(map(_all_known, value)) if isinstance(value, list) else value is not UNKNOWN


def text(props: Any, path: str) -> str:
    """The known text at a path; empty where there is none, or it is not known yet."""
    value = at(props, path)
    return value if isinstance(value, str) else ""


def number(props: Any, path: str) -> int | None:
    """The known integer at a path; the engine sends all numbers as floats, and some APIs use text."""
    value = at(props, path)
    if isinstance(value, bool) or not known(value):
        return None
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def items(props: Any, path: str) -> list[Any]:
    """The known elements of the list at a path; empty where there is none."""
    value = at(props, path)
    return [each for each in value if each is not UNKNOWN] if isinstance(value, list) else []


def mapping(props: Any, path: str) -> Props:
    """The mapping at a path; empty where there is none, or it is not known yet."""
    value = at(props, path)
    return value if isinstance(value, Mapping) else {}


def is_set(props: Any, path: str) -> bool:
    """Whether there is a value at a path, known or not. An empty block or text counts as none."""
    value = at(props, path)
    return value is UNKNOWN or value not in (None, "", [], {}, False)


def expect(props: Any, path: str, *accepted: Any, or_unset: bool = False) -> Iterator[Finding]:
    """A finding unless the value at the path is one of `accepted`, or unknown; `or_unset`: or there is none."""
    value = at(props, path)
    if value is UNKNOWN or value in accepted or (value is None and or_unset):
        return
    wanted = " or ".join(map(shown, accepted))
    yield Finding(path, f"is {shown(value)}, and has to be {wanted}")


def refuse(props: Any, path: str, *refused: Any) -> Iterator[Finding]:
    """A finding if the value at the path is one of `refused`."""
    value = at(props, path)
    if known(value) and value in refused:
        yield Finding(path, f"must not be {shown(value)}")


def require(props: Any, path: str) -> Iterator[Finding]:
    """A finding unless there is a value at the path, known or not."""
    if not is_set(props, path):
        yield Finding(path, "is not set")


def strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every known text below a value, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        yield from _strings_below(value.items(), path)
    elif isinstance(value, list):
        yield from _strings_below(enumerate(value), path)


def _strings_below(pairs: Iterable[tuple[Any, Any]], path: str) -> Iterator[tuple[str, str]]:
    for key, value in pairs:
        yield from strings(value, f"{path}.{key}" if path else str(key))


def shown(value: Any) -> str:
    """A value for the text of a violation."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
