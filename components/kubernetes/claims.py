"""What teams claim DRA devices with: a DeviceClass for each generation, a claim template for each kind of host."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.kubernetes.cluster_access import ClusterAccess
from plan import flavors
from plan.flavors import ClaimTemplate
from plan.platform import Platform


class Claims(pulumi.ComponentResource):
    """DeviceClasses hold the selectors and claim templates only counts: Kueue counts quota for nothing else.

    `namespaces`: for each namespace, the resources that must exist before anything in it.
    """

    TYPE = "tpu:kubernetes:Claims"
    device_classes: list[pulumi.Resource]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        access: ClusterAccess,
        namespaces: Mapping[str, Sequence[pulumi.Resource]],
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._name, self._access = name, access
        self.device_classes = [
            self._device_class(device_class, expression, after)
            for device_class, expression in flavors.device_classes(platform).items()
        ]
        for template in flavors.claim_templates(platform):
            self._template(template, namespaces)
        self.register_outputs({"deviceClasses": sorted(flavors.device_classes(platform))})

    def _device_class(
        self, device_class: str, expression: str, after: Sequence[pulumi.Resource]
    ) -> k8s.resource.v1.DeviceClass:
        resource = k8s.resource.v1
        return resource.DeviceClass(
            f"{self._name}-{device_class}",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=device_class),
            spec=resource.DeviceClassSpecArgs(
                selectors=[resource.DeviceSelectorArgs(cel=resource.CELDeviceSelectorArgs(expression=expression))]
            ),
            opts=self._access.options(self, depends_on=after),
        )

    def _template(
        self, template: ClaimTemplate, namespaces: Mapping[str, Sequence[pulumi.Resource]]
    ) -> k8s.resource.v1.ResourceClaimTemplate:
        resource = k8s.resource.v1
        request = resource.DeviceRequestArgs(
            name="tpu",
            exactly=resource.ExactDeviceRequestArgs(
                device_class_name=template.device_class,
                # Kueue cannot count "All", and the driver prepares all chips of a host or none.
                allocation_mode="ExactCount",
                count=template.count,
            ),
        )
        return resource.ResourceClaimTemplate(
            f"{self._name}-{template.name}-{template.namespace}",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=template.name, namespace=template.namespace),
            spec=resource.ResourceClaimTemplateSpecArgs(
                spec=resource.ResourceClaimSpecArgs(devices=resource.DeviceClaimArgs(requests=[request]))
            ),
            opts=self._access.options(self, depends_on=[*namespaces[template.namespace], *self.device_classes]),
        )
