"""Everything that is watched: the charts of the dashboard and the alerts, each with its query.

Dashboard, alert policies and docs/monitoring.md are made of these two tables. Queries are PromQL, in the spelling of
Cloud Monitoring, with words that a platform fills in (`$cluster`, `$zone`, a threshold by its key, `$parts`).

Sources. Series of GKE: Cloud Monitoring, "Kubernetes metrics". Series of Kueue: kubernetes-sigs/kueue v0.19.2,
pkg/metrics/metrics.go. JobSet: GKE, "JobSet metrics". Reservations, instance groups, logs: Cloud Monitoring, "Google
Cloud metrics". What shapes the queries:

- Both replicas of Kueue export its gauges, so `max by` comes before any sum.
- Absent is not zero: interruptions, idle containers and log entries have no series while there are none.
- Kueue makes a counter with its first event, so that begins at 1, and `increase` alone would not see the event: `_new`.
- `rate` is refused for gauges, so interruptions are summed over time.
- The values of `status` are written in capitals on some pages and not on others, so they match in either form.
- A condition of a node has a series for each status, or for the present one alone: what is asked is whether one with
  another status than True is set, which is right for both.
- A metric of log entries can have several types of resource, so its type is named ("Mapping Cloud Monitoring metrics to
  PromQL"). Which one entries of `gke_nodepool` get is unverified: that type is of Cloud Logging, and what Cloud
  Monitoring does not know becomes `global`, so both are counted.
- Points of reservations come up to 30 minutes late, and a selector looks back 5 minutes: an average over 60 minutes.
"""

from dataclasses import dataclass
from typing import Literal

Source = Literal[
    "always",
    "gke",
    "standing-slices",
    "device-plugin",
    "host-metrics",
    "groups",
    "standing-groups",
    "reservations",
    "stockouts",
    "autoscaler",
    "queues",
    "prices",
]
"""What a platform must have for a series to exist. The words are explained in SOURCES."""

SOURCES: dict[Source, str] = {
    "always": "any platform",
    "gke": "GKE",
    "standing-slices": "GKE, slices of several hosts that are there all the time: `provisioning: fixed`, and not spot",
    "device-plugin": "slices with `devices: device-plugin`; without GKE also `monitoring.device_metrics`",
    "host-metrics": "GKE, slices with `devices: device-plugin`",
    "groups": "hosts in managed instance groups, so without GKE",
    "standing-groups": "as above, of hosts that are there all the time: neither spot nor flex-start",
    "reservations": "slices with capacity from a reservation",
    "stockouts": "`monitoring.count_errors`",
    "autoscaler": "GKE, `monitoring.count_errors`",
    "queues": "queues, and `monitoring.queue_metrics` other than `none`",
    "prices": "as above, and slices whose hosts run all the time (fixed, not spot) and whose price is known",
}

