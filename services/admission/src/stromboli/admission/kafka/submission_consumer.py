"""Submissions over Kafka: the same reviews, rights and writes as over REST, with an answer to each.

One replica consumes, the leader; it first reads the answers of its predecessor. If two replicas
overlap nevertheless, object names derive from the submission and created objects carry its digest,
so the API server arbitrates: the second replica recognizes the first one's objects as the
submission's own.

Each record is answered on ``admission.reviews`` before it is finished; an invalid one does not stop
the others. Records of one key are processed in order, others concurrently. A repetition is
recognized by the submission's id, as REST recognizes an idempotency key. The token stays in the
record: no answer, log line or trace contains it, and ``dead.letters`` gets no submission, because
it would keep the headers for two weeks.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from stromboli.admission import idempotency, keyed_lock, problems
from stromboli.admission.auth import authentication
from stromboli.admission.core import review_records, submissions
from stromboli.admission.core.submissions import RejectedSubmission, Submission
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.review.submitted_objects import Applied, RejectedError
from stromboli.admission.settings import AdmissionSettings
from stromboli.shared import decoding, envelope, errors, leader_election, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import port as bus_port
from stromboli.shared.formats import warning_header
from stromboli.shared.messages.admission import SubmissionAnswered, SubmittedObject, Violation
from stromboli.shared.runtime import runtime, telemetry

GROUP = "admission.submissions"
MAX_CONCURRENT = 32
"""Concurrent submissions: the limit is the same as for the lines of a bulk request."""
FACT = "submissions"
ROLE = "submissions"
"""Key of the health note that states whether this replica consumes submissions."""
_OBJECTS = decoding.decoder_of(tuple[SubmittedObject, ...])
_answers = telemetry.meter.create_counter(
    "stromboli.admission.submissions", description="Submissions over Kafka, by their status"
)


class SubmissionConsumer:
    """Consumes submissions for one admission service. ``authenticator``: None without accounts."""

    def __init__(
        self,
        admission: AdmissionService,
        settings: AdmissionSettings,
        authenticator: authentication.Authenticator | None,
        clock: runtime.Clock,
    ) -> None:
        self._admission = admission
        self._audiences = settings.submissions_audiences
        self._max_age = timedelta(seconds=settings.submission_max_age_s)
        self._authenticator = authenticator
        self._clock = clock
        self._locks: keyed_lock.KeyedLock[str] = keyed_lock.KeyedLock()

    async def serve(
        self,
        lead: leader_election.Leadership,
        bus: bus_port.Bus,
        writer: bus_port.Writer,
        health: runtime.Health,
        caught_up: Callable[[], Awaitable[None]],
    ) -> None:
        """Answer submissions while this replica is the leader. ``caught_up``: returns when all
        answers on the log have been read.
        """
        await lead.acquired()
        await caught_up()
        backoff = runtime.Backoff()
        while True:
            try:
                async with bus.consume(topics.SUBMISSIONS, GROUP) as work:
                    health.warn(FACT, None)
                    await self._work(work, writer, health)
            except* errors.TransientError as group:
                (reason, *_) = group.exceptions
                health.warn(FACT, str(reason))
            await asyncio.sleep(backoff.next_s())

    async def _work(
        self, work: bus_port.GroupConsumer, writer: bus_port.Writer, health: runtime.Health
    ) -> None:
        places = asyncio.Semaphore(MAX_CONCURRENT)

        async def handle(record: envelope.Record) -> None:
            try:
                async with self._locks.of(record.key or f"@{record.offset}"):
                    draft = self._drafted(record, await self.answer(record))
                    await runtime.retry_until_available(
                        functools.partial(writer.append, draft), "reviews", health
                    )
                    work.acknowledge(record)
            finally:
                places.release()

        async with asyncio.TaskGroup() as group:
            async for record in work:
                await places.acquire()
                group.create_task(handle(record))

    async def answer(self, record: envelope.Record) -> SubmissionAnswered:
        """The answer to a record. Waits for an unavailable API server or log until the submission
        is too old.
        """
        read = submissions.read(record, self._clock(), self._max_age)
        if isinstance(read, RejectedSubmission):
            return _refusal(record, read)
        backoff = runtime.Backoff()
        while True:
            try:
                with telemetry.span("take submission", parent=record.traceparent):
                    return await self._done(record, read)
            except errors.ConflictError as error:
                return _refusal(record, RejectedSubmission(read.name, 409, str(error)))
            except errors.TransientError as error:
                if self._clock() > read.at + self._max_age:
                    detail = f"not finished in time; send it again: {error}"
                    return _refusal(record, RejectedSubmission(read.name, 503, detail))
                await asyncio.sleep(backoff.next_s(error.retry_after_s))
            except Exception as error:  # a bug fails one submission, as it fails one REST request
                telemetry.log.error("unexpected error", error=type(error).__name__, exc_info=error)
                detail = "this is a bug in Stromboli; see the log of admission"
                return _refusal(record, RejectedSubmission(read.name, 500, detail))

    async def _done(self, record: envelope.Record, read: Submission) -> SubmissionAnswered:
        """Execute the submission. Raises TransientError; ConflictError after repeated conflicts."""
        if self._authenticator is None:
            detail = "this server has no accounts: set STROM_ADMISSION_ACCOUNTS=true"
            return _refusal(record, RejectedSubmission(read.name, 501, detail))
        try:
            principal = await self._authenticator.authenticate(read.token, self._audiences)
        except authentication.UnauthenticatedError as error:
            return _refusal(record, RejectedSubmission(read.name, 401, error.reason))
        no = functools.partial(_answer_of, record, read.name, user=principal.name)
        key = idempotency.digest("kafka", principal.scope, read.name.source, read.name.id)
        requested = idempotency.digest(key, record.value or b"")
        documents = list(read.documents)
        marks = [idempotency.digest(requested, str(index)) for index in range(len(documents))]

        async def work() -> idempotency.Answer:
            applied = await self._admission.submit(
                documents, principal, entry_point="kafka", marks=marks
            )
            results = [_object_results(each) for each in applied]
            return idempotency.Answer(200, msgspec.json.encode(results))

        try:
            status, body, _ = await self._admission.idempotency_cache.answer(key, requested, work)
        except authentication.ForbiddenError as error:
            return no(403, str(error), violations=error.violations)
        except RejectedError as error:
            return no(422, str(error), violations=error.violations)
        except idempotency.KeyReusedError:
            return no(422, "ce_id: was used for another submission before; use a new one")
        except errors.ConflictError:
            raise
        except errors.PermanentError as error:
            return no(problems.status_of(error), str(error))
        return no(status, objects=_OBJECTS.decode(body))

    def _drafted(self, record: envelope.Record, answer: SubmissionAnswered) -> envelope.Draft:
        _answers.add(1, {"status": answer.status})
        telemetry.log.info(
            "submission answered",
            submission=answer.submission,
            source=answer.source,
            offset=answer.offset,
            user=answer.user,
            status=answer.status,
        )
        return envelope.Draft(
            topic=topics.REVIEWS,
            key=answer.submission or f"@{record.offset}",
            message=answer,
            time=self._clock(),
            cause=answer.submission,
            traceparent=record.traceparent,
        )


def _answer_of(
    record: envelope.Record,
    name: submissions.SubmissionId,
    status: int,
    detail: str = "",
    violations: tuple[Violation, ...] = (),
    **rest: object,
) -> SubmissionAnswered:
    """The answer, cut to what a record holds. The consumer could not finish a submission whose
    answer is too large, and would begin with it after each restart."""
    return SubmissionAnswered(
        submission=name.id,
        source=name.source,
        offset=record.offset,
        status=int(status),
        detail=review_records.truncated_detail(detail, len(violations)),
        violations=review_records.recordable(violations),
        **rest,  # type: ignore[arg-type]  # handed through
    )


def _refusal(record: envelope.Record, refused: RejectedSubmission) -> SubmissionAnswered:
    return _answer_of(record, refused.name, refused.status, refused.detail)


def _object_results(applied: Applied) -> SubmittedObject:
    return SubmittedObject(
        kind=applied.kind,
        object="/".join(filter(None, (applied.namespace, applied.name))),
        uid=kinds.metadata_of(applied.object).uid,
        result=applied.result,
        warnings=warning_header.bounded(applied.warnings),
    )
