"""What Kueue and Kubernetes refuse beyond their schemas: rules of the CRDs in CEL, and of Kueue's webhooks.

Written from the rules in tests/data/crds (`x-kubernetes-validations`) and from Kueue v0.19 `pkg/webhooks`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
SYSTEM_NAMESPACES = re.compile(r"default|kube-.*|gke-.*|kueue-system|jobset-system")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
ONE_LABEL = ("Namespace", "Service")
MOST = {"resourceGroups": 16, "flavors": 64, "coveredResources": 64}
LARGEST_OBJECT = 1_500_000
"""What etcd takes in one request."""


def refused(manifests: list[Json]) -> Iterator[str]:
    """Why an API server with Kueue in it would refuse one of a platform's objects, in words."""
    seen = set()
    for manifest in manifests:
        metadata, kind = manifest["metadata"], manifest["kind"]
        name, namespace = metadata["name"], metadata.get("namespace", "")
        where = f"{kind} {name}"
        if (manifest["apiVersion"], kind, namespace, name) in seen:
            yield f"{where}: is there twice"
        seen.add((manifest["apiVersion"], kind, namespace, name))
        if len(name) > (63 if kind in ONE_LABEL else 253) or not _is_name(name, kind):
            yield f"{where}: no name of an object"
        for key, value in metadata.get("labels", {}).items():
            if not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
                yield f"{where}: no label {key}={value}"
        if kind == "Namespace" and SYSTEM_NAMESPACES.fullmatch(name) and name not in ("kueue-system", "jobset-system"):
            yield f"{where}: the system's"
        if len(json.dumps(manifest)) > LARGEST_OBJECT:
            yield f"{where}: too large"
        rules = {"ClusterQueue": _queue, "Cohort": _cohort, "ResourceFlavor": _flavor, "LocalQueue": _local_queue}
        yield from (f"{where}: {reason}" for reason in rules.get(kind, _nothing)(manifest.get("spec") or {}))


def _is_name(name: str, kind: str) -> bool:
    # Roles may have almost any name.
    return kind.startswith(("Role", "ClusterRole")) or NAME.fullmatch(name) is not None


def _nothing(_spec: Json) -> Iterator[str]:
    return iter(())


def _queue(spec: Json) -> Iterator[str]:
    yield from _groups(spec, has_parent="cohortName" in spec)
    if "cohortName" in spec and not (NAME.fullmatch(spec["cohortName"]) and len(spec["cohortName"]) <= 253):
        yield "no name of a cohort"
    preemption = spec.get("preemption", {})
    borrowing = preemption.get("borrowWithinCohort", {}).get("policy", "Never")
    if preemption.get("reclaimWithinCohort", "Never") == "Never" and borrowing != "Never":
        yield "borrows by preemption without reclaiming"
    flavors = {flavor["name"] for group in spec.get("resourceGroups", ()) for flavor in group["flavors"]}
    for check in spec.get("admissionChecksStrategy", {}).get("admissionChecks", ()):
        if not flavors.issuperset(check.get("onFlavors", ())):
            yield "a check on a flavor that the queue lacks"


def _cohort(spec: Json) -> Iterator[str]:
    yield from _groups(spec, has_parent="parentName" in spec)


def _groups(spec: Json, *, has_parent: bool) -> Iterator[str]:
    groups = spec.get("resourceGroups", [])
    if len(groups) > MOST["resourceGroups"]:
        yield "too many resource groups"
    resources = [name for group in groups for name in group["coveredResources"]]
    flavors = [flavor["name"] for group in groups for flavor in group["flavors"]]
    if len(set(resources)) < len(resources) or len(set(flavors)) < len(flavors):
        yield "a resource or flavor twice"
    for group in groups:
        if not all(1 <= len(group[key]) <= MOST[key] for key in ("flavors", "coveredResources")):
            yield "too many or no flavors or resources"
        for flavor in group["flavors"]:
            if [quota["name"] for quota in flavor["resources"]] != group["coveredResources"]:
                yield f"flavor {flavor['name']} has other resources than its group"
            for quota in flavor["resources"]:
                yield from (f"{flavor['name']}: {reason}" for reason in _quota(quota, has_parent))


def _quota(quota: Json, has_parent: bool) -> Iterator[str]:
    own = _amount(quota["nominalQuota"])
    if not 0 <= own < 2**63:
        yield f"nominalQuota {own}"
    for key in ("borrowingLimit", "lendingLimit"):
        if key in quota and not has_parent:
            yield f"{key} without a cohort"
        if key in quota and not 0 <= _amount(quota[key]) < 2**63:
            yield f"{key} {quota[key]}"
    if "lendingLimit" in quota and _amount(quota["lendingLimit"]) > own:
        yield "lendingLimit above nominalQuota"


def _amount(quantity: Any) -> float:
    scale = {"k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
    match = re.fullmatch(r"(-?[0-9.]+)([A-Za-z]*)", str(quantity))
    assert match, quantity
    return float(match[1]) * (scale[match[2]] if match[2] else 1)


def _flavor(spec: Json) -> Iterator[str]:
    if "topologyName" in spec and not spec.get("nodeLabels"):
        yield "a topology without labels of nodes"
    for key, value in spec.get("nodeLabels", {}).items():
        if not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
            yield f"no label {key}={value}"
    if (
        len(spec.get("nodeLabels", {})) > 8
        or len(spec.get("nodeTaints", ())) > 8
        or len(spec.get("tolerations", ())) > 8
    ):
        yield "more than 8 labels, taints or tolerations"
    for taint in spec.get("nodeTaints", ()):
        if taint["effect"] not in EFFECTS or not LABEL_KEY.fullmatch(taint["key"]):
            yield f"no taint {taint}"
    for toleration in spec.get("tolerations", ()):
        yield from _toleration(toleration)


def _toleration(toleration: Json) -> Iterator[str]:
    operator = toleration.get("operator", "Equal")
    if "key" not in toleration and operator != "Exists":
        yield f"a toleration without key {toleration}"
    if operator not in ("Equal", "Exists") or (operator == "Exists" and "value" in toleration):
        yield f"no toleration {toleration}"
    if "effect" in toleration and toleration["effect"] not in EFFECTS:
        yield f"no effect {toleration}"
    if not LABEL_KEY.fullmatch(toleration.get("key", "a")) or not LABEL_VALUE.fullmatch(toleration.get("value", "")):
        yield f"no toleration {toleration}"


def _local_queue(spec: Json) -> Iterator[str]:
    name = spec.get("clusterQueue", "")
    if not NAME.fullmatch(name) or len(name) > 253:
        yield "no name of a queue"
