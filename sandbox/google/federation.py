"""Workload identity pools of a project, their providers, and the token service that trades for them.

Stands for IAM's workloadIdentityPools and for the Security Token Service with OIDC providers that bring their own keys
(`jwks_json`): signature, issuer, audience and time of a token are really checked. Different: keys are never fetched
from an issuer; of the expression language, mappings and conditions know fields, texts, +, ==, !=, in, &&, ||, !,
startsWith, endsWith and contains, and a provider with more than that is refused; scopes are not looked at; tokens do
not expire. Deleted pools and providers keep their ids for 30 days and can be brought back.
"""

from __future__ import annotations

import ast
import base64
import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from sandbox.google.callers import POOLS, WORKLOAD_TOKEN
from sandbox.google.errors import GoogleError, invalid, not_found
from sandbox.google.operations import Operation, timestamp
from sandbox.google.project_numbers import project_number
from sandbox.google.service import Call, handles, render
from sandbox.google.store import Change, Resource
from sandbox.google.world import World

PROVIDERS = "iam.workloadIdentityPoolProviders"
ID = re.compile(r"(?!gcp-)[a-z0-9-]{4,32}")
NAME_LIMIT = 32
KEPT_SECONDS = 30 * 24 * 3600
KEY_FIELDS = frozenset({"kty", "alg", "use", "kid", "n", "e", "x", "y", "crv"})
TOKEN_SECONDS = 3599
EXCHANGE, JWT = "urn:ietf:params:oauth:grant-type:token-exchange", "urn:ietf:params:oauth:token-type:jwt"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
_POOL = "iam.projects.locations.workloadIdentityPools"
_AUDIENCE = re.compile(r"(?:https:)?//iam\.googleapis\.com/(.+)")


class OAuthError(GoogleError):
    """A refusal of the token service, in the form of OAuth 2.0."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__("INVALID_ARGUMENT", description)
        self.error = error

    def body(self) -> dict[str, Any]:
        return {"error": self.error, "error_description": self.message}


# Pools and providers


def _pool_name(call: Call, pool: str) -> str:
    """Google names pools by the number of their project, whichever way the URL does."""
    project = call.project if call.project.isdigit() else project_number(call.project)
    return f"projects/{project}/locations/{call.params['locationsId']}/workloadIdentityPools/{pool}"


def _is_provider(call: Call) -> bool:
    return call.method.startswith(f"{_POOL}.providers.")


def _addressed(call: Call) -> tuple[str, str]:
    """The store's kind and the name of what the URL is about."""
    pool = _pool_name(call, call.params["workloadIdentityPoolsId"])
    return (PROVIDERS, f"{pool}/providers/{call.params['providersId']}") if _is_provider(call) else (POOLS, pool)


def _found(call: Call) -> tuple[str, str, Resource]:
    kind, name = _addressed(call)
    found = _present(call.world, kind, name)
    if found is None:
        raise GoogleError("NOT_FOUND", "Requested entity was not found.")
    return kind, name, found


def _present(world: World, kind: str, name: str) -> Resource | None:
    """A pool or provider, deleted ones included as long as they can be brought back."""
    found = world.store.get(kind, name)
    return found if found and found.get("purge", time.time() + 1) > time.time() else None


def _shown(resource: Resource) -> Resource:
    return {key: value for key, value in resource.items() if key != "purge"}


def _change(call: Call, verb: str, kind: str, name: str, value: Resource) -> Operation:
    changes = [Change(kind, name, value)]
    return Operation(call.method, call.project, "global", verb, name, changes=changes, response=_shown(value))


@handles(f"{_POOL}.create", f"{_POOL}.providers.create")
def create(call: Call) -> Operation:
    if _is_provider(call):
        wanted = call.query.get("workloadIdentityPoolProviderId", "")
        pool = _pool_name(call, call.params["workloadIdentityPoolsId"])
        above = _present(call.world, POOLS, pool)
        if above is None or above["state"] != "ACTIVE":
            raise GoogleError("NOT_FOUND", "Requested entity was not found.")
        kind, name = PROVIDERS, f"{pool}/providers/{wanted}"
        _check_provider(call.body)
    else:
        wanted = call.query.get("workloadIdentityPoolId", "")
        kind, name = POOLS, _pool_name(call, wanted)
    if len(call.body.get("displayName", "")) > NAME_LIMIT:
        raise invalid(f"The display name cannot exceed {NAME_LIMIT} characters.")
    if not ID.fullmatch(wanted):
        raise invalid(f"Invalid id '{wanted}': it must match {ID.pattern}.")
    if _present(call.world, kind, name) or call.world.operations.under_way(name):
        raise GoogleError("ALREADY_EXISTS", "Requested entity already exists")
    return _change(call, "create", kind, name, {**call.body, "name": name, "state": "ACTIVE"})


