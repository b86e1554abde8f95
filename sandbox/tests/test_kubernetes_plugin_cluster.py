"""The stand-in kubernetes plugin against a real control plane: objects, waits, Helm releases, and the real engine."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox import environment, toolchain
from sandbox.kubernetes import assets
from sandbox.kubernetes.api import Object
from sandbox.kubernetes.gke import GkeCluster
from sandbox.kubernetes.registry import ChartRegistry
from sandbox.kubernetes.supervisor import free_ports
from sandbox.plugins.kubernetes.provider import KubernetesProvider
from sandbox.plugins.provider import Difference, InitializationFailed, ProviderError, State, Subject
from sandbox.plugins.values import UNKNOWN, Secret, plain
from sandbox.run_directory import RunDirectory
from sandbox.tests.kubernetes_support import EVERY_CHART
from sandbox.toolchain.kubernetes_binaries import JOBSET_VERSION

pytestmark = [pytest.mark.sandbox, pytest.mark.xdist_group("kubernetes-plugin")]

CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
NAMESPACE = "kubernetes:core/v1:Namespace"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
CRD = "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition"
RELEASE = "kubernetes:helm.sh/v3:Release"
JOBSET_CHART = "oci://registry.k8s.io/jobset/charts/jobset"
SYSTEM_POOL = {
    "name": "system",
    "config": {"machineType": "e2-standard-8"},
    "currentNodeCount": 1,
    "locations": ["us-east5-b"],
}
SEED = bytes(range(32))
_numbers = count()


def no_resize(pool: str, nodes: int) -> None:
    raise AssertionError(f"{pool} was to have {nodes} nodes")


@pytest.fixture(scope="module")
def cluster() -> Iterator[GkeCluster]:
    with tempfile.TemporaryDirectory(prefix="tpu-") as scratch:
        running = GkeCluster(Path(scratch), "lab", "my-project", no_resize)
        running.start()
        try:
            running.set_pools([SYSTEM_POOL])
            yield running
        finally:
            running.stop()


@pytest.fixture(scope="module", autouse=True)
def registry(cluster: GkeCluster) -> Iterator[ChartRegistry]:
    """The registry of the charts, to which the sandbox leads the plugin."""
    serving = ChartRegistry(cluster.plane.authority, EVERY_CHART)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in serving.variables(cluster.plane.authority.pair.certificate).items():
            patch.setenv(name, value)
        yield serving
    serving.stop()


@dataclass
class Program:
    """Does to the plugin what the engine does for one program: check, diff, and the step that follows."""

    provider: KubernetesProvider
    states: dict[str, State] = field(default_factory=dict)

    def check(self, kind: str, name: str, /, **inputs: Any) -> dict[str, Any]:
        checked = self.provider.check(_subject(kind, name), self._old_inputs(name), inputs, SEED)
        assert not checked.failures
        return dict(checked.inputs)

    def preview(self, kind: str, name: str, /, **inputs: Any) -> dict[str, Any]:
        news = self.check(kind, name, **inputs)
        if name in self.states:
            old = self.states[name]
            planned = self.provider.update(_subject(kind, name), old.id, dict(old.outputs), news, [], 0, True)
        else:
            planned = self.provider.create(_subject(kind, name), news, 0, True).outputs
        return dict(plain(planned))

    def create(self, kind: str, name: str, /, within: float = 0, **inputs: Any) -> dict[str, Any]:
        news = self.check(kind, name, **inputs)
        made = self.provider.create(_subject(kind, name), news, within, False)
        return self._keep(name, made.id, made.outputs, news)

    def diff(self, kind: str, name: str, /, **inputs: Any) -> Difference:
        news = self.check(kind, name, **inputs)
        return self.provider.diff(_subject(kind, name), dict(self.states[name].outputs), news, [])

    def update(self, kind: str, name: str, /, within: float = 0, **inputs: Any) -> dict[str, Any]:
        news = self.check(kind, name, **inputs)
        old = self.states[name]
        outputs = self.provider.update(_subject(kind, name), old.id, dict(old.outputs), news, [], within, False)
        return self._keep(name, old.id, outputs, news)

    def refresh(self, kind: str, name: str) -> State:
        old = self.states[name]
        return self.provider.read(_subject(kind, name), old.id, dict(old.inputs), dict(old.outputs))

    def delete(self, kind: str, name: str, within: float = 0) -> None:
        old = self.states[name]
        self.provider.delete(_subject(kind, name), old.id, dict(old.outputs), within)

    def _old_inputs(self, name: str) -> dict[str, Any]:
        return dict(self.states[name].inputs) if name in self.states else {}

    def _keep(self, name: str, identity: str, outputs: Any, inputs: Any) -> dict[str, Any]:
        self.states[name] = State(identity, plain(outputs), inputs)
        return dict(outputs)


def _subject(kind: str, name: str) -> Subject:
    return Subject.of(f"urn:pulumi:dev::lab::{kind}::{name}")


def configured(kubeconfig: str, **settings: Any) -> Program:
    provider = KubernetesProvider()
    provider.configure({"kubeconfig": kubeconfig, **settings})
    return Program(provider)


@pytest.fixture
def program(cluster: GkeCluster, namespace: str) -> Program:
    """A provider whose default namespace is the test's own."""
    return configured(cluster.plane.kubeconfig_path.read_text(), namespace=namespace)


