"""A cluster without nodes, and what the program puts into it for who may do what there."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from plan import kueue_configuration
from plan.admission_policy import Policy
from plan.charts import KUEUE
from plan.platform import Platform
from sandbox.google.backend import ClusterRef
from sandbox.kubernetes.api import ApiClient
from sandbox.kubernetes.backend import KubernetesBackend
from sandbox.kubernetes.gke import GkeCluster
from sandbox.kubernetes.registry import ChartRegistry
from sandbox.plugins.kubernetes.releases import PostRenderingHelm
from sandbox.tests.kubernetes_support import kueue_release
from tests.graph.recording import ROOT, GraphMonitor, record


@contextmanager
def bare_cluster() -> Iterator[GkeCluster]:
    """A GKE cluster with a real control plane and no nodes."""
    with tempfile.TemporaryDirectory(prefix="tpu-") as scratch:
        backend = KubernetesBackend(Path(scratch))
        ref = ClusterRef("my-project", "us-east5", "lab")
        backend.create(ref, {})
        try:
            yield backend.cluster(ref)
        finally:
            backend.delete(ref)
            backend.close()


def apply_recorded(client: ApiClient, graph: GraphMonitor, *kinds: str, named: str = "") -> None:
    """Puts the objects of these kinds into the cluster that a graph registers under such names."""
    for request in graph.requests.values():
        group_version, _, kind = request.type.removeprefix("kubernetes:").rpartition(":")
        if request.type.startswith("kubernetes:") and kind in kinds and request.name.startswith(named):
            body = json_format.MessageToDict(request.object)
            client.apply({"apiVersion": group_version.removeprefix("core/"), "kind": kind, **body})


def install(client: ApiClient, policy: Policy) -> None:
    """Puts a policy and its binding into the cluster."""
    apply_recorded(
        client, _recorded(policy), "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", named="under-test"
    )


def _recorded(policy: Policy) -> GraphMonitor:
    import pulumi
    import pulumi_kubernetes as k8s

    from components.kubernetes.admission_policy import POD_SECURITY, AdmissionPolicy
    from components.kubernetes.cluster_access import ClusterAccess

    def program() -> None:
        nothing = pulumi.Output.from_input("")
        provider = k8s.Provider("provider", kubeconfig="{}")
        access = ClusterAccess(nothing, nothing, provider, None, "")
        AdmissionPolicy(POD_SECURITY, "under-test", policy=policy, access=access)

    return record(program)


def within(seconds: float, probe: Callable[[], Any], instead: Callable[[], object] = str) -> Any:
    """The first true result of `probe`; the server takes a moment to put a policy in force. Fails with `instead`."""
    deadline = time.monotonic() + seconds
    while not (found := probe()):
        assert time.monotonic() < deadline, f"not within {seconds} s {instead()}"
        time.sleep(0.2)
    return found


def install_kueue(cluster: GkeCluster, registry: ChartRegistry, platform: Platform) -> None:
    """Kueue with the platform's configuration, rendered anew as the program does: it holds the pods of servers only."""
    assert KUEUE.postrender
    plane = cluster.plane
    variables = registry.variables(plane.authority.pair.certificate)
    helm = PostRenderingHelm(plane.kubeconfig_path, str(ROOT / KUEUE.postrender), variables)
    helm.install(kueue_release(kueue_configuration.render(kueue_configuration.configuration(platform))))
