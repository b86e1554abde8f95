"""Projects: Resource Manager's view of them and the services enabled in them."""

from __future__ import annotations

from sandbox.google import machines
from sandbox.google.errors import GoogleError, invalid, not_found
from sandbox.google.operations import Operation
from sandbox.google.policies import get_policy, set_policy
from sandbox.google.project_numbers import project_number
from sandbox.google.service import Call, handles, render, short
from sandbox.google.store import Change, Resource
from sandbox.google.world import DEFAULT_QUOTA

CREATED = "2026-01-01T00:00:00.000Z"
SERVICES = "serviceusage.services"
MAX_BATCH = 20  # services in one batchEnable call
MAX_BATCH_READ = 30  # services in one batchGet call


@handles("cloudresourcemanager.projects.get")
def get_project(call: Call) -> Resource:
    """Every project id exists; v1 and v3 word the same facts differently."""
    project, number = call.project, project_number(call.project)
    if call.route.document.version == "v1":
        own = {"projectId": project, "projectNumber": number, "name": project, "createTime": CREATED}
        return {**own, "lifecycleState": "ACTIVE"}
    own = {"name": f"projects/{number}", "projectId": project, "displayName": project, "createTime": CREATED}
    return {**own, "state": "ACTIVE", "etag": "W/sandbox"}


@handles("cloudbilling.projects.getBillingInfo")
def billing_info(call: Call) -> Resource:
    """Every project has an account for its bills."""
    account = {"billingAccountName": "billingAccounts/000000-000000-000000", "billingEnabled": True}
    return {"name": f"projects/{call.project}/billingInfo", "projectId": call.project, **account}


@handles("cloudresourcemanager.projects.getIamPolicy")
def project_policy(call: Call) -> Resource:
    return get_policy(call.world, f"projects/{call.project}")


@handles("cloudresourcemanager.projects.setIamPolicy")
def set_project_policy(call: Call) -> Resource:
    return set_policy(call, f"projects/{call.project}")


def _service(project: str, service: str, *, enabled: bool) -> Resource:
    return {
        "name": f"projects/{project_number(project)}/services/{service}",
        "parent": f"projects/{project_number(project)}",
        "config": {"name": service},
        "state": "ENABLED" if enabled else "DISABLED",
    }


def _check_name(service: str) -> None:
    if not service.endswith(".googleapis.com"):
        raise GoogleError("NOT_FOUND", f"Service {service} not found or permission denied.")


@handles("serviceusage.services.list")
def list_services(call: Call) -> Resource:
    wanted = call.query.get("filter", "")
    if wanted not in ("", "state:ENABLED", "state:DISABLED"):
        raise invalid(f"Invalid filter '{wanted}': only state:ENABLED and state:DISABLED are supported.")
    enabled = call.world.enabled_services(call.project)
    names = sorted({*enabled, *call.world.switched_services(call.project)})
    services = [_service(call.project, name, enabled=name in enabled) for name in names]
    return {"services": [s for s in services if wanted in ("", f"state:{s['state']}")]}


@handles("serviceusage.services.get")
def get_service(call: Call) -> Resource:
    service = call.params["servicesId"]
    _check_name(service)
    return _service(call.project, service, enabled=service in call.world.enabled_services(call.project))


@handles("serviceusage.services.batchGet")
def get_services(call: Call) -> Resource:
    names = [short(name) for name in call.values("names")]
    if len(names) > MAX_BATCH_READ:
        raise invalid(f"At most {MAX_BATCH_READ} services can be read in one request, got {len(names)}.")
    for name in names:
        _check_name(name)
    enabled = call.world.enabled_services(call.project)
    return {"services": [_service(call.project, name, enabled=name in enabled) for name in names]}


def _switch(call: Call, services: list[str], *, on: bool) -> Operation:
    for service in services:
        _check_name(service)
    changes = [Change(SERVICES, f"{call.project}/{service}", {"on": on}) for service in services]
    return Operation(call.method, call.project, "global", "", f"projects/{call.project}/services", changes=changes)


@handles("serviceusage.services.enable")
def enable_service(call: Call) -> Operation:
    return _switch(call, [call.params["servicesId"]], on=True)


@handles("serviceusage.services.disable")
def disable_service(call: Call) -> Operation:
    return _switch(call, [call.params["servicesId"]], on=False)


@handles("serviceusage.services.batchEnable")
def enable_services(call: Call) -> Operation:
    services = call.body.get("serviceIds", [])
    if not 0 < len(services) <= MAX_BATCH:
        raise invalid(f"Between 1 and {MAX_BATCH} services can be enabled in one request, got {len(services)}.")
    return _switch(call, services, on=True)


@handles("serviceusage.operations.get")
def get_operation(call: Call) -> Resource:
    name = call.params["operationsId"]
    operation = call.world.operations.get(name)
    if operation is None or operation.api != "serviceusage":
        raise not_found(f"operations/{name}")
    return render(operation)


def _quota_metrics() -> list[str]:
    tpus = [metric for g in machines.GENERATIONS.values() for metric in (g.quota, g.spot_quota)]
    return ["CPUS", *tpus]


@handles("serviceusage.services.consumerQuotaMetrics.list")
def list_quotas(call: Call) -> Resource:
    """Compute Engine's regional quotas; a family's dimension follows a colon in the emulator's metric names."""
    if call.params["servicesId"] != "compute.googleapis.com":
        return {"metrics": []}
    return {"metrics": [_quota_metric(call, metric) for metric in _quota_metrics()]}


def _quota_metric(call: Call, metric: str) -> Resource:
    base, _, family = metric.partition(":")
    name = f"compute.googleapis.com/{base.lower()}"
    dimensions = {"tpu_family": family} if family else {}
    set_limits = call.store.all("sandbox.quotas").items()
    buckets = [{"effectiveLimit": str(int(DEFAULT_QUOTA)), "dimensions": dimensions}]
    for region, limits in set_limits:
        if metric in limits:
            buckets.append({"effectiveLimit": str(int(limits[metric])), "dimensions": {"region": region, **dimensions}})
    limit = {"metric": name, "unit": "1/{project}/{region}", "quotaBuckets": buckets}
    return {"metric": name, "displayName": base, "unit": "1", "consumerQuotaLimits": [limit]}
