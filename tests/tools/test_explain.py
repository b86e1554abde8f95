"""`python -m tools explain`: what people read, what machines read, and how it fails."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from tests.platforms import EXISTING, EXISTING_NETWORK, SELF_MANAGED
from tools.__main__ import app

V6E = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}
SLICES = {
    "train": V6E | {"count": 2, "capacity": {"model": "reservation", "name": "r"}},
    "batch": V6E | {"capacity": "queued"},
    "serve": {"machine_type": "ct6e-standard-1t", "topology": "1x1", "count": 3, "capacity": "spot"},
    "iron": {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"},
}


def explain(*arguments: str | Path) -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, ["explain", *map(str, arguments)])


@pytest.fixture
def stack_file(stack_file: Any) -> Any:
    """The same with `SLICES`, where a test names none."""

    def write(slices: Any = None, **platform: Any) -> Any:
        return stack_file(SLICES if slices is None else slices, **platform)

    return write


def test_json(stack_file: Any) -> None:
    result = explain("-f", stack_file(allow_unlisted_zone=True), "--json")
    assert result.exit_code == 0
    document = json.loads(result.output)
    assert list(document) == [
        "cluster",
        "inside",
        "slices",
        "waits",
        "from_the_start",
        "on_demand",
        "policies",
        "groups",
        "queues",
        "unowned_slices",
        "teams",
        "images",
        "monitoring",
        "quotas",
        "totals",
        "costs_per_hour_usd",
        "warnings",
    ]
    assert document["cluster"] == {"kind": "gke", "backend": "gke", "location": "us-east5"}
    assert document["inside"] == {"installed": ["jobset", "lws", "namespaces"], "provided": []}
    assert document["groups"] == []
    assert document["monitoring"]["alerts"] == []
    assert "Stockouts in an hour" in document["monitoring"]["charts"]
    by_name = {entry["name"]: entry for entry in document["slices"]}
    assert by_name["train"] == {
        "name": "train",
        "group": "train",
        "generation": "v6e",
        "machine_type": "ct6e-standard-4t",
        "topology": "4x4",
        "count": 2,
        "hosts_per_slice": 4,
        "chips_per_host": 4,
        "chips_per_slice": 16,
        "group_hosts": 8,
        "group_chips": 32,
        "capacity": "reservation",
        "placement": {"type": "COMPACT", "topology": "4x4", "policy": None},
        "backend": "gke",
        "provisioning": "fixed",
        "pools": [{"nodes": 4, "min": None, "max": None}] * 2,
        "group_price_per_hour_usd": 86.4,
        "group_price_is_upper_bound": False,
        "group_quota": None,
    }
    assert by_name["batch"]["group_price_is_upper_bound"]
    assert document["waits"]["batch"] == "up to 365 days"
    assert document["from_the_start"]["slices"] == {"iron": 2, "serve": 3, "train": 8}
    assert document["from_the_start"]["cpu_pools"][0]["name"] == "system"
    assert document["on_demand"].keys() == {"batch"}
    assert (document["queues"], document["unowned_slices"]) == ({}, {})
    assert by_name["batch"]["pools"] == [{"nodes": None, "min": 0, "max": 4}]
    assert by_name["serve"]["placement"] is None
    assert by_name["serve"]["group_quota"] == {
        "metric": "PREEMPTIBLE-TPU-V6E-per-project-region",
        "region": "us-east5",
        "chips": 3,
    }
    assert by_name["iron"]["placement"] == {"type": "", "topology": "2x2x2", "policy": "tpu-2x2x2"}
    assert by_name["iron"]["group_price_per_hour_usd"] is None
    assert document["policies"] == [{"name": "tpu-2x2x2", "topology": "2x2x2", "mode": None}]
    totals = document["totals"]
    assert (totals["slices"], totals["hosts"], totals["chips"]) == (7, 8 + 4 + 3 + 2, 32 + 16 + 3 + 8)
    assert totals["hbm_gib"] == 51 * 32 + 8 * 192
    assert totals["price_per_hour_usd"] is None
    assert {"path", "message", "hint"} == set(document["warnings"][0])


def test_table(stack_file: Any) -> None:
    result = explain("-f", stack_file({name: SLICES[name] for name in ("train", "serve")}))
    assert result.exit_code == 0
    for text in (
        "GKE REGULAR in us-east5, slices in us-east5-b",
        "2 x v6e 4x4",
        "ct6e-standard-4t",
        "1.0 TiB HBM",
        "29.4 PFLOP/s bf16",
        "86.40 USD/h",
        "63,072 USD/month",
        "total: 5 slices, 11 hosts, 35 chips",
        "quota: PREEMPTIBLE-TPU-V6E-per-project-region in us-east5: 3 chips (serve)",
    ):
        assert text in result.output


def test_a_budget_is_shown(stack_file: Any) -> None:
    budget = {"billing_account": "01ABCD-23EF45-678901", "amount": 20_000}
    path = stack_file(allow_unlisted_zone=True, monitoring={"budget": budget})
    assert "a budget of 20,000 USD/month" in " ".join(explain("-f", path).output.split())
    shown = json.loads(explain("-f", path, "--json").output)["monitoring"]["budget"]
    assert shown.items() >= {**budget, "of": "project", "spent": [0.5, 0.9, 1.0]}.items()


@pytest.fixture
def without_gke(stack_file: Any) -> Path:
    """A platform on Compute Engine: two slices of several hosts, and single hosts."""
    slices = {name: SLICES[name] for name in ("train", "serve")}
    path: Path = stack_file(slices, cluster=SELF_MANAGED | {"control_plane": {"replicas": 3, "backups": True}})
    return path


def test_json_without_gke(without_gke: Path) -> None:
    document = json.loads(explain("-f", without_gke, "--json").output)
    assert document["cluster"] == {"kind": "self-managed", "backend": "compute", "location": "us-east5-b"}
    assert {entry["name"]: entry["backend"] for entry in document["slices"]} == {"serve": "compute", "train": "compute"}
    assert [(group["name"], group["size"], group["mode"]) for group in document["groups"]] == [
        ("tpu-serve", 3, "INDIVIDUAL"),
        ("tpu-train-0", 4, "BULK"),
        ("tpu-train-1", 4, "BULK"),
    ]
    assert document["groups"][1]["policy"] == "tpu-4x4"
    assert document["groups"][1]["provisioning_model"] == "RESERVATION_BOUND"
    assert document["groups"][0]["hosts"] == ["tpu-serve-w-0001", "tpu-serve-w-0002", "tpu-serve-w-0003"]
    assert document["policies"] == [{"name": "tpu-4x4", "topology": "4x4", "mode": None}]


def test_table_without_gke(without_gke: Path) -> None:
    output = explain("-f", without_gke).output
    for text in (
        "self-managed Kubernetes 1.34.2, control plane on 3 machines in us-east5, slices in us-east5-b",
        "all hosts at once",
        "minutes if the reservation is free",
        "up to an hour",
    ):
        assert text in output
    assert "GKE" not in output


def test_a_cluster_of_somebody_else(stack_file: Any) -> None:
    path = stack_file({"serve": SLICES["serve"]}, cluster=EXISTING, network=EXISTING_NETWORK)
    assert f"existing Kubernetes cluster at {EXISTING['server']}" in explain("-f", path).output
    assert [text for text in pictured(path) if text == "system"] == []


def test_what_a_cluster_has_and_what_is_put_into_it(stack_file: Any) -> None:
    cluster = EXISTING | {"provides": ["jobset", "kueue"]}
    path = stack_file({"serve": SLICES["serve"]}, cluster=cluster, network=EXISTING_NETWORK)
    printed = explain("-f", path).output
    assert "put into the cluster: device-plugin, lws, namespaces" in printed
    # Without queues nothing uses Kueue, there or not.
    assert "in the cluster already: jobset\n" in printed


def test_svg_without_gke_has_a_control_plane(without_gke: Path) -> None:
    texts = pictured(without_gke)
    assert {"control plane", "3 machines in us-east5-b", "internal address, backups", "2 nodes"} <= set(texts)
    assert "placed by tpu-4x4" in texts


def pictured(path: Path) -> list[str | None]:
    document = ElementTree.fromstring(explain("-f", path, "--svg").output)
    return [element.text for element in document.iter("{http://www.w3.org/2000/svg}text")]


def test_warnings_are_shown(stack_file: Any) -> None:
    assert "warning: tpu-platform:platform.protect" in explain("-f", stack_file({}, protect=False)).output


def test_errors_as_json(stack_file: Any) -> None:
    result = explain("-f", stack_file({"s": V6E | {"topology": "3x3"}}), "--json")
    assert result.exit_code == 1
    assert json.loads(result.output) == {
        "errors": [
            {
                "path": "tpu-platform:platform.slices.s.topology",
                "message": "v6e has no topology 3x3",
                "hint": "for example 2x2 (4 chips) or 2x4 (8 chips)",
                "line": 7,
            }
        ]
    }


def test_errors_for_people(stack_file: Any) -> None:
    result = explain("-f", stack_file({"s": V6E | {"topology": "3x3"}}))
    assert result.exit_code == 1
    assert "v6e has no topology 3x3" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("-s", "dev", "-f", "x"),
        ("-s", "no-such-stack"),
        ("-f", "no-such-file"),
        ("-s", "dev", "--json", "--svg"),
        ("--no-such-option",),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    result = explain(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_stack_of_the_project() -> None:
    assert "serve" in explain("-s", "dev").output


def test_svg_is_a_picture_of_every_pool(stack_file: Any) -> None:
    texts = pictured(stack_file(allow_unlisted_zone=True))
    assert {"system", *SLICES} <= set(texts)
    assert "placed by tpu-2x2x2" in texts


def test_svg_shows_queues_and_cost(stack_file: Any) -> None:
    queues = {
        "research": {"namespaces": ["team-a", "team-b", "team-c"], "slices": {"train": 1}, "borrow": {"train": 1}},
        "production": {"namespaces": ["prod"], "slices": {"train": 0}, "lend": False},
    }
    texts = pictured(stack_file({"train": V6E | {"count": 2}}, queues=queues))
    at = texts.index("queue research")
    assert texts[at + 1 : at + 6] == [
        "for team-a, team-b and 1 more",
        "owns 1 x train",
        "can reach 1 x train",
        "borrows: up to 1 x train",
        "lends: what is idle; weight 1",
    ]
    at = texts.index("queue production")
    assert texts[at + 1 : at + 6] == [
        "for prod",
        "owns nothing",
        "can reach nothing",
        "borrows: nothing",
        "lends: nothing; weight 1",
    ]
    at = texts.index("controllers")
    assert texts[at + 1] == "installed: jobset, kueue, lws"
    (cost,) = [text for text in texts if text and text.endswith(" USD/h")]
    assert [text for text in texts if text and f"{cost} while all run" in text]


@pytest.mark.parametrize(
    "cluster", [{}, SELF_MANAGED | {"cpu_pools": {"head": {"machine_type": "n2-standard-4", "min": 1}}}]
)
def test_mermaid_joins_policies_to_their_slices(stack_file: Any, cluster: dict[str, Any]) -> None:
    path = stack_file({"iron": SLICES["iron"], "serve": SLICES["serve"]}, allow_unlisted_zone=True, cluster=cluster)
    lines = explain("-f", path, "--mermaid").output.splitlines()
    assert lines[0] == "flowchart LR"
    (box,) = [line.split("[")[0].split()[-1] for line in lines if '["iron<br/>' in line]
    assert f"  policy_tpu_2x2x2 -.-> {box}" in lines


SHARED: dict[str, Any] = {
    "slices": {
        "train": V6E | {"count": 4, "capacity": "spot"},
        "serve": {"machine_type": "ct6e-standard-1t", "topology": "1x1", "count": 3, "capacity": "spot"},
        "batch": V6E | {"capacity": "flex-start"},
    },
    "queues": {
        "research": {
            "namespaces": ["a", "b", "c", "d"],
            "slices": {"train": 2, "serve": 1},
            "borrow": True,
            "weight": 3,
        },
        "product": {"namespaces": ["p"], "slices": {"train": 1}},
    },
}


def test_svg_says_once_that_the_price_of_a_chip_is_unknown(stack_file: Any) -> None:
    path = stack_file({"iron": SLICES["iron"]}, allow_unlisted_zone=True)
    assert "slices in us-east5-b: cost unknown" in pictured(path)


def test_svg_shows_two_costs_where_slices_come_and_go(stack_file: Any) -> None:
    texts = pictured(stack_file(**SHARED))
    assert "slices in us-east5-b: at most 133.65 USD/h while all run, 90.45 USD/h while nothing runs" in texts
    assert "at most 43.20 USD/h" in texts


def test_a_reservation_that_has_not_begun_costs_nothing_yet(stack_file: Any) -> None:
    later = {"model": "reservation", "name": "my-res", "active": False}
    shape = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}
    path = stack_file({"now": {**shape, "capacity": "spot"}, "later": {**shape, "capacity": later}})
    text = " ".join(explain("-f", path).output.split())
    assert "21.60 USD/h, whether jobs run or not; 64.80 USD/h when the reservation of later has begun" in text
    document = json.loads(explain("-f", path, "--json").output)
    assert document["costs_per_hour_usd"] == {"idle": 21.6, "full": 64.8, "is_upper_bound": False}
    assert document["from_the_start"]["slices"] == {"later": 0, "now": 4}
    assert document["waits"]["later"].startswith("until the reservation begins")


def test_people_read_who_gets_which_slices(stack_file: Any) -> None:
    lines = explain("-f", stack_file(**SHARED)).output.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("queue "))
    assert [line.split() for line in lines[at : at + 5] if "\N{BOX DRAWINGS LIGHT HORIZONTAL}" not in line] == [
        ["queue", "namespaces", "owns", "can", "reach", "weight"],
        ["product", "p", "1", "x", "train", "1", "1"],
        ["research", "a,", "b,", "c", "and", "1", "more", "1", "x", "serve", "1", "3"],
        ["2", "x", "train", "3,", "1", "borrowed"],
    ]
    text = " ".join(" ".join(lines).split())
    assert any("43.20 USD/h" in line and "at most" in before for before, line in pairwise(lines))
    for words in (
        "cohort tpu: product, research lend each other",
        "in no queue: 1 slice of train; pods in tpu-workloads can use them past the queues",
        "in no queue: 2 slices of serve",
        "from the start: slices serve (3 hosts), train (16 hosts); CPU nodes system (2 to 10 x e2-standard-4)",
        "on demand: batch: from the start node pools without hosts; GKE adds",
        "at most: flex-start and queued are sold below the list price",
        "1 of 4 slices belongs to no queue: Kueue gives out only what queues own, for 21.60 USD/h",
    ):
        assert words in text, words


def test_machines_read_the_same_of_queues(stack_file: Any) -> None:
    document = json.loads(explain("-f", stack_file(**SHARED), "--json").output)
    assert document["queues"]["research"] == {
        "cohort": "tpu",
        "namespaces": ["a", "b", "c", "d"],
        "weight": 3,
        "borrow": True,
        "lend": True,
        "slices": [
            {"groups": ["serve"], "owns": 1, "lent": 0, "most": 1},
            {"groups": ["train"], "owns": 2, "lent": 1, "most": 3},
        ],
    }
    assert document["unowned_slices"] == {"train": 1, "serve": 2, "batch": 1}
    assert document["costs_per_hour_usd"] == {"idle": 90.45, "full": 133.65, "is_upper_bound": True}
    assert document["quotas"] == [
        {
            "metric": "PREEMPTIBLE-TPU-V6E-per-project-region",
            "region": "us-east5",
            "chips": 16 + 3 + 64,
            "slices": ["batch", "serve", "train"],
        }
    ]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("stack", ["dev", "blueprint", "gce", "ondemand", "provisioner", "team", "recipe"])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_cut(stack: str, width: int) -> None:
    result = CliRunner(env={"COLUMNS": str(width)}).invoke(app, ["explain", "-s", stack])
    assert max(map(len, result.output.splitlines())) <= width
    document = json.loads(explain("-s", stack, "--json").output)
    for plan in document["slices"]:
        for word in (plan["name"], plan["machine_type"], plan["capacity"]):
            assert word in result.output
        if plan["provisioning"] != "fixed":
            assert plan["provisioning"] in result.output


def test_the_same_warning_is_given_once_with_all_its_places(stack_file: Any) -> None:
    bare = {f"s{number}": V6E for number in range(20)}
    text = explain("-f", stack_file(bare)).output
    assert text.count("on-demand is assumed") == 1
    assert "also slices.s1.capacity" in text
    assert "and 13 more" in text
    assert len(json.loads(explain("-f", stack_file(bare), "--json").output)["warnings"]) >= 20


TEAMS: dict[str, Any] = {
    "allow_unlisted_zone": True,
    "teams": {
        "research": {
            "members": ["user:eva@example.com"],
            "storage": {
                "checkpoints": {"mount": "/checkpoints"},
                "scratch": {"keep": False, "expire": "7d"},
                "data": {"bucket": "acme-c4"},
                "weights": {"disk": "gemma", "mount": "/weights"},
            },
            "secrets": {"HF_TOKEN": "hf-token"},
        },
        "idle": {},
    },
    "queues": {"q": {"namespaces": ["research"], "slices": {"train": 1}}},
    "images": {"ml": {}, "hub": {"mirror": "docker-hub"}},
}


def test_people_read_who_may_do_what_and_what_destroy_keeps(stack_file: Any) -> None:
    text = " ".join(explain("-f", stack_file(**TEAMS)).output.split())
    for words in (
        "team research: user:eva@example.com may submit jobs through q, in namespace research only",
        "checkpoints: gs://my-project_tpu_research_checkpoints, members and pods write; mounted in jobs at /checkpoints"
        " (use: checkpoints); kept on destroy, with all objects",
        "data: gs://acme-c4, members and pods read; exists, never changed or deleted",
        "weights: disk gemma in us-east5-b, pods read, in jobs at /weights; exists, never changed or deleted",
        "costs by the hour, used or not: the size and the throughput of each disk",
        "DELETED WITH ALL OBJECTS on destroy; objects are deleted after 7 days",
        "secrets: HF_TOKEN from hf-token",
        "team idle: nobody may submit jobs, in namespace idle only",
        "images hub: us-east5-docker.pkg.dev/my-project/tpu-hub; hosts and members of teams pull",
        "images ml: us-east5-docker.pkg.dev/my-project/tpu-ml; hosts and members of teams pull,"
        " members of research push; deleted with its images on destroy",
        "no cost: namespaces",
        "deleted objects for seven more days",
    ):
        assert words in text


def test_a_bucket_that_was_taken_over_is_told_from_one_of_others(stack_file: Any) -> None:
    own = "my-project_tpu_a_d"
    for bucket, words in ((own, "taken over from an earlier run"), ("my-project_tpu_a_e", "exists, never changed")):
        file = stack_file(allow_unlisted_zone=True, teams={"a": {"storage": {"d": {"bucket": bucket}}}})
        assert f"d: gs://{bucket}, members and pods read; {words}" in " ".join(explain("-f", file).output.split())


def test_machines_read_the_same_of_teams(stack_file: Any) -> None:
    document = json.loads(explain("-f", stack_file(**TEAMS), "--json").output)
    research = document["teams"]["research"]
    assert (research["members"], research["queues"]) == (["user:eva@example.com"], ["q"])
    assert research["secrets"] == {"HF_TOKEN": "hf-token"}
    assert {name: store["kept_on_destroy"] for name, store in research["storage"].items()} == {
        "checkpoints": True,
        "data": True,
        "scratch": False,
        "weights": True,
    }
    assert research["storage"]["weights"]["address"].endswith("/disks/gemma")
    assert research["storage"]["data"]["access"] == "read"
    assert document["images"]["ml"] == "us-east5-docker.pkg.dev/my-project/tpu-ml"


def test_without_teams_nothing_is_said_of_them(stack_file: Any) -> None:
    assert "no cost: namespaces" not in explain("-f", stack_file(allow_unlisted_zone=True)).output


def test_two_costs_say_of_which_capacity_they_are() -> None:
    shown = " ".join(explain("-s", "ondemand").output.split())
    assert "43.20 USD/h, 31,536 USD/month with the first capacity (spot)" in shown
    assert "at most 86.40 USD/h, if all run on flex-start" in shown
