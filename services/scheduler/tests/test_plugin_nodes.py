"""Which nodes are liked and which are refused: binpack, resource-strategy-fit, nodegroup, tdm."""

import json
from datetime import datetime, timedelta

import numpy as np
import pytest

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import keys
from stromboli.shared.api import core, meta, scheduling
from stromboli.testkit import builders

GPU = "example.com/gpu"
QUEUE = sessions.queue("a")


def scored(ssn: session.Session, group: str = "g1") -> list[float]:
    """Points of all nodes, in the order of names, for a pending task of the group."""
    task = ssn.jobs[f"default/{group}"].pending[0]
    rows = np.arange(len(ssn.nodes))
    found: list[float] = (ssn.finder.scores(task, rows) / extension_points.SCORE_UNIT).tolist()
    return found


def refused(ssn: session.Session, group: str = "g1") -> list[str]:
    """The first reason against each node, empty if there is none."""
    task = ssn.jobs[f"default/{group}"].pending[0]
    filter_result = ssn.finder.filter_result(task)
    masks = np.eye(len(ssn.nodes), dtype=np.bool_)
    return [
        next((reason for reason, count in filter_result.refusals(mask) if count), "")
        for mask in masks
    ]


def test_binpack_likes_the_node_that_is_fuller_afterwards() -> None:
    """Two of four cores and a quarter of the memory, weighed two to one; an empty node less."""
    arguments = {"binpack.weight": 10, "binpack.cpu": 2, "binpack.memory": 1}
    ssn = sessions.opened(
        builders.make_node("n1", cpu="4", memory="8Gi"),
        builders.make_node("n2", cpu="4", memory="8Gi"),
        QUEUE,
        *sessions.gang("g0", "a", 1, node="n1"),
        *sessions.gang("g1", "a", 1),
        tier=[sessions.plugin("binpack", arguments)],
    )
    expected = [(0.5 * 2 + 0.25) / 3 * 1000, (0.25 * 2 + 0.125) / 3 * 1000]
    assert scored(ssn) == pytest.approx(expected)


def test_binpack_gives_nothing_to_a_node_that_would_overflow() -> None:
    ssn = sessions.opened(
        builders.make_node("n1", cpu="1"),
        QUEUE,
        *sessions.gang("g0", "a", 1, node="n1"),
        *sessions.gang("g1", "a", 1),
        tier=[sessions.plugin("binpack")],
    )
    assert scored(ssn) == [0]


def test_binpack_follows_what_is_placed() -> None:
    ssn = sessions.opened(
        builders.make_node("n1", cpu="4", memory="4Gi"),
        QUEUE,
        *sessions.gang("g1", "a", 2),
        tier=[sessions.plugin("binpack")],
    )
    assert scored(ssn) == [25]
    ssn.statement().allocate(ssn.jobs["default/g1"].pending[0], "n1")
    assert scored(ssn) == [50]


def test_strategies_fill_or_spread_by_resource_and_the_longest_pattern_counts() -> None:
    kinds = {
        "cpu": {"type": "LeastAllocated", "weight": 1},
        "example.com/*": {"type": "LeastAllocated", "weight": 9},
        "example.com/g*": {"type": "MostAllocated", "weight": 3},
    }
    arguments = {"resourceStrategyFitWeight": 1, "resources": kinds}
    ssn = sessions.opened(
        builders.make_node("n1", cpu="4", extra={GPU: "4"}),
        QUEUE,
        *sessions.gang("g1", "a", 1, extra={GPU: "3"}),
        tier=[sessions.plugin("resource-strategy-fit", arguments)],
    )
    assert scored(ssn) == pytest.approx([(0.75 * 1 + 0.75 * 3) / 4 * 100])


def test_a_pod_brings_its_own_strategy() -> None:
    """One that names a type without weights wants no resource to count."""
    kind = "volcano.sh/resource-strategy-scoring-type"
    weights = {"volcano.sh/resource-strategy-weight": json.dumps({"cpu": 1})}
    ssn = sessions.opened(
        builders.make_node("n1", cpu="4"),
        QUEUE,
        *sessions.gang("g1", "a", 1),
        *sessions.gang("g2", "a", 1, annotations={kind: "MostAllocated", **weights}),
        *sessions.gang("g3", "a", 1, annotations={kind: "MostAllocated"}),
        tier=[sessions.plugin("resource-strategy-fit", {"resources": {"cpu": {}}})],
    )
    assert [scored(ssn, name)[0] for name in ("g1", "g2", "g3")] == [750, 250, 0]


