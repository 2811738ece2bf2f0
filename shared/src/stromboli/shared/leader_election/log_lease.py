"""A lease stored in the log, for a service without access to the cluster.

Taking the lease opens the log: if several replicas do so concurrently, the last one wins and the
others are replaced. No lock is needed, because readers drop the records of a replaced holder. The
lease only prevents unnecessary takeovers.
"""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import materialization, port
from stromboli.shared.leader_election import lease_rules
from stromboli.shared.messages import scheduling
from stromboli.shared.runtime import runtime


class LogLeaseStore:
    """See ``elector.LeaseStore``. Use as an async context manager, which reads the topic
    continuously.

    ``writer``: the writer that the last ``acquire`` opened.
    """

    writer: port.Writer

    def __init__(
        self, bus: port.Bus, instance: str, clock: runtime.Clock, health: runtime.Health
    ) -> None:
        self._bus = bus
        self._instance = instance
        self._clock = clock
        self._health = health
        self._epoch = -1
        self._seen = lease_rules.LeaseRecord()
        self._caught_up = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._following is not None
        self._following.cancel()
        await asyncio.wait([self._following])

    async def read(self) -> lease_rules.LeaseRecord:
        """See ``elector.LeaseStore.read``."""
        await self._caught_up.wait()
        return self._seen

    async def acquire(
        self, identity: str, terms: lease_rules.LeaseTiming
    ) -> lease_rules.LeaseRecord:
        """See ``elector.LeaseStore.acquire``. Always opens a new writer, because records of an
        earlier writer may still be in flight.
        """
        self.writer = await self._bus.open_writer("scheduler", self._instance)
        self._epoch = self.writer.epoch
        return await self._renewed(identity, terms)

    async def renew(self, identity: str, terms: lease_rules.LeaseTiming) -> lease_rules.LeaseRecord:
        """See ``elector.LeaseStore.renew``."""
        if self._is_replaced:
            raise errors.ConflictError("renew the lease", f"{self._seen.holder} has opened the log")
        return await self._renewed(identity, terms)

    async def release(self) -> None:
        """See ``elector.LeaseStore.release``."""
        if not self._is_replaced:
            await self._append(scheduling.LeaseRenewed(holder="", duration_s=0.0))

    @property
    def _is_replaced(self) -> bool:
        return self._epoch > self.writer.epoch

    async def _renewed(
        self, identity: str, terms: lease_rules.LeaseTiming
    ) -> lease_rules.LeaseRecord:
        message = scheduling.LeaseRenewed(holder=identity, duration_s=terms.duration_s)
        return _lease_record(message, await self._append(message))

    async def _append(self, message: scheduling.LeaseRenewed) -> str:
        draft = envelope.Draft(
            topic=topics.LEASE, key=scheduling.LEASE_KEY, message=message, time=self._clock()
        )
        (appended,) = await self.writer.append(draft)
        return appended.id

    async def _follow(self) -> None:
        # After the topic was recreated, the holder is read again when it renews the lease.
        fold = materialization.materialize(
            self._bus,
            (topics.LEASE,),
            self._health.set,
            "lease log",
            on_recreated=lambda _: None,
        )
        async with contextlib.aclosing(fold) as batches:
            async for batch in batches:
                for record in batch.records:
                    self._apply(record)
                if batch.caught_up:
                    self._caught_up.set()

    def _apply(self, record: envelope.Record) -> None:
        """Note a lease record. A record that cannot be decoded counts as a renewal, by a holder of
        a later version.
        """
        self._epoch = max(self._epoch, -1 if record.epoch is None else record.epoch)
        try:
            message = envelope.decode(record)
        except errors.UndecodableError:
            message = None
        if isinstance(message, scheduling.LeaseRenewed):
            self._seen = _lease_record(message, record.id)
        else:
            self._seen = lease_rules.LeaseRecord(record.id, self._seen.duration_s, record.id)


def _lease_record(message: scheduling.LeaseRenewed, id_: str) -> lease_rules.LeaseRecord:
    return lease_rules.LeaseRecord(message.holder, message.duration_s, id_)
