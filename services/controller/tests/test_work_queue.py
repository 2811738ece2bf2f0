"""The work queue: one step at a time for each key."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from stromboli.controller.core.store.controller_cache import ReconcileKey
from stromboli.controller.work_queue import FAILED_FIRST_S, WorkQueue
from stromboli.shared import errors

A, B, C = (ReconcileKey("job", name) for name in "abc")


class Work:
    """Reconciles that wait for their release, and what is known about them."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[tuple[ReconcileKey, str]] = asyncio.Queue()
        self.gates: dict[ReconcileKey, asyncio.Event] = {it: asyncio.Event() for it in (A, B, C)}
        self.failing: dict[ReconcileKey, Exception] = {}
        self.isolated: list[tuple[ReconcileKey, Exception]] = []

    async def step(self, item: ReconcileKey, cause: str) -> None:
        self.begun.put_nowait((item, cause))
        await self.gates[item].wait()
        error = self.failing.pop(item, None)
        if error is not None:
            raise error

    async def isolate(self, item: ReconcileKey, error: Exception) -> None:
        self.isolated.append((item, error))


async def unexpected(item: ReconcileKey, error: Exception) -> None:
    raise AssertionError(item) from error


@pytest.fixture
async def running() -> AsyncIterator[Callable[..., tuple[WorkQueue, Work]]]:
    tasks: list[asyncio.Task[None]] = []
    made: list[tuple[WorkQueue, Work]] = []

    def start(limit: int = 9) -> tuple[WorkQueue, Work]:
        work = Work()
        queue = WorkQueue(work.step, work.isolate, limit)
        queue.open(is_open=True)
        tasks.append(asyncio.create_task(queue.run()))
        made.append((queue, work))
        return queue, work

    yield start
    for queue, work in made:
        queue.stop()
        for gate in work.gates.values():
            gate.set()
    await asyncio.gather(*tasks)


Start = Callable[..., tuple[WorkQueue, Work]]


async def test_an_item_has_one_step_at_a_time_and_one_more_when_touched(running: Start) -> None:
    queue, work = running()
    queue.add_key(A, "first")
    assert await work.begun.get() == (A, "first")
    queue.add_key(A, "second")
    queue.add_key(A, "third")
    queue.add_key(B)
    assert await work.begun.get() == (B, ""), "A is busy"
    work.gates[A].set()
    assert await work.begun.get() == (A, "third"), "two touches are one step"


async def test_so_many_steps_run_at_once_and_no_more(running: Start) -> None:
    queue, work = running(limit=2)
    for item in (A, B, C):
        queue.add_key(item)
    assert [(await work.begun.get())[0] for _ in range(2)] == [A, B]
    assert work.begun.empty()
    work.gates[B].set()
    assert (await work.begun.get())[0] == C


@pytest.mark.parametrize(
    "error", [errors.TransientError("x", "y"), errors.ForbiddenError("x", "y")]
)
async def test_a_step_that_fails_outside_is_repeated(
    running: Start, error: errors.ExternalError
) -> None:
    queue, work = running()
    work.failing[A] = error
    work.gates[A].set()
    queue.add_key(A)
    assert [(await work.begun.get())[0] for _ in range(2)] == [A, A]


async def test_closed_queues_begin_nothing_until_they_open(running: Start) -> None:
    queue, work = running()
    queue.open(is_open=False)
    queue.add_key(A)
    for _ in range(5):
        await asyncio.sleep(0)
    assert work.begun.empty()
    queue.open(is_open=True)
    assert (await work.begun.get())[0] == A


async def test_a_stopped_work_queue_finishes_started_work() -> None:
    work = Work()
    queue = WorkQueue(work.step, work.isolate, 9)
    queue.open(is_open=True)
    run = asyncio.create_task(queue.run())
    queue.add_key(A)
    await work.begun.get()
    queue.stop()
    queue.add_key(B)
    work.gates[A].set()
    await run
    assert work.begun.empty()


