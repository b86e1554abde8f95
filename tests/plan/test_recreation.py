"""Which updates make hosts anew, held against what the real provider planned."""

import json
from typing import Any

from plan.recreation import NODE_POOL, makes_hosts_anew
from sandbox.tests.gcp_plugin_support import DATA

EDITS: list[dict[str, Any]] = json.loads((DATA / "provider_edits.json").read_text())
TYPES = {
    "node pool": "gcp:container/nodePool:NodePool",
    "MIG": "gcp:compute/instanceGroupManager:InstanceGroupManager",
    "cluster": "gcp:container/cluster:Cluster",
}
POOLS = {"machine", "zone", "disk_type", "disk_size", "image", "gvnic", "gcfs", "wim", "np.version"}


def test_the_recorded_updates_that_make_hosts_anew() -> None:
    """H2 of security.md: everything else that the provider updates leaves the hosts alone."""
    anew = {
        next(iter(row["edit"]))
        for row in EDITS
        for kind, result in row["result"].items()
        if result["outcome"] == "update"
        and any(makes_hosts_anew(TYPES.get(kind, ""), path) for path in result["changed"])
    }
    templates = {key for row in EDITS for key in row["edit"] if key.startswith("tm.")}
    assert templates
    assert anew == POOLS | templates


def test_a_path_stands_for_what_is_below_it_and_for_nothing_beside_it() -> None:
    pool = TYPES["node pool"]
    for path in NODE_POOL:
        assert makes_hosts_anew(pool, path)
        assert makes_hosts_anew(pool, f"{path}.enabled")
        assert makes_hosts_anew(pool, f"{path}[0]")
    assert not makes_hosts_anew(pool, "nodeConfig.bootDiskKmsKey")
    assert not makes_hosts_anew(pool, "nodeConfig")
    assert not makes_hosts_anew("gcp:compute/disk:Disk", "version")
