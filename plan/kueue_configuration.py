"""Kueue's manager configuration as a typed value.

The chart takes the configuration as one string, which Helm does not check. The manager reads it strictly and
crash-loops on a mistake. So this module builds and checks it (`render`). Field names: Kueue v0.19
`apis/config/v1beta2`; the checks repeat those of `pkg/config/validation.go`.
"""

from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from catalogue.labels import NAMESPACE_NAME_LABEL, OPT_IN_LABEL
from plan import flavors
from plan.platform import Platform
from platform_config.engine_yaml import Loader

OBJECTS_API = "kueue.x-k8s.io/v1beta2"
"""API version of the Kueue objects that the platform makes."""

DISPATCHED = ("batch/job", "jobset.x-k8s.io/jobset")
"""Kinds of jobs that a manager hands to its workers. Without servers: a manager knows nothing of their state."""

OF_SERVERS = ("leaderworkerset.x-k8s.io/leaderworkerset", "pod")
"""What makes Kueue queue servers. It queues a server by its pods, so it needs `pod`. Named, it makes the API server
refuse a server's pods while Kueue does not answer. The post-renderer of Kueue's chart keeps it from other pods."""

FRAMEWORKS = (*DISPATCHED, *OF_SERVERS)
"""Kinds of work that are queued."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Health(_Section):
    """Where the health probes answer."""

    health_probe_bind_address: str = ":8081"


class Metrics(_Section):
    """Where metrics are served; they include quotas and usage."""

    bind_address: str = ":8443"
    enable_cluster_queue_resources: bool = True


class Webhook(_Section):
    """The port of the admission webhooks."""

    port: int = 9443


class LeaderElection(_Section):
    """One replica reconciles, all serve webhooks."""

    leader_elect: bool = True
    resource_name: str = "c1f6bfd2.kueue.x-k8s.io"


class Controller(_Section):
    """How many objects of a kind are reconciled at a time."""

    group_kind_concurrency: dict[str, int] = {
        "Job.batch": 5,
        "Workload.kueue.x-k8s.io": 10,
        "LocalQueue.kueue.x-k8s.io": 5,
        "ClusterQueue.kueue.x-k8s.io": 5,
        "ResourceFlavor.kueue.x-k8s.io": 1,
    }


class ClientConnection(_Section):
    """Rate limits of the manager's calls to the API server."""

    qps: int = 300
    burst: int = 500


class Requirement(_Section):
    """Requires that a label has one of some values."""

    key: str
    operator: Literal["In"] = "In"
    values: Annotated[tuple[str, ...], Field(min_length=1)]


class LabelSelector(_Section):
    """A Kubernetes label selector, by exact labels or by requirements."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Requirement, ...] | None = None


class RequeuingStrategy(_Section):
    """How long an evicted workload waits before the next try."""

    timestamp: Literal["Eviction", "Creation"] = "Eviction"
    backoff_limit_count: int
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 3600


class WaitForPodsReady(_Section):
    """Always set: by default Kueue 0.19 evicts after 30 minutes, and a large slice takes longer to start."""

    timeout: str
    recovery_timeout: str
    block_admission: bool = False
    requeuing_strategy: RequeuingStrategy


class Integrations(_Section):
    """Kinds of jobs that are queued."""

    frameworks: tuple[str, ...]

    @model_validator(mode="after")
    def _nothing_twice(self) -> "Integrations":
        """With these a pod would be queued by itself and by what made it, and LeaderWorkerSet makes StatefulSets."""
        blocking = {"deployment", "statefulset"} & set(self.frameworks)
        if blocking:
            raise ValueError(f"frameworks must not contain {', '.join(sorted(blocking))}")
        return self


class FairSharing(_Section):
    """Which workloads may be preempted for fair sharing; Kueue accepts only three lists."""

    preemption_strategies: tuple[str, ...] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


class DeviceClassMapping(_Section):
    """DeviceClasses whose claims are counted under the resource `name`."""

    name: str
    device_class_names: Annotated[tuple[str, ...], Field(min_length=1, max_length=8)]


class Resources(_Section):
    """How quotas are checked. Only chips have quota: who has a host's chips also has its CPU and memory."""

    quota_check_strategy: Literal["IgnoreUndeclared", "BlockUndeclared"] = "IgnoreUndeclared"
    device_class_mappings: Annotated[tuple[DeviceClassMapping, ...], Field(max_length=16)] = ()

    @model_validator(mode="after")
    def _classes_once(self) -> "Resources":
        names = [name for mapping in self.device_class_mappings for name in mapping.device_class_names]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"DeviceClasses mapped more than once: {', '.join(sorted(twice))}")
        return self