async def test_a_bug_in_the_step_of_one_item_is_reported_and_stops_no_other(running: Start) -> None:
    queue, work = running()
    bug = ZeroDivisionError()
    work.failing[A] = bug
    work.gates[A].set()
    queue.add_key(A)
    assert (await work.begun.get())[0] == A
    queue.add_key(B)
    assert (await work.begun.get())[0] == B
    assert work.isolated == [(A, bug)]


async def test_an_item_that_failed_by_a_bug_is_retried_after_a_pause_whatever_touches_it(
    running: Start,
) -> None:
    queue, work = running()
    work.failing[A] = ZeroDivisionError()
    work.gates[A].set()
    loop = asyncio.get_running_loop()
    queue.add_key(A)
    await work.begun.get()
    failed_at = loop.time()
    for _ in range(3):
        queue.add_key(A, "changed")
        queue.add_key_after(A, 0.0)
        await asyncio.sleep(0)
    assert (await work.begun.get())[0] == A
    assert loop.time() - failed_at > FAILED_FIRST_S - 0.01
    queue.add_key(A, "again")
    assert await work.begun.get() == (A, "again"), "it succeeded: nothing is held back any more"


async def test_a_broken_invariant_across_objects_ends_the_run() -> None:
    async def broken(item: ReconcileKey, cause: str) -> None:
        raise errors.InvariantError

    queue = WorkQueue(broken, unexpected, 9)
    queue.open(is_open=True)
    queue.add_key(A)
    with pytest.raises(ExceptionGroup) as raised:
        await queue.run()
    assert raised.group_contains(errors.InvariantError)


async def test_what_comes_in_crowds_is_looked_at_together_and_what_comes_alone_at_once() -> None:
    space_s, begun = 0.05, list[tuple[float, str]]()
    loop = asyncio.get_running_loop()

    async def step(item: ReconcileKey, cause: str) -> None:
        begun.append((loop.time(), cause))

    queue = WorkQueue(step, unexpected, 9)
    queue.open(is_open=True)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(queue.run())
        queue.add_key_spaced(A, "alone", space_s)
        while not begun:  # noqa: ASYNC110 - the step says nothing else
            await asyncio.sleep(0)
        added_at = loop.time()
        for number in range(9):
            queue.add_key_spaced(A, f"crowd {number}", space_s)
            await asyncio.sleep(0)
        added_s = loop.time() - added_at
        while begun[-1][1] != "crowd 8":  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        queue.stop()
    times = [at for at, _ in begun]
    # The last one names what it was told for. The loop counts milliseconds.
    assert all(later - earlier > space_s - 0.001 for earlier, later in itertools.pairwise(times))
    assert len(begun) <= 2 + added_s / space_s, "while the process stood still, time passed"


async def test_an_urgent_addition_does_not_wait_for_the_space() -> None:
    causes: list[str] = []

    async def step(item: ReconcileKey, cause: str) -> None:
        causes.append(cause)

    queue = WorkQueue(step, unexpected, 9)
    queue.open(is_open=True)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(queue.run())
        queue.add_key_spaced(A, "pod", 60.0)
        for _ in range(3):
            await asyncio.sleep(0)
        queue.add_key(A, "user")
        for _ in range(3):
            await asyncio.sleep(0)
        queue.add_key_spaced(A, "pod", 60.0)
        await asyncio.sleep(0)
        queue.stop()
    assert causes == ["pod", "user"]


def test_an_addition_may_come_sooner_than_one_that_comes_at_once() -> None:
    """On the loop that serves: what is due within half a millisecond is no timer there."""
    causes: list[str] = []

    async def touched() -> None:
        done = asyncio.Event()

        async def step(item: ReconcileKey, cause: str) -> None:
            causes.append(cause)
            done.set()

        queue = WorkQueue(step, unexpected, 1)
        queue.open(is_open=True)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(queue.run())
            queue.add_key_after(A, 0.0001, "first")
            queue.add_key_after(A, 0.0, "second")
            await done.wait()
            queue.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(touched())
    assert causes == ["second"]
