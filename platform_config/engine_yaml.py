"""Reads YAML as Pulumi's engine does: from one document to the configuration that a program gets.

The engine reads stack files with Go's yaml.v3, which is neither YAML 1.1 nor the core schema of 1.2: `yes` is text,
`010` and `0o10` are 8, `1e1` is 10, and an unquoted day becomes the text of a Go time. PyYAML parses the syntax, since
it is based on libyaml, as yaml.v3 is. The meaning of values follows yaml.v3's `resolve.go` and `decode.go`, Pulumi's
second reading (`sdk/go/common/workspace/loaders.go`), and Go's JSON. A test compares it with the engine.

It is stricter in three ways: it refuses deep nesting, large files, and keys that become the same text.
"""

import base64
import binascii
import math
import re
from calendar import monthrange
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import yaml

from platform_config.fields import MOST_LEVELS, MOST_VALUES

# libyaml where it is installed: it reads a thousand slices in 0.1 s, the parser in Python in 1 s.
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MERGE = "<<"
STANDARD = "tag:yaml.org,2002:"
BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
NULLS = ("", "~", "null", "Null", "NULL")
NOT_NUMBERS = re.compile(r"\.(nan|NaN|NAN)|[-+]?\.(inf|Inf|INF)")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
INTEGER = re.compile(
    r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|(?P<octal>0[oO]?[0-7]+)|0|(?P<decimal>[1-9][0-9]*))", re.ASCII
)
TIME = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:(?P<by>[Tt ])([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:[.,]([0-9]+))?(?P<zone>Z|[-+][0-9]{2}:[0-9]{2})?)?"
)
MOST_DIGITS = 30
"""More digits than any 64-bit integer has."""


class NotText(str):
    """A key that is not text in YAML, such as a number, in the form that Go prints."""


class Refused(Exception):
    """The engine would not read the file, or the file is too large: why, what to write, and where."""

    def __init__(self, message: str, hint: str, mark: Any = None) -> None:
        self.message = message + (f" in line {mark.line + 1}, column {mark.column + 1}" if mark else "")
        self.hint = hint
        super().__init__(self.message)


class _Node(NamedTuple):
    """A value that was read. yaml.v3 compares keys by `kind` and `written`. `size`, `depth`: of the values in it."""

    kind: str
    written: str
    value: Any
    mark: Any
    size: int = 1
    depth: int = 0


@dataclass
class _Open:
    """A collection that is not complete yet."""

    event: Any
    children: list[_Node] = field(default_factory=list)
    size: int = 1
    depth: int = 0

    def add(self, node: _Node) -> None:
        self.children.append(node)
        self.size += node.size
        self.depth = max(self.depth, node.depth + 1)
        if self.size > MOST_VALUES:
            raise Refused(
                f"has more than {MOST_VALUES:,} values, aliases written out", "write a smaller file", node.mark
            )


def document(text: str) -> Any:
    """The first document of a text, as the engine passes it to a program; None if empty. Raises Refused."""
    try:
        return _first_document(text)
    except yaml.MarkedYAMLError as error:
        where = error.problem_mark or error.context_mark
        problem = error.problem or error.context
        raise Refused(f"is not YAML: {problem}", "check indentation, quotes and brackets there", where) from None
    except yaml.YAMLError as error:
        raise Refused(f"is not YAML: {str(error).splitlines()[0]}", "check the file for unusual characters") from None


def _first_document(text: str) -> Any:
    anchors: dict[str, _Node | None] = {}
    stack = [_Open(None)]
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.ScalarEvent):
            node, anchor = _scalar(event), event.anchor
        elif isinstance(event, yaml.AliasEvent):
            node, anchor = _alias(event, anchors), None
        elif isinstance(event, yaml.CollectionStartEvent):
            anchors |= {event.anchor: None} if event.anchor else {}
            stack.append(_Open(event))
            continue
        elif isinstance(event, yaml.CollectionEndEvent):
            opened = stack.pop()
            node, anchor = _closed(opened), opened.event.anchor
        elif isinstance(event, yaml.DocumentEndEvent):
            break
        else:
            continue
        if len(stack) + node.depth > MOST_LEVELS:
            raise Refused("is nested too deeply", f"write at most {MOST_LEVELS} levels", node.mark)
        stack[-1].add(node)
        if anchor:
            anchors[anchor] = node
    return stack[0].children[0].value if stack[0].children else None


def _alias(event: Any, anchors: dict[str, _Node | None]) -> _Node:
    if event.anchor not in anchors:
        raise Refused(f"has no anchor &{event.anchor}", "write the anchor before the alias", event.start_mark)
    node = anchors[event.anchor]
    if node is None:
        raise Refused(
            f"has the anchor &{event.anchor} within itself", "write the value out, without the alias", event.start_mark
        )
    return node._replace(kind="alias", written=event.anchor, mark=event.start_mark)


def _closed(opened: _Open) -> _Node:
    """The value of a collection that is complete."""
    value: Any
    if isinstance(opened.event, yaml.SequenceStartEvent):
        kind, value = "sequence", [child.value for child in opened.children]
    else:
        kind, value = "mapping", _mapping(opened.children)
    return _Node(kind, "", value, opened.event.start_mark, opened.size, opened.depth)


