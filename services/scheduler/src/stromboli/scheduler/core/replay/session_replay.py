"""Sessions run again: their records, the log up to the offsets in them, and the configurations.

The cache is folded on from record to record, so a whole history costs its records once and its
sessions once. Compacted snapshots are no history; ``cluster.changes`` is (see ``history``). What a
session had folded and is not there is counted (``Again.missing``), and such a session may well
decide otherwise.
"""

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from stromboli.scheduler.core import plugins, policy, schedule
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import opening, session_inputs
from stromboli.shared import envelope, topics
from stromboli.shared.messages import scheduling as messages


class ReplayedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it was recorded, and as it went when it was run again.

    ``problem``: why it could not be run again; empty if it was. ``missing``: topic -> records that
    the session had folded and that were not given.
    """

    record: messages.SessionRecorded
    recorded: tuple[messages.StatementDecided, ...]
    decided: tuple[messages.StatementDecided, ...] = ()
    problem: str = ""
    missing: Mapping[str, int] = {}

    @property
    def is_same(self) -> bool:
        """It decided the same, byte for byte."""
        return not self.problem and _encoded(self.recorded) == _encoded(self.decided)


def replay_sessions(
    records: Iterable[envelope.Record],
    configurations: Iterable[configuration.Configuration],
    by: policy.Policy,
    find: opening.FindPlugin = plugins.find,
    whole_from: Mapping[str, int] | None = None,
    instead: configuration.Configuration | None = None,
) -> Iterator[ReplayedSession]:
    """Every recorded session of a log, run again, in the order of the log.

    ``configurations``: those that were in force, known by their digests. ``by``: whose pods we act
    on. ``whole_from``: topic -> the offset before which only each key's last record is given; for a
    session before that, what it had folded is not known. ``instead``: decide by this configuration,
    whatever was in force; each session starts from what really came of those before it.
    O(records + sessions).
    """
    known = {each.digest: each for each in configurations}
    by_topic: dict[str, list[envelope.Record]] = defaultdict(list)
    for record in records:
        if record.topic in cluster_cache.TOPICS:
            by_topic[record.topic.name].append(record)
    for of_topic in by_topic.values():
        of_topic.sort(key=lambda each: each.offset)
    cache, memory = cluster_cache.ClusterCache(by.scheduler_names), session_inputs.RecordedInputs()
    reached: dict[str, int] = {}
    for found, recorded in _sessions(by_topic[topics.DECISIONS.name]):
        _materialize(cache, by_topic, reached, found.offsets)
        how = instead or known.get(found.configuration)
        if how is None:
            problem = f"no configuration with the digest {found.configuration} is given"
            yield ReplayedSession(record=found, recorded=recorded, problem=problem)
            continue
        missing = {
            topic.name: lacking
            for topic in cluster_cache.TOPICS
            if (
                lacking := _count_missing(
                    by_topic[topic.name],
                    reached.get(topic.name, 0),
                    found.offsets.get(topic.name, 0),
                    (whole_from or {}).get(topic.name, 0),
                )
            )
        }
        how_then = msgspec.structs.replace(by, configured=how)
        again = _replay_session(cache, memory, found, recorded, how_then, find)
        yield msgspec.structs.replace(again, missing=missing)


def _replay_session(
    cache: cluster_cache.ClusterCache,
    memory: session_inputs.RecordedInputs,
    found: messages.SessionRecorded,
    recorded: tuple[messages.StatementDecided, ...],
    by: policy.Policy,
    find: opening.FindPlugin,
) -> ReplayedSession:
    cache.world.set_default_queue(by.configured.default_queue)
    cache.sessions_may_evict = bool(policy.EVICTING_ACTIONS.intersection(by.configured.actions))
    try:
        given, plugin_failures = memory.told(found.answers)
    except LookupError as error:
        return ReplayedSession(record=found, recorded=recorded, problem=str(error))
    decided = schedule.run_session(
        cache, found.now, by, found.seed, given=given, find=find, plugin_failures=plugin_failures
    )
    cache.finish_session(is_throttled=decided.is_throttled)
    return ReplayedSession(record=found, recorded=recorded, decided=decided.decisions)


def _sessions(
    decisions: Iterable[envelope.Record],
) -> Iterator[tuple[messages.SessionRecorded, tuple[messages.StatementDecided, ...]]]:
    """Each session's record with its statements, which are before it. A repeated append leaves
    either twice; they count once. What was published again is of no session."""
    statements: dict[int, dict[str, messages.StatementDecided]] = defaultdict(dict)
    seen: set[int] = set()
    for record in decisions:
        message = envelope.decode(record)
        if isinstance(message, messages.StatementDecided) and not message.decision:
            statements[message.session].setdefault(message.pod_group, message)
        elif isinstance(message, messages.SessionRecorded) and message.session not in seen:
            seen.add(message.session)
            yield message, tuple(statements.pop(message.session, {}).values())


def _materialize(
    cache: cluster_cache.ClusterCache,
    by_topic: Mapping[str, list[envelope.Record]],
    reached: dict[str, int],
    offsets: Mapping[str, int],
) -> None:
    """Fold on up to these offsets."""
    for name, of_topic in by_topic.items():
        at = reached.get(name, 0)
        while at < len(of_topic) and of_topic[at].offset < offsets.get(name, 0):
            cache.apply(of_topic[at])
            at += 1
        reached[name] = at
    cache.advance(offsets)


def _count_missing(given: Sequence[envelope.Record], folded: int, end: int, whole_from: int) -> int:
    """How many records before ``end`` are not among the first ``folded`` that should be."""
    if end < whole_from:
        return whole_from - end
    first = bisect.bisect_left(given, whole_from, hi=folded, key=lambda each: each.offset)
    return end - whole_from - (folded - first)


def _encoded(statements: Iterable[messages.StatementDecided]) -> list[bytes]:
    return [msgspec.json.encode(statement) for statement in statements]
