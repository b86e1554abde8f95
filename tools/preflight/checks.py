"""The checks of Google Cloud, one function each. They only read."""

from collections.abc import Callable, Iterator, Sequence

from catalogue.versions import METRIC_AUTOSCALING, SECRET_SYNC, Floor, parse, reaches
from plan.google_apis import google_apis
from plan.hosts import cpu_group, slice_groups
from plan.shape import resolve
from plan.teams import teams_with_secrets
from platform_config.network import CreatedNetwork, ExistingNetwork
from platform_config.self_managed import ExistingCluster
from rules.platform import ranges_large_enough
from rules.registry import SliceView
from rules.slices import floors
from tools.permission_table import BILLING_ACCOUNT, VERBS
from tools.preflight import teams
from tools.preflight.cloud import Json, RefusedError
from tools.preflight.findings import Finding
from tools.preflight.quota import chip_quota, cpu_quota
from tools.preflight.reservations import reservations
from tools.preflight.scene import Scene, machines

PERMISSIONS_A_CALL = 100
SHOWN_PERMISSIONS = 5

Check = Callable[[Scene], Iterator[Finding]]


def project(scene: Scene) -> Iterator[Finding]:
    """The project exists, is active, and the caller may see it."""
    name = scene.platform.project
    try:
        found = scene.cloud.find("projects", "projects.get", name=f"projects/{name}")
    except RefusedError as error:
        if not error.forbidden:
            raise
        found = None  # Google does not say whether a project exists that one may not see
    if found is None:
        yield Finding("blocks", f"{name} does not exist, or you may not see it", "check gcp:project and your login")
    elif found.get("state") != "ACTIVE":
        yield Finding("blocks", f"{name} is {found.get('state')}", "gcloud projects undelete, or use another project")
    else:
        yield Finding("ok", f"{name} is there")


def services(scene: Scene) -> Iterator[Finding]:
    """The APIs that the platform calls are switched on."""
    name = scene.platform.project
    listed = scene.cloud.pages(
        "services", "services.list", "services", parent=f"projects/{name}", filter="state:ENABLED"
    )
    off = sorted(set(google_apis(scene.platform)) - {each["config"]["name"] for each in listed})
    if off:
        yield Finding(
            "warning",
            f"{len(off)} APIs are off: {', '.join(off)}",
            f"pulumi up switches them on; to check more now: gcloud services enable {' '.join(off)} --project={name}",
        )
    else:
        yield Finding("ok", f"all {len(google_apis(scene.platform))} are on")


def permissions(scene: Scene) -> Iterator[Finding]:
    """The caller has what a deployer of this stack needs."""
    from tools.permissions import UnknownTypesError, needed
    from tools.registrations import registrations

    try:
        wanted = needed(registrations(scene.platform, stack=scene.stack), "deployer").names
    except UnknownTypesError as error:
        yield Finding("not checked", str(error))
        return
    granted: set[str] = set()
    unknown: list[str] = []
    for start in range(0, len(wanted), PERMISSIONS_A_CALL):
        _test(scene, wanted[start : start + PERMISSIONS_A_CALL], granted, unknown)
    missing = [name for name in wanted if name not in granted and name not in unknown]
    if unknown:
        yield Finding("not checked", f"this project cannot say whether you have {', '.join(unknown)}")
    if missing:
        shown = ", ".join(missing[:SHOWN_PERMISSIONS])
        rest = f" and {len(missing) - SHOWN_PERMISSIONS} more" if len(missing) > SHOWN_PERMISSIONS else ""
        yield Finding(
            "blocks",
            f"{len(missing)} of {len(wanted)} are missing: {shown}{rest}",
            f"have a role granted that `python -m tools permissions -s {scene.stack} --role` prints",
        )
    else:
        yield Finding("ok", f"you have all {len(wanted) - len(unknown)}")


def _test(scene: Scene, names: Sequence[str], granted: set[str], unknown: list[str]) -> None:
    """Sort permissions into those that the caller has and those that the project cannot test. One unknown permission
    fails the whole call, so the list is halved until it is found."""
    try:
        answer = scene.cloud.get(
            "projects",
            "projects.testIamPermissions",
            resource=f"projects/{scene.platform.project}",
            body={"permissions": list(names)},
        )
    except RefusedError as error:
        if error.status != 400:
            raise
        if len(names) == 1:
            unknown += names
            return
        half = len(names) // 2
        _test(scene, names[:half], granted, unknown)
        _test(scene, names[half:], granted, unknown)
    else:
        granted.update(answer.get("permissions", ()))


