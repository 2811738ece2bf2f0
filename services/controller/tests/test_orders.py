"""People's commands: whom they mean, what is said of them, and why one is refused."""

import msgspec
import pytest

from services.controller.tests.scenes import running
from services.controller.tests.world import World
from stromboli.shared.api import batch, kinds
from stromboli.shared.messages import batch as messages
from stromboli.testkit.builders import make_command, make_job


def aimed(job: batch.Job, uid: str) -> batch.Command:
    """An abort of the job that has this uid."""
    order = make_command("c1", "AbortJob", job)
    assert order.target is not None
    return msgspec.structs.replace(order, target=msgspec.structs.replace(order.target, uid=uid))


def said(world: World, reason: str) -> list[str]:
    return [it.message for it in world.events.values() if it.reason == reason]


def obey(order: batch.Command, world: World) -> None:
    world.submit(order)
    world.settle()
    assert not [key for plural, key in world.objects if plural == kinds.COMMANDS.plural]


def test_a_command_that_was_meant_for_an_earlier_job_of_the_name_is_refused() -> None:
    world = running(make_job())
    obey(aimed(world.job(), "of-another"), world)
    assert world.phase() == "Running"
    assert said(world, "CommandRefused") == ["AbortJob was meant for an earlier job of this name"]


def test_a_command_without_a_uid_is_meant_for_the_job_that_has_the_name() -> None:
    world = running(make_job())
    obey(aimed(world.job(), ""), world)
    assert world.phase() == "Aborting"
    assert said(world, "CommandIssued") == ["AbortJob was asked for"]


def test_a_command_that_asks_for_a_look_changes_nothing_and_is_told_with_its_time() -> None:
    world = running(make_job())
    before = world.job().status
    world.wait(60)
    obey(make_command("c1", "SyncJob", world.job()), world)
    assert world.job().status == before
    assert said(world, "CommandIssued") == ["SyncJob was asked for"]
    taken = [it for _, it in world.told if isinstance(it, messages.CommandTaken)]
    assert [(it.action, it.at) for it in taken] == [("SyncJob", world.now)]


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("ResumeJob", "ResumeJob does nothing in phase Running"),
        ("RestartPod", "RestartPod needs to know of what, so it can only stand in a policy"),
        (
            "Explode",
            "'Explode' is not carried out; known are "
            "SyncJob, RestartJob, AbortJob, CompleteJob, TerminateJob, ResumeJob",
        ),
    ],
)
def test_a_command_that_is_refused_says_why(action: str, why: str) -> None:
    world = running(make_job())
    obey(make_command("c1", action, world.job()), world)
    assert said(world, "CommandRefused") == [why]