@handles(f"{_POOL}.get", f"{_POOL}.providers.get")
def get(call: Call) -> Resource:
    return _shown(_found(call)[2])


@handles(f"{_POOL}.list", f"{_POOL}.providers.list")
def list_all(call: Call) -> Resource:
    parent = _pool_name(call, "")
    key, kind = "workloadIdentityPools", POOLS
    if _is_provider(call):
        parent = f"{_pool_name(call, call.params['workloadIdentityPoolsId'])}/providers/"
        key, kind = "workloadIdentityPoolProviders", PROVIDERS
    present = [_present(call.world, kind, name) for name in call.store.all(kind, parent)]
    deleted_too = call.query.get("showDeleted") == "true"
    return {key: [_shown(each) for each in present if each and (deleted_too or each["state"] == "ACTIVE")]}


@handles(f"{_POOL}.patch", f"{_POOL}.providers.patch")
def change(call: Call) -> Operation:
    kind, name, old = _found(call)
    mask = [field for field in call.query.get("updateMask", "").split(",") if field]
    if old["state"] != "ACTIVE":
        raise GoogleError("NOT_FOUND", "Requested entity was not found.")
    changed = {**old, **{key: call.body.get(key) for key in mask}}
    changed = {key: value for key, value in changed.items() if value is not None}
    if kind == PROVIDERS:
        _check_provider(changed)
    return _change(call, "update", kind, name, changed)


@handles(f"{_POOL}.delete", f"{_POOL}.providers.delete")
def delete(call: Call) -> Operation:
    kind, name, old = _found(call)
    if old["state"] != "ACTIVE":
        raise GoogleError("NOT_FOUND", "Requested entity was not found.")
    purge = time.time() + KEPT_SECONDS
    return _change(
        call, "delete", kind, name, {**old, "state": "DELETED", "purge": purge, "expireTime": timestamp(purge)}
    )


@handles(f"{_POOL}.undelete", f"{_POOL}.providers.undelete")
def undelete(call: Call) -> Operation:
    kind, name, old = _found(call)
    if old["state"] != "DELETED":
        raise GoogleError("FAILED_PRECONDITION", "Requested entity is not deleted.")
    back = {key: value for key, value in old.items() if key not in ("purge", "expireTime")}
    return _change(call, "undelete", kind, name, {**back, "state": "ACTIVE"})


@handles(f"{_POOL}.operations.get", f"{_POOL}.providers.operations.get")
def get_operation(call: Call) -> Resource:
    operation = call.world.operations.get(call.params["operationsId"])
    if operation is None or operation.api != "iam":
        raise not_found(f"operations/{call.params['operationsId']}")
    return render(operation)


def _check_provider(provider: Mapping[str, Any]) -> None:
    """400 for what could never check a token; 501 for expressions that the emulator does not know."""
    oidc = provider.get("oidc")
    if not oidc:
        raise GoogleError("UNIMPLEMENTED", "The emulator knows providers of the kind oidc.")
    if not str(oidc.get("issuerUri", "")).startswith("https://"):
        raise invalid("Invalid issuer_uri: it must start with https://.")
    mapping = provider.get("attributeMapping") or {}
    if "google.subject" not in mapping:
        raise invalid("The attribute mapping must contain google.subject.")
    for key in mapping:
        if not re.fullmatch(r"google\.(subject|groups)|attribute\.[a-z0-9_]{1,100}", key):
            raise invalid(f"Invalid attribute mapping key '{key}'.")
    for expression in (*mapping.values(), provider.get("attributeCondition") or "true"):
        _parsed(expression)
    for key in _keys(oidc.get("jwksJson") or '{"keys": []}'):
        if unknown := sorted(set(key) - KEY_FIELDS):
            raise invalid(f"Invalid JWKS: unknown field {unknown[0]}.")