def budget(scene: Scene) -> Iterator[Finding]:
    """The budget's billing account pays for the project, and the caller may make budgets there."""
    written, project_id = scene.platform.monitoring.budget, scene.platform.project
    if written is None:
        return
    account = f"billingAccounts/{written.billing_account}"
    wanted = sorted({name for row in BILLING_ACCOUNT.values() for verb in VERBS for name in getattr(row, verb)})
    try:
        paying = scene.cloud.get("billing", "projects.getBillingInfo", name=f"projects/{project_id}")
        answer = scene.cloud.get(
            "billing", "billingAccounts.testIamPermissions", resource=account, body={"permissions": wanted}
        )
    except RefusedError as error:
        yield Finding("not checked", f"Google does not say who pays for {project_id}: {error}")
        return
    missing = sorted(set(wanted) - set(answer.get("permissions", ())))
    if paying.get("billingAccountName") != account:
        yield Finding(
            "blocks",
            f"{paying.get('billingAccountName') or 'no billing account'} pays for {project_id}, not {account}",
            "check monitoring.budget.billing_account",
        )
    if missing:
        yield Finding(
            "blocks",
            f"you lack {', '.join(missing)} on {account}",
            f"have a role granted there that `python -m tools permissions -s {scene.stack} --billing --role` prints",
        )
    elif paying.get("billingAccountName") == account:
        yield Finding("ok", f"{account} pays for {project_id}, and you may make budgets there")


def zone(scene: Scene) -> Iterator[Finding]:
    """The zones exist and offer the machine types."""
    zones = sorted({each.zone for each in machines(scene.platform)} | {scene.platform.zone})
    for name in zones:
        found = scene.compute("zones.get", zone=name)
        if found is None:
            yield Finding("blocks", f"there is no zone {name}", "gcloud compute zones list")
        elif found.get("status") != "UP":
            yield Finding("blocks", f"{name} is {found.get('status')}", "wait, or use another zone")
        else:
            yield from _offers(scene, name)


def _offers(scene: Scene, name: str) -> Iterator[Finding]:
    here = {machine: found for (zone, machine), found in scene.machine_types.items() if zone == name}
    for machine in sorted(machine for machine, found in here.items() if found is None):
        generations = [p.generation for p in scene.platform.slice_plans if p.machine.name == machine]
        elsewhere = f"seen in {', '.join(generations[0].zones)}" if generations else "take a family that it offers"
        yield Finding("blocks", f"{name} does not offer {machine}", elsewhere)
    offered = sorted(machine for machine, found in here.items() if found)
    if offered:
        yield Finding("ok", f"{name} offers {', '.join(offered)}")


def disks(scene: Scene) -> Iterator[Finding]:
    """The zones have the types of the boot disks."""
    wanted = sorted({(each.zone, each.disk_type) for each in machines(scene.platform)})
    absent = [pair for pair in wanted if scene.compute("diskTypes.get", zone=pair[0], diskType=pair[1]) is None]
    for place, name in absent:
        yield Finding("blocks", f"{place} has no disks of type {name}", "set another boot_disk.type or disk_type")
    if not absent:
        yield Finding("ok", ", ".join(f"{name} in {place}" for place, name in wanted))


def version(scene: Scene) -> Iterator[Finding]:
    """GKE offers a version that has what the slices need; of a cluster that stands, its own version counts."""
    platform = scene.platform
    if platform.backend != "gke":
        return
    if scene.cluster is not None:
        current = str(scene.cluster.get("currentMasterVersion", ""))
        yield from _reached(scene, current, "the cluster runs", "upgrade the cluster before")
        return
    name = f"projects/{platform.project}/locations/{platform.location}"
    config = scene.cloud.get("container", "projects.locations.getServerConfig", name=name)
    channel = platform.gke.release_channel
    offered = _channel(config, channel)
    valid = sorted(offered.get("validVersions", ()), key=parse, reverse=True)
    wanted = platform.gke.version
    if wanted is None:
        newest = f"set cluster.version: {valid[0]}" if valid else "use another release channel"
        yield from _reached(scene, str(offered.get("defaultVersion", "")), f"{channel}'s default is", newest)
    elif match := next((each for each in valid if _is(each, wanted)), None):
        yield from _reached(scene, match, f"{channel} offers", "raise cluster.version")
    else:
        yield Finding(
            "blocks",
            f"{channel} does not offer {wanted} in {platform.location}",
            f"use one of {', '.join(valid)}" if valid else "use another release channel",
        )


def _channel(config: Json, channel: str) -> Json:
    found: list[Json] = [each for each in config.get("channels", ()) if each.get("channel") == channel]
    return found[0] if found else {}


def _is(version: str, wanted: str) -> bool:
    """Whether a version is the wanted one, or one of the wanted line."""
    return version == wanted or version.startswith((f"{wanted}.", f"{wanted}-"))


def _reached(scene: Scene, version: str, said: str, next_step: str) -> Iterator[Finding]:
    missed = [floor for floor in _floors(scene) if not reaches(version, floor.version)]
    for floor in missed:
        yield Finding("blocks", f"{floor.feature} needs GKE {floor.version}; {said} {version}", next_step)
    if not missed:
        yield Finding("ok", f"{said} {version}")


def _floors(scene: Scene) -> list[Floor]:
    platform = scene.platform
    views = [SliceView(platform, name, spec, resolve(spec)) for name, spec in platform.slices.items()]
    of_teams = [SECRET_SYNC] if teams_with_secrets(platform) else []
    of_servers = [METRIC_AUTOSCALING] if platform.gke.metric_autoscaling else []
    return list(dict.fromkeys([*(floor for view in views for _, floor in floors(view)), *of_teams, *of_servers]))


