"""Commands of users that no job's life cycle takes up: said and removed, never silently kept.

Commands for a job of ours are the job's own business (``jobs``), those for a queue the queue's
(``queues``); those for somebody else's job are left alone. A command may become visible before what
it is for, so one without a target waits a little.
"""

from datetime import datetime, timedelta

from stromboli.controller.core import commands
from stromboli.controller.core.store import cache
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Command

WAITS = timedelta(seconds=30)
"""How long a command waits for its target: watches of two kinds differ by seconds at most."""


def reconcile(picture: cache.Cache, key: str, now: datetime) -> commands.Plan:
    """Refuse and remove a command that nobody will carry out."""
    order = _pending(picture, key)
    if order is None:
        return ()
    at = due(picture, key, now)
    if at is not None and now < at:
        return ()
    target = order.target
    name = "nothing" if target is None else f"{target.kind} {target.name}"
    if cache.target_of(order) is None:
        text = f"{order.action} for {name}: commands are obeyed for Jobs and Queues"
    else:
        text = f"{order.action} for {name}: there is none"
    said = ("CommandRefused", text, now)
    delete = commands.Delete(
        kind=kinds.COMMANDS,
        namespace=order.metadata.namespace,
        name=order.metadata.name,
        uid=order.metadata.uid,
    )
    return ((commands.event_about(kinds.COMMANDS, order, "Warning", *said),), (delete,))


def due(picture: cache.Cache, key: str, now: datetime) -> datetime | None:
    """When a command without its target is given up."""
    order = _pending(picture, key)
    if order is None:
        return None
    created = order.metadata.creation_timestamp
    return None if created is None else created + WAITS


def _pending(picture: cache.Cache, key: str) -> Command | None:
    """The command, if it falls to this module."""
    order = picture.command(key)
    if order is None or picture.is_going(order):
        return None
    target = cache.target_of(order)
    if target is None:
        return order  # of a kind that nobody obeys commands for
    kind = kinds.JOBS if target.kind == "job" else kinds.QUEUES
    return order if picture.state(kind, target.key) is None else None
