"""The service accounts that machines run as."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from components.known_output import unknown_if_absent
from plan.backend import Backend
from plan.platform import Platform


@dataclass(frozen=True)
class MachineAccount:
    """A service account for one kind of machine: `suffix` of its name, `title` for people, roles by a short name."""

    suffix: str
    title: str
    roles: Mapping[str, str]


CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
"""The scope of machines. It limits nothing: the roles of their account decide what they may do."""

WRITE_LOGS, WRITE_METRICS = "roles/logging.logWriter", "roles/monitoring.metricWriter"
READ_IMAGES = "roles/artifactregistry.reader"
NODES: Mapping[Backend, MachineAccount] = {
    # What a GKE node needs and nothing more: logs, metrics, autoscaling metrics; and the project's private images.
    "gke": MachineAccount(
        "nodes", "Nodes", {"role": "roles/container.defaultNodeServiceAccount", "images": READ_IMAGES}
    ),
    "compute": MachineAccount(
        "nodes",
        "Nodes",
        {"logs": WRITE_LOGS, "metrics": WRITE_METRICS, "images": READ_IMAGES},
    ),
}
# The cloud-controller-manager runs there: it lists machines, and changes none.
CONTROL_PLANE = MachineAccount(
    "control",
    "Control plane",
    {"logs": WRITE_LOGS, "metrics": WRITE_METRICS, "machines": "roles/compute.viewer"},
)


class NodeIdentity(pulumi.ComponentResource):
    """A dedicated node service account, because the default Compute Engine account may edit the whole project."""

    TYPE = "tpu:gcp:NodeIdentity"
    email: pulumi.Output[str]
    member: pulumi.Output[str]
    ready: list[pulumi.Resource]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        account: MachineAccount,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        resource = gcp.serviceaccount.Account(
            f"{name}-account",
            project=platform.project,
            account_id=f"{platform.name}-{account.suffix}",
            display_name=f"{account.title} of TPU platform {platform.name}",
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)),
        )
        self.email, self.member = unknown_if_absent(resource.email), unknown_if_absent(resource.member)
        self.ready = [
            gcp.projects.IAMMember(
                f"{name}-{key}",
                project=platform.project,
                role=role,
                member=self.member,
                opts=pulumi.ResourceOptions(parent=self),
            )
            for key, role in account.roles.items()
        ]
        self.register_outputs({"email": self.email})
