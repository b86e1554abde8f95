"""What monitoring can and cannot see, and what it needs."""

from collections.abc import Iterator

from plan.platform import Platform
from rules.registry import PLATFORM, Finding


@PLATFORM.rule(
    "alerts-told",
    reason="An alert that nobody is told of is no alert, so there are none without an address or a channel.",
    source="Cloud Monitoring, notification channels",
)
def alerts_told(platform: Platform) -> Iterator[Finding]:
    written = platform.monitoring
    if written.notify or written.channels:
        return
    for key in ("silent", "thresholds"):
        if key in written.model_fields_set and getattr(written, key):
            yield Finding(
                f"monitoring.{key}",
                "alerts are made where somebody is told, and nobody is",
                "add monitoring.notify with an e-mail address or monitoring.channels, or leave this out",
            )


@PLATFORM.rule(
    "queue-metrics",
    reason="Only a platform with queues has Kueue, whose metrics can be collected.",
    source="Kueue v0.19.2 pkg/metrics",
)
def queue_metrics(platform: Platform) -> Iterator[Finding]:
    if platform.monitoring.queue_metrics != "none" and not platform.queues:
        yield Finding(
            "monitoring.queue_metrics",
            "there are no queues, so no metrics of queues",
            "leave it out, or describe queues",
        )


@PLATFORM.rule(
    "no-device-metrics",
    level="warning",
    reason="On GKE the device plugin alone reads what a chip does; hosts of the TPU DRA driver have no reader.",
    source="ai-on-gke/tpu-device-plugin pkg/metrics; kubernetes-sigs/dra-driver-google-tpu has no metrics server",
    backend="gke",
)
def no_device_metrics(platform: Platform) -> Iterator[Finding]:
    written = platform.monitoring
    blind = sorted({plan.group for plan in platform.slice_plans if plan.devices == "dra"})
    if blind and (written.notify or written.channels):
        seen = written.queue_metrics != "none"
        yield Finding(
            "monitoring.notify",
            f"alerts do not see what chips of {', '.join(blind)} do (devices: dra): no duty cycle, no memory",
            "alerts about queues, hosts and slices remain; docs/monitoring.md lists them"
            if seen
            else "alerts about hosts and slices remain; with monitoring.queue_metrics also those about idle chips",
        )
