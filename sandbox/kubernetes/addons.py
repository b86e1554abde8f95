"""GKE's add-ons: what they bring into a cluster, as soon as its settings have them on. What is there stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml

from sandbox.google.backend import ClusterRef
from sandbox.google.errors import GoogleError
from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.metadata_server import Cloud

OBJECTS = Path(__file__).parent / "gke_addons.yaml"
ADDON = "sandbox/addon"  # annotation in that file: the path of the setting in the API's Cluster
FUSE = "addonsConfig.gcsFuseCsiDriverConfig"


class Addons:
    """Looks after one cluster. `brought` are objects that an add-on brings beside those of the file."""

    def __init__(
        self,
        client: ApiClient,
        cluster: ClusterRef,
        cloud: Callable[[], Cloud],
        brought: Callable[[str], list[Object]] = lambda addon: [],
    ) -> None:
        self._client, self._cluster, self._cloud, self._brought = client, cluster, cloud, brought
        self._objects: dict[str, list[Object]] = {}
        for each in yaml.safe_load_all(OBJECTS.read_text()):
            self._objects.setdefault(each["metadata"]["annotations"].pop(ADDON), []).append(each)
        self._installed: set[str] = set()

    def step(self) -> bool:
        for addon, objects in self._objects.items():
            if addon not in self._installed and self._is_on(addon):
                for each in (*objects, *self._brought(addon)):
                    self._client.apply(each)
                self._installed.add(addon)
        return False

    def _is_on(self, addon: str) -> bool:
        try:
            return bool(self._cloud().setting(self._cluster, *addon.split("."), "enabled"))
        except GoogleError:  # a cluster that stands alone
            return False
