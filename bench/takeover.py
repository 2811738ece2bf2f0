"""How long a new leader of the controller reads what was published: ``python -m bench.takeover``.

A real Kafka broker. One term publishes three events for each of ``--pods`` live one-pod jobs,
behind ``--old-events`` events of jobs that are gone, and writes its state. Measured are, in seconds
of wall clock: a cold start from the state (``state_s``), a cold start without a state, which reads
all events (``full_s``), and a standby that has followed both topics (``standby_s``). The cluster's
snapshots are not part of it: a standby has read them before. The last line is one JSON.
"""

import argparse
import asyncio
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
    """Events of one-pod jobs that have ended and are gone, five for each job."""
    for number in range(count // 5):
        job = f"default/old-{number}"
        yield from (pod_event(job, 0, after) for after in (*LIVE, "Gone"))
        yield messages.JobDeleted(job=job, uid=f"uid-{job}", at=builders.NOON)


def live_events(pods: int) -> Iterator[Event]:
    """Events of one-pod jobs whose pods run."""
    for number in range(pods):
        yield from (pod_event(f"default/live-{number}", 0, after) for after in LIVE)


async def publish(term: Term, events: Iterator[Event]) -> int:
    """Publish all events. Returns how many there were."""
    count = 0
    while some := list(itertools.islice(events, AT_ONCE)):
        await term.publish(some)
        count += len(some)
    return count


async def timed(term: Term) -> tuple[float, int]:
    """Become the leader. Returns the seconds, and how many events were read."""
    began = time.perf_counter()
    await term.begin()
    return round(time.perf_counter() - began, 2), term.cache.events


async def measured(bus: port.Bus, arguments: argparse.Namespace) -> dict[str, Any]:
    """Fill the log and measure the takeovers."""
    clock = Clock()
    first = Term(bus, clock)
    full_before, _ = await timed(first)
    count = await publish(first, old_events(arguments.old_events))
    count += await publish(first, live_events(arguments.pods))
    full = Term(bus, clock)
    full_s, full_events = await timed(full)  # there is no state yet
    clock.pass_by(timedelta(hours=1))
    began = time.perf_counter()
    await full.write_round()
    round_s = round(time.perf_counter() - began, 2)
    standby = Term(bus, clock)
    following = asyncio.create_task(standby.reader.read(to_the_end=False))
    await publish(full, live_events(arguments.pods // 100))
    await standby.cache.has_read(arguments.pods // 100 * len(LIVE))
    following.cancel()
    await asyncio.wait([following])
    standby_s, _ = await timed(standby)
    state = Term(bus, clock)
    state_s, state_events = await timed(state)
    assert state.cache.published.jobs == full.cache.published.jobs
    return {
        "pods": arguments.pods,
        "events": count,
        "empty_log_s": full_before,
        "full_s": full_s,
        "full_events": full_events,
        "write_all_s": round_s,
        "state_s": state_s,
        "state_events": state_events,
        "standby_s": standby_s,
    }


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Start a broker and measure on it."""
    with tempfile.TemporaryDirectory() as state:
        broker = Kafka(tools.locate(), Path(state) / "kafka")
        await broker.start()
        try:
            given = kafka.KafkaSettings(bootstrap=(broker.bootstrap,), append_timeout_s=60.0)
            async with kafka.KafkaBus(given) as bus:
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
