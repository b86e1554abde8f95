"""Recorded runs of the real gcp provider plugin: their requests in order, and what of them is never the same twice."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

RUNS = Path(__file__).parents[1] / "data" / "provider_runs"
NAMES = ("dev", "gce", "all")
Json = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """One recorded request. `number` is its line in the file, `phase` the command it was part of."""

    number: int
    phase: str
    method: str
    path: str
    query: str
    body: Any
    status: int
    answer: Any

    def __str__(self) -> str:
        return f"line {self.number} ({self.phase}): {self.method} {self.path}"


@cache
def recorded_run(name: str) -> tuple[Request, ...]:
    """The requests of a run."""
    with gzip.open(RUNS / f"{name}.jsonl.gz", "rt") as file:
        return tuple(_requests(file))


def _requests(lines: Iterator[str]) -> Iterator[Request]:
    phase = ""
    for number, line in enumerate(lines, 1):
        row = json.loads(line)
        if "mark" in row:
            phase = row["mark"]
        else:
            yield Request(number, phase, **row)


# --- what differs from run to run ------------------------------------------------------------------------------------

# Fields that hold a moment: only that there is one is compared.
TIMES = frozenset({"creationTimestamp", "createTime", "endTime", "insertTime", "lastStartTimestamp", "startTime"})
# Fields that hold what the server makes up: numbers, names of operations, tokens. Recorded and answered values belong
# to each other from the first time on: the same number must come back wherever the recording has the same.
MADE_UP = frozenset(
    {
        "clusterCaCertificate",
        "etag",
        "fingerprint",
        "id",
        "labelFingerprint",
        "numericId",
        "oauth2ClientId",
        "targetId",
        "uniqueId",
    }
)
OPERATION = re.compile(r"operation-\d+-[0-9a-f]+")
# The recording does not keep where things listened.
ADDRESSES = frozenset({"HOST:PORT", "EMULATOR"})
# How far an operation is depends on when one asks: under way is under way.
UNDER_WAY = frozenset({"PENDING", "RUNNING"})
PROGRESS = frozenset({"status", "progress"})
# Lists in the order in which things were made; the recorded plugin made several at a time.
UNORDERED = frozenset({"instanceGroupUrls", "items", "nodePools"})
# The zones of the recorded runs that offered more than they really do.
ZONES: tuple[Json, ...] = ({"zone": "us-central1-a", "generations": ["v4", "v5e", "v5p", "v6e", "tpu7x"]},)
# What the recorded emulator answered of its own choice and this one does otherwise: (path pattern, field pattern),
# and why. Every row is needed.
EXCEPTIONS: dict[tuple[str, str], str] = {
    (r"/su/v1/projects/my-project/services", r"services"): (
        "a project that has been in use has four more APIs enabled by now: those behind features of clusters"
    ),
    (r".*/clusters/[\w-]+", r"securityPostureConfig\.vulnerabilityMode"): (
        "Google has shut the scan down: it is read back as disabled"
    ),
    (r".*/instanceGroupManagers", r"items\[\d+\]\.currentActions\.(none|creating)"): (
        "the recorded emulator counted no instances in the groups of node pools, and yet called them stable"
    ),
    (r".*/instanceTemplates/\d+", r"properties\.scheduling\.instanceTerminationAction"): (
        'the recorded emulator gave back the empty string that was sent; "" means unset, and what is unset is not shown'
    ),
}
