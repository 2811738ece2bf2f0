"""The event history as records of ``batch.state``, so that a new leader reads few events.

``batch.events`` keeps 14 days. A leader that restores its history from these records reads only the
events after them. Rules:

1. *The event first.* A record contains only events that are acknowledged. An event whose append was
   not acknowledged is recorded as unsure, as in the history.
2. *Chunks.* The key ``job`` holds what was published about the job and the first chunk of its home
   task (the task of its first pod), so a small job is one record. Each further run of
   ``CHUNK_INDEXES`` indexes of a task has its own key. A change rewrites one chunk. A chunk with
   more than ``PODS_PER_RECORD`` pods (pods with forged annotations) has several parts, so a record
   never exceeds ``MAX_RECORD_BYTES``.
3. *Rounds.* A round writes every chunk that was dirty when the round began, then the position: the
   end of the events at that moment. A reader that finds the position has read these chunks before
   it. A crash inside a round leaves the earlier position, and some chunks that are newer than it.
4. *Replay converges.* Each event sets the values that it names, or raises a maximum, so replaying
   events that a chunk already contains, up to the end of the log, gives the same history.
5. *Overlap.* The previous leader received responses to its deletions before the snapshot topics
   showed them. Events of the last ``OVERLAP`` are therefore always replayed.
6. *A record of a fenced writer* may hide a valid record of the same key that compaction removed. A
   state with such a key is discarded. So is a state whose position names other topics (by id) or
   events beyond the end of the log. Without a state, the leader reads all events and writes all
   records again.

Cost: O(pods of the job) for the chunks of one job that are written together; O(1) for an event.
"""

import itertools
from array import array
from collections import deque
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from stromboli.controller.core import lifecycle
from stromboli.controller.core.store import event_history
from stromboli.shared.messages import batch

CHUNK_INDEXES = 64
PODS_PER_RECORD = 64
MAX_RECORD_BYTES = 256 * 1024
"""Maximum size of a record: with the longest names, reasons and details, escaped in JSON,
``PODS_PER_RECORD`` pods take 240 KiB."""
OVERLAP = timedelta(minutes=2)
"""Events of this last period are always replayed: four times the age of the monitor's heartbeat at
which the controller stops acting."""
SPAN = timedelta(seconds=10)
POSITION_KEY = "$position"
_NEVER = 2**63
"""An end of events above every position."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

Message = batch.PublishedJob | batch.PublishedTaskChunk
Chunk = tuple[str, int]
"""A chunk, identified by its task and its number."""
HOME: Chunk = ("", -1)
"""The chunk of the job's own record, which includes the first chunk of its home task."""


class Mark(msgspec.Struct, frozen=True):
    """The latest change of a chunk: the offset after its event, and a number that increases with
    each change."""

    end: int
    number: int


class ChunkWrite(msgspec.Struct, frozen=True):
    """The records of one chunk, in order; None is a tombstone."""

    job: str
    chunk: Chunk
    mark: Mark | None
    records: tuple[tuple[str, Message | None], ...]


class _Span(msgspec.Struct):
    """The events appended within ``SPAN``: the first offset, its writer's epoch, and the time of
    the last event."""

    first_at: datetime
    offset: int
    epoch: int
    last_at: datetime


