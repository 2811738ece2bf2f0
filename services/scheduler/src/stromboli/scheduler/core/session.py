"""One session: a pure function of the picture, the time, the configuration and a seed.

The picture is not changed: decisions enter it when the log has them. The same input gives the same
session byte for byte, whatever the order in which the picture was folded.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from stromboli.scheduler.core import (
    admission,
    board,
    candidates,
    configuration,
    explain,
    gangs,
    placement,
    promises,
    state,
)
from stromboli.shared.messages import scheduling as messages

PATIENCE = timedelta(seconds=10)
"""How young a PodGroup may be and lack pods without a word: they are made within a second, and an
explanation for each new gang would cost records, conditions and Events for nothing."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """What a session came to.

    ``decisions``: one statement a gang, in job order. ``explanations`` and ``orders``: only what
    differs from what stands on the topic; None says that a gang no longer waits. ``record`` is
    there if anything was decided. ``cause``: id of the record that called for the session.
    ``is_throttled``: binds in flight kept it from placing more. ``is_awaiting``: pods of a young
    gang are still to come; should they not, a session after ``PATIENCE`` explains it.
    """

    decisions: tuple[messages.StatementDecided, ...]
    explanations: dict[str, messages.PodGroupExplained | None]
    orders: tuple[messages.QueueOrdered, ...]
    record: messages.SessionRecorded | None
    cause: str
    is_throttled: bool
    is_awaiting: bool


def decide(
    picture: state.State, now: datetime, policy: configuration.Configuration, seed: int = 0
) -> Session:
    """Decide on all that waits: O(nodes) for each shape and failing gang, and for each task."""
    # 1. What waits, in job order.
    free = board.Board(picture)
    waiting = candidates.waiting(picture, policy, seed)

    # 2. The door: who may enter its queue.
    door = admission.Door(picture, free)
    for candidate in waiting:
        if candidate.blocked is None and not candidate.is_enqueued:
            _knock(candidate, door, policy)

    # 3. Placement: each gang whole in a trial or not at all, as far as binds may be in flight.
    inside = [candidate for candidate in waiting if _may_place(candidate, policy, now)]
    room = policy.max_unanswered_binds - picture.unanswered_binds()
    for step in placement.steps(inside, policy, seed):
        if room <= 0:
            step.candidate.is_untried = True
            continue
        before = len(step.candidate.placed)
        step.run(free, step.candidate)
        room -= len(step.candidate.placed) - before

    # 4. Statements, and why the rest waits.
    number = picture.sessions + 1
    decisions = tuple(_statements(waiting, free, number))
    return Session(
        decisions=decisions,
        explanations=explain.changes(picture, free, waiting),
        orders=explain.order_changes(picture, waiting),
        record=_record(picture, number, now, policy, seed) if decisions else None,
        cause=picture.due,
        is_throttled=any(candidate.is_untried for candidate in inside),
        is_awaiting=any(candidate.is_awaited for candidate in waiting),
    )


def _knock(
    candidate: candidates.Candidate, door: admission.Door, policy: configuration.Configuration
) -> None:
    amounts = promises.wanted(candidate.group)
    refusal = door.refusal(amounts) if policy.gang else ""
    if refusal:
        candidate.blocked = candidates.Blocked("enqueue", refusal)
        return
    door.promise(amounts)
    candidate.enters = candidate.is_enqueued = True


def _may_place(
    candidate: candidates.Candidate, policy: configuration.Configuration, now: datetime
) -> bool:
    if candidate.blocked is None and policy.gang:
        reason = gangs.invalidity(candidate.gang, candidate.group)
        if reason:
            candidate.blocked = candidates.Blocked("gang", reason)
            created = candidate.group.metadata.creation_timestamp
            is_young = created is not None and now - created < PATIENCE
            candidate.is_awaited = candidate.enters or is_young
    return candidate.blocked is None and bool(candidate.tasks)


def _statements(
    waiting: list[candidates.Candidate], free: board.Board, number: int
) -> Iterator[messages.StatementDecided]:
    for candidate in waiting:
        binds = tuple(
            messages.Bind(
                namespace=task.namespace,
                pod=task.name,
                uid=task.uid,
                node=free.name(row),
                task=task.role,
                index=task.index if task.index < gangs.NO_INDEX else 0,
            )
            for task, row in candidate.placed
        )
        if binds or candidate.enters:
            yield messages.StatementDecided(
                pod_group=candidate.key,
                pod_group_uid=candidate.group.metadata.uid,
                session=number,
                enqueue=candidate.enters,
                binds=binds,
                reason="allocate" if binds else "enqueue",
            )


def _record(
    picture: state.State,
    number: int,
    now: datetime,
    policy: configuration.Configuration,
    seed: int,
) -> messages.SessionRecorded:
    unconfirmed_from, outcomes_from = picture.restart_from()
    return messages.SessionRecorded(
        session=number,
        offsets=dict(sorted(picture.offsets.items())),
        now=now,
        configuration=policy.digest,
        seed=seed,
        unconfirmed_from=unconfirmed_from,
        outcomes_from=outcomes_from,
    )
