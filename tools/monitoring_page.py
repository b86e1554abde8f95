"""docs/monitoring.md: every chart and alert of the catalogue; docs/monitoring-queries.md: their queries."""

from collections.abc import Iterator

from catalogue.queries import ALERTS, CHARTS, GKE_SERIES, PLUGIN_SERIES, SOURCES, Alert
from plan import queue_metrics
from platform_config.fields import Model
from platform_config.monitoring import Budget, Thresholds
from tools.schema import field_descriptions

NOTE = "<!-- Made by `python -m tools docs --write`; edit catalogue/queries.py or tools/monitoring_page.py instead. -->"
UNITS = {"h": 3600, "m": 60, "s": 1}

PAGE = """\
# Monitoring

{note}

Each platform has a dashboard in Cloud Monitoring: queues in chips, slices, chips, money, logs. With an address it also
has alerts. Queries, thresholds and prices come from the stack file and the plan.

![The dashboard](pictures/dashboard.svg)

```yaml
monitoring:
  notify: [tpu-ops@example.com]                 # alerts; without this and `channels` there are none
  channels: [projects/my-project/notificationChannels/1234567890]   # exist already: chat, pager, Pub/Sub
  queue_metrics: install                        # a collector reads Kueue: charts of queues, money, waits
  thresholds: {{idle_for: 4h, idle_usd_an_hour: 50.0}}
  budget: {{billing_account: 01ABCD-23EF45-678901, amount: 20000}}    # a month; see Budget
```

```console
$ pulumi up -s prod
$ gcloud monitoring dashboards list --filter 'displayName:"TPU platform"' --format 'value(name)'
projects/123456789012/dashboards/0f3a...
```

| key | default | what it does |
|---|---|---|
| `dashboard` | true | the dashboard; it is free |
| `notify`, `channels` | none | whom alerts tell. Cloud Monitoring charges for alert policies, by condition and \
series read |
| `silent` | none | alerts that you do not want, by name |
| `count_errors` | true | two counters of log entries, for stockouts and the autoscaler; each is one series |
| `drop_sidecar_logs` | true | on GKE with the TPU DRA driver: its log collector writes every line of libtpu to Cloud \
Logging. `kubectl logs` still shows them |
| `queue_metrics` | none | who collects the metrics of Kueue; see below |
| `device_metrics` | false | without GKE: what chips do; see below |
| `thresholds` | | see Alerts |
| `budget` | none | see Budget |

## What is not seen

| where | what is missing | why | what remains |
|---|---|---|---|
| slices with `devices: dra` | duty cycle, TensorCores, memory | the device plugin reads these from the runtime's \
port 8431, for containers that request `google.com/tpu`. The TPU DRA driver has no such reader | queues, hosts, \
slices, reservations |
| without GKE | everything with `kubernetes.io` in its name | GKE writes it | hosts missing, stockouts, reservations, \
queues; chips with `device_metrics` |
| a chip on which nothing ran since boot | duty cycle | the series begins with the first program | queues: chips that \
nobody uses |
| reserved chips without a machine | everything about chips | no machine, no series | use of reservations |
| JobSets and recovery times of GKE | up to an hour late | Google computes them afterwards | the charts do not use \
them |

## Metrics of queues

Kueue and JobSet serve their metrics on port 8443, to whoever has a token with the right to read them.

| `queue_metrics` | who reads them |
|---|---|
| `none` | nobody: charts, alerts and costs of queues are left out |
| `install` | a Prometheus that the program installs, on GKE and in self-managed clusters |
| `own` | a collector of yours, which needs what is below; the only way in a cluster that somebody else runs |

```console
$ kubectl -n {namespace} get pods
NAME                                 READY   STATUS    RESTARTS   AGE
tpu-queue-metrics-6c7d9fb5c9-x2k4q   1/1     Running   0          3m
$ kubectl -n {namespace} logs deployment/{name}
```

The charts fill a few minutes after the first `up`. If they do not, the log says what is refused, and the alert
`no-queue-metrics` tells.

The installed collector is Google's build of Prometheus for Managed Service for Prometheus ("self-deployed data
collection"): one pod on the system pool, which asks for {cpu} CPU and {memory} MiB. Its rights:

| where | what | why |
|---|---|---|
| cluster | `get` of `/metrics` | the controllers ask the API server whether the caller may |
| `kueue-system`, `jobset-system` | find pods | each replica has counters of its own |
| project | `{role}`, for its pods alone | to write what it has read |

No token is in a Secret or in the stack's state: Kubernetes gives the pod one that ends within an hour, and renews it.
On GKE the pod's account is known to Google Cloud. In a self-managed cluster the pod trades a token for one of Google's,
by the pool of identities that also serves teams with storage. A NetworkPolicy keeps everybody out.

Each sample is paid for, so it keeps only what the queries read, every {interval}, and JobSet's two counters.

| other way | why not |
|---|---|
| managed collection (PodMonitoring) | it takes a token from a Secret only. That token does not end, and if the \
program made the Secret, it would be in the stack's state. Without GKE there is none |
| OpenTelemetry Collector | it could do the same, with the same rights. But its settings are another language, \
which no test here could run; those of Prometheus are run by the real one |

A test reads the real Kueue and JobSet with these settings, this account and these rights, by the Prometheus of the
open-source project, and compares each query with a known state of queues. Not tried on a cloud: Google's image, and
that it writes. [monitoring-queries.md](monitoring-queries.md) has every query.

### What chips do, without GKE

On GKE the device plugin writes it to Cloud Monitoring. In a self-managed cluster `device_metrics: true` lets the plugin
read duty cycle and memory of its chips and serve them on port 2112 of the host, and lets the installed collector read
them there. It needs `queue_metrics: install`. The port asks for no token. The firewall lets the platform's machines and
pods reach it and nobody else. Use of the TensorCores is left out: that part of the plugin is not public. Slices with
`devices: dra` stay unseen, since no driver reads them.

Not tried on a cloud. It is off by default, because the plugin also offers the chips: if it failed, no chip could be
used.

### With a collector of your own

It needs:

- a ServiceAccount bound to the ClusterRole `kueue-metrics-reader`, which Kueue's chart brings, and its token
- the pods in `kueue-system` with `app.kubernetes.io/name=kueue`, their port `metrics`, scheme https; the certificate is
  Kueue's own
- the label `cluster` with the name of the platform on every series, as Managed Service for Prometheus sets it

On GKE a PodMonitoring does it. The Secret below is made by hand, so its token is in no state:

```yaml
apiVersion: v1
kind: Secret
metadata: {{name: metrics-reader, namespace: kueue-system, annotations: {{kubernetes.io/service-account.name: \
metrics-reader}}}}
type: kubernetes.io/service-account-token
---
apiVersion: monitoring.googleapis.com/v1
kind: PodMonitoring
metadata: {{name: kueue, namespace: kueue-system}}
spec:
  selector: {{matchLabels: {{app.kubernetes.io/name: kueue}}}}
  endpoints:
    - port: metrics
      scheme: https
      interval: 60s
      tls: {{insecureSkipVerify: true}}
      authorization: {{credentials: {{secret: {{name: metrics-reader, key: token}}}}}}
```

It also needs the ServiceAccount, its binding, and a Role that lets `gmp-system:collector` read that Secret. Not tried
on a cloud.

## Charts

{charts}

## Alerts

Each alert is one policy with one query. It tells somebody when its query has had a series for that long. `for` is a key
of `monitoring.thresholds`, or a fixed time.

{alerts}

| threshold | default | what it is |
|---|---|---|
{thresholds}

## Budget

```yaml
monitoring:
  notify: [tpu-ops@example.com]
  budget: {{billing_account: 01ABCD-23EF45-678901, amount: 20000, spent: [0.5, 0.9, 1.0], forecast: [1.0]}}
```

```console
$ pulumi up -s prod
$ gcloud billing budgets list --billing-account=01ABCD-23EF45-678901 --filter 'displayName:"TPU platform"'
```

| key | default | what it is |
|---|---|---|
{budget}

A budget tells people; it stops nothing, and costs nothing. It tells the addresses of `notify`, five at most, and the
account's administrators. It does not tell `channels`, because Cloud Billing takes e-mail alone. Costs arrive up to a
day late, credits are taken off, and a month begins at midnight in California.

It needs rights on the billing account ([permissions.md](permissions.md#on-the-billing-account)). `python -m tools
preflight` checks them, and that the account pays for the project. With the login of a person, not of a service account,
Google answers 403 unless the stack says whose quota calls use. You need `serviceusage.services.use` on that project:

```console
$ pulumi config set gcp:userProjectOverride true -s prod
$ pulumi config set gcp:billingProject my-project -s prod    # billingbudgets.googleapis.com is on there
```

The program switches on `billingbudgets.googleapis.com` in its own project.

## What each needs

| word | what a platform must have |
|---|---|
{sources}
"""

