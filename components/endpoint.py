"""Where a cluster without GKE is reached: what its control plane has written to Secret Manager, or what is known.

Neither address nor certificate is a secret; the credential is read by the kubeconfig's command when it is used.
"""

import asyncio
import base64
import json
from dataclasses import dataclass

import pulumi

from components.calls import ask_google
from spec import hosts
from spec.platform import Platform
from spec.self_managed import ExistingCluster

READ_SECRET = "gcp:secretmanager/getSecretVersionAccess:getSecretVersionAccess"
INTERVAL_SECONDS = 5.0
PATIENCE_SECONDS = 20 * 60
"""A machine boots, installs Kubernetes and starts it in about five minutes."""


@dataclass(frozen=True)
class Endpoint:
    """`server`: the API server's URL; `ca`: its authority's certificate in PEM, in base64."""

    server: str
    ca: str

    @property
    def host(self) -> str:
        """The server without its scheme."""
        return self.server.removeprefix("https://")


def existing(cluster: ExistingCluster) -> Endpoint:
    """The endpoint of a cluster that somebody else runs."""
    return Endpoint(cluster.server, base64.b64encode(cluster.ca.encode()).decode())


async def current(platform: Platform) -> Endpoint:
    """The endpoint of a platform on Compute Engine as it is now. Raises Exception where no control plane wrote one."""
    if isinstance(platform.cluster, ExistingCluster):
        return existing(platform.cluster)
    _, project, _, secret = hosts.secret(platform, "endpoint").split("/")
    read = await ask_google(READ_SECRET, {"project": project, "secret": secret})
    return Endpoint(**json.loads(read["secretData"]))


async def published(platform: Platform) -> Endpoint:
    """The endpoint of a self-managed cluster, as soon as its control plane has written it.

    Raises RunError where that takes longer than 20 minutes, and whatever a refused call raises at once.
    """
    waited = 0.0
    while True:
        try:
            return await current(platform)
        except Exception as error:
            if "404" not in str(error):
                raise
        if waited >= PATIENCE_SECONDS:
            raise pulumi.RunError(_silent(platform))
        if waited == 0:
            pulumi.log.info("waiting for the control plane to come up and publish its endpoint")
        await asyncio.sleep(INTERVAL_SECONDS)
        waited += INTERVAL_SECONDS


def _silent(platform: Platform) -> str:
    machine = hosts.control_plane_machines(platform)[0]
    return (
        f"the control plane has published no endpoint for {PATIENCE_SECONDS // 60} minutes. What it is doing stands in "
        f"its log: gcloud compute instances get-serial-port-output {machine.name} --zone {machine.zone} "
        f"--project {platform.project}. When it is mended, `pulumi up` goes on from here."
    )