@pytest.fixture
def namespace(cluster: GkeCluster) -> str:
    name = f"test-{next(_numbers)}"
    cluster.plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def definition(plural: str, scope: str = "Cluster") -> dict[str, Any]:
    """A CRD with a top-level `value`, an immutable `spec.fixed`, and a status."""
    kind = plural.capitalize().removesuffix("s")
    fixed = {
        "type": "string",
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "field is immutable"}],
    }
    properties = {
        "value": {"type": "integer"},
        "spec": {"type": "object", "properties": {"fixed": fixed, "free": {"type": "string"}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {"group": "example.com", "names": names, "scope": scope, "versions": [version]},
    }


def deployment(image: str = "registry.k8s.io/pause:3.10", **annotations: str) -> dict[str, Any]:
    labels = {"app": "web"}
    return {
        "metadata": {"name": "web", "annotations": {f"pulumi.com/{k}": v for k, v in annotations.items()}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}},
        },
    }


def live(cluster: GkeCluster, kind: str, name: str, namespace: str = "", api_version: str = "v1") -> Object:
    found = cluster.plane.client.get(api_version, kind, name, namespace)
    assert found
    return found


def test_an_object_without_a_name_gets_one_and_keeps_it(program: Program, namespace: str) -> None:
    outputs = program.create(CONFIG_MAP, "settings", data={"a": "1"})
    name = f"settings-{SEED.hex()[:8]}"
    assert program.states["settings"].id == f"{namespace}/{name}"
    assert outputs["metadata"]["annotations"] == {"pulumi.com/autonamed": "true"}
    assert not program.diff(CONFIG_MAP, "settings", data={"a": "1"}).changes
    changed = program.diff(CONFIG_MAP, "settings", data={"a": "2"})
    assert [(c.path, c.kind, c.replace) for c in changed.changes] == [("data.a", "update", True)]
    assert not changed.delete_before_replace


