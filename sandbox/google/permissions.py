"""Which IAM permission each method needs, and the refusal of callers who lack it.

The deployer may do everything until a set of granted permissions is given: then it has exactly those. Service accounts
have what the policies of the project and of the resource give them; whether one may act as another is up to the
policies of that other account and of its project. Permission names and the exceptions below follow Google's IAM
permissions reference and each API's method documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sandbox.google.errors import GoogleError
from sandbox.google.roles import ACT_AS, allows
from sandbox.google.service import Call, dig
from sandbox.google.world import World

GRANTED = ("sandbox.permissions", "granted")


# Words of method ids that permissions put differently.
VERBS = {"insert": "create", "patch": "update", "aggregatedList": "list", "batchEnable": "enable", "batchGet": "get"}
# Compute collections that share the permissions of another one.
COMPUTE_ALIASES = {
    "regionInstanceGroupManagers": "instanceGroupManagers",
    "regionInstanceTemplates": "instanceTemplates",
}
COMPUTE_VERBS = {
    "wait": "get",
    "resize": "update",
    "listManagedInstances": "get",
    "listErrors": "get",
    "setNamedPorts": "update",
    "listInstances": "list",
    "addInstances": "update",
    "removeInstances": "update",
}
# Whole methods whose permission does not follow from their id.
_CLUSTER = "container.projects.locations.clusters"
SPECIAL = {
    "container.projects.locations.getServerConfig": "container.clusters.list",
    f"{_CLUSTER}.nodePools.create": "container.clusters.update",
    f"{_CLUSTER}.nodePools.delete": "container.clusters.update",
    f"{_CLUSTER}.nodePools.update": "container.clusters.update",
    f"{_CLUSTER}.nodePools.setSize": "container.clusters.update",
    f"{_CLUSTER}.nodePools.setManagement": "container.clusters.update",
    f"{_CLUSTER}.nodePools.setAutoscaling": "container.clusters.update",
    f"{_CLUSTER}.nodePools.get": "container.clusters.get",
    f"{_CLUSTER}.nodePools.list": "container.clusters.get",
    "cloudresourcemanager.projects.get": "resourcemanager.projects.get",
    "cloudbilling.projects.getBillingInfo": "resourcemanager.projects.get",
    "cloudresourcemanager.projects.getIamPolicy": "resourcemanager.projects.getIamPolicy",
    "cloudresourcemanager.projects.setIamPolicy": "resourcemanager.projects.setIamPolicy",
    "iam.projects.serviceAccounts.patch": "iam.serviceAccounts.update",
    "iam.projects.roles.patch": "iam.roles.update",
    "serviceusage.operations.get": "",
    "serviceusage.services.consumerQuotaMetrics.list": "serviceusage.quotas.get",
    "compute.disks.resize": "compute.disks.resize",
    "compute.reservations.resize": "compute.reservations.resize",
    "secretmanager.projects.secrets.addVersion": "secretmanager.versions.add",
    "artifactregistry.projects.locations.operations.get": "",
    "iam.projects.locations.workloadIdentityPools.operations.get": "",
    "iam.projects.locations.workloadIdentityPools.providers.operations.get": "",
    "sts.token": "",
    **{
        f"billingbudgets.billingAccounts.budgets.{verb}": f"billing.budgets.{named}"
        for verb, named in (*((verb, verb) for verb in ("create", "delete", "get", "list")), ("patch", "update"))
    },
    **{
        f"logging.projects.metrics.{verb}": f"logging.logMetrics.{verb}"
        for verb in ("create", "delete", "get", "list", "update")
    },
    **{
        f"iam.projects.locations.workloadIdentityPools.providers.{verb}": f"iam.workloadIdentityPoolProviders.{named}"
        for verb, named in (
            *((verb, verb) for verb in ("create", "delete", "get", "list", "undelete")),
            ("patch", "update"),
        )
    },
}
# Methods on parts of a resource that its own permissions cover: method prefix -> (reading, changing).
PARTS = {
    "compute.instanceGroupManagerResizeRequests.": (
        "compute.instanceGroupManagers.get",
        "compute.instanceGroupManagers.update",
    ),
    "compute.regionInstanceGroupManagerResizeRequests.": (
        "compute.instanceGroupManagers.get",
        "compute.instanceGroupManagers.update",
    ),
}
SET_ON_CLUSTER = ("setMaintenancePolicy", "setResourceLabels", "setLegacyAbac", "setNetworkPolicy", "setLocations")
SPECIAL |= {f"{_CLUSTER}.{verb}": "container.clusters.update" for verb in SET_ON_CLUSTER}
# What a method needs on the resources its body refers to: method -> ((body path, permission), ...). A path goes through
# every entry of a list.
ALSO: dict[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "compute.subnetworks.insert": ((("network",), "compute.networks.updatePolicy"),),
    "compute.firewalls.insert": ((("network",), "compute.networks.updatePolicy"),),
    "compute.routers.insert": ((("network",), "compute.networks.updatePolicy"),),
    "compute.instances.insert": (
        (("disks", "initializeParams"), "compute.disks.create"),
        (("disks", "source"), "compute.disks.use"),
        (("networkInterfaces",), "compute.subnetworks.use"),
        (("networkInterfaces", "accessConfigs"), "compute.subnetworks.useExternalIp"),
        (("labels",), "compute.instances.setLabels"),
        (("metadata", "items"), "compute.instances.setMetadata"),
        (("tags", "items"), "compute.instances.setTags"),
        (("serviceAccounts",), "compute.instances.setServiceAccount"),
        (("serviceAccounts",), ACT_AS),
    ),
    "compute.instances.attachDisk": ((("source",), "compute.disks.use"),),
    "compute.instanceGroups.addInstances": ((("instances",), "compute.instances.use"),),
    "compute.regionBackendServices.insert": (
        (("healthChecks",), "compute.regionHealthChecks.useReadOnly"),
        (("backends", "group"), "compute.instanceGroups.use"),
    ),
    "compute.forwardingRules.insert": (
        (("backendService",), "compute.regionBackendServices.use"),
        (("subnetwork",), "compute.subnetworks.use"),
    ),
    "compute.instanceTemplates.insert": ((("properties", "serviceAccounts"), ACT_AS),),
    "compute.regionInstanceTemplates.insert": ((("properties", "serviceAccounts"), ACT_AS),),
    "compute.instanceGroupManagers.insert": (
        (("versions",), "compute.instanceTemplates.useReadOnly"),
        (("versions",), "compute.instances.create"),
        (("resourcePolicies", "workloadPolicy"), "compute.resourcePolicies.use"),
    ),
    "compute.addresses.insert": ((("subnetwork",), "compute.subnetworks.use"),),
    f"{_CLUSTER}.create": ((("cluster", "nodeConfig", "serviceAccount"), ACT_AS),),
    f"{_CLUSTER}.nodePools.create": ((("nodePool", "config", "serviceAccount"), ACT_AS),),
}


def permission_for(method: str) -> str:
    """The permission a discovery method id needs on its own resource; "" when it needs none."""
    if method in SPECIAL:
        return SPECIAL[method]
    api, *middle, verb = method.split(".")
    for prefix, (reading, changing) in PARTS.items():
        if method.startswith(prefix):
            return reading if verb in ("get", "list") else changing
    if api == "compute":
        collection = COMPUTE_ALIASES.get(middle[-1], middle[-1])
        return f"compute.{collection}.{COMPUTE_VERBS.get(verb, VERBS.get(verb, verb))}"
    return f"{api}.{middle[-1]}.{VERBS.get(verb, verb)}"


def needed(method: str, body: object) -> list[str]:
    """Every permission a call needs."""
    also = [permission for path, permission in ALSO.get(method, ()) if any(_found(body, path))]
    own = permission_for(method)
    return [permission for permission in (own, *also) if permission]


def _found(value: object, path: tuple[str, ...]) -> Iterator[object]:
    """What a body has at a path, empty values left out."""
    if isinstance(value, list):
        for entry in value:
            yield from _found(entry, path)
    elif path and value:
        yield from _found(dig(value, path[0]), path[1:])
    elif value:
        yield value


def grant(world: World, permissions: list[str] | None) -> None:
    """From now on the caller has exactly these permissions; None gives all of them back."""
    world.store.put(*GRANTED, {"permissions": permissions} if permissions is not None else None)


def granted(world: World, permission: str) -> bool:
    own = world.store.get(*GRANTED)
    return own is None or permission in own["permissions"]


def permitted(call: Call, permission: str) -> bool:
    return _holds(call, permission, _policy_holders(call))


def _holds(call: Call, permission: str, resources: list[str]) -> bool:
    if not call.caller:
        return granted(call.world, permission)
    return allows(call.world, call.caller, permission, resources)


def _policy_holders(call: Call) -> list[str]:
    """The resource a call addresses and those it is part of, by the names their policies are kept under."""
    if call.route.document.api == "storage":
        return [f"projects/{call.project}", bucket_policy(call.params.get("bucket", ""))]
    path = re.sub(r"\{(\w+)\}", lambda name: call.params[name[1]], call.route.method.flat_path.partition(":")[0])
    segments = re.sub(r"^v\d\w*/", "", path).split("/")
    return ["/".join(segments[:length]) for length in range(2, len(segments) + 1, 2)]


def bucket_policy(bucket: str) -> str:
    """The name under which a bucket's policy is kept."""
    return f"storage/buckets/{bucket}"


