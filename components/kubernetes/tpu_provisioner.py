"""TPU Provisioner: the controller that creates a node pool for each Job of a JobSet, and deletes it at the end.

Names, ports and rights follow ai-on-gke/tpu-provisioner @6789e2a, config/; without kube-rbac-proxy, whose registry is
gone, and without rights to write pods and nodes, which it does not use.
"""

import hashlib
from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.gcp.tpu_provisioner_identity import TpuProvisionerIdentity
from components.kubernetes.cluster_access import ClusterAccess
from components.kubernetes.daemon_set import account_with_rights
from components.kubernetes.roles import role_named
from plan.hosts import on_system_pool
from plan.platform import Platform
from plan.tpu_provisioner import CONFIG_MAP, NAME, NAMESPACE, environment

LABELS = {"control-plane": NAME}
METRICS_PORT, HEALTH_PORT = 8080, 8081
METADATA_SERVER = {"iam.gke.io/gke-metadata-server-enabled": "true"}
CONFIG_HASH = "tpu-platform/config-hash"


class TpuProvisioner(pulumi.ComponentResource):
    """The controller. It starts after the bindings of its identity, because it ends with its first refused call."""

    TYPE = "tpu:kubernetes:TpuProvisioner"

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        identity: TpuProvisionerIdentity,
        access: ClusterAccess,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._access = access
        settings = {"GCP_NODE_SERVICE_ACCOUNT": identity.node_email, **environment(platform)}
        namespace = self._namespace(f"{name}-namespace")
        account, binding = account_with_rights(
            name,
            account=NAME,
            namespace=NAMESPACE,
            annotations={"iam.gke.io/gcp-service-account": identity.email},
            role=NAME,
            rules=_rules(),
            access=access.within(namespace),
            parent=self,
        )
        leases = self._leases(name, namespace)
        config = self._config(f"{name}-config", settings, namespace)
        self._deployment(
            f"{name}-deployment",
            platform,
            settings,
            [account, binding, leases, config, *identity.ready, *after],
        )
        self.register_outputs({"image": platform.software.tpu_provisioner.image})

    def _namespace(self, name: str) -> k8s.core.v1.Namespace:
        return k8s.core.v1.Namespace(
            name,
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=NAMESPACE, labels={"pod-security.kubernetes.io/enforce": "restricted"}
            ),
            opts=self._access.options(self),
        )

    def _leases(self, name: str, namespace: k8s.core.v1.Namespace) -> k8s.rbac.v1.RoleBinding:
        """The right to be elected leader, in its own namespace."""
        rbac, metadata = k8s.rbac.v1, k8s.meta.v1.ObjectMetaArgs
        role = rbac.Role(
            f"{name}-lease-role",
            metadata=metadata(name=f"{NAME}-leases", namespace=NAMESPACE),
            rules=[
                rbac.PolicyRuleArgs(
                    api_groups=["coordination.k8s.io"], resources=["leases"], verbs=["create", "get", "update"]
                ),
                rbac.PolicyRuleArgs(api_groups=[""], resources=["events"], verbs=["create", "patch"]),
            ],
            opts=self._access.options(self, depends_on=[namespace]),
        )
        return rbac.RoleBinding(
            f"{name}-lease-binding",
            metadata=metadata(name=f"{NAME}-leases", namespace=NAMESPACE),
            role_ref=role_named(f"{NAME}-leases", "Role"),
            subjects=[rbac.SubjectArgs(kind="ServiceAccount", name=NAME, namespace=NAMESPACE)],
            opts=self._access.options(self, depends_on=[role]),
        )

    def _config(
        self, name: str, settings: Mapping[str, pulumi.Input[str]], namespace: k8s.core.v1.Namespace
    ) -> k8s.core.v1.ConfigMap:
        return k8s.core.v1.ConfigMap(
            name,
            metadata=k8s.meta.v1.ObjectMetaArgs(name=CONFIG_MAP, namespace=NAMESPACE),
            data=settings,
            opts=self._access.options(self, depends_on=[namespace]),
        )

    def _deployment(
        self,
        name: str,
        platform: Platform,
        settings: Mapping[str, pulumi.Input[str]],
        after: Sequence[pulumi.Resource],
    ) -> k8s.apps.v1.Deployment:
        apps, core, metadata = k8s.apps.v1, k8s.core.v1, k8s.meta.v1.ObjectMetaArgs
        return apps.Deployment(
            name,
            metadata=metadata(name=NAME, namespace=NAMESPACE, labels=LABELS),
            spec=apps.DeploymentSpecArgs(
                replicas=1,
                # Two of them would create the same pool twice.
                strategy=apps.DeploymentStrategyArgs(type="Recreate"),
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=LABELS),
                template=core.PodTemplateSpecArgs(
                    metadata=metadata(labels=LABELS, annotations={CONFIG_HASH: _hash(settings)}),
                    spec=core.PodSpecArgs(
                        service_account_name=NAME,
                        node_selector={**METADATA_SERVER, **on_system_pool(platform)},
                        termination_grace_period_seconds=10,
                        security_context=core.PodSecurityContextArgs(
                            run_as_non_root=True, seccomp_profile=core.SeccompProfileArgs(type="RuntimeDefault")
                        ),
                        containers=[_manager(platform)],
                    ),
                ),
            ),
            opts=self._access.options(self, depends_on=after),
        )


def _hash(settings: Mapping[str, pulumi.Input[str]]) -> pulumi.Output[str]:
    """A pod reads its environment when it starts, so other settings must make another pod."""
    written = pulumi.Output.json_dumps(dict(settings), sort_keys=True)
    return written.apply(lambda text: hashlib.sha256(text.encode()).hexdigest()[:16])


def _rules() -> list[k8s.rbac.v1.PolicyRuleArgs]:
    rule, seen = k8s.rbac.v1.PolicyRuleArgs, ["get", "list", "watch"]
    return [
        rule(api_groups=[""], resources=["nodes", "pods"], verbs=seen),
        rule(api_groups=["jobset.x-k8s.io"], resources=["jobsets"], verbs=seen),
        rule(api_groups=[""], resources=["events"], verbs=["create", "patch"]),
    ]


def _manager(platform: Platform) -> k8s.core.v1.ContainerArgs:
    core = k8s.core.v1
    return core.ContainerArgs(
        name="manager",
        image=platform.software.tpu_provisioner.image,
        args=[
            f"--health-probe-bind-address=:{HEALTH_PORT}",
            f"--metrics-bind-address=:{METRICS_PORT}",
            "--leader-elect",
        ],
        env_from=[core.EnvFromSourceArgs(config_map_ref=core.ConfigMapEnvSourceArgs(name=CONFIG_MAP))],
        ports=[core.ContainerPortArgs(name="metrics", container_port=METRICS_PORT)],
        liveness_probe=_probe("/healthz", delay=15, period=20),
        readiness_probe=_probe("/readyz", delay=5, period=10),
        resources=core.ResourceRequirementsArgs(requests={"cpu": "100m", "memory": "256Mi"}, limits={"memory": "1Gi"}),
        security_context=core.SecurityContextArgs(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=core.CapabilitiesArgs(drop=["ALL"]),
        ),
    )


def _probe(path: str, *, delay: int, period: int) -> k8s.core.v1.ProbeArgs:
    core = k8s.core.v1
    return core.ProbeArgs(
        http_get=core.HTTPGetActionArgs(path=path, port=HEALTH_PORT),
        initial_delay_seconds=delay,
        period_seconds=period,
    )
