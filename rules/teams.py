"""What teams, their storage, their secrets and registries of images must satisfy."""

from collections.abc import Iterator
from itertools import combinations

from catalogue import versions
from plan import storage
from plan.images import REPOSITORY_NAME_LIMIT, repositories, teams_with_members
from plan.platform import Platform
from plan.storage import BUCKET_NAME_LIMIT
from plan.teams import Member
from plan.workloads.pods import SET_BY_WORKLOAD
from platform_config.self_managed import ExistingCluster
from platform_config.teams import ACCOUNTS
from rules.registry import PLATFORM, Finding

HIDDEN = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/tmp"),
    *("/usr", "/var"),
)
"""Directories that a container needs as they are; /dev/shm and /tmp are memory and scratch space of the TPU runtime."""
WITH_A_DISK = {"disk", "mount"}
OF_NEW_BUCKETS = ("soft_delete", "expire", "keep")


@PLATFORM.rule(
    "team-once",
    reason="A team is the namespace of its name.",
    source="this program",
)
def team_once(platform: Platform) -> Iterator[Finding]:
    for index, name in enumerate(platform.namespaces):
        if name in platform.teams:
            yield Finding(f"namespaces[{index}]", f"{name} is a team", "leave it out here; queues name it all the same")


@PLATFORM.rule(
    "team-members",
    reason="IAM refuses a service account that is called a user, and the other way round; a member counts once.",
    source="IAM documentation, principal identifiers",
)
def team_members(platform: Platform) -> Iterator[Finding]:
    for name, team in platform.teams.items():
        seen: set[str] = set()
        for index, written in enumerate(team.members):
            path, member = f"teams.{name}.members[{index}]", Member(written)
            called_account = written.startswith("serviceAccount:")
            if member.address.endswith(ACCOUNTS) and not called_account:
                yield Finding(path, f"{member.address} is a service account", f"write serviceAccount:{member.address}")
            elif called_account and not member.address.endswith(ACCOUNTS):
                yield Finding(
                    path,
                    f"{member.address} is no service account: their addresses end with {ACCOUNTS}",
                    f"write user:{member.address}, or the account's whole address",
                )
            if written in seen:
                yield Finding(path, f"{written} is in the list twice", "name it once")
            seen.add(written)


@PLATFORM.rule(
    "team-groups",
    backend="gke",
    whole=True,
    reason="Without a security group GKE knows no groups: members would connect, and then be refused everything.",
    source="GKE documentation, Google Groups for RBAC",
)
def team_groups(platform: Platform) -> Iterator[Finding]:
    if platform.gke.security_group is None and (group := next(_groups(platform), None)):
        domain = group[1].address.partition("@")[2]
        yield Finding(
            group[0],
            f"{group[1].address} is a group, and the cluster has no security group",
            f"set cluster.security_group: gke-security-groups@{domain}, and make the team's group a member of it",
        )


def _groups(platform: Platform) -> Iterator[tuple[str, Member]]:
    for name, team in platform.teams.items():
        for index, written in enumerate(team.members):
            if (member := Member(written)).is_group:
                yield f"teams.{name}.members[{index}]", member


@PLATFORM.rule(
    "team-groups-off-gke",
    backend="compute",
    reason="Only GKE asks Google which groups somebody is in.",
    source="GKE documentation, Google Groups for RBAC; Kubernetes documentation, authenticating",
)
def team_groups_off_gke(platform: Platform) -> Iterator[Finding]:
    for path, member in _groups(platform):
        yield Finding(
            path,
            f"{member.address} is a group, of which this cluster knows nobody",
            "name its people as user:, or use GKE",
        )


@PLATFORM.rule(
    "team-off-gke",
    backend="compute",
    reason="Add-ons of GKE mount storage and bring secrets; a cluster that somebody else runs shows nobody its keys.",
    source="GKE documentation, Workload Identity Federation, Cloud Storage FUSE CSI driver, Secret Manager add-on",
)
def team_off_gke(platform: Platform) -> Iterator[Finding]:
    for name, team in platform.teams.items():
        if team.secrets:
            yield Finding(
                f"teams.{name}.secrets",
                "needs an add-on of GKE",
                f"make a Secret in namespace {name}, and name it in the job; or use GKE",
            )
    for disk in storage.disks(platform):
        yield Finding(
            f"{disk.path}.disk",
            "only GKE brings the driver that attaches disks to hosts",
            "put the data into a bucket and write `bucket: NAME`: jobs get its address; or use GKE",
        )
    for store in storage.stores(platform):
        if isinstance(platform.cluster, ExistingCluster):
            yield Finding(
                store.path,
                "pods of a cluster that somebody else runs have no identity in Google Cloud",
                "grant the bucket to the service account of the hosts, or use GKE or a self-managed cluster",
            )
        elif store.spec.mount:
            yield Finding(
                f"{store.path}.mount",
                "needs an add-on of GKE",
                f"leave it out: jobs get the address {store.uri}; or use GKE",
            )


