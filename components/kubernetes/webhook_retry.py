"""The webhook gate: retries the creation of objects until the webhook of their controller answers."""

import asyncio

import pulumi

INTERVAL_SECONDS = 5
GIVE_UP_AFTER = 36  # three minutes; the engine itself stops at 100 tries

# The API server's errors while a webhook's pod, Service or certificate does not exist yet.
STARTING = ("failed calling webhook", "conversion webhook", "no endpoints available")


# The provider's error when an object is not deleted in time; a separate warning gives the cause.
STILL_THERE = "timed out"


def starting(error: str) -> bool:
    """Whether an error means that a controller is still starting."""
    return any(text in error for text in STARTING)


async def retry_while_starting(args: pulumi.ErrorHookArgs) -> bool:
    """Asks the engine to try again, after a pause: the engine itself does not pause between tries.

    An object that is still in use is not tried again, since nobody knows for how long. A message says so.
    """
    if args.failed_operation == "delete" and STILL_THERE in args.errors[0]:
        pulumi.log.error(still_used(args.name))
        return False
    if len(args.errors) > GIVE_UP_AFTER or not starting(args.errors[0]):
        return False
    await asyncio.sleep(INTERVAL_SECONDS)
    return True


def still_used(name: str) -> str:
    """What to do about a Kueue object that is not deleted."""
    return (
        f"{name} is not gone yet: Kueue keeps a queue, and what the queue uses, while workloads run that it admitted. "
        "These run on; the queue admits no new ones, and Kueue deletes it when the last of them has ended. Wait for "
        "them or evict them (docs/queues.md), then run `pulumi up` again"
    )


def webhook_gate() -> pulumi.ResourceHookBinding:
    """The gate, for all resources that a webhook admits. Create it once, inside the running program: a hook belongs to
    the event loop that creates it, and its name must be unique in the engine."""
    hook = pulumi.ErrorHook("webhook-starting", retry_while_starting)
    return pulumi.ResourceHookBinding(on_error=[hook])
