"""Execution of the scheduler's decisions: the result of each bind and eviction, and the outcome.

A decision is trusted: only the scheduler knows nodes and capacity. The controller checks by uid
that the pod and the job exist; the API server checks the same again. A decision that is delivered
twice (its offset was not committed) gets the same outcome twice: a pod that was bound by this
decision is *executed*, and so is the eviction of a deleted pod.
"""

import heapq
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from stromboli.controller.core import commands, lifecycle, manifests, termination_causes
from stromboli.controller.core.store import controller_cache, eviction_cycles, job_relations
from stromboli.controller.core.tasks import tasks
from stromboli.shared import errors, keys
from stromboli.shared.api import core, kinds
from stromboli.shared.api import scheduling as api_scheduling
from stromboli.shared.messages import scheduling

Outcome = scheduling.TaskOutcome


class ExecutionResult(msgspec.Struct, frozen=True):
    """The result of one bind or eviction, whether or not it needed a request."""

    result: scheduling.Result
    reason: str = ""
    message: str = ""


EXECUTED = ExecutionResult("executed")


def failure(error: Exception) -> ExecutionResult:
    """The result of a bind or eviction that failed with an internal error. It counts as not
    executed."""
    return ExecutionResult("refused", "InternalError", f"{type(error).__name__}: {error}"[:200])


def outcome(of: scheduling.Bind | scheduling.Eviction, answer: ExecutionResult) -> Outcome:
    """The outcome of one task."""
    return Outcome(
        namespace=of.namespace,
        pod=of.pod,
        uid=of.uid,
        result=answer.result,
        reason=answer.reason,
        message=answer.message,
    )


def scheduled(bind: scheduling.Bind, now: datetime) -> commands.RecordEvent:
    """The Event of a bound pod, with the message of Kubernetes' scheduler."""
    return commands.RecordEvent(
        kind=kinds.PODS,
        namespace=bind.namespace,
        name=bind.pod,
        uid=bind.uid,
        type="Normal",
        reason="Scheduled",
        message=f"Successfully assigned {bind.namespace}/{bind.pod} to {bind.node}",
        at=now,
    )


def before_bind(
    cache: controller_cache.ControllerCache, bind: scheduling.Bind, decision: str
) -> ExecutionResult | None:
    """The result of a bind, if the cache already determines it; None if the pod has to be bound."""
    pod = cache.pod(f"{bind.namespace}/{bind.pod}")
    if pod is None or pod.metadata.uid != bind.uid:
        return None  # our cache may be behind the scheduler's
    if pod.spec.node_name:
        return _bound(pod, decision)
    if cache.is_terminating(pod):
        return ExecutionResult("refused", "PodGone", "the pod is being deleted")
    return _before_bind_of_job(cache, pod)


def _before_bind_of_job(
    cache: controller_cache.ControllerCache, pod: core.Pod
) -> ExecutionResult | None:
    owner = pod.metadata.controller
    key = controller_cache.job_of(pod)
    if owner is None or key is None:
        return None
    job = cache.job(key)
    if job is None and cache.state(kinds.JOBS, key) is None:
        return ExecutionResult("refused", "JobGone", "the pod's job is deleted")
    if job is None:
        return ExecutionResult("refused", "JobUnknown", "the pod's job cannot be read")
    if job.metadata.uid != owner.uid or cache.is_terminating(job):
        return ExecutionResult("refused", "JobGone", "the pod's job is deleted")
    if job.status.state.phase in lifecycle.STOPPING:
        return ExecutionResult("refused", "JobStopping", f"the job is {job.status.state.phase}")
    if manifests.version_of(pod) < job.status.version:
        return ExecutionResult(
            "refused", "JobRestarted", "the pod is of an earlier version of its job"
        )
    return None


