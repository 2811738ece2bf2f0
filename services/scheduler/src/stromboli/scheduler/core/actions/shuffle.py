"""The action ``shuffle``: evicts running tasks that plugins choose to reschedule."""

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities

NAME = "shuffle"


def run(ssn: session.Session) -> None:
    """Evict every running task that a plugin chooses."""
    running = [
        task
        for _, job in sorted(ssn.jobs.items())
        if not job.frozen
        for task in job.with_status(entities.Status.RUNNING)
    ]
    moved = ssn.statement()
    for task in ssn.victim_tasks(running):
        moved.evict(task, NAME)
    moved.commit()
