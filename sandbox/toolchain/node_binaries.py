"""The programs of a real host as rows of the toolchain: kubelet, kube-proxy, containerd, kube-router's network
policy controller, and CoreDNS for the pods.

Built only for sandboxes with real pods. runc, the CNI plugins, iptables and ipset are packages of the operating
system, see `sandbox.hosts.choice`.
"""

from __future__ import annotations

from sandbox.toolchain.binary import Binary, pinned_version
from sandbox.toolchain.kubernetes_binaries import kubernetes

_CONTAINERD = "github.com/containerd/containerd/v2"
_COREDNS = "github.com/coredns/coredns"
CONTAINERD_VERSION = pinned_version("containerd", _CONTAINERD)


def _containerd(name: str, seconds: int) -> Binary:
    stamp = f"-s -w -X {_CONTAINERD}/version.Version=v{CONTAINERD_VERSION}"
    return Binary(name, "containerd", f"{_CONTAINERD}/cmd/{name}", seconds, ldflags=stamp)


_ROWS = (
    # A module folder of their own: a line more in the control plane's go.sum would build the control plane anew.
    kubernetes("kubelet", seconds=20, module="kubelet"),
    kubernetes("kube-proxy", seconds=10, module="kubelet"),
    _containerd("containerd", seconds=35),
    _containerd("containerd-shim-runc-v2", seconds=3),
    _containerd("ctr", seconds=5),
    Binary("kube-router", "kube-router", "tpu-platform/toolchain/kube-router", seconds=5),
    Binary("coredns", "coredns", "tpu-platform/toolchain/coredns", seconds=15),
)
BINARIES = {row.name: row for row in _ROWS}
