"""Leases: never two holders at the same time, whatever clocks and responses do; and a new holder
soon.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stromboli.shared import errors, leader_election
from stromboli.shared.leader_election import lease_rules
from stromboli.shared.runtime import runtime
from stromboli.testkit import records
from stromboli.testkit.strategies import depth

TERMS = lease_rules.LeaseTiming(duration_s=6.0, renew_deadline_s=4.0, retry_period_s=1.0)
REPLICAS = 3


def test_a_lease_that_was_never_observed_is_not_acquired() -> None:
    assert not lease_rules.Candidate("a", TERMS).may_write(100.0)


def test_a_lease_without_renewal_is_acquired_after_its_locally_measured_duration() -> None:
    """What its holder wrote into it does not count: the clock may be anything."""
    candidate = lease_rules.Candidate("a", TERMS)
    for now in (1000.0, 1003.0, 1006.0):
        candidate.observe(lease_rules.LeaseRecord("b", 6.0, "1970"), now)
        assert not candidate.may_write(now)
    assert candidate.may_write(1006.1)


def test_every_observed_renewal_restarts_the_duration() -> None:
    candidate = lease_rules.Candidate("a", TERMS)
    candidate.observe(lease_rules.LeaseRecord("b", 6.0, "1"), 0.0)
    candidate.observe(lease_rules.LeaseRecord("b", 6.0, "2"), 5.0)
    assert not candidate.may_write(10.9)


def test_a_free_lease_and_an_own_one_are_acquired_immediately() -> None:
    candidate = lease_rules.Candidate("a", TERMS)
    candidate.observe(lease_rules.LeaseRecord(), 0.0)
    assert candidate.may_write(0.0)
    candidate.observe(lease_rules.LeaseRecord("a", 6.0, "of the process before"), 0.0)
    assert candidate.may_write(0.0)
    assert not candidate.acts(0.0)


def test_a_holder_acts_from_the_sending_of_its_last_renewal() -> None:
    candidate = lease_rules.Candidate("a", TERMS)
    candidate.observe(lease_rules.LeaseRecord(), 0.0)
    candidate.record_renewal(lease_rules.LeaseRecord("a", 6.0, "1"), sent_at=1.0, now=3.0)
    assert candidate.acts(4.9)
    assert not candidate.acts(5.0)


@pytest.mark.parametrize("lengths", [(4.0, 4.0, 1.0), (6.0, 1.0, 1.0), (6.0, 7.0, 1.0)])
def test_lengths_that_promise_nothing_are_refused(lengths: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="they must be in descending order"):
        lease_rules.LeaseTiming(
            duration_s=lengths[0], renew_deadline_s=lengths[1], retry_period_s=lengths[2]
        )


class Replica:
    """A candidate with a clock of its own, and a write that may be under way."""

    def __init__(self, name: str, ahead_s: float, rate: float) -> None:
        self.candidate = lease_rules.Candidate(name, TERMS)
        self.ahead_s = ahead_s
        self.rate = rate
        self.read = -1
        self.sent_at: float | None = None
        self.landed: lease_rules.LeaseRecord | None = None

    def now(self, time_s: float) -> float:
        return self.ahead_s + self.rate * time_s


class Rivalry(RuleBasedStateMachine):
    """Clock rates differ by less than *L* / *R* = 1.5; requests take any time, responses may be
    lost, processes may be paused for any time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.time_s = 0.0
        self.version = 0
        self.lease = lease_rules.LeaseRecord()
        self.given_up: list[tuple[str, int]] = []

    @initialize(
        clocks=st.lists(
            st.tuples(st.floats(-1e6, 1e6), st.floats(0.85, 1.2)),
            min_size=REPLICAS,
            max_size=REPLICAS,
        )
    )
    def replicas_begin(self, clocks: list[tuple[float, float]]) -> None:
        self.replicas = [Replica(f"r{at}", *clock) for at, clock in enumerate(clocks)]

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 3.0, 4.0, 5.0, 7.0]))
    def time_passes(self, seconds: float) -> None:
        self.time_s += seconds

    @rule(which=st.integers(0, REPLICAS - 1))
    def one_looks(self, which: int) -> None:
        replica = self.replicas[which]
        now = replica.now(self.time_s)
        if replica.sent_at is not None:
            return
        if not replica.candidate.acts(now):
            replica.candidate.observe(self.lease, now)
            replica.read = self.version
        if replica.candidate.may_write(now):
            replica.sent_at, replica.landed = now, None

    @rule(which=st.integers(0, REPLICAS - 1))
    def one_waits_no_longer(self, which: int) -> None:
        """Its write may arrive all the same."""
        replica = self.replicas[which]
        if replica.sent_at is not None and replica.landed is None:
            self.given_up.append((replica.candidate.identity, replica.read))
        replica.sent_at = replica.landed = None

    @precondition(lambda self: self.given_up)
    @rule()
    def a_write_arrives_that_no_client_awaits(self) -> None:
        identity, version = self.given_up.pop()
        if version == self.version:
            self.version += 1
            self.lease = lease_rules.LeaseRecord(identity, TERMS.duration_s, str(self.version))

    @rule(which=st.integers(0, REPLICAS - 1))
    def a_write_arrives(self, which: int) -> None:
        replica = self.replicas[which]
        if replica.sent_at is None or replica.landed is not None:
            return
        if replica.read != self.version:
            replica.sent_at = None  # refused
            replica.candidate.observe(self.lease, replica.now(self.time_s))
            replica.read = self.version
            return
        self.version += 1
        self.lease = lease_rules.LeaseRecord(
            replica.candidate.identity, TERMS.duration_s, str(self.version)
        )
        replica.landed = self.lease

    @rule(which=st.integers(0, REPLICAS - 1), is_lost=st.booleans())
    def an_answer_comes(self, which: int, *, is_lost: bool) -> None:
        replica = self.replicas[which]
        if replica.sent_at is None or replica.landed is None:
            return
        if not is_lost:
            now = replica.now(self.time_s)
            replica.candidate.record_renewal(replica.landed, replica.sent_at, now)
            replica.read = int(replica.landed.mark)
        replica.sent_at = replica.landed = None

    @precondition(lambda self: self.lease.holder != "")
    @rule()
    def the_holder_leaves(self) -> None:
        (holder,) = (it for it in self.replicas if it.candidate.identity == self.lease.holder)
        if holder.sent_at is None and holder.read == self.version:
            holder.candidate.step_down()
            self.version += 1
            self.lease = lease_rules.LeaseRecord("", TERMS.duration_s, str(self.version))

    @invariant()
    def at_most_one_acts(self) -> None:
        acting = [
            replica.candidate.identity
            for replica in getattr(self, "replicas", ())
            if replica.candidate.acts(replica.now(self.time_s))
        ]
        assert len(acting) <= 1, acting

    def teardown(self) -> None:
        """Left alone, each of them takes over within the length of a lease and two looks."""
        for replica in getattr(self, "replicas", ())[:1]:
            begun_s = self.time_s
            self.one_waits_no_longer(0)
            while not replica.candidate.acts(replica.now(self.time_s)):
                assert self.time_s <= begun_s + (TERMS.duration_s + 2 * TERMS.retry_period_s) / 0.85
                self.one_looks(0)
                self.a_write_arrives(0)
                self.an_answer_comes(0, is_lost=False)
                self.time_s += TERMS.retry_period_s


