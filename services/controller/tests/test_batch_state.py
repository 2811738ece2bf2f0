"""The event history on ``batch.state``: restored from any crash it equals a full read."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from stromboli.controller.core import termination_causes
from stromboli.controller.core.store import batch_state, event_history
from stromboli.shared.messages import base
from stromboli.shared.messages import batch as messages
from stromboli.testkit.strategies import depth

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
JOBS = ("default/a", "default/b")
INDEXES = (0, 1, batch_state.CHUNK_INDEXES, 3 * batch_state.CHUNK_INDEXES + 5)
TASKS = ("w", "v", "odd//1//0//w")
Topic = dict[str, msgspec.Struct]
"""Key -> newest record, as compaction leaves it."""


def task_changed(
    job: str, uid: str, task: str, index: int, number: int, after: str, **more: Any
) -> messages.TaskChanged:
    pod = f"{task}-{index}"
    return messages.TaskChanged(
        job=job,
        uid=uid,
        task=task,
        index=index,
        pod=pod,
        pod_uid=f"{job}/{uid}/{pod}/{number}",
        before="",
        after=after,
        at=NOON,
        attempt=number,
        **more,
    )


def phase_changed(job: str, uid: str, after: str) -> messages.JobPhaseChanged:
    return messages.JobPhaseChanged(
        job=job, uid=uid, queue="default", before="", after=after, at=NOON, object_version=7
    )


def full_read(events: list[msgspec.Struct]) -> event_history.EventHistory:
    history = event_history.EventHistory()
    for event in events:
        history.load(event)
    return history


def restored(topic: Topic, events: list[msgspec.Struct]) -> batch_state.BatchState:
    """What a new leader has, by the rules of ``event_history_reader``."""
    history = event_history.EventHistory()
    state = batch_state.BatchState(history)
    chunks = []
    for key, message in topic.items():
        if isinstance(message, messages.PublishedJob):
            state.restore_job(key, message)
        elif isinstance(message, messages.PublishedTaskChunk):
            chunks.append((key, message))
    for key, chunk in chunks:
        state.restore_chunk(key, chunk)
    position = topic.get(batch_state.POSITION_KEY)
    first = 0
    if isinstance(position, messages.StatePosition):
        state.resume(position)
        first = position.resume_from
    else:
        state.discard()
    for offset, event in enumerate(events[first:], first):
        history.load(event)
        state.note_event(event, offset, 1, NOON + timedelta(seconds=offset * 20))
    return state


class CrashesAnywhere(RuleBasedStateMachine):
    """A leader publishes and writes rounds, is killed between any two records, and is followed by
    a leader that starts from the topics, or by a standby that followed them."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[msgspec.Struct] = []
        self.topic: Topic = {}
        self.state = restored({}, [])
        self.standby = restored({}, [])
        self.uids = dict.fromkeys(JOBS, 1)

    def _publish(self, event: msgspec.Struct) -> None:
        offset, at = len(self.events), self.now
        self.events.append(event)
        for state in (self.state, self.standby):
            state.history.load(event)
            state.note_event(event, offset, 1, at)

    @rule(
        job=st.sampled_from(JOBS),
        task=st.sampled_from(TASKS),
        index=st.sampled_from(INDEXES),
        number=st.integers(1, 3),
        after=st.sampled_from(["Pending", "Running", "Succeeded", "Gone"]),
        detail=st.sampled_from(["", "preempted by job default/urgent of queue research"]),
    )
    def change_pod(
        self, job: str, task: str, index: int, number: int, after: str, detail: str
    ) -> None:
        uid = str(self.uids[job])
        self._publish(task_changed(job, uid, task, index, number, after, detail=detail))

    @rule(job=st.sampled_from(JOBS), after=st.sampled_from(["Pending", "Running", "Completed"]))
    def change_phase(self, job: str, after: str) -> None:
        self._publish(phase_changed(job, str(self.uids[job]), after))

    @rule(job=st.sampled_from(JOBS), is_reported=st.booleans())
    def delete_job(self, job: str, is_reported: bool) -> None:
        if is_reported:
            self._publish(messages.JobDeleted(job=job, uid=str(self.uids[job]), at=NOON))
        self.uids[job] += 1

    @property
    def now(self) -> datetime:
        """Twenty seconds for each event."""
        return NOON + timedelta(seconds=len(self.events) * 20)

    def _append(self, key: str, message: msgspec.Struct | None) -> None:
        if message is None:
            self.topic.pop(key, None)
        else:
            self.topic[key] = base.decode(base.type_name(message), base.encode(message))
        self.standby.note_record(key, message)

    @rule(crash_after=st.none() | st.integers(0, 12), by_standby=st.booleans())
    def write_round(self, crash_after: int | None, by_standby: bool) -> None:
        """``crash_after``: records that the leader appends before it is killed."""
        position = self.state.position("events", "state", self.now)
        left = crash_after
        for chunk in self.state.begin_round():
            for write in self.state.writes([chunk]):
                for key, message in write.records:
                    if left == 0:
                        self._take_over(by_standby=by_standby)
                        return
                    left = None if left is None else left - 1
                    self._append(key, message)
                self.state.note_written(write)
        if crash_after is not None:
            self._take_over(by_standby=by_standby)
        elif position is not None:
            self._append(batch_state.POSITION_KEY, position)

    def _take_over(self, *, by_standby: bool) -> None:
        self.state = self.standby if by_standby else restored(self.topic, self.events)
        self.standby = restored(self.topic, self.events)

    @rule()
    def lose_the_topic(self) -> None:
        """Deleted and created again; the reader sees by the topic's id that it is another one."""
        self.topic.clear()
        self._take_over(by_standby=False)

    @invariant()
    def a_new_leader_has_the_history_of_a_full_read(self) -> None:
        wanted = full_read(self.events).jobs
        job_histories = restored(self.topic, self.events).history.jobs
        assert _comparable(job_histories) == _comparable(wanted)
        assert _comparable(self.state.history.jobs) == _comparable(wanted)

    @invariant()
    def a_whole_round_leaves_exactly_the_records_of_the_history(self) -> None:
        topic = dict(self.topic)
        state = restored(topic, self.events)
        for write in list(state.writes(state.begin_round())):
            for key, message in write.records:
                if message is None:
                    topic.pop(key)
                else:
                    topic[key] = message
            state.note_written(write)
        assert state.dirty_chunks == 0
        topic.pop(batch_state.POSITION_KEY, None)
        fresh = restored({}, self.events)
        of_history = {
            key: message
            for write in fresh.writes(fresh.begin_round())
            for key, message in write.records
        }
        pods = [sorted(map(_pods, it.values())) for it in (topic, of_history)]
        assert _flat(pods[0]) == _flat(pods[1])


