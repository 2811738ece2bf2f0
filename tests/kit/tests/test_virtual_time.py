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

    with asyncio.Runner(loop_factory=virtual_time.VirtualTimeLoop) as runner:
        runner.run(asyncio.wait_for(all_together(), 3600))
