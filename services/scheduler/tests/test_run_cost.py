"""A run of equal tasks costs a few questions, however many tasks it has: counted, not timed."""

from collections.abc import Collection

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core import plugins, simulate
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import interfaces, opening, session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points
from stromboli.testkit import builders

COUNTER = "counter"
MOST_QUESTIONS = 3
"""All nodes once, the nodes that a run may climb, and what the climb turns out to need."""


def questions(pods: int) -> int:
    """The number of calls of a node order while a gang of this number of equal pods is placed."""
    requested: list[int] = []

    class Counter:
        def __init__(self, options: configuration.PluginOptions) -> None: ...

        def open(self, ssn: session.Session) -> None:
            def score(
                task: entities.Task, view: node_views.NodeView
            ) -> extension_points.Scores | None:
                requested.append(view.size)
                return None

            ssn.add_node_order(score)

        def close(self, ssn: session.Session) -> None: ...

    def find(name: str, already_open: Collection[str]) -> interfaces.PluginFactory:
        return Counter if name == COUNTER else plugins.find(name, already_open)

    names = ("gang", "predicates", "proportion", "nodeorder", "binpack")
    usual = sessions.configured([sessions.plugin(name) for name in names])
    counting = (configuration.PluginOptions(COUNTER),)
    objects = [
        sessions.queue("a"),
        *(builders.make_node(f"n{at:03}", cpu="32", memory="256Gi") for at in range(100)),
        *sessions.gang("g", "a", pods, min_member=pods),
    ]
    configured = configuration.Configuration(usual.actions, (*usual.tiers, counting))
    ssn = opening.open_session(configured, sessions.given(objects), find)
    simulate.run_actions(ssn)
    assert len(ssn.decisions.binds) == pods
    return len(requested)


def test_a_gang_costs_a_few_questions_whatever_its_size() -> None:
    """The number of calls is the same for ten pods and a thousand."""
    assert questions(10) <= MOST_QUESTIONS
    assert questions(1000) <= MOST_QUESTIONS
