"""Reads the cluster's admission configuration, which decides whether pods are created with nodes.

It lists instead of watching: changes are rare, and a change that is read late is still detected,
because each created pod is compared with its plan. Cost: eight small requests per ``EVERY_S``, only
with the setting ``bound_pods``.
"""

import asyncio

import msgspec
import structlog

from stromboli.controller import isolation
from stromboli.controller.core.store import admission_configuration
from stromboli.controller.core.store.job_plans import JobPlans
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.shared.jobspec.policies import pod_annotations

EVERY_S = 10.0
"""Seconds between two reads."""
WITHIN_S = 10.0
"""Deadline of one read, in seconds."""
MUTATING_POLICIES = tuple(
    msgspec.structs.replace(kinds.MUTATING_POLICIES, version=version)
    for version in ("v1", "v1beta1", "v1alpha1")
)
"""The versions of the kind; which of them are served depends on the release of the API server."""
_log = structlog.get_logger(__name__)


class AdmissionReader:
    """Keeps ``plans.admission`` current. While the configuration cannot be read, no pod is created
    with its node."""

    def __init__(
        self, plans: JobPlans, cluster: port.Cluster, deterministic: tuple[str, ...]
    ) -> None:
        self._plans = plans
        self._cluster = cluster
        self._deterministic = deterministic
        self._reported: str | None = None

    async def follow(self) -> None:
        """Read the configuration every ``EVERY_S`` until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.read()

    async def read(self) -> None:
        """Read and evaluate the configuration once. Errors are logged, not raised."""
        try:
            async with asyncio.timeout(WITHIN_S):
                listed = await self._list()
            evaluation = admission_configuration.evaluate(listed, self._deterministic)
        except (errors.ExternalError, TimeoutError, msgspec.DecodeError) as error:
            self._apply(None, f"the admission configuration cannot be read: {error}")
        except Exception as error:  # pods are created pending meanwhile
            isolation.report(error, "admission configuration")
            self._apply(None, "the admission configuration cannot be evaluated")
        else:
            self._apply(evaluation, evaluation.problem)

    def _apply(
        self, configuration: admission_configuration.AdmissionConfiguration | None, problem: str
    ) -> None:
        self._plans.admission = configuration
        if problem == self._reported:
            return
        self._reported = problem
        if configuration is not None and not configuration.is_protected:
            _log.info("pods are created pending", reason=problem)  # as in an embedded cluster
        elif problem:
            _log.error("pods are not created with their nodes", reason=problem)
        else:
            names = (
                [it.name for it in configuration.exclusions] if configuration is not None else []
            )
            _log.info("pods are created with their nodes", except_where=names)

    async def _list(self) -> admission_configuration.Listed:
        webhooks = (await self._cluster.list(kinds.MUTATING_WEBHOOKS)).items
        validating = (await self._cluster.list(kinds.VALIDATING_WEBHOOKS)).items
        mutating = [raw for kind in MUTATING_POLICIES for raw in await self._served(kind)]
        return admission_configuration.Listed(
            webhooks=webhooks,
            validating_webhooks=validating,
            mutating_policies=tuple(mutating),
            validating_policies=(await self._cluster.list(kinds.VALIDATING_POLICIES)).items,
            policy=await self._get(kinds.VALIDATING_POLICIES),
            binding=await self._get(kinds.VALIDATING_POLICY_BINDINGS),
        )

    async def _served(self, kind: port.AnyKind) -> tuple[bytes, ...]:
        """All objects of a kind; empty if the API server does not serve the kind."""
        try:
            return (await self._cluster.list(kind)).items
        except (errors.NotFoundError, errors.UnsupportedError):
            return ()

    async def _get(self, kind: port.AnyKind) -> bytes | None:
        try:
            return await self._cluster.get(kind, "", pod_annotations.NAME)
        except errors.NotFoundError:
            return None
