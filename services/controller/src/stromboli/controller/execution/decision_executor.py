"""Executes the scheduler's decisions and publishes the outcome of each to ``scheduling.outcomes``.

A decision is in flight from the time it is read until its outcome is acknowledged; after a restart,
reading begins at the lowest offset in flight. Transient errors are retried; a rejection is an
outcome. The scheduler may publish a decision again under the same id: each publication gets an
outcome, and the decision is executed by one task at a time (see ``publications``).
"""

import asyncio
import contextlib
import functools
from datetime import datetime

import msgspec
import structlog

from stromboli.controller import isolation
from stromboli.controller.core import commands
from stromboli.controller.core.decisions import decisions
from stromboli.controller.core.pod_groups import pod_groups
from stromboli.controller.core.store import controller_cache, eviction_cycles
from stromboli.controller.execution import publications
from stromboli.controller.execution.claim_preparation import ClaimPreparation
from stromboli.controller.execution.command_executor import AddKey, CommandExecutor
from stromboli.controller.execution.event_recorder import EventRecorder
from stromboli.controller.execution.inflight_permits import InFlightPermit, Retrier
from stromboli.controller.execution.pod_creation import Entry, PodCreation
from stromboli.controller.execution.publications import Publications
from stromboli.controller.execution.request_limiter import RequestLimiter
from stromboli.controller.isolation import StoppingError
from stromboli.shared import envelope, errors, keys, topics
from stromboli.shared.api import core, kinds, scheduling
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.messages import scheduling as messages
from stromboli.shared.runtime import runtime, telemetry

GROUP = "controller"
"""Consumer group of the decisions."""
NOTICE_LOOK_S = 5.0
"""Interval of checks whether an evicted pod ends before the end of its notice period."""
_ENDING = (errors.ExternalError, errors.InvariantError)
"""Errors that end the term, because they do not concern a single decision."""
_log = structlog.get_logger(__name__)
_binds = telemetry.meter.create_counter(
    "stromboli.controller.decided", description="Binds and evictions, by result"
)
_cycles = telemetry.meter.create_counter(
    "stromboli.controller.eviction.cycles", description="Cycles of jobs that evict each other"
)


