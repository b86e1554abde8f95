"""Google APIs the platform calls."""

import pulumi
import pulumi_gcp as gcp

from spec.platform import Platform


class Services(pulumi.ComponentResource):
    """Switches on the project's APIs, and leaves them on: other stacks of the project may use them."""

    TYPE = "tpu:gcp:Services"
    enabled: list[pulumi.Resource]

    def __init__(self, name: str, *, platform: Platform, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self.enabled = [self._service(name, platform.project, service) for service in platform.services]
        self.register_outputs({"services": list(platform.services)})

    def _service(self, name: str, project: str, service: str) -> gcp.projects.Service:
        return gcp.projects.Service(
            f"{name}-{service.removesuffix('.googleapis.com')}",
            project=project,
            service=service,
            disable_on_destroy=False,
            opts=pulumi.ResourceOptions(parent=self),
        )
