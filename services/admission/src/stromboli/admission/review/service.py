"""The admission service: its materialized state, and the reviews that use it.

Its state comes from ``cluster.queues``, ``.namespaces``, ``.hypernodes``, ``.priorityclasses``,
``.topology``, ``.data``, ``.usage`` and ``.sync``, ``scheduling.explanations``,
``scheduling.answers``, ``admission.answers`` and ``batch.events``; with a limit of live jobs, also
from ``cluster.jobs``. It writes ``admission.answers``, ``admission.reviews``,
``scheduling.questions`` and the admitted objects.
``pipeline`` has the steps of a submission, ``webhook_review`` the steps of a webhook.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime

import msgspec

from stromboli.admission import idempotency
from stromboli.admission.auth import authentication
from stromboli.admission.core import (
    data_copies,
    job_requests,
    live_jobs,
    start_forecasts,
    task_history,
)
from stromboli.admission.review import (
    pipeline,
    resource_groups,
    review_log,
    reviewer,
    submitted_objects,
    watch_cache,
    webhook_review,
    what_ifs,
)
from stromboli.admission.review.submitted_objects import Applied, SubmitAttempts
from stromboli.admission.settings import AdmissionSettings
from stromboli.shared import envelope, errors, queue_order, snapshot, topics
from stromboli.shared.api import kinds
from stromboli.shared.api.views import accounting
from stromboli.shared.api.views.expected_start import ExpectedStart
from stromboli.shared.api.views.system_health import SessionStatus, SystemHealth
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.jobspec import job_plugins
from stromboli.shared.jobspec.validation import patch, review
from stromboli.shared.jobspec.validation.patch import Document
from stromboli.shared.messages.admission import EntryPoint
from stromboli.shared.messages.data import DataObserved
from stromboli.shared.messages.node_topology import TopologyObserved
from stromboli.shared.messages.node_usage import UsageObserved
from stromboli.shared.messages.scheduling import (
    PodGroupExplained,
    QueueOrdered,
    SessionsMeasured,
    StartsForecast,
)
from stromboli.shared.runtime import runtime

CACHED = (topics.QUEUES, topics.NAMESPACES, topics.HYPER_NODES, topics.PRIORITY_CLASSES)
NEW_METADATA = ("name", "namespace", "labels", "annotations")
"""The metadata that a job keeps when it is submitted again."""
MAX_CONFLICT_RETRIES = 3
"""Maximum number of retries of a change after conflicts: the object changed between read and
write."""


class AdmissionService:
    """The state of admission, with operations for reviews, submissions and explanations."""

    def __init__(
        self,
        settings: AdmissionSettings,
        cluster: cluster_port.Cluster,
        clock: runtime.Clock,
        authenticator: authentication.Authenticator | None = None,
        impersonate: Callable[[str, Sequence[str]], cluster_port.Cluster] | None = None,
    ) -> None:
        """``authenticator``: authenticates clients of a server with accounts. ``impersonate``: the
        cluster with requests on behalf of a user; without it, this service writes under its own
        name.
        """
        self._cluster = cluster
        self._impersonate = impersonate
        self.authenticator = authenticator
        self._cache = snapshot.Snapshot()
        self._explained: dict[str, PodGroupExplained] = {}
        self._orders = queue_order.QueueOrders()
        self._forecasts = start_forecasts.StartForecasts()
        self._clock = clock
        self.what_ifs = what_ifs.WhatIfs(clock)
        self.hardware: dict[str, TopologyObserved] = {}
        """Node -> the hardware that its agent reports."""
        self.node_usage: dict[str, UsageObserved] = {}
        """Node -> the load of its disks and network that its agent reports."""
        self.data_copies = data_copies.DataCopies()
        self.history: accounting.History | None = None
        """Client of the history service; None if none runs."""
        self.sessions: SessionStatus | None = None
        """The durations of the scheduler's newest sessions; None before the first report."""
        self.log_status: Callable[[], Awaitable[SystemHealth]] | None = None
        """Reads the state of the log; None until this service reads the log."""
        self.pod_sessions_url = ""
        """URL at which clients open sessions in pods; empty: the API server, with their own
        rights."""
        self.idempotency_cache = idempotency.IdempotencyCache(clock)
        self.watch_caches = watch_cache.WatchCaches(cluster, settings.watch_alive_every_s)
        self.task_histories = task_history.TaskHistories(settings.attempts_kept)
        self.policy = review.AdmissionPolicy(
            scheduler_names=settings.scheduler_names,
            plugins=job_plugins.load(),
            max_queue_depth=settings.max_queue_depth,
            allow_deleting_queues_with_pods=settings.allow_deleting_queues_with_pods,
        )
        groups = resource_groups.ResourceGroupsFile(settings.resource_groups_file)
        self.live_jobs = live_jobs.LiveJobs(
            settings.max_live_jobs_per_user, settings.max_live_jobs_per_queue
        )
        self._reviewer = reviewer.Reviewer(
            cluster, self._cache, self.policy, groups, self.live_jobs
        )
        self._log = review_log.ReviewLog(clock)
        self.pending_reviews: asyncio.Queue[envelope.Draft] = self._log.pending
        self._pipeline = pipeline.AdmissionPipeline(
            cluster,
            self._reviewer,
            self.writes_as,
            rejects_unknown_fields=settings.unknown_fields == "reject",
        )
        self._webhooks = webhook_review.WebhookReview(
            self._reviewer,
            self._log,
            authenticator,
            frozenset(settings.service_accounts),
            rejects_unknown_fields=settings.webhook_unknown_fields == "reject",
        )

    @property
    def claimed(self) -> frozenset[str]:
        """Scheduler names under which another system acts."""
        return self._webhooks.claimed

    @claimed.setter
    def claimed(self, names: frozenset[str]) -> None:
        self._webhooks.claimed = names

    def caught_up(self) -> None:
        """Note that the cache contains everything that was on the log when this service started."""
        self._reviewer.is_caught_up = True

    def fold(self, record: envelope.Record) -> None:
        """Apply a record. Raises UndecodableError for an unreadable record, unless its topic is in
        ``CACHED`` or is ``cluster.jobs``."""
        if record.topic in CACHED:
            self._cache.apply(record)
        elif record.topic == topics.JOBS:
            self.live_jobs.fold(record)
        elif record.topic == topics.ANSWERS:
            self.idempotency_cache.fold(record)
        elif record.topic == topics.FORECAST_ANSWERS:
            self.what_ifs.fold(record)
        elif record.topic == topics.TOPOLOGY:
            self.hardware.pop(record.key, None)
            observed_topology = envelope.decode(record)
            if isinstance(observed_topology, TopologyObserved):
                self.hardware[record.key] = observed_topology
        elif record.topic == topics.USAGE:
            self.node_usage.pop(record.key, None)
            usage = envelope.decode(record)
            if isinstance(usage, UsageObserved):
                self.node_usage[record.key] = usage
        elif record.topic == topics.DATA:
            self.data_copies.put(record.key, None)
            report = envelope.decode(record)
            if isinstance(report, DataObserved):
                self.data_copies.put(record.key, report)
        elif record.topic == topics.EXPLANATIONS:
            self._explained.pop(record.key, None)
            message = envelope.decode(record)
            if isinstance(message, PodGroupExplained):
                self._explained[record.key] = message
            elif isinstance(message, QueueOrdered):
                self._orders.put(message)
            elif isinstance(message, StartsForecast):
                self._forecasts.put(message)
            elif isinstance(message, SessionsMeasured):
                self.sessions = SessionStatus(
                    at=message.at,
                    sessions=message.sessions,
                    p50_s=message.p50_s,
                    p99_s=message.p99_s,
                )
                return  # it explains no PodGroup
            self.watch_caches.explanations_changed.ring()

    def forget(self, recreated: Collection[str]) -> None:
        """Drop the state of topics that were deleted and created again."""
        self._cache.drop(recreated)
        self.live_jobs.forget(recreated)
        if topics.TOPOLOGY.name in recreated:
            self.hardware.clear()
        if topics.USAGE.name in recreated:
            self.node_usage.clear()
        if topics.DATA.name in recreated:
            self.data_copies.clear()
        if topics.EXPLANATIONS.name in recreated:
            self._explained.clear()
            self._orders.clear()
            self._forecasts.clear()
            self.sessions = None

    def explanation(
        self, pod_group: str
    ) -> tuple[PodGroupExplained, tuple[str, ...] | None] | None:
        """The explanation of a PodGroup, and the PodGroups in front of it in its queue (None if its
        position is unknown). None for a PodGroup without an explanation."""
        explained = self._explained.get(pod_group)
        if explained is None:
            return None
        return explained, self._orders.in_front(explained.queue, pod_group)

    def expected_start(self, pod_group: str) -> ExpectedStart | None:
        """The expected start of a PodGroup; None if it is not pending, or no forecast contains
        it."""
        if pod_group not in self._explained:
            return None
        return self._forecasts.of(pod_group, self._clock())

    def expected_starts(self, namespace: str = "") -> tuple[ExpectedStart, ...]:
        """The expected starts of the pending PodGroups of a namespace, or of all namespaces, sorted
        by key."""
        wanted = f"{namespace}/" if namespace else ""
        keys = (key for key in self._forecasts.pod_groups() if key.startswith(wanted))
        forecasts = (self.expected_start(key) for key in keys)
        return tuple(each for each in forecasts if each is not None)

    async def answer(self, path: str, body: bytes, within_s: float = math.inf) -> bytes:
        """The response to an API server's webhook request, see ``WebhookReview.answer``."""
        return await self._webhooks.answer(path, body, within_s)

    async def submit(
        self,
        documents: list[Document],
        principal: authentication.Principal,
        *,
        entry_point: EntryPoint = "rest",
        only_new: bool = False,
        marks: Sequence[str] = (),
        since: float | None = None,
    ) -> list[Applied]:
        """Create or change objects, all or none as far as validation can determine it.

        ``only_new``: change none, so that the right to create is enough. ``marks``: the digest of
        the request for each object. Generated names derive from it, and created objects carry it,
        so that the API server arbitrates between replicas that get the same request: an object with
        its mark is this request's own work and counts as ``created``. ``since``: see
        ``AdmissionPipeline.review``.

        Raises ForbiddenError with every missing right, RejectedError with all violations,
        AlreadyExistsError, ConflictError after repeated conflicts, and ExternalError if the API
        server fails halfway; repeating the request is safe then.
        """
        may_conflict = bool(marks) or not only_new
        attempts = SubmitAttempts(marks or [""] * len(documents))
        documents = [
            submitted_objects.with_generated_name(each, mark) if mark else each
            for each, mark in zip(documents, attempts.marks, strict=True)
        ]
        is_repeatable = may_conflict and submitted_objects.may_repeat(documents)
        try:
            for _ in range(MAX_CONFLICT_RETRIES if is_repeatable else 0):
                with contextlib.suppress(errors.ConflictError):  # re-read the objects and retry
                    return await self._pipeline.submit(
                        documents, principal, attempts, only_new=only_new, since=since
                    )
            return await self._pipeline.submit(
                documents, principal, attempts, only_new=only_new, since=since
            )
        except (submitted_objects.RejectedError, authentication.ForbiddenError) as error:
            if not attempts.reviews:  # refused before any object was validated
                self._record_refused(documents, error, principal, entry_point)
            raise
        finally:
            user = principal.name
            for index, (it, violations) in attempts.reviews.items():
                self._log.record(
                    it.kind.kind, it.document, it.operation, user, entry_point, violations
                )
                if index in attempts.written and not it.is_done:
                    self._log.record_request(
                        job_requests.written(it.kind, it.document, it.before, user, entry_point)
                    )

    def _record_refused(
        self,
        documents: Sequence[Document],
        error: submitted_objects.RejectedError | authentication.ForbiddenError,
        principal: authentication.Principal,
        entry_point: EntryPoint,
    ) -> None:
        for each, violations in submitted_objects.violations_by_object(documents, error.violations):
            kind = str(each.get("kind"))
            self._log.record(kind, each, "CREATE", principal.name, entry_point, violations)

    async def check(
        self, documents: list[Document], principal: authentication.Principal
    ) -> list[Applied]:
        """The result that ``submit`` would have: ``accepted``, with the objects as they would be
        stored. Writes nothing. Raises what ``submit`` raises.
        """
        attempts = SubmitAttempts([""] * len(documents))
        objects = await self._pipeline.review(documents, principal, attempts)
        return [
            Applied(
                each.kind.kind,
                each.namespace,
                each.name,
                "accepted",
                msgspec.Raw(msgspec.json.encode(each.document)),
                await self._pipeline.warnings(each),
            )
            for each in objects
        ]

    async def reject_change(
        self,
        before: Document,
        changed: Document,
        principal: authentication.Principal,
        *,
        is_new: bool,
    ) -> None:
        """Raise RejectedError if the job could not be changed as given or, with ``is_new``, if this
        principal could not submit the changed job. Needs no right to write, and writes nothing."""
        identity = reviewer.RequestIdentity.user(principal.name, principal.groups)
        known = None if is_new else before
        if is_new:
            metadata = before["metadata"]
            kept = {name: metadata[name] for name in NEW_METADATA if name in metadata}
            changed = {**changed, "metadata": kept}
            changed.pop("status", None)
        recorded = self._reviewer.recorded(kinds.JOBS, changed, known, identity)
        submitted = patch.applied(changed, recorded) if recorded else changed
        operation: review.Operation = "CREATE" if is_new else "UPDATE"
        violations = await self._reviewer.violations(
            kinds.JOBS, operation, submitted, known, identity=identity
        )
        if violations:
            raise submitted_objects.RejectedError(violations)

    def priorities(self) -> dict[str, int]:
        """PriorityClass -> value."""
        return {it.metadata.name: it.value for it in self._cache.objects(kinds.PRIORITY_CLASSES)}

    def now(self) -> datetime:
        """The time of the service's clock."""
        return self._clock()

    def writes_as(self, principal: authentication.Principal) -> cluster_port.Cluster:
        """The cluster as a principal writes to it. Raises PermanentError for a user name that
        cannot be impersonated."""
        if self._impersonate is None or principal is authentication.LOCAL_PRINCIPAL:
            return self._cluster
        return self._impersonate(principal.name, principal.groups)

    async def delete_job(
        self, namespace: str, name: str, principal: authentication.Principal
    ) -> None:
        """Delete a job with its child objects. Raises ExternalError."""
        job = msgspec.json.decode(await self._cluster.get(kinds.JOBS, namespace, name))
        writer, uid = self.writes_as(principal), job["metadata"]["uid"]
        await writer.delete(kinds.JOBS, namespace, name, uid=uid, propagation="Background")
        self._log.record_request(job_requests.deletion(job, principal.name, "rest"))

    async def delete_queue(self, name: str, principal: authentication.Principal) -> None:
        """Delete a queue if that is allowed. Raises RejectedError, ExternalError."""
        document = msgspec.json.decode(await self._cluster.get(kinds.QUEUES, "", name))
        violations = await self._reviewer.violations(kinds.QUEUES, "DELETE", document, None)
        self._log.record(kinds.QUEUES.kind, document, "DELETE", principal.name, "rest", violations)
        if violations:
            raise submitted_objects.RejectedError(violations)
        await self.writes_as(principal).delete(kinds.QUEUES, "", name)
