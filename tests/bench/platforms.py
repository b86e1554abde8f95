"""Platforms of any size for benchmarks: slices of all generations and shapes, evenly mixed."""

import json

GROUPS = (
    {"machine_type": "ct4p-hightpu-4t", "topology": "2x2x2"},
    {"machine_type": "ct5lp-hightpu-4t", "topology": "2x4", "devices": "dra"},
    {"machine_type": "ct5p-hightpu-4t", "topology": "2x2x4", "capacity": {"model": "reservation", "name": "reserved"}},
    {"machine_type": "ct6e-standard-4t", "topology": "4x4", "capacity": "spot"},
    {"machine_type": "ct6e-standard-4t", "topology": "4x8", "capacity": "flex-start"},
    {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"},
    {"machine_type": "tpu7x-standard-4t", "topology": "4x4x4", "capacity": "flex-start"},
    {"machine_type": "ct5lp-hightpu-4t", "topology": "4x4", "capacity": {"model": "queued", "max_run_duration": "24h"}},
)


def platform(slices: int) -> dict[str, object]:
    """A platform of so many multi-host slices, each of them a node pool."""
    share, rest = divmod(slices, len(GROUPS))
    counts = [share + (index < rest) for index in range(len(GROUPS))]
    return {
        "name": "bench",
        "zone": "us-central1-a",
        "allow_unlisted_zone": True,
        "network": {"nodes_cidr": "10.128.0.0/16", "pods_cidr": "10.0.0.0/10", "services_cidr": "10.129.0.0/20"},
        "slices": {
            f"group-{index}": {**group, "count": count}
            for index, (group, count) in enumerate(zip(GROUPS, counts, strict=True))
            if count
        },
    }


def large(slices: int) -> dict[str, object]:
    """The same with a queue for every three slices of ten, and claims wherever a slice can have them.

    1,000 slices and 300 queues are about 5,000 resources.
    """
    written = platform(slices)
    groups = {
        name: group
        if group["machine_type"].startswith("tpu7x") or "queued" in str(group.get("capacity"))
        else {**group, "devices": "dra"}
        for name, group in written["slices"].items()  # type: ignore[attr-defined]
    }
    queues = {
        f"queue-{number}": {
            "namespaces": [f"team-{number}", *([f"guest-{number}"] if number % 4 else [])],
            "slices": {[*groups][number % len(groups)]: 1},
        }
        for number in range(slices * 3 // 10)
    }
    # Kueue keeps all nodes in memory, and runs on the system pool.
    cluster = {"kind": "gke", "system_pool": {"machine_type": "n2-highmem-32"}}
    return {**written, "slices": groups, "queues": queues, "cluster": cluster}


def config(slices: int) -> dict[str, str]:
    """The same as a stack's configuration."""
    return {"gcp:project": "my-project", "tpu-platform:platform": json.dumps(platform(slices))}
