"""What users see on PodGroups and waiting pods (spec/scheduling.md 9)."""

import msgspec
import pytest

from services.controller.tests.waiting_gangs import (
    MESSAGE,
    explain,
    holds,
    show,
    told_on_pods,
    waiting,
)
from services.controller.tests.world import World
from stromboli.controller.core.pod_groups import missing_groups
from stromboli.controller.core.store.cache import ReconcileKey
from stromboli.shared.api import core, kinds
from stromboli.testkit.builders import make_job, make_pod, make_pod_group, make_task


def pod_condition(pod: core.Pod) -> tuple[str, str, str, str]:
    (found,) = pod.status.conditions
    return found.type, found.status, found.reason, found.message


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
    world = World()
    world.submit(make_pod_group("g1", min_member))
    for number, each in enumerate(phases):
        world.submit(make_pod(f"p{number}", "g1", node="n1", phase=each))
    world.submit(make_pod("unplaced", "g1"))
    world.settle()
    body = world.objects["podgroups", "default/g1"]
    assert body["status"]["phase"] == phase


def test_members_are_counted_on_the_pod_group() -> None:
    world = waiting()
    world.run("j1-worker-0")
    world.run("j1-worker-1", phase="Failed")
    world.settle()
    status = world.group().status
    assert (status.running, status.failed, status.succeeded) == (1, 1, 0)


def test_a_running_gang_that_is_short_of_members_is_unknown() -> None:
    world = waiting()
    world.run("j1-worker-0")
    world.settle()
    assert world.group().status.phase == "Unknown"


def test_a_gang_that_runs_is_not_unknown_because_its_surplus_waits() -> None:
    world = World()
    world.submit(make_job(tasks=[make_task(replicas=2)], min_available=1))
    world.settle()
    world.enqueue(world.group_key())
    world.settle()
    world.run("j1-worker-0")
    explain(world, world.group())
    assert world.group().status.phase == "Running"
    assert holds(world.group())["Scheduled"][0] == "True"


def test_why_a_gang_waits_stands_on_the_group_its_pods_and_in_events() -> None:
    world = waiting()
    expected = ("True", "NotEnoughResources", MESSAGE)
    assert holds(world.group()) == {"Unschedulable": expected}
    told_on_pods(world)
    for pod in world.pods():
        assert pod_condition(pod) == ("PodScheduled", "False", "Unschedulable", MESSAGE)
    assert world.reasons().count("Unschedulable") == 1


def test_a_gang_that_waits_for_a_moment_does_not_say_so_on_its_pods() -> None:
    """It waits while its pods are made: a write for each would meet their binds."""
    world = waiting()
    assert not any(pod.status.conditions for pod in world.pods())
    show(world, world.group(), None)
    world.run()
    told_on_pods(world)
    assert not any(
        condition.type == "PodScheduled"
        for pod in world.pods()
        for condition in pod.status.conditions
    )


def test_a_placed_gang_is_scheduled_and_no_longer_unschedulable() -> None:
    world = waiting()
    show(world, world.group(), None)
    world.run()
    world.settle()
    assert world.group().status.phase == "Running"
    assert {type_: it[0] for type_, it in holds(world.group()).items()} == {
        "Unschedulable": "False",
        "Scheduled": "True",
    }
    assert "Scheduled" in world.reasons()


def test_the_same_explanation_again_costs_nothing() -> None:
    world = waiting()
    before = len(world.done)
    explain(world, world.group())
    assert len(world.done) == before


def test_a_new_text_is_written_at_most_every_five_seconds() -> None:
    world = waiting()
    explain(world, world.group(), "first")
    explain(world, world.group(), "second")
    assert holds(world.group())["Unschedulable"][2] == MESSAGE
    world.wait(5)
    world.settle()
    assert holds(world.group())["Unschedulable"][2] == "second"
    told_on_pods(world)
    assert {pod_condition(pod)[3] for pod in world.pods()} == {"second"}


def test_an_explanation_of_an_earlier_pod_group_says_nothing() -> None:
    world = World()
    world.submit(make_job())
    world.settle()
    stranger = msgspec.structs.replace(
        world.group(),
        metadata=msgspec.structs.replace(world.group().metadata, uid="another"),
    )
    explain(world, stranger)
    assert world.group().status.conditions == ()


def test_a_waiting_job_says_so_before_its_pods_exist() -> None:
    world = World()
    world.submit(make_job())
    world.settle()
    explain(world, world.group())
    assert "PodGroupPending" in world.reasons()


def test_conditions_of_others_on_a_pod_stay() -> None:
    world = World()
    world.submit(make_job())
    world.settle()
    world.enqueue(world.group_key())
    world.settle()
    body = world.objects["pods", "default/j1-worker-0"]
    body.setdefault("status", {})["conditions"] = [{"type": "Mine", "status": "True", "x": 1}]
    world.put(kinds.PODS, body)
    world.settle()
    explain(world, world.group())
    told_on_pods(world)
    conditions = world.objects["pods", "default/j1-worker-0"]["status"]["conditions"]
    assert [it["type"] for it in conditions] == ["Mine", "PodScheduled"]
    assert conditions[0]["x"] == 1


@pytest.mark.parametrize("scheduler", ["default-scheduler", "volcano"])
def test_a_pod_group_of_pods_alone_is_ours_by_their_scheduler(scheduler: str) -> None:
    world = World()
    world.submit(make_pod_group("g1"))
    world.submit(make_pod("p1", "g1", node="n1", phase="Running", scheduler=scheduler))
    world.settle()
    phase = world.objects["podgroups", "default/g1"]["status"]["phase"]
    assert phase == ("Running" if scheduler == "volcano" else "Inqueue")


def test_a_pod_whose_pod_group_is_not_there_says_so_after_a_while() -> None:
    """An operator makes both, in any order; nobody else would say why the pod waits."""
    world = World()
    world.submit(make_pod("driver", "absent", created=world.now))
    world.submit(make_pod("theirs", "absent", scheduler="other", created=world.now))
    world.settle()
    item = ReconcileKey("podgroup", "default/absent")
    assert (world.reasons(), world.due(item)) == ([], world.now + missing_groups.TOLD_AFTER)
    world.wait(30)
    world.restart()
    world.settle()
    (said,) = world.events.values()
    assert (said.name, said.reason) == ("driver", "NoPodGroup")
    assert "PodGroup absent, which is not there" in said.message


def test_a_pod_whose_pod_group_comes_in_time_says_nothing() -> None:
    world = World()
    world.submit(make_pod("driver", "late", created=world.now))
    world.settle()
    world.submit(make_pod_group("late"))
    world.wait(60)
    world.restart()
    world.settle()
    assert "NoPodGroup" not in world.reasons()
