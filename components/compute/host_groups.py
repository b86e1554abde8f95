"""Hosts that are not GKE's: instance templates, and the managed instance groups (MIGs) that make hosts of them."""

from collections.abc import Collection, Mapping, Sequence

import pulumi
import pulumi_gcp as gcp

from components.compute.boot_script import boot_script
from components.gcp.network import Network
from components.gcp.node_identity import CLOUD_PLATFORM
from components.known_output import unknown_if_absent
from plan import hosts, recreation
from plan.capacity import ReservationAffinity
from plan.hosts import CREATE_MINUTES, DELETE_MINUTES, HostGroup, HostTemplate
from plan.platform import Platform

# The provider plans an edit of these as an update, which leaves the hosts unchanged. The API cannot resize or reshape a
# bulk group. So for a slice each of these edits replaces the group.
REPLACES_SLICE = ["targetSize", "versions", "resourcePolicies", "targetSizePolicies"]
# The description names the subnet and the cluster, which hosts cannot leave. When one of them is replaced, this
# property makes the engine delete all hosts first, then the templates.
REPLACES_HOSTS = ["description"]


class HostGroups(pulumi.ComponentResource):
    """Groups of hosts of one purpose, by short name, with the templates that they share.

    The hosts of a multi-host slice are one group with a workload policy: Google creates all of them or none, and an
    edit replaces them together. Other hosts are created, and after an edit recreated, one by one.
    """

    TYPE = "tpu:compute:HostGroups"
    plans: Mapping[str, HostGroup]
    groups: dict[str, gcp.compute.InstanceGroupManager]
    stable: dict[str, pulumi.Output[bool]]
    identity: dict[str, pulumi.Output[str]]
    """By short name, a text that changes when the hosts of the group are recreated."""

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        groups: Mapping[str, HostGroup],
        network: Network,
        cluster: pulumi.Input[str],
        email: pulumi.Input[str],
        policies: Mapping[str, gcp.compute.ResourcePolicy],
        after: Sequence[pulumi.Resource],
        own_template: pulumi.Input[str] | None = None,
        hooks: pulumi.ResourceHookBinding | None = None,
        kept: Collection[str] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`cluster`: a text that names the cluster and differs for every cluster. `email`: service account of hosts
        that name none. `after`: what hosts need to join. `own_template`: used instead of one made here. `hooks`: of the
        groups. `kept`: short names of the groups to protect, where `opts` do not protect all."""
        super().__init__(self.TYPE, name, None, opts)
        self._platform, self._network, self._email, self._after = platform, network, email, list(after)
        self.plans = groups
        self._policies, self._hooks, self._makes_templates = policies, hooks, own_template is None
        self._kept, self._protected = kept, bool(opts and opts.protect)
        self._description = pulumi.Output.concat("Hosts of ", cluster, " in ", network.subnetwork)
        templates: dict[str, pulumi.Input[str]] = {}
        for group in groups.values():
            key = group.template.name
            if own_template is not None:
                templates[key] = own_template
            elif key not in templates:
                templates[key] = self._template(f"{name}-template-{key}", group).self_link_unique
        self.groups = {
            key: self._group(name, key, group, templates[group.template.name]) for key, group in groups.items()
        }
        self.stable = {
            group.name: unknown_if_absent(self.groups[key].statuses).apply(lambda statuses: bool(statuses[0].is_stable))
            for key, group in groups.items()
        }
        self.identity = {
            key: pulumi.Output.concat(
                _number(self.groups[key]),
                f" of {group.size} by ",
                templates[group.template.name],
            )
            for key, group in groups.items()
        }
        self.register_outputs({"groups": [group.name for group in groups.values()]})

    def _template(self, name: str, group: HostGroup) -> gcp.compute.InstanceTemplate:
        """The template of a group. Templates cannot be edited, so an edit creates a new one, under a new name, before
        it deletes the old one. Templates hold nothing, so they are never protected."""
        compute, template = gcp.compute, group.template
        return compute.InstanceTemplate(
            name,
            project=self._platform.project,
            name_prefix=f"{self._platform.name}-{template.name}-",
            machine_type=template.machine_type,
            labels=dict(template.resource_labels),
            tags=list(template.tags) or None,
            disks=[_boot_disk(template)],
            network_interfaces=[self._interface(template)],
            scheduling=_scheduling(template),
            reservation_affinity=_reservation_affinity(template.reservation),
            advanced_machine_features=(
                compute.InstanceTemplateAdvancedMachineFeaturesArgs(threads_per_core=template.threads_per_core)
                if template.threads_per_core
                else None
            ),
            service_account=compute.InstanceTemplateServiceAccountArgs(
                email=template.service_account or self._email, scopes=[CLOUD_PLATFORM]
            ),
            shielded_instance_config=compute.InstanceTemplateShieldedInstanceConfigArgs(
                # Google's guides for TPU machines switch it off.
                enable_secure_boot=not template.tpu_labels,
                enable_vtpm=True,
                enable_integrity_monitoring=True,
            ),
            metadata={
                **hosts.boot_metadata(self._platform),
                **template.metadata(),
                **({"startup-script": boot_script("node")} if self._platform.compute.bootstrap else {}),
            },
            opts=pulumi.ResourceOptions(
                parent=self,
                # A slice is deleted in this order: group, template, policy.
                depends_on=[*self._after, *self._policy_of(group)],
                protect=False,
            ),
        )

    def _interface(self, template: HostTemplate) -> gcp.compute.InstanceTemplateNetworkInterfaceArgs:
        """An interface without a public address, with a range of the subnet for the host's pods."""
        compute = gcp.compute
        return compute.InstanceTemplateNetworkInterfaceArgs(
            subnetwork=self._network.subnetwork,
            nic_type="GVNIC",
            alias_ip_ranges=[
                compute.InstanceTemplateNetworkInterfaceAliasIpRangeArgs(
                    ip_cidr_range=f"/{template.pod_prefix}", subnetwork_range_name=self._network.pods_range
                )
            ],
        )

    def _group(
        self, name: str, key: str, group: HostGroup, template: pulumi.Input[str]
    ) -> gcp.compute.InstanceGroupManager:
        compute = gcp.compute
        policy = [policy.self_link for policy in self._policy_of(group)]
        return compute.InstanceGroupManager(
            f"{name}-{key}",
            project=self._platform.project,
            name=group.name,
            description=self._description,
            zone=self._platform.zone,
            base_instance_name=group.base_name,
            target_size=group.size,
            versions=[compute.InstanceGroupManagerVersionArgs(instance_template=template)],
            target_size_policies=[
                compute.InstanceGroupManagerTargetSizePolicyArgs(mode="BULK" if group.bulk else "INDIVIDUAL")
            ],
            resource_policies=(
                compute.InstanceGroupManagerResourcePoliciesArgs(workload_policy=policy[0]) if policy else None
            ),
            instance_lifecycle_policy=compute.InstanceGroupManagerInstanceLifecyclePolicyArgs(
                default_action_on_failure="REPAIR" if group.repair else "DO_NOTHING"
            ),
            update_policy=_update_policy(group),
            wait_for_instances=group.wait,
            wait_for_instances_status="STABLE",
            opts=pulumi.ResourceOptions(
                parent=self,
                # Templates that are made here depend on these already.
                depends_on=None if self._makes_templates else self._after,
                delete_before_replace=True,
                replace_on_changes=self._replacing(group),
                hooks=self._hooks,
                protect=True if key in self._kept else None,
                custom_timeouts=pulumi.CustomTimeouts(
                    create=f"{CREATE_MINUTES}m", update=f"{CREATE_MINUTES}m", delete=f"{DELETE_MINUTES}m"
                ),
            ),
        )

    def _replacing(self, group: HostGroup) -> list[str]:
        """Edits that replace the group. For protected hosts also the edits that recreate hosts one by one, so that the
        engine refuses those before it changes anything."""
        if group.bulk:
            return [*REPLACES_HOSTS, *REPLACES_SLICE]
        return [*REPLACES_HOSTS, *(recreation.HOST_GROUP if self._protected else [])]

    def _policy_of(self, group: HostGroup) -> list[gcp.compute.ResourcePolicy]:
        return [self._policies[group.policy]] if group.policy else []


