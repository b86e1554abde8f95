"""Hosts that are not GKE's: instance templates, managed instance groups (MIGs), workload policies, single machines."""

from collections.abc import Iterator

from catalogue.generations import OnlyOnGke
from catalogue.labels import ACCELERATOR_LABEL, CHIPS_LABEL, TOPOLOGY_LABEL
from catalogue.limits import MAX_HOSTS_PER_POOL
from plan.capacity import CAPACITY_MODELS, FLEX_SECONDS, RESERVATION_KEY, OnCompute
from policies import tokens
from policies.registry import RESOURCE, STACK, Resource, Settings, Stack, StackFinding
from policies.tpu import (
    boot_disk_problem,
    dims,
    looks_like_tpu,
    metadata_labels,
    mode,
    policy_of,
    shape_problem,
    slice_hosts,
    template_machine,
    template_of,
    template_topology,
    zones,
)
from policies.values import (
    UNKNOWN,
    Finding,
    Props,
    at,
    expect,
    is_set,
    items,
    known,
    mapping,
    number,
    refuse,
    settled,
    text,
)

MACHINES_AND_TEMPLATES = (*tokens.TEMPLATES, tokens.INSTANCE, *tokens.DERIVED_INSTANCES)
PROVISIONING_MODELS = tuple(
    model.compute.provisioning_model for model in CAPACITY_MODELS.values() if isinstance(model.compute, OnCompute)
)


@RESOURCE.rule(
    "vm-external-address",
    *MACHINES_AND_TEMPLATES,
    tokens.TPU_VM,
    tokens.QUEUED_RESOURCE,
    reason="An access configuration, even an empty one, gives a machine a public address.",
    remedy="Leave accessConfigs, and enableExternalIps of TPU VMs, out; machines reach registries through Cloud NAT",
    source="Compute Engine API, networkInterfaces.accessConfigs; Cloud TPU API, NetworkConfig.enableExternalIps;"
    " tpu-operator's example has one",
)
def vm_external_address(machine: Resource, settings: Settings) -> Iterator[Finding]:
    for index, interface in enumerate(items(machine.props, "networkInterfaces")):
        for key in ("accessConfigs", "ipv6AccessConfigs"):
            value = at(interface, key)
            if isinstance(value, list) and value:
                yield Finding(f"networkInterfaces.{index}.{key}", "is set")
    for path in _tpu_networks(machine):
        yield from refuse(machine.props, f"{path}.enableExternalIps", True)


def _tpu_networks(machine: Resource) -> Iterator[str]:
    """Paths of the networks of TPU VMs."""
    yield "networkConfig"
    yield from (f"networkConfigs.{index}" for index in range(len(items(machine.props, "networkConfigs"))))
    for index in range(len(items(machine.props, "tpu.nodeSpecs"))):
        yield f"tpu.nodeSpecs.{index}.node.networkConfig"


@RESOURCE.rule(
    "vm-shielded",
    *MACHINES_AND_TEMPLATES,
    reason="A virtual TPM and integrity monitoring tell whether somebody changed what a machine boots.",
    remedy="Set enableVtpm and enableIntegrityMonitoring to true; secure boot may stay off for TPU drivers",
    source="CIS Google Cloud Foundation Benchmark 4.8; Cloud TPU guides switch secure boot alone off",
)
def vm_shielded(machine: Resource, settings: Settings) -> Iterator[Finding]:
    for key in ("enableVtpm", "enableIntegrityMonitoring"):
        yield from refuse(machine.props, f"shieldedInstanceConfig.{key}", False)


@RESOURCE.rule(
    "vm-logins",
    *MACHINES_AND_TEMPLATES,
    reason="Project-wide SSH keys let every editor of the project into each host; a serial port has no firewall.",
    remedy="Set metadata block-project-ssh-keys: TRUE, or enable-oslogin: TRUE, with which machines ignore such keys;"
    " leave serial-port-enable and ssh-keys out",
    source="CIS Google Cloud Foundation Benchmark 4.3, 4.5",
)
def vm_logins(machine: Resource, settings: Settings) -> Iterator[Finding]:
    if at(machine.props, "metadata") is UNKNOWN:
        return
    metadata = mapping(machine.props, "metadata")
    blocked, serial = metadata.get("block-project-ssh-keys"), metadata.get("serial-port-enable")
    inherits = blocked is None and machine.type in tokens.DERIVED_INSTANCES
    if not inherits and not _os_login(metadata):
        if known(blocked) and str(blocked).lower() not in ("true", "1"):
            yield Finding("metadata.block-project-ssh-keys", f"is {blocked}")
        elif blocked is None:
            yield Finding("metadata.block-project-ssh-keys", "is not set")
    if known(serial) and str(serial).lower() in ("true", "1"):
        yield Finding("metadata.serial-port-enable", "is on")
    if is_set(metadata, "ssh-keys"):
        yield Finding("metadata.ssh-keys", "is set")


