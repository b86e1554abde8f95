"""The real hosts of one cluster: which Nodes get one, and what they need around them: network, DNS, the API's address.

A host is real as long as there are fewer than the limit, and only where all hosts of its slice can be: half a slice
that computes and half that is played would wait for each other. Hosts without TPUs are played, since the pods there
are those of controllers, which the sandbox runs as processes.

CoreDNS runs as one process in the hosts' network, behind the Service kube-dns. It stands for GKE's kube-dns and for
kubeadm's Deployment of CoreDNS, which are pods.
"""

from __future__ import annotations

import ipaddress
import itertools
import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.hosts import cgroups, images
from sandbox.hosts.fabric import API_PORT, GATEWAY, Fabric
from sandbox.hosts.host import CHIPS_FILE, DRA_FILE, POLICY_USER, Host, HostSpec, Site
from sandbox.kubernetes import assets
from sandbox.kubernetes.api import Object
from sandbox.kubernetes.control_plane import KUBELET_CLIENT, ControlPlane
from sandbox.kubernetes.dra import POD_SELECTOR
from sandbox.kubernetes.fuse import SIDECAR_IMAGE, FuseDriver
from sandbox.kubernetes.joining import EVICTION_MIB, Kubelet
from sandbox.kubernetes.nodes import DRA_LABEL, NodeSpec
from sandbox.kubernetes.pods import of_daemon_set, running

DNS_SERVICE_NUMBER = 10  # the tenth address of the services, as kubeadm and GKE have it
START_AGAIN_SECONDS = (1, 5, 20)
_RBAC = "rbac.authorization.k8s.io"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Real:
    """What of a cluster is real: at most so many hosts. `image_names`: see images.names_of."""

    hosts: int = 0
    image_names: Mapping[str, str] = field(default_factory=dict)


PLAYED = Real()


