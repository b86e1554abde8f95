"""What each rule refuses that a fuzzer found missing."""

from typing import Any

from tests.platforms import EXISTING_NETWORK, SELF_MANAGED
from tests.rules.cases import V6E, Case, at

IRON = {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}
QUEUE: dict[str, Any] = {"namespaces": ["a"], "slices": {"s": 1}}
MANY = V6E | {"topology": "16x16"}
SYSTEM = "belongs to the system"


def block(*sub_blocks: str) -> dict[str, Any]:
    return {"model": "reservation", "name": "r", "block": "b", "sub_block": list(sub_blocks)}


def queues(**queue: Any) -> dict[str, Any]:
    return {"queues": {"q": QUEUE | queue}}


def pool(**settings: Any) -> dict[str, Any]:
    return {"cluster": {"cpu_pools": {"p": {"machine_type": "e2-standard-4", **settings}}}}


def ranges(**given: str) -> dict[str, Any]:
    return {"network": given}


def reached_from(*cidrs: str) -> dict[str, Any]:
    return {"cluster": {"authorized_networks": [{"name": "n", "cidr": cidr} for cidr in cidrs]}}


OTHER_LENDING = {"q": {**QUEUE, "slices": {"s": 0}}}
CUBES = IRON | {"topology": "4x4x4"}

ERRORS = [
    Case(
        "controllers-fit",
        (MANY | {"count": 8}, {"queues": {"q": {"namespaces": ["a"], "slices": {"s": 8}}}}),
        "cluster.system_pool.machine_type",
        "522 nodes at most: Kueue asks for 16,704 MiB in each of 2 pods, and all controllers for",
        "write e2-standard-8",
        (MANY | {"count": 4}, {"queues": {"q": {"namespaces": ["a"], "slices": {"s": 4}}}}),
    ),
    Case(
        "cluster-size",
        (MANY | {"count": 10**9}, {}),
        "slices.s.count",
        "64000000000 hosts in all",
        "lower the count",
        (V6E, {}),
    ),
    Case(
        "cluster-size",
        (MANY | {"count": 300}, {"network": EXISTING_NETWORK | {"services_range": "x"}}),
        "slices.s.count",
        "at most 15000",
        "several platforms",
        (V6E, {}),
    ),
    Case(
        "cluster-size",
        (
            {},
            {
                "slices": {},
                "multikueue": {
                    "role": "manager",
                    "workers": {"w": {"secret": "s"}},
                    "slices": {"s": MANY | {"count": 10**9}},
                },
                **queues(),
            },
        ),
        "multikueue.slices.s.count",
        "the workers have at most 300000",
        "lower the count",
        (V6E, {}),
    ),
    Case(
        "run-duration",
        (V6E | {"capacity": {"model": "spot", "max_run_duration": "121d"}}, {}),
        "slices.s.capacity.max_run_duration",
        "is not possible",
        "30s to 120d",
        (V6E | {"capacity": {"model": "spot", "max_run_duration": "120d"}}, {}),
    ),
    Case(
        "reservation-parts",
        (IRON | {"count": 2, "capacity": block("x", "x")}, at("tpu7x")),
        "slices.s.capacity.sub_block",
        "has a sub-block twice",
        "name each once",
        (IRON | {"count": 2, "capacity": block("x", "y")}, at("tpu7x")),
    ),
    Case(
        "sub-blocks-once",
        (CUBES | {"capacity": block("x")}, at("tpu7x") | {"more": {"t": CUBES | {"capacity": block("x")}}}),
        "slices.t.capacity.sub_block",
        "32 hosts together",
        "a sub-block for each group",
        (CUBES | {"capacity": block("x")}, at("tpu7x") | {"more": {"t": CUBES | {"capacity": block("y")}}}),
    ),
    Case(
        "cpu-pool-name",
        (V6E, {"cluster": {"cpu_pools": {"a" * 41: {"machine_type": "e2-standard-4"}}}}),
        f"cluster.cpu_pools.{'a' * 41}",
        "more than 40 characters",
        "shorten the name by 1",
        (V6E, {"cluster": {"cpu_pools": {"a" * 40: {"machine_type": "e2-standard-4"}}}}),
    ),
    Case(
        "queue-limits",
        (V6E, queues(lend={"s": 5})),
        "queues.q.lend.s",
        "where the queue owns 1",
        "write 1 or less",
        (V6E, queues(lend={"s": 1})),
    ),
    Case(
        "queue-limits",
        (V6E, queues(borrow={"typo": 2})),
        "queues.q.borrow.typo",
        "has no slices typo",
        "one of s",
        (V6E, queues(borrow={"s": 2})),
    ),
    *(
        Case(
            "namespaces",
            (V6E, queues(namespaces=[name])),
            "queues.q.namespaces[0]",
            SYSTEM,
            "another",
            (V6E, queues(namespaces=["default-team"])),
        )
        for name in ("kube-system", "default", "kueue-system", "gke-managed-system", "dra-driver-google-tpu")
    ),
    Case(
        "namespaces",
        (V6E, {"namespaces": ["dra-driver-google-tpu"]}),
        "namespaces[0]",
        SYSTEM,
        "another",
        (V6E, {"namespaces": ["dra"]}),
    ),
    Case(
        "namespaces",
        (V6E, queues(namespaces=["a", "a"])),
        "queues.q.namespaces[1]",
        "in the list twice",
        "name it once",
        (V6E, queues(namespaces=["a", "b"])),
    ),
    Case(
        "node-labels",
        (V6E | {"taints": [{"key": "a"}, {"key": "a", "value": "b"}]}, {}),
        "slices.s.taints[1]",
        "is there twice",
        "keep one",
        (V6E | {"taints": [{"key": "a"}, {"key": "a", "effect": "NoExecute"}]}, {}),
    ),
    Case(
        "pool-labels",
        (V6E, pool(taints=[{"key": "a"}, {"key": "a"}])),
        "cluster.cpu_pools.p.taints[1]",
        "is there twice",
        "keep one",
        (V6E, pool(taints=[{"key": "a"}])),
    ),
    Case(
        "network-tags",
        (V6E | {"tags": ["a", "a"]}, {}),
        "slices.s.tags[1]",
        "is there twice",
        "name it once",
        (V6E | {"tags": ["a", "b"]}, {}),
    ),
    Case(
        "ranges-usable",
        (V6E, ranges(nodes_cidr="127.0.0.0/20")),
        "network.nodes_cidr",
        "loopback",
        "10.0.0.0/20",
        (V6E, ranges(nodes_cidr="10.1.0.0/20", pods_cidr="10.4.0.0/14")),
    ),
    Case(
        "ranges-usable",
        (V6E, ranges(pods_cidr="224.0.0.0/14")),
        "network.pods_cidr",
        "multicast",
        "10.0.0.0/20",
        (V6E, ranges(pods_cidr="10.4.0.0/14")),
    ),
    Case(
        "access-not-open",
        (V6E, reached_from("0.0.0.0/1", "128.0.0.0/1")),
        "cluster.authorized_networks[0].cidr",
        "a large part of the internet",
        "name the addresses",
        (V6E, reached_from("192.0.2.0/24")),
    ),
    Case(
        "access-not-open",
        (V6E, reached_from(*(f"{n * 8}.0.0.0/6" for n in range(8)))),
        "cluster.authorized_networks",
        "together a large part of the internet",
        "name the addresses",
        (V6E, reached_from("192.0.2.0/24", "9.0.0.0/8")),
    ),
]


