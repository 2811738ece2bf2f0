"""The plugin ``least-attained-service``: jobs that have used least are served first.

The attained service of a job is what its tasks have held of one resource, times how long: GPU-hours
for ``nvidia.com/gpu``. It needs no run times: where these differ much, a job that has used little
is likely to end soon. Evicting the others for it shortens the mean completion time.

Rules:

1. Thresholds divide attained service into levels; a job of a lower level is served first. Within a
   level other plugins and the age decide, and nothing is evicted for this order: compared by exact
   service, two jobs would evict each other in turn.
2. Where an action evicts, a job may evict tasks of jobs that have a higher level and, as for any
   preemption, are in its queue. A job reaches the next level at a known time, and a session runs
   then.
3. A job that has waited for ``waits-at-most``, since its creation or since it was last evicted,
   precedes all that have not, in the order of creation. Once it runs, it keeps this position and is
   not evicted by rule 2. So no job waits, or loses its work, indefinitely.
4. Service survives evictions: when a session evicts tasks of a job, the job's service and the time
   are stored in the session's memory, which is on the log, so it survives a restart of the
   scheduler, too. From then on only later time is added. Service is not stored when pods are lost
   in other ways, such as with a failed node.
5. A task counts from its start to its end (the time of its condition ``Ready``) or until now.

Arguments: ``resource`` (``nvidia.com/gpu``): a job that does not request it remains in the first
level; ``thresholds`` (``1h, 10h``), for one unit of it, ascending; ``waits-at-most`` (24h). Cost:
O(tasks) for each job that is compared or may be a victim; equal tasks are summed at once. Memory:
one record for each unfinished job that was evicted.

Source: discretized 2D-LAS of Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep
Learning, NSDI 2019, https://www.usenix.org/conference/nsdi19/presentation/gu.
"""

import bisect
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from stromboli.scheduler.core.config import configuration, durations
from stromboli.scheduler.core.framework import run_times, session
from stromboli.scheduler.core.model import entities, requirements
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import decoding
from stromboli.shared.formats import units

NAME = "least-attained-service"
THRESHOLDS, LONGEST_WAIT = "1h, 10h", "24h"
KEPT_WITHOUT_JOB = timedelta(minutes=10)
"""How long the service of a job without a PodGroup is kept. A restarted job gets a new one of the
same name within seconds."""
_WAITED = -1
"""The level of rule 3."""
_MICROSECOND = timedelta(microseconds=1)


class ServiceRecord(msgspec.Struct, frozen=True, array_like=True):
    """The service that a job had attained when its tasks were last evicted.

    ``service``: amount x microseconds; a text, because it may exceed 64 bits.
    ``without_job_since``: since when the job has no PodGroup.
    """

    job: str
    service: str
    at: datetime
    without_job_since: datetime | None = None