class BatchState:
    """Tracks which chunks of the history differ from ``batch.state``, and which keys the topic
    has."""

    def __init__(self, history: event_history.EventHistory) -> None:
        self.history = history
        self._dirty: dict[str, dict[Chunk, Mark]] = {}
        self._keys: dict[str, set[str]] = {}
        self._homes: dict[str, tuple[str, str]] = {}
        """Job -> the uid and the home task of the job."""
        self._events_end = 0
        self._spans: deque[_Span] = deque()
        self._appending: dict[int, int] = {}
        self._numbers = itertools.count(1)

    @property
    def dirty_chunks(self) -> int:
        """The number of chunks that differ from the topic. O(jobs that differ)."""
        return sum(map(len, self._dirty.values()))

    # Events

    def begin_append(self) -> int:
        """Note that an append of events begins. Returns a token for ``end_append``."""
        token = next(self._numbers)
        self._appending[token] = self._events_end
        return token

    def end_append(self, token: int) -> None:
        """Note that the append ended, acknowledged or not."""
        del self._appending[token]

    def note_event(self, message: msgspec.Struct, offset: int, epoch: int, at: datetime) -> None:
        """Note an event that is on the topic and in the history. ``at``: when it was appended."""
        self._events_end = max(self._events_end, offset + 1)
        newest = self._spans[-1] if self._spans else None
        if newest is None or at - newest.first_at >= SPAN or epoch != newest.epoch:
            self._spans.append(_Span(at, offset, epoch, at))
        else:
            newest.last_at = max(newest.last_at, at)
        self._drop_spans(at)
        self._note_change(message, offset + 1)

    def note_unacknowledged(self, message: msgspec.Struct) -> None:
        """Note an event that the history records as unsure."""
        self._note_change(message, self._events_end)

    def _note_change(self, message: msgspec.Struct, end: int) -> None:
        match message:
            case batch.JobDeleted():
                self._mark_all(message.job, end)
            case batch.JobPhaseChanged():
                self._adopt(message.job, message.uid, end)
                self._mark(message.job, HOME, end)
                if message.after in lifecycle.FINISHED:
                    self._mark_all(message.job, end)  # attempts are dropped
            case batch.TaskChanged():
                self._adopt(message.job, message.uid, end)
                uid, home = self._homes[message.job]
                if not home:
                    self._homes[message.job] = uid, message.task
                    self._mark(message.job, HOME, end)
                    self._mark(message.job, (message.task, 0), end)  # it is part of HOME now
                self._mark(message.job, self._chunk(message.job, message.task, message.index), end)
            case _:
                pass

    def _adopt(self, job: str, uid: str, end: int) -> None:
        """Begin tracking the job of this uid, which may replace another job of the same name."""
        before = self._homes.get(job)
        if before is None or before[0] != uid:
            self._homes[job] = uid, ""
            self._mark_all(job, end)

    def _chunk(self, job: str, task: str, index: int) -> Chunk:
        chunk = task, index // CHUNK_INDEXES
        return HOME if chunk == (self._homes[job][1], 0) else chunk

    def _mark(self, job: str, chunk: Chunk, end: int) -> None:
        self._dirty.setdefault(job, {})[chunk] = Mark(end, next(self._numbers))

    def _mark_all(self, job: str, end: int) -> None:
        """Mark the job's own record and all its chunks on the topic as changed."""
        for chunk in {HOME, *map(_chunk_of, self._keys.get(job, ()))}:
            self._mark(job, chunk, end)

    # The topic as read

    def restore_job(self, key: str, published_job: batch.PublishedJob) -> None:
        """Restore a job with its first chunk. All jobs come before other chunks."""
        self.note_record(key, published_job)
        self._homes[published_job.job] = published_job.uid, published_job.home_task
        job = event_history.JobHistory(
            published_job.uid,
            published_job.phase,
            published_job.retry_count,
            has_had_pods=published_job.has_had_pods,
            object_version=published_job.object_version,
        )
        self.history.restore(published_job.job, job)
        _restore_chunk(job, published_job, published_job.home_task, 0)

    def restore_chunk(self, key: str, published_task_chunk: batch.PublishedTaskChunk) -> None:
        """Restore another chunk. A chunk without a job of the same uid is left over from a crash:
        it is marked dirty, so that a tombstone is written."""
        self.note_record(key, published_task_chunk)
        job = self.history.jobs.get(published_task_chunk.job)
        if job is None or job.uid != published_task_chunk.uid:
            self._mark(published_task_chunk.job, _chunk_of(key), _NEVER)
        else:
            _restore_chunk(
                job, published_task_chunk, published_task_chunk.task, published_task_chunk.chunk
            )

    def discard(self) -> None:
        """Drop the history because the state cannot be used. Every key of the topic becomes
        dirty."""
        self.history.clear()
        self._homes.clear()
        self._spans.clear()
        self._events_end = 0
        for job in list(self._keys):
            self._mark_all(job, _NEVER)

    def resume(self, position: batch.StatePosition) -> None:
        """Note that the restored history contains all events below the position."""
        self._events_end = position.events_end
        first = _Span(_LONG_AGO, position.resume_from, position.resume_epoch, _LONG_AGO)
        self._spans = deque([first])

    def note_record(self, key: str, message: msgspec.Struct | None) -> None:
        """Note a record that the topic has now; None is a tombstone. After a position, all changes
        before it are on the topic."""
        if isinstance(message, batch.StatePosition):
            self._clear_below(message.events_end)
            return
        job = _job_of(key)
        if message is not None:
            self._keys.setdefault(job, set()).add(key)
        else:
            self._drop_key(job, key)

    def note_fenced(self, key: str) -> None:
        """Note a record of a fenced writer, whose key therefore has to be written again."""
        if key != POSITION_KEY:
            job = _job_of(key)
            self._keys.setdefault(job, set()).add(key)
            self._mark(job, _chunk_of(key), _NEVER)

    def _clear_below(self, events_end: int) -> None:
        for job, chunks in list(self._dirty.items()):
            for chunk, mark in list(chunks.items()):
                if mark.end <= events_end:
                    del chunks[chunk]
            if not chunks:
                del self._dirty[job]

    def _drop_key(self, job: str, key: str) -> None:
        keys = self._keys.get(job)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._keys[job]

    # A round of writes

    def begin_round(self) -> list[tuple[str, Chunk]]:
        """The chunks that a round has to write, grouped by job."""
        return [(job, chunk) for job, chunks in self._dirty.items() for chunk in chunks]

    def position(
        self, events_topic_id: str, state_topic_id: str, now: datetime
    ) -> batch.StatePosition | None:
        """The position of a round that begins now; None before the first event."""
        if not self._spans:
            return None
        self._drop_spans(now)
        end = min((self._events_end, *self._appending.values()))
        first = self._spans[0]
        is_past = first.last_at <= now - OVERLAP
        return batch.StatePosition(
            events_end=end,
            resume_from=end if is_past else min(first.offset, end),
            resume_epoch=first.epoch,
            events_topic_id=events_topic_id,
            state_topic_id=state_topic_id,
        )

    def _drop_spans(self, now: datetime) -> None:
        """Drop the spans that need no replay; the last one is kept for its epoch."""
        while len(self._spans) > 1 and self._spans[0].last_at <= now - OVERLAP:
            self._spans.popleft()

    def writes(self, chunks: Collection[tuple[str, Chunk]]) -> Iterator[ChunkWrite]:
        """The records of these chunks, from the current history. O(pods of their jobs)."""
        of_job: dict[str, list[Chunk]] = {}
        for job, chunk in chunks:
            of_job.setdefault(job, []).append(chunk)
        for job, wanted in of_job.items():
            pods = self._pods(job, frozenset(wanted))
            for chunk in wanted:
                mark = self._dirty.get(job, {}).get(chunk)
                records = tuple(self._records(job, chunk, pods.get(chunk, [])))
                # The append may succeed without being acknowledged.
                added = {key for key, message in records if message is not None}
                if added:
                    self._keys.setdefault(job, set()).update(added)
                yield ChunkWrite(job, chunk, mark, records)

    def note_written(self, write: ChunkWrite) -> None:
        """Note that the records of a chunk are acknowledged."""
        for key, message in write.records:
            self.note_record(key, message)
        chunks = self._dirty.get(write.job, {})
        if write.mark is not None and chunks.get(write.chunk) == write.mark:
            del chunks[write.chunk]
            if not chunks:
                del self._dirty[write.job]
        if write.job not in self.history.jobs and write.job not in self._dirty:
            self._homes.pop(write.job, None)

    def _pods(self, key: str, wanted: Collection[Chunk]) -> dict[Chunk, list[batch.PublishedPod]]:
        """The pods of these chunks, by uid."""
        published_pods: dict[Chunk, list[batch.PublishedPod]] = {}
        job = self.history.jobs.get(key)
        if job is None:
            return published_pods
        for is_unsure, tasks in ((False, job.tasks), (True, job.unsure)):
            for uid, it in tasks.items():
                chunk = self._chunk(key, it.task, it.index)
                if chunk in wanted:
                    published_pods.setdefault(chunk, []).append(
                        _published_pod(uid, it, is_unsure=is_unsure)
                    )
        for pods in published_pods.values():
            pods.sort(key=lambda it: (it.pod_uid, it.is_unsure))
        return published_pods

    def _records(
        self, key: str, chunk: Chunk, pods: list[batch.PublishedPod]
    ) -> Iterator[tuple[str, Message | None]]:
        job = self.history.jobs.get(key)
        home = self._homes[key][1] if key in self._homes else ""
        task, number = (home, 0) if chunk == HOME else chunk
        first, rest = tuple(pods[:PODS_PER_RECORD]), pods[PODS_PER_RECORD:]
        attempts: tuple[int, ...] = ()
        if job is not None and (chunk == HOME or chunk != (home, 0)):
            begin = number * CHUNK_INDEXES
            attempts = tuple(job.attempts.get(task, ())[begin : begin + CHUNK_INDEXES])
        if chunk == HOME and job is not None:
            yield key, _published_job(key, job, home, first, attempts)
        elif job is not None and (first or any(attempts)):
            yield (
                _key_of(key, chunk),
                batch.PublishedTaskChunk(
                    job=key, uid=job.uid, task=task, chunk=number, pods=first, attempts=attempts
                ),
            )
        elif _key_of(key, chunk) in self._keys.get(key, ()):
            yield _key_of(key, chunk), None
        for part in itertools.count(1):
            record = _key_of(key, chunk, part)
            of_part = tuple(rest[(part - 1) * PODS_PER_RECORD : part * PODS_PER_RECORD])
            if job is not None and of_part:
                yield (
                    record,
                    batch.PublishedTaskChunk(
                        job=key, uid=job.uid, task=task, chunk=number, part=part, pods=of_part
                    ),
                )
            elif record in self._keys.get(key, ()):
                yield record, None
            else:
                return


