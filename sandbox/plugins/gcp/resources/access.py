"""Identity and access: service accounts, members of IAM policies, secrets, project services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox.plugins.gcp import links
from sandbox.plugins.gcp.client import GoogleError
from sandbox.plugins.gcp.mapping import Json, renamed
from sandbox.plugins.gcp.resources.rest import (
    Context,
    Inputs,
    Rest,
    Variables,
    named_errors,
    without_markers,
)
from sandbox.plugins.gcp.settings import Settings
from sandbox.plugins.provider import Change, ProviderError

POLICY_VERSION = 3
# How often a read-modify-write starts over when somebody else wrote the policy in between (409 on the etag).
POLICY_ATTEMPTS = 10


@dataclass(frozen=True, kw_only=True)
class Account(Rest):
    """A service account; its email follows from `accountId` and the project."""

    def variables(self, settings: Settings, inputs: Inputs) -> Variables:
        variables = super().variables(settings, inputs)
        account = variables.get("accountId", "")
        variables.setdefault("email", f"{account}@{variables['project']}.iam.gserviceaccount.com")
        return variables

    def body(self, context: Context, variables: Variables, inputs: Inputs) -> Json:
        return {"accountId": variables["accountId"], "serviceAccount": super().body(context, variables, inputs)}

    def update(self, context: Context, identity: str, olds: Inputs, news: Inputs, changes: Sequence[Change]) -> Json:
        variables = {**self.variables(context.settings, news), **self.parse(context.settings, identity)}
        masked = sorted({c.top for c in changes} & {"displayName", "description"})
        if masked:
            account = {name: news.get(name) or "" for name in masked}
            body = {"serviceAccount": account, "updateMask": ",".join(masked)}
            with named_errors("Error updating Account"):
                context.client.call("PATCH", self.api, self.item.format(**variables), context.deadline, body)
        return self.settled(context, identity, variables, news)

    def outputs(self, context: Context, identity: str, variables: Variables, found: Json, known: Inputs) -> Json:
        values = super().outputs(context, identity, variables, found, known)
        email = str(found.get("email") or variables["email"])
        return {
            **values,
            "accountId": email.partition("@")[0],
            "email": email,
            "member": f"serviceAccount:{email}",
        }


ACCOUNT = Account(
    type="gcp:serviceaccount/account:Account",
    api="iam",
    collection="projects/{project}/serviceAccounts",
    item="projects/{project}/serviceAccounts/{email}",
    fields={"accountId": None, "member": None},
)


@dataclass(frozen=True, kw_only=True)
class CustomRole(Rest):
    """A role of a project's own (upstream: `resource_google_project_iam_custom_role.go`).

    Google deletes roles softly: a role that was deleted is brought back and changed, where another would be created.
    """

    def create(self, context: Context, inputs: Inputs) -> tuple[str, Json]:
        variables = self.variables(context.settings, inputs)
        identity = self.id(variables)
        found = self.fetch(context, variables)
        if found is None:
            return super().create(context, inputs)
        if not found.get("deleted"):
            raise ProviderError(f"Custom project role {identity} already exists and must be imported")
        return identity, self._restored(context, identity, variables, inputs, found)

    def body(self, context: Context, variables: Variables, inputs: Inputs) -> Json:
        return {"roleId": variables["roleId"], "role": super().body(context, variables, inputs)}

    def update(self, context: Context, identity: str, olds: Inputs, news: Inputs, changes: Sequence[Change]) -> Json:
        variables = self.parse(context.settings, identity)
        return self._restored(context, identity, variables, news, self.fetch(context, variables) or {})

    def _restored(self, context: Context, identity: str, variables: Variables, inputs: Inputs, found: Json) -> Json:
        with named_errors(f"Error updating the custom project role {identity}"):
            if found.get("deleted"):
                self.act(context, variables, "POST", ":undelete", "the role to be undeleted", {})
            role = super().body(context, variables, inputs)
            context.client.call("PATCH", self.api, self.item.format(**variables), context.deadline, role)
        return self.settled(context, identity, variables, inputs)


CUSTOM_ROLE = CustomRole(
    type="gcp:projects/iAMCustomRole:IAMCustomRole",
    api="iam",
    collection="projects/{project}/roles",
    item="projects/{project}/roles/{roleId}",
    fields={"roleId": None, "permissions": renamed("includedPermissions"), "deleted": renamed("deleted")},
    outputs_from={"deleted": lambda _variables, found: bool(found.get("deleted"))},
)


@dataclass(frozen=True, kw_only=True)
class PolicyMember(Rest):
    """One member of one role in the IAM policy of `item`; every change reads the policy and writes it back.

    `reading` and `writing` are the parts of the URL after `item`. `get_method`, `get_query` and `get_body` are how this
    API reads a policy; `set_method` is how it writes one, with `set_extra` beside it, or as a `bare` body.
    """

    reading: str = ":getIamPolicy"
    writing: str = ":setIamPolicy"
    get_method: str = "POST"
    get_query: Mapping[str, str] | None = None
    get_body: Json | None = None
    set_method: str = "POST"
    set_extra: Mapping[str, Any] = field(default_factory=dict)
    bare: bool = False
    resource_property: str = ""

    def variables(self, settings: Settings, inputs: Inputs) -> Variables:
        variables = super().variables(settings, inputs)
        if self.resource_property:
            variables["resource"] = links.last(variables.get(self.resource_property, ""))
        return variables

    def create(self, context: Context, inputs: Inputs) -> tuple[str, Json]:
        variables = self.variables(context.settings, inputs)
        with named_errors(f"Error creating {context.schema.title}"):
            written = {"version": POLICY_VERSION}
            self._change(context, variables, lambda bindings: _added(bindings, inputs), written)
            found = self.outputs_of(context, variables, inputs)
        if found is None:
            raise ProviderError(f"{inputs['member']} is not in {inputs['role']} although the policy was written")
        return str(found["id"]), found

    def read(self, context: Context, identity: str, known: Inputs) -> Json | None:
        asked = known if known.get("member") else self._imported(identity)
        return self.outputs_of(context, self.variables(context.settings, asked), asked)

    def _imported(self, identity: str) -> Json:
        parts = identity.split(" ")
        if len(parts) != 3:
            raise ProviderError(f"invalid id {identity!r} for {self.type}: write 'RESOURCE ROLE MEMBER'")
        resource, role, member = parts
        return {self.resource_property or "project": resource, "role": role, "member": member}

    def update(self, context: Context, identity: str, olds: Inputs, news: Inputs, changes: Sequence[Change]) -> Json:
        # Every property replaces the resource, so an update can only follow an interrupted create: make sure of it.
        return self.create(context, news)[1]

    def delete(self, context: Context, identity: str, outputs: Inputs) -> None:
        variables = self.variables(context.settings, outputs)
        with named_errors(f"Error deleting {context.schema.title}"):
            try:
                # The version stays what was read.
                self._change(context, variables, lambda bindings: _removed(bindings, outputs), {})
                if self.outputs_of(context, variables, outputs) is not None:
                    raise ProviderError(f"{outputs['member']} is still in {outputs['role']} after it was removed")
            except GoogleError as error:
                if error.status != 404:  # the resource went and took its policy along
                    raise

    def outputs_of(self, context: Context, variables: Variables, asked: Inputs) -> Json | None:
        try:
            policy = self._policy(context, variables)
        except GoogleError as error:
            if error.status == 404:
                return None
            raise
        if not any(_is_for(b, asked) and asked["member"] in b.get("members", ()) for b in policy.get("bindings", ())):
            return None
        own = {k: without_markers(asked[k]) for k in ("member", "role", "condition") if asked.get(k)}
        place = {name: variables[name] for name in ("project", "location") if name in context.schema.properties}
        title = f"/{asked['condition']['title']}" if asked.get("condition") else ""
        return {
            **own,
            **place,
            **({self.resource_property: self.item.format(**variables)} if self.resource_property else {}),
            "etag": policy.get("etag", ""),
            "id": f"{self.id(variables)}/{asked['role']}/{asked['member']}{title}",
        }

    def _policy(self, context: Context, variables: Variables) -> Json:
        url = f"{self.item.format(**variables)}{self.reading}"
        return context.client.call(
            self.get_method, self.api, url, context.deadline, self.get_body, query=self.get_query
        )

    def _change(self, context: Context, variables: Variables, change: Any, extra: Json) -> None:
        url = f"{self.item.format(**variables)}{self.writing}"
        with context.client.exclusive(url):
            for attempt in range(1, POLICY_ATTEMPTS + 1):
                policy = self._policy(context, variables)
                written = {**policy, "bindings": change(policy.get("bindings", [])), **extra}
                wanted = {k: v for k, v in written.items() if v}
                body = wanted if self.bare else {"policy": wanted, **self.set_extra}
                try:
                    context.client.call(self.set_method, self.api, url, context.deadline, body)
                except GoogleError as error:
                    if error.status != 409 or attempt == POLICY_ATTEMPTS:
                        raise
                    context.client.pause(min(0.05 * 2**attempt, 5.0))
                else:
                    return


def _is_for(binding: Json, asked: Inputs) -> bool:
    condition = without_markers(asked.get("condition") or {})
    return bool(binding.get("role") == asked["role"] and (binding.get("condition") or {}) == condition)


def _added(bindings: list[Json], asked: Inputs) -> list[Json]:
    """The bindings with the member in its role, sorted as the provider writes them."""
    rest = [b for b in bindings if not _is_for(b, asked)]
    members = {m for b in bindings if _is_for(b, asked) for m in b.get("members", ())} | {asked["member"]}
    condition = {"condition": without_markers(asked["condition"])} if asked.get("condition") else {}
    binding = {"role": asked["role"], "members": sorted(members), **condition}
    return sorted([*rest, binding], key=lambda b: str(b["role"]))


def _removed(bindings: list[Json], asked: Inputs) -> list[Json]:
    kept = []
    for binding in bindings:
        members = [m for m in binding.get("members", ()) if not (_is_for(binding, asked) and m == asked["member"])]
        if members:
            kept.append({**binding, "members": members})
    return kept


_BY_QUERY = {"options.requestedPolicyVersion": str(POLICY_VERSION)}

PROJECT_MEMBER = PolicyMember(
    type="gcp:projects/iAMMember:IAMMember",
    api="resource_manager",
    collection="projects/{project}",
    item="projects/{project}",
    identity="{project}",
    get_body={"options": {"requestedPolicyVersion": POLICY_VERSION}},
    set_extra={"updateMask": "bindings,etag,auditConfigs"},
)


@dataclass(frozen=True, kw_only=True)
class AccountMember(PolicyMember):
    """`serviceAccountId` is the account's full name, which names its project."""

    def variables(self, settings: Settings, inputs: Inputs) -> Variables:
        parts = str(inputs.get("serviceAccountId", "")).split("/")
        if len(parts) != 4 or parts[0] != "projects" or parts[2] != "serviceAccounts":
            raise ProviderError(f"serviceAccountId: {'/'.join(parts)!r} is not projects/PROJECT/serviceAccounts/EMAIL")
        return {"project": parts[1], "resource": parts[3]}


