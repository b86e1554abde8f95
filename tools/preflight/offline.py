"""What can be said without asking Google."""

from collections.abc import Iterator

from plan.platform import Platform
from plan.words import counted
from platform_config.network import CreatedNetwork
from platform_config.platform import PLATFORM_KEY
from rules.check import warnings
from tools.preflight.findings import Finding, Row


def offline(platform: Platform, *, version_known: bool = False) -> Iterator[Row]:
    """Rows about a platform that keeps every rule, as any that could be read. `version_known`: as of `warnings`."""
    for finding in _plan(platform, version_known):
        yield Row("plan", finding)
    if isinstance(platform.network, CreatedNetwork):
        nodes = platform.most_nodes
        yield Row("network", Finding("ok", f"{platform.network.nodes_cidr} has room for {nodes} nodes and their pods"))


def _plan(platform: Platform, version_known: bool) -> Iterator[Finding]:
    totals = platform.totals
    amounts = ", ".join(counted(totals[f"{thing}s"], thing) for thing in ("slice", "host", "chip"))
    yield Finding("ok", f"every rule holds; {amounts}")
    for warning in warnings(platform, version_known=version_known):
        path = warning.path.removeprefix(f"{PLATFORM_KEY}.")
        yield Finding("warning", f"{path} {warning.message}", warning.hint)
