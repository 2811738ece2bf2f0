"""Reconciles a queue: the two default queues, its state, its position in the tree.

Each reconcile makes one write, derived from current objects, so that a crash between two writes
does not change the result. The order is: a user command, the parent's state, the queue's state, the
parent's name.

When a queue is closed, the queues below it are closed, too, and marked; they open again with it. A
queue that was closed by a command is not marked and stays closed. So closing and opening propagate
down the tree, one level per reconcile.

All of this is as in Volcano. The queues ``root`` and ``default`` are created if missing.
"""

from datetime import datetime
from typing import Any, Literal

from stromboli.controller.core import commands, manifests
from stromboli.controller.core.queues import queue_states
from stromboli.controller.core.store import controller_cache, queue_accounting
from stromboli.shared import keys, snapshot
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Command
from stromboli.shared.api.scheduling import Queue
from stromboli.shared.jobspec.validation.queueing import queue_tree

ALWAYS: dict[str, dict[str, Any]] = {
    queue_accounting.ROOT: {"weight": 1, "reclaimable": False},
    "default": {"weight": 1, "reclaimable": True, "parent": queue_accounting.ROOT},
}
"""Queue -> spec of queues that are created when they are missing."""


def reconcile(cache: controller_cache.ControllerCache, name: str, now: datetime) -> commands.Plan:
    """The queue's next command; empty while the queue cannot be decoded."""
    state = cache.state(kinds.QUEUES, name)
    if isinstance(state, snapshot.Unknown):
        return ()
    queue = cache.queue(name)
    if queue is None:
        return ((_create(name),),) if name in ALWAYS else ()
    if cache.is_terminating(queue):
        return ()
    user_commands = cache.user_commands_for(controller_cache.ReconcileKey("queue", name))
    if user_commands:
        return _obey(cache, queue, user_commands[0], now)
    write = _follow_parent(cache, queue) or _settle(cache, queue) or _name_parent(queue)
    return () if write is None else ((write,),)


def is_empty(cache: controller_cache.ControllerCache, name: str) -> bool:
    """Whether no PodGroup in the queue has work left. An unreadable PodGroup may be in any
    queue."""
    phases = cache.queue_usage.phases(name)
    is_over = all(phase == "Completed" for phase in phases)
    return is_over and not cache.unreadable(kinds.POD_GROUPS)


# Commands


def _obey(
    cache: controller_cache.ControllerCache, queue: Queue, user_command: Command, now: datetime
) -> commands.Plan:
    """Execute a user command, or reject it with a reason. Executing it again changes nothing, and
    the next command waits until this one is deleted.
    """
    why = _refusal(cache, queue, user_command)
    if not why:
        write = _ordered(cache, queue, user_command.action)
        if write is not None:
            return ((write,),)
    waits = "" if why else _waits(cache, queue, user_command.action)
    text = why or waits or f"{user_command.action} was requested"
    reason = (
        user_command.action if user_command.action in queue_states.ACTIONS else "CommandRefused"
    )
    kind: Literal["Normal", "Warning"] = "Warning" if why or waits else "Normal"
    event = commands.event_about(kinds.QUEUES, queue, kind, reason, text, now)
    delete = commands.Delete(
        kind=kinds.COMMANDS,
        namespace=user_command.metadata.namespace,
        name=user_command.metadata.name,
        uid=user_command.metadata.uid,
    )
    return ((event,), (delete,))


def _ordered(
    cache: controller_cache.ControllerCache, queue: Queue, action: str
) -> commands.Patch | None:
    """The next write for a command; None once the command is executed."""
    if action == "CloseQueue":
        # From now on the queue is closed by its own command and does not open with its parent.
        return _mark(queue, closed_by_parent=False) or _settle(cache, queue, "CloseQueue")
    if action == "OpenQueue":
        if _state_above(cache, queue) in queue_states.SHUT:
            return _mark(queue, closed_by_parent=True)
        return _settle(cache, queue, "OpenQueue") or _mark(queue, closed_by_parent=False)
    return None


