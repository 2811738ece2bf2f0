"""The plugin ``overcommit``: enqueues jobs while their requests fit into the cluster's capacity
times a factor.

Jobs above the real capacity wait in the phase Inqueue. Resources that a job already holds are not
counted as inqueue; Volcano counts them twice while pods are placed but do not run yet.
"""

import functools

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, queue_usage
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.queue_quota import shares

DEFAULT_FACTOR = 1.2


class Plugin:
    """Votes by the idle resources, with the cluster's capacity multiplied by
    ``overcommit-factor``."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()
        self._factor = self._arguments.number("overcommit-factor", DEFAULT_FACTOR, least=1)

    def open(self, ssn: session.Session) -> None:
        """Register. Resources are summed at the first vote; jobs and queues do not change within a
        session."""
        self._session = ssn
        ssn.complaints.extend(self._arguments.complaints)
        self._used = ssn.nodes.used_total
        ssn.add_room_vote(self._vote, by_request=True)
        ssn.add_job_enqueued(self._note)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    @functools.cached_property
    def _idle(self) -> list[float]:
        """The capacity multiplied by the factor, less what was used at the opening."""
        total: shares.Row = self._session.total.tolist()
        used: shares.Row = self._used.tolist()
        return [whole * self._factor - amount for whole, amount in zip(total, used, strict=True)]

    @functools.cached_property
    def _inqueue(self) -> shares.Row:
        """What Inqueue jobs lack, including those of this session."""
        inqueue_total = [0] * len(self._session.total)
        for totals in self._session.model.queue_usage.queues.values():
            inqueue_total = shares.sum_of(inqueue_total, totals.rows[3])
        return inqueue_total

    def _vote(self, job: entities.Job) -> int:
        if job.min_request is None:
            return extension_points.PERMIT
        request: shares.Row = job.min_request.tolist()
        needed = shares.sum_of(self._inqueue, request)
        short = shares.exceeded_names(self._session, needed, self._idle, shares.pairs(request))
        if not short:
            return extension_points.PERMIT
        names = ", ".join(f"overused {name}" for name in short)
        self._session.emit_event(job, f"resource in cluster is overused: {names}")
        return extension_points.REJECT

    def _note(self, job: entities.Job) -> None:
        if job.min_request is not None:
            coming = queue_usage.without_gated(job, job.min_request)
            self._inqueue = shares.sum_of(self._inqueue, coming.tolist())
