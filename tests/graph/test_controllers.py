"""What runs inside the cluster comes up in an order that works, pinned, and behind the webhook gate."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pulumi
import pytest
import yaml

from components.kubernetes import webhook_retry
from components.kubernetes.webhook_retry import retry_while_starting
from tests.graph.conftest import recorded
from tests.graph.recording import ROOT, GraphMonitor, reachable, short

RELEASE = "kubernetes:helm.sh/v3:Release"
STACKS = [ROOT / f"Pulumi.{name}.yaml" for name in ("dev", "blueprint", "recipe")]


@pytest.fixture(params=STACKS, ids=lambda path: path.name.split(".")[1])
def graph(request: pytest.FixtureRequest) -> GraphMonitor:
    """A stack with queues."""
    return recorded(request.param, preview=False)


def releases(graph: GraphMonitor) -> dict[str, str]:
    return {request.object["name"]: urn for urn, request in graph.of_type(RELEASE).items()}


def test_releases_are_pinned_and_keep_few_revisions(graph: GraphMonitor) -> None:
    found = graph.of_type(RELEASE)
    assert len(found) >= 2
    for urn, request in found.items():
        release = request.object
        assert release["version"][0].isdigit(), short(urn)
        assert release["maxHistory"] == 3
        assert release["createNamespace"] is False
        assert release["resetValues"] is True


def test_kueue_comes_after_what_it_queues(graph: GraphMonitor) -> None:
    found = releases(graph)
    behind = reachable(graph, found["kueue"])
    assert found["jobset"] in behind
    if "dra-driver-google-tpu" in found:
        assert found["dra-driver-google-tpu"] in behind


def test_kueue_objects_come_after_kueue_and_behind_the_gate(graph: GraphMonitor) -> None:
    objects = [urn for urn, r in graph.requests.items() if ":kueue.x-k8s.io/" in r.type]
    assert len(objects) >= 3
    for urn in objects:
        assert releases(graph)["kueue"] in reachable(graph, urn), short(urn)
        assert list(graph.requests[urn].hooks.on_error) == ["webhook-starting"], short(urn)
        assert graph.requests[urn].version == "4.34.2", short(urn)


def test_local_queues_come_last(graph: GraphMonitor) -> None:
    local = graph.of_type("kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue")
    assert local
    for urn in local:
        kinds = {graph.requests[other].type.split(":")[-1] for other in reachable(graph, urn)}
        assert {"ClusterQueue", "ResourceFlavor", "Namespace"} <= kinds


def test_claim_templates_only_count() -> None:
    """Kueue can hold a quota on a count, not on `All`; selectors in a claim deadlock a pool without hosts."""
    templates = recorded(STACKS[2], preview=False).of_type("kubernetes:resource.k8s.io/v1:ResourceClaimTemplate")
    assert templates
    for request in templates.values():
        (asked,) = request.object["spec"]["spec"]["devices"]["requests"]
        assert set(asked["exactly"]) == {"deviceClassName", "allocationMode", "count"}
        assert asked["exactly"]["allocationMode"] == "ExactCount"


def test_the_driver_stays_off_hosts_that_did_not_opt_in() -> None:
    (release,) = (r for r in recorded(STACKS[2], preview=False).of_type(RELEASE).values() if "dra" in r.object["name"])
    plugin = release.object["values"]["kubeletPlugin"]
    (term,) = plugin["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    labels = {expression["key"] for expression in term["matchExpressions"]}
    assert labels == {"cloud.google.com/gke-tpu-accelerator", "cloud.google.com/gke-tpu-dra-driver"}
    assert plugin["priorityClassName"] == ""
    assert [toleration["key"] for toleration in plugin["tolerations"]] == ["google.com/tpu"]


def test_stacks_without_claims_have_no_driver() -> None:
    assert "dra-driver-google-tpu" not in releases(recorded(STACKS[1], preview=False))


def errors(count: int, text: str) -> pulumi.ErrorHookArgs:
    return pulumi.ErrorHookArgs("urn", "", "name", "type", failed_operation="create", errors=[text] * count)


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_retry, "INTERVAL_SECONDS", 0)


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize(
    ("count", "text", "again"),
    [
        (1, 'Internal error: failed calling webhook "vclusterqueue.kb.io": connection refused', True),
        (1, "admission webhook denied the request: quota is negative", False),
        (webhook_retry.GIVE_UP_AFTER + 1, "failed calling webhook", False),
    ],
)
def test_the_gate_waits_for_a_starting_webhook_and_nothing_else(count: int, text: str, again: bool) -> None:
    assert asyncio.run(retry_while_starting(errors(count, text))) is again


def test_a_queue_that_is_still_used_is_said_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renaming a queue with a running job hung an update for minutes without a word."""
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "error", said.append)
    text = "timed out waiting for the condition"
    args = pulumi.ErrorHookArgs("urn", "", "queues-clusterqueue-team", "type", failed_operation="delete", errors=[text])
    assert asyncio.run(retry_while_starting(args)) is False
    assert said == [webhook_retry.still_used("queues-clusterqueue-team")]
    queues = [
        request
        for request in recorded(STACKS[0], preview=False).requests.values()
        if request.type.startswith("kubernetes:kueue")
    ]
    assert queues
    assert {request.customTimeouts.delete for request in queues} == {"1m"}


