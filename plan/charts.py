"""The charts that the program installs: one row each, from which everything about them follows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from catalogue.labels import ACCELERATOR_LABEL, DRA_LABEL, NODE_POOL_LABEL, TPU_TAINT
from plan import kueue_configuration
from plan.controller_sizes import jobset_size, kueue_size
from plan.hosts import node_pool
from plan.platform import Platform
from platform_config.self_managed import InCluster
from platform_config.software import Software

Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart.

    - `part`: what a cluster that exists calls it under `provides`, and the name of the component
    - `token`: type token of the component
    - `reference`: where the chart is; `release`: name of the Helm release
    - `namespace`: its own, which nobody else submits work to; `privileged`: whether its pods may do what Pod Security
      forbids, because they mount directories of the host
    - `version`: the version that was chosen; `values`: the chart's values, all known before anything is registered
    - `postrender`: a program that Helm sends the manifests through
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


def _on_system_pool(platform: Platform) -> Mapping[str, str]:
    """Node selector of the system pool: controllers stay off TPU hosts, and an uninstall still finds nodes.

    A cluster that somebody else runs has no such pool; there the taint of TPU hosts keeps controllers off them.
    """
    pool = platform.system_pool
    return {NODE_POOL_LABEL: node_pool(platform, pool.name)} if pool else {}


def _dra_driver_values(platform: Platform) -> Values:
    """All values are stated: releases 0.1.0 and 0.2.0 have opposite defaults for where the driver runs.

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


def _jobset_values(platform: Platform) -> Values:
    return {
        "controller": {
            "nodeSelector": _on_system_pool(platform),
            "resources": jobset_size(platform.most_nodes).resources(),
        }
    }


def _kueue_values(platform: Platform) -> Values:
    """Two replicas, since all webhooks of queued namespaces go through them."""
    configuration = kueue_configuration.render(kueue_configuration.configuration(platform))
    return {
        "managerConfig": {"controllerManagerConfigYaml": configuration},
        "controllerManager": {
            "replicas": 2,
            "nodeSelector": _on_system_pool(platform),
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
    # Every upgrade of the chart would empty the Secret with the webhook's certificate, and no JobSet nor any of its
    # pods could be created until the kubelet has caught up: the post-renderer keeps the Secret's data out of the
    # release. The path is relative, since it is in the state and a deployment may run from any checkout.
    postrender="components/postrender/keep_webhook_certificate",
)
"""The JobSet controller: jobs that span the hosts of one or several slices."""

KUEUE = Chart(
    part="kueue",
    token="tpu:kubernetes:Kueue",
    reference="oci://registry.k8s.io/kueue/charts/kueue",
    release="kueue",
    namespace="kueue-system",
    privileged=False,
    version=lambda software: software.kueue.version,
    values=_kueue_values,
    postrender=None,
)
"""The Kueue controller: admits workloads when the slices they need are theirs to use."""

CHARTS = (DRA_DRIVER, JOBSET, KUEUE)
