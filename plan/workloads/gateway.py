"""How clients outside of the cluster reach a server: a load balancer that GKE makes for a Gateway.

Forms: Gateway API v1; HealthCheckPolicy and GCPBackendPolicy of networking.gke.io/v1 (GKE documentation, configure
Gateway resources using policies). Only regional classes: the global ones take no traffic into one region alone.
"""

from collections.abc import Iterator
from typing import Literal, get_args

from plan.network import HEALTH_CHECKS
from plan.platform import Platform
from plan.workloads.job import Job, Manifest, WorkloadError
from plan.workloads.leader_worker_set import leaders
from platform_config.cluster import GkeCluster

Reach = Literal["internal", "external"]
CLASSES: dict[Reach, str] = {"internal": "gke-l7-rilb", "external": "gke-l7-regional-external-managed"}
GATEWAY_API = "gateway.networking.k8s.io/v1"
POLICY_API = "networking.gke.io/v1"
API_KEY = "VLLM_API_KEY"
"""The variable with the key that vLLM asks clients for."""
GUARDED = "/v1"
"""Where vLLM asks for its key. /invocations, /tokenize and others answer without (vLLM, docs/usage/security.md)."""
NETWORK_API = "networking.k8s.io/v1"
SUFFIXES = {"NetworkPolicy": "-gateway"}
"""What a kind's name has besides the server's: a server may be called as the team's own NetworkPolicy is."""
ANSWER_SECONDS = 300
"""How long an answer may take. GKE's default is 30 s, in which a long one does not fit."""


def reach_of(written: str) -> Reach:
    """The reach that a person wrote. Raises WorkloadError for any other."""
    for reach in get_args(Reach):
        if written == reach:
            return reach  # type: ignore[no-any-return]
    raise WorkloadError(f"--gateway {written} is neither internal nor external")


def gateway(
    platform: Platform, job: Job, service: str, port: int, health_path: str, reach: Reach, certificate: str | None
) -> list[Manifest]:
    """The objects that make GKE put a load balancer in front of the Service. `certificate`: a Secret with it, or None.

    Raises WorkloadError where the platform has no such gateways, or a server would be open to the internet in clear.
    """
    if not isinstance(platform.cluster, GkeCluster):
        raise WorkloadError("--gateway needs GKE, which makes the load balancer: without GKE use kubectl port-forward")
    if not platform.cluster.gateway:
        raise WorkloadError(
            "--gateway needs cluster.gateway: true and network.proxy_only_cidr in the stack file, and then pulumi up"
        )
    if reach == "external" and (found := list(_exposed(platform, job, certificate))):
        raise WorkloadError("; ".join(found))
    kept_apart = job.namespace in platform.teams
    return [
        _object(GATEWAY_API, "Gateway", job, _gateway(reach, certificate)),
        _object(GATEWAY_API, "HTTPRoute", job, _route(job, service, port, reach)),
        _object(POLICY_API, "HealthCheckPolicy", job, _health(service, port, health_path)),
        _object(POLICY_API, "GCPBackendPolicy", job, _backend(service)),
        *([_object(NETWORK_API, "NetworkPolicy", job, _opening(platform, job, port))] if kept_apart else []),
    ]


def _exposed(platform: Platform, job: Job, certificate: str | None) -> Iterator[str]:
    """What a server on the internet lacks."""
    if certificate is None:
        yield (
            "--gateway external needs --certificate SECRET (a Secret of type kubernetes.io/tls): clients would send"
            " everything over the internet in clear"
        )
    team = platform.teams.get(job.namespace)
    if team is None or API_KEY not in team.secrets:
        yield (
            f"--gateway external needs a key, or everybody may use the server: write teams: {{{job.namespace}: "
            f"{{secrets: {{{API_KEY}: NAME}}}}}} in the stack file, with the NAME of an entry in Secret Manager"
        )


def _object(api: str, kind: str, job: Job, spec: Manifest) -> Manifest:
    metadata = {"name": f"{job.name}{SUFFIXES.get(kind, '')}", "namespace": job.namespace}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def _opening(platform: Platform, job: Job, port: int) -> Manifest:
    """Lets the load balancer's proxies and its health checks reach the pods that answer requests.

    A team's namespace admits nothing from outside of the team, and on GKE that holds for them as well.
    """
    proxies = platform.network.proxy_only_cidr
    if proxies is None:
        raise WorkloadError(
            "--gateway in a team's namespace needs network.proxy_only_cidr in the stack file: the addresses of the"
            " network's proxy-only subnet, from which the load balancer reaches the team's pods"
        )
    return {
        "podSelector": {"matchLabels": leaders(job.name)},
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [{"ipBlock": {"cidr": cidr}} for cidr in (*HEALTH_CHECKS, proxies)],
                "ports": [{"protocol": "TCP", "port": port}],
            }
        ],
    }


def _gateway(reach: Reach, certificate: str | None) -> Manifest:
    listener: Manifest = {"name": "http", "protocol": "HTTP", "port": 80}
    if certificate:
        tls = {"mode": "Terminate", "certificateRefs": [{"kind": "Secret", "name": certificate}]}
        listener = {"name": "https", "protocol": "HTTPS", "port": 443, "tls": tls}
    return {
        "gatewayClassName": CLASSES[reach],
        "listeners": [{**listener, "allowedRoutes": {"namespaces": {"from": "Same"}}}],
    }


def _route(job: Job, service: str, port: int, reach: Reach) -> Manifest:
    """Without timeouts, which GKE refuses in routes (GWCER104). From the internet only to what asks for a key."""
    guarded = {"matches": [{"path": {"type": "PathPrefix", "value": GUARDED}}]} if reach == "external" else {}
    return {
        "parentRefs": [{"kind": "Gateway", "name": job.name}],
        "rules": [{**guarded, "backendRefs": [{"name": service, "port": port}]}],
    }


def _health(service: str, port: int, path: str) -> Manifest:
    """GKE's default asks for `/`, which vLLM does not answer."""
    check = {"type": "HTTP", "httpHealthCheck": {"port": port, "requestPath": path}}
    return {"default": {"config": check}, "targetRef": _of_service(service)}


def _backend(service: str) -> Manifest:
    return {"default": {"timeoutSec": ANSWER_SECONDS}, "targetRef": _of_service(service)}


def _of_service(service: str) -> Manifest:
    return {"group": "", "kind": "Service", "name": service}
