"""Life-cycle policies: the actions of a job on policy events.

The first policy that matches applies; policies of the task come before those of the job. A policy
with a ``timeout`` is recorded in the status with its due time, so that it survives a restart of the
controller. A policy with ``maxRetries`` is skipped once it has acted that many times. A pod that
its node rejected is a failed placement: no policy applies to it, and it is placed again. An action
is first written to the status: an action on the whole job begins a new job version, and a partial
restart supersedes its pods, so no action is executed twice.

To add a default reaction to events that no policy of the job names, let ``_listed`` yield it last,
as a policy with a slash in its name; its restarts then count as retries. ``evaluate`` runs before
the results of pods may end the job (``phase_changes.advance``), also for a job without policies.

Source: Volcano's job controller. Deliberate differences: a pod's pending time counts from its
creation, and a restart of a part without pods does nothing (docs/deviations.md).
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from stromboli.controller.core import lifecycle, manifests, partial_restarts, termination_causes
from stromboli.controller.core.jobs import policy_events
from stromboli.controller.core.jobs.policy_events import PolicyEvent
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.tasks import tasks
from stromboli.shared import keys
from stromboli.shared.api import batch, core, scheduling
from stromboli.shared.api.batch import DelayedAction, Job, LifecyclePolicy
from stromboli.shared.formats import durations

EVENTS = termination_causes.CAUSES | {
    "PodFailed",
    "PodEvicted",
    "PodPending",
    "TaskCompleted",
    "TaskFailed",
    "Unknown",
}
"""Events that trigger actions. Other events that a policy may name at most trigger a reconcile."""
MOST_DELAYED = 100
"""Maximum number of delayed actions that a job's status records at a time; further delayed actions
are recorded once others are removed."""
FIRST_BACKOFF = timedelta(seconds=10)
"""The default back-off: the second attempt is created immediately, the third this long after the
second. It doubles with each further attempt, as for a Kubernetes Job."""
LONGEST_BACKOFF = timedelta(minutes=5)
"""The longest back-off, unless the policy sets ``maxBackoff``."""
_MOST_DOUBLINGS = 30
REJECTED = "rejected"
"""Name of the rule for pods that their node rejected. Names of policies contain a slash."""
_PLACE_AGAIN = LifecyclePolicy(event="PodFailed", action="RestartPod")


class PolicyAction(msgspec.Struct, frozen=True, kw_only=True):
    """The action of one or more policies. ``part``: the pods that it restarts, empty for the whole
    job. ``used``: the policies; ``why``: their events; ``pause``: their longest back-off.
    ``not_before``: the end of the default back-off. ``is_free``: every pod of the events was
    rejected by its node, so the action costs no retry. ``is_for_deadline``: the end of the job's
    time limit is one of the events."""

    action: lifecycle.Action
    part: partial_restarts.Part
    used: tuple[str, ...]
    why: str
    pause: timedelta
    not_before: datetime | None = None
    is_free: bool = False
    is_for_deadline: bool = False


class PolicyDecision(msgspec.Struct, frozen=True):
    """The result of evaluating policies: an action, if one is due, and the delayed actions.
    ``decides_deadline``: the job's time limit has passed, and a policy acts on that now, after its
    timeout, or after the restart of the job."""

    policy_action: PolicyAction | None
    delayed: tuple[DelayedAction, ...]
    decides_deadline: bool = False


def evaluate(
    cache: controller_cache.ControllerCache,
    job: Job,
    pods: policy_events.Pods,
    group: scheduling.PodGroup | None,
    now: datetime,
) -> PolicyDecision:
    """Evaluate the job's policies. O(policy events x policies)."""
    listed = dict(_listed(job))
    if pods.has_rejected:
        listed[REJECTED] = _PLACE_AGAIN
    if not listed:
        return PolicyDecision(None, ())
    pending = watches_pending(job)
    current_events = list(policy_events.collect(cache, job, pods, group, now, with_pending=pending))
    waiting = {_key(it): it for it in _still_waiting(cache, job, current_events, listed)}
    standing = set()
    due = []
    decides_deadline = False
    for policy_event in current_events:
        matched = _first_match(job, policy_event, listed)
        if matched is None:
            continue
        policy = listed[matched]
        decides_deadline = decides_deadline or _decides_deadline(job, policy, policy_event)
        noted = DelayedAction(
            policy=matched,
            event=policy_event.events[0],
            at=now + delay(policy),
            task=policy_event.task,
            pod=policy_event.pod,
        )
        noted = waiting.get(_key(noted), noted)
        if policy_event.since is not None:
            if cache.api_clock.host_time(policy_event.since + delay(policy)) <= now:
                due.append((matched, policy_event))
        elif noted.at <= now:
            standing.add(_key(noted))
            due.append((matched, policy_event))
        elif len(waiting) < MOST_DELAYED:
            waiting[_key(noted)] = noted
    due += [
        (it.policy, _noted_event(job, it))
        for key, it in waiting.items()
        if it.at <= now and key not in standing
    ]
    due.sort(key=lambda it: it[0] == REJECTED)  # policies of the job come first
    policy_action = _order(cache, job, due, listed)
    delayed = tuple(it for it in waiting.values() if _may_come(job, it, listed, now))
    return PolicyDecision(policy_action, delayed, decides_deadline)


