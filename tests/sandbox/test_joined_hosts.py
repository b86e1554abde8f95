"""An update waits for the hosts of self-managed slices: with the certificate and the credential of a real cluster."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pulumi
import pytest

from components.compute import joined_hosts, published_endpoint
from components.compute.joined_hosts import until_joined
from sandbox.tests.guests_support import cloud_controller, running_platform
from tests.platforms import SELF_MANAGED, load

pytestmark = pytest.mark.sandbox


def test_an_update_sees_which_hosts_have_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding: an update reported success while hosts stayed out."""
    platform = load(cluster=SELF_MANAGED)
    with running_platform() as lab, lab.client() as client:
        for each in cloud_controller("[Global]\nmultizone = true\n"):
            client.apply(each)
        lab.make_group("here", 1, "e2-standard-4")
        lab.make_group("lost", 1, "e2-standard-4", startup_script="")

        async def ask_google(_function: str, arguments: Any) -> Any:
            return {"secretData": json.dumps(lab.payload(arguments["secret"].rpartition("-")[2]))}

        for module in (published_endpoint, joined_hosts):
            monkeypatch.setattr(module, "ask_google", ask_google)
        asyncio.run(until_joined(platform, ["here-w-001"]))
        monkeypatch.setattr(joined_hosts, "PATIENCE_SECONDS", 0)
        with pytest.raises(pulumi.RunError, match="not in the cluster: lost-w-001"):
            asyncio.run(until_joined(platform, ["here-w-001", "lost-w-001"]))
