"""Answers questions about pending jobs: when would they start if they were different?

::

    scheduling.questions ──▶ leader ──▶ forecast process ──▶ scheduling.answers

Questions are answered one after another by a separate forecast process, which starts with the first
question and ends ``IDLE_S`` after the last one. A question is dropped after its deadline, when its
client no longer waits, and after ``MOST_S`` in any case, because another clock set the deadline. A
failure becomes an answer (*cannot tell*) or a warning of the service, and stops nothing else.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from stromboli.scheduler.core.forecast import present, range_calibration
from stromboli.scheduler.forecasting import forecaster, frames, process
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import materialization, port
from stromboli.shared.messages import what_if as messages
from stromboli.shared.runtime import runtime, telemetry

MOST_WAITING = 32
"""Maximum number of queued questions; further questions get the answer ``BUSY``."""
MOST_S = 60.0
"""Maximum number of seconds from the reading of a question to its deadline."""
DRAWS = 20
ANSWER_MARGIN_S = 3.0
"""Seconds before a question's deadline that are reserved for the transport of the answer."""
OFF = "what-if is turned off: STROM_SCHEDULER_WHAT_IF_CPU is 0"
BUSY = f"{MOST_WAITING} other what-if requests wait; ask again in a minute"
FAILED = "the simulation failed; the scheduler's log has the reason"
LATE = (
    "the what-if request reached the scheduler after its deadline: the clocks of admission and "
    "the scheduler differ by about a minute, or the log is slow"
)


class Source(msgspec.Struct, frozen=True):
    """Inputs and outputs of ``WhatIfs``. ``leads``: whether this replica is the leader; a standby
    answers no questions. ``widening``: the factors that the forecasts have learned."""

    leads: Callable[[], bool]
    present: Callable[[], Awaitable[present.Present]]
    publish: Callable[[Sequence[envelope.Draft]], Awaitable[object]]
    events: Callable[[], AsyncIterator[port.Batch]]
    questions: Callable[[], AsyncIterator[port.Batch]]
    widening: Callable[[], range_calibration.Widening]
    clock: runtime.Clock


class _Question(msgspec.Struct, frozen=True):
    key: str
    requested: messages.WhatIfAsked
    deadline: datetime