def watches_pending(job: Job) -> bool:
    """Whether any policy has an action on pending pods."""
    named = (events_of(policy) for _, policy in _listed(job))
    return any(policy_events.POD_PENDING in it or "*" in it for it in named)


def due(
    cache: controller_cache.ControllerCache, job: Job, pods: Iterable[core.Pod]
) -> datetime | None:
    """The time at which the next policy is due if the cluster does not change; None if no policy
    is. Reads ``pods`` only for policies on pending pods: O(pods x policies)."""
    times = [it.at for it in job.status.delayed]
    listed = dict(_listed(job))
    if watches_pending(job):
        for pod in pods:
            created = pod.metadata.creation_timestamp
            if pod.status.phase in ("", "Pending") and created is not None:
                index = manifests.number(pod.metadata.annotation(keys.TASK_INDEX))
                about = (tasks.task_of(pod), pod.metadata.name, index)
                pending = PolicyEvent((policy_events.POD_PENDING,), *about, since=created)
                matched = _first_match(job, pending, listed)
                if matched is not None:
                    times.append(cache.api_clock.host_time(created + delay(listed[matched])))
    return min(times, default=None)


def unsupported(job: Job) -> Iterator[str]:
    """Policies that are not supported, one line each, for a Warning on the job."""
    for of_task, policy in (
        *(("", it) for it in job.spec.policies),
        *((f"task {task.name}: ", it) for task in tasks.specs(job) for it in task.policies),
    ):
        why = _problem(policy)
        if why:
            yield f"{of_task}{_shown(policy)}: {why}"


def events_of(policy: LifecyclePolicy) -> frozenset[str]:
    """The events that a policy names."""
    return frozenset({policy.event, *policy.events} - {""})


def delay(policy: LifecyclePolicy) -> timedelta:
    """The delay of the policy's action."""
    return _length(policy.timeout)


def delayed_after(
    status: batch.JobStatus, policy_action: PolicyAction
) -> tuple[DelayedAction, ...]:
    """The delayed actions that remain after an action: those for pods that the action does not
    restart. They must be kept: once the event of a pod is published, only the delayed action
    records it."""
    return tuple(
        it for it in status.delayed if policy_action.part and not _restarts(policy_action.part, it)
    )


def _restarts(part: partial_restarts.Part, noted: DelayedAction) -> bool:
    if noted.task not in part:
        return False
    index = manifests.number(noted.pod.rpartition("-")[2])
    return not noted.pod or index in part[noted.task]


def _listed(job: Job) -> Iterator[tuple[str, LifecyclePolicy]]:
    """Names and policies of all supported policies: first those of each task, then those of the
    job."""
    for task in tasks.specs(job):
        for position, policy in enumerate(task.policies):
            if not _problem(policy):
                yield f"{task.name}/{position}", policy
    for position, policy in enumerate(job.spec.policies):
        if not _problem(policy):
            # No task has an empty name, so names of the job's policies are distinct.
            yield f"/{position}", policy


