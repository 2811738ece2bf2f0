"""Detects other systems that act on the same API groups, and publishes them in ``cluster.sync``."""

import asyncio

import msgspec

from stromboli.monitor.core import competitor_tracker
from stromboli.shared import envelope, errors, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port
from stromboli.shared.messages import cluster as messages
from stromboli.shared.runtime import runtime

FACT = "competitors"


class CompetitorWatch:
    """Checks the leases of other systems. The monitor only reads, so it runs beside a
    competitor."""

    def __init__(
        self,
        claimed: tuple[str, ...],
        cluster: port.Cluster,
        writer: bus_port.Writer,
        health: runtime.Health,
        clock: runtime.Clock,
    ) -> None:
        self._claims = competitor_tracker.parse_claims(claimed)
        self._tracker = competitor_tracker.CompetitorTracker(self._claims)
        self._cluster = cluster
        self._writer = writer
        self._health = health
        self._clock = clock
        self._published: messages.CompetitorsObserved | None = None

    async def run(self, every_s: float) -> None:
        """Check the leases every ``every_s`` seconds until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            await self.check()

    async def check(self) -> None:
        """Check every lease once, and publish a changed result. While the API server is unavailable
        the last result stays valid; the first check waits for it.
        """
        for claim in self._claims:
            await self._check_lease(claim)
        competitors_observed = self._tracker.found(asyncio.get_running_loop().time(), self._clock())
        if competitors_observed == self._published:
            return
        draft = envelope.Draft(
            topic=topics.SYNC,
            key=messages.COMPETITORS_KEY,
            message=competitors_observed,
            time=self._clock(),
        )
        await runtime.retry_until_available(lambda: self._writer.append(draft), "log", self._health)
        self._published = competitors_observed
        lines = [f"{it.holder} holds Lease {it.lease}" for it in competitors_observed.competitors]
        self._health.warn(
            FACT, "; ".join([*lines, competitors_observed.unknown]).strip("; ") or None
        )

    async def _check_lease(self, claim: competitor_tracker.LeaseClaim) -> None:
        async def read() -> bytes | None:
            try:
                return await self._cluster.get(kinds.LEASES, claim.namespace, claim.name)
            except errors.NotFoundError:
                return None

        try:
            raw = await (
                read()
                if self._published
                else runtime.retry_until_available(read, "cluster", self._health)
            )
            spec = None if raw is None else kinds.LEASES.decode(raw).spec
        except errors.TransientError:
            return
        except (errors.PermanentError, msgspec.DecodeError) as error:
            self._tracker.record_error(claim, str(error))
        else:
            self._tracker.observe(claim, spec, asyncio.get_running_loop().time())
