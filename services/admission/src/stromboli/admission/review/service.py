"""Admission: reviews with the folded picture of the queues, and writes what was admitted.

Reads ``cluster.queues``, ``.namespaces``, ``.hypernodes``, ``.topology`` and ``.sync``,
``scheduling.explanations`` and ``admission.answers``; writes that, ``admission.reviews`` and the
admitted objects.
"""

import asyncio
import contextlib
import math
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import msgspec

from stromboli.admission import idempotency
from stromboli.admission.auth import authentication
from stromboli.admission.core import admission_review, review_records, task_history
from stromboli.admission.review import resource_groups, reviewer, submitted_objects, watch_cache
from stromboli.admission.settings import AdmissionSettings
from stromboli.shared import envelope, errors, queue_order, snapshot, topics
from stromboli.shared.api import kinds, meta
from stromboli.shared.api.kinds import Kind
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.cluster.accounts import right
from stromboli.shared.jobspec import job_plugins
from stromboli.shared.jobspec.validation import patch, permissions, review
from stromboli.shared.jobspec.validation.patch import Document
from stromboli.shared.messages.admission import EntryPoint, Violation
from stromboli.shared.messages.node_topology import TopologyObserved
from stromboli.shared.messages.scheduling import PodGroupExplained, QueueOrdered
from stromboli.shared.runtime import runtime, telemetry

T = TypeVar("T", bound=meta.Object)
MAX_PENDING_REVIEWS = 10_000
"""Records held while the log is away: some megabytes, minutes of a busy door."""
CACHED = (topics.QUEUES, topics.NAMESPACES, topics.HYPER_NODES, topics.PRIORITY_CLASSES)
MAX_CONFLICT_RETRIES = 3
"""How often a change begins again because the object changed between its reading and writing."""
_reviews = telemetry.meter.create_counter(
    "stromboli.admission.reviews", description="Objects reviewed, by what admission said"
)


