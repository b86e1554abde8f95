"""What a slice may ask for on GKE only, or on Compute Engine only.

Both use the same keys. These rules refuse the keys that the back end does not have.
"""

from collections.abc import Iterator

from catalogue import versions
from catalogue.generations import GENERATIONS, IMAGE_PROJECT, HostImage
from catalogue.generations import OnlyOnGke as GenerationOnGke
from plan.capacity import OnCompute, OnlyOnGke, model_of
from plan.hosts import DRAIN_MINUTES, JOIN_TOKEN, drain_seconds, group_name
from plan.slices import plan_group
from platform_config.capacity import AnyCapacity, Reservation
from platform_config.fields import duration_shown
from platform_config.self_managed import OLDEST_WITH_DRA
from rules.clusters import fits_group
from rules.registry import SLICE, Finding, SliceView

GKE_SETTINGS = {
    "secondary_boot_disks": "it is GKE that finds container images on such disks",
    "image_streaming": "containers start when their image is there: streaming is a service of GKE",
    "dranet": "the driver that hands interfaces to pods is GKE's",
    "additional_networks": "hosts have one interface there, and pods no way to others",
    "dynamic_slicing": "the slice controller that joins cubes is GKE's",
    "host_maintenance": "Compute Engine asks the reservation when to maintain its hosts",
}
"""Settings of a slice that only GKE honours, and why hosts without it cannot."""

GKE_ONLY_SHAPES = {("ct6e-standard-4t", "2x4"): "ct6e-standard-8t"}
"""Machine type and topology that only GKE builds from several hosts, and the machine type that has it on one host."""

IN_TEMPLATE = ("image", "boot_disk", "kms_key", "service_account", "tags", "resource_labels")
"""Settings of a slice that `instance_template` replaces."""

SHORTEST_FLEX_SECONDS = 600


@SLICE.rule(
    "generation-without-gke",
    backend="compute",
    reason="Compute Engine groups TPU hosts of some generations only; others need GKE or the Cloud TPU API.",
    source="Compute Engine documentation, workload policies; SkyPilot mig_utils.py; gke-labs/tpu-operator CRD",
)
def generation_without_gke(view: SliceView) -> Iterator[Finding]:
    generation = view.shape.generation
    if isinstance(generation.without_gke, GenerationOnGke):
        able = ", ".join(other.name for other in GENERATIONS.values() if isinstance(other.without_gke, HostImage))
        yield Finding(
            view.hardware_key,
            f"{generation.name} slices need GKE: {generation.without_gke.reason}",
            f"use one of {able}, or cluster: {{kind: gke}}",
        )


@SLICE.rule(
    "v5p-without-gke",
    backend="compute",
    level="warning",
    reason="Workload policies are documented for v5p, but no known tool builds v5p slices as instance groups.",
    source="Compute Engine documentation, workload policies; tpu-operator, SkyPilot and cluster-toolkit do not",
)
def v5p_without_gke(view: SliceView) -> Iterator[Finding]:
    images = view.shape.generation.without_gke
    if isinstance(images, HostImage) and not images.tried:
        yield Finding(
            view.hardware_key,
            f"{view.shape.generation.name} as managed instance groups is documented, but no tool is known to use it",
            "try it with one slice before you rely on it",
        )


@SLICE.rule(
    "shape-without-gke",
    backend="compute",
    reason="Two four-chip v6e hosts become a 2x4 slice on GKE only.",
    source="SkyPilot mig_utils.py",
)
def shape_without_gke(view: SliceView) -> Iterator[Finding]:
    machine, topology = view.shape.machine.name, view.shape.topology
    if instead := GKE_ONLY_SHAPES.get((machine, topology)):
        yield Finding(
            "machine_type",
            f"only GKE joins {view.shape.hosts} hosts of {machine} to {topology}",
            f"write machine_type: {instead}, which is {topology} by itself",
        )


@SLICE.rule(
    "capacity-without-gke",
    backend="compute",
    reason="Only GKE's autoscaler does queued provisioning and fallbacks.",
    source="Compute Engine documentation, bulk mode: no autoscaling, no resize requests; Kueue provisioning",
)
def capacity_without_gke(view: SliceView) -> Iterator[Finding]:
    if len(view.spec.capacity) > 1:
        yield Finding(
            "capacity",
            "a list is an order of fallback, which only GKE's autoscaler follows",
            "name one capacity model",
        )
    for path, capacity in view.alternatives():
        if isinstance(compute := model_of(capacity).compute, OnlyOnGke):
            yield Finding(
                f"{path}.model",
                f"{capacity.model} {compute.reason}",
                "use flex-start, which waits for all hosts of the slice as well",
            )


