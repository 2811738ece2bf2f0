"""The system on real parts, with those who look on from outside."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from stromboli.testkit.checkers import claims, gang_atomicity, invariants, job_lifecycle
from stromboli.testkit.real_system import RealSystem
from tests.faults.support import api_history, claimable, decision_log, workload


class ObservedSystem:
    """A running system and its onlookers."""

    def __init__(
        self, system: RealSystem, seen: api_history.ApiHistory, decided: decision_log.DecisionLog
    ) -> None:
        self.system = system
        self.history = seen
        self.decisions = decided
        self.namespaces: set[str] = set()
        """Those in which every promise must have been kept when all is over."""

    async def enter(self, namespace: str) -> str:
        """Make a namespace for a test's jobs; its name."""
        async with self.system.parts.client() as api:
            await api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        return namespace

    async def submit_every_kind(self, namespace: str, gangs: Sequence[api_history.Object]) -> int:
        """Submit these jobs and one of each kind of object in the workload; the number of jobs."""
        await claimable.provide(self.system.parts, namespace)
        async with asyncio.TaskGroup() as group:
            group.create_task(workload.apply(self.system.url, workload.flow(namespace)))
            documents = [*workload.of_every_kind(), *gangs]
            group.create_task(workload.submit(self.system.url, namespace, documents))
        return len(gangs) + workload.KINDS

    def jobs(self, namespace: str) -> list[api_history.Object]:
        """The jobs there now."""
        return self.history.objects("Job", namespace)

    def finished(self, namespace: str) -> int:
        """Number of jobs that have ended as expected."""
        return len(workload.ended_as_expected(self.jobs(namespace)))

    async def all_end(self, namespace: str, count: int, within_s: float) -> None:
        """Return when this number of jobs and all flows have ended as expected; an error lists the
        others."""
        try:
            await self.history.until(
                lambda: self.finished(namespace) >= count and not self._unfinished_flows(namespace),
                within_s,
            )
        except TimeoutError:
            left = {it["metadata"]["name"]: workload.phase(it) for it in self.jobs(namespace)}
            done = {
                it["metadata"]["name"] for it in workload.ended_as_expected(self.jobs(namespace))
            }
            waiting = {name: phase for name, phase in left.items() if name not in done}
            waiting |= dict.fromkeys(self._unfinished_flows(namespace), "flow")
            raise AssertionError(f"{len(done)} of {count} jobs ended; {waiting} did not") from None

    def _unfinished_flows(self, namespace: str) -> list[str]:
        flows = self.history.objects("JobFlow", namespace)
        return [it["metadata"]["name"] for it in flows if workload.phase(it) != "Succeed"]

    def broken(self, *namespaces: str) -> list[str]:
        """Violations that the checkers report for these namespaces and for all nodes."""
        history = self.history.ordered(frozenset(namespaces))
        return [
            *invariants.violations(history, retries=workload.RETRIES),
            *gang_atomicity.violations(history, self.decisions.binds),
            *job_lifecycle.violations(history),
            *claims.violations(history),
        ]


@contextlib.asynccontextmanager
async def start_observed_system(
    state: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[ObservedSystem]:
    """Everything started, and watched from before the first job. ``environment``: further
    settings. Unless they say otherwise, pods are created pending and bound: two writes to kill
    between, and ``test_bound_pods`` has the other path."""
    environment = {"STROM_CONTROLLER_BOUND_PODS": "false", **(environment or {})}
    size = ("--cpu", str(workload.CPUS))
    async with contextlib.AsyncExitStack() as stack:
        system = RealSystem(
            state, simulated_nodes=workload.NODES, node_options=size, environment=environment
        )
        await stack.enter_async_context(system)
        await claimable.provide_classes(system.parts)
        seen = await stack.enter_async_context(api_history.ApiHistory(system.parts).recording())
        follower = decision_log.DecisionLog(system.parts.kafka_bootstrap)
        decided = await stack.enter_async_context(follower.following())
        yield ObservedSystem(system, seen, decided)
