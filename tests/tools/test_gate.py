"""`python -m tools gate`: which losses it knows, who may agree to them, and how it refuses what is no preview."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi.runtime import rpc
from typer.testing import CliRunner, Result

from plan.recreation import HOSTS_MADE_ANEW
from platform_config.platform import PLATFORM_KEY
from platform_config.reading import PROJECT_KEY
from tests.platforms import PROJECT, load, raw
from tools.__main__ import app
from tools.gate import GUARDED
from tools.gate_preview import EFFECTS, STACK_TYPE, UNKNOWN, Effect, PreviewError, read
from tools.gate_report import MOST_ROWS
from tools.generated import ROOT

Json = dict[str, Any]
CLUSTER = "gcp:container/cluster:Cluster"
POOL = "gcp:container/nodePool:NodePool"
SECRET = "gcp:secretmanager/secret:Secret"
# A type of each kind, as the program or a person's own additions would have it.
EXAMPLES = {
    "cluster": CLUSTER,
    "control plane": "gcp:compute/instance:Instance",
    "slice": "gcp:compute/instanceGroupManager:InstanceGroupManager",
    "workload policy": "gcp:compute/resourcePolicy:ResourcePolicy",
    "queue": "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue",
    "controller": "kubernetes:helm.sh/v3:Release",
    "namespace": "kubernetes:core/v1:Namespace",
    "provider": "pulumi:providers:kubernetes",
    "data disk": "gcp:compute/disk:Disk",
    "bucket": "gcp:storage/bucket:Bucket",
    "registry": "gcp:artifactregistry/repository:Repository",
    "volume": "kubernetes:core/v1:PersistentVolumeClaim",
    "limit": "kubernetes:core/v1:ResourceQuota",
    "network policy": "kubernetes:networking.k8s.io/v1:NetworkPolicy",
    "secret's source": "kubernetes:secret-sync.gke.io/v1:SecretSync",
    "secret": SECRET,
    "alert": "gcp:monitoring/alertPolicy:AlertPolicy",
    "key": "gcp:kms/cryptoKey:CryptoKey",
    "network": "gcp:compute/subnetwork:Subnetwork",
    "daemon": "kubernetes:apps/v1:DaemonSet",
    "device class": "kubernetes:resource.k8s.io/v1:DeviceClass",
    "admission policy": "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy",
    "configuration": "kubernetes:core/v1:ConfigMap",
    "identity": "gcp:serviceaccount/account:Account",
    "right": "gcp:projects/iAMMember:IAMMember",
}
# What the program registers and the gate lets go, and why.
FREE = {
    "gcp:projects/service:Service": "stays enabled (disableOnDestroy: false)",
    "gcp:logging/metric:Metric": "counts from its first entry on; the alert that asks for it is guarded",
    "gcp:logging/projectExclusion:ProjectExclusion": "without it more is kept, not less",
    "gcp:monitoring/dashboard:Dashboard": "made again from the catalogue of queries",
    "gcp:compute/instanceTemplate:InstanceTemplate": "holds nothing; its groups are guarded",
    "gcp:compute/instanceGroup:InstanceGroup": "goes with its machine, or with the front, which are guarded",
    "pulumi:index:Stash": "only remembers that something was awaited",
}
LOSING = sorted(op for op, effect in EFFECTS.items() if effect in (Effect.DELETE, Effect.REPLACE))
KEEPING = sorted(EFFECTS.keys() - LOSING)


def urn(type_: str, name: str) -> str:
    return f"urn:pulumi:prod::tpu-platform::tpu:gke:Slices${type_}::{name}"


def step(op: str, type_: str = POOL, name: str = "slices-train-0", **fields: Any) -> Json:
    state = {"custom": True, "inputs": {}}
    return {"op": op, "urn": urn(type_, name), "oldState": state, "newState": state, **fields}


def states(old: Json, new: Json) -> Json:
    return {"oldState": {"custom": True, "inputs": old}, "newState": {"custom": True, "inputs": new}}


def stack_step(outputs: Json | None = None, op: str = "same") -> Json:
    old = {"custom": False, "outputs": outputs} if outputs is not None else None
    return {"op": op, "urn": f"urn:pulumi:prod::tpu-platform::{STACK_TYPE}::tpu-platform-prod", "oldState": old}


def exported(**platform: Any) -> Json:
    """The outputs of a stack with such a platform."""
    made = load(**platform)
    return {"totals": made.totals, "slices": {plan.name: plan.summary() for plan in made.slice_plans}}


def document(*steps: Json, after: Json | None = None, **fields: Any) -> Json:
    config = {PROJECT_KEY: PROJECT, PLATFORM_KEY: json.dumps(raw() if after is None else after)}
    return {"config": config, "steps": list(steps), "changeSummary": {"same": 1}, **fields}


@pytest.fixture
def gate(tmp_path: Path) -> Any:
    """Runs the gate on a document, or on a text that stands for one."""

    def run(content: Json | str, *arguments: str) -> Result:
        file = tmp_path / "preview.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        result = CliRunner().invoke(app, ["gate", str(file), *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return run


def test_what_is_not_known_yet_has_the_engines_mark() -> None:
    """Written out in the gate, which does without the SDK."""
    assert UNKNOWN == rpc.UNKNOWN


def test_the_page_says_what_is_guarded() -> None:
    table = (ROOT / "docs" / "ci.md").read_text().partition("Guarded are\n\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]
    assert [(kind, loss) for kind, _, loss in rows] == [(guarded.name, guarded.loss) for guarded in GUARDED]


def test_every_guarded_kind_has_an_example() -> None:
    assert EXAMPLES.keys() == {guarded.name for guarded in GUARDED}


def test_guarded_types_are_those_of_the_provider() -> None:
    """A type with a typing error in it would guard nothing."""
    exact = {type_ for guarded in GUARDED for type_ in guarded.types if type_[-1] not in "/:"}
    for type_ in sorted(exact | set(EXAMPLES.values())):
        package, module, name = type_.split(":")
        if package == "gcp":
            resource = getattr(import_module(f"pulumi_gcp.{module.partition('/')[0]}"), name)
            assert resource.pulumi_type == type_


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize("op", ["delete", "replace"])
def test_each_guarded_kind_is_stopped(gate: Any, kind: str, op: str) -> None:
    result = gate(document(step(op, EXAMPLES[kind], "it")), "--json")
    [finding] = json.loads(result.stdout)["findings"]
    assert result.exit_code == 1
    assert (finding["kind"], finding["operation"], finding["name"]) == (kind, op, "it")


@pytest.mark.parametrize("op", LOSING)
def test_each_losing_operation_is_stopped(gate: Any, op: str) -> None:
    assert gate(document(step(op))).exit_code == 1


@pytest.mark.parametrize("op", KEEPING)
def test_each_keeping_operation_passes(gate: Any, op: str) -> None:
    assert gate(document(step(op))).exit_code == 0


@pytest.mark.parametrize(
    "type_",
    [
        "gcp:projects/service:Service",
        "gcp:compute/instanceTemplate:InstanceTemplate",
        "kubernetes:core/v1:ConfigMapList",
        "gcp:container/clusterOther:ClusterOther",
    ],
)
def test_what_is_not_guarded_may_go(gate: Any, type_: str) -> None:
    result = gate(document(step("delete", type_)), "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["resources"][type_]["delete"] == 1


def test_the_steps_of_a_replacement_are_one_finding(gate: Any) -> None:
    steps = [step(op) for op in ("create-replacement", "replace", "delete-replaced")]
    verdict = json.loads(gate(document(*steps), "--json").stdout)
    assert [finding["operation"] for finding in verdict["findings"]] == ["replace"]
    assert verdict["resources"][POOL] == {"create": 0, "update": 0, "delete": 0, "replace": 1}


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        (
            {
                **states({"nodeConfig": {"machineType": "a"}}, {"nodeConfig": {"machineType": "b"}}),
                "detailedDiff": {"nodeConfig.machineType": {"kind": "update-replace"}, "nodeCount": {"kind": "update"}},
            },
            ["machine_type: a -> b"],
        ),
        (
            {**states({"zone": "z"}, {"zone": UNKNOWN}), "replaceReasons": ["zone"]},
            ["zone: z -> known after the update"],
        ),
        ({**states({"list": [1]}, {"list": [2]}), "replaceReasons": ["list"]}, ["list"]),
        ({"oldState": {"custom": True, "dependencies": [urn(CLUSTER, "gke"), urn(POOL, "x")]}}, ["follows gke"]),
        ({"oldState": {"custom": True, "deletedWith": urn(CLUSTER, "gke")}}, ["follows gke"]),
        ({"detailedDiff": None}, []),
    ],
    ids=["forcing property", "unknown value", "long value", "dependency", "deleted with", "asked for"],
)
def test_a_replacement_says_what_caused_it(gate: Any, fields: Json, causes: list[str]) -> None:
    verdict = json.loads(gate(document(step("delete", CLUSTER, "gke"), step("replace", **fields)), "--json").stdout)
    assert [finding["causes"] for finding in verdict["findings"]] == [[], causes]


def test_values_of_secrets_and_of_the_configuration_are_not_printed(gate: Any) -> None:
    replaced = step(
        "replace", SECRET, replaceReasons=["secretId"], **states({"secretId": "hush-1"}, {"secretId": "hush-2"})
    )
    content = document(replaced, after=raw(zon="hush-3"))
    content["config"]["gcp:accessToken"] = "hush-4"
    for form in ((), ("--json",)):
        result = gate(content, *form)
        assert "secretId" in result.stdout
        assert "hush" not in result.output


def test_an_allowance_is_for_one_resource(gate: Any) -> None:
    content = document(step("delete", name="a"), step("delete", name="b"))
    stopped = gate(content, "--allow", "a", "--json")
    assert stopped.exit_code == 1
    assert "\n--allow b\n" in gate(content, "--allow", "a").stdout
    assert "\n/allow prod/b @abc\n" in gate(content, "--allow", "a", "--commit", "abc").stdout
    assert {each["name"]: each["allowed"] for each in json.loads(stopped.stdout)["findings"]} == {"a": True, "b": False}
    assert gate(content, "--allow", "a", "--allow", urn(POOL, "b")).exit_code == 0


@pytest.mark.parametrize("name", ["c", "slices-*", "kept", "", "A"])
def test_an_allowance_that_matches_nothing_is_an_error(gate: Any, name: str) -> None:
    result = gate(document(step("delete", name="a"), step("update", name="kept")), "--allow", name)
    assert result.exit_code == 2
    assert "--allow" in result.stderr
    assert "which is: a" in result.stderr
    assert not result.stdout


def test_a_consent_that_matches_nothing_is_noted_and_consents_to_nothing(gate: Any) -> None:
    content = document(step("delete", name="a"), step("update", name="kept"))
    summary = gate(content, "--consent", "c", "--consent", "kept")
    assert summary.exit_code == 1
    assert "consent to c names nothing that this preview gives up, which is: a" in summary.stdout
    assert "consent to kept names nothing" in summary.stdout
    agreed = gate(content, "--consent", "c", "--consent", "a", "--json")
    assert agreed.exit_code == 0
    assert len(json.loads(agreed.stdout)["notes"]) == 1
    assert gate(document(step("same", name="a")), "--consent", "a").exit_code == 0


def test_a_consent_that_means_several_resources_consents_to_none(gate: Any) -> None:
    content = document(step("delete", name="a"), step("delete", CLUSTER, "a"))
    summary = gate(content, "--consent", "a")
    assert summary.exit_code == 1
    assert "consent to a means several resources" in summary.stdout


def test_an_ambiguous_allowance_asks_for_the_urn(gate: Any) -> None:
    content = document(step("delete", name="a"), step("delete", CLUSTER, "a"))
    result = gate(content, "--allow", "a")
    assert result.exit_code == 2
    assert urn(CLUSTER, "a") in result.stderr
    assert f"\n--allow '{urn(CLUSTER, 'a')}'\n" in gate(content).stdout
    assert gate(content, "--allow", urn(CLUSTER, "a"), "--allow", urn(POOL, "a")).exit_code == 0


def lost(*names: str, op: str = "delete", type_: str = POOL) -> list[Json]:
    return [step(op, type_, name) for name in names]


def allowed(result: Result) -> set[str]:
    return {each["name"] for each in json.loads(result.stdout)["findings"] if each["allowed"]}


SLICES = [f"slices-train-{index}" for index in (*range(12), 20)]


def test_a_pattern_is_for_the_numbers_of_one_name(gate: Any) -> None:
    others = [
        "slices-train-big-0",
        "slices-training-0",
        "slices-train-01",
        "slices-train-1-0",
        "slices-train-x",
        "slices-train-",
    ]
    content = document(*lost(*SLICES, *others))
    for form in ("slices-train-*", "slices-train-*(13)", "slices-train-*(99)"):
        for option in ("--allow", "--consent"):
            if (form, option) != ("slices-train-*", "--consent"):
                assert allowed(gate(content, option, form, "--json")) == set(SLICES), (form, option)
    summary = gate(content, "--allow", "slices-train-*(13)").stdout
    assert (
        "- `slices-train-*(13)` agrees to 13 resources: `slices-train-0 to slices-train-11, slices-train-20`" in summary
    )
    assert "| - slice | `slices-train-0 to slices-train-11, slices-train-20` (13) are deleted |" in summary
    patterns = json.loads(gate(content, "--allow", "slices-train-*", "--json").stdout)["patterns"]
    assert patterns == {"slices-train-*": [urn(POOL, name) for name in sorted(SLICES)]}


def test_the_gate_prints_the_pattern_that_it_takes(gate: Any) -> None:
    content = document(*lost(*SLICES, "slices-big-0"), *lost("queue-0", "queue-1", type_=EXAMPLES["queue"]))
    summary = gate(content, "--commit", "abc").stdout
    block = summary.partition("```text\n")[2].partition("\n```")[0].splitlines()
    handles = ["slices-big-0", "slices-train-*(13)", "queue-*(2)"]
    assert block == [f"/allow prod/{handle} @abc" for handle in handles]
    by_hand = gate(content).stdout.partition("```text\n")[2].partition("\n```")[0].splitlines()
    assert by_hand == ["--allow slices-big-0", "--allow 'slices-train-*(13)'", "--allow 'queue-*(2)'"], (
        "quoted for a shell"
    )
    assert gate(content, *(word for handle in handles for word in ("--consent", handle))).exit_code == 0
    rest = gate(content, "--allow", SLICES[0]).stdout
    assert "--allow 'slices-train-*(13)'" in rest, "what is allowed already does not need another form"


@pytest.mark.parametrize(
    ("steps", "pattern", "why"),
    [
        (lost(*SLICES), "slices-train-*", "does not say for how many"),
        (lost(*SLICES), "slices-train-*(12)", "means 13 resources, and not 12 at most"),
        (lost(*SLICES), "slices-train-*(0)", "is no pattern"),
        (lost(*SLICES), "slices-train-*(013)", "is no pattern"),
        (lost(*SLICES), "slices-train-*(-1)", "is no pattern"),
        (lost(*SLICES), "slices-train-*(1e9)", "is no pattern"),
        (lost(*SLICES), "slices-train-*(13)x", "is no pattern"),
        (lost(*SLICES), "slices-*-0(99)", "is no pattern"),
        (lost(*SLICES), "slices-*(99)", "names nothing"),
        (lost(*SLICES), "*(99)", "is no pattern"),
        (lost(*SLICES), "-*(99)", "is no pattern"),
        (lost(*SLICES), "**(99)", "is no pattern"),
        (lost(*SLICES), "slices-*-*(99)", "is no pattern"),
        (lost(*SLICES), "slices-train*(99)", "is no pattern"),
        (lost(*SLICES), "slices-train-?(99)", "names nothing"),
        (lost(*SLICES), "slices-train-[0-9](99)", "names nothing"),
        (lost(*SLICES), "SLICES-TRAIN-*(99)", "names nothing"),
        (lost(*SLICES), urn(POOL, "slices-train-*(99)"), "names nothing"),
        (lost(*SLICES), "slices-train-*\n(99)", "is no pattern"),
        (lost("a-0") + lost("a-1", type_=CLUSTER), "a-*(2)", "resources of several types"),
        (lost("a-0", type_=SECRET) + lost("a-0"), "a-*(2)", "resources of several types"),
        (lost("a-\u0661", "a-\u00b2"), "a-*(2)", "names nothing"),
        (lost("a-0", op="update"), "a-*(2)", "names nothing"),
        ([], "a-*(2)", "which is: nothing"),
    ],
)
def test_a_pattern_that_says_too_little_consents_to_nothing(
    gate: Any, steps: list[Json], pattern: str, why: str
) -> None:
    consent = gate(document(*steps), "--consent", pattern, "--json")
    assert allowed(consent) == set()
    assert json.loads(consent.stdout)["patterns"] == {}
    assert any(why in note for note in json.loads(consent.stdout)["notes"]), consent.stdout
    if "how many" not in why:
        assert gate(document(*steps), "--allow", pattern).exit_code == 2


def test_a_pattern_is_no_pattern_where_a_resource_has_that_name(gate: Any) -> None:
    content = document(*lost("a-*", "a-0", "a-1", "a-*(2)"))
    assert allowed(gate(content, "--consent", "a-*", "--json")) == {"a-*"}
    result = gate(content, "--consent", "a-*(2)", "--json")
    assert (allowed(result), json.loads(result.stdout)["patterns"]) == ({"a-*(2)"}, {})


def test_a_consent_does_not_grow_with_the_slices(gate: Any) -> None:
    """Between the consent and the deployment another pull request doubles the slices: nobody has agreed to these."""
    assert gate(document(*lost("a-0", "a-1")), "--consent", "a-*(2)").exit_code == 0
    assert gate(document(*lost("a-1")), "--consent", "a-*(2)").exit_code == 0, "a deployment that stopped half-way"
    grown = gate(document(*lost("a-0", "a-1", "a-2")), "--consent", "a-*(2)", "--json")
    assert (grown.exit_code, allowed(grown)) == (1, set())
    twice = gate(document(*lost("a-0", "a-1", "a-2")), "--consent", "a-*(2)", "--consent", "a-*(1)", "--json")
    assert allowed(twice) == set(), "consents do not add up"


NODE = {"spot": True, "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"}}
RESERVED = {"consumeReservationType": "SPECIFIC_RESERVATION", "values": ["res-a"]}


@pytest.mark.parametrize(
    ("old", "new", "paths", "causes"),
    [
        (
            {"nodeConfig": NODE},
            {"nodeConfig": {**NODE, "spot": None, "flexStart": True, "maxRunDuration": "86400s"}},
            ["nodeConfig.spot", "nodeConfig.flexStart", "nodeConfig.maxRunDuration"],
            ["capacity: spot -> flex-start", "nodeConfig.maxRunDuration"],
        ),
        (
            {"nodeConfig": NODE},
            {"nodeConfig": {"reservationAffinity": RESERVED}},
            ["nodeConfig.spot", "nodeConfig.reservationAffinity.values", "nodeConfig.reservationAffinity.key"],
            ["capacity: spot -> reservation res-a"],
        ),
        (
            {"nodeConfig": {"flexStart": True}},
            {"nodeConfig": {"flexStart": True}, "queuedProvisioning": {"enabled": True}},
            ["queuedProvisioning"],
            ["capacity: flex-start -> queued"],
        ),
        ({"nodeConfig": {}}, {"nodeConfig": {}}, ["nodeConfig.spot"], ["nodeConfig.spot"]),
        (
            {"placementPolicy": {"tpuTopology": "2x4"}, "nodeLocations": ["a"]},
            {"placementPolicy": {"tpuTopology": "4x4"}, "nodeLocations": ["b"]},
            ["placementPolicy.tpuTopology", "nodeLocations"],
            ["topology: 2x4 -> 4x4", "zone: a -> b"],
        ),
    ],
)
def test_a_cause_is_in_the_words_of_the_stack_file(
    gate: Any, old: Json, new: Json, paths: list[str], causes: list[str]
) -> None:
    diff = {path: {"kind": "update-replace"} for path in paths}
    content = document(step("replace", detailedDiff=diff, **states(old, new)))
    [finding] = json.loads(gate(content, "--json").stdout)["findings"]
    assert finding["causes"] == causes


def test_a_group_says_what_changes_in_its_template(gate: Any) -> None:
    group, template = EXAMPLES["slice"], "gcp:compute/instanceTemplate:InstanceTemplate"
    before = {"scheduling": {"provisioningModel": "SPOT"}, "metadata": {"key": "hush"}}
    after = {"scheduling": {"provisioningModel": "FLEX_START"}, "metadata": {"key": "hush-2"}}
    diff = {"scheduling.provisioningModel": {"kind": "update-replace"}, "metadata": {"kind": "update-replace"}}
    made = step("replace", template, "slices-train-template-train", detailedDiff=diff, **states(before, after))
    state = {"custom": True, "inputs": {}, "dependencies": [made["urn"]]}
    replaced = step("replace", group, oldState=state, newState=state, replaceReasons=["versions"])
    result = gate(document(made, replaced), "--json")
    [finding] = json.loads(result.stdout)["findings"]
    assert finding["causes"] == ["versions", "capacity: spot -> flex-start"]
    assert "hush" not in result.stdout


def test_a_preview_can_come_through_a_pipe() -> None:
    def run(content: str | bytes) -> Result:
        return CliRunner().invoke(app, ["gate", "-"], input=content)

    assert run(json.dumps(document(step("same")))).exit_code == 0
    assert run(json.dumps(document(step("delete")))).exit_code == 1
    for broken, why in ((b"\xff\xfe", "not UTF-8"), ("", "is empty"), (json.dumps(document())[:-9], "cut short")):
        result = run(broken)
        assert (result.exit_code, why in result.stderr, "standard input" in result.stderr) == (2, True, True)


def test_totals_before_and_after(gate: Any) -> None:
    slices = {"train": {"machine_type": "ct6e-standard-4t", "topology": "4x4", "count": 2, "capacity": "spot"}}
    content = document(stack_step(exported(slices=slices)), after=raw())
    verdict = json.loads(gate(content, "--json").stdout)
    assert verdict["before"] == {
        "slices": 2,
        "hosts": 8,
        "chips": 32,
        "unpriced": [],
        "price_per_hour_usd": 43.2,
        "quotas": [{"metric": "PREEMPTIBLE-TPU-V6E-per-project-region", "region": "us-east5", "chips": 32}],
    }
    assert (verdict["after"]["chips"], verdict["after"]["price_per_hour_usd"]) == (16, 43.2)
    summary = gate(content).stdout
    assert "| chips | 32 | 16 | -16 |" in summary
    assert "Unchanged while all run: USD per hour 43.20, USD per month 31,536." in summary
    assert "none" not in summary
    as_before = gate(document(stack_step(exported()), after=raw())).stdout
    assert "| while all run" not in as_before
    assert (
        "Unchanged while all run: slices 1, hosts 4, chips 16, USD per hour 43.20, USD per month 31,536, quota "
        in as_before
    )
    assert "| quota PREEMPTIBLE-TPU-V6E-per-project-region in us-east5 | 32 | 0 | -32 |" in summary


def test_your_own_prices_count(gate: Any) -> None:
    rate = {"usd_per_chip_hour": 1, "as_of": "2026-01-01", "source": "contract"}
    verdict = json.loads(gate(document(stack_step({}), after=raw(prices={"v6e": rate})), "--json").stdout)
    assert verdict["after"]["price_per_hour_usd"] == 16


def test_an_unknown_price_is_said(gate: Any) -> None:
    iron = {"iron": {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}}
    after = raw(iron, zone="us-central1-c")
    summary = gate(document(stack_step(exported()), after=after)).stdout
    assert "| USD per hour | 43.20 | unknown | unknown |" in summary
    assert "No price is known for `iron`" in summary


@pytest.mark.parametrize(
    ("content", "side", "reason"),
    [
        (document(step("same")), "before", "does not list the stack"),
        (document(stack_step({"other": 1})), "before", "older version of this one"),
        (document(stack_step({"totals": {"chips": "many"}, "slices": {}})), "before", "older version of this one"),
        (document(stack_step(), after={"zone": "us-east5-b", "slices": {"a": {}}}), "after", "slices.a"),
        ({**document(stack_step()), "config": {}}, "after", "gcp:project"),
        ({**document(stack_step()), "config": {PLATFORM_KEY: "[secret]"}}, "after", "holds a secret"),
    ],
)
def test_totals_that_cannot_be_told_are_said_to_be_unknown(gate: Any, content: Json, side: str, reason: str) -> None:
    result = gate(content, "--json")
    assert result.exit_code == 0
    assert reason in json.loads(result.stdout)[side]["unknown"]
    assert f"{side.capitalize()}: unknown" in gate(content).stdout


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"steps": []}, "lists nothing, not even its stack"),
        ({"changeSummary": {"delete": 5, "same": 3}}, "counts 5 x delete"),
        ({"changeSummary": {"replace": 1, "update": 0}}, "counts 1 x replace"),
        ({"changeSummary": {"vanish": 1}}, "counts 1 x vanish"),
    ],
)
def test_a_preview_that_lists_less_than_it_counts_does_not_pass(gate: Any, changed: Json, says: str) -> None:
    """As one that a filter has gone over: the losses may be in what is missing."""
    result = gate(document(stack_step(), step("update"), step("create")) | changed, "--json")
    assert result.exit_code == 1
    assert says in json.loads(result.stdout)["problems"][0]


def test_half_a_character_and_a_name_of_several_lines_do_not_end_the_summary(gate: Any) -> None:
    message = {"severity": "error", "message": "x\ud800"}
    assert "the preview has errors" in gate(document(step("same"), diagnostics=[message])).stdout
    odd = gate(document(step("delete", name="a\n```\n/allow prod/all")))
    assert odd.exit_code == 1
    assert not [line for line in odd.stdout.splitlines() if line.startswith("/allow")]


def test_closed_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(PreviewError, match="standard input is closed"):
        read(Path("-"))


@pytest.mark.parametrize(("op", "old"), [("create", None), ("same", {})])
def test_a_stack_that_is_not_there_yet_has_nothing(gate: Any, op: str, old: Json | None) -> None:
    assert json.loads(gate(document(stack_step(old, op)), "--json").stdout)["before"]["chips"] == 0


def test_a_stack_that_is_destroyed_has_nothing_left(gate: Any) -> None:
    verdict = json.loads(gate(document(stack_step(exported(), "delete")), "--json").stdout)
    assert (verdict["before"]["chips"], verdict["after"]["chips"]) == (16, 0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"diagnostics": [{"severity": "error", "message": "error: no such zone\nat all\n"}]}, "no such zone\nat all"),
        ({"changeSummary": None}, "cut short"),
        ({"maybeCorrupt": True}, "corrupt"),
    ],
)
def test_a_preview_that_failed_does_not_pass(gate: Any, fields: Json, words: str) -> None:
    content = document(step("delete", name="a"), **fields)
    result = gate(content, "--allow", "a")
    assert result.exit_code == 1
    assert words in result.stdout


def test_what_passes_but_should_be_seen_is_noted(gate: Any) -> None:
    content = document(
        step("update", name="larger", **states({"targetSize": 4}, {"targetSize": 8})),
        step("update", CLUSTER, "open", **states({"deletionProtection": True}, {"deletionProtection": False})),
        diagnostics=[{"severity": "warning", "message": "warning: deprecated"}, {"severity": "info", "message": "hi"}],
    )
    result = gate(content, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["notes"] == [
        "open loses its deletion protection",
        "deprecated",
    ]


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        ({"nodeCount": 4}, {"nodeCount": 0}, "nodeCount: 4 -> 0"),
        ({"targetSize": 8}, {"targetSize": 4}, "targetSize: 8 -> 4"),
        (
            {"autoscaling": {"maxNodeCount": 16}},
            {"autoscaling": {"maxNodeCount": 0}},
            "autoscaling.maxNodeCount: 16 -> 0",
        ),
        (
            {"nodeCount": 4},
            {"autoscaling": {"minNodeCount": 2, "maxNodeCount": 2}},
            "autoscaling.maxNodeCount: 4 -> 2; autoscaling.minNodeCount: 4 -> 2",
        ),
        # Nothing is lost at once, but from now on the autoscaler takes away what stood.
        ({"nodeCount": 4}, {"autoscaling": {"maxNodeCount": 4}}, "autoscaling.minNodeCount: 4 -> 0"),
        (
            {"autoscaling": {"minNodeCount": 4, "maxNodeCount": 4}},
            {"autoscaling": {"minNodeCount": 0, "maxNodeCount": 4}},
            "autoscaling.minNodeCount: 4 -> 0",
        ),
    ],
)
def test_an_update_that_takes_hosts_away_needs_consent(gate: Any, before: Json, after: Json, cause: str) -> None:
    """H2 of security.md: lower bounds passed in silence."""
    content = document(step("update", **states(before, after)))
    result = gate(content, "--json")
    [finding] = json.loads(result.stdout)["findings"]
    assert result.exit_code == 1
    assert (finding["kind"], finding["operation"], "; ".join(finding["causes"])) == ("slice", "update", cause)
    assert "`slices-train-0` is updated: it loses hosts" in gate(content).stdout
    assert gate(content, "--allow", "slices-train-0").exit_code == 0


@pytest.mark.parametrize(
    ("type_", "path"),
    [(type_, path) for type_, paths in HOSTS_MADE_ANEW.items() for path in paths],
)
def test_an_update_that_makes_hosts_anew_counts_as_a_replacement(gate: Any, type_: str, path: str) -> None:
    """H2 of security.md: the boot disk, image streaming, the image, the metadata mode, a group's template."""
    changed = f"{path}[0].instanceTemplate" if path == "versions" else f"{path}.enabled"
    content = document(step("update", type_, detailedDiff={changed: {"kind": "update"}}))
    result = gate(content, "--json")
    [finding] = json.loads(result.stdout)["findings"]
    assert result.exit_code == 1
    assert (finding["operation"], finding["causes"]) == ("update", [changed])
    assert "`slices-train-0` is updated: its hosts are made anew" in gate(content).stdout
    assert gate(content, "--allow", "slices-train-0").exit_code == 0