def _keys(jwks: str) -> list[dict[str, str]]:
    try:
        found: list[dict[str, str]] = json.loads(jwks)["keys"]
    except (ValueError, KeyError, TypeError) as problem:
        raise invalid("Invalid JWKS: it must be JSON with a list of keys.") from problem
    return found


# Expressions. CEL and Python write these alike but for && || ! and true, false.

_METHODS: Mapping[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": lambda text, part: part in text,
}


def _parsed(expression: str) -> ast.expr:
    """Raises 501 for what the emulator does not know."""
    python = re.sub(r"!(?!=)", " not ", expression.replace("&&", " and ").replace("||", " or "))
    python = re.sub(r"\btrue\b", "True", re.sub(r"\bfalse\b", "False", python)).strip()
    try:
        tree = ast.parse(python, mode="eval").body
    except SyntaxError as problem:
        raise GoogleError("UNIMPLEMENTED", f"The emulator does not know the expression {expression}.") from problem
    known = (
        *(ast.Attribute, ast.Subscript, ast.Name, ast.Constant, ast.BinOp, ast.Add, ast.Compare, ast.Eq, ast.NotEq),
        *(ast.In, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.List, ast.Call, ast.Load),
    )
    for node in ast.walk(tree):
        if not isinstance(node, known) or (isinstance(node, ast.Call) and _method(node) is None):
            raise GoogleError("UNIMPLEMENTED", f"The emulator does not know the expression {expression}.")
    return tree


def _method(node: ast.Call) -> Callable[[str, str], bool] | None:
    return _METHODS.get(node.func.attr) if isinstance(node.func, ast.Attribute) and len(node.args) == 1 else None


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Raises KeyError for a field that is not there."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.Attribute(value=inner, attr=name):
            return _value(inner, names)[name]
        case ast.Subscript(value=inner, slice=key):
            return _value(inner, names)[_value(key, names)]
        case ast.List(elts=entries):
            return [_value(each, names) for each in entries]
        case ast.BinOp(left=left, right=right):
            return _value(left, names) + _value(right, names)
        case ast.UnaryOp(operand=inner):
            return not _value(inner, names)
        case ast.BoolOp(op=operator, values=parts):
            found = (bool(_value(each, names)) for each in parts)
            return all(found) if isinstance(operator, ast.And) else any(found)
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            one, other = _value(left, names), _value(right, names)
            return one in other if isinstance(operator, ast.In) else (one == other) == isinstance(operator, ast.Eq)
        case ast.Call(func=ast.Attribute(value=inner), args=[argument]):
            method = _method(node)
            assert method is not None
            return method(_value(inner, names), _value(argument, names))
    raise KeyError(ast.dump(node))


# Trading tokens


@handles("sts.token", locked=False)
def exchange(call: Call) -> Resource:
    """A token of a cluster or another issuer against one that stands for its subject in the pool."""
    body = call.body
    if body.get("grantType") != EXCHANGE:
        raise OAuthError("unsupported_grant_type", f"Unsupported grant type: {body.get('grantType')}")
    if body.get("subjectTokenType") not in (JWT, JWT.replace(":jwt", ":id_token")):
        raise OAuthError("invalid_request", f"Unsupported subject token type: {body.get('subjectTokenType')}")
    name = _AUDIENCE.fullmatch(body.get("audience", ""))
    provider = _usable(call.world, name[1]) if name else None
    if provider is None:
        raise OAuthError(
            "invalid_target",
            'The target service indicated by the "audience" parameters is invalid. This might either be because the'
            " pool or provider is disabled or deleted or because it doesn't exist.",
        )
    claims = _checked(provider, str(body.get("subjectToken", "")))
    return {
        "access_token": WORKLOAD_TOKEN + ",".join(_identities(provider, claims)),
        "issued_token_type": ACCESS_TOKEN,
        "token_type": "Bearer",
        "expires_in": TOKEN_SECONDS,
    }


