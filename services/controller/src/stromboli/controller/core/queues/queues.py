"""A queue's next step: the two that always exist, its state, its place in the tree.

One write a step, each derived from what is, so that a crash between any two leads to the same
end. In this order: a user's command, the parent's example, the state, the parent's name.

A queue below one that is shut is shut with it and marked, and opens with it again; one that was
shut by its own command is not marked and stays shut. So closing and opening go down the whole tree,
one level a step.

Source: spec/jobs.md 7.2, spec/scheduling.md 2 (``root`` and ``default`` are made if missing).
"""

from datetime import datetime
from typing import Any, Literal

from stromboli.controller.core import commands, manifest
from stromboli.controller.core.queues import queue_states
from stromboli.controller.core.store import cache, queue_accounting
from stromboli.shared import keys, snapshot
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Command
from stromboli.shared.api.scheduling import Queue
from stromboli.shared.jobspec.validation import queue_tree

ALWAYS: dict[str, dict[str, Any]] = {
    queue_accounting.ROOT: {"weight": 1, "reclaimable": False},
    "default": {"weight": 1, "reclaimable": True, "parent": queue_accounting.ROOT},
}
"""Queue -> spec of those that are made when they are missing."""


def reconcile(picture: cache.Cache, name: str, now: datetime) -> commands.Plan:
    """The queue's next step; nothing while it cannot be read."""
    state = picture.state(kinds.QUEUES, name)
    if isinstance(state, snapshot.Unknown):
        return ()
    queue = picture.queue(name)
    if queue is None:
        return ((_create(name),),) if name in ALWAYS else ()
    if picture.is_going(queue):
        return ()
    wishes = picture.orders(cache.ReconcileKey("queue", name))
    if wishes:
        return _obey(picture, queue, wishes[0], now)
    write = _follow_parent(picture, queue) or _settle(picture, queue) or _name_parent(queue)
    return () if write is None else ((write,),)


def is_empty(picture: cache.Cache, name: str) -> bool:
    """Whether no PodGroup in the queue has work left. One that cannot be read may be in it."""
    phases = picture.books.phases(name)
    is_over = all(phase == "Completed" for phase in phases)
    return is_over and not picture.unreadable(kinds.POD_GROUPS)


# Commands


def _obey(picture: cache.Cache, queue: Queue, order: Command, now: datetime) -> commands.Plan:
    """Carry out a command, or refuse it with a reason. Repeating one changes nothing, and the
    next one has to wait until it is deleted."""
    why = _refusal(picture, queue, order)
    if not why:
        write = _ordered(picture, queue, order.action)
        if write is not None:
            return ((write,),)
    waits = "" if why else _waits(picture, queue, order.action)
    text = why or waits or f"{order.action} was asked for"
    reason = order.action if order.action in queue_states.ACTIONS else "CommandRefused"
    kind: Literal["Normal", "Warning"] = "Warning" if why or waits else "Normal"
    said = commands.event_about(kinds.QUEUES, queue, kind, reason, text, now)
    delete = commands.Delete(
        kind=kinds.COMMANDS,
        namespace=order.metadata.namespace,
        name=order.metadata.name,
        uid=order.metadata.uid,
    )
    return ((said,), (delete,))


def _ordered(picture: cache.Cache, queue: Queue, action: str) -> commands.Patch | None:
    """The next write that a command asks for, None once all is as it says."""
    if action == "CloseQueue":
        # Shut by its own command from now on: it does not open again with its parent.
        return _mark(queue, closed_by_parent=False) or _settle(picture, queue, "CloseQueue")
    if action == "OpenQueue":
        if _state_above(picture, queue) in queue_states.SHUT:
            return _mark(queue, closed_by_parent=True)
        return _settle(picture, queue, "OpenQueue") or _mark(queue, closed_by_parent=False)
    return None


def _refusal(picture: cache.Cache, queue: Queue, order: Command) -> str:
    """Why a command is not carried out; empty if it is."""
    name = queue.metadata.name
    if order.target is not None and order.target.uid not in ("", queue.metadata.uid):
        return f"{order.action} was meant for an earlier queue of this name"
    if order.action not in queue_states.ACTIONS:
        known = ", ".join(queue_states.ACTIONS)
        return f"{order.action!r} is not carried out for queues; known are {known}"
    if order.action == "CloseQueue" and name == queue_accounting.ROOT:
        return "the root is never closed: close the queues below it"
    return ""


def _waits(picture: cache.Cache, queue: Queue, action: str) -> str:
    """What keeps a queue closed that was asked to open; empty if nothing does."""
    above = _state_above(picture, queue)
    if action != "OpenQueue" or above not in queue_states.SHUT:
        return ""
    return f"it opens with queue {queue.spec.parent!r} above it, which is {above}"


# What is


def _follow_parent(picture: cache.Cache, queue: Queue) -> commands.Patch | None:
    """Shut what is below a shut queue, open what was shut with one that is open."""
    above = _state_above(picture, queue)
    if above in queue_states.SHUT:
        if queue.status.state in queue_states.SHUT:
            return None
        # The mark goes first: a queue that is shut without it would stay so.
        return _mark(queue, closed_by_parent=True) or _settle(picture, queue, "CloseQueue")
    if above != "Open" or not _is_marked(queue):
        return None
    return _settle(picture, queue, "OpenQueue") or _mark(queue, closed_by_parent=False)


def _settle(
    picture: cache.Cache, queue: Queue, action: queue_states.Action = "SyncQueue"
) -> commands.Patch | None:
    """Write the state that an action leads to, if it is another one."""
    found = queue.status.state
    empty = is_empty(picture, queue.metadata.name)
    state = queue_states.after(queue_states.read(found), action, is_empty=empty)
    if state == found or (found and state == "Unknown"):
        return None
    return manifest.merge(kinds.QUEUES, queue, subresource="status", status={"state": state})


def _name_parent(queue: Queue) -> commands.Patch | None:
    """A queue without a parent is below the root."""
    if queue.spec.parent or queue.metadata.name == queue_accounting.ROOT:
        return None
    return manifest.merge(kinds.QUEUES, queue, spec={"parent": queue_accounting.ROOT})


def _state_above(picture: cache.Cache, queue: Queue) -> queue_states.State | None:
    """The state of the queue that it is part of, None if that is not known; the root is open."""
    name = queue_tree.parent_of(queue)
    if name in ("", queue_accounting.ROOT):
        return "Open" if name else None
    parent = picture.queue(name)
    return None if parent is None else queue_states.read(parent.status.state)


def _is_marked(queue: Queue) -> bool:
    return queue.metadata.annotation(keys.CLOSED_BY_PARENT) == "true"


# Writes


def _mark(queue: Queue, *, closed_by_parent: bool) -> commands.Patch | None:
    if _is_marked(queue) == closed_by_parent:
        return None
    value = "true" if closed_by_parent else "false"
    annotations = {keys.CLOSED_BY_PARENT: value}
    return manifest.merge(kinds.QUEUES, queue, metadata={"annotations": annotations})


def _create(name: str) -> commands.Create:
    body = {
        "apiVersion": kinds.QUEUES.api_version,
        "kind": kinds.QUEUES.kind,
        "metadata": {"name": name},
        "spec": ALWAYS[name],
    }
    return commands.Create(kind=kinds.QUEUES, namespace="", name=name, body=manifest.encode(body))
