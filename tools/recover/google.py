"""Whether a Google resource exists that the engine began to create, and the id that `pulumi import` wants for it.

One row for each type. Ids are those of the "Import" sections of the gcp provider's pages; methods are those of the
discovery documents of Google's APIs.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tools.preflight.cloud import Cloud, Json, NoConnectionError, RefusedError
from tools.recover.checkpoint import Resource, known, moment
from tools.recover.findings import Finding

AGAIN = (
    "gcp:projects/service:Service",
    "gcp:projects/iAMMember:IAMMember",
    "gcp:serviceaccount/iAMMember:IAMMember",
    "gcp:secretmanager/secretIamMember:SecretIamMember",
    "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember",
    "gcp:storage/bucketIAMMember:BucketIAMMember",
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember",
)
"""Types whose creation adds what may be there already: an API that is on, a member that has the role."""

Found = Callable[[Cloud, Mapping[str, str]], Json | list[Json] | None]
"""The one that is there; or all that may be meant, where names do not tell."""


@dataclass(frozen=True)
class Row:
    """How to look a type up. `id`: a template of the import id over the inputs; `find`: Google's description of it.

    `made`: the field with the time of its creation, "" where Google does not tell it. Then it is ours if it is inside
    something of ours (`inside`: a template of the words for it), or if it has the texts that were asked for (`alike`:
    inputs, which the description has under the same names). `changing` and `broken`: its states that say so.
    """

    id: str
    find: Found
    made: str = "creationTimestamp"
    inside: str = ""
    alike: tuple[str, ...] = ()
    changing: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


def _method(api: str, method: str, **parameters: str) -> Found:
    """Asks a method; the parameters are templates over the inputs."""
    return lambda cloud, values: cloud.find(
        api, method, **{key: template.format_map(values) for key, template in parameters.items()}
    )


def _compute(collection: str, parameter: str, scope: str = "") -> Row:
    """A resource of Compute Engine: of a `region`, of a `zone`, or of the project."""
    place = f"{scope}s/{{{scope}}}" if scope else "global"
    where = {scope: f"{{{scope}}}"} if scope else {}
    return Row(
        f"projects/{{project}}/{place}/{_plural(collection)}/{{name}}",
        _method("compute", f"{collection}.get", project="{project}", **where, **{parameter: "{name}"}),
    )


def _plural(collection: str) -> str:
    """The collection as its resources' links spell it."""
    word = collection.removeprefix("region")
    return f"{word[0].lower()}{word[1:]}"


def _named(api: str, method: str, id: str, made: str = "createTime", **more: Any) -> Row:
    """A resource whose full name is also its import id."""
    return Row(id, _method(api, method, name=id), made, **more)


def _nat(cloud: Cloud, values: Mapping[str, str]) -> Json | None:
    router = {key: values[key] for key in ("project", "region", "router")}
    found = cloud.find("compute", "routers.get", **router) or {}
    return next((each for each in found.get("nats", ()) if each.get("name") == values["name"]), None)


def _template(cloud: Cloud, values: Mapping[str, str]) -> Json | list[Json] | None:
    """A template by its name, or those whose names the provider made of a prefix and letters of its own."""
    if "namePrefix" not in values:
        return cloud.find(
            "compute", "instanceTemplates.get", project=values["project"], instanceTemplate=values["name"]
        )
    prefix = values["namePrefix"]
    known_as = f'name eq "{prefix}.*"'
    listed = cloud.pages("compute", "instanceTemplates.list", "items", project=values["project"], filter=known_as)
    return [each for each in listed if each["name"].startswith(prefix) and each["name"][len(prefix) :].isalnum()]


def _with_title(api: str, method: str, **parent: str) -> Found:
    """Those of a list with the title that was asked for; Google gives these resources their names.

    `parent`: the method's parameter, a template over the inputs.
    """
    collection = method.split(".")[-2]

    def find(cloud: Cloud, values: Mapping[str, str]) -> list[Json]:
        title = values["displayName"]
        listed = cloud.pages(api, method, collection, **{key: text.format_map(values) for key, text in parent.items()})
        return [each for each in listed if each.get("displayName") == title]

    return find


def _titled(api: str, method: str, **parent: str) -> Row:
    return Row("", _with_title(api, method, **parent), "", alike=("displayName",))


_CLUSTER = "projects/{project}/locations/{location}/clusters"
_WORKING = ("PROVISIONING", "STOPPING")

