"""A group of identical TPU slices in the stack file. `plan.slices` has what is derived from it."""

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from catalogue import topology
from catalogue.generations import GENERATIONS, MACHINES, Machine
from platform_config.capacity import MODELS, Capacity, OnDemand
from platform_config.cluster import Taint
from platform_config.fields import PROJECT, DiskSize, Duration, Flag, KmsKey, Labels, Model, Positive, text

_EMAIL_CHECK, _EMAIL_SCHEMA = text(
    r"[a-z0-9-]+@[a-z0-9.-]+\.iam\.gserviceaccount\.com",
    "the address of a service account made for a purpose",
    "NAME@PROJECT.iam.gserviceaccount.com, not a default account",
)
_IMAGE_CHECK, _IMAGE_SCHEMA = text(
    rf"(projects/({PROJECT})/)?global/images/(family/)?[a-z0-9-]+",
    "a disk image",
    "projects/PROJECT/global/images/IMAGE",
)

_TEMPLATE_CHECK, _TEMPLATE_SCHEMA = text(
    rf"projects/({PROJECT})/(global|regions/[a-z0-9-]+)/instanceTemplates/[a-z0-9-]+",
    "an instance template",
    "projects/PROJECT/global/instanceTemplates/NAME",
)


Provisioning = Literal["fixed", "autoscaled", "compute-class", "tpu-provisioner"]
"""Ways in which the hosts of a slice come to be. `plan.provisioning` has their effects."""


class BootDisk(Model):
    """The disk a host starts from."""

    type: str | None = None
    """Disk type; the generation's default if unset."""
    size_gb: DiskSize = 100
    """Size in GB."""


class SecondaryBootDisk(Model):
    """A disk with container images, so that hosts need not pull them."""

    image: Annotated[str, _IMAGE_CHECK, _IMAGE_SCHEMA]
    """Disk image that caches container images."""


class AdditionalNetwork(Model):
    """A further VPC in which hosts have an interface, for traffic between slices."""

    network: str
    """VPC, by name or full resource name."""
    subnetwork: str
    """Subnet of it in the platform's region."""


class NodeDrain(Model):
    """How a host is drained before its pool is deleted, so that training can write a checkpoint.

    Without GKE the update that deletes the group of hosts drains them first.
    """

    respect_pdb: Flag = True
    """Honour PodDisruptionBudgets when the pool is deleted."""
    grace: Duration | None = None
    """Longest time pods may take to end."""
    pdb_timeout: Duration | None = None
    """Longest wait for PodDisruptionBudgets of a host's pods."""


EXAMPLES = [topology.render(dims) for dims in (*topology.SHAPES_2D, *topology.SMALL_SHAPES_3D, (4, 4, 4), (4, 4, 8))]
"""Topologies that editors offer: all in two dimensions, and small ones in three."""


