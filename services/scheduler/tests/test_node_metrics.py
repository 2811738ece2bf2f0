"""Measured use of nodes: read from an HTTP server as Prometheus answers, and used while young."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.scheduler.tests.support.service_driver import (
    DEADLINE_S,
    SETTINGS,
    OtherServices,
    at_least,
    bound,
    gang,
    serving,
)
from stromboli.scheduler import node_metrics
from stromboli.scheduler.core import schedule
from stromboli.scheduler.core.config import configuration
from stromboli.shared import envelope, topics
from stromboli.shared.messages import scheduling as messages
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders
from stromboli.testkit.doubles import http_server

NODES = [builders.make_node(name, cpu="4") for name in ("n1", "n2")]


def vector(*more: tuple[str, float], **values: float | str) -> http_server.Reply:
    result = [
        {"metric": {"instance": name}, "value": [1700000000.5, str(value)]}
        for name, value in (*more, *values.items())
    ]
    data = {"resultType": "vector", "result": result}
    return http_server.json({"status": "success", "data": data})


def prometheus(cpu: http_server.Reply, memory: http_server.Reply) -> http_server.Answer:
    def answer(request: http_server.Request) -> http_server.Reply:
        assert request.path == "/api/v1/query"
        return cpu if "node_cpu_seconds_total" in request.query["query"] else memory

    return answer


async def measure(answer: http_server.Answer) -> dict[str, tuple[Any, Any]]:
    """Node -> cpu and memory."""
    with http_server.Server(answer) as server:
        async with node_metrics.Prometheus(configuration.Metrics(server.url)) as requested:
            measured = await requested.measure(builders.NOON)
    assert measured.at == builders.NOON
    return {name: (used.cpu["10m"], used.memory["10m"]) for name, used in measured.nodes.items()}


async def test_two_queries_measure_all_nodes() -> None:
    """A port behind the node's name is no part of it; a node of which one half is missing or no
    number has no measurement."""
    cpu = vector(("n1:9100", 12.5), n2=99, n3="NaN", n4=1)
    memory = vector(("n1:9100", 40), n2="7e1", n3=3)
    assert await measure(prometheus(cpu, memory)) == {"n1": (12.5, 40.0), "n2": (99.0, 70.0)}


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (http_server.Reply(b"<html>", 200), "200: not a response of the Prometheus API"),
        (http_server.json({"status": "error", "error": "bad query"}, 400), "400: bad query"),
        (http_server.json({"status": "success"}), "200: the query failed"),
        (
            http_server.json({"status": "success", "data": {"resultType": "scalar"}}),
            "it returned a scalar",
        ),
        (vector(), "it has no node_exporter series for any node"),
        (vector(n1="much"), "could not convert"),
    ],
    ids=["page", "refused", "nothing", "scalar", "empty", "text"],
)
async def test_an_invalid_response_is_reported_with_its_reason(
    reply: http_server.Reply, why: str
) -> None:
    with pytest.raises(node_metrics.MetricsError, match=why):
        await measure(lambda request: reply)


@pytest.mark.parametrize("address", ["http://prometheus:port", "http://[::"])
async def test_an_address_that_is_no_url_is_reported(address: str) -> None:
    """Configuration checks its scheme alone; the rest may not end the scheduler."""
    async with node_metrics.Prometheus(configuration.Metrics(address)) as requested:
        with pytest.raises(node_metrics.MetricsError, match=r"[Ii]nvalid"):
            await requested.measure(builders.NOON)


async def test_an_unreachable_prometheus_is_reported() -> None:
    async with node_metrics.Prometheus(configuration.Metrics("http://127.0.0.1:1")) as requested:
        with pytest.raises(node_metrics.MetricsError, match="connect"):
            await requested.measure(builders.NOON)


FILE = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: usage
metrics:
  type: prometheus
  address: %s
  interval: 20ms
"""


class Clock:
    """Does not move unless a test moves it."""

    def __init__(self) -> None:
        self.now = builders.NOON

    def __call__(self) -> datetime:
        return self.now


@contextlib.contextmanager
def configured(tmp_path: Path, answer: http_server.Answer) -> Iterator[tuple[Any, Any]]:
    """A server, and settings that name it."""
    with http_server.Server(answer) as server:
        path = tmp_path / "c.yaml"
        path.write_text(FILE % server.url)
        yield server, msgspec.structs.replace(SETTINGS, configuration=str(path))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110 - nobody tells of warnings and requests
            await asyncio.sleep(0.001)


