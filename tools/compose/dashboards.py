"""Generates the Grafana dashboards, with PromQL queries over the metrics of docs/metrics.md.

A dashboard consists of rows of panels, 24 columns wide. A counter without events has no series, so
sums of counters default to 0: an empty panel would look broken.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

SOURCE = {"type": "prometheus", "uid": "prometheus"}
WIDTH, HEIGHT = 24, 8
RATE = "[$__rate_interval]"


class Query(NamedTuple):
    """A PromQL query and the legend of its series, in which ``{{label}}`` is the value of a
    label."""

    promql: str
    legend: str = ""


class Panel(NamedTuple):
    """A panel. ``unit``: a unit of Grafana; ``says``: the description that Grafana shows."""

    title: str
    queries: Sequence[Query]
    says: str
    unit: str = "short"
    kind: Literal["timeseries", "stat", "bargauge"] = "timeseries"


class Row(NamedTuple):
    """A row of panels."""

    title: str
    panels: Sequence[Panel]


class Dashboard(NamedTuple):
    """A dashboard, which is one JSON file."""

    name: str
    title: str
    rows: Sequence[Row]

    def text(self) -> str:
        """The JSON of the dashboard."""
        document = {
            "uid": f"stromboli-{self.name}",
            "title": self.title,
            "tags": ["stromboli"],
            "schemaVersion": 39,
            "editable": False,
            "refresh": "5s",
            "time": {"from": "now-15m", "to": "now"},
            "timezone": "browser",
            "annotations": {"list": []},
            "templating": {"list": []},
            "links": [
                {
                    "type": "dashboards",
                    "title": "Stromboli",
                    "tags": ["stromboli"],
                    "asDropdown": False,
                    "keepTime": True,
                }
            ],
            "panels": list(_laid_out(self.rows)),
        }
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _laid_out(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for row in rows:
        number += 1
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "gridPos": place,
            "collapsed": False,
            "panels": [],
        }
        width = WIDTH // len(row.panels)
        for column, panel in enumerate(row.panels):
            number += 1
            place = {"x": column * width, "y": top + 1, "w": width, "h": HEIGHT}
            yield _drawn(panel, number, place)
        top += 1 + HEIGHT


def _drawn(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "gridPos": place,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": [
            {
                "refId": chr(ord("A") + row),
                "datasource": SOURCE,
                "expr": query.promql,
                "legendFormat": query.legend or "__auto",
                "range": panel.kind == "timeseries",
                "instant": panel.kind != "timeseries",
            }
            for row, query in enumerate(panel.queries)
        ],
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"},
    "bargauge": {"reduceOptions": {"calcs": ["lastNotNull"]}, "displayMode": "basic"},
}


def _percentile(part: float, name: str, by: str = "") -> str:
    """The PromQL of a percentile of a histogram over the last minutes."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({part}, sum by ({labels}) (rate({name}_bucket{RATE})))"


def _queues(resource: str, unit: str, divided_by: int) -> Panel:
    series = (("allocated", "allocated"), ("deserved", "deserved"), ("capacity", "capability"))
    return Panel(
        f"{resource.capitalize()} of queues",
        [
            Query(f"volcano_queue_{name}_{unit} / {divided_by}", f"{{{{queue_name}}}} {legend}")
            for name, legend in series
        ],
        "The resources that a queue's jobs use, its deserved share, and its capability if any.",
        unit="short" if resource == "cores" else "bytes",
    )


