"""Reads a platform's cluster and Google at the same time, and judges what they say."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plan.platform import Platform
from tools.cluster_api import ClusterApi, ClusterAwayError, kubeconfig_of, reading
from tools.preflight.cloud import Cloud, Json, NoConnectionError, RefusedError
from tools.status.cluster import read_cluster
from tools.status.google import gke_cluster, read_google
from tools.status.judgement import judge
from tools.status.readings import ClusterReadings, GoogleReadings, Readings, Unread
from tools.status.report import Report

CLUSTER = "the cluster"


class Watcher:
    """Looks at a platform again and again, over one connection to its cluster.

    `kubeconfig`: a file to use instead of the platform's own.
    """

    def __init__(
        self, platform: Platform, stack: str, settings: Mapping[str, Any], kubeconfig: Path | None, exits: ExitStack
    ) -> None:
        self._platform, self._stack, self._settings, self._kubeconfig = platform, stack, settings, kubeconfig
        self._exits = exits
        self._api: ClusterApi | None = None

    def look(self) -> Report:
        """The platform as it is now. What cannot be read is in the report."""
        at = datetime.now(UTC)
        # Google's client is not made for several threads: each has its own.
        cluster, known, unread = self._described(Cloud(self._settings))
        with ThreadPoolExecutor(1) as beside:
            google = beside.submit(self._google, cluster, at, known)
            inside = self._inside(cluster, at, known)
        found = _result(google, unread)
        return judge(self._platform, self._stack, Readings(at, inside, found))

    def _described(self, cloud: Cloud) -> tuple[Json | None, bool, tuple[Unread, ...]]:
        """Google's description of a GKE cluster, and whether that could be read."""
        try:
            return gke_cluster(self._platform, cloud), True, ()
        except (RefusedError, NoConnectionError) as error:
            return None, False, (Unread("node pools", _google_words(error)),)

    def _google(self, cluster: Json | None, at: datetime, known: bool) -> GoogleReadings:
        return read_google(self._platform, Cloud(self._settings), cluster, at, cluster_known=known)

    def _inside(self, cluster: Json | None, at: datetime, known: bool) -> ClusterReadings:
        try:
            if self._api is None:
                self._api = self._exits.enter_context(reading(self._kubeconfig or self._own(cluster, known)))
            return read_cluster(self._platform, self._api, at)
        except (ClusterAwayError, RefusedError, NoConnectionError) as error:
            why = str(error) if isinstance(error, ClusterAwayError) else _google_words(error)
            return ClusterReadings(unread=(Unread(CLUSTER, why),))

    def _own(self, cluster: Json | None, known: bool) -> str:
        if self._platform.backend == "gke" and not known:
            raise ClusterAwayError("its address is not known without Google; --kubeconfig FILE has one")
        return kubeconfig_of(self._platform, Cloud(self._settings), cluster)


def _result(google: "Future[GoogleReadings]", unread: tuple[Unread, ...]) -> GoogleReadings:
    found = google.result()
    # Where Google is away, it has said so twice.
    lines = {each.why: each for each in (*found.unread, *unread)}
    return GoogleReadings(found.pools, found.reservations, found.interruptions, found.load, tuple(lines.values()))


def _google_words(error: Exception) -> str:
    if isinstance(error, NoConnectionError):
        return f"{error} -> {error.next_step}"
    return f"Google answers {error.status}: {error}" if isinstance(error, RefusedError) else str(error)


@contextmanager
def watching(
    platform: Platform, stack: str, settings: Mapping[str, Any], kubeconfig: Path | None
) -> Iterator[Callable[[], Report]]:
    """A function that looks at the platform."""
    with ExitStack() as exits:
        yield Watcher(platform, stack, settings, kubeconfig, exits).look