def _comparable(jobs: dict[str, event_history.JobHistory]) -> dict[str, Any]:
    """Attempts without the zeros at the end, which mean the same."""
    job_histories = {}
    for key, job in jobs.items():
        attempts = {task: list(it) for task, it in job.attempts.items() if any(it)}
        for counts in attempts.values():
            while counts and not counts[-1]:
                counts.pop()
        job_histories[key] = msgspec.structs.replace(job, attempts=attempts)
    return job_histories


def _pods(message: msgspec.Struct | None) -> list[str]:
    assert isinstance(message, messages.PublishedJob | messages.PublishedTaskChunk)
    return [it.pod_uid for it in message.pods]


def _flat(lists: list[list[str]]) -> list[str]:
    return sorted(uid for one in lists for uid in one)


TestCrashesAnywhere = CrashesAnywhere.TestCase
TestCrashesAnywhere.settings = settings(depth.examples(60), stateful_step_count=25)


def test_events_of_a_finished_job_change_nothing_if_they_are_read_twice() -> None:
    """It is restarted later. A state that is newer than its position contains the restart."""
    events: list[msgspec.Struct] = [
        phase_changed("default/a", "1", "Completed"),
        task_changed("default/a", "1", "w", 0, 1, "Gone"),
        phase_changed("default/a", "1", "Pending"),
    ]
    twice = full_read([*events, *events[1:]])
    assert _comparable(twice.jobs) == _comparable(full_read(events).jobs)