QUERIES_PAGE = """\
# Queries of charts and alerts

{note}

[monitoring.md](monitoring.md) says what each is for. PromQL, as Cloud Monitoring takes it. `$cluster`, `$location` and
`$zone` are the platform's; other words are thresholds, or come from the plan.

| word | on GKE | without GKE, with `monitoring.device_metrics` |
|---|---|---|
{words}

{queries}
"""


def monitoring_page() -> str:
    """The page: keys, what is blind, charts, alerts, thresholds."""
    return PAGE.format(
        note=NOTE,
        name=queue_metrics.NAME,
        namespace=queue_metrics.NAMESPACE,
        cpu=f"{queue_metrics.SIZE.cpu:g}",
        memory=queue_metrics.SIZE.memory_mib,
        role=queue_metrics.ROLE,
        interval=queue_metrics.SCRAPED_EVERY,
        charts="\n".join(_charts()),
        alerts="\n".join(_alerts()),
        budget="\n".join(_keys(Budget)),
        thresholds="\n".join(_keys(Thresholds)),
        sources="\n".join(f"| {source} | {words} |" for source, words in SOURCES.items()),
    )


def monitoring_queries_page() -> str:
    """The page of queries, as they are before a platform fills them in."""
    words = (f"| `${word}` | `{series}` | `{PLUGIN_SERIES[word]}` |" for word, series in GKE_SERIES.items())
    return QUERIES_PAGE.format(note=NOTE, words="\n".join(words), queries="\n\n".join(_queries()))


