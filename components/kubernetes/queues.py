"""Queues, with their flavors, checks, DeviceClasses and claim templates. All are derived from the slices."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from catalogue.labels import HOSTNAME_LABEL, NAMESPACE_NAME_LABEL, NODE_POOL_LABEL
from components.kubernetes.cluster_access import ClusterAccess
from components.kubernetes.kueue_objects import KueueObjects
from plan.flavors import DEVICE_PLUGIN_RESOURCE, TOPOLOGY_NAME, Flavor, Toleration
from plan.flavors import flavors as flavors_of
from plan.platform import Platform
from plan.queues import ClusterQueue, FlavorQuota, cluster_queues
from platform_config.queues import DEFAULT_QUEUE

PROVISIONING_CLASS = "queued-provisioning.gke.io"


class Queues(pulumi.ComponentResource):
    """Topology, flavors and checks first, then cohorts and cluster queues, then the local queues of each namespace.

    `namespaces`: for each namespace, the resources that must exist before anything in it.
    """

    TYPE = "tpu:kubernetes:Queues"

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        access: ClusterAccess,
        namespaces: Mapping[str, Sequence[pulumi.Resource]],
        after: Sequence[pulumi.Resource],
        gate: pulumi.ResourceHookBinding,
        checks: Mapping[str, pulumi.CustomResource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._name = name
        self._object = KueueObjects(name, self, access, after, gate).create
        flavors = flavors_of(platform)
        queues = cluster_queues(platform)

        topology = [self._topology()] if any(flavor.topology_aware for flavor in flavors.values()) else []
        flavor_objects = {key: self._flavor(flavor, topology) for key, flavor in flavors.items()}
        checks = {**checks, **self._checks(platform, flavors)}
        cohorts = [self._cohort(key, platform) for key in sorted(platform.cohorts)]
        for key in sorted(platform.priorities):
            self._priority(key, platform.priorities[key])
        pairs = [(queue.name, namespace) for queue in queues for namespace in queue.namespaces]
        self._former = Counter(self._former_name(*pair) for pair in pairs)
        made = {queue.name: self._cluster_queue(queue, flavor_objects, checks, cohorts) for queue in queues}
        for queue in queues:
            for namespace in queue.namespaces:
                self._local_queue(queue, namespace, [*namespaces[namespace], made[queue.name]])
        # A prefix of its own, so that no pair of queue and namespace gives the same logical name.
        self._object = KueueObjects(f"{name}-default", self, access, after, gate).create
        for namespace, default in platform.default_queues.items():
            self._default_queue(default, namespace, [*namespaces[namespace], made[default]])
        self.register_outputs({"queues": [queue.name for queue in queues]})

    def _topology(self) -> pulumi.CustomResource:
        labels = (NODE_POOL_LABEL, HOSTNAME_LABEL)
        levels = [{"nodeLabel": label} for label in labels]
        return self._object("Topology", TOPOLOGY_NAME, {"levels": levels})

    def _flavor(self, flavor: Flavor, topology: Sequence[pulumi.Resource]) -> pulumi.CustomResource:
        spec: dict[str, Any] = {
            "nodeLabels": dict(flavor.node_labels),
            "tolerations": [_toleration(toleration) for toleration in flavor.tolerations],
        }
        if flavor.topology_aware:
            spec["topologyName"] = TOPOLOGY_NAME
        return self._object("ResourceFlavor", flavor.name, spec, depends_on=topology)

    def _checks(self, platform: Platform, flavors: Mapping[str, Flavor]) -> dict[str, pulumi.CustomResource]:
        """For each topology of queued provisioning: the request Kueue makes of GKE, and the check that waits for it."""
        checks = {}
        for name, topology in sorted({(f.check, f.topology) for f in flavors.values() if f.check}):
            request = self._object(
                "ProvisioningRequestConfig",
                name,
                {
                    "provisioningClassName": PROVISIONING_CLASS,
                    "managedResources": [DEVICE_PLUGIN_RESOURCE],
                    "parameters": {"tpu-topology": topology},
                    "retryStrategy": {
                        "backoffLimitCount": platform.software.kueue.provisioning_retries,
                        "backoffBaseSeconds": 60,
                        "backoffMaxSeconds": 1800,
                    },
                },
            )
            checks[name] = self._object(
                "AdmissionCheck",
                name,
                {
                    "controllerName": "kueue.x-k8s.io/provisioning-request",
                    "parameters": {
                        "apiGroup": "kueue.x-k8s.io",
                        "kind": "ProvisioningRequestConfig",
                        "name": name,
                    },
                },
                depends_on=[request],
            )
        return checks

    def _cohort(self, name: str, platform: Platform) -> pulumi.CustomResource:
        cohort = platform.cohorts[name]
        spec: dict[str, Any] = {"fairSharing": {"weight": f"{cohort.weight:g}"}}
        if cohort.parent:
            spec["parentName"] = cohort.parent
        return self._object("Cohort", name, spec)

    def _priority(self, name: str, value: int) -> pulumi.CustomResource:
        return self._object("WorkloadPriorityClass", name, None, top_level={"value": value})

    def _cluster_queue(
        self,
        queue: ClusterQueue,
        flavors: Mapping[str, pulumi.CustomResource],
        checks: Mapping[str, pulumi.CustomResource],
        cohorts: Sequence[pulumi.Resource],
    ) -> pulumi.CustomResource:
        used = [flavors[quota.flavor.name] for quotas in queue.quotas.values() for quota in quotas]
        return self._object(
            "ClusterQueue",
            queue.name,
            cluster_queue_spec(queue),
            depends_on=[*used, *(checks[name] for name in queue.checks), *cohorts],
            annotations={"pulumi.com/waitFor": "condition=Active"},
        )

    def _local_queue(
        self, queue: ClusterQueue, namespace: str, depends_on: Sequence[pulumi.Resource]
    ) -> pulumi.CustomResource:
        former = self._former_name(queue.name, namespace)
        return self._object(
            "LocalQueue",
            queue.name,
            {"clusterQueue": queue.name},
            namespace=namespace,
            depends_on=depends_on,
            # If two local queues have the same former name, it does not tell which one a stack has.
            former=former if self._former[former] == 1 else None,
        )

    def _former_name(self, queue: str, namespace: str) -> str:
        """The logical name of a LocalQueue in older stacks, without the separator."""
        return f"{self._name}-localqueue-{queue}-{namespace}"

    def _default_queue(
        self, queue: str, namespace: str, depends_on: Sequence[pulumi.Resource]
    ) -> pulumi.CustomResource:
        """The queue of jobs that name none."""
        return self._object(
            "LocalQueue",
            DEFAULT_QUEUE,
            {"clusterQueue": queue},
            namespace=namespace,
            depends_on=depends_on,
        )


def cluster_queue_spec(queue: ClusterQueue) -> dict[str, Any]:
    """The ClusterQueue's spec."""
    spec: dict[str, Any] = {
        "cohortName": queue.cohort,
        "namespaceSelector": {
            "matchExpressions": [{"key": NAMESPACE_NAME_LABEL, "operator": "In", "values": list(queue.namespaces)}]
        },
        "queueingStrategy": queue.spec.strategy,
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {
            "withinClusterQueue": queue.spec.preempt,
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "Never"},
        },
        "fairSharing": {"weight": f"{queue.spec.weight:g}"},
        "resourceGroups": [
            {
                "coveredResources": [resource],
                "flavors": [{"name": quota.flavor.name, "resources": [_quota(resource, quota)]} for quota in quotas],
            }
            for resource, quotas in queue.quotas.items()
        ],
    }
    if queue.checks:
        spec["admissionChecksStrategy"] = {
            "admissionChecks": [
                {"name": name, **({"onFlavors": list(on_flavors)} if on_flavors else {})}
                for name, on_flavors in queue.checks.items()
            ]
        }
    return spec


def _quota(resource: str, quota: FlavorQuota) -> dict[str, Any]:
    limits = {"borrowingLimit": quota.borrowing_limit, "lendingLimit": quota.lending_limit}
    return {
        "name": resource,
        "nominalQuota": str(quota.nominal),
        **{key: str(value) for key, value in limits.items() if value is not None},
    }


def _toleration(toleration: Toleration) -> dict[str, str]:
    if toleration.value is None:
        return {"key": toleration.key, "operator": "Exists", "effect": toleration.effect}
    return {"key": toleration.key, "operator": "Equal", "value": toleration.value, "effect": toleration.effect}
