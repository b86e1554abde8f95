"""Edits the text of a stack file without saying what its values mean.

The engine reads YAML in a way of its own (`yes` is text, `010` is 8, an unquoted day is a time), so a file that is read
and written by another library reaches it changed. This works on the events of the parser: every value keeps its quotes,
its tag and its spelling; only comments and layout are lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

WIDE = 1 << 30  # no line is folded


@dataclass
class Node:
    """A value: its event and, of a mapping or list, what is inside and its end; keys and values stand in turn."""

    event: Any
    children: list[Node] = field(default_factory=list)
    end: Any = None

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.event, yaml.MappingStartEvent)

    @property
    def keys(self) -> list[str | None]:
        """The keys of a mapping, None for those that are no text."""
        return [getattr(child.event, "value", None) for child in self.children[::2]]

    def events(self) -> Iterator[Any]:
        yield self.event
        for child in self.children:
            yield from child.events()
        if self.end:
            yield self.end

    def remove(self, key: str) -> None:
        """Take a key out of a mapping, however often it is there."""
        pairs = zip(self.keys, self.children[::2], self.children[1::2], strict=True)
        self.children = [node for name, *pair in pairs if name != key for node in pair]

    def put(self, key: str, value: Any) -> None:
        """Set a key of a mapping to plain data."""
        self.remove(key)
        self.children += [_built(json.dumps(key)), _built(json.dumps(value))]

    def mapping(self, key: str) -> Node:
        """The mapping under a key; a new one where there is nothing."""
        if key in self.keys:
            found = self.children[2 * self.keys.index(key) + 1]
            if found.is_mapping:
                return found
            if getattr(found.event, "value", None) not in ("", "~", "null", "Null", "NULL"):
                raise ValueError(f"expected a mapping under {key}")
        self.put(key, {})
        return self.children[-1]

    def replace_secrets(self, placeholder: str) -> None:
        """Put a placeholder where a mapping has nothing but the key `secure`."""
        for index, child in enumerate(self.children):
            if child.is_mapping and child.keys == ["secure"]:
                instead = _built(json.dumps(placeholder))
                instead.event.anchor = child.event.anchor
                self.children[index] = instead
            else:
                child.replace_secrets(placeholder)

    def text(self) -> str:
        """The file's text."""
        around = yaml.StreamStartEvent(), yaml.DocumentStartEvent(), yaml.DocumentEndEvent(), yaml.StreamEndEvent()
        events = [*around[:2], *self.events(), *around[2:]]
        return str(yaml.emit(events, width=WIDE, allow_unicode=True))


def parse(text: str) -> Node:
    """The first document of a stack file, which must be a mapping or empty."""
    node: Node = _built(text) or _built("{}")
    if getattr(node.event, "value", None) in ("", "~", "null", "Null", "NULL"):
        node = _built("{}")
    if not node.is_mapping:
        kinds = {yaml.SequenceStartEvent: "list", yaml.ScalarEvent: "text"}
        raise ValueError(f"expected a mapping, found {kinds.get(type(node.event), 'something else')}")
    return node


def _built(text: str) -> Any:
    """The tree of the first document of a text; None of an empty one."""
    stack = [Node(None)]
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.DocumentEndEvent):
            break
        if isinstance(event, yaml.CollectionEndEvent):
            stack.pop().end = event
        elif isinstance(event, yaml.NodeEvent):
            stack[-1].children.append(Node(event))
            if isinstance(event, yaml.CollectionStartEvent):
                event.flow_style = False  # where 10:00 and 2026-12-01T10:00:00Z need no quotes
                stack.append(stack[-1].children[-1])
    return stack[0].children[0] if stack[0].children else None
