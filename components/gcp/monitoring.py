"""Cloud Monitoring and Cloud Logging: the dashboard, alerts, whom they tell, and metrics of log entries."""

import json
from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from plan.monitoring import (
    EVALUATED_EVERY,
    AlertPlan,
    LogCount,
    alerts,
    dashboard,
    documentation,
    dropped_logs,
    log_counts,
)
from plan.platform import Platform


class Monitoring(pulumi.ComponentResource):
    """What people see and are told about the platform. Everything here can be made again: nothing is protected.

    `after`: the project's APIs.
    """

    TYPE = "tpu:gcp:Monitoring"
    addresses: list[pulumi.Input[str]]
    """Full names of the notification channels made here, which are e-mail addresses."""
    channels: list[pulumi.Input[str]]
    """Full names of the notification channels: those made here, then those that exist."""

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._name, self._platform, self._after = name, platform, list(after)
        written = platform.monitoring
        counts = [self._count(count) for count in log_counts(platform)]
        if dropped := dropped_logs(platform):
            self._exclusion(dropped)
        if written.dashboard:
            self._dashboard()
        self.addresses = [self._address(address).name for address in dict.fromkeys(written.notify)]
        self.channels = [*self.addresses, *dict.fromkeys(written.channels)]
        for plan in alerts(platform):
            self._alert(plan, counts)
        self.register_outputs({"channels": self.channels})

    def _options(self, after: Sequence[pulumi.Resource] = ()) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=[*self._after, *after])

    def _dashboard(self) -> gcp.monitoring.Dashboard:
        return gcp.monitoring.Dashboard(
            f"{self._name}-dashboard",
            project=self._platform.project,
            dashboard_json=json.dumps(dashboard(self._platform), separators=(",", ":"), sort_keys=True),
            opts=self._options(),
        )

    def _count(self, count: LogCount) -> gcp.logging.Metric:
        return gcp.logging.Metric(
            f"{self._name}-{count.key.replace('_', '-')}",
            project=self._platform.project,
            name=count.name,
            description=count.description,
            filter=count.filter,
            metric_descriptor=gcp.logging.MetricMetricDescriptorArgs(metric_kind="DELTA", value_type="INT64", unit="1"),
            opts=pulumi.ResourceOptions.merge(self._options(), pulumi.ResourceOptions(delete_before_replace=True)),
        )

    def _exclusion(self, dropped: str) -> gcp.logging.ProjectExclusion:
        return gcp.logging.ProjectExclusion(
            f"{self._name}-sidecar-logs",
            project=self._platform.project,
            name=f"{self._platform.name}-sidecar-logs",
            description=f"Lines of libtpu on TPU platform {self._platform.name}, which are in the pods' own logs",
            filter=dropped,
            opts=pulumi.ResourceOptions.merge(self._options(), pulumi.ResourceOptions(delete_before_replace=True)),
        )

    def _address(self, address: str) -> gcp.monitoring.NotificationChannel:
        return gcp.monitoring.NotificationChannel(
            f"{self._name}/{address}",
            project=self._platform.project,
            display_name=f"{address}, for TPU platform {self._platform.name}",
            type="email",
            labels={"email_address": address},
            user_labels=self._platform.machine_labels,
            opts=self._options(),
        )

    def _alert(self, plan: AlertPlan, counts: Sequence[pulumi.Resource]) -> gcp.monitoring.AlertPolicy:
        monitoring, alert = gcp.monitoring, plan.alert
        title = f"{alert.title} ({self._platform.name})"
        condition = monitoring.AlertPolicyConditionConditionPrometheusQueryLanguageArgs(
            query=plan.query,
            duration=plan.hold,
            evaluation_interval=EVALUATED_EVERY,
            # A metric exists from its first point on. Without this a policy about a new one answers 404.
            disable_metric_validation=True,
        )
        return monitoring.AlertPolicy(
            f"{self._name}-{alert.name}",
            project=self._platform.project,
            display_name=title,
            combiner="OR",
            severity=alert.severity,
            conditions=[
                monitoring.AlertPolicyConditionArgs(
                    display_name=alert.title, condition_prometheus_query_language=condition
                )
            ],
            documentation=monitoring.AlertPolicyDocumentationArgs(content=documentation(alert)),
            notification_channels=self.channels,
            user_labels=self._platform.machine_labels,
            opts=self._options(counts),
        )
