"""The plugin task-topology: affinity between tasks, their order, and their nodes."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import default_sessions, sessions
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.plugins.task_topology import buckets
from stromboli.shared.api import meta
from stromboli.testkit import builders
from stromboli.testkit.strategies import depth

TIER: sessions.Tier = [
    sessions.plugin(name) for name in ("priority", "gang", "predicates", "nodeorder")
] + [sessions.plugin("task-topology", {"task-topology.weight": 10})]
AWAY, NEAR, ORDER = buckets.ANTI_AFFINITY, buckets.AFFINITY, buckets.ORDER


def job(tasks: Mapping[str, int], notes: Mapping[str, str], **pod: Any) -> list[meta.Object]:
    """A gang with this number of replicas of each task, pods ``g-<task>-<n>``."""
    pods = [
        builders.make_pod(f"g-{task}-{at}", "g", task=task, **pod)
        for task, count in tasks.items()
        for at in range(count)
    ]
    least = sum(tasks.values())
    return [builders.make_pod_group("g", least, annotations=notes), *pods]


def nodes(count: int, cpu: int = 4) -> list[meta.Object]:
    return [builders.make_node(f"n{at}", cpu=cpu) for at in range(count)]


def closed(*objects: meta.Object) -> session.Session:
    return default_sessions.closed(*objects, tier=TIER)


def together(decided: session.Session) -> list[list[str]]:
    """Names of the tasks on each node that has any."""
    found: dict[str, list[str]] = defaultdict(list)
    for pod, node in default_sessions.binds(decided).items():
        found[node].append(pod.split("-")[1])
    return sorted(sorted(names) for names in found.values())


def test_tasks_that_like_each_other_share_nodes_and_replicas_that_shun_themselves_do_not() -> None:
    """Two parameter servers apart, each with its share of the workers."""
    notes = {NEAR: "ps,worker", AWAY: "ps"}
    decided = closed(*nodes(2), *job({"ps": 2, "worker": 4}, notes, cpu=1))
    assert together(decided) == [["ps", "worker", "worker"]] * 2


def test_without_affinities_no_buckets_are_created() -> None:
    decided = closed(*nodes(2), *job({"ps": 2}, {}, cpu=1))
    assert together(decided) == [["ps"], ["ps"]]


def test_replicas_that_like_each_other_fill_a_node() -> None:
    decided = closed(*nodes(3), *job({"a": 3}, {NEAR: "a"}, cpu=1))
    assert together(decided) == [["a", "a", "a"]]


def test_tasks_that_shun_each_other_lie_apart_as_far_as_there_are_nodes() -> None:
    """It is a preference: with one node they share it."""
    notes = {AWAY: "a,b"}
    assert together(closed(*nodes(2), *job({"a": 1, "b": 1}, notes, cpu=1))) == [["a"], ["b"]]
    assert together(closed(*nodes(1), *job({"a": 1, "b": 1}, notes, cpu=1))) == [["a", "b"]]


def test_a_node_that_holds_the_whole_bucket_is_better() -> None:
    """n0 has room for one of the two."""
    filler = builders.make_pod("filler", node="n0", phase="Running", cpu=3)
    decided = closed(*nodes(2), filler, *job({"a": 1, "b": 1}, {NEAR: "a,b"}, cpu=1))
    assert set(default_sessions.binds(decided).values()) == {"n1"}


def test_a_task_joins_its_company_and_keeps_off_what_it_shuns_across_sessions() -> None:
    """What was placed before counts."""
    runs = [
        builders.make_pod("g-ps-0", "g", task="ps", node="n1", phase="Running", cpu=1),
        builders.make_pod("g-x-0", "g", task="x", node="n0", phase="Running", cpu=1),
    ]
    group = builders.make_pod_group("g", 1, annotations={NEAR: "ps,worker", AWAY: "x,worker"})
    waits = builders.make_pod("g-worker-0", "g", task="worker", cpu=1)
    assert default_sessions.binds(closed(*nodes(3), group, *runs, waits)) == {"g-worker-0": "n1"}


def test_the_order_of_tasks_holds_also_for_those_without_a_bucket() -> None:
    """There is room for one pod, and b is first."""
    objects = job({"a": 1, "b": 1}, {ORDER: "b,a"}, cpu=4)
    objects[0] = builders.make_pod_group("g", 1, annotations={ORDER: "b,a"})
    assert default_sessions.binds(closed(*nodes(1), *objects)) == {"g-b-0": "n0"}


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ({NEAR: "a,zz"}, f"{NEAR}: the job has no task 'zz'; its tasks are a, b"),
        ({AWAY: "a,a"}, f"{AWAY}: 'a' is listed twice"),
        ({ORDER: "b,b"}, f"{ORDER}: 'b' is listed twice"),
    ],
)
def test_meaningless_affinities_are_ignored_and_reported(notes: dict[str, str], said: str) -> None:
    decided = closed(*nodes(1), *job({"a": 1, "b": 1}, notes, cpu=1))
    assert len(default_sessions.binds(decided)) == 2
    assert f"PodGroup default/g: {said}; the affinities are ignored" in decided.complaints


NAMES = ("a", "b", "c")
GROUPS = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, unique=True), max_size=2)


def text(groups: list[list[str]]) -> str:
    return ";".join(",".join(group) for group in groups)


@depth.examples(60)
@given(
    st.fixed_dictionaries({name: st.integers(0, 4) for name in NAMES}),
    GROUPS,
    GROUPS,
    st.permutations(NAMES),
)
def test_buckets_hold_each_task_once_and_nothing_that_shuns_all_the_others(
    counts: dict[str, int], near: list[list[str]], away: list[list[str]], order: list[str]
) -> None:
    """A task named in any group has one bucket; a bucket contains no task with more anti-affinity
    than affinity to its members; and in all cases all tasks are placed.
    """
    tasks = {name: counts[name] for name in NAMES if counts[name]}
    known = [name for name in order if name in tasks]
    notes = {
        NEAR: text([kept for group in near if (kept := [name for name in group if name in tasks])]),
        AWAY: text([kept for group in away if (kept := [name for name in group if name in tasks])]),
        ORDER: ",".join(known),
    }
    opened = default_sessions.opened(*nodes(3), *job(tasks, notes, cpu=1), tier=TIER)
    found = opened.jobs["default/g"]
    wanted = buckets.task_affinity(notes, tasks)
    decided = closed(*nodes(3), *job(tasks, notes, cpu=1))
    assert len(default_sessions.binds(decided)) == sum(tasks.values())
    if wanted is None:
        return
    arranged = buckets.JobBuckets(found, wanted, lambda request: int(request.sum()))
    named = {name for group in near + away for name in group if name in tasks}
    assert {found.tasks[uid].role for uid in arranged.of} == named & set(tasks)
    for bucket in arranged.buckets:
        members = [found.tasks[uid].role for uid, own in arranged.of.items() if own is bucket]
        assert Counter(members) == +bucket.names
        for at, name in enumerate(members):
            before = Counter(members[:at])
            assert not before or wanted.affinity(name, before) >= 0
