"""The leaders of the services that hold Leases of Kubernetes: monitor and controller."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from stromboli.shared import decoding, errors, topics
from stromboli.shared.api import kinds
from stromboli.shared.api.views.system_health import LeaderStatus
from stromboli.shared.cluster import port
from stromboli.shared.leader_election import cluster_lease
from stromboli.shared.leader_election.settings import LeaseSettings
from stromboli.shared.runtime import runtime

SERVICES: Sequence[topics.Service] = ("monitor", "controller")


class LeaseStatus:
    """Reads the Leases of these services in the cluster, one small request each."""

    def __init__(
        self,
        cluster: port.Cluster,
        settings: LeaseSettings,
        cluster_name: str,
        clock: runtime.Clock,
    ) -> None:
        self._cluster = cluster
        self._given = settings
        self._cluster_name = cluster_name
        self._clock = clock

    async def read(self) -> tuple[LeaderStatus, ...]:
        """The leaders of the services with a Lease; a service with a single replica may have none.
        Raises ExternalError, for example without the right to read Leases."""
        statuses = await asyncio.gather(*map(self._of, SERVICES))
        return tuple(it for it in statuses if it is not None)

    async def _of(self, service: topics.Service) -> LeaderStatus | None:
        namespace, name = cluster_lease.place(self._given, service, self._cluster_name)
        try:
            spec = kinds.LEASES.decode(await self._cluster.get(kinds.LEASES, namespace, name)).spec
            renewed_at = decoding.instant(spec.renew_time or "")
        except errors.NotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise errors.InvalidError(f"read Lease {namespace}/{name}", str(error)) from None
        duration_s = float(spec.lease_duration_seconds or 0)
        return LeaderStatus(
            service=service,
            holder=spec.holder_identity or "",
            duration_s=duration_s,
            renewed_at=renewed_at,
            is_expired=self._clock() > renewed_at + timedelta(seconds=duration_s),
        )
