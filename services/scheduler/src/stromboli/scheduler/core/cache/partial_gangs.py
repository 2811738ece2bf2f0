"""Releases gangs that were started only in part, so that gang atomicity holds over time.

A session binds a gang whole, but the controller executes binds one by one. If it executes some and
is refused others (a pod was deleted, a node has gone, a policy refuses the bind), the members that
started hold room while the gang cannot run. Sessions try to place the missing members first. Two
rules limit the time:

1. A gang is *partial* from the first session after an outcome that refuses a bind of the decision
   that started the gang (``StatementDecided.starts_gang``), until the snapshots show at least
   ``minAvailable`` members on nodes, or no member is on a node. Such an outcome starts a session.
2. A gang that has been partial for ``RELEASE_AFTER`` and that lacks members in this session is
   released: the session evicts its started members with the reason ``partial-gang``, in a statement
   of its own. The decision is executed, republished and answered like any other eviction. The
   gang then waits as a whole, and other gangs can use the room.

A gang that was complete once is never released: the job's policies decide what happens when it
loses members. Nothing is evicted while a bind of the gang is in flight, or while the gang is frozen
because an object cannot be read. Plugins that protect pods from eviction protect them here.

Sessions keep partial gangs in their recorded memory, so that a restart and a replay know since when
each one is partial. Memory and time are O(partial gangs).
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from stromboli.scheduler.core.cache.in_flight.refusals import Refusal
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.shared import decoding

NAME = "partial-gang"
"""Reason of the evictions, and key of the session's memory."""
RELEASE_AFTER = timedelta(seconds=30)
"""Time to complete a partial gang: a deleted pod is created again within a second, and a lost
outcome is requested after the same 30 s."""
RETRY_AFTER = timedelta(seconds=1)
"""Time until a release that an open bind prevents is tried again."""


class PartialGang(msgspec.Struct, frozen=True):
    """A gang that was started only in part.

    ``uid``: of the PodGroup. ``since``: time of the first session that saw it, or of the last
    release. ``started``: members on nodes. ``is_released``: this session evicts them.
    """

    uid: str
    since: datetime
    started: int = 0
    is_released: bool = False

    @property
    def release_at(self) -> datetime:
        """When the started members are evicted unless the gang is complete."""
        return self.since + RELEASE_AFTER


def release_partial_gangs(
    opened: session.Session, refusals: Mapping[str, Refusal]
) -> dict[str, PartialGang]:
    """Release each gang that has been partial for too long; return all partial gangs by key.

    ``refusals``: PodGroup -> refusal of outcomes that no session has read. Call it before the
    actions: members that are evicted here are not completed by the same session.
    """
    before = _decode(opened.cluster.memory.get(NAME, ""))
    noted = {
        key: PartialGang(each.uid, opened.now) for key, each in refusals.items() if each.is_start
    }
    noted |= {key: each for key, each in before.items() if noted.get(key, each).uid == each.uid}
    partial = {}
    for key, gang in sorted(noted.items()):
        job = opened.model.job(key)
        if job is None:
            if ("podgroup", key) in opened.model.problems:
                partial[key] = gang
        elif job.pod_group.metadata.uid == gang.uid and _is_partial(job):
            partial[key] = _release_if_due(opened, job, gang)
    if partial or before:
        kept = {key: PartialGang(gang.uid, gang.since) for key, gang in partial.items()}
        opened.remember[NAME] = msgspec.json.encode(kept).decode() if kept else ""
    return partial


def message_of(gang: PartialGang, minimum: int) -> str:
    """The sentence that explains a partial gang to its user."""
    text = f" {gang.started} of {minimum} members started, others were refused: "
    if gang.is_released:
        return f"{text}the started members are evicted, as the gang is not complete."
    at = gang.release_at.isoformat(timespec="seconds")
    return f"{text}the started members are evicted at {at} unless the gang is complete."


def _release_if_due(opened: session.Session, job: entities.Job, gang: PartialGang) -> PartialGang:
    started = [task for task in job.tasks.values() if _is_started(task)]
    gang = msgspec.structs.replace(gang, started=len(started))
    if opened.now < gang.release_at:
        opened.request_session_at(gang.release_at)
        return gang
    if job.frozen or job.is_ready or job.count(entities.Status.BINDING):
        opened.request_session_at(opened.now + RETRY_AFTER)
        return gang
    victims = [task for task in started if task.status in entities.PREEMPTABLE]
    victims = sorted(opened.evictable(job, victims), key=lambda task: task.key)
    statement = opened.statement()
    for task in victims:
        statement.evict(task, NAME)
    statement.commit()
    # Evictions may be refused, or protected: the next attempt waits as long as this one did.
    opened.request_session_at(opened.now + RELEASE_AFTER)
    return msgspec.structs.replace(gang, since=opened.now, is_released=bool(victims))


def _is_partial(job: entities.Job) -> bool:
    """Whether a member is on a node, and the snapshots do not show the minimum on nodes."""
    if not any(_is_started(task) for task in job.tasks.values()):
        return False
    visible = sum(
        task.status is entities.Status.SUCCEEDED
        or (bool(task.pod.spec.node_name) and _is_started(task))
        for task in job.tasks.values()
    )
    return visible < job.min_available


def _is_started(task: entities.Task) -> bool:
    """Whether the task is on a node, by the snapshot or by a decision, and is not terminating."""
    if task.status is entities.Status.RELEASING:
        return task.pod.metadata.deletion_timestamp is None
    return task.status in entities.ALLOCATED


def _decode(text: str) -> dict[str, PartialGang]:
    try:
        return decoding.from_json(text, dict[str, PartialGang]) if text else {}
    except msgspec.DecodeError:  # written by another version: partial gangs are noted again
        return {}