def test_an_update_that_leaves_the_hosts_alone_passes(gate: Any) -> None:
    paths = {"nodeConfig.labels.a": {"kind": "update"}, "nodeConfig.bootDiskKmsKey": {"kind": "update"}}
    assert gate(document(step("update", detailedDiff=paths))).exit_code == 0


def test_everything_that_the_program_registers_is_guarded_or_free_for_a_reason() -> None:
    """H2 of security.md: NAT, firewalls, backend services and DaemonSets went without a word."""
    types = {
        row["type"]
        for golden in (ROOT / "tests" / "graph" / "goldens").glob("*.yaml")
        for row in yaml.safe_load(golden.read_text()).values()
        if not row["type"].startswith("tpu:")
    }
    assert types
    assert {each for each in types if not any(guarded.covers(each) for guarded in GUARDED)} == FREE.keys()


def test_the_summary_fits_into_a_comment_and_is_no_markup(gate: Any) -> None:
    steps = [step("replace", name=f"slices-train{index}", replaceReasons=["zone"]) for index in range(1000)]
    content = document(
        *steps,
        diagnostics=[{"severity": "warning", "message": f"`@all` | <b> {index}" + "x" * 9000} for index in range(99)],
    )
    summary = gate(content).stdout
    assert len(summary) < 65536
    assert f"and {1000 - MOST_ROWS} more" in summary
    assert "`'@all' / <b> 0" in summary


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        (json.dumps(document(step("same")))[:-40], "cut short"),
        ("error: no stack named 'prod' found", "not JSON"),
        ("[]", "JSON list"),
        ("{}", "no changeSummary"),
        (json.dumps({"version": 3, "deployment": {}}), "a stack export"),
        (json.dumps({"manifest": {}, "resourcePlans": {}}), "an update plan"),
        ('{"sequence": 0}\n{"sequence": 1}\n', "an event stream"),
        (json.dumps(document()) + "\nwarning: more", "behind the JSON document"),
        (json.dumps(document({"op": "same"})), "steps.0.urn"),
        (json.dumps(document({"op": "same", "urn": "urn:pulumi:x"})), "steps.0.urn"),
        (json.dumps(document(step("vanish"))), "vanish"),
        (json.dumps({"changeSummary": {"same": 1}, "steps": {}}), "at steps"),
        ("[" * 200_000, "cannot be taken in"),
        ('{"changeSummary": {"same": ' + "9" * 5000 + "}}", "cannot be taken in"),
    ],
)
def test_what_is_no_preview_is_refused_in_one_sentence(gate: Any, text: str, words: str) -> None:
    result = gate(text)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not result.stdout