def _listed(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


def _given(*keys: str) -> dict[str, Any]:
    """JSON Schema: these keys are present and not null."""
    return {"required": list(keys), "properties": {key: {"not": {"type": "null"}} for key in keys}}


def few_shapes(machine: Machine) -> bool:
    """Whether all topologies of a machine type fit a list: it is a slice by itself, or wired in two dimensions."""
    return not machine.multi_host or machine.generation.dimensions == 2


def _of_machine(machine: Machine) -> dict[str, Any]:
    """JSON Schema: the topologies that hosts of a machine type can form."""
    several = [dims for dims in topology.shapes(machine.generation) if math.prod(dims) >= machine.chips]
    possible = map(topology.render, several) if machine.multi_host else [machine.topology]
    return {
        "if": {"required": ["machine_type"], "properties": {"machine_type": {"const": machine.name}}},
        "then": {"properties": {"topology": {"enum": [*possible, None]}}},
    }


class Slice(Model):
    """A group of identical slices. Exactly one of: machine_type and topology; generation and topology; generation and
    chips. Hosts, placement and the rest are derived."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                _given("machine_type", "topology"),
                _given("generation", "topology"),
                _given("generation", "chips"),
            ],
            "allOf": [_of_machine(machine) for machine in MACHINES.values() if few_shapes(machine)],
        }
    )

    machine_type: Annotated[str | None, Field(json_schema_extra={"enum": list(MACHINES)})] = None
    """TPU machine type, such as ct6e-standard-4t."""
    generation: Annotated[str | None, Field(json_schema_extra={"enum": list(GENERATIONS)})] = None
    """TPU generation: v4, v5e, v5p, v6e or tpu7x."""
    topology: Annotated[str | None, Field(examples=EXAMPLES)] = None
    """Shape of one slice in chips, such as 4x4 or 4x4x8, sides ascending."""
    chips: Positive | None = None
    """Chips of one slice, if only one shape has that many."""
    count: Positive = 1
    """Number of slices; with on-demand provisioning the most that may exist at once."""
    capacity: Annotated[
        tuple[Capacity, ...],
        Field(min_length=1, max_length=len(MODELS)),
        BeforeValidator(
            _listed,
            json_schema_input_type=Capacity | Annotated[list[Capacity], Field(min_length=1, max_length=len(MODELS))],
        ),
    ] = (OnDemand(model="on-demand"),)
    """How hosts are obtained; a list is an order of fallback."""
    devices: Literal["device-plugin", "dra"] = "device-plugin"
    """How pods get chips: the TPU device plugin, or claims through the TPU DRA driver."""
    provisioning: Provisioning | None = None
    """How hosts come to be: a fixed number of hosts; node pools that GKE scales between none and all hosts; node pools
    that GKE creates for a ComputeClass; node pools that TPU Provisioner creates for a JobSet. If unset: fixed, or
    autoscaled where the capacity needs it. All but fixed are GKE only."""
    dynamic_slicing: Flag = False
    """tpu7x: provision 4x4x4 cubes that the slice controller joins to slices at run time. GKE only."""
    protect: Flag | None = None
    """Refuse updates that delete or replace the slices or recreate their hosts; as the platform if unset."""
    boot_disk: BootDisk = BootDisk()
    """The disk hosts start from."""
    secondary_boot_disks: tuple[SecondaryBootDisk, ...] = ()
    """Disk images that cache container images. GKE only."""
    image_streaming: Flag = True
    """Start containers before their image is fully pulled. GKE only."""
    dranet: Flag = False
    """Give accelerator network interfaces to pods (DRANET). GKE only."""
    additional_networks: tuple[AdditionalNetwork, ...] = ()
    """Further VPCs for hosts; not together with dranet. GKE only."""
    max_pods_per_node: Annotated[int, Field(strict=True, ge=8, le=256)] = 15
    """Most pods on a host; lower values save pod addresses."""
    host_maintenance: Literal["AS_NEEDED", "PERIODIC"] | None = None
    """When Google maintains hosts; PERIODIC only in a reservation with periodic maintenance. GKE only."""
    node_drain: NodeDrain | None = None
    """How hosts are drained before deletion; without GKE at most half an hour in all."""
    labels: Labels = {}
    """Kubernetes labels of the hosts."""
    taints: tuple[Taint, ...] = ()
    """Taints of the hosts, besides google.com/tpu."""
    tags: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    """Network tags of the hosts."""
    resource_labels: Labels = {}
    """Google Cloud labels of the hosts, for billing."""
    service_account: Annotated[str, _EMAIL_CHECK, _EMAIL_SCHEMA] | None = None
    """Service account of the hosts; the platform's own if unset."""
    kms_key: KmsKey | None = None
    """Cloud KMS key that encrypts boot disks."""
    image: Annotated[str, _IMAGE_CHECK, _IMAGE_SCHEMA] | None = None
    """Disk image of hosts that are not GKE's; Google's newest of the generation's family if unset."""
    instance_template: Annotated[str, _TEMPLATE_CHECK, _TEMPLATE_SCHEMA] | None = None
    """Your own instance template for hosts that are not GKE's; its hosts must have that machine type and join."""
