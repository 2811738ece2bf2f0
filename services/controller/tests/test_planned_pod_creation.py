"""The execution of planned binds: pods that a decision published again may have created."""

import asyncio
from pathlib import Path

import pytest

from services.controller.tests.test_planned_pods import DECISION, changed_node, decided, started
from stromboli.controller.core.decisions import planned_binds
from stromboli.controller.core.store import (
    admission_configuration,
    batch_state,
    controller_cache,
)
from stromboli.controller.execution.command_executor import CommandExecutor
from stromboli.controller.execution.event_recorder import EventRecorder
from stromboli.controller.execution.inflight_permits import Retrier
from stromboli.controller.execution.pod_creation import PodCreation
from stromboli.controller.execution.request_limiter import RequestLimiter
from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared.api import core, kinds
from stromboli.shared.messages import scheduling
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders


async def executed(
    tmp_path: Path,
    known: controller_cache.ControllerCache,
    statement: scheduling.StatementDecided,
    existing: bytes | None,
    *,
    is_admitted: bool,
) -> tuple[scheduling.TaskOutcome, list[core.Pod]]:
    """The outcome of the statement's bind, and all pods afterwards."""

    async def enter() -> tuple[scheduling.Result, int]:
        return ("executed", 1) if is_admitted else ("refused", 0)

    async with (
        EmbeddedBus(tmp_path / "log.db") as bus,
        EmbeddedCluster(tmp_path / "cluster.db") as cluster,
    ):
        if existing is not None:
            await cluster.create(kinds.PODS, "default", existing)
        limiter = RequestLimiter(8)
        events = EventRecorder(cluster, limiter, 0)
        executor = CommandExecutor(
            known,
            cluster,
            await bus.open_writer("controller", "test"),
            batch_state.BatchState(known.published),
            limiter,
            lambda _, __: None,
            runtime.utc_now,
            events,
        )
        creation = PodCreation(
            known, executor, Retrier(), events, lambda _, __: None, runtime.utc_now
        )
        entry = asyncio.create_task(enter())
        (outcome,) = await creation.create_all(statement, DECISION, "default/j1", entry)
        return outcome, [kinds.PODS.decode(it) for it in (await cluster.list(kinds.PODS)).items]


@pytest.mark.parametrize("has_pod", [True, False], ids=["created before", "never created"])
@pytest.mark.parametrize("change", ["plan withdrawn", "node cordoned", "job gone", "not admitted"])
async def test_a_refusal_does_not_hide_a_pod_that_the_decision_has_created(
    tmp_path: Path, change: str, *, has_pod: bool
) -> None:
    """The decision was published again because the outcome of its first publication was lost. A
    refusal would free the room of the pod, and count the gang as started only in part."""
    known, plan = started()
    statement = decided(plan)
    made = planned_binds.job_of(known, statement)
    assert made is not None
    command = planned_binds.creation(known, made, statement.binds[0], DECISION)
    match change:
        case "plan withdrawn":
            known.plans.put(plan.pod_group, None)
        case "node cordoned":
            known.apply(
                builders.make_record(builders.snapshot_of(changed_node(unschedulable=True)))
            )
        case "job gone":
            known.apply(builders.make_record(builders.tombstone_of(made)))
        case "not admitted":
            known.plans.admission = admission_configuration.AdmissionConfiguration(
                judges_admissions=True
            )
    outcome, pods = await executed(
        tmp_path,
        known,
        statement,
        command.body if has_pod else None,
        is_admitted=change != "not admitted",
    )
    assert outcome.result == ("executed" if has_pod else "refused")
    # The version may have grown since: the job is not in this cluster, so the garbage collector
    # deletes the pod (it remains until a kubelet has stopped it).
    assert len(pods) == has_pod
    assert all(0 < outcome.created_version <= pod.metadata.version for pod in pods)
    assert has_pod or outcome.created_version == 0