OVERVIEW = Dashboard(
    "overview",
    "Stromboli",
    [
        Row(
            "Now",
            [
                Panel(
                    "Gangs waiting",
                    [Query("sum(stromboli_scheduler_gangs_waiting) or vector(0)")],
                    "PodGroups that are pending.",
                    kind="stat",
                ),
                Panel(
                    "Pods placed per second",
                    [Query(f"sum(rate(stromboli_scheduler_binds_total{RATE})) or vector(0)")],
                    "Pods that the scheduler decided to bind.",
                    kind="stat",
                ),
                Panel(
                    "Decisions in flight",
                    [Query("max(stromboli_scheduler_unanswered)")],
                    "Binds and evictions that the controller has not executed yet.",
                    kind="stat",
                ),
                Panel(
                    "Services ready",
                    [Query('sum(stromboli_ready{job="stromboli"})')],
                    "The number of services that are ready.",
                    kind="stat",
                ),
            ],
        ),
        Row(
            "Queues",
            [_queues("cores", "milli_cpu", 1000), _queues("memory", "memory_bytes", 1)],
        ),
        Row(
            "Gangs",
            [
                Panel(
                    "Gangs waiting, by reason",
                    [
                        Query(
                            "sum by (queue_name, tier) (stromboli_scheduler_gangs_waiting)"
                            " or vector(0)",
                            "{{queue_name}} {{tier}}",
                        )
                    ],
                    "Pending gangs by queue and reason; `strom explain` explains a single gang.",
                ),
                Panel(
                    "Time from creation to the decision to bind",
                    [
                        Query(
                            _percentile(part, "volcano_e2e_job_scheduling_latency_milliseconds"),
                            legend,
                        )
                        for part, legend in ((0.5, "median"), (0.95, "95 %"))
                    ],
                    "Total time for which gangs waited.",
                    unit="ms",
                ),
                Panel(
                    "Evictions per second",
                    [
                        Query(
                            f"sum by (action) (rate(volcano_eviction_transactions_total{RATE}))"
                            " or vector(0)",
                            "{{action}}",
                        )
                    ],
                    "Statements with evictions, by the action of the session that decided them.",
                ),
            ],
        ),
    ],
)
SERVICES = Dashboard(
    "services",
    "Stromboli's services",
    [
        Row(
            "Health",
            [
                Panel(
                    "Ready",
                    [Query('stromboli_ready{job="stromboli"}', "{{service}}")],
                    "1: the service is ready. No line: the service does not respond.",
                ),
                Panel(
                    "Memory",
                    [Query('process_resident_memory_bytes{job="stromboli"}', "{{service}}")],
                    "Resident memory of each process.",
                    unit="bytes",
                ),
                Panel(
                    "Cores",
                    [
                        Query(
                            f'rate(process_cpu_seconds_total{{job="stromboli"}}{RATE})',
                            "{{service}}",
                        )
                    ],
                    "CPU cores that each process uses.",
                ),
            ],
        ),
        Row(
            "Scheduler",
            [
                Panel(
                    "Duration of actions, 95th percentile",
                    [
                        Query(
                            _percentile(
                                0.95, "volcano_action_scheduling_latency_milliseconds", "action"
                            ),
                            "{{action}}",
                        )
                    ],
                    "How long each action of a session takes.",
                    unit="ms",
                ),
                Panel(
                    "Sessions",
                    [
                        Query(_percentile(0.95, "stromboli_scheduler_session_seconds"), "95 %"),
                        Query(_percentile(0.5, "stromboli_scheduler_session_seconds"), "median"),
                    ],
                    "Duration of a scheduling session.",
                    unit="s",
                ),
                Panel(
                    "Decisions in flight",
                    [Query("stromboli_scheduler_unanswered", "binds and evictions")],
                    "Binds and evictions without an outcome. At the limit the scheduler waits.",
                ),
            ],
        ),
        Row(
            "Controller and API server",
            [
                Panel(
                    "Decisions executed per second",
                    [
                        Query(
                            "sum by (what, result) "
                            f"(rate(stromboli_controller_decided_total{RATE})) or vector(0)",
                            "{{what}} {{result}}",
                        )
                    ],
                    "Binds and evictions, by result.",
                ),
                Panel(
                    "The controller's requests per second",
                    [
                        Query(
                            f"sum by (verb) (rate(stromboli_controller_requests_total{RATE}))"
                            " or vector(0)",
                            "{{verb}}",
                        )
                    ],
                    "Requests of the controller to the API server.",
                ),
                Panel(
                    "All requests per second",
                    [
                        Query(
                            f"sum by (verb, code) (rate(apiserver_request_total{RATE}))",
                            "{{verb}} {{code}}",
                        )
                    ],
                    "Requests of all clients, as the API server counts them.",
                ),
            ],
        ),
        Row(
            "Log and admission",
            [
                Panel(
                    "Lag",
                    [
                        Query(
                            "max by (service, topic) (stromboli_log_behind)",
                            "{{service}} {{topic}}",
                        )
                    ],
                    "Offsets of a topic that a service has not read yet. Normally 0.",
                ),
                Panel(
                    "Snapshots per second",
                    [
                        Query(
                            f"sum by (topic) (rate(stromboli_monitor_records_total{RATE}))",
                            "{{topic}}",
                        )
                    ],
                    "Snapshots of objects that the monitor publishes.",
                ),
                Panel(
                    "Reviews per second",
                    [
                        Query(
                            "sum by (kind, allowed) "
                            f"(rate(stromboli_admission_reviews_total{RATE}))",
                            "{{kind}} allowed: {{allowed}}",
                        )
                    ],
                    "Objects that admission reviewed.",
                ),
                Panel(
                    "Duration of spans, 95th percentile",
                    [
                        Query(
                            _percentile(
                                0.95,
                                "traces_span_metrics_duration_milliseconds",
                                "service_name, span_name",
                            ),
                            "{{service_name}} {{span_name}}",
                        )
                    ],
                    "From the traces that the collector received.",
                    unit="ms",
                ),
            ],
        ),
    ],
)
ALL = (OVERVIEW, SERVICES)


def queries() -> Iterator[tuple[str, str]]:
    """(title of the panel, PromQL) of all dashboards, with a fixed window in place of Grafana's
    variable."""
    for board in ALL:
        for row in board.rows:
            for panel in row.panels:
                for query in panel.queries:
                    yield panel.title, query.promql.replace("$__rate_interval", "1m")
