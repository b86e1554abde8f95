"""What a slice with a known shape may ask for: capacity, devices, disks, networks, versions, labels."""

import re
from collections.abc import Iterator, Sequence

from catalogue import versions
from catalogue.generations import GENERATIONS, KNOWN_ZONES, MACHINES
from catalogue.versions import Floor
from plan.capacity import model_of
from plan.slices import plan_group
from platform_config.capacity import Reservation
from platform_config.cluster import Taint
from platform_config.fields import Labels, shown
from rules.registry import SLICE, Finding, SliceView

CUBE = "4x4x4"
GKE_POOL_NAME_LIMIT = 40
OLDEST_OFFERED = "1.32"
"""No release channel creates a cluster below this version any more, so lower minimum versions need no warning."""

RESERVED_LABEL_DOMAINS = ("cloud.google.com", "google.com", "kubernetes.io", "k8s.io", "gke.io", "tpu-platform")

_LABEL_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
LABEL_KEY = rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_LABEL_NAME}"
LABEL_VALUE = rf"({_LABEL_NAME})?"
RESOURCE_LABEL_KEY = r"[a-z][a-z0-9_-]{0,62}"
RESOURCE_LABEL_VALUE = r"[a-z0-9_-]{0,63}"
NETWORK_TAG = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"


@SLICE.rule(
    "generation-in-zone",
    reason="A pool of a generation that the zone lacks fails after minutes.",
    source="GKE documentation and peer tools' zone lists, which are not exhaustive",
)
def generation_in_zone(view: SliceView) -> Iterator[Finding]:
    generation, platform = view.shape.generation, view.platform
    if platform.zone in KNOWN_ZONES and platform.zone not in generation.zones and not platform.allow_unlisted_zone:
        there = ", ".join(other.name for other in GENERATIONS.values() if platform.zone in other.zones)
        yield Finding(
            view.hardware_key,
            f"{generation.name} is not known in {platform.zone}, which offers {there}",
            f"use a zone among {', '.join(generation.zones)}, or set allow_unlisted_zone: true if you know better",
        )


@SLICE.rule(
    "zone-unlisted",
    level="warning",
    reason="Zones are added often, so the list can only warn.",
    source="GKE documentation",
)
def zone_unlisted(view: SliceView) -> Iterator[Finding]:
    generation, platform = view.shape.generation, view.platform
    if platform.zone not in generation.zones:
        yield Finding(
            view.hardware_key,
            f"{generation.name} in {platform.zone} is not in the list of known zones",
            f"check that the zone offers it; known are {', '.join(generation.zones)}",
        )


@SLICE.rule(
    "dra-generation",
    reason="The TPU DRA driver does not serve tpu7x (up to 0.2.0): pods would wait for devices forever.",
    source="kubernetes-sigs/dra-driver-google-tpu @f5a9d8c",
)
def dra_generation(view: SliceView) -> Iterator[Finding]:
    if view.spec.devices == "dra" and not view.shape.generation.dra:
        yield Finding(
            "devices",
            f"the TPU DRA driver does not support {view.shape.generation.name} yet",
            "write devices: device-plugin",
        )


@SLICE.rule(
    "dra-queued",
    backend="gke",
    reason="Queued provisioning computes hosts from the requests of containers, and ignores claims.",
    source="Kueue pkg/controller/admissionchecks/provisioning; kubernetes/autoscaler #10065",
)
def dra_queued(view: SliceView) -> Iterator[Finding]:
    if view.spec.devices == "dra" and any(model_of(capacity).gke.queued for capacity in view.spec.capacity):
        yield Finding(
            "devices",
            "queued provisioning never requests hosts for pods with DRA claims",
            "write devices: device-plugin, or capacity: flex-start",
        )


