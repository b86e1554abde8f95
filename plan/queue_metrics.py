"""The collector of queues' metrics: a Prometheus of Google's, and its settings. Without GKE it also reads what chips
do, where the platform wants it.

Sources. The image and that it reads `project_id`, `location` and `cluster` from `external_labels`:
GoogleCloudPlatform/prometheus-engine, examples/inject-gmp-sidecar.sh (release 0.17.3). What it is: Managed Service for
Prometheus, "self-deployed data collection". Ports and labels of pods: charts of Kueue 0.19.2 and JobSet 0.12.0. The
device plugin's endpoint and the names there: ai-on-gke/tpu-device-plugin @4626a9f, pkg/metrics.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from catalogue.queries import ALERTS, CHARTS, PLUGIN_SERIES
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
DEVICE_PLUGIN = "tpu-device-plugin"
FEATURES = ("created-timestamp-zero-ingestion",)
"""Counters begin with a zero at the time at which they were made. Google's build takes the first value of a series as
its zero and does not write it (pkg/export/series_cache.go), so the first event of a counter would be lost."""
SIZE = Size(0.01, 512)
"""Room for two replicas of Kueue with a hundred queues. It works for moments, so it asks for next to no CPU."""

_DISTRIBUTION = re.compile(r"_bucket$")


@dataclass(frozen=True)
class Target:
    """Pods that are read.

    - `job`: value of that label; `namespace`, `labels`: of the pods
    - `metrics`: a pattern of the names that are kept, since each sample is paid for
    - `port`: in the host's network, without encryption; None for the port `metrics` with a token
    """

    job: str
    namespace: str
    labels: Mapping[str, str]
    metrics: str
    port: int | None = None


def installed(platform: Platform) -> bool:
    """Whether the platform runs the collector."""
    return platform.monitoring.queue_metrics == "install" and bool(platform.queues)


def targets(platform: Platform) -> tuple[Target, ...]:
    """What the collector reads."""
    controllers = (
        _controller(KUEUE, {"app.kubernetes.io/name": "kueue"}, "|".join(_read_by_queries())),
        _controller(
            JOBSET, {"app.kubernetes.io/name": "jobset", "app.kubernetes.io/component": "controller"}, "jobset_.+_total"
        ),
    )
    if not platform.monitoring.device_metrics:
        return controllers
    plugin = Target(DEVICE_PLUGIN, "kube-system", {"k8s-app": DEVICE_PLUGIN}, "|".join(PLUGIN_SERIES.values()), 2112)
    return (*controllers, plugin)


def _controller(chart: Chart, labels: Mapping[str, str], metrics: str) -> Target:
    return Target(chart.release, chart.namespace, labels, metrics)


def _read_by_queries() -> tuple[str, ...]:
    """Names of Kueue's metrics in the catalogue's queries; of a distribution all its series, without which it is
    incomplete."""
    written = " ".join(f"{row.query} {row.part}" for row in (*CHARTS, *ALERTS))
    names = set(re.findall(r"\bkueue_\w+", written))
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
            "scrape_configs": [_job(target) for target in targets(platform)],
        },
        sort_keys=False,
    )


def _job(target: Target) -> dict[str, Any]:
    """Every pod by itself: each replica of a controller has counters of its own, so its Service would give another one
    each time."""
    selector = ",".join(f"{key}={value}" for key, value in target.labels.items())
    pods = {
        "role": "pod",
        "namespaces": {"names": [target.namespace]},
        "selectors": [{"role": "pod", "label": selector}],
    }
    return {
        "job_name": target.job,
        **({} if target.port else _WITH_TOKEN),
        "kubernetes_sd_configs": [pods],
        "relabel_configs": [
            *_endpoint(target),
            _keep("__meta_kubernetes_pod_phase", "Running"),
            _copy("__meta_kubernetes_namespace", "namespace"),
            _copy("__meta_kubernetes_pod_name", "pod"),
            _copy("__meta_kubernetes_pod_name", "instance"),
        ],
        "metric_relabel_configs": [_keep("__name__", target.metrics)],
    }


_WITH_TOKEN: Mapping[str, Any] = {
    "scheme": "https",
    # The controllers sign their own certificates.
    "tls_config": {"insecure_skip_verify": True},
    "authorization": {"credentials_file": TOKEN},
}


def _endpoint(target: Target) -> list[dict[str, Any]]:
    """A pod's port by its name; or, where the pod declares none, one port of its container of the same name."""
    if not target.port:
        return [_keep("__meta_kubernetes_pod_container_port_name", "metrics")]
    address = {
        "source_labels": ["__meta_kubernetes_pod_ip"],
        "target_label": "__address__",
        "replacement": f"$1:{target.port}",
    }
    return [_keep("__meta_kubernetes_pod_container_name", target.job), address]


def _keep(label: str, pattern: str) -> dict[str, Any]:
    return {"action": "keep", "source_labels": [label], "regex": pattern}


def _copy(label: str, to: str) -> dict[str, Any]:
    return {"source_labels": [label], "target_label": to}


def arguments() -> tuple[str, ...]:
    """Flags of Prometheus."""
    return (
        f"--config.file=/etc/prometheus/{SETTINGS}",
        "--storage.tsdb.path=/prometheus",
        "--storage.tsdb.retention.time=3h",
        f"--web.listen-address=:{PORT}",
        f"--enable-feature={','.join(FEATURES)}",
    )
