"""User commands: their targets, their Events, and why one is rejected."""

import msgspec
import pytest

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import running
from stromboli.shared.api import batch, kinds
from stromboli.shared.messages import batch as messages
from stromboli.testkit.builders import make_command, make_job


def aimed(job: batch.Job, uid: str) -> batch.Command:
    """An abort of the job that has this uid."""
    order = make_command("c1", "AbortJob", job)
    assert order.target is not None
    return msgspec.structs.replace(order, target=msgspec.structs.replace(order.target, uid=uid))


def said(harness: CoreHarness, reason: str) -> list[str]:
    return [it.message for it in harness.events.values() if it.reason == reason]


def obey(order: batch.Command, harness: CoreHarness) -> None:
    harness.submit(order)
    harness.settle()
    assert not [key for plural, key in harness.objects if plural == kinds.COMMANDS.plural]


def test_a_command_that_was_meant_for_an_earlier_job_of_the_name_is_refused() -> None:
    harness = running(make_job())
    obey(aimed(harness.job(), "of-another"), harness)
    assert harness.phase() == "Running"
    assert said(harness, "CommandRefused") == [
        "AbortJob was issued for an earlier job of this name"
    ]


def test_a_command_without_a_uid_is_meant_for_the_job_that_has_the_name() -> None:
    harness = running(make_job())
    obey(aimed(harness.job(), ""), harness)
    assert harness.phase() == "Aborting"
    assert said(harness, "CommandIssued") == ["suspended by a user (AbortJob)"]


def test_a_sync_command_changes_nothing_and_is_published_with_its_time() -> None:
    harness = running(make_job())
    before = harness.job().status
    harness.wait(60)
    obey(make_command("c1", "SyncJob", harness.job()), harness)
    assert harness.job().status == before
    assert said(harness, "CommandIssued") == ["SyncJob was requested"]
    taken = [it for _, it in harness.sent if isinstance(it, messages.CommandAccepted)]
    assert [(it.action, it.at) for it in taken] == [("SyncJob", harness.now)]


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("ResumeJob", "ResumeJob has no effect in phase Running"),
        ("RestartPod", "RestartPod acts on a part of the job, so only a policy can use it"),
        (
            "Explode",
            "'Explode' is not an action; supported are "
            "SyncJob, RestartJob, AbortJob, CompleteJob, TerminateJob, ResumeJob",
        ),
    ],
)
def test_a_command_that_is_refused_reports_the_reason(action: str, why: str) -> None:
    harness = running(make_job())
    obey(make_command("c1", action, harness.job()), harness)
    assert said(harness, "CommandRefused") == [why]