def test_files_that_cannot_be_read_or_written(gate: Any, tmp_path: Path) -> None:
    (tmp_path / "utf16.json").write_text(json.dumps(document()), encoding="utf-16")
    for name in ("missing.json", "utf16.json", "."):
        result = CliRunner().invoke(app, ["gate", str(tmp_path / name)])
        assert result.exit_code == 2
        assert "cannot be read" in result.stderr
    assert gate(document(), "--markdown", str(tmp_path / "no" / "such.md")).exit_code == 2


@pytest.mark.parametrize(
    ("op", "retained", "emptied", "words"),
    [
        ("delete", True, False, "it leaves the stack, the objects stay"),
        ("delete", False, True, "the bucket and all objects in it are deleted. To keep them: set keep: true and run"),
        ("delete", False, False, "while it holds objects, Google refuses"),
        ("replace", True, False, "cannot be made, because the old one keeps the name: write `bucket: acme` and"),
        ("replace", False, True, "the bucket and all objects in it are deleted"),
    ],
)
def test_what_is_lost_with_a_bucket_is_what_its_state_says(
    gate: Any, op: str, retained: bool, emptied: bool, words: str
) -> None:
    """The stack file says `bucket:` by then, and nothing of keep: false, by which the objects go."""
    state = {"custom": True, "inputs": {"name": "acme", "forceDestroy": emptied}, "retainOnDelete": retained}
    lost = step(op, EXAMPLES["bucket"], "buckets-research.checkpoints", oldState=state, newState=None)
    (finding,) = json.loads(gate(document(lost), "--json").stdout)["findings"]
    assert words in finding["loss"]