def _usable(world: World, name: str) -> Resource | None:
    provider = _present(world, PROVIDERS, name)
    pool = _present(world, POOLS, name.partition("/providers/")[0])
    both = [each for each in (provider, pool) if each and each["state"] == "ACTIVE" and not each.get("disabled")]
    return provider if len(both) == 2 else None


def _checked(provider: Resource, token: str) -> Mapping[str, Any]:
    """The claims of a token that the provider trusts."""
    try:
        head, body, signature = token.split(".")
        header, claims = (json.loads(_decoded(part)) for part in (head, body))
        signed = _decoded(signature)
    except ValueError as problem:
        raise OAuthError("invalid_grant", "Unable to parse the ID Token.") from problem
    oidc = provider["oidc"]
    keys = [key for key in _keys(oidc.get("jwksJson") or '{"keys": []}') if key.get("kid") == header.get("kid")]
    if not keys:
        raise OAuthError("invalid_grant", "Error connecting to the given credential's issuer.")
    if not any(_is_signed(key, f"{head}.{body}".encode(), signed) for key in keys):
        raise OAuthError("invalid_grant", "Unable to verify the signature of the ID Token.")
    if claims.get("iss") != oidc["issuerUri"]:
        raise OAuthError(
            "invalid_grant", f"The issuer in ID Token {claims.get('iss')} does not match the expected ones."
        )
    own = f"//iam.googleapis.com/{provider['name']}"
    allowed = oidc.get("allowedAudiences") or [own, f"https:{own}"]
    audiences = [claims["aud"]] if isinstance(claims.get("aud"), str) else claims.get("aud") or []
    if not set(audiences) & set(allowed):
        raise OAuthError(
            "invalid_grant",
            f"The audience in ID Token [{', '.join(audiences)}] does not match the expected audience"
            f" {' or '.join(allowed)}.",
        )
    if not float(claims.get("iat", 0)) - 60 <= time.time() < float(claims.get("exp", 0)):
        raise OAuthError("invalid_grant", "The ID Token is expired or not valid yet.")
    return dict(claims)


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _number(text: str) -> int:
    return int.from_bytes(_decoded(text), "big")


def _is_signed(key: Mapping[str, str], content: bytes, signature: bytes) -> bool:
    try:
        if key["kty"] == "RSA":
            public = rsa.RSAPublicNumbers(_number(key["e"]), _number(key["n"])).public_key()
            public.verify(signature, content, padding.PKCS1v15(), hashes.SHA256())
        else:
            point = ec.EllipticCurvePublicNumbers(_number(key["x"]), _number(key["y"]), ec.SECP256R1())
            half = len(signature) // 2
            both = (int.from_bytes(part, "big") for part in (signature[:half], signature[half:]))
            point.public_key().verify(encode_dss_signature(*both), content, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError, KeyError):
        return False
    return True


def _identities(provider: Resource, claims: Mapping[str, Any]) -> list[str]:
    """The principal of a token's subject, then the sets that it belongs to by its attributes."""
    pool = "iam.googleapis.com/" + provider["name"].partition("/providers/")[0]
    try:
        mapped = {k: _value(_parsed(text), {"assertion": claims}) for k, text in provider["attributeMapping"].items()}
        split: dict[str, dict[str, Any]] = {"google": {}, "attribute": {}}
        for key, value in mapped.items():
            kind, _, name = key.partition(".")
            split[kind][name] = value
        condition = provider.get("attributeCondition") or "true"
        accepted = _value(_parsed(condition), {"assertion": claims, **split})
    except (KeyError, TypeError, IndexError) as problem:
        raise OAuthError(
            "invalid_grant", f"The mapped attribute cannot be read from the credential: {problem}."
        ) from problem
    if not accepted:
        raise OAuthError("unauthorized_client", "The given credential is rejected by the attribute condition.")
    subject = str(mapped["google.subject"])
    if not 0 < len(subject) <= 127:
        raise OAuthError("invalid_grant", "The size of mapped attribute google.subject exceeds the 127 bytes limit.")
    groups = [f"principalSet://{pool}/group/{group}" for group in split["google"].get("groups", [])]
    sets = [f"principalSet://{pool}/attribute.{name}/{value}" for name, value in split["attribute"].items()]
    return [f"principal://{pool}/subject/{subject}", *groups, *sets, f"principalSet://{pool}/*"]
