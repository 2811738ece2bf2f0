"""Reviews of objects: defaults and violations, with the cache and, in doubt, the API server.

The rules themselves are pure (``shared.admission.review``); this module gathers what they need.
"""

import contextlib
from collections.abc import Collection
from typing import Any, TypeVar

import msgspec

from stromboli.admission import resource_groups
from stromboli.shared import errors, network, snapshot
from stromboli.shared.admission import jobs as job_rules
from stromboli.shared.admission import patch, review
from stromboli.shared.admission.patch import Document
from stromboli.shared.api import core, kinds, meta
from stromboli.shared.api.kinds import Kind
from stromboli.shared.api.scheduling import Queue
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.messages.admission import Violation

T = TypeVar("T", bound=meta.Object)


class Reviewer:
    """Defaults and validates objects. ``cache``: queues, namespaces and HyperNodes."""

    def __init__(
        self,
        cluster: cluster_port.Cluster,
        cache: snapshot.Snapshot,
        policy: review.Policy,
        groups: resource_groups.File,
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self.policy = policy
        self._groups = groups

    async def violations(
        self,
        kind: Kind[Any],
        operation: review.Operation,
        document: Document,
        before: Document | None,
        together: dict[str, Queue],
        claimed: frozenset[str] = frozenset(),
    ) -> tuple[Violation, ...]:
        """All that is wrong; ``together`` are queues that come in with the object, ``claimed``
        the names of others, if it may be theirs. Raises OutsideError when queues or HyperNodes have
        to be read and cannot."""
        queues = {queue.metadata.name: queue for queue in self._cache.objects(kinds.QUEUES)}
        hyper_nodes = list(self._cache.objects(kinds.HYPER_NODES))

        def judged() -> tuple[Violation, ...]:
            known = review.Known(
                queues=queues | together, tiers=network.tiers(hyper_nodes), claimed=claimed
            )
            return review.violations(kind, operation, document, before, known, self.policy)

        needs_queues = review.is_about_queues(kind, document)
        found = () if needs_queues else judged()
        if review.network_in_doubt(found):
            hyper_nodes.extend(await self._listed(kinds.HYPER_NODES))
            found = judged()
        if not (needs_queues or review.queues_in_doubt(found)):
            return found
        queues.update({it.metadata.name: it for it in await self._listed(kinds.QUEUES)})
        return judged()

    async def absent(
        self,
        namespace: str,
        document: Document,
        coming: Collection[str],
        claimed: frozenset[str] = frozenset(),
    ) -> tuple[Violation, ...]:
        """Jobs that a new one waits for, which neither are there nor come in with it."""
        found = []
        known = review.Known(claimed=claimed)
        for name in review.waited_for(document, self.policy, known):
            if name not in coming:
                try:
                    await self._cluster.get(kinds.JOBS, namespace, name)
                except errors.NotFoundError:
                    found.append(job_rules.missing(name))
        return tuple(found)

    async def _listed(self, kind: Kind[T]) -> list[T]:
        """All readable objects of a kind as they are now; none where the kind is not installed."""
        found = []
        with contextlib.suppress(errors.NotFoundError):
            for item in (await self._cluster.list(kind)).items:
                with contextlib.suppress(msgspec.DecodeError):  # unreadable: it stays absent
                    found.append(kind.decode(item))
        return found

    def completed(
        self,
        kind: Kind[Any],
        document: Document,
        namespace: str,
        traceparent: str,
        user: str,
        claimed: frozenset[str] = frozenset(),
    ) -> tuple[patch.Add, ...]:
        """Defaults for a new object. Namespaces are known from the log: a wish in one that is a
        moment old may be missed, as with any watch."""
        space = self._cache.get(kinds.NAMESPACES, namespace)
        known = review.Known(namespace=space, claimed=claimed)
        policy = self.policy
        if kind == kinds.PODS:
            policy = msgspec.structs.replace(policy, groups=self._groups.current())
            if known.namespace is None:
                own = core.Namespace(metadata=meta.ObjectMeta(name=namespace))
                known = review.Known(namespace=own)
        return review.completed(kind, document, policy, traceparent, known, user)
