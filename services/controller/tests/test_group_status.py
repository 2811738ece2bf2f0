"""The status of PodGroups and the conditions of pending pods."""

import msgspec
import pytest

from services.controller.tests.support.core_harness import CoreHarness, RefusedError
from services.controller.tests.support.pending_gangs import (
    MESSAGE,
    explain,
    explained,
    holds,
    reported_on_pods,
    show,
    waiting,
)
from stromboli.controller.core.pod_groups import missing_groups
from stromboli.controller.core.store.controller_cache import ReconcileKey
from stromboli.shared.api import core, kinds
from stromboli.testkit.builders import make_job, make_pod, make_pod_group, make_task


def pod_condition(pod: core.Pod) -> tuple[str, str, str, str]:
    (condition,) = pod.status.conditions
    return condition.type, condition.status, condition.reason, condition.message


@pytest.mark.parametrize(
    ("phases", "min_member", "phase"),
    [
        ([], 2, "Inqueue"),
        (["Pending", "Running"], 2, "Running"),
        (["Running"], 2, "Inqueue"),
        (["Succeeded", "Running"], 2, "Running"),
        (["Succeeded", "Failed"], 2, "Completed"),
        (["Succeeded"], 2, "Inqueue"),
    ],
)
def test_the_phase_follows_the_members(phases: list[str], min_member: int, phase: str) -> None:
    harness = CoreHarness()
    harness.submit(make_pod_group("g1", min_member))
    for number, each in enumerate(phases):
        harness.submit(make_pod(f"p{number}", "g1", node="n1", phase=each))
    harness.submit(make_pod("unplaced", "g1"))
    harness.settle()
    body = harness.objects["podgroups", "default/g1"]
    assert body["status"]["phase"] == phase


def test_members_are_counted_on_the_pod_group() -> None:
    harness = waiting()
    harness.run("j1-worker-0")
    harness.run("j1-worker-1", phase="Failed")
    harness.settle()
    status = harness.group().status
    assert (status.running, status.failed, status.succeeded) == (1, 1, 0)


def test_a_running_gang_that_is_short_of_members_is_unknown() -> None:
    harness = waiting()
    harness.run("j1-worker-0")
    harness.settle()
    assert harness.group().status.phase == "Unknown"


def test_a_gang_that_runs_is_not_unknown_because_its_surplus_waits() -> None:
    harness = CoreHarness()
    harness.submit(make_job(tasks=[make_task(replicas=2)], min_available=1))
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    harness.run("j1-worker-0")
    explain(harness, harness.group())
    assert harness.group().status.phase == "Running"
    assert holds(harness.group())["Scheduled"][0] == "True"


def test_why_a_gang_waits_is_on_the_group_its_pods_and_in_events() -> None:
    harness = waiting()
    expected = ("True", "NotEnoughResources", MESSAGE)
    assert holds(harness.group()) == {"Unschedulable": expected}
    reported_on_pods(harness)
    for pod in harness.pods():
        assert pod_condition(pod) == ("PodScheduled", "False", "Unschedulable", MESSAGE)
    assert harness.reasons().count("Unschedulable") == 1


def test_a_briefly_pending_gang_sets_no_condition_on_its_pods() -> None:
    """It waits while its pods are made: a write for each would meet their binds."""
    harness = waiting()
    assert not any(pod.status.conditions for pod in harness.pods())
    show(harness, harness.group(), None)
    harness.run()
    reported_on_pods(harness)
    assert not any(
        condition.type == "PodScheduled"
        for pod in harness.pods()
        for condition in pod.status.conditions
    )


def test_a_placed_gang_is_scheduled_and_no_longer_unschedulable() -> None:
    harness = waiting()
    show(harness, harness.group(), None)
    harness.run()
    harness.settle()
    assert harness.group().status.phase == "Running"
    assert {type_: it[0] for type_, it in holds(harness.group()).items()} == {
        "Unschedulable": "False",
        "Scheduled": "True",
    }
    assert "Scheduled" in harness.reasons()


def test_the_same_explanation_again_costs_nothing() -> None:
    harness = waiting()
    before = len(harness.done)
    explain(harness, harness.group())
    assert len(harness.done) == before


