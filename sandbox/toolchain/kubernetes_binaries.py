"""The control plane's programs as rows of the toolchain: Kubernetes, etcd, kwok, JobSet, Kueue, LeaderWorkerSet, helm,
kubectl; and kubeadm and crictl, which no sandbox runs."""

from __future__ import annotations

from sandbox.toolchain.binary import Binary, pinned_version

# Each version is stated once, in a go.mod.
KUBERNETES_VERSION = pinned_version("kubernetes", "k8s.io/kubernetes")
JOBSET_VERSION = pinned_version("kubernetes", "sigs.k8s.io/jobset")
KWOK_VERSION = pinned_version("kubernetes", "sigs.k8s.io/kwok")
KUEUE_VERSION = pinned_version("kueue", "sigs.k8s.io/kueue")
GATEWAY_API_VERSION = pinned_version("kueue", "sigs.k8s.io/gateway-api")
LWS_VERSION = pinned_version("kueue", "sigs.k8s.io/lws")
HELM_VERSION = pinned_version("helm", "helm.sh/helm/v3")
_MAJOR, _MINOR, _ = KUBERNETES_VERSION.split(".")

# Without these stamps every client takes the server for version 0.0.
_KUBERNETES_STAMP = " ".join(
    (
        "-s -w",
        f"-X k8s.io/component-base/version.gitVersion=v{KUBERNETES_VERSION}",
        f"-X k8s.io/component-base/version.gitMajor={_MAJOR}",
        f"-X k8s.io/component-base/version.gitMinor={_MINOR}",
        f"-X k8s.io/client-go/pkg/version.gitVersion=v{KUBERNETES_VERSION}",
    )
)
_NO_PROFILE = ("-pgo=off",)  # upstream's default.pgo only makes the build slower


def kubernetes(name: str, seconds: int, module: str = "kubernetes") -> Binary:
    """A program of `k8s.io/kubernetes/cmd`, stamped with its version, pinned in the folder `module`."""
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Binary(name, module, package, seconds, ldflags=_KUBERNETES_STAMP, build_flags=_NO_PROFILE)


_ROWS = (
    Binary("etcd", "kubernetes", "go.etcd.io/etcd/server/v3", seconds=22),
    kubernetes("kube-apiserver", seconds=180),
    kubernetes("kube-controller-manager", seconds=55),
    kubernetes("kube-scheduler", seconds=6),
    # A module of its own: its dependencies would change the others' go.sum, and with it what has been built.
    kubernetes("kubectl", seconds=30, module="kubectl"),
    Binary("kwok", "kubernetes", "sigs.k8s.io/kwok/cmd/kwok", seconds=17),
    Binary("jobset", "kubernetes", "sigs.k8s.io/jobset", seconds=9),
    Binary(
        "kueue",
        "kueue",
        "sigs.k8s.io/kueue/cmd/kueue",
        seconds=95,
        ldflags=f"-s -w -X sigs.k8s.io/kueue/pkg/version.GitVersion=v{KUEUE_VERSION}",
    ),
    # Kueue's module pins it, and nearly all packages are those of Kueue, which is built before.
    Binary(
        "lws",
        "kueue",
        "sigs.k8s.io/lws/cmd",
        seconds=15,
        ldflags=f"-s -w -X sigs.k8s.io/lws/pkg/version.GitVersion=v{LWS_VERSION}",
    ),
    Binary(
        "helm",
        "helm",
        "helm.sh/helm/v3/cmd/helm",
        seconds=15,
        ldflags=f"-s -w -X helm.sh/helm/v3/internal/version.version=v{HELM_VERSION}",
    ),
)
BINARIES = {row.name: row for row in _ROWS}
# It judges what the boot scripts write, in their tests. It takes versions from its own down to one minor below.
KUBEADM = kubernetes("kubeadm", seconds=10, module="kubeadm")
# The boot scripts ask containerd with it. A release of cri-tools is for Kubernetes of its minor version.
CRICTL = Binary("crictl", "crictl", "sigs.k8s.io/cri-tools/cmd/crictl", seconds=5)
