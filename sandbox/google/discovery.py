"""Google's published API descriptions as the emulator's contract.

The discovery documents that ship in `google-api-python-client` list every REST method and describe every body. The
method list is the routing table; `checked_body` holds a body against its schema as Google's JSON front end does.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import googleapiclient

from sandbox.google.errors import violations

DOCUMENTS = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"

# Fields the real gcp provider writes although the documents do not list them (schema, field): accepted, then dropped.
UNLISTED_FIELDS = frozenset({("NetworkRoutingConfig", "deleteBgpAlwaysCompareMed"), ("RouterNat", "initialNatIps")})
# Output-only fields the real gcp provider writes all the same: accepted when they agree with the URL, then dropped.
ECHOED_FIELDS = frozenset({"region", "zone"})


@dataclass(frozen=True)
class Mount:
    """Requests whose path starts with `prefix` belong to `document`; what follows `root` is matched to its methods."""

    prefix: str
    document: str
    root: str


MOUNTS = (
    Mount("/compute/beta/", "compute.beta", "/compute/beta/"),
    Mount("/compute/v1/", "compute.v1", "/compute/v1/"),
    Mount("/container/v1beta1/", "container.v1beta1", "/container/"),
    Mount("/container/v1/", "container.v1", "/container/"),
    Mount("/iam/v1/", "iam.v1", "/iam/"),
    Mount("/su/v1beta1/", "serviceusage.v1beta1", "/su/"),
    Mount("/su/v1/", "serviceusage.v1", "/su/"),
    Mount("/crm/v1/", "cloudresourcemanager.v1", "/crm/"),
    Mount("/crm/v3/", "cloudresourcemanager.v3", "/crm/"),
    Mount("/sm/v1/", "secretmanager.v1", "/sm/"),
    Mount("/kms/v1/", "cloudkms.v1", "/kms/"),
    Mount("/billing/v1/", "cloudbilling.v1", "/billing/"),
    Mount("/budgets/v1/", "billingbudgets.v1", "/budgets/"),
    Mount("/ar/v1/", "artifactregistry.v1", "/ar/"),
    Mount("/monitoring/v1/", "monitoring.v1", "/monitoring/"),
    Mount("/monitoring/v3/", "monitoring.v3", "/monitoring/"),
    Mount("/logging/v2/", "logging.v2", "/logging/"),
    Mount("/sts/v1/", "sts.v1", "/sts/"),
    Mount("/storage/v1/", "storage.v1", "/storage/v1/"),
    # gcloud's endpoint override for Kubernetes Engine takes a bare host
    Mount("/v1beta1/", "container.v1beta1", "/"),
    Mount("/v1/", "container.v1", "/"),
)


@dataclass(frozen=True)
class Method:
    """One REST method. `request` names the body's schema ("" for none), `query` the parameters it knows."""

    id: str
    http_method: str
    flat_path: str
    request: str
    query: frozenset[str]

    @property
    def path_parameters(self) -> list[str]:
        """Names in the order of the path."""
        return re.findall(r"\{([^}]+)\}", self.flat_path)


@dataclass
class _Node:
    """A path segment in the routing tree; a parameter segment may end in a custom verb such as `:setSize`."""

    literals: dict[str, _Node] = field(default_factory=dict)
    verbs: dict[str, _Node] = field(default_factory=dict)
    param: _Node | None = None
    methods: dict[str, Method] = field(default_factory=dict)


@dataclass(frozen=True)
class Document:
    """A parsed discovery document: `name` such as "container.v1beta1", its schemas and its routes."""

    name: str
    api: str
    version: str
    schemas: Mapping[str, Any]
    methods: Mapping[str, Method]
    tree: _Node

    def match(self, http_method: str, path: str) -> tuple[Method, dict[str, str]] | None:
        """The method a path (without leading slash) addresses and its decoded path parameters, or None."""
        node, values = self.tree, []
        for raw in path.split("/"):
            step = _step(node, raw)
            if step is None:
                return None
            node, value = step
            values += [unquote(value)] if value else []
        method = node.methods.get(http_method)
        return (method, dict(zip(method.path_parameters, values, strict=True))) if method else None


