"""What of the catalogue of queries a platform can have, filled in: charts, alerts, and what they count in logs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from string import Template
from typing import Any, Literal

from catalogue.queries import ALERTS, CHARTS, GKE_SERIES, PLUGIN_SERIES, Alert, Chart, Plot, Section, Source
from plan import queues
from plan.backend import Backend
from plan.charts import CHARTS as HELM_CHARTS
from plan.hosts import group_name
from plan.platform import Platform
from plan.slices import SlicePlan
from platform_config.capacity import Reservation
from platform_config.monitoring import Thresholds

COLUMNS = 48
"""Columns of a dashboard's mosaic (Cloud Monitoring API, MosaicLayout)."""
HEADER_HEIGHT, CHART_HEIGHT, CHARTS_IN_A_ROW = 3, 14, 3
EVALUATED_EVERY = "60s"

STOCKOUT_RESOURCES: dict[Backend, tuple[str, ...]] = {
    "gke": ("gke_nodepool", "global"),
    "compute": ("gce_instance",),
}
"""Types of resource under which Cloud Monitoring may count entries of stockouts; catalogue/queries.py says why two."""


@dataclass(frozen=True)
class ChartPlan:
    """A chart with its query for a platform."""

    chart: Chart
    query: str


@dataclass(frozen=True)
class AlertPlan:
    """An alert with its query for a platform, and for how long it must hold, such as `600s`."""

    alert: Alert
    query: str
    hold: str


@dataclass(frozen=True)
class LogCount:
    """A metric that counts log entries: `key` names it in queries, `name` in the project."""

    key: Literal["stockouts", "autoscaler_errors"]
    name: str
    description: str
    filter: str


@dataclass(frozen=True)
class Tile:
    """A place on the dashboard, in columns and rows: a chart, or the header of a section."""

    x: int
    y: int
    width: int
    height: int
    content: ChartPlan | Section


def charts(platform: Platform) -> tuple[ChartPlan, ...]:
    """The charts whose series the platform has, in the order of the catalogue."""
    known = sources(platform)
    return tuple(ChartPlan(chart, _query(platform, chart)) for chart in CHARTS if chart.source in known)


def alerts(platform: Platform) -> tuple[AlertPlan, ...]:
    """The alerts that tell somebody; none where nobody is named."""
    written = platform.monitoring
    if not (written.notify or written.channels):
        return ()
    known = sources(platform)
    return tuple(
        AlertPlan(alert, _query(platform, alert), _hold(alert, written.thresholds))
        for alert in ALERTS
        if alert.source in known and alert.name not in written.silent
    )


def watched(platform: Platform) -> bool:
    """Whether there is anything to register for monitoring."""
    written = platform.monitoring
    return bool(written.dashboard or written.notify or log_counts(platform) or dropped_logs(platform)) or bool(
        alerts(platform)
    )


def sources(platform: Platform) -> frozenset[Source]:
    """What the platform has of what queries need."""
    gke, written = platform.backend == "gke", platform.monitoring
    plans = platform.slice_plans
    by_plugin = any(plan.devices == "device-plugin" for plan in plans)
    collected = bool(platform.queues) and written.queue_metrics != "none"
    found: dict[Source, bool] = {
        "always": True,
        "gke": gke,
        "standing-slices": bool(_standing_pools(platform)),
        "device-plugin": by_plugin and (gke or written.device_metrics),
        "host-metrics": by_plugin and gke,
        "groups": bool(_missing_hosts(platform)),
        "standing-groups": bool(_missing_hosts(platform, standing=True)),
        "reservations": any(
            isinstance(plan.alternative, Reservation) and plan.alternative.project in (None, platform.project)
            for plan in plans
        ),
        "stockouts": written.count_errors and bool(plans),
        "autoscaler": written.count_errors and gke,
        "queues": collected,
        "prices": collected and bool(_standing(platform)),
    }
    return frozenset(source for source, has in found.items() if has)


def _hold(alert: Alert, thresholds: Thresholds) -> str:
    return alert.hold if alert.hold[0].isdigit() else str(getattr(thresholds, alert.hold))


