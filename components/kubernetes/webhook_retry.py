"""The webhook gate: objects whose controller is still starting are tried again until it answers."""

import asyncio

import pulumi

INTERVAL_SECONDS = 5
GIVE_UP_AFTER = 36  # three minutes; the engine itself stops at 100 tries

# What the API server says while a webhook's pod, Service or certificate is not there yet.
STARTING = ("failed calling webhook", "conversion webhook", "no endpoints available")


# How the provider ends its wait for an object to go; why it does not go, it says in a warning beside that.
STILL_THERE = "timed out"


def starting(error: str) -> bool:
    """Whether an error is that of a controller that has not come up yet."""
    return any(text in error for text in STARTING)


async def retry_while_starting(args: pulumi.ErrorHookArgs) -> bool:
    """Ask the engine to try again. It does not wait between tries itself, so this does.

    An object that is still used is not tried again, since only its users know how long they take; that is said.
    """
    if args.failed_operation == "delete" and STILL_THERE in args.errors[0]:
        pulumi.log.error(still_used(args.name))
        return False
    if len(args.errors) > GIVE_UP_AFTER or not starting(args.errors[0]):
        return False
    await asyncio.sleep(INTERVAL_SECONDS)
    return True


def still_used(name: str) -> str:
    """What to do about an object of Kueue's that does not go."""
    return (
        f"{name} is not gone yet: Kueue keeps a queue, and what it uses, while workloads run that it admitted. Nothing "
        "happens to them, it takes no new ones, and it goes when the last of them has ended. Wait for them or evict "
        "them (docs/queues.md), then `pulumi up` goes on"
    )


def webhook_gate() -> pulumi.ResourceHookBinding:
    """The gate, for all resources that a webhook admits. Create it once, inside the running program: a hook belongs to
    the event loop it is made on, and its name is unique in the engine."""
    hook = pulumi.ErrorHook("webhook-starting", retry_while_starting)
    return pulumi.ResourceHookBinding(on_error=[hook])
