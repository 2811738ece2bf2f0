"""Rejects and deletes user commands that no reconciler executes.

Commands for a job are executed by ``jobs``, commands for a queue by ``queues``. Commands for a job
of another scheduler are ignored. A command may be observed before its target, so a command with a
missing target is rejected only after ``WAITS``.
"""

from datetime import datetime, timedelta

from stromboli.controller.core import commands
from stromboli.controller.core.store import controller_cache
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Command

WAITS = timedelta(seconds=30)
"""How long a command waits for its target to be observed: the watches of two kinds differ by
seconds at most."""


def reconcile(cache: controller_cache.ControllerCache, key: str, now: datetime) -> commands.Plan:
    """Reject and delete a command that no reconciler executes."""
    user_command = _pending(cache, key)
    if user_command is None:
        return ()
    at = due(cache, key, now)
    if at is not None and now < at:
        return ()
    target = user_command.target
    name = "no target" if target is None else f"{target.kind} {target.name}"
    if controller_cache.target_of(user_command) is None:
        text = f"{user_command.action} for {name}: the target of a command must be a Job or a Queue"
    else:
        text = f"{user_command.action} for {name}: the target does not exist"
    details = ("CommandRefused", text, now)
    delete = commands.Delete(
        kind=kinds.COMMANDS,
        namespace=user_command.metadata.namespace,
        name=user_command.metadata.name,
        uid=user_command.metadata.uid,
    )
    return ((commands.event_about(kinds.COMMANDS, user_command, "Warning", *details),), (delete,))


def due(cache: controller_cache.ControllerCache, key: str, now: datetime) -> datetime | None:
    """The time at which a command whose target does not exist is rejected."""
    user_command = _pending(cache, key)
    if user_command is None:
        return None
    created = user_command.metadata.creation_timestamp
    return None if created is None else cache.api_clock.host_time(created + WAITS)


def _pending(cache: controller_cache.ControllerCache, key: str) -> Command | None:
    """The command, if its target does not exist or has a kind without commands."""
    user_command = cache.command(key)
    if user_command is None or cache.is_terminating(user_command):
        return None
    target = controller_cache.target_of(user_command)
    if target is None:
        return user_command  # the target is of a kind without commands
    kind = kinds.JOBS if target.kind == "job" else kinds.QUEUES
    return user_command if cache.state(kind, target.key) is None else None