def after_bind_refused(
    pod: core.Pod | None, bind: scheduling.Bind, decision: str
) -> ExecutionResult:
    """The result of a bind that the API server rejected. ``pod``: the pod as read afterwards,
    None if absent."""
    if pod is None or pod.metadata.uid != bind.uid:
        return ExecutionResult("refused", "PodGone", "the pod does not exist")
    if pod.spec.node_name:
        return _bound(pod, decision)
    return ExecutionResult("refused", "PodGone", "the pod is being deleted")


def _bound(pod: core.Pod, decision: str) -> ExecutionResult:
    if pod.metadata.annotation(keys.DECISION) == decision:
        return EXECUTED
    return ExecutionResult("refused", "AlreadyBound", f"the pod is on node {pod.spec.node_name}")


def before_eviction(
    cache: controller_cache.ControllerCache, eviction: scheduling.Eviction
) -> ExecutionResult | None:
    """The result of an eviction, if the cache already determines it; None if the pod has to be
    deleted."""
    pod = cache.pod(f"{eviction.namespace}/{eviction.pod}")
    if pod is None or pod.metadata.uid != eviction.uid:
        return None  # our cache may be behind the scheduler's
    if cache.is_terminating(pod):
        return EXECUTED
    if tasks.has_finished(pod):
        return ExecutionResult("refused", "PodFinished", f"the pod has {pod.status.phase.lower()}")
    return None


def has_ended(cache: controller_cache.ControllerCache, eviction: scheduling.Eviction) -> bool:
    """Whether the cached pod has ended, is terminating, or is another pod of the same name."""
    pod = cache.pod(f"{eviction.namespace}/{eviction.pod}")
    is_another = pod is not None and pod.metadata.uid != eviction.uid
    return is_another or before_eviction(cache, eviction) is not None


def evicted_at(pod: core.Pod) -> datetime | None:
    """The end of a pod's notice period, from its annotation; None if that is absent or invalid."""
    text = pod.metadata.annotation(keys.EVICTED_AT)
    try:
        deadline = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return deadline if deadline is not None and deadline.tzinfo is not None else None


def due(pod: core.Pod, eviction: scheduling.Eviction, now: datetime) -> datetime:
    """When to delete an evicted pod: at the end of its notice period, but at most ``notice_s`` from
    now."""
    latest = now + timedelta(seconds=eviction.notice_s)
    notified_end = evicted_at(pod)
    return latest if notified_end is None else min(notified_end, latest)


def eviction_cause(
    cache: controller_cache.ControllerCache, eviction: scheduling.Eviction, pod_group: str
) -> str:
    """Why a pod is evicted and for whom: ``reclaimed by queue research for job default/train``.

    ``pod_group``: the preemptor. Names in other namespaces are not shown to the pod's owner.
    """
    action = next((word for name, word in _ACTIONS.items() if name in eviction.reason), "")
    group = cache.pod_group(pod_group)
    if not action or group is None:
        return f"evicted ({eviction.reason})"
    namespace = group.metadata.namespace
    owner = group.metadata.controller
    job = f"job {namespace}/{owner.name}" if owner else f"PodGroup {pod_group}"
    if namespace != eviction.namespace:
        job = "a job in another namespace"
    if action == "reclaimed":
        return f"reclaimed by queue {group.spec.queue} for {job}"
    return f"preempted by {job} of queue {group.spec.queue}"


def member_of(group: api_scheduling.PodGroup | None) -> eviction_cycles.Member | None:
    """The PodGroup in the form that eviction cycles use; None if it is unknown."""
    if group is None:
        return None
    return eviction_cycles.Member(group.metadata.key, group.metadata.uid)


def victim_of(
    cache: controller_cache.ControllerCache, eviction: scheduling.Eviction
) -> eviction_cycles.Member | None:
    """The PodGroup of an evicted pod; None if the pod or its PodGroup is not known."""
    pod = cache.pod(f"{eviction.namespace}/{eviction.pod}")
    key = None if pod is None or pod.metadata.uid != eviction.uid else job_relations.group_of(pod)
    return None if key is None else member_of(cache.pod_group(key))


