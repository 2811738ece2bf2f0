"""What a PodGroup says to whom, when, and what it leaves to others (spec/scheduling.md 9)."""

from datetime import timedelta

import pytest

from services.controller.tests.waiting_gangs import (
    explain,
    explained,
    holds,
    show,
    told_on_pods,
    waiting,
)
from services.controller.tests.world import World
from stromboli.controller.core import commands
from stromboli.controller.core.store.cache import ReconcileKey
from stromboli.shared import topics
from stromboli.shared.api import kinds
from stromboli.testkit.builders import NOON, make_job, make_pod, make_pod_group, make_task

G1 = "default/g1"


def item(world: World) -> ReconcileKey:
    return ReconcileKey("podgroup", world.group_key())


def told(world: World, reason: str) -> int:
    """How often an Event of this reason was recorded."""
    return sum(isinstance(it, commands.RecordEvent) and it.reason == reason for it in world.done)


def running(replicas: int = 3) -> World:
    """A gang of one with more pods, of which the first runs."""
    world = World()
    world.submit(make_job(tasks=[make_task(replicas=replicas)], min_available=1))
    world.settle()
    world.enqueue(world.group_key())
    world.settle()
    world.run("j1-worker-0")
    world.settle()
    return world


def test_a_text_that_is_held_back_is_written_when_its_time_has_come() -> None:
    world = waiting()
    world.wait(2)
    explain(world, world.group(), "another")
    assert world.due(item(world)) == NOON + timedelta(seconds=5)
    world.wait(3)
    world.settle()
    told_on_pods(world)
    assert world.due(item(world)) is None


def test_only_pods_that_wait_for_a_place_say_why() -> None:
    world = World()
    world.submit(make_pod_group("g1", 9))
    for pod in (
        make_pod("waits", "g1"),
        make_pod("gated", "g1", gates=["theirs"]),
        make_pod("placed", "g1", node="n1"),
        make_pod("runs", "g1", node="n1", phase="Running"),
        make_pod("ended", "g1", phase="Failed"),
        make_pod("going", "g1", deleting=NOON),
    ):
        world.submit(pod)
    world.settle()
    explain(world, world.get(kinds.POD_GROUPS, G1))
    told_on_pods(world)
    assert [it.metadata.name for it in world.pods() if it.status.conditions] == ["waits"]


def test_pods_that_have_said_why_say_it_once() -> None:
    world = waiting()
    told_on_pods(world)
    assert not world.step(item(world))


def test_a_gang_without_enough_tasks_says_so_and_one_without_room_says_that() -> None:
    world = waiting()
    world.wait(5)
    show(world, world.group(), explained(world.group(), "no such gang", tier="invalid"))
    assert holds(world.group())["Unschedulable"] == ("True", "NotEnoughTasks", "no such gang")


def test_a_pod_that_is_going_runs_no_more_and_one_that_ended_keeps_its_place() -> None:
    world = running(2)
    world.run("j1-worker-1")
    world.settle()
    world.delete(kinds.PODS, "default/j1-worker-1")
    world.settle()
    assert world.group().status.running == 1
    world = World()
    world.submit(make_pod_group("g1", 1))
    world.submit(make_pod("p1", "g1", phase="Succeeded"))
    world.settle()
    assert world.objects["podgroups", G1]["status"]["phase"] == "Completed"


def test_a_status_from_old_news_does_not_take_back_that_a_gang_was_let_in() -> None:
    world = World()
    world.submit(make_job())
    world.settle()
    show(world, world.group(), explained(world.group()), is_settled=False)
    world.see(topics.EXPLANATIONS.name)
    world.enqueue(world.group_key())
    world.step(item(world))
    assert world.group().status.phase == "Inqueue"


def test_counts_alone_may_wait_and_phases_may_not() -> None:
    world = World()
    world.submit(make_pod_group("g1", 1))
    for name in ("p1", "p2"):
        world.submit(make_pod(name, "g1"))
    world.run("p1")
    world.settle()
    world.counts_wait = True
    world.run("p2")
    world.settle()
    assert world.get(kinds.POD_GROUPS, G1).status.running == 1
    world.run(phase="Succeeded")
    world.settle()
    status = world.get(kinds.POD_GROUPS, G1).status
    assert (status.phase, status.succeeded) == ("Completed", 2)


def test_each_turn_of_a_gang_is_told_once() -> None:
    world = waiting()
    world.change_pod("default/j1-worker-0", node="n1")
    world.settle()
    world.change_pod("default/j1-worker-0", "Failed")
    world.settle()
    assert told(world, "Unschedulable") == 1
    assert told(world, "PodGroupPending") == 0, "it is let in"
    show(world, world.group(), None)
    for phase in ("Running", "Succeeded"):
        world.run(phase=phase)
        world.settle()
    assert told(world, "Scheduled") == 1


def test_conditions_of_others_on_a_pod_group_stay_as_they_are() -> None:
    world = waiting()
    body = world.objects["podgroups", world.group_key()]
    body["status"]["conditions"].append({"type": "Mine", "status": "True"})
    world.put(kinds.POD_GROUPS, body)
    world.settle()
    show(world, world.group(), None)
    world.run()
    world.settle()
    assert {kind: it[0] for kind, it in holds(world.group()).items()} == {
        "Mine": "True",
        "Unschedulable": "False",
        "Scheduled": "True",
    }


@pytest.mark.parametrize(("scheduler", "phase"), [("volcano", "Running"), ("other", "Inqueue")])
def test_a_jobs_pod_group_is_whose_the_job_is_whatever_its_pods_name(
    scheduler: str, phase: str
) -> None:
    world = World()
    world.submit(make_job(scheduler=scheduler))
    world.submit(make_pod_group("g1", owner=world.job()))
    world.submit(make_pod("p1", "g1", node="n1", phase="Running"))
    world.settle()
    assert world.objects["podgroups", G1]["status"]["phase"] == phase
