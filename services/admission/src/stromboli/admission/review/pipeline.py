"""The admission pipeline: what happens to objects that are submitted over REST or Kafka.

``AdmissionPipeline.review`` has the steps up to the verdict, ``submit`` writes what was admitted.
API servers call admission too; for them ``webhook_review`` runs the steps that an API server leaves
to webhooks. Both use the same defaults and rules (``reviewer``).
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from stromboli.admission.auth import authentication
from stromboli.admission.core import unknown_kinds
from stromboli.admission.review import reviewer, submitted_objects
from stromboli.admission.review.submitted_objects import Applied, SubmitAttempts, SubmittedObject
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.api.kinds import Kind
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.cluster.accounts import right
from stromboli.shared.jobspec.validation import patch, review
from stromboli.shared.jobspec.validation.patch import Document
from stromboli.shared.messages.admission import Violation
from stromboli.shared.runtime import telemetry

MAX_OBJECTS = 1_000
"""Maximum number of objects in one request, whose verdicts are all held until the last one. A body
of 3 MiB has room for a million empty objects: naming the violation of each takes minutes."""


class _NamedDocument(NamedTuple):
    kind: Kind[Any]
    namespace: str
    document: Document


class AdmissionPipeline:
    """Reviews and writes submitted objects. ``writes_as``: the cluster as a principal writes to it.
    ``rejects_unknown_fields``: whether an unknown field of a pod template is a violation; otherwise
    it is a warning."""

    def __init__(
        self,
        cluster: cluster_port.Cluster,
        rules: reviewer.Reviewer,
        writes_as: Callable[[authentication.Principal], cluster_port.Cluster],
        *,
        rejects_unknown_fields: bool = True,
    ) -> None:
        self._cluster = cluster
        self._reviewer = rules
        self._writes_as = writes_as
        self._rejects_unknown_fields = rejects_unknown_fields

    async def review(
        self,
        documents: Sequence[Document],
        principal: authentication.Principal,
        attempts: SubmitAttempts,
        *,
        traceparent: str = "",
        only_new: bool = False,
        since: float | None = None,
    ) -> list[SubmittedObject]:
        """Steps 1 to 5: the objects as they would be stored.

        ``attempts`` takes the verdicts. ``only_new``: existing objects are not changed. ``since``:
        see ``Reviewer.violations``, by default the start of this review. Raises
        RejectedError, ForbiddenError, AlreadyExistsError, ExternalError.
        """
        since = time.monotonic() if since is None else since
        # 1. Parse: a bounded number of documents, each with a known kind, a bounded depth and a
        #    name.
        named = _parse(documents)
        # 2. Authorize reading: whether an object exists is known only to those who may read it.
        if not only_new:
            await _authorize_reads(named, principal)
        # 3. Load the stored objects. Apply defaults to new objects, merge changes into existing
        #    ones, and record the submitter.
        objects = [
            await self._load(each, mark, principal, traceparent, only_new)
            for each, mark in zip(named, attempts.marks, strict=True)
        ]
        # 4. Authorize writing.
        missing = await submitted_objects.missing_rights(objects, principal)
        # 5. Validate against the schema, the rules and the cluster.
        violations = missing if any(missing) else await self._validate(objects, principal, since)
        attempts.judged(objects, violations)
        submitted_objects.raise_if_missing(missing)
        submitted_objects.raise_if_any(violations)
        return objects

    async def submit(
        self,
        documents: Sequence[Document],
        principal: authentication.Principal,
        attempts: SubmitAttempts,
        *,
        only_new: bool = False,
        since: float | None = None,
    ) -> list[Applied]:
        """Review the objects and write those that are admitted. ``attempts.written`` keeps what is
        written, so that a retry after a conflict continues after it. Raises what ``review``
        raises."""
        with telemetry.span("submit", objects=len(documents)) as traceparent:
            objects = await self.review(
                documents,
                principal,
                attempts,
                traceparent=traceparent,
                only_new=only_new,
                since=since,
            )
            # 6. Count new jobs against the limits of live jobs.
            self._reserve(objects, principal, attempts)
            # 7. Write the admitted objects, in order, as this service or as the principal.
            writer = self._writes_as(principal)
            try:
                for index, each in enumerate(objects):
                    if index not in attempts.written:
                        attempts.written[index] = await self._write(writer, each)
            finally:
                self._release_unwritten(objects, attempts)
            return [attempts.written[index] for index in range(len(objects))]

    def _reserve(
        self,
        objects: Sequence[SubmittedObject],
        principal: authentication.Principal,
        attempts: SubmitAttempts,
    ) -> None:
        """Count new jobs, and jobs that change their queue, as live. Raises RejectedError if a job
        exceeds a limit; then no job of the request is counted."""
        identity = reviewer.RequestIdentity.user(principal.name, principal.groups)
        exceeded = [
            ()
            if each.is_done
            else self._reviewer.reserve(each.kind, each.document, each.before, identity)
            for each in objects
        ]
        if any(exceeded):
            attempts.judged(objects, exceeded)
            self._release_unwritten(objects, attempts)
            submitted_objects.raise_if_any(exceeded)

    def _release_unwritten(
        self, objects: Sequence[SubmittedObject], attempts: SubmitAttempts
    ) -> None:
        for index, each in enumerate(objects):
            if each.before is None and index not in attempts.written:
                self._reviewer.release(each.kind, each.namespace, each.name)

    async def warnings(self, submitted: SubmittedObject) -> tuple[str, ...]:
        """The fields of an admitted object that have no effect, or none yet."""
        if submitted.is_done:
            return ()
        messages = await self._reviewer.warnings(submitted.kind, submitted.document)
        if self._rejects_unknown_fields:
            return messages
        unknown = await self._reviewer.unknown_fields(
            submitted.kind, submitted.document, submitted.before
        )
        return (*(each.message for each in unknown), *messages)

    async def _load(
        self,
        named: _NamedDocument,
        mark: str,
        principal: authentication.Principal,
        traceparent: str,
        only_new: bool,
    ) -> SubmittedObject:
        kind, namespace, document = named
        identity = reviewer.RequestIdentity.user(principal.name, principal.groups)
        name = document["metadata"]["name"]
        try:
            before = msgspec.json.decode(await self._cluster.get(kind, namespace, name))
        except errors.NotFoundError:
            additions = await self._reviewer.completed(kind, document, namespace, traceparent)
            new_document = patch.applied(document, additions) if additions else document
            recorded = self._reviewer.recorded(kind, new_document, None, identity)
            new_document = patch.applied(new_document, recorded) if recorded else new_document
            new_document = submitted_objects.with_mark(new_document, mark)
            return SubmittedObject(kind, namespace, new_document, None, mark)
        if submitted_objects.has_mark(before, mark):
            return SubmittedObject(kind, namespace, before, before, mark, is_done=True)
        if only_new:
            raise submitted_objects.already_exists(kind, namespace, name)
        submitted_objects.raise_if_stale(kind, document, before)
        merged = patch.merged(before, document)
        merged = patch.applied(merged, self._reviewer.recorded(kind, merged, before, identity))
        return SubmittedObject(kind, namespace, merged, before)

    async def _validate(
        self,
        objects: Sequence[SubmittedObject],
        principal: authentication.Principal,
        since: float,
    ) -> list[tuple[Violation, ...]]:
        """The violations of each object. Objects of one request may refer to each other: a queue
        to its parent, a job to a priority class or to a job that it depends on."""
        together = reviewer.Together(
            queues={
                each.name: kinds.QUEUES.decode(msgspec.json.encode(each.document))
                for each in objects
                if each.kind == kinds.QUEUES and submitted_objects.is_readable(each)
            },
            priority_classes=frozenset(
                each.name for each in objects if each.kind == kinds.PRIORITY_CLASSES
            ),
            jobs=frozenset(each.name for each in objects if each.kind == kinds.JOBS),
        )
        identity = reviewer.RequestIdentity.user(principal.name, principal.groups)
        return [
            () if each.is_done else await self._violations(each, together, identity, since)
            for each in objects
        ]

    async def _violations(
        self,
        submitted: SubmittedObject,
        together: reviewer.Together,
        identity: reviewer.RequestIdentity,
        since: float,
    ) -> tuple[Violation, ...]:
        kind, document, before = submitted.kind, submitted.document, submitted.before
        violations = await self._reviewer.violations(
            kind,
            submitted.operation,
            document,
            before,
            together=together,
            identity=identity,
            since=since,
        )
        if self._rejects_unknown_fields:
            violations += await self._reviewer.unknown_fields(kind, document, before)
        if kind != kinds.JOBS:
            return violations
        if submitted.operation == "CREATE":
            violations += await self._reviewer.absent(submitted.namespace, document, together.jobs)
        return violations + self._other_scheduler(document)

    def _other_scheduler(self, document: Document) -> tuple[Violation, ...]:
        """The violation for a job of another scheduler: submitted here, it would wait
        indefinitely."""
        names = self._reviewer.policy.scheduler_names
        spec = document.get("spec")
        name = spec.get("schedulerName", "") if isinstance(spec, dict) else ""
        if name in ("", *names):
            return ()
        return (
            Violation(
                path="spec.schedulerName",
                reason=f"{name!r} is another scheduler",
                expected=f"one of {', '.join(names)}, or leave it out",
            ),
        )

    async def _write(self, cluster: cluster_port.Cluster, submitted: SubmittedObject) -> Applied:
        kind, namespace, name = submitted.kind, submitted.namespace, submitted.name
        if submitted.before is None:
            body = msgspec.json.encode(submitted.document)
            stored = await cluster.create(kind, namespace, body)
            result = "created"
        elif submitted.is_done:
            stored = msgspec.json.encode(submitted.before)
            result = "created"
        elif submitted.document == submitted.before:
            stored = msgspec.json.encode(submitted.before)
            result = "unchanged"
        else:
            body = msgspec.json.encode(submitted.document)
            stored = await cluster.patch(kind, namespace, name, body, patch_type="merge")
            result = "configured"
        metadata = kinds.metadata_of(stored)
        warnings = await self.warnings(submitted)
        return Applied(kind.kind, namespace, metadata.name, result, msgspec.Raw(stored), warnings)


def _parse(documents: Sequence[Document]) -> list[_NamedDocument]:
    """Each document with its kind, namespace and name. Raises RejectedError with the violations of
    all documents, or only with their number if there are too many."""
    if len(documents) > MAX_OBJECTS:
        reason = f"{len(documents)} objects in one request"
        expected = f"at most {MAX_OBJECTS}; POST /v1/bulk takes more, each on its own"
        raise submitted_objects.RejectedError(
            (Violation(path="objects", reason=reason, expected=expected),)
        )
    refused: list[Violation] = []
    named: list[_NamedDocument] = []
    for index, document in enumerate(documents):
        where = _place(index, documents)
        if patch.is_too_deep(document):
            refused.append(msgspec.structs.replace(review.TOO_DEEP, path=where.rstrip(".")))
            continue
        kind_name = str(document.get("apiVersion")), str(document.get("kind"))
        kind = kinds.BY_NAME.get(kind_name)
        if kind not in kinds.SUBMITTED:
            refused.append(unknown_kinds.unknown_kind(*kind_name, f"{where}kind"))
        elif not isinstance(document.get("metadata"), dict) or not (
            patch.text_of(document, "name") or patch.text_of(document, "generateName")
        ):
            path = f"{where}metadata.name"
            refused.append(Violation(path=path, reason="no name", expected="a unique name"))
        else:
            namespace_and_document = submitted_objects.with_namespace_and_name(kind, document)
            named.append(_NamedDocument(kind, *namespace_and_document))
    if refused:
        raise submitted_objects.RejectedError(tuple(refused))
    return named


async def _authorize_reads(
    named: Sequence[_NamedDocument], principal: authentication.Principal
) -> None:
    """Raises ForbiddenError with each right that is missing."""
    missing: list[Violation] = []
    for index, (kind, namespace, document) in enumerate(named):
        needed = right("get", kind, namespace, document["metadata"]["name"])
        where = _place(index, named).rstrip(".")
        missing += await authentication.missing_rights(principal, (needed,), where)
    if missing:
        raise authentication.ForbiddenError(tuple(missing))


def _place(index: int, documents: Sequence[Any]) -> str:
    """The prefix of violation paths in a document; empty if there is only one document."""
    return f"objects[{index}]." if len(documents) > 1 else ""