def _published_job(
    key: str,
    job: event_history.JobHistory,
    home: str,
    pods: tuple[batch.PublishedPod, ...],
    attempts: tuple[int, ...],
) -> batch.PublishedJob:
    return batch.PublishedJob(
        job=key,
        uid=job.uid,
        phase=job.phase,
        retry_count=job.retry_count,
        object_version=job.object_version,
        has_had_pods=job.has_had_pods,
        home_task=home,
        pods=pods,
        attempts=attempts,
    )


def _published_pod(
    uid: str, task_record: event_history.TaskRecord, *, is_unsure: bool
) -> batch.PublishedPod:
    return batch.PublishedPod(
        pod_uid=uid,
        index=task_record.index,
        pod=task_record.pod,
        state=task_record.state,
        node=task_record.node,
        retry_count=task_record.retry_count,
        version=task_record.version,
        attempt=task_record.attempt,
        reason=task_record.reason,
        object_version=task_record.object_version,
        is_unsure=is_unsure,
        detail=task_record.detail,
    )


def _restore_chunk(job: event_history.JobHistory, message: Message, task: str, chunk: int) -> None:
    for it in message.pods:
        record = event_history.TaskRecord(
            task,
            it.index,
            it.pod,
            it.state,
            it.node,
            it.retry_count,
            it.version,
            it.attempt,
            it.reason,
            it.object_version,
            it.detail,
        )
        (job.unsure if it.is_unsure else job.tasks)[it.pod_uid] = record
    if message.attempts:
        attempts = job.attempts.setdefault(task, array("I"))
        begin = chunk * CHUNK_INDEXES
        missing = begin + len(message.attempts) - len(attempts)
        attempts.extend([0] * max(missing, 0))
        attempts[begin : begin + len(message.attempts)] = array("I", message.attempts)


def _key_of(job: str, chunk: Chunk, part: int = 0) -> str:
    """The key of a record. A job's namespace and name contain no slash, so the first two parts are
    the job; a task's name may contain any character, so it comes last."""
    if chunk == HOME and part == 0:
        return job
    return f"{job}//{chunk[1]}//{part}//{chunk[0]}"


def _job_of(key: str) -> str:
    return key.partition("//")[0]


def _chunk_of(key: str) -> Chunk:
    """The chunk of a record's key."""
    if "//" not in key:
        return HOME
    _, number, _, task = key.split("//", 3)
    return task, int(number)