ACCOUNT_MEMBER = AccountMember(
    type="gcp:serviceaccount/iAMMember:IAMMember",
    api="iam",
    collection="projects/{project}/serviceAccounts",
    item="projects/{project}/serviceAccounts/{resource}",
    get_query={"options.requestedPolicyVersion": str(POLICY_VERSION)},
    resource_property="serviceAccountId",
)

SECRET_MEMBER = PolicyMember(
    type="gcp:secretmanager/secretIamMember:SecretIamMember",
    api="secret_manager",
    collection="projects/{project}/secrets",
    item="projects/{project}/secrets/{resource}",
    get_method="GET",
    get_query=_BY_QUERY,
    resource_property="secretId",
)


@dataclass(frozen=True, kw_only=True)
class BucketMember(PolicyMember):
    """Buckets are known by name alone, with or without the `b/` of their URL."""

    def variables(self, settings: Settings, inputs: Inputs) -> Variables:
        return {"project": settings.project, "bucket": links.last(str(inputs.get("bucket", "")))}

    def outputs_of(self, context: Context, variables: Variables, asked: Inputs) -> Json | None:
        found = super().outputs_of(context, variables, asked)
        return found and {**found, "bucket": variables["bucket"]}


BUCKET_MEMBER = BucketMember(
    type="gcp:storage/bucketIAMMember:BucketIAMMember",
    api="storage",
    collection="b",
    item="b/{bucket}",
    reading="/iam",
    writing="/iam",
    get_method="GET",
    get_query={"optionsRequestedPolicyVersion": str(POLICY_VERSION)},
    set_method="PUT",
    bare=True,
    resource_property="bucket",
)

