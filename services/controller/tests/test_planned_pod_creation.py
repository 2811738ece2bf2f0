"""The execution of planned binds: pods that a decision published again may have created."""

import asyncio
from pathlib import Path

import pytest

from services.controller.tests.support.service_harness import no_key
from services.controller.tests.test_planned_pods import DECISION, changed_node, decided, started
from stromboli.controller.core.decisions import planned_binds
from stromboli.controller.core.store import (
    admission_configuration,
    batch_state,
    controller_cache,
)
from stromboli.controller.execution.command_executor import AddKey, CommandExecutor
from stromboli.controller.execution.event_recorder import EventRecorder
from stromboli.controller.execution.inflight_permits import Retrier
from stromboli.controller.execution.pod_creation import Entry, PodCreation
from stromboli.controller.execution.request_limiter import RequestLimiter
from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared.api import core, kinds
from stromboli.shared.cluster import port
from stromboli.shared.messages import scheduling
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders


class RecordingCluster(EmbeddedCluster):
    """Notes each create in ``sent`` before it is executed."""

    def __init__(self, path: Path, sent: list[str]) -> None:
        super().__init__(path)
        self._sent = sent

    async def create(
        self, kind: port.AnyKind, namespace: str, body: bytes, *, dry_run: bool = False
    ) -> bytes:
        """See ``Cluster.create``."""
        self._sent.append(f"create the {kind.kind}")
        return await super().create(kind, namespace, body, dry_run=dry_run)


async def executed(
    tmp_path: Path,
    known: controller_cache.ControllerCache,
    statement: scheduling.StatementDecided,
    existing: bytes | None,
    *,
    is_admitted: bool,
    requests: list[str] | None = None,
    add_key: AddKey = no_key,
) -> tuple[scheduling.TaskOutcome, list[core.Pod]]:
    """The outcome of the statement's bind, and all pods afterwards. ``requests``: gets the requests
    in the order in which they are sent."""
    sent = [] if requests is None else requests

    async def enter() -> tuple[scheduling.Result, int]:
        sent.append("admit the PodGroup")
        return ("executed", 1) if is_admitted else ("refused", 0)

    entries: list[Entry] = []

    def admit() -> Entry | None:
        entries[:] = entries or [asyncio.ensure_future(enter())]
        return entries[0]

    async with (
        EmbeddedBus(tmp_path / "log.db") as bus,
        RecordingCluster(tmp_path / "cluster.db", sent) as cluster,
    ):
        if existing is not None:
            await cluster.create(kinds.PODS, "default", existing)
            sent.clear()
        limiter = RequestLimiter(8)
        events = EventRecorder(cluster, limiter, 0)
        executor = CommandExecutor(
            known,
            cluster,
            await bus.open_writer("controller", "test"),
            batch_state.BatchState(known.published),
            limiter,
            add_key,
            runtime.utc_now,
            events,
        )
        creation = PodCreation(known, executor, Retrier(), events, no_key, runtime.utc_now)
        (outcome,) = await creation.create_all(statement, DECISION, "default/j1", admit)
        await entries[0]
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
    job = planned_binds.job_of(known, statement)
    assert job is not None
    command = planned_binds.creation(known, job, statement.binds[0], DECISION)
    match change:
        case "plan withdrawn":
            known.plans.put(plan.pod_group, None)
        case "node cordoned":
            known.apply(
                builders.make_record(builders.snapshot_of(changed_node(unschedulable=True)))
            )
        case "job gone":
            known.apply(builders.make_record(builders.tombstone_of(job)))
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


@pytest.mark.parametrize(
    ("judges_admissions", "order"),
    [
        (False, ["create the Pod", "admit the PodGroup"]),
        (True, ["admit the PodGroup", "create the Pod"]),
    ],
    ids=["nothing judges the admission", "a webhook judges the admission"],
)
async def test_the_first_pod_is_requested_before_the_admission_of_its_pod_group(
    tmp_path: Path, *, judges_admissions: bool, order: list[str]
) -> None:
    """Both writes take the same resources of the API server, and the pod is the one that the user
    waits for. An admission that may be rejected has to come first."""
    known, plan = started()
    known.plans.admission = admission_configuration.AdmissionConfiguration(
        judges_admissions=judges_admissions
    )
    requests: list[str] = []
    outcome, _ = await executed(
        tmp_path, known, decided(plan), None, is_admitted=True, requests=requests
    )
    assert outcome.result == "executed"
    assert requests == order


async def test_a_created_pod_adds_its_job_as_a_change_of_a_pod_does(tmp_path: Path) -> None:
    """Reconciles after each of the hundred pods of a gang would publish their events one by one."""
    known, plan = started()
    added: set[tuple[str, bool]] = set()

    def add_key(
        item: controller_cache.ReconcileKey, cause: str, *, is_pod_change: bool = False
    ) -> None:
        added.add((item.kind, is_pod_change))

    await executed(tmp_path, known, decided(plan), None, is_admitted=True, add_key=add_key)
    assert ("job", True) in added
    assert ("job", False) not in added
