"""Names the node pools that stay when TPU Provisioner goes: nobody else deletes them, and they are in no state.

It is a hook of a binding that goes before the cluster: of the controller itself the engine deletes nothing where it
deletes the cluster. The engine looks a delete hook up by name, also when the controller is no longer in the
configuration. So the program always registers it. `pulumi destroy` runs it only with `--run-program`.
"""

import json

import pulumi

from catalogue.labels import NODE_POOL_LABEL
from components.kubernetes.kubectl import KubectlError, kubectl
from plan.platform import Platform
from plan.tpu_provisioner import MANAGED_BY, delete_command, jobset_of

SECONDS = 30


def left_pools_hook(platform: Platform, kubeconfig: pulumi.Output[str]) -> pulumi.ResourceHook:
    """The hook. Create it once, inside the running program."""

    async def name_pools(_args: pulumi.ResourceHookArgs) -> None:
        try:
            known = await kubeconfig.future()
            pools = await _pools(known) if known else []
        except (KubectlError, OSError) as error:
            # A broken cluster must still be deletable.
            pulumi.log.warn(f"node pools that TPU Provisioner created cannot be listed: {error}")
            return
        if pools:
            pulumi.log.warn(words(platform, pools))

    return pulumi.ResourceHook("left-pools", name_pools)


def words(platform: Platform, pools: list[str]) -> str:
    """What a person is told of pools that stay."""
    listed = ", ".join(pools)
    return (
        f"TPU Provisioner goes, and these node pools stay and cost money as long as the cluster: {listed}. If the"
        f" cluster stays, delete each with `{delete_command(platform, 'POOL')}`"
    )


async def _pools(kubeconfig: str) -> list[str]:
    """Each pool with hosts, and the JobSet that it is for."""
    selector = ",".join(f"{key}={value}" for key, value in MANAGED_BY.items())
    printed = await kubectl(kubeconfig, ["get", "nodes", f"--selector={selector}", "--output=json"], SECONDS)
    found: dict[str, str] = {}
    for node in json.loads(printed)["items"]:
        labels = node["metadata"]["labels"]
        found[labels[NODE_POOL_LABEL]] = jobset_of(labels)
    return [f"{pool} (of JobSet {jobset})" for pool, jobset in sorted(found.items())]
