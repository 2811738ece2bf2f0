"""The controller may be killed before any command: the next one leads to the same end."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from services.controller.tests.support.core_harness import CoreHarness, KilledError
from stromboli.shared.api import batch
from stromboli.shared.messages import batch as messages
from stromboli.testkit.builders import make_command, make_job, make_task

Stage = Callable[[CoreHarness], None]


def submit(harness: CoreHarness) -> None:
    policies = [batch.LifecyclePolicy(event="PodFailed", action="RestartJob")]
    harness.submit(
        make_job(
            tasks=[make_task("ps", 1), make_task("worker", 2)],
            plugins={"svc": (), "env": ()},
            policies=policies,
            ttl_seconds_after_finished=60,
        )
    )


def enqueue(harness: CoreHarness) -> None:
    harness.enqueue(harness.group_key())


def run_all(harness: CoreHarness) -> None:
    harness.run()


def fail_one(harness: CoreHarness) -> None:
    harness.change_pod("default/j1-ps-0", "Failed", exit_code=1)


def reap(harness: CoreHarness) -> None:
    for pod in harness.pods():
        if pod.metadata.deletion_timestamp is not None:
            harness.reap(pod.metadata.key)


def abort(harness: CoreHarness) -> None:
    harness.submit(make_command("c1", "AbortJob", harness.job()))


def resume(harness: CoreHarness) -> None:
    harness.submit(make_command("c2", "ResumeJob", harness.job()))


def scale(harness: CoreHarness) -> None:
    harness.scale("default/j1", 1, 3)


def succeed(harness: CoreHarness) -> None:
    harness.run(phase="Succeeded")


def expire(harness: CoreHarness) -> None:
    harness.wait(61)


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


def play(kill_at: dict[int, int]) -> CoreHarness:
    """The whole scenario; ``kill_at``: stage -> number of commands before the
    controller is killed.
    """
    harness = CoreHarness()
    for number, stage in enumerate(STORY):
        stage(harness)
        harness.see()
        harness.commands_left = kill_at.get(number)
        try:
            harness.settle()
        except KilledError:
            harness.restart()
            harness.wait(0)
            harness.settle()
        harness.commands_left = None
    return harness


def result(harness: CoreHarness) -> dict[str, Any]:
    """What must not depend on crashes: objects, published events, Kubernetes Events."""
    objects = {at: strip(body) for at, body in harness.objects.items()}
    sent = [
        (type(it).__name__, getattr(it, "after", ""), getattr(it, "retry_count", 0))
        for _, it in harness.sent
        if not isinstance(it, messages.CommandAccepted | messages.TaskChanged)
    ]
    tasks = {
        (it.pod, it.after, it.retry_count)
        for _, it in harness.sent
        if isinstance(it, messages.TaskChanged)
    }
    return {"objects": objects, "sent": sent, "tasks": tasks, "events": set(harness.reasons())}


@functools.cache
def undisturbed_result() -> dict[str, Any]:
    """The result without a kill."""
    return result(play({}))


def strip(value: Any) -> Any:
    """Without what differs from run to run: uids and versions, also inside names."""
    if isinstance(value, dict):
        return {
            key: strip(it) for key, it in value.items() if key not in ("uid", "resourceVersion")
        }
    return [strip(it) for it in value] if isinstance(value, list) else value


def test_the_story_ends_as_it_should() -> None:
    harness = play({})
    assert {kind for kind, _ in harness.objects} == {"queues"}, "it expired, with all its own"
    assert harness.phases_seen() == [
        *("Pending", "Running", "Restarting", "Pending", "Running"),
        *("Aborting", "Aborted", "Restarting", "Pending", "Running", "Completed"),
    ]


STAGES = {number: stage.__name__ for number, stage in enumerate(STORY)}


@pytest.mark.parametrize("stage", STAGES, ids=lambda number: f"{number}-{STAGES[number]}")
def test_a_kill_before_any_command_changes_nothing_in_the_end(stage: int) -> None:
    expected = undisturbed_result()
    for commands_before in range(_commands_of(stage)):
        harness = play({stage: commands_before})
        assert result(harness) == expected, (STAGES[stage], commands_before)


def _commands_of(stage: int) -> int:
    harness = CoreHarness()
    for each in STORY[:stage]:
        each(harness)
        harness.settle()
    before = len(harness.done)
    STORY[stage](harness)
    harness.settle()
    return len(harness.done) - before


def test_two_kills_in_a_row_change_nothing_in_the_end() -> None:
    expected = undisturbed_result()
    for first in range(0, 12, 3):
        kills = dict.fromkeys(range(len(STORY)), first)
        assert result(play(kills)) == expected


def test_a_late_cache_creates_no_pod_twice() -> None:
    """Pods that the topics do not contain yet are known from the controller's own writes, or by
    their names.
    """
    harness = CoreHarness()
    submit(harness)
    harness.settle()
    enqueue(harness)
    harness.see()
    harness.commands_left = 2
    with pytest.raises(KilledError):
        harness.settle()
    made = {pod.metadata.uid for pod in harness.pods()}
    harness.restart(without="cluster.pods")
    harness.settle()
    assert made <= {pod.metadata.uid for pod in harness.pods()}
    assert len(harness.pods()) == 3