def test_an_update_takes_back_what_the_program_drops_and_leaves_what_others_set(
    cluster: GkeCluster, program: Program, namespace: str
) -> None:
    labels = {"example.com/one": "1", "example.com/two": "2"}
    program.create(CONFIG_MAP, "c", metadata={"name": "c", "labels": labels}, data={"a": "1"})
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": namespace}}
    cluster.plane.client.patch(theirs, {"metadata": {"labels": {"theirs": "yes"}}})
    news: dict[str, Any] = {"metadata": {"name": "c", "labels": {"example.com/one": "new"}}, "data": {"a": "1"}}
    changed = program.diff(CONFIG_MAP, "c", **news)
    assert {(c.path, c.kind) for c in changed.changes} == {
        ('metadata.labels["example.com/one"]', "update"),
        ('metadata.labels["example.com/two"]', "delete"),
    }
    assert not changed.replaces
    assert program.preview(CONFIG_MAP, "c", **news)["metadata"]["labels"]["example.com/one"] == "new"
    program.update(CONFIG_MAP, "c", **news)
    assert live(cluster, "ConfigMap", "c", namespace)["metadata"]["labels"] == {
        "example.com/one": "new",
        "theirs": "yes",
    }

    news["metadata"]["labels"] = {"theirs": "no"}
    with pytest.raises(ProviderError, match="Server-Side Apply field conflict detected"):
        program.update(CONFIG_MAP, "c", **news)
    news["metadata"]["annotations"] = {"pulumi.com/patchForce": "true"}
    program.update(CONFIG_MAP, "c", **news)
    assert live(cluster, "ConfigMap", "c", namespace)["metadata"]["labels"] == {"theirs": "no"}


def test_a_replacement_under_the_same_name_deletes_first(cluster: GkeCluster, program: Program, namespace: str) -> None:
    old: dict[str, Any] = {"metadata": {"name": "c"}, "data": {"a": "1"}}
    program.create(CONFIG_MAP, "c", **old)
    changed = program.diff(CONFIG_MAP, "c", metadata={"name": "c"}, data={"a": "2"})
    assert changed.replaces
    assert changed.delete_before_replace
    planned = program.provider.create(
        _subject(CONFIG_MAP, "c"), program.check(CONFIG_MAP, "c", metadata={"name": "c"}, data={"a": "2"}), 0, True
    )
    assert planned.id == ""
    assert planned.outputs["metadata"]["name"] == "c"
    assert live(cluster, "ConfigMap", "c", namespace)["data"] == {"a": "1"}, "a preview changes nothing"
    program.delete(CONFIG_MAP, "c")
    program.delete(CONFIG_MAP, "c")
    assert cluster.plane.client.get("v1", "ConfigMap", "c", namespace) is None


def test_an_existing_object_is_not_taken_over(program: Program) -> None:
    program.create(CONFIG_MAP, "one", metadata={"name": "same"})
    with pytest.raises(ProviderError, match=r'was not successfully created .*configmaps "same" already exists'):
        program.create(CONFIG_MAP, "two", metadata={"name": "same"})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"dada": {"a": "1"}}, 'unknown field "dada"'),
        ({"data": {"a": 1}}, "json: cannot unmarshal number"),
        ({"metadata": {"name": "Upper"}}, "a lowercase RFC 1123 subdomain must"),
    ],
)
def test_what_the_server_would_refuse_fails_the_preview(program: Program, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(ProviderError, match=message):
        program.preview(CONFIG_MAP, "bad", **inputs)


def test_unknown_values_are_not_sent_to_the_server(program: Program) -> None:
    planned = program.preview(CONFIG_MAP, "c", metadata={"name": "c"}, data={"a": UNKNOWN})
    assert planned["data"] == {"a": UNKNOWN}
    assert "uid" not in planned["metadata"]


def test_a_missing_namespace_is_waited_for(cluster: GkeCluster, program: Program, namespace: str) -> None:
    late: dict[str, Any] = {"metadata": {"name": "c", "namespace": f"{namespace}-late"}}
    assert "uid" not in program.preview(CONFIG_MAP, "c", **late)["metadata"]
    with ThreadPoolExecutor() as pool:
        creation = pool.submit(program.create, CONFIG_MAP, "c", **late)
        time.sleep(0.3)
        cluster.plane.client.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{namespace}-late"}}
        )
        assert creation.result(60)["metadata"]["namespace"] == f"{namespace}-late"


