"""Why gangs wait: the tier that blocks, numbers, and the text that users know from conditions.

The text is Volcano's (spec/scheduling 1.3 and 9, spec/plugins 1). Only what changed is said.
"""

from collections.abc import Mapping

from stromboli.scheduler.core import board, candidates, gangs, promises, shapes, state
from stromboli.shared.messages import scheduling as messages

_MOST_NAMED = 3
"""Pods named in a text about several."""


def changes(
    picture: state.State, free: board.Board, waiting: list[candidates.Candidate]
) -> dict[str, messages.PodGroupExplained | None]:
    """PodGroup -> why it waits, or None once it does not; only where that is news."""
    now: dict[str, messages.PodGroupExplained | None] = dict.fromkeys(picture.explained)
    for key in picture.waiting:
        now[key] = _unreadable(picture, picture.gangs[key])
    for candidate in waiting:
        now[candidate.key] = (
            picture.explained.get(candidate.key)
            if candidate.is_untried
            else _explanation(free, candidate)
        )
    return {
        key: explanation
        for key, explanation in sorted(now.items())
        if explanation != picture.explained.get(key)
    }


def order_changes(
    picture: state.State, waiting: list[candidates.Candidate]
) -> tuple[messages.QueueOrdered, ...]:
    """Each queue's waiting gangs in job order, where that is news."""
    lines: dict[str, list[str]] = {queue: [] for queue in picture.ordered}
    for candidate in waiting:
        if _still_waits(candidate):
            lines.setdefault(state.queue_of(candidate.group), []).append(candidate.key)
    orders = (
        messages.QueueOrdered(queue=queue, pod_groups=tuple(line))
        for queue, line in sorted(lines.items())
    )
    nothing = messages.QueueOrdered(queue="", pod_groups=())
    return tuple(
        order
        for order in orders
        if order.pod_groups != picture.ordered.get(order.queue, nothing).pod_groups
    )


def _still_waits(candidate: candidates.Candidate) -> bool:
    if candidate.is_awaited:
        return False
    return bool(candidate.blocked or candidate.still_pending or not candidate.is_ready)


def _unreadable(picture: state.State, gang: gangs.Gang) -> messages.PodGroupExplained:
    """The gang of a PodGroup that cannot be read."""
    return messages.PodGroupExplained(
        pod_group=gang.key,
        pod_group_uid="",
        queue="",
        phase="",
        tier="unknown",
        message=picture.frozen(gang),
        min_member=0,
        members=len(gang.tasks),
        running=gang.count({gangs.Status.RUNNING}),
        pending=len(gang.pending),
        placeable=0,
    )


def _explanation(
    free: board.Board, candidate: candidates.Candidate
) -> messages.PodGroupExplained | None:
    if not _still_waits(candidate):
        return None
    gang, group = candidate.gang, candidate.group
    tier, reason = _tier(candidate)
    refusals = candidate.failure.refusals if candidate.failure else {}
    return messages.PodGroupExplained(
        pod_group=candidate.key,
        pod_group_uid=group.metadata.uid,
        queue=state.queue_of(group),
        phase=group.status.phase,
        tier=tier,
        message=_at_the_door(candidate) or _message(candidate, reason),
        min_member=group.spec.min_member,
        members=len(gang.tasks),
        running=gang.count({gangs.Status.RUNNING}),
        pending=candidate.still_pending,
        placeable=candidate.fitting,
        shortages=_shortages(free, candidate, tier),
        refusals=tuple(
            messages.NodesRefused(nodes=nodes, reason=why)
            for why, nodes in sorted(refusals.items(), key=lambda entry: (-entry[1], entry[0]))
        ),
    )


