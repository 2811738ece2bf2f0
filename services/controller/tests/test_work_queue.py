"""The work queue: one step at a time for each key."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from stromboli.controller.core.store.controller_cache import ReconcileKey
from stromboli.controller.work_queue import FAILED_FIRST_S, WorkQueue
from stromboli.shared import errors
from stromboli.testkit.doubles import virtual_time

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


def test_an_item_that_failed_by_a_bug_is_retried_after_a_pause_whatever_touches_it() -> None:
    begun: list[tuple[float, str]] = []

    async def step(item: ReconcileKey, cause: str) -> None:
        begun.append((asyncio.get_running_loop().time(), cause))
        if len(begun) == 1:
            raise ZeroDivisionError

    async def isolate(item: ReconcileKey, error: Exception) -> None:
        assert isinstance(error, ZeroDivisionError)

    async def touched() -> None:
        queue = WorkQueue(step, isolate, 9)
        queue.open(is_open=True)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(queue.run())
            queue.add_key(A)
            await asyncio.sleep(FAILED_FIRST_S / 4)
            queue.add_key(A, "changed")
            queue.add_key_after(A, 0.0)
            await asyncio.sleep(FAILED_FIRST_S)
            queue.add_key(A, "again")
            await asyncio.sleep(0.01)
            queue.stop()

    virtual_time.run(touched())
    (_, first), (retried_s, retried), (again_s, again) = begun
    assert (first, retried, again) == ("", "changed", "again")
    assert retried_s == pytest.approx(FAILED_FIRST_S)
    assert again_s == pytest.approx(1.25 * FAILED_FIRST_S), "it succeeded: nothing is held back"


async def test_a_broken_invariant_across_objects_ends_the_run() -> None:
    async def broken(item: ReconcileKey, cause: str) -> None:
        raise errors.InvariantError

    queue = WorkQueue(broken, unexpected, 9)
    queue.open(is_open=True)
    queue.add_key(A)
    with pytest.raises(ExceptionGroup) as raised:
        await queue.run()
    assert raised.group_contains(errors.InvariantError)


def test_what_comes_in_crowds_is_looked_at_together_and_what_comes_alone_at_once() -> None:
    space_s, begun = 0.05, list[tuple[float, str]]()

    async def step(item: ReconcileKey, cause: str) -> None:
        begun.append((asyncio.get_running_loop().time(), cause))

    async def crowded() -> None:
        queue = WorkQueue(step, unexpected, 9)
        queue.open(is_open=True)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(queue.run())
            for number in range(9):
                queue.add_key_spaced(A, f"crowd {number}", space_s)
                await asyncio.sleep(0.22 * space_s)
            await asyncio.sleep(2 * space_s)
            queue.add_key_spaced(A, "alone", space_s)
            await asyncio.sleep(2 * space_s)
            queue.stop()

    virtual_time.run(crowded())
    # Each names the latest addition that it is for.
    assert [cause for _, cause in begun] == ["crowd 0", "crowd 4", "crowd 8", "alone"]
    alone_s = (9 * 0.22 + 2) * space_s
    assert [at_s for at_s, _ in begun] == pytest.approx([0.0, space_s, 2 * space_s, alone_s])


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
