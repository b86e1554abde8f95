"""The configuration that a platform gives its own Kueue, to compare with that of a Kueue that somebody else runs."""

import json
from typing import Any

from plan import kueue_configuration
from plan.platform import Platform
from plan.workloads.jobset import JOBSET_API


class NoQueuesError(Exception):
    """A platform without queues needs no Kueue."""


def as_text(platform: Platform) -> str:
    """The manager's configuration as YAML, below comments with API versions and versions of charts; raises
    NoQueuesError."""
    found = _found(platform)
    tried = " and ".join(f"{chart} {version}" for chart, version in found["charts"].items())
    head = [
        f"What platform {platform.name} configures Kueue with where it installs it.",
        f"API versions: {', '.join(found['apis'])}. Tried with the charts {tried}.",
    ]
    return "".join(f"# {line}\n" for line in head) + kueue_configuration.render(
        kueue_configuration.configuration(platform)
    )


def as_json(platform: Platform) -> str:
    """`{"apis": [...], "charts": {NAME: VERSION}, "configuration": {...}}`; raises NoQueuesError.

    `apis`: versions that queues and workloads are written in; `charts`: what they were tried with.
    """
    configuration = kueue_configuration.configuration(platform).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    return json.dumps({**_found(platform), "configuration": configuration}, indent=2)


def _found(platform: Platform) -> dict[str, Any]:
    if not platform.queues:
        raise NoQueuesError("the platform has no queues, so it needs no Kueue")
    software = platform.software
    return {
        "apis": [kueue_configuration.OBJECTS_API, JOBSET_API],
        "charts": {"kueue": software.kueue.version, "jobset": software.jobset.version},
    }