def _first_match(
    job: Job, policy_event: PolicyEvent, listed: Mapping[str, LifecyclePolicy]
) -> str | None:
    if policy_event.is_node_rejection:
        return REJECTED if _part(job, _PLACE_AGAIN, policy_event) else None
    for name, policy in listed.items():
        if name == REJECTED:
            continue
        of_task = name.partition("/")[0]
        if of_task not in ("", policy_event.task) or not _matches(policy, policy_event):
            continue
        if action_of(policy) in lifecycle.PARTIAL and not _part(job, policy, policy_event):
            continue
        most = policy.max_retries
        if most is not None and job.status.policy_retries.get(name, 0) >= most:
            continue
        return name
    return None


def _matches(policy: LifecyclePolicy, policy_event: PolicyEvent) -> bool:
    named = events_of(policy)
    if policy_event.events[:1] == (policy_events.POD_PENDING,) and not delay(policy):
        return False
    if named & set(policy_event.events) or ("*" in named and policy_event.by_any):
        return True
    return policy.exit_code is not None and policy.exit_code == policy_event.exit_code


def _still_waiting(
    cache: controller_cache.ControllerCache,
    job: Job,
    current_events: list[PolicyEvent],
    listed: Mapping[str, LifecyclePolicy],
) -> Iterator[DelayedAction]:
    """Delayed actions that still apply. An action is cancelled if its pod runs again or has
    succeeded, or its task has recovered."""
    standing = {(it.events[0], it.task, it.pod) for it in current_events}
    for noted in job.status.delayed:
        policy = listed.get(noted.policy)
        if policy is None:
            continue
        if action_of(policy) in lifecycle.PARTIAL and not _part(
            job, policy, _noted_event(job, noted)
        ):
            continue  # the pod was scaled down, or its index has a result
        if noted.pod:
            pod = cache.pod(f"{job.metadata.namespace}/{noted.pod}")
            # A short attempt may succeed before any reconcile sees it run.
            recovered = pod is not None and pod.status.phase in ("Running", "Succeeded")
            if pod is None or cache.is_terminating(pod) or not recovered:
                yield noted
        elif (noted.event, noted.task, "") in standing:
            yield noted


def _may_come(
    job: Job, noted: DelayedAction, listed: Mapping[str, LifecyclePolicy], now: datetime
) -> bool:
    """Whether the delayed action is not due yet, or is possible in this phase. A restart does not
    cancel it."""
    phase, action = tasks.phase_of(job), action_of(listed[noted.policy])
    if noted.at > now or phase == "Restarting":
        return True
    return action is not None and _is_possible(job, action)


def _decides_deadline(job: Job, policy: LifecyclePolicy, policy_event: PolicyEvent) -> bool:
    """Whether the policy will act on the end of the job's time limit. While the whole job restarts,
    RestartJob waits for the end of that restart."""
    action = action_of(policy)
    if action is None or not policy_event.is_deadline:
        return False
    return action == "RestartJob" or _is_possible(job, action)


def _noted_event(job: Job, noted: DelayedAction) -> PolicyEvent:
    """The policy event of a delayed action."""
    index = manifests.number(noted.pod.rpartition("-")[2]) if noted.pod else None
    is_wanted = index is not None and tasks.requires(job, noted.task, index)
    return PolicyEvent((noted.event,), noted.task, noted.pod, index if is_wanted else None)


def _order(
    cache: controller_cache.ControllerCache,
    job: Job,
    due: list[tuple[str, PolicyEvent]],
    listed: Mapping[str, LifecyclePolicy],
) -> PolicyAction | None:
    """The first due action that is possible in this phase, combined for all events for which it is
    due."""
    action: lifecycle.Action | None = None
    parts: list[partial_restarts.Part] = []
    used: dict[str, None] = {}
    why: dict[str, None] = {}
    is_free, is_for_deadline = True, False
    not_before: list[datetime] = []
    for name, policy_event in due:
        wanted = action_of(listed[name])
        if wanted is None or (action is not None and wanted != action):
            continue
        if not _is_possible(job, wanted):
            continue
        if wanted in lifecycle.PARTIAL:
            parts.append(_part(job, listed[name], policy_event))
        action = wanted
        if name != REJECTED:
            used[name] = None
        why[policy_event.description()] = None
        is_free = is_free and policy_event.is_node_rejection
        is_for_deadline = is_for_deadline or policy_event.is_deadline
        if listed[name].backoff is None:
            not_before += map(cache.api_clock.host_time, default_backoff(job, policy_event))
    if action is None:
        return None
    pauses = [backoff(listed[name], job.status.policy_retries.get(name, 0)) for name in used]
    return PolicyAction(
        action=action,
        part=partial_restarts.union(parts),
        used=tuple(used),
        why=_listed_shortly(list(why)),
        pause=max(pauses, default=timedelta()),
        not_before=max(not_before, default=None),
        is_free=is_free,
        is_for_deadline=is_for_deadline,
    )


