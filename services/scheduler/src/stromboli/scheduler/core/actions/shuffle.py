"""Shuffle: evict running tasks that plugins want elsewhere (spec/scheduling 8.7)."""

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities

NAME = "shuffle"


def run(ssn: session.Session) -> None:
    """Evict every task that a plugin chooses among those that run."""
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