def _mapping(children: list[_Node]) -> dict[str, Any]:
    """A mapping from alternating keys and values. It refuses a key written twice, since one value would be lost."""
    pairs = list(zip(children[::2], children[1::2], strict=True))
    seen: set[tuple[str, str]] = set()
    own: dict[str, Any] = {}
    for key, value in pairs:
        if isinstance(key.value, dict | list):
            raise Refused(
                "has a list or mapping where a key belongs",
                "a template such as {{ zone }} must be filled in, or quoted",
                key.mark,
            )
        name = key.value if isinstance(key.value, str) else NotText(_key_text(key.value))
        if (key.kind, key.written) in seen or name in own:
            raise Refused(f"is not possible: {_short(name)} is there twice", "keep one of the two", key.mark)
        seen.add((key.kind, key.written))
        if name != MERGE:
            own[name] = value.value
    for key, value in pairs:
        if key.value == MERGE:  # also a quoted key: Pulumi's second reading sees no quotes
            for source in _merge_sources(value):
                own = {**source, **own}
    return own


def _merge_sources(node: _Node) -> list[dict[str, Any]]:
    """The mappings that `<<` merges; earlier ones have priority."""
    sources = [node.value] if isinstance(node.value, dict) else node.value
    if node.kind == "scalar" or (node.kind == "alias" and isinstance(node.value, list)):
        sources = None
    if not isinstance(sources, list) or not all(isinstance(source, dict) for source in sources):
        raise Refused("merges (<<) what is not a mapping", "merge a mapping, or a list of mappings", node.mark)
    return sources


def _key_text(value: Any) -> str:
    """A key as text, as Go prints it."""
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."


def _scalar(event: Any) -> _Node:
    tag, written = event.tag or "", event.value
    plain = not event.style
    return _Node("scalar", written, _value(tag, written, plain, event.start_mark), event.start_mark)


def _value(tag: str, written: str, plain: bool, mark: Any) -> Any:
    """The value of a scalar, by its tag if it has one of YAML's own."""
    if tag in ("", "!"):
        return _resolved(written, mark) if plain else written
    kind = tag.removeprefix(STANDARD)
    if kind == "binary":
        return _decoded(written, mark)
    if kind not in ("int", "float", "bool", "null", "timestamp"):
        return written
    value = go_time(written) if kind == "timestamp" else _resolved(written, mark, times=False)
    fits = {
        "int": _integer(written.replace("_", "")) is not None,
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "bool": isinstance(value, bool),
        "null": value is None,
        "timestamp": value is not None,
    }
    if not fits[kind]:
        raise Refused(f"is not YAML: {_short(written)!r} is not a !!{kind}", "leave the tag out", mark)
    return value


def _decoded(written: str, mark: Any) -> str:
    try:
        return base64.b64decode(re.sub(r"[\r\n]", "", written), validate=True).decode(errors="replace")
    except binascii.Error:
        raise Refused("is not YAML: !!binary without valid base64", "write the text itself", mark) from None


def _resolved(written: str, mark: Any, times: bool = True) -> Any:
    """The value of an unquoted scalar."""
    if written in BOOLS:
        return BOOLS[written]
    if written in NULLS:
        return None
    if NOT_NUMBERS.fullmatch(written):
        raise Refused(f"has {written}, which JSON cannot say", "write a number", mark)
    if written[0] not in "+-.0123456789":
        return written
    time = go_time(written) if times else None
    number = _number(written) if time is None else None
    return next((meaning for meaning in (time, number) if meaning is not None), written)


def _number(written: str) -> int | float | None:
    """A number after Go's JSON: an integer if it has no fraction, and rounded beyond 64 bits."""
    digits = written if written[0] == "." else written.replace("_", "")
    value = _integer(digits)
    if value is not None:
        return value if value < 2**63 else _rounded(str(value))
    return _rounded(digits) if FLOAT.fullmatch(digits) else None


def _integer(digits: str) -> int | None:
    """A 64-bit integer, in Go's notations."""
    match = INTEGER.fullmatch(digits)
    if match is None or (match["decimal"] and len(digits) > MOST_DIGITS):
        return None
    value = int(digits, 8 if match["octal"] else 0)
    return value if -(2**63) <= value < 2**64 else None


def _rounded(digits: str) -> int | float | None:
    value = float(digits)
    if math.isinf(value):
        return None
    return int(Decimal(repr(value))) if abs(value) < 1e21 and value.is_integer() else value


def go_time(written: str) -> str | None:
    """The text that Go makes of a day or moment; None if it is neither."""
    match = TIME.fullmatch(written)
    if match is None or (match["by"] is not None and (match["by"] == " ") == (match["zone"] is not None)):
        return None
    year, month, day = (int(match[index]) for index in (1, 2, 3))
    hour, minute, second = (int(match[index] or 0) for index in (5, 6, 7))
    # Python has no year 0; the calendar repeats after 400 years.
    if not 1 <= month <= 12 or not 1 <= day <= monthrange(year % 400 + 400, month)[1]:
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    fraction = (match[8] or "")[:9].rstrip("0")
    zone = _zone(match["zone"] or "Z")
    if zone is None:
        return None
    moment = f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"
    return f"{moment}{'.' + fraction if fraction else ''} {zone}"


def _zone(written: str) -> str | None:
    """`+0200 +0200`: Go prints the offset twice, because it has a name only for offset 0."""
    if written == "Z" or re.fullmatch(r"[-+]00:00", written):
        return "+0000 UTC"
    hours, minutes = int(written[1:3]), int(written[4:])
    offset = written.replace(":", "")
    return f"{offset} {offset}" if hours <= 24 and minutes < 60 else None