SECRET = Rest(
    type="gcp:secretmanager/secret:Secret",
    api="secret_manager",
    collection="projects/{project}/secrets",
    item="projects/{project}/secrets/{secretId}",
    create_query={"secretId": "{secretId}"},
    always={"replication": {"automatic": None}},
    fields={
        "deletionProtection": None,
        "replication.auto": renamed("automatic"),
        "secretId": None,
    },
    masked=True,
    guards=("deletionProtection",),
)


@dataclass(frozen=True, kw_only=True)
class Service(Rest):
    """An enabled API of a project. The real plugin batches several into one `batchEnable`; here each goes alone."""

    def create(self, context: Context, inputs: Inputs) -> tuple[str, Json]:
        variables = self.variables(context.settings, inputs)
        identity = self.id(variables)
        with named_errors("Error creating Service"):
            if variables["service"] not in self._enabled(context, variables):
                self._post(context, variables, "enable", {})
            if variables["service"] not in self._enabled(context, variables):
                raise ProviderError(f"{variables['service']} is not enabled although the call to enable it succeeded")
        outputs = self.read(context, identity, inputs)
        if outputs is None:
            raise ProviderError(f"project {variables['project']} does not exist or cannot be read")
        return identity, outputs

    def read(self, context: Context, identity: str, known: Inputs) -> Json | None:
        variables = self.parse(context.settings, identity)
        try:
            context.client.call("GET", "resource_manager", "projects/{project}".format(**variables), context.deadline)
        except GoogleError as error:
            if error.status in (403, 404):
                return None
            raise
        if variables["service"] not in self._enabled(context, variables):
            return None
        own = {k: known[k] for k in ("disableOnDestroy", "disableDependentServices") if known.get(k) is not None}
        named = {"project": variables["project"], "service": variables["service"]}
        kept = {"deletionPolicy": known.get("deletionPolicy") or "DELETE"}
        return {**own, **named, **kept, "id": self.id(variables)}

    def update(self, context: Context, identity: str, olds: Inputs, news: Inputs, changes: Sequence[Change]) -> Json:
        outputs = self.read(context, identity, news)
        return outputs if outputs is not None else self.create(context, news)[1]

    def delete(self, context: Context, identity: str, outputs: Inputs) -> None:
        if not outputs.get("disableOnDestroy"):
            return
        variables = self.parse(context.settings, identity)
        with named_errors("Error disabling Service"):
            if variables["service"] in self._enabled(context, variables):
                body = {"disableDependentServices": bool(outputs.get("disableDependentServices"))}
                self._post(context, variables, "disable", body)

    def _enabled(self, context: Context, variables: Variables) -> set[str]:
        names: set[str] = set()
        query = {"fields": "services/name,nextPageToken", "filter": "state:ENABLED", "pageSize": "200"}
        while True:
            url = self.collection.format(**variables)
            page = context.client.call("GET", self.api, url, context.deadline, query=query)
            names |= {links.last(s["name"]) for s in page.get("services", ())}
            if not page.get("nextPageToken"):
                return names
            query["pageToken"] = page["nextPageToken"]

    def _post(self, context: Context, variables: Variables, verb: str, body: Json) -> None:
        self.act(context, variables, "POST", f":{verb}", f"{variables['service']} to be {verb}d", body)


SERVICE = Service(
    type="gcp:projects/service:Service",
    api="service_usage",
    collection="projects/{project}/services",
    item="projects/{project}/services/{service}",
    identity="{project}/{service}",
)

ROWS = (ACCOUNT, ACCOUNT_MEMBER, CUSTOM_ROLE, PROJECT_MEMBER, BUCKET_MEMBER, SECRET, SECRET_MEMBER, SERVICE)