@SLICE.rule(
    "dra-from-zero",
    backend="gke",
    level="warning",
    reason="To scale a DRA pool from zero, GKE must predict devices that the driver has not published yet.",
    source="cluster-autoscaler autoprovisioning/tpu_requests.go",
)
def dra_from_zero(view: SliceView) -> Iterator[Finding]:
    if view.spec.devices == "dra" and any(
        pool.min_nodes == 0 for plan in plan_group(view.platform, view.name, view.spec) for pool in plan.pools
    ):
        yield Finding(
            "devices",
            "for a pool without hosts GKE matches claims with predicted attributes (uuid, index and tpuGen only)",
            "select devices by tpuGen and count only, and shapes by node selector",
        )


@SLICE.rule(
    "boot-disk-type",
    reason="Each generation takes only some boot disk types.",
    source="cluster-autoscaler deprecated_machine_types_config.go",
)
def boot_disk_type(view: SliceView) -> Iterator[Finding]:
    legal = view.shape.generation.boot_disks
    if view.spec.boot_disk.type is not None and view.spec.boot_disk.type not in legal:
        yield Finding(
            "boot_disk.type",
            f"{view.spec.boot_disk.type} is not a boot disk of {view.shape.generation.name} hosts",
            f"write {' or '.join(legal)}, or leave it out",
        )


@SLICE.rule(
    "secondary-disk-needs-streaming",
    backend="gke",
    reason="Image streaming finds the cached images.",
    source="GKE documentation, secondary boot disks",
)
def secondary_disk_needs_streaming(view: SliceView) -> Iterator[Finding]:
    if view.spec.secondary_boot_disks and not view.spec.image_streaming:
        yield Finding("image_streaming", "secondary_boot_disks need image streaming", "leave image_streaming out")


@SLICE.rule(
    "dranet-machine",
    backend="gke",
    reason="Only some machine types have accelerator network interfaces.",
    source="cluster-autoscaler machinetypes/dranet.go",
)
def dranet_machine(view: SliceView) -> Iterator[Finding]:
    if view.spec.dranet and not view.shape.machine.accelerator_nics:
        able = ", ".join(machine.name for machine in MACHINES.values() if machine.accelerator_nics)
        yield Finding(
            "dranet",
            f"{view.shape.machine.name} has no accelerator network interfaces",
            f"leave it out, or use one of {able}",
        )


@SLICE.rule(
    "one-network-model",
    backend="gke",
    reason="GKE hands out accelerator interfaces either by DRANET or as additional networks.",
    source="cluster-toolkit #5896, #4755",
)
def one_network_model(view: SliceView) -> Iterator[Finding]:
    if view.spec.dranet and view.spec.additional_networks:
        yield Finding(
            "additional_networks", "cannot be combined with dranet", "keep one of dranet and additional_networks"
        )


@SLICE.rule(
    "dynamic-slicing",
    backend="gke",
    reason="Cubes to be joined at run time are tpu7x 4x4x4 slices, each in a reserved sub-block of its own.",
    source="GKE documentation, dynamic slicing; cluster-toolkit enable_dynamic_slicing_for_tpus",
)
def dynamic_slicing(view: SliceView) -> Iterator[Finding]:
    spec, shape = view.spec, view.shape
    if not spec.dynamic_slicing:
        return
    if not shape.generation.dynamic_slicing:
        yield Finding(
            "dynamic_slicing", f"{shape.generation.name} has no dynamic slicing", "use tpu7x, or leave it out"
        )
    elif shape.topology != CUBE:
        yield Finding("topology", f"dynamic slicing joins {CUBE} cubes, not {shape.topology}", f"write {CUBE}")
    for path, capacity in view.alternatives():
        if not isinstance(capacity, Reservation):
            yield Finding(
                path, "dynamic slicing needs a reservation", "use model: reservation with block and sub_block"
            )
        elif len(capacity.sub_block) != spec.count:
            yield Finding(f"{path}.sub_block", f"{spec.count} cubes need as many sub-blocks", "name one for each cube")
    if view.platform.gke.release_channel != "RAPID":
        yield Finding(
            "dynamic_slicing", "works on the RAPID release channel only", "set cluster.release_channel: RAPID"
        )


