"""Rules of explaining why a job waits."""

from datetime import UTC, datetime
from typing import get_args

import msgspec
import pytest

from stromboli.cli.commands.accounting import explain_at
from stromboli.cli.render import explanation_view, pod_status
from stromboli.client import responses
from stromboli.shared.messages.scheduling import NodeRejection, Shortage, Tier
from stromboli.testkit import builders

UID = "0b0ee0a3-13bb-4e6b-9f0b-0b7a4b2d6f10"
GIB = 1 << 30


def explanation(
    tier: Tier = "gang",
    members: int = 10,
    shortages: tuple[Shortage, ...] = (),
    refusals: tuple[NodeRejection, ...] = (),
    in_front: tuple[str, ...] = (),
    message: str = "",
) -> responses.Explanation:
    explained = builders.make_explanation(
        f"default/train-{UID}",
        "1",
        members,
        queue="research",
        phase="Inqueue",
        tier=tier,
        message=message,
        min_member=8,
        placeable=3,
        shortages=shortages,
        refusals=refusals,
    )
    return responses.Explanation(
        "default/train", "Pending", explained.pod_group, explained, in_front
    )


def test_an_explanation_has_one_fact_per_line() -> None:
    shown = explanation_view.render(
        explanation(
            shortages=(
                Shortage(resource="cpu", needed=8000, free=3500, total=16000),
                Shortage(resource="memory", needed=GIB, free=2 * GIB, total=8 * GIB),
            ),
            refusals=(
                NodeRejection(nodes=3, reason="too little cpu"),
                NodeRejection(nodes=2, reason="untolerated taint dedicated=gpu"),
            ),
            in_front=(f"default/first-{UID}", "other/second"),
            message="3/8 tasks in gang unschedulable",
        )
    )
    assert shown == [
        "default/train is pending: fewer than minAvailable of its pods can be placed.",
        "  queue      research, position 3; in front: default/first, other/second",
        "  gang       8 of 10 pods must start together: 0 running, 3 more can be placed now",
        "  short of   cpu: needs 8, free 3.5 of 16: short by 4.5",
        "             memory: needs 1Gi, free 2Gi of 8Gi: enough in total, but not on any node",
        "  nodes      3 rejected: too little cpu",
        "             2 rejected: untolerated taint dedicated=gpu",
    ]


def test_the_limits_of_a_queue_are_shown_if_they_block() -> None:
    short = Shortage(
        resource="cpu", needed=6000, free=9000, total=9000, allocated=1000, promised=2000
    )
    limited = msgspec.structs.replace(short, promised=0, deserved=6000, capability=8000)
    assert explanation_view.render(explanation(shortages=(short, limited)))[3:7] == [
        "  short of   cpu: needs 6, free 9 of 9: enough, but not within the share of its queue",
        "             cpu of the queue: allocated 1, inqueue 2",
        "             cpu: needs 6, free 9 of 9: enough, but not within the share of its queue",
        "             cpu of the queue: allocated 1, deserved 6, capability 8",
    ]


def test_free_room_that_admitted_gangs_wait_for_is_shown_as_reserved() -> None:
    """Such a gang waits for those in front of it, not for a larger share of its queue."""
    short = Shortage(
        resource="cpu",
        needed=6000,
        free=9000,
        total=9000,
        allocated=0,
        promised=6000,
        capability=9000,
    )
    assert explanation_view.render(explanation(shortages=(short,)))[3:5] == [
        "  short of   cpu: needs 6, free 9 of 9: "
        "enough, but 6 reserved for admitted gangs that have not started",
        "             cpu of the queue: allocated 0, inqueue 6, capability 9",
    ]


def test_members_are_counted_only_once_there_are_some() -> None:
    assert (
        explanation_view.render(explanation(members=0))[2]
        == "  gang       8 pods must start together"
    )
    assert explanation_view.render(explanation(members=8))[2] == (
        "  gang       8 pods must start together: 0 running, 3 more can be placed now"
    )


@pytest.mark.parametrize("tier", get_args(Tier))
def test_every_tier_has_a_text(tier: Tier) -> None:
    (headline, *_) = explanation_view.render(explanation(tier))
    assert headline == f"default/train is pending: {explanation_view.TIERS[tier]}."


def test_the_phase_of_a_job_that_is_not_pending_is_shown() -> None:
    found = responses.Explanation("default/train", "Running", "default/train-1", None)
    assert explanation_view.render(found) == ["default/train is not pending: it is Running."]


def test_a_held_job_is_explained_with_the_command_that_releases_it() -> None:
    found = responses.Explanation("default/train", "Aborted", "default/train-1", None)
    assert explanation_view.render(found) == [
        "default/train is suspended (held).",
        "  next       strom job release train -n default",
    ]


def test_the_first_job_of_a_queue_has_none_ahead() -> None:
    assert "  queue      research, position 1" in explanation_view.render(explanation())


def test_a_long_line_is_counted_and_not_listed_whole() -> None:
    line = explanation_view.render(explanation(in_front=tuple(f"a/j{n}" for n in range(8))))[1]
    assert line.endswith("position 9; in front: a/j0, a/j1, a/j2, a/j3, a/j4 and 3 more")


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1.5"),
        ("cpu", 2000, "2"),
        ("cpu", 1, "0.001"),
        ("cpu", 0, "0"),
        ("memory", 16_777_216_000, "15.6Gi"),
        ("memory", 64 << 20, "64Mi"),
        ("memory", 12, "12"),
        ("ephemeral-storage", 1000 * GIB, "1Gi"),
        ("hugepages-2Mi", 1000 * (2 << 20), "2Mi"),
        ("nvidia.com/gpu", 8000, "8"),
        ("pods", 110, "110"),
        ("count/jobs.batch", 3, "3"),
    ],
)
def test_amounts_have_the_unit_that_people_use(resource: str, amount: int, text: str) -> None:
    assert explanation_view.format_amount(resource, amount) == text