def _step(node: _Node, raw: str) -> tuple[_Node, str] | None:
    """The node after a path segment, and the parameter's value in it ("" in a literal segment)."""
    if raw in node.literals:
        return node.literals[raw], ""
    value, _, verb = raw.rpartition(":")
    if value and verb in node.verbs:
        return node.verbs[verb], value
    return (node.param, raw) if node.param and raw else None


def _add(root: _Node, method: Method) -> None:
    node = root
    for segment in method.flat_path.split("/"):
        parameter = re.fullmatch(r"\{([^}]+)\}(?::(\w+))?", segment)
        if parameter is None:
            node = node.literals.setdefault(segment, _Node())
        elif parameter[2]:
            node = node.verbs.setdefault(parameter[2], _Node())
        else:
            node.param = node.param or _Node()
            node = node.param
    node.methods[method.http_method] = method


def _methods(resource: Mapping[str, Any], common: frozenset[str]) -> Iterator[Method]:
    for raw in resource.get("methods", {}).values():
        query = {name for name, p in raw.get("parameters", {}).items() if p["location"] == "query"}
        request = raw.get("request", {}).get("$ref", "")
        yield Method(raw["id"], raw["httpMethod"], raw.get("flatPath", raw["path"]), request, common | query)
    for child in resource.get("resources", {}).values():
        yield from _methods(child, common)


@cache
def document(name: str) -> Document:
    """Loads a document once per process; Compute's is 5 MB, so only what a run really calls is parsed."""
    raw = json.loads((DOCUMENTS / f"{name}.json").read_text())
    root = _Node()
    methods = {method.id: method for method in _methods(raw, frozenset(raw["parameters"]))}
    for method in methods.values():
        _add(root, method)
    return Document(name, raw["name"], raw["version"], raw["schemas"], methods, root)


@dataclass(frozen=True)
class Route:
    """What a URL addresses: document, method and path parameters by the document's own names."""

    document: Document
    method: Method
    params: dict[str, str]


def find_route(http_method: str, path: str) -> Route | None:
    """The discovery method for a raw (still percent-encoded) URL path, or None."""
    for mount in MOUNTS:
        if path.startswith(mount.prefix):
            found = document(mount.document)
            match = found.match(http_method, path.removeprefix(mount.root))
            return Route(found, *match) if match else None
    return None


def in_camel_case(name: str) -> str:
    """A field or query parameter in the form of the documents; Google's front end takes snake_case too."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def unknown_query(method: Method, names: list[str]) -> list[tuple[str, str]]:
    """Violations for query parameters the method does not have."""
    text = 'Invalid JSON payload received. Unknown name "{0}": Cannot bind query parameter.'
    return [(name, text.format(name)) for name in names if name not in method.query]


def checked_body(found: Document, method: Method, body: Any, params: Mapping[str, str]) -> dict[str, Any]:
    """The body without nulls and tolerated extras. Raises GoogleError listing everything the schema does not allow."""
    if not method.request:
        return {}
    walker = _Walker(found, params)
    cleaned = walker.message(body, method.request, _root_name(found, method.request))
    if walker.found:
        raise violations(walker.found)
    return cleaned


def _root_name(found: Document, schema: str) -> str:
    """How Google's messages call the body: a request message has no name, a bare resource is named after its type."""
    if schema.endswith("Request"):
        return ""
    return "resource" if found.api == "compute" else _snake(schema)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