class TestPostRenderer:
    """The JobSet chart's empty certificate must not reach the release."""

    path = ROOT / "components" / "postrender" / "keep_webhook_certificate"
    chart = """\
---
apiVersion: v1
kind: Secret
metadata:
  name: 'jobset-webhook-server-cert'
  namespace: jobset-system
data:
  ca.crt: ""
  tls.crt: ""
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: jobset-controller-config
data:
  controller_manager_config.yaml: |
    kind: Configuration
"""

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, self.path], input=text, capture_output=True, text=True, check=False)

    def test_it_drops_the_secrets_data_and_nothing_else(self) -> None:
        before = {item["kind"]: item for item in yaml.safe_load_all(self.chart) if item}
        after = {item["kind"]: item for item in yaml.safe_load_all(self.run(self.chart).stdout) if item}
        del before["Secret"]["data"]
        assert after == before

    def test_it_says_when_it_is_not_needed_any_more(self) -> None:
        result = self.run(self.chart.replace("jobset-webhook-server-cert", "other"))
        assert result.returncode == 1
        assert "can go" in result.stderr

    def test_the_release_names_it_by_a_path_of_the_project(self) -> None:
        (jobset,) = (
            r for r in recorded(STACKS[0], preview=False).of_type(RELEASE).values() if r.object["name"] == "jobset"
        )
        assert ROOT / jobset.object["postrender"] == self.path
        assert not Path(jobset.object["postrender"]).is_absolute()


class TestPostRendererOfKueue:
    """Kueue's webhooks of pods see the pods of servers, and no others."""

    path = ROOT / "components" / "postrender" / "hold_pods_of_servers"
    chart = """\
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
webhooks:
  - clientConfig: {}
    name: mpod.kb.io
    failurePolicy: Fail
  - clientConfig: {}
    name: mjob.kb.io
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
webhooks:
  - clientConfig: {}
    name: vpod.kb.io
"""

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, self.path], input=text, capture_output=True, text=True, check=False)

    def test_it_adds_a_selector_of_objects_and_nothing_else(self) -> None:
        before = [item["webhooks"] for item in yaml.safe_load_all(self.chart) if item]
        selector = {"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]}
        for webhooks in before:
            webhooks[0]["objectSelector"] = selector
        assert [item["webhooks"] for item in yaml.safe_load_all(self.run(self.chart).stdout) if item] == before

    def test_it_says_when_the_chart_has_another_form(self) -> None:
        result = self.run(self.chart.replace("vpod.kb.io", "other"))
        assert result.returncode == 1
        assert "0 webhooks vpod.kb.io" in result.stderr

    def test_the_release_names_it_by_a_path_of_the_project(self) -> None:
        (kueue,) = (
            r for r in recorded(STACKS[0], preview=False).of_type(RELEASE).values() if r.object["name"] == "kueue"
        )
        assert kueue.object["postrender"] == "components/postrender/hold_pods_of_servers"
