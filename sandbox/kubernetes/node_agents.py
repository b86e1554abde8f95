"""Stand-ins for the two programs that a self-managed cluster runs for its nodes: device plugin, cloud controller.

Neither is there unless the cluster runs its DaemonSet, and only on the nodes where that has a running pod: the real
DaemonSet controller and scheduler decide by its affinity and tolerations.
"""

from __future__ import annotations

import configparser
import logging
from collections.abc import Iterable
from typing import Protocol

from sandbox.google.errors import GoogleError
from sandbox.google.machines import region_of
from sandbox.kubernetes.api import ApiClient, ApiError, Object, is_true
from sandbox.kubernetes.control_plane import FAKE_NODE
from sandbox.kubernetes.joining import UNINITIALIZED_TAINT
from sandbox.kubernetes.nodes import TPU_RESOURCE, remove_pods
from sandbox.kubernetes.pods import as_pod, of_daemon_set, running

NAMESPACE = "kube-system"
CLOUD_CONTROLLER = "cloud-controller-manager"  # value of one of the labels below on its pods
CLOUD_CONTROLLER_LABELS = ("k8s-app", "app", "component", "app.kubernetes.io/name")
_LOG = logging.getLogger(__name__)


class Hosts(Protocol):
    """The machines under a cluster's Nodes, which have their names."""

    def chips(self, node: str) -> int:
        """Chips that the device plugin finds on a node's machine; 0 where it cannot run."""

    def zones(self, asking: str, whole_region: bool) -> list[str]:
        """The zone of the machine `asking`, or all zones of its region as that machine is shown them.

        Raises GoogleError for a refusal.
        """

    def instance(self, asking: str, name: str, zones: Iterable[str]) -> Object | None:
        """The Compute instance of that name in one of the zones, as the machine `asking` is shown it.

        None when there is no such instance. Raises GoogleError for a refusal.
        """


class DevicePlugin:
    """Keeps google.com/tpu of every Node that kwok answers for equal to what the plugin's pod there would report to the
    kubelet; for real hosts see `sandbox.hosts.device_plugin`."""

    def __init__(self, client: ApiClient, hosts: Hosts, daemon_set: str) -> None:
        self._client = client
        self._hosts = hosts
        self._daemon_set = daemon_set

    def step(self) -> bool:
        pods = running(self._client.list_all("v1", "Pod", NAMESPACE))
        served = {each["spec"]["nodeName"] for each in pods if of_daemon_set(each, self._daemon_set)}
        for node in self._client.list_all("v1", "Node"):
            name = node["metadata"]["name"]
            if not node["metadata"].get("annotations", {}).keys() >= FAKE_NODE.keys():
                continue
            chips = self._hosts.chips(name) if name in served else 0
            if chips != int(node["status"].get("capacity", {}).get(TPU_RESOURCE, 0)):
                resources = {TPU_RESOURCE: str(chips)}
                change = {"status": {"capacity": resources, "allocatable": resources}}
                self._client.patch(node, change, subresource="status")
        return False


class CloudController:
    """Completes new Nodes from their instances, and removes silent Nodes without one.

    It acts in the cluster with the rights of its pod's ServiceAccount, and in the cloud with those of the machine that
    the pod is on. As the real one (kubernetes/cloud-provider-gcp, `providers/gce`) it asks for the instance of a Node
    only when the Node is new or not ready; and it knows the machines of its own zone alone, unless `multizone` in the
    file of its flag `--cloud-config` gives it those of the region. A Node that has a provider id is looked up where
    that says. Different: the pods of a removed Node go with it, where Kubernetes would collect them a moment later.
    """

    def __init__(self, client: ApiClient, hosts: Hosts) -> None:
        self._client = client
        self._hosts = hosts
        self._complaints: dict[str, str] = {}  # node -> what was last said about it

    def step(self) -> bool:
        """True while a Node is new or silent."""
        pod = _cloud_controller(self._client.list_all("v1", "Pod", NAMESPACE))
        if not pod:
            return False
        asking = pod["spec"]["nodeName"]
        try:
            zones = self._hosts.zones(asking, _manages_region(self._client, pod))
        except (GoogleError, ConfigError) as error:
            self._complain(asking, error)
            return True
        with as_pod(self._client, pod) as client:
            nodes = [each for each in client.list_all("v1", "Node") if _new(each) or not is_true(each, "Ready")]
            for node in nodes:
                self._look_after(client, asking, node, zones)
        return bool(nodes)

    def _look_after(self, client: ApiClient, asking: str, node: Object, zones: list[str]) -> None:
        name = node["metadata"]["name"]
        try:
            instance = self._hosts.instance(asking, name, _zones_of(node) or zones)
            if instance is not None:
                if _new(node):
                    client.patch(node, _completion(node, instance))
            elif not is_true(node, "Ready"):
                client.delete(node)
                remove_pods(self._client, name)
            else:
                raise GoogleError("NOT_FOUND", f"instance not found in {', '.join(zones)}")
            self._complaints.pop(name, None)
        except (ApiError, GoogleError) as error:
            self._complain(name, error)

    def _complain(self, node: str, error: Exception) -> None:
        conflict = isinstance(error, ApiError) and error.reason == "Conflict"  # somebody else was faster
        if not conflict and self._complaints.get(node) != str(error):
            self._complaints[node] = str(error)
            _LOG.warning("%s, node %s: %s", CLOUD_CONTROLLER, node, error)


