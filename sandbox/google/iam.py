"""IAM: service accounts and custom roles, and the policies of both and of projects."""

from __future__ import annotations

import re

from sandbox.google.errors import GoogleError, exists, invalid, not_found, precondition
from sandbox.google.policies import KIND as POLICIES
from sandbox.google.policies import forget_account, get_policy, set_policy
from sandbox.google.service import Call, fingerprint, handles, new_id
from sandbox.google.store import Change, Resource

ACCOUNTS = "iam.serviceAccounts"
ROLES = "iam.roles"
ACCOUNT_ID = re.compile(r"[a-z]([-a-z0-9]{4,28}[a-z0-9])")
ROLE_ID = re.compile(r"[a-zA-Z0-9_.]{3,64}")
PERMISSION = re.compile(r"[a-z0-9]+(\.[a-zA-Z0-9]+){2,}")
_ACCOUNT = "iam.projects.serviceAccounts"
_ROLE = "iam.projects.roles"


def _account(call: Call) -> tuple[str, Resource]:
    """The account a URL names by e-mail or number; the project may be "-"."""
    wanted = call.params["serviceAccountsId"]
    prefix = "projects/" if call.project == "-" else f"projects/{call.project}/"
    for name, account in call.store.all(ACCOUNTS, prefix).items():
        if wanted in (account["email"], account["uniqueId"]):
            return name, account
    raise GoogleError("NOT_FOUND", f"Unknown service account: projects/{call.project}/serviceAccounts/{wanted}.")


@handles(f"{_ACCOUNT}.create")
def create_account(call: Call) -> Resource:
    account_id = call.body.get("accountId", "")
    if not ACCOUNT_ID.fullmatch(account_id):
        raise invalid(f'Invalid account id "{account_id}": must match {ACCOUNT_ID.pattern} (6 to 30 characters).')
    email = f"{account_id}@{call.project}.iam.gserviceaccount.com"
    name = f"projects/{call.project}/serviceAccounts/{email}"
    if call.store.get(ACCOUNTS, name):
        raise GoogleError("ALREADY_EXISTS", f"Service account {account_id} already exists within project {name}.")
    number = new_id()
    own = {"name": name, "projectId": call.project, "uniqueId": number, "email": email, "oauth2ClientId": number}
    account = {**call.body.get("serviceAccount", {}), **own}
    return _save_account(call, name, account)


def _save_account(call: Call, name: str, account: Resource) -> Resource:
    bare = {key: value for key, value in account.items() if key != "etag"}
    saved = {**bare, "etag": fingerprint(bare)}
    call.store.put(ACCOUNTS, name, saved)
    return saved


@handles(f"{_ACCOUNT}.get")
def get_account(call: Call) -> Resource:
    return _account(call)[1]


@handles(f"{_ACCOUNT}.list")
def list_accounts(call: Call) -> Resource:
    return {"accounts": list(call.store.all(ACCOUNTS, f"projects/{call.project}/").values())}


@handles(f"{_ACCOUNT}.patch")
def patch_account(call: Call) -> Resource:
    name, account = _account(call)
    sent = call.body.get("serviceAccount", {})
    fields = call.body.get("updateMask", ",".join(sent)).replace("display_name", "displayName").split(",")
    changed = {field: sent.get(field, "") for field in fields if field in ("displayName", "description")}
    return _save_account(call, name, {**account, **changed})


@handles(f"{_ACCOUNT}.enable", f"{_ACCOUNT}.disable")
def switch_account(call: Call) -> Resource:
    name, account = _account(call)
    _save_account(call, name, {**account, "disabled": call.method.endswith(".disable")})
    return {}


@handles(f"{_ACCOUNT}.delete")
def delete_account(call: Call) -> Resource:
    name, account = _account(call)
    gone = [Change(ACCOUNTS, name, None), Change(POLICIES, name, None)]
    call.store.apply([*gone, *forget_account(call.world, account["email"], account["uniqueId"])])
    return {}


@handles(f"{_ACCOUNT}.getIamPolicy")
def account_policy(call: Call) -> Resource:
    return get_policy(call.world, _account(call)[0])


@handles(f"{_ACCOUNT}.setIamPolicy")
def set_account_policy(call: Call) -> Resource:
    return set_policy(call, _account(call)[0])


def _role_name(call: Call) -> str:
    return f"projects/{call.project}/roles/{call.params['rolesId']}"


def _role(call: Call) -> tuple[str, Resource]:
    name = _role_name(call)
    found = call.store.get(ROLES, name)
    if found is None:
        raise GoogleError("NOT_FOUND", f"The role named {name} was not found.")
    return name, found


def _check_permissions(role: Resource) -> None:
    for permission in role.get("includedPermissions", []):
        if not PERMISSION.fullmatch(permission):
            raise invalid(f"Permission {permission} is not valid.")


def _save_role(call: Call, name: str, role: Resource) -> Resource:
    bare = {key: value for key, value in role.items() if key != "etag"}
    saved = {**bare, "etag": fingerprint(bare)}
    call.store.put(ROLES, name, saved)
    return saved


@handles(f"{_ROLE}.create")
def create_role(call: Call) -> Resource:
    role_id = call.body.get("roleId", "")
    if not ROLE_ID.fullmatch(role_id):
        raise invalid(f'The role id "{role_id}" is invalid: must match {ROLE_ID.pattern}.')
    name = f"projects/{call.project}/roles/{role_id}"
    current = call.store.get(ROLES, name)
    if current and current.get("deleted"):
        raise precondition(
            f"You can't create a role with role_id ({role_id}) where there is an existing role with that role_id in a"
            " deleted state."
        )
    if current:
        raise exists(name)
    role = call.body.get("role", {})
    _check_permissions(role)
    return _save_role(call, name, {"stage": "ALPHA", **role, "name": name})


@handles(f"{_ROLE}.get")
def get_role(call: Call) -> Resource:
    return _role(call)[1]


@handles(f"{_ROLE}.list")
def list_roles(call: Call) -> Resource:
    roles = call.store.all(ROLES, f"projects/{call.project}/").values()
    with_deleted = call.query.get("showDeleted") == "true"
    return {"roles": [role for role in roles if with_deleted or not role.get("deleted")]}


@handles(f"{_ROLE}.patch")
def patch_role(call: Call) -> Resource:
    name, role = _role(call)
    sent = {key: value for key, value in call.body.items() if key not in ("name", "etag")}
    _check_permissions(sent)
    fields = call.query.get("updateMask", "")
    wanted = {field: sent.get(field) for field in fields.split(",")} if fields else sent
    return _save_role(call, name, {**role, **{k: v for k, v in wanted.items() if v is not None}})


@handles(f"{_ROLE}.delete", f"{_ROLE}.undelete")
def delete_role(call: Call) -> Resource:
    """Deletion is soft: the role can be read and brought back for a week."""
    name, role = _role(call)
    deleting = call.method.endswith(".delete")
    if deleting and role.get("deleted"):
        raise not_found(name)
    changed = {**role, "deleted": True} if deleting else {k: v for k, v in role.items() if k != "deleted"}
    return _save_role(call, name, changed)
