"""Prepares volume claims and devices before the pods of a decision are bound.

A gang is prepared as a whole before any pod of it is bound: otherwise one claim that cannot be
bound would leave a part of the gang running. The preparation waits for Kubernetes' volume
controller, a provisioner, or another pod that shares the claim. Other decisions proceed meanwhile.
The rules are in ``core.decisions.preparations``.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import msgspec
import structlog

from stromboli.controller import isolation
from stromboli.controller.core import commands
from stromboli.controller.core.decisions import decisions, preparations
from stromboli.controller.execution.inflight_permits import InFlightPermit, Retrier
from stromboli.controller.execution.request_limiter import RequestLimiter
from stromboli.shared import errors
from stromboli.shared.api import kinds, meta
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.messages import scheduling as messages
from stromboli.shared.runtime import runtime

M = TypeVar("M", bound=meta.Object)
LOOK_S = 2.0
"""Longest time in seconds between two reads of a claim; provisioning a volume takes seconds."""
_log = structlog.get_logger(__name__)


class ClaimPreparation:
    """Prepares the claims of binds, and rolls back. ``within_s``: the deadline of a claim, in
    seconds."""

    def __init__(
        self,
        cluster: cluster_port.Cluster,
        limiter: RequestLimiter,
        retrier: Retrier,
        within_s: float,
    ) -> None:
        self._cluster = cluster
        self._limiter = limiter
        self._retrier = retrier
        self._within_s = within_s
        self._allocating: dict[str, set[int]] = {}
        """Uid of a ResourceClaim -> the binds in execution that may allocate it."""

    @contextlib.contextmanager
    def allocating(self, binds: Sequence[messages.Bind]) -> Iterator[None]:
        """Note the claims that a decision allocates, during its execution: a pod that shares a
        claim waits for it only while it is noted. Decisions begin in the order of the log, so a
        claim that an earlier decision allocates is noted or already has its devices."""
        for bind in binds:
            for claim in _allocated_by(bind):
                self._allocating.setdefault(claim, set()).add(id(bind))
        try:
            yield
        finally:
            for bind in binds:
                self._end_allocating(bind)

    def _end_allocating(self, bind: messages.Bind) -> None:
        for claim in _allocated_by(bind):
            binds = self._allocating.get(claim, set())
            binds.discard(id(bind))
            if not binds:
                self._allocating.pop(claim, None)

    async def prepare(
        self, binds: Sequence[messages.Bind], group: str, permit: InFlightPermit
    ) -> dict[str, decisions.ExecutionResult]:
        """Prepare the claims of all binds. Returns uid of a pod -> why it cannot be bound; empty if
        all claims are prepared."""
        async with asyncio.TaskGroup() as tasks:
            tasks_by_uid = {
                bind.uid: tasks.create_task(self._prepare_isolated(bind, group, permit))
                for bind in binds
            }
        results = {uid: task.result() for uid, task in tasks_by_uid.items()}
        failed = {uid: it for uid, it in results.items() if it is not preparations.DONE}
        if not failed:
            return {}
        first = next(iter(failed.values()))
        others = preparations.refused("GangNotPrepared", first.message)
        return {bind.uid: failed.get(bind.uid, others) for bind in binds}

    async def release(self, bind: messages.Bind, group: str) -> None:
        """Release the devices of a pod that is not bound."""
        for step in bind.devices:
            backoff = runtime.Backoff()
            while True:
                try:
                    claim = await self._read(kinds.RESOURCE_CLAIMS, bind.namespace, step.claim)
                    patch = preparations.release(step, bind, claim)
                    if patch is not None:
                        await self._write(patch, group)
                    break
                except (errors.ConflictError, errors.NotFoundError):
                    await self._retrier.pause(backoff.next_s())
                except errors.PermanentError as error:
                    _log.warning("devices not released", claim=step.claim, reason=error.reason)
                    break

    async def outcomes(
        self, binds: Sequence[messages.Bind], tasks: Sequence[messages.TaskOutcome]
    ) -> tuple[messages.ClaimOutcome, ...]:
        """The outcomes of the claims that the binds allocate. ``tasks``: the outcomes of the binds.
        One request for each claim."""
        bound = {task.uid for task in tasks if task.result == "executed"}
        steps: dict[tuple[str, str], messages.ClaimedDevices] = {}
        with_bound = set()
        for bind in binds:
            for step in bind.devices:
                if step.allocation is not None:
                    steps[bind.namespace, step.claim] = step
                if bind.uid in bound:
                    with_bound.add((bind.namespace, step.claim))
        async with asyncio.TaskGroup() as group:
            requests = [
                group.create_task(self._outcome(step, namespace, (namespace, name) in with_bound))
                for (namespace, name), step in steps.items()
            ]
        return tuple(each for task in requests if (each := task.result()) is not None)

    async def _outcome(
        self, step: messages.ClaimedDevices, namespace: str, is_bound: bool
    ) -> messages.ClaimOutcome | None:
        try:
            claim = await self._read(kinds.RESOURCE_CLAIMS, namespace, step.claim)
        except errors.PermanentError as error:
            # It may have the devices: the scheduler holds them until it has read the claim.
            _log.warning("claim not read", claim=step.claim, reason=error.reason)
            return messages.ClaimOutcome(
                namespace=namespace, claim=step.claim, uid=step.uid, version=0
            )
        return preparations.outcome(step, namespace, claim, is_bound=is_bound)

    async def _prepare_isolated(
        self, bind: messages.Bind, group: str, permit: InFlightPermit
    ) -> decisions.ExecutionResult:
        call = functools.partial(self._prepare, bind, group, permit)
        try:
            return await isolation.run(call, decisions.failure, "preparation", pod=bind.pod)
        finally:
            self._end_allocating(bind)

    async def _prepare(
        self, bind: messages.Bind, group: str, permit: InFlightPermit
    ) -> decisions.ExecutionResult:
        try:
            async with asyncio.timeout(self._within_s):
                for volume in bind.volumes:
                    answer = await self._bind_volume(volume, bind, group, permit)
                    if answer is not preparations.DONE:
                        return answer
                for devices in bind.devices:
                    answer = await self._give_devices(devices, bind, group, permit)
                    if answer is not preparations.DONE:
                        return answer
        except TimeoutError:
            claims = [
                *(each.claim for each in bind.volumes),
                *(each.claim for each in bind.devices),
            ]
            names = ", ".join(claims)
            text = f"claims {names} of pod {bind.pod} were not ready within {self._within_s:g} s"
            return preparations.refused("PreparationTimedOut", text)
        return preparations.DONE

    async def _bind_volume(
        self, step: messages.ClaimedVolume, bind: messages.Bind, group: str, permit: InFlightPermit
    ) -> decisions.ExecutionResult:
        is_asked = False

        async def next_step() -> preparations.Next:
            nonlocal is_asked
            namespace = bind.namespace
            claim = await self._read(kinds.PERSISTENT_VOLUME_CLAIMS, namespace, step.claim)
            volume = None
            if claim is not None and preparations.needs_volume(step, claim):
                volume = await self._read(kinds.PERSISTENT_VOLUMES, "", step.volume)
            next_action = preparations.for_volume(
                step, namespace, bind.node, claim, volume, is_asked=is_asked
            )
            is_asked = is_asked or next_action is None
            return next_action

        def written() -> None:
            # A provisioner may have given up before the claim is read again.
            nonlocal is_asked
            is_asked = True

        return await self._follow(next_step, group, permit, written)

    async def _give_devices(
        self, step: messages.ClaimedDevices, bind: messages.Bind, group: str, permit: InFlightPermit
    ) -> decisions.ExecutionResult:
        async def next_step() -> preparations.Next:
            is_coming = step.uid in self._allocating  # before the read: the end may come between
            claim = await self._read(kinds.RESOURCE_CLAIMS, bind.namespace, step.claim)
            return preparations.for_devices(step, bind, claim, is_coming=is_coming)

        return await self._follow(next_step, group, permit)

    async def _follow(
        self,
        next_step: Callable[[], Awaitable[preparations.Next]],
        group: str,
        permit: InFlightPermit,
        written: Callable[[], None] = lambda: None,
    ) -> decisions.ExecutionResult:
        """Read and write until there is a result; ``written`` is called after each write."""
        backoff = runtime.Backoff()
        while True:
            try:
                match await next_step():
                    case decisions.ExecutionResult() as answer:
                        return answer
                    case commands.Patch() as patch:
                        await self._write(patch, group)
                        written()
                    case None:
                        async with permit.given_up():
                            await self._retrier.pause(min(backoff.next_s(), LOOK_S))
            except (errors.ConflictError, errors.NotFoundError):
                await self._retrier.pause(backoff.next_s())
            except errors.PermanentError as error:
                return decisions.refusal(error)

    async def _read(self, kind: kinds.Kind[M], namespace: str, name: str) -> M | None:
        try:
            raw = await self._retrier.until_done(lambda: self._cluster.get(kind, namespace, name))
        except errors.NotFoundError:
            return None
        try:
            return kind.decode(raw)
        except msgspec.DecodeError as error:
            raise errors.InvalidError(f"read {kind.kind} {name}", str(error)) from None

    async def _write(self, patch: commands.Patch, group: str) -> None:
        async def call() -> None:
            async with self._limiter.hold(group):
                await self._cluster.patch(
                    patch.kind,
                    patch.namespace,
                    patch.name,
                    patch.patch,
                    patch_type=patch.patch_type,
                    subresource=patch.subresource,
                )

        await self._retrier.until_done(call)


def _allocated_by(bind: messages.Bind) -> Iterator[str]:
    """Uids of the ResourceClaims that a bind allocates."""
    return (step.uid for step in bind.devices if step.allocation is not None)
