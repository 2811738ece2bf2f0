"""The plugin ``eviction-limits``: limits when tasks may be evicted, for which job, and with how
much notice.

- ``minimum-run-time`` (none): a task is not a victim before it has run for this time.
- ``eviction-notice`` (none): a victim is notified this long before its termination.
- ``cycle-window`` (``10m``): a job does not evict tasks of a job for which it was evicted itself
  within the window, directly or through others. A job also evicts tasks of another job in no more
  sessions than it has tasks: if that does not suffice, other jobs take the room. Otherwise two jobs
  that cannot both run could evict each other without end.

A Queue's annotations ``stromboli.sh/minimum-run-time`` and ``stromboli.sh/eviction-notice``
override the arguments. Those of a PodGroup (copied from its Job) override both, up to the queue's
``...-limit`` of the same name; without a limit a job may only lower them.

The limits are vetoes: a protected task is not a candidate in any tier, for preempt, reclaim, their
gang forms and shuffle. Evictions are stored between sessions, by job uid.
"""

from datetime import datetime, timedelta

import msgspec

from stromboli.scheduler.core.config import configuration, durations
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.shared import decoding, keys
from stromboli.shared.api import meta

NAME = "eviction-limits"
WINDOW = "10m"


class EvictionRecord(msgspec.Struct, frozen=True, array_like=True):
    """The last time at which a job evicted tasks of another, and in how many sessions. Jobs by
    uid."""

    evictor: str
    victim: str
    at: datetime
    times: int = 1


class Plugin:
    """Vetoes evictions, and sets the eviction notice."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()

    def open(self, ssn: session.Session) -> None:
        """Read arguments and stored evictions. O(evictions in the window)."""
        self._session = ssn
        self._run_time = _DurationLimit(
            ssn,
            keys.MINIMUM_RUN_TIME,
            keys.MINIMUM_RUN_TIME_LIMIT,
            self._duration("minimum-run-time", "0"),
        )
        self._notice = _DurationLimit(
            ssn,
            keys.EVICTION_NOTICE,
            keys.EVICTION_NOTICE_LIMIT,
            self._duration("eviction-notice", "0"),
        )
        self._window = self._duration("cycle-window", WINDOW)
        ssn.complaints.extend(self._arguments.complaints)
        self._edges = {
            (edge.evictor, edge.victim): edge
            for edge in _decode_state(ssn.cluster.memory.get(NAME, ""), ssn.now)
            if edge.at + self._window > ssn.now
        }
        self._seen = 0
        self._above: dict[str, frozenset[str]] = {}
        ssn.add_evictable(self._is_evictable)
        ssn.add_eviction_notice(lambda task: self._notice.of(ssn.job_of(task)))

    def close(self, ssn: session.Session) -> None:
        """Store which jobs were evicted for which."""
        self._learn()
        if self._edges:
            edges = [edge for _, edge in sorted(self._edges.items())]
            ssn.remember[NAME] = msgspec.json.encode(edges).decode()

    def _is_evictable(self, job: entities.Job | None, task: entities.Task) -> bool:
        now = self._session.now
        protected = self._run_time.of(self._session.job_of(task))
        if protected > timedelta(0):
            until = durations.after(task.pod.status.start_time or now, protected)
            if not self._session.reached(until):
                return False
        victim = self._session.job_of(task)
        if job is None or victim is None or job is victim or not self._window:
            return True
        self._learn()
        if victim.uid in self._evictors_of(job.uid) or self._is_futile(job, victim.uid):
            oldest = min(edge.at for edge in self._edges.values())
            self._session.request_session_at(oldest + self._window)
            return False
        return True

    def _is_futile(self, job: entities.Job, victim: str) -> bool:
        """Return whether the victim was evicted for the job in as many sessions as the job has
        tasks: other jobs must have taken the room."""
        edge = self._edges.get((job.uid, victim))
        return edge is not None and edge.times >= len(job.tasks) and edge.at != self._session.now

    def _learn(self) -> None:
        """Record what this session has decided so far."""
        decided = self._session.decisions.evictions
        for eviction in decided[self._seen :]:
            task = self._session.model.tasks.get(eviction.task)
            evictor = self._session.jobs.get(eviction.job)
            victim = None if task is None else self._session.job_of(task)
            if evictor is not None and victim is not None and evictor is not victim:
                self._count(evictor.uid, victim.uid)
        if self._seen < len(decided):
            self._seen = len(decided)
            self._above.clear()

    def _count(self, evictor: str, victim: str) -> None:
        now = self._session.now
        before = self._edges.get((evictor, victim), EvictionRecord(evictor, victim, now, 0))
        if before.at != now or not before.times:
            self._edges[evictor, victim] = EvictionRecord(evictor, victim, now, before.times + 1)

    def _evictors_of(self, victim: str) -> frozenset[str]:
        """Return the jobs for which the victim was evicted, directly or through others. O(records),
        once per victim."""
        known = self._above.get(victim)
        if known is None:
            by_victim: dict[str, set[str]] = {}
            for evictor, evicted in self._edges:
                by_victim.setdefault(evicted, set()).add(evictor)
            evictors: set[str] = set()
            waiting = [victim]
            while waiting:
                more = by_victim.get(waiting.pop(), set()) - evictors
                evictors |= more
                waiting.extend(more)
            known = self._above[victim] = frozenset(evictors)
        return known

    def _duration(self, name: str, default: str) -> timedelta:
        text = self._arguments.text(name, default)
        try:
            return _bounded(text)
        except ValueError as error:
            self._arguments.complain(name, f"{error}; {default} is used")
            return durations.duration(default)


class _DurationLimit:
    """A duration that queues set and jobs may change within a limit."""

    def __init__(self, ssn: session.Session, key: str, most_key: str, default: timedelta) -> None:
        self._session = ssn
        self._key = key
        self._most_key = most_key
        self._default = default
        self._known: dict[str, timedelta] = {}

    def of(self, job: entities.Job | None) -> timedelta:
        """Return the duration for the job's tasks; for a pod without a job the argument."""
        if job is None:
            return self._default
        if job.key not in self._known:
            queue = self._session.queue_of(job).object
            duration = self._read(queue, self._key, f"Queue {job.queue}")
            base = self._default if duration is None else duration
            most = self._read(queue, self._most_key, f"Queue {job.queue}")
            own = self._read(job.pod_group, self._key, f"PodGroup {job.key}")
            self._known[job.key] = base if own is None else min(own, base if most is None else most)
        return self._known[job.key]

    def _read(self, obj: meta.Object, key: str, where: str) -> timedelta | None:
        text = obj.metadata.annotation(key)
        if text is None:
            return None
        try:
            return _bounded(text)
        except ValueError as error:
            complaint = f"{where}: {key}: {error}; it is ignored"
            if complaint not in self._session.complaints:
                self._session.complaints.append(complaint)
            return None


LONGEST = timedelta(days=36500)


def _bounded(text: str) -> timedelta:
    """Return the duration, at least zero. Raises ValueError."""
    duration = durations.duration(text)
    if not timedelta(0) <= duration <= LONGEST:
        raise ValueError(f"{text!r} is below zero or above a hundred years")
    return duration


def _decode_state(text: str, now: datetime) -> list[EvictionRecord]:
    """Return the stored records. A time in the future (the clock was set back since) counts as
    now."""
    try:
        eviction_records = decoding.from_json(text, list[EvictionRecord]) if text else []
    except msgspec.DecodeError:
        return []
    return [msgspec.structs.replace(edge, at=min(edge.at, now)) for edge in eviction_records]
