"""A controller that a Helm chart installs."""

import os
from collections.abc import Sequence
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from components.kubernetes.cluster_access import ClusterAccess
from plan.charts import Chart
from plan.platform import Platform

TIMEOUT_SECONDS = 600
# Helm keeps every revision as a Secret of up to 1 MB; the provider's default is to keep them all.
REVISIONS = 3
PROGRAM = Path(__file__).parents[2]
"""The folder that paths of post-renderers begin in."""


class InstalledChart(pulumi.ComponentResource):
    """A chart in a namespace of its own. The chart's row names the type token of the component."""

    release: k8s.helm.v3.Release

    def __init__(
        self,
        chart: Chart,
        *,
        platform: Platform,
        access: ClusterAccess,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(chart.token, chart.part, None, opts)
        namespace = self._namespace(chart, access)
        self.release = self._release(chart, platform, access, [namespace, *after])
        self.register_outputs({"version": chart.version(platform.software)})

    def _namespace(self, chart: Chart, access: ClusterAccess) -> k8s.core.v1.Namespace:
        level = "privileged" if chart.privileged else "restricted"
        return k8s.core.v1.Namespace(
            f"{chart.part}-namespace",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=chart.namespace,
                labels={"pod-security.kubernetes.io/enforce": level},
            ),
            opts=access.options(self),
        )

    def _release(
        self, chart: Chart, platform: Platform, access: ClusterAccess, after: Sequence[pulumi.Resource]
    ) -> k8s.helm.v3.Release:
        """A Helm release whose name, namespace and values are literals, so that a preview can check all of it."""
        return k8s.helm.v3.Release(
            f"{chart.part}-release",
            k8s.helm.v3.ReleaseArgs(
                name=chart.release,
                chart=chart.reference,
                version=chart.version(platform.software),
                namespace=chart.namespace,
                create_namespace=False,
                values=chart.values(platform),
                # Without this an upgrade keeps old values that the program no longer sets.
                reset_values=True,
                max_history=REVISIONS,
                timeout=TIMEOUT_SECONDS,
                postrender=post_renderer(chart),
            ),
            opts=access.options(self, depends_on=after),
        )


def post_renderer(chart: Chart) -> str | None:
    """The path of the chart's post-renderer from where `pulumi` runs: from a checkout, and from another program that
    uses the package."""
    return os.path.relpath(PROGRAM / chart.postrender) if chart.postrender else None
