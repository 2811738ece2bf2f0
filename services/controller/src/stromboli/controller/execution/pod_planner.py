"""Publishes and withdraws plans of jobs in ``batch.plans``, from dry runs of their pods."""

import asyncio

import msgspec
import structlog

from stromboli.controller.core import commands
from stromboli.controller.core.pods import planned_pods
from stromboli.controller.core.store import controller_cache
from stromboli.controller.execution.request_limiter import RequestLimiter
from stromboli.shared import envelope, errors, topics
from stromboli.shared.api import core, kinds
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.messages import plans
from stromboli.shared.runtime import runtime

_log = structlog.get_logger(__name__)


class PodPlanner:
    """The only writer of ``batch.plans``."""

    def __init__(
        self,
        cache: controller_cache.ControllerCache,
        cluster: cluster_port.Cluster,
        writer: bus_port.Writer,
        limiter: RequestLimiter,
        clock: runtime.Clock,
    ) -> None:
        self._cache = cache
        self._cluster = cluster
        self._writer = writer
        self._limiter = limiter
        self._clock = clock

    async def plan(self, requested: commands.PlanPods, group: str, cause: str) -> None:
        """Publish the plan of a job. If the API server rejects a dry run, or its response cannot be
        planned, this version of the job gets a plan without tasks, since sessions wait for the
        record. Raises TransientError."""
        try:
            responses = await asyncio.gather(
                *(self._dry_run(it, requested, group) for it in requested.dry_runs)
            )
            plan = planned_pods.plan(self._cache, requested, responses)
        except (errors.PermanentError, msgspec.DecodeError) as error:
            _log.info("pods not planned", job=requested.job, reason=str(error))
            plan = None
        if plan is None:
            self._cache.plans.exclude(requested.job_uid, requested.version)
            plan = planned_pods.no_plan(requested)
        await self._append(requested.pod_group, plan, requested.job_uid, requested.version, cause)

    async def withdraw(self, requested: commands.WithdrawPlan, cause: str) -> None:
        """Withdraw the plan of a PodGroup."""
        await self._append(requested.pod_group, None, requested.job_uid, requested.version, cause)

    async def _dry_run(
        self, run: commands.DryRun, requested: commands.PlanPods, group: str
    ) -> core.Pod:
        """The API server's answer to a dry run, or its cached answer to an equal dry run."""
        answers = self._cache.plans.answers
        known = answers.of(run.likeness, self._clock()) if run.likeness else None
        if known is not None:
            return planned_pods.as_answered(run, known, requested.node)
        async with self._limiter.hold(group):
            raw = await self._cluster.create(
                kinds.PODS, requested.namespace, run.body, dry_run=True
            )
        pod = kinds.PODS.decode(raw)
        if run.likeness:
            template = planned_pods.template_of(pod)
            digest = planned_pods.spec_digest(template)
            answers.note(run.likeness, template.spec, digest, self._clock())
        return pod

    async def _append(
        self, key: str, plan: plans.PodsPlanned | None, uid: str, version: int, cause: str
    ) -> None:
        draft = envelope.Draft(
            topic=topics.BATCH_PLANS,
            key=key,
            message=plan,
            time=self._clock(),
            cause=cause,
            object_uid=uid if plan is None else "",
            object_version=str(version) if plan is None else "",
        )
        await self._writer.append(draft)
        self._cache.plans.put(key, plan)
