"""The settings of the collector of queues' metrics, and when it is installed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from plan.monitoring import alerts, charts
from plan.queue_metrics import TOKEN, installed, settings
from tests.platforms import SELF_MANAGED, load

QUEUES = {"q": {"namespaces": ["a"], "slices": {"train": 1}}}
CLUSTERS: dict[str, dict[str, Any]] = {"gke": {}, "self-managed": SELF_MANAGED}


def platform(cluster: str, who: str = "install") -> Any:
    told = {"notify": ["ops@example.com"], "queue_metrics": who}
    return load(cluster=CLUSTERS[cluster], queues=QUEUES, monitoring=told)


def test_it_is_installed_where_it_is_asked_for() -> None:
    assert installed(platform("gke"))
    assert not installed(platform("gke", "own"))
    assert not installed(platform("gke", "none"))


def test_every_metric_that_a_query_reads_is_kept() -> None:
    """And distributions whole: without their sum and count they cannot be written."""
    found = platform("gke")
    queries = " ".join([*(plan.query for plan in charts(found)), *(plan.query for plan in alerts(found))])
    read = set(re.findall(r"\bkueue_\w+", queries))
    assert len(read) > 6
    [kueue, _jobset] = yaml.safe_load(settings(found))["scrape_configs"]
    [kept] = kueue["metric_relabel_configs"]
    assert kept["action"] == "keep"
    for name in (*read, "kueue_admission_wait_time_seconds_sum", "kueue_admission_wait_time_seconds_count"):
        assert re.fullmatch(kept["regex"], name), name
    assert not re.fullmatch(kept["regex"], "kueue_admission_attempts_total")


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_series_are_of_the_cluster_that_the_queries_name(cluster: str) -> None:
    found = platform(cluster)
    labels = yaml.safe_load(settings(found))["global"]["external_labels"]
    assert labels == {"project_id": found.project, "location": found.location, "cluster": found.cluster_name}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_it_has_no_credential_but_the_file_that_the_kubelet_renews(cluster: str) -> None:
    for job in yaml.safe_load(settings(platform(cluster)))["scrape_configs"]:
        assert job["authorization"] == {"credentials_file": TOKEN}
        assert job["scheme"] == "https"


def test_the_device_plugin_is_read_where_the_platform_wants_it() -> None:
    told = {"queue_metrics": "install", "device_metrics": True}
    [*_, plugin] = yaml.safe_load(settings(load(cluster=SELF_MANAGED, queues=QUEUES, monitoring=told)))[
        "scrape_configs"
    ]
    assert plugin["job_name"] == "tpu-device-plugin"
    assert "authorization" not in plugin  # its endpoint asks nobody, so the token is not sent there
    assert {"source_labels": ["__meta_kubernetes_pod_ip"], "target_label": "__address__", "replacement": "$1:2112"} in (
        plugin["relabel_configs"]
    )
    [kept] = plugin["metric_relabel_configs"]
    for name in ("duty_cycle_node", "memory_used_node", "memory_total_node"):
        assert re.fullmatch(kept["regex"], name)
    jobs = [job["job_name"] for job in yaml.safe_load(settings(platform("self-managed")))["scrape_configs"]]
    assert jobs == ["kueue", "jobset"]
