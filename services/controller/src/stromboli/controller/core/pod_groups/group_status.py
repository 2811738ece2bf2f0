"""The status of PodGroups, and why their pods are pending.

Phase and counts are derived from the members' states and the scheduler's explanation, as in
Volcano, and written on change only. The scheduler publishes a new explanation whenever a number in
it changes. Therefore a condition is written at most once in ``EXPLAIN_EVERY`` if only its text
changed, and the pods' conditions and the Events are derived from the PodGroup's condition. So a
long queue costs few requests.

Unlike in Volcano, a condition that no longer holds is set False.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from stromboli.controller.core import commands, manifests
from stromboli.controller.core.pod_groups import missing_groups, queue_gates
from stromboli.controller.core.store import (
    controller_cache,
    eviction_cycles,
    explanations,
    pod_group_members,
)
from stromboli.controller.core.tasks import tasks
from stromboli.shared.api import core, kinds
from stromboli.shared.api.scheduling import PodGroup, PodGroupCondition, PodGroupStatus

EXPLAIN_EVERY = timedelta(seconds=5)
"""Minimum time between two changes of a condition's text: short enough to watch progress, long
enough not to flood the API server."""
PODS_REPORTED_AFTER = timedelta(seconds=1)
"""How long a gang must be pending before its pods get a condition, which autoscalers and users
read. A gang whose pods were just created is usually pending only briefly, and a condition on each
pod would cost another write and could conflict with the bind."""
UNSCHEDULABLE = "Unschedulable"
SCHEDULED = "Scheduled"
NOT_ENOUGH_RESOURCES = "NotEnoughResources"
NOT_ENOUGH_TASKS = "NotEnoughTasks"
EVICTION_CYCLE = "EvictionCycle"
READY = "tasks in gang are ready to be scheduled"


def reconcile(cache: controller_cache.ControllerCache, key: str, now: datetime) -> commands.Plan:
    """The commands that update a PodGroup's status, its pods' conditions and its Events."""
    group = cache.pod_group(key)
    if group is None:
        return missing_groups.warnings(cache, key, now)
    if cache.is_terminating(group) or cache.is_enqueuing(group):
        return ()
    members = cache.group_members.member_states(key)
    if not _is_ours(cache, group, members):
        return ()
    status = next_status(cache, group, members, now)
    stage: list[commands.Command] = [*queue_gates.removals(cache, group, members)]
    if status != group.status:
        stage.append(_patch(group, status))
        stage += _events(cache, group, status, now)
    waits = _pending_since(group)
    if waits is not None and now >= waits:
        stage += _pod_conditions(cache, members, status, now)
    return (tuple(stage),) if stage else ()


def due(cache: controller_cache.ControllerCache, key: str, now: datetime) -> datetime | None:
    """The time at which to write a delayed text of a condition or the conditions of the pods, or at
    which to clear the condition about an eviction cycle."""
    group = cache.pod_group(key)
    if group is None:
        return missing_groups.due(cache, key, now)
    reported_at = _pending_since(group)
    if reported_at is not None and now < reported_at:
        return reported_at
    if _condition(group.status, EVICTION_CYCLE):
        until = cache.eviction_cycles.until(group.metadata.uid)
        if until is not None and now < until:
            return until
    explained, condition = cache.explained(group), _condition(group.status, UNSCHEDULABLE)
    if explained is None or condition is None or condition.last_transition_time is None:
        return None
    if condition.message == explained.message.message:
        return None
    return condition.last_transition_time + EXPLAIN_EVERY


def _pending_since(group: PodGroup) -> datetime | None:
    """The time at which the pods get their condition; None if the group is not pending."""
    condition = _condition(group.status, UNSCHEDULABLE)
    since = None if condition is None else condition.last_transition_time
    return None if since is None else since + PODS_REPORTED_AFTER


def next_status(
    cache: controller_cache.ControllerCache,
    group: PodGroup,
    members: pod_group_members.Members,
    now: datetime,
) -> PodGroupStatus:
    """The status, derived from the states of members and the explanation. O(member states)."""
    running = succeeded = failed = placed = 0
    version = manifests.version_of(group)
    for member_state, keys in members.items():
        if member_state.is_terminating and member_state.version < version:
            continue  # a pod of an earlier job version, about to be replaced
        count, phase = len(keys), member_state.phase
        succeeded += count * (phase == "Succeeded")
        failed += count * (phase == "Failed")
        running += count * (phase == "Running" and not member_state.is_terminating)
        placed += count * (member_state.has_node or phase in tasks.FINISHED_PODS)
    explained = cache.explained(group)
    is_ready = 0 < placed >= group.spec.min_member
    if running and not is_ready and explained is not None:
        phase = "Unknown"
    elif is_ready:
        phase = "Completed" if placed == succeeded + failed else "Running"
    else:
        phase = "Inqueue" if group.status.phase == "Inqueue" else "Pending"
    conditions = _conditions(group.status, explained, is_ready=is_ready, now=now)
    return PodGroupStatus(
        phase=phase,
        conditions=_with_cycle(cache, group, conditions, now),
        running=running,
        succeeded=succeeded,
        failed=failed,
    )


def _conditions(
    status: PodGroupStatus,
    explained: explanations.Explanation | None,
    *,
    is_ready: bool,
    now: datetime,
) -> tuple[PodGroupCondition, ...]:
    if is_ready:
        holds, other, reason, message, id_ = SCHEDULED, UNSCHEDULABLE, READY, "", ""
    elif explained is not None:
        invalid = explained.message.tier == "invalid"
        holds, other = UNSCHEDULABLE, SCHEDULED
        reason = NOT_ENOUGH_TASKS if invalid else NOT_ENOUGH_RESOURCES
        message, id_ = explained.message.message, explained.id
    else:
        return status.conditions  # there is no explanation: the last one remains valid
    before = _condition(status, holds)
    new = PodGroupCondition(
        type=holds,
        status="True",
        transition_id=id_,
        last_transition_time=now,
        reason=reason,
        message=message,
    )
    kept = new if before is None or _is_news(before, new, now) else before
    conditions = []
    for condition in status.conditions:
        if condition.type == holds:
            continue
        if condition.type == other and condition.status == "True":
            condition = msgspec.structs.replace(condition, status="False", last_transition_time=now)
        conditions.append(condition)
    return (*conditions, kept)


def _with_cycle(
    cache: controller_cache.ControllerCache,
    group: PodGroup,
    conditions: tuple[PodGroupCondition, ...],
    now: datetime,
) -> tuple[PodGroupCondition, ...]:
    """The conditions, with the condition about eviction cycles if the PodGroup is or was in a
    cycle."""
    before = next((each for each in conditions if each.type == EVICTION_CYCLE), None)
    members = cache.eviction_cycles.of(group.metadata.uid, now)
    if not members and before is None:
        return conditions
    status, message = "False", "" if before is None else before.message
    if members:
        status = "True"
        message = eviction_cycles.message_of(members, group.metadata.namespace)
    if before is not None and (before.status, before.message) == (status, message):
        return conditions
    new = PodGroupCondition(
        type=EVICTION_CYCLE,
        status=status,
        last_transition_time=now,
        reason="EvictEachOther",
        message=message,
    )
    return (*(each for each in conditions if each.type != EVICTION_CYCLE), new)


def _is_news(before: PodGroupCondition, after: PodGroupCondition, now: datetime) -> bool:
    if (before.status, before.reason) != (after.status, after.reason):
        return True
    if before.message == after.message:
        return False
    at = before.last_transition_time
    return at is None or now >= at + EXPLAIN_EVERY


def _condition(status: PodGroupStatus, type_: str) -> PodGroupCondition | None:
    """The condition of this type, if it holds."""
    return next((it for it in status.conditions if it.type == type_ and it.status == "True"), None)


def _is_ours(
    cache: controller_cache.ControllerCache, group: PodGroup, members: pod_group_members.Members
) -> bool:
    """Whether this controller manages the PodGroup: if it manages the PodGroup's job or, for
    unmanaged pods, if one of the pods names our scheduler.
    """
    owner = controller_cache.job_of(group)
    if owner is not None:
        job = cache.job(owner)
        return job is not None and cache.is_ours(job)
    ours = any(it.scheduler_name in cache.scheduler_names for it in members)
    return ours or cache.explained(group) is not None


def _patch(group: PodGroup, status: PodGroupStatus) -> commands.Patch:
    before = group.metadata
    tests = [manifests.test("/metadata/uid", before.uid)]
    if group.status.phase:
        tests.append(manifests.test("/status/phase", group.status.phase))
    else:
        tests.append(manifests.test("/metadata/resourceVersion", before.resource_version))
    return commands.Patch(
        kind=kinds.POD_GROUPS,
        namespace=before.namespace,
        name=before.name,
        uid=before.uid,
        patch=manifests.encode([*tests, manifests.put("/status", msgspec.to_builtins(status))]),
        can_wait=(status.phase, status.conditions) == (group.status.phase, group.status.conditions),
    )


def _events(
    cache: controller_cache.ControllerCache, group: PodGroup, status: PodGroupStatus, now: datetime
) -> Iterator[commands.RecordEvent]:
    owner = controller_cache.job_of(group)
    job = None if owner is None else cache.job(owner)
    waits = _condition(status, UNSCHEDULABLE)
    if waits is not None and waits != _condition(group.status, UNSCHEDULABLE):
        details = (UNSCHEDULABLE, waits.message, now)
        yield commands.event_about(kinds.POD_GROUPS, group, "Warning", *details, recurs=True)
        if job is not None and status.phase == "Pending":
            details = (
                "PodGroupPending",
                f"PodGroup {group.metadata.key} waits: {waits.message}",
                now,
            )
            yield commands.event_about(kinds.JOBS, job, "Warning", *details, recurs=True)
    cycle = _condition(status, EVICTION_CYCLE)
    if cycle is not None and cycle != _condition(group.status, EVICTION_CYCLE):
        details = (EVICTION_CYCLE, cycle.message, now)
        yield commands.event_about(kinds.POD_GROUPS, group, "Warning", *details, recurs=True)
        if job is not None:
            yield commands.event_about(kinds.JOBS, job, "Warning", *details, recurs=True)
    if _condition(status, SCHEDULED) and not _condition(group.status, SCHEDULED):
        details = (SCHEDULED, "pod group is ready", now)
        yield commands.event_about(kinds.POD_GROUPS, group, "Normal", *details, recurs=True)


def _pod_conditions(
    cache: controller_cache.ControllerCache,
    members: pod_group_members.Members,
    status: PodGroupStatus,
    now: datetime,
) -> Iterator[commands.Patch]:
    """The patches that set the condition ``PodScheduled`` to False, with the PodGroup's message, on
    all pending pods. O(pods without this condition).
    """
    why = _condition(status, UNSCHEDULABLE)
    if why is None:
        return
    wanted = ("False", UNSCHEDULABLE, why.message)
    unreported: list[str] = []
    for member_state, keys in members.items():
        waits = member_state.phase in ("", "Pending") and not (
            member_state.has_node or member_state.is_terminating
        )
        if waits and not member_state.gates and member_state.condition != wanted:
            unreported += keys
    for key in sorted(unreported):
        pod = cache.pod(key)
        patch = None if pod is None else _pod_condition(pod, why.message, now)
        if patch is not None:
            yield patch


def _pod_condition(pod: core.Pod, message: str, now: datetime) -> commands.Patch | None:
    wanted = {"status": "False", "reason": UNSCHEDULABLE, "message": message}
    before = next((it for it in pod.status.conditions if it.type == "PodScheduled"), None)
    if before and (before.status, before.reason, before.message) == tuple(wanted.values()):
        return None
    at = now.replace(microsecond=0).isoformat().replace("+00:00", "Z")
    return manifests.with_condition(
        pod, {"type": "PodScheduled", **wanted, "lastTransitionTime": at}
    )