@PLATFORM.rule(
    "team-of-manager",
    reason="Pods run on a manager's workers, and storage and secrets belong where pods run.",
    source="Kueue documentation, MultiKueue",
)
def team_of_manager(platform: Platform) -> Iterator[Finding]:
    if not platform.is_manager:
        return
    for name, team in platform.teams.items():
        for key in ("storage", "secrets"):
            if getattr(team, key):
                yield Finding(
                    f"teams.{name}.{key}", "no pod runs on a manager", "write it in the stack files of the workers"
                )


@PLATFORM.rule(
    "bucket-name",
    reason="Names of buckets are global, have at most 63 characters without a dot, and cannot contain google.",
    source="Cloud Storage documentation, bucket naming",
)
def bucket_name(platform: Platform) -> Iterator[Finding]:
    for store in storage.stores(platform):
        if (excess := len(store.bucket) - BUCKET_NAME_LIMIT) > 0 and store.made:
            yield Finding(
                store.path,
                f"the bucket's name {store.bucket} has {len(store.bucket)} characters, of at most {BUCKET_NAME_LIMIT}",
                f"shorten the store's or the team's name by {excess}, or make a bucket and write `bucket: NAME`",
            )
        elif "google" in store.bucket or store.bucket.startswith("goog"):
            yield Finding(
                store.path,
                f"the bucket's name {store.bucket} contains google, which Cloud Storage refuses",
                "make a bucket with another name and write `bucket: NAME`" if store.made else "name another bucket",
            )


@PLATFORM.rule(
    "bucket-once",
    reason="Two stores of one bucket would give a team the same right twice; a bucket that is made has one owner, whose"
    " settings decide when it is deleted.",
    source="this program",
)
def bucket_once(platform: Platform) -> Iterator[Finding]:
    for first, second in combinations(storage.stores(platform), 2):
        if first.bucket != second.bucket:
            continue
        if first.made or second.made:
            maker, user = (first, second) if first.made else (second, first)
            yield Finding(
                f"{user.path}.bucket",
                f"{user.bucket} is the bucket that {maker.path} makes, and that goes or stays with it",
                "make a bucket outside of the platform, and write `bucket: NAME` in both:"
                f" gcloud storage buckets create gs://NAME --location={platform.region} --uniform-bucket-level-access",
            )
        elif first.team == second.team:
            yield Finding(
                f"{second.path}.bucket",
                f"{second.bucket} is also the bucket of {first.path}",
                "leave one of the two out; a job can use any directory of the bucket",
            )


@PLATFORM.rule(
    "existing-bucket",
    reason="The platform never changes or deletes a bucket that exists, so it has no say in how long objects stay.",
    source="this program",
)
def existing_bucket(platform: Platform) -> Iterator[Finding]:
    for store in storage.stores(platform):
        for key in OF_NEW_BUCKETS:
            if not store.made and key in store.spec.model_fields_set:
                yield Finding(
                    f"{store.path}.{key}",
                    f"belongs to a new bucket, and {store.bucket} exists",
                    f"leave {key} out, or leave bucket out for a new one",
                )


@PLATFORM.rule(
    "store-disk",
    reason="A disk that many hosts read is only ever read, at a path; all other keys belong to buckets.",
    source="Compute Engine documentation, Hyperdisk ML",
)
def store_disk(platform: Platform) -> Iterator[Finding]:
    for disk in storage.disks(platform):
        for key in sorted(disk.spec.model_fields_set - WITH_A_DISK):
            yield Finding(f"{disk.path}.{key}", f"belongs to a bucket, and {disk.disk} is a disk", f"leave {key} out")
        if disk.spec.mount is None:
            yield Finding(disk.path, "a disk has no address, so jobs find it by its path only", "add mount: /weights")


