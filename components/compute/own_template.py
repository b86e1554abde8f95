"""Instance templates that somebody else made: read at plan time, and refused where they do not fit the slice."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from components.gcp.provider_function import ask_google
from plan import hosts
from plan.hosts import HostTemplate
from plan.platform import Platform
from plan.slices import SlicePlan
from platform_config.platform import below

GLOBAL = "gcp:compute/getInstanceTemplate:getInstanceTemplate"
REGIONAL = "gcp:compute/getRegionInstanceTemplate:getRegionInstanceTemplate"
DEFAULT_ACCOUNT = "-compute@developer.gserviceaccount.com"

Found = Mapping[str, Any]


@dataclass(frozen=True)
class OwnTemplate:
    """A template that passed the checks: its short name, a link to it, and its hosts' service account."""

    name: str
    link: pulumi.Output[str]
    email: pulumi.Output[str]


def own_templates(platform: Platform) -> dict[str, OwnTemplate]:
    """The templates that slices name, by slice."""
    return {
        plan.name: _own_template(platform, plan, template)
        for plan in platform.slice_plans
        if (template := platform.slices[plan.group].instance_template)
    }


def _own_template(platform: Platform, plan: SlicePlan, template: str) -> OwnTemplate:
    found: pulumi.Output[dict[str, Any]] = pulumi.Output.from_input(_checked(platform, plan, template))
    return OwnTemplate(
        template.rpartition("/")[2],
        # A new template can take an old one's name. The unique link tells them apart; regional templates have none.
        found.apply(lambda found: str(found.get("selfLinkUnique") or found["selfLink"])),
        found.apply(lambda found: str(found["serviceAccounts"][0]["email"])),
    )


async def _checked(platform: Platform, plan: SlicePlan, template: str) -> dict[str, Any]:
    """A template as Google returns it. Raises RunError where it cannot be read or does not fit the slice."""
    path = below(f"slices.{plan.group}.instance_template")
    try:
        found = await _read(template)
    except Exception as error:
        raise pulumi.RunError(f"{path}: {template} cannot be read: {error}") from None
    expected = hosts.slice_groups(platform, plan)[0].template
    joins = hosts.boot_metadata(platform) if platform.compute.bootstrap else {}
    if wrong := list(mismatches(found, expected, joins)):
        raise pulumi.RunError("\n  ".join([f"{path}: {template} does not fit this slice:", *wrong]))
    return found


async def _read(template: str) -> dict[str, Any]:
    _, project, scope, *rest = template.split("/")
    if scope == "regions":
        return await ask_google(REGIONAL, {"project": project, "region": rest[0], "name": rest[-1]})
    return await ask_google(GLOBAL, {"project": project, "name": rest[-1]})


def mismatches(found: Found, expected: HostTemplate, joins: Mapping[str, str]) -> Iterator[str]:
    """How a template, in the provider's form, differs from the one that the slice needs. `joins`: metadata that the
    boot script reads, empty where images join by themselves."""
    compared: dict[str, tuple[Any, Any]] = {
        "machine type": (found.get("machineType"), expected.machine_type),
        "provisioning model": (
            _first(found, "schedulings").get("provisioningModel") or "STANDARD",
            expected.scheduling.provisioning_model,
        ),
        "reservation": (_reserved(found), list(expected.reservation.values) if expected.reservation else []),
    }
    for what, (actual, wanted) in compared.items():
        if actual != wanted:
            yield f"its {what} is {actual or 'not set'}, not {wanted or 'unset'}"
    if any(interface.get("accessConfigs") for interface in found.get("networkInterfaces") or []):
        yield "its hosts have a public address"
    email = _first(found, "serviceAccounts").get("email")
    if not email or email.endswith(DEFAULT_ACCOUNT):
        yield f"its hosts run as {email or 'no account'}; give it a service account of their own"
    yield from _metadata_mismatches(found.get("metadata") or {}, expected, joins)


def _metadata_mismatches(found: Found, expected: HostTemplate, joins: Mapping[str, str]) -> Iterator[str]:
    """The device plugin reads `kube-labels`, the boot script all other keys."""
    metadata = expected.metadata()
    if not joins:
        metadata = {"kube-labels": metadata["kube-labels"]}
    for key, wanted in {**metadata, **joins}.items():
        if _as_set(found.get(key, "")) != _as_set(wanted):
            yield f"its metadata {key} is {found.get(key) or 'not set'}, not {wanted}"
    if joins and not found.get("startup-script"):
        yield "its metadata has no startup-script; only images with cluster.bootstrap: false need none"


def _first(found: Found, blocks: str) -> Found:
    return next(iter(found.get(blocks) or []), {})


def _reserved(found: Found) -> list[str]:
    """The reservations that a template names."""
    affinity = _first(found, "reservationAffinities")
    return list(_first(affinity, "specificReservations").get("values") or [])


def _as_set(listed: str) -> set[str]:
    """Labels and taints are lists whose order does not matter."""
    return set(listed.split(","))
