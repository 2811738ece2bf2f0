"""Gangs that wait, as one session works on them, and the order in which it does.

Order: a gang that holds places but lacks its minimum (its decision was refused in part, or it lost
a member), then priority, then gangs not yet whole before those that are, then age, then uid.
"""

import hashlib
from datetime import UTC, datetime
from typing import Any

import msgspec

from stromboli.scheduler.core import configuration, gangs, promises, state
from stromboli.shared import snapshot
from stromboli.shared.api import scheduling
from stromboli.shared.messages import scheduling as messages

Order = tuple[Any, ...]
"""Comparable within one session."""

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Blocked(msgspec.Struct, frozen=True):
    """Why nothing is tried for a gang."""

    tier: messages.Tier
    reason: str


class Failure(msgspec.Struct, frozen=True):
    """The first task that fitted nowhere, and what each node said (reason -> nodes)."""

    task: gangs.Task
    refusals: dict[str, int]


class Candidate(msgspec.Struct, eq=False):
    """A waiting gang with what this session finds out about it.

    ``placed``: tasks and rows committed; ``fitting``: how many fitted in a trial that was
    discarded; ``enters``: decided now to pass its queue's door; ``is_untried``: left for later;
    ``is_awaited``: its pods are being made, so there is nothing to explain yet.
    """

    gang: gangs.Gang
    group: scheduling.PodGroup
    priority: int
    is_enqueued: bool
    order: Order
    surplus_order: Order
    is_ready: bool
    blocked: Blocked | None = None
    enters: bool = False
    placed: list[tuple[gangs.Task, int]] = msgspec.field(default_factory=list)
    fitting: int = 0
    failure: Failure | None = None
    is_untried: bool = False
    is_awaited: bool = False
    _tasks: list[gangs.Task] | None = None

    @property
    def key(self) -> str:
        """The PodGroup's key."""
        return self.gang.key

    @property
    def tasks(self) -> list[gangs.Task]:
        """Its tasks that wait for a node only, in task order."""
        if self._tasks is None:
            placeable = [task for task in self.gang.pending.values() if task.is_placeable]
            self._tasks = sorted(placeable, key=lambda task: task.order)
        return self._tasks

    @property
    def still_pending(self) -> int:
        """Tasks without a place after what was decided."""
        return len(self.gang.pending) - len(self.placed)


def waiting(
    picture: state.State, policy: configuration.Configuration, seed: int
) -> list[Candidate]:
    """All gangs that wait and whose PodGroup can be read, in job order."""
    found = []
    for key in picture.waiting:
        gang = picture.gangs[key]
        if isinstance(gang.pod_group, scheduling.PodGroup):
            found.append(_candidate(picture, gang, gang.pod_group, policy, seed))
    return sorted(found, key=lambda candidate: candidate.order)


def shuffled(seed: int, name: str) -> bytes:
    """A place in an order that depends on nothing but the seed and the name."""
    return hashlib.blake2b(name.encode(), key=str(seed).encode(), digest_size=8).digest()


def _candidate(
    picture: state.State,
    gang: gangs.Gang,
    group: scheduling.PodGroup,
    policy: configuration.Configuration,
    seed: int,
) -> Candidate:
    found = picture.priority(group)
    priority = 0 if isinstance(found, snapshot.Unknown) else found
    is_ready = gangs.is_ready(gang, group)
    is_short = not is_ready and gang.ready > 0
    uid = group.metadata.uid
    age = (group.metadata.creation_timestamp or _LONG_AGO, uid)
    order: Order = (not is_short, -priority, is_ready, *age)
    surplus_order: Order = (True, -priority, True, *age)
    if policy.job_order == "shuffle":
        order = (shuffled(seed, uid), is_ready)
        surplus_order = (shuffled(seed, uid), True)
    return Candidate(
        gang=gang,
        group=group,
        priority=priority,
        is_enqueued=picture.is_enqueued(group),
        order=order,
        surplus_order=surplus_order,
        is_ready=is_ready,
        blocked=_blocked(picture, gang, group),
    )


def _blocked(picture: state.State, gang: gangs.Gang, group: scheduling.PodGroup) -> Blocked | None:
    unknown = picture.frozen(gang)
    if unknown:
        return Blocked("unknown", unknown)
    queue, name = picture.queue(group), state.queue_of(group)
    if not isinstance(queue, scheduling.Queue):
        return Blocked("queue-closed", f"queue {name} does not exist")
    if queue.status.state not in ("", "Open"):
        return Blocked("queue-closed", f"queue {name} is {queue.status.state}")
    try:
        promises.wanted(group)
    except ValueError as error:
        return Blocked("invalid", str(error))
    return None
