"""Monitoring in the stack file: the dashboard, whom alerts tell, from when on they do, and the budget."""

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from catalogue.queries import ALERTS
from platform_config.fields import (
    DURATION_SCHEMA,
    PROJECT,
    Amount,
    Flag,
    Model,
    Positive,
    duration_seconds,
    refusal,
    shown,
    text,
)

_ADDRESS_CHECK, _ADDRESS_SCHEMA = text(
    r"[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@[A-Za-z0-9][A-Za-z0-9.-]{0,251}\.[A-Za-z]{2,24}",
    "an e-mail address",
    "for example tpu-ops@example.com",
)
Address = Annotated[str, _ADDRESS_CHECK, _ADDRESS_SCHEMA]

_CHANNEL_CHECK, _CHANNEL_SCHEMA = text(
    rf"projects/{PROJECT}/notificationChannels/[0-9]{{1,20}}",
    "the full name of a notification channel",
    "projects/PROJECT/notificationChannels/NUMBER; `gcloud beta monitoring channels list` has it",
)
ChannelName = Annotated[str, _CHANNEL_CHECK, _CHANNEL_SCHEMA]

_ALERT_NAMES = tuple(alert.name for alert in ALERTS)


def _known(name: str) -> str:
    if name not in _ALERT_NAMES:
        raise refusal(f"{shown(name)} is not an alert", f"one of {', '.join(_ALERT_NAMES)}")
    return name


AlertName = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(_ALERT_NAMES)})]

_LONGEST_HOLD = 23 * 3600
"""Seconds for which a condition may have to hold before Cloud Monitoring tells somebody."""


def _hold(value: object) -> str:
    """A duration in whole seconds. What a person wrote is named as it was written."""
    seconds = duration_seconds(value)
    if seconds is None:
        raise refusal(f"{shown(value)} is not a duration", "a whole number with its unit: 90m, 6h or 3600s")
    if not 60 <= seconds <= _LONGEST_HOLD:
        raise refusal(f"{value} is not between a minute and 23 hours", "for example 90m, 6h or 3600s")
    return f"{seconds}s"


Hold = Annotated[str, BeforeValidator(_hold), DURATION_SCHEMA]
"""For how long something must be wrong before an alert tells somebody."""


class Thresholds(Model):
    """From when on alerts tell somebody."""

    slice_down_for: Hold = "600s"
    """Time that a slice is not whole, or its node pool in error, or hosts of it are missing."""
    node_down_for: Hold = "900s"
    """Time that a node is not ready."""
    interruptions: Positive = 3
    """Hosts that Google takes away within an hour, for one reason."""
    autoscaler_fails_for: Hold = "1800s"
    """Time in which the autoscaler goes on failing; longer than 15 minutes, in which one failure counts."""
    idle_for: Hold = "7200s"
    """Time that chips are idle, or a reservation is little used."""
    idle_share: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.5
    """Share of the chips of one kind that are idle, by their duty cycle."""
    idle_usd_an_hour: Amount = 10.0
    """Cost in an hour of chips that no workload of a queue has."""
    reservation_share: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.5
    """Share of a reservation below which it is little used."""
    free_but_waiting_for: Hold = "1800s"
    """Time that workloads wait while their queue has free chips."""
    stuck_for: Hold = "21600s"
    """Time that workloads wait in a queue which admits none and uses less than it owns."""
    restarts: Positive = 3
    """Restarts of one JobSet within an hour."""


_ACCOUNT_CHECK, _ACCOUNT_SCHEMA = text(
    "[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}",
    "the id of a billing account",
    "for example 01ABCD-23EF45-678901; `gcloud billing accounts list` has it",
)
_CURRENCY_CHECK, _CURRENCY_SCHEMA = text("[A-Z]{3}", "a currency", "three capital letters, for example USD or EUR")
_Share = Annotated[float, Field(strict=True, gt=0, le=100)]


def _rising(shares: tuple[float, ...]) -> tuple[float, ...]:
    if any(later <= earlier for earlier, later in pairwise(shares)):
        raise refusal("these shares do not rise", "each larger than the one before, for example [0.5, 0.9, 1.0]")
    return shares


Shares = Annotated[tuple[_Share, ...], AfterValidator(_rising)]
"""Shares of an amount, in rising order: 0.5 is half of it."""


class Budget(Model):
    """A budget of Cloud Billing. It tells people; it stops nothing."""

    billing_account: Annotated[str, _ACCOUNT_CHECK, _ACCOUNT_SCHEMA]
    """The billing account that pays for the project."""
    amount: Positive
    """What a calendar month may cost, in whole units of the currency."""
    currency: Annotated[str, _CURRENCY_CHECK, _CURRENCY_SCHEMA] = "USD"
    """The billing account's currency."""
    of: Literal["project", "platform"] = "project"
    """The whole project, or only what has the label `tpu-platform`: the machines of slices, and without GKE all
    machines. Disks, fees, networks and unused reservations do not have it."""
    spent: Shares = (0.5, 0.9, 1.0)
    """Shares of the amount; people are told when what was spent reaches one."""
    forecast: Shares = ()
    """Shares of the amount; people are told when Google expects the month to end above one."""


class Monitoring(Model):
    """What is shown and told about the platform in Cloud Monitoring."""

    dashboard: Flag = True
    """A dashboard of queues, slices, chips and logs."""
    notify: tuple[Address, ...] = ()
    """E-mail addresses that alerts go to. Without these and without channels there are no alerts."""
    channels: tuple[ChannelName, ...] = ()
    """Notification channels that exist, which alerts also go to: chat, pager, Pub/Sub."""
    silent: tuple[AlertName, ...] = ()
    """Alerts that you do not want."""
    thresholds: Thresholds = Thresholds()
    """From when on alerts tell somebody."""
    budget: Budget | None = None
    """A budget, which tells the addresses of `notify` and the billing account's administrators; none if unset."""
    count_errors: Flag = True
    """Count stockouts and errors of the autoscaler in the logs, as metrics."""
    drop_sidecar_logs: Flag = True
    """Do not keep what the TPU DRA driver's log collector repeats: it is every line of libtpu, and is paid for."""
    queue_metrics: Literal["none", "install", "own"] = "none"
    """Who collects the metrics of Kueue: nobody, a collector that the program installs, or one of your own. Charts of
    queues need them."""
    device_metrics: Flag = False
    """Without GKE, which does it by itself: let the device plugin read what chips do, and the installed collector
    collect it."""