def test_no_record_is_larger_than_the_limit() -> None:
    """Also where a user forges annotations of many pods: one index, and the longest strings."""
    history = event_history.EventHistory()
    state = batch_state.BatchState(history)
    for number in range(300):
        event = task_changed(
            "n" * 63 + "/" + "j" * 253,
            "u" * 36,
            "\x01" * event_history.LONGEST_TEXT,
            0,
            number,
            "Terminating",
            node="n" * 253,
            reason="\x01" * event_history.LONGEST_TEXT,
            detail="\x01" * termination_causes.LONGEST_DETAIL,
            retry_count=2**31,
            version=2**31,
            object_version=2**60,
        )
        event = msgspec.structs.replace(event, pod="p" * 253, pod_uid=f"{number:036}")
        history.load(event)
        state.note_event(event, number, 1, NOON)
    records = [
        message
        for write in state.writes(state.begin_round())
        for _, message in write.records
        if message is not None
    ]
    assert sum(len(_pods(it)) for it in records) == 300
    assert max(len(base.encode(it)) for it in records) <= batch_state.MAX_RECORD_BYTES


def test_a_change_of_one_pod_rewrites_one_chunk() -> None:
    history = event_history.EventHistory()
    state = batch_state.BatchState(history)
    for index in range(20_000):
        event = task_changed("default/a", "1", "w", index, 1, "Pending")
        history.load(event)
        state.note_event(event, index, 1, NOON)
    for write in list(state.writes(state.begin_round())):
        state.note_written(write)
    event = task_changed("default/a", "1", "w", 10_000, 1, "Running")
    history.load(event)
    state.note_event(event, 20_000, 1, NOON)
    (write,) = state.writes(state.begin_round())
    ((key, message),) = write.records
    assert key == f"default/a//{10_000 // batch_state.CHUNK_INDEXES}//0//w"
    assert len(base.encode(message)) < 32 * 1024  # type: ignore[arg-type]


def test_the_position_stays_before_events_whose_append_is_not_acknowledged() -> None:
    state = restored({}, [phase_changed("default/a", "1", "Pending")])
    token = state.begin_append()
    event = phase_changed("default/b", "1", "Pending")
    state.history.load(event)
    state.note_event(event, 5, 1, NOON)
    position = state.position("e", "s", NOON)
    assert position is not None
    assert position.events_end == 1
    state.end_append(token)
    position = state.position("e", "s", NOON)
    assert position is not None
    assert position.events_end == 6


@pytest.mark.parametrize("is_acknowledged", [True, False])
def test_an_event_that_may_have_been_published_is_restored_as_such(is_acknowledged: bool) -> None:
    history = event_history.EventHistory()
    state = batch_state.BatchState(history)
    event = task_changed("default/a", "1", "w", 0, 1, "Running")
    history.load(phase_changed("default/a", "1", "Running"))
    state.note_event(phase_changed("default/a", "1", "Running"), 0, 1, NOON)
    if is_acknowledged:
        history.observe(event)
        state.note_event(event, 1, 1, NOON)
    else:
        history.expect(event)
        state.note_unacknowledged(event)
    topic: Topic = {}
    for write in state.writes(state.begin_round()):
        topic |= {key: it for key, it in write.records if it is not None}
    position = state.position("e", "s", NOON)
    assert position is not None
    topic[batch_state.POSITION_KEY] = msgspec.structs.replace(position, resume_from=1)
    job_history = restored(topic, [phase_changed("default/a", "1", "Running")]).history.jobs[
        "default/a"
    ]
    assert list(job_history.tasks if is_acknowledged else job_history.unsure) == [event.pod_uid]
    assert not (job_history.unsure if is_acknowledged else job_history.tasks)
