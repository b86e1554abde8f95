"""The provider's own configuration: what is accepted, and when a change of it replaces everything in the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.plugins.kubernetes.kubeconfig import KubeconfigError, parse
from sandbox.plugins.provider import Change, Checked, Difference, Failure
from sandbox.plugins.values import UNKNOWN

IDENTIFIER = "clusterIdentifier"
# Settings that choose the cluster.
CHOICE = ("kubeconfig", "context", "cluster")
# Setting and the only value that the stand-in can honour; it comes as text, as the engine passes it.
FIXED = {"enableServerSideApply": "true", "upsertExistingObjects": "false"}
DELETE_UNREACHABLE = "deleteUnreachable"
DELETE_UNREACHABLE_VARIABLE = "PULUMI_K8S_DELETE_UNREACHABLE"
KNOWN = {*CHOICE, IDENTIFIER, "namespace", DELETE_UNREACHABLE, *FIXED}
# Sent by the engine and the SDK beside the provider's own settings.
INTERNAL = {"version", "pluginDownloadURL", "__internal"}


def check(news: Mapping[str, Any]) -> Checked:
    failures = [
        Failure(key, f"the sandbox's stand-in does not know this setting; it knows {', '.join(sorted(KNOWN))}")
        for key in sorted(news.keys() - KNOWN - INTERNAL)
    ]
    failures += [
        Failure(key, f"the sandbox's stand-in can only run with {key} = {only}")
        for key, only in FIXED.items()
        if news.get(key) is not None and str(news[key]).lower() != only
    ]
    if not news.get("kubeconfig"):
        failures.append(
            Failure("kubeconfig", "missing: the sandbox's stand-in never takes the user's own; pass one to a Provider")
        )
    return Checked(news, failures)


def forgets_unreachable(inputs: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Whether objects of a cluster that cannot be reached count as deleted: by the setting, or else by the variable."""
    given = inputs.get(DELETE_UNREACHABLE)
    if given is None:
        return environment.get(DELETE_UNREACHABLE_VARIABLE) == "true"
    return str(given).lower() == "true"


def diff(olds: Mapping[str, Any], news: Mapping[str, Any]) -> Difference:
    """Upstream's DiffConfig (`provider.go`): only another cluster replaces the provider, and with it all it manages.

    An identifier, where old and new configuration both have one, decides that alone. Otherwise a kubeconfig that is not
    known yet, or one that leads to another cluster, does.
    """
    changed = sorted(
        k for k in (olds.keys() | news.keys()) - INTERNAL if olds.get(k) != news.get(k) or news.get(k) is UNKNOWN
    )
    replacing = _replacing(olds, news)
    return Difference([Change(key, _kind(key, olds, news), key in replacing) for key in changed])


def _kind(key: str, olds: Mapping[str, Any], news: Mapping[str, Any]) -> str:
    if key not in olds:
        return "add"
    return "update" if key in news else "delete"


def _replacing(olds: Mapping[str, Any], news: Mapping[str, Any]) -> set[str]:
    old, new = olds.get(IDENTIFIER), news.get(IDENTIFIER)
    if old and new:
        return {IDENTIFIER} if old != new else set()
    unknown = {key for key in CHOICE if news.get(key) is UNKNOWN}
    if unknown:
        return unknown
    if _active_cluster(olds) != _active_cluster(news):
        return {key for key in CHOICE if olds.get(key) != news.get(key)}
    return set()


def _active_cluster(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return parse(settings.get("kubeconfig"), settings.get("context", ""), settings.get("cluster", "")).cluster
    except KubeconfigError:
        return {}