def check(call: Call) -> None:
    """403 PERMISSION_DENIED naming the first permission the caller lacks; whether a bucket exists, anybody may know."""
    bucket = call.params.get("bucket", "") if call.route.document.api == "storage" else ""
    if bucket and call.store.get("storage.buckets", bucket) is None:
        raise GoogleError("NOT_FOUND", "The specified bucket does not exist.")
    for permission in needed(call.method, call.body):
        if permission == ACT_AS:
            _check_act_as(call)
        else:
            require(call, permission)


def require(call: Call, permission: str) -> None:
    """403 PERMISSION_DENIED unless the caller holds one more permission on what the call is about."""
    if not permitted(call, permission):
        raise _denied(call, permission)


def _check_act_as(call: Call) -> None:
    """403 unless the caller may act as each account that the body hands to a machine."""
    paths = [path for path, permission in ALSO[call.method] if permission == ACT_AS]
    for found in (each for path in paths for each in _found(call.body, path)):
        email = str(dig(found, "email") if isinstance(found, dict) else found)
        if not _holds(call, ACT_AS, _account_holders(call, email)):
            raise _denied(call, ACT_AS, email)


def _account_holders(call: Call, email: str) -> list[str]:
    """An account and its project, by the names their policies are kept under."""
    for name, account in call.store.all("iam.serviceAccounts").items():
        if account["email"] == email:
            return ["/".join(name.split("/")[:2]), name]
    return [f"projects/{call.project}"]  # Google's own default account


