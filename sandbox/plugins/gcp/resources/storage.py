"""Cloud Storage buckets."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from sandbox.plugins.gcp.mapping import Field, Json, int64, renamed
from sandbox.plugins.gcp.resources.rest import Context, Inputs, Rest, Variables
from sandbox.plugins.provider import ProviderError

# Which objects a lifecycle rule is for: `withState` and the API's `isLive`; absent means all of them.
_LIVE = {"LIVE": True, "ARCHIVED": False}
_STATES = {True: "LIVE", False: "ARCHIVED"}


@dataclass(frozen=True, kw_only=True)
class Bucket(Rest):
    """A bucket. Its name is its id, its place part of the body; with `forceDestroy` its objects go first."""

    def delete(self, context: Context, identity: str, outputs: Inputs) -> None:
        variables = self.parse(context.settings, identity, outputs)
        objects = self._objects(context, variables) if self.fetch(context, variables) else []
        if objects and not outputs.get("forceDestroy"):
            raise ProviderError(
                f"Error trying to delete bucket {identity} containing objects without `force_destroy` set to true"
            )
        for name in objects:
            url = f"{self.item.format(**variables)}/o/{quote(name, safe='')}"
            context.client.call("DELETE", self.api, url, context.deadline)
        super().delete(context, identity, outputs)

    def outputs(self, context: Context, identity: str, variables: Variables, found: Json, known: Inputs) -> Json:
        values = super().outputs(context, identity, variables, found, known)
        for rule in values.get("lifecycleRules", ()):
            rule["condition"].setdefault("withState", "ANY")
        # Written in capitals by the API; the state keeps what the program wrote.
        return {**values, "location": known.get("location") or found["location"]}

    def _objects(self, context: Context, variables: Variables) -> list[str]:
        url = f"{self.item.format(**variables)}/o"
        found = context.client.call("GET", self.api, url, context.deadline, query={"versions": "true"})
        return [str(item["name"]) for item in found.get("items", ())]


def _shown_url(variables: Variables, found: Json) -> str:
    return f"gs://{found['name']}"


BUCKET = Bucket(
    type="gcp:storage/bucket:Bucket",
    api="storage",
    collection="b",
    item="b/{name}",
    identity="{name}",
    create_query={"project": "{project}"},
    fields={
        "location": Field(send=str.upper),
        "uniformBucketLevelAccess": renamed("iamConfiguration.uniformBucketLevelAccess.enabled"),
        "publicAccessPrevention": renamed("iamConfiguration.publicAccessPrevention"),
        "forceDestroy": None,
        "lifecycleRules": renamed("lifecycle.rule"),
        "lifecycleRules.condition.withState": Field("isLive", _LIVE.get, _STATES.get),
        "softDeletePolicy.retentionDurationSeconds": int64(),
        "projectNumber": int64(),
        "url": None,
    },
    outputs_from={"url": _shown_url},
)

ROWS = (BUCKET,)
