"""The cloud-controller-manager of a self-managed cluster: initialises nodes, and deletes nodes whose machine is gone.

Arguments and rights follow kubernetes/cloud-provider-gcp (`deploy/packages/default/manifest.yaml`,
`cmd/cloud-controller-manager/main.go` @007d168), reduced to the controllers that run here. The controllers of load
balancers and routes do not run: the VPC itself routes pods' ranges.
"""

import pulumi
import pulumi_kubernetes as k8s

from components.kubernetes.cluster_access import ClusterAccess
from components.kubernetes.daemon_set import account_with_rights, daemon_set
from components.kubernetes.roles import role_named
from plan.hosts import METADATA_GROUP
from plan.platform import Platform

NAME = "cloud-controller-manager"
NAMESPACE = "kube-system"
IMAGE = "registry.k8s.io/cloud-provider-gcp/cloud-controller-manager:v35.0.0"
CONTROLLERS = ("cloud-node-controller", "cloud-node-lifecycle-controller", "node-ipam-controller")
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"
# It tolerates these, because it must run before it removes the first of them from its own node.
TOLERATED = ("node.cloudprovider.kubernetes.io/uninitialized", "node.kubernetes.io/not-ready", CONTROL_PLANE_LABEL)
HEALTH_PORT = 10258
# With it the manager sees the machines of all zones of its region (`providers/gce/gce.go`, ManagedZones). Without it,
# only those of its own zone: it does not initialise hosts elsewhere, and deletes those that are not Ready yet.
CONFIG = "[Global]\nmultizone = true\n"
CONFIG_FOLDER, CONFIG_FILE = "/etc/cloud", "gce.conf"

# API groups, resources, verbs and names: what the controllers change, and the lock of the leading replica.
RIGHTS: tuple[tuple[list[str], list[str], list[str], list[str] | None], ...] = (
    ([""], ["nodes"], ["delete", "get", "list", "patch", "update", "watch"], None),
    ([""], ["nodes/status"], ["patch", "update"], None),
    (["", "events.k8s.io"], ["events"], ["create", "patch", "update"], None),
    (["coordination.k8s.io"], ["leases"], ["create"], None),
    (["coordination.k8s.io"], ["leases"], ["get", "update"], [NAME]),
)


class CloudController(pulumi.ComponentResource):
    """A DaemonSet on the control plane's machines, whose Google service account may list the project's machines."""

    TYPE = "tpu:kubernetes:CloudController"
    daemons: k8s.apps.v1.DaemonSet

    def __init__(
        self, name: str, *, platform: Platform, access: ClusterAccess, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        rbac = k8s.rbac.v1
        account, binding = account_with_rights(
            name,
            account=NAME,
            namespace=NAMESPACE,
            role=f"system:{NAME}",
            rules=[
                rbac.PolicyRuleArgs(api_groups=groups, resources=resources, verbs=verbs, resource_names=names)
                for groups, resources, verbs, names in RIGHTS
            ],
            access=access,
            parent=self,
        )
        # To authenticate calls to its own port, the manager reads what the API server publishes there.
        reader = rbac.RoleBinding(
            f"{name}-authentication-reader",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=f"{NAME}:authentication-reader", namespace=NAMESPACE),
            role_ref=role_named("extension-apiserver-authentication-reader", "Role"),
            subjects=[rbac.SubjectArgs(kind="ServiceAccount", name=NAME, namespace=NAMESPACE)],
            opts=access.options(self, depends_on=[account]),
        )
        config = k8s.core.v1.ConfigMap(
            f"{name}-config",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=NAME, namespace=NAMESPACE),
            data={CONFIG_FILE: CONFIG},
            opts=access.options(self),
        )
        self.daemons = daemon_set(
            f"{name}-daemons",
            daemon=NAME,
            namespace=NAMESPACE,
            pod=_pod(platform),
            access=access,
            parent=self,
            depends_on=[binding, reader, config],
        )
        self.register_outputs({"image": IMAGE})


def _pod(platform: Platform) -> k8s.core.v1.PodSpecArgs:
    core = k8s.core.v1
    return core.PodSpecArgs(
        # In the host's network it uses the machine's account for Google's APIs; other pods cannot.
        host_network=True,
        priority_class_name="system-cluster-critical",
        service_account_name=NAME,
        node_selector={CONTROL_PLANE_LABEL: ""},
        tolerations=[core.TolerationArgs(key=key, operator="Exists", effect="NoSchedule") for key in TOLERATED],
        containers=[
            core.ContainerArgs(
                name=NAME,
                image=IMAGE,
                args=[
                    "--cloud-provider=gce",
                    f"--cloud-config={CONFIG_FOLDER}/{CONFIG_FILE}",
                    f"--cluster-name={platform.cluster_name}",
                    f"--cluster-cidr={platform.network.pods_cidr}",
                    f"--controllers={','.join(CONTROLLERS)}",
                    # The pods of a node have their addresses from the range of its machine.
                    "--allocate-node-cidrs=true",
                    "--cidr-allocator-type=CloudAllocator",
                    "--configure-cloud-routes=false",
                    "--bind-address=127.0.0.1",
                    f"--secure-port={HEALTH_PORT}",
                ],
                volume_mounts=[core.VolumeMountArgs(name="config", mount_path=CONFIG_FOLDER, read_only=True)],
                liveness_probe=core.ProbeArgs(
                    http_get=core.HTTPGetActionArgs(
                        host="127.0.0.1", path="/healthz", port=HEALTH_PORT, scheme="HTTPS"
                    ),
                    initial_delay_seconds=15,
                    timeout_seconds=15,
                ),
                resources=core.ResourceRequirementsArgs(
                    requests={"cpu": "100m", "memory": "64Mi"}, limits={"memory": "512Mi"}
                ),
                security_context=core.SecurityContextArgs(
                    run_as_user=0,
                    run_as_group=METADATA_GROUP,
                    allow_privilege_escalation=False,
                    read_only_root_filesystem=True,
                    capabilities=core.CapabilitiesArgs(drop=["ALL"]),
                    seccomp_profile=core.SeccompProfileArgs(type="RuntimeDefault"),
                ),
            )
        ],
        volumes=[core.VolumeArgs(name="config", config_map=core.ConfigMapVolumeSourceArgs(name=NAME))],
    )