def test_plain_pods_are_kept_off_rare_hardware() -> None:
    arguments = {
        "resourceStrategyFitWeight": 0,
        "sra": {"enable": True, "resources": GPU, "weight": 2},
    }
    ssn = sessions.opened(
        builders.make_node("n1"),
        builders.make_node("n2", extra={GPU: "1"}),
        QUEUE,
        *sessions.gang("g1", "a", 1),
        tier=[sessions.plugin("resource-strategy-fit", arguments)],
    )
    assert scored(ssn) == [200, 0]


@pytest.mark.parametrize(("cpu", "passes"), [("4", True), ("5", False)])
def test_cpu_is_kept_for_idle_accelerators(cpu: str, *, passes: bool) -> None:
    """One idle accelerator keeps four of eight cores."""
    proportional = {
        "enable": True,
        "resources": GPU,
        "resourceProportion": {f"{GPU}.cpu": 4, f"{GPU}.memory": 1},
    }
    tier = [sessions.plugin("resource-strategy-fit", {"proportional": proportional})]
    ssn = sessions.opened(
        builders.make_node("n1", cpu="8", extra={GPU: "1"}),
        QUEUE,
        *sessions.gang("g1", "a", 1, cpu=cpu),
        *sessions.gang("g2", "a", 1, cpu="8", extra={GPU: "1"}),
        tier=tier,
    )
    reason = f"node(s) keep cpu and memory for idle {GPU}"
    assert refused(ssn) == ["" if passes else reason]
    assert refused(ssn, "g2") == [""], "who takes the accelerator takes what is kept for it"


def groups(*names: str) -> list[core.Node]:
    return [builders.make_node(name, labels={"volcano.sh/nodegroup-name": name}) for name in names]


WANTED = scheduling.QueueAffinity(
    node_group_affinity=scheduling.NodeGroupTerms(
        required_during_scheduling_ignored_during_execution=("n1",),
        preferred_during_scheduling_ignored_during_execution=("n2", "n3"),
    ),
    node_group_anti_affinity=scheduling.NodeGroupTerms(
        required_during_scheduling_ignored_during_execution=("n3",),
        preferred_during_scheduling_ignored_during_execution=("n4",),
    ),
)


def test_a_queue_uses_its_groups_and_avoids_others() -> None:
    ssn = sessions.opened(
        *groups("n1", "n2", "n3", "n4", "n5"),
        builders.make_node("n6"),
        sessions.queue("a", affinity=WANTED),
        *sessions.gang("g1", "a", 1),
        tier=[sessions.plugin("nodegroup", {"enablePreferredOrder": True})],
    )
    off = "node does not satisfy the node group affinity"
    assert refused(ssn) == ["", "", off, "", off, "node group label not found"]
    assert scored(ssn) == [100, 50, 25, -1, 0, 0]


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_queue_without_groups_has_unlabelled_nodes_only_if_that_is_allowed(
    *, is_strict: bool
) -> None:
    ssn = sessions.opened(
        *groups("n1"),
        builders.make_node("n2"),
        QUEUE,
        *sessions.gang("g1", "a", 1),
        tier=[sessions.plugin("nodegroup", {"strict": is_strict})],
    )
    unlabelled = "node group label not found" if is_strict else ""
    assert refused(ssn) == ["node group affinity not specified", unlabelled]


def test_in_a_tree_the_affinity_of_the_parent_counts_per_queue() -> None:
    ssn = sessions.opened(
        *groups("n1", "n5"),
        sessions.queue("x", affinity=WANTED),
        sessions.queue("a", parent="x"),
        sessions.queue("b"),
        *sessions.gang("g1", "a", 1),
        *sessions.gang("g2", "b", 1),
        tier=[sessions.plugin("nodegroup", enableHierarchy=True)],
    )
    assert refused(ssn)[0] == ""
    assert refused(ssn, "g2")[0] == "node group affinity not specified"


def test_a_queue_has_a_limit_in_a_group_that_follows_what_is_placed() -> None:
    limits = {"volcano.sh/nodegroup-resource-limits": json.dumps({"n1": {"cpu": "2"}})}
    ssn = sessions.opened(
        *groups("n1"),
        sessions.queue("a", affinity=WANTED, annotations=limits),
        *sessions.gang("g0", "a", 1, node="n1"),
        *sessions.gang("g1", "a", 2),
        tier=[sessions.plugin("nodegroup")],
    )
    assert refused(ssn) == [""]
    ssn.statement().allocate(ssn.jobs["default/g1"].pending[0], "n1")
    assert refused(ssn) == ["node group resource limit exceeded"]


