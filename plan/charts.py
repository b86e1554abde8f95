"""The Helm charts that the program installs, one row each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from catalogue.labels import ACCELERATOR_LABEL, DRA_LABEL, TPU_TAINT
from plan import kueue_configuration
from plan.controller_sizes import KUEUE_REPLICAS, jobset_size, kueue_size, lws_size
from plan.hosts import on_system_pool
from plan.platform import Platform
from platform_config.self_managed import InCluster
from platform_config.software import Software

Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart.

    - `part`: its name under `provides` of an existing cluster, and the name of the component
    - `token`: type token of the component
    - `reference`: where the chart is; `release`: name of the Helm release
    - `namespace`: its own, not for workloads; `privileged`: whether Pod Security exempts its pods, because they mount
      directories of the host
    - `version`: the chosen version; `values`: the chart's values, all known before anything is registered
    - `postrender`: Helm's post-renderer; its path below this program. In the state its path is relative, since a
      deployment may run from any checkout
    """

    part: InCluster
    token: str
    reference: str
    release: str
    namespace: str
    privileged: bool
    version: Callable[[Software], str]
    values: Callable[[Platform], Values]
    postrender: str | None


def _dra_driver_values(platform: Platform) -> Values:
    """All values are stated: releases 0.1.0 and 0.2.0 have opposite defaults for where the driver runs.

    Without the affinity it would also run on hosts of the device plugin, and both would hand out every chip.
    """
    taints = sorted({taint.key for plan in platform.slice_plans if plan.devices == "dra" for taint in plan.taints})
    opted_in = [
        {"key": ACCELERATOR_LABEL, "operator": "Exists"},
        {"key": DRA_LABEL, "operator": "In", "values": ["true"]},
    ]
    return {
        "kubeletPlugin": {
            # Only kube-system admits pods of the chart's own priority class.
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


def _jobset_values(platform: Platform) -> Values:
    return {
        "controller": {
            "nodeSelector": on_system_pool(platform),
            "resources": jobset_size(platform.most_nodes).resources(),
        }
    }


def _lws_values(platform: Platform) -> Values:
    return {
        "nodeSelector": on_system_pool(platform),
        "resources": lws_size().resources(),
        # The chart's own lacks the profile, and the namespace enforces Pod Security `restricted`.
        "podSecurityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }


def _kueue_values(platform: Platform) -> Values:
    """Two replicas, because they serve the webhooks of all queued namespaces.

    An upgrade replaces one after the other. A third pod beside both, the default, has no room on the system pool.
    """
    configuration = kueue_configuration.render(kueue_configuration.configuration(platform))
    return {
        "managerConfig": {"controllerManagerConfigYaml": configuration},
        "controllerManager": {
            "replicas": KUEUE_REPLICAS,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "nodeSelector": on_system_pool(platform),
            "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
            "manager": {"resources": kueue_size(platform.most_nodes).resources()},
        },
    }


DRA_DRIVER = Chart(
    part="dra-driver",
    token="tpu:kubernetes:DraDriver",
    reference="oci://registry.k8s.io/dra-driver-google/charts/dra-driver-google-tpu",
    release="dra-driver-google-tpu",
    namespace="dra-driver-google-tpu",
    privileged=True,
    version=lambda software: software.dra_driver.version,
    values=_dra_driver_values,
    postrender=None,
)
"""The TPU DRA driver: publishes the chips of hosts that opted in as devices, and hands them to claims. Its chart also
brings the DeviceClass `tpu.google.com`."""

JOBSET = Chart(
    part="jobset",
    token="tpu:kubernetes:JobSet",
    reference="oci://registry.k8s.io/jobset/charts/jobset",
    release="jobset",
    namespace="jobset-system",
    privileged=False,
    version=lambda software: software.jobset.version,
    values=_jobset_values,
    # Without the post-renderer every upgrade of the chart would empty the Secret with the webhook's certificate, and
    # nobody could create a JobSet or its pods until the kubelet has the new one. It removes the Secret's data from the
    # release.
    postrender="components/postrender/keep_webhook_certificate",
)
"""The JobSet controller: jobs that span the hosts of one or several slices."""

LWS = Chart(
    part="lws",
    token="tpu:kubernetes:LeaderWorkerSet",
    reference="oci://registry.k8s.io/lws/charts/lws",
    release="lws",
    # The controller's own name for it, where it cannot read the name from its service account.
    namespace="lws-system",
    privileged=False,
    version=lambda software: software.lws.version,
    values=_lws_values,
    postrender=None,
)
"""The LeaderWorkerSet controller: servers that span the hosts of a slice, one group of pods for each slice."""

KUEUE = Chart(
    part="kueue",
    token="tpu:kubernetes:Kueue",
    reference="oci://registry.k8s.io/kueue/charts/kueue",
    release="kueue",
    namespace="kueue-system",
    privileged=False,
    version=lambda software: software.kueue.version,
    values=_kueue_values,
    # It leaves pods that are not of servers alone, which no value of the chart does.
    postrender="components/postrender/hold_pods_of_servers",
)
"""The Kueue controller: admits workloads when their queue has quota for the slices they need."""

CHARTS = (DRA_DRIVER, JOBSET, LWS, KUEUE)
