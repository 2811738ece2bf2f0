"""Executes planned binds: creates pods with their nodes, once their PodGroup is admitted.

A pod that is not created here is created without a node by the next reconcile of its job, so failed
creates are not retried here.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator

import msgspec
import structlog

from stromboli.controller import isolation
from stromboli.controller.core.decisions import decisions, planned_binds
from stromboli.controller.core.pods import planned_pods
from stromboli.controller.core.store import controller_cache
from stromboli.controller.execution.command_executor import AddKey, CommandExecutor
from stromboli.controller.execution.event_recorder import EventRecorder
from stromboli.controller.execution.inflight_permits import Retrier
from stromboli.shared import errors
from stromboli.shared.api import core, kinds
from stromboli.shared.messages import scheduling as messages
from stromboli.shared.runtime import runtime

Entry = asyncio.Task[tuple[messages.Result, int]]
"""The task that admits the statement's PodGroup to its queue."""
_log = structlog.get_logger(__name__)


class PodCreation:
    """Creates the pods of planned binds."""

    def __init__(
        self,
        cache: controller_cache.ControllerCache,
        executor: CommandExecutor,
        retrier: Retrier,
        events: EventRecorder,
        add_key: AddKey,
        clock: runtime.Clock,
    ) -> None:
        self._cache = cache
        self._executor = executor
        self._retrier = retrier
        self._events = events
        self._add_key = add_key
        self._clock = clock

    @contextlib.contextmanager
    def reserving(self, decided: messages.StatementDecided) -> Iterator[None]:
        """Reserve the names of planned pods during the block, since a reconcile would create the
        pods without nodes."""
        names = [bind.pod for bind in decided.binds if bind.is_planned]
        with self._cache.plans.reserved(decided.job_uid, names):
            yield
        group = self._cache.pod_group(decided.pod_group)
        job = None if group is None else controller_cache.job_of(group)
        if names and job is not None:
            self._add_key(controller_cache.ReconcileKey("job", job), "")

    async def create_all(
        self,
        decided: messages.StatementDecided,
        decision: str,
        group: str,
        admit: Callable[[], Entry | None],
    ) -> tuple[messages.TaskOutcome, ...]:
        """Create the pods of all planned binds. If the PodGroup was not admitted, only pods that an
        earlier publication has created count as executed.

        ``admit`` starts the admission of the PodGroup, once, and returns it; None if the statement
        admits none. An admission that may be rejected comes before the creates. Any other one is
        requested after the first create: both compete for the API server, and the pod is what the
        user waits for. It does not wait for the other creates of a large gang.
        """
        planned = [bind for bind in decided.binds if bind.is_planned]
        is_admitted = True
        if not planned or planned_binds.waits_for_admission(self._cache, decided):
            entry = admit()
            is_admitted = not planned or entry is None or (await entry)[0] == "executed"
        if planned and is_admitted:
            await self._complete(decided)
        created = []
        async with asyncio.TaskGroup() as tasks:
            for bind in planned:
                creating = self._create_isolated(
                    bind, decided, decision, group, is_admitted=is_admitted
                )
                created.append(tasks.create_task(creating))
                admit()
        return tuple(task.result() for task in created)

    async def _complete(self, decided: messages.StatementDecided) -> None:
        """Read the job, if the values that the topics leave out are not known."""
        job = planned_binds.job_of(self._cache, decided)
        if job is None or self._cache.is_complete(job):
            return
        with contextlib.suppress(errors.PermanentError):
            await self._retrier.until_done(
                lambda: self._executor.read(kinds.JOBS, job.metadata.namespace, job.metadata.name)
            )

    async def _create_isolated(
        self,
        bind: messages.Bind,
        decided: messages.StatementDecided,
        decision: str,
        group: str,
        *,
        is_admitted: bool,
    ) -> messages.TaskOutcome:
        def failed(error: Exception) -> messages.TaskOutcome:
            return decisions.outcome(bind, decisions.failure(error))

        call = functools.partial(
            self._create, bind, decided, decision, group, is_admitted=is_admitted
        )
        return await isolation.run(call, failed, "create", pod=bind.pod)

    async def _create(
        self,
        bind: messages.Bind,
        decided: messages.StatementDecided,
        decision: str,
        group: str,
        *,
        is_admitted: bool,
    ) -> messages.TaskOutcome:
        async def create() -> tuple[decisions.ExecutionResult, core.Pod | None]:
            job = planned_binds.job_of(self._cache, decided)
            refused = (
                planned_binds.refusal(self._cache, job, decided, bind)
                if is_admitted
                else planned_binds.NOT_ADMITTED
            )
            if job is None or refused is not None:
                # A refusal frees the room, so it must not hide a pod that an earlier publication
                # has created.
                result, pod = await self._existing(decided, bind, decision)
                return (result, pod) if result == decisions.EXECUTED else (refused or result, None)
            if planned_binds.has_had_pod(self._cache, job, bind):
                return await self._existing(decided, bind, decision)
            try:
                command = planned_binds.creation(self._cache, job, bind, decision)
                obj = await self._executor.create(command, group)
            except errors.AlreadyExistsError:
                return await self._existing(decided, bind, decision)
            return decisions.EXECUTED, obj if isinstance(obj, core.Pod) else None

        try:
            answer, pod = await self._retrier.until_done(create)
        except errors.PermanentError as error:
            answer, pod = decisions.refusal(error), None
        outcome = decisions.outcome(bind, answer)
        if pod is None or answer.result != "executed":
            return outcome
        self._compare(pod, decided, bind)
        bound = msgspec.structs.replace(bind, uid=pod.metadata.uid)
        self._events.record_scheduled(decisions.scheduled(bound, self._clock()))
        return msgspec.structs.replace(outcome, created_version=pod.metadata.version)

    async def _existing(
        self, decided: messages.StatementDecided, bind: messages.Bind, decision: str
    ) -> tuple[decisions.ExecutionResult, core.Pod | None]:
        obj = await self._executor.read(kinds.PODS, bind.namespace, bind.pod)
        pod = obj if isinstance(obj, core.Pod) else None
        return planned_binds.found_result(pod, decided.job_uid, bind, decision), pod

    def _compare(
        self, pod: core.Pod, decided: messages.StatementDecided, bind: messages.Bind
    ) -> None:
        """Compare a created pod with its plan. If they differ and no cached answer explains it,
        pods of this template are not planned again (``JobPlans.differs``)."""
        plan = self._cache.plans.of(decided.pod_group)
        task = None if plan is None else planned_binds.task_of(plan, bind)
        if task is not None and not planned_pods.is_as_planned(pod, task):
            _log.warning("pod differs from its plan", pod=pod.metadata.key)
            self._cache.plans.differs(planned_pods.spec_digest(task.template))