ROWS: dict[str, Row] = {
    # Network
    "gcp:compute/network:Network": _compute("networks", "network"),
    "gcp:compute/subnetwork:Subnetwork": _compute("subnetworks", "subnetwork", "region"),
    "gcp:compute/router:Router": _compute("routers", "router", "region"),
    "gcp:compute/routerNat:RouterNat": Row(
        "{project}/{region}/{router}/{name}", _nat, "", inside="in the router {router}"
    ),
    "gcp:compute/firewall:Firewall": _compute("firewalls", "firewall"),
    "gcp:compute/address:Address": _compute("addresses", "address", "region"),
    "gcp:compute/regionHealthCheck:RegionHealthCheck": _compute("regionHealthChecks", "healthCheck", "region"),
    "gcp:compute/regionBackendService:RegionBackendService": _compute(
        "regionBackendServices", "backendService", "region"
    ),
    "gcp:compute/forwardingRule:ForwardingRule": _compute("forwardingRules", "forwardingRule", "region"),
    # Hosts
    "gcp:compute/instanceGroup:InstanceGroup": _compute("instanceGroups", "instanceGroup", "zone"),
    "gcp:compute/resourcePolicy:ResourcePolicy": _compute("resourcePolicies", "resourcePolicy", "region"),
    "gcp:compute/disk:Disk": _compute("disks", "disk", "zone"),
    "gcp:compute/instance:Instance": _compute("instances", "instance", "zone"),
    "gcp:compute/instanceTemplate:InstanceTemplate": Row(
        "projects/{project}/global/instanceTemplates/{name}", _template
    ),
    "gcp:compute/instanceGroupManager:InstanceGroupManager": _compute(
        "instanceGroupManagers", "instanceGroupManager", "zone"
    ),
    # Kubernetes Engine
    "gcp:container/cluster:Cluster": _named(
        "container", "projects.locations.clusters.get", f"{_CLUSTER}/{{name}}", changing=_WORKING, broken=("ERROR",)
    ),
    "gcp:container/nodePool:NodePool": _named(
        "container",
        "projects.locations.clusters.nodePools.get",
        "{cluster}/nodePools/{name}",
        made="",
        inside="in {cluster}",
        changing=_WORKING,
        broken=("ERROR",),
    ),
    # Identity
    "gcp:serviceaccount/account:Account": _named(
        "iam",
        "projects.serviceAccounts.get",
        "projects/{project}/serviceAccounts/{accountId}@{project}.iam.gserviceaccount.com",
        made="",
        alike=("displayName", "description"),
    ),
    "gcp:projects/iAMCustomRole:IAMCustomRole": _named(
        "iam", "projects.roles.get", "projects/{project}/roles/{roleId}", made="", alike=("title", "description")
    ),
    "gcp:iam/workloadIdentityPool:WorkloadIdentityPool": _named(
        "iam",
        "projects.locations.workloadIdentityPools.get",
        "projects/{project}/locations/global/workloadIdentityPools/{workloadIdentityPoolId}",
        made="",
        alike=("displayName", "description"),
    ),
    "gcp:iam/workloadIdentityPoolProvider:WorkloadIdentityPoolProvider": _named(
        "iam",
        "projects.locations.workloadIdentityPools.providers.get",
        "projects/{project}/locations/global/workloadIdentityPools/{workloadIdentityPoolId}"
        "/providers/{workloadIdentityPoolProviderId}",
        made="",
        inside="in the pool {workloadIdentityPoolId}",
    ),
    "gcp:secretmanager/secret:Secret": _named(
        "secrets", "projects.secrets.get", "projects/{project}/secrets/{secretId}"
    ),
    # Teams
    "gcp:storage/bucket:Bucket": Row("{name}", _method("storage", "buckets.get", bucket="{name}"), "timeCreated"),
    "gcp:artifactregistry/repository:Repository": _named(
        "registries",
        "projects.locations.repositories.get",
        "projects/{project}/locations/{location}/repositories/{repositoryId}",
    ),
    # Monitoring
    "gcp:monitoring/dashboard:Dashboard": _titled(
        "dashboards", "projects.dashboards.list", parent="projects/{project}"
    ),
    "gcp:monitoring/alertPolicy:AlertPolicy": _titled(
        "monitoring", "projects.alertPolicies.list", name="projects/{project}"
    ),
    "gcp:monitoring/notificationChannel:NotificationChannel": _titled(
        "monitoring", "projects.notificationChannels.list", name="projects/{project}"
    ),
    "gcp:billing/budget:Budget": _titled(
        "budgets", "billingAccounts.budgets.list", parent="billingAccounts/{billingAccount}"
    ),
    "gcp:logging/metric:Metric": Row(
        "{name}",
        _method("logging", "projects.metrics.get", metricName="projects/{project}/metrics/{name}"),
        "createTime",
    ),
    "gcp:logging/projectExclusion:ProjectExclusion": _named(
        "logging", "projects.exclusions.get", "projects/{project}/exclusions/{name}"
    ),
}


