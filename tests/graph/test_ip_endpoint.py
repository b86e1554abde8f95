"""The IP endpoint that is off: what GKE answers for its kind is in no public source, so no answer may matter."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.graph.emulated import UPDATE, emulated_cloud, recorded
from tests.graph.recording import GraphMonitor, short
from tests.platforms import raw

OFFICE = [{"cidr": "192.0.2.0/24", "name": "office"}]


@cache
def platform(*, on: bool) -> GraphMonitor:
    """A platform whose API server one network may reach by the IP endpoint, or none."""
    slices: dict[str, Any] = {"serve": {"machine_type": "ct6e-standard-1t", "topology": "1x1"}}
    return recorded(raw(slices, cluster={"authorized_networks": OFFICE} if on else {}))


@pytest.mark.parametrize("answer", [True, False])
def test_any_answer_leaves_the_second_preview_clean(answer: bool) -> None:
    """`privateClusterConfig.enablePrivateEndpoint false => true` on every cluster without authorized networks."""
    with emulated_cloud() as cloud:
        cloud.control("unpublished", public_endpoint_when_off=answer)
        cloud.make(platform(on=False))
        assert cloud.plan(platform(on=False)) == {}
        cloud.update(platform(on=False))
        assert cloud.plan(platform(on=False)) == {}


@pytest.mark.parametrize("answer", [True, False])
def test_authorized_networks_come_and_go(answer: bool) -> None:
    """After they were taken away, the preview was not clean."""
    with emulated_cloud() as cloud:
        cloud.control("unpublished", public_endpoint_when_off=answer)
        cloud.make(platform(on=False))
        for on in (True, False):
            wanted = platform(on=on)
            assert {short(urn): plan.operation for urn, plan in cloud.plan(wanted).items()} == {
                "Cluster cluster-gke": UPDATE
            }
            cloud.update(wanted)
            assert cloud.plan(wanted) == {}


def test_an_endpoint_that_is_off_is_sent_without_its_kind() -> None:
    """As recorded from the real plugin: `ipEndpointsConfig: {enabled: false}` and nothing else."""
    with emulated_cloud() as cloud:
        cloud.make(platform(on=False))
        [made] = [row for row in cloud.writes() if row["method"] == "POST" and row["path"].endswith("/clusters")]
    sent = made["body"]["cluster"]["controlPlaneEndpointsConfig"]
    assert sent["ipEndpointsConfig"] == {"enabled": False}