def _os_login(metadata: Props) -> bool:
    """Whether logins use IAM, so that SSH keys in metadata have no effect; true also if not known yet."""
    enabled = metadata.get("enable-oslogin")
    return enabled is UNKNOWN or str(enabled).lower() in ("true", "1", "y", "yes")


@RESOURCE.rule(
    "vm-startup-script",
    *MACHINES_AND_TEMPLATES,
    reason="With both ways the script is given twice; on a machine a change of metadataStartupScript recreates it.",
    remedy="Put the script into metadata startup-script, which is updated in place",
    source="provider: metadata_startup_script forces replacement of an instance",
)
def vm_startup_script(machine: Resource, settings: Settings) -> Iterator[Finding]:
    if not is_set(machine.props, "metadataStartupScript"):
        return
    if machine.type not in tokens.TEMPLATES:
        yield Finding("metadataStartupScript", "is set on a machine")
    elif is_set(mapping(machine.props, "metadata"), "startup-script"):
        yield Finding("metadataStartupScript", "stands beside metadata startup-script")


@RESOURCE.rule(
    "vm-tpu-machine",
    *MACHINES_AND_TEMPLATES,
    reason="Compute Engine builds slices from fewer machine types than GKE; others fail when the group creates hosts.",
    remedy="Use GKE for this generation, or a machine type and topology of docs/topologies.md",
    source="Compute Engine documentation, workload policies; gke-labs/tpu-operator; SkyPilot's TPU groups",
)
def vm_tpu_machine(template: Resource, settings: Settings) -> Iterator[Finding]:
    name = text(template.props, "machineType").rpartition("/")[2]
    machine, topology = template_machine(template), template_topology(template)
    if machine is None:
        if looks_like_tpu(name):
            yield Finding("machineType", f"{name} is not in the catalogue")
        return
    if isinstance(machine.generation.without_gke, OnlyOnGke):
        yield Finding("machineType", f"{name}: {machine.generation.without_gke.reason}")
    if topology and (problem := shape_problem(machine, topology)):
        yield Finding("metadata.kube-labels", problem)


@RESOURCE.rule(
    "vm-tpu-labels",
    *tokens.TEMPLATES,
    reason="The TPU device plugin ends at once when kube-labels lacks one of three labels, or they are wrong.",
    remedy=f"Set metadata kube-labels to {CHIPS_LABEL}, {ACCELERATOR_LABEL} and {TOPOLOGY_LABEL}, joined by commas",
    source="TPU device plugin, instance attribute kube-labels",
)
def vm_tpu_labels(template: Resource, settings: Settings) -> Iterator[Finding]:
    machine = template_machine(template)
    if machine is None or not settled(template.props, "metadata.kube-labels"):
        return
    labels = metadata_labels(template)
    wanted = {ACCELERATOR_LABEL: machine.generation.accelerator, CHIPS_LABEL: str(machine.chips)}
    for label, value in wanted.items():
        if labels.get(label) != value:
            yield Finding("metadata.kube-labels", f"has {label}={labels.get(label, '')}, and has to have {value}")
    if not labels.get(TOPOLOGY_LABEL):
        yield Finding("metadata.kube-labels", f"lacks {TOPOLOGY_LABEL}")


@RESOURCE.rule(
    "vm-boot-disk",
    *tokens.TEMPLATES,
    reason="A machine family boots from some disk types only; others fail when the first host starts.",
    remedy="Use a boot disk type of the generation, from docs/topologies.md",
    source="cluster-autoscaler boot disk tables; SkyPilot; cluster-toolkit",
)
def vm_boot_disk(template: Resource, settings: Settings) -> Iterator[Finding]:
    machine = template_machine(template)
    if machine is None:
        return
    for index, disk in enumerate(items(template.props, "disks")):
        kind = text(disk, "diskType").rpartition("/")[2]
        if at(disk, "boot") is True and (problem := boot_disk_problem(machine, kind)):
            yield Finding(f"disks.{index}.diskType", problem)


