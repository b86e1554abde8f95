"""The TPU device plugin, which offers the chips of hosts that do not use DRA. GKE installs its own.

Containers and mounts follow gke-labs/tpu-operator (`deviceplugin/device_plugin.yaml` @314822b), without the sidecar
that copies the TPU runtime's log to its output.
"""

import pulumi
import pulumi_kubernetes as k8s

from catalogue.labels import ACCELERATOR_LABEL, DRA_LABEL
from components.kubernetes.cluster_access import ClusterAccess
from components.kubernetes.daemon_set import account_with_rights, daemon_set
from plan.hosts import METADATA_GROUP
from plan.queue_metrics import DEVICE_PLUGIN

NAME = DEVICE_PLUGIN
NAMESPACE = "kube-system"
IMAGE = "gcr.io/gke-release/tpu-device-plugin:1.35.7-gke.0"
AGENT_IMAGE = (
    "gcr.io/gke-release/vbar_control_agent@sha256:450e948cfa0b0db0c0136138f96da19589635409e6eb790b80fcaee3ffc6cd75"
)
# Directory of the host: where the container mounts it.
HOST_PATHS = {
    "device-plugin": ("/var/lib/kubelet/device-plugins", "/device-plugin"),
    "dev": ("/dev", "/dev"),
    "pod-resources": ("/var/lib/kubelet/pod-resources", "/var/lib/kubelet/pod-resources"),
    "logs": ("/tmp/tpu_logs", "/tmp/tpu_logs"),
    "run": ("/var/run/tpu-plugin", "/var/run/tpu-plugin"),
}


class DevicePlugin(pulumi.ComponentResource):
    """A DaemonSet on TPU hosts that do not use DRA: two drivers on a host would offer every chip twice.

    `metrics`: whether it reads what chips do, and serves it on port 2112 of the host. The firewall lets only the
    platform's machines and pods reach that.
    """

    TYPE = "tpu:kubernetes:DevicePlugin"

    def __init__(
        self, name: str, *, access: ClusterAccess, metrics: bool, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        rule = k8s.rbac.v1.PolicyRuleArgs
        _, binding = account_with_rights(
            name,
            account=NAME,
            namespace=NAMESPACE,
            role=NAME,
            rules=[
                rule(
                    api_groups=[""],
                    resources=["nodes", "nodes/status"],
                    verbs=["get", "list", "patch", "update", "watch"],
                ),
                rule(api_groups=[""], resources=["pods"], verbs=["get", "list", "watch"]),
            ],
            access=access,
            parent=self,
        )
        daemon_set(
            f"{name}-daemons",
            daemon=NAME,
            namespace=NAMESPACE,
            pod=_pod(metrics),
            access=access,
            parent=self,
            depends_on=[binding],
            # TPU hosts come when there is capacity, so this does not wait for pods.
            annotations={"pulumi.com/skipAwait": "true"},
        )
        self.register_outputs({"image": IMAGE})


def _pod(metrics: bool) -> k8s.core.v1.PodSpecArgs:
    core = k8s.core.v1
    return core.PodSpecArgs(
        host_network=True,
        priority_class_name="system-node-critical",
        service_account_name=NAME,
        affinity=core.AffinityArgs(node_affinity=_where()),
        tolerations=[core.TolerationArgs(operator="Exists", effect=effect) for effect in ("NoExecute", "NoSchedule")],
        containers=[_plugin(metrics), _agent()],
        volumes=[
            core.VolumeArgs(name=volume, host_path=core.HostPathVolumeSourceArgs(path=path, type="DirectoryOrCreate"))
            for volume, (path, _) in HOST_PATHS.items()
        ],
    )


def _where() -> k8s.core.v1.NodeAffinityArgs:
    """TPU hosts, except those that use DRA."""
    core = k8s.core.v1
    return core.NodeAffinityArgs(
        required_during_scheduling_ignored_during_execution=core.NodeSelectorArgs(
            node_selector_terms=[
                core.NodeSelectorTermArgs(
                    match_expressions=[
                        core.NodeSelectorRequirementArgs(key=ACCELERATOR_LABEL, operator="Exists"),
                        core.NodeSelectorRequirementArgs(key=DRA_LABEL, operator="NotIn", values=["true"]),
                    ]
                )
            ]
        )
    )


def _plugin(metrics: bool) -> k8s.core.v1.ContainerArgs:
    core = k8s.core.v1
    fields = {
        "NODE_NAME": "spec.nodeName",
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "NODE_IP": "status.hostIP",
    }
    return core.ContainerArgs(
        name=NAME,
        image=IMAGE,
        command=["/usr/bin/tpu-device-plugin"],
        args=[
            "--logtostderr",
            f"--enable-runtime-metrics={str(metrics).lower()}",
            "--enable-host-metrics=false",
            "--enable-vbar-uds",
            "--enable-subslice-application=false",
        ],
        env=[
            core.EnvVarArgs(name="CONTAINER_NAME", value=NAME),
            *(
                core.EnvVarArgs(
                    name=variable,
                    value_from=core.EnvVarSourceArgs(field_ref=core.ObjectFieldSelectorArgs(field_path=path)),
                )
                for variable, path in fields.items()
            ),
        ],
        resources=_resources(cpu="80m", memory="80Mi"),
        security_context=_privileged(),
        volume_mounts=[core.VolumeMountArgs(name=name, mount_path=path) for name, (_, path) in HOST_PATHS.items()],
    )


def _agent() -> k8s.core.v1.ContainerArgs:
    """Talks to the chips' control unit for the plugin, over a socket in a directory that both mount."""
    core = k8s.core.v1
    return core.ContainerArgs(
        name="vbar-control-agent",
        image=AGENT_IMAGE,
        command=["vbar_control_agent_files/bin/vbar_control_agent"],
        args=["--logtostderr", "--census_enabled=false", "--gid=", "--uid=", "--chroot="],
        env=[
            core.EnvVarArgs(name="TPU_SKIP_MDS_QUERY", value="true"),
            core.EnvVarArgs(name="TPU_ON_GKE", value="true"),
        ],
        resources=_resources(cpu="10m", memory="150Mi"),
        security_context=_privileged(read_only=True),
        volume_mounts=[core.VolumeMountArgs(name="run", mount_path=HOST_PATHS["run"][1])],
    )


def _resources(*, cpu: str, memory: str) -> k8s.core.v1.ResourceRequirementsArgs:
    return k8s.core.v1.ResourceRequirementsArgs(requests={"cpu": cpu, "memory": memory}, limits={"memory": memory})


def _privileged(*, read_only: bool = False) -> k8s.core.v1.SecurityContextArgs:
    core = k8s.core.v1
    return core.SecurityContextArgs(
        privileged=True,
        run_as_user=0,
        run_as_group=METADATA_GROUP,
        read_only_root_filesystem=read_only,
        seccomp_profile=core.SeccompProfileArgs(type="RuntimeDefault"),
    )
