"""The lease loop, and a service that acts while it holds the lease.

::

    standby ──▶ materialize, and follow the leader
       ▲            │ the lease is acquired: ``Leadership.acquired`` returns
       │            ▼
       │         open the log, act ──▶ asked to stop: finish, release the lease
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
"""Health facts of a service: the error that keeps it from its lease, and its role."""
REPLACED = (
    "another replica has opened the log, and leases are off: this one stays inactive; stop one of "
    "the two, or let both hold a lease (STROM_LEASE_ENABLED=true)"
)
RELEASE_TIMEOUT_S = 1.0
"""At the end the lease is released if that is quick; otherwise it expires."""

_log = structlog.get_logger(__name__)


def identity(given: settings.LeaseSettings) -> str:
    """The name of this replica in its lease."""
    return given.identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"


class LeaseStore(Protocol):
    """Where a lease is stored. Writes are conditional on the version that was read or written
    last."""

    async def read(self) -> lease_rules.LeaseRecord:
        """The lease as stored. Raises ExternalError."""

    async def take(self, identity: str, terms: lease_rules.LeaseTiming) -> lease_rules.LeaseRecord:
        """Take the lease; returns it as stored afterwards. Raises ConflictError if it has changed
        since it was last read or written here, and other ExternalErrors."""

    async def renew(self, identity: str, terms: lease_rules.LeaseTiming) -> lease_rules.LeaseRecord:
        """Renew the lease. Raises as ``take`` does."""

    async def release(self) -> None:
        """Release the lease. Raises as ``take`` does."""


class Leadership(Protocol):
    """The lease of a service during one term."""

    async def acquired(self) -> None:
        """Return once this replica is the leader."""

    @property
    def acts(self) -> bool:
        """Whether this replica may act at this moment."""


Term = Callable[[Leadership], Awaitable[None]]
"""A service from standby to the end of its term: it materializes its state, awaits ``acquired``,
opens
the log and acts.

Cancelled while it acts, it may finish work in progress; cancelled when it no longer ``acts``, it
stops immediately. Raises ReplacedError when the log has a later writer.
"""


class Lease(Protocol):
    """Terms of a service, one at a time."""

    async def serve(self, term: Term) -> None:
        """Serve this term until it ends; returns when another one may begin."""

    async def leave(self) -> None:
        """The process ends: release the lease."""


class SingleReplica:
    """No lease: this replica acts immediately. Once replaced it stays inactive, because two such
    replicas would replace one another in turns."""

    acts = True

    def __init__(self, health: runtime.Health) -> None:
        self._health = health
        self._is_replaced = False

    async def acquired(self) -> None:
        """Returns immediately, the first time."""
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

    async def leave(self) -> None:
        """Does nothing: there is no lease to release."""


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
        """``role``: the health note with this replica's role. ``essential``: whether a process
        whose lease cannot be read is not ready; otherwise that is a warning."""
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
        # also if this replica still holds the lease: every term begins by taking it
        self._candidate.yields()
        keeping = asyncio.create_task(self._keep())
        serving = asyncio.ensure_future(term(self))
        try:
            await asyncio.wait([keeping, serving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _ended(
                serving
            )  # renewal continues meanwhile: no other term begins before this one ends
            await _ended(keeping)
        for task in (serving, keeping):
            if not task.cancelled():
                task.result()

    async def leave(self) -> None:
        """See ``Lease``."""
        if not self.acts:
            return
        self._candidate.yields()
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_S):
                await self._place.release()
        except (errors.ExternalError, TimeoutError) as error:
            _log.info("lease not released; it expires", reason=str(error) or type(error).__name__)

    async def _keep(self) -> None:
        """Wait for the lease, then renew it; returns when it is lost."""
        candidate = self._candidate
        while not candidate.acts(_now()):
            await self._trying(self._take)
            if not candidate.acts(_now()):
                self._health.note(self._role, f"standby of {candidate.holder or 'no replica'}")
                await asyncio.sleep(self._terms.retry_period_s)
        self._health.note(self._role, "active")
        self._acquired.set()
        _log.info("leads", identity=candidate.identity)
        while self.acts:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(candidate.acts_until):
                    await asyncio.sleep(self._terms.retry_period_s)
                    await self._trying(self._renew)
        _log.warning("lease lost", to=candidate.holder)

    async def _take(self) -> None:
        self._candidate.see(await self._place.read(), _now())
        sent_at = _now()
        if self._candidate.may_write(sent_at):
            seen = await self._place.take(self._candidate.identity, self._terms)
            self._candidate.wrote(seen, sent_at, _now())

    async def _renew(self) -> None:
        """Renew the lease; raises once its time is over, and with it the term."""
        sent_at = _now()
        if self._candidate.acts(sent_at):
            seen = await self._place.renew(self._candidate.identity, self._terms)
            self._candidate.wrote(seen, sent_at, _now())

    async def _trying(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except errors.ConflictError:
            with contextlib.suppress(errors.ExternalError):
                self._candidate.see(await self._place.read(), _now())
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
    """Serve indefinitely: standby, leader, and standby again after another replica took over or a
    topic was deleted and created again; state derived from it is dropped then.

    ``pause`` waits for a number of seconds between such terms: two replicas that both hold a lease
    (a store that forgot it, a clock that jumped) would otherwise replace each other continuously.
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
                _log.warning("replaced", service=health.service, reason=reason)
                health.note(ROLE, f"replaced: {reason}")
            except* errors.LogLostError as group:
                is_cut_short = True
                _log.warning("log lost", service=health.service, reason=_reason(group))
            if is_cut_short:
                await pause(backoff.next_s())
    finally:
        await lease.leave()


def _reason(group: BaseExceptionGroup[Exception]) -> str:
    first = group.exceptions[0]
    return _reason(first) if isinstance(first, BaseExceptionGroup) else str(first)


async def _ended(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _now() -> float:
    return asyncio.get_running_loop().time()