@RESOURCE.rule(
    "vm-host-settings",
    *tokens.TEMPLATES,
    reason="TPU hosts cannot migrate live, and some machine types need one thread per core.",
    remedy="Set onHostMaintenance: TERMINATE, threadsPerCore as docs/topologies.md says, and nicType: GVNIC",
    source="Cloud TPU documentation, maintenance events; cluster-autoscaler threads per core",
)
def vm_host_settings(template: Resource, settings: Settings) -> Iterator[Finding]:
    machine = template_machine(template)
    if machine is None:
        return
    yield from expect(template.props, "scheduling.onHostMaintenance", "TERMINATE")
    threads = number(template.props, "advancedMachineFeatures.threadsPerCore")
    if threads != machine.threads_per_core and at(template.props, "advancedMachineFeatures") is not UNKNOWN:
        path = "advancedMachineFeatures.threadsPerCore"
        yield Finding(path, f"is {threads or 'not set'}; {machine.name} takes {machine.threads_per_core or 'none'}")
    for index in range(len(items(template.props, "networkInterfaces"))):
        yield from expect(template.props, f"networkInterfaces.{index}.nicType", "GVNIC")


@RESOURCE.rule(
    "vm-capacity",
    *tokens.TEMPLATES,
    reason="The API takes any text as provisioning model, and refuses what does not go with it only when hosts start.",
    remedy="STANDARD and SPOT take no reservation, RESERVATION_BOUND takes one by name, FLEX_START at most seven days",
    source="Compute Engine documentation, provisioning models; gke-labs/tpu-operator CRD rules",
)
def vm_capacity(template: Resource, settings: Settings) -> Iterator[Finding]:
    if template_machine(template) is None or not all(
        settled(template.props, path) for path in ("scheduling", "reservationAffinity.type")
    ):
        return
    scheduling, affinity = "scheduling", "reservationAffinity"
    model = at(template.props, f"{scheduling}.provisioningModel")
    yield from expect(template.props, f"{scheduling}.provisioningModel", *PROVISIONING_MODELS)
    bound = at(template.props, f"{affinity}.type") == "SPECIFIC_RESERVATION"
    if bound != (model == "RESERVATION_BOUND"):
        yield Finding(f"{affinity}.type", f"is {text(template.props, f'{affinity}.type') or 'not set'} with {model}")
    if bound:
        yield from expect(template.props, f"{affinity}.specificReservation.key", RESERVATION_KEY)
        if len(items(template.props, f"{affinity}.specificReservation.values")) > 1:
            yield Finding(f"{affinity}.specificReservation.values", "has more than one entry")
    if (at(template.props, f"{scheduling}.preemptible") is True) != (model == "SPOT"):
        yield Finding(f"{scheduling}.preemptible", f"goes with SPOT, and only with it; the model is {model}")
    yield from _run_time(template, model)


def _run_time(template: Resource, model: object) -> Iterator[Finding]:
    """Flex-start hosts need a run limit, reserved hosts must not have one."""
    path = "scheduling.maxRunDuration"
    seconds = number(template.props, f"{path}.seconds")
    if model == "FLEX_START":
        if seconds is None and not is_set(template.props, path):
            yield Finding(path, "is not set")
        if seconds is not None and seconds > FLEX_SECONDS:
            yield Finding(f"{path}.seconds", f"is {seconds}, more than seven days")
        yield from expect(template.props, "scheduling.instanceTerminationAction", "DELETE")
    elif model == "RESERVATION_BOUND" and is_set(template.props, path):
        yield Finding(path, "is set on reserved hosts")


@RESOURCE.rule(
    "mig-bulk",
    *tokens.MIGS,
    reason="In bulk mode Google makes all hosts of a slice or none; repair, surge or canaries would break it up.",
    remedy="Set defaultActionOnFailure: DO_NOTHING and a workload policy, one version, and neither healing nor standby",
    source="Compute Engine documentation, about bulk mode; gke-labs/tpu-operator converters",
)
def mig_bulk(mig: Resource, settings: Settings) -> Iterator[Finding]:
    if mode(mig) != "BULK":
        return
    yield from expect(mig.props, "instanceLifecyclePolicy.defaultActionOnFailure", "DO_NOTHING")
    if not is_set(mig.props, "resourcePolicies.workloadPolicy") and at(mig.props, "resourcePolicies") is not UNKNOWN:
        yield Finding("resourcePolicies.workloadPolicy", "is not set")
    versions = at(mig.props, "versions")
    if isinstance(versions, list) and len(versions) > 1:
        yield Finding("versions", f"has {len(versions)} entries")
    for path in ("autoHealingPolicies", "standbyPolicy", "targetStoppedSize", "targetSuspendedSize"):
        if is_set(mig.props, path) and at(mig.props, path) != 0:
            yield Finding(path, "is set")
    yield from refuse(mig.props, "updatePolicy.type", "PROACTIVE")
    if mig.type == tokens.REGION_MIG:
        yield from expect(mig.props, "distributionPolicyTargetShape", "ANY_SINGLE_ZONE")


