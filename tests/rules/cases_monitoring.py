"""Cases of rules about monitoring."""

from tests.platforms import EXISTING, EXISTING_NETWORK, SELF_MANAGED
from tests.rules.cases import V6E, Case

QUEUE = {"queues": {"q": {"namespaces": ["a"], "slices": {"s": 1}}}}
TOLD = {"notify": ["ops@example.com"]}
JOINED = {"cluster": EXISTING, "network": EXISTING_NETWORK}
READ = {"queue_metrics": "install", "device_metrics": True}
THRESHOLDS = {"thresholds": {"idle_for": "4h"}}


def _failing(hold: str) -> dict[str, object]:
    return {"monitoring": {"thresholds": {"autoscaler_fails_for": hold}, **TOLD}}


def _budget(**written: object) -> dict[str, object]:
    return {"billing_account": "01ABCD-23EF45-678901", "amount": 1_000_000, **written}


def _told_by_budget(people: int) -> dict[str, object]:
    return {"monitoring": {"notify": [f"person{n}@example.com" for n in range(people)], "budget": _budget()}}


LABELLED = {"monitoring": {"budget": _budget(of="platform")}}

ERRORS = [
    Case(
        "budget-addresses",
        (V6E, _told_by_budget(6)),
        "monitoring.notify",
        "at most 5 addresses, and these are 6",
        "a group of people",
        (V6E, _told_by_budget(5)),
    ),
    Case(
        "budget-label",
        ({**V6E, "provisioning": "compute-class"}, LABELLED),
        "monitoring.budget.of",
        "hosts of s do not have the label",
        "project",
        (V6E, LABELLED),
    ),
    Case(
        "alerts-told",
        (V6E, {"monitoring": {"silent": ["stuck"]}}),
        "monitoring.silent",
        "nobody is",
        "add monitoring.notify",
        (V6E, {"monitoring": {"silent": ["stuck"], **TOLD}}),
    ),
    Case(
        "alerts-told",
        (V6E, {"monitoring": THRESHOLDS}),
        "monitoring.thresholds",
        "nobody is",
        "add monitoring.notify",
        (V6E, {"monitoring": {**THRESHOLDS, "channels": ["projects/p/notificationChannels/1"]}}),
    ),
    Case(
        "alerts-of-one-event",
        (V6E, _failing("15m")),
        "monitoring.thresholds.autoscaler_fails_for",
        "one event counts for 15 minutes",
        "more than 15m",
        (V6E, _failing("16m")),
    ),
    Case(
        "queue-metrics",
        (V6E, {"monitoring": {"queue_metrics": "own"}}),
        "monitoring.queue_metrics",
        "there are no queues",
        "leave it out",
        (V6E, {"monitoring": {"queue_metrics": "own"}, **QUEUE}),
    ),
    Case(
        "device-metrics",
        (V6E, {"monitoring": READ, **QUEUE}),
        "monitoring.device_metrics",
        "GKE reads what chips do by itself",
        "leave it out",
        (V6E, {"monitoring": READ, **QUEUE, "cluster": SELF_MANAGED}),
    ),
    Case(
        "device-metrics",
        (V6E, {"monitoring": {**READ, "queue_metrics": "own"}, **QUEUE, **JOINED}),
        "monitoring.device_metrics",
        "somebody else runs",
        "leave it out",
        (V6E, {"monitoring": {"queue_metrics": "own"}, **QUEUE, **JOINED}),
    ),
    Case(
        "device-metrics",
        (V6E, {"monitoring": {**READ, "queue_metrics": "own"}, **QUEUE, "cluster": SELF_MANAGED}),
        "monitoring.device_metrics",
        "nothing collects",
        "add monitoring.queue_metrics: install",
        (V6E, {"monitoring": READ, **QUEUE, "cluster": SELF_MANAGED}),
    ),
    Case(
        "device-metrics",
        ({**V6E, "devices": "dra"}, {"monitoring": READ, **QUEUE, "cluster": SELF_MANAGED}),
        "monitoring.device_metrics",
        "no slice uses the device plugin",
        "leave it out",
        (V6E, {"monitoring": READ, **QUEUE, "cluster": SELF_MANAGED}),
    ),
    Case(
        "queue-metrics-identity",
        (V6E, {"monitoring": {"queue_metrics": "install"}, **QUEUE, **JOINED}),
        "monitoring.queue_metrics",
        "the program does not know as whom",
        "own, with a collector of that cluster",
        (V6E, {"monitoring": {"queue_metrics": "own"}, **QUEUE, **JOINED}),
    ),
]

WARNINGS = [
    Case(
        "budget-reservations",
        ({**V6E, "capacity": {"model": "reservation", "name": "res"}}, LABELLED),
        "monitoring.budget.of",
        "does not count reserved machines",
        "project",
        (V6E, LABELLED),
    ),
    Case(
        "budget-below-plan",
        (V6E, {"monitoring": {"budget": _budget(amount=1)}}),
        "monitoring.budget.amount",
        "if all slices run all month",
        "a larger amount",
        (V6E, {"monitoring": {"budget": _budget()}}),
    ),
    Case(
        "alerts-silenced",
        (V6E, {"monitoring": {"silent": ["hosts-missing"], **TOLD}}),
        "monitoring.silent[0]",
        "no alert hosts-missing",
        "leave it out",
        (V6E, {"monitoring": {"silent": ["not-ready"], **TOLD}}),
    ),
    Case(
        "no-device-metrics",
        ({**V6E, "devices": "dra"}, {"monitoring": TOLD}),
        "monitoring.notify",
        "alerts do not see what chips of s do",
        "with monitoring.queue_metrics also those about idle chips",
        (V6E, {"monitoring": TOLD}),
    ),
    Case(
        "no-device-metrics",
        (V6E, {"monitoring": TOLD, "cluster": SELF_MANAGED}),
        "monitoring.notify",
        "alerts do not see what chips of s do (without GKE)",
        "alerts about hosts and slices remain",
        (V6E, {"monitoring": {**TOLD, **READ}, **QUEUE, "cluster": SELF_MANAGED}),
    ),
]
