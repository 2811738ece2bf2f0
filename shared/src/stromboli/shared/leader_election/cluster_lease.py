"""A lease stored as a Kubernetes Lease object (``kubectl get leases``)."""

from datetime import datetime
from pathlib import Path

import msgspec

from stromboli.shared import errors, topics
from stromboli.shared.api import coordination, kinds
from stromboli.shared.cluster import port
from stromboli.shared.leader_election import elector, lease_rules
from stromboli.shared.leader_election import settings as keeping_settings
from stromboli.shared.runtime import runtime

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def lease(
    settings: keeping_settings.LeaseSettings,
    service: topics.Service,
    cluster_name: str,
    cluster: port.Cluster,
    health: runtime.Health,
    clock: runtime.Clock,
    *,
    role: str = elector.ROLE,
    essential: bool = True,
) -> elector.Lease:
    """The lease of a service that has access to the cluster; ``SingleReplica`` if leases are off.
    ``role`` and ``essential``: see ``elector.LeaderElector``.
    """
    if not settings.enabled:
        return elector.SingleReplica(health)
    store = ClusterLeaseStore(cluster, *place(settings, service, cluster_name), clock)
    return elector.LeaderElector(
        store, elector.identity(settings), settings.terms, health, role=role, essential=essential
    )


def place(
    settings: keeping_settings.LeaseSettings, service: topics.Service, cluster_name: str
) -> tuple[str, str]:
    """The namespace and name of a service's Lease; all services have the same namespace."""
    return settings.namespace or _own_namespace(), f"{settings.name}-{cluster_name}-{service}"


def _own_namespace() -> str:
    try:
        return _OWN_NAMESPACE.read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


class ClusterLeaseStore:
    """See ``elector.LeaseStore``. Stores the lease in a Lease object. Every write is conditional on
    the resourceVersion that was last read or written.
    """

    def __init__(
        self, cluster: port.Cluster, namespace: str, name: str, clock: runtime.Clock
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._last: coordination.Lease | None = None

    async def read(self) -> lease_rules.LeaseRecord:
        """See ``elector.LeaseStore.read``."""
        try:
            raw = await self._cluster.get(kinds.LEASES, self._namespace, self._name)
        except errors.NotFoundError:
            self._last = None
            return lease_rules.LeaseRecord()
        return self._record_of(raw)

    async def acquire(
        self, identity: str, terms: lease_rules.LeaseTiming
    ) -> lease_rules.LeaseRecord:
        """See ``elector.LeaseStore.acquire``."""
        return await self.renew(identity, terms)

    async def renew(self, identity: str, terms: lease_rules.LeaseTiming) -> lease_rules.LeaseRecord:
        """See ``elector.LeaseStore.renew``."""
        now = _micro_time(self._clock())
        before = coordination.LeaseSpec() if self._last is None else self._last.spec
        spec: dict[str, object] = {
            "holderIdentity": identity,
            "leaseDurationSeconds": int(terms.duration_s),
            "renewTime": now,
        }
        if before.holder_identity != identity or before.acquire_time is None:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (before.lease_transitions or 0) + (self._last is not None)
        return self._record_of(await self._written(spec))

    async def release(self) -> None:
        """See ``elector.LeaseStore.release``."""
        holder = self._holder
        while True:
            try:
                self._record_of(await self._written({"holderIdentity": ""}))
            except errors.ConflictError:
                # A renewal that was cancelled with its request in flight may be executed at any
                # later moment, also between this read and the next write.
                await self.read()
                if not holder or self._holder != holder:
                    raise
            else:
                return

    @property
    def _holder(self) -> str:
        return "" if self._last is None else self._last.spec.holder_identity or ""

    async def _written(self, spec: dict[str, object]) -> bytes:
        if self._last is None:
            document = {
                "apiVersion": kinds.LEASES.api_version,
                "kind": kinds.LEASES.kind,
                "metadata": {"name": self._name},
                "spec": spec,
            }
            body = msgspec.json.encode(document)
            return await self._cluster.create(kinds.LEASES, self._namespace, body)
        version = {"resourceVersion": self._last.metadata.resource_version}
        patch = msgspec.json.encode({"metadata": version, "spec": spec})
        try:
            return await self._cluster.patch(
                kinds.LEASES, self._namespace, self._name, patch, patch_type="merge"
            )
        except (
            errors.NotFoundError
        ) as error:  # deleted by another client: the next holder creates it again
            raise errors.ConflictError(error.what, error.reason) from error

    def _record_of(self, raw: bytes) -> lease_rules.LeaseRecord:
        try:
            self._last = kinds.LEASES.decode(raw)
        except msgspec.DecodeError as error:
            what = f"read Lease {self._namespace}/{self._name}"
            raise errors.InvalidError(what, str(error)) from None
        return lease_rules.lease_record(self._last.spec)


def _micro_time(at: datetime) -> str:
    """The time in the format of Kubernetes' MicroTime."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