class AdmissionService:
    """Reviews, submissions and explanations.

    ``reviewed`` are records of reviews on their way to the log: nobody waits for them, so that a
    log that is away or slow keeps nobody from handing in work.
    """

    def __init__(
        self,
        settings: AdmissionSettings,
        cluster: cluster_port.Cluster,
        clock: runtime.Clock,
        authenticator: authentication.Authenticator | None = None,
    ) -> None:
        """``askers``: who asks, where the cluster's accounts count."""
        self._cluster = cluster
        self._clock = clock
        self._service_accounts = frozenset(settings.service_accounts)
        self.authenticator = authenticator
        self._cache = snapshot.Snapshot()
        self._explained: dict[str, PodGroupExplained] = {}
        self._orders = queue_order.QueueOrders()
        self.claimed: frozenset[str] = frozenset()
        """Scheduler names under which another system acts: API servers ask us about its objects,
        too, and we neither complete nor refuse these."""
        self.hardware: dict[str, TopologyObserved] = {}
        """Node -> what it has, as its agent tells."""
        self.pending_reviews: asyncio.Queue[envelope.Draft] = asyncio.Queue(MAX_PENDING_REVIEWS)
        self.policy = review.AdmissionPolicy(
            scheduler_names=settings.scheduler_names,
            plugins=job_plugins.load(),
            max_queue_depth=settings.max_queue_depth,
            allow_deleting_queues_with_pods=settings.allow_deleting_queues_with_pods,
        )
        self.idempotency_cache = idempotency.IdempotencyCache(clock)
        self.watch_caches = watch_cache.WatchCaches(cluster, settings.watch_alive_every_s)
        self.task_histories = task_history.TaskHistories(settings.attempts_kept)
        groups = resource_groups.ResourceGroupsFile(settings.resource_groups_file)
        self._reviewer = reviewer.Reviewer(cluster, self._cache, self.policy, groups)

    def fold(self, record: envelope.Record) -> None:
        """Take in a record. Raises UndecodableError for an unreadable explanation or topology."""
        if record.topic in CACHED:
            self._cache.apply(record)
        elif record.topic == topics.ANSWERS:
            self.idempotency_cache.fold(record)
        elif record.topic == topics.TOPOLOGY:
            self.hardware.pop(record.key, None)
            found = envelope.decode(record)
            if isinstance(found, TopologyObserved):
                self.hardware[record.key] = found
        elif record.topic == topics.EXPLANATIONS:
            self._explained.pop(record.key, None)
            message = envelope.decode(record)
            if isinstance(message, PodGroupExplained):
                self._explained[record.key] = message
            elif isinstance(message, QueueOrdered):
                self._orders.put(message)
            self.watch_caches.explanations_changed.ring()

    def forget(self, recreated: Collection[str]) -> None:
        """Topics were deleted and created again: what they told is to be read again."""
        self._cache.drop(recreated)
        if topics.TOPOLOGY.name in recreated:
            self.hardware.clear()
        if topics.EXPLANATIONS.name in recreated:
            self._explained.clear()
            self._orders.clear()

    def explanation(
        self, pod_group: str
    ) -> tuple[PodGroupExplained, tuple[str, ...] | None] | None:
        """Why a PodGroup waits, and the PodGroups in front of it in its queue: None if its place
        is not known."""
        explained = self._explained.get(pod_group)
        if explained is None:
            return None
        return explained, self._orders.in_front(explained.queue, pod_group)

    async def answer(self, path: str, body: bytes, within_s: float = math.inf) -> bytes:
        """The AdmissionReview response to an API server's request on ``path``.

        A question that needs an API server which is away, or does not answer in time for an answer
        of ours ``within_s`` seconds, is answered with a refusal that says so.
        Raises ValueError if ``body`` is no AdmissionReview.
        """
        request = admission_review.decode_request(body)
        kind = kinds.BY_NAME.get((request.kind.api_version, request.kind.kind))
        if kind is None or not path.startswith(f"/{kind.plural}/"):
            what = f"{request.kind.api_version} {request.kind.kind}"
            refusal = Violation(path="kind", reason=f"{what} has no rules at {path}")
            return admission_review.encode_response(request.uid, (refusal,))
        try:
            async with asyncio.timeout(None if within_s == math.inf else within_s):
                if path.endswith("/mutate"):
                    return await self._mutate(request, kind)
                return await self._validate(request, kind)
        except errors.ExternalError as error:
            return self._not_now(request, kind, error)
        except TimeoutError:
            why = f"no answer of the API server to our own reads within {within_s:.1f} s"
            return self._not_now(request, kind, errors.UnavailableError("review", why))

    async def _mutate(self, request: admission_review.ReviewRequest, kind: Kind[Any]) -> bytes:
        who = await self._who(request)
        with telemetry.span("admit", kind=kind.kind) as traceparent:
            document = request.object or {}
            before = request.old_object if request.operation == "UPDATE" else None
            additions: tuple[patch.Add, ...] = ()
            if not before:
                additions = await self._reviewer.completed(
                    kind, document, request.namespace, traceparent, self.claimed
                )
            document = patch.applied(document, additions) if additions else document
            additions += self._reviewer.recorded(kind, document, before, who, self.claimed)
        return admission_review.encode_response(request.uid, (), additions)

    async def _validate(self, request: admission_review.ReviewRequest, kind: Kind[Any]) -> bytes:
        document = (request.old_object if request.operation == "DELETE" else request.object) or {}
        before = request.old_object if request.operation == "UPDATE" else None
        who = await self._who(request)
        found = await self._reviewer.violations(
            kind, request.operation, document, before, {}, self.claimed, who
        )
        if kind == kinds.JOBS and request.operation == "CREATE":
            found += await self._reviewer.absent(request.namespace, document, (), self.claimed)
        user = request.user_info.username
        self._record(kind.kind, document, request.operation, user, "webhook", found)
        warnings = () if found else self._reviewer.warnings(kind, document)
        return admission_review.encode_response(request.uid, found, warnings=warnings)

    def _not_now(
        self, request: admission_review.ReviewRequest, kind: Kind[Any], error: errors.ExternalError
    ) -> bytes:
        refusal = Violation(path="", reason=str(error), expected="try again in a moment")
        document = request.object or request.old_object or {}
        user = request.user_info.username
        self._record(kind.kind, document, request.operation, user, "webhook", (refusal,))
        return admission_review.encode_response(request.uid, (refusal,), code=503)

    def caught_up(self) -> None:
        """The cache holds all that was on the log when this service started."""
        self._reviewer.is_caught_up = True

    async def _who(self, request: admission_review.ReviewRequest) -> reviewer.RequestIdentity:
        """Who asks for a change that an API server asks about, and whose permissions count. What
        services of ours write is of the submitter that they recorded on it."""
        name = request.user_info.username
        is_ours = name in self._service_accounts or (
            self.authenticator is not None and name == await self.authenticator.own_username()
        )
        if not is_ours:
            return reviewer.RequestIdentity.user(name, request.user_info.groups or ())
        if request.operation != "CREATE" or request.kind.kind != kinds.JOBS.kind:
            return reviewer.UNKNOWN_IDENTITY
        metadata = kinds.metadata_of(msgspec.json.encode(request.object or {}))
        return reviewer.RequestIdentity(permissions.recorded(metadata))

    async def submit(
        self,
        documents: list[Document],
        principal: authentication.Principal,
        *,
        entry_point: EntryPoint = "rest",
        only_new: bool = False,
        marks: Sequence[str] = (),
    ) -> list[submitted_objects.Applied]:
        """Create or change objects, all or none as far as they can be judged beforehand.

        ``only_new``: change none, so that the right to create is enough. ``marks``: the digest of
        the request for each object. Names that are generated derive from it, and what is created
        carries it, so that the API server arbitrates between replicas that get the same request:
        an object with its mark is this request's own work, ``created``, whatever became of it.

        Raises MissingRightsError with every right that is missing, RefusedError with all
        violations, AlreadyExistsError for what is not new, ConflictError for what others change all
        the time; OutsideError if the API server fails in the middle (repeating is safe: what stands
        already is unchanged).
        """
        may_conflict = bool(marks) or not only_new
        marks = marks or [""] * len(documents)
        documents = [
            submitted_objects.with_generated_name(each, mark) if mark else each
            for each, mark in zip(documents, marks, strict=True)
        ]
        tries = (
            MAX_CONFLICT_RETRIES if may_conflict and submitted_objects.may_repeat(documents) else 0
        )
        request = submitted_objects.SubmitAttempts(marks)
        try:
            for _ in range(tries):
                with contextlib.suppress(errors.ConflictError):  # somebody was faster: begin again
                    return await self._submitted(documents, principal, only_new, request)
            return await self._submitted(documents, principal, only_new, request)
        except (submitted_objects.RejectedError, authentication.ForbiddenError) as error:
            if not request.reviews:  # refused before anything was judged
                for each, found in submitted_objects.violations_by_object(
                    documents, error.violations
                ):
                    kind = str(each.get("kind"))
                    self._record(kind, each, "CREATE", principal.name, entry_point, found)
            raise
        finally:
            for it, found in request.reviews.values():
                self._record(
                    it.kind.kind, it.document, it.operation, principal.name, entry_point, found
                )

    async def _submitted(
        self,
        documents: list[Document],
        principal: authentication.Principal,
        only_new: bool,
        request: submitted_objects.SubmitAttempts,
    ) -> list[submitted_objects.Applied]:
        with telemetry.span("submit", objects=len(documents)) as traceparent:
            submissions = await self._prepared(
                documents, traceparent, principal, only_new=only_new, marks=request.marks
            )
            missing = await submitted_objects.missing_rights(submissions, principal)
            refused = missing if any(missing) else await self._refused(submissions, principal)
            request.judged(submissions, refused)
            submitted_objects.raise_if_missing(missing)
            submitted_objects.raise_if_any(refused)
            for place, submission in enumerate(submissions):
                if place not in request.written:
                    request.written[place] = await self._written(submission)
            return [request.written[place] for place in range(len(submissions))]

    async def check(
        self, documents: list[Document], principal: authentication.Principal
    ) -> list[submitted_objects.Applied]:
        """What ``submit`` would make of objects: ``accepted``, as they would be stored. Nothing is
        written. Raises MissingRightsError, RefusedError, OutsideError."""
        submissions = await self._prepared(documents, "", principal)
        submitted_objects.raise_if_missing(
            await submitted_objects.missing_rights(submissions, principal)
        )
        refused = await self._refused(submissions, principal)
        submitted_objects.raise_if_any(refused)
        return [
            submitted_objects.Applied(
                each.kind.kind,
                each.namespace,
                each.name,
                "accepted",
                msgspec.Raw(msgspec.json.encode(each.document)),
            )
            for each in submissions
        ]

    async def delete_queue(self, name: str, user: str) -> None:
        """Delete a queue that may go. Raises RefusedError, OutsideError."""
        document = msgspec.json.decode(await self._cluster.get(kinds.QUEUES, "", name))
        found = await self._reviewer.violations(kinds.QUEUES, "DELETE", document, None, {})
        self._record(kinds.QUEUES.kind, document, "DELETE", user, "rest", found)
        if found:
            raise submitted_objects.RejectedError(found)
        await self._cluster.delete(kinds.QUEUES, "", name)

    async def _refused(
        self,
        submissions: list[submitted_objects.SubmittedObject],
        principal: authentication.Principal,
    ) -> list[tuple[Violation, ...]]:
        """All that is wrong with each."""
        together = {
            submission.name: kinds.QUEUES.decode(msgspec.json.encode(submission.document))
            for submission in submissions
            if submission.kind == kinds.QUEUES and submitted_objects.is_readable(submission)
        }
        classes = {it.name for it in submissions if it.kind == kinds.PRIORITY_CLASSES}
        refused: list[tuple[Violation, ...]] = []
        for submission in submissions:
            if submission.is_done:
                refused.append(())
                continue
            found = await self._reviewer.violations(
                submission.kind,
                submission.operation,
                submission.document,
                submission.before,
                together,
                who=reviewer.RequestIdentity.user(principal.name, principal.groups),
                coming_classes=frozenset(classes),
            )
            if submission.kind == kinds.JOBS and submission.operation == "CREATE":
                coming = {it.name for it in submissions if it.kind == kinds.JOBS}
                document = submission.document
                found += await self._reviewer.absent(submission.namespace, document, coming)
            refused.append(found + self._foreign(submission))
        return refused

    def _foreign(self, submission: submitted_objects.SubmittedObject) -> tuple[Violation, ...]:
        """Through our own door a job of another scheduler would wait indefinitely."""
        if submission.kind != kinds.JOBS:
            return ()
        spec = submission.document.get("spec")
        name = spec.get("schedulerName", "") if isinstance(spec, dict) else ""
        if name in ("", *self.policy.scheduler_names):
            return ()
        return (
            Violation(
                path="spec.schedulerName",
                reason=f"{name!r} is another scheduler",
                expected=f"one of {', '.join(self.policy.scheduler_names)}, or leave it out",
            ),
        )

    async def _prepared(
        self,
        documents: list[Document],
        traceparent: str,
        principal: authentication.Principal,
        *,
        only_new: bool = False,
        marks: Sequence[str] = (),
    ) -> list[submitted_objects.SubmittedObject]:
        refused: list[Violation] = []
        missing: list[Violation] = []
        named: list[tuple[Kind[Any], str, Document]] = []
        for index, document in enumerate(documents):
            where = f"objects[{index}]." if len(documents) > 1 else ""
            if patch.is_too_deep(document):
                refused.append(msgspec.structs.replace(review.TOO_DEEP, path=where.rstrip(".")))
                continue
            kind = kinds.BY_NAME.get((str(document.get("apiVersion")), str(document.get("kind"))))
            if kind not in kinds.SUBMITTED:
                refused.append(submitted_objects.unknown_kind(document, f"{where}kind"))
            elif not isinstance(document.get("metadata"), dict) or not (
                patch.text_of(document, "name") or patch.text_of(document, "generateName")
            ):
                refused.append(
                    Violation(
                        path=f"{where}metadata.name", reason="no name", expected="a name of its own"
                    )
                )
            else:
                namespace, made = submitted_objects.with_namespace_and_name(kind, document)
                named.append((kind, namespace, made))
                # Whether there is one may be known only to who may read it.
                first = right("get", kind, namespace, made["metadata"]["name"])
                if not only_new:
                    missing += await authentication.missing_rights(
                        principal, (first,), where.rstrip(".")
                    )
        if refused:
            raise submitted_objects.RejectedError(tuple(refused))
        if missing:
            raise authentication.ForbiddenError(tuple(missing))
        return [
            await self._submission(
                kind, namespace, document, traceparent, principal, only_new, mark
            )
            for (kind, namespace, document), mark in zip(
                named, marks or [""] * len(named), strict=True
            )
        ]

    async def _submission(
        self,
        kind: Kind[Any],
        namespace: str,
        document: Document,
        traceparent: str,
        principal: authentication.Principal,
        only_new: bool,
        mark: str,
    ) -> submitted_objects.SubmittedObject:
        who = reviewer.RequestIdentity.user(principal.name, principal.groups)
        name = document["metadata"]["name"]
        try:
            before = msgspec.json.decode(await self._cluster.get(kind, namespace, name))
        except errors.NotFoundError:
            additions = await self._reviewer.completed(kind, document, namespace, traceparent)
            made = patch.applied(document, additions) if additions else document
            recorded = self._reviewer.recorded(kind, made, None, who)
            made = patch.applied(made, recorded) if recorded else made
            made = submitted_objects.with_mark(made, mark)
            return submitted_objects.SubmittedObject(kind, namespace, made, None, mark)
        if submitted_objects.has_mark(before, mark):
            return submitted_objects.SubmittedObject(
                kind, namespace, before, before, mark, is_done=True
            )
        if only_new:
            raise submitted_objects.already_exists(kind, namespace, name)
        merged = patch.merged(before, document)
        merged = patch.applied(merged, self._reviewer.recorded(kind, merged, before, who))
        return submitted_objects.SubmittedObject(kind, namespace, merged, before)

    async def _written(
        self, submission: submitted_objects.SubmittedObject
    ) -> submitted_objects.Applied:
        kind, namespace, name = submission.kind, submission.namespace, submission.name
        if submission.before is None:
            body = msgspec.json.encode(submission.document)
            stored = await self._cluster.create(kind, namespace, body)
            result = "created"
        elif submission.is_done:
            stored = msgspec.json.encode(submission.before)
            result = "created"
        elif submission.document == submission.before:
            stored = msgspec.json.encode(submission.before)
            result = "unchanged"
        else:
            stored = await self._cluster.patch(
                kind,
                namespace,
                name,
                msgspec.json.encode(submission.document),
                patch_type="merge",
            )
            result = "configured"
        made = kinds.metadata_of(stored)
        return submitted_objects.Applied(
            kind.kind, namespace, made.name, result, msgspec.Raw(stored)
        )

    def _record(
        self,
        kind: str,
        document: Document,
        operation: review.Operation,
        user: str,
        entry_point: EntryPoint,
        found: tuple[Violation, ...],
    ) -> None:
        message = review_records.record(kind, document, operation, user, entry_point, found)
        _reviews.add(1, {"kind": message.kind, "way": entry_point, "allowed": not found})
        key = message.object or message.kind
        now = self._clock()
        draft = envelope.Draft(topic=topics.REVIEWS, key=key, message=message, time=now)
        try:
            self.pending_reviews.put_nowait(draft)
        except asyncio.QueueFull:
            telemetry.log.warning(
                "review not recorded: too many wait for the log", object=draft.key
            )
