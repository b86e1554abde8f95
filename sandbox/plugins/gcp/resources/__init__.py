"""One entry per resource type: where it lives in which API, and what differs from the plain REST life cycle."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.plugins.gcp.resources import access, compute, container
from sandbox.plugins.gcp.resources.rest import Rest

ROWS: Mapping[str, Rest] = {row.type: row for row in (*compute.ROWS, *container.ROWS, *access.ROWS)}
