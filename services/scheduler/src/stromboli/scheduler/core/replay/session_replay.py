"""Replays recorded sessions from the log, up to each session's offsets, with the configurations
used.

The cache is advanced from session to session, so a whole log is read once and each session runs
once. The compacted snapshot topics lack older versions of objects; ``cluster.changes`` has them
(see ``snapshot_history``). Records that a session had read and that are missing are counted
(``ReplayedSession.missing``); the replay of such a session may decide differently.
"""

import bisect
import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from stromboli.scheduler.core import plugins, policy, schedule
from stromboli.scheduler.core.cache import cluster_cache, subscriptions
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import opening, session_inputs
from stromboli.shared import envelope, topics
from stromboli.shared.messages import scheduling as messages


class ReplayedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded session and its replay.

    ``problem``: why it could not be replayed; empty if it was. ``missing``: topic -> number of
    records that the session had read and that were not given.
    """

    record: messages.SessionRecorded
    recorded: tuple[messages.StatementDecided, ...]
    decided: tuple[messages.StatementDecided, ...] = ()
    problem: str = ""
    missing: Mapping[str, int] = {}

    @property
    def is_same(self) -> bool:
        """Whether the replay decided the same, byte for byte."""
        return not self.problem and _encoded(self.recorded) == _encoded(self.decided)


def replay_sessions(
    records: Iterable[envelope.Record],
    configurations: Iterable[configuration.Configuration],
    by: policy.Policy,
    find: opening.FindPlugin = plugins.find,
    whole_from: Mapping[str, int] | None = None,
    instead: configuration.Configuration | None = None,
    last: int | None = None,
) -> Iterator[ReplayedSession]:
    """Replay every recorded session of a log, in the order of the log. O(records + sessions).

    ``configurations``: the configurations that were in force, identified by their digests. ``by``:
    the scheduler names whose pods count. ``whole_from``: topic -> offset before which only the last
    record of each key is given. ``instead``: a configuration that replaces the recorded one; each
    session still starts from the decisions that were really made before it. ``last``: number of
    sessions at the end of the log that are replayed and returned; None: all.
    """
    known = {each.digest: each for each in configurations}
    by_topic: dict[str, list[envelope.Record]] = defaultdict(list)
    for record in records:
        if record.topic in subscriptions.TOPICS:
            by_topic[record.topic.name].append(record)
    for of_topic in by_topic.values():
        of_topic.sort(key=lambda each: each.offset)
    cache, memory = cluster_cache.ClusterCache(by.scheduler_names), session_inputs.RecordedInputs()
    reached: dict[str, int] = {}
    sessions = list(_sessions(by_topic[topics.DECISIONS.name]))
    skipped = 0 if last is None else max(0, len(sessions) - last)
    for number, (found, recorded) in enumerate(sessions):
        _materialize(cache, by_topic, reached, found.offsets)
        if number < skipped:
            with contextlib.suppress(LookupError):  # a session that is run reports it
                memory.inputs_for(found.answers)
            cache.finish_session(is_throttled=False)
            continue
        how = instead or known.get(found.configuration)
        if how is None:
            problem = f"no configuration with the digest {found.configuration} was given"
            yield ReplayedSession(record=found, recorded=recorded, problem=problem)
            continue
        missing = {
            topic.name: lacking
            for topic in subscriptions.TOPICS
            if not _has_newest(topic, by_topic[topic.name], reached.get(topic.name, 0))
            and (
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
        given, plugin_failures = memory.inputs_for(found.answers)
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
    """Each session's record with its statements, which precede it.

    A repeated append leaves records twice; they count once. Republications belong to no session.
    """
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
    """Apply records up to these offsets."""
    for name, of_topic in by_topic.items():
        at = reached.get(name, 0)
        while at < len(of_topic) and of_topic[at].offset < offsets.get(name, 0):
            cache.apply(of_topic[at])
            at += 1
        reached[name] = at
    cache.advance(offsets)


_SNAPSHOTS = frozenset(topics.SNAPSHOTS.values())


def _has_newest(topic: topics.Topic, given: Sequence[envelope.Record], folded: int) -> bool:
    """Whether a compacted topic of messages has no later record that could have replaced one which
    the session read. Then the newest of each key are there, and older ones changed nothing."""
    return topic.is_compacted and topic not in _SNAPSHOTS and folded == len(given)


def _count_missing(given: Sequence[envelope.Record], folded: int, end: int, whole_from: int) -> int:
    """How many records before ``end`` are missing among the first ``folded`` records."""
    if end < whole_from:
        return whole_from - end
    first = bisect.bisect_left(given, whole_from, hi=folded, key=lambda each: each.offset)
    return end - whole_from - (folded - first)


def _encoded(statements: Iterable[messages.StatementDecided]) -> list[bytes]:
    return [msgspec.json.encode(statement) for statement in statements]
