"""How the real provider compares two dashboards: what only the state has counts as the API's own.

Upstream: hashicorp/terraform-provider-google-beta, resource_monitoring_dashboard.go (`removeComputedKeys`). What only
the program has counts, so anything that the API drops from what it is sent is a change in every plan.
"""

from __future__ import annotations

import json
from typing import Any


def same(new: str, old: str) -> bool:
    """Whether the state's dashboard is the program's, both as JSON text. Text that is no JSON is compared as it is."""
    try:
        wanted, found = json.loads(new), json.loads(old)
    except ValueError:
        return new == old
    return bool(_without_computed(found, wanted) == wanted)


def _without_computed(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: _without_computed(value, new[key]) for key, value in old.items() if new.get(key) is not None}
    if isinstance(old, list) and isinstance(new, list):
        return [_without_computed(value, new[index]) if index < len(new) else value for index, value in enumerate(old)]
    return old
