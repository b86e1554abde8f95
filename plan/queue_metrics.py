"""The collector of queues' metrics: a Prometheus of Google's, and its settings.

Sources. The image and that it reads `project_id`, `location` and `cluster` from `external_labels`:
GoogleCloudPlatform/prometheus-engine, examples/inject-gmp-sidecar.sh (release 0.17.3). What it is: Managed Service for
Prometheus, "self-deployed data collection". Ports and labels of pods: charts of Kueue 0.19.2 and JobSet 0.12.0.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from catalogue.queries import ALERTS, CHARTS
from plan.charts import JOBSET, KUEUE, Chart
from plan.controller_sizes import Size
from plan.platform import Platform

NAME = NAMESPACE = "tpu-queue-metrics"
IMAGE = (
    "gke.gcr.io/prometheus-engine/prometheus:v3.13.0-gmp.1-gke.0"
    "@sha256:b8e81d2737a3ca7126b06cbd4bb495b4f9c694e9431e5a280d7d37f289ff2708"
)
ROLE = "roles/monitoring.metricWriter"
PORT = 19090
SETTINGS = "prometheus.yaml"
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
"""The account's token in the pod. The kubelet writes a new one before it ends, and Prometheus reads it each time."""
SCRAPED_EVERY = "60s"
FEATURES = ("created-timestamp-zero-ingestion",)
"""Counters begin with a zero at the time at which they were made. Google's build takes the first value of a series as
its zero and does not write it (pkg/export/series_cache.go), so the first event of a counter would be lost."""
SIZE = Size(0.01, 512)
"""Room for two replicas of Kueue with a hundred queues. It works for moments, so it asks for next to no CPU."""

_DISTRIBUTION = re.compile(r"_bucket$")


@dataclass(frozen=True)
class Target:
    """A controller whose pods are read: `metrics` is a pattern of the names that are kept, since each sample is paid
    for."""

    chart: Chart
    labels: Mapping[str, str]
    metrics: str


def installed(platform: Platform) -> bool:
    """Whether the platform runs the collector."""
    return platform.monitoring.queue_metrics == "install" and bool(platform.queues)


def targets() -> tuple[Target, ...]:
    """What the collector reads."""
    return (
        Target(KUEUE, {"app.kubernetes.io/name": "kueue"}, "|".join(_read_by_queries("kueue"))),
        Target(
            JOBSET, {"app.kubernetes.io/name": "jobset", "app.kubernetes.io/component": "controller"}, "jobset_.+_total"
        ),
    )


def _read_by_queries(prefix: str) -> tuple[str, ...]:
    """Names of metrics in the catalogue's queries; of a distribution all its series, without which it is incomplete."""
    written = " ".join(f"{row.query} {row.part}" for row in (*CHARTS, *ALERTS))
    names = set(re.findall(rf"\b{prefix}_\w+", written))
    return tuple(sorted(_DISTRIBUTION.sub("_(?:bucket|sum|count)", name) for name in names))


def settings(platform: Platform) -> str:
    """The configuration file of Prometheus."""
    return yaml.safe_dump(
        {
            "global": {
                "scrape_interval": SCRAPED_EVERY,
                "metric_name_validation_scheme": "legacy",
                "metric_name_escaping_scheme": "underscores",
                "external_labels": {
                    "project_id": platform.project,
                    "location": platform.location,
                    "cluster": platform.cluster_name,
                },
            },
            "scrape_configs": [_job(target) for target in targets()],
        },
        sort_keys=False,
    )


def _job(target: Target) -> dict[str, Any]:
    """Every pod of a controller: each replica has counters of its own, so its Service would give another one each
    time."""
    selector = ",".join(f"{key}={value}" for key, value in target.labels.items())
    pods = {
        "role": "pod",
        "namespaces": {"names": [target.chart.namespace]},
        "selectors": [{"role": "pod", "label": selector}],
    }
    return {
        "job_name": target.chart.release,
        "scheme": "https",
        # The controllers sign their own certificates.
        "tls_config": {"insecure_skip_verify": True},
        "authorization": {"credentials_file": TOKEN},
        "kubernetes_sd_configs": [pods],
        "relabel_configs": [
            _keep("__meta_kubernetes_pod_container_port_name", "metrics"),
            _keep("__meta_kubernetes_pod_phase", "Running"),
            _copy("__meta_kubernetes_namespace", "namespace"),
            _copy("__meta_kubernetes_pod_name", "pod"),
            _copy("__meta_kubernetes_pod_name", "instance"),
        ],
        "metric_relabel_configs": [_keep("__name__", target.metrics)],
    }


def _keep(label: str, pattern: str) -> dict[str, Any]:
    return {"action": "keep", "source_labels": [label], "regex": pattern}


def _copy(label: str, to: str) -> dict[str, Any]:
    return {"source_labels": [label], "target_label": to}


def arguments(platform: Platform) -> tuple[str, ...]:
    """Flags of Prometheus. On hosts of Compute Engine it has the host's network, where nobody else may reach it."""
    address = "127.0.0.1" if platform.backend == "compute" else ""
    return (
        f"--config.file=/etc/prometheus/{SETTINGS}",
        "--storage.tsdb.path=/prometheus",
        "--storage.tsdb.retention.time=3h",
        f"--web.listen-address={address}:{PORT}",
        f"--enable-feature={','.join(FEATURES)}",
    )