def test_a_new_text_is_written_at_most_every_five_seconds() -> None:
    harness = waiting()
    explain(harness, harness.group(), "first")
    explain(harness, harness.group(), "second")
    assert holds(harness.group())["Unschedulable"][2] == MESSAGE
    harness.wait(5)
    harness.settle()
    assert holds(harness.group())["Unschedulable"][2] == "second"
    reported_on_pods(harness)
    assert {pod_condition(pod)[3] for pod in harness.pods()} == {"second"}


def test_an_explanation_of_an_earlier_pod_group_reports_nothing() -> None:
    harness = CoreHarness()
    harness.submit(make_job())
    harness.settle()
    stranger = msgspec.structs.replace(
        harness.group(),
        metadata=msgspec.structs.replace(harness.group().metadata, uid="another"),
    )
    explain(harness, stranger)
    assert harness.group().status.conditions == ()


def test_a_pending_job_is_explained_before_its_pods_exist() -> None:
    harness = CoreHarness()
    harness.submit(make_job())
    harness.settle()
    explain(harness, harness.group())
    assert "PodGroupPending" in harness.reasons()


def test_conditions_of_others_on_a_pod_stay() -> None:
    harness = CoreHarness()
    harness.submit(make_job())
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    body = harness.objects["pods", "default/j1-worker-0"]
    body.setdefault("status", {})["conditions"] = [{"type": "Mine", "status": "True", "x": 1}]
    harness.put(kinds.PODS, body)
    harness.settle()
    explain(harness, harness.group())
    reported_on_pods(harness)
    conditions = harness.objects["pods", "default/j1-worker-0"]["status"]["conditions"]
    assert [it["type"] for it in conditions] == ["Mine", "PodScheduled"]
    assert conditions[0]["x"] == 1


def test_a_pod_that_was_bound_meanwhile_is_not_marked_as_unschedulable() -> None:
    """The API server sets the condition with the binding, before any topic shows it."""
    harness = waiting()
    reported_on_pods(harness)
    harness.wait(5)
    group, key = harness.group(), ReconcileKey("podgroup", harness.group_key())
    show(harness, group, explained(group, "second"), is_settled=False)
    harness.see()
    plan = harness.plan(key)
    bound = {"type": "PodScheduled", "status": "True"}
    harness.change_pod("default/j1-worker-0", node="n1", conditions=[bound])
    mark = next(it for stage in plan for it in stage if "worker-0" in getattr(it, "name", ""))
    with pytest.raises(RefusedError):
        harness.do(mark)


@pytest.mark.parametrize("scheduler", ["default-scheduler", "volcano"])
def test_a_pod_group_of_pods_alone_is_ours_by_their_scheduler(scheduler: str) -> None:
    harness = CoreHarness()
    harness.submit(make_pod_group("g1"))
    harness.submit(make_pod("p1", "g1", node="n1", phase="Running", scheduler=scheduler))
    harness.settle()
    phase = harness.objects["podgroups", "default/g1"]["status"]["phase"]
    assert phase == ("Running" if scheduler == "volcano" else "Inqueue")


def test_a_pod_without_its_pod_group_gets_an_event_after_a_while() -> None:
    """An operator creates both, in any order; nothing else shows why the pod is pending."""
    harness = CoreHarness()
    harness.submit(make_pod("driver", "absent", created=harness.now))
    harness.submit(make_pod("theirs", "absent", scheduler="other", created=harness.now))
    harness.settle()
    item = ReconcileKey("podgroup", "default/absent")
    assert (harness.reasons(), harness.due(item)) == ([], harness.now + missing_groups.WARNED_AFTER)
    harness.wait(30)
    harness.restart()
    harness.settle()
    (event,) = harness.events.values()
    assert (event.name, event.reason) == ("driver", "NoPodGroup")
    assert "PodGroup absent, which does not exist" in event.message


def test_a_pod_whose_pod_group_comes_in_time_reports_nothing() -> None:
    harness = CoreHarness()
    harness.submit(make_pod("driver", "late", created=harness.now))
    harness.settle()
    harness.submit(make_pod_group("late"))
    harness.wait(60)
    harness.restart()
    harness.settle()
    assert "NoPodGroup" not in harness.reasons()