def test_kinds_of_a_new_crd_work_from_then_on(cluster: GkeCluster, program: Program) -> None:
    levels = "kubernetes:example.com/v1:Level"
    inputs: dict[str, Any] = {"metadata": {"name": "high"}, "value": 7, "spec": {"fixed": "a", "free": "b"}}
    assert program.preview(levels, "high", **inputs)["value"] == 7, "an unknown kind is planned as it is"
    outputs = program.create(CRD, "crd", **definition("levels"))
    assert {"Established": "True"}.items() <= {c["type"]: c["status"] for c in outputs["status"]["conditions"]}.items()
    with pytest.raises(ProviderError, match='unknown field "valeu"'):
        program.preview(levels, "high", **{**inputs, "valeu": 7})
    made = program.create(levels, "high", **inputs)
    assert made["value"] == 7
    assert program.states["high"].id == "high", "the kind has no namespace"
    assert not program.diff(levels, "high", **inputs).changes

    free = program.diff(levels, "high", **{**inputs, "spec": {"fixed": "a", "free": "c"}})
    assert [(c.path, c.replace) for c in free.changes] == [("spec.free", False)]
    both = program.diff(levels, "high", **{**inputs, "value": 8, "spec": {"fixed": "z", "free": "b"}})
    assert {c.path: c.replace for c in both.changes} == {"spec.fixed": True, "value": False}
    assert both.delete_before_replace
    with pytest.raises(ProviderError, match=r"spec\.fixed: Invalid value: .*field is immutable"):
        program.update(levels, "high", **{**inputs, "spec": {"fixed": "z"}})

    program.delete(CRD, "crd")
    program.delete(levels, "high")
    assert program.refresh(levels, "high").id == "", "objects go with their CRD"


def test_a_kind_that_never_appears_is_an_error(program: Program) -> None:
    threading.Timer(1.5, program.provider.cancel).start()  # the full patience is half a minute
    with pytest.raises(ProviderError, match="Verify that any required CRDs have been created: no matches for kind"):
        program.create("kubernetes:example.org/v1:Nothing", "n", metadata={"name": "n"})


def test_a_deployment_is_waited_for_and_a_failed_wait_is_repaired_by_the_next_update(program: Program) -> None:
    nowhere = deployment(timeoutSeconds="1")
    nowhere["spec"]["template"]["spec"]["nodeSelector"] = {"no": "where"}
    with pytest.raises(
        InitializationFailed, match=r"timed out after 1 s: .* does not have minimum availability"
    ) as failed:
        program.create(DEPLOYMENT, "web", **nowhere)
    assert failed.value.identity.endswith("/web")
    program.states["web"] = State(failed.value.identity, plain(failed.value.outputs), nowhere)
    outputs = program.update(DEPLOYMENT, "web", **deployment())
    assert outputs["status"]["availableReplicas"] == 2
    assert outputs["status"]["observedGeneration"] == outputs["metadata"]["generation"]
    skipped = program.update(DEPLOYMENT, "web", **deployment("registry.k8s.io/pause:3.11", skipAwait="true"))
    assert skipped["spec"]["template"]["spec"]["containers"][0]["image"].endswith("3.11")
    program.delete(DEPLOYMENT, "web")


def test_objects_are_waited_for_as_their_annotation_says(cluster: GkeCluster, program: Program, namespace: str) -> None:
    program.create(CRD, "crd", **definition("gates", "Namespaced"))
    both = '["condition=Active", "jsonpath={.status.counts[0].n}=3"]'
    inputs: dict[str, Any] = {"metadata": {"name": "g", "annotations": {"pulumi.com/waitFor": both}}}
    gates = "kubernetes:example.com/v1:Gate"

    def become(**status: Any) -> None:
        gate = {"apiVersion": "example.com/v1", "kind": "Gate", "metadata": {"name": "g", "namespace": namespace}}
        cluster.plane.client.patch(gate, {"status": status}, subresource="status")

    with pytest.raises(InitializationFailed, match=r"timed out after 0.5 s: condition Active is not True \(not set\)"):
        program.create(gates, "g", within=0.5, **inputs)
    news = program.check(gates, "g", **inputs)
    program.states["g"] = State(f"{namespace}/g", live(cluster, "Gate", "g", namespace, "example.com/v1"), news)
    active = {"type": "Active", "status": "True"}
    become(conditions=[active], counts=[{"n": 2}])
    with pytest.raises(InitializationFailed, match=r"\{\.status\.counts\[0\]\.n\} is 2, not 3"):
        program.update(gates, "g", within=0.5, **inputs)
    threading.Timer(0.5, become, kwargs={"counts": [{"n": 3}]}).start()
    assert program.update(gates, "g", within=120, **inputs)["status"]["counts"] == [{"n": 3}]


