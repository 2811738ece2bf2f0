"""Polls the measured usage of nodes from Prometheus.

Sessions get the newest measurements with their time and ignore old ones. Errors do not stop the
service: they are reported as a warning, and the next poll tries again.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

import httpx
import msgspec

from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.plugins import usage
from stromboli.shared import decoding
from stromboli.shared.runtime import runtime, telemetry

TIMEOUT_S = 10.0
"""Deadline of one query, seconds. Prometheus computes averages over all nodes in a query."""
QUERIES: Mapping[str, str] = {
    "cpu": "avg_over_time((100 - avg by (instance) "
    f'(rate(node_cpu_seconds_total{{mode="idle"}}[5m])) * 100)[{usage.PERIOD}:30s])',
    "memory": "100 * avg_over_time((1 - avg by (instance) (node_memory_MemAvailable_bytes) "
    f"/ avg by (instance) (node_memory_MemTotal_bytes))[{usage.PERIOD}:30s])",
}
"""PromQL queries for the usage of each node in percent, from the series of node_exporter."""

_failed = telemetry.meter.create_counter(
    "stromboli.scheduler.measurements.failed",
    description="Failed polls of the measured use of nodes",
)


class MetricsError(Exception):
    """A poll failed."""


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: list[_Sample] = []


class _Response(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: _Data | None = None


class Prometheus:
    """A client of one Prometheus server. An async context manager."""

    def __init__(self, source: configuration.Metrics) -> None:
        # The client does not get the address, because an invalid URL would raise here.
        self._http = httpx.AsyncClient(verify=source.is_certificate_checked, timeout=TIMEOUT_S)
        self._url = f"{source.address}/api/v1/query"

    async def __aenter__(self) -> "Prometheus":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def measure(self, now: datetime) -> cluster_objects.MeasuredUsage:
        """Query the usage of all nodes, by the label ``instance`` without its port.

        Raises MetricsError.
        """
        values_by_metric = {name: await self._query(query) for name, query in QUERIES.items()}
        names = sorted(values_by_metric["cpu"].keys() & values_by_metric["memory"].keys())
        if not names:
            raise MetricsError("it has no node_exporter series for any node")
        return cluster_objects.MeasuredUsage(
            now,
            {
                name: cluster_objects.NodeUsage(
                    cpu={usage.PERIOD: values_by_metric["cpu"][name]},
                    memory={usage.PERIOD: values_by_metric["memory"][name]},
                )
                for name in names
            },
        )

    async def _query(self, query: str) -> dict[str, float]:
        """Query one metric; return instance -> value."""
        try:
            response = await self._http.get(self._url, params={"query": query})
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise MetricsError(str(error) or type(error).__name__) from error
        try:
            reply = decoding.from_json(response.content, _Response)
        except msgspec.DecodeError as error:
            raise MetricsError(
                f"{response.status_code}: not a response of the Prometheus API: {error}"
            ) from error
        if reply.status != "success" or reply.data is None:
            raise MetricsError(
                f"{response.status_code}: {reply.error or 'the query failed without an error'}"
            )
        if reply.data.result_type != "vector":
            raise MetricsError(f"it returned a {reply.data.result_type}, not a vector")
        try:
            values = {
                sample.metric.get("instance", "").partition(":")[0]: float(sample.value[1])
                for sample in reply.data.result
            }
        except ValueError as error:
            raise MetricsError(str(error)) from error
        return {name: value for name, value in values.items() if name and math.isfinite(value)}


class MetricsPoller:
    """Polls the source that the configuration names."""

    def __init__(
        self,
        publish: Callable[[cluster_objects.MeasuredUsage | None], Awaitable[None]],
        health: runtime.Health,
        clock: runtime.Clock,
    ) -> None:
        self._publish = publish
        self._health = health
        self._clock = clock
        self._source: configuration.Metrics | None = None
        self._changed = asyncio.Event()

    def set_source(self, source: configuration.Metrics | None) -> None:
        """Poll this source from now on; None stops polling. Earlier measurements are dropped."""
        if source != self._source:
            self._source = source
            self._changed.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            self._changed.clear()
            source = self._source
            self._health.warn("metrics", None)
            await self._publish(None)
            if source is None:
                await self._changed.wait()
                continue
            async with Prometheus(source) as requested:
                while source == self._source:
                    await self._poll(requested, source)
                    await self._pause(source.interval_s)

    async def _poll(self, requested: Prometheus, source: configuration.Metrics) -> None:
        try:
            measured = await requested.measure(self._clock())
        except MetricsError as error:
            _failed.add(1)
            self._health.warn(
                "metrics",
                f"{source.address} returned no node usage: {error}; retried at the next poll",
            )
        else:
            self._health.warn("metrics", None)
            await self._publish(measured)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return
