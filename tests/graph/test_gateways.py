"""What load balancers and autoscaling of servers change: a subnet for proxies, and two settings of the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.graph.emulated import CREATE, REPLACE, UPDATE, emulated_cloud, recorded
from tests.graph.recording import GraphMonitor, short
from tests.platforms import raw

PROXIES = "10.0.64.0/23"
SLICES = {"serve": {"machine_type": "ct6e-standard-1t", "topology": "1x1"}}
Json = dict[str, Any]


def platform(*, gateway: bool = False, metrics: bool = False, proxies: str = PROXIES) -> GraphMonitor:
    cluster = {"gateway": gateway, "metric_autoscaling": metrics}
    return recorded(raw(SLICES, cluster=cluster, network={"proxy_only_cidr": proxies} if gateway else {}))


def posted(writes: list[Json], collection: str) -> list[Json]:
    """The bodies that make the things of a collection; the emulated cloud takes none that Google does not publish."""
    return [each["body"] for each in writes if each["method"] == "POST" and each["path"].endswith(f"/{collection}")]


def test_a_platform_with_gateways_asks_for_them_and_stays_as_it_is() -> None:
    wanted = platform(gateway=True, metrics=True)
    with emulated_cloud() as cloud:
        cloud.make(wanted)
        assert cloud.plan(wanted) == {}
        writes = cloud.writes()
    (cluster,) = (body["cluster"] for body in posted(writes, "clusters"))
    assert cluster["networkConfig"]["gatewayApiConfig"] == {"channel": "CHANNEL_STANDARD"}
    assert cluster["podAutoscaling"] == {"hpaProfile": "PERFORMANCE"}
    nodes, proxies = sorted(posted(writes, "subnetworks"), key=lambda body: body["ipCidrRange"])
    assert (proxies["ipCidrRange"], proxies["purpose"], proxies["role"]) == (
        PROXIES,
        "REGIONAL_MANAGED_PROXY",
        "ACTIVE",
    )
    assert proxies["network"] == nodes["network"]


def test_gateways_come_to_a_cluster_that_stands() -> None:
    with emulated_cloud() as cloud:
        cloud.make(platform())
        planned = {short(urn): plan.operation for urn, plan in cloud.plan(platform(gateway=True)).items()}
        assert planned == {"Subnetwork network-proxies": CREATE, "Cluster cluster-gke": UPDATE}


@pytest.mark.parametrize("proxies", ["10.0.96.0/23", "10.0.64.0/22"], ids=["elsewhere", "larger"])
def test_another_range_of_proxies_is_another_subnet(proxies: str) -> None:
    """Google expands no range of proxies. The old one goes first: a region has one active subnet for them."""
    with emulated_cloud() as cloud:
        cloud.make(platform(gateway=True))
        wanted = platform(gateway=True, proxies=proxies)
        planned = {short(urn): plan.operation for urn, plan in cloud.plan(wanted).items()}
        assert planned == {"Subnetwork network-proxies": REPLACE}
    (request,) = (request for urn, request in wanted.requests.items() if short(urn) == "Subnetwork network-proxies")
    assert request.deleteBeforeReplace


def test_autoscaling_by_metrics_comes_to_a_cluster_that_stands() -> None:
    with emulated_cloud() as cloud:
        cloud.make(platform())
        wanted = platform(metrics=True)
        assert {short(urn): plan.operation for urn, plan in cloud.plan(wanted).items()} == {
            "Cluster cluster-gke": UPDATE
        }
        cloud.update(wanted)
        assert cloud.plan(wanted) == {}
