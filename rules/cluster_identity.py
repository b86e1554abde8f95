"""Refuses a configuration that would replace the existing cluster.

Nothing can change a cluster's project, name, location, network and ranges. So after such an edit the engine would
delete the cluster, with everything that runs there, and create another one. Nobody means that by an edit.

The stack's state shows the existing cluster, also after an update that created it and then failed.
"""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from plan.cpu_machines import default_disk
from plan.first_disk import ranges_of
from plan.hosts import control_plane_machines
from plan.network import subnetwork_name
from plan.platform import Platform
from plan.stack_state import DATA_DISKS, FIRST, GKE_CLUSTER, NETWORK, PROVIDER, SUBNET, Standing
from platform_config.errors import ConfigError, ConfigErrors
from platform_config.network import CreatedNetwork, ExistingNetwork
from platform_config.platform import below
from platform_config.reading import PROJECT_KEY
from platform_config.self_managed import ExistingCluster, SelfManagedCluster


@dataclass(frozen=True)
class Trait:
    """One unchangeable property of a cluster: its path, its value now, and its value after the edit."""

    path: str
    was: str
    would_be: str

    @property
    def refused(self) -> ConfigError:
        return ConfigError(
            self.path,
            f"was {self.was} and would be {self.would_be}: that is another cluster, and the existing one would be "
            "deleted with everything in it",
            f"write {self.was} again. For another cluster, take another stack; to delete this one, `pulumi destroy` "
            "before the edit",
        )


def refuse_another_cluster(platform: Platform, standing: Standing, origin: str = "") -> None:
    """Raise ConfigErrors where a platform would replace the existing cluster; `origin`: what the errors are of."""
    if errors := another_cluster(platform, standing):
        raise ConfigErrors(errors, origin)


def another_cluster(platform: Platform, standing: Standing) -> list[ConfigError]:
    """Why a platform would replace the existing cluster; empty where it would not, or where there is none."""
    kind = standing.kind
    if kind is None:
        return []
    if kind != platform.cluster.kind:
        return [Trait(below("cluster.kind"), kind, platform.cluster.kind).refused]
    return [trait.refused for trait in TRAITS[kind](platform, standing) if trait.was and trait.was != trait.would_be]


def _gke(platform: Platform, standing: Standing) -> Iterator[Trait]:
    cluster = standing.found(GKE_CLUSTER) or {}
    location = str(cluster.get("location") or "")
    is_regional = location.count("-") == 1
    yield Trait(PROJECT_KEY, str(cluster.get("project") or ""), platform.project)
    yield Trait(below("name"), str(cluster.get("name") or ""), platform.cluster_name)
    if location and is_regional != platform.gke.regional:
        yield Trait(below("cluster.regional"), *(str(flag).lower() for flag in (is_regional, platform.gke.regional)))
    else:
        yield Trait(below("zone"), _zones(location), _zones(platform.location))
    network, subnetwork = (str(cluster.get(key) or "") for key in ("network", "subnetwork"))
    yield from _network(platform, standing, subnetwork)
    spec = platform.network
    if isinstance(spec, CreatedNetwork):
        yield Trait(below("network.services_cidr"), _secondary(standing, spec.services_range), spec.services_cidr)
    elif not _has_own_network(standing):
        ranges = cluster.get("ipAllocationPolicy") or {}
        pods, services = (str(ranges.get(f"{name}SecondaryRangeName") or "") for name in ("cluster", "services"))
        yield Trait(below("network.network"), _last(network), spec.network)
        yield Trait(below("network.pods_range"), pods, spec.pods_range)
        yield Trait(below("network.services_range"), services, spec.services_range or "")


