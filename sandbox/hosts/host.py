"""One real host, from the outside: its files, its certificates and its arguments, and the process that is all of it.

Stands for a machine of a node pool with the node's programs: kubelet, containerd with runc, kube-proxy. What is real:
these programs, their API calls, the containers, their network. What is not, apart from what `machine.py` says: the
kubelet's certificates come straight from the cluster's authority, images come from `images.py`, and no limit holds for
all pods of a host together.

Where the cluster enforces NetworkPolicies, kube-router's controller does it on this host, with iptables and ipset. It
stands for GKE's Dataplane V2, which is Cilium. Different from there: a new pod can be reached for a moment before its
rules are there; a refused connection ends at once, where Dataplane V2 drops its packets; the cluster's DNS is no pod,
so no policy can select it; and Cilium's own kinds of policies do not exist.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from sandbox.hosts import cgroups, images, lenient_runc, machine
from sandbox.hosts.choice import SYSTEM_PATH, cni_folder
from sandbox.hosts.fabric import API_PORT, GATEWAY, Fabric
from sandbox.hosts.fuse_plugin import FusePlugin
from sandbox.kubernetes import assets
from sandbox.kubernetes.api import Object
from sandbox.kubernetes.fuse import FuseDriver
from sandbox.kubernetes.pki import CertificateAuthority, KeyPair
from sandbox.kubernetes.supervisor import Process, Supervisor
from sandbox.run_directory import IMPORT_ROOT

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
START_SECONDS = 120.0
POLICY_USER = "system:serviceaccount:kube-system:kube-router"
PKI, LABELS = "/etc/kubernetes/pki", "/etc/tpu-labels.json"  # inside
CHIPS_FILE, DRA_FILE = "device-plugin", "dra-plugin"  # below `wanted` in the host's folder


@dataclass(frozen=True)
class HostSpec:
    """What makes one host differ from others.

    `address` is that of the machine, `pods` the range of its pods; `number` is the host's own within the cluster.
    `labels` are those by which plugins know the machine, `reserved` is what the kubelet keeps back of its capacity, and
    `kubelet` are arguments that only this one gets.
    """

    name: str
    number: int
    address: str
    pods: str
    cpus: int
    memory_mib: int
    max_pods: int
    reserved: Mapping[str, str]
    provider_id: str
    labels: Mapping[str, str]
    chips: int
    kubelet: Sequence[str] = ()


@dataclass(frozen=True)
class Site:
    """What the hosts of a cluster have in common.

    `api` is the API server on the fabric, `api_service` its address as a Service; `cluster_dns` is that of the DNS.
    `service_range` is the CIDR of all of them. `network_policies`: whether hosts enforce them.
    """

    folder: Path
    authority: CertificateAuthority
    fabric: Fabric
    supervisor: Supervisor
    cluster_dns: str
    api_service: str
    service_range: str
    network_policies: bool
    image_names: Mapping[str, str]

    @property
    def api(self) -> str:
        return f"https://{GATEWAY}:{API_PORT}"

    def identity(self, user: str, group: str = "") -> KeyPair:
        """A client's certificate and key."""
        return self.authority.issue(user.replace(":", "-"), [], user=user, group=group)

    def kubeconfig(self, user: str, group: str = "") -> str:
        """For a client in the fabric, who is known by a certificate."""
        pair = self.identity(user, group)
        # The certificate of the API server names its address in the cluster, not the gateway's.
        cluster = {
            "server": self.api,
            "certificate-authority-data": self.authority.pair.certificate_base64(),
            "tls-server-name": "kubernetes.default.svc",
        }
        credential = {"client-certificate-data": pair.certificate_base64(), "client-key-data": pair.key_base64()}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "cluster",
                "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": "host"}}],
                "clusters": [{"name": "cluster", "cluster": cluster}],
                "users": [{"name": "host", "user": credential}],
            }
        )


