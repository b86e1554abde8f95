"""The endpoint of a cluster without GKE: from Secret Manager, where its control plane writes it, or from configuration.

Neither address nor certificate is a secret. The kubeconfig's command reads the credential when it is used.
"""

import asyncio
import base64
import json
import time
from collections.abc import Sequence

import pulumi

from components.gcp.provider_function import ask_google
from components.kubernetes.cluster_access import Endpoint
from plan import hosts
from plan.platform import Platform
from platform_config.self_managed import ExistingCluster

READ_SECRET = "gcp:secretmanager/getSecretVersionAccess:getSecretVersionAccess"
MISSING = "googleapi: Error 404"
"""The provider's error for a secret without a version contains this (google.golang.org/api `googleapi.Error`)."""
INTERVAL_SECONDS = 5.0
PATIENCE_SECONDS = 20 * 60
"""A machine boots, installs Kubernetes and starts it in about five minutes."""


def existing(cluster: ExistingCluster) -> Endpoint:
    """The endpoint of a cluster that somebody else runs."""
    return Endpoint(cluster.server, base64.b64encode(cluster.ca.encode()).decode())


async def current(platform: Platform) -> Endpoint:
    """The present endpoint of a platform on Compute Engine. Raises Exception where no control plane has written one."""
    if isinstance(platform.cluster, ExistingCluster):
        return existing(platform.cluster)
    _, project, _, secret = hosts.secret(platform, "endpoint").split("/")
    read = await ask_google(READ_SECRET, {"project": project, "secret": secret})
    return Endpoint(**json.loads(read["secretData"]))


def keys_of(found: Endpoint) -> str:
    """The cluster's public keys as a JSON Web Key Set. Raises RunError where its control plane publishes none."""
    if not found.jwks:
        raise pulumi.RunError(
            "the control plane has published no keys yet, with which Google would know its pods: its boot script is of"
            " an older program. It writes them within half an hour of its next start. Run `pulumi up` again then."
        )
    return base64.b64decode(found.jwks).decode()


class PublishedEndpoint(pulumi.ComponentResource):
    """`found`: the endpoint of a self-managed cluster, once its control plane has written it.

    The first update waits in a creation hook of a resource of its own. An update that only deletes does not run this
    hook; while the resource was never created, its output is unknown, and so is everything inside the cluster. If the
    program itself waited and a control plane never came up, `pulumi destroy --run-program` would fail.
    """

    TYPE = "tpu:compute:PublishedEndpoint"
    found: pulumi.Output[Endpoint]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        generation: pulumi.Input[str],
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`generation`: a text that is different for each cluster of the platform. `after`: the control plane."""
        super().__init__(self.TYPE, name, None, opts)

        async def wait(_args: pulumi.ResourceHookArgs) -> None:
            await until_published(platform)

        marker = pulumi.Stash(
            f"{name}-published",
            input=generation,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(after),
                replacement_trigger=generation,
                delete_before_replace=True,
                hooks=pulumi.ResourceHookBinding(before_create=[pulumi.ResourceHook("await-endpoint", wait)]),
            ),
        )
        self.found = marker.id.apply(lambda _id: known(platform))
        self.register_outputs({})


async def known(platform: Platform) -> Endpoint:
    """The endpoint of a control plane that has published one. Raises RunError where the secret has lost it."""
    try:
        return await current(platform)
    except Exception as error:
        if MISSING not in str(error):
            raise
        raise pulumi.RunError(
            f"{hosts.secret(platform, 'endpoint')} has no version any more. The control plane writes a new one "
            "within half an hour. Run `pulumi up` again then."
        ) from None


async def until_published(platform: Platform) -> None:
    """Returns as soon as the control plane has written its endpoint.

    Raises RunError after 20 minutes. A refused call raises its own error at once.
    """
    began = time.monotonic()
    said = False
    while True:
        try:
            await current(platform)
            return
        except Exception as error:
            if MISSING not in str(error):
                raise
        if time.monotonic() - began >= PATIENCE_SECONDS:
            raise pulumi.RunError(_silent(platform))
        if not said:
            pulumi.log.info("waiting for the control plane to come up and publish its endpoint")
            said = True
        await asyncio.sleep(INTERVAL_SECONDS)


def _silent(platform: Platform) -> str:
    machine = hosts.control_plane_machines(platform)[0]
    return (
        f"the control plane has published no endpoint for {PATIENCE_SECONDS // 60} minutes. Its log tells "
        f"why: gcloud compute instances get-serial-port-output {machine.name} --zone {machine.zone} "
        f"--project {platform.project}. Correct the cause, then run `pulumi up` again."
    )
