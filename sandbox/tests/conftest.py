"""What the tests of the sandbox share: no variable of the person who runs them, and an emulated cloud."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.tests.emulated_google import Cloud, connected
from sandbox.tests.isolation import isolate, leave_out_real_pods, read_authorities_once

isolate()
read_authorities_once()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out_real_pods(config, items)


@pytest.fixture(scope="module")
def server() -> Iterator[Cloud]:
    """The emulated cloud by itself, for one file of tests."""
    with connected() as cloud:
        yield cloud
