"""Executes the core's commands against the API server and the log, and caches the responses.

Every write is idempotent. After a conflict the object is read again, and the next reconcile starts
from the result.
"""

import asyncio
from typing import Any, Protocol

import msgspec
import structlog

from stromboli.controller import controller_metrics
from stromboli.controller.core import commands, manifests
from stromboli.controller.core.store import batch_state, controller_cache
from stromboli.controller.execution import event_recorder, probe_client, secret_data
from stromboli.controller.execution.event_recorder import EventRecorder
from stromboli.controller.execution.pod_planner import PodPlanner
from stromboli.controller.execution.request_limiter import RequestLimiter
from stromboli.shared import envelope, errors, topics
from stromboli.shared.api import batch, kinds, meta
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.messages import cluster as cluster_messages
from stromboli.shared.runtime import runtime, telemetry

_log = structlog.get_logger(__name__)
_requests = telemetry.meter.create_counter(
    "stromboli.controller.requests", description="Requests to the API server"
)

STAGE_WORKERS = 128
"""Concurrent commands of one stage: twice the default number of requests in flight, so that a stage
always has a request waiting. After the first failed command no further one is started."""


class AddKey(Protocol):
    """Adds a key to the work queue."""

    def __call__(
        self, item: controller_cache.ReconcileKey, cause: str, *, is_pod_change: bool = False
    ) -> None:
        """Add the key. ``cause``: the id of the record that changed it; empty without a record.
        ``is_pod_change``: a pod changed; pods of a job often change in quick succession."""


class RefusedError(errors.PermanentError):
    """The API server rejected a command permanently. The rejection is recorded on the command's
    object."""

    def __init__(self, command: commands.Command, error: errors.PermanentError) -> None:
        super().__init__(error.what, error.reason)
        self.command = command


