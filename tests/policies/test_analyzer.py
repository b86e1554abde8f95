"""The pack through the interface the engine uses, in the environment the engine starts it in."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from pulumi.runtime.proto import analyzer_pb2

from policies.rules import RESOURCE_RULES, STACK_RULES
from tests.graph.conftest import recorded
from tests.graph.recording import ROOT, named
from tests.policies.analyzer import BY_LANGUAGE_HOST, ENVIRONMENT, PACK, Analyzer, replaced, running

DEV = ROOT / "Pulumi.dev.yaml"
RULES = {rule.id: rule for rule in (*RESOURCE_RULES, *STACK_RULES)}


@pytest.fixture(scope="module")
def analyzer() -> Iterator[Analyzer]:
    with running() as started:
        yield started


@pytest.fixture(autouse=True)
def _unconfigured(analyzer: Analyzer) -> Iterator[None]:
    """The pack is shared; what a test set is not."""
    yield
    analyzer.configure(analyzer_pb2.MANDATORY, {})


def test_every_rule_is_a_policy_of_its_level_with_its_settings(analyzer: Analyzer) -> None:
    policies = analyzer.policies()
    assert policies.keys() == RULES.keys()
    levels = {"mandatory": analyzer_pb2.MANDATORY, "advisory": analyzer_pb2.ADVISORY}
    for name, policy in policies.items():
        assert policy.enforcementLevel == levels[RULES[name].level]
        assert set(policy.configSchema.properties) == {setting.name for setting in RULES[name].settings}
        assert RULES[name].source in policy.description


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_the_dev_stack_passes_and_no_policy_stumbles_over_unknowns(analyzer: Analyzer, preview: bool) -> None:
    """The SDK ends a policy that reads an unknown value, and notes "can't run policy": none may."""
    graph = recorded(DEV, preview)
    found = [*analyzer.resources(graph), *analyzer.stack(graph)]
    assert [each for each in found if each.mandatory] == []
    assert [each for each in found if "can't run policy" in each.message] == []


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_a_broken_property_is_reported_by_its_policy_at_its_resource(analyzer: Analyzer, preview: bool) -> None:
    graph = replaced(recorded(DEV, preview), "network-internal", "sourceRanges", ["0.0.0.0/0"])
    [found] = [each for each in analyzer.resources(graph) if each.mandatory]
    assert found.policy == "firewall-open"
    assert found.urn.endswith("::network-internal")
    assert "sourceRanges has 0.0.0.0/0 for tcp on all ports" in found.message
    assert RULES["firewall-open"].remedy in found.message


def test_stack_policies_see_what_depends_on_what(analyzer: Analyzer) -> None:
    graph = recorded(DEV, False)
    jobset = named(graph, "jobset-release")
    alone = replaced(graph, "jobset-release", "timeout", 600)
    namespaces = [urn for urn in alone.requests[jobset].dependencies if urn.endswith("::jobset-namespace")]
    del alone.requests[jobset].dependencies[:]
    assert [each.policy for each in analyzer.stack(alone) if each.mandatory] == ["release-after-nodes"]
    alone.requests[jobset].dependencies.extend(namespaces)
    assert [each for each in analyzer.stack(alone) if each.mandatory] == []


def test_a_language_host_starts_the_same_pack(analyzer: Analyzer) -> None:
    with running(BY_LANGUAGE_HOST) as other:
        assert other.policies().keys() == analyzer.policies().keys()


def test_settings_and_levels_come_from_the_configuration(analyzer: Analyzer) -> None:
    graph = recorded(DEV, False)
    analyzer.configure(analyzer_pb2.MANDATORY, {"chips-limit": {"maxChips": 0}, "allowed-zones": {"zones": ["here"]}})
    assert {each.policy for each in analyzer.stack(graph) if each.mandatory} == {"chips-limit"}
    assert {each.policy for each in analyzer.resources(graph) if each.mandatory} == {"allowed-zones"}
    analyzer.configure(analyzer_pb2.ADVISORY, {"chips-limit": {"maxChips": 0}})
    assert [each for each in analyzer.stack(graph) if each.mandatory] == []


def test_the_pack_ends_with_the_engine_that_started_it() -> None:
    """A killed engine tells nobody; the process that it started must not serve for ever."""
    assert ENVIRONMENT.exists()
    start = f"import subprocess, sys; p = subprocess.Popen([{str(PACK / 'run')!r}]); print(p.pid, flush=True); p.wait()"
    with subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        pack = psutil.Process(int(engine.stdout.readline()))
        assert engine.stdout.readline().strip().isdigit(), "the pack serves"
        engine.send_signal(signal.SIGKILL)
    pack.wait(timeout=60)
