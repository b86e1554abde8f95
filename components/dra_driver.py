"""The TPU DRA driver: publishes the chips of hosts that opted in as devices, and hands them to claims."""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components.access import ClusterAccess
from components.controllers import chart_release, controller_namespace
from spec.platform import Platform
from spec.queueing import ACCELERATOR_LABEL, TPU_TAINT
from spec.slices import DRA_LABEL

CHART = "oci://registry.k8s.io/dra-driver-google/charts/dra-driver-google-tpu"
NAME = "dra-driver-google-tpu"


class DraDriver(pulumi.ComponentResource):
    """The driver's chart, which also brings the DeviceClass `tpu.google.com`."""

    TYPE = "tpu:kubernetes:DraDriver"
    release: k8s.helm.v3.Release

    def __init__(
        self, name: str, *, platform: Platform, access: ClusterAccess, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        # The driver's pods mount host directories and run privileged.
        namespace = controller_namespace(f"{name}-namespace", NAME, access, self, privileged=True)
        self.release = chart_release(
            f"{name}-release",
            release=NAME,
            chart=CHART,
            version=platform.software.dra_driver.version,
            namespace=NAME,
            values=values(platform),
            access=access,
            parent=self,
            depends_on=[namespace],
        )
        self.register_outputs({"version": platform.software.dra_driver.version})


def values(platform: Platform) -> dict[str, Any]:
    """Chart values, all stated: releases 0.1.0 and 0.2.0 have opposite defaults for where the driver runs.

    Without the affinity it would also run on hosts whose chips GKE's device plugin hands out: every chip twice.
    """
    taints = sorted({taint.key for plan in platform.slice_plans if plan.devices == "dra" for taint in plan.taints})
    opted_in = [
        {"key": ACCELERATOR_LABEL, "operator": "Exists"},
        {"key": DRA_LABEL, "operator": "In", "values": ["true"]},
    ]
    return {
        "kubeletPlugin": {
            # Pods of the chart's own priority class are admitted to kube-system only.
            "priorityClassName": "",
            "tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in (TPU_TAINT, *taints)],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": opted_in}]
                    }
                }
            },
        }
    }
