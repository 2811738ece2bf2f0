"""Reviews of objects: defaults and violations, from the cache and, if needed, the API server.

The rules themselves are pure (``shared.jobspec.validation.review``); this module collects their
inputs.
"""

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from stromboli.admission.core import live_jobs
from stromboli.admission.review import listings, resource_groups
from stromboli.shared import errors, network_topology, snapshot
from stromboli.shared.api import batch, core, kinds, meta, reservation
from stromboli.shared.api.kinds import Kind
from stromboli.shared.api.scheduling import PodGroup, Queue
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.jobspec import waiting_time
from stromboli.shared.jobspec.validation import bounds, patch, review, user_commands
from stromboli.shared.jobspec.validation import jobs as job_rules
from stromboli.shared.jobspec.validation.patch import Document
from stromboli.shared.jobspec.validation.queueing import permissions
from stromboli.shared.jobspec.validation.queueing import reservations as reservation_rules
from stromboli.shared.messages.admission import Violation

R = TypeVar("R")
SYSTEM_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
"""Priority classes that every cluster has."""
MAX_INLINE_VALUES = 2_000
"""Maximum values of an object that is reviewed on the event loop: some milliseconds."""
_THREADS = concurrent.futures.ThreadPoolExecutor(1, "review")
"""One thread: Python runs one at a time, and the event loop competes with each."""


class RequestIdentity(msgspec.Struct, frozen=True):
    """The user whose permissions apply, and the user of the request: see
    ``review.ClusterContext``.
    """

    submitter: permissions.Submitter | None = None
    requester: permissions.Submitter | None = None

    @classmethod
    def user(cls, name: str, groups: Iterable[str]) -> "RequestIdentity":
        """The identity of a user who acts on their own behalf."""
        submitter = permissions.Submitter(name, tuple(groups))
        return cls(submitter, submitter)


UNKNOWN_IDENTITY = RequestIdentity()
"""The identity of a request that needs no permission and records no submitter."""


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """Other objects of the same request: queues by name, and the names of priority classes and
    jobs.
    """

    queues: Mapping[str, Queue] = {}
    priority_classes: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()


ALONE = Together()


