"""The clock of a sandbox: what a time scale does to the pauses of what runs in clusters."""

from __future__ import annotations

import pytest

from sandbox.cloud import SHORTEST_STATUS_SECONDS, scaled
from sandbox.kubernetes.control_plane import STATUS_SECONDS


@pytest.mark.parametrize(("time_scale", "seconds"), [(1, 300), (10, 30), (60, 10), (0, 10)])
def test_a_node_status_is_written_as_often_as_the_time_scale_says(time_scale: float, seconds: float) -> None:
    assert scaled(STATUS_SECONDS, time_scale, SHORTEST_STATUS_SECONDS) == seconds