@SLICE.rule(
    "bulk-capacity",
    backend="compute",
    level="warning",
    reason="One page of Google's limits bulk creation to reserved and flex-start hosts; others recommend spot.",
    source="Compute Engine documentation, bulk creation in a MIG; Cloud TPU documentation, spot VMs",
)
def bulk_capacity(view: SliceView) -> Iterator[Finding]:
    for path, capacity in view.alternatives():
        if view.shape.multi_host and model_of(capacity).bulk_disputed:
            yield Finding(
                f"{path}.model",
                f"Google's documents disagree whether {capacity.model} hosts can be made all at once",
                "try it with one slice, or use reservation or flex-start",
            )


def _is_flex_start(capacity: AnyCapacity) -> bool:
    """Whether Compute Engine makes the hosts by flex-start."""
    compute = model_of(capacity).compute
    return isinstance(compute, OnCompute) and compute.provisioning_model == "FLEX_START"


@SLICE.rule(
    "shortest-flex-start",
    backend="compute",
    reason="Flex-start hosts run for ten minutes or longer.",
    source="Compute Engine API, requested run duration 600 to 604800 seconds",
)
def shortest_flex_start(view: SliceView) -> Iterator[Finding]:
    for path, capacity in view.alternatives():
        given = model_of(capacity).run_limit(capacity)
        if given and _is_flex_start(capacity) and int(given[:-1]) < SHORTEST_FLEX_SECONDS:
            yield Finding(
                f"{path}.max_run_duration",
                f"{duration_shown(given)} is shorter than ten minutes, the shortest time for flex-start hosts",
                "write 10m or more",
            )


@SLICE.rule(
    "flex-start-edits",
    backend="compute",
    level="warning",
    reason="A new template recreates single hosts one by one, and a new flex-start host must queue again.",
    source="Compute Engine documentation, update policy PROACTIVE; flex-start VMs",
)
def flex_start_edits(view: SliceView) -> Iterator[Finding]:
    for path, capacity in view.alternatives():
        if _is_flex_start(capacity) and not view.shape.multi_host:
            yield Finding(
                f"{path}.model",
                "an edit of the hosts' settings recreates them, and new flex-start hosts must queue again",
                "change such a group only when its jobs may stop",
            )


@SLICE.rule(
    "settings-of-gke",
    backend="compute",
    reason="A setting that hosts without GKE cannot honour is refused rather than ignored.",
    source="GKE API, NodePool; Compute Engine documentation, bulk mode",
)
def settings_of_gke(view: SliceView) -> Iterator[Finding]:
    for key, why in GKE_SETTINGS.items():
        if key in view.spec.model_fields_set and getattr(view.spec, key):
            yield Finding(key, f"needs GKE: {why}", "leave it out, or use cluster: {kind: gke}")
    if view.spec.provisioning not in (None, "fixed"):
        yield Finding(
            "provisioning",
            "needs GKE: nothing adds or removes slices without it",
            "leave it out, or use cluster: {kind: gke}",
        )


@SLICE.rule(
    "hosts-of-gke",
    backend="gke",
    reason="GKE chooses the disk image of its hosts and writes their instance templates.",
    source="GKE API, NodePool",
)
def hosts_of_gke(view: SliceView) -> Iterator[Finding]:
    for key in ("image", "instance_template"):
        if getattr(view.spec, key):
            yield Finding(key, "is for hosts that are not GKE's", "leave it out, or use cluster: {kind: self-managed}")


@SLICE.rule(
    "own-template",
    backend="compute",
    reason="An instance template defines the whole host, so no other key may; it must be in the platform's project.",
    source="gke-labs/tpu-operator CRD; Compute Engine API, regional instance templates",
)
def own_template(view: SliceView) -> Iterator[Finding]:
    spec, platform = view.spec, view.platform
    if spec.instance_template is None:
        return
    for key in IN_TEMPLATE:
        if key in spec.model_fields_set:
            yield Finding(key, "is what instance_template says already", "leave out one of the two")
    _, project, scope, *_ = spec.instance_template.split("/")
    if project != platform.project:
        yield Finding(
            "instance_template",
            f"is in project {project}, the platform in {platform.project}",
            f"copy the template to {platform.project}",
        )
    if scope == "regions" and (region := spec.instance_template.split("/")[3]) != platform.region:
        yield Finding(
            "instance_template",
            f"is in {region}, the platform in {platform.region}",
            "use a template of that region, or a global one",
        )
    for path, capacity in view.alternatives():
        if isinstance(capacity, Reservation) and len(capacity.sub_block) > 1:
            yield Finding(
                f"{path}.sub_block",
                "slices of one template are in one sub-block, which the template names",
                "describe an entry under slices for each sub-block, with its own template",
            )