def _charts() -> Iterator[str]:
    yield "| section | chart | what it says | needs |"
    yield "|---|---|---|---|"
    for chart in CHARTS:
        yield f"| {chart.section} | {chart.title} ({chart.unit}) | {chart.says} | {chart.source} |"


def _alerts() -> Iterator[str]:
    yield "| name | severity | for | when | what to do | needs |"
    yield "|---|---|---|---|---|---|"
    for alert in ALERTS:
        yield f"| {' | '.join((f'`{alert.name}`', alert.severity, _hold(alert), alert.says, alert.do, alert.source))} |"


def _hold(alert: Alert) -> str:
    return _shown(alert.hold) if alert.hold[0].isdigit() else f"`{alert.hold}`"


def _shown(value: object) -> str:
    """A default; a duration in the largest unit that it is a whole number of."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]" if value else "none"
    text = str(value)
    if not (text.endswith("s") and text[:-1].isdigit()):
        return text
    seconds = int(text[:-1])
    unit, size = next((unit, size) for unit, size in UNITS.items() if seconds % size == 0)
    return f"{seconds // size}{unit}"


def _keys(model: type[Model]) -> Iterator[str]:
    descriptions = field_descriptions(model)
    for key, field in model.model_fields.items():
        default = "required" if field.is_required() else _shown(field.default)
        yield f"| `{key}` | {default} | {' '.join(descriptions[key].split())} |"


def _queries() -> Iterator[str]:
    for watched in (*CHARTS, *ALERTS):
        kind = "alert" if isinstance(watched, Alert) else "chart"
        query = watched.query
        if isinstance(watched, Alert) and watched.window:
            query = query.replace("$window", _shown(watched.window))
        if watched.part:
            query += f"\n# $parts, put together by {watched.joined.strip()!r}: {watched.part}"
        yield f"{watched.title} ({kind} `{watched.name}`)\n\n```promql\n{query}\n```"
