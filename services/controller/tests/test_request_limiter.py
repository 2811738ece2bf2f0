"""The request limiter: nearly complete groups first, and no group waits for a large job."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.controller.execution import request_limiter
from stromboli.controller.execution.request_limiter import RequestLimiter


async def settled() -> None:
    """All requests that can proceed have done so."""
    for _ in range(5):
        await asyncio.sleep(0)


class Writers:
    """Requests that end when the test decides."""

    def __init__(self, limit: int) -> None:
        self.limiter = RequestLimiter(limit)
        self.served: list[str] = []
        self.order: list[int] = []
        """Which request of all, as they are served."""
        self.under_way: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, *groups: str) -> None:
        """One request of each, in this order."""
        for group in groups:
            self.tasks.append(asyncio.create_task(self._write(group, len(self.tasks))))
        await settled()

    async def finish_one(self) -> None:
        """The oldest request under way ends."""
        self.under_way[0].set()
        await settled()

    async def finish_all(self) -> None:
        while self.under_way:
            await self.finish_one()
        await asyncio.gather(*self.tasks)

    async def _write(self, group: str, number: int) -> None:
        async with self.limiter.hold(group):
            self.served.append(group)
            self.order.append(number)
            self.under_way.append(done := asyncio.Event())
            try:
                await done.wait()
            finally:
                if done in self.under_way:
                    self.under_way.remove(done)


async def test_gangs_become_whole_one_after_another() -> None:
    writers = Writers(1)
    await writers.ask(*("a", "b", "c") * 40)
    await writers.finish_all()
    ends = {group: max(i for i, it in enumerate(writers.served) if it == group) for group in "abc"}
    assert ends["a"] < 60 < ends["b"] < 110 < ends["c"]


async def test_what_a_group_asks_for_later_still_goes_before_what_others_began_later() -> None:
    """Pods of the first gang are bound before the last gang's are made."""
    writers = Writers(1)
    await writers.ask("first", "last", "last", "last", "last")
    await writers.ask("first")
    await writers.finish_one()
    assert writers.served == ["first", "first"]
    await writers.finish_all()


async def test_a_small_group_does_not_wait_for_a_large_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_limiter, "LEVEL", 4)
    writers = Writers(1)
    await writers.ask(*["large"] * 20)
    for _ in range(5):
        await writers.finish_one()
    await writers.ask("small")
    await writers.finish_one()
    await writers.finish_one()  # one slot in four is given to the request that has waited longest
    assert "small" in writers.served[-2:]
    await writers.finish_all()


async def test_a_large_group_continues_while_small_ones_keep_coming(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_limiter, "LEVEL", 4)
    writers = Writers(1)
    await writers.ask(*["large"] * 60)
    for number in range(100):
        await writers.ask(f"small-{number}", f"small-{number}")
        await writers.finish_one()
    assert writers.served[5:].count("large") >= 20
    await writers.finish_all()


@given(arrivals=st.lists(st.sampled_from(["a", "b", "c", "d", ""]), min_size=1, max_size=60))
def test_a_request_waits_four_turns_at_most_for_each_that_came_before_it(
    arrivals: list[str],
) -> None:
    """However many requests of groups with fewer requests follow; '' is an idle slot."""

    async def play() -> None:
        writers = Writers(1)
        await writers.ask("held")
        turns, longest = 0, dict[int, int]()
        for group in arrivals:
            if group:
                before = len(writers.tasks) - len(writers.order)
                longest[len(writers.tasks)] = turns + request_limiter.FAIR_TURN * (before + 1)
                await writers.ask(group)
            if group != "a":
                await writers.finish_one()
                turns += 1
            assert all(turns <= at for number, at in longest.items() if number not in writers.order)
            if len(writers.order) == len(writers.tasks):
                await writers.ask("held")
        await writers.finish_all()

    asyncio.run(play())


async def test_of_large_groups_each_gets_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limiter, "LEVEL", 4)
    writers = Writers(2)
    await writers.ask(*["a"] * 100, *["b"] * 100)
    for _ in range(100):
        await writers.finish_one()
    counts = Counter(writers.served)
    assert abs(counts["a"] - counts["b"]) <= 8
    await writers.finish_all()


async def test_no_more_groups_are_remembered_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that is forgotten while it waits is served all the same."""
    monkeypatch.setattr(request_limiter, "MOST_REMEMBERED", 3)
    writers = Writers(1)
    names = [f"g{number}" for number in range(10)]
    await writers.ask(*names)
    await writers.finish_all()
    assert sorted(writers.served) == names
    assert len(writers.limiter._known) <= 3


async def test_a_cancelled_wait_costs_no_slot() -> None:
    held = RequestLimiter(1)
    async with held.hold("a"):
        waiting = asyncio.create_task(held.hold("b").__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with held.hold("c"):
        pass


@given(
    limit=st.integers(1, 3),
    moves=st.lists(st.sampled_from(["a", "b", "c", "finish", "cancel"]), max_size=40),
)
def test_the_limit_holds_and_no_request_is_lost(limit: int, moves: list[str]) -> None:
    async def play() -> None:
        writers = Writers(limit)
        for move in moves:
            match move:
                case "finish":
                    if writers.under_way:
                        await writers.finish_one()
                case "cancel":
                    waiting = [it for it in writers.tasks if not it.done()]
                    if waiting:
                        writers.tasks.remove(waiting[-1])
                        waiting[-1].cancel()
                        await settled()
                case group:
                    await writers.ask(group)
            assert len(writers.under_way) <= limit
            unfinished = sum(not it.done() for it in writers.tasks)
            assert len(writers.under_way) == min(unfinished, limit)
        await writers.finish_all()
        assert not writers.limiter._all

    asyncio.run(play())
