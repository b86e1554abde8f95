"""Property values as the Pulumi engine sends them over gRPC, and the Python values providers work with.

The wire form is a protobuf Struct in which special values are marked: unknowns by reserved strings, secrets, outputs,
assets, archives and resource references by objects that carry a signature key (upstream: the Go SDK's
`resource/plugin/rpc.go` and `resource/properties.go`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.struct_pb2 import ListValue, NullValue, Struct, Value

UNKNOWN_MARK: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
# The engine marks unknowns by the type they will have; a provider need not tell them apart.
UNKNOWN_MARKS: Final = frozenset(
    {
        UNKNOWN_MARK,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",  # bool
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",  # number
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",  # array
        "030794c1-ac77-496b-92df-f27374a8bd58",  # asset
        "e48ece36-62e2-4504-bad9-02848725956a",  # archive
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",  # object
    }
)
SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
SECRET: Final = "1b47061264138c4ac30d75fd1eb44270"
OUTPUT: Final = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
RESOURCE: Final = "5cf8f73096256a8f31e491e813e4eb8e"
ASSETS: Final = {"asset": "c44067f5952c0a294b673a41bacd8c17", "archive": "0def7320c3a5731c473e5ecbe6d01bc7"}


class Unknown:
    """The type of `UNKNOWN`, a value that is only known once the update has run."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()


@dataclass(frozen=True)
class Secret:
    """A value the engine encrypts in state and hides in output."""

    value: Any


@dataclass(frozen=True)
class OutputValue:
    """A value with its provenance; `value` means nothing while `known` is false."""

    value: Any = None
    known: bool = True
    secret: bool = False
    dependencies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asset:
    """An asset or archive: `kind` is `asset` or `archive`, `content` its other wire fields (hash, text, path...)."""

    kind: str
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ResourceReference:
    """A resource passed as a value. `id` is None for a component, UNKNOWN while the resource is being planned."""

    urn: str
    id: Any = None
    package_version: str = ""


def unmarshal(struct: Struct) -> dict[str, Any]:
    """A Struct as Python values; special values become the classes above."""
    return {key: _read(value) for key, value in struct.fields.items()}


def _read(value: Value) -> Any:
    match value.WhichOneof("kind"):
        case "string_value":
            return UNKNOWN if value.string_value in UNKNOWN_MARKS else value.string_value
        case "number_value":
            number = value.number_value
            return int(number) if math.isfinite(number) and number == int(number) else number
        case "bool_value":
            return value.bool_value
        case "list_value":
            return [_read(v) for v in value.list_value.values]
        case "struct_value":
            return _special(unmarshal(value.struct_value))
        case _:
            return None


def _special(content: dict[str, Any]) -> Any:
    match content.get(SIGNATURE):
        case None:
            return content
        case str(signature) if signature == SECRET:
            return Secret(content.get("value"))
        case str(signature) if signature == OUTPUT:
            known = "value" in content and content["value"] is not UNKNOWN
            return OutputValue(
                content["value"] if known else None,
                known,
                bool(content.get("secret", False)),
                tuple(content.get("dependencies") or ()),
            )
        case str(signature) if signature == RESOURCE:
            # The engine writes an unknown id as the empty string.
            identity = content.get("id")
            return ResourceReference(
                str(content["urn"]), UNKNOWN if identity == "" else identity, str(content.get("packageVersion", ""))
            )
        case signature:
            kind = next((k for k, s in ASSETS.items() if s == signature), None)
            if kind is None:
                raise ValueError(f"property value with unknown signature {signature!r}")
            return Asset(kind, {k: v for k, v in content.items() if k != SIGNATURE})


def marshal(properties: Mapping[str, Any]) -> Struct:
    """The inverse of `unmarshal`. Raises TypeError for a value that has no wire form."""
    return Struct(fields={key: _write(value) for key, value in properties.items()})


def _write(value: Any) -> Value:
    match value:
        case None:
            return Value(null_value=NullValue.NULL_VALUE)
        case bool():
            return Value(bool_value=value)
        case int() | float():
            return Value(number_value=value)
        case str():
            return Value(string_value=value)
        case Unknown():
            return Value(string_value=UNKNOWN_MARK)
        case Mapping():
            return Value(struct_value=marshal(value))
        case list() | tuple():
            return Value(list_value=ListValue(values=[_write(v) for v in value]))
        case _:
            return Value(struct_value=marshal(_signed(value)))


def _signed(value: Any) -> dict[str, Any]:
    match value:
        case Secret():
            return {SIGNATURE: SECRET, "value": value.value}
        case OutputValue():
            signed: dict[str, Any] = {SIGNATURE: OUTPUT}
            if value.known:
                signed["value"] = value.value
            if value.secret:
                signed["secret"] = True
            if value.dependencies:
                signed["dependencies"] = list(value.dependencies)
            return signed
        case Asset():
            return {SIGNATURE: ASSETS[value.kind], **value.content}
        case ResourceReference():
            signed = {SIGNATURE: RESOURCE, "urn": value.urn}
            if value.id is not None:
                signed["id"] = "" if value.id is UNKNOWN else value.id
            if value.package_version:
                signed["packageVersion"] = value.package_version
            return signed
        case _:
            raise TypeError(f"no wire form for a {type(value).__name__}")


def plain(value: Any) -> Any:
    """The value without secret and output wrappers; references become their id (or URN), unknowns stay UNKNOWN."""
    match value:
        case Secret():
            return plain(value.value)
        case OutputValue():
            return plain(value.value) if value.known else UNKNOWN
        case ResourceReference():
            return value.urn if value.id is None else value.id
        case Mapping():
            return {k: plain(v) for k, v in value.items()}
        case list():
            return [plain(v) for v in value]
        case _:
            return value


def is_secret(value: Any) -> bool:
    """Whether this very value, not something inside it, is marked secret."""
    return isinstance(value, Secret) or (isinstance(value, OutputValue) and value.secret)


def mark_secrets(values: Any, like: Any) -> Any:
    """`values` with everything marked secret that stands where `like` has a secret.

    A provider that accepts secrets must give them back marked; upstream does the same for those that do not
    (`annotateSecrets` in the Go SDK's `resource/plugin/provider_plugin.go`).
    """
    if is_secret(like):
        return values if isinstance(values, Secret) else Secret(values)
    match values, like:
        case Mapping(), Mapping():
            return {k: mark_secrets(v, like.get(k)) for k, v in values.items()}
        case list(), list():
            paired = [*like, *[None] * len(values)]
            return [mark_secrets(v, paired[i]) for i, v in enumerate(values)]
        case _:
            return values


def has_unknown(value: Any) -> bool:
    """Whether UNKNOWN stands anywhere in a plain value."""
    match value:
        case Unknown():
            return True
        case Mapping():
            return any(has_unknown(v) for v in value.values())
        case list():
            return any(has_unknown(v) for v in value)
        case _:
            return False
