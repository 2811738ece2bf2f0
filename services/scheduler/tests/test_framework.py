"""Rules of the session itself: votes, victims, statements, configuration, unreadable objects."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from services.scheduler.tests.support import default_sessions, sessions
from stromboli.scheduler.core import actions, plugins
from stromboli.scheduler.core.config import config_reader, configuration
from stromboli.scheduler.core.framework import extensions, session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points
from stromboli.testkit import builders


def requested(*tiers: Sequence[str]) -> extensions.Extensions:
    """Extension points with plugins of these names, none of which has registered a function."""
    return extensions.Extensions(
        [[configuration.PluginOptions(name) for name in tier] for tier in tiers]
    )


def always(vote: int) -> extension_points.JobVote:
    return lambda job: vote


def answer(votes: Sequence[Sequence[int]]) -> bool:
    """The result of these votes, by tier, for a job."""
    points_of = requested(*[[f"p{at}" for at in range(len(tier))] for tier in votes])
    for tier, given in enumerate(votes):
        for place, vote in enumerate(given):
            with points_of.opening(tier, place):
                points_of.add_job_enqueueable(always(vote))
    ssn = default_sessions.opened(builders.make_pod_group())
    return points_of.job_enqueueable(ssn.jobs["default/g1"])


@pytest.mark.parametrize(
    ("votes", "passes"),
    [
        ([], True),
        ([[0], [0]], True),
        ([[1], [-1]], True),
        ([[1, -1]], False),
        ([[0], [-1], [1]], False),
    ],
)
def test_a_tier_with_a_permit_ends_the_vote_and_a_reject_decides_it(
    votes: list[list[int]], passes: bool
) -> None:
    """If all abstain, the answer is yes."""
    assert answer(votes) is passes


def chosen(*tiers: Sequence[Sequence[str] | None]) -> list[str]:
    """The victims that result from choices by tier, among tasks named a, b and c. No plugin
    abstains.
    """
    ssn = default_sessions.opened(*default_sessions.gang("x", 3))
    tasks = list(ssn.jobs["default/x"].tasks.values())
    points_of = requested(*[[f"p{at}" for at in range(len(tier))] for tier in tiers])

    def choose(names: Sequence[str] | None) -> extension_points.VictimChoice:
        if names is None:
            return lambda preemptor, candidates: extension_points.Victims(
                [], extension_points.ABSTAIN
            )
        return lambda preemptor, candidates: extension_points.Victims(
            [task for task in candidates if task.name in names]
        )

    for tier, given in enumerate(tiers):
        for place, names in enumerate(given):
            with points_of.opening(tier, place):
                points_of.add_preemptable(choose(names))
    return [task.name for task in points_of.preemptable(tasks[0], tasks)]


def test_victims_are_the_intersection_of_a_tier() -> None:
    """The first tier with a common victim decides; an empty one leaves it to the next."""
    assert chosen([["x-0", "x-1"], ["x-1", "x-2"]]) == ["x-1"]
    assert chosen([["x-0"], []], [["x-2"]]) == ["x-2"]
    assert chosen([None], [["x-2"]]) == ["x-2"]
    assert chosen([["x-0"]], [["x-2"]]) == ["x-0"]
    assert chosen([[]], [[]]) == []


def sums(ssn: session.Session) -> list[Any]:
    """Everything that a statement may change."""
    table = ssn.nodes
    return [
        *(each.tolist() for each in (table.idle, table.used, table.releasing, table.pipelined)),
        [sorted(tasks) for tasks in table.tasks],
        [
            (job.allocated.tolist(), {task.key: task.status for task in job.tasks.values()})
            for job in ssn.jobs.values()
        ],
    ]


def test_a_discarded_statement_leaves_only_the_tasks_last_place() -> None:
    """Idle, used, releasing and nominated resources and statuses are as before."""
    ssn = default_sessions.opened(
        builders.make_node("n1", cpu="4"),
        *default_sessions.gang("new", 2),
        builders.make_pod_group("old"),
        builders.make_pod("victim", "old", node="n1", phase="Running"),
    )
    before = sums(ssn)
    new, old = ssn.jobs["default/new"], ssn.jobs["default/old"]
    first, second = new.tasks.values()
    (victim,) = old.tasks.values()
    trial = ssn.statement()
    trial.evict(victim, "preempt")
    trial.pipeline(first, "n1", eviction_occurred=True)
    trial.allocate(second, "n1")
    assert (victim.status, first.status) == (entities.Status.RELEASING, entities.Status.PIPELINED)
    assert sums(ssn) != before
    trial.discard()
    assert sums(ssn) == before
    assert (first.last_status, first.node) == (entities.Status.PIPELINED, "")
    assert ssn.decisions == session.Decisions()


def test_a_saved_statement_can_be_repeated() -> None:
    """Discard and recover restore the same state."""
    ssn = default_sessions.opened(builders.make_node("n1"), *default_sessions.gang("g", 2))
    trial = ssn.statement()
    for task in ssn.jobs["default/g"].tasks.values():
        trial.allocate(task, "n1")
    done, operations = sums(ssn), trial.save()
    trial.discard()
    again = ssn.statement()
    again.recover(operations)
    assert sums(ssn) == done
    again.commit()
    assert default_sessions.binds(ssn) == {"g-0": "n1", "g-1": "n1"}


def test_cached_answers_of_a_class_follow_every_change() -> None:
    """Cached fits, filter results and scores equal those of a new session."""
    objects = [
        *(builders.make_node(f"n{at}", cpu="4") for at in range(9)),
        *default_sessions.gang("g", 6),
    ]
    ssn = default_sessions.opened(*objects)
    tasks = ssn.ordered_tasks(ssn.jobs["default/g"].tasks.values())
    for task, node in zip(tasks, ("n1", "n1", "n7", "n1", "n1"), strict=False):
        ssn.finder.fits_idle(tasks[-1])
        ssn.statement().allocate(task, node)
    fresh = default_sessions.opened(*objects)
    for task, node in zip(tasks, ("n1", "n1", "n7", "n1", "n1"), strict=False):
        fresh.statement().allocate(fresh.jobs["default/g"].tasks[task.uid], node)
    rows = np.arange(9)
    assert ssn.finder.fits_idle(tasks[-1]).tolist() == fresh.finder.fits_idle(tasks[-1]).tolist()
    kept, called_again = (each.finder.scores(tasks[-1], rows).tolist() for each in (ssn, fresh))
    assert kept == called_again
    assert ssn.finder.fits_idle(tasks[-1]).tolist() == [at != 1 for at in range(9)]


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"actions": "alocate"}, "actions"),
        ({"actions": "allocate", "tier": []}, "tier"),
        ({"actions": "allocate", "tiers": [{"plugins": [{"name": "gangs"}]}]}, "tiers[0].plugins"),
        (
            {"actions": "allocate", "tiers": [{"plugins": [{"name": "gang", "enabled": True}]}]},
            "tiers[0].plugins[0].enabled",
        ),
        (
            {
                "actions": "allocate",
                "tiers": [{"plugins": [{"name": "gang", "enableJobOrder": 1}]}],
            },
            "tiers[0].plugins[0].enableJobOrder",
        ),
    ],
)
def test_unknown_and_invalid_parts_of_a_configuration_are_named(
    document: dict[str, Any], place: str
) -> None:
    """The error contains the position and the reason."""
    with pytest.raises(config_reader.ConfigurationError) as caught:
        config_reader.read_configuration(document, actions.NAMES, plugins.NAMES)
    assert caught.value.place.startswith(place)


def test_an_argument_of_another_type_is_reported_and_replaced_by_the_default() -> None:
    """Volcano uses the default, too, but does not report it."""
    arguments = configuration.Arguments({"a": "5", "b": 2, "c": "true"}, "plugin x: ")
    assert arguments.integer("a", 1) == 1
    assert arguments.number("b", 1.0) == 2.0
    assert arguments.boolean("c", default=False)
    assert arguments.complaints == ["plugin x: arguments.a: '5' is not a whole number; 1 is used"]


def test_an_unreadable_object_stops_only_itself() -> None:
    """An invalid pod closes its node, an invalid queue or group is left out; the rest is
    scheduled.
    """
    closed = default_sessions.closed(
        builders.make_node("bad", cpu="8"),
        builders.make_node("good", cpu="8"),
        builders.make_node("odd", cpu="eight"),
        builders.make_pod_group("broken", min_resources={"cpu": "-1"}),
        builders.make_pod("broken-0", "broken"),
        builders.make_pod("foreign", node="bad", phase="Running", cpu="1 core"),
        *default_sessions.gang("fine", 3),
    )
    assert default_sessions.binds(closed) == dict.fromkeys(("fine-0", "fine-1", "fine-2"), "good")
    complaints = "\n".join(closed.complaints)
    for name in ("default/foreign", "default/broken", "node odd"):
        assert name in complaints


def test_only_one_plugin_may_divide_the_cluster_between_queues() -> None:
    """The first one of proportion and capacity is used; the other one is reported as left out."""
    ssn = default_sessions.opened(tier=[sessions.plugin("proportion"), sessions.plugin("capacity")])
    assert ssn.complaints == [
        "plugin capacity: plugin proportion is configured first and already divides the cluster "
        "among queues"
    ]
