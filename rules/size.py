"""Whether all slices together fit one cluster; checked before each of them is planned."""

from collections.abc import Iterator, Mapping

from catalogue.limits import MAX_NODES
from plan.platform import Platform
from plan.shape import resolve
from platform_config.multikueue import MOST_WORKERS
from platform_config.slice import Slice
from rules.registry import SIZE, Finding


@SIZE.rule(
    "cluster-size",
    reason="A cluster has at most 15,000 nodes, and a manager at most 20 clusters.",
    source="GKE documentation, quotas and limits; Kueue v0.19 apis/kueue/v1beta2/multikueue_types.go",
)
def cluster_size(platform: Platform) -> Iterator[Finding]:
    yield from _too_many("slices", platform.slices, MAX_NODES)
    if platform.is_manager and platform.multikueue:
        yield from _too_many("multikueue.slices", platform.multikueue.slices, MAX_NODES * MOST_WORKERS)


def _too_many(path: str, slices: Mapping[str, Slice], most: int) -> Iterator[Finding]:
    hosts = {name: spec.count * resolve(spec).hosts for name, spec in slices.items()}
    total = sum(hosts.values())
    if total <= most:
        return
    name = max(hosts, key=lambda name: hosts[name])
    alone = f", {hosts[name]} of them {name}'s" if len(hosts) > 1 else ""
    yield Finding(
        f"{path}.{name}.count",
        f"{total} hosts in all{alone}; {'one cluster has' if most == MAX_NODES else 'the workers have'} at most {most}",
        "lower the count, or divide the slices between several platforms",
    )
