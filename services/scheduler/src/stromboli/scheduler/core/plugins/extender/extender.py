"""The plugin ``extender``: an external HTTP service filters, scores and votes, by verb.

The plugin makes requests (``framework.external_calls``), the shell sends them, and the session's
record keeps the responses. After the first request without a response, no further request is sent
in the session and defaults apply, so that an extender that does not respond costs one timeout.

Tasks of one role of a job share a request. A node is sent again after its tasks have changed; a
node that can never take the task is not sent.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.config import configuration, durations
from stromboli.scheduler.core.framework import external_calls, session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.plugins.extender import wire
from stromboli.shared import decoding

DEFAULT_TIMEOUT = timedelta(seconds=1)
RETRY = timedelta(seconds=10)
"""The time after which an extender that refused or did not respond is called again: its answer may
change without a record on any topic."""
MAX_SCORE = 10**6
"""Higher scores are clamped to this, so that sums stay exact."""

_Given = TypeVar("_Given", bound=msgspec.Struct)


_VERBS = (
    "onSessionOpen",
    "onSessionClose",
    "predicate",
    "prioritize",
    "preemptable",
    "reclaimable",
    "queueOverused",
    "jobEnqueueable",
    "jobEnqueued",
    "jobReady",
    "allocateFunc",
    "deallocateFunc",
)


class Plugin:
    """Arguments: ``extender.urlPrefix``, ``extender.<verb>Verb``, ``extender.httpTimeout``,
    ``extender.ignorable``, ``extender.managedResources``."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        arguments = options.typed()
        self._prefix = arguments.text("extender.urlPrefix", "").rstrip("/")
        self._verbs = {verb: arguments.text(f"extender.{verb}Verb", "") for verb in _VERBS}
        self._is_ignorable = arguments.boolean("extender.ignorable", default=False)
        self._timeout_s = _timeout(arguments).total_seconds()
        self._managed = _managed(arguments)
        if not self._prefix.startswith(("http://", "https://")) and any(self._verbs.values()):
            arguments.complain(
                "extender.urlPrefix",
                f"{self._prefix!r} is not an http:// or https:// URL; no request is sent",
            )
            self._verbs = dict.fromkeys(_VERBS, "")
        self._complaints = arguments.complaints
        self._problem = ""
        """Why no further request is sent."""
        self._is_over = False
        self._refused: dict[str, str] = {}
        """Job -> why one of its placements was refused."""
        self._verdicts: dict[Any, _FilterCache] = {}

    def open(self, ssn: session.Session) -> None:
        """Register the configured verbs, unless the opening event fails and the extender is not
        ignorable."""
        ssn.complaints.extend(self._complaints)
        self._within = ssn
        if self._has("onSessionOpen"):
            self._call("onSessionOpen", wire.opened(ssn), wire.EmptyReply)
            if self._problem and not self._is_ignorable:
                return
        self._register()

    def close(self, ssn: session.Session) -> None:
        """Send the closing event. Later requests, for explanations, are not sent."""
        if self._has("onSessionClose"):
            self._call("onSessionClose", {}, wire.EmptyReply)
        self._is_over = True

    def _register(self) -> None:
        ssn, has = self._within, self._has
        if has("predicate") or has("prioritize"):
            ssn.add_class_key(self._kind)
        if has("predicate"):
            ssn.add_predicate(self._checks, extension_points.Scope.GLOBAL)
        if has("prioritize"):
            ssn.add_node_order(self._scores, extension_points.Scope.GLOBAL)
        if has("preemptable"):
            ssn.add_preemptable(lambda by, among: self._victims("preemptable", by, among))
        if has("reclaimable"):
            ssn.add_reclaimable(lambda by, among: self._victims("reclaimable", by, among))
        if has("queueOverused"):
            ssn.add_overused(self._is_overused)
        if has("jobEnqueueable"):
            ssn.add_job_enqueueable(self._vote_enqueueable)
        if has("jobEnqueued"):
            ssn.add_job_enqueued(self._on_enqueued)
        if has("jobReady") or has("allocateFunc"):
            ssn.add_job_ready(self._missing)
        if has("allocateFunc"):
            ssn.add_job_pipelined(
                lambda job: (
                    extension_points.REJECT
                    if job.key in self._refused
                    else extension_points.ABSTAIN
                )
            )
        if has("allocateFunc") or has("deallocateFunc"):
            ssn.add_event_handler(
                self._on_allocate if has("allocateFunc") else None,
                self._on_deallocate if has("deallocateFunc") else None,
            )

    # Requests ---------------------------------------------------------------------------------

    def _has(self, verb: str) -> bool:
        return bool(self._verbs[verb])

    def _call(self, verb: str, body: Any, form: type[_Given]) -> _Given | None:
        """Return the response to one request, None if there is none."""
        (answer,) = self._call_all(verb, [body], form)
        return answer

    def _call_all(
        self, verb: str, bodies: Sequence[Any], form: type[_Given]
    ) -> list[_Given | None]:
        if self._problem or self._is_over or not bodies:
            return [None] * len(bodies)
        url = f"{self._prefix}/{self._verbs[verb]}"
        questions = [
            external_calls.ExternalRequest(url, msgspec.json.encode(body), self._timeout_s)
            for body in bodies
        ]
        answers = self._within.outside.ask(questions)
        return [self._read(url, answer, form) for answer in answers]

    def _read(
        self, url: str, answer: external_calls.ExternalResponse, form: type[_Given]
    ) -> _Given | None:
        problem = answer.error
        if not problem and form is wire.EmptyReply:
            return form()
        if not problem:
            try:
                return decoding.from_json(answer.body, form)
            except msgspec.DecodeError as error:
                problem = f"its response cannot be read: {error}"
        self._request_retry()
        if not self._problem:
            self._problem = f"{url}: {problem}"
            if self._within.outside.is_possible:
                instead = "ignored" if self._is_ignorable else "treated as a refusal"
                self._within.complaints.append(
                    f"plugin extender: {self._problem}; the extender is {instead} for this session"
                )
        return None

    def _request_retry(self) -> None:
        """Request a later session, since something was refused."""
        self._within.request_session_at(self._within.now + RETRY)

    def _is_managed(self, task: entities.Task) -> bool:
        if self._managed is None:
            return True
        spec = task.pod.spec
        return any(
            name in self._managed
            for container in (*spec.init_containers, *spec.containers)
            for listed in (container.resources.requests, container.resources.limits)
            for name in listed or ()
        )

    def _kind(self, task: entities.Task) -> Any:
        return (task.job or task.key, task.role) if self._is_managed(task) else None

    # Nodes ------------------------------------------------------------------------------------

    def _checks(
        self, task: entities.Task, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        if not self._is_managed(task):
            return []
        kind = (task.task_class, self._kind(task))
        if self._is_over and kind not in self._verdicts:
            return []
        known = self._verdicts.setdefault(kind, _FilterCache(len(self._within.nodes)))
        if not self._is_over:
            known.renew(self._within, task, self._filter_results)
        return [
            extension_points.Check(reason, code, (known.said != number)[view.rows])
            for number, (reason, code) in enumerate(known.reasons)
        ]

    def _filter_results(
        self, task: entities.Task, rows: Sequence[int]
    ) -> list[tuple[str, extension_points.Code] | None]:
        """Return, per node, why it is not feasible; None if it is."""
        requested = wire.task(self._within, task)
        bodies = [{"task": requested, "node": wire.node(self._within, row)} for row in rows]
        answers = self._call_all("predicate", bodies, wire.Predicate)
        missing = None if self._is_ignorable else (self._failed(), extension_points.Code.ERROR)
        statuses = [missing if answer is None else _filter_status(answer) for answer in answers]
        if any(statuses):
            self._request_retry()
        return statuses

    def _failed(self) -> str:
        return f"the extender failed: {self._problem}"

    def _scores(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        if not self._is_managed(task):
            return None
        nodes = self._within.nodes
        rows = np.arange(len(nodes))[view.rows]
        body = {
            "task": wire.task(self._within, task),
            "nodes": [wire.node(self._within, int(row)) for row in rows],
        }
        answer = self._call("prioritize", body, wire.Scores)
        if answer is None or answer.error_message or not answer.node_score:
            return None
        scores = [answer.node_score.get(nodes.names[row], 0.0) for row in rows]
        cut = np.clip(np.array(scores, np.float64), -MAX_SCORE, MAX_SCORE)
        return np.rint(cut * extension_points.SCORE_UNIT).astype(np.int64)

    # Victims ----------------------------------------------------------------------------------

    def _victims(
        self, verb: str, evictor: entities.Task, candidates: Sequence[entities.Task]
    ) -> extension_points.Victims:
        if not self._is_managed(evictor):
            return extension_points.Victims((), extension_points.ABSTAIN)
        body = {
            "evictor": wire.task(self._within, evictor),
            "evictees": [wire.task(self._within, each) for each in candidates],
        }
        answer = self._call(verb, body, wire.VictimSelection)
        if answer is None:
            return extension_points.Victims((), extension_points.REJECT)
        chosen = {victim.uid for victim in answer.victims or ()}
        if len(chosen) < len(candidates):
            self._request_retry()
        return extension_points.Victims(
            [each for each in candidates if each.uid in chosen], _vote(answer.status)
        )

    # Queues and jobs --------------------------------------------------------------------------

    def _is_overused(self, queue: entities.Queue) -> bool:
        answer = self._call("queueOverused", {"queue": wire.queue(queue)}, wire.Overused)
        is_overused = not self._is_ignorable if answer is None else answer.overused
        if is_overused:
            self._request_retry()
        return is_overused

    def _vote_enqueueable(self, job: entities.Job) -> int:
        answer = self._call("jobEnqueueable", {"job": wire.job(self._within, job)}, wire.Vote)
        if answer is not None:
            if _vote(answer.status) == extension_points.REJECT:
                self._request_retry()
            return _vote(answer.status)
        if self._is_ignorable:
            return extension_points.PERMIT
        self._within.emit_event(job, self._failed())
        return extension_points.REJECT

    def _on_enqueued(self, job: entities.Job) -> None:
        self._call("jobEnqueued", {"job": wire.job(self._within, job)}, wire.EmptyReply)

    def _missing(self, job: entities.Job, task: entities.Task | None) -> int:
        """1 while the extender does not allow the job to be bound, else 0: it returns no count."""
        if task is not None:
            return 1
        if job.key in self._refused:
            return 1
        if not self._has("jobReady"):
            return 0
        answer = self._call("jobReady", {"job": wire.job(self._within, job)}, wire.Ready)
        is_ready = self._is_ignorable if answer is None else answer.status
        if not is_ready:
            self._request_retry()
        return int(not is_ready)

    # Placements -------------------------------------------------------------------------------

    def _on_allocate(self, tasks: Sequence[entities.Task]) -> None:
        for task, answer in self._notify("allocateFunc", tasks):
            reason = self._failed() if answer is None else answer.error_message
            if reason and not self._is_ignorable:
                self._refused[task.job] = reason
                self._request_retry()
                self._within.complaints.append(
                    f"plugin extender: placing {task.key} on {task.node} was refused: {reason}"
                )

    def _on_deallocate(self, tasks: Sequence[entities.Task]) -> None:
        for task, answer in self._notify("deallocateFunc", tasks):
            if answer is not None and answer.error_message:
                self._within.complaints.append(
                    f"plugin extender: the rollback of {task.key} failed: {answer.error_message}"
                )

    def _notify(
        self, verb: str, tasks: Sequence[entities.Task]
    ) -> list[tuple[entities.Task, wire.EventStatus | None]]:
        managed = [task for task in tasks if self._is_managed(task)]
        bodies = [{"task": wire.task(self._within, task)} for task in managed]
        return list(zip(managed, self._call_all(verb, bodies, wire.EventStatus), strict=True))


class _FilterCache:
    """Filter results for one kind of tasks: ``said`` has an index of ``reasons`` per row, -1 for
    feasible nodes."""

    def __init__(self, size: int) -> None:
        self.said: npt.NDArray[np.int64] = np.full(size, -1, np.int64)
        self.reasons: list[tuple[str, extension_points.Code]] = []
        self._position = -1

    def renew(
        self,
        ssn: session.Session,
        task: entities.Task,
        judge: Callable[
            [entities.Task, Sequence[int]], list[tuple[str, extension_points.Code] | None]
        ],
    ) -> None:
        """Request results for the changed nodes among those that could ever take the task."""
        nodes = ssn.nodes
        is_due = np.ones(len(nodes), np.bool_)
        if self._position >= 0:
            is_due[:] = False
            is_due[nodes.touched[self._position :]] = True
        self._position = len(nodes.touched)
        could = np.all(task.request[:, np.newaxis] <= nodes.allocatable, axis=0)
        rows = np.flatnonzero(is_due & could & nodes.labelled.usable).tolist()
        for row, filter_result in zip(rows, judge(task, rows), strict=True):
            if filter_result is not None and filter_result not in self.reasons:
                self.reasons.append(filter_result)
            self.said[row] = -1 if filter_result is None else self.reasons.index(filter_result)


def _filter_status(answer: wire.Predicate) -> tuple[str, extension_points.Code] | None:
    if not answer.status:
        return None
    codes = {code.value: code for code in extension_points.Code}
    return answer.status, codes.get(answer.code, extension_points.Code.ERROR)


def _vote(status: int) -> int:
    return (
        extension_points.PERMIT
        if status > 0
        else extension_points.REJECT
        if status < 0
        else extension_points.ABSTAIN
    )


def _timeout(arguments: configuration.Arguments) -> timedelta:
    text = arguments.text("extender.httpTimeout", "1s")
    try:
        duration = durations.duration(text)
    except ValueError:
        duration = timedelta()
    if duration > timedelta():
        return duration
    arguments.record_invalid(
        "extender.httpTimeout", text, "a positive duration such as 500ms", "1s"
    )
    return DEFAULT_TIMEOUT


def _managed(arguments: configuration.Arguments) -> frozenset[str] | None:
    """Return the resources that the extender manages, None for all tasks."""
    listed = arguments.values.get("extender.managedResources") or []
    if isinstance(listed, list | tuple):
        names = [each.get("name") if isinstance(each, Mapping) else each for each in listed]
        texts = [name for name in names if isinstance(name, str)]
        if len(texts) == len(names):
            return frozenset(texts) or None
    arguments.record_invalid("extender.managedResources", listed, "a list of names", "all tasks")
    return None