def _query(platform: Platform, watched: Chart | Alert) -> str:
    """The query with everything filled in. Raises KeyError for a word that nothing fills in."""
    parts: dict[Source, tuple[Mapping[str, Any], ...]] = {
        "prices": _standing(platform),
        "groups": _missing_hosts(platform),
        "standing-groups": _missing_hosts(platform, standing=True),
        "stockouts": tuple({"resource": resource} for resource in STOCKOUT_RESOURCES[platform.backend]),
    }
    words: dict[str, Any] = {
        **platform.monitoring.thresholds.model_dump(),
        **{count.key: count.name for count in _all_counts(platform)},
        "cluster": platform.cluster_name,
        "location": platform.location,
        "zone": platform.zone,
        "controllers": "|".join(sorted(chart.namespace for chart in HELM_CHARTS)),
        "standing_pools": "|".join(_standing_pools(platform)),
    }
    words |= {word: Template(series).substitute(words) for word, series in _devices(platform).items()}
    if isinstance(watched, Alert):
        words["window"] = watched.window
    if watched.part:
        words["parts"] = watched.joined.join(
            Template(watched.part).substitute({**words, **part}) for part in parts[watched.source]
        )
    return Template(watched.query).substitute(words)


def _devices(platform: Platform) -> Mapping[str, str]:
    """What the words about chips stand for: series of GKE, or of the device plugin, which the collector reads."""
    if platform.backend == "gke":
        return GKE_SERIES
    return {word: f'{name}{{cluster="$cluster"}}' for word, name in PLUGIN_SERIES.items()}


def _stands(plan: SlicePlan) -> bool:
    """Whether its hosts run all the time. Those on demand come with work; those on spot go when Google takes them;
    those of flex-start come when there is capacity, and go after a time."""
    return not (plan.provisioning.on_demand or plan.model.spot_price or plan.model.dws)


def _standing_pools(platform: Platform) -> tuple[str, ...]:
    """For each group of slices of several hosts on GKE that run all the time: the names of its node pools, as one
    pattern."""
    return tuple(
        f"{plan.name}-[0-9]+"
        for plan in platform.slice_plans
        if plan.backend == "gke" and plan.multi_host and _stands(plan) and any(pool.node_count for pool in plan.pools)
    )


def _standing(platform: Platform) -> tuple[Mapping[str, Any], ...]:
    """For each price: the chips on hosts that run all the time and belong to queues, and the flavors that they have."""
    quotas = (quotas for queue in queues.cluster_queues(platform) for quotas in queue.quotas.values())
    queued = {quota.flavor.name for each in quotas for quota in each}
    chips: dict[float, int] = {}
    flavors: dict[float, set[str]] = {}
    for plan in platform.slice_plans:
        price = plan.price_per_chip_hour
        if price and price.currency == "USD" and plan.flavor in queued and _stands(plan):
            standing = sum(pool.node_count or 0 for pool in plan.pools) * plan.chips_per_host
            chips[price.amount] = chips.get(price.amount, 0) + standing
            flavors.setdefault(price.amount, set()).add(plan.flavor)
    return tuple(
        {"usd": usd, "chips": chips[usd], "flavors": "|".join(sorted(flavors[usd]))}
        for usd in sorted(chips)
        if chips[usd]
    )


def _missing_hosts(platform: Platform, *, standing: bool = False) -> tuple[Mapping[str, Any], ...]:
    """For each group of slices without GKE, or of those that are there all the time: the hosts of each managed instance
    group, and the groups' names."""
    return tuple(
        {
            "size": plan.pools[0].most_nodes,
            "groups": group_name(platform, f"{plan.name}-[0-9]+" if plan.multi_host else plan.name),
        }
        for plan in platform.slice_plans
        if plan.backend == "compute" and plan.pools and plan.pools[0].most_nodes and (_stands(plan) or not standing)
    )


def log_counts(platform: Platform) -> tuple[LogCount, ...]:
    """The metrics of log entries that the platform's charts and alerts have."""
    known = sources(platform)
    wanted = {"stockouts": "stockouts" in known, "autoscaler_errors": "autoscaler" in known}
    return tuple(count for count in _all_counts(platform) if wanted[count.key])


def _all_counts(platform: Platform) -> tuple[LogCount, ...]:
    prefix = platform.name.replace("-", "_")
    return (
        LogCount(
            "stockouts",
            f"{prefix}_tpu_stockouts",
            f"Stockouts of TPU platform {platform.name}",
            _stockouts(platform),
        ),
        LogCount(
            "autoscaler_errors",
            f"{prefix}_tpu_autoscaler_errors",
            f"Errors of the autoscaler of TPU platform {platform.name}",
            _autoscaler_errors(platform),
        ),
    )