class Reviewer:
    """Defaults and validates objects. ``cache``: queues, namespaces, HyperNodes and priority
    classes; ``is_caught_up``: whether it is complete and recent.
    """

    def __init__(
        self,
        cluster: cluster_port.Cluster,
        cache: snapshot.Snapshot,
        policy: review.AdmissionPolicy,
        groups: resource_groups.ResourceGroupsFile,
        jobs: live_jobs.LiveJobs,
    ) -> None:
        self._cluster = cluster
        self._listings = listings.Listings(cluster)
        self._cache = cache
        self.policy = policy
        self._groups = groups
        self._live_jobs = jobs
        self.is_caught_up = False

    async def violations(
        self,
        kind: Kind[Any],
        operation: review.Operation,
        document: Document,
        before: Document | None,
        *,
        together: Together = ALONE,
        claimed: frozenset[str] = frozenset(),
        identity: RequestIdentity = UNKNOWN_IDENTITY,
        since: float | None = None,
    ) -> tuple[Violation, ...]:
        """All violations. ``claimed``: scheduler names of other systems, if the object may be
        theirs. ``since``: a list request to the API server that began then or later is recent
        enough; by default, only one that begins now. Raises ExternalError when queues, HyperNodes
        or priority classes must be read and the API server does not answer.
        """
        since = time.monotonic() if since is None else since
        classes = await self._priority_classes(kind, document, since)
        absent = review.priority_classes(kind, document) - classes.keys() - SYSTEM_CLASSES
        queues = {queue.metadata.name: queue for queue in self._cache.objects(kinds.QUEUES)}
        hyper_nodes = list(self._cache.objects(kinds.HYPER_NODES))

        reservations, nodes = await self._reservations(kind, document, since)
        pod_group_phase = await self._pod_group_phase(_queue_change(kind, document, before))

        async def judged() -> tuple[Violation, ...]:
            known = review.ClusterContext(
                queues=queues | dict(together.queues),
                tiers=network_topology.tiers(hyper_nodes),
                claimed=claimed,
                priority_classes=classes,
                submitter=identity.submitter,
                requester=identity.requester,
                absent_priority_classes=absent - together.priority_classes,
                reservations=reservations,
                nodes=nodes,
                pod_group_phase=pod_group_phase,
            )
            return await _in_thread_if_large(
                document,
                lambda: review.violations(kind, operation, document, before, known, self.policy),
            )

        # A cache that is still being read may contain outdated permissions of a queue.
        needs_queues = listings.is_about_queues(kind, document) or (
            kind in permissions.SUBMITTER_KINDS and not self.is_caught_up
        )
        # Lists replace what the cache has: objects may also have been deleted a moment ago.
        if needs_queues:
            queues = await self._listed_queues(since)
        violations = await judged()
        if listings.may_depend_on_topology(violations):
            hyper_nodes = await self._listings.of(kinds.HYPER_NODES, since)
            violations = await judged()
        if needs_queues or not listings.may_depend_on_queues(violations):
            return violations
        queues = await self._listed_queues(since)
        return await judged()

    async def _listed_queues(self, since: float) -> dict[str, Queue]:
        return {it.metadata.name: it for it in await self._listings.of(kinds.QUEUES, since)}

    async def unknown_fields(
        self,
        kind: Kind[Any],
        document: Document,
        before: Document | None,
        claimed: frozenset[str] = frozenset(),
    ) -> tuple[Violation, ...]:
        """Fields of the object's pod templates that Kubernetes does not have, without those that
        the stored object already has.
        """
        known = review.ClusterContext(claimed=claimed)
        return await _in_thread_if_large(
            document, lambda: review.unknown_fields(kind, document, before, self.policy, known)
        )

    async def warnings(self, kind: Kind[Any], document: Document) -> tuple[str, ...]:
        """Fields of a valid object that have no effect, or none yet. Raises ExternalError when
        reservations must be read and the API server does not answer."""
        try:
            obj = kind.decode(msgspec.json.encode(document))
        except msgspec.DecodeError:
            return ()
        since = time.monotonic() - listings.MAX_AGE_S
        reservations, nodes = await self._reservations(kind, document, since)
        if isinstance(obj, reservation.AdvanceReservation):
            return tuple(reservation_rules.warnings(obj, nodes))
        if isinstance(obj, batch.Job):
            return (
                *job_rules.warnings(obj, self.policy.plugins),
                *reservation_rules.warnings_of_job(obj.metadata, reservations),
            )
        if isinstance(obj, batch.Command):
            queues = {queue.metadata.name: queue for queue in self._cache.objects(kinds.QUEUES)}
            return tuple(user_commands.warnings(obj, queues))
        if isinstance(obj, PodGroup) and not kinds.JOBS.controls(obj):
            return tuple(waiting_time.warnings(obj.metadata))
        return ()

    async def _reservations(
        self, kind: Kind[Any], document: Document, since: float
    ) -> tuple[dict[str, reservation.AdvanceReservation], tuple[core.Node, ...]]:
        """All reservations and, for a reservation, all nodes, if the object is about reservations;
        they are read from the API server, since such objects are rare.
        """
        if not listings.is_about_reservations(kind, document):
            return {}, ()
        reservations = await self._listings.of(kinds.ADVANCE_RESERVATIONS, since)
        is_reservation = kind == kinds.ADVANCE_RESERVATIONS
        nodes = await self._listings.of(kinds.NODES, since) if is_reservation else ()
        return {it.metadata.name: it for it in reservations}, tuple(nodes)

    async def _pod_group_phase(self, of: tuple[str, str] | None) -> str:
        """The phase of a PodGroup, read from the API server; empty if it does not exist."""
        if of is None:
            return ""
        try:
            return kinds.POD_GROUPS.decode(
                await self._cluster.get(kinds.POD_GROUPS, *of)
            ).status.phase
        except errors.NotFoundError:
            return ""

    async def _priority_classes(
        self, kind: Kind[Any], document: Document, since: float
    ) -> dict[str, core.PriorityClass]:
        """The known priority classes; read from the API server if the object names an unknown one,
        or the cache is incomplete.
        """
        priority_classes = {
            it.metadata.name: it for it in self._cache.objects(kinds.PRIORITY_CLASSES)
        }
        named = review.priority_classes(kind, document)
        if named and not (self.is_caught_up and named <= priority_classes.keys()):
            listed = await self._listings.of(kinds.PRIORITY_CLASSES, since)
            priority_classes = {it.metadata.name: it for it in listed}
        return priority_classes

    async def absent(
        self,
        namespace: str,
        document: Document,
        coming: Collection[str],
        claimed: frozenset[str] = frozenset(),
    ) -> tuple[Violation, ...]:
        """Dependencies of a new job that neither exist nor are in the same request."""
        violations = []
        known = review.ClusterContext(claimed=claimed)
        for name in review.dependencies(document, self.policy, known):
            if name not in coming:
                try:
                    await self._cluster.get(kinds.JOBS, namespace, name)
                except errors.NotFoundError:
                    violations.append(job_rules.missing_dependency(name))
        return tuple(violations)

    async def completed(
        self,
        kind: Kind[Any],
        document: Document,
        namespace: str,
        traceparent: str,
        claimed: frozenset[str] = frozenset(),
    ) -> tuple[patch.Add, ...]:
        """Defaults for a new object. Namespaces are read from the cache: the default queue of a
        namespace that was just created may be missed.
        """
        space = self._cache.get(kinds.NAMESPACES, namespace)
        known = review.ClusterContext(namespace=space, claimed=claimed)
        policy = self.policy
        if kind == kinds.PODS:
            policy = msgspec.structs.replace(policy, groups=self._groups.current())
            if known.namespace is None:
                own = core.Namespace(metadata=meta.ObjectMeta(name=namespace))
                known = review.ClusterContext(namespace=own)
        return await _in_thread_if_large(
            document,
            lambda: review.default_patch(kind, document, policy, traceparent, known),
        )

    def kept(
        self,
        kind: Kind[Any],
        document: Document,
        before: Document,
        namespace: str,
        claimed: frozenset[str] = frozenset(),
    ) -> tuple[patch.Add, ...]:
        """Defaults for an update: values of the stored object that the new one omits."""
        space = self._cache.get(kinds.NAMESPACES, namespace)
        known = review.ClusterContext(namespace=space, claimed=claimed)
        return review.update_patch(kind, document, before, self.policy, known)

    def reserve(
        self,
        kind: Kind[Any],
        document: Document,
        before: Document | None,
        identity: RequestIdentity,
        claimed: frozenset[str] = frozenset(),
    ) -> tuple[Violation, ...]:
        """Count a new job as live, or return the exceeded limit. A job whose queue changes is
        checked, too."""
        if kind != kinds.JOBS or not self._live_jobs.is_enabled:
            return ()
        if before is not None and _queue_change(kind, document, before) is None:
            return ()
        try:
            job = kinds.JOBS.decode(msgspec.json.encode(document))
        except (msgspec.DecodeError, ValueError):
            return ()
        if not review.is_ours(job, self.policy, review.ClusterContext(claimed=claimed)):
            return ()
        owner = live_jobs.Owner(
            identity.submitter.name if identity.submitter else "", job.spec.queue
        )
        key, now = job.metadata.key, asyncio.get_running_loop().time()
        return self._live_jobs.reserve(key, owner, now)

    def release(self, kind: Kind[Any], namespace: str, name: str) -> None:
        """Release a reserved job that was not written."""
        if kind == kinds.JOBS:
            self._live_jobs.release(f"{namespace}/{name}")

    def recorded(
        self,
        kind: Kind[Any],
        document: Document,
        before: Document | None,
        identity: RequestIdentity,
        claimed: frozenset[str] = frozenset(),
    ) -> tuple[patch.Add, ...]:
        """The patch that records the submitter of an object."""
        known = review.ClusterContext(claimed=claimed, requester=identity.requester)
        return review.submitter_patch(kind, document, before, self.policy, known)


def _queue_change(
    kind: Kind[Any], document: Document, before: Document | None
) -> tuple[str, str] | None:
    """The namespace and name of the PodGroup of a job whose queue changes; else None."""
    if kind != kinds.JOBS or before is None:
        return None
    specs = [it.get("spec") for it in (document, before)]
    now, then = (it.get("queue") if isinstance(it, dict) else None for it in specs)
    if now == then:
        return None
    metadata = kinds.metadata_of(msgspec.json.encode(before))
    return metadata.namespace, f"{metadata.name}-{metadata.uid}"


async def _in_thread_if_large(document: Document, work: Callable[[], R]) -> R:
    """The result of ``work`` on an object. A large object is handled in a thread, so that the event
    loop stays responsive.
    """
    if bounds.count_values(document) < MAX_INLINE_VALUES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)