def _number(group: gcp.compute.InstanceGroupManager) -> pulumi.Output[str]:
    """The group's id, which no other group ever has."""
    number: pulumi.Output[int] = unknown_if_absent(group.instance_group_manager_id)
    return number.apply(str)


def _boot_disk(template: HostTemplate) -> gcp.compute.InstanceTemplateDiskArgs:
    compute, key = gcp.compute, template.kms_key
    return compute.InstanceTemplateDiskArgs(
        boot=True,
        auto_delete=True,
        source_image=template.image,
        disk_type=template.disk.type,
        disk_size_gb=template.disk.size_gb,
        labels=dict(template.resource_labels),
        disk_encryption_key=(compute.InstanceTemplateDiskDiskEncryptionKeyArgs(kms_key_self_link=key) if key else None),
    )


def _scheduling(template: HostTemplate) -> gcp.compute.InstanceTemplateSchedulingArgs:
    """How hosts are obtained and ended. TPU hosts cannot migrate, and a limited run time needs a termination action."""
    compute, scheduling, seconds = gcp.compute, template.scheduling, template.max_run_seconds
    return compute.InstanceTemplateSchedulingArgs(
        provisioning_model=scheduling.provisioning_model,
        preemptible=scheduling.provisioning_model == "SPOT",
        automatic_restart=scheduling.restart,
        on_host_maintenance="TERMINATE" if template.tpu_labels else "MIGRATE",
        instance_termination_action=scheduling.termination,
        max_run_duration=(compute.InstanceTemplateSchedulingMaxRunDurationArgs(seconds=seconds) if seconds else None),
    )


def _reservation_affinity(
    affinity: ReservationAffinity | None,
) -> gcp.compute.InstanceTemplateReservationAffinityArgs | None:
    if affinity is None:
        return None
    compute = gcp.compute
    return compute.InstanceTemplateReservationAffinityArgs(
        type=affinity.type,
        specific_reservation=(
            compute.InstanceTemplateReservationAffinitySpecificReservationArgs(
                key=affinity.key, values=list(affinity.values)
            )
            if affinity.key
            else None
        ),
    )


def _update_policy(group: HostGroup) -> gcp.compute.InstanceGroupManagerUpdatePolicyArgs:
    """Recreates hosts one at a time, under their old names, without a spare; a multi-host slice is replaced instead."""
    return gcp.compute.InstanceGroupManagerUpdatePolicyArgs(
        type="OPPORTUNISTIC" if group.bulk else "PROACTIVE",
        minimal_action="REPLACE",
        replacement_method="RECREATE",
        max_surge_fixed=0,
        max_unavailable_fixed=1,
    )