def _stockouts(platform: Platform) -> str:
    """On GKE the entries of node pools, elsewhere the audit log of the machines of managed instance groups."""
    if platform.backend == "gke":
        return _all_of(
            'resource.type="gke_nodepool"',
            f'resource.labels.cluster_name="{platform.cluster_name}"',
            f'resource.labels.location="{platform.location}"',
            '("GCE_STOCKOUT" OR "does not have enough resources" OR'
            ' "cannot be created now due to lack of capacity in your reservation")',
        )
    return _all_of(
        'resource.type="gce_instance"',
        f'logName="projects/{platform.project}/logs/cloudaudit.googleapis.com%2Factivity"',
        f'protoPayload.resourceName:"/zones/{platform.zone}/instances/{platform.name}-"',
        'protoPayload.status.message:"ZONE_RESOURCE_POOL_EXHAUSTED"',
    )


def _autoscaler_errors(platform: Platform) -> str:
    return _all_of(
        'resource.type="k8s_cluster"',
        f'resource.labels.cluster_name="{platform.cluster_name}"',
        f'resource.labels.location="{platform.location}"',
        f'logName="projects/{platform.project}/logs/container.googleapis.com%2Fcluster-autoscaler-visibility"',
        '(jsonPayload.resultInfo.results.errorMsg.messageId=~"^scale.up.error"'
        " OR jsonPayload.noDecisionStatus.noScaleUp:*)",
    )


def dropped_logs(platform: Platform) -> str | None:
    """A filter of log entries that are not worth their price: what the sidecar of the DRA driver's chart repeats."""
    uses_driver = any(plan.devices == "dra" for plan in platform.slice_plans)
    if not (platform.monitoring.drop_sidecar_logs and platform.backend == "gke" and uses_driver):
        return None
    return _all_of(
        'resource.type="k8s_container"',
        f'resource.labels.cluster_name="{platform.cluster_name}"',
        f'resource.labels.location="{platform.location}"',
        'resource.labels.container_name="sidecar-log-collector"',
    )


def _all_of(*conditions: str) -> str:
    """A filter of Cloud Logging: entries that satisfy all conditions."""
    return " AND ".join(conditions)


def tiles(platform: Platform) -> tuple[Tile, ...]:
    """The layout: for each section a header as wide as the dashboard, then its charts, three in a row."""
    return tuple(_tiles(charts(platform)))


def _tiles(shown: tuple[ChartPlan, ...]) -> Iterator[Tile]:
    top, width = 0, COLUMNS // CHARTS_IN_A_ROW
    for section in dict.fromkeys(plan.chart.section for plan in shown):
        yield Tile(0, top, COLUMNS, HEADER_HEIGHT, section)
        top += HEADER_HEIGHT
        own = [plan for plan in shown if plan.chart.section == section]
        for index, plan in enumerate(own):
            row, column = divmod(index, CHARTS_IN_A_ROW)
            yield Tile(column * width, top + row * CHART_HEIGHT, width, CHART_HEIGHT, plan)
        top += -(-len(own) // CHARTS_IN_A_ROW) * CHART_HEIGHT


def dashboard(platform: Platform) -> dict[str, Any]:
    """The dashboard in the form of the Cloud Monitoring API.

    Only what the API returns as it was sent: it drops zeros and empty values, and rewrites `name` and `etag`. Anything
    of that kind would be a change in every preview (hashicorp/terraform-provider-google #7242, #16173).
    """
    return {
        "displayName": f"TPU platform {platform.name}",
        "mosaicLayout": {"columns": COLUMNS, "tiles": [_placed(tile) for tile in tiles(platform)]},
    }


def _placed(tile: Tile) -> dict[str, Any]:
    position = {"xPos": tile.x, "yPos": tile.y}
    return {
        **{key: value for key, value in position.items() if value},
        "width": tile.width,
        "height": tile.height,
        "widget": _chart(tile.content) if isinstance(tile.content, ChartPlan) else _header(tile.content),
    }


def _header(section: Section) -> dict[str, Any]:
    return {"title": section, "sectionHeader": {"dividerBelow": True}}


def _chart(plan: ChartPlan) -> dict[str, Any]:
    plot: Plot = plan.chart.plot
    series = {"plotType": plot, "timeSeriesQuery": {"prometheusQuery": plan.query}}
    return {
        "title": plan.chart.title,
        "xyChart": {"dataSets": [series], "yAxis": {"label": plan.chart.unit, "scale": "LINEAR"}},
    }


def documentation(alert: Alert) -> str:
    """What somebody reads who is told: Markdown."""
    return f"{alert.says}\n\n{alert.do}"
