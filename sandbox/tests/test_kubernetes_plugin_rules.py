"""What the stand-in kubernetes plugin decides by itself: configuration, kubeconfigs, differences, what to wait for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.plugins.kubernetes import checkpoint, differences, waiting
from sandbox.plugins.kubernetes.kubeconfig import Credentials, KubeconfigError, parse
from sandbox.plugins.kubernetes.provider import KubernetesProvider
from sandbox.plugins.provider import ProviderError, Subject
from sandbox.plugins.values import UNKNOWN

SEED = bytes(32)
IDENTIFIER = "projects/p/locations/l/clusters/c"


def kubeconfig(server: str = "https://127.0.0.1:1", token: str = "t", **cluster: Any) -> str:
    content = {
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab", "namespace": "mine"}}],
        "clusters": [
            {"name": "lab", "cluster": {"server": server, **cluster}},
            {"name": "other", "cluster": {"server": "https://127.0.0.1:2"}},
        ],
        "users": [{"name": "lab", "user": {"token": token}}],
    }
    return json.dumps(content)


def with_program(command: str, **settings: Any) -> str:
    content = json.loads(kubeconfig())
    content["users"][0]["user"] = {"exec": {"command": command, **settings}}
    return json.dumps(content)


def executable(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("olds", "news", "replacing"),
    [
        pytest.param({}, {"kubeconfig": UNKNOWN}, {"kubeconfig"}, id="kubeconfig-not-known"),
        pytest.param(
            {"clusterIdentifier": IDENTIFIER},
            {"clusterIdentifier": IDENTIFIER, "kubeconfig": UNKNOWN},
            set(),
            id="identifier-protects-from-an-unknown-kubeconfig",
        ),
        pytest.param(
            {"clusterIdentifier": IDENTIFIER},
            {"clusterIdentifier": IDENTIFIER, "kubeconfig": kubeconfig("https://127.0.0.1:9")},
            set(),
            id="identifier-protects-from-another-server",
        ),
        pytest.param({}, {"kubeconfig": kubeconfig("https://127.0.0.1:9")}, {"kubeconfig"}, id="another-server"),
        pytest.param({}, {"kubeconfig": kubeconfig(token="u")}, set(), id="another-token"),
        pytest.param({}, {"cluster": "other"}, {"cluster"}, id="another-cluster-of-the-kubeconfig"),
        pytest.param(
            {"clusterIdentifier": IDENTIFIER},
            {"clusterIdentifier": f"{IDENTIFIER}2"},
            {"clusterIdentifier"},
            id="another-identifier",
        ),
        pytest.param({}, {"clusterIdentifier": IDENTIFIER}, set(), id="identifier-added"),
        pytest.param(
            {},
            {"clusterIdentifier": IDENTIFIER, "kubeconfig": UNKNOWN},
            {"kubeconfig"},
            id="identifier-added-while-the-kubeconfig-is-unknown",
        ),
    ],
)
def test_only_another_cluster_replaces_the_provider(
    olds: dict[str, Any], news: dict[str, Any], replacing: set[str]
) -> None:
    same = {"kubeconfig": kubeconfig(), "version": "4.34.2"}
    difference = KubernetesProvider().diff_config({**same, **olds}, {**same, **news})
    assert {c.path for c in difference.changes if c.replace} == replacing
    assert {c.path for c in difference.changes} == news.keys() - {k for k, v in news.items() if olds.get(k) == v}


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"kubeconfig": UNKNOWN, "clusterIdentifier": IDENTIFIER, "enableServerSideApply": "true"}, set()),
        ({}, {"kubeconfig"}),
        ({"kubeconfig": "x", "enableServerSideApply": "false"}, {"enableServerSideApply"}),
        ({"kubeconfig": "x", "renderYamlToDirectory": "out"}, {"renderYamlToDirectory"}),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(settings: dict[str, Any], refused: set[str]) -> None:
    checked = KubernetesProvider().check_config(settings)
    assert {failure.property for failure in checked.failures} == refused
    assert checked.inputs == settings


def test_a_kubeconfig_may_be_text_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(json.loads(kubeconfig())))
    for given in (kubeconfig(), file.read_text(), str(file), json.loads(kubeconfig())):
        target = parse(given)
        assert (target.server.netloc, target.namespace, target.authority) == ("127.0.0.1:1", "mine", "")
        assert Credentials(target).token() == "t"
    assert parse(kubeconfig(), cluster="other").server.port == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{", "failed to parse kubeconfig"),
        ("just words", "expected a mapping, found str"),
        ("{}", "context '' does not exist in the kubeconfig; it has: none"),
        (kubeconfig("http://127.0.0.1:1"), "cluster 'lab' has no https server, but 'http://127.0.0.1:1'"),
    ],
)
def test_a_useless_kubeconfig_says_what_is_wrong(given: str, message: str) -> None:
    with pytest.raises(KubeconfigError, match=message):
        parse(given)
    provider = KubernetesProvider()
    provider.configure({"kubeconfig": given})
    subject = Subject.of("urn:pulumi:dev::lab::kubernetes:core/v1:Namespace::n")
    checked = provider.check(subject, {}, {"metadata": {"name": "n"}}, SEED)
    assert provider.create(subject, dict(checked.inputs), 0, True).outputs == checked.inputs
    with pytest.raises(ProviderError, match=f"configured Kubernetes cluster is unreachable: .*{message}"):
        provider.create(subject, dict(checked.inputs), 0, False)


FORGET = (
    "If the cluster was deleted, you can remove this resource from Pulumi state by rerunning the operation with the "
    'PULUMI_K8S_DELETE_UNREACHABLE environment variable set to "true"'
)
IN_A_LOST_CLUSTER: dict[str, tuple[str, dict[str, Any], str]] = {
    "object": (
        "kubernetes:core/v1:Namespace",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}},
        f"configured Kubernetes cluster is unreachable. {FORGET}. Reason: unable to load schema information",
    ),
    "release": (
        "kubernetes:helm.sh/v3:Release",
        {"name": "n", "namespace": "n"},
        "can't delete Helm Release with unreachable cluster. Reason: \"unable to load schema information",
    ),
}


@pytest.mark.parametrize("kind", IN_A_LOST_CLUSTER)
@pytest.mark.parametrize(
    ("settings", "variable", "forgets"),
    [
        ({}, "", False),
        ({}, "true", True),
        ({}, "1", False),
        ({"deleteUnreachable": "true"}, "", True),
        ({"deleteUnreachable": "false"}, "true", False),
    ],
)
def test_a_lost_cluster_is_forgotten_only_on_request_and_its_releases_only_by_a_refresh(
    monkeypatch: pytest.MonkeyPatch, kind: str, settings: dict[str, str], variable: str, forgets: bool
) -> None:
    """The stand-in was kinder than the plugin: what upstream cannot delete, it deleted."""
    monkeypatch.setenv("PULUMI_K8S_DELETE_UNREACHABLE", variable)
    type_, outputs, refusal = IN_A_LOST_CLUSTER[kind]
    provider = KubernetesProvider()
    provider.configure({"kubeconfig": kubeconfig(), **settings})
    subject = Subject.of(f"urn:pulumi:dev::lab::{type_}::n")
    if forgets:
        assert provider.read(subject, "n/n", {}, outputs).id == ""
    else:
        with pytest.raises(ProviderError, match="failed to read resource state due to unreachable cluster"):
            provider.read(subject, "n/n", {}, outputs)
    if forgets and kind == "object":
        provider.delete(subject, "n/n", outputs, 0)
    else:
        with pytest.raises(ProviderError, match=f"^{re.escape(refusal)}"):
            provider.delete(subject, "n/n", outputs, 0)


def test_a_cluster_elsewhere_is_never_called() -> None:
    provider = KubernetesProvider()
    provider.configure({"kubeconfig": kubeconfig("https://192.0.2.1")})
    subject = Subject.of("urn:pulumi:dev::lab::kubernetes:core/v1:Namespace::n")
    with pytest.raises(ProviderError, match=r"API servers on this machine only, not to 192\.0\.2\.1"):
        provider.create(subject, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}, 0, False)


def test_a_credential_program_is_asked_once_until_its_token_ends(tmp_path: Path) -> None:
    asked, program = tmp_path / "asked", tmp_path / "plugin"
    settings = {"args": ["now"], "env": [{"name": "GREETING", "value": "hi"}], "provideClusterInfo": True}
    for ends, calls in (("2000-01-01T00:00:00Z", 2), ("2999-01-01T00:00:00Z", 1)):
        asked.unlink(missing_ok=True)
        credential = json.dumps({"status": {"token": "x", "expirationTimestamp": ends}})
        executable(program, f'echo "$KUBERNETES_EXEC_INFO $GREETING $1" >> "{asked}"\necho \'{credential}\'')
        credentials = Credentials(parse(with_program(str(program), **settings)))
        assert [credentials.token(), credentials.token()] == ["x", "x"]
        lines = asked.read_text().splitlines()
        assert len(lines) == calls
        assert lines[0].endswith(" hi now")
        assert json.loads(lines[0].removesuffix(" hi now"))["spec"]["cluster"] == {"server": "https://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "exec: executable .*plugin not found. Install it."),
        ("echo who are you >&2; exit 3", "failed with exit code 3: who are you"),
        ("echo hello", "printed no ExecCredential with a token"),
        ("echo '{\"status\": {}}'", "printed no ExecCredential with a token"),
    ],
)
def test_a_credential_program_that_fails_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    program = tmp_path / "plugin"
    if text is not None:
        executable(program, text)
    with pytest.raises(KubeconfigError, match=message):
        Credentials(parse(with_program(str(program), installHint="Install it."))).token()


def test_changes_are_named_as_the_engine_names_properties() -> None:
    old = {"a": {"x.y/z": 1, "same": [1, {"b": 2}]}, "gone": {}, "flag": True}
    new = {"a": {"x.y/z": UNKNOWN, "same": [1, {"b": 3}, 4]}, "new": [], "flag": 1}
    assert [(c.path, c.kind) for c in differences.changes(old, new)] == [
        ("a.same[1].b", "update"),
        ("a.same[2]", "add"),
        ('a["x.y/z"]', "update"),
        ("flag", "update"),
        ("gone", "delete"),
        ("new", "add"),
    ]
    assert not list(differences.changes(old, old))


@pytest.mark.parametrize(
    ("group", "kind", "path", "replaces"),
    [
        ("apps", "Deployment", "metadata.name", True),
        ("apps", "Deployment", "spec.selector.matchLabels.app", True),
        ("apps", "Deployment", "spec.selectors", False),
        ("apps", "Deployment", "spec.template.spec.containers[0].image", False),
        ("batch", "Job", "spec.template.spec.containers[0].image", True),
        ("", "Secret", 'data["tls.crt"]', True),
        ("kueue.x-k8s.io", "ClusterQueue", "spec.cohortName", False),
    ],
)
def test_fields_that_replace(group: str, kind: str, path: str, replaces: bool) -> None:
    assert differences.replaces(group, kind, path) is replaces


def waited(expression: str) -> waiting.Check:
    annotations = {"pulumi.com/waitFor": expression}
    check = waiting.readiness({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"annotations": annotations}})
    assert check
    return check


@pytest.mark.parametrize(
    ("expression", "missing"),
    [
        ("condition=Ready", ""),
        ("condition=Ready=True", ""),
        ("condition=Ready=False", "condition Ready is not False (True: Since: forever)"),
        ("jsonpath={.status.phase}", ""),
        ("jsonpath={.status.phase}=Done", "{.status.phase} is Running, not Done"),
        (r"jsonpath={.metadata.labels.a\.b}=1", ""),
        ("jsonpath={.metadata.labels['a.b']}=1", ""),
        ("jsonpath={.status.conditions[0].type}=Ready", ""),
        ("jsonpath={.status.conditions[1].type}=Ready", "{.status.conditions[1].type} does not exist"),
        ("jsonpath={.status.count}=3", ""),
        ("jsonpath={.status.ok}=true", ""),
        ('["condition=Ready", "jsonpath={.status.phase}=Done"]', "{.status.phase} is Running, not Done"),
    ],
)
def test_what_an_annotation_waits_for(expression: str, missing: str) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Since", "message": "forever"}
    status = {"conditions": [ready], "phase": "Running", "count": 3, "ok": True}
    assert waited(expression)({"metadata": {"labels": {"a.b": "1"}}, "status": status}) == missing


@pytest.mark.parametrize(
    "expression", ["Ready", "condition=", "jsonpath=.status", "jsonpath={.a[*]}", "[]", "[1]", '["condition=A"']
)
def test_an_annotation_that_cannot_be_read_is_refused_when_planned(expression: str) -> None:
    provider = KubernetesProvider()
    provider.configure({"kubeconfig": kubeconfig("https://192.0.2.1")})
    subject = Subject.of("urn:pulumi:dev::lab::kubernetes:core/v1:ConfigMap::c")
    inputs = {"metadata": {"name": "c", "annotations": {"pulumi.com/waitFor": expression}}}
    [failure] = provider.check(subject, {}, inputs, SEED).failures
    assert failure.property == 'metadata.annotations["pulumi.com/waitFor"]'
    assert "expected" in failure.reason or "only fields and indexes" in failure.reason


@pytest.mark.parametrize(
    ("kind", "status", "missing"),
    [
        ("apps/v1 Deployment", {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}, ""),
        (
            "apps/v1 Deployment",
            {"replicas": 3, "updatedReplicas": 2, "availableReplicas": 2},
            "2 of 2 replicas updated, 2 ready",
        ),
        (
            "apps/v1 Deployment",
            {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 1},
            "2 of 2 replicas updated, 1 ready",
        ),
        ("apps/v1 StatefulSet", {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}, ""),
        (
            "apps/v1 DaemonSet",
            {"desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberAvailable": 2},
            "1 of 2 pods updated, 2 available",
        ),
        ("v1 Pod", {"phase": "Pending"}, "the Pod is Pending and not Ready"),
        ("v1 Pod", {"phase": "Succeeded"}, ""),
        ("batch/v1 Job", {"conditions": [{"type": "Complete", "status": "True"}]}, ""),
        ("batch/v1 Job", {}, "the Job is not complete"),
    ],
)
def test_when_a_kind_is_ready(kind: str, status: dict[str, Any], missing: str) -> None:
    api_version, name = kind.split()
    check = waiting.readiness({"apiVersion": api_version, "kind": name, "metadata": {}})
    assert check
    obj = {"metadata": {"generation": 4}, "spec": {"replicas": 2}, "status": {"observedGeneration": 4, **status}}
    assert check(obj) == missing
    if name in ("Deployment", "StatefulSet", "DaemonSet"):
        assert check({**obj, "metadata": {"generation": 5}}), "an old generation's status says nothing"


def test_a_job_that_failed_is_not_waited_for() -> None:
    check = waiting.BY_KIND["batch", "Job"]
    failed = {"type": "Failed", "status": "True", "message": "BackoffLimitExceeded"}
    with pytest.raises(waiting.NeverReadyError, match="has failed: BackoffLimitExceeded"):
        check({"status": {"conditions": [failed]}})


def test_a_refresh_keeps_what_the_server_does_not_store() -> None:
    inputs = {"labels": {}, "spec": {"a": "1", "list": [{"x": 1}], "gone": 2}, "stringData": {"k": "v"}}
    live = {"spec": {"a": "2", "list": [{"x": 1, "default": 3}], "other": 4}, "data": {"k": "dg=="}, "status": {}}
    assert checkpoint.refreshed(inputs, live) == {
        "labels": {},
        "spec": {"a": "2", "list": [{"x": 1}]},
        "stringData": {"k": "v"},
    }


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("kubernetes:core/v1:ConfigMapPatch", "knows no Patch resources"),
        ("kubernetes:v1:Thing", "expected kubernetes:"),
    ],
)
def test_types_that_are_not_known_are_refused(token: str, message: str) -> None:
    provider = KubernetesProvider()
    provider.configure({"kubeconfig": kubeconfig()})
    with pytest.raises(ProviderError, match=message):
        provider.check(Subject.of(f"urn:pulumi:dev::lab::{token}::x"), {}, {}, SEED)
    with pytest.raises(ProviderError, match="has no functions"):
        provider.invoke("kubernetes:helm:template", {})
