"""Jobs, and queues along their paths, by dominant shares."""

from collections import Counter

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core.model import entities
from stromboli.shared import keys
from stromboli.shared.api import scheduling
from stromboli.testkit import builders

TIER = [sessions.plugin("drf")]
TREE = [sessions.plugin("drf", enableHierarchy=True)]


def path(name: str, hierarchy: str, weights: str) -> scheduling.Queue:
    return sessions.queue(
        name, annotations={keys.HIERARCHY: hierarchy, keys.HIERARCHY_WEIGHTS: weights}
    )


def placed(*objects: object, tier: sessions.Tier) -> Counter[str]:
    outcome = sessions.decided(*objects, tiers=[tier])  # type: ignore[arg-type]  # objects all
    return Counter(key.split("/")[1].split("-")[0] for key in outcome.binds)


def test_the_job_with_the_smaller_dominant_share_is_first() -> None:
    """A quarter of the cpu is more than an eighth of the memory."""
    ssn = sessions.opened(
        builders.make_node("n1", cpu="8", memory="8Gi"),
        sessions.queue("a"),
        *sessions.gang("g1", "a", 1, node="n1", cpu="2", memory=None),
        *sessions.gang("g2", "a", 1, node="n1", cpu=None, memory="1Gi"),
        tier=TIER,
    )
    cpu, memory = ssn.jobs["default/g1"], ssn.jobs["default/g2"]
    assert ssn.compare_jobs(memory, cpu) < 0


def test_jobs_take_turns_as_their_shares_grow() -> None:
    counts = placed(
        builders.make_node("n1", cpu="9", memory="18Gi"),
        sessions.queue("a"),
        *sessions.gang("g1", "a", 9, cpu="1", memory="4Gi"),
        *sessions.gang("g2", "a", 9, cpu="3", memory="1Gi"),
        tier=TIER,
    )
    assert counts == {"g1": 3, "g2": 2}


def test_a_job_may_preempt_those_that_hold_as_much_even_after_they_gave() -> None:
    """Four against one: when two are evicted the shares are equal, and the third stays."""
    ssn = sessions.opened(
        builders.make_node("n1", cpu="8"),
        sessions.queue("a"),
        *sessions.gang("g1", "a", 4, node="n1"),
        *sessions.gang("g2", "a", 1, node="n1"),
        *sessions.gang("g3", "a", 2),
        tier=TIER,
    )
    preemptor = ssn.jobs["default/g3"].pending[0]
    candidates = list(ssn.jobs["default/g1"].with_status(entities.Status.RUNNING))
    assert len(ssn.preemptable(preemptor, candidates)) == 3
    ssn.statement().pipeline(preemptor, "n1")
    second = ssn.jobs["default/g3"].pending[0]
    assert len(ssn.preemptable(second, candidates)) == 2


def test_branches_share_by_weight_at_each_level() -> None:
    """Science and engineering have one half each; the departments of engineering share its half."""
    counts = placed(
        builders.make_node("n1", cpu="12"),
        path("sci", "root/sci", "1/1"),
        path("dev", "root/eng/dev", "1/1/1"),
        path("ops", "root/eng/ops", "1/1/1"),
        *sessions.gang("g1", "sci", 12),
        *sessions.gang("g2", "dev", 12),
        *sessions.gang("g3", "ops", 12),
        tier=TREE,
    )
    assert counts == {"g1": 6, "g2": 3, "g3": 3}


def test_a_heavier_queue_has_more() -> None:
    counts = placed(
        builders.make_node("n1", cpu="12"),
        path("sci", "root/sci", "1/1"),
        path("eng", "root/eng", "1/2"),
        *sessions.gang("g1", "sci", 12),
        *sessions.gang("g2", "eng", 12),
        tier=TREE,
    )
    assert counts == {"g1": 4, "g2": 8}


def test_a_branch_that_has_all_it_asks_for_leaves_the_rest_to_others() -> None:
    counts = placed(
        builders.make_node("n1", cpu="12"),
        path("sci", "root/sci", "1/1"),
        path("eng", "root/eng", "1/1"),
        *sessions.gang("g1", "sci", 2),
        *sessions.gang("g2", "eng", 12),
        tier=TREE,
    )
    assert counts == {"g1": 2, "g2": 10}


def test_queues_reclaim_only_while_they_stay_behind_the_victims() -> None:
    ssn = sessions.opened(
        builders.make_node("n1", cpu="8"),
        path("a", "root/a", "1/1"),
        path("b", "root/b", "1/1"),
        *sessions.gang("g1", "a", 7, node="n1"),
        *sessions.gang("g2", "b", 1, node="n1"),
        *sessions.gang("g3", "b", 4),
        tier=TREE,
    )
    candidates = list(ssn.jobs["default/g1"].with_status(entities.Status.RUNNING))
    mine = ssn.jobs["default/g3"].pending[0]
    assert ssn.reclaimable(mine, candidates) == candidates
    theirs = list(ssn.jobs["default/g2"].with_status(entities.Status.RUNNING))
    ahead = ssn.jobs["default/g1"].with_status(entities.Status.RUNNING)
    assert ssn.reclaimable(next(ahead), theirs) == []


def test_a_queue_without_a_path_equals_all_others_and_missing_weights_are_one() -> None:
    ssn = sessions.opened(
        builders.make_node("n1"),
        sessions.queue("flat"),
        path("a", "root/a/b", "1"),
        *sessions.gang("g1", "a", 4, node="n1"),
        *sessions.gang("g2", "flat", 1),
        tier=TREE,
    )
    flat, deep = ssn.queues["flat"], ssn.queues["a"]
    assert ssn.compare_queues(deep, flat) < 0, "equal, so that names decide"
