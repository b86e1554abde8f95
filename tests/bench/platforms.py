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


def config(slices: int) -> dict[str, str]:
    """The same as a stack's configuration."""
    return {"gcp:project": "my-project", "tpu-platform:platform": json.dumps(platform(slices))}