TestRivalry = Rivalry.TestCase
TestRivalry.settings = settings(depth.examples(100), stateful_step_count=40)


# --- the loop ---------------------------------------------------------------------------------

LASTING = lease_rules.LeaseTiming(duration_s=60, renew_deadline_s=40.0, retry_period_s=0.02)
"""No replica loses its lease because the machine is slow."""
QUICK = lease_rules.LeaseTiming(duration_s=3, renew_deadline_s=2.0, retry_period_s=0.02)


class Shared:
    """A lease in memory, and whether it can be reached."""

    def __init__(self) -> None:
        self.seen = lease_rules.LeaseRecord()
        self.is_away = False

    def place(self) -> "Place":
        return Place(self)


class Place:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._last = lease_rules.LeaseRecord()

    async def read(self) -> lease_rules.LeaseRecord:
        self._check()
        self._last = self._shared.seen
        return self._last

    async def acquire(
        self, identity: str, terms: lease_rules.LeaseTiming
    ) -> lease_rules.LeaseRecord:
        return self._write(
            lease_rules.LeaseRecord(identity, terms.duration_s, self._shared.seen.mark + ".")
        )

    async def renew(self, identity: str, terms: lease_rules.LeaseTiming) -> lease_rules.LeaseRecord:
        return await self.acquire(identity, terms)

    async def release(self) -> None:
        self._write(lease_rules.LeaseRecord("", 0.0, self._shared.seen.mark + "."))

    def _write(self, lease: lease_rules.LeaseRecord) -> lease_rules.LeaseRecord:
        self._check()
        if self._shared.seen != self._last:
            raise errors.ConflictError("lease", "another was faster")
        self._shared.seen = self._last = lease
        return lease

    def _check(self) -> None:
        if self._shared.is_away:
            raise errors.UnavailableError("lease", "away")


