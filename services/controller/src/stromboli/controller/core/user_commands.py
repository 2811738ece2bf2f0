"""Commands of users that no job's life cycle takes up: said and removed, never silently kept.

Commands for a job of ours are the job's own business (``jobs``), those for a queue the queue's
(``queues``); those for somebody else's job are left alone. A command may become visible before what
it is for, so one without a target waits a little.
"""

from datetime import datetime, timedelta

from stromboli.controller.core import commands
from stromboli.controller.core.store import controller_cache
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Command

WAITS = timedelta(seconds=30)
"""How long a command waits for its target: watches of two kinds differ by seconds at most."""


def reconcile(cache: controller_cache.ControllerCache, key: str, now: datetime) -> commands.Plan:
    """Refuse and remove a command that nobody will carry out."""
    user_command = _pending(cache, key)
    if user_command is None:
        return ()
    at = due(cache, key, now)
    if at is not None and now < at:
        return ()
    target = user_command.target
    name = "nothing" if target is None else f"{target.kind} {target.name}"
    if controller_cache.target_of(user_command) is None:
        text = f"{user_command.action} for {name}: commands are obeyed for Jobs and Queues"
    else:
        text = f"{user_command.action} for {name}: there is none"
    said = ("CommandRefused", text, now)
    delete = commands.Delete(
        kind=kinds.COMMANDS,
        namespace=user_command.metadata.namespace,
        name=user_command.metadata.name,
        uid=user_command.metadata.uid,
    )
    return ((commands.event_about(kinds.COMMANDS, user_command, "Warning", *said),), (delete,))


def due(cache: controller_cache.ControllerCache, key: str, now: datetime) -> datetime | None:
    """When a command without its target is given up."""
    user_command = _pending(cache, key)
    if user_command is None:
        return None
    created = user_command.metadata.creation_timestamp
    return None if created is None else created + WAITS


def _pending(cache: controller_cache.ControllerCache, key: str) -> Command | None:
    """The command, if it falls to this module."""
    user_command = cache.command(key)
    if user_command is None or cache.is_going(user_command):
        return None
    target = controller_cache.target_of(user_command)
    if target is None:
        return user_command  # of a kind that nobody obeys commands for
    kind = kinds.JOBS if target.kind == "job" else kinds.QUEUES
    return user_command if cache.state(kind, target.key) is None else None
