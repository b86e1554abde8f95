"""Looks up, at Google and in the cluster, what the engine does not know."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from plan.platform import Platform
from tools.cluster_api import ClusterAwayError, kubeconfig_of, reading
from tools.preflight.cloud import Cloud, NoConnectionError, RefusedError
from tools.recover.checkpoint import Resource
from tools.recover.findings import Finding, Findings
from tools.recover.google import GoogleLook
from tools.recover.inside import ClusterLook
from tools.status.google import gke_cluster


@dataclass
class Looker:
    """Looks things up with the person's own credentials. `given`: a kubeconfig instead of the platform's own; `folder`:
    where a kubeconfig may be written."""

    platform: Platform
    settings: Mapping[str, Any]
    given: Path | None
    folder: Path

    @cached_property
    def cloud(self) -> Cloud:
        return Cloud(self.settings)

    def look(
        self, resources: Iterable[Resource], others: Mapping[str, Resource], taken: Collection[tuple[str, str]]
    ) -> Findings:
        """What there is of each; `others`: resources by URN that unknown inputs may come from; `taken`: type and id of
        what the state has."""
        rows = list(resources)
        google = GoogleLook(self.cloud, self.platform.project, taken)
        found: dict[str, Finding] = {each.urn: google.find(each, others) for each in rows if not each.in_cluster}
        inside = [each for each in rows if each.in_cluster]
        if inside:
            with self._cluster() as cluster:
                found.update({each.urn: cluster.find(each) for each in inside})
        return found

    @contextmanager
    def _cluster(self) -> Iterator[ClusterLook]:
        with ExitStack() as exits:
            try:
                config = self.kubeconfig()
                cluster = ClusterLook(exits.enter_context(reading(config))) if config else ClusterLook(None, gone=True)
            except (ClusterAwayError, RefusedError, NoConnectionError) as error:
                cluster = ClusterLook(None, away=str(error))
            yield cluster

    def kubeconfig(self) -> Path | None:
        """A file that leads to the cluster; None where Google says that there is no cluster.

        Raises ClusterAwayError, RefusedError, NoConnectionError.
        """
        if self.given:
            return self.given
        cloud = self.cloud
        cluster = gke_cluster(self.platform, cloud)
        if cluster is None and self.platform.backend == "gke":
            return None
        path = self.folder / "kubeconfig"
        path.write_text(kubeconfig_of(self.platform, cloud, cluster))
        return path
