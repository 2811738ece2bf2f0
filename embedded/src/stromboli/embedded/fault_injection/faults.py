"""Rates of faults, and their reproducible random source."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

import msgspec

from stromboli.shared import errors

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]
Seed = int | str


class FaultRates(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities between 0 and 1.

    ``longest_delay_s``: maximum delay of reads and calls, uniformly distributed. ``repeat``: the
    last few records are delivered again. ``closed``: a watch ends after an event. ``expired``: a
    new watch is rejected as expired. ``conflict``: a patch with a test is rejected before it takes
    effect. ``unavailable``: a call fails before it takes effect. ``lost``: a call takes effect and
    fails. ``cut``: a reader of the log is disconnected.
    """

    longest_delay_s: float = 0.01
    repeat: float = 0.1
    closed: float = 0.05
    expired: float = 0.1
    conflict: float = 0.05
    unavailable: float = 0.05
    lost: float = 0.05
    cut: float = 0.02


DEFAULT_RATES = FaultRates()
"""The default rates: high enough that each fault occurs in a scenario, low enough that scenarios
finish."""


class SeededFaults:
    """Random decisions that depend on the seed, the kind of decision and its count.

    They do not depend on other tasks: the faults are the same for every interleaving of tasks.
    """

    def __init__(self, seed: Seed, rates: FaultRates, sleep: Sleep = asyncio.sleep) -> None:
        self.rates = rates
        self._seed = seed
        self._sleep = sleep
        self._draws: Counter[str] = Counter()

    def draw(self, what: str) -> Random:
        """Return the random source for the next decision of this kind."""
        self._draws[what] += 1
        return Random(f"{self._seed}/{what}/{self._draws[what]}")  # noqa: S311 - not for secrets

    def maybe_disconnect(self, chance: Random, what: str) -> None:
        """Raise UnavailableError with the probability ``cut``."""
        if chance.random() < self.rates.cut:
            raise errors.UnavailableError(what, "injected fault: disconnected")

    async def call(
        self, what: str, call: Callable[[], Awaitable[T]], *, at_once: bool = False
    ) -> T:
        """Return the result of the call after a delay, or raise UnavailableError before or after
        the call. ``at_once``: start the call without a delay, to keep its order.
        """
        chance = self.draw(what)
        if not at_once:
            await self.delay(chance)
        if chance.random() < self.rates.unavailable:
            raise errors.UnavailableError(what, "injected fault: no response")
        result = await call()
        await self.delay(chance)
        if chance.random() < self.rates.lost:
            raise errors.UnavailableError(what, "injected fault: response lost")
        return result

    async def delay(self, chance: Random) -> None:
        """Wait for a random time of at most ``longest_delay_s``."""
        if self.rates.longest_delay_s > 0:
            await self._sleep(chance.uniform(0, self.rates.longest_delay_s))