@STACK.rule(
    "mig-whole-slices",
    reason="A slice of several hosts is one group in bulk mode of exactly that size; single hosts are never bulk.",
    remedy="Let targetSize be the chips of the topology divided by those of a host, and the mode follow from it",
    source="Compute Engine documentation, about bulk mode; gke-labs/tpu-operator",
)
def mig_whole_slices(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    for mig in stack.of_type(*tokens.MIGS):
        template = template_of(stack, mig)
        machine = template_machine(template) if template else None
        if template is None or machine is None or not settled(mig.props, "targetSizePolicies"):
            continue
        topology = template_topology(template)
        hosts, size = slice_hosts(machine, topology), number(mig.props, "targetSize")
        bulk = mode(mig) == "BULK"
        if hosts is None:
            continue  # the topology is not known, or another rule refuses the template
        if bulk != (hosts > 1):
            words = f"{topology} of {machine.name} is {hosts} host{'s' if hosts > 1 else ''}"
            yield StackFinding(mig.urn, "targetSizePolicies.0.mode", f"is {mode(mig)}; {words}")
        if bulk and hosts > 1 and size is not None and size not in (0, hosts):
            yield StackFinding(mig.urn, "targetSize", f"is {size}; {topology} takes {hosts} hosts")
        if size is not None and size > MAX_HOSTS_PER_POOL:
            yield StackFinding(mig.urn, "targetSize", f"is {size}; a group has at most {MAX_HOSTS_PER_POOL} hosts")


@STACK.rule(
    "mig-workload-policy",
    reason="A workload policy wires hosts of one topology in one region; another is refused, or wires them wrong.",
    remedy="Use a policy of the template's topology, in the region of the group's zone",
    source="Compute Engine documentation, workload policies; magic-modules #14255",
)
def mig_workload_policy(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    for mig in stack.of_type(*tokens.MIGS):
        template, policy = template_of(stack, mig), policy_of(stack, mig)
        if policy is None:
            continue
        wired = text(policy.props, "workloadPolicy.acceleratorTopology")
        topology = template_topology(template) if template else ""
        if wired and topology and wired != topology:
            yield StackFinding(mig.urn, "resourcePolicies.workloadPolicy", f"is for {wired}, the hosts for {topology}")
        region = text(policy.props, "region").rpartition("/")[2]
        for zone in zones(mig.props):
            if region and zone.rpartition("-")[0] != region:
                yield StackFinding(mig.urn, "resourcePolicies.workloadPolicy", f"is in {region}, the group in {zone}")


@STACK.rule(
    "mig-fixed-size",
    reason="A group in bulk mode only grows from none; whatever resizes it takes the slice apart.",
    remedy="Remove the autoscaler or resize request; a slice is changed as a whole",
    source="Compute Engine documentation, about bulk mode: not supported with autoscaling and resize requests",
)
def mig_fixed_size(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    resizers = {
        tokens.AUTOSCALER: "target",
        tokens.REGION_AUTOSCALER: "target",
        tokens.RESIZE_REQUEST: "instanceGroupManager",
    }
    for resizer in stack.of_type(*resizers):
        property_ = resizers[resizer.type]
        for urn in resizer.property_dependencies.get(property_, ()):
            mig = stack.by_urn.get(urn)
            if mig is not None and mig.type in tokens.MIGS and mode(mig) == "BULK":
                yield StackFinding(resizer.urn, property_, f"is {mig.name}, which is in bulk mode")


@RESOURCE.rule(
    "workload-policy",
    tokens.RESOURCE_POLICY,
    reason="A workload policy with a topology holds the hosts of a slice together; it cannot be edited later.",
    remedy="Set type: HIGH_THROUGHPUT and a topology of two or three sides; leave maxTopologyDistance out",
    source="Compute Engine API, ResourcePolicy.workloadPolicy; gke-labs/tpu-operator",
)
def workload_policy(policy: Resource, settings: Settings) -> Iterator[Finding]:
    workload = "workloadPolicy"
    topology = at(policy.props, f"{workload}.acceleratorTopology")
    if not known(topology):
        return
    yield from expect(policy.props, f"{workload}.type", "HIGH_THROUGHPUT")
    if dims(str(topology)) is None:
        yield Finding(f"{workload}.acceleratorTopology", f"is {topology!r}, which is no topology")
    for path in (f"{workload}.maxTopologyDistance", "groupPlacementPolicy"):
        if is_set(policy.props, path):
            yield Finding(path, "stands beside a topology")