class RealHosts:
    """Started and stopped with its control plane. `image_names`: see images.names_of.

    `device_plugin` is the DaemonSet in kube-system that brings the device plugin to a host; "" where GKE does. `fuse`
    is the FUSE driver, where there is one. `network_policies`: whether the hosts enforce them; otherwise they are
    stored and have no effect.
    """

    def __init__(
        self,
        plane: ControlPlane,
        image_names: Mapping[str, str],
        device_plugin: str = "",
        fuse: FuseDriver | None = None,
        *,
        network_policies: bool = False,
    ) -> None:
        self._plane = plane
        self._fuse = fuse
        self._device_plugin = device_plugin
        self._limit = plane.setup.real_hosts
        self._folder = plane.run_dir / "hosts"
        self._fabric = Fabric(plane.supervisor, plane.api_port)
        addresses = ipaddress.ip_network(plane.setup.service_range)
        self._dns = str(addresses[DNS_SERVICE_NUMBER])
        self._site = Site(
            folder=self._folder,
            authority=plane.authority,
            fabric=self._fabric,
            supervisor=plane.supervisor,
            cluster_dns=self._dns,
            api_service=f"{addresses[1]}:443",
            service_range=plane.setup.service_range,
            network_policies=network_policies,
            image_names={**images.names_of(image_names), SIDECAR_IMAGE: images.PAUSE},
        )
        self._hosts: dict[str, Host] = {}
        self._slices: dict[str, int] = {}  # reserved: number of hosts
        self._slice_of: dict[str, str] = {}
        self._lock = threading.Lock()
        self._starter = ThreadPoolExecutor(4, "hosts")
        self._stopping = threading.Event()

    def start(self) -> None:
        """Makes the network and what answers in it; no host yet. Raises FabricError, supervisor.ProcessError."""
        cgroups.remove(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700)
        images.store()
        self._fabric.start()
        self._plane.egress.network = self._fabric
        policies = _policy_objects() if self._site.network_policies else []
        for each in (*_api_server_objects(), *_dns_objects(self._dns), *policies):
            self._plane.client.apply(each)
        self._start_dns()

    def stop(self) -> None:
        """Ends all hosts and their network, and removes what they left."""
        self._stopping.set()
        self._starter.shutdown(cancel_futures=True)
        self._plane.egress.network = None
        for name in list(self._hosts):
            self.end(name)
        self._fabric.stop()
        cgroups.remove(self._folder)

    def accept(self, node: NodeSpec) -> bool:
        """Whether a new Node of GKE is to have a real host."""
        return bool(node.chips) and self.reserve(node.slice, node.slice_hosts)

    def reserve(self, tpu_slice: str, hosts: int) -> bool:
        """Whether the hosts of a slice are to be real: they are if there is room for all of them."""
        with self._lock:
            if tpu_slice not in self._slices and sum(self._slices.values()) + hosts <= self._limit:
                self._slices[tpu_slice] = hosts
            return tpu_slice in self._slices

    def begin(self, node: NodeSpec) -> None:
        """Starts a host in the background; its kubelet finds the Node."""
        self.start_host(lambda number: gke_host(node, number), node.slice)

    def start_host(self, specify: Callable[[int], HostSpec], tpu_slice: str) -> None:
        """Starts a host of a reserved slice in the background; `specify` is given the host's number."""
        with self._lock:
            used = {each.spec.number for each in self._hosts.values()}
            spec = specify(next(number for number in itertools.count(1) if number not in used))
            if spec.name not in self._hosts:
                host = self._hosts[spec.name] = Host(self._site, spec, self._fuse)
                self._slice_of[spec.name] = tpu_slice
                self._starter.submit(self._start_host, host)

    def has(self, name: str) -> bool:
        return name in self._hosts

    def end(self, name: str) -> None:
        """Pulls a host's plug."""
        with self._lock:
            if host := self._hosts.pop(name, None):
                host.stop()
                tpu_slice = self._slice_of.pop(name)
                if tpu_slice not in self._slice_of.values():
                    self._slices.pop(tpu_slice, None)

    def step(self) -> None:
        """Keeps the plugins of the hosts as the cluster wants them: each runs where its pod does, GKE's device plugin
        on all TPU hosts without DRA."""
        if not self._hosts:
            return
        pods = running(self._plane.client.list_all("v1", "Pod"))
        drivers = {each["spec"]["nodeName"] for each in pods if _is_dra_driver(each)}
        plugins = {each["spec"]["nodeName"] for each in pods if of_daemon_set(each, self._device_plugin)}
        for name, host in list(self._hosts.items()):
            gke = not self._device_plugin and host.spec.labels.get(DRA_LABEL) != "true"
            host.want(DRA_FILE, name in drivers)
            host.want(CHIPS_FILE, name in plugins or gke)

    def _start_host(self, host: Host) -> None:
        """Tries again where a start fails, as a machine is repaired: on a busy machine a program may come too late."""
        for wait in itertools.chain(START_AGAIN_SECONDS, itertools.repeat(START_AGAIN_SECONDS[-1])):
            try:
                host.start()
                return
            except Exception:
                _LOG.exception("real host %s does not start; next try in %s s", host.spec.name, wait)
            if self._stopping.wait(wait):
                return

    def _start_dns(self) -> None:
        folder = self._plane.run_dir / "coredns"
        folder.mkdir(exist_ok=True)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(self._site.kubeconfig("system:serviceaccount:kube-system:coredns"))
        corefile = folder / "Corefile"
        corefile.write_text(_corefile(kubeconfig))
        command = self._fabric.command(str(assets.program("coredns")), "-conf", str(corefile))
        self._plane.supervisor.start("coredns", Path("/usr/bin/nsenter"), command)


def _is_dra_driver(pod: Object) -> bool:
    key, _, value = POD_SELECTOR.partition("=")
    return bool(pod["metadata"].get("labels", {}).get(key) == value)


