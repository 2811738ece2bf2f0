"""The event loop in virtual time: what a test relies on when its clock jumps."""

import asyncio
import random

from stromboli.testkit.doubles import virtual_time


async def _waits(seed: int) -> None:
    """A task that waits until a time, as services do, in the company of others."""
    draw = random.Random(seed)
    loop = asyncio.get_running_loop()
    for _ in range(50):
        until_s = loop.time() + draw.choice((0.005, 0.05, 0.1, 0.25, 1.0))
        looks = 0
        while (left_s := until_s - loop.time()) > 0:
            await asyncio.sleep(left_s)
            looks += 1
            assert looks < 3, "time does not advance"


def test_a_wait_ends_no_earlier_than_its_time() -> None:
    """Sums of floats are rounded: what is woken an instant early waits for the rest, again and
    again, while other tasks keep the clock from advancing."""

    async def all_together() -> None:
        async with asyncio.TaskGroup() as tasks:
            for seed in range(20):
                tasks.create_task(_waits(seed))

    virtual_time.run(asyncio.wait_for(all_together(), 3600))


def test_a_wait_shorter_than_the_resolution_of_the_clock_advances_it() -> None:
    """asyncio runs a timer early if it is due within the resolution. A program that computes what
    is left of a wait and waits for it would do so without end at one time."""

    async def wait_until(at_s: float) -> int:
        loop, rung = asyncio.get_running_loop(), asyncio.Event()
        waits = 0
        while loop.time() < at_s and waits < 10:
            rung.clear()
            loop.call_later(at_s - loop.time(), rung.set)
            await asyncio.sleep(0)  # a pass of the loop that has work, so that it waits for no time
            await rung.wait()
            waits += 1
        return waits

    assert virtual_time.run(wait_until(1e-10)) == 1
