"""Queues the records of reviews and of users' requests that are written to ``admission.reviews``.

A review never waits for the log: records queue up in memory and the service loop appends them. When
the log is unavailable for so long that the queue is full, further records are dropped and logged.
"""

import asyncio

import msgspec

from stromboli.admission.core import review_records
from stromboli.shared import envelope, topics
from stromboli.shared.jobspec.validation.patch import Document
from stromboli.shared.jobspec.validation.review import Operation
from stromboli.shared.messages.admission import EntryPoint, JobRequested, Violation
from stromboli.shared.runtime import runtime, telemetry

MAX_PENDING_REVIEWS = 10_000
"""Maximum number of records held while the log is unavailable: some megabytes, minutes of a busy
service."""
_reviews = telemetry.meter.create_counter(
    "stromboli.admission.reviews", description="Objects reviewed, by verdict"
)


class ReviewLog:
    """Counts reviews and queues a record of each. ``pending``: the records not yet appended."""

    def __init__(self, clock: runtime.Clock) -> None:
        self._clock = clock
        self.pending: asyncio.Queue[envelope.Draft] = asyncio.Queue(MAX_PENDING_REVIEWS)

    def record(
        self,
        kind: str,
        document: Document,
        operation: Operation,
        user: str,
        entry_point: EntryPoint,
        violations: tuple[Violation, ...],
    ) -> None:
        """Count a review and queue its record; ``violations`` is empty for an allowed object."""
        message = review_records.record(kind, document, operation, user, entry_point, violations)
        _reviews.add(
            1, {"kind": message.kind, "entry_point": entry_point, "allowed": not violations}
        )
        self._queue(message.object or message.kind, message)

    def record_request(self, request: JobRequested | None) -> None:
        """Queue the record of a user's request about a job, if there is one."""
        if request is not None:
            self._queue(request.job, request)

    def _queue(self, key: str, message: msgspec.Struct) -> None:
        draft = envelope.Draft(topic=topics.REVIEWS, key=key, message=message, time=self._clock())
        try:
            self.pending.put_nowait(draft)
        except asyncio.QueueFull:
            telemetry.log.warning(
                "review not recorded: the queue of records for the log is full", object=draft.key
            )
