"""Leader election: acquires and renews a lease, and runs the terms of a service.

::

    standby ──▶ materialize, and follow the leader
       ▲            │ the lease is acquired: ``Leadership.acquired`` returns
       │            ▼
       │         open the log, act ──▶ stop requested: finish, release the lease
       └── lost, or replaced in the log: drop all state and start again as standby
"""

import asyncio
import contextlib
import socket
import uuid
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from stromboli.shared import errors
from stromboli.shared.leader_election import lease_rules, settings
from stromboli.shared.runtime import runtime

LEASE, ROLE = "lease", "role"
"""Names of a service's health facts: the error of its lease, and its role."""
REPLACED = (
    "another replica has opened the log, and leases are off, so this one stays inactive; stop one "
    "of the two, or enable leases for both (STROM_LEASE_ENABLED=true)"
)
RELEASE_TIMEOUT_S = 1.0
"""Seconds within which the lease is released at the end; otherwise it expires."""

_log = structlog.get_logger(__name__)


def identity(lease_settings: settings.LeaseSettings) -> str:
    """The identity of this replica in its lease."""
    return lease_settings.identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"


class LeaseStore(Protocol):
    """The storage of a lease. Writes are conditional on the version that was last read or
    written."""

    async def read(self) -> lease_rules.LeaseRecord:
        """The lease as stored. Raises ExternalError."""

    async def acquire(
        self, identity: str, terms: lease_rules.LeaseTiming
    ) -> lease_rules.LeaseRecord:
        """Acquire the lease. Returns the record as stored. Raises ConflictError if the record has
        changed since this store last read or wrote it, and other ExternalErrors."""

    async def renew(self, identity: str, terms: lease_rules.LeaseTiming) -> lease_rules.LeaseRecord:
        """Renew the lease. Raises as ``acquire`` does."""

    async def release(self) -> None:
        """Release the lease. Raises as ``acquire`` does."""


class Leadership(Protocol):
    """A service's view of its lease during one term."""

    async def acquired(self) -> None:
        """Return once this replica is the leader."""

    @property
    def acts(self) -> bool:
        """Whether this replica may act at this moment."""


Term = Callable[[Leadership], Awaitable[None]]
"""A service from standby to the end of its term: it materializes its state, awaits ``acquired``,
opens the log and acts.

If it is cancelled while it ``acts``, it may finish work in progress; if it no longer ``acts``, it
must stop immediately. Raises ReplacedError if the log has a later writer.
"""


class Lease(Protocol):
    """Runs the terms of a service, one at a time."""

    async def serve(self, term: Term) -> None:
        """Run a term until it ends. Returns when the next term may begin."""

    async def release(self) -> None:
        """Release the lease because the process ends."""


class SingleReplica:
    """A ``Lease`` without leader election: this replica acts immediately. Once replaced it stays
    inactive, because two such replicas would replace each other repeatedly."""

    acts = True

    def __init__(self, health: runtime.Health) -> None:
        self._health = health
        self._is_replaced = False

    async def acquired(self) -> None:
        """Return immediately, unless this replica was replaced: then wait indefinitely."""
        if self._is_replaced:
            self._health.set(LEASE, REPLACED)
            await asyncio.Event().wait()

    async def serve(self, term: Term) -> None:
        """See ``Lease``."""
        has_lost_log = False
        try:
            await term(self)
        except* errors.LogLostError:
            has_lost_log = True
            raise
        finally:
            self._is_replaced = not has_lost_log

    async def release(self) -> None:
        """Do nothing, since there is no lease to release."""