_ACTIONS = {"preempt": "preempted", "reclaim": "reclaimed"}
"""Substring of the name of a scheduler action -> what it does to its victims."""


def notices(
    pod: core.Pod, eviction: scheduling.Eviction, cause: str, at: datetime, now: datetime
) -> tuple[commands.Patch, ...]:
    """The patches that mark a pod as evicted: the annotation with the end of the notice period, if
    there is one, then Kubernetes' condition ``DisruptionTarget``. Patches that would change nothing
    are left out. A condition without a cause remains from an eviction that did not happen; it is
    replaced, as Kubernetes' scheduler does."""
    patches = []
    has_notice = eviction.notice_s > 0
    if has_notice and evicted_at(pod) != at:
        patches.append(manifests.annotated(kinds.PODS, pod, keys.EVICTED_AT, at.isoformat()))
    if not any(map(termination_causes.is_disruption, pod.status.conditions)):
        condition = {
            "type": termination_causes.DISRUPTED,
            "status": "True",
            "reason": termination_causes.PREEMPTION,
            "message": cause
            + (f"{termination_causes.NOTICE}{at.isoformat()}" if has_notice else ""),
            "lastTransitionTime": now.isoformat(timespec="seconds"),
        }
        patches.append(manifests.with_condition(pod, condition, tests_version=False))
    return tuple(patches)


def refusal(error: errors.PermanentError) -> ExecutionResult:
    """The result of a bind or eviction that the API server rejected permanently."""
    reason: Literal["NotFound", "Conflict", "Forbidden", "Invalid"]
    match error:
        case errors.NotFoundError():
            reason = "NotFound"
        case errors.ConflictError():
            reason = "Conflict"
        case errors.ForbiddenError():
            reason = "Forbidden"
        case _:
            reason = "Invalid"
    return ExecutionResult("refused", reason, error.reason)


class OutcomeOffsets:
    """The offsets from which a restarting scheduler has to read outcomes.

    ``unanswered_from``: every decision below this offset has an outcome. ``outcomes_from``: the
    outcomes of all other decisions, including future ones, are at or after this offset.
    ``before``: outcomes of earlier terms by offset, of all decisions that may be read again.
    """

    def __init__(self, opened_at: int, before: Mapping[int, scheduling.DecisionAnswered]) -> None:
        self._answers: dict[int, int] = {}
        # Heaps with the contents of ``_answers``; entries that it no longer has are skipped.
        self._decisions: list[int] = []
        self._ordered: list[tuple[int, int]] = []
        self._next = opened_at + 1
        for offset, answer in before.items():
            self._note(answer.decision_offset, offset)

    def answered(self, decision_offset: int, answer_offset: int) -> None:
        """Note that the broker acknowledged the outcome of a decision at ``answer_offset``."""
        self._note(decision_offset, answer_offset)
        self._next = max(self._next, answer_offset + 1)

    def outcomes_from(self, unanswered_from: int) -> int:
        """The lowest offset of an outcome of a decision at or after ``unanswered_from``; without
        such an outcome, the offset after the last outcome. Amortized O(log outcomes) for each
        outcome, even while one slow decision is executed and many later ones are answered."""
        while self._decisions and self._decisions[0] < unanswered_from:
            self._answers.pop(heapq.heappop(self._decisions), None)
        while self._ordered and self._answers.get(self._ordered[0][1]) != self._ordered[0][0]:
            heapq.heappop(self._ordered)
        return self._ordered[0][0] if self._ordered else self._next

    def _note(self, decision_offset: int, answer_offset: int) -> None:
        if decision_offset not in self._answers:
            heapq.heappush(self._decisions, decision_offset)
        self._answers[decision_offset] = answer_offset
        heapq.heappush(self._ordered, (answer_offset, decision_offset))
