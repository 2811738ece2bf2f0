"""The permit of a decision in flight is returned exactly once, whatever happens to the decision."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from stromboli.controller.execution.inflight_permits import InFlightPermit

PLACES = 2


@pytest.fixture
async def in_hand() -> AsyncIterator[asyncio.Semaphore]:
    """As many places are free afterwards as were before."""
    topology_index = asyncio.Semaphore(PLACES)
    yield topology_index
    for _ in range(PLACES):
        assert not topology_index.locked(), "a place was lost"
        await topology_index.acquire()
    assert topology_index.locked(), "there is a place too many"


async def waits(permit: InFlightPermit, until: asyncio.Event) -> None:
    async with permit.given_up():
        await until.wait()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def crossing(
    in_hand: asyncio.Semaphore,
) -> tuple[InFlightPermit, asyncio.Event, list[asyncio.Task[None]], list[InFlightPermit]]:
    """A turn of which one part has done waiting while others have all places, and another waits
    until the event; with both parts, and the others."""
    permit, over, later = await InFlightPermit.begun(in_hand), asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(waits(permit, over))
    await settled()
    others = [await InFlightPermit.begun(in_hand) for _ in range(PLACES)]
    over.set()
    await settled()
    second = asyncio.create_task(waits(permit, later))
    await settled()
    return permit, later, [first, second], others


async def test_others_have_the_place_while_a_decision_waits(in_hand: asyncio.Semaphore) -> None:
    permit, over = await InFlightPermit.begun(in_hand), asyncio.Event()
    waiting = [asyncio.create_task(waits(permit, over)) for _ in range(3)]
    await settled()
    others = [await InFlightPermit.begun(in_hand) for _ in range(PLACES)]
    over.set()
    await settled()
    assert not waiting[-1].done(), "its place is taken"
    for other in others:
        other.end()
    await asyncio.wait(waiting)
    permit.end()


async def test_one_that_is_cancelled_while_its_place_is_taken_gives_none_back(
    in_hand: asyncio.Semaphore,
) -> None:
    """As when the log fails while all permits are taken: no additional permit may appear with each
    outage.
    """
    permit, over = await InFlightPermit.begun(in_hand), asyncio.Event()
    waiting = asyncio.create_task(waits(permit, over))
    await settled()
    others = [await InFlightPermit.begun(in_hand) for _ in range(PLACES)]
    over.set()
    await settled()
    waiting.cancel()
    await asyncio.wait([waiting])
    permit.end()
    for other in others:
        other.end()


async def test_two_that_come_back_to_it_at_once_take_it_once(in_hand: asyncio.Semaphore) -> None:
    """One has finished waiting when the other one starts. A second permit may never be free."""
    permit, later, (first, second), (one, other) = await crossing(in_hand)
    later.set()
    await settled()
    one.end()
    await asyncio.wait([first, second])
    permit.end()
    other.end()


async def test_who_comes_back_while_another_part_waits_leaves_the_place_to_others(
    in_hand: asyncio.Semaphore,
) -> None:
    permit, later, (first, second), (one, other) = await crossing(in_hand)
    one.end()
    await asyncio.wait([first])
    third = await InFlightPermit.begun(in_hand)
    for each in (third, other):
        each.end()
    later.set()
    await asyncio.wait([second])
    permit.end()
