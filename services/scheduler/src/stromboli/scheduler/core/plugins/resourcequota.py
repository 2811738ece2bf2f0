"""The plugin ``resourcequota``: a job stays Pending until its namespace's ResourceQuota has room.

Names must be equal: a minimum of ``cpu`` is not checked against a quota of ``requests.cpu``. A
quota with scopes is left to the API server: which pods it covers is unknown before they exist, and
a job must not wait for a quota that does not cover its pods.
"""

from collections.abc import Mapping

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared.api import core
from stromboli.shared.formats import units
from stromboli.shared.jobspec import quota_scopes


class Plugin:
    """Votes by the room that quotas leave, less the jobs that this session has enqueued."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._quotas: dict[str, list[tuple[units.Amounts, units.Amounts]]] = {}
        self._admitted: dict[str, units.Amounts] = {}
        self._unread: dict[str, str] = {}

    def open(self, ssn: session.Session) -> None:
        """Read quotas and register. A limit that cannot be read rejects every job that names its
        resource; a quota that cannot be read rejects every job of its namespace."""
        self._session = ssn
        self._unread = {
            key.partition("/")[0]: f"ResourceQuota {key} cannot be read: {why}"
            for key, why in sorted(ssn.model.auxiliary.unreadable["resource_quotas"].items())
        }
        ssn.complaints.extend(self._unread.values())
        for quota in sorted(ssn.cluster.resource_quotas, key=lambda each: each.metadata.key):
            if not any(quota_scopes.of(quota.spec)):
                self._quotas.setdefault(quota.metadata.namespace, []).append(_read(ssn, quota))
        ssn.add_job_enqueueable(self._vote)
        ssn.add_job_enqueued(self._note)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _vote(self, job: entities.Job) -> int:
        if job.namespace in self._unread:
            self._session.emit_event(job, self._unread[job.namespace])
            return extension_points.REJECT
        request = self._requested(job)
        admitted = self._admitted.get(job.namespace, {})
        for hard, used in self._quotas.get(job.namespace, ()):
            exceeded = [
                name
                for name in sorted(request.keys() & hard.keys())
                if used.get(name, 0) + admitted.get(name, 0) + request[name] > hard[name]
            ]
            if exceeded:
                self._session.emit_event(
                    job,
                    "resource quota insufficient, "
                    f"requested: {_text(request, exceeded)}, "
                    f"used: {_text(used, exceeded)}, limited: {_text(hard, exceeded)}",
                )
                return extension_points.REJECT
        return extension_points.PERMIT

    def _note(self, job: entities.Job) -> None:
        admitted = self._admitted.get(job.namespace, {})
        self._admitted[job.namespace] = units.add(admitted, self._requested(job))

    def _requested(self, job: entities.Job) -> units.Amounts:
        """Return the job's minResources by name, without amounts that cannot be read."""
        stated = job.pod_group.spec.min_resources or {}
        return _readable(self._session, f"PodGroup {job.key} minResources", stated, None)


def _read(ssn: session.Session, quota: core.ResourceQuota) -> tuple[units.Amounts, units.Amounts]:
    """Return limits and usage. A limit that cannot be read counts as used up."""
    hard = quota.status.hard or quota.spec.hard or {}
    where = f"ResourceQuota {quota.metadata.key}"
    used = quota.status.used or {}
    return _readable(ssn, where, hard, 0), _readable(ssn, where, used, None)


def _readable(
    ssn: session.Session,
    where: str,
    stated: Mapping[str, core.Quantity],
    otherwise: int | None,
) -> units.Amounts:
    amounts = {}
    for name, quantity in stated.items():
        try:
            amounts[name] = units.amount(name, quantity)
        except ValueError as error:
            ssn.complaints.append(f"{where}: {name}: {error}")
            if otherwise is not None:
                amounts[name] = otherwise
    return amounts


def _text(amounts: Mapping[str, int], names: list[str]) -> str:
    return ",".join(f"{name}={units.text(name, amounts.get(name, 0))}" for name in names)
