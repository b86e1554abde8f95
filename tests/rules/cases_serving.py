"""Cases of `rules/serving.py`."""

from typing import Any

from tests.platforms import EXISTING_NETWORK, SELF_MANAGED
from tests.rules.cases import V6E, Case

PROXIES = "10.0.64.0/23"


def reached(gateway: bool, proxies: str | None) -> dict[str, Any]:
    network = {"proxy_only_cidr": proxies} if proxies else {}
    return {"cluster": {"gateway": gateway}, "network": network}


def scaled(version: str) -> dict[str, Any]:
    return {"cluster": {"metric_autoscaling": True, "version": version}}


ERRORS = [
    Case(
        "gateway-proxies",
        (V6E, reached(True, None)),
        "network.proxy_only_cidr",
        "is missing",
        PROXIES,
        (V6E, reached(True, PROXIES)),
    ),
    Case(
        "gateway-proxies",
        (V6E, reached(False, PROXIES)),
        "network.proxy_only_cidr",
        "would do nothing",
        "cluster.gateway: true",
        (V6E, reached(True, PROXIES)),
    ),
    Case(
        "gateway-proxies",
        (V6E, {"network": {**EXISTING_NETWORK, "services_range": "q", "proxy_only_cidr": PROXIES}}),
        "network.proxy_only_cidr",
        "would do nothing",
        "cluster.gateway: true",
        (V6E, {"network": {**EXISTING_NETWORK, "services_range": "q"}}),
    ),
    Case(
        "proxy-range-size",
        (V6E, reached(True, "10.0.64.0/27")),
        "network.proxy_only_cidr",
        "a /26 or larger",
        PROXIES,
        (V6E, reached(True, "10.0.64.0/26")),
    ),
    Case(
        "ranges-apart",
        (V6E, reached(True, "10.0.0.0/23")),
        "network.proxy_only_cidr",
        "overlaps nodes_cidr",
        "do not overlap",
        (V6E, reached(True, PROXIES)),
    ),
    Case(
        "proxies-without-gke",
        (V6E, {"cluster": SELF_MANAGED, "network": {"proxy_only_cidr": PROXIES}}),
        "network.proxy_only_cidr",
        "needs GKE",
        "leave it out",
        (V6E, {"cluster": SELF_MANAGED}),
    ),
    Case(
        "metric-autoscaling-version",
        (V6E, scaled("1.34")),
        "cluster.metric_autoscaling",
        "needs GKE 1.36.4-gke.1247000 or newer",
        "1.36",
        (V6E, scaled("1.36")),
    ),
]