class Served:
    """A service that only leads; the number of its terms, and how they ended."""

    def __init__(
        self, shared: Shared, name: str, timing: lease_rules.LeaseTiming = LASTING
    ) -> None:
        self.health = runtime.Health(name)
        self.began = 0
        self.ended: list[str] = []
        self.acting = asyncio.Event()
        self.replace = asyncio.Event()
        self._keeper = leader_election.LeaderElector(shared.place(), name, timing, self.health)

    async def _term(self, lead: leader_election.Leadership) -> None:
        await lead.acquired()
        self.began += 1
        self.acting.set()
        try:
            await self.replace.wait()
            self.replace.clear()
            raise errors.ReplacedError("another has opened")
        except asyncio.CancelledError:
            self.ended.append("finishing" if lead.acts else "at once")
            raise
        finally:
            self.acting.clear()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator["Served"]:
        task = asyncio.create_task(
            leader_election.serve_in_terms(self._keeper, self._term, self.health)
        )
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(records.DEADLINE_S):
        await event.wait()


async def test_a_lease_is_released_at_the_end_and_the_standby_leads() -> None:
    shared = Shared()
    second = Served(shared, "b")
    async with contextlib.AsyncExitStack() as stack:
        async with Served(shared, "a").serving() as first:
            await soon(first.acting)
            await stack.enter_async_context(second.serving())
            async with asyncio.timeout(records.DEADLINE_S):
                while second.health.notes.get("role") != "standby of a":  # noqa: ASYNC110 - a note
                    await asyncio.sleep(0)
            assert not second.began
        assert first.ended == ["finishing"]
        await soon(second.acting)
        assert second.health.notes["role"] == "active"
    assert shared.seen.holder == ""


async def test_a_holder_that_cannot_renew_stops_immediately_and_restarts_later() -> None:
    shared = Shared()
    async with Served(shared, "a", QUICK).serving() as only:
        await soon(only.acting)
        shared.is_away = True
        async with asyncio.timeout(records.DEADLINE_S):
            while not only.ended:  # noqa: ASYNC110 - of another task
                await asyncio.sleep(0.01)
        assert only.ended == ["at once"]
        assert "away" in only.health.problems["lease"]
        shared.is_away = False
        await soon(only.acting)
        assert (only.began, only.health.problems) == (2, {})


async def test_a_fenced_leader_must_acquire_the_lease_again() -> None:
    shared = Shared()
    async with Served(shared, "a").serving() as only:
        await soon(only.acting)
        before = shared.seen.mark
        only.replace.set()
        async with asyncio.timeout(records.DEADLINE_S):
            while only.began < 2:  # noqa: ASYNC110 - of another task
                await asyncio.sleep(0.01)
        assert len(shared.seen.mark) > len(before)


async def test_replicas_that_replace_each_other_pause_longer_each_time() -> None:
    """Whatever lets two replicas lead at once must not keep the broker busy with their terms."""
    paused: list[float] = []
    enough = asyncio.Event()

    async def pause(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 6:
            enough.set()
        await asyncio.sleep(0)

    async def replaced(lead: leader_election.Leadership) -> None:
        await lead.acquired()
        raise errors.ReplacedError("another has opened")

    health = runtime.Health("a")
    keeper = leader_election.LeaderElector(Shared().place(), "a", LASTING, health)
    task = asyncio.create_task(
        leader_election.serve_in_terms(keeper, replaced, health, pause=pause)
    )
    await soon(enough)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert all(later > earlier for earlier, later in itertools.pairwise(paused[:6]))
    assert health.notes["role"].startswith("replaced")