@PLATFORM.rule(
    "disk-once",
    reason="Kubernetes mounts a disk once in a pod: with two volumes of one disk the pod never starts.",
    source="kubernetes-sigs/azurefile-csi-driver#2367, kubernetes/kubernetes#132921",
)
def disk_once(platform: Platform) -> Iterator[Finding]:
    for first, second in combinations(storage.disks(platform), 2):
        if first.team == second.team and first.disk == second.disk:
            yield Finding(
                f"{second.path}.disk", f"{second.disk} is also the disk of {first.path}", "leave one of the two out"
            )


@PLATFORM.rule(
    "disk-hosts",
    backend="gke",
    reason="A pod whose host cannot have its disk attached never starts.",
    source="kubernetes-sigs/gcp-compute-persistent-disk-csi-driver, deploy/disk_type_labels.sh",
)
def disk_hosts(platform: Platform) -> Iterator[Finding]:
    for disk in storage.disks(platform):
        slices = _slices_of(platform, disk.team)
        for plan in platform.slice_plans:
            generation = plan.machine.generation
            if plan.group in slices and not generation.hyperdisk_ml:
                yield Finding(
                    f"{disk.path}.disk",
                    f"hosts of {plan.group} are {generation.name}, which takes no Hyperdisk ML disk",
                    f"use a bucket, or keep {plan.group} out of the queues of {disk.team}",
                )
                break


def _slices_of(platform: Platform, team: str) -> set[str]:
    """Groups of slices on which jobs of a team may run: those of its queues, or all where it has none."""
    queues = [queue for queue in platform.queues.values() if team in queue.namespaces]
    return {name for queue in queues for name in queue.slices} if queues else set(platform.slices)


@PLATFORM.rule(
    "store-mount",
    reason="A mount hides what the image has at its path, and what is mounted below it.",
    source="Kubernetes documentation, volumes",
)
def store_mount(platform: Platform) -> Iterator[Finding]:
    for team in platform.teams:
        mounted = storage.mounted(platform, team)
        for store in mounted:
            path = store.spec.mount or ""
            if hidden := next((each for each in HIDDEN if _within(path, each)), None):
                yield Finding(
                    f"{store.path}.mount", f"{path} would hide {hidden} of the container", "for example /data"
                )
        for first, second in combinations(mounted, 2):
            paths = first.spec.mount or "", second.spec.mount or ""
            if _within(*paths) or _within(*reversed(paths)):
                yield Finding(
                    f"{second.path}.mount",
                    f"{paths[1]} and {paths[0]} of {first.name} are in each other",
                    "choose paths side by side",
                )


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


@PLATFORM.rule(
    "store-use",
    reason="The use decides mount options, so it says nothing of a bucket that is not mounted.",
    source="this program",
)
def store_use(platform: Platform) -> Iterator[Finding]:
    for store in storage.stores(platform):
        if store.spec.use and not store.spec.mount:
            yield Finding(f"{store.path}.use", "has no effect without a mount", "leave it out, or set mount")


@PLATFORM.rule(
    "mount-driver",
    backend="gke",
    reason="The add-on for Cloud Storage FUSE mounts buckets.",
    source="GKE documentation, Cloud Storage FUSE CSI driver",
)
def mount_driver(platform: Platform) -> Iterator[Finding]:
    if not platform.gke.gcs_fuse:
        for store in storage.stores(platform):
            if store.spec.mount:
                yield Finding(
                    f"{store.path}.mount", "cluster.gcs_fuse is false", "set cluster.gcs_fuse: true, or leave mount out"
                )


@PLATFORM.rule(
    "secret-sync-version",
    backend="gke",
    reason="The add-on that makes Secrets of entries in Secret Manager begins with GKE 1.34.",
    source="GKE documentation, synchronise secrets to Kubernetes Secrets",
)
def secret_sync_version(platform: Platform) -> Iterator[Finding]:
    version = platform.gke.version
    if version is None or versions.reaches(version, versions.SECRET_SYNC.version):
        return
    for name, team in platform.teams.items():
        if team.secrets:
            yield Finding(
                f"teams.{name}.secrets",
                f"needs GKE 1.34 or newer, and cluster.version is {version}",
                'set cluster.version: "1.34" or leave it out',
            )


@PLATFORM.rule(
    "team-variables",
    reason="A variable has one value, and the program sets some of a job's itself.",
    source="this program",
)
def team_variables(platform: Platform) -> Iterator[Finding]:
    for name, team in platform.teams.items():
        taken = {*SET_BY_WORKLOAD, *(store.variable for store in storage.stores_of(platform, name))}
        for variable in team.secrets:
            if variable in taken:
                yield Finding(
                    f"teams.{name}.secrets.{variable}", "a job has this variable already", "choose another name"
                )


