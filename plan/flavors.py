"""Flavors of slices, with the DeviceClasses and claim templates of their hosts.

Quotas are in chips. Device-plugin pods request `google.com/tpu`. Kueue counts DRA pods under another resource, which it
maps from DeviceClasses: with one shared resource a DRA pod could use the quota of hosts it cannot run on. DRA counting:
Kueue v0.19 `pkg/dra/claims.go` (ExactCount only, no selectors in claims).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from catalogue.generations import GENERATIONS
from catalogue.labels import (
    ACCELERATOR_LABEL,
    COMPUTE_CLASS_LABEL,
    FLAVOR_LABEL,
    KUBERNETES_EFFECTS,
    QUEUED_LABEL,
    RESERVATION_LABEL,
    RESERVATION_PROJECT_LABEL,
    SLICE_LABEL,
    SPOT_LABEL,
    TOPOLOGY_LABEL,
    TPU_TAINT,
)
from plan.platform import Platform
from plan.provisioning import COMPUTE_CLASS, FIXED, TPU_PROVISIONER
from plan.slices import SlicePlan
from platform_config.capacity import Reservation

DEVICE_PLUGIN_RESOURCE = "google.com/tpu"
DRA_RESOURCE = "google.com/tpu-dra"
RESOURCES = {"device-plugin": DEVICE_PLUGIN_RESOURCE, "dra": DRA_RESOURCE}

TOPOLOGY_NAME = "gke-tpu"


@dataclass(frozen=True)
class Toleration:
    """A toleration in Kubernetes' spelling; without `value` it tolerates any value."""

    key: str
    value: str | None = None
    effect: str = "NoSchedule"


@dataclass(frozen=True)
class Flavor:
    """Hosts of one shape and capacity model. `chips`: of one slice; `check`: the admission check it needs, if any."""

    name: str
    generation: str
    topology: str
    hosts: int
    chips: int
    chips_per_host: int
    devices: str
    node_labels: Mapping[str, str]
    tolerations: tuple[Toleration, ...]
    queued: bool
    topology_aware: bool

    @property
    def resource(self) -> str:
        """The resource in which quotas of this flavor are counted."""
        return RESOURCES[self.devices]

    @property
    def check(self) -> str | None:
        """Name of the admission check. Each topology has one, because the topology is its parameter."""
        return f"queued-{self.topology}" if self.queued else None

    @property
    def device_class(self) -> str | None:
        """DeviceClass of its chips, one for each generation: Kueue allows selectors there and not in claims."""
        return f"tpu-{self.generation}" if self.devices == "dra" else None

    @property
    def claim_template(self) -> str | None:
        """Name of the ResourceClaimTemplate for one host of it."""
        return f"tpu-{self.generation}-{self.chips_per_host}" if self.devices == "dra" else None


@dataclass(frozen=True)
class ClaimTemplate:
    """A ResourceClaimTemplate in a namespace: all `count` chips of one host."""

    name: str
    namespace: str
    device_class: str
    count: int


def flavors(platform: Platform) -> dict[str, Flavor]:
    """Every flavor of the platform's queues, by name."""
    found: dict[str, Flavor] = {}
    for plan in platform.shared_plans:
        found.setdefault(plan.flavor, _flavor(platform, plan))
    return dict(sorted(found.items()))


def _flavor(platform: Platform, plan: SlicePlan) -> Flavor:
    return Flavor(
        name=plan.flavor,
        generation=plan.generation.name,
        topology=plan.topology,
        hosts=plan.hosts,
        chips=plan.chips,
        chips_per_host=plan.chips_per_host,
        devices=plan.devices,
        node_labels=_node_labels(plan),
        tolerations=tuple(_tolerations(plan)),
        # The workers of a manager request capacity: Kueue refuses both checks on one queue.
        queued=plan.queued and not platform.is_manager,
        topology_aware=platform.software.kueue.topology_aware
        and plan.devices == "device-plugin"
        and plan.multi_host
        and plan.provisioning is FIXED
        and all(pool.node_count for pool in plan.pools),
    )


def _node_labels(plan: SlicePlan) -> dict[str, str]:
    """What pods select. It also tells GKE, or TPU Provisioner, which hosts to create for them."""
    if plan.provisioning is COMPUTE_CLASS and plan.compute_class:
        # Of a class's own settings GKE accepts only these two as selectors beside it.
        shape = {key: plan.tpu_labels[key] for key in (ACCELERATOR_LABEL, TOPOLOGY_LABEL)}
        return {**shape, COMPUTE_CLASS_LABEL: plan.compute_class}
    labels = {**plan.tpu_labels, FLAVOR_LABEL: plan.flavor}
    if plan.provisioning is TPU_PROVISIONER:
        labels |= {SLICE_LABEL: plan.group, **capacity_selectors(plan)}
    if plan.queued:
        labels[QUEUED_LABEL] = "true"
    if plan.compute_class:
        labels[COMPUTE_CLASS_LABEL] = plan.compute_class
    return labels


def _tolerations(plan: SlicePlan) -> Iterator[Toleration]:
    """Every flavor tolerates the TPU taint: GKE adds that toleration only to device-plugin pods."""
    yield Toleration(TPU_TAINT)
    if plan.queued:
        yield Toleration(QUEUED_LABEL, "true")
    if plan.provisioning is TPU_PROVISIONER and plan.model.gke.spot:
        yield Toleration(SPOT_LABEL, "true")
    for taint in plan.taints:
        yield Toleration(taint.key, taint.value, KUBERNETES_EFFECTS[taint.effect])


def capacity_selectors(plan: SlicePlan) -> dict[str, str]:
    """Selectors from which TPU Provisioner reads the capacity of the pool it creates
    (ai-on-gke/tpu-provisioner internal/cloud/gke.go)."""
    if isinstance(plan.alternative, Reservation):
        owner = {RESERVATION_PROJECT_LABEL: plan.alternative.project} if plan.alternative.project else {}
        return {RESERVATION_LABEL: plan.alternative.name, **owner}
    return {SPOT_LABEL: "true"} if plan.model.gke.spot else {}


def claim_templates(platform: Platform) -> tuple[ClaimTemplate, ...]:
    """One template for each DRA host shape in each namespace that may submit work."""
    shapes = {
        (flavor.claim_template, flavor.device_class, flavor.chips_per_host)
        for flavor in flavors(platform).values()
        if flavor.claim_template and flavor.device_class
    }
    return tuple(
        ClaimTemplate(name, namespace, device_class, count)
        for namespace in platform.workload_namespaces
        for name, device_class, count in sorted(shapes)
        if name and device_class
    )


def device_classes(platform: Platform) -> dict[str, str]:
    """DeviceClasses besides the driver's own, with their CEL selectors.

    Selectors use `tpuGen` only, because it is the only useful attribute that GKE predicts for a pool without hosts.
    """
    classes = {
        flavor.device_class: GENERATIONS[flavor.generation].driver_name
        for flavor in flavors(platform).values()
        if flavor.device_class
    }
    return {
        name: f'device.driver == "tpu.google.com" && device.attributes["tpu.google.com"].tpuGen == "{generation}"'
        for name, generation in sorted(classes.items())
    }
