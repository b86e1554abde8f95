"""The node pools and nodes that a job can run on."""

from collections import Counter

from catalogue.labels import NODE_POOL_LABEL
from plan.flavors import Flavor
from tools.why.cluster import Object
from tools.why.job import Job, is_true
from tools.why.side import Side


def hosts(flavor: Flavor, wait: str, job: Job) -> Side:
    """How many hosts of the flavor there are, ready and free of cordons; holds the job if that is too few for it.

    `wait`: how long hosts may take to come, in words.
    """
    nodes = [each for each in job.of_kind("Node") if flavor.node_labels.items() <= _labels(each).items()]
    pools = Counter(_labels(each).get(NODE_POOL_LABEL, "no pool") for each in nodes)
    cordoned = [each["metadata"]["name"] for each in nodes if each["spec"].get("unschedulable")]
    ready = [each for each in nodes if is_true(each, "Ready") and not each["spec"].get("unschedulable")]
    total = f"{len(ready)} of {len(nodes)} hosts of {flavor.name} are ready"
    where = ", ".join(f"{pool} ({count})" for pool, count in sorted(pools.items()))
    text = f"{total}{f', in {where}' if where else ''}"
    placed = {pod["spec"]["nodeName"] for pod in job.pods if pod["spec"].get("nodeName")}
    waiting = [pod for pod in job.pods if pod["status"].get("phase") == "Pending" and not pod["spec"].get("nodeName")]
    if not waiting or len(ready) >= len(placed) + len(waiting):
        return Side("hosts", text)
    if len(nodes) >= len(placed) + len(waiting) and cordoned:
        return Side("hosts", f"{text}; cordoned: {', '.join(cordoned)}", True, f"kubectl uncordon {' '.join(cordoned)}")
    return Side("hosts", f"{text}; how long hosts may take: {wait}", holds=True)


def _labels(node: Object) -> dict[str, str]:
    labels: dict[str, str] = node["metadata"].get("labels", {})
    return labels
