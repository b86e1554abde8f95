"""What breaks first on real Google: its documented limits, beside what a platform of the program needs."""

from __future__ import annotations

from catalogue.limits import MAX_HOSTS_PER_POOL, MAX_NODES

GKE = "[GKE quotas](https://cloud.google.com/kubernetes-engine/quotas)"
LARGE = "[large clusters](https://cloud.google.com/kubernetes-engine/docs/concepts/planning-large-clusters)"
COMPUTE = "[Compute Engine rates](https://cloud.google.com/compute/api-quota)"
ROWS = (
    (
        "chips per family and region",
        "the project's quota; many are 0 at first",
        "the first slice",
        "`explain` says what the plan needs, `preflight` what there is; ask for more (docs/preflight.md)",
        "[Cloud TPU on GKE](https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus)",
    ),
    (
        "operations of the engine at once",
        "4 for each processor of the machine that runs `pulumi`",
        "9 slices on two cores: the ninth waits for the first",
        "`pulumi up --parallel 64`; what is created waits for Google, and takes no processor",
        "`pulumi up --help`",
    ),
    (
        "nodes of a cluster that is zonal",
        "at most 2,000 are advised",
        "500 slices of 4 hosts",
        "a regional cluster, which is the default",
        GKE,
    ),
    (
        "nodes of a cluster",
        "5,000 without Google's support; 15,000 with it; 65,000 from GKE 1.31, without cluster autoscaler",
        "1,250 slices of 4 hosts",
        f"several clusters (docs/multikueue.md); the program refuses more than {MAX_NODES:,}",
        LARGE,
    ),
    (
        "nodes of a pool in a zone; machines of a group",
        "1,000 by the documents; the autoscaler's own bound is 2,000",
        "one slice of more than 4,000 chips, at 4 a host",
        f"smaller slices; the program refuses more than {MAX_HOSTS_PER_POOL:,}, so ask Google's support above 1,000",
        f"{GKE}, [groups](https://cloud.google.com/compute/docs/reference/rest/v1/instanceGroupManagers/insert)",
    ),
    (
        "requests to GKE's API",
        "3,000 a minute and project",
        "the provider asks for each unfinished pool every few seconds: several hundred pools at once",
        "a smaller `--parallel`; the provider tries again after 429",
        GKE,
    ),
    (
        "requests to Compute Engine's API",
        "1,500 a minute, project and kind of request; 403 `rateLimitExceeded` above",
        "the same, with groups instead of pools; `status` reads groups by the page",
        "a smaller `--parallel`, or a higher quota",
        COMPUTE,
    ),
    (
        "addresses of pods",
        "the range for pods; a node takes a block of it that follows from `max_pods_per_node`",
        "where ranges are small",
        "a rule refuses a plan that does not fit (docs/rules.md)",
        "[alias IPs](https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips)",
    ),
    (
        "flavors of one ClusterQueue",
        "16 groups of resources, 256 flavors in all",
        "256 shapes in one queue",
        "several queues in a cohort",
        "Kueue's API (v1beta2), validation of `resourceGroups`",
    ),
    (
        "devices of one ResourceClaim",
        "32 results of an allocation",
        "a pod with more than 32 chips; a host has 8 at most",
        "nothing to do",
        "Kubernetes API (resource.k8s.io/v1)",
    ),
    (
        "workers of one MultiKueue manager",
        "20 clusters",
        "21 clusters",
        "a second manager",
        "Kueue's API (v1beta2), MultiKueueConfig",
    ),
)


def section() -> list[str]:
    """The table, in the order in which a growing platform meets the limits."""
    return [
        "From the documents of Google, Kubernetes and Kueue, and not tried. GKE documents no limit of node pools per",
        "cluster; autoscaling and upgrades look at each pool, so many pools make both slower.",
        "",
        "| limit | how much | who meets it | what to do | source |",
        "|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in ROWS),
    ]