class _Walker:
    """Collects (path, description) violations while copying a body.

    What means "unset" is dropped as if it had not been sent: null, the empty string of an enumeration, and a message
    in which nothing else was.
    """

    def __init__(self, found: Document, params: Mapping[str, str]) -> None:
        self.document = found
        self.params = params
        self.found: list[tuple[str, str]] = []

    def message(self, value: Any, schema_name: str, path: str) -> dict[str, Any]:
        schema = self.document.schemas[schema_name]
        return self._object(value, schema, path, schema_name)

    def _object(self, value: Any, schema: Mapping[str, Any], path: str, owner: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._bad_value(path, owner, value)
            return {}
        properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
        result = {}
        for name, item in value.items():
            where = f"{path}.{_snake(name)}" if path else _snake(name)
            child = properties.get(name, extra)
            if (owner, name) in UNLISTED_FIELDS:
                continue
            if child is None:
                self._unknown(path, name)
            elif item is None:
                continue
            elif child.get("readOnly"):
                self._output_only(where, name, item)
            elif "enum" in child and item == "":
                continue
            else:
                given = self._value(item, child, where, owner, name)
                if given != {} or item == {}:
                    result[name] = given
        return result

    def _value(self, value: Any, schema: Mapping[str, Any], path: str, owner: str, name: str) -> Any:
        if "$ref" in schema:
            return self.message(value, schema["$ref"], path)
        kind = schema.get("type")
        if kind == "object":
            return self._object(value, schema, path, f"{owner}.{name}")
        if kind == "array":
            if not isinstance(value, list):
                self._bad_value(path, f"{owner}.{name}", value)
                return []
            items = [(i, item) for i, item in enumerate(value) if item is not None]
            return [self._value(item, schema["items"], f"{path}[{i}]", owner, name) for i, item in items]
        if not _fits(value, schema):
            self._bad_value(path, self._type_name(schema, owner, name), value)
        return value

    def _type_name(self, schema: Mapping[str, Any], owner: str, name: str) -> str:
        if "enum" in schema:
            title = name[:1].upper() + name[1:]
            return f"type.googleapis.com/google.{self.document.api}.{self.document.version}.{owner}.{title}"
        return f"TYPE_{str(schema.get('format') or schema.get('type')).upper()}"

    def _unknown(self, path: str, name: str) -> None:
        at = f" at '{path}'" if path else ""
        self.found.append((path, f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.'))

    def _bad_value(self, path: str, kind: str, value: Any) -> None:
        self.found.append((path, f"Invalid value at '{path}' ({kind}), {json.dumps(value)}"))

    def _output_only(self, path: str, name: str, value: Any) -> None:
        if name in ECHOED_FIELDS and name in self.params and str(value).rsplit("/", 1)[-1] == self.params[name]:
            return
        self.found.append((path, f"Invalid value at '{path}': the field is output only, {json.dumps(value)}"))


def _is_base64(value: str) -> bool:
    try:
        base64.b64decode(value.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _is_integer(low: int, high: int) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        text = str(value)
        return not isinstance(value, bool) and re.fullmatch(r"-?\d+", text) is not None and low <= int(text) <= high

    return check


def _text(pattern: str) -> Callable[[Any], bool]:
    compiled = re.compile(pattern)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


# Proto3 JSON: 64-bit integers travel as strings, and either form is accepted for every integer.
FORMATS: dict[str, Callable[[Any], bool]] = {
    "int32": _is_integer(-(2**31), 2**31 - 1),
    "uint32": _is_integer(0, 2**32 - 1),
    "int64": _is_integer(-(2**63), 2**63 - 1),
    "uint64": _is_integer(0, 2**64 - 1),
    "google-duration": _text(r"-?\d+(\.\d{1,9})?s"),
    "google-datetime": _text(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)"),
    "google-fieldmask": _text(r"[\w.,]*"),
    "byte": lambda value: isinstance(value, str) and _is_base64(value),
}
TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": FORMATS["int64"],
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "any": lambda value: True,
}


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    if not FORMATS.get(schema.get("format", ""), TYPES[schema.get("type", "any")])(value):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    return "pattern" not in schema or re.fullmatch(schema["pattern"], str(value)) is not None
