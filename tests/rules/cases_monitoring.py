"""Cases of rules about monitoring."""

from tests.platforms import EXISTING, EXISTING_NETWORK
from tests.rules.cases import V6E, Case

QUEUE = {"queues": {"q": {"namespaces": ["a"], "slices": {"s": 1}}}}
TOLD = {"notify": ["ops@example.com"]}
JOINED = {"cluster": EXISTING, "network": EXISTING_NETWORK}
THRESHOLDS = {"thresholds": {"idle_for": "4h"}}


def _failing(hold: str) -> dict[str, object]:
    return {"monitoring": {"thresholds": {"autoscaler_fails_for": hold}, **TOLD}}


ERRORS = [
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
]
