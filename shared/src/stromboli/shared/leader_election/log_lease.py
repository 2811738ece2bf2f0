"""A lease that stands in the log, for a service that knows nothing else.

To take it is to open the log: of those who do so at the same time the later one is heard, and the
earlier one finds itself replaced. Hence nothing has to be locked: readers drop what a holder still
says that was too slow, and the lease only keeps others from opening without need.
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
    """See ``keeping.Place``. Use as an async context manager: it follows the topic while inside.

    ``writer``: the one that the last ``take`` opened.
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
        """See ``keeping.Place.read``."""
        await self._caught_up.wait()
        return self._seen

    async def take(self, identity: str, terms: lease_rules.LeaseTiming) -> lease_rules.LeaseRecord:
        """See ``keeping.Place.take``: always by a new writer, since what an earlier one has under
        way may still come to stand in the log."""
        self.writer = await self._bus.open_writer("scheduler", self._instance)
        self._epoch = self.writer.epoch
        return await self._said(identity, terms)

    async def renew(self, identity: str, terms: lease_rules.LeaseTiming) -> lease_rules.LeaseRecord:
        """See ``keeping.Place.renew``."""
        if self._is_replaced:
            raise errors.ConflictError("renew the lease", f"{self._seen.holder} has opened the log")
        return await self._said(identity, terms)

    async def release(self) -> None:
        """See ``keeping.Place.release``."""
        if not self._is_replaced:
            await self._append(scheduling.LeaseRenewed(holder="", duration_s=0.0))

    @property
    def _is_replaced(self) -> bool:
        return self._epoch > self.writer.epoch

    async def _said(self, identity: str, terms: lease_rules.LeaseTiming) -> lease_rules.LeaseRecord:
        message = scheduling.LeaseRenewed(holder=identity, duration_s=terms.duration_s)
        return _lease_record(message, await self._append(message))

    async def _append(self, message: scheduling.LeaseRenewed) -> str:
        draft = envelope.Draft(
            topic=topics.LEASE, key=scheduling.LEASE_KEY, message=message, time=self._clock()
        )
        (appended,) = await self.writer.append(draft)
        return appended.id

    async def _follow(self) -> None:
        # Where the topic is recreated its holder is still to be seen: it renews.
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
                    self._take_in(record)
                if batch.caught_up:
                    self._caught_up.set()

    def _take_in(self, record: envelope.Record) -> None:
        """What cannot be read is a holder, too: one of a later version, who renews all the same."""
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