def test_a_pod_group_is_called_by_its_job() -> None:
    assert explanation_view.job_name(f"default/train-{UID}") == "default/train"
    assert explanation_view.job_name("default/of-my-own") == "default/of-my-own"


def undecided(held: str = "", phase: str = "Pending") -> responses.Explanation:
    return responses.Explanation("default/train", phase, "", None, held=held)


def test_the_reason_why_pods_are_not_created_is_shown() -> None:
    """Nothing has reached the scheduler then, so only the controller knows it."""
    assert explanation_view.render(undecided("WaitsForJob: afterok:a: job a is Running")) == [
        "default/train is pending: it waits for another job.",
        "  controller WaitsForJob: afterok:a: job a is Running",
    ]
    never = explanation_view.render(undecided("NeverBegins: afterok:a: job a ended as Failed"))
    assert never[0] == "default/train is pending: it can never start, as its dependency is not met."
    quota = msgspec.structs.replace(explanation(), held="FailedCreate: exceeded quota")
    assert explanation_view.render(quota)[-1] == "  controller FailedCreate: exceeded quota"


def test_pods_that_cannot_be_created_come_before_their_effect_on_the_gang() -> None:
    """The scheduler counts too few pods; the controller has the reason."""
    found = msgspec.structs.replace(explanation(members=0), held="FailedCreate: exceeded quota")
    gang = msgspec.structs.replace(found.explained, tier="gang", min_member=1)  # type: ignore[type-var]
    shown = explanation_view.render(msgspec.structs.replace(found, explained=gang))
    assert shown[0] == "default/train is pending: not all of its pods are created."
    assert shown[2] == "  gang       1 pod must start"


def test_a_running_job_with_a_pod_that_cannot_be_created_is_not_pending() -> None:
    """Such as the pod of a debug tool beyond a quota."""
    shown = explanation_view.render(undecided("FailedCreate: exceeded quota", "Running"))
    assert shown == [
        "default/train is Running: not all of its pods are created.",
        "  controller FailedCreate: exceeded quota",
    ]


def test_a_job_without_a_serving_scheduler_is_reported() -> None:
    assert explanation_view.render(undecided("NoScheduler: the job names the scheduler 'x'")) == [
        "default/train is pending: no scheduler of Stromboli handles its pods.",
        "  scheduler  NoScheduler: the job names the scheduler 'x'",
    ]


def on_a_node(reason: str, message: str = "") -> pod_status.Pod:
    waiting = pod_status.Waiting(reason=reason, message=message)
    status = pod_status.ContainerStatus(name="c", state=pod_status.State(waiting=waiting))
    return pod_status.Pod(status=pod_status.Status(container_statuses=(status,)))


def test_errors_of_nodes_for_pods_are_shown_once() -> None:
    image = on_a_node("ImagePullBackOff", 'Back-off pulling image "nope"')
    pods = [image, on_a_node("CreateContainerConfigError", "no secret s"), image]
    assert explanation_view.render(undecided(), explanation_view.WaitingPods(tuple(pods))) == [
        "default/train is pending: 3 of its pods cannot start on their nodes.",
        '  node       2 pods: ImagePullBackOff: Back-off pulling image "nope"',
        "             1 pod: CreateContainerConfigError: no secret s",
    ]


def test_a_job_that_runs_is_not_called_pending_for_the_errors_of_its_nodes() -> None:
    """Its pods restart in a loop, and its phase is Running in every other command."""
    running = msgspec.structs.replace(undecided(), phase="Running")
    waiting = explanation_view.WaitingPods((on_a_node("CrashLoopBackOff", "back-off 40s"),))
    assert explanation_view.render(running, waiting)[0] == (
        "default/train is Running: 1 of its pods cannot start on their nodes."
    )


def test_only_a_job_with_bound_pods_is_about_to_start() -> None:
    assert explanation_view.render(undecided(), explanation_view.WaitingPods(bound=1)) == [
        "default/train is pending: its pods are bound and about to start."
    ]


@pytest.mark.parametrize("reason", ["", "ContainerCreating", "PodInitializing"])
def test_a_starting_pod_is_no_obstacle(reason: str) -> None:
    assert pod_status.start_error(on_a_node(reason)) is None


def test_unmanaged_pods_ahead_are_distinguished() -> None:
    """The first part of ``podgroup-<uid>`` is the same for all of them."""
    uid = "0123abcd-0123-0123-0123-0123456789ab"
    assert explanation_view.job_name(f"default/train-{uid}") == "default/train"
    assert explanation_view.job_name(f"default/podgroup-{uid}") == f"default/podgroup-{uid}"


@pytest.mark.parametrize(("pods", "count"), [(1, "0 of 1 pod"), (2, "0 of 2 pods")])
def test_a_past_answer_counts_the_pods_on_nodes(pods: int, count: str) -> None:
    answer = explain_at.PastAnswer(
        pod_group="default/a",
        phase="Inqueue",
        pods=pods,
        placed=0,
        is_decided=False,
        explained=None,
        in_front=None,
    )
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert explain_at.render("default/a", answer, at) == [
        f"default/a was not blocked at {at.isoformat()}: {count} on nodes."
    ]
