"""Google APIs the platform calls."""

import pulumi
import pulumi_gcp as gcp

from plan.google_apis import google_apis
from plan.platform import Platform

PROJECTS = "cloudresourcemanager.googleapis.com"


class Services(pulumi.ComponentResource):
    """Enables the project's APIs and never disables them: other stacks of the project may use them.

    The Resource Manager API comes first: the provider reads the project after it enables any other.
    """

    TYPE = "tpu:gcp:Services"
    enabled: list[pulumi.Resource]

    def __init__(self, name: str, *, platform: Platform, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(self.TYPE, name, None, opts)
        first = self._service(name, platform.project, PROJECTS)
        wanted = google_apis(platform)
        others = [service for service in wanted if service != PROJECTS]
        self.enabled = [first, *(self._service(name, platform.project, service, after=first) for service in others)]
        self.register_outputs({"services": list(wanted)})

    def _service(
        self, name: str, project: str, service: str, after: pulumi.Resource | None = None
    ) -> gcp.projects.Service:
        return gcp.projects.Service(
            f"{name}-{service.removesuffix('.googleapis.com')}",
            project=project,
            service=service,
            disable_on_destroy=False,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[after] if after else None),
        )
