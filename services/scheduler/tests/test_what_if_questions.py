"""Rules of what-if questions at the leader: which are answered, once, and when no longer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
import structlog

from stromboli.scheduler.core.forecast import present, range_calibration
from stromboli.scheduler.forecasting import what_ifs
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import envelope, errors, topics
from stromboli.shared.api import core, meta
from stromboli.shared.bus import port
from stromboli.shared.messages import log
from stromboli.shared.messages import what_if as messages
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders, records

GANG = messages.Gang(queue="q", min_member=1)
MINUTE = timedelta(minutes=1)


def make_question(
    key: str,
    until: datetime = builders.NOON + MINUTE,
    pod_group: str = "default/unknown",
    present: messages.Gang = GANG,
) -> envelope.Record:
    message = messages.WhatIfAsked(pod_group=pod_group, present=present, nodes=1, until=until)
    draft = envelope.Draft(topic=topics.QUESTIONS, key=key, message=message, time=builders.NOON)
    return builders.make_record(draft)


class Leader:
    """Inputs and outputs of the questions of a leader. ``before``: those that were on the topic
    when it began to read. ``while_it_starts``: what happens while a forecast process starts."""

    def __init__(
        self,
        *before: envelope.Record,
        while_it_starts: Callable[["Leader"], None] = lambda _: None,
        objects: Mapping[str, Sequence[meta.Object]] | None = None,
    ) -> None:
        self.now = builders.NOON
        self.published: list[envelope.Draft] = []
        self.refusals = 0
        """How many of the next appends the log refuses."""
        self.events_fail = asyncio.Event()
        self._has_more = asyncio.Event()
        self._topic = list(before)
        self._new: asyncio.Queue[envelope.Record | None] = asyncio.Queue()
        self._while_it_starts = while_it_starts
        self._objects = objects or {}

    @contextlib.asynccontextmanager
    async def running(self, what_if_cpu: float) -> AsyncIterator[None]:
        """Answer questions while inside; with 0 CPU, immediately and without a process."""
        settings = SchedulerSettings(what_if_cpu=what_if_cpu)
        requested = what_ifs.WhatIfs(settings, self._source(), runtime.Health("scheduler"))
        task = asyncio.create_task(requested.run())
        try:
            async with asyncio.timeout(records.DEADLINE_S):
                yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    def ask(self, question: envelope.Record | None) -> None:
        """Publish a question; None: reading the topic fails, and begins again."""
        self._new.put_nowait(question)

    async def has_published(self, *keys: str) -> None:
        """Wait until records with these keys are published, and only those."""
        while len(self.published) < len(keys):
            self._has_more.clear()
            await self._has_more.wait()
        assert [each.key for each in self.published] == list(keys)

    def _source(self) -> what_ifs.Source:
        return what_ifs.Source(
            leads=lambda: True,
            present=self._present,
            publish=self._publish,
            events=self._events,
            questions=self._questions,
            widening=range_calibration.Widening,
            clock=lambda: self.now,
        )

    async def _present(self) -> present.Present:
        return present.Present(self.now, self._objects)

    async def _publish(self, drafts: Sequence[envelope.Draft]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise errors.UnavailableError("append to scheduling.answers", "no response")
        self.published += drafts
        self._has_more.set()

    async def _events(self) -> AsyncIterator[port.Batch]:
        self._while_it_starts(self)
        yield port.Batch((), port.Position(), caught_up=True)
        await self.events_fail.wait()
        raise OSError("the log is gone")

    async def _questions(self) -> AsyncIterator[port.Batch]:
        yield port.Batch(tuple(self._topic), port.Position(), caught_up=True)
        while (record := await self._new.get()) is not None:
            self._topic.append(record)
            yield port.Batch((record,), port.Position(), caught_up=True)
        raise OSError("the log is gone")


async def test_a_question_that_is_read_again_is_answered_once() -> None:
    """The topic is read from its start after an error of the log."""
    leader = Leader(make_question("a"), make_question("a"))
    async with leader.running(0.0):
        leader.ask(None)
        leader.ask(make_question("b"))
        await leader.has_published("a", "b")


async def test_an_answer_that_the_log_refused_is_published_again() -> None:
    """Its client would wait for a minute, and the next answer would take as long to compute."""
    leader = Leader(make_question("a"), make_question("b"))
    leader.refusals = 2
    async with leader.running(1.0):
        await leader.has_published("a", "b")
    (answer, _) = (each.message for each in leader.published)
    assert isinstance(answer, messages.WhatIfAnswered)
    assert answer.cannot_tell != what_ifs.FAILED


async def test_an_unreadable_question_is_a_dead_letter_and_stops_no_other() -> None:
    broken = msgspec.structs.replace(make_question("a"), value=b"{")
    leader = Leader(broken, make_question("b"))
    async with leader.running(0.0):
        await leader.has_published(topics.QUESTIONS.name, "b")
    letter = leader.published[0].message
    assert isinstance(letter, log.DeadLetter)
    assert (letter.topic, letter.key) == (topics.QUESTIONS.name, "a")


async def test_the_reason_of_a_failure_is_for_operators() -> None:
    """It may name objects of other users."""
    objects: dict[str, Sequence[meta.Object]] = {
        "pod_groups": [builders.make_pod_group("me", 1)],
        "nodes": [builders.make_node("n1", cpu="1")],
    }
    unreadable = core.ResourceRequirements(requests={"cpu": "none"})
    spec = core.PodSpec(containers=(core.Container(name="c", resources=unreadable),))
    task = messages.GangTask(name="t", replicas=1, spec=spec)
    gang = msgspec.structs.replace(GANG, tasks=(task,))
    leader = Leader(make_question("a", pod_group="default/me", present=gang), objects=objects)
    with structlog.testing.capture_logs() as logged:
        async with leader.running(1.0):
            await leader.has_published("a")
    answer = leader.published[0].message
    assert isinstance(answer, messages.WhatIfAnswered)
    assert answer.cannot_tell == what_ifs.FAILED
    assert any("ValueError" in str(record) for record in logged)


async def test_a_new_question_past_its_deadline_gets_the_reason() -> None:
    """The clock of admission is behind. The client of a question from before the leader's term no
    longer waits."""
    over = builders.NOON - timedelta(seconds=1)
    leader = Leader(make_question("before", over))
    async with leader.running(0.0):
        leader.ask(make_question("new", over))
        await leader.has_published("new")
    answer = leader.published[0].message
    assert isinstance(answer, messages.WhatIfAnswered)
    assert answer.cannot_tell == what_ifs.LATE


async def test_a_question_is_dropped_after_a_minute_whatever_its_deadline() -> None:
    """The clock of admission is ahead: a question with an hour would keep others waiting."""
    hours = builders.NOON + timedelta(hours=2)

    def pass_time(leader: Leader) -> None:
        leader.now += timedelta(seconds=61)
        leader.ask(make_question("later", hours))

    leader = Leader(make_question("first", hours), while_it_starts=pass_time)
    async with leader.running(1.0):
        await leader.has_published("later")


async def test_a_process_that_fails_while_idle_answers_nothing_again() -> None:
    leader = Leader(make_question("a"))
    async with leader.running(1.0):
        await leader.has_published("a")
        leader.events_fail.set()
        leader.ask(make_question("b"))
        await leader.has_published("a", "b")