def _is_possible(job: Job, action: lifecycle.Action) -> bool:
    """Whether the phase allows the action. A job that is restarting as a whole is not restarted
    again."""
    phase = tasks.phase_of(job)
    if action == "RestartJob" and phase == "Restarting" and not partial_restarts.is_partial(job):
        return False
    return lifecycle.accepts(phase, action)


def _listed_shortly(happened: list[str]) -> str:
    more = len(happened) - 1
    return happened[0] + (f" and {more} more" if more else "")


def action_of(policy: LifecyclePolicy) -> lifecycle.Action | None:
    """The policy's action; None if it is unknown."""
    return next((it for it in lifecycle.ACTIONS if it == policy.action), None)


def _part(job: Job, policy: LifecyclePolicy, policy_event: PolicyEvent) -> partial_restarts.Part:
    """The pods that the policy restarts; empty if none matches."""
    task = next((it for it in tasks.specs(job) if it.name == policy_event.task), None)
    return (
        {} if task is None else partial_restarts.part(policy.action, job, task, policy_event.index)
    )


def backoff(policy: LifecyclePolicy, tried: int) -> timedelta:
    """The back-off after the policy's action number ``tried + 1``."""
    first = _length(policy.backoff)
    longest = _length(policy.max_backoff) or LONGEST_BACKOFF
    # In seconds, since repeated doubling can exceed the range of timedelta.
    wait_s = first.total_seconds() * 2 ** min(tried, _MOST_DOUBLINGS)
    return timedelta(seconds=min(wait_s, longest.total_seconds()))


def default_backoff(job: Job, policy_event: PolicyEvent) -> Iterator[datetime]:
    """The time from which the next attempt of a failed pod may begin, if its policy has no
    ``backoff``. Yields nothing if the attempt may begin immediately.

    The time counts from the pod's creation, by the API server's clock, so a pod that ran for longer
    is restarted immediately.

    The back-off grows with the pod's attempts, but at most with the retries that the job has used,
    since users and evictions cause attempts, too. A rejection by the node uses no retry.
    """
    attempts = policy_event.attempt - 1
    if not policy_event.is_node_rejection:
        attempts = min(attempts, tasks.spent_tries(job))
    if attempts > 0 and policy_event.created_at is not None:
        wait_s = FIRST_BACKOFF.total_seconds() * 2 ** min(attempts - 1, _MOST_DOUBLINGS)
        wait = timedelta(seconds=min(wait_s, LONGEST_BACKOFF.total_seconds()))
        yield policy_event.created_at + wait


def _problem(policy: LifecyclePolicy) -> str:
    """Why the policy is not supported; empty if it is."""
    if action_of(policy) is None:
        return f"{policy.action!r} is not an action"
    for text in (policy.timeout, policy.backoff, policy.max_backoff):
        try:
            durations.duration(text or "0s")
        except ValueError as error:
            return str(error)
    named = events_of(policy)
    if policy.exit_code is None and not named & (EVENTS | {"*"}):
        return "no event triggers it"
    if named == {policy_events.POD_PENDING} and not delay(policy):
        return "PodPending needs a timeout"
    return ""


def _length(text: str | None) -> timedelta:
    """A duration, at least 0. Raises ValueError."""
    return max(durations.duration(text or "0s"), timedelta())


def _key(noted: DelayedAction) -> tuple[str, str, str]:
    return noted.policy, noted.task, noted.pod


def _shown(policy: LifecyclePolicy) -> str:
    cause = ", ".join(sorted(events_of(policy)))
    if policy.exit_code is not None:
        cause = f"exit code {policy.exit_code}"
    wait = f" after {policy.timeout}" if policy.timeout else ""
    return f"policy {policy.action} on {cause}{wait}"