def _tier(candidate: candidates.Candidate) -> tuple[messages.Tier, str]:
    """What blocks the gang, and the origin of it in words."""
    if candidate.blocked is not None:
        return candidate.blocked.tier, f": {candidate.blocked.reason}"
    failure = candidate.failure
    if failure is not None:
        is_short = any(_is_shortage(reason) for reason in failure.refusals)
        tier: messages.Tier = "resources" if is_short else "predicates"
        return tier, f" {failure.task.name}: {_nodes_text(failure.refusals)}"
    bad = sorted(task.key for task in candidate.gang.pending.values() if task.problem)
    if bad:
        return "invalid", f" {bad[0]}: {candidate.gang.pending[bad[0]].problem}"
    gated = sorted(task.key for task in candidate.gang.pending.values() if task.is_gated)
    if gated:
        names = ", ".join(gated[:_MOST_NAMED])
        return "gang", f": {len(gated)} pods wait for their scheduling gates: {names}"
    return "gang", f": {gangs.invalidity(candidate.gang, candidate.group)}"


def _message(candidate: candidates.Candidate, origin: str) -> str:
    gang, group = candidate.gang, candidate.group
    placed = len(candidate.placed)
    counts = gang.statuses()
    if placed:
        counts[gangs.Status.PENDING] -= placed
        counts[gangs.Status.BINDING] = counts.get(gangs.Status.BINDING, 0) + placed
    unplaced = group.spec.min_member - gang.ready - placed - candidate.fitting
    if candidate.is_ready:
        unplaced = candidate.still_pending
    readiness = "ready" if candidate.is_ready else "not ready"
    text = f"{unplaced}/{len(gang.tasks)} tasks in gang unschedulable: pod group is {readiness}, "
    text += _histogram({**counts, "minAvailable": group.spec.min_member})
    if candidate.still_pending:
        fitting = min(candidate.fitting, candidate.still_pending)
        reasons = {"Schedulable": fitting, "Unschedulable": candidate.still_pending - fitting}
        text += f"; Pending: {_histogram(reasons)}"
    return f"{text}. Origin reason is{origin}"


def _nodes_text(refusals: Mapping[str, int]) -> str:
    """``0/5 nodes are unavailable: 2 x, 3 y.``"""
    if not refusals:
        return "0/0 nodes are unavailable."
    return f"0/{sum(refusals.values())} nodes are unavailable: {_histogram(refusals)}."


def _histogram(counts: Mapping[str, int]) -> str:
    """Sorted as texts, so that ``10 x`` stands before ``2 y``, as users see it today."""
    keep = "minAvailable"
    lines = (f"{number} {name}" for name, number in counts.items() if number or name == keep)
    return ", ".join(sorted(lines))


def _at_the_door(candidate: candidates.Candidate) -> str:
    """Before a gang is let in it has no pods, and nothing is to be said about pods."""
    blocked = candidate.blocked
    return blocked.reason if blocked is not None and blocked.tier == "enqueue" else ""


def _shortages(
    free: board.Board, candidate: candidates.Candidate, tier: messages.Tier
) -> tuple[messages.Shortage, ...]:
    """Of each resource that is short somewhere, what the gang needs to begin (or its surplus needs)
    and what there is in all."""
    if tier == "enqueue":
        needed = promises.wanted(candidate.group)
        needed = {name: needed[name] for name in needed if not _is_quota_name(name)}
    elif tier == "resources":
        needed = shapes.total(task.shape for task in _missing(candidate) if task.shape)
    else:
        return ()
    refusals = candidate.failure.refusals if candidate.failure else {}
    found = []
    for name, amount in sorted(needed.items()):
        available, total = free.free_and_total(name)
        if amount > available or _reason(name) in refusals:
            found.append(
                messages.Shortage(resource=name, needed=amount, free=available, total=total)
            )
    return tuple(found)


def _missing(candidate: candidates.Candidate) -> list[gangs.Task]:
    placed = {task.key for task, _ in candidate.placed}
    missing = [task for task in candidate.tasks if task.key not in placed]
    if candidate.is_ready:
        return missing
    return missing[: candidate.group.spec.min_member - candidate.gang.ready]


def _is_quota_name(name: str) -> bool:
    """minResources also has the names by which ResourceQuotas count the same amounts again."""
    return name.startswith(("requests.", "limits.", "count/"))


def _reason(resource: str) -> str:
    return board.POD_COUNT if resource == "pods" else f"Insufficient {resource}"


def _is_shortage(reason: str) -> bool:
    return reason == board.POD_COUNT or reason.startswith("Insufficient ")