Section = Literal["Queues", "Slices", "Chips", "Platform"]
Plot = Literal["LINE", "STACKED_AREA", "STACKED_BAR"]
Severity = Literal["CRITICAL", "ERROR", "WARNING"]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart.

    - `name`: short, and the same for ever; `unit`: of the vertical axis; `says`: what a person reads from it
    - `query`: PromQL. `$parts` stands for one `part` for each price, group of slices or type of resource, put together
      by `joined`
    """

    name: str
    section: Section
    source: Source
    title: str
    unit: str
    plot: Plot
    says: str
    query: str
    part: str = ""
    joined: str = ""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """An alert.

    - `query`: PromQL, which has a series for each thing that is wrong; `part` and `joined` as of a chart
    - `hold`: key of the threshold that says for how long; or a fixed duration, such as `300s`
    - `window`: for how long one event stays in the query (`$window`), if `hold` must be longer so that one event alone
      does not fire; empty if one event is enough
    - `says`: when it fires; `do`: what to do then
    """

    name: str
    source: Source
    title: str
    severity: Severity
    query: str
    hold: str
    says: str
    do: str
    window: str = ""
    part: str = ""
    joined: str = ""


def _new(counter: str, window: str) -> str:
    """Events within a window, by each series of a counter: all of a series that is younger than the window."""
    return f"({counter} unless {counter} offset {window} or increase({counter}[{window}]))"


_TPU = 'cluster="$cluster",resource=~"google.com/tpu.*"'
_USED = f"max by (cluster_queue, flavor) (kueue_cluster_queue_resource_usage{{{_TPU}}})"
_OWNED = f"max by (cluster_queue, flavor) (kueue_cluster_queue_nominal_quota{{{_TPU}}})"
_WAITING = f"sum by (cluster_queue) (max by (cluster_queue, resource) (kueue_cluster_queue_resource_pending{{{_TPU}}}))"
_USED_BY_QUEUE = f"sum by (cluster_queue) ({_USED})"
_OWNED_BY_QUEUE = f"sum by (cluster_queue) ({_OWNED})"
_PENDING = 'sum by (cluster_queue) (max by (cluster_queue, status) (kueue_pending_workloads{cluster="$cluster"}))'
_ADMITTED = _new('kueue_admitted_workloads_total{cluster="$cluster"}', "$stuck_for")
_WAITED = _new('kueue_admission_wait_time_seconds_bucket{cluster="$cluster"}', "1h")
_EVICTED = _new('kueue_evicted_workloads_total{cluster="$cluster"}', "1h")
_USED_OF_FLAVORS = (
    'sum(max by (cluster_queue, flavor) (kueue_cluster_queue_resource_usage{cluster="$cluster",flavor=~"$flavors"}))'
)
_ONE_FLAVOR = f"count by (cluster_queue) ({_OWNED}) == 1"
_FREE_IN_QUEUE = f"({_OWNED_BY_QUEUE} - {_USED_BY_QUEUE})"
_IDLE_USD = f"$usd * ($chips - {_USED_OF_FLAVORS})"

_NODE = 'monitored_resource="k8s_node",cluster_name="$cluster",location="$location"'
_POOL = (
    'monitored_resource="k8s_node_pool",cluster_name="$cluster",location="$location",node_pool_name=~"$standing_pools"'
)
_NOT_READY = (
    f'max by (node_name) (kubernetes_io:node_status_condition{{{_NODE},condition="Ready",status!~"(?i)true"}}) > 0'
)
_WHOLE = f"max by (node_pool_name) (kubernetes_io:node_pool_multi_host_available{{{_POOL}}})"
_INTERRUPTED = f"sum_over_time(kubernetes_io:node_interruption_count{{{_NODE}}}[1h])"
GKE_SERIES = {
    "duty": f"kubernetes_io:node_accelerator_duty_cycle{{{_NODE}}}",
    "memory_used": f"kubernetes_io:node_accelerator_memory_used{{{_NODE}}}",
    "memory_total": f"kubernetes_io:node_accelerator_memory_total{{{_NODE}}}",
}
"""Word in queries: what it stands for on GKE."""
PLUGIN_SERIES = {"duty": "duty_cycle_node", "memory_used": "memory_used_node", "memory_total": "memory_total_node"}
"""Word in queries: name of the metric as the device plugin itself serves it, without GKE."""
_IDLE = "max_over_time($duty[10m]) == bool 0"
_STOCKOUTS = 'increase(logging_googleapis_com:user_$stockouts{monitored_resource="$resource"}[1h])'
_AUTOSCALER_ERRORS = 'logging_googleapis_com:user_$autoscaler_errors{monitored_resource="k8s_cluster"}'
_MISSING = (
    '($size - max by (instance_group_name) (compute_googleapis_com:instance_group_size{location="$zone",'
    'instance_group_name=~"$groups"}))'
)
_RESERVATION = 'monitored_resource="compute.googleapis.com/Reservation",location="$zone"'
_IN_USE = f"sum by (reservation_id) (avg_over_time(compute_googleapis_com:reservation_used{{{_RESERVATION}}}[60m]))"
_RESERVED = (
    f"sum by (reservation_id) (avg_over_time(compute_googleapis_com:reservation_reserved{{{_RESERVATION}}}[60m]))"
)
_RESTARTS = 'kube_jobset_restarts{cluster="$cluster"}'
# The largest value of the hour would count those of an earlier JobSet of the name: a new one begins at 0.
_NEW_RESTARTS = f"sum by (namespace, jobset_name) ({_RESTARTS} - min_over_time({_RESTARTS}[1h]))"

CHARTS = (
    Chart(
        name="used",
        section="Queues",
        source="queues",
        title="Chips in use, by queue",
        unit="chips",
        plot="STACKED_AREA",
        says="Chips of admitted workloads. More than a queue owns is borrowed.",
        query=_USED_BY_QUEUE,
    ),
    Chart(
        name="owned",
        section="Queues",
        source="queues",
        title="Chips owned, by queue",
        unit="chips",
        plot="STACKED_AREA",
        says="The quotas. Their sum is at most what exists, unless `overcommit` is set.",
        query=_OWNED_BY_QUEUE,
    ),
    Chart(
        name="waiting",
        section="Queues",
        source="queues",
        title="Chips waited for, by queue",
        unit="chips",
        plot="STACKED_AREA",
        says="Chips that workloads ask for which are not admitted.",
        query=_WAITING,
    ),
    Chart(
        name="borrowed",
        section="Queues",
        source="queues",
        title="Chips borrowed, by queue",
        unit="chips",
        plot="LINE",
        says="Chips in use beyond the quota, which others of the cohort can take back.",
        query=f"clamp_min({_USED_BY_QUEUE} - {_OWNED_BY_QUEUE}, 0)",
    ),
    Chart(
        name="free",
        section="Queues",
        source="queues",
        title="Chips that nobody uses, by flavor",
        unit="chips",
        plot="STACKED_AREA",
        says="Quota that no workload has, of all queues together. A flavor is a shape with its capacity model.",
        query=f"sum by (flavor) ({_OWNED}) - sum by (flavor) ({_USED})",
    ),
    Chart(
        name="idle-cost",
        section="Queues",
        source="prices",
        title="Cost of chips that nobody uses",
        unit="USD an hour",
        plot="STACKED_AREA",
        says="Chips on running hosts that no workload has, times the price in the plan. Workloads outside of queues"
        " count as nobody. Spot is left out: hosts that Google took away cost nothing.",
        query="$parts",
        part=_IDLE_USD,
        joined=" + ",
    ),
    Chart(
        name="workloads-waiting",
        section="Queues",
        source="queues",
        title="Workloads waiting, by queue",
        unit="workloads",
        plot="LINE",
        says="Workloads that are not admitted. Inadmissible ones do not fit into what their queue can have now.",
        query='max by (cluster_queue, status) (kueue_pending_workloads{cluster="$cluster"})',
    ),
    Chart(
        name="wait",
        section="Queues",
        source="queues",
        title="Wait of nine workloads in ten, by queue",
        unit="seconds",
        plot="LINE",
        says="Time from creation, or from the last eviction, to admission, of workloads admitted in the last hour."
        " Those that wait are left out.",
        query=f"histogram_quantile(0.9, sum by (le, cluster_queue) {_WAITED})",
    ),
    Chart(
        name="evictions",
        section="Queues",
        source="queues",
        title="Evictions in an hour, by reason",
        unit="workloads",
        plot="STACKED_BAR",
        says="Admitted workloads that Kueue stopped: preempted, not ready in time, or their check failed.",
        query=f"sum by (cluster_queue, reason) {_EVICTED}",
    ),
    Chart(
        name="not-whole",
        section="Slices",
        source="standing-slices",
        title="Slices that are not whole",
        unit="1: not whole",
        plot="STACKED_BAR",
        says="Fixed node pools of several hosts that GKE does not call available: no job can run there.",
        query=f"1 - {_WHOLE}",
    ),
    Chart(
        name="hosts-missing",
        section="Slices",
        source="groups",
        title="Hosts missing, by group",
        unit="hosts",
        plot="STACKED_BAR",
        says="Hosts in the plan without a machine. Those on spot and flex-start may rightly be absent.",
        query="$parts",
        part=_MISSING,
        joined=" or ",
    ),
    Chart(
        name="not-ready",
        section="Slices",
        source="gke",
        title="Nodes that are not ready",
        unit="nodes",
        plot="STACKED_BAR",
        says="Nodes of the cluster, those without TPUs included, whose kubelet is silent or says that it is not ready.",
        query=f"count({_NOT_READY}) or vector(0)",
    ),
    Chart(
        name="interruptions",
        section="Slices",
        source="gke",
        title="Interruptions in an hour, by reason",
        unit="nodes",
        plot="STACKED_BAR",
        says="Hosts that Google took away: preemption, maintenance, failure.",
        query=f"sum by (interruption_type, interruption_reason) ({_INTERRUPTED})",
    ),
    Chart(
        name="stockouts",
        section="Slices",
        source="stockouts",
        title="Stockouts in an hour",
        unit="log entries",
        plot="STACKED_BAR",
        says="Google had no machines for a slice. An attempt can be several log entries.",
        query="sum($parts) or vector(0)",
        part=_STOCKOUTS,
        joined=" or ",
    ),
    Chart(
        name="autoscaler-errors",
        section="Slices",
        source="autoscaler",
        title="Errors of the autoscaler in an hour",
        unit="log entries",
        plot="STACKED_BAR",
        says="The autoscaler could not add nodes: no machines, no quota, no addresses, or no pool that fits.",
        query=f"sum(increase({_AUTOSCALER_ERRORS}[1h])) or vector(0)",
    ),
    Chart(
        name="reservations",
        section="Slices",
        source="reservations",
        title="Use of reservations",
        unit="share",
        plot="LINE",
        says="Machines in use of those reserved, for each reservation of the project in the zone; mean of an hour.",
        query=f"{_IN_USE} / ({_RESERVED} > 0)",
    ),
    Chart(
        name="restarts",
        section="Slices",
        source="gke",
        title="Restarts of JobSets in an hour",
        unit="restarts",
        plot="STACKED_BAR",
        says="How often JobSets began again.",
        query=_NEW_RESTARTS,
    ),
    Chart(
        name="idle-chips",
        section="Chips",
        source="device-plugin",
        title="Chips on which nothing ran, by kind",
        unit="chips",
        plot="STACKED_AREA",
        says="Chips of nodes whose duty cycle was 0 for ten minutes. Chips of hosts that do not exist are not in it.",
        query=f"sum by (model) ({_IDLE})",
    ),
    Chart(
        name="duty-cycle",
        section="Chips",
        source="device-plugin",
        title="Duty cycle, by kind of chip",
        unit="%",
        plot="LINE",
        says="Share of time in which a program ran. It says nothing about how well it runs.",
        query="avg by (model) ($duty)",
    ),
    Chart(
        name="tensorcore",
        section="Chips",
        source="host-metrics",
        title="Use of the TensorCores, by kind of chip",
        unit="%",
        plot="LINE",
        says="Operations done, of those that the TensorCores could do.",
        query=f"avg by (model) (kubernetes_io:node_accelerator_tensorcore_utilization{{{_NODE}}})",
    ),
    Chart(
        name="memory",
        section="Chips",
        source="device-plugin",
        title="Memory of the chips in use",
        unit="%",
        plot="LINE",
        says="The fullest chip of each kind.",
        query="max by (model) (100 * $memory_used / $memory_total)",
    ),
    Chart(
        name="controllers",
        section="Platform",
        source="gke",
        title="Restarts of controllers in an hour",
        unit="restarts",
        plot="STACKED_BAR",
        says="Containers of Kueue, JobSet and drivers that began again.",
        query="sum by (namespace_name, container_name) (increase(kubernetes_io:container_restart_count"
        '{monitored_resource="k8s_container",cluster_name="$cluster",location="$location",'
        'namespace_name=~"$controllers"}[1h]))',
    ),
    Chart(
        name="logs",
        section="Platform",
        source="always",
        title="Logs that are paid for, of the whole project",
        unit="bytes an hour",
        plot="STACKED_AREA",
        says="Bytes that Cloud Logging took in, by kind of source.",
        query="sum by (resource_type) (increase(logging_googleapis_com:billing_bytes_ingested[1h]))",
    ),
)

ALERTS = (
    Alert(
        name="not-whole",
        source="standing-slices",
        title="Slice not whole",
        severity="CRITICAL",
        query=f"{_WHOLE} == 0",
        hold="slice_down_for",
        says="For `slice_down_for`, GKE did not call a fixed node pool of several hosts available.",
        do="No job can run on the slice. `gcloud container node-pools describe` says what the pool lacks; if its hosts"
        " do not come back, docs/operations.md says how to make the slice again.",
    ),
    Alert(
        name="pool-error",
        source="standing-slices",
        title="Node pool in error",
        severity="ERROR",
        query=f'max by (node_pool_name) (kubernetes_io:node_pool_status{{{_POOL},status=~"(?i)error"}}) > 0',
        hold="slice_down_for",
        says="For `slice_down_for`, a fixed node pool of several hosts was in the state ERROR.",
        do="Usually Google had no machines: see the alert about stockouts, and the pool's status message.",
    ),
    Alert(
        name="hosts-missing",
        source="standing-groups",
        title="Hosts missing",
        severity="CRITICAL",
        query="$parts",
        part=f"{_MISSING} > 0",
        joined=" or ",
        hold="slice_down_for",
        says="For `slice_down_for`, a managed instance group had fewer machines than the plan. Groups on spot and"
        " flex-start are left out: their hosts may rightly be absent.",
        do="`gcloud compute instance-groups managed list-errors GROUP --zone ZONE` says why.",
    ),
    Alert(
        name="not-ready",
        source="gke",
        title="Node not ready",
        severity="ERROR",
        query=_NOT_READY,
        hold="node_down_for",
        says="For `node_down_for`, a node's kubelet was silent or said that it is not ready.",
        do="GKE repairs nodes by itself, which for a slice of several hosts means all of them. If it does not:"
        " `kubectl describe node`.",
    ),
    Alert(
        name="interruptions",
        source="gke",
        title="Many interruptions",
        severity="WARNING",
        query=f"sum by (interruption_type, interruption_reason) ({_INTERRUPTED}) >= $interruptions",
        hold="60s",
        says="Google took away `interruptions` hosts or more within an hour, for one reason.",
        do="Preemption: spot capacity is short, so wait, or use other capacity (docs/capacity.md). Maintenance: jobs go"
        " on from their checkpoints. Failures on the same host again: tell Google.",
    ),
    Alert(
        name="stockouts",
        source="stockouts",
        title="Stockout",
        severity="WARNING",
        query="sum($parts) > 0",
        part=_STOCKOUTS,
        joined=" or ",
        hold="60s",
        says="Google had no machines for a slice within the last hour.",
        do="docs/capacity.md: wait, another zone, or another capacity model. A reservation says how much it has left.",
    ),
    Alert(
        name="autoscaler-errors",
        source="autoscaler",
        title="Autoscaler cannot add nodes",
        severity="WARNING",
        query=f"sum(increase({_AUTOSCALER_ERRORS}[$window])) > 0",
        window="900s",
        hold="autoscaler_fails_for",
        says="For `autoscaler_fails_for`, the autoscaler failed to add nodes at least every 15 minutes.",
        do="The log `cluster-autoscaler-visibility` has the reason: quota, machines, addresses, or no pool that fits.",
    ),
    Alert(
        name="reservation-unused",
        source="reservations",
        title="Reservation little used",
        severity="WARNING",
        query=f"{_IN_USE} / ({_RESERVED} > 0) < $reservation_share",
        hold="idle_for",
        says="For `idle_for`, less than `reservation_share` of a reservation's machines was in use.",
        do="Reserved machines are paid for in any case. `python -m tools explain` says which slices take them.",
    ),
    Alert(
        name="idle-chips",
        source="device-plugin",
        title="Chips on which nothing runs",
        severity="WARNING",
        query=f"avg by (model) ({_IDLE}) >= $idle_share",
        hold="idle_for",
        says="For `idle_for`, at least `idle_share` of the chips of one kind had a duty cycle of 0.",
        do="`kubectl get pods -A -o wide` says who holds the hosts: a job that hangs, a server without requests, or"
        " nobody.",
    ),
    Alert(
        name="idle-cost",
        source="prices",
        title="Money for chips that nobody uses",
        severity="WARNING",
        query="($parts) >= $idle_usd_an_hour",
        part=_IDLE_USD,
        joined=" + ",
        hold="idle_for",
        says="For `idle_for`, chips on running hosts that no workload of a queue has cost at least `idle_usd_an_hour`.",
        do="Give the queues fewer slices, or let hosts come and go with work (docs/slices-on-demand.md).",
    ),
    Alert(
        name="free-but-waiting",
        source="queues",
        title="Work waits while its queue has free chips",
        severity="WARNING",
        query=f"({_WAITING} > 0) and ({_USED_BY_QUEUE} < {_OWNED_BY_QUEUE})"
        f" and (({_ONE_FLAVOR}) or ({_WAITING} <= {_FREE_IN_QUEUE}))",
        hold="free_but_waiting_for",
        says="For `free_but_waiting_for`, a queue used less than it owns while workloads waited in it. A queue of"
        " several flavors counts where all that waits would fit into what is free.",
        do="The workloads want more than is free, another flavor, or hosts that are not there. `python -m tools status`"
        " says what each queue has, `python -m tools why` what a job waits for.",
    ),
    Alert(
        name="stuck",
        source="queues",
        title="Queue does not move",
        severity="ERROR",
        query=f"((min_over_time(({_PENDING})[$stuck_for:5m]) > 0) unless (sum by (cluster_queue) {_ADMITTED} > 0))"
        f" and ({_USED_BY_QUEUE} < {_OWNED_BY_QUEUE})",
        hold="300s",
        says="Workloads waited for `stuck_for`, and none was admitted, in a queue that uses less than it owns.",
        do="`python -m tools status` says what each queue has; `python -m tools why` what a job waits for.",
    ),
    Alert(
        name="restarts",
        source="gke",
        title="JobSet starts again and again",
        severity="ERROR",
        query=f"{_NEW_RESTARTS} >= $restarts",
        hold="60s",
        says="A JobSet began again `restarts` times or more within an hour.",
        do="`kubectl logs` of its pods, with `--previous`; then the hosts it ran on.",
    ),
    Alert(
        name="no-queue-metrics",
        source="queues",
        title="No metrics of Kueue",
        severity="ERROR",
        query='absent(kueue_cluster_queue_status{cluster="$cluster"})',
        hold="900s",
        says="Nothing collects the metrics of Kueue, or Kueue is down. All charts of queues are then empty.",
        do="`kubectl -n kueue-system get pods`, then docs/monitoring.md, section Metrics of queues.",
    ),
)
