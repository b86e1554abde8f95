"""Stack files for the commands to read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.platforms import PROJECT, raw


@pytest.fixture
def stack_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes the stack file of a platform, given as to `raw`."""

    def write(slices: dict[str, Any] | None = None, **platform: Any) -> Path:
        path = tmp_path / "Pulumi.test.yaml"
        config = {"gcp:project": PROJECT, "tpu-platform:platform": raw(slices, **platform)}
        path.write_text(yaml.safe_dump({"config": config}))
        return path

    return write