class WorkloadRetention(_Section):
    """How long finished workloads are kept."""

    after_finished: str


class ObjectRetentionPolicies(_Section):
    """How long finished objects are kept."""

    workloads: WorkloadRetention


class MultiKueueSettings(_Section):
    """`origin` marks what this manager made on its workers, so that two managers do not change each other's objects."""

    origin: Annotated[str, Field(max_length=63)]


class Configuration(_Section):
    """The manager's whole configuration. It replaces the chart's defaults, so it must be complete."""

    api_version: Literal["config.kueue.x-k8s.io/v1beta2"] = "config.kueue.x-k8s.io/v1beta2"
    kind: Literal["Configuration"] = "Configuration"
    health: Health = Health()
    metrics: Metrics = Metrics()
    webhook: Webhook = Webhook()
    leader_election: LeaderElection = LeaderElection()
    controller: Controller = Controller()
    client_connection: ClientConnection = ClientConnection()
    manage_jobs_without_queue_name: Literal[False] = False
    managed_jobs_namespace_selector: LabelSelector
    wait_for_pods_ready: WaitForPodsReady
    integrations: Integrations
    fair_sharing: FairSharing | None = None
    resources: Resources = Resources()
    multi_kueue: MultiKueueSettings | None = None
    object_retention_policies: ObjectRetentionPolicies


def configuration(platform: Platform) -> Configuration:
    """The manager configuration that the platform's slices and queues ask for."""
    settings = platform.software.kueue
    classes = tuple(flavors.device_classes(platform))
    return Configuration(
        managed_jobs_namespace_selector=_managed_namespaces(platform),
        wait_for_pods_ready=WaitForPodsReady(
            timeout=settings.pods_ready_timeout,
            recovery_timeout=settings.recovery_timeout,
            requeuing_strategy=RequeuingStrategy(backoff_limit_count=settings.retries),
        ),
        integrations=Integrations(frameworks=FRAMEWORKS if "lws" in platform.used_inside else DISPATCHED),
        fair_sharing=FairSharing() if settings.fair_sharing else None,
        resources=Resources(
            device_class_mappings=(
                (DeviceClassMapping(name=flavors.DRA_RESOURCE, device_class_names=classes),) if classes else ()
            )
        ),
        multi_kueue=MultiKueueSettings(origin=platform.name) if platform.is_manager else None,
        object_retention_policies=ObjectRetentionPolicies(
            workloads=WorkloadRetention(after_finished=settings.keep_finished)
        ),
    )


def _managed_namespaces(platform: Platform) -> LabelSelector:
    """Selects the namespaces of queues: by the platform's label, or by name where the platform does not make them."""
    if platform.installs("namespaces"):
        return LabelSelector(match_labels={OPT_IN_LABEL: "true"})
    names = Requirement(key=NAMESPACE_NAME_LABEL, values=platform.queue_namespaces)
    return LabelSelector(match_expressions=(names,))


def render(value: Configuration) -> str:
    """The configuration as YAML text for the chart. Raises AssertionError if the text reads back differently."""
    text = yaml.safe_dump(value.model_dump(mode="json", by_alias=True, exclude_none=True), sort_keys=False)
    if Configuration.model_validate(yaml.load(text, Loader)) != value:
        raise AssertionError("Kueue's configuration does not survive being written to YAML")
    return text
