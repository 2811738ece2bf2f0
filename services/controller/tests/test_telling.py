"""What a job says of itself: why it is in its phase, and what made each of its pods go."""

import re
from collections.abc import Callable, Sequence

import msgspec
import pytest

from services.controller.tests.scenes import (
    J,
    fail,
    finish,
    go_on,
    reap_all,
    restarted,
    running,
    submitted,
)
from services.controller.tests.world import KilledError, RefusedError, World
from stromboli.controller.core import commands, manifest
from stromboli.controller.core.store.cache import ReconcileKey
from stromboli.shared.api import batch, kinds
from stromboli.shared.messages import batch as messages
from stromboli.testkit.builders import NOON, make_command, make_job, make_task


@pytest.mark.parametrize(
    ("job", "ends", "why"),
    [
        (
            make_job(tasks=[make_task(replicas=2)]),
            ["Succeeded", "Failed"],
            "1 of 2 needed pods succeeded; j1-worker-1 failed",
        ),
        (
            make_job(tasks=[make_task(replicas=2)], min_available=1, min_success=2),
            ["Failed", "Succeeded"],
            "1 of 2 needed pods succeeded; j1-worker-0 failed",
        ),
        (
            make_job(tasks=[make_task("a", 2, min_available=1)], min_available=1),
            ["Failed", "Failed"],
            "0 of 1 needed pods of task a succeeded; j1-a-0 failed",
        ),
    ],
    ids=["minAvailable", "minSuccess", "a task's own"],
)
def test_a_failed_job_says_how_far_it_came(job: batch.Job, ends: Sequence[str], why: str) -> None:
    world = running(job)
    finish(world, *ends)
    assert (world.phase(), world.job().status.state.message) == ("Failed", why)
    said = next(it for it in world.events.values() if it.reason == "Failed")
    assert (said.type, why in said.message) == ("Warning", True)
    last = [it for _, it in world.told if isinstance(it, messages.JobPhaseChanged)][-1]
    assert last.message == why


def test_every_phase_that_a_policy_led_to_says_which_pod_was_behind_it() -> None:
    world = running(
        make_job(
            tasks=[make_task(replicas=3)],
            policies=[batch.LifecyclePolicy(event="OOMKilled", action="AbortJob")],
        )
    )
    for name in ("j1-worker-0", "j1-worker-2"):
        world.change_pod(f"default/{name}", "Failed", exit_code=137, end="OOMKilled")
    world.settle()
    why = "PodFailed of j1-worker-0, OOMKilled, exit code 137 and 1 more"
    assert world.job().status.state.message == why
    reap_all(world)
    assert world.job().status.state.message == f"AbortJob: {why}"


def test_events_of_one_second_are_told_apart_in_time() -> None:
    said = next(iter(submitted(make_job()).events.values()))
    exact = said.at.replace(microsecond=123456)
    body = msgspec.json.decode(manifest.event_body(msgspec.structs.replace(said, at=exact)))
    assert body["eventTime"] == "2026-01-01T12:00:00.123456Z"
    assert body["lastTimestamp"] == "2026-01-01T12:00:00Z"
    assert all(body[it] for it in ("action", "reportingComponent", "reportingInstance"))


def test_a_long_text_of_many_bytes_fits_into_an_event() -> None:
    said = next(iter(submitted(make_job()).events.values()))
    long = msgspec.structs.replace(said, message="é" * 900)
    assert len(msgspec.json.decode(manifest.event_body(long))["message"].encode()) <= 1000


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda world: command(world, "RestartJob"), "RestartJob"),
        (lambda world: command(world, "AbortJob"), "AbortJob"),
        (lambda world: command(world, "TerminateJob"), "TerminateJob"),
        (lambda world: command(world, "CompleteJob"), "CompleteJob"),
        (lambda world: world.wait(60), "DeadlineExceeded"),
        (lambda world: world.change_pod("default/j1-worker-0", "Succeeded"), "JobCompleted"),
        (lambda world: world.scale(J, 0, 1), "ScaledDown"),
        (lambda world: world.delete(kinds.PODS, "default/j1-worker-1"), "Deleted"),
        (lambda world: world.reap("default/j1-worker-1"), "Deleted"),
        (lambda world: fail(world, "j1-worker-0", exit_code=3), "RestartTask"),
    ],
)
def test_the_history_says_what_made_a_pod_go(end: Callable[[World], None], reason: str) -> None:
    """The reason stays when the kubelet tells later how the pod ended, and when it is gone."""
    policy = batch.LifecyclePolicy(exit_code=3, action="RestartTask")
    world = running(
        make_job(
            tasks=[make_task(replicas=2)],
            min_available=1,
            min_success=1,
            active_deadline_seconds=60,
            policies=[policy],
        )
    )
    end(world)
    world.settle()
    if [it for it in world.pods() if it.metadata.deletion_timestamp]:
        world.change_pod("default/j1-worker-1", "Failed", exit_code=143, end="Error")
        world.settle()
    reap_all(world)
    told = [it for _, it in world.told if isinstance(it, messages.TaskChanged)]
    assert {it.reason for it in told if it.pod == "j1-worker-1" and it.reason} == {reason}


