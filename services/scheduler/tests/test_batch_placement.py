"""Equal tasks are placed in one run, with the same result as one by one."""

from collections.abc import Collection
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core import plugins, simulate
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import interfaces, opening, session
from stromboli.scheduler.core.model import node_views
from stromboli.scheduler.core.placement import batch
from stromboli.shared.api import meta
from stromboli.testkit.strategies import depth, session_clusters

SINGLE = "single"
FIRST = ("priority", "gang", "conformance")
SECOND = ("overcommit", "drf", "predicates", "proportion", "nodeorder")
SCORES = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=8)
"""For each node its scores with 0, 1, 2, ... tasks on it; it is full after the last one."""


class Single:
    """A plugin that lets a queue hold everything but returns at most one task at a time."""

    def __init__(self, options: configuration.PluginOptions) -> None: ...

    def open(self, ssn: session.Session) -> None:
        ssn.add_allocatable(lambda queue, task, most: min(most, 1))

    def close(self, ssn: session.Session) -> None: ...


def find(name: str, already_open: Collection[str]) -> interfaces.PluginFactory:
    return Single if name == SINGLE else plugins.find(name, already_open)


def decided(objects: list[meta.Object], *more: str) -> session.Session:
    """The default session with further plugins."""
    usual = sessions.configured(
        [sessions.plugin(name) for name in FIRST],
        [sessions.plugin(name) for name in (*SECOND, "binpack")],
        run="enqueue, allocate, backfill",
    )
    last = tuple(configuration.PluginOptions(name) for name in more)
    configured = configuration.Configuration(usual.actions, (*usual.tiers, last))
    ssn = opening.open_session(configured, sessions.given(objects), find)
    simulate.run_actions(ssn)
    return ssn


def seen(ssn: session.Session) -> dict[str, Any]:
    """The results of a session."""
    table = ssn.nodes
    return {
        "outcome": simulate.summarize("", ssn),
        "order": list(ssn.decisions.binds),
        "tables": [each.tolist() for each in (table.idle, table.used, table.pipelined)],
        "assumed": table.assumed_used.tolist(),
        "tasks": [sorted(tasks) for tasks in table.tasks],
        "roles": {key: job.role_counts for key, job in ssn.jobs.items()},
    }


@depth.examples(100)
@given(session_clusters.clusters())
def test_a_run_is_placed_as_its_tasks_one_by_one(objects: list[meta.Object]) -> None:
    """With a plugin that cannot count, the session calls it for every task, with the
    same result.
    """
    together, one_by_one = seen(decided(objects)), seen(decided(objects, SINGLE))
    assert together == one_by_one


@depth.examples(300)
@given(SCORES, st.integers(1, 30))
def test_each_task_of_a_run_takes_the_best_node(scores: list[list[int]], count: int) -> None:
    """However scores change as nodes fill up, and wherever a node turns out to be full."""

    def ask(rows: batch.Indices, added: node_views.Counts) -> tuple[Any, Any]:
        pairs = list(zip(rows.tolist(), added.tolist(), strict=True))
        takes = [len(scores[row]) > more for row, more in pairs]
        found = [scores[row][more] if len(scores[row]) > more else 99 for row, more in pairs]
        return np.array(takes, np.bool_), np.array(found, np.int64)

    taken = [0] * len(scores)
    expected: list[int] = []
    while len(expected) < count:
        open_rows = [row for row, of in enumerate(scores) if taken[row] < len(of)]
        if not open_rows:
            break
        best = min(open_rows, key=lambda row: (-scores[row][taken[row]], row))
        taken[best] += 1
        expected.append(best)
    rows = np.arange(len(scores))
    now = np.array([of[0] for of in scores], np.int64)

    assert (
        batch.place_run(rows, now, lambda requested: np.full(len(requested), count), count, ask)
        == expected
    )


@given(
    values=st.lists(st.integers(0, 50), min_size=1, max_size=6),
    weights=st.integers(1, 2**32),
    count=st.integers(2, 60),
)
def test_the_best_of_many_nodes_are_those_of_a_stable_sort(
    values: list[int], weights: int, count: int
) -> None:
    """Many nodes have equal scores; a sample of the scores finds the best ones."""
    chosen = np.random.default_rng(weights).integers(0, len(values), 3_000)
    scores = np.array(values, np.int64)[chosen]

    def room(rows: batch.Indices) -> node_views.Counts:
        return np.ones(len(rows), np.int64)

    def ask(rows: batch.Indices, added: node_views.Counts) -> tuple[Any, Any]:
        return np.ones(len(rows), np.bool_), np.zeros(len(rows), np.int64)

    found = batch.place_run(np.arange(len(scores)), scores, room, count, ask)
    assert found == np.argsort(-scores, kind="stable")[:count].tolist()
