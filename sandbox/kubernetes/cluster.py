"""What acts on any of the sandbox's clusters, whoever made it: hosted controllers, the DRA driver's stand-in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandbox.hosts.hosts import RealHosts
from sandbox.kubernetes.api import Object, is_true
from sandbox.kubernetes.changes import NODE, POD, SECRET, Changes
from sandbox.kubernetes.chart_programs import ADMISSION, CHART_IMAGES, WEBHOOK_KINDS
from sandbox.kubernetes.control_plane import START_SECONDS, ControlPlane
from sandbox.kubernetes.controllers import ControllerHost
from sandbox.kubernetes.dra import RESOURCE_SLICE, SlicePublisher
from sandbox.kubernetes.hosting import HostedImage
from sandbox.kubernetes.loops import Loop, wait_until
from sandbox.kubernetes.missed_pods import MissedPods

_WEBHOOKS = tuple((ADMISSION, kind) for kind in WEBHOOK_KINDS)
REFRESH_SECONDS = 20.0  # a kubelet takes up to a minute or so to refresh a mounted Secret


class RunningCluster:
    """A control plane with its `loops`, those of every cluster, and its real hosts. `changes` are what wakes the loops.

    `refresh_seconds`, `images`: see ControllerHost.
    """

    def __init__(
        self,
        plane: ControlPlane,
        changes: Changes,
        loops: Sequence[Loop] = (),
        refresh_seconds: float = REFRESH_SECONDS,
        images: Sequence[HostedImage] = CHART_IMAGES,
        hosts: RealHosts | None = None,
    ) -> None:
        self._plane = plane
        self._changes = changes
        self._real_hosts = hosts
        self._host = ControllerHost(plane, refresh_seconds, images)
        plane.egress.find_port = self._host.find_port
        publisher = SlicePublisher(plane.client)
        common = (
            Loop("controllers", 0.25, self._host.step, changes.of(POD, SECRET, *_WEBHOOKS)),
            Loop("dra-driver", 0.5, publisher.step, changes.of(POD, RESOURCE_SLICE)),
            Loop("missed-pods", 0.5, MissedPods(plane.client, plane.hosted_images).step, changes.of(POD, NODE)),
        )
        real = (Loop("real-hosts", 0.5, hosts.step, changes.of(POD)),) if hosts else ()
        self._loops = (*common, *real, *loops)

    def start(self, preinstalled: Iterable[Object]) -> None:
        """Returns when the API server answers and these objects are there. Raises as ControlPlane.start."""
        self._plane.start()
        try:
            self._preinstall(list(preinstalled))
            if self._real_hosts:
                self._real_hosts.start()
        except BaseException:
            self._plane.stop()
            raise
        self._changes.start()
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        """Stops everything; the data stays."""
        for loop in self._loops:
            loop.cancel()
        for loop in self._loops:
            loop.stop()
        self._changes.stop()  # before the API server, which would wait for its clients
        self._host.stop()
        if self._real_hosts:
            self._real_hosts.stop()
        self._plane.stop()

    def _preinstall(self, objects: Sequence[Object]) -> None:
        for each in objects:
            self._plane.client.apply(each)
        for each in objects:
            if each["kind"] == "CustomResourceDefinition":
                self._wait_established(each)

    def _wait_established(self, definition: Object) -> None:
        """Kueue looks for some kinds only once, when it starts."""
        client, name = self._plane.client, definition["metadata"]["name"]

        def established() -> bool:
            return is_true(client.get(definition["apiVersion"], definition["kind"], name) or {}, "Established")

        wait_until(f"{name} established", established, START_SECONDS)