class Host:
    """Starts when told to, and leaves nothing when it stops. `fuse` is the FUSE driver of its cluster, on GKE."""

    def __init__(self, site: Site, spec: HostSpec, fuse: FuseDriver | None = None) -> None:
        self.spec = spec
        self.folder = site.folder / f"h{spec.number}"
        self._site = site
        self._process: Process | None = None
        self._fuse_driver = fuse
        self._fuse: FusePlugin | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Returns when its programs are being started; one that was stopped before does not start. A start that fails
        leaves nothing, so that the next can succeed.

        Raises ProcessError, FabricError, OSError, CalledProcessError.
        """
        with self._lock:
            if self._stopped:
                return
            try:
                self._start()
            except BaseException:
                self._remove()
                raise

    def _start(self) -> None:
        (self.folder / "wanted").mkdir(parents=True, exist_ok=True)
        images.copy_store(images.store(), self.folder / "containerd")
        cgroups.make(self.folder)
        (self.folder / "machine.json").write_text(json.dumps(self._machine()))
        arguments = ["-I", "-S", machine.__file__, str(self.folder / "machine.json")]
        environment = {"PATH": SYSTEM_PATH}
        program = Path(sys.executable)
        self._process = self._site.supervisor.start(f"host-{self.spec.number}", program, arguments, environment)
        pid_file = self.folder / machine.PID_FILE
        self._process.wait_ready(pid_file.exists, START_SECONDS)
        spec = self.spec
        self._site.fabric.attach(spec.name, self._pid(), spec.address, spec.pods)
        self._process.wait_ready((self.folder / machine.UP_FILE).exists, START_SECONDS)
        if self._fuse_driver:
            self._fuse = FusePlugin(self._fuse_driver, spec.name, self.folder, self._pid)
            self._fuse.start()

    def _pid(self) -> int:
        """The host's process 1, as the outside numbers it."""
        return int((self.folder / machine.PID_FILE).read_text())

    def stop(self) -> None:
        """Ends it as pulling a plug does, and removes its files and cgroups."""
        with self._lock:
            self._stopped = True
            self._remove()

    def _remove(self) -> None:
        if self._fuse:
            self._fuse.stop()
            self._fuse = None
        if self._process:
            self._site.supervisor.stop(self._process)
            self._process = None
        self._site.fabric.detach(self.spec.name)
        cgroups.remove(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    def want(self, plugin: str, wanted: bool) -> None:
        """Starts or ends one of its plugins: CHIPS_FILE or DRA_FILE."""
        file = self.folder / "wanted" / plugin
        if wanted and file.parent.exists():  # else it is being started or stopped
            file.touch()
        else:
            file.unlink(missing_ok=True)

    def _machine(self) -> Object:
        spec = self.spec
        return {
            "name": spec.name,
            "address": spec.address,
            "gateway": GATEWAY,
            "cpus": spec.cpus,
            "memory_mib": spec.memory_mib,
            "files": self._files(),
            "programs": self._programs(),
        }

    def _files(self) -> dict[str, str]:
        node = self._site.identity(f"system:node:{self.spec.name}", "system:nodes")
        files = {
            "/etc/kubernetes/kubelet.yaml": yaml.safe_dump(self._kubelet()),
            "/etc/kubernetes/kubelet.conf": self._site.kubeconfig(f"system:node:{self.spec.name}", "system:nodes"),
            "/etc/kubernetes/kube-proxy.yaml": yaml.safe_dump(self._kube_proxy()),
            "/etc/kubernetes/kube-proxy.conf": self._site.kubeconfig("system:kube-proxy"),
            LABELS: json.dumps(dict(self.spec.labels)),
            f"{PKI}/ca.crt": self._site.authority.pair.certificate.read_text(),
            f"{PKI}/node.crt": node.certificate.read_text(),
            f"{PKI}/node.key": node.key.read_text(),
            "/etc/containerd/config.toml": _containerd(self._runc()),
            "/etc/cni/net.d/10-pods.conflist": json.dumps(_pod_network(self.spec.pods)),
            "/etc/resolv.conf": f"nameserver {GATEWAY}\n",
            "/etc/hosts": f"127.0.0.1 localhost\n{self.spec.address} {self.spec.name}\n",
            "/etc/machine-id": f"{self.spec.number:032x}\n",
        }
        if self._site.network_policies:
            files["/etc/kubernetes/kube-router.conf"] = self._site.kubeconfig(POLICY_USER)
        return files

    def _programs(self) -> list[Object]:
        programs = {name: str(assets.program(name)) for name in ("containerd", "kubelet", "kube-proxy")}
        shim = assets.program("containerd-shim-runc-v2").parent
        path = {"PATH": f"{shim}:{SYSTEM_PATH}"}
        kubelet = [
            programs["kubelet"],
            "--config=/etc/kubernetes/kubelet.yaml",
            "--kubeconfig=/etc/kubernetes/kubelet.conf",
            f"--hostname-override={self.spec.name}",
            f"--node-ip={self.spec.address}",
            *self.spec.kubelet,
        ]
        return [
            {
                "name": "containerd",
                "command": [programs["containerd"], "--config=/etc/containerd/config.toml"],
                "environment": path,
                "ready": CONTAINERD_SOCKET,
            },
            {"name": "image-names", "command": ["/bin/sh", "-ec", self._naming()], "once": True},
            {"name": "kubelet", "command": kubelet, "environment": path},
            {
                "name": "kube-proxy",
                "command": [programs["kube-proxy"], "--config=/etc/kubernetes/kube-proxy.yaml"],
                "environment": path,
            },
            *([self._policy_controller()] if self._site.network_policies else []),
            self._plugin(CHIPS_FILE, "device_plugin"),
            self._plugin(
                DRA_FILE,
                "dra_plugin",
                f"--node={self.spec.name}",
                f"--address={self.spec.address}",
                f"--api={self._site.api_service}",
                f"--credentials={PKI}",
            ),
        ]

    def _policy_controller(self) -> Object:
        command = [
            str(assets.program("kube-router")),
            "--kubeconfig=/etc/kubernetes/kube-router.conf",
            f"--hostname-override={self.spec.name}",
            f"--service-cluster-ip-range={self._site.service_range}",
        ]
        return {"name": "kube-router", "command": command}

    def _naming(self) -> str:
        return images.naming(str(assets.program("ctr")), self._site.image_names)

    def _runc(self) -> str:
        if not lenient_runc.lacking():
            return lenient_runc.RUNC
        script = self.folder / lenient_runc.RUNC
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {lenient_runc.__file__} "$@"\n')
        script.chmod(0o755)
        return str(script)

    def _plugin(self, wanted: str, module: str, *arguments: str) -> Object:
        labels = [f"--labels={LABELS}", f"--chips={self.spec.chips}"]
        return {
            "name": wanted,
            "command": [sys.executable, "-m", f"sandbox.hosts.{module}", *labels, *arguments],
            "environment": {"PYTHONPATH": str(IMPORT_ROOT)},
            "while": str(self.folder / "wanted" / wanted),
        }

    def _kubelet(self) -> Object:
        spec = self.spec
        serving = self._site.authority.issue(f"kubelet-{spec.name}-{spec.address}", [spec.address, spec.name])
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{PKI}/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(self._kept(serving.certificate, "kubelet-serving.crt")),
            "tlsPrivateKeyFile": str(self._kept(serving.key, "kubelet-serving.key")),
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroups.name_of(self.folder)}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "evictionHard": {},
            "imageGCHighThresholdPercent": 100,
            "kubeReserved": dict(spec.reserved),
            "maxPods": spec.max_pods,
            "providerID": spec.provider_id,
            "clusterDNS": [self._site.cluster_dns],
            "clusterDomain": "cluster.local",
            "resolvConf": "/etc/resolv.conf",
            "readOnlyPort": 0,
            "shutdownGracePeriod": "0s",
        }

    def _kept(self, source: Path, name: str) -> Path:
        """A copy in the host's folder, which is where it is inside as well."""
        copy = self.folder / name
        copy.touch(mode=0o600)
        copy.write_bytes(source.read_bytes())
        return copy

    def _kube_proxy(self) -> Object:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": "/etc/kubernetes/kube-proxy.conf"},
            "hostnameOverride": self.spec.name,
            "mode": "iptables",
            "iptables": {"minSyncPeriod": "0s"},
            # The kernel's limits are not this host's to change.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"},
        }


def _containerd(runc: str) -> str:
    """Section names as in version 3 of containerd's configuration (2.x)."""
    pause = images.full_name(images.PAUSE)
    return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  # Where the machine may not lower it, every pod would fail.
  restrict_oom_score_adj = true
  enable_cdi = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
      BinaryName = "{runc}"
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{cni_folder()}"]
    conf_dir = "/etc/cni/net.d"
"""


def _pod_network(pods: str) -> Object:
    """Each pod on a wire of its own. Unlike with a bridge, a pod reaches itself and its neighbours by a service too."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