def _self_managed(platform: Platform, standing: Standing) -> Iterator[Trait]:
    cluster = platform.cluster
    assert isinstance(cluster, SelfManagedCluster)
    disk = standing.found(DATA_DISKS, FIRST) or {}
    first = control_plane_machines(platform)[0]
    name = str(disk.get("name") or "")
    yield Trait(PROJECT_KEY, str(disk.get("project") or ""), platform.project)
    yield Trait(below("name"), name.removesuffix(first.disk.removeprefix(platform.name)), platform.name)
    zone = below("cluster.control_plane.zones" if cluster.control_plane.zones else "zone")
    yield Trait(zone, _last(disk.get("zone")), first.zone)
    yield Trait(
        below("cluster.control_plane.machine_type"),
        _with_disk(_last(disk.get("type"))),
        _with_disk(default_disk(first.machine_type)),
    )
    size = int(disk.get("size") or 0)
    wanted = cluster.control_plane.disk_size_gb
    if wanted < size:
        yield Trait(below("cluster.control_plane.disk_size_gb"), str(size), str(wanted))
    if disk:
        key = str((disk.get("diskEncryptionKey") or {}).get("kmsKeySelfLink") or "")
        yield Trait(
            below("cluster.kms_key"), key.partition("/cryptoKeyVersions/")[0] or "none", cluster.kms_key or "none"
        )
    founded = ranges_of(str(disk.get("description") or ""))
    yield from _network(platform, standing, founded.get("subnetwork", ""))
    if isinstance(platform.network, ExistingNetwork):
        yield Trait(below("network.pods_cidr"), founded.get("pods", ""), platform.network.pods_cidr or "")
    yield Trait(below("network.services_cidr"), founded.get("services", ""), platform.network.services_cidr)


def _existing(platform: Platform, standing: Standing) -> Iterator[Trait]:
    """An existing cluster may get a new address or a new certificate; with both new it is another cluster."""
    cluster = platform.cluster
    assert isinstance(cluster, ExistingCluster)
    try:
        [entry] = json.loads(str((standing.found(PROVIDER) or {}).get("kubeconfig")))["clusters"]
        server, ca = entry["cluster"]["server"], base64.b64decode(entry["cluster"]["certificate-authority-data"])
    except (ValueError, KeyError, TypeError):
        return
    if ca.decode(errors="replace").split() != cluster.ca.split():
        yield Trait(below("cluster.server"), server, cluster.server)


TRAITS = {"gke": _gke, "self-managed": _self_managed, "existing": _existing}


def _network(platform: Platform, standing: Standing, subnetwork: str) -> Iterator[Trait]:
    """`subnetwork`: the cluster's, empty where unknown."""
    spec = platform.network
    if isinstance(spec, ExistingNetwork):
        if _has_own_network(standing):
            yield Trait(below("network.kind"), "create", spec.kind)
            return
        yield Trait(below("network.project"), _project(subnetwork), spec.project or platform.project)
        yield Trait(below("network.subnetwork"), _last(subnetwork), spec.subnetwork)
        return
    if not _has_own_network(standing) and _last(subnetwork) not in ("", subnetwork_name(platform)):
        yield Trait(below("network.kind"), "existing", spec.kind)
        return
    nodes = str((standing.found(SUBNET) or {}).get("ipCidrRange") or "")
    # The range of a subnet can only grow.
    if nodes and not IPv4Network(nodes).subnet_of(IPv4Network(spec.nodes_cidr)):
        yield Trait(below("network.nodes_cidr"), nodes, spec.nodes_cidr)
    yield Trait(below("network.pods_cidr"), _secondary(standing, spec.pods_range), spec.pods_cidr)


def _has_own_network(standing: Standing) -> bool:
    return any(standing.found(types) is not None for types in (NETWORK, SUBNET))


def _secondary(standing: Standing, name: str) -> str:
    """The addresses of a secondary range of the platform's own subnet."""
    ranges = (standing.found(SUBNET) or {}).get("secondaryIpRanges") or []
    return next((str(each.get("ipCidrRange") or "") for each in ranges if each.get("rangeName") == name), "")


def _zones(location: str) -> str:
    """A location in words: for a regional control plane any zone of its region is right."""
    return f"a zone of {location}" if location.count("-") == 1 else location


def _with_disk(disk_type: str) -> str:
    return disk_type and f"one with {disk_type} disks"


def _last(link: object) -> str:
    """The short name at the end of a resource's name or link."""
    return str(link or "").rpartition("/")[2]


def _project(link: str) -> str:
    match = re.search(r"projects/([^/]+)/", link)
    return match[1] if match else ""
