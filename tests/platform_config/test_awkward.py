"""What a fuzzer found: values that ended in a traceback, a hang or a riddle, and what is said of them now."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from platform_config.errors import ConfigErrors
from platform_config.platform import below
from platform_config.reading import given
from rules.load import load_platform, load_stack_file
from tests.platforms import PROJECT, ZONES, errors, load, raw

V6E = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}
GO_DAY, GO_MOMENT = "2026-12-01 00:00:00 +0000 UTC", "2026-12-01 02:30:00 +0000 UTC"


def file(tmp_path: Path, platform: str) -> Path:
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(f"config:\n  gcp:project: my-project\n  tpu-platform:platform:\n    zone: us-east5-b\n{platform}")
    return path


@pytest.mark.parametrize("day", ["2026-12-01", GO_DAY])
def test_a_day_is_taken_in_both_spellings(day: str) -> None:
    """The engine hands an unquoted day over as Go prints it."""
    capacity = {"model": "reservation", "name": "r", "ends": day}
    prices = {"v6e": {"usd_per_chip_hour": 1.5, "as_of": day, "source": "s"}}
    platform = load({"s": V6E | {"capacity": capacity}}, prices=prices)
    assert platform.slices["s"].capacity[0].ends == "2026-12-01"  # type: ignore[union-attr]
    assert platform.prices["v6e"].as_of == "2026-12-01"


@pytest.mark.parametrize("moment", ["2026-12-01T02:30:00Z", GO_MOMENT])
def test_a_moment_is_taken_in_both_spellings(moment: str) -> None:
    exclusion = {"name": "e", "start": moment, "end": "2026-12-05 00:00:00 +0000 UTC"}
    window = {"start": moment, "end": "2026-12-01T08:30:00Z", "exclusions": [exclusion]}
    platform = load(cluster={"maintenance": window})
    assert platform.gke.maintenance.start == "2026-12-01T02:30:00Z"
    assert platform.gke.maintenance.exclusions[0].start == "2026-12-01T02:30:00Z"
    assert platform.gke.maintenance.exclusions[0].end == "2026-12-05T00:00:00Z"


@pytest.mark.parametrize(
    ("day", "message"),
    [
        ("2027-02-30", "is not a day"),
        ("0000-01-01 00:00:00 +0000 UTC", "is not a day"),
        ("0226-01-03", "before the year 2000"),
        (GO_MOMENT, "is not a day"),
        ("2026-12-01 00:00:00 +0100 +0100", "is not a day"),
        (20261201, "is not a day"),
    ],
)
def test_a_day_that_is_none(day: object, message: str) -> None:
    capacity = {"model": "reservation", "name": "r", "ends": day}
    (error,) = errors(raw({"s": V6E | {"capacity": capacity}}))
    assert (error.path, message in error.message) == (below("slices.s.capacity.ends"), True)


def test_a_year_below_1000_is_refused() -> None:
    window = {"start": "0226-01-03T00:00:00Z", "exclusions": [{"name": "e", "start": "0226-01-03T00:00:00Z"}]}
    assert [error.path for error in errors(raw(cluster={"maintenance": window}))] == [
        below("cluster.maintenance.start"),
        below("cluster.maintenance.exclusions[0].start"),
    ]


@pytest.mark.parametrize("count", [10**4, 10**6, 10**9, 10**18, pytest.param(10**5000, id="5000 digits")])
@pytest.mark.parametrize("where", ["slices", "multikueue.slices"])
def test_a_count_beyond_a_cluster_is_refused_at_once(count: int, where: str) -> None:
    """A pool for each slice took all memory before any rule could speak."""
    slices = {"s": V6E | {"topology": "16x16", "count": count}}
    manager = {"role": "manager", "workers": {"w": {"secret": "k"}}, "slices": slices}
    platform = raw(slices) if where == "slices" else raw({}, multikueue=manager)
    before = time.process_time()
    found = errors(platform)
    assert time.process_time() - before < 1
    assert below(f"{where}.s.count") in [error.path for error in found]


@pytest.mark.parametrize(
    "platform",
    [
        "    zone2: {{ zone }}\n",
        "    ? [a]\n    : b\n",
        "    ends: !!int abc\n",
        "    ends: !!timestamp abc\n",
        "    ends: !!bool maybe\n",
        "    labels: &l {a: *l}\n",
        "    labels: " + "[" * 900 + "]" * 900 + "\n",
        "    labels: " + "{a: " * 5000 + "\n",
        "    a0: &a0 [x]\n" + "".join(f"    a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)),
    ],
    ids=["template", "list as key", "int", "timestamp", "bool", "recursive", "deep", "deep and open", "bomb"],
)
def test_a_file_that_once_ended_in_a_traceback(tmp_path: Path, platform: str) -> None:
    before = time.process_time()
    with pytest.raises(ConfigErrors) as refused:
        load_stack_file(file(tmp_path, platform))
    assert time.process_time() - before < 2
    (error,) = refused.value.errors
    assert error.path == "Pulumi.x.yaml"
    assert error.hint


def test_text_that_looks_like_a_day_or_number_is_refused_where_it_stands(tmp_path: Path) -> None:
    path = file(
        tmp_path, "    protect: no\n    overcommit: 2026-02-30\n    slices: {s: {generation: v6e, chips: 1:30}}\n"
    )
    with pytest.raises(ConfigErrors) as refused:
        load_stack_file(path)
    assert [(error.path, error.message) for error in refused.value.errors] == [
        (below("protect"), "'no' is not possible here"),
        (below("overcommit"), "'2026-02-30' is not possible here"),
        (below("slices.s.chips"), "'1:30' is not possible here"),
    ]


@pytest.mark.parametrize(
    "spec",
    [
        V6E | {"topology": f"{'9' * 5000}x4"},
        {"machine_type": f"v5p-{'8' * 5000}", "topology": "4x4"},
        {"generation": f"v5p-{'8' * 5000}", "topology": "4x4"},
        V6E | {"capacity": {"model": "spot", "max_run_duration": f"{'9' * 5000}d"}},
        V6E | {"labels": {"a" * 100_000: "b" * 100_000}},
        V6E | {"tags": ["a" * 100_000]},
        V6E | {"x" * 100_000: 1},
    ],
)
def test_no_value_is_echoed_whole(spec: dict[str, Any]) -> None:
    for error in (found := errors(raw({"s": spec}))):
        assert max(len(error.path), len(error.message), len(error.hint)) < 1300
    assert found


def test_nested_data_without_a_file_is_bounded_too() -> None:
    """The engine hands over what its own reader takes."""
    deep: Any = "x"
    for _ in range(900):
        deep = [deep]
    assert [error.message for error in errors(raw(labels=deep))] == ["is too deep or too large"]
    assert [error.message for error in errors(raw(tags=["x"] * 200_000))] == ["is too deep or too large"]


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{", "text", "NaN", '{"a": Infinity}', '{"count": ' + "1" * 5000 + "}"]
)
def test_what_is_no_json_is_refused_as_text(text: str) -> None:
    assert given(text) == text
    assert [error.message for error in errors(given(text))] == ["is not a mapping"]


@pytest.mark.parametrize("project", [123456, 1.5, True, ["a"], "A B/../x", "1" * 5000])
def test_a_project_that_is_none_is_said_once(project: Any) -> None:
    (error,) = errors(raw(), project=project)
    assert error.path == "gcp:project"


def test_encrypted_values_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as refused:
        load_stack_file(file(tmp_path, "    name: {secure: v1:abc}\n    labels: {a: {secure: v1:x}}\n"))
    assert [error.path for error in refused.value.errors] == [below("name"), below("labels.a")]


def test_many_errors_are_counted_not_listed() -> None:
    found = errors(raw(**{f"typo{index}": 1 for index in range(5000)}))
    assert len(found) == 101
    assert "4900 more" in found[-1].message


@pytest.mark.parametrize("limit", ["2", 2, [1], None])
@pytest.mark.parametrize("key", ["borrow", "lend"])
def test_a_malformed_limit_is_one_error(key: str, limit: object) -> None:
    queue = {"namespaces": ["a"], "slices": {"s": 1}, key: limit}
    (error,) = errors(raw({"s": V6E}, queues={"q": queue}))
    assert error.path == below(f"queues.q.{key}")
    assert "true, false" in error.hint


def test_a_malformed_number_within_a_limit_is_one_error() -> None:
    """`queues.q.borrow.dict[function-after[check(), str],constrained-int].t: nothing is not possible here`."""
    queue = {"namespaces": ["a"], "slices": {"s": 1}, "borrow": {"s": "2"}}
    (error,) = errors(raw({"s": V6E}, queues={"q": queue}))
    assert str(error).split("\n")[:2] == [f"  {below('queues.q.borrow.s')}", "    '2' is not possible here"]


def test_no_placeholder_leaks() -> None:
    key = "projects/p/locations/us-east5/keyRings/r/cryptoKeys/k"
    platform = raw({"s": V6E | {"kms_key": key}}, cluster={"kms_key": key}) | {"zone": "us-east5"}
    assert [error.path for error in errors(platform)] == [below("zone")]
    template = {"instance_template": "projects/other/global/instanceTemplates/t"}
    own = raw({"s": V6E | {"topology": "8x8"} | template}, cluster={"kind": "self-managed"})
    assert [error.path for error in errors(own, project=None)] == ["gcp:project"]


@pytest.mark.parametrize(
    ("spec", "path", "words"),
    [
        ({"generation": "v5p-8"}, "generation", "two readings"),
        ({"machine_type": "tpu7x-2048"}, "machine_type", "two readings"),
        ({"generation": "v5p"}, "", "generation: v5p with topology: 2x2x1"),
        ({"generation": "v4", "topology": "3x3x3"}, "topology", "but for 2x2x1, 2x2x2, 2x2x4, 2x4x4"),
        (V6E | {"topology": "x2x1"}, "topology", "for example 4x4"),
        (V6E | {"topology": "4.5x4"}, "topology", "for example 4x4"),
        (V6E | {"topology": "4 x 4"}, "topology", "write 4x4"),
        (V6E | {"capacity": None}, "capacity", "one of on-demand, spot"),
        (V6E | {"capacity": ["spot", "spot"]}, "capacity[1]", "spot is in the list twice"),
        (V6E | {"count": None}, "count", "or leave the key out"),
    ],
)
def test_the_hint_is_about_what_was_written(spec: dict[str, Any], path: str, words: str) -> None:
    (error,) = errors(raw({"s": spec}, zone=ZONES["v5p"], allow_unlisted_zone=True))
    assert error.path == below(".".join(part for part in ("slices.s", path) if part))
    assert words in f"{error.message} {error.hint}"


@pytest.mark.parametrize(
    ("key", "value", "instead"),
    [
        ("node_count", 4, "write count: SLICES"),
        ("num_nodes", 4, "write count: SLICES"),
        ("min_nodes", 0, "provisioning: autoscaled"),
        ("max_nodes", 4, "provisioning: autoscaled"),
        ("auto_repair", True, "leave it out"),
        ("spot", True, "capacity: spot"),
        ("preemptible", True, "capacity: spot"),
        ("flex", True, "capacity: flex-start"),
        ("dws", True, "capacity: flex-start"),
        ("tpu_topology", "4x4", "topology: SHAPE"),
        ("tpu_type", "v5p-8", "generation: v5p"),
        ("accelerator", "v5p-8", "generation: v5p"),
        ("accelerator_type", "v5p-8", "generation: v5p"),
        ("num_slices", 2, "count: SLICES"),
        ("reservation_name", "r", "model: reservation"),
        ("placement_policy", {}, "leave it out"),
    ],
)
def test_words_of_other_tools_are_answered_with_ours(key: str, value: object, instead: str) -> None:
    (error,) = errors(raw({"s": V6E | {key: value}}))
    assert error.path == below(f"slices.s.{key}")
    assert error.message.startswith("unknown key: ")
    assert instead in error.hint


@pytest.mark.parametrize(
    ("capacity", "path", "instead"),
    [
        ("preemptible", "capacity", "write spot"),
        ("dws", "capacity", "write flex-start, or queued"),
        ({"model": "flex"}, "capacity.model", "write flex-start, or queued"),
        (
            {"model": "reservation", "name": "r", "reservation_name": "r"},
            "capacity.reservation_name",
            "write name: NAME",
        ),
    ],
)
def test_capacity_in_words_of_other_tools_is_answered_with_ours(capacity: object, path: str, instead: str) -> None:
    (error,) = errors(raw({"s": V6E | {"capacity": capacity}}))
    assert error.path == below(f"slices.s.{path}")
    assert instead in error.hint


def test_a_slices_word_beside_the_slices_is_answered_with_its_place() -> None:
    (error,) = errors(raw({"s": V6E}) | {"node_count": 3})
    assert "below slices: NAME:" in error.hint


@pytest.mark.parametrize("bad", [{"capacity": "none", "devices": "gpu"}, {"devices": "gpu", "capacity": "none"}])
def test_two_malformed_settings_of_a_slice_are_two_errors(bad: dict[str, object]) -> None:
    """The second one brought the slice back empty, and so a third error about what was not written."""
    assert len(errors(raw({"s": V6E | bad}))) == 2


def test_a_range_that_is_none_is_not_asked_for() -> None:
    found = errors(raw({"s": V6E | {"topology": "16x16", "count": 200, "max_pods_per_node": 256}}))
    assert not [error.hint for error in found if "/-" in error.hint]


@pytest.mark.parametrize("cidr", ["10.0.0.0/020", "010.0.0.0/8", "10.0.0.0/33", "::/0", "10.0.0.0", "a/8"])
def test_a_range_is_written_in_one_way(cidr: str) -> None:
    (error,) = errors(raw(network={"nodes_cidr": cidr}))
    assert error.path == below("network.nodes_cidr")


def changed(key: str, value: object) -> dict[str, Any]:
    queue = {"namespaces": ["a"], "slices": {"s": 1}}
    places: dict[str, Callable[[], dict[str, Any]]] = {
        "priority": lambda: {"priorities": {"p": value}},
        "retries": lambda: {"software": {"kueue": {"retries": value}}},
        "weight": lambda: {"queues": {"q": queue | {"weight": value}}},
        "price": lambda: {"prices": {"v6e": {"usd_per_chip_hour": value, "as_of": "2026-01-01", "source": "s"}}},
        "disk": lambda: {"cluster": {"system_pool": {"disk_size_gb": value}}},
        "reservation": lambda: {
            "slices": {"s": V6E | {"capacity": {"model": "reservation", "name": "r", "project": value}}}
        },
        "queue": lambda: {"queues": {value: queue}},
        "namespace": lambda: {"namespaces": [value]},
        "tags": lambda: {"slices": {"s": V6E | {"tags": value}}},
    }
    return raw({"s": V6E}) | places[key]()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("priority", 3 * 10**9),
        ("retries", 10**12),
        ("weight", float("inf")),
        ("weight", float("nan")),
        ("price", 1e308),
        ("disk", 1),
        ("disk", 10**18),
        ("reservation", "A B/../x"),
        ("queue", "a" * 64),
        ("namespace", "a" * 64),
        ("tags", [f"t{index}" for index in range(65)]),
    ],
)
def test_what_apis_refuse_late_is_refused_here(key: str, value: object) -> None:
    (error,) = errors(changed(key, value))
    assert error.hint


def test_a_platform_of_json_is_read_from_text_too(tmp_path: Path) -> None:
    """`pulumi config set platform '{...}'` keeps it as text."""
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text('config:\n  gcp:project: my-project\n  platform: \'{"zone": "us-east5-b", "slices": {}}\'\n')
    assert load_stack_file(path).zone == "us-east5-b"
    assert load_platform(given('{"zone": "us-east5-b"}'), project=PROJECT).zone == "us-east5-b"


@pytest.mark.parametrize("key", ["<nil>", "<all>", "<counts>", "<", "[key]", "gke", "spot"])
@pytest.mark.parametrize(
    "place", ["", "cluster", "slices", "slices.s", "slices.s.capacity", "queues.q.borrow", "labels"]
)
def test_a_key_that_looks_like_a_note_of_the_validator(key: str, place: str) -> None:
    """A `? ` without text is the key <nil>, and ended in a traceback."""
    platform = raw({"s": V6E | {"capacity": {"model": "spot"}}}, cluster={}, labels={})
    platform["queues"] = {"q": {"namespaces": ["a"], "slices": {"s": 1}, "borrow": {"s": 0}, "cohort": "c"}}
    container: Any = platform
    for part in place.split(".") if place else ():
        container = container[part]
    container[key] = {"<nil>": 1}
    found = [error.path for error in errors(platform)]
    expected = below(f"{place}.{key}".removeprefix("."))
    assert any(path == expected or path.startswith(f"{expected}.") for path in found), found
