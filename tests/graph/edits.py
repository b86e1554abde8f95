"""Edits of a configuration: what stands before, what is planned after, against the emulated cloud.

The graph before an edit is made in the emulated cloud, the graph after it is planned against that. Where the same edit
was recorded with the real engine and the real provider (sandbox/tests/data/provider_edits.json), the expectation is
that recording.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from rules.cluster_identity import another_cluster
from rules.load import load_platform
from sandbox import google
from sandbox.tests.gcp_plugin_support import DATA
from tests.graph.emulated import DELETE_FIRST, PROJECT, SAME, UPDATE, EmulatedCloud, Planned, recorded
from tests.platforms import EXISTING_NETWORK

Json = dict[str, Any]
ABSENT = object()

# In the recording, that pools have replace_on_changes.
REPLACE_ON_CHANGES = "roc"


@dataclass(frozen=True)
class Recorded:
    """The outcome of an edit as recorded; `key` names the edit, `value` which, where there are several."""

    key: str
    value: Any = None
    resource: str = "node pool"

    def row(self) -> Json:
        """What the recording says of the resource: outcome and changed properties."""
        rows = [
            row
            for row in _recording()
            if self.key in row["edit"] and (self.value is None or row["edit"][self.key] == self.value)
        ]
        found = next((row for row in rows if REPLACE_ON_CHANGES in row["edit"]), rows[0])
        result: Json = found["result"][self.resource]
        return result

    @property
    def outcome(self) -> str:
        """As recorded; but every resource of the program has delete_before_replace, which the recorded ones had not."""
        outcome: str = self.row()["outcome"]
        return DELETE_FIRST if outcome.startswith("replace") else outcome

    def concerns(self, planned: Planned) -> bool:
        """Whether the plan changes what the recorded edit changed, or what lies around or below it."""
        paths = [change.path for change in planned.changes]
        return all(any(_related(path, wanted) for path in paths) for wanted in self.row()["changed"])


@cache
def _recording() -> list[Json]:
    rows: list[Json] = json.loads((DATA / "provider_edits.json").read_text())
    return rows


def _related(path: str, other: str) -> bool:
    """Whether one of two property paths is the other or lies below it; positions and keys of labels aside."""
    left, right = (re.findall(r"[A-Za-z]+", re.sub(r"(?<=abels)[.\[].*", "", text)) for text in (path, other))
    shorter = min(len(left), len(right))
    return left[:shorter] == right[:shorter]


Expected = str | Recorded

IDENTITIES = ("Cluster cluster-gke", "Disk control-plane-disk-0")
SUBNET = "Subnetwork network-subnet"


@dataclass(frozen=True)
class Edit:
    """One edit: `before` is what stands, `after` what changes of it, both as dotted keys; ABSENT takes a key away.

    The keys are those of the platform, or of the slice `train`, which `slice_` describes where it is not the usual one;
    `platform` then says what is unusual around it. `expected` names every Google resource that is not left as it is.
    """

    after: Json
    expected: Mapping[str, Expected]
    before: Json = field(default_factory=dict)
    slice_: Json | None = None
    platform: Json = field(default_factory=dict)

    @property
    def id(self) -> str:
        return " ".join(f"{key}={'-' if value is ABSENT else value}" for key, value in self.after.items())


def put(content: Json, changes: Json) -> Json:
    """A copy of `content` with dotted keys set; ABSENT takes one away."""
    result: Json = json.loads(json.dumps(content))
    for path, value in changes.items():
        *parents, last = path.split(".")
        target = result
        for step in parents:
            target = target.setdefault(step, {})
        if value is ABSENT:
            target.pop(last)
        else:
            target[last] = value
    return result


# What `lay_foreign` makes, as a self-managed platform names it.
FOREIGN_NETWORK = {**EXISTING_NETWORK, "nodes_cidr": "10.0.0.0/20", "pods_cidr": "10.16.0.0/14"}


def lay_foreign(cloud: EmulatedCloud, region: str, *, pods: str = "p", services: str = "q") -> None:
    """What others made: a network `n` with a subnet `s` and two ranges, and the secrets of a cluster."""
    compute = f"/compute/v1/projects/{PROJECT}"
    cloud.call("POST", f"{compute}/global/networks", {"name": "n", "autoCreateSubnetworks": False})
    ranges = {pods: FOREIGN_NETWORK["pods_cidr"], services: "10.20.0.0/20"}
    subnet = {
        "name": "s",
        "network": f"projects/{PROJECT}/global/networks/n",
        "ipCidrRange": FOREIGN_NETWORK["nodes_cidr"],
        "secondaryIpRanges": [{"rangeName": name, "ipCidrRange": cidr} for name, cidr in ranges.items()],
    }
    cloud.call("POST", f"{compute}/regions/{region}/subnetworks", subnet)
    for secret in ("join", "access"):
        cloud.call("POST", f"/sm/v1/projects/{PROJECT}/secrets?secretId={secret}", {"replication": {"automatic": {}}})


Clouds = Callable[[Json], EmulatedCloud]


@contextmanager
def standing_clouds() -> Iterator[Clouds]:
    """Clouds in which a platform stands, one for each platform that edits begin with.

    They share an emulator: a plan compares with the state that creating left behind, and asks the cloud nothing.
    """
    standing: dict[str, EmulatedCloud] = {}
    with ExitStack() as running:
        emulator = running.enter_context(google.serving())

        def cloud_of(platform: Json) -> EmulatedCloud:
            key = json.dumps(platform, sort_keys=True)
            if key not in standing:
                cloud = running.enter_context(closing(EmulatedCloud(emulator.url)))
                cloud.control("reset")
                cloud.control("zones", zone=platform["zone"], generations=["v5e", "v5p", "v6e", "tpu7x"])
                lay_foreign(cloud, platform["zone"].rpartition("-")[0])
                cloud.make(recorded(platform))
                standing[key] = cloud
            return standing[key]

        yield cloud_of


def check(cloud: EmulatedCloud, edited: Json, expected: Mapping[str, Expected]) -> None:
    planned = cloud.plan(recorded(edited))
    outcomes = {name: plan.outcome for name, plan in planned.items() if plan.outcome != SAME}
    wanted = {name: row.outcome if isinstance(row, Recorded) else row for name, row in expected.items()}
    assert outcomes == wanted, {name: [c.path for c in planned[name].changes] for name in outcomes}
    for name, row in expected.items():
        assert not isinstance(row, Recorded) or row.concerns(planned[name]), f"{name}: {row.key} is another edit"
    refused = another_cluster(load_platform(edited, project=PROJECT), cloud.state)
    assert bool(refused) == _is_another_cluster(planned), refused


def _is_another_cluster(planned: Mapping[str, Planned]) -> bool:
    """Whether a plan replaces what makes a cluster that cluster, or ranges of addresses under it, which Google refuses.

    The stand-in for the engine has no program that refuses such a plan first.
    """
    replaced = any(planned[name].outcome not in (SAME, UPDATE) for name in IDENTITIES if name in planned)
    subnet = planned.get(SUBNET)
    moved = subnet is not None and any(change.path.startswith("secondaryIpRanges") for change in subnet.changes)
    return replaced or moved
