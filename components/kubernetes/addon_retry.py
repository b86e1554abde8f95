"""Retries the creation of objects whose kind a GKE add-on brings: GKE installs it after the cluster has come up."""

import asyncio

import pulumi

INTERVAL_SECONDS = 5
GIVE_UP_AFTER = 60  # five minutes
# The provider's error for a kind that the API server does not have.
UNKNOWN_KIND = ("no matches for kind", "the server could not find the requested resource")


async def retry_while_unknown(args: pulumi.ErrorHookArgs) -> bool:
    """Asks the engine to try again while the API server does not know the kind."""
    if len(args.errors) > GIVE_UP_AFTER or not any(text in args.errors[0] for text in UNKNOWN_KIND):
        return False
    await asyncio.sleep(INTERVAL_SECONDS)
    return True


def addon_gate() -> pulumi.ResourceHookBinding:
    """The hook, for all objects of add-ons. Create it once, inside the running program."""
    return pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook("addon-installing", retry_while_unknown)])
