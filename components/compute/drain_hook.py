"""Drains the hosts of a slice before they are deleted, where the slice asks for it (`node_drain`).

The engine looks a delete hook up by name, also for a slice that is no longer in the configuration. So the program
always registers one hook for all slices. `pulumi destroy` runs it only with `--run-program`.
"""

import pulumi

from catalogue.labels import NODE_POOL_LABEL
from components.compute import published_endpoint
from components.kubernetes.cluster_access import secret_kubeconfig
from components.kubernetes.kubectl import kubectl
from plan import hosts
from plan.platform import Platform
from platform_config.slice import NodeDrain


def drain_hook(platform: Platform) -> pulumi.ResourceHook:
    """The hook, for groups of hosts. Create it once, inside the running program."""

    async def drain(args: pulumi.ResourceHookArgs) -> None:
        await drain_group(platform, str((args.old_inputs or {})["name"]))

    return pulumi.ResourceHook("drain-hosts", drain)


async def drain_group(platform: Platform, group: str) -> None:
    """Drain the nodes of a group, in bounded time. A failure is a warning only: a broken cluster must still be
    deletable."""
    settings = settings_of(platform, group)
    try:
        reached = await published_endpoint.current(platform)
        kubeconfig = secret_kubeconfig(reached, hosts.access_secret(platform), platform.cluster_name)
        await kubectl(kubeconfig, drain_arguments(group, settings), hosts.drain_seconds(settings))
    except Exception as error:
        pulumi.log.warn(f"{group} is deleted without a drain: {error}")


def settings_of(platform: Platform, group: str) -> NodeDrain:
    """How a slice wants its hosts drained; the defaults for a slice that is no longer in the configuration."""
    wanted = {
        hosts.group_name(platform, pool.name): plan.spec.node_drain
        for plan in platform.slice_plans
        for pool in plan.pools
    }
    return wanted.get(group) or NodeDrain()


def drain_arguments(group: str, settings: NodeDrain) -> list[str]:
    """Arguments of kubectl. They select the nodes of this group by the label that they joined with."""
    arguments = [
        "drain",
        f"--selector={NODE_POOL_LABEL}={group}",
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        f"--timeout={hosts.drain_seconds(settings)}s",
    ]
    if settings.grace:
        arguments.append(f"--grace-period={settings.grace.removesuffix('s')}")
    if not settings.respect_pdb:
        arguments.append("--disable-eviction")
    return arguments