def _refusal(cache: controller_cache.ControllerCache, queue: Queue, user_command: Command) -> str:
    """Why a command is rejected; empty if it is executed."""
    name = queue.metadata.name
    if user_command.target is not None and user_command.target.uid not in ("", queue.metadata.uid):
        return f"{user_command.action} was issued for an earlier queue of this name"
    if user_command.action not in queue_states.ACTIONS:
        known = ", ".join(queue_states.ACTIONS)
        return f"{user_command.action!r} is not supported for queues; supported are {known}"
    if user_command.action == "CloseQueue" and name == queue_accounting.ROOT:
        return "the root queue cannot be closed; close the queues below it"
    return ""


def _waits(cache: controller_cache.ControllerCache, queue: Queue, action: str) -> str:
    """Why a queue that should open remains closed; empty if it opens."""
    above = _state_above(cache, queue)
    if action != "OpenQueue" or above not in queue_states.SHUT:
        return ""
    return f"the parent queue {queue.spec.parent!r} is {above}; open it first"


# State


def _follow_parent(cache: controller_cache.ControllerCache, queue: Queue) -> commands.Patch | None:
    """The patch that closes a queue below a closed one, or opens a queue that was closed with its
    parent once the parent is open."""
    above = _state_above(cache, queue)
    if above in queue_states.SHUT:
        if queue.status.state in queue_states.SHUT:
            return None
        # The mark is written first: without it the queue would stay closed when its parent opens.
        return _mark(queue, closed_by_parent=True) or _settle(cache, queue, "CloseQueue")
    if above != "Open" or not _is_marked(queue):
        return None
    return _settle(cache, queue, "OpenQueue") or _mark(queue, closed_by_parent=False)


def _settle(
    cache: controller_cache.ControllerCache, queue: Queue, action: queue_states.Action = "SyncQueue"
) -> commands.Patch | None:
    """The patch that sets the state after an action; None if the state does not change."""
    current_state = queue.status.state
    empty = is_empty(cache, queue.metadata.name)
    state = queue_states.after(queue_states.read(current_state), action, is_empty=empty)
    if state == current_state or (current_state and state == "Unknown"):
        return None
    return manifests.merge(kinds.QUEUES, queue, subresource="status", status={"state": state})


def _name_parent(queue: Queue) -> commands.Patch | None:
    """The patch that makes ``root`` the parent of a queue without one."""
    if queue.spec.parent or queue.metadata.name == queue_accounting.ROOT:
        return None
    return manifests.merge(kinds.QUEUES, queue, spec={"parent": queue_accounting.ROOT})


def _state_above(
    cache: controller_cache.ControllerCache, queue: Queue
) -> queue_states.State | None:
    """The state of the parent queue; None if that is unknown. The root is always open."""
    name = queue_tree.parent_of(queue)
    if name in ("", queue_accounting.ROOT):
        return "Open" if name else None
    parent = cache.queue(name)
    return None if parent is None else queue_states.read(parent.status.state)


def _is_marked(queue: Queue) -> bool:
    return queue.metadata.annotation(keys.CLOSED_BY_PARENT) == "true"


# Writes


def _mark(queue: Queue, *, closed_by_parent: bool) -> commands.Patch | None:
    if _is_marked(queue) == closed_by_parent:
        return None
    value = "true" if closed_by_parent else "false"
    annotations = {keys.CLOSED_BY_PARENT: value}
    return manifests.merge(kinds.QUEUES, queue, metadata={"annotations": annotations})


def _create(name: str) -> commands.Create:
    body = {
        "apiVersion": kinds.QUEUES.api_version,
        "kind": kinds.QUEUES.kind,
        "metadata": {"name": name},
        "spec": ALWAYS[name],
    }
    return commands.Create(kind=kinds.QUEUES, namespace="", name=name, body=manifests.encode(body))
