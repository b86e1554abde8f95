"""Checks of what teams name: buckets, disks, secrets, registries of images."""

from collections.abc import Iterator

from plan.images import repositories
from plan.network import subnetwork_name
from plan.storage import DiskPlan, StorePlan, disks, owner_labels, stores
from plan.teams import secret_variables, teams_with_secrets
from platform_config.network import CreatedNetwork
from platform_config.platform import below
from tools.preflight.cloud import Json, RefusedError
from tools.preflight.findings import Finding
from tools.preflight.scene import Scene

NEW_ONLY = "soft_delete, expire and keep"
"""Keys that belong to a new bucket."""


def buckets(scene: Scene) -> Iterator[Finding]:
    """Buckets that exist fit; the names of new ones are free."""
    for store in stores(scene.platform):
        try:
            found = scene.cloud.find("storage", "buckets.get", bucket=store.bucket)
        except RefusedError as error:
            if not error.forbidden:
                raise
            yield _unseen(store)
            continue
        if store.made:
            yield _new(scene, store, found)
        elif found is None:
            yield Finding("blocks", f"there is no bucket {store.bucket}", f"check {below(store.path)}.bucket")
        else:
            yield from _existing(scene, store, found)


def _unseen(store: StorePlan) -> Finding:
    """Cloud Storage answers so for a bucket that one may not see, whoever has it."""
    if store.made:
        return Finding(
            "blocks", f"somebody else has a bucket {store.bucket}", "rename the store, the team or the platform"
        )
    return Finding(
        "not checked",
        f"you may not see the bucket {store.bucket}",
        "its owner must let you set its IAM policy: roles/storage.admin on the bucket",
    )


def _new(scene: Scene, store: StorePlan, found: Json | None) -> Finding:
    if found is None:
        return Finding("ok", f"the name {store.bucket} is free")
    if doubt := _not_own(scene, store, found):
        return Finding(
            "blocks",
            f"there is a bucket {store.bucket} already, and it is not this platform's: {doubt}",
            f"give the store another name in {below(store.path).rpartition('.')[0]}",
        )
    take_over = f"write `bucket: {store.bucket}` and `mode: write` in {below(store.path)}, without {NEW_ONLY}"
    location = str(found.get("location", "")).lower()
    if location != scene.platform.region:
        kept = (
            "" if store.kept else "to keep its objects, first set keep: true and run `pulumi up` in the old zone; then "
        )
        return Finding(
            "blocks",
            f"this platform's bucket {store.bucket} is in {location}, and stays there: there is no second of its name",
            f"{kept}{take_over}, before the update",
        )
    if _stands(scene):
        return Finding(
            "not checked",
            f"this platform's bucket {store.bucket} is there; whether the stack has it was not looked up",
            f"`pulumi stack export` shows it: then all is well. If it does not, {take_over}",
        )
    return Finding(
        "blocks",
        f"this platform's bucket {store.bucket} is there already, from an earlier run",
        f"to go on with it, {take_over}; or delete it",
    )


def _not_own(scene: Scene, store: StorePlan, found: Json) -> str | None:
    """What speaks against a bucket being one that this platform made: anybody can take a name first."""
    if scene.project_number is None or found.get("projectNumber") != scene.project_number:
        return f"it is in project {found.get('projectNumber', 'unknown')}"
    labels = found.get("labels", {})
    missing = [
        f"{key}={value}" for key, value in owner_labels(scene.platform, store).items() if labels.get(key) != value
    ]
    return f"it has no label {', '.join(missing)}" if missing else None


def _stands(scene: Scene) -> bool:
    """Whether the platform, or a part of it, stands: then its buckets are its own. Its network comes first."""
    if scene.cluster is not None:
        return True
    platform = scene.platform
    if not isinstance(platform.network, CreatedNetwork):
        return False
    subnet = scene.compute("subnetworks.get", region=platform.region, subnetwork=subnetwork_name(platform))
    return subnet is not None


def _existing(scene: Scene, store: StorePlan, found: Json) -> Iterator[Finding]:
    access = found.get("iamConfiguration", {}).get("uniformBucketLevelAccess", {})
    if not access.get("enabled"):
        yield Finding(
            "blocks",
            f"{store.bucket} has access control lists: pods cannot write to it",
            f"gcloud storage buckets update gs://{store.bucket} --uniform-bucket-level-access",
        )
        return
    location = str(found.get("location", "")).lower()
    if found.get("locationType", "region") == "region" and location != scene.platform.region:
        yield Finding(
            "warning",
            f"{store.bucket} is in {location}, the hosts in {scene.platform.region}: reading costs time and traffic",
            f"copy what jobs read to a bucket in {scene.platform.region}",
        )
    if store.access == "write" and found.get("retentionPolicy"):
        yield Finding(
            "warning",
            f"{store.bucket} has a retention policy: a job cannot write a file of the same name again",
            "use another bucket for checkpoints",
        )
    if store.use == "checkpoints" and not found.get("hierarchicalNamespace", {}).get("enabled"):
        yield Finding(
            "warning",
            f"{store.bucket} has no hierarchical namespace: it takes fewer requests at first, and renames file by file",
            "leave bucket out for a new one",
        )
    yield Finding("ok", f"{store.bucket} is there")