@PLATFORM.rule(
    "image-repository",
    reason="A repository is made here, or it exists; a new one is named after the platform.",
    source="Artifact Registry API, Repository",
)
def image_repository(platform: Platform) -> Iterator[Finding]:
    for plan in repositories(platform):
        path, spec = f"images.{plan.name}", platform.images[plan.name]
        if spec.mirror and spec.repository:
            yield Finding(f"{path}.mirror", "belongs to a new repository", "leave mirror or repository out")
        elif plan.made and (excess := len(plan.repository) - REPOSITORY_NAME_LIMIT) > 0:
            yield Finding(
                path,
                f"the repository's name {plan.repository} has more than {REPOSITORY_NAME_LIMIT} characters",
                f"shorten the name by {excess}",
            )
    mirrors = [plan.name for plan in repositories(platform) if plan.mirror]
    for name in mirrors[1:]:
        yield Finding(f"images.{name}.mirror", f"images.{mirrors[0]} mirrors it already", "leave one of the two out")


@PLATFORM.rule(
    "image-teams",
    reason="Who pushes can move a tag, and then code of one team runs in jobs of another that pull it.",
    source="Artifact Registry documentation, roles and permissions",
)
def image_teams(platform: Platform) -> Iterator[Finding]:
    candidates = teams_with_members(platform)
    for name, spec in sorted(platform.images.items()):
        path = f"images.{name}.teams"
        if spec.mirror or spec.repository:
            if spec.teams is not None:
                what = "nobody pushes to a mirror" if spec.mirror else "a repository that exists is not the platform's"
                yield Finding(path, f"{what}, so it has no teams that push", "leave teams out")
        elif spec.teams is None and len(candidates) > 1:
            each = ", ".join(f"{team}: {{teams: [{team}]}}" for team in candidates)
            yield Finding(
                path,
                f"{' and '.join(candidates)} have members, and it is not said whose push",
                f"write `{name}: {{teams: [{candidates[0]}]}}`, or a repository for each team:"
                f" `images: {{{each}}}`; members of other teams then only pull",
            )
        for index, team in enumerate(spec.teams or ()):
            if team not in platform.teams:
                there = ", ".join(sorted(platform.teams)) or "none"
                hint = f"write `teams: [{', '.join(candidates[:1])}]`"
                yield Finding(f"{path}[{index}]", f"{team} is not a team; there are: {there}", hint)
            elif team in (spec.teams or ())[:index]:
                yield Finding(f"{path}[{index}]", f"{team} is in the list twice", "name it once")


@PLATFORM.rule(
    "deleted-checkpoints",
    level="warning",
    reason="Soft delete keeps each deleted checkpoint for seven days, at the price of a stored one.",
    source="Cloud Storage documentation, soft delete",
)
def deleted_checkpoints(platform: Platform) -> Iterator[Finding]:
    for store in storage.stores(platform):
        if store.made and store.spec.use == "checkpoints" and store.spec.soft_delete:
            yield Finding(
                store.path, "deleted checkpoints are paid for another seven days", "set soft_delete: false, or accept"
            )


@PLATFORM.rule(
    "team-without-queue",
    level="warning",
    reason="Jobs of a namespace without a queue start at once, whatever else runs, and nothing limits them.",
    source="Kueue documentation, manageJobsWithoutQueueName",
)
def team_without_queue(platform: Platform) -> Iterator[Finding]:
    for name in platform.teams:
        if platform.queues and name not in platform.queue_namespaces:
            yield Finding(f"teams.{name}", "no queue takes its jobs", f"name {name} in a queue's namespaces")


@PLATFORM.rule(
    "queue-of-no-team",
    level="warning",
    reason="Beside teams, a namespace that is neither a team nor written under namespaces is often a misspelt one.",
    source="this program",
)
def queue_of_no_team(platform: Platform) -> Iterator[Finding]:
    if not platform.teams:
        return
    named = platform.namespaces if "namespaces" in platform.model_fields_set else ()
    for name, queue in platform.queues.items():
        for index, namespace in enumerate(queue.namespaces):
            if namespace not in platform.teams and namespace not in named:
                yield Finding(
                    f"queues.{name}.namespaces[{index}]",
                    f"{namespace} is no team, so nobody gets rights in it",
                    f"one of {', '.join(sorted(platform.teams))}, or add {namespace} to namespaces",
                )