class WhatIfs:
    """Answers questions during one term. ``run`` never ends and never fails."""

    def __init__(self, settings: SchedulerSettings, source: Source, health: runtime.Health) -> None:
        self._settings = settings
        self._source = source
        self._health = health
        self._waiting: asyncio.Queue[_Question] = asyncio.Queue(MOST_WAITING)
        self._deadlines: dict[str, datetime] = {}
        """Question -> deadline, for questions that were read and are not over: they may be read
        again."""

    async def run(self) -> None:
        """Answer until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat("read", self._read))
            tasks.create_task(self._repeat("answer", self._answer_all))

    async def _repeat(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        backoff = runtime.Backoff()
        while True:
            try:
                await work()
            except Exception as error:  # a failure of what-if must not end the scheduler
                reason = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
                self._health.warn(f"what-if {what}", f"what-if: {type(reason).__name__}: {reason}")
                await asyncio.sleep(backoff.next_s())

    async def _read(self) -> None:
        """Queue questions, from the start of the topic: a previous leader may have left some
        unanswered."""
        while not self._source.leads():  # noqa: ASYNC110 - leading has no event
            await asyncio.sleep(forecaster.LOOK_S)
        async with contextlib.aclosing(self._source.questions()) as batches:  # type: ignore[type-var]
            is_new = False
            async for batch in batches:
                self._health.warn("what-if read", None)
                for record in batch.records:
                    await self._take(record, is_new=is_new)
                is_new = is_new or batch.caught_up

    async def _take(self, record: envelope.Record, *, is_new: bool) -> None:
        """Queue the question of a record, or answer it immediately if it cannot be queued.
        ``is_new``: the question was published after the reading began, so its client still
        waits."""
        now = self._source.clock()
        try:
            message = envelope.decode(record)
        except errors.UndecodableError as error:  # its client gets no answer
            telemetry.log.error("unreadable record", error=str(error))
            await self._source.publish([runtime.dead_letter(record, "scheduler", str(error), now)])
            return
        self._deadlines = {key: at for key, at in self._deadlines.items() if at > now}
        if not isinstance(message, messages.WhatIfAsked) or record.key in self._deadlines:
            return
        deadline = min(message.until, now + timedelta(seconds=MOST_S))
        self._deadlines[record.key] = deadline
        question = _Question(record.key, message, deadline)
        if deadline <= now:
            if is_new:
                await self._publish(question, cannot_tell=LATE)
        elif self._settings.what_if_cpu <= 0:
            await self._publish(question, cannot_tell=OFF)
        elif self._waiting.full():
            await self._publish(question, cannot_tell=BUSY)
        else:
            self._waiting.put_nowait(question)

    async def _answer_all(self) -> None:
        """Start a process for the next question, and stop it after ``IDLE_S`` without one."""
        question: _Question | None = await self._waiting.get()
        settings = self._settings
        start = frames.Start(
            settings.configuration,
            settings.scheduler_names,
            settings.what_if_cpu,
            settings.forecast_memory_mib,
        )
        try:
            async with process.running(start, self._source.events) as channel:
                while question is not None:
                    await self._answer(channel, question)
                    self._health.warn("what-if answer", None)
                    question = None  # a failure while the process is idle concerns no question
                    question = await self._next()
        except Exception as error:
            if question is not None:
                reason = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
                await self._publish_failure(question, f"{type(reason).__name__}: {reason}")
            raise

    async def _next(self) -> _Question | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(process.IDLE_S):
                return await self._waiting.get()
        return None

    async def _answer(self, channel: process.Channel, question: _Question) -> None:
        within_s = self._left_s(question.deadline)
        if within_s <= 0:
            return
        present_state = await self._source.present()
        at = self._source.clock()
        spent_s = await channel.send_objects(present_state.objects)
        left_s = max(1.0, self._left_s(question.deadline))
        now = present_state.now.isoformat()
        widening = self._source.widening()
        requested = frames.Ask(question.requested, now, DRAWS, left_s, spent_s, widening)
        # A single session is not interrupted: a process that does not return from one is killed.
        async with asyncio.timeout(left_s * 2):
            answer = await channel.ask(requested)
        await self._reply(question, at, answer)

    async def _reply(self, question: _Question, at: datetime, answer: frames.Answer) -> None:
        if not isinstance(answer, frames.Answered):
            why = answer.reason if isinstance(answer, frames.Failed) else "unexpected response"
            await self._publish_failure(question, why)
        elif answer.present is None or answer.changed is None:
            await self._publish(question, cannot_tell=answer.cannot_tell)
        else:
            message = messages.WhatIfAnswered(
                pod_group=question.requested.pod_group,
                at=at,
                draws=answer.draws,
                present=forecaster.published(answer.present, at),
                changed=forecaster.published(answer.changed, at),
                reason=answer.changed.reason,
                notes=answer.notes,
            )
            await self._send(question, message)

    def _left_s(self, deadline: datetime) -> float:
        return (deadline - self._source.clock()).total_seconds() - ANSWER_MARGIN_S

    async def _publish_failure(self, question: _Question, why: str) -> None:
        """Publish that the simulation failed. The answer omits the cause, because it may name
        objects of other users; operators find it in the log."""
        forecaster.failures.add(1, {"scope": "what-if"})
        telemetry.log.error("what-if failed", pod_group=question.requested.pod_group, reason=why)
        await self._publish(question, cannot_tell=FAILED)

    async def _publish(self, question: _Question, cannot_tell: str) -> None:
        at, pod_group = self._source.clock(), question.requested.pod_group
        answer = messages.WhatIfAnswered(pod_group=pod_group, at=at, cannot_tell=cannot_tell)
        await self._send(question, answer)

    async def _send(self, question: _Question, message: messages.WhatIfAnswered) -> None:
        """Publish an answer, again after a transient error, as long as its client waits."""
        draft = envelope.Draft(
            topic=topics.FORECAST_ANSWERS, key=question.key, message=message, time=message.at
        )
        backoff = runtime.Backoff()
        while True:
            try:
                await self._source.publish([draft])
            except errors.TransientError as error:
                if self._source.clock() >= question.deadline:
                    raise
                await asyncio.sleep(backoff.next_s(error.retry_after_s))
            else:
                return


def read_questions(bus: port.Bus, health: runtime.Health) -> AsyncIterator[port.Batch]:
    """Read ``scheduling.questions`` from the start; its records are kept for an hour."""
    return materialization.materialize(
        bus, (topics.QUESTIONS,), health.warn, "questions", on_recreated=lambda _: None
    )
