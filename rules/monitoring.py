"""What monitoring and the budget can and cannot see, and what they need."""

from collections.abc import Iterator

from catalogue.queries import ALERTS
from plan.monitoring import sources
from plan.platform import Platform
from platform_config.capacity import Reservation
from platform_config.self_managed import ExistingCluster
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
    "alerts-of-one-event",
    reason="One event stays in the query of such an alert for a while; held for less, each event alone would alert.",
    source="Cloud Monitoring, PromQL alerting policies",
)
def alerts_of_one_event(platform: Platform) -> Iterator[Finding]:
    thresholds = platform.monitoring.thresholds
    for alert in ALERTS:
        if alert.window and alert.hold in thresholds.model_fields_set:
            window, hold = (int(time.removesuffix("s")) for time in (alert.window, getattr(thresholds, alert.hold)))
            if hold <= window:
                yield Finding(
                    f"monitoring.thresholds.{alert.hold}",
                    f"one event counts for {window // 60} minutes, so each alone would alert",
                    f"more than {window // 60}m, for example {window // 30}m",
                )


@PLATFORM.rule(
    "alerts-silenced",
    level="warning",
    reason="An alert is made where the platform has what its query needs; elsewhere there is nothing to silence.",
    source="docs/monitoring.md, column needs",
)
def alerts_silenced(platform: Platform) -> Iterator[Finding]:
    written = platform.monitoring
    if not (written.notify or written.channels):
        return
    known = sources(platform)
    made = {alert.name for alert in ALERTS if alert.source in known}
    for index, name in enumerate(written.silent):
        if name not in made:
            yield Finding(
                f"monitoring.silent[{index}]",
                f"this platform has no alert {name}",
                "leave it out; docs/monitoring.md says what each alert needs",
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
    "queue-metrics-identity",
    reason="The collector writes as its GKE account, or by the pool of identities of a self-managed cluster.",
    source="docs/monitoring.md, section Metrics of queues",
)
def queue_metrics_identity(platform: Platform) -> Iterator[Finding]:
    if platform.monitoring.queue_metrics == "install" and isinstance(platform.cluster, ExistingCluster):
        yield Finding(
            "monitoring.queue_metrics",
            "the program does not know as whom pods of a cluster that somebody else runs may write metrics",
            "own, with a collector of that cluster; docs/monitoring.md says what it needs",
        )


@PLATFORM.rule(
    "device-metrics",
    reason="GKE reads its own device plugin. In a self-managed cluster the installed collector does.",
    source="ai-on-gke/tpu-device-plugin pkg/metrics",
)
def device_metrics(platform: Platform) -> Iterator[Finding]:
    if not platform.monitoring.device_metrics:
        return
    path = "monitoring.device_metrics"
    if platform.backend == "gke":
        yield Finding(path, "GKE reads what chips do by itself", "leave it out")
    elif isinstance(platform.cluster, ExistingCluster):
        yield Finding(path, "somebody else runs this cluster and its device plugin", "leave it out")
    elif platform.monitoring.queue_metrics != "install":
        yield Finding(path, "nothing collects what the device plugin serves", "add monitoring.queue_metrics: install")
    elif all(plan.devices == "dra" for plan in platform.slice_plans):
        yield Finding(path, "no slice uses the device plugin", "leave it out, or set devices: device-plugin")


@PLATFORM.rule(
    "no-device-metrics",
    level="warning",
    reason="The device plugin alone reads what a chip does; hosts of the TPU DRA driver have no reader.",
    source="ai-on-gke/tpu-device-plugin pkg/metrics; kubernetes-sigs/dra-driver-google-tpu has no metrics server",
)
def no_device_metrics(platform: Platform) -> Iterator[Finding]:
    written = platform.monitoring
    read = platform.backend == "gke" or written.device_metrics
    blind = sorted({plan.group for plan in platform.slice_plans if plan.devices == "dra" or not read})
    if blind and (written.notify or written.channels):
        why = "devices: dra" if read else "without GKE"
        yield Finding(
            "monitoring.notify",
            f"alerts do not see what chips of {', '.join(blind)} do ({why}): no duty cycle, no memory",
            "alerts about queues, hosts and slices remain; docs/monitoring.md lists them"
            if written.queue_metrics != "none"
            else "alerts about hosts and slices remain; with monitoring.queue_metrics also those about idle chips",
        )


MOST_BUDGET_ADDRESSES = 5


@PLATFORM.rule(
    "budget-addresses",
    reason="A budget tells at most five addresses beside the administrators of the billing account.",
    source="Cloud Billing Budget API v1, NotificationsRule",
)
def budget_addresses(platform: Platform) -> Iterator[Finding]:
    told = len(set(platform.monitoring.notify))
    if platform.monitoring.budget and told > MOST_BUDGET_ADDRESSES:
        yield Finding(
            "monitoring.notify",
            f"a budget tells at most {MOST_BUDGET_ADDRESSES} addresses, and these are {told}",
            "one address of a group of people, or no monitoring.budget",
        )


@PLATFORM.rule(
    "budget-label",
    reason="Only the program gives machines the label tpu-platform; GKE and TPU Provisioner make hosts without it.",
    source="docs/monitoring.md, Budget",
)
def budget_label(platform: Platform) -> Iterator[Finding]:
    unlabelled = sorted({plan.group for plan in platform.slice_plans if not plan.provisioning.declared})
    if _counts_labelled(platform) and unlabelled:
        yield Finding(
            "monitoring.budget.of",
            f"hosts of {', '.join(unlabelled)} do not have the label that this budget counts by",
            "project, which counts all",
        )


@PLATFORM.rule(
    "budget-reservations",
    level="warning",
    reason="Reserved machines that nobody uses are paid for, and have no label.",
    source="Compute Engine, reservations, billing",
)
def budget_reservations(platform: Platform) -> Iterator[Finding]:
    plans = [plan for plan in platform.slice_plans if isinstance(plan.alternative, Reservation)]
    if _counts_labelled(platform) and plans:
        yield Finding(
            "monitoring.budget.of",
            "the budget does not count reserved machines while nobody uses them",
            "project, which counts all",
        )


def _counts_labelled(platform: Platform) -> bool:
    budget = platform.monitoring.budget
    return budget is not None and budget.of == "platform"


@PLATFORM.rule(
    "budget-below-plan",
    level="warning",
    reason="A budget that the planned slices exceed tells people every month.",
    source="the plan's prices",
)
def budget_below_plan(platform: Platform) -> Iterator[Finding]:
    budget, planned = platform.monitoring.budget, platform.totals["price_per_month_usd"]
    if budget and budget.currency == "USD" and planned and planned > budget.amount:
        yield Finding(
            "monitoring.budget.amount",
            f"if all slices run all month, they cost {planned:,.0f} USD",
            "a larger amount, unless they run for a part of the month",
        )
