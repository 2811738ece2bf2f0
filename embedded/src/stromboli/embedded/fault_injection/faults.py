"""How much trouble, and where it comes."""

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
    """Chances between 0 and 1.

    ``longest_delay_s``: what is read or asked for waits up to so long, evenly spread.
    ``repeat``: after something read, the last few before it come again, too.
    ``closed``: a watch ends behind an event. ``expired``: a watch is refused when it begins.
    ``conflict``: a patch that tests something is refused before it took effect.
    ``unavailable``: a call fails before it took effect. ``lost``: it fails after it.
    ``cut``: whoever reads the log is cut off, behind something read.
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
"""Enough to meet every trouble within a scenario, little enough to end it."""


class SeededFaults:
    """Chances that depend on the seed, on what is decided and on how often it was before.

    Not on what else goes on: another order of tasks gives the same trouble at the same place.
    """

    def __init__(self, seed: Seed, rates: FaultRates, sleep: Sleep = asyncio.sleep) -> None:
        self.rates = rates
        self._seed = seed
        self._sleep = sleep
        self._draws: Counter[str] = Counter()

    def draw(self, what: str) -> Random:
        """The source of chance for the next time that this happens."""
        self._draws[what] += 1
        return Random(f"{self._seed}/{what}/{self._draws[what]}")  # noqa: S311 - not for secrets

    def maybe_disconnect(self, chance: Random, what: str) -> None:
        """Go on, or raise UnavailableError."""
        if chance.random() < self.rates.cut:
            raise errors.UnavailableError(what, "cut off, says the dice")

    async def call(
        self, what: str, call: Callable[[], Awaitable[T]], *, at_once: bool = False
    ) -> T:
        """What the call returns, late, or UnavailableError: before it or after it. ``at_once``: it
        takes its turn now."""
        chance = self.draw(what)
        if not at_once:
            await self.delay(chance)
        if chance.random() < self.rates.unavailable:
            raise errors.UnavailableError(what, "nobody answered, says the dice")
        result = await call()
        await self.delay(chance)
        if chance.random() < self.rates.lost:
            raise errors.UnavailableError(what, "the answer was lost, says the dice")
        return result

    async def delay(self, chance: Random) -> None:
        """Wait, or not."""
        if self.rates.longest_delay_s > 0:
            await self._sleep(chance.uniform(0, self.rates.longest_delay_s))