def test_a_wait_ends_when_the_engine_cancels(program: Program) -> None:
    stuck = deployment()
    stuck["spec"]["template"]["spec"]["nodeSelector"] = {"no": "where"}
    threading.Timer(0.5, program.provider.cancel).start()
    started = time.monotonic()
    with pytest.raises(InitializationFailed, match="was cancelled"):
        program.create(DEPLOYMENT, "web", **stuck)
    assert time.monotonic() - started < 60, "a Deployment is waited for for ten minutes"


def test_a_service_account_token_is_waited_for_and_secret(program: Program) -> None:
    # Not the namespace's own account: that one appears a little later, and a token without an account is deleted.
    program.create("kubernetes:core/v1:ServiceAccount", "reader", metadata={"name": "reader"})
    token = program.create(
        "kubernetes:core/v1:Secret",
        "token",
        type="kubernetes.io/service-account-token",
        metadata={"name": "token", "annotations": {"kubernetes.io/service-account.name": "reader"}},
    )
    assert isinstance(token["data"], Secret)
    assert base64.b64decode(token["data"].value["token"]).count(b".") == 2
    given: dict[str, Any] = {"metadata": {"name": "s"}, "stringData": {"password": "abc"}}
    outputs = program.create("kubernetes:core/v1:Secret", "s", **given)
    assert {k for k, v in outputs.items() if isinstance(v, Secret)} == {"data", "__inputs"}
    assert program.refresh("kubernetes:core/v1:Secret", "s").inputs == program.states["s"].inputs


def test_deletion_of_a_namespace_waits_for_what_is_in_it(cluster: GkeCluster, program: Program) -> None:
    program.create(NAMESPACE, "doomed", metadata={"name": "doomed"})
    held = {"name": "held", "namespace": "doomed", "finalizers": ["example.com/hold"]}
    program.create(CONFIG_MAP, "held", metadata=held)
    # The namespace controller itself waits five seconds before it looks at a namespace's content.
    with pytest.raises(ProviderError, match=r"Namespace doomed timed out after 1 s: .* finalizers \['kubernetes'\]"):
        program.delete(NAMESPACE, "doomed", within=1)
    cluster.plane.client.patch(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": held}, {"metadata": {"finalizers": None}}
    )
    program.delete(NAMESPACE, "doomed", within=60)
    assert cluster.plane.client.get("v1", "Namespace", "doomed") is None


def test_a_refresh_shows_drift_and_an_import_the_whole_object(
    cluster: GkeCluster, program: Program, namespace: str
) -> None:
    inputs: dict[str, Any] = {"metadata": {"name": "c", "labels": {}}, "data": {"a": "1"}}
    program.create(CONFIG_MAP, "c", **inputs)
    assert program.refresh(CONFIG_MAP, "c").inputs == program.states["c"].inputs
    there = live(cluster, "ConfigMap", "c", namespace)
    cluster.plane.client.patch(there, {"data": {"a": "2", "b": "3"}})
    fresh = program.refresh(CONFIG_MAP, "c")
    assert fresh.inputs["data"] == {"a": "2"}
    changed = program.provider.diff(
        _subject(CONFIG_MAP, "c"), plain(fresh.outputs), dict(program.states["c"].inputs), []
    )
    assert [c.path for c in changed.changes] == ["data.a"]

    imported = program.provider.read(_subject(CONFIG_MAP, "i"), f"{namespace}/c", {}, {})
    assert imported.inputs["data"] == {"a": "2", "b": "3"}
    assert imported.inputs["metadata"].keys() == {"name", "namespace"}
    program.delete(CONFIG_MAP, "c")
    assert program.refresh(CONFIG_MAP, "c").id == ""