@SLICE.rule(
    "image-of-generation",
    backend="compute",
    reason="Google's images contain the TPU driver only of the generations in their name.",
    source="Cloud TPU documentation, image families of ubuntu-os-accelerator-images",
)
def image_of_generation(view: SliceView) -> Iterator[Finding]:
    generation, image = view.shape.generation, view.spec.image
    if image is None or not isinstance(generation.without_gke, HostImage):
        return
    project, _, name = image.rpartition("global/images/")
    googles = project == f"projects/{IMAGE_PROJECT}/" or "ubuntu-accel" in name
    if googles and generation.name not in name.removeprefix("family/").split("-"):
        yield Finding(
            "image",
            f"{name.removeprefix('family/')} is not an image for {generation.name}",
            f"leave it out, or use one of the family {generation.without_gke.family}",
        )


@SLICE.rule(
    "group-name",
    backend="compute",
    reason="Hosts and templates are named after their group, and names have at most 63 characters.",
    source="Compute Engine API, instanceGroupManagers.baseInstanceName; Terraform provider, name_prefix",
)
def group_name_short(view: SliceView) -> Iterator[Finding]:
    plans = plan_group(view.platform, view.name, view.spec)
    longest = max((group_name(view.platform, pool.name) for plan in plans for pool in plan.pools), key=len, default="")
    yield from fits_group("", longest)


@SLICE.rule(
    "dra-kubernetes",
    backend="compute",
    reason="Claims need resource.k8s.io/v1, which is on by default from Kubernetes 1.34.",
    source="Kubernetes documentation, dynamic resource allocation; kubernetes-sigs/dra-driver-google-tpu",
)
def dra_kubernetes(view: SliceView) -> Iterator[Finding]:
    version = view.platform.compute.version
    if view.spec.devices == "dra" and not versions.reaches(version, OLDEST_WITH_DRA):
        yield Finding(
            "devices",
            f"dra needs Kubernetes {OLDEST_WITH_DRA}; cluster.version is {version}",
            f"set cluster.version to {OLDEST_WITH_DRA} or later, or write devices: device-plugin",
        )


@SLICE.rule(
    "no-token-in-metadata",
    backend="compute",
    reason="Labels and taints are in instance metadata, which everybody who may view an instance can read.",
    source="kubeadm documentation, bootstrap tokens; Compute Engine documentation, instance metadata",
)
def no_token_in_metadata(view: SliceView) -> Iterator[Finding]:
    marks = {f"labels.{key}": f"{key}={value}" for key, value in view.spec.labels.items()}
    marks |= {f"taints[{index}]": f"{taint.key}={taint.value}" for index, taint in enumerate(view.spec.taints)}
    for path, mark in marks.items():
        if JOIN_TOKEN.search(mark):
            yield Finding(path, "looks like a join token, and many can read instance metadata", "use another text")


@SLICE.rule(
    "drain-time",
    backend="compute",
    reason="The update that deletes a group drains its hosts first, and must come to an end.",
    source="this program; kubectl drain --timeout",
)
def drain_time(view: SliceView) -> Iterator[Finding]:
    drain = view.spec.node_drain
    if drain and drain_seconds(drain) > DRAIN_MINUTES * 60:
        yield Finding(
            "node_drain",
            f"grace and pdb_timeout are {drain_seconds(drain) // 60} minutes together; an update waits {DRAIN_MINUTES}",
            f"shorten them to {DRAIN_MINUTES}m together",
        )


@SLICE.rule(
    "image-that-joins",
    backend="compute",
    reason="Without bootstrap nothing installs a kubelet on Google's images, so hosts would never join.",
    source="this program",
)
def image_that_joins(view: SliceView) -> Iterator[Finding]:
    if not view.platform.compute.bootstrap and not (view.spec.image or view.spec.instance_template):
        yield Finding(
            "image",
            "is missing: with cluster.bootstrap: false hosts join only if their image does it",
            "give image or instance_template, or leave cluster.bootstrap out",
        )
