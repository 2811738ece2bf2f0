"""The client for programs without an event loop."""

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from stromboli.client import connection, errors, job_logs, server, watch_state
from stromboli.client.events import Change
from stromboli.client.job_logs import LogLine
from stromboli.client.operations import (
    accounting_calls,
    calls,
    job_calls,
    log_calls,
    node_calls,
    workload_calls,
)
from stromboli.client.responses import Applied, BulkResult, Explanation, KubernetesEvent, Page
from stromboli.client.sessions import opening, targets
from stromboli.shared import decoding
from stromboli.shared.api import batch, core, kinds, meta, scheduling
from stromboli.shared.api.kinds import Kind
from stromboli.shared.api.views import accounting
from stromboli.shared.api.views.data_copies import DataSetCopies
from stromboli.shared.api.views.expected_start import ExpectedStart
from stromboli.shared.api.views.task_history import TaskHistory
from stromboli.shared.api.views.what_if import JobIf, WhatIf

T = TypeVar("T")
M = TypeVar("M", bound=meta.Object)


class Client(connection.Connection):
    """A connection to one server. Use as a context manager.

    ``url`` defaults to the server of ``strom`` (``address.find``). A server with accounts needs
    ``token`` (a string, or a function that is called for each request) or ``token_file``;
    ``credentials`` describes the defaults. ``ca_file`` (default ``STROM_CA_FILE``) has the CA
    certificate. A request fails if it has no response within ``response_timeout_s`` seconds.
    ``on_warning`` is called with each warning of the server; by default it is logged. The
    constructor raises ClientError for invalid arguments.

    Objects are returned as Structs with the fields that Stromboli uses; ``send(calls....)`` returns
    the other fields, too. Requests are never retried, except that watches reconnect.
    """

    # --- jobs ------------------------------------------------------------------------------

    def submit(
        self,
        job: batch.Job | calls.Document,
        namespace: str = "default",
        *,
        idempotency_key: str = "",
    ) -> batch.Job:
        """Create a job; returns it as stored. With a key the call may be repeated: the job is
        created once.

        Raises RejectedError with every violation, ConflictError if the name exists.
        """
        call = calls.create_job(namespace, job)
        return kinds.JOBS.decode(
            self.send(call.keyed(idempotency_key) if idempotency_key else call)
        )

    def apply(
        self, objects: Sequence[calls.Submitted], namespace: str = "default"
    ) -> list[Applied]:
        """Create or change objects of any kind, as manifests or Structs, all or none. Structs
        without a namespace get ``namespace``. Raises RejectedError.
        """
        return self.send(calls.apply(objects, namespace))

    def check(
        self, objects: Sequence[calls.Submitted], namespace: str = "default"
    ) -> list[Applied]:
        """The objects as ``apply`` would store them; writes nothing. Raises RejectedError."""
        return self.send(calls.check(objects, namespace))

    def submit_many(
        self,
        jobs: Iterable[batch.Job],
        namespace: str = "default",
        *,
        idempotency_key: str = "",
    ) -> BulkResult:
        """Create thousands of jobs independently in one request; the result has an item for each.

        The call may be repeated: existing jobs are unchanged.
        """
        call = calls.bulk(calls.document(job, namespace) for job in jobs)
        return self.send(call.keyed(idempotency_key) if idempotency_key else call)

    def job(self, name: str, namespace: str = "default") -> batch.Job:
        """One job. Raises NotFoundError."""
        return kinds.JOBS.decode(self.send(calls.job(namespace, name)))

    def jobs(self, namespace: str = "") -> Iterator[batch.Job]:
        """The jobs of a namespace, or all, page by page."""
        return self._all(kinds.JOBS, functools.partial(calls.jobs, namespace))

    def pods(self, name: str, namespace: str = "default") -> list[core.Pod]:
        """A job's pods. Raises NotFoundError."""
        page = self.send(calls.job_pods(namespace, name))
        return [kinds.PODS.decode(item) for item in page.items]

    def tasks(self, name: str, namespace: str = "default", *, uid: str = "") -> TaskHistory:
        """Every attempt of a job's tasks, also of a deleted job. Raises NotFoundError.

        ``uid`` names an earlier job of this name; ``TaskHistory.earlier`` lists them.
        """
        return self.send(calls.tasks(namespace, name, uid))

    def explanation(self, name: str, namespace: str = "default") -> Explanation:
        """Why a job is pending. Raises NotFoundError."""
        return self.send(calls.explanation(namespace, name))

    def expected_starts(self, namespace: str = "") -> tuple[ExpectedStart, ...]:
        """When the pending jobs of a namespace, or of all, are expected to start."""
        return self.send(job_calls.expected_starts(namespace)).items

    def what_if(self, name: str, change: JobIf, namespace: str = "default") -> WhatIf:
        """When a pending job would start if it, or the cluster, were different. Changes nothing;
        takes up to a minute. Raises NotFoundError, RejectedError."""
        return self.send(job_calls.what_if(namespace, name, change))

    def command(self, name: str, action: str, namespace: str = "default") -> batch.Command:
        """Execute an action on a job, such as ``AbortJob``. Raises NotFoundError, RejectedError."""
        return kinds.COMMANDS.decode(self.send(calls.command(namespace, name, action)))

    def suspend(self, name: str, namespace: str = "default") -> batch.Command:
        """End a job's pods; the job can be resumed. Raises NotFoundError, RejectedError."""
        return self.command(name, "AbortJob", namespace)

    def resume(self, name: str, namespace: str = "default") -> batch.Command:
        """Resume a suspended job. Raises NotFoundError, RejectedError."""
        return self.command(name, "ResumeJob", namespace)

    def restart(self, name: str, namespace: str = "default") -> batch.Command:
        """Delete a job's pods and create them again. Raises NotFoundError, RejectedError."""
        return self.command(name, "RestartJob", namespace)

    def events(self, name: str, namespace: str = "default") -> list[KubernetesEvent]:
        """Kubernetes' Events about a job, its PodGroup and its pods. Raises NotFoundError."""
        page = self.send(calls.job_events(namespace, name))
        return [decoding.from_json(item, KubernetesEvent) for item in page.items]

    def logs(
        self,
        name: str,
        namespace: str = "default",
        *,
        task: str = "",
        indexes: Collection[int] = (),
        tail_lines: int | None = None,
    ) -> Iterator[LogLine]:
        """The lines of the logs of a job's pods up to now, by task and index. Raises NotFoundError;
        pods that are deleted meanwhile are left out.
        """
        pods = self.pods(name, namespace)
        for pod, container in job_logs.started_containers(pods, task, indexes):
            lines = job_logs.LineBuffer()
            call = log_calls.log(namespace, pod, container, tail_lines=tail_lines)
            with contextlib.suppress(errors.NotFoundError), self.stream(call) as chunks:
                for chunk in chunks:
                    for text in lines.feed(chunk):
                        yield LogLine(pod, container, text)
            for text in lines.end():
                yield LogLine(pod, container, text)

    def exec(
        self,
        name: str,
        command: Sequence[str],
        namespace: str = "default",
        *,
        task: str = "",
        index: int | None = None,
        container: str = "",
        stdin: bytes = b"",
    ) -> opening.ExecResult:
        """Run a command in the first running pod of a job (of ``task`` and ``index``) to its end.

        Raises NotFoundError; NoContainerError if no pod runs, or if the pod has several containers
        and none is named; SessionError. Requires the extra ``exec``, and on a cluster a kubeconfig.
        """
        target = targets.choose(
            self.job(name, namespace),
            self.pods(name, namespace),
            task=task,
            indexes=None if index is None else (index,),
            container=container,
        )
        place = self.session_place()
        return asyncio.run(opening.run(place, target, command, stdin))

    def session_place(self) -> opening.Place:
        """The server at which sessions in pods are opened, for ``sessions.opening``."""
        answer = self.send(opening.place_call())
        return opening.place(answer.url, self.url, self._http.auth)

    def scale(
        self,
        name: str,
        replicas: int,
        namespace: str = "default",
        *,
        task: str = "",
        min_available: int | None = None,
    ) -> batch.Job:
        """Scale a task of a job; returns the job. ``task`` may be omitted if the job has only one.
        Without ``min_available`` a gang that needs all its pods continues to need all.

        Raises NotFoundError, RejectedError, ConflictError after a concurrent change.
        """
        call = calls.scale(namespace, name, replicas, task, min_available)
        return kinds.JOBS.decode((self.send(call)).object)

    def change(
        self,
        name: str,
        namespace: str = "default",
        *,
        replicas: Mapping[str, int] | None = None,
        min_available: int | None = None,
        priority_class: str | None = None,
        time_limit_s: int | None = None,
    ) -> batch.Job:
        """Set replicas of tasks by name, minAvailable, the PriorityClass and the time limit in
        one patch; returns the job. None leaves a field unchanged.

        Raises NotFoundError, RejectedError, ConflictError after a concurrent change.
        """
        call = job_calls.change(
            namespace, name, replicas, min_available, priority_class, time_limit_s
        )
        return kinds.JOBS.decode((self.send(call)).object)

    def delete(self, name: str, namespace: str = "default") -> None:
        """Delete a job and its child objects. Raises NotFoundError."""
        self.send(calls.delete_job(namespace, name))

    # --- flows, templates and crons: ``kinds.JOB_FLOWS``, ``JOB_TEMPLATES``, ``CRON_JOBS``; created
    # and changed with ``apply``

    def workloads(self, kind: Kind[M], namespace: str = "") -> Iterator[M]:
        """The flows, templates or crons of a namespace, or all, page by page."""
        return self._all(kind, functools.partial(workload_calls.workloads, kind, namespace))

    def workload(self, kind: Kind[M], name: str, namespace: str = "default") -> M:
        """One flow, template or cron. Raises NotFoundError."""
        return kind.decode(self.send(workload_calls.workload(kind, namespace, name)))

    def delete_workload(self, kind: Kind[M], name: str, namespace: str = "default") -> None:
        """Delete a flow, template or cron and its child objects. Raises NotFoundError."""
        self.send(workload_calls.delete_workload(kind, namespace, name))

    # --- queues and gangs -------------------------------------------------------------------

    def create_queue(self, queue: scheduling.Queue | calls.Document) -> scheduling.Queue:
        """Create a queue; returns it as stored. Raises RejectedError, ConflictError if the name
        exists.
        """
        return kinds.QUEUES.decode(self.send(calls.create_queue(queue)))

    def delete_queue(self, name: str) -> None:
        """Delete a queue. Raises NotFoundError, RejectedError while it is in use."""
        self.send(calls.delete_queue(name))

    def queues(self) -> list[scheduling.Queue]:
        """All queues."""
        return [kinds.QUEUES.decode(item) for item in self.send(calls.queues()).items]

    def queue(self, name: str) -> scheduling.Queue:
        """One queue. Raises NotFoundError."""
        return kinds.QUEUES.decode(self.send(calls.queue(name)))

    def pod_groups(self, namespace: str = "") -> list[scheduling.PodGroup]:
        """The PodGroups of a namespace, or all."""
        page = self.send(calls.pod_groups(namespace))
        return [kinds.POD_GROUPS.decode(item) for item in page.items]

    def pod_group(self, name: str, namespace: str = "default") -> scheduling.PodGroup:
        """One PodGroup. Raises NotFoundError."""
        return kinds.POD_GROUPS.decode(self.send(calls.pod_group(namespace, name)))

    # --- data sets -------------------------------------------------------------------------

    def data_sets(
        self, namespace: str = "", *, uri: str = "", node: str = ""
    ) -> Iterator[DataSetCopies]:
        """The data sets that jobs of a namespace name, with their copies, page by page; without a
        namespace, all data sets on nodes. ``uri``: a prefix. ``node``: only copies on this
        node."""
        after = ""
        while True:
            call = node_calls.data_sets(namespace, uri=uri, node=node, continue_=after)
            page = self.send(call)
            yield from page.items
            after = page.continue_
            if not after:
                return

    # --- history ----------------------------------------------------------------------------

    def attempts(self, query: accounting.AttemptQuery) -> Iterator[accounting.Attempt]:
        """The attempts of all jobs that ran, also of deleted ones, page by page; the last created
        pod first. ``query.limit`` is the size of a page.
        """
        for page in accounting_calls.pages(self.send, accounting_calls.attempts, query):
            yield from page.attempts

    def past_jobs(self, query: accounting.JobQuery) -> Iterator[accounting.JobRecord]:
        """The jobs that ran, also deleted ones, with their phases; the latest submission first."""
        for page in accounting_calls.pages(self.send, accounting_calls.jobs, query):
            yield from page.jobs

    def evictions(self, query: accounting.EvictionQuery) -> Iterator[accounting.Eviction]:
        """The evictions of a job's pods and those that made room for it, the newest first."""
        for page in accounting_calls.pages(self.send, accounting_calls.evictions, query):
            yield from page.evictions

    def changes(self, query: accounting.ChangeQuery) -> Iterator[accounting.ClusterChange]:
        """The changes of nodes, queues, priority classes and configuration, the newest first."""
        for page in accounting_calls.pages(self.send, accounting_calls.changes, query):
            yield from page.changes

    def past_explanations(self, query: accounting.ExplanationQuery) -> accounting.ExplanationPage:
        """A page of reasons why PodGroups were pending, and of their queue positions, newest
        first."""
        return self.send(accounting_calls.explanations(query))

    def usage(self, query: accounting.UsageQuery) -> accounting.UsageReport:
        """CPU, memory and GPU time used within an interval, by group."""
        return self.send(accounting_calls.usage(query))

    # --- watching --------------------------------------------------------------------------

    def watch(
        self,
        call: calls.Call[T],
        timeout_s: float | None = None,
        *,
        on_break: Callable[[errors.ClientError], object] | None = None,
    ) -> Generator[Change[T], None, None]:
        """The changes of a ``calls.watch_...``: all existing objects, ``synced``, then every
        change.

        Reconnects after a broken connection at the same position, and calls ``on_break`` with the
        first error; ends after ``timeout_s`` seconds. Raises ClientError if the first connection
        fails or the server rejects the request.
        """
        resuming = watch_state.ResumingWatch(call, self.address, on_break)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return
            try:
                with self._http.stream(**resuming.request(left_s)) as response:
                    if not resuming.opened(response):
                        resuming.refuse(response, response.read())
                    else:
                        for line in response.iter_lines():
                            if (change := resuming.feed(line)) is not None:
                                yield change
            except server.TROUBLE as error:
                resuming.broke(error)
            pause_s = resuming.pause_s()
            if left_s is not None and deadline is not None:
                pause_s = min(pause_s, max(deadline - time.monotonic(), 0))
            time.sleep(pause_s)

    def wait(
        self,
        name: str,
        namespace: str = "default",
        *,
        phases: Collection[str] = (),
        timeout_s: float | None = None,
        on_change: Callable[[batch.Job], object] | None = None,
        on_break: Callable[[errors.ClientError], object] | None = None,
    ) -> batch.Job:
        """Wait until the job is in one of ``phases``, suspended or ended; returns the job. Calls
        ``on_change`` with every change of the job, and ``on_break`` when the server becomes
        unavailable; the wait continues.

        Raises NotFoundError; GoneError if it is deleted meanwhile, TimedOutError after
        ``timeout_s`` seconds.
        """
        call = calls.watch_job(namespace, name)
        awaited = watch_state.JobWait(
            call.what, frozenset(phases), timeout_s, time.monotonic(), on_change, on_break
        )
        while True:
            try:
                if (job := awaited.observe_job(self.job(name, namespace))) is not None:
                    return job
                left_s = awaited.left_s(time.monotonic())
                watch = self.watch(call, left_s, on_break=on_break)
                with contextlib.closing(watch) as changes:
                    for change in changes:
                        if (job := awaited.seen(change)) is not None:
                            return job
            except errors.ClientError as error:
                awaited.handle_error(error)
            time.sleep(awaited.pause_s(time.monotonic()))

    def _all(self, kind: Kind[M], page_of: Callable[..., calls.Call[Page]]) -> Iterator[M]:
        token = ""
        while True:
            page = self.send(page_of(limit=calls.PAGE_ITEMS, continue_=token))
            for item in page.items:
                yield kind.decode(item)
            token = page.continue_
            if not token:
                return