class Plugin:
    """Orders jobs by the level of their attained service, and chooses victims of higher levels."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()
        self._resource = self._arguments.text("resource", requirements.GPU)
        self._limit = self._longest_wait()
        unit = units.amounts({self._resource: 1})[self._resource]
        self._thresholds = [unit * (each // _MICROSECOND) for each in self._spans()]
        self._services: dict[str, tuple[int, int]] = {}
        self._keys: dict[str, tuple[int, float]] = {}

    def open(self, ssn: session.Session) -> None:
        """Register, and read the stored service of evicted jobs. O(records)."""
        ssn.complaints.extend(self._arguments.complaints)
        self._session = ssn
        names = ssn.resources.names
        self._column = names.index(self._resource) if self._resource in names else None
        memory = ssn.cluster.memory.get(NAME, "")
        self._records = {each.job: each for each in _decode_records(memory, ssn.now)}
        ssn.add_job_order(key=self._key)
        ssn.add_preemptable(self._preemptable)
        ssn.add_unified_evictable(self._evictable)

    def close(self, ssn: session.Session) -> None:
        """Store the service of jobs whose tasks this session evicts. O(records + evictions)."""
        tasks = (ssn.model.tasks.get(each.task) for each in ssn.decisions.evictions)
        for key in {task.job for task in tasks if task is not None and task.job in ssn.jobs}:
            service, _ = self._service(ssn.jobs[key])
            self._records[key] = ServiceRecord(key, str(service), ssn.now)
        if self._records:
            kept = [self._kept(each) for _, each in sorted(self._records.items())]
            ssn.remember[NAME] = msgspec.json.encode([each for each in kept if each]).decode()

    def _kept(self, record: ServiceRecord) -> ServiceRecord | None:
        """Return the record for the next session; None if its job has had no PodGroup for
        ``KEPT_WITHOUT_JOB``."""
        if record.job in self._session.jobs:
            return msgspec.structs.replace(record, without_job_since=None)
        since = record.without_job_since or self._session.now
        if self._session.now >= durations.after(since, KEPT_WITHOUT_JOB):
            return None
        return msgspec.structs.replace(record, without_job_since=since)

    # Arguments ----------------------------------------------------------------------------------

    def _longest_wait(self) -> timedelta:
        text = self._arguments.text("waits-at-most", LONGEST_WAIT)
        duration = _span(text)
        if duration is not None:
            return duration
        wanted = "a duration above 0 such as 30m or 24h"
        return durations.duration(
            self._arguments.record_invalid("waits-at-most", text, wanted, LONGEST_WAIT)
        )

    def _spans(self) -> list[timedelta]:
        text = self._arguments.text("thresholds", THRESHOLDS)
        parsed_thresholds = [_span(part.strip()) for part in text.split(",")]
        spans = [each for each in parsed_thresholds if each is not None]
        if len(spans) == len(parsed_thresholds) and spans == sorted(set(spans)):
            return spans
        wanted = "a list of ascending durations above 0 such as 1h, 10h"
        text = self._arguments.record_invalid("thresholds", text, wanted, THRESHOLDS)
        return [durations.duration(part.strip()) for part in text.split(",")]

    # Levels -------------------------------------------------------------------------------------

    def _key(self, job: entities.Job) -> tuple[int, float]:
        """Return the level, and for jobs that waited too long their creation time. It does not
        change within a session."""
        if job.key not in self._keys:
            has_waited = self._has_waited(job)
            level = _WAITED if has_waited else self._level(job)
            self._keys[job.key] = level, job.created.timestamp() if has_waited else 0.0
        return self._keys[job.key]

    def _has_waited(self, job: entities.Job) -> bool:
        """Return whether the job waits, or waited before its present start, for the limit."""
        record = self._records.get(job.key)
        since = job.created if record is None else max(job.created, record.at)
        until = durations.after(since, self._limit)
        if not job.is_ready:
            return self._session.reached(until)
        starts = (task.pod.status.start_time for task in job.tasks.values())
        started = min((each for each in starts if each is not None), default=self._session.now)
        return started >= until

    def _level(self, job: entities.Job) -> int:
        """Return the level by attained service, and request a session at the next one."""
        service, rate = self._service(job)
        level = bisect.bisect_right(self._thresholds, service)
        if rate and level < len(self._thresholds):
            left = -(-(self._thresholds[level] - service) // rate)
            if left < run_times.NO_END // _MICROSECOND:
                self._session.request_session_at(
                    durations.after(self._session.now, left * _MICROSECOND)
                )
        return level

    def _service(self, job: entities.Job) -> tuple[int, int]:
        """Return amount x microseconds attained, and the amount by which it grows now."""
        if job.key not in self._services:
            self._services[job.key] = self._sum(job)
        return self._services[job.key]

    def _sum(self, job: entities.Job) -> tuple[int, int]:
        if self._column is None:
            return 0, 0
        now = self._session.now
        record = self._records.get(job.key)
        service, rate = (0, 0) if record is None else (int(record.service), 0)
        counts: dict[tuple[int, datetime, datetime | None], int] = {}
        for status, tasks in job.by_status.items():
            for task in tasks.values():
                start = task.pod.status.start_time
                amount = int(task.request[self._column])
                if start is not None and amount:
                    end = _end(task) or start if status in entities.COMPLETED else None
                    kind = amount, start, end
                    counts[kind] = counts.get(kind, 0) + 1
        for (amount, start, end), count in counts.items():
            begin = start if record is None else max(start, record.at)
            span = min(end or now, now) - begin
            service += amount * count * max(span // _MICROSECOND, 0)
            rate += 0 if end else amount * count
        return service, rate

    # Victims ------------------------------------------------------------------------------------

    def _preemptable(
        self, preemptor: entities.Task, candidates: Sequence[entities.Task]
    ) -> extension_points.Victims:
        job = self._session.job_of(preemptor)
        return extension_points.Victims([] if job is None else self._of_higher(job, candidates))

    def _evictable(
        self, action: str, job: entities.Job, candidates: Sequence[entities.Task]
    ) -> extension_points.Victims:
        """Return all candidates of other queues: levels are compared within a queue."""
        if action == "gangreclaim":
            return extension_points.Victims(candidates)
        return extension_points.Victims(self._of_higher(job, candidates))

    def _of_higher(
        self, job: entities.Job, candidates: Sequence[entities.Task]
    ) -> list[entities.Task]:
        level, _ = self._key(job)
        others = ((task, self._session.job_of(task)) for task in candidates)
        return [task for task, other in others if other is not None and self._key(other)[0] > level]


def _end(task: entities.Task) -> datetime | None:
    """Return when a completed task ended; None if it is not reported."""
    conditions = task.pod.status.conditions
    times = (each.last_transition_time for each in conditions if each.type == "Ready")
    return next(times, None)


def _span(text: str) -> timedelta | None:
    """Return a duration above 0 and below a hundred years; None for any other text."""
    try:
        duration = durations.duration(text)
    except ValueError:
        return None
    return duration if timedelta() < duration < run_times.NO_END else None


def _decode_records(text: str, now: datetime) -> list[ServiceRecord]:
    """Return the stored records; none if they cannot be read. A time in the future (the clock was
    set back since) counts as now."""
    try:
        service_records = decoding.from_json(text, list[ServiceRecord]) if text else []
    except msgspec.DecodeError:
        return []
    return [
        msgspec.structs.replace(each, at=min(each.at, now))
        for each in service_records
        if each.service.isdecimal()
    ]