def gke_host(node: NodeSpec, number: int) -> HostSpec:
    """The host of a Node of GKE, which keeps back as much as GKE does, and whose chips GKE's device plugin finds."""
    cpu, memory = (int(_digits(node.capacity[key])) for key in ("cpu", "memory"))
    cpu_left, memory_left = (int(_digits(node.allocatable[key])) for key in ("cpu", "memory"))
    return HostSpec(
        name=node.name,
        number=number,
        address=f"10.128.1.{number}",
        pods=f"10.244.{number}.0/24",
        cpus=cpu // 1000,
        memory_mib=memory,
        max_pods=int(node.capacity["pods"]),
        reserved={"cpu": f"{cpu - cpu_left}m", "memory": f"{memory - memory_left}Mi"},
        provider_id=node.provider_id,
        labels=node.labels,
        chips=node.chips,
    )


def joined_host(kubelet: Kubelet, number: int, pods: str) -> HostSpec:
    """The host of a machine that joins with kubeadm, whose kubelet makes its Node: labels, taints and a cloud provider
    outside the kubelet."""
    labels = ",".join(f"{key}={value}" for key, value in kubelet.labels.items())
    taints = ",".join(f"{each['key']}={each.get('value', '')}:{each['effect']}" for each in kubelet.taints)
    return HostSpec(
        name=kubelet.name,
        number=number,
        address=kubelet.address,
        pods=pods,
        cpus=kubelet.machine.vcpus,
        memory_mib=kubelet.machine.memory_gb * 1024,
        max_pods=kubelet.max_pods,
        reserved={"memory": f"{EVICTION_MIB}Mi"},
        provider_id="",
        labels=kubelet.labels,
        chips=kubelet.machine.chips,
        kubelet=(f"--node-labels={labels}", f"--register-with-taints={taints}", "--cloud-provider=external"),
    )


def _digits(quantity: str) -> str:
    """The number of a quantity in the one unit that the emulator's nodes have it in: "4000m", "16384Mi"."""
    return quantity.rstrip("mMi")


def _corefile(kubeconfig: Path) -> str:
    """kubeadm's, without a way to names outside the cluster: there is no network outside."""
    return f"""\
.:53 {{
    bind {GATEWAY}
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig} cluster
        pods insecure
        ttl 1
    }}
}}
"""


def _api_server_objects() -> list[Object]:
    """The endpoint of the Service `kubernetes`, and the API server's rights on kubelets."""
    return [
        _endpoint_slice("kubernetes", "default", "https", API_PORT, "TCP"),
        _binding(KUBELET_CLIENT, "system:kubelet-api-admin", {"kind": "User", "name": KUBELET_CLIENT}),
    ]


def _policy_objects() -> list[Object]:
    """What the controller of NetworkPolicies may do: read what its rules are made of."""
    rules = [
        {"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"]},
    ]
    name = "system:kube-router"
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    return [role, _binding(name, name, {"kind": "User", "name": POLICY_USER})]


def _dns_objects(address: str) -> list[Object]:
    rules = [
        {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    ports = [{"name": name, "port": 53, "protocol": protocol} for name, protocol in _DNS_PORTS]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"clusterIP": address, "ports": ports},
    }
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "system:coredns"}, "rules": rules}
    user = {"kind": "User", "name": "system:serviceaccount:kube-system:coredns"}
    slices = [
        _endpoint_slice("kube-dns", "kube-system", name, 53, protocol, suffix=f"-{name}")
        for name, protocol in _DNS_PORTS
    ]
    return [role, _binding("system:coredns", "system:coredns", user), service, *slices]


_DNS_PORTS = (("dns", "UDP"), ("dns-tcp", "TCP"))


def _endpoint_slice(service: str, namespace: str, port: str, number: int, protocol: str, suffix: str = "") -> Object:
    labels = {"kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "sandbox"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{service}{suffix}", "namespace": namespace, "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [GATEWAY], "conditions": {"ready": True}}],
        "ports": [{"name": port, "port": number, "protocol": protocol}],
    }


def _binding(name: str, role: str, subject: Object) -> Object:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _RBAC, **subject}],
    }