class CommandExecutor:
    """Executes commands of the core. Writes all objects of the reconcilers, and
    ``batch.events``."""

    def __init__(
        self,
        cache: controller_cache.ControllerCache,
        cluster: cluster_port.Cluster,
        writer: bus_port.Writer,
        state: batch_state.BatchState,
        limiter: RequestLimiter,
        add_key: AddKey,
        clock: runtime.Clock,
        events: EventRecorder,
    ) -> None:
        self._cache = cache
        self._cluster = cluster
        self._writer = writer
        self._state = state
        self._limiter = limiter
        self._add_key = add_key
        self._clock = clock
        self._events = events
        self._planner = PodPlanner(cache, cluster, writer, limiter, clock)

    async def carry_out(self, stage: commands.Stage, group: str, cause: str) -> None:
        """Execute all commands of a stage. ``group``: the request group, to which the request
        limiter gives a fair share.

        Events of jobs are published last, even after a failure, since the facts that they report
        precede the stage. Kubernetes Events are handed to the recorder. If commands failed, raises
        the error of one of them: an internal error before RefusedError before TransientError.
        Commands in flight are finished first; the remaining commands are left to the next
        reconcile.
        """
        publications = [it for it in stage if isinstance(it, commands.Publish)]
        for entry in stage:
            if isinstance(entry, commands.RecordEvent):
                self._say(entry)
        rest = [it for it in stage if not isinstance(it, commands.Publish | commands.RecordEvent)]
        waiting = iter(rest)
        failed: list[Exception] = []

        async def work_off() -> None:
            for command in waiting:
                if failed:
                    return
                try:
                    await self._do(command, group, cause)
                except Exception as error:  # commands in flight are finished first
                    failed.append(error)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(STAGE_WORKERS, len(rest))):
                tasks.create_task(work_off())
        if publications:
            await self._publish(publications, cause)
        if failed:
            raise min(failed, key=_precedence)

    async def read(self, kind: kinds.Kind[Any], namespace: str, name: str) -> meta.Object | None:
        """Read an object into the cache; None if it is absent. Raises ExternalError."""
        key = f"{namespace}/{name}" if namespace else name
        _requests.add(1, {"verb": "get", "kind": kind.kind})
        try:
            raw = await self._cluster.get(kind, namespace, name)
            obj: meta.Object = cluster_messages.decode_object(kind, raw)
        except errors.NotFoundError:
            known = self._cache.state(kind, key) if kind in topics.SNAPSHOTS else None
            if isinstance(known, meta.Object):
                self._add_keys(self._cache.forget(kind, key, known.metadata.uid))
            return None
        except msgspec.DecodeError as error:
            raise errors.TransientError(f"read {kind.kind} {key}", str(error)) from None
        self._add_keys(self._cache.observe(kind, obj))
        return obj

    async def patch(self, command: commands.Patch, group: str) -> int:
        """Patch an object and cache the result. Returns its resourceVersion, 0 if it is unreadable.
        Raises ExternalError."""
        is_flow = command.kind is kinds.JOB_FLOWS
        known = self._cache.state(kinds.JOB_FLOWS, command.key) if is_flow else None
        async with self._limiter.hold(group):
            _requests.add(1, {"verb": "patch", "kind": command.kind.kind})
            raw = await self._cluster.patch(
                command.kind,
                command.namespace,
                command.name,
                command.patch,
                patch_type=command.patch_type,
                subresource=command.subresource,
            )
        written = self._observe(command.kind, raw)
        if written is not None:
            controller_metrics.OWN.changed(known, written)
        return 0 if written is None else written.metadata.version

    async def delete(self, command: commands.Delete, group: str) -> None:
        """Delete an object. It is a success if the object does not exist or has another uid."""
        uid = command.uid
        if command.owner_uid:
            obj = await self.read(command.kind, command.namespace, command.name)
            if obj is None or not manifests.is_owned(obj, command.owner_uid):
                return
            uid = obj.metadata.uid
        try:
            async with self._limiter.hold(group):
                _requests.add(1, {"verb": "delete", "kind": command.kind.kind})
                await self._cluster.delete(
                    command.kind,
                    command.namespace,
                    command.name,
                    uid=uid,
                    propagation=command.propagation,
                )
        except errors.NotFoundError:
            self._add_keys(self._cache.forget(command.kind, command.key, uid))
        except errors.ConflictError:
            await self.read(command.kind, command.namespace, command.name)
        else:
            self._add_keys(self._cache.mark_deleting(command.kind, command.key, uid))

    # One command

    async def _do(self, command: commands.Command, group: str, cause: str) -> None:
        try:
            match command:
                case commands.Create():
                    await self._create(command, group)
                case commands.Patch():
                    await self._patch_or_read(command, request_group(command, group))
                case commands.PatchJobStatus():
                    await self._write_status(command, group)
                case commands.Delete():
                    await self.delete(command, group)
                case commands.RecordEvent():
                    self._say(command)
                case commands.Publish():
                    await self._publish([command], cause)
                case commands.ReadOwner():
                    obj = await self.read(command.kind, command.namespace, command.name)
                    is_it = obj is not None and obj.metadata.uid == command.uid
                    read = obj.metadata if obj is not None and is_it else None
                    self._add_keys(self._cache.note_owner(command.namespace, command.uid, read))
                case commands.ReadSpec():
                    async with self._limiter.hold(group):
                        await self.read(command.kind, command.namespace, command.name)
                case commands.CatchUp():
                    async with self._limiter.hold(group):
                        obj = await self.read(command.kind, command.namespace, command.name)
                    is_there = obj is not None and obj.metadata.uid == command.uid
                    self._add_keys(self._cache.note_caught_up(command, is_there=is_there))
                case commands.PlanPods():
                    await self._planner.plan(command, group, cause)
                    job = controller_cache.ReconcileKey("job", command.job)
                    self._add_keys((job,))
                case commands.WithdrawPlan():
                    await self._planner.withdraw(command, cause)
                case commands.RunProbe():
                    passed = await probe_client.probe(command)
                    answer = controller_cache.ProbeResult(passed, self._clock())
                    self._add_keys(self._cache.note_answer(command, answer))
        except RefusedError:
            raise
        except errors.PermanentError as error:
            raise RefusedError(command, error) from error

    async def create(self, command: commands.Create, group: str) -> meta.Object | None:
        """Create an object and cache it. Returns it, None if it is unreadable. Raises
        ExternalError."""
        body = await secret_data.completed(command) if command.secret else command.body
        async with self._limiter.hold(group):
            _requests.add(1, {"verb": "create", "kind": command.kind.kind})
            raw = await self._cluster.create(command.kind, command.namespace, body)
        written = self._observe(command.kind, raw)
        if written is not None:
            now, created = self._clock(), written.metadata.creation_timestamp
            if created is not None:
                self._cache.api_clock.observe(created, now)
            controller_metrics.OWN.created(self._cache, written, now)
        return written

    async def _create(self, command: commands.Create, group: str) -> None:
        try:
            await self.create(command, group)
        except errors.AlreadyExistsError as error:
            await self._accept_existing(command, group, error)

    async def _accept_existing(
        self, command: commands.Create, group: str, error: errors.AlreadyExistsError
    ) -> None:
        obj = await self.read(command.kind, command.namespace, command.name)
        if obj is None:
            raise errors.TransientError(error.what, "the object was deleted meanwhile")
        if not command.owner_uid:
            return
        if not manifests.is_owned(obj, command.owner_uid):
            raise errors.AlreadyExistsError(error.what, "the name belongs to another owner")
        if obj.metadata.deletion_timestamp is not None:
            raise errors.TransientError(
                error.what, "the previous object of this name is still terminating"
            )
        if command.version is not None and manifests.version_of(obj) != command.version:
            raise errors.TransientError(
                error.what, "the previous object of this name is of another job version"
            )
        if command.update:
            patch = commands.Patch(
                kind=command.kind,
                namespace=command.namespace,
                name=command.name,
                uid=obj.metadata.uid,
                patch=command.update,
                patch_type="merge",
            )
            await self.patch(patch, group)

    async def _patch_or_read(self, command: commands.Patch, group: str) -> None:
        try:
            await self.patch(command, group)
        except (errors.ConflictError, errors.NotFoundError) as error:
            await self.read(command.kind, command.namespace, command.name)
            raise errors.TransientError(error.what, error.reason) from error

    async def _write_status(self, command: commands.PatchJobStatus, group: str) -> None:
        before = command.job
        patch = commands.Patch(
            kind=kinds.JOBS,
            namespace=before.metadata.namespace,
            name=before.metadata.name,
            uid=before.metadata.uid,
            patch=manifests.job_status_patch(command),
            subresource="status",
        )
        try:
            await self.patch(patch, group)
        except (errors.ConflictError, errors.NotFoundError) as error:
            obj = await self.read(kinds.JOBS, patch.namespace, patch.name)
            if not isinstance(obj, batch.Job) or not _has_status_of(obj, before):
                raise errors.TransientError(error.what, error.reason) from error
            # Another client changed the rest of the job. Objects that were just created must be
            # recorded.
            again = commands.PatchJobStatus(job=obj, status=command.status)
            tested = manifests.job_status_patch(again)
            await self._patch_or_read(msgspec.structs.replace(patch, patch=tested), group)

    def _say(self, event: commands.RecordEvent) -> None:
        self._cache.mark_recorded(event)
        self._events.record(event)

    async def _publish(self, publications: list[commands.Publish], cause: str) -> None:
        """Append the events in one call, so that the events of a pod and its job keep their
        order."""
        drafts = [
            envelope.Draft(
                topic=topics.BATCH_EVENTS,
                key=it.job,
                message=it.message,
                time=it.at,
                cause=cause,
                traceparent=it.traceparent,
            )
            for it in publications
        ]
        appending = self._state.begin_append()
        try:
            appended = await self._writer.append(*drafts)
        except errors.ExternalError:
            for it in publications:
                self._cache.published.expect(it.message)
                self._state.note_unacknowledged(it.message)
            raise
        finally:
            self._state.end_append(appending)
        now = self._clock()
        for it, record in zip(publications, appended, strict=True):
            self._cache.published.observe(it.message)
            self._state.note_event(it.message, record.offset, self._writer.epoch, now)
            controller_metrics.OWN.published(self._cache, it.message)

    def _observe(self, kind: kinds.Kind[Any], raw: bytes) -> meta.Object | None:
        try:
            written: meta.Object = cluster_messages.decode_object(kind, raw)
        except msgspec.DecodeError as error:
            # The write is done; the snapshot topic will show that the object is unreadable.
            _log.warning("response not readable", kind=kind.kind, reason=str(error))
            return None
        self._add_keys(self._cache.observe(kind, written), is_pod_change=kind is kinds.PODS)
        return written

    def _add_keys(
        self, items: tuple[controller_cache.ReconcileKey, ...], *, is_pod_change: bool = False
    ) -> None:
        for item in items:
            self._add_key(item, "", is_pod_change=is_pod_change)


def _precedence(error: Exception) -> int:
    """The rank by which one of several errors is raised: internal errors first."""
    if not isinstance(error, errors.ExternalError):
        return 0
    return 1 if isinstance(error, RefusedError) else 2


def request_group(patch: commands.Patch, group: str) -> str:
    """Return the request group of a patch by a reconcile of ``group``. Conditions of pods are only
    shown; placement waits for everything else, such as scheduling gates."""
    is_shown_only = patch.kind is kinds.PODS and patch.subresource == "status"
    return event_recorder.GROUP if is_shown_only else group


def _has_status_of(job: batch.Job, known: batch.Job) -> bool:
    return job.metadata.uid == known.metadata.uid and job.status == known.status