@SLICE.rule(
    "version-floor",
    backend="gke",
    reason="Each feature needs a minimum GKE version; below it the API refuses the pool, or pods wait forever.",
    source="GKE documentation and release notes",
)
def version_floor(view: SliceView) -> Iterator[Finding]:
    version = view.platform.gke.version
    for key, floor in floors(view):
        if version is not None and not versions.reaches(version, floor.version):
            yield Finding(
                key,
                f"{floor.feature} needs GKE {floor.version}; cluster.version is {version}",
                f"set cluster.version to {floor.version} or later",
            )


VERSION_UNKNOWN = "version-unknown"


@SLICE.rule(
    VERSION_UNKNOWN,
    backend="gke",
    level="warning",
    reason="Without cluster.version the channel's default decides, which may be too old.",
    source="GKE documentation and release notes",
)
def version_unknown(view: SliceView) -> Iterator[Finding]:
    needed = [(key, floor) for key, floor in floors(view) if not versions.reaches(OLDEST_OFFERED, floor.version)]
    if view.platform.gke.version is None and needed:
        key, floor = max(needed, key=lambda pair: versions.parse(pair[1].version))
        yield Finding(
            key,
            f"{floor.feature} needs GKE {floor.version}, and cluster.version is left to the release channel",
            "ask Google with `python -m tools preflight`, or set cluster.version",
        )


def floors(view: SliceView) -> Iterator[tuple[str, Floor]]:
    """The keys that ask for a feature, each with the first GKE version that has it."""
    generation, spec = view.shape.generation, view.spec
    if generation.min_version:
        yield view.hardware_key, Floor(generation.name, generation.min_version)
    if spec.devices == "dra":
        yield "devices", versions.DRA
    if spec.dranet:
        yield "dranet", versions.DRANET
    if any(model_of(capacity).gke.flex_start for capacity in spec.capacity):
        yield "capacity", versions.FLEX_START
    if spec.dynamic_slicing:
        yield "dynamic_slicing", versions.DYNAMIC_SLICING
    if spec.provisioning == "compute-class":
        yield "provisioning", versions.TPU7X_IN_CLASS if generation.name == "tpu7x" else versions.AUTO_CREATION


@SLICE.rule(
    "pool-name",
    backend="gke",
    reason="A node pool's name has at most 40 characters.",
    source="GKE API, NodePool.name",
)
def pool_name(view: SliceView) -> Iterator[Finding]:
    plans = plan_group(view.platform, view.name, view.spec)
    longest = max((pool.name for plan in plans for pool in plan.pools), key=len, default="")
    if len(longest) > GKE_POOL_NAME_LIMIT:
        excess = len(longest) - GKE_POOL_NAME_LIMIT
        yield Finding("", f"its node pool {longest} has more than 40 characters", f"shorten the name by {excess}")


@SLICE.rule(
    "node-labels",
    reason="Google and Kubernetes set the labels in their domains; these drift when declared.",
    source="Kubernetes label syntax; cluster-toolkit's ignored label drift",
)
def node_labels(view: SliceView) -> Iterator[Finding]:
    yield from node_marks("", view.spec.labels, view.spec.taints)


def node_marks(prefix: str, labels: Labels, taints: Sequence[Taint]) -> Iterator[Finding]:
    """Whether hosts may have these labels and taints: valid, and not set by others. `prefix`: of their paths."""
    marks = [(f"labels.{key}", f"labels.{key}", key, value) for key, value in labels.items()]
    for index, taint in enumerate(taints):
        marks.append((f"taints[{index}].key", f"taints[{index}].value", taint.key, taint.value))
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        if (taint.key, taint.effect) in seen:
            yield Finding(f"{prefix}taints[{index}]", f"{taint.key} with {taint.effect} is there twice", "keep one")
        seen.add((taint.key, taint.effect))
    for key_path, value_path, key, value in marks:
        yield from reserved(f"{prefix}{key_path}", key)
        if not re.fullmatch(LABEL_KEY, key):
            yield Finding(
                f"{prefix}{key_path}",
                f"{shown(key)} is not a label key",
                "letters, digits, -, _ and . with an optional domain/",
            )
        if not re.fullmatch(LABEL_VALUE, value):
            yield Finding(
                f"{prefix}{value_path}",
                f"{shown(value)} is not a label value",
                "at most 63 letters, digits, -, _ and .",
            )