def test_a_pod_that_was_bound_before_anybody_looked_says_when_it_was_created() -> None:
    """The controller made it and was gone until it had a node."""
    world = submitted(make_job())
    world.enqueue(world.group_key())
    world.commands_left = 1
    with pytest.raises(KilledError):
        world.settle()
    (pod,) = world.pods()
    world.wait(60)
    world.change_pod(pod.metadata.key, node="n1")
    world.restart()
    world.settle()
    told = [it for _, it in world.told if isinstance(it, messages.TaskChanged)]
    assert [(it.after, it.created_at) for it in told] == [("Bound", NOON)]


def command(world: World, action: str) -> None:
    world.submit(make_command("c1", action, world.job()))


def test_a_failed_pod_says_the_code_of_the_container_that_failed() -> None:
    """Also of one that never came to its main container."""
    world = running(make_job())
    initial = {"name": "init", "state": {"terminated": {"exitCode": 5, "reason": "Error"}}}
    done = {"name": "first", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    world.change_pod("default/j1-worker-0", "Failed", initContainerStatuses=[done, initial])
    world.settle()
    last = [it for _, it in world.told if isinstance(it, messages.TaskChanged)][-1]
    assert (last.exit_code, last.reason) == (5, "Error")


def test_a_phase_that_somebody_asked_for_says_so_until_its_end() -> None:
    world = running(make_job())
    command(world, "AbortJob")
    world.settle()
    assert world.job().status.state.message.startswith("command c1, ")
    reap_all(world)
    state = world.job().status.state
    assert (state.reason, state.message) == ("Stopped", "AbortJob was asked for")


def test_a_job_that_asks_for_no_pods_says_so_from_its_start_and_after_it_was_scaled() -> None:
    """It runs on without any, as the specification has it, and would look as if it were stuck."""
    world = submitted(make_job(tasks=[make_task(replicas=0)]))
    assert (world.phase(), world.reasons().count("NoPods")) == ("Running", 1)
    world = running(make_job(tasks=[make_task(replicas=2)]))
    assert "NoPods" not in world.reasons()
    world.scale(J, 0, 0)
    world.settle()
    assert (world.phase(), world.reasons().count("NoPods")) == ("Running", 1)


def test_every_phase_counts_the_tries_alike() -> None:
    """A restart is told after the try that it ends: whether there is another one shows later."""
    world = restarted(retries=2)
    go_on(world)
    fail(world, "j1-worker-1")
    reap_all(world)
    told = [
        (it.reason, tried[1])
        for it in world.events.values()
        if (tried := re.search(r", ((after )?try \d+): ", it.message))
    ]
    assert told == [
        ("Restarting", "after try 1"),
        ("Pending", "try 2"),
        ("Running", "try 2"),
        ("Restarting", "after try 2"),
        ("Failed", "after try 2"),
    ]


class Unanswered(World):
    """What is told comes to stand on the log, which nobody answers as long as ``is_cut``."""

    is_cut = False

    def do(self, command: commands.Command) -> None:
        if isinstance(command, commands.Publish) and self.is_cut:
            self.told.append((command.job, command.message))
            self.picture.published.expect(command.message)
            raise RefusedError
        super().do(command)


def test_a_job_of_which_something_may_have_been_told_is_told_to_be_gone() -> None:
    world = Unanswered()
    world.submit(make_job())
    world.is_cut = True
    while not world.told:
        world.see()
        world.step(next(iter(world.dirty)))
    world.delete(kinds.JOBS, J)
    world.is_cut = False
    world.settle()
    assert [type(it) for _, it in world.told] == [messages.JobPhaseChanged, messages.JobDeleted]


def test_a_pod_of_which_something_may_have_been_told_is_told_to_be_gone() -> None:
    """And its attempt counts: the next pod's is another one."""
    world = Unanswered()
    world.submit(make_job(tasks=[make_task(replicas=1)]))
    world.settle()
    world.enqueue(world.group_key())
    world.see()
    world.step(ReconcileKey("job", J))
    world.is_cut = True
    world.step(ReconcileKey("job", J))
    world.reap(f"{J}-worker-0")
    world.is_cut = False
    world.settle()
    told = [it for _, it in world.told if isinstance(it, messages.TaskChanged)]
    assert [(it.after, it.attempt) for it in told] == [("Pending", 1), ("Gone", 1), ("Pending", 2)]
    assert told[0].pod_uid == told[1].pod_uid != told[2].pod_uid
