"""Conditions and Events of a PodGroup: their content, their time, and those of other writers."""

from datetime import timedelta

import pytest

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.pending_gangs import (
    explain,
    explained,
    holds,
    reported_on_pods,
    show,
    waiting,
)
from stromboli.controller.core import commands
from stromboli.controller.core.store.controller_cache import ReconcileKey
from stromboli.shared import topics
from stromboli.shared.api import kinds
from stromboli.testkit.builders import NOON, make_job, make_pod, make_pod_group, make_task

G1 = "default/g1"


def item(harness: CoreHarness) -> ReconcileKey:
    return ReconcileKey("podgroup", harness.group_key())


def sent(harness: CoreHarness, reason: str) -> int:
    """How often an Event of this reason was recorded."""
    return sum(isinstance(it, commands.RecordEvent) and it.reason == reason for it in harness.done)


def running(replicas: int = 3) -> CoreHarness:
    """A gang of one with more pods, of which the first runs."""
    harness = CoreHarness()
    harness.submit(make_job(tasks=[make_task(replicas=replicas)], min_available=1))
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    harness.run("j1-worker-0")
    harness.settle()
    return harness


def test_a_text_that_is_held_back_is_written_when_its_time_has_come() -> None:
    harness = waiting()
    harness.wait(2)
    explain(harness, harness.group(), "another")
    assert harness.due(item(harness)) == NOON + timedelta(seconds=5)
    harness.wait(3)
    harness.settle()
    reported_on_pods(harness)
    assert harness.due(item(harness)) is None


def test_only_pods_that_wait_for_a_place_report_the_reason() -> None:
    harness = CoreHarness()
    harness.submit(make_pod_group("g1", 9))
    for pod in (
        make_pod("waits", "g1"),
        make_pod("gated", "g1", gates=["theirs"]),
        make_pod("placed", "g1", node="n1"),
        make_pod("runs", "g1", node="n1", phase="Running"),
        make_pod("ended", "g1", phase="Failed"),
        make_pod("going", "g1", deleting=NOON),
    ):
        harness.submit(pod)
    harness.settle()
    explain(harness, harness.get(kinds.POD_GROUPS, G1))
    reported_on_pods(harness)
    assert [it.metadata.name for it in harness.pods() if it.status.conditions] == ["waits"]


def test_pods_that_have_said_why_say_it_once() -> None:
    harness = waiting()
    reported_on_pods(harness)
    assert not harness.step(item(harness))


def test_too_few_tasks_and_too_little_room_have_different_reasons() -> None:
    harness = waiting()
    harness.wait(5)
    show(harness, harness.group(), explained(harness.group(), "no such gang", tier="invalid"))
    assert holds(harness.group())["Unschedulable"] == ("True", "NotEnoughTasks", "no such gang")


def test_a_terminating_pod_is_not_running_and_an_ended_one_keeps_its_place() -> None:
    harness = running(2)
    harness.run("j1-worker-1")
    harness.settle()
    harness.delete(kinds.PODS, "default/j1-worker-1")
    harness.settle()
    assert harness.group().status.running == 1
    harness = CoreHarness()
    harness.submit(make_pod_group("g1", 1))
    harness.submit(make_pod("p1", "g1", phase="Succeeded"))
    harness.settle()
    assert harness.objects["podgroups", G1]["status"]["phase"] == "Completed"


def test_a_status_from_old_records_does_not_take_back_that_a_gang_was_enqueued() -> None:
    harness = CoreHarness()
    harness.submit(make_job())
    harness.settle()
    show(harness, harness.group(), explained(harness.group()), is_settled=False)
    harness.see(topics.EXPLANATIONS.name)
    harness.enqueue(harness.group_key())
    harness.step(item(harness))
    assert harness.group().status.phase == "Inqueue"


def test_counts_alone_may_wait_and_phases_may_not() -> None:
    harness = CoreHarness()
    harness.submit(make_pod_group("g1", 1))
    for name in ("p1", "p2"):
        harness.submit(make_pod(name, "g1"))
    harness.run("p1")
    harness.settle()
    harness.counts_wait = True
    harness.run("p2")
    harness.settle()
    assert harness.get(kinds.POD_GROUPS, G1).status.running == 1
    harness.run(phase="Succeeded")
    harness.settle()
    status = harness.get(kinds.POD_GROUPS, G1).status
    assert (status.phase, status.succeeded) == ("Completed", 2)


def test_each_turn_of_a_gang_is_reported_once() -> None:
    harness = waiting()
    harness.change_pod("default/j1-worker-0", node="n1")
    harness.settle()
    harness.change_pod("default/j1-worker-0", "Failed")
    harness.settle()
    assert sent(harness, "Unschedulable") == 1
    assert sent(harness, "PodGroupPending") == 0, "it is let in"
    show(harness, harness.group(), None)
    for phase in ("Running", "Succeeded"):
        harness.run(phase=phase)
        harness.settle()
    assert sent(harness, "Scheduled") == 1


def test_conditions_of_others_on_a_pod_group_stay_as_they_are() -> None:
    harness = waiting()
    body = harness.objects["podgroups", harness.group_key()]
    body["status"]["conditions"].append({"type": "Mine", "status": "True"})
    harness.put(kinds.POD_GROUPS, body)
    harness.settle()
    show(harness, harness.group(), None)
    harness.run()
    harness.settle()
    assert {kind: it[0] for kind, it in holds(harness.group()).items()} == {
        "Mine": "True",
        "Unschedulable": "False",
        "Scheduled": "True",
    }


@pytest.mark.parametrize(("scheduler", "phase"), [("volcano", "Running"), ("other", "Inqueue")])
def test_a_jobs_pod_group_is_whose_the_job_is_whatever_its_pods_name(
    scheduler: str, phase: str
) -> None:
    harness = CoreHarness()
    harness.submit(make_job(scheduler=scheduler))
    harness.submit(make_pod_group("g1", owner=harness.job()))
    harness.submit(make_pod("p1", "g1", node="n1", phase="Running"))
    harness.settle()
    assert harness.objects["podgroups", G1]["status"]["phase"] == phase
