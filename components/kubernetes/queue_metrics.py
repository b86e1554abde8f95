"""The collector of queues' metrics, which writes them to Cloud Monitoring. It reads with its own short-lived token."""

import hashlib
from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.kubernetes.cluster_access import ClusterAccess
from components.kubernetes.daemon_set import account_with_rights
from components.kubernetes.federated_credentials import credential_of_pods
from components.kubernetes.roles import role_named
from components.kubernetes.tpu_provisioner import CONFIG_HASH, METADATA_SERVER
from plan.federation import CONFIG_MAP, CREDENTIAL, DIRECTORY, TOKEN, TOKEN_SECONDS, token_audience
from plan.hosts import on_system_pool
from plan.platform import Platform
from plan.queue_metrics import IMAGE, NAME, NAMESPACE, PORT, SETTINGS, SIZE, arguments, settings, targets

LABELS = {"app.kubernetes.io/name": NAME}
USER = 1000


class QueueMetrics(pulumi.ComponentResource):
    """A Prometheus with the right to read `/metrics` and to find the pods that it reads.

    On GKE its account writes metrics as itself. In a self-managed cluster it trades its token for one of Google's, by
    the cluster's pool of identities.

    `audience`: the pool's provider, None on GKE.
    `after`: the controllers, whose namespaces it is let into, and its right to write metrics.
    """

    TYPE = "tpu:kubernetes:QueueMetrics"

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        access: ClusterAccess,
        audience: pulumi.Output[str] | None,
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._name, self._platform, self._federated = name, platform, audience is not None
        namespace = self._namespace(access)
        self._access = access.within(namespace)
        account, binding = account_with_rights(
            name,
            account=NAME,
            namespace=NAMESPACE,
            role=NAME,
            rules=[k8s.rbac.v1.PolicyRuleArgs(non_resource_urls=["/metrics"], verbs=["get"])],
            access=self._access,
            parent=self,
        )
        found = [self._discovery(target.namespace, after) for target in targets(platform)]
        files = [self._config()]
        if audience:
            options = self._access.options(self)
            files.append(credential_of_pods(f"{name}-credential", NAMESPACE, audience, options))
        self._closed()
        self._deployment([account, binding, *found, *files, *after])
        self.register_outputs({"image": IMAGE})

    def _namespace(self, access: ClusterAccess) -> k8s.core.v1.Namespace:
        return k8s.core.v1.Namespace(
            f"{self._name}-namespace",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=NAMESPACE, labels={"pod-security.kubernetes.io/enforce": "restricted"}
            ),
            opts=access.options(self),
        )

    def _discovery(self, namespace: str, after: Sequence[pulumi.Resource]) -> k8s.rbac.v1.RoleBinding:
        """The right to find the pods of a namespace."""
        rbac, metadata = k8s.rbac.v1, k8s.meta.v1.ObjectMetaArgs(name=NAME, namespace=namespace)
        role = rbac.Role(
            f"{self._name}-pods-role-{namespace}",
            metadata=metadata,
            rules=[rbac.PolicyRuleArgs(api_groups=[""], resources=["pods"], verbs=["get", "list", "watch"])],
            opts=self._access.options(self, depends_on=after),
        )
        return rbac.RoleBinding(
            f"{self._name}-pods-binding-{namespace}",
            metadata=metadata,
            role_ref=role_named(NAME, "Role"),
            subjects=[rbac.SubjectArgs(kind="ServiceAccount", name=NAME, namespace=NAMESPACE)],
            opts=self._access.options(self, depends_on=[role]),
        )

    def _config(self) -> k8s.core.v1.ConfigMap:
        return k8s.core.v1.ConfigMap(
            f"{self._name}-config",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=NAME, namespace=NAMESPACE),
            data={SETTINGS: settings(self._platform)},
            opts=self._access.options(self),
        )

    def _closed(self) -> k8s.networking.v1.NetworkPolicy:
        """Nobody reads the collector; the kubelet's probes come through in any case."""
        return k8s.networking.v1.NetworkPolicy(
            f"{self._name}-closed",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=NAME, namespace=NAMESPACE),
            spec=k8s.networking.v1.NetworkPolicySpecArgs(
                pod_selector=k8s.meta.v1.LabelSelectorArgs(), policy_types=["Ingress"]
            ),
            opts=self._access.options(self),
        )

    def _deployment(self, after: Sequence[pulumi.Resource]) -> k8s.apps.v1.Deployment:
        apps, metadata = k8s.apps.v1, k8s.meta.v1.ObjectMetaArgs
        # Prometheus reads its settings when it starts, so others must make another pod.
        written = hashlib.sha256(settings(self._platform).encode()).hexdigest()[:16]
        return apps.Deployment(
            f"{self._name}-deployment",
            metadata=metadata(name=NAME, namespace=NAMESPACE, labels=LABELS),
            spec=apps.DeploymentSpecArgs(
                replicas=1,
                # Two of them would write every point twice, and Cloud Monitoring refuses the second.
                strategy=apps.DeploymentStrategyArgs(type="Recreate"),
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=LABELS),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=metadata(labels=LABELS, annotations={CONFIG_HASH: written}), spec=self._pod()
                ),
            ),
            opts=self._access.options(self, depends_on=after),
        )

    def _pod(self) -> k8s.core.v1.PodSpecArgs:
        core = k8s.core.v1
        metadata_server = {} if self._federated else METADATA_SERVER
        return core.PodSpecArgs(
            service_account_name=NAME,
            node_selector={**metadata_server, **on_system_pool(self._platform)},
            security_context=core.PodSecurityContextArgs(
                run_as_non_root=True,
                run_as_user=USER,
                run_as_group=USER,
                fs_group=USER,
                seccomp_profile=core.SeccompProfileArgs(type="RuntimeDefault"),
            ),
            containers=[self._prometheus()],
            volumes=[
                core.VolumeArgs(name="config", config_map=core.ConfigMapVolumeSourceArgs(name=NAME)),
                core.VolumeArgs(name="data", empty_dir=core.EmptyDirVolumeSourceArgs(size_limit="1Gi")),
                *([self._identity()] if self._federated else []),
            ],
        )

    def _identity(self) -> k8s.core.v1.VolumeArgs:
        """The pod's own token for Google, and what to do with it."""
        core = k8s.core.v1
        token = core.ServiceAccountTokenProjectionArgs(
            audience=token_audience(self._platform), expiration_seconds=TOKEN_SECONDS, path=TOKEN
        )
        return core.VolumeArgs(
            name=CONFIG_MAP,
            projected=core.ProjectedVolumeSourceArgs(
                sources=[
                    core.VolumeProjectionArgs(service_account_token=token),
                    core.VolumeProjectionArgs(config_map=core.ConfigMapProjectionArgs(name=CONFIG_MAP)),
                ]
            ),
        )

    def _prometheus(self) -> k8s.core.v1.ContainerArgs:
        core, memory = k8s.core.v1, f"{SIZE.memory_mib}Mi"
        return core.ContainerArgs(
            name="prometheus",
            image=IMAGE,
            args=list(arguments()),
            env=[core.EnvVarArgs(name="GOOGLE_APPLICATION_CREDENTIALS", value=f"{DIRECTORY}/{CREDENTIAL}")]
            if self._federated
            else None,
            volume_mounts=[
                core.VolumeMountArgs(name="config", mount_path="/etc/prometheus", read_only=True),
                core.VolumeMountArgs(name="data", mount_path="/prometheus"),
                *(
                    [core.VolumeMountArgs(name=CONFIG_MAP, mount_path=DIRECTORY, read_only=True)]
                    if self._federated
                    else []
                ),
            ],
            liveness_probe=self._probe("/-/healthy", delay=30),
            readiness_probe=self._probe("/-/ready", delay=5),
            resources=core.ResourceRequirementsArgs(
                requests={"cpu": f"{SIZE.cpu:g}", "memory": memory}, limits={"memory": memory}
            ),
            security_context=core.SecurityContextArgs(
                allow_privilege_escalation=False,
                read_only_root_filesystem=True,
                capabilities=core.CapabilitiesArgs(drop=["ALL"]),
            ),
        )

    def _probe(self, path: str, *, delay: int) -> k8s.core.v1.ProbeArgs:
        core = k8s.core.v1
        return core.ProbeArgs(
            http_get=core.HTTPGetActionArgs(path=path, port=PORT),
            initial_delay_seconds=delay,
        )
