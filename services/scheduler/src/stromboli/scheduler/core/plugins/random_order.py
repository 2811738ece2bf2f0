"""The plugin ``random-order``: places pods in random order, regardless of their jobs.

It is a baseline for comparisons with gang scheduling: with it and without ``gang``, pods are bound
one by one. The order depends on pod names and the seed of the session alone, so that runs are
reproducible.
"""

import hashlib

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities


class Plugin:
    """Has no arguments."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._lots: dict[str, bytes] = {}

    def open(self, ssn: session.Session) -> None:
        """Order tasks by a random key, and jobs by the lowest key of their pending tasks."""
        self._seed = str(ssn.seed).encode()
        ssn.add_task_order(key=self._random_key)
        ssn.add_job_order(key=self._first_key)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _first_key(self, job: entities.Job) -> bytes:
        pending = job.by_status.get(entities.Status.PENDING, {}).values()
        return min((self._random_key(task) for task in pending), default=b"")

    def _random_key(self, task: entities.Task) -> bytes:
        lot = self._lots.get(task.key)
        if lot is None:
            drawn = hashlib.blake2b(task.key.encode(), key=self._seed, digest_size=8)
            lot = self._lots[task.key] = drawn.digest()
        return lot
