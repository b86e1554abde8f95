"""Cloud Logging: metrics of log entries, and exclusions. There are no logs, so nothing is counted or left out.

Rules: names and filters are required; a metric that does not exist is made by its update too. Answers lack fields with
default values (`default_values.py`). Filters are not read.
"""

from __future__ import annotations

import re

from sandbox.google.default_values import without_defaults
from sandbox.google.errors import GoogleError, invalid
from sandbox.google.operations import now
from sandbox.google.service import Call, handles
from sandbox.google.store import Resource

METRICS, EXCLUSIONS = "logging.metrics", "logging.exclusions"
METRIC_NAME = re.compile(r"[A-Za-z0-9_.,+!*'()%/\-]{1,100}")
EXCLUSION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,99}")
# What a metric is, where the body does not say (LogMetric.metricDescriptor).
COUNTER = {"metricKind": "DELTA", "valueType": "INT64", "unit": "1"}
_METRICS, _EXCLUSIONS = "logging.projects.metrics", "logging.projects.exclusions"


def _metric_name(call: Call) -> str:
    return f"projects/{call.project}/metrics/{call.params['metricsId']}"


def _exclusion_name(call: Call) -> str:
    return f"projects/{call.project}/exclusions/{call.params['exclusionsId']}"


def _found(call: Call, kind: str, name: str) -> Resource:
    found = call.store.get(kind, name)
    if found is None:
        raise GoogleError("NOT_FOUND", f"{name.split('/')[2].removesuffix('s').capitalize()} {name} does not exist.")
    return found


def _stored_metric(call: Call, name: str, old: Resource) -> Resource:
    body = call.body
    if not METRIC_NAME.fullmatch(str(body.get("name", ""))):
        raise invalid("Metric.name is required, of at most 100 letters, digits and _-.,+!*',()%/.")
    if not body.get("filter"):
        raise invalid("Metric.filter is required.")
    described = {**COUNTER, **(body.get("metricDescriptor") or {})}
    if described["metricKind"] != "DELTA" or described["valueType"] not in ("INT64", "DISTRIBUTION"):
        raise invalid("A metric of log entries is of kind DELTA, and its values are INT64 or DISTRIBUTION.")
    if (described["valueType"] == "DISTRIBUTION") != bool(body.get("valueExtractor")):
        raise invalid("A distribution, and nothing else, needs a value extractor.")
    full = name.replace(str(body["name"]), body["name"].replace("/", "%2F"))
    described |= {
        "type": f"logging.googleapis.com/user/{body['name']}",
        "name": f"projects/{call.project}/metricDescriptors/logging.googleapis.com/user/{body['name']}",
        "description": str(body.get("description", "")),
    }
    changed = {**body, "metricDescriptor": described, "createTime": old.get("createTime", now()), "updateTime": now()}
    kept = without_defaults(call.route.document, "LogMetric", {**changed, "resourceName": full})
    call.store.put(METRICS, name, kept)
    return kept


@handles(f"{_METRICS}.create")
def create_metric(call: Call) -> Resource:
    name = f"projects/{call.project}/metrics/{call.body.get('name', '')}"
    if call.store.get(METRICS, name):
        raise GoogleError("ALREADY_EXISTS", f"Metric {name} already exists.")
    return _stored_metric(call, name, {})


@handles(f"{_METRICS}.get")
def get_metric(call: Call) -> Resource:
    return _found(call, METRICS, _metric_name(call))


@handles(f"{_METRICS}.list")
def list_metrics(call: Call) -> Resource:
    return {"metrics": list(call.store.all(METRICS, f"projects/{call.project}/").values())}


@handles(f"{_METRICS}.update")
def change_metric(call: Call) -> Resource:
    name = _metric_name(call)
    if call.body.get("name") != call.params["metricsId"]:
        raise invalid("The name of the metric differs from that in the URL.")
    return _stored_metric(call, name, call.store.get(METRICS, name) or {})


@handles(f"{_METRICS}.delete")
def delete_metric(call: Call) -> Resource:
    name = _metric_name(call)
    _found(call, METRICS, name)
    call.store.put(METRICS, name, None)
    return {}


def _stored_exclusion(call: Call, name: str, exclusion: Resource) -> Resource:
    if not EXCLUSION_NAME.fullmatch(str(exclusion.get("name", ""))):
        raise invalid("LogExclusion.name is required, of at most 100 letters, digits and _-.")
    if not exclusion.get("filter"):
        raise invalid("LogExclusion.filter is required.")
    kept = without_defaults(call.route.document, "LogExclusion", {**exclusion, "updateTime": now()})
    call.store.put(EXCLUSIONS, name, kept)
    return kept


@handles(f"{_EXCLUSIONS}.create")
def create_exclusion(call: Call) -> Resource:
    name = f"projects/{call.project}/exclusions/{call.body.get('name', '')}"
    if call.store.get(EXCLUSIONS, name):
        raise GoogleError("ALREADY_EXISTS", f"Exclusion {name} already exists.")
    return _stored_exclusion(call, name, {**call.body, "createTime": now()})


@handles(f"{_EXCLUSIONS}.get")
def get_exclusion(call: Call) -> Resource:
    return _found(call, EXCLUSIONS, _exclusion_name(call))


@handles(f"{_EXCLUSIONS}.list")
def list_exclusions(call: Call) -> Resource:
    return {"exclusions": list(call.store.all(EXCLUSIONS, f"projects/{call.project}/").values())}


@handles(f"{_EXCLUSIONS}.patch")
def change_exclusion(call: Call) -> Resource:
    name = _exclusion_name(call)
    old = _found(call, EXCLUSIONS, name)
    mask = [field for field in call.query.get("updateMask", "").split(",") if field]
    if not mask:
        raise invalid("update_mask is required.")
    kept = {key: value for key, value in old.items() if key not in mask}
    return _stored_exclusion(call, name, {**kept, **{key: call.body[key] for key in mask if key in call.body}})


@handles(f"{_EXCLUSIONS}.delete")
def delete_exclusion(call: Call) -> Resource:
    name = _exclusion_name(call)
    _found(call, EXCLUSIONS, name)
    call.store.put(EXCLUSIONS, name, None)
    return {}
