"""Replays recorded sessions from the log, up to each session's offsets, with the configurations
used.

The cache is advanced from session to session, so a whole log is read once and each session runs
once. Compacted topics lack older versions of objects and plans; ``cluster.changes`` has them (see
``snapshot_history``). Records are counted as missing (``ReplayedSession.missing``) if a session had
read them and its decisions depend on them; the replay of such a session may decide differently.
These records do not count as missing:

- records that no service reads: announcements of epochs and records of replaced writers;
- decisions and outcomes that were finished before the session, which retention may have removed:
  the record of the session has the offsets from which a restart reads (``unconfirmed_from``);
- explanations: a session compares with them to publish what changed, and decides nothing by them.
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
from stromboli.scheduler.core.replay import snapshot_history
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
    past: snapshot_history.SnapshotHistory = snapshot_history.EMPTY,
    instead: configuration.Configuration | None = None,
    last: int | None = None,
) -> Iterator[ReplayedSession]:
    """Replay every recorded session of a log, in the order of the log. O(records + sessions).

    ``configurations``: the configurations that were in force, identified by their digests. ``by``:
    the scheduler names whose pods count. ``past``: the history of topics that are incomplete or
    absent in ``records``. ``instead``: a configuration that replaces the recorded one; each session
    still starts from the decisions that were really made before it. ``last``: number of sessions at
    the end of the log that are replayed and returned; None: all.
    """
    known = {each.digest: each for each in configurations}
    by_topic: dict[str, list[envelope.Record]] = defaultdict(list)
    copied = {record.topic.name for record in past.records}
    for record in records:
        if record.topic in subscriptions.TOPICS and record.topic.name not in copied:
            by_topic[record.topic.name].append(record)
    for record in past.records:
        by_topic[record.topic.name].append(record)
    for of_topic in by_topic.values():
        of_topic.sort(key=lambda each: each.offset)
    cache, memory = cluster_cache.ClusterCache(by.scheduler_names), session_inputs.RecordedInputs()
    reached: dict[str, int] = {}
    sessions = list(_sessions(by_topic[topics.DECISIONS.name]))
    skipped = 0 if last is None else max(0, len(sessions) - last)
    for number, (session_record, recorded) in enumerate(sessions):
        _materialize(cache, by_topic, reached, session_record.offsets)
        if number < skipped:
            with contextlib.suppress(LookupError):  # a session that is run reports it
                memory.inputs_for(session_record.answers)
            cache.finish_session(is_throttled=False)
            continue
        how = instead or known.get(session_record.configuration)
        if how is None:
            problem = (
                f"no given configuration has the digest {session_record.configuration}: pass it "
                "with --config FILE"
            )
            yield ReplayedSession(record=session_record, recorded=recorded, problem=problem)
            continue
        missing = {
            topic.name: lacking
            for topic in _DECIDING
            if not _has_newest(topic, by_topic[topic.name], reached.get(topic.name, 0))
            and (
                lacking := _count_missing(
                    by_topic[topic.name], reached.get(topic.name, 0), topic, session_record, past
                )
            )
        }
        how_then = msgspec.structs.replace(by, configured=how)
        again = _replay_session(cache, memory, session_record, recorded, how_then, find)
        yield msgspec.structs.replace(again, missing=missing)


def _replay_session(
    cache: cluster_cache.ClusterCache,
    memory: session_inputs.RecordedInputs,
    session_record: messages.SessionRecorded,
    recorded: tuple[messages.StatementDecided, ...],
    by: policy.Policy,
    find: opening.FindPlugin,
) -> ReplayedSession:
    cache.model.set_default_queue(by.configured.default_queue)
    cache.sessions_may_evict = bool(policy.EVICTING_ACTIONS.intersection(by.configured.actions))
    try:
        inputs, plugin_failures = memory.inputs_for(session_record.answers)
    except LookupError as error:
        return ReplayedSession(record=session_record, recorded=recorded, problem=str(error))
    decided = schedule.run_session(
        cache,
        session_record.now,
        by,
        session_record.seed,
        inputs=inputs,
        find=find,
        plugin_failures=plugin_failures,
    )
    cache.finish_session(is_throttled=decided.is_throttled)
    return ReplayedSession(record=session_record, recorded=recorded, decided=decided.decisions)


def _sessions(
    decisions: Iterable[envelope.Record],
) -> Iterator[tuple[messages.SessionRecorded, tuple[messages.StatementDecided, ...]]]:
    """Each session's record with its statements, which precede it.

    A repeated append leaves records twice; they count once. Republications belong to no session.
    """
    statements: dict[int, dict[str, messages.StatementDecided]] = defaultdict(dict)
    session_numbers: set[int] = set()
    for record in decisions:
        message = envelope.decode(record)
        if isinstance(message, messages.StatementDecided) and not message.decision:
            statements[message.session].setdefault(message.pod_group, message)
        elif (
            isinstance(message, messages.SessionRecorded) and message.session not in session_numbers
        ):
            session_numbers.add(message.session)
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
_DECIDING = tuple(topic for topic in subscriptions.TOPICS if topic != topics.EXPLANATIONS)
"""The topics on which decisions depend."""


def _has_newest(topic: topics.Topic, records: Sequence[envelope.Record], folded: int) -> bool:
    """Whether a compacted topic of messages has no record after those that the session had read: a
    later one could have replaced one of them. Then the newest record of each key is present, and
    older ones do not matter."""
    return topic.is_compacted and topic not in _SNAPSHOTS and folded == len(records)


def _count_missing(
    records: Sequence[envelope.Record],
    folded: int,
    topic: topics.Topic,
    session_record: messages.SessionRecorded,
    past: snapshot_history.SnapshotHistory,
) -> int:
    """How many records that the session had read are missing among the first ``folded`` ones."""
    end = session_record.offsets.get(topic.name, 0)
    complete_from = past.complete_from.get(topic.name, 0)
    begin = complete_from if end >= complete_from else 0
    if topic in (topics.DECISIONS, topics.OUTCOMES):
        begin = (
            session_record.unconfirmed_from
            if topic == topics.DECISIONS
            else session_record.outcomes_from
        )
    unread = past.unread.get(topic.name, ())
    first = bisect.bisect_left(records, begin, hi=folded, key=lambda each: each.offset)
    passed = bisect.bisect_left(unread, end) - bisect.bisect_left(unread, begin)
    missing = end - begin - (folded - first) - passed
    # Of the records before a complete state, those that were replaced before the session do not
    # count. The others were replaced by records between the session and that state.
    return min(missing, complete_from - end) if end < complete_from else missing


def _encoded(statements: Iterable[messages.StatementDecided]) -> list[bytes]:
    # The log sorts the keys of maps, such as the annotations of a bind.
    return [msgspec.json.encode(statement, order="deterministic") for statement in statements]