HYPERDISK_ML, READ_ONLY_MANY = "hyperdisk-ml", "READ_ONLY_MANY"


def team_disks(scene: Scene) -> Iterator[Finding]:
    """Disks that exist are of the type that many hosts can read, and nobody writes to them."""
    for disk in disks(scene.platform):
        found = scene.compute("disks.get", zone=disk.zone, disk=disk.disk)
        if found is None:
            yield Finding(
                "blocks", f"there is no disk {disk.disk} in {disk.zone}", "docs/storage.md says how to make and fill it"
            )
        else:
            yield _disk(disk, found)


def _disk(disk: DiskPlan, found: Json) -> Finding:
    kind = str(found.get("type", "")).rpartition("/")[2]
    if kind != HYPERDISK_ML:
        return Finding(
            "blocks",
            f"{disk.disk} is of type {kind}, and many TPU hosts can read a {HYPERDISK_ML} only",
            f"make one of a snapshot of it: gcloud compute disks create NAME --type={HYPERDISK_ML}"
            f" --zone={disk.zone} --source-snapshot=SNAPSHOT --access-mode={READ_ONLY_MANY}",
        )
    if found.get("accessMode") == READ_ONLY_MANY:
        return Finding("ok", f"{disk.disk} is there, for reading")
    fix = f"gcloud compute disks update {disk.disk} --zone={disk.zone} --access-mode={READ_ONLY_MANY}"
    if users := found.get("users"):
        writer = str(users[0]).rpartition("/")[2]
        return Finding(
            "blocks",
            f"{disk.disk} is attached to {writer}, which may write to it",
            f"when it is filled, detach it; then {fix}",
        )
    return Finding(
        "warning",
        f"{disk.disk} can still be written to: GKE ends that when the first pod mounts it",
        f"when it is filled: {fix}",
    )


def shared_grants(scene: Scene) -> Iterator[Finding]:
    """Other clusters of the project: Google knows pods by project and namespace, and members by project and role."""
    platform = scene.platform
    if platform.backend != "gke" or not platform.teams:
        return
    parent = f"projects/{platform.project}/locations/-"
    found = scene.cloud.get("container", "projects.locations.clusters.list", parent=parent).get("clusters", [])
    own = (platform.cluster_name, platform.location)
    others = sorted(str(each["name"]) for each in found if (each["name"], each.get("location")) != own)
    if not others:
        yield Finding("ok", f"no other cluster of {platform.project} shares rights with the teams")
        return
    teams = ", ".join(sorted(platform.teams))
    yield Finding(
        "warning",
        f"{platform.project} has other clusters: {', '.join(others)}. Pods of a namespace there that is called like a"
        f" team here ({teams}) have that team's rights; and platforms that grant the same member the same role share"
        " the grant, so it goes with the first that takes it away",
        "use other team names or a project of its own; after a change or destroy there, `pulumi up --refresh` here",
    )


def team_secrets(scene: Scene) -> Iterator[Finding]:
    """Secrets of teams have a version that is in force."""
    platform = scene.platform
    names = {each.newest: each for team in teams_with_secrets(platform) for each in secret_variables(platform, team)}
    for name, secret in names.items():
        found = scene.cloud.find("secrets", "projects.secrets.versions.get", name=name)
        if found is None:
            yield Finding(
                "blocks",
                f"{secret.secret} is not there in {secret.project}, or has no version",
                f"gcloud secrets create {secret.secret} --project={secret.project} --data-file=FILE",
            )
        elif found.get("state") != "ENABLED":
            yield Finding("blocks", f"the latest version of {secret.secret} is {found.get('state')}", "add a version")
        else:
            yield Finding("ok", f"{secret.secret} has a version")


def registries(scene: Scene) -> Iterator[Finding]:
    """Registries of images that exist are there."""
    for plan in repositories(scene.platform):
        if plan.made:
            continue
        name = f"projects/{plan.project}/locations/{plan.location}/repositories/{plan.repository}"
        found = scene.cloud.find("registries", "projects.locations.repositories.get", name=name)
        if found is None:
            yield Finding(
                "blocks", f"there is no repository {name}", f"check {below(f'images.{plan.name}')}.repository"
            )
        elif found.get("format") != "DOCKER":
            yield Finding("blocks", f"{name} holds {found.get('format')}, and no images", "name another repository")
        else:
            yield Finding("ok", f"{name} is there")