def reserved(path: str, key: str) -> Iterator[Finding]:
    """Whether Google, Kubernetes or the program sets a label or taint key."""
    domain = key.rpartition("/")[0]
    if any(domain == owned or domain.endswith(f".{owned}") for owned in RESERVED_LABEL_DOMAINS):
        yield Finding(path, f"{key} is set for you where it is needed", "leave it out")


@SLICE.rule(
    "resource-labels",
    reason="Google Cloud labels are lower case and at most 63 characters.",
    source="Google Cloud documentation, labels",
)
def resource_labels(view: SliceView) -> Iterator[Finding]:
    yield from cloud_labels("resource_labels", view.spec.resource_labels)


def cloud_labels(path: str, labels: dict[str, str]) -> Iterator[Finding]:
    """Whether Google Cloud accepts these labels."""
    for key, value in labels.items():
        if not re.fullmatch(RESOURCE_LABEL_KEY, key) or not re.fullmatch(RESOURCE_LABEL_VALUE, value):
            yield Finding(
                f"{path}.{key}",
                f"{key}: {value} is not a Google Cloud label",
                "lower-case letters, digits, - and _, at most 63 characters, the key starting with a letter",
            )


@SLICE.rule("network-tags", reason="Network tags are names.", source="Compute Engine API, tags")
def network_tags(view: SliceView) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, tag in enumerate(view.spec.tags):
        if not re.fullmatch(NETWORK_TAG, tag):
            yield Finding(
                f"tags[{index}]", f"{shown(tag)} is not a network tag", "lower-case letters, digits and hyphens"
            )
        if tag in seen:
            yield Finding(f"tags[{index}]", f"{shown(tag)} is there twice", "name it once")
        seen.add(tag)


@SLICE.rule(
    "disk-key-region",
    reason="The key that encrypts a disk must be in its region.",
    source="Compute Engine documentation, customer-managed keys",
)
def disk_key_region(view: SliceView) -> Iterator[Finding]:
    yield from key_region("kms_key", view.spec.kms_key, view.platform.region)


def key_region(path: str, key: str | None, region: str) -> Iterator[Finding]:
    """Whether a Cloud KMS key lies in the region."""
    location = key.split("/")[3] if key else region
    if location != region:
        yield Finding(path, f"the key is in {location}, what it encrypts in {region}", f"use a key in {region}")


@SLICE.rule(
    "beyond-documented-size",
    level="warning",
    reason="v5p's largest documented slice is 16x16x24, although larger shapes are accepted by tools.",
    source="Cloud TPU documentation; xpk system_characteristics.py",
)
def beyond_documented_size(view: SliceView) -> Iterator[Finding]:
    cubes = view.shape.generation.documented_cubes
    if cubes and view.shape.chips > cubes * 64:
        yield Finding(
            "topology",
            f"{view.shape.topology} has {view.shape.chips} chips; the largest documented slice has {cubes * 64}",
            "ask Google before you rely on it",
        )


@SLICE.rule(
    "price-unknown",
    level="warning",
    reason="No usable list price is published for some generations.",
    source="cluster-autoscaler price table",
)
def price_unknown(view: SliceView) -> Iterator[Finding]:
    for plan in plan_group(view.platform, view.name, view.spec):
        if plan.price_per_chip_hour is None:
            yield Finding(
                "",
                f"no price is known for {plan.generation.name} on {plan.capacity}, so totals have none",
                f"give yours under prices.{plan.generation.name}",
            )


@SLICE.rule(
    "quota-unknown",
    level="warning",
    reason="The quota names of v4 and v5p are in no public source.",
    source="Cloud Quotas API",
)
def quota_unknown(view: SliceView) -> Iterator[Finding]:
    generation = view.shape.generation
    if generation.quota is None and any(model_of(capacity).quota for capacity in view.spec.capacity):
        yield Finding("", f"the quota name of {generation.name} is not known", "ask for it in the Cloud console")