def shared_by(**written: dict[str, Any]) -> dict[str, Any]:
    """Queues of slices `s`, each with a namespace of its own and no other."""
    found = {
        name: {"namespaces": [name], "slices": {"s": queue["s"]}, **{key: queue[key] for key in queue if key != "s"}}
        for name, queue in written.items()
    }
    return {"namespaces": [], "queues": found}


FLEX = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "capacity": "flex-start"}
WARNINGS = [
    Case(
        "capacity-assumed",
        (V6E, {}),
        "slices.s.capacity",
        "on-demand is assumed",
        "write on-demand if you mean it",
        (V6E | {"capacity": "on-demand"}, {}),
    ),
    Case(
        "flex-start-edits",
        (FLEX, {"cluster": SELF_MANAGED}),
        "slices.s.capacity.model",
        "recreates them",
        "only when its jobs may stop",
        (FLEX | {"capacity": "spot"}, {"cluster": SELF_MANAGED}),
    ),
    Case(
        "slices-unowned",
        (V6E | {"count": 3}, shared_by(a={"s": 2})),
        "slices.s",
        "1 of 3 slices belongs to no queue: Kueue gives out only what queues own, for 43.20 USD/h",
        "raise a queue's share of s, or lower slices.s.count",
        (V6E | {"count": 3}, shared_by(a={"s": 2}, b={"s": 1})),
    ),
    Case(
        "queue-out-of-reach",
        (V6E, shared_by(a={"s": 1}, b={"s": 0})),
        "queues.b.slices.s",
        "never gets a slice of s: the queue owns none, and may not borrow",
        "or write borrow: true",
        (V6E, shared_by(a={"s": 1}, b={"s": 0, "borrow": True})),
    ),
    Case(
        "queue-out-of-reach",
        (V6E, shared_by(a={"s": 1, "cohort": "x"}, b={"s": 0, "borrow": True})),
        "queues.b.slices.s",
        "the queue owns none, and no other queue of cohort tpu lends any",
        "put a queue that owns some into tpu",
        (V6E, shared_by(a={"s": 1, "cohort": "x"}, b={"s": 0, "borrow": True, "cohort": "x"})),
    ),
    Case(
        "lonely-cohort",
        (V6E | {"count": 2}, shared_by(a={"s": 1}, b={"s": 1, "borrow": True, "cohort": "b"})),
        "queues.b.borrow",
        "has no effect: the queue is alone in cohort b",
        "put queues that share slices into one cohort",
        (V6E | {"count": 2}, shared_by(a={"s": 1, "cohort": "b"}, b={"s": 1, "borrow": True, "cohort": "b"})),
    ),
    Case(
        "lonely-cohort",
        (V6E | {"count": 2}, shared_by(a={"s": 1, "lend": False}, b={"s": 1, "borrow": True})),
        "queues.b.borrow",
        "has no effect: no other queue of cohort tpu lends its slices",
        "leave it out",
        (V6E | {"count": 2}, shared_by(a={"s": 1}, b={"s": 1, "borrow": True})),
    ),
    Case(
        "lonely-cohort",
        (V6E | {"count": 2}, shared_by(a={"s": 1}, b={"s": 1, "cohort": "ab"})),
        "queues.b.cohort",
        "is alone in cohort ab: it neither borrows nor lends",
        "name another queue's cohort",
        (V6E | {"count": 2}, shared_by(a={"s": 1}, b={"s": 1})),
    ),
    Case(
        "topology-aware",
        (V6E | {"devices": "dra"}, {"software": {"kueue": {"topology_aware": True}}}),
        "software.kueue.topology_aware",
        "has no effect",
        "leave it out",
        (V6E | {"devices": "device-plugin"}, {"software": {"kueue": {"topology_aware": True}}}),
    ),
]