def _denied(call: Call, permission: str, account: str = "") -> GoogleError:
    resource = f"projects/{call.project}"
    api = call.route.document.api
    if permission == ACT_AS:
        text = (
            f'The user does not have access to service account "{account}". Ask a project owner to grant you the'
            f" iam.serviceAccountUser role on the service account. Missing permission: {permission}."
        )
    elif api == "compute":
        text = f"Required '{permission}' permission for '{resource}'"
    elif api == "container":
        text = f'Required "{permission}" permission(s) for "{resource}".'
    elif api == "storage":
        kind = "object" if "object" in call.params else "bucket"
        who = call.caller.partition(",")[0] if "@" in call.caller else "Caller"
        text = (
            f"{who.removeprefix('user:')} does not have {permission} access to the Google Cloud Storage {kind}."
            f" Permission '{permission}' denied on resource (or it may not exist)."
        )
    else:
        text = (
            f"Permission '{permission}' denied on resource '//{api}.googleapis.com/{_policy_holders(call)[-1]}'"
            " (or it may not exist)."
        )
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "IAM_PERMISSION_DENIED",
        "domain": f"{api}.googleapis.com",
        "metadata": {"permission": permission, "resource": resource},
    }
    return GoogleError("PERMISSION_DENIED", text, details=[info])


def test_permissions(call: Call) -> dict[str, list[str]]:
    """The answer to every API's testIamPermissions: those of the asked permissions the caller has."""
    asked = [*call.body.get("permissions", []), *call.values("permissions")]
    return {"permissions": [p for p in asked if permitted(call, p)]}