OLD = {"action": {"type": "Delete"}, "condition": {"age": 90}}


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ({"forceDestroy": False}, {"forceDestroy": True}, "forceDestroy: False -> True"),
        ({}, {"lifecycleRules": [OLD]}, "objects are deleted at an age of 90 days"),
        (
            {"lifecycleRules": [OLD]},
            {"lifecycleRules": [OLD | {"condition": {"age": 30}}]},
            "objects are deleted at an age of 30 days",
        ),
        ({"forceDestroy": True}, {"forceDestroy": False}, None),
        ({"lifecycleRules": [OLD]}, {"lifecycleRules": []}, None),
        ({"lifecycleRules": [OLD]}, {"lifecycleRules": [OLD | {"condition": {"age": 120}}]}, None),
        (
            {},
            {"lifecycleRules": [{"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 7}}]},
            None,
        ),
    ],
)
def test_a_bucket_that_will_lose_objects_is_stopped(gate: Any, old: Json, new: Json, cause: str | None) -> None:
    update = step("update", EXAMPLES["bucket"], "buckets-research.checkpoints", **states(old, new))
    result = gate(document(update), "--json")
    findings = json.loads(result.stdout)["findings"]
    assert [(each["operation"], each["causes"]) for each in findings] == ([("update", [cause])] if cause else [])
    assert result.exit_code == (1 if cause else 0)