@dataclass
class GoogleLook:
    """Asks Google about one resource after the other; where Google is away, it is asked no more.

    `taken`: type and id of what the state has; where names do not tell, it is not what is looked for.
    """

    cloud: Cloud
    project: str
    taken: Collection[tuple[str, str]] = ()
    away: str = ""

    def find(self, resource: Resource, others: Mapping[str, Resource]) -> Finding:
        """What there is of a resource; `others`: resources by URN that its unknown inputs may come from."""
        if resource.type in AGAIN:
            return Finding("again", why="`up` makes it again, which changes nothing that is there")
        row = ROWS.get(resource.type)
        if row is None:
            return Finding("unknown", why=f"this command does not know how to look up {resource.type}")
        if self.away:
            return Finding("unknown", why=self.away)
        values = self._values(resource, others)
        try:
            found = row.find(self.cloud, values)
        except KeyError as error:
            return Finding("unknown", why=f"its {error.args[0]} is not known yet")
        except RefusedError as error:
            if error.switched_off:
                return Finding("absent")
            return Finding("unknown", why=f"Google answers {error.status}: {error}")
        except NoConnectionError as error:
            self.away = f"{error} -> {error.next_step}"
            return Finding("unknown", why=self.away)
        if isinstance(found, list):
            rest = [each for each in found if (resource.type, _identity(row, each, values)) not in self.taken]
            if len(rest) > 1:
                return Finding("unknown", why=f"{len(rest)} have the name or title that it has")
            found = rest[0] if rest else None
        return _judged(row, found, values) if found is not None else Finding("absent")

    def _values(self, resource: Resource, others: Mapping[str, Resource]) -> dict[str, str]:
        """The resource's inputs that are plain text, a dashboard's title, and what it takes from others."""
        inputs = {"project": self.project, **_dashboard(resource.inputs), **resource.inputs}
        for key, urns in resource.depends.items():
            if not known(inputs.get(key)) and len(urns) == 1 and urns[0] in others:
                inputs[key] = self._taken(key, others[urns[0]])
        return {key: value for key, value in inputs.items() if isinstance(value, str) and known(value)}

    def _taken(self, key: str, other: Resource) -> Any:
        """What a resource takes from another one under a key: a pool its cluster's id, all else a name."""
        inputs = {"project": self.project, **other.inputs}
        try:
            return ROWS[other.type].id.format_map(inputs) if key == "cluster" else inputs.get(key) or inputs.get("name")
        except KeyError:
            return None


def _dashboard(inputs: Mapping[str, Any]) -> dict[str, Any]:
    text = inputs.get("dashboardJson")
    try:
        return {"displayName": json.loads(text)["displayName"]} if known(text) and isinstance(text, str) else {}
    except (ValueError, KeyError, TypeError):
        return {}


def _identity(row: Row, found: Json, values: Mapping[str, str]) -> str:
    """What `pulumi import` wants for what was found."""
    name = str(found.get("name", ""))
    return row.id.format_map({"name": name, **values}) if row.id else name


def _judged(row: Row, found: Json, values: Mapping[str, str]) -> Finding:
    status = str(found.get("status", found.get("state", "")))
    if status == "DELETED" or found.get("deleted"):
        return Finding("unknown", why="Google keeps it as deleted for some weeks, and its name with it: undelete it")
    identity = _identity(row, found, values)
    same = [key for key in row.alike if values.get(key, "") and values[key] == found.get(key)]
    ours = row.inside.format_map(values) if row.inside else ""
    if row.alike and len(same) == len([key for key in row.alike if key in values]) and same:
        ours = f"with the same {' and '.join(same)}"
    return Finding(
        "changing" if status in row.changing else "present",
        identity,
        moment(found.get(row.made)) if row.made else None,
        ours,
        why=f"Google says {status}" if status in row.changing else "",
        note=f"it is in {status}: `up` does not repair it, `pulumi up --replace` does" if status in row.broken else "",
    )
