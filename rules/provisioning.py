"""What slices may ask for whose node pools GKE or TPU Provisioner creates.

Sources: GKE documentation, ComputeClasses and node pool auto-creation; ai-on-gke/tpu-provisioner @6789e2a.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import date

from catalogue.labels import LABEL_VALUE_LIMIT
from plan.capacity import model_of
from plan.platform import Platform
from plan.provisioning import COMPUTE_CLASS, TPU_PROVISIONER, provisioning_of
from plan.slices import plan_group
from plan.tpu_provisioner import CHIPS_PER_NODE, PODS_PER_NODE, SHARED_SETTINGS, environment_settings
from platform_config.capacity import Reservation
from platform_config.fields import shown
from rules.registry import PLATFORM, SLICE, Finding, SliceView
from rules.slices import LABEL_KEY

CHANNELS_REQUIRED_FROM = date(2027, 6, 14)
"""The day on which GKE ends clusters without a release channel."""

CLASS_DISKS = ("pd-balanced", "pd-standard", "pd-ssd", "hyperdisk-balanced")
CLASS_TAINT_VALUE = "([a-z0-9][-A-Za-z0-9_.]{1,61})?[A-Za-z0-9]"
CLASS_PREFIXES = ("gke", "autopilot")

CLASS_LACKS = {
    "tags": "GKE gives all pools that it creates the same tags",
    "resource_labels": "a ComputeClass has no Google Cloud labels",
    "node_drain": "GKE deletes a pool only when it is idle",
    "additional_networks": "a ComputeClass has no further networks",
    "dranet": "GKE documents it for node pools that `up` creates",
    "host_maintenance": "a ComputeClass has no maintenance interval",
    "dynamic_slicing": "cubes are node pools that `up` creates",
    "protect": "no resource stands for its hosts",
}
"""Settings of a slice that a ComputeClass does not have, and why."""

PROVISIONER_LACKS = {
    "labels": "TPU Provisioner labels hosts with the selectors of pods only",
    "taints": "TPU Provisioner taints spot hosts only",
    "resource_labels": "TPU Provisioner sets no Google Cloud labels",
    "node_drain": "TPU Provisioner deletes a pool when its JobSet has ended",
    "dranet": "TPU Provisioner does not know it",
    "host_maintenance": "TPU Provisioner does not know it",
    "dynamic_slicing": "cubes are node pools that stand",
    "protect": "no resource stands for its hosts",
}
"""Settings of a slice that TPU Provisioner does not have, and why."""


def _is(view: SliceView, way: object) -> bool:
    return provisioning_of("gke", view.spec) is way


def _lacking(view: SliceView, way: str, lacks: Mapping[str, str]) -> Iterator[Finding]:
    for key, why in lacks.items():
        if key in view.spec.model_fields_set and getattr(view.spec, key) not in (None, (), {}, False):
            yield Finding(key, f"has no effect with provisioning: {way}: {why}", "leave it out, or write autoscaled")


@SLICE.rule(
    "class-settings",
    backend="gke",
    reason="A setting that a ComputeClass cannot carry is refused rather than ignored.",
    source="GKE documentation, ComputeClass reference; published schema of computeclasses.cloud.google.com",
)
def class_settings(view: SliceView) -> Iterator[Finding]:
    if not _is(view, COMPUTE_CLASS):
        return
    yield from _lacking(view, COMPUTE_CLASS.name, CLASS_LACKS)
    for plan in plan_group(view.platform, view.name, view.spec):
        if plan.boot_disk.type not in CLASS_DISKS:
            yield Finding("boot_disk.type", f"{plan.boot_disk.type} is not a boot disk of a ComputeClass", "")
            return


@SLICE.rule(
    "class-taints",
    backend="gke",
    reason="GKE's schema of ComputeClasses takes fewer values of taints than Kubernetes does.",
    source="published schema of computeclasses.cloud.google.com, nodePoolConfig.taints",
)
def class_taints(view: SliceView) -> Iterator[Finding]:
    if not _is(view, COMPUTE_CLASS):
        return
    for index, taint in enumerate(view.spec.taints):
        if not re.fullmatch(CLASS_TAINT_VALUE, taint.value):
            yield Finding(
                f"taints[{index}].value",
                f"a taint of a ComputeClass needs a value other than {shown(taint.value)}",
                'for example "true": one character, or three to 63 that begin with a lower-case letter or digit',
            )


@SLICE.rule(
    "class-devices",
    backend="gke",
    reason="No public source tells which GKE version creates pools for DRA.",
    source="cluster-autoscaler: nodePoolConfig.tpu.driverMode; the published schema lacks it",
)
def class_devices(view: SliceView) -> Iterator[Finding]:
    if _is(view, COMPUTE_CLASS) and view.spec.devices == "dra":
        yield Finding(
            "devices",
            "GKE is not known to create pools for DRA",
            "write devices: device-plugin, or provisioning: autoscaled",
        )


@SLICE.rule(
    "class-capacity",
    backend="gke",
    reason="A ComputeClass has no queued provisioning.",
    source="GKE documentation, ComputeClass reference; cluster-toolkit gke-advanced-features",
)
def class_capacity(view: SliceView) -> Iterator[Finding]:
    for path, capacity in view.alternatives():
        # In a list, `fallback-order` refuses it already.
        if _is(view, COMPUTE_CLASS) and model_of(capacity).gke.queued and len(view.spec.capacity) == 1:
            yield Finding(
                f"{path}.model",
                "queued needs node pools that `up` creates, and GKE creates those of a ComputeClass",
                "use flex-start, or leave provisioning out",
            )


@SLICE.rule(
    "class-name",
    backend="gke",
    reason="Names of ComputeClasses must not begin with gke or autopilot, and are values of labels.",
    source="GKE documentation, ComputeClasses",
)
def class_name(view: SliceView) -> Iterator[Finding]:
    plan = next(plan_group(view.platform, view.name, view.spec))
    if plan.compute_class and plan.compute_class.startswith(CLASS_PREFIXES):
        yield Finding(
            "",
            f"its ComputeClass {plan.compute_class} has a name that GKE keeps for itself",
            "begin the platform's name with something other than gke or autopilot",
        )
    if (excess := len(plan.flavor) - LABEL_VALUE_LIMIT) > 0:
        yield Finding("", f"its name {plan.flavor} is too long for a label's value", f"shorten the name by {excess}")


@SLICE.rule(
    "class-secure-boot",
    backend="gke",
    level="warning",
    reason="GKE creates pools for a ComputeClass without secure boot, and a ComputeClass cannot ask for it.",
    source="GKE documentation, Shielded GKE nodes; published schema of computeclasses.cloud.google.com",
)
def class_secure_boot(view: SliceView) -> Iterator[Finding]:
    if _is(view, COMPUTE_CLASS):
        yield Finding(
            "provisioning",
            "hosts that GKE creates for a ComputeClass start without secure boot",
            "write autoscaled if hosts must have it",
        )


@SLICE.rule(
    "on-demand-limit",
    backend="gke",
    level="warning",
    reason="Only quotas of queues keep the number of slices below count; pods past a queue get hosts without limit.",
    source="GKE documentation, ComputeClasses; ai-on-gke/tpu-provisioner: neither has a limit of pools",
)
def on_demand_limit(view: SliceView) -> Iterator[Finding]:
    platform = view.platform
    if provisioning_of("gke", view.spec).declared:
        return
    if not any(view.name in queue.slices for queue in platform.queues.values()):
        yield Finding(
            "count",
            f"nothing limits the number of slices to {view.spec.count}: no queue owns slices of {view.name}",
            f"write queues: {{NAME: {{namespaces: [TEAM], slices: {{{view.name}: {view.spec.count}}}}}}}",
        )
    elif not platform.software.kueue.refuse_unqueued:
        yield Finding(
            "count",
            f"nothing limits the number of slices to {view.spec.count}: pods past a queue are not refused",
            "leave software.kueue.refuse_unqueued out",
        )


@SLICE.rule(
    "provisioner-spare",
    backend="gke",
    level="warning",
    reason="The pool of a finished job stands for up to five minutes, and no other job can use it; a creation that"
    " fails in that time is never tried again.",
    source="ai-on-gke/tpu-provisioner internal/controller/deletion_controller.go, internal/cloud/gke.go",
)
def provisioner_spare(view: SliceView) -> Iterator[Finding]:
    if not _is(view, TPU_PROVISIONER):
        return
    owned = sum(queue.slices.get(view.name, 0) for queue in view.platform.queues.values())
    if owned >= view.spec.count:
        yield Finding(
            "count",
            f"queues own all {view.spec.count} slices: the next job's pools are created while those of the last stand",
            "let queues own fewer slices than count, so that quota or reservation has room for both",
        )


@SLICE.rule(
    "provisioner-settings",
    backend="gke",
    reason="A setting that TPU Provisioner does not have is refused rather than ignored.",
    source="ai-on-gke/tpu-provisioner internal/cloud/gke.go, cmd/main.go",
)
def provisioner_settings(view: SliceView) -> Iterator[Finding]:
    if not _is(view, TPU_PROVISIONER):
        return
    yield from _lacking(view, TPU_PROVISIONER.name, PROVISIONER_LACKS)
    if "size_gb" in view.spec.boot_disk.model_fields_set:
        yield Finding("boot_disk.size_gb", "has no effect: TPU Provisioner takes GKE's default size", "leave it out")
    if view.spec.max_pods_per_node != PODS_PER_NODE:
        yield Finding("max_pods_per_node", f"TPU Provisioner makes hosts of {PODS_PER_NODE} pods", "leave it out")
    if len(view.spec.secondary_boot_disks) > 1:
        yield Finding("secondary_boot_disks", "TPU Provisioner knows one such disk", "name one")
    if view.spec.devices == "dra":
        yield Finding(
            "devices",
            "TPU Provisioner sees pods that request google.com/tpu only",
            "write devices: device-plugin, or provisioning: autoscaled",
        )


@SLICE.rule(
    "provisioner-capacity",
    backend="gke",
    reason="TPU Provisioner asks for on-demand or spot hosts, or for a whole reservation; it has no second choice.",
    source="ai-on-gke/tpu-provisioner internal/cloud/gke.go",
)
def provisioner_capacity(view: SliceView) -> Iterator[Finding]:
    if not _is(view, TPU_PROVISIONER):
        return
    if len(view.spec.capacity) > 1:
        yield Finding(
            "capacity",
            "TPU Provisioner has no order of fallback",
            "name one model, or write provisioning: compute-class",
        )
    for path, capacity in view.alternatives():
        if model_of(capacity).gke.flex_start:
            yield Finding(
                f"{path}.model",
                f"TPU Provisioner does not know {capacity.model}",
                "use on-demand, spot or reservation, or leave provisioning out",
            )
        if isinstance(capacity, Reservation) and capacity.block:
            yield Finding(
                f"{path}.block",
                "TPU Provisioner asks for a whole reservation",
                "leave block and sub_block out, or write provisioning: fixed",
            )
        if "max_run_duration" in capacity.model_fields_set and not model_of(capacity).gke.flex_start:
            yield Finding(f"{path}.max_run_duration", "TPU Provisioner does not limit the run time", "leave it out")


@SLICE.rule(
    "provisioner-shape",
    backend="gke",
    reason="TPU Provisioner divides the chips of every topology by four to count hosts, and asks for placement also of"
    " single hosts, which GKE knows without it; for tpu7x by a workload policy.",
    source="ai-on-gke/tpu-provisioner internal/cloud/gke.go",
)
def provisioner_shape(view: SliceView) -> Iterator[Finding]:
    if not _is(view, TPU_PROVISIONER):
        return
    shape, path = view.shape, "machine_type" if view.spec.machine_type else "topology"
    counted = -(-shape.chips // CHIPS_PER_NODE)
    if counted != shape.hosts:
        yield Finding(
            path,
            f"TPU Provisioner would ask for {counted} hosts of {shape.machine.name}, not {shape.hosts}",
            "use a machine type with 4 chips a host, or write provisioning: compute-class",
        )
    elif not shape.multi_host and shape.machine.chips > 1 and shape.generation.name != "v6e":
        yield Finding(
            path,
            f"TPU Provisioner asks for placement of a single {shape.machine.name}, which GKE does not know",
            "use a topology of several hosts, or write provisioning: compute-class",
        )


@PLATFORM.rule(
    "provisioner-alike",
    backend="gke",
    reason="TPU Provisioner has one set of node settings for all the node pools it creates.",
    source="ai-on-gke/tpu-provisioner cmd/main.go: environment variables",
)
def provisioner_alike(platform: Platform) -> Iterator[Finding]:
    plans = platform.job_plans
    for plan in plans[1:]:
        for key, value in environment_settings(plan).items():
            first = environment_settings(plans[0])[key]
            if value != first:
                yield Finding(
                    f"slices.{plan.group}.{SHARED_SETTINGS[key]}",
                    f"differs from that of slices.{plans[0].group}, and TPU Provisioner has one for all",
                    "write the same for both",
                )


@PLATFORM.rule(
    "created-on-worker",
    backend="gke",
    reason="Jobs that a manager sends select hosts by the manager's flavors, and hosts that come on demand have labels"
    " of the worker's own.",
    source="Kueue documentation, MultiKueue; this program",
)
def created_on_worker(platform: Platform) -> Iterator[Finding]:
    for name, spec in platform.slices.items() if platform.is_worker else ():
        if not provisioning_of("gke", spec).declared:
            yield Finding(
                f"slices.{name}.provisioning",
                f"{spec.provisioning} does not serve jobs of a manager, which select other hosts",
                "write autoscaled",
            )


@PLATFORM.rule(
    "provisioner-image",
    backend="gke",
    reason="There is no public image of TPU Provisioner.",
    source="ai-on-gke/tpu-provisioner README.md",
)
def provisioner_image(platform: Platform) -> Iterator[Finding]:
    settings = platform.software.tpu_provisioner
    if platform.job_plans and settings.image is None:
        yield Finding(
            "software.tpu_provisioner.image",
            f"is missing: slices.{platform.job_plans[0].group} needs the controller, and there is no public image",
            "build one from ai-on-gke/tpu-provisioner and name it by digest (docs/slices-on-demand.md)",
        )


@PLATFORM.rule(
    "provisioner-unused",
    whole=True,
    reason="A setting that nothing reads is refused rather than ignored.",
    source="this program",
)
def provisioner_unused(platform: Platform) -> Iterator[Finding]:
    if platform.job_plans:
        return
    for key in sorted(platform.software.tpu_provisioner.model_fields_set):
        yield Finding(
            f"software.tpu_provisioner.{key}",
            "has no effect: no slice has provisioning: tpu-provisioner",
            "leave it out",
        )


@PLATFORM.rule(
    "provisioner-digest",
    backend="gke",
    level="warning",
    reason="The controller may change the whole cluster, so nobody should be able to exchange its image.",
    source="Kubernetes documentation, images",
)
def provisioner_digest(platform: Platform) -> Iterator[Finding]:
    image = platform.software.tpu_provisioner.image
    if image and "@" not in image:
        yield Finding(
            "software.tpu_provisioner.image", "is named by a tag, which can move", "name it by digest: IMAGE@sha256:..."
        )


@PLATFORM.rule(
    "provisioner-labels",
    backend="gke",
    reason="TPU Provisioner gets the keys in one text with commas between them, and copies the labels to hosts.",
    source="ai-on-gke/tpu-provisioner @6789e2a cmd/main.go, GCP_POD_TO_NODE_LABELS; Kubernetes label syntax",
)
def provisioner_labels(platform: Platform) -> Iterator[Finding]:
    for index, key in enumerate(platform.software.tpu_provisioner.pod_to_node_labels):
        if not re.fullmatch(LABEL_KEY, key):
            yield Finding(
                f"software.tpu_provisioner.pod_to_node_labels[{index}]",
                f"{shown(key)} is not a label key",
                "letters, digits, -, _ and . with an optional domain/; one key for each entry of the list",
            )


@PLATFORM.rule(
    "no-channel",
    backend="gke",
    reason="TPU Provisioner creates pools without automatic upgrades, which GKE refuses in every release channel.",
    source="GKE API: Auto_upgrade must be true when release_channel is set; ai-on-gke/tpu-provisioner README.md",
)
def no_channel(platform: Platform) -> Iterator[Finding]:
    if platform.job_plans and platform.in_channel:
        yield Finding(
            "cluster.release_channel",
            f"slices.{platform.job_plans[0].group} has provisioning: tpu-provisioner, which works only without one",
            "write UNSPECIFIED, or provisioning: compute-class, which works in every channel",
        )


@PLATFORM.rule(
    "channel-unspecified",
    backend="gke",
    whole=True,
    reason="A cluster without a release channel is for TPU Provisioner alone.",
    source="GKE documentation, release channels",
)
def channel_unspecified(platform: Platform) -> Iterator[Finding]:
    if not platform.job_plans and not platform.in_channel:
        yield Finding(
            "cluster.release_channel",
            "UNSPECIFIED is for slices with provisioning: tpu-provisioner only",
            "write RAPID, REGULAR, STABLE or EXTENDED",
        )


@PLATFORM.rule(
    "provisioner-alone",
    backend="gke",
    reason="Without a release channel no maintenance exclusion holds back node upgrades alone, so they would end jobs"
    " on slices that stand.",
    source="GKE documentation, maintenance exclusions; GKE API: node upgrades recreate a whole slice",
)
def provisioner_alone(platform: Platform) -> Iterator[Finding]:
    if not platform.job_plans:
        return
    for name, spec in platform.slices.items():
        if (way := provisioning_of("gke", spec)) is not TPU_PROVISIONER:
            yield Finding(
                f"slices.{name}.provisioning",
                f"{way.name} does not go together with tpu-provisioner: GKE would upgrade its hosts in any window",
                "write tpu-provisioner for all slices, or describe these in another platform",
            )


@PLATFORM.rule(
    "no-channel-ends",
    backend="gke",
    level="warning",
    reason="GKE ends clusters without a release channel.",
    source="GKE documentation, release channels",
)
def no_channel_ends(platform: Platform) -> Iterator[Finding]:
    if not platform.in_channel:
        yield Finding(
            "cluster.release_channel",
            f"GKE has no clusters without a release channel any more from {CHANNELS_REQUIRED_FROM:%d %B %Y}",
            "move to provisioning: compute-class before that day (docs/slices-on-demand.md)",
        )


@PLATFORM.rule(
    "no-channel-exclusions",
    backend="gke",
    reason="Only clusters in a release channel can exclude minor or node upgrades.",
    source="GKE documentation, maintenance exclusions",
)
def no_channel_exclusions(platform: Platform) -> Iterator[Finding]:
    if platform.in_channel:
        return
    for index, exclusion in enumerate(platform.exclusions):
        if exclusion.scope != "NO_UPGRADES":
            yield Finding(
                f"cluster.maintenance.exclusions[{index}].scope",
                f"{exclusion.scope} needs a release channel",
                "write NO_UPGRADES with an end, or leave exclusions out",
            )
