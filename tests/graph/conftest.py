"""Every graph test runs the real program once per stack file and mode; the recordings are shared."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.graph.emulated import Clouds, standing_clouds
from tests.graph.recording import STACK_FILES, GraphMonitor, record_stack


@cache
def recorded(path: Path, preview: bool) -> GraphMonitor:
    """The graph of a stack file, recorded once per process."""
    return record_stack(path, preview=preview)


@pytest.fixture(params=STACK_FILES, ids=lambda path: path.name.split(".")[1])
def stack_file(request: pytest.FixtureRequest) -> Path:
    """Each stack file of the repository."""
    path: Path = request.param
    return path


@pytest.fixture
def update(stack_file: Path) -> GraphMonitor:
    """The stack's graph as an update registers it."""
    return recorded(stack_file, preview=False)


@pytest.fixture
def preview(stack_file: Path) -> GraphMonitor:
    """The stack's graph as a first preview registers it."""
    return recorded(stack_file, preview=True)


@pytest.fixture(scope="module")
def clouds() -> Iterator[Clouds]:
    """Clouds in which a platform stands; a module's tests share them."""
    with standing_clouds() as cloud_of:
        yield cloud_of
