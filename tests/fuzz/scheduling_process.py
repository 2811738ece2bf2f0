"""A scheduling process that receives objects at the limits of their types, for any time.

Objects pass through the monitor's projection, the log and the engine. The decisions are applied,
and sometimes a node, a pod or everything is deleted. No step may raise, no plugin may fail, no
object may be isolated by accident, and when all objects are deleted no memory remains in use.
"""

import gc
import math
import time
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from stromboli.monitor.core import projection
from stromboli.scheduler import engine
from stromboli.scheduler.core import actions, plugins, policy
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.scheduler.core.config import config_reader
from stromboli.shared import envelope, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import port
from stromboli.shared.messages import cluster
from stromboli.testkit import builders, topic_log
from tests.fuzz import object_generator
from tests.fuzz.engine import CONFIRMATIONS, FindingError, Result

EPOCH = 5
MAX_PER_ROUND = 6
"""Objects between two sessions."""
MAX_OBJECTS = 60
ROUNDS_PER_PROCESS = 40
MAX_GROWTH = 32 * 2**20
"""Bytes that the process may hold more after any number of lives than after the first."""
LONGEST_S = 5.0
"""CPU seconds that a session over a few objects may take."""
EXTERNAL_ANSWERS = {"extender"}
"""Plugins that call other processes."""
DEFAULT_OPTIONS: dict[str, Any] = dict(config_reader.DEFAULT)
ALL_PLUGINS: dict[str, Any] = {
    "actions": ", ".join(["enqueue", *sorted(actions.NAMES - {"enqueue"})]),
    "tiers": [{"plugins": [{"name": name} for name in sorted(plugins.NAMES - EXTERNAL_ANSWERS)]}],
}


class ProcessUnderTest:
    """One process, and the log it reads."""

    def __init__(self, random: Random, document: dict[str, Any]) -> None:
        configured = config_reader.read_configuration(document, actions.NAMES, plugins.NAMES)
        by = policy.Policy(configured=configured)
        self.random = random
        self.now = builders.NOON
        self.log = topic_log.TopicLog()
        self.engine = engine.Engine(by, 0, EPOCH, timedelta(days=10**5))
        self.there: dict[tuple[str, str], tuple[kinds.Kind[Any], str]] = {}
        self.objects = 0
        self.decided = 0
        self.longest_s = 0.0
        synced = (
            cluster.KindSynced(
                kind=kind.plural, state="synced", resource_version="1", at=builders.NOON
            )
            for kind in cluster_cache.KINDS
        )
        self.step([self._append(topics.SYNC, each.kind, each) for each in synced])

    def step(self, records: list[envelope.Record]) -> None:
        """Fold the records, decide, and take in the decisions. Raises FindingError."""
        positions = {record.topic.name: record.offset + 1 for record in records}
        batch = port.Batch(
            tuple(records),
            port.Position(positions),
            caught_up=True,
            at_end={topics.SYNC.name: 0.0},  # without it the monitor's sign of life has no age
        )
        self.now += timedelta(seconds=self.random.choice((0, 1, 61)))
        began = time.process_time()
        step = self.engine.step([batch], self.now, may_decide=True)
        self.longest_s = max(self.longest_s, time.process_time() - began)
        failed = step.warnings.get("plugins")
        if failed:
            raise FindingError(failed)
        left_out = self.engine.cache.quarantine.complaints()
        if left_out:
            raise FindingError("; ".join(left_out))
        if step.publication is not None and step.publication.decisions:
            self.decided += len(step.publication.decisions)
            self.step([self.log.append(each, epoch=EPOCH) for each in step.publication.decisions])

    def show(self) -> list[envelope.Record]:
        """A few odd objects."""
        records = []
        for _ in range(self.random.randrange(1, MAX_PER_ROUND)):
            kind, document = object_generator.document(self.random)
            record = self._shown(kind, document)
            records += [record] if record is not None else []
        while len(self.there) > MAX_OBJECTS:
            records.append(self._gone(self.random.choice(list(self.there))))
        return records

    def live(self) -> None:
        """All rounds of the process, at whose end all objects go."""
        for _ in range(ROUNDS_PER_PROCESS):
            records = self.show()
            self.objects += len(records)
            self.step(records)
        self.clear()

    def clear(self) -> None:
        """All objects go."""
        self.step([self._gone(key) for key in list(self.there)])

    def _shown(self, kind: kinds.Kind[Any], document: dict[str, Any]) -> envelope.Record | None:
        metadata = document.get("metadata")
        if isinstance(metadata, dict):
            # What an API server gives to each object, whatever its client sent.
            metadata["resourceVersion"] = str(len(self.log.records) + 1)
            names = (kind.plural, metadata.get("namespace"), metadata.get("name"))
            metadata["uid"] = f"{names}-{self.random.randrange(2)}"
        try:
            observed = projection.observe(kind, msgspec.json.encode(document))
        except (msgspec.DecodeError, ValueError):
            return None  # no name: no API server has such an object
        if not observed.identity.key.strip("/"):
            return None
        self.there[kind.plural, observed.identity.key] = kind, observed.identity.uid
        return self._append(topics.SNAPSHOTS[kind], observed.identity.key, observed.message)

    def _gone(self, at: tuple[str, str]) -> envelope.Record:
        kind, uid = self.there.pop(at)
        tombstone = envelope.Draft(
            topic=topics.SNAPSHOTS[kind],
            key=at[1],
            message=None,
            time=self.now,
            object_uid=uid or "none",
            object_version=str(len(self.log.records) + 1),
        )
        return self.log.append(tombstone)

    def _append(self, topic: topics.Topic, key: str, message: msgspec.Struct) -> envelope.Record:
        return self.log.append(envelope.Draft(topic=topic, key=key, message=message, time=self.now))


def run(seed: str, document: dict[str, Any], *, rounds: int = 0, seconds: float = 0) -> Result:
    """Run this number of rounds, or seconds. Raises FindingError, or the exception that ended the
    process.
    """
    random = Random(seed)
    until = time.monotonic() + seconds
    result = Result(f"scheduling, {seed}")
    resident: list[int] = []
    while len(resident) * ROUNDS_PER_PROCESS < rounds or time.monotonic() < until:
        life = _life(random, document)
        result.inputs += life.objects
        result.longest_s = max(result.longest_s, life.longest_s)
        result.outcomes["lives"] += 1
        result.outcomes["decisions"] += life.decided
        del life
        gc.collect()
        resident.append(resident_bytes())
    if resident[-1] - resident[0] > MAX_GROWTH:
        raise FindingError(f"{resident[-1] - resident[0]} bytes more than after the first life")
    result.outcomes["MiB at first"] = resident[0] // 2**20
    result.outcomes["MiB at the end"] = resident[-1] // 2**20
    return result


def _life(random: Random, document: dict[str, Any]) -> ProcessUnderTest:
    """A process that has lived. A slow life is repeated: an input that is slow is slow each
    time. Raises FindingError if it is."""
    state, longest_s = random.getstate(), math.inf
    for _ in range(1 + CONFIRMATIONS):
        random.setstate(state)
        life = ProcessUnderTest(random, document)
        life.live()
        if life.longest_s <= LONGEST_S:
            return life
        longest_s = min(longest_s, life.longest_s)
    raise FindingError(f"a step took {longest_s:.1f} s")


def resident_bytes() -> int:
    """What the process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
