"""Rules of the trial: what would become of a job, without writing anything."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from stromboli.cli.errors import CommandError
from stromboli.embedded import job_dry_run
from stromboli.shared.api import core, kinds, meta, scheduling_view
from stromboli.shared.api.kinds import Kind
from stromboli.testkit import builders

EVICTING = """
actions: "enqueue, allocate, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: predicates
  - name: nodeorder
"""


def item(kind: Kind[Any], obj: meta.Object) -> bytes:
    """The scheduler's input as served by REST."""
    return msgspec.json.encode(scheduling_view.reduce_manifest(kind, msgspec.json.encode(obj)))


def job(replicas: int, priority: str = "", cpu: str = "1") -> bytes:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    task = {"name": "w", "replicas": replicas, "template": {"spec": {"containers": [container]}}}
    spec = {
        "schedulerName": "volcano",
        "queue": "default",
        "minAvailable": replicas,
        "priorityClassName": priority,
        "tasks": [task],
    }
    return msgspec.json.encode({"metadata": {"name": "a", "namespace": "default"}, "spec": spec})


def cluster(*more: bytes) -> list[bytes]:
    return [
        item(kinds.NODES, builders.make_node("n1", cpu="2")),
        item(kinds.NODES, builders.make_node("n2", cpu="2")),
        item(kinds.QUEUES, builders.make_queue("default")),
        *more,
    ]


def test_a_gang_with_room_would_start_on_these_nodes() -> None:
    verdict = job_dry_run.dry_run_job(cluster(), job(4), None, builders.NOON)
    assert (verdict.starts, verdict.nodes, verdict.pods) == (True, {"n1": 2, "n2": 2}, 4)
    assert (verdict.explained, verdict.evicted) == (None, ())


@pytest.mark.parametrize(
    ("namespace", "used", "said"),
    [
        ("default", "3", ("quota q: pods: needs 2, 3 of 4 are used",)),
        ("default", "2", ()),
        ("other", "4", ()),
    ],
    ids=["full", "with room", "another namespace"],
)
def test_a_quota_that_would_reject_the_pods_is_reported(
    namespace: str, used: str, said: tuple[str, ...]
) -> None:
    """Nodes have room all the same; the API server would refuse the pods."""
    quota = core.ResourceQuota(
        metadata=meta.ObjectMeta(name="q", namespace=namespace),
        spec=core.ResourceQuotaSpec(hard={"pods": "4", "secrets": "1"}),
        status=core.ResourceQuotaStatus(used={"pods": used}),
    )
    verdict = job_dry_run.dry_run_job(
        cluster(item(kinds.RESOURCE_QUOTAS, quota)), job(2), None, builders.NOON
    )
    assert verdict.quotas == said
    assert verdict.starts is not bool(said)


def scope(name: str, operator: str = "Exists", *values: str) -> core.ResourceQuotaSpec:
    one = core.ScopeRequirement(scope_name=name, operator=operator, values=values)
    return core.ResourceQuotaSpec(
        hard={"pods": "4"}, scope_selector=core.ScopeSelector(match_expressions=(one,))
    )


@pytest.mark.parametrize(
    ("spec", "counted"),
    [
        (scope("BestEffort"), False),
        (scope("NotBestEffort"), True),
        (scope("Terminating"), False),
        (scope("NotTerminating"), True),
        (scope("PriorityClass", "In", "high"), True),
        (scope("PriorityClass", "NotIn", "high"), False),
        (core.ResourceQuotaSpec(hard={"pods": "4"}, scopes=("BestEffort",)), False),
    ],
    ids=["best", "not best", "ends", "does not end", "class", "not class", "by scopes"],
)
def test_a_quota_counts_the_pods_of_its_scopes_and_no_others(
    spec: core.ResourceQuotaSpec, *, counted: bool
) -> None:
    quota = core.ResourceQuota(
        metadata=meta.ObjectMeta(name="q", namespace="default"),
        spec=spec,
        status=core.ResourceQuotaStatus(used={"pods": "3"}),
    )
    found = cluster(item(kinds.RESOURCE_QUOTAS, quota))
    verdict = job_dry_run.dry_run_job(found, job(2, "high"), None, builders.NOON)
    assert bool(verdict.quotas) is counted
    assert verdict.starts is not counted


def test_a_gang_without_room_has_the_schedulers_reason() -> None:
    verdict = job_dry_run.dry_run_job(cluster(), job(5), None, builders.NOON)
    assert not verdict.starts
    assert verdict.explained is not None
    (shortage,) = (one for one in verdict.explained.shortages if one.resource == "cpu")
    assert (shortage.needed, shortage.free) == (5000, 4000)


def test_a_job_is_tried_after_pending_jobs() -> None:
    waiting = builders.make_pod_group("first", min_member=9, created=builders.NOON)
    pods = [builders.make_pod(f"first-{index}", "first", cpu="1") for index in range(9)]
    others = [item(kinds.POD_GROUPS, waiting), *(item(kinds.PODS, pod) for pod in pods)]
    verdict = job_dry_run.dry_run_job(cluster(*others), job(5), None, builders.NOON)
    assert verdict.in_front == ("default/first",)


def test_a_job_of_higher_priority_lists_its_victims(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.conf"
    file.write_text(EVICTING)
    victim = builders.make_pod("low-0", "low", node="n1", phase="Running", cpu="2")
    group = builders.make_pod_group("low", min_member=0, phase="Running")
    high = core.PriorityClass(metadata=meta.ObjectMeta(name="high"), value=100)
    others = [
        item(kinds.POD_GROUPS, group),
        item(kinds.PODS, victim),
        item(kinds.PODS, builders.make_pod("low-1", "low", node="n2", phase="Running", cpu="2")),
        item(kinds.PRIORITY_CLASSES, high),
    ]
    verdict = job_dry_run.dry_run_job(
        cluster(*others), job(1, "high", cpu="2"), str(file), builders.NOON
    )
    assert (verdict.starts, len(verdict.evicted)) == (False, 1)
    assert verdict.evicted[0].startswith("default/low-")
    assert verdict.configuration == str(file)


@pytest.mark.parametrize("text", ["actions: [", "tiers: nothing\n"])
def test_an_invalid_configuration_is_reported_with_its_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "scheduler.conf"
    file.write_text(text)
    with pytest.raises(CommandError, match="it is not a valid scheduler configuration") as raised:
        job_dry_run.dry_run_job(cluster(), job(1), str(file), builders.NOON)
    assert raised.value.details[0].startswith(f"{file}:")
    with pytest.raises(CommandError, match="No such file"):
        job_dry_run.dry_run_job(cluster(), job(1), str(tmp_path / "absent"), builders.NOON)
