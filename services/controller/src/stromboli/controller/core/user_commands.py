"""Commands of users that no job's life cycle takes up: said and removed, never silently kept.

Commands for a job of ours are the job's own business (``jobs``); those for somebody else's job are
left alone. A command may become visible before its job, so one without a job waits a little.
"""

from datetime import datetime, timedelta

from stromboli.controller.core import commands, view
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Command

WAITS = timedelta(seconds=30)
"""How long a command waits for its job: watches of two kinds differ by seconds at most."""


def reconcile(picture: view.View, key: str, now: datetime) -> commands.Plan:
    """Refuse and remove a command that nobody will carry out."""
    order = _pending(picture, key)
    if order is None:
        return ()
    at = due(picture, key, now)
    if at is not None and now < at:
        return ()
    target = order.target
    name = "nothing" if target is None else f"{target.kind} {target.name}"
    why = "there is no such job" if at is not None else "not carried out yet for this kind"
    said = ("CommandRefused", f"{order.action} for {name}: {why}", now)
    delete = commands.Delete(
        kind=kinds.COMMANDS,
        namespace=order.metadata.namespace,
        name=order.metadata.name,
        uid=order.metadata.uid,
    )
    return ((commands.event_about(kinds.COMMANDS, order, "Warning", *said),), (delete,))


def due(picture: view.View, key: str, now: datetime) -> datetime | None:
    """When a command without a job is given up."""
    order = _pending(picture, key)
    if order is None or view.target_job(order) is None:
        return None
    created = order.metadata.creation_timestamp
    return None if created is None else created + WAITS


def _pending(picture: view.View, key: str) -> Command | None:
    """The command, if it falls to this module."""
    order = picture.command(key)
    if order is None or picture.is_going(order):
        return None
    job = view.target_job(order)
    if job is not None:
        return order if picture.state(kinds.JOBS, job) is None else None
    target = order.target
    is_queue = target is not None and target.kind == kinds.QUEUES.kind
    return order if is_queue else None