def test_limits_that_cannot_be_read_keep_the_queue_off_all_nodes() -> None:
    limits = {"volcano.sh/nodegroup-resource-limits": "{"}
    ssn = sessions.opened(
        *groups("n1"),
        sessions.queue("a", affinity=WANTED, annotations=limits),
        *sessions.gang("g1", "a", 1),
        tier=[sessions.plugin("nodegroup")],
    )
    assert refused(ssn) == ["node group resource limit annotation invalid"]


NIGHT = {"tdm.revocable-zone.night": "22:00-06:00", "tdm.evict.period": "5m"}
TDM = [sessions.plugin("tdm", NIGHT)]
REVOCABLE = {keys.REVOCABLE_ZONE: "*"}


def zoned(name: str, zone: str) -> core.Node:
    return builders.make_node(name, labels={keys.REVOCABLE_ZONE: zone})


def at(hour: int, minute: int = 0) -> datetime:
    return builders.NOON.replace(hour=hour, minute=minute)


@pytest.mark.parametrize(
    ("now", "is_open"), [(at(21, 59), False), (at(22), True), (at(5), True), (at(6, 1), False)]
)
def test_a_zone_takes_revocable_pods_during_its_hours(now: datetime, *, is_open: bool) -> None:
    """Past midnight, too."""
    ssn = sessions.opened(
        builders.make_node("n1"),
        zoned("n2", "night"),
        zoned("n3", "nowhere"),
        QUEUE,
        *sessions.gang("g1", "a", 1, annotations=REVOCABLE),
        *sessions.gang("g2", "a", 1),
        tier=TDM,
        now=now,
    )
    closed = "" if is_open else "node(s) in revocable zone night outside its hours 22:00-06:00"
    unknown = "node(s) in revocable zone nowhere, which has no configured hours"
    assert refused(ssn) == ["", closed, unknown]
    assert scored(ssn) == [0, 100 if is_open else 0, 0]
    not_allowed = "node(s) in a revocable zone, which takes only revocable pods"
    assert refused(ssn, "g2")[1] == (closed or not_allowed)


def lingering(**annotations: str) -> list[meta.Object]:
    """Four running preemptable pods in the zone, of one job."""
    notes = {f"volcano.sh/{key.replace('_', '-')}": text for key, text in annotations.items()}
    job = builders.make_pod_group("g1", queue="a", phase="Running", annotations=notes)
    pods = sessions.gang("g1", "a", 4, node="n1", annotations=REVOCABLE)[1:]
    return [zoned("n1", "night"), QUEUE, job, *pods]


@pytest.mark.parametrize(
    ("objects", "number"),
    [
        (lingering(), 1),
        (lingering(jdb_min_available="2"), 2),
        (lingering(jdb_min_available="51%"), 1),
        (lingering(jdb_max_unavailable="3"), 3),
        (lingering(jdb_max_unavailable="50%"), 2),
        (lingering(jdb_min_available="5"), 1),
        (lingering(jdb_min_available="9" * 5000), 1),
        (lingering(jdb_max_unavailable="9" * 400 + "%"), 1),
    ],
    ids=[
        "one",
        "down to the minimum",
        "rounded up",
        "at most",
        "of all",
        "beyond what runs: one",
        "no count",
        "no share",
    ],
)
def test_outside_the_hours_each_job_loses_what_it_can_spare(
    objects: list[meta.Object], number: int
) -> None:
    ssn = sessions.opened(*objects, tier=TDM)
    tasks = list(ssn.jobs["default/g1"].tasks.values())
    assert len(ssn.victim_tasks(tasks)) == number


def test_victims_are_chosen_once_a_period_whatever_session_did_it() -> None:
    first = sessions.opened(*lingering(), tier=TDM)
    tasks = list(first.jobs["default/g1"].tasks.values())
    assert first.victim_tasks(tasks)
    assert not first.victim_tasks(tasks)
    first.close()
    for minutes, number in ((4, 0), (5, 1)):
        now = builders.NOON + timedelta(minutes=minutes)
        later = sessions.opened(*lingering(), tier=TDM, now=now, memory=first.remember)
        assert len(later.victim_tasks(list(later.jobs["default/g1"].tasks.values()))) == number


def test_hours_that_make_no_sense_are_complained_of() -> None:
    tier = [sessions.plugin("tdm", {"tdm.revocable-zone.z": "always", "tdm.evict.period": 60})]
    ssn = sessions.opened(zoned("n1", "z"), QUEUE, *sessions.gang("g1", "a", 1), tier=tier)
    assert refused(ssn) == ["node(s) in revocable zone z, which has no configured hours"]
    assert sum("tdm" in text for text in ssn.complaints) == 2
