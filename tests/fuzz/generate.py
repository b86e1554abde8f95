"""Platforms and stack files to try: sound ones, and ones with slips. A case follows from its random generator alone."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from catalogue import topology
from catalogue.generations import GENERATIONS, MACHINES, HostImage
from platform_config.other_words import SLICE as OTHER_WORDS
from tests.graph.emulated import FOREIGN_NETWORK
from tests.platforms import EXISTING, ZONES, errors, raw
from tests.rules import cases_configuration, cases_without_gke, test_rules
from tests.rules.cases import Case
from tools.schema import platform_schema

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
STACK_FILES = sorted(ROOT.glob("Pulumi.*.yaml"))

ACCOUNT = "hosts-of-tpus@my-project.iam.gserviceaccount.com"

# What a person can write where a value belongs.
AWKWARD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 7, 63, 64, 65, 2**31 - 1, 2**31, 2**63, 10**19, 0.5, 1e308, -0.0,
    "", " ", "a", "A", "a b", "a-", "-a", "a.b", "a_b", "é", "a\nb", "a\tb", "\u0000", "x" * 63, "x" * 64, "x" * 5000,
    "4x4", "2x2x2", "4x", "x4", "0x0", "-1x4", "9" * 5000, "1e3", "0x10", "no", "null", "~", "2026-12-01", "2027-02-30",
    "${a}", "{{ zone }}", "../..", "projects/a", "default", "kube-system", "tpu", "system", "google.com/tpu",
    "a/b", "a/b/c", "0.0.0.0/0", "10.0.0.0/33", "10.0.0.0/8", "127.0.0.0/8", "1d", "0s", "1.35", "spot", "queued",
    [], {}, [[]], [None], [{}], ["a", "a"], {"": 1}, {"a": 1}, {"a": {"a": {}}}, {"1": "2"}, ["spot", "spot"],
)  # fmt: skip

REPOSITORY = "projects/other/locations/us/repositories/base"
STORES: tuple[Json, ...] = (
    {},
    {"soft_delete": False, "expire": "30d", "keep": False},
    {"mount": "/data", "use": "models"},
    {"bucket": "acme-c4"},
    {"bucket": "acme-c5", "mode": "write", "mount": "/work"},
)
# Text that some pattern of the schema takes.
FITTING = (
    "a", "team", "team-a", "train", "b", "x" * 22, "x" * 40, "x" * 63, "prod", "us-east5-b", "us-east5-a",
    "us-central1-c", "asia-northeast1-b", "1d", "90m", "36h", "7d", "8d", "3600s", "3650d", "2026-12-01",
    "2026-12-01T00:00:00Z", "2026-12-09T08:00:00Z", "2030-01-01 00:00:00 +0000 UTC", "10.0.0.0/20", "10.4.0.0/14",
    "10.0.32.0/20", "192.0.2.0/24", "10.0.0.0/16", "0.0.0.0/1", "203.0.113.7/32", "224.0.0.0/4", "10.64.0.0/28",
    "1.34", "1.35", "1.35.2", "1.35.2-gke.1842000", "1.34.2", "1.36.0", "my-project", "other-project", "123456",
    "projects/my-project/locations/us-east5/keyRings/r/cryptoKeys/k", "projects/my-project/secrets/join",
    "projects/p/global/images/family/f", "global/images/i", "projects/p/global/instanceTemplates/t",
    "group:a@a.example", "user:a@a.example", "acme", "/data", "30d", "HF_TOKEN",
    ACCOUNT, "gke-security-groups@a.example", "https://10.0.0.10:6443",
    "organization/project/stack", "FREQ=DAILY", "FREQ=WEEKLY;BYDAY=SA,SU", EXISTING["ca"],
    "e2-standard-4", "n2-standard-8", "c4-standard-8", "pd-balanced", "hyperdisk-balanced", "pd-ssd", "4x4", "2x4",
)  # fmt: skip


def sound(random: Random) -> Json:
    """A platform that most rules let pass: every kind of cluster, shape, capacity model and queue turns up."""
    kind = random.choice(("gke", "gke", "gke", "self-managed", "self-managed", "existing"))
    zone = random.choice(list(ZONES.values()))
    families = [name for name in ZONES if kind == "gke" or isinstance(GENERATIONS[name].without_gke, HostImage)]
    platform = raw(
        {f"s{index}": _slice(random, random.choice(families), kind) for index in range(random.randint(1, 4))},
        zone=zone,
        allow_unlisted_zone=True,
        cluster=_cluster(random, kind, zone),
    )
    if kind == "existing" or random.random() < 0.2:
        platform["network"] = {**FOREIGN_NETWORK, **({"services_range": "q"} if kind == "gke" else {})}
    if random.random() < 0.2:
        platform["namespaces"] = random.sample(["a", "team", "team-a", "x" * 63, "prod"], random.randint(1, 3))
    if random.random() < 0.3:
        platform["teams"] = _teams(random, kind)
    if random.random() < 0.2:
        pushing: Json = {"teams": sorted(platform.get("teams", {}))[: random.randint(0, 2)]}
        hub = random.choice((pushing, {"mirror": "docker-hub"}, {"repository": REPOSITORY}))
        platform["images"] = {random.choice(("ml", "x" * 40)): random.choice((pushing, {})), "hub": hub}
    if random.random() < 0.6:
        platform |= _queues(random, list(platform["slices"]))
        platform["overcommit"] = random.random() < 0.9
    if random.random() < 0.1 and "queues" in platform:
        platform["multikueue"] = {"role": "worker"}
    elif random.random() < 0.1 and "queues" in platform:
        worker = {"secret": "us"}  # a stack would need an engine that has it
        remote = {
            name: {key: value for key, value in spec.items() if key in ("machine_type", "topology", "count")}
            for name, spec in platform["slices"].items()
        }
        platform |= {"slices": {}, "multikueue": {"role": "manager", "workers": {"us": worker}, "slices": remote}}
    for key, values in {
        "name": ("a", "x" * 22, "prod"),
        "protect": (True, False),
        "labels": ({"team": "a"}, {}),
        "priorities": ({"high": 1000, "low": -1}, {"x" * 63: 2**31 - 1}),
    }.items():
        if random.random() < 0.2:
            platform[key] = random.choice(values)
    return platform


def _teams(random: Random, kind: str) -> Json:
    """Teams, some with the names of namespaces and queues. Without GKE only rights follow from them."""
    teams: Json = {}
    members = ["user:eva@a.example", f"serviceAccount:{ACCOUNT}", "user:max@a.example"]
    for name in random.sample(["a", "team", "a-prod", "lab"], random.randint(1, 3)):
        team: Json = {"members": random.sample(members, random.randint(0, 3))}
        if kind == "gke":
            team["storage"] = {
                store: random.choice(STORES) for store in random.sample(["d", "data", "prod-d"], random.randint(0, 2))
            }
            team["secrets"] = random.choice(({}, {"HF_TOKEN": "hf", "A": "projects/other/secrets/hf"}))
        teams[name] = team
    return teams


def _slice(random: Random, family: str, kind: str) -> Json:
    machine = random.choice([machine for machine in MACHINES.values() if machine.generation.name == family])
    shapes = [dims for dims in topology.shapes(machine.generation) if machine.chips < math.prod(dims) <= 512]
    several = machine.multi_host and random.random() < 0.6
    dims = topology.render(random.choice(shapes)) if several and shapes else machine.topology
    spec: Json = {"machine_type": machine.name, "topology": dims}
    reservation: Json = {"model": "reservation", "name": f"r-{machine.name}"}
    reservation |= random.choice(
        ({}, {}, {"block": "b"}, {"block": "b", "sub_block": "c"}, {"project": "owner-project"})
    )
    models: list[Any] = ["on-demand", "spot", reservation, {"model": "spot", "max_run_duration": "1d"}]
    if machine.generation.dws:
        models += ["flex-start", {"model": "flex-start", "max_run_duration": "2d"}]
        models += ["queued"] if kind == "gke" else []
    if random.random() < 0.8:
        spec["capacity"] = random.choice(models)
    elif kind == "gke":
        spec["capacity"] = random.sample(models[:3], random.randint(1, 3))
    optional: dict[str, tuple[Any, ...]] = {
        "count": (1, 2, 3, 10),
        "protect": (True, False),
        "labels": ({"a": "b"}, {"example.com/a": ""}),
        "taints": ([{"key": "a"}], [{"key": "a", "value": "b", "effect": "NoExecute"}]),
        "tags": (["a"], ["a", "b"]),
        "resource_labels": ({"a": "b"},),
        "max_pods_per_node": (8, 15, 64, 110),
        "boot_disk": ({"size_gb": 200}, {"size_gb": 10}),
        "service_account": (ACCOUNT,),
        "node_drain": ({"grace": "5m"}, {"respect_pdb": False}),
    }
    if machine.generation.dra:
        optional["devices"] = ("dra", "device-plugin")
    if kind == "gke":
        optional |= {
            "provisioning": ("autoscaled", "compute-class"),
            "image_streaming": (True, False),
            "dranet": (True, False),
        }
    for key, values in optional.items():
        if random.random() < 0.12:
            spec[key] = random.choice(values)
    return spec


def _cluster(random: Random, kind: str, zone: str) -> Json:
    pools = {"head": {"machine_type": "n2-standard-8", "min": 1, "taints": [{"key": "head"}]}}
    some: dict[str, Callable[[], Json]] = {
        "gke": lambda: {
            "kind": "gke",
            "release_channel": random.choice(("RAPID", "RAPID", "REGULAR", "STABLE")),
            "regional": random.random() < 0.7,
            "authorized_networks": random.choice(([], [{"cidr": "192.0.2.0/24", "name": "office"}])),
            "binary_authorization": random.random() < 0.2,
            "metric_autoscaling": random.random() < 0.2,
        },
        "self-managed": lambda: {
            "kind": "self-managed",
            "control_plane": {
                "replicas": random.choice((1, 3)),
                "access": random.choice(("internal", "external")),
                "authorized_networks": [{"cidr": "192.0.2.0/24", "name": "office"}],
                "backups": random.random() < 0.5,
                **({"zones": [zone]} if random.random() < 0.2 else {}),
            },
        },
        "existing": lambda: {
            **EXISTING,
            "provides": random.sample(["device-plugin", "dra-driver", "jobset", "lws"], random.randint(0, 4)),
        },
    }
    return {**some[kind](), **({"cpu_pools": pools} if random.random() < 0.3 else {})}


def _queues(random: Random, slices: list[str]) -> Json:
    queues: Json = {}
    for index, namespace in enumerate(random.sample(["a", "a-prod", "team", "prod", "x" * 63], random.randint(1, 3))):
        owned = {name: random.choice((0, 1, 1, 2)) for name in random.sample(slices, random.randint(1, len(slices)))}
        limits: tuple[Any, ...] = (True, False, {random.choice(list(owned)): random.choice((0, 1, 2))})
        queue: Json = {"namespaces": [namespace], "slices": owned}
        for key, values in {
            "borrow": limits,
            "lend": limits,
            "cohort": ("c", "d"),
            "weight": (0, 0.5, 2, 1_000_000),
            "strategy": ("StrictFIFO", "BestEffortFIFO"),
            "preempt": ("Never", "LowerPriority", "LowerOrNewerEqualPriority"),
        }.items():
            if random.random() < 0.3:
                queue[key] = random.choice(values)
        queues[random.choice(("q", "team", "x" * 40)) + str(index)] = queue
    cohorts = random.choice(({}, {}, {"c": {"weight": 2}}, {"c": {"parent": "root"}, "root": {}}))
    return {"queues": queues, **({"cohorts": cohorts} if cohorts else {})}


@cache
def sound_in_tests() -> tuple[Json, ...]:
    """The platforms that the tests of rules take for right."""
    tables = (test_rules, cases_configuration, cases_without_gke)
    cases = [case for table in tables for value in vars(table).values() if isinstance(value, list) for case in value]
    platforms = [{**raw({"s": case.right[0]}), **case.right[1]} for case in cases if isinstance(case, Case)]
    # Some tables name further slices in words of their own.
    return tuple(platform for platform in platforms if not errors(platform))


# --- slips ------------------------------------------------------------------------------------------------------------


def with_slips(random: Random, platform: Json, slips: int) -> Json:
    """The platform with some places changed."""
    changed = copy.deepcopy(platform)
    for _ in range(slips):
        _slip(random, changed)
    return changed


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with each of its keys, all the way down."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _slip(random: Random, platform: Json) -> None:
    places = list(_places(platform))
    if not places:
        platform["zone"] = "us-east5-b"
        return
    container, key = random.choice(places)
    match random.randrange(8):
        case 0:
            container[key] = copy.deepcopy(random.choice(AWKWARD))
        case 1:
            del container[key]
        case 2 if isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        case 2:
            container[str(random.choice(AWKWARD))] = copy.deepcopy(container[key])
        case 3:
            other, other_key = random.choice(places)
            container[key] = copy.deepcopy(other[other_key])
        case 4 if isinstance(container, dict):
            container[random.choice((*sorted(OTHER_WORDS), *map(str, AWKWARD)))] = random.choice(AWKWARD)
        case 5 if isinstance(container[key], str):
            container[key] = random.choice(FITTING)
        case 5 if isinstance(container[key], int):
            container[key] = container[key] + random.choice((-1, 1, 10, 10**6))
        case _:
            _from_schema(random, platform, container)


@cache
def _schema() -> Json:
    schema = platform_schema()
    return {**schema["$defs"], "Platform": {key: value for key, value in schema.items() if key != "$defs"}}


def _from_schema(random: Random, platform: Json, container: Any) -> None:
    """Set a key of a mapping to something that the schema takes there."""
    place = container if isinstance(container, dict) else platform
    models = [model for model in _schema().values() if place.keys() & model["properties"].keys()]
    most = max((len(place.keys() & model["properties"].keys()) for model in models), default=0)
    fitting = [model for model in models if len(place.keys() & model["properties"].keys()) == most]
    properties = random.choice(fitting)["properties"] if fitting else _schema()["Platform"]["properties"]
    key = random.choice(sorted(properties))
    place[key] = taken_by(random, properties[key])


def taken_by(random: Random, schema: Json) -> Any:
    """A value that a part of the schema takes, patterns aside."""
    if "$ref" in schema:
        return taken_by(random, _schema()[schema["$ref"].rpartition("/")[2]])
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else random.choice(schema["enum"])
    if "type" not in schema:
        return taken_by(random, random.choice(schema.get("anyOf") or schema.get("oneOf") or [{"type": "string"}]))
    kind = schema["type"] if isinstance(schema["type"], str) else random.choice(schema["type"])
    least, most = schema.get("minimum", 0), schema.get("maximum", 100)
    match kind:
        case "null":
            return None
        case "boolean":
            return random.random() < 0.5
        case "integer":
            return random.choice((least, most, least + 1, random.randint(least, min(most, least + 20))))
        case "number":
            return random.choice((least, 0.5, 1.5, most))
        case "array":
            return [taken_by(random, schema["items"]) for _ in range(random.randint(0, 3))]
        case "object" if "properties" in schema:
            required = schema.get("required", [])
            return {
                key: taken_by(random, part)
                for key, part in schema["properties"].items()
                if key in required or random.random() < 0.3
            }
        case "object":
            inner = next(iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties"))
            names = random.sample(FITTING, random.randint(0, 2))
            return {name: taken_by(random, inner if isinstance(inner, dict) else {}) for name in names}
    fitting = [word for word in FITTING if re.search(schema.get("pattern", ""), word)]
    return random.choice(fitting or FITTING)


def platform(random: Random) -> Json:
    """A platform to try."""
    source = random.randrange(3)
    base = random.choice(sound_in_tests()) if source == 0 else sound(random)
    return with_slips(random, base, random.choice((0, 1, 1, 2, 4)))


# --- texts ------------------------------------------------------------------------------------------------------------

SCALARS = (
    "", "~", "null", "yes", "no", "on", "0o10", "010", "0x1F", "1_000", "1e1", "1e400", ".inf", ".nan", "-.inf", "1:30",
    "2026-12-01", "2027-02-30", "0000-01-01", "2026-12-01T02:30:00+01:00", "0226-01-03T00:00:00Z", "9" * 30, "9" * 5000,
    "1.30", "!!int abc", "!!timestamp abc", "!!bool maybe", "!!binary =", "!!set {a}", "!x y", "{{ zone }}", "{a: b}",
    "[a, b]", "[[[[[[]]]]]]", "&a b", "*a", "&l {a: *l}", "<<", '"', "'", '"\\x00"', '"\\ud800"', "|", ">-", "%", "@",
    "`", "? a", "- a", "a: b: c", "#", "é", "\u2028", "\ufeff", "\u0000", "x" * 10_000, "[" * 200, "{a: " * 200,
    "{secure: AAAB}",
)  # fmt: skip
LINES = (
    "<<: *a", "<<: {a: b}", "? [a]", "? {a: b}", "---", "...", "%YAML 1.1", "spot: true", "node_count: 2", "? ",
    "secretsprovider: x", "1: 2", "~: 2", "true: 2", "a: &a [*a]", "\t", "\ttabbed: 1", ": a", "-", "# x",
)  # fmt: skip
BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
)


def text(random: Random) -> str:
    """A stack file to try: one of the repository's with slips of an editor, or a platform written out as JSON."""
    if random.random() < 0.2:
        return json.dumps({"config": {"gcp:project": "my-project", "tpu-platform:platform": platform(random)}})
    lines = random.choice(STACK_FILES).read_text().splitlines()
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        _slip_of_text(random, lines)
    return "\n".join(lines) + "\n"


def _slip_of_text(random: Random, lines: list[str]) -> None:
    if not lines:
        lines.append("config:")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    line = lines[at]
    indent = line[: len(line) - len(line.lstrip())]
    match random.randrange(11):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, line)
        case 2:
            lines[at], lines[other] = lines[other], line
        case 3 | 4 if ":" in line:
            lines[at] = f"{line.partition(': ')[0].rstrip(':')}: {random.choice(SCALARS)}"
        case 5:
            lines[at] = random.choice((" ", "  ", "\t", "    ")) + line
        case 6:
            lines[at] = line[random.randint(0, 3) :]
        case 7:
            lines.insert(at, indent + random.choice(LINES))
        case 8:
            lines.insert(at, f"{indent}{random.choice(sorted(OTHER_WORDS))}: {random.choice(SCALARS)}")
        case 9 if line:
            place = random.randrange(len(line))
            lines[at] = line[:place] + random.choice("{}[]:,#&*!|>'\"%@`\\\t \u0000é-") + line[place + 1 :]
        case 10 if random.random() < 0.2:
            lines.insert(0, BOMB)
        case _:
            lines[at] = line + random.choice((" #", ":", ",", " &a", " *a", '"', " - x"))
