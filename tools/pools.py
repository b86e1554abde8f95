"""Node pools that TPU Provisioner has created. They are in no stack's state, and it leaves some behind.

It announces a failed creation as success and never tries again, and it deletes a pool only on an event of one of its
nodes (ai-on-gke/tpu-provisioner internal/cloud/gke.go, internal/controller/deletion_controller.go).
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.table import Table

from components.kubernetes.kubectl import KubectlError, kubectl
from plan.kubeconfig import gke_kubeconfig
from plan.platform import Platform
from plan.tpu_provisioner import MANAGED_BY, jobset_of
from tools.preflight.cloud import Cloud

Json = Mapping[str, Any]
KUBECTL_SECONDS = 30
IDLE = {"Completed": "is complete", "Failed": "has failed", "Suspended": "is suspended, by its queue or a person,"}
"""Conditions of a JobSet whose pods do not run."""
GRACE = timedelta(minutes=10)
"""A pool goes with the first event of a node after the JobSet's end, and an idle kubelet has one in 5 minutes."""


class ClusterError(Exception):
    """The cluster does not exist, or its JobSets cannot be listed; the message says which."""


@dataclass(frozen=True)
class CreatedPool:
    """One of its node pools, with the JobSet that it is for. `problem`: why a person must act; empty if nobody must."""

    name: str
    jobset: str
    status: str
    problem: str


def created_pools(platform: Platform, cloud: Cloud) -> list[CreatedPool]:
    """All of them, by name. Raises ClusterError, and RefusedError where Google refuses to be asked."""
    name = f"projects/{platform.project}/locations/{platform.location}/clusters/{platform.cluster_name}"
    cluster = cloud.find("container", "projects.locations.clusters.get", name=name)
    if cluster is None:
        raise ClusterError(f"there is no cluster {platform.cluster_name} in {platform.location}")
    pools = [pool for pool in cluster.get("nodePools", []) if MANAGED_BY.items() <= _labels(pool).items()]
    jobsets = _jobsets(platform, cluster) if pools else {}
    return [_created(pool, jobsets) for pool in sorted(pools, key=lambda pool: pool["name"])]


def _labels(pool: Json) -> Mapping[str, str]:
    found: Mapping[str, str] = pool.get("config", {}).get("labels", {})
    return found


def _created(pool: Json, jobsets: Mapping[str, Json]) -> CreatedPool:
    jobset = jobset_of(_labels(pool))
    problem = "; ".join(_problems(pool, jobset, jobsets))
    return CreatedPool(pool["name"], jobset, pool.get("status", "unknown"), problem)


def _problems(pool: Json, jobset: str, jobsets: Mapping[str, Json]) -> Iterator[str]:
    if pool.get("status") == "ERROR":
        reason = pool.get("statusMessage") or "Google gives no reason"
        yield f"its creation failed ({reason}), and TPU Provisioner does not try again"
    if jobset not in jobsets:
        if pool.get("status") != "STOPPING":
            yield f"its JobSet is gone; if it went just now, look again in {GRACE.seconds // 60} minutes"
        return
    for condition in jobsets[jobset].get("status", {}).get("conditions", []):
        kind, since = condition["type"], condition["lastTransitionTime"]
        if kind in IDLE and condition["status"] == "True" and _long_ago(since):
            yield f"its JobSet {IDLE[kind]} since {since}, and the pool is paid for"


def _long_ago(moment: str) -> bool:
    return datetime.now(UTC) - datetime.fromisoformat(moment) > GRACE


def _jobsets(platform: Platform, cluster: Json) -> dict[str, Json]:
    """Every JobSet of the cluster, as NAMESPACE/NAME."""
    endpoint = cluster.get("controlPlaneEndpointsConfig", {}).get("dnsEndpointConfig", {}).get("endpoint")
    if not endpoint:
        raise ClusterError(f"cluster {platform.cluster_name} has no DNS endpoint")
    kubeconfig = json.dumps(gke_kubeconfig(f"https://{endpoint}", platform.cluster_name))
    arguments = ["get", "jobsets.jobset.x-k8s.io", "--all-namespaces", "--output=json"]
    try:
        printed = asyncio.run(kubectl(kubeconfig, arguments, KUBECTL_SECONDS))
    except (KubectlError, OSError) as error:
        raise ClusterError(f"JobSets of {platform.cluster_name} cannot be listed: {error}") from None
    found = json.loads(printed)["items"]
    return {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each for each in found}


def as_json(pools: list[CreatedPool]) -> str:
    """A list of objects with the fields of CreatedPool."""
    return json.dumps([asdict(pool) for pool in pools], indent=2)


def as_table(pools: list[CreatedPool]) -> Table:
    """A row for each pool."""
    table = Table("node pool", "JobSet", "status", "what is wrong", box=None, pad_edge=False)
    for pool in pools:
        table.add_row(pool.name, pool.jobset, pool.status, pool.problem or "nothing")
    return table
