"""GKE versions, and the first ones that have a feature (GKE documentation and release notes)."""

import re
from typing import NamedTuple


def parse(version: str) -> tuple[int, ...]:
    """`1.35.2-gke.1842000` as (1, 35, 2, 1842000); a prefix such as `1.35` as (1, 35)."""
    return tuple(int(number) for number in re.findall(r"[0-9]+", version))


def reaches(version: str, floor: str) -> bool:
    """Whether `version` can be at least `floor`. A prefix means its newest patch, so only its own numbers count."""
    given = parse(version)
    return given >= parse(floor)[: len(given)]


def is_exact(version: str) -> bool:
    """Whether the version names one build, and not the newest of a minor version."""
    return len(parse(version)) == 4


class Floor(NamedTuple):
    """The first GKE version in which a feature works."""

    feature: str
    version: str


DRA = Floor("devices: dra", "1.34.1-gke.1127000")
DRANET = Floor("dranet", "1.34.1-gke.1829001")
FLEX_START = Floor("flex-start on TPUs", "1.33.0-gke.1712000")
AUTO_CREATION = Floor("node pool auto-creation", "1.33.3-gke.1136000")
TPU7X_IN_CLASS = Floor("tpu7x in a ComputeClass", "1.34.1-gke.2541000")
SLICE_CONTROLLER = Floor("the slice controller", "1.35.0-gke.274500")
DYNAMIC_SLICING = Floor("dynamic slicing with sub-blocks", "1.35.2-gke.1842000")
METRIC_AUTOSCALING = Floor("cluster.metric_autoscaling", "1.36.4-gke.1247000")
SECRET_SYNC = Floor("secrets of teams", "1.34.0-gke.0")
BUFFERED_READ = Floor("buffered reads of gcsfuse", "1.34.0-gke.2011000")