class ConfigError(Exception):
    """The cloud controller cannot start with the configuration that its pod gives it; the message says why."""


def _manages_region(client: ApiClient, pod: Object) -> bool:
    """Whether the pod's program manages all zones of its region: the file of its flag, in a volume, says so.

    Raises ConfigError where the program would not find the file.
    """
    [container, *_] = pod["spec"]["containers"]
    given = [each.partition("=")[2] for each in container.get("args", []) if each.startswith("--cloud-config=")]
    if not given:
        return False
    parser = configparser.ConfigParser()
    parser.read_string(_mounted(client, pod, container, given[0]))
    return parser.getboolean("Global", "multizone", fallback=False)


def _mounted(client: ApiClient, pod: Object, container: Object, path: str) -> str:
    """A file that a container finds in a volume made of a ConfigMap."""
    folder, _, file = path.rpartition("/")
    volumes = {each["name"]: each.get("configMap", {}).get("name", "") for each in pod["spec"].get("volumes", [])}
    for mount in container.get("volumeMounts", []):
        if mount["mountPath"].rstrip("/") == folder and volumes.get(mount["name"]):
            found = client.get("v1", "ConfigMap", volumes[mount["name"]], pod["metadata"]["namespace"]) or {}
            if file in found.get("data", {}):
                return str(found["data"][file])
    raise ConfigError(f"couldn't open cloud provider configuration {path}: no such file in the pod's ConfigMaps")


def _zones_of(node: Object) -> list[str]:
    """The zone in a Node's provider id, "gce://project/zone/name"."""
    return [each for each in node["spec"].get("providerID", "").split("/")[3:4] if each]


def _cloud_controller(pods: Iterable[Object]) -> Object | None:
    for pod in running(pods):
        labels = pod["metadata"].get("labels", {})
        if any(labels.get(key) == CLOUD_CONTROLLER for key in CLOUD_CONTROLLER_LABELS):
            return pod
    return None


def _new(node: Object) -> bool:
    return any(each["key"] == UNINITIALIZED_TAINT["key"] for each in node["spec"].get("taints", []))


def _completion(node: Object, instance: Object) -> Object:
    """A merge patch: provider id, pod CIDR, place and machine type; the taint of new Nodes goes."""
    zone, machine = (instance[key].rpartition("/")[2] for key in ("zone", "machineType"))
    project = instance["selfLink"].partition("/projects/")[2].partition("/")[0]
    labels = {
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": region_of(zone),
        "node.kubernetes.io/instance-type": machine,
    }
    spec: Object = {
        "providerID": f"gce://{project}/{zone}/{instance['name']}",
        "taints": [each for each in node["spec"]["taints"] if each["key"] != UNINITIALIZED_TAINT["key"]],
    }
    ranges = [each["ipCidrRange"] for each in instance["networkInterfaces"][0].get("aliasIpRanges", [])]
    if ranges and "podCIDR" not in node["spec"]:
        spec |= {"podCIDR": ranges[0], "podCIDRs": ranges[:1]}
    # Taints come from several writers and are one value: a change since they were read is a conflict.
    return {"metadata": {"labels": labels, "resourceVersion": node["metadata"]["resourceVersion"]}, "spec": spec}
