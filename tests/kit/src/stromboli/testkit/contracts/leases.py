"""The behaviour of every lease store. An adapter's tests subclass ``LeaseContract`` and provide two
stores of one lease without a holder::

    class TestMyLeaseStore(leases.LeaseContract):
        @pytest.fixture
        async def stores(self) -> AsyncIterator[LeaseStores]: ...
"""

import asyncio
from collections.abc import Callable

import pytest

from stromboli.shared import errors
from stromboli.shared.leader_election import elector, lease_rules
from stromboli.testkit import records

TERMS = lease_rules.LeaseTiming(duration_s=5, renew_deadline_s=3.0, retry_period_s=1.0)
LeaseStores = tuple[elector.LeaseStore, elector.LeaseStore]


class LeaseContract:
    """Tests of the contract of ``stromboli.shared.leader_election.elector.LeaseStore``, one for
    each rule."""

    @pytest.fixture
    async def stores(self) -> LeaseStores:
        """Two stores of one lease."""
        raise NotImplementedError

    async def test_every_store_reads_the_holder(self, stores: LeaseStores) -> None:
        first, second = stores
        assert (await first.read()).holder == ""
        lease = await first.acquire("a", TERMS)
        assert (lease.holder, lease.duration_s) == ("a", 5.0)
        assert await _until(second, lambda lease: lease.holder == "a") == lease

    async def test_every_renewal_changes_the_record(self, stores: LeaseStores) -> None:
        first, second = stores
        await first.read()
        lease = await first.acquire("a", TERMS)
        renewed = await first.renew("a", TERMS)
        assert renewed.mark != lease.mark
        assert await _until(second, lambda seen: seen == renewed) == renewed

    async def test_a_released_lease_is_free_immediately(self, stores: LeaseStores) -> None:
        first, second = stores
        await first.read()
        await first.acquire("a", TERMS)
        await _until(second, lambda seen: seen.holder == "a")
        await first.release()
        await _until(second, lambda seen: seen.holder == "")
        await second.acquire("b", TERMS)
        await _until(first, lambda seen: seen.holder == "b")

    async def test_a_replaced_holder_cannot_renew(self, stores: LeaseStores) -> None:
        first, second = stores
        await first.read()
        await first.acquire("a", TERMS)
        await _until(second, lambda seen: seen.holder == "a")
        await second.acquire("b", TERMS)
        with pytest.raises(errors.ConflictError):
            await _renewing(first)
        assert (await _until(first, lambda seen: seen.holder == "b")).holder == "b"


async def _renewing(place: elector.LeaseStore) -> None:
    async with asyncio.timeout(records.DEADLINE_S):
        while True:
            await place.renew("a", TERMS)


class ObjectLeaseContract(LeaseContract):
    """Tests of leases that are objects, whose writes are conditional on their version."""

    async def test_a_holder_whose_last_renewal_was_cut_off_releases_the_lease(
        self, stores: LeaseStores
    ) -> None:
        """The API server has executed it, and the holder does not know the version."""
        holder, cut_off = stores
        await holder.read()
        await holder.acquire("a", TERMS)
        await cut_off.read()
        await cut_off.renew("a", TERMS)
        await holder.release()
        assert (await holder.read()).holder == ""

    @pytest.mark.parametrize("turns", range(4))
    async def test_a_holder_releases_the_lease_while_a_cancelled_renewal_is_in_flight(
        self, stores: LeaseStores, turns: int
    ) -> None:
        holder, _ = stores
        await holder.read()
        await holder.acquire("a", TERMS)
        renewing = asyncio.create_task(holder.renew("a", TERMS))
        for _ in range(turns):
            await asyncio.sleep(0)
        renewing.cancel()
        await asyncio.wait([renewing])
        await holder.release()
        assert (await holder.read()).holder == ""

    async def test_a_replaced_holder_does_not_release_the_lease_of_another(
        self, stores: LeaseStores
    ) -> None:
        replaced, holder = stores
        await replaced.read()
        await replaced.acquire("a", TERMS)
        await holder.read()
        await holder.acquire("b", TERMS)
        with pytest.raises(errors.ConflictError):
            await replaced.release()
        assert (await holder.read()).holder == "b"


async def _until(
    place: elector.LeaseStore, is_so: Callable[[lease_rules.LeaseRecord], bool]
) -> lease_rules.LeaseRecord:
    async with asyncio.timeout(records.DEADLINE_S):
        while not is_so(lease := await place.read()):  # noqa: ASYNC110 - it can only be asked
            await asyncio.sleep(0.01)
    return lease
