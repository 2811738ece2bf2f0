"""The controller may be killed before any command: the next one leads to the same end."""

from collections.abc import Callable
from typing import Any

import pytest

from services.controller.tests.world import KilledError, World
from stromboli.shared.api import batch
from stromboli.shared.messages import batch as messages
from stromboli.testkit.builders import make_command, make_job, make_task

Stage = Callable[[World], None]


def submit(world: World) -> None:
    policies = [batch.LifecyclePolicy(event="PodFailed", action="RestartJob")]
    world.submit(
        make_job(
            tasks=[make_task("ps", 1), make_task("worker", 2)],
            plugins={"svc": (), "env": ()},
            policies=policies,
            ttl_seconds_after_finished=60,
        )
    )


def enqueue(world: World) -> None:
    world.enqueue(world.group_key())


def run_all(world: World) -> None:
    world.run()


def fail_one(world: World) -> None:
    world.change_pod("default/j1-ps-0", "Failed", exit_code=1)


def reap(world: World) -> None:
    for pod in world.pods():
        if pod.metadata.deletion_timestamp is not None:
            world.reap(pod.metadata.key)


def abort(world: World) -> None:
    world.submit(make_command("c1", "AbortJob", world.job()))


def resume(world: World) -> None:
    world.submit(make_command("c2", "ResumeJob", world.job()))


def scale(world: World) -> None:
    world.scale("default/j1", 1, 3)


def succeed(world: World) -> None:
    world.run(phase="Succeeded")


def expire(world: World) -> None:
    world.wait(61)


STORY: tuple[Stage, ...] = (
    submit,
    enqueue,
    run_all,
    fail_one,
    reap,
    enqueue,
    run_all,
    abort,
    reap,
    resume,
    enqueue,
    scale,
    run_all,
    succeed,
    expire,
    reap,
)


def play(kill_at: dict[int, int]) -> World:
    """The whole story; ``kill_at``: stage -> commands it gets to before the controller dies."""
    world = World()
    for number, stage in enumerate(STORY):
        stage(world)
        world.see()
        world.commands_left = kill_at.get(number)
        try:
            world.settle()
        except KilledError:
            world.restart()
            world.wait(0)
            world.settle()
        world.commands_left = None
    return world


def result(world: World) -> dict[str, Any]:
    """What must not depend on kills: objects, what was told, Events."""
    objects = {at: strip(body) for at, body in world.objects.items()}
    told = [
        (type(it).__name__, getattr(it, "after", ""), getattr(it, "retry_count", 0))
        for _, it in world.told
        if not isinstance(it, messages.CommandTaken | messages.TaskChanged)
    ]
    tasks = {
        (it.pod, it.after, it.retry_count)
        for _, it in world.told
        if isinstance(it, messages.TaskChanged)
    }
    return {"objects": objects, "told": told, "tasks": tasks, "events": set(world.reasons())}


def strip(value: Any) -> Any:
    """Without what differs from run to run: uids and versions, also inside names."""
    if isinstance(value, dict):
        return {
            key: strip(it) for key, it in value.items() if key not in ("uid", "resourceVersion")
        }
    return [strip(it) for it in value] if isinstance(value, list) else value


def test_the_story_ends_as_it_should() -> None:
    world = play({})
    assert {kind for kind, _ in world.objects} == {"queues"}, "it expired, with all its own"
    assert world.phases_told() == [
        *("Pending", "Running", "Restarting", "Pending", "Running"),
        *("Aborting", "Aborted", "Restarting", "Pending", "Running", "Completed"),
    ]


STAGES = {number: stage.__name__ for number, stage in enumerate(STORY)}


@pytest.mark.parametrize("stage", STAGES, ids=lambda number: f"{number}-{STAGES[number]}")
def test_a_kill_before_any_command_changes_nothing_in_the_end(stage: int) -> None:
    expected = result(play({}))
    for commands_before in range(_commands_of(stage)):
        world = play({stage: commands_before})
        assert result(world) == expected, (STAGES[stage], commands_before)


def _commands_of(stage: int) -> int:
    world = World()
    for each in STORY[:stage]:
        each(world)
        world.settle()
    before = len(world.done)
    STORY[stage](world)
    world.settle()
    return len(world.done) - before


def test_two_kills_in_a_row_change_nothing_in_the_end() -> None:
    expected = result(play({}))
    for first in range(0, 12, 3):
        kills = dict.fromkeys(range(len(STORY)), first)
        assert result(play(kills)) == expected


def test_a_late_picture_makes_no_pod_twice() -> None:
    """Pods that the topics have not shown yet are known from our own writes, or by their names."""
    world = World()
    submit(world)
    world.settle()
    enqueue(world)
    world.see()
    world.commands_left = 2
    with pytest.raises(KilledError):
        world.settle()
    made = {pod.metadata.uid for pod in world.pods()}
    world.restart(without="cluster.pods")
    world.settle()
    assert made <= {pod.metadata.uid for pod in world.pods()}
    assert len(world.pods()) == 3