def nodes(records: list[envelope.Record]) -> list[str]:
    decoded = [envelope.decode(record) for record in records]
    return [
        bind.node
        for message in decoded
        if isinstance(message, messages.StatementDecided)
        for bind in message.binds
    ]


async def test_no_pods_are_placed_on_nodes_that_are_measured_busy(
    other_services: OtherServices, tmp_path: Path
) -> None:
    """By the newest measurement: when another node is busy, the next gang is placed elsewhere."""
    first, second = vector(n1=95, n2=5), vector(n1=5, n2=95)
    with configured(tmp_path, prometheus(first, first)) as (server, settings):
        await other_services.see(builders.make_queue(), *NODES)
        await other_services.sync()
        async with serving(other_services.bus, settings) as health:
            await until(lambda: len(server.requests) > 2 and health.is_ready)
            await other_services.see(*gang(1))
            assert nodes(await other_services.until(topics.DECISIONS, at_least(2))) == ["n2"]
            server.answer = prometheus(second, second)
            requested = len(server.requests)
            await until(lambda: len(server.requests) > requested + 4)
            await other_services.see(*gang(1, "g2"))
            assert nodes(await other_services.until(topics.DECISIONS, at_least(4))) == ["n2", "n1"]


async def test_a_gang_that_waits_for_busy_nodes_starts_once_one_is_not_busy(
    other_services: OtherServices, tmp_path: Path
) -> None:
    """A measurement calls for a session by itself."""
    busy, idle = vector(n1=95, n2=95), vector(n1=95, n2=5)
    with configured(tmp_path, prometheus(busy, busy)) as (server, settings):
        await other_services.see(builders.make_queue(), *NODES, *gang(1))
        async with serving(other_services.bus, settings):
            await until(lambda: len(server.requests) > 2)
            await other_services.sync()
            records = await other_services.until(topics.EXPLANATIONS, at_least(1))
            explained = envelope.decode(records[0])
            assert isinstance(explained, messages.PodGroupExplained)
            assert "CPU usage" in explained.message
            server.answer = prometheus(idle, idle)
            assert nodes(await other_services.until(topics.DECISIONS, at_least(1))) == ["n2"]


async def test_old_measurements_are_not_used_and_their_source_is_named(
    other_services: OtherServices, tmp_path: Path
) -> None:
    """The service stays ready: without measurements all nodes pass."""
    busy, clock = vector(n1=95, n2=95), Clock()
    with configured(tmp_path, prometheus(busy, busy)) as (server, settings):
        settings = msgspec.structs.replace(settings, sync_max_age_s=1e6)
        await other_services.see(builders.make_queue(), *NODES)
        await other_services.sync()
        async with serving(other_services.bus, settings, clock=clock) as health:
            await until(lambda: len(server.requests) > 2 and health.is_ready)
            server.answer = lambda request: http_server.Reply(b"", 503)
            await until(lambda: "metrics" in health.warnings)
            assert f"{server.url} returned no node usage: 503" in health.warnings["metrics"]
            clock.now += schedule.MEASUREMENT_MAX_AGE + timedelta(seconds=1)
            await other_services.see(*gang(1))
            assert bound(await other_services.until(topics.DECISIONS, at_least(1))) == ["g1-w-0"]
            assert health.is_ready


async def test_a_new_source_is_polled_from_its_configuration_on() -> None:
    """And measurements of the previous one are discarded, as they are without a source."""
    given: list[Any] = []

    async def give(measured: Any) -> None:
        given.append(None if measured is None else sorted(measured.nodes))

    meter = node_metrics.MetricsPoller(give, runtime.Health("scheduler"), lambda: builders.NOON)
    with (
        http_server.Server(lambda request: vector(first=1)) as first,
        http_server.Server(lambda request: vector(second=1)) as second,
    ):
        running = asyncio.create_task(meter.run())
        try:
            meter.set_source(configuration.Metrics(first.url, interval_s=3600))
            await until(lambda: ["first"] in given)
            meter.set_source(configuration.Metrics(second.url, interval_s=3600))
            await until(lambda: ["second"] in given)
            meter.set_source(None)
            await until(lambda: given[-1] is None)
        finally:
            running.cancel()
            await asyncio.wait([running])
    assert [each for each in given if each] == [["first"], ["second"]]
