"""The plugin ``overcommit``: enqueues jobs until they request more than the cluster has, by a
factor.

Jobs above the real capacity wait in the phase Inqueue. Resources that a job already holds are not
counted as inqueue; Volcano counts them twice while pods are placed but do not run yet.
"""

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, queue_usage, resource_vectors
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.queue_quota import shares

DEFAULT_FACTOR = 1.2


class Plugin:
    """Votes by the idle resources, with the cluster's capacity multiplied by
    ``overcommit-factor``."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()
        factor = self._arguments.number("overcommit-factor", DEFAULT_FACTOR)
        self._factor = factor if factor >= 1 else DEFAULT_FACTOR

    def open(self, ssn: session.Session) -> None:
        """Sum idle and inqueue resources, and register."""
        self._session = ssn
        ssn.complaints.extend(self._arguments.complaints)
        used: shares.Row = resource_vectors.total(ssn.nodes.used).tolist()
        total: shares.Row = ssn.total.tolist()
        self._idle = [
            whole * self._factor - taken for whole, taken in zip(total, used, strict=True)
        ]
        self._inqueue = [0] * len(total)
        for held in ssn.world.books.queues.values():
            self._inqueue = shares.sum_of(self._inqueue, held.inqueue.tolist())
        ssn.add_job_enqueueable(self._vote, by_request=True)
        ssn.add_job_enqueued(self._note)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

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