class DecisionExecutor:
    """Consumes ``scheduling.decisions`` and executes them."""

    def __init__(
        self,
        cache: controller_cache.ControllerCache,
        bus: bus_port.Bus,
        cluster: cluster_port.Cluster,
        writer: bus_port.Writer,
        executor: CommandExecutor,
        limiter: RequestLimiter,
        add_key: AddKey,
        events: EventRecorder,
        health: runtime.Health,
        clock: runtime.Clock,
        in_hand: int,
        preparation_s: float,
    ) -> None:
        self._cache = cache
        self._bus = bus
        self._cluster = cluster
        self._writer = writer
        self._executor = executor
        self._limiter = limiter
        self._add_key = add_key
        self._events = events
        self._health = health
        self._clock = clock
        self._in_hand = asyncio.Semaphore(in_hand)
        self._ledger = decisions.OutcomeOffsets(writer.opened_at, {})
        self._publications = Publications()
        self._answered = publications.AnsweredPublications({})
        self._stopping = asyncio.Event()
        self._retrier = Retrier()
        self._backoff = runtime.Backoff()
        self._preparing = ClaimPreparation(cluster, limiter, self._retrier, preparation_s)
        self._creating = PodCreation(cache, executor, self._retrier, events, add_key, clock)

    def stop(self) -> None:
        """Begin no more decisions, and end the waits of the decisions in flight, so that ``run``
        returns. A decision that ends without an outcome is read again by the next controller."""
        self._stopping.set()
        self._retrier.give_up()

    async def run(self) -> None:
        """Execute decisions until stopped, except those with an outcome of an earlier connection:
        a second outcome could differ from the first, to which the scheduler has reacted."""
        while not self._stopping.is_set():
            trouble = await self._work()
            if trouble is None or self._stopping.is_set():
                continue
            self._health.set("decisions", str(trouble))
            self._retrier.restart()
            with contextlib.suppress(StoppingError):
                await self._retrier.pause(self._backoff.next_s(trouble.retry_after_s))

    async def _work(self) -> errors.TransientError | None:
        """Consume on one connection until stopped (returns None) or until the log fails (returns
        the error). After a failure the decisions in flight stop waiting: the next connection
        delivers them again, and must not wait for the longest eviction notice."""
        self._publications = Publications()
        try:
            async with self._bus.consume(topics.DECISIONS, GROUP) as consumer:
                outcomes = await publications.outcomes_since(self._bus, consumer.lowest_unfinished)
                self._answered = publications.AnsweredPublications(outcomes)
                self._ledger = decisions.OutcomeOffsets(self._writer.opened_at, outcomes)
                self._health.set("decisions", None)
                return await self._execute_all(consumer)
        except errors.TransientError as error:
            return error

    async def _execute_all(self, consumer: bus_port.GroupConsumer) -> errors.TransientError | None:
        failed: list[errors.TransientError] = []
        async with asyncio.TaskGroup() as tasks:

            async def read() -> None:
                try:
                    async for record in consumer:
                        permit = await InFlightPermit.begun(self._in_hand)
                        tasks.create_task(self._handle(consumer, record, permit))
                except errors.TransientError as error:
                    failed.append(error)

            reading = tasks.create_task(read())
            stopped = tasks.create_task(self._stopping.wait())
            await asyncio.wait([reading, stopped], return_when=asyncio.FIRST_COMPLETED)
            reading.cancel()
            stopped.cancel()
            self._retrier.give_up()
        return failed[0] if failed else None

    async def _handle(
        self, consumer: bus_port.GroupConsumer, record: envelope.Record, permit: InFlightPermit
    ) -> None:
        """Execute a publication. Append its outcome and the outcomes of the publications that join
        it meanwhile."""
        decision = ""
        try:
            message = await self._decoded(consumer, record)
            if message is None:
                consumer.acknowledge(record)
                return
            decision = message.decision or record.id
            if not self._publications.begin(consumer, decision, record):
                return
            with telemetry.span(
                "execute decision", record.traceparent, pod_group=message.pod_group
            ):
                answer = await self._execute(message, decision, permit)
            while (newest := self._publications.newest(decision)) is not None:
                await self._tell(consumer, newest, answer)
                self._publications.answered(consumer, decision, newest)
            self._backoff.reset()
        except StoppingError:
            return
        except ExceptionGroup as group:
            _, rest = group.split(StoppingError)
            if rest is not None and rest.subgroup(_ENDING) is not None:
                raise rest from None
            if rest is not None:
                isolation.report(rest, "decision", decision=record.id)
        except errors.TooLargeError as error:
            isolation.report(error, "decision", decision=record.id)
        except _ENDING:
            raise
        except Exception as error:  # one decision must not stop all others
            # The decision has no outcome, so the scheduler publishes it again, or a restart reads
            # it again.
            isolation.report(error, "decision", decision=record.id)
        finally:
            self._publications.end(decision, record)
            permit.end()

    async def _decoded(
        self, consumer: bus_port.GroupConsumer, record: envelope.Record
    ) -> messages.StatementDecided | None:
        """The decision to execute; None if the record contains none."""
        try:
            message = envelope.decode(record)
        except errors.UndecodableError as error:
            if self._answered.has(record.id, record.offset):
                return None
            now = self._clock()
            parked = runtime.dead_letter(record, "controller", error.reason, now)
            await self._retrier.until_done(lambda: self._writer.append(parked))
            # Nothing was executed; the outcome reports that to the scheduler.
            answer = messages.DecisionAnswered(
                decision=record.id, decision_offset=record.offset, pod_group=record.key
            )
            await self._tell(consumer, record, answer)
            return None
        if not isinstance(message, messages.StatementDecided):
            return None
        is_answered = self._answered.has(message.decision or record.id, record.offset)
        return None if is_answered else message

    async def _execute(
        self, decided: messages.StatementDecided, decision: str, permit: InFlightPermit
    ) -> messages.DecisionAnswered:
        entries: list[Entry] = []

        def admit() -> Entry | None:
            if decided.enqueue and not entries:
                entries.append(tasks.create_task(self._enqueue_isolated(decided, decision)))
            return entries[0] if entries else None

        with self._creating.reserving(decided), self._preparing.allocating(decided.binds):
            async with asyncio.TaskGroup() as tasks:
                evicted = [
                    tasks.create_task(self._evict(it, decided, permit)) for it in decided.evictions
                ]
                bound = tasks.create_task(self._bind_all(decided, decision, permit))
                creating = self._creating.create_all(
                    decided, decision, self._turns_of(decided.pod_group), admit
                )
                created = tasks.create_task(creating)
            claims = await self._preparing.outcomes(decided.binds, bound.result())
        enqueue, entered_version = entries[0].result() if entries else (None, 0)
        return messages.DecisionAnswered(
            decision=decision,
            decision_offset=-1,  # set later, to the offset of the answered publication
            pod_group=decided.pod_group,
            enqueue=enqueue,
            enqueued_version=entered_version,
            tasks=(*bound.result(), *created.result(), *(task.result() for task in evicted)),
            claims=claims,
        )

    async def _tell(
        self,
        consumer: bus_port.GroupConsumer,
        record: envelope.Record,
        answer: messages.DecisionAnswered,
    ) -> None:
        async def append() -> None:
            unanswered_from = consumer.lowest_unfinished
            outcome = msgspec.structs.replace(
                answer,
                decision_offset=record.offset,
                unanswered_from=unanswered_from,
                outcomes_from=self._ledger.outcomes_from(unanswered_from),
            )
            draft = envelope.Draft(
                topic=topics.OUTCOMES,
                key=answer.decision,
                message=outcome,
                time=self._clock(),
                cause=record.id,
                traceparent=record.traceparent,
            )
            (appended,) = await self._writer.append(draft)
            self._ledger.answered(record.offset, appended.offset)
            self._answered.note(outcome)

        await self._retrier.until_done(append)

    # Enqueue

    async def _enqueue_isolated(
        self, decided: messages.StatementDecided, decision: str
    ) -> tuple[messages.Result, int]:
        def refused(_: Exception) -> tuple[messages.Result, int]:
            return "refused", 0

        call = functools.partial(self._enqueue, decided, decision)
        return await isolation.run(call, refused, "enqueue", pod_group=decided.pod_group)

    async def _enqueue(
        self, decided: messages.StatementDecided, decision: str
    ) -> tuple[messages.Result, int]:
        """Write the phase, and reconcile the job at the same time so that its pods are created.
        Returns the result and the resourceVersion of the admitted PodGroup, 0 if it was refused."""
        backoff = runtime.Backoff()
        group = self._cache.pod_group(decided.pod_group)
        if group is None or group.status.phase not in ("", "Pending"):
            # The scheduler may have a newer PodGroup, which was removed from the queue.
            group = await self._read_group(decided.pod_group)
        while True:
            if group is None or group.metadata.uid != decided.pod_group_uid:
                return "refused", 0
            is_in = group.status.phase not in ("", "Pending")
            if is_in or pod_groups.was_admitted(group, decision):
                return "executed", group.metadata.version
            try:
                return "executed", await self._write_phase(group, decision)
            except (errors.ConflictError, errors.NotFoundError):
                group = await self._read_group(decided.pod_group)
                await self._retrier.pause(backoff.next_s())
            except errors.PermanentError as error:
                _log.warning("enqueue refused", pod_group=decided.pod_group, reason=error.reason)
                return "refused", 0

    async def _write_phase(self, group: scheduling.PodGroup, decision: str) -> int:
        uid, key = group.metadata.uid, group.metadata.key
        self._cache.mark_enqueuing(uid)
        job = controller_cache.job_of(group)
        if job is not None:
            self._add_key(controller_cache.ReconcileKey("job", job), decision)
        try:
            patch, turns = pod_groups.enqueue(group, decision), job or key
            return await self._retrier.until_done(lambda: self._executor.patch(patch, turns))
        finally:
            self._cache.unmark_enqueuing(uid)
            self._add_key(controller_cache.ReconcileKey("podgroup", key), decision)

    async def _read_group(self, key: str) -> scheduling.PodGroup | None:
        namespace, _, name = key.partition("/")
        obj = await self._retrier.until_done(
            lambda: self._executor.read(kinds.POD_GROUPS, namespace, name)
        )
        return obj if isinstance(obj, scheduling.PodGroup) else None

    # Binds and evictions

    def _turns_of(self, pod_group: str) -> str:
        """The request group: the key of the job or, without one, of the PodGroup. The requests of a
        group are served in order."""
        group = self._cache.pod_group(pod_group)
        return (group and controller_cache.job_of(group)) or pod_group

    async def _bind_all(
        self, decided: messages.StatementDecided, decision: str, permit: InFlightPermit
    ) -> tuple[messages.TaskOutcome, ...]:
        """Execute all binds of existing pods that have no result yet, or none of them if one cannot
        be prepared."""
        binds = [bind for bind in decided.binds if not bind.is_planned]
        known = {bind.uid: decisions.before_bind(self._cache, bind, decision) for bind in binds}
        group = self._turns_of(decided.pod_group)
        claiming = [
            bind for bind in binds if known[bind.uid] is None and (bind.volumes or bind.devices)
        ]
        if claiming:
            open_ = [bind for bind in binds if known[bind.uid] is None]
            known |= await self._preparing.prepare(open_, group, permit)
        async with asyncio.TaskGroup() as tasks:
            bound = [
                tasks.create_task(self._bind(bind, known[bind.uid], group, decision))
                for bind in binds
            ]
        outcomes = tuple(task.result() for task in bound)
        for bind, outcome in zip(binds, outcomes, strict=True):
            if outcome.result == "executed" and known[bind.uid] is None:
                self._events.record_scheduled(decisions.scheduled(bind, self._clock()))
        return outcomes

    async def _bind(
        self,
        bind: messages.Bind,
        answer: decisions.ExecutionResult | None,
        group: str,
        decision: str,
    ) -> messages.TaskOutcome:
        """Bind a pod. ``answer``: the result, if it is known without a request."""
        if answer is None:
            call = functools.partial(self._bind_now, bind, group, decision)
            answer = await isolation.run(call, decisions.failure, "bind", pod=bind.pod)
        if answer.result == "refused" and answer.reason != "AlreadyBound":
            await self._preparing.release(bind, group)
        _binds.add(1, {"what": "bind", "result": answer.result})
        return decisions.outcome(bind, answer)

    async def _bind_now(
        self, bind: messages.Bind, group: str, decision: str
    ) -> decisions.ExecutionResult:
        async def call() -> None:
            async with self._limiter.hold(group):
                await self._cluster.bind(
                    bind.namespace,
                    bind.pod,
                    uid=bind.uid,
                    node=bind.node,
                    annotations={**bind.annotations, keys.DECISION: decision},
                )

        try:
            await self._retrier.until_done(call)
        except (errors.ConflictError, errors.NotFoundError):
            obj = await self._retrier.until_done(
                lambda: self._executor.read(kinds.PODS, bind.namespace, bind.pod)
            )
            pod = obj if isinstance(obj, core.Pod) else None
            return decisions.after_bind_refused(pod, bind, decision)
        except errors.PermanentError as error:
            return decisions.refusal(error)
        return decisions.EXECUTED

    async def _evict(
        self,
        eviction: messages.Eviction,
        decided: messages.StatementDecided,
        permit: InFlightPermit,
    ) -> messages.TaskOutcome:
        group = self._turns_of(decided.pod_group)
        answer = decisions.before_eviction(self._cache, eviction)
        if answer is None:
            cause = decisions.eviction_cause(self._cache, eviction, decided.pod_group)
            victim = decisions.victim_of(self._cache, eviction)
            call = functools.partial(self._evict_now, eviction, cause, group, permit)
            answer = await isolation.run(call, decisions.failure, "eviction", pod=eviction.pod)
            if answer.result == "executed" and victim is not None:
                self._note_cycle(victim, decided)
        _binds.add(1, {"what": "eviction", "result": answer.result})
        return decisions.outcome(eviction, answer)

    def _note_cycle(
        self, victim: eviction_cycles.Member, decided: messages.StatementDecided
    ) -> None:
        """Report jobs that evict each other, in their PodGroups' conditions and as a metric."""
        beneficiary = decisions.member_of(self._cache.pod_group(decided.pod_group))
        if beneficiary is None or beneficiary.uid != decided.pod_group_uid:
            return
        members = self._cache.eviction_cycles.note(beneficiary, victim, self._clock())
        if members:
            _cycles.add(1)
            _log.warning("jobs evict each other", pod_groups=[each.key for each in members])
        for each in members:
            self._add_key(controller_cache.ReconcileKey("podgroup", each.key), decided.decision)

    async def _evict_now(
        self, eviction: messages.Eviction, cause: str, group: str, permit: InFlightPermit
    ) -> decisions.ExecutionResult:
        """Mark the pod as evicted, wait for its notice period, and delete it."""
        due = await self._give_notice(eviction, cause, group)
        if isinstance(due, decisions.ExecutionResult):
            return due
        if eviction.notice_s > 0:
            await self._wait_until(due, eviction, permit)
            current_pod = await self._look(eviction)
            if isinstance(current_pod, decisions.ExecutionResult):
                return current_pod
        delete = commands.Delete(
            kind=kinds.PODS, namespace=eviction.namespace, name=eviction.pod, uid=eviction.uid
        )
        try:
            await self._retrier.until_done(lambda: self._executor.delete(delete, group))
        except errors.PermanentError as error:
            return decisions.refusal(error)
        return decisions.EXECUTED

    async def _give_notice(
        self, eviction: messages.Eviction, cause: str, group: str
    ) -> datetime | decisions.ExecutionResult:
        """Record the eviction on the pod: its condition and, with a notice period, the end of the
        period. Returns this end, or the end of an earlier notice, or the result if there is nothing
        to evict.

        After a restart, the repeated decision finds the notice on the pod.
        """
        backoff = runtime.Backoff()
        while True:
            current_pod = await self._look(eviction)
            if isinstance(current_pod, decisions.ExecutionResult):
                return current_pod  # a pod that ended by itself must not appear evicted
            now = self._clock()
            due = decisions.due(current_pod, eviction, now)
            try:
                for patch in decisions.notices(current_pod, eviction, cause, due, now):
                    await self._retrier.until_done(
                        functools.partial(self._executor.patch, patch, group)
                    )
            except (errors.ConflictError, errors.NotFoundError):
                await self._retrier.pause(backoff.next_s())
                continue
            except errors.PermanentError as error:
                # The pod gets no notice period, and is deleted.
                _log.warning("eviction notice not written", pod=eviction.pod, reason=error.reason)
            return decisions.before_eviction(self._cache, eviction) or due

    async def _wait_until(
        self, due: datetime, eviction: messages.Eviction, permit: InFlightPermit
    ) -> None:
        """Wait until the notice period is over, or the pod has ended by itself."""
        async with permit.given_up():
            while (left := (due - self._clock()).total_seconds()) > 0:
                if decisions.has_ended(self._cache, eviction):
                    return
                await self._retrier.pause(min(left, NOTICE_LOOK_S))

    async def _look(self, eviction: messages.Eviction) -> core.Pod | decisions.ExecutionResult:
        """Read the pod. Returns the result if it is deleted or has ended: the cache may be behind,
        and a pod that has finished must not be deleted.
        """
        obj = await self._retrier.until_done(
            lambda: self._executor.read(kinds.PODS, eviction.namespace, eviction.pod)
        )
        if not isinstance(obj, core.Pod) or obj.metadata.uid != eviction.uid:
            return decisions.EXECUTED
        return decisions.before_eviction(self._cache, eviction) or obj