def test_ignored_changes_leave_the_live_value(cluster: GkeCluster, program: Program, namespace: str) -> None:
    program.create(DEPLOYMENT, "web", **deployment(skipAwait="true"))
    there = live(cluster, "Deployment", "web", namespace, "apps/v1")
    cluster.plane.client.patch(there, {"spec": {"replicas": 5}})
    news = program.check(DEPLOYMENT, "web", **deployment("registry.k8s.io/pause:3.11", skipAwait="true"))
    old = program.states["web"]
    subject = _subject(DEPLOYMENT, "web")
    with pytest.raises(ProviderError, match="field conflict"):
        program.provider.update(subject, old.id, dict(old.outputs), news, [], 0, False)
    outputs = program.provider.update(subject, old.id, dict(old.outputs), news, ["spec.replicas"], 0, False)
    assert outputs["spec"]["replicas"] == 5


def test_an_unreachable_cluster_can_be_planned_for_but_not_changed(cluster: GkeCluster, tmp_path: Path) -> None:
    kubeconfig = yaml.safe_load(cluster.plane.kubeconfig_path.read_text())
    kubeconfig["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_ports(1)[0]}"
    program = configured(json.dumps(kubeconfig))
    assert program.preview(CONFIG_MAP, "c", data={"a": "1"})["data"] == {"a": "1"}
    release: dict[str, Any] = {
        "name": "jobset",
        "chart": JOBSET_CHART,
        "version": JOBSET_VERSION,
        "namespace": "jobset-system",
    }
    assert program.preview(RELEASE, "jobset", **release)["status"] is UNKNOWN
    unreachable = (
        "configured Kubernetes cluster is unreachable: unable to load schema information from the API server: Get"
    )
    with pytest.raises(ProviderError, match=unreachable):
        program.create(CONFIG_MAP, "c")
    with pytest.raises(ProviderError, match="failed to read resource state due to unreachable cluster"):
        program.provider.read(_subject(CONFIG_MAP, "c"), "default/c", {}, {})
    with pytest.raises(ProviderError, match="can't create Helm Release with unreachable cluster"):
        program.create(RELEASE, "jobset", **release)


def test_a_refused_token_is_named(cluster: GkeCluster) -> None:
    kubeconfig = yaml.safe_load(cluster.plane.kubeconfig_path.read_text())
    kubeconfig["users"][0]["user"]["token"] = "stolen"
    with pytest.raises(ProviderError, match=r"unreachable: .* Unauthorized"):
        configured(json.dumps(kubeconfig)).create(CONFIG_MAP, "c")


@pytest.mark.parametrize(
    ("changes", "property_", "reason"),
    [
        ({"chart": "oci://registry.example.com/charts/nginx"}, "chart", "FetchReference.*the sandbox has no registry"),
        ({"version": "9.9.9"}, "chart", "the sandbox has no version 9.9.9 of .*jobset; known: " + JOBSET_VERSION),
        ({"lint": True}, "lint", "does not know this input"),
    ],
)
def test_a_release_that_cannot_be_is_refused_when_planned(
    program: Program, changes: dict[str, Any], property_: str, reason: str
) -> None:
    inputs = {"name": "jobset", "chart": JOBSET_CHART, "version": JOBSET_VERSION, "compat": "true", **changes}
    [failure] = program.provider.check(_subject(RELEASE, "jobset"), {}, inputs, SEED).failures
    assert failure.property == property_
    assert re.search(reason, failure.reason)


WITHOUT_DATA = """#!/usr/bin/env python3
import sys
text = sys.stdin.read()
before, data, after = text.partition("data:\\n  ca.crt:")
assert data, "the Secret of the webhook has data"
print(before + after[after.index("---"):])
"""


def test_the_jobset_chart_as_a_release(
    cluster: GkeCluster, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the engine starts plugins in the project's folder
    renderer = tmp_path / "hooks" / "without_data"
    renderer.parent.mkdir()
    renderer.write_text(WITHOUT_DATA)
    renderer.chmod(0o755)
    inputs: dict[str, Any] = {
        "name": "jobset",
        "chart": JOBSET_CHART,
        "version": JOBSET_VERSION,
        "namespace": "jobset-system",
        "values": {"controller": {"nodeSelector": {"cloud.google.com/gke-nodepool": "system"}}},
        "maxHistory": 2,
        "resetValues": True,
        "timeout": 240,
        "postrender": "hooks/without_data",
        "compat": "true",
    }
    planned = program.preview(RELEASE, "jobset", **inputs)
    assert planned["status"] is UNKNOWN
    program.create(NAMESPACE, "ns", metadata={"name": "jobset-system"})
    outputs = program.create(RELEASE, "jobset", **inputs)
    assert program.states["jobset"].id == "jobset-system/jobset"
    assert outputs["status"]["status"] == "deployed"
    assert outputs["resourceNames"]["Deployment.apps/apps/v1"] == ["jobset-system/jobset-controller"]
    assert not program.diff(RELEASE, "jobset", **inputs).changes
    certificate = live(cluster, "Secret", "jobset-webhook-server-cert", "jobset-system")["data"]["tls.crt"]
    assert certificate, "Ready means that the real controller serves its webhook"

    jobs = "kubernetes:jobset.x-k8s.io/v1alpha2:JobSet"
    # The garbage collector, which foreground deletion needs, learns of new kinds every half minute only.
    background = {"pulumi.com/deletionPropagationPolicy": "background"}
    job_set: dict[str, Any] = {"metadata": {"name": "empty", "annotations": background}, "spec": {"replicatedJobs": []}}
    program.create(jobs, "empty", **job_set)
    cluster.plane.egress.outage(600)
    started = time.monotonic()
    with pytest.raises(ProviderError, match="failed calling webhook"):
        program.create(jobs, "other", **{**job_set, "metadata": {"name": "other"}})
    assert time.monotonic() - started < 60, "retrying is the program's business"
    cluster.plane.egress.outage(0)
    program.delete(jobs, "empty")

    inputs["values"]["controller"]["replicas"] = 2
    changed = program.diff(RELEASE, "jobset", **inputs)
    assert [(c.path, c.kind, c.replace) for c in changed.changes] == [("values.controller.replicas", "add", False)]
    assert program.update(RELEASE, "jobset", **inputs)["status"]["revision"] == 2
    kept = live(cluster, "Secret", "jobset-webhook-server-cert", "jobset-system")["data"]["tls.crt"]
    assert kept == certificate, "the post-renderer ran"
    assert program.refresh(RELEASE, "jobset").outputs["status"]["revision"] == 2
    inputs["values"]["controller"]["nodeSelector"] = {"no": "where"}
    inputs["timeout"] = 1
    with pytest.raises(InitializationFailed, match=r"failed to become available .*deadline"):
        program.update(RELEASE, "jobset", **inputs)
    program.delete(RELEASE, "jobset")
    with pytest.raises(ProviderError, match=r"^uninstall: Release not loaded: jobset: release: not found$"):
        program.delete(RELEASE, "jobset")
    assert program.refresh(RELEASE, "jobset").id == ""


PROGRAM = """
import json, os, pathlib
import pulumi
import pulumi_kubernetes as k8s
from pulumi.runtime import rpc

settings = json.loads(pathlib.Path("settings.json").read_text())
# In the first preview the cluster does not exist yet, and its kubeconfig is not known.
unknown = settings["unknown"] and pulumi.runtime.is_dry_run()
provider = k8s.Provider(
    "provider",
    kubeconfig=rpc.UNKNOWN if unknown else settings["kubeconfig"],
    cluster_identifier="projects/p/locations/l/clusters/c",
)
options = pulumi.ResourceOptions(provider=provider)
namespace = k8s.core.v1.Namespace("ns", metadata={"name": "engine"}, opts=options)
k8s.core.v1.ConfigMap(
    "settings",
    metadata={"namespace": namespace.metadata.name},
    data={"a": pulumi.Output.secret("hidden-from-the-state")},
    opts=options,
)
definition = k8s.apiextensions.v1.CustomResourceDefinition("crd", **settings["definition"], opts=options)
pulumi.CustomResource(
    "kubernetes:example.com/v1:Rank",
    "rank",
    {
        "apiVersion": "example.com/v1",
        "kind": "Rank",
        "metadata": {"name": "first", "annotations": {"pulumi.com/deletionPropagationPolicy": "background"}},
        "value": 3,
    },
    pulumi.ResourceOptions(provider=provider, depends_on=[definition]),
)
"""


@dataclass(frozen=True)
class Engine:
    """The real engine on a small program of the test's own."""

    folder: Path
    variables: dict[str, str]

    def settings(self, **values: Any) -> None:
        (self.folder / "settings.json").write_text(json.dumps(values))

    def run(self, *arguments: str) -> str:
        command = [str(toolchain.engine()), *arguments, "--non-interactive"]
        done = subprocess.run(
            command, cwd=self.folder, env=self.variables, capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == 0, f"pulumi {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def engine(cluster: GkeCluster, registry: ChartRegistry, tmp_path: Path) -> Engine:
    run = RunDirectory(tmp_path / "run")
    for folder in (run.root, run.backend, run.token_file.parent):
        folder.mkdir(parents=True, exist_ok=True)
    run.token_file.write_text(cluster.plane.admin_token)
    run.registry_file.write_text(registry.url)
    environment.install(run, toolchain.engine(), assets.program("kubectl"), environment.Plugins.STAND_IN)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: lab\nruntime: python\n")
    (folder / "__main__.py").write_text(PROGRAM)
    authority = {"SSL_CERT_FILE": str(cluster.plane.authority.pair.certificate)}
    return Engine(folder, {**environment.variables(run, os.environ), **authority})


def credential_program_kubeconfig(cluster: GkeCluster) -> str:
    """What GKE's DNS endpoint takes: no CA, no token, a credential program."""
    command = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "gke-gcloud-auth-plugin"}
    return json.dumps(
        {
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
            "clusters": [{"name": "lab", "cluster": {"server": f"https://{cluster.plane.endpoint}"}}],
            "users": [{"name": "lab", "user": {"exec": {**command, "provideClusterInfo": True}}}],
        }
    )


def test_a_program_through_the_real_engine(cluster: GkeCluster, engine: Engine) -> None:
    settings = {
        "kubeconfig": credential_program_kubeconfig(cluster),
        "definition": definition("ranks"),
    }
    engine.settings(**settings, unknown=True)
    engine.run("stack", "init", "dev")
    planned = engine.run("preview", "-s", "dev")
    assert "6 to create" in planned
    engine.run("up", "-s", "dev", "--yes", "--skip-preview")
    assert live(cluster, "Rank", "first", api_version="example.com/v1")["value"] == 3
    state = engine.run("stack", "export", "-s", "dev")
    assert "hidden-from-the-state" not in state
    engine.settings(**settings, unknown=False)
    engine.run("preview", "-s", "dev", "--refresh", "--run-program", "--expect-no-changes", "--diff")
    engine.run("destroy", "-s", "dev", "--yes", "--skip-preview")
    assert cluster.plane.client.get("v1", "Namespace", "engine") is None
