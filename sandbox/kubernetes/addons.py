"""GKE's add-ons: what they bring into a cluster, as soon as its settings have them on. What is there stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml

from sandbox.google.backend import ClusterRef
from sandbox.google.errors import GoogleError
from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.metadata_server import Cloud

OBJECTS = tuple(Path(__file__).parent / name for name in ("gke_addons.yaml", "gke_gateway.yaml"))
# Annotation in these files: the path in the API's Cluster of a setting with `enabled`, or PATH=VALUE.
ADDON = "sandbox/addon"
FUSE = "addonsConfig.gcsFuseCsiDriverConfig"
GATEWAYS = "networkConfig.gatewayApiConfig.channel=CHANNEL_STANDARD"


class Addons:
    """Looks after one cluster. `brought` are objects that an add-on brings before those of the files."""

    def __init__(
        self,
        client: ApiClient,
        cluster: ClusterRef,
        cloud: Callable[[], Cloud],
        brought: Callable[[str], list[Object]] = lambda addon: [],
    ) -> None:
        self._client, self._cluster, self._cloud, self._brought = client, cluster, cloud, brought
        self._objects = objects_by_addon()
        self._installed: set[str] = set()

    def step(self) -> None:
        for addon, objects in self._objects.items():
            if addon not in self._installed and self._is_on(addon):
                for each in (*self._brought(addon), *objects):
                    self._client.apply(each)
                self._installed.add(addon)

    def _is_on(self, addon: str) -> bool:
        try:
            path, _, value = addon.partition("=")
            if value:
                return bool(self._cloud().setting(self._cluster, *path.split(".")) == value)
            return bool(self._cloud().setting(self._cluster, *path.split("."), "enabled"))
        except GoogleError:  # a cluster that stands alone
            return False


def objects_by_addon() -> dict[str, list[Object]]:
    """The objects of the files, by the setting that brings them."""
    found: dict[str, list[Object]] = {}
    for file in OBJECTS:
        for each in yaml.safe_load_all(file.read_text()):
            found.setdefault(each["metadata"]["annotations"].pop(ADDON), []).append(each)
    return found
