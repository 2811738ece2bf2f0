"""The time that a new leader of the controller takes to read the published history: ``python -m
bench.takeover``.

A real Kafka broker. One term publishes three events for each of ``--pods`` live one-pod jobs, after
``--old-events`` events of deleted jobs, and writes its state. It measures the seconds until a
controller has the history: after a cold start without a state, which reads all events (``full``),
after one with the state (``state``), and for a standby that has followed both topics (``standby``).
The cluster's snapshots are not included: a standby has read them before. The last line of stdout is
one JSON object.
"""

import argparse
import asyncio
import gc
import itertools
import json
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from services.controller.tests.support.terms import Clock, Event, Term, pod_event
from stromboli.shared.bus import kafka, port
from stromboli.shared.messages import batch as messages
from stromboli.testkit import builders
from stromboli.testkit.parts import tools
from stromboli.testkit.parts.kafka import Kafka

AT_ONCE = 2_000
LIVE = ("Pending", "Bound", "Running")


def old_events(count: int) -> Iterator[Event]:
    """Events of deleted one-pod jobs, five for each job."""
    for number in range(count // 5):
        job = f"default/old-{number}"
        yield from (pod_event(job, 0, after) for after in (*LIVE, "Gone"))
        yield messages.JobDeleted(job=job, uid=f"uid-{job}", at=builders.NOON)


def live_events(pods: int) -> Iterator[Event]:
    """Events of running one-pod jobs."""
    for number in range(pods):
        yield from (pod_event(f"default/live-{number}", 0, after) for after in LIVE)


async def publish(term: Term, events: Iterator[Event]) -> int:
    """Publish all events. Returns their number."""
    count = 0
    while some := list(itertools.islice(events, AT_ONCE)):
        await term.publish(some)
        count += len(some)
    return count


async def timed(term: Term) -> dict[str, Any]:
    """Become the leader. Returns the seconds, the CPU seconds, and the number of events read."""
    gc.collect()
    began, cpu = time.perf_counter(), time.process_time()
    await term.begin()
    return {
        "s": round(time.perf_counter() - began, 2),
        "cpu_s": round(time.process_time() - cpu, 2),
        "events": term.cache.events,
    }


async def measured(bus: port.Bus, arguments: argparse.Namespace) -> dict[str, Any]:
    """Fill the log and measure the takeovers."""
    clock = Clock()
    first = Term(bus, clock)
    result: dict[str, Any] = {"pods": arguments.pods, "empty": await timed(first)}
    count = await publish(first, old_events(arguments.old_events))
    result["published"] = count + await publish(first, live_events(arguments.pods))
    del first
    leader = Term(bus, clock)
    result["full"] = await timed(leader)  # no state has been written yet
    clock.pass_by(timedelta(hours=1))
    began = time.perf_counter()
    await leader.write_round()
    result["write_all_s"] = round(time.perf_counter() - began, 2)
    standby = Term(bus, clock)
    following = asyncio.create_task(standby.reader.read(to_the_end=False))
    await publish(leader, live_events(arguments.pods // 100))
    del leader  # as if the leader's process had ended
    await standby.cache.has_read(arguments.pods // 100 * len(LIVE))
    following.cancel()
    await asyncio.wait([following])
    result["standby"] = await timed(standby)
    jobs = len(standby.cache.published.jobs)
    del standby
    state = Term(bus, clock)
    result["state"] = await timed(state)
    assert len(state.cache.published.jobs) == jobs == arguments.pods
    return result


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Start a broker and measure on it."""
    with tempfile.TemporaryDirectory() as state:
        broker = Kafka(tools.locate(), Path(state) / "kafka")
        await broker.start()
        try:
            settings = kafka.KafkaSettings(bootstrap=(broker.bootstrap,), append_timeout_s=60.0)
            async with kafka.KafkaBus(settings) as bus:
                return await measured(bus, arguments)
        finally:
            await broker.stop()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--old-events", type=int, default=500_000)
    print(json.dumps(asyncio.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
