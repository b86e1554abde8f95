"""The output of `pulumi preview --json` as typed values, or one sentence on why a file is no such thing.

The shape is the engine's `display.PreviewDigest` (pulumi/pulumi, sdk/go/common/display). It lists the stack and what
changes, not unchanged resources, and no violations of policies.
"""

import json
import sys
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

STACK_TYPE = "pulumi:pulumi:Stack"
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""The marker in a preview for a text that is known only after the update."""


class Effect(Enum):
    """What a step means for the resource that exists now; the value is its sign in a summary."""

    NONE = ""
    CREATE = "+"
    UPDATE = "~"
    DELETE = "-"
    REPLACE = "+-"


# Every operation that the engine knows (pkg/resource/deploy/step.go); any other is refused.
EFFECTS = {
    "same": Effect.NONE,
    "read": Effect.NONE,
    "refresh": Effect.NONE,
    "diff": Effect.NONE,
    "extend-parameterize": Effect.NONE,
    "remove-pending-replace": Effect.NONE,  # forgets what an earlier update has deleted already
    "create": Effect.CREATE,
    "import": Effect.CREATE,
    "update": Effect.UPDATE,
    "delete": Effect.DELETE,
    "discard": Effect.DELETE,
    "replace": Effect.REPLACE,
    "create-replacement": Effect.REPLACE,
    "delete-replaced": Effect.REPLACE,
    "discard-replaced": Effect.REPLACE,
    "import-replacement": Effect.REPLACE,
    "read-replacement": Effect.REPLACE,
}

# Other JSON that Pulumi writes, by a key that only it has.
OTHER_FILES = {
    "deployment": "a stack export",
    "resourcePlans": "an update plan of --save-plan",
    "sequence": "an event stream; unset PULUMI_ENABLE_STREAMING_JSON_PREVIEW",
}
STANDARD_INPUT = Path("-")
EXPECTED = "expected the output of `pulumi preview --json`"


class PreviewError(Exception):
    """The file is no preview that can be judged; the message says why."""


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, frozen=True)


class State(_Part):
    """A resource before or after the update. The engine hides secrets."""

    custom: bool = False
    inputs: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    dependencies: tuple[str, ...] = ()
    deleted_with: str = ""
    retain_on_delete: bool = False


class PropertyDiff(_Part):
    """How one property changes; `kind` ends in `-replace` where the property is why the resource is replaced."""

    kind: str


class Step(_Part):
    """What happens to one resource; a replacement may be several steps of one URN."""

    op: str
    urn: str = Field(pattern="^urn:pulumi:.+::.+::.+::.+")
    old_state: State | None = None
    new_state: State | None = None
    replace_reasons: tuple[str, ...] | None = None
    detailed_diff: dict[str, PropertyDiff] | None = None

    @property
    def effect(self) -> Effect:
        return EFFECTS[self.op]

    @property
    def type(self) -> str:
        return self.urn.split("::", 3)[2].rpartition("$")[2]

    @property
    def name(self) -> str:
        """The logical name, the last part of the URN."""
        return self.urn.split("::", 3)[3]

    @property
    def is_component(self) -> bool:
        """A component has nothing in the cloud, it only holds other resources."""
        state = self.old_state or self.new_state
        return state is not None and not state.custom


class Diagnostic(_Part):
    """A message of the engine, a provider or the program."""

    message: str
    severity: str


class Preview(_Part):
    """What an update would do. `change_summary` is missing where the preview was cut short."""

    config: dict[str, str] = {}
    steps: tuple[Step, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    change_summary: dict[str, int] | None
    maybe_corrupt: bool = False

    @property
    def stack(self) -> Step | None:
        """The step of the stack itself, which is listed also when it is unchanged."""
        return next((step for step in self.steps if step.type == STACK_TYPE), None)

    @property
    def unlisted(self) -> str:
        """Operations that the summary counts although no step does anything like it; the engine lists each."""
        there = {step.effect for step in self.steps} | {Effect.NONE}
        counts = self.change_summary or {}
        return ", ".join(f"{number} x {op}" for op, number in counts.items() if number and EFFECTS.get(op) not in there)


def read(path: Path) -> Preview:
    """Read a preview, from standard input if the path is `-`; raises PreviewError for anything else."""
    try:
        text = path.read_text(encoding="utf-8") if path != STANDARD_INPUT else _standard_input()
    except (OSError, UnicodeDecodeError) as error:
        raise PreviewError(
            f"{_said(path)} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}"
        ) from None
    return _preview(text, _said(path))


def _said(path: Path) -> str:
    return "standard input" if path == STANDARD_INPUT else str(path)


def _standard_input() -> str:
    """All of it. A terminal gives no preview, and would be waited for without a word."""
    if sys.stdin is None:
        raise PreviewError(f"standard input is closed; {EXPECTED}")
    if sys.stdin.isatty():
        raise PreviewError(f"standard input is a terminal; {EXPECTED}, as in `pulumi preview --json | ... gate -`")
    return sys.stdin.buffer.read().decode("utf-8")


def _preview(text: str, path: str) -> Preview:
    """`path`: where the text is from, for messages."""
    try:
        preview = Preview.model_validate(_document(text))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise PreviewError(f"{path} is not JSON, or cut short ({error.msg}, {where}); {EXPECTED}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise PreviewError(f"{path} has an unexpected shape at {place}: {first['msg']}; {EXPECTED}") from None
    except (ValueError, RecursionError):  # numbers and nesting beyond all measure
        raise PreviewError(f"{path} holds JSON that cannot be taken in; {EXPECTED}") from None
    except PreviewError as error:
        raise PreviewError(f"{path} {error}; {EXPECTED}") from None
    strange = sorted({step.op for step in preview.steps} - EFFECTS.keys())
    if strange:
        raise PreviewError(f"{path} has operations that this gate does not know: {', '.join(strange)}")
    return preview


def _document(text: str) -> dict[str, Any]:
    if not text.strip():
        raise PreviewError("is empty: the preview said nothing on its standard output")
    # An event stream is several documents in one file, so only the first one is looked at before it is refused.
    first, end = json.JSONDecoder().raw_decode(text, len(text) - len(text.lstrip()))
    if not isinstance(first, dict):
        raise PreviewError(f"holds a JSON {type(first).__name__}, not an object")
    for key, what in OTHER_FILES.items():
        if key in first:
            raise PreviewError(f"is {what}")
    if text[end:].strip():
        raise PreviewError("has something behind the JSON document")
    if "changeSummary" not in first:
        raise PreviewError("has no changeSummary")
    return first
