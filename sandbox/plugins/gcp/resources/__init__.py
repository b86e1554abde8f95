"""One entry per resource type: where it lives in which API, and what differs from the plain REST life cycle."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.plugins.gcp.resources import (
    access,
    artifacts,
    billing,
    compute,
    container,
    federation,
    instances,
    load_balancing,
    monitoring,
    storage,
)
from sandbox.plugins.gcp.resources.rest import Rest

MODULES = (access, artifacts, billing, compute, container, federation, instances, load_balancing, monitoring, storage)
ROWS: Mapping[str, Rest] = {row.type: row for module in MODULES for row in module.ROWS}