def network(scene: Scene) -> Iterator[Finding]:
    """An existing network has the subnet and the ranges, and room for all nodes and pods."""
    platform, spec = scene.platform, scene.platform.network
    if not isinstance(spec, ExistingNetwork):
        return
    owner = spec.project or platform.project
    if scene.compute("networks.get", project=owner, network=spec.network) is None:
        yield Finding("blocks", f"there is no network {spec.network} in {owner}", "check network.network and project")
    subnet = scene.compute("subnetworks.get", project=owner, region=platform.region, subnetwork=spec.subnetwork)
    if subnet is None:
        yield Finding(
            "blocks",
            f"there is no subnet {spec.subnetwork} in {platform.region} of {owner}",
            "check network.subnetwork",
        )
    else:
        yield from _subnet(scene, spec, subnet)


def _subnet(scene: Scene, spec: ExistingNetwork, subnet: Json) -> Iterator[Finding]:
    if subnet["network"].rpartition("/")[2] != spec.network:
        yield Finding("blocks", f"{spec.subnetwork} belongs to {subnet['network'].rpartition('/')[2]}", "check network")
    if not subnet.get("privateIpGoogleAccess"):
        yield Finding(
            "warning", f"{spec.subnetwork} has no Private Google Access", "nodes need another way to Google's APIs"
        )
    ranges = {each["rangeName"]: each["ipCidrRange"] for each in subnet.get("secondaryIpRanges", ())}
    absent = [name for name in (spec.pods_range, spec.services_range) if name and name not in ranges]
    for name in absent:
        has = f"it has {', '.join(sorted(ranges))}" if ranges else "it has none"
        yield Finding("blocks", f"{spec.subnetwork} has no secondary range {name}", has)
    if spec.pods_range in absent:
        return
    # The same rule that holds networks of the platform's own, on the ranges found.
    found = CreatedNetwork(nodes_cidr=subnet["ipCidrRange"], pods_cidr=ranges[spec.pods_range])
    small = list(ranges_large_enough(scene.platform.model_copy(update={"network": found})))
    for finding in small:
        yield Finding("blocks", finding.message, finding.hint)
    if not small and not absent:
        yield Finding("ok", f"{spec.subnetwork} has room for {scene.platform.most_nodes} nodes and their pods")


def images(scene: Scene) -> Iterator[Finding]:
    """The disk images of hosts that are not GKE's exist."""
    platform = scene.platform
    if platform.backend == "gke":
        return
    groups = [group for plan in platform.slice_plans for group in slice_groups(platform, plan)]
    groups += [cpu_group(platform, pool) for pool in platform.all_cpu_pools]
    named = {group.template.image for group in groups if group.own_template is None}
    for image in sorted(named):
        yield _image(scene, image)


def _image(scene: Scene, image: str) -> Finding:
    _, owner, _, _, *family, name = image.split("/")
    try:
        if family:
            found = scene.compute("images.getFromFamily", project=owner, family=name)
        else:
            found = scene.compute("images.get", project=owner, image=name)
    except RefusedError as error:
        if not error.forbidden:
            raise
        return Finding("not checked", f"you may not see {image}", f"have roles/compute.imageUser granted in {owner}")
    if found is None:
        return Finding("blocks", f"there is no image {image}", f"gcloud compute images list --project={owner}")
    if deprecation := found.get("deprecated", {}).get("state"):
        return Finding("warning", f"{image} is {deprecation.lower()}", "take a newer one")
    return Finding("ok", f"{image} is there")


def secrets(scene: Scene) -> Iterator[Finding]:
    """An existing cluster's secrets have a version that is in force."""
    cluster = scene.platform.cluster
    if not isinstance(cluster, ExistingCluster):
        return
    for secret in (cluster.join_secret, cluster.access_secret):
        name = f"{secret}/versions/latest"
        found = scene.cloud.find("secrets", "projects.secrets.versions.get", name=name)
        if found is None:
            yield Finding(
                "blocks", f"{secret} is not there, or has no version", "docs/self-managed.md says what writes it"
            )
        elif found.get("state") != "ENABLED":
            yield Finding("blocks", f"the latest version of {secret} is {found.get('state')}", "add a new version")
        else:
            yield Finding("ok", f"{secret} has a version")


# If the first one blocks, the others make no sense.
CHECKS: dict[str, Check] = {
    "project": project,
    "services": services,
    "permissions": permissions,
    "budget": budget,
    "zone": zone,
    "disks": disks,
    "version": version,
    "network": network,
    "images": images,
    "secrets": secrets,
    "buckets": teams.buckets,
    "team disks": teams.team_disks,
    "team secrets": teams.team_secrets,
    "shared grants": teams.shared_grants,
    "registries": teams.registries,
    "TPU quota": chip_quota,
    "CPU quota": cpu_quota,
    "reservations": reservations,
}
