"""The webhook gate: objects whose controller is still starting are tried again until it answers."""

import asyncio

import pulumi

INTERVAL_SECONDS = 5
GIVE_UP_AFTER = 36  # three minutes; the engine itself stops at 100 tries

# What the API server says while a webhook's pod, Service or certificate is not there yet.
STARTING = ("failed calling webhook", "conversion webhook", "no endpoints available")


def starting(error: str) -> bool:
    """Whether an error is that of a controller that has not come up yet."""
    return any(text in error for text in STARTING)


async def retry_while_starting(args: pulumi.ErrorHookArgs) -> bool:
    """Ask the engine to try again. It does not wait between tries itself, so this does."""
    if len(args.errors) > GIVE_UP_AFTER or not starting(args.errors[0]):
        return False
    await asyncio.sleep(INTERVAL_SECONDS)
    return True


def webhook_gate() -> pulumi.ResourceHookBinding:
    """The gate, for all resources that a webhook admits. Create it once, inside the running program: a hook belongs to
    the event loop it is made on, and its name is unique in the engine."""
    hook = pulumi.ErrorHook("webhook-starting", retry_while_starting)
    return pulumi.ResourceHookBinding(on_error=[hook])