class LeaderElector:
    """See ``Lease``: holds a lease in a store, or waits for it."""

    def __init__(
        self,
        place: LeaseStore,
        identity: str,
        terms: lease_rules.LeaseTiming,
        health: runtime.Health,
        *,
        role: str = ROLE,
        essential: bool = True,
    ) -> None:
        """``role``: the name of the health note with this replica's role. ``essential``: whether
        the process is not ready while the lease cannot be read; otherwise this is a warning."""
        self._place = place
        self._terms = terms
        self._health = health
        self._role = role
        self._report = health.set if essential else health.warn
        self._candidate = lease_rules.Candidate(identity, terms)
        self._acquired = asyncio.Event()

    @property
    def acts(self) -> bool:
        """See ``Leadership``."""
        return self._candidate.acts(_now())

    async def acquired(self) -> None:
        """See ``Leadership``."""
        await self._acquired.wait()

    async def serve(self, term: Term) -> None:
        """See ``Lease``."""
        self._acquired.clear()
        # Even if this replica still holds the lease: every term begins by taking it.
        self._candidate.step_down()
        keeping = asyncio.create_task(self._keep())
        serving = asyncio.ensure_future(term(self))
        try:
            await asyncio.wait([keeping, serving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # The lease is renewed until the term has ended, so that no other one begins before.
            await _ended(serving)
            await _ended(keeping)
        for task in (serving, keeping):
            if not task.cancelled():
                task.result()

    async def release(self) -> None:
        """See ``Lease``."""
        if not self.acts:
            return
        self._candidate.step_down()
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_S):
                await self._place.release()
        except (errors.ExternalError, TimeoutError) as error:
            _log.info("lease not released; it expires", reason=str(error) or type(error).__name__)

    async def _keep(self) -> None:
        """Wait for the lease, then renew it until it is lost."""
        candidate = self._candidate
        while not candidate.acts(_now()):
            await self._trying(self._take)
            if not candidate.acts(_now()):
                self._health.note(self._role, f"standby of {candidate.holder or 'no replica'}")
                await asyncio.sleep(self._terms.retry_period_s)
        self._health.note(self._role, "active")
        self._acquired.set()
        _log.info("replica is the leader", identity=candidate.identity)
        while self.acts:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(candidate.acts_until):
                    await asyncio.sleep(self._terms.retry_period_s)
                    await self._trying(self._renew)
        _log.warning("lease lost", to=candidate.holder)

    async def _take(self) -> None:
        self._candidate.observe(await self._place.read(), _now())
        sent_at = _now()
        if self._candidate.may_write(sent_at):
            lease = await self._place.acquire(self._candidate.identity, self._terms)
            self._candidate.record_renewal(lease, sent_at, _now())

    async def _renew(self) -> None:
        """Renew the lease once, if this replica may still act."""
        sent_at = _now()
        if self._candidate.acts(sent_at):
            lease = await self._place.renew(self._candidate.identity, self._terms)
            self._candidate.record_renewal(lease, sent_at, _now())

    async def _trying(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except errors.ConflictError:
            with contextlib.suppress(errors.ExternalError):
                self._candidate.observe(await self._place.read(), _now())
        except errors.ExternalError as error:
            self._report(LEASE, str(error))
            return
        self._report(LEASE, None)


async def serve_in_terms(
    lease: Lease,
    term: Term,
    health: runtime.Health,
    *,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Run terms indefinitely: as standby, as leader, and as standby again after another replica
    took over or a topic was deleted and created again. Each term drops the state of the previous
    one.

    ``pause`` waits for a number of seconds after such a term: two replicas that both hold a lease
    (a store that lost it, a clock that jumped) would otherwise replace each other continuously.
    """
    backoff = runtime.Backoff()
    try:
        while True:
            is_cut_short = False
            try:
                await lease.serve(term)
            except* errors.ReplacedError as replaced:
                is_cut_short = True
                reason = _reason(replaced)
                _log.warning("replica replaced", service=health.service, reason=reason)
                health.note(ROLE, f"replaced: {reason}")
            except* errors.LogLostError as group:
                is_cut_short = True
                _log.warning("log lost", service=health.service, reason=_reason(group))
            if is_cut_short:
                await pause(backoff.next_s())
    finally:
        await lease.release()


def _reason(group: BaseExceptionGroup[Exception]) -> str:
    first = group.exceptions[0]
    return _reason(first) if isinstance(first, BaseExceptionGroup) else str(first)


async def _ended(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _now() -> float:
    return asyncio.get_running_loop().time()
