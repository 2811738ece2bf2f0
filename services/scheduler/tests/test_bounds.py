"""What users make up costs no more memory than is set aside for it."""

from services.scheduler.tests.support import default_sessions
from services.scheduler.tests.support.harness import SchedulerHarness
from stromboli.scheduler.core.framework import filter_score
from stromboli.scheduler.core.model import node_constraints, requirements, resource_columns
from stromboli.testkit import builders

QUEUE, NODE = builders.make_queue(), builders.make_node("n1", cpu="4")


def test_made_up_resources_add_no_columns_without_end() -> None:
    """Each group beyond the bound says so; what nodes have is counted however late it comes."""
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE)
    for at in range(2 * resource_columns.MAX_NAMES):
        named = {f"example.com/r{at}": "1"}
        harness.see(builders.make_pod_group(f"g{at}", 1, phase="Pending", min_resources=named))
    assert len(harness.cache.world.resources.names) == 3 + resource_columns.MAX_NAMES
    assert "such names are requested" in harness.cache.world.problems["podgroup", "default/g200"]
    harness.see(builders.make_node("n2", extra={"example.com/real": "1"}))
    harness.see(*default_sessions.gang("real", 1, extra={"example.com/real": "1"}))
    decided = harness.session()
    assert [bind.node for each in decided.decisions for bind in each.binds] == ["n2"]


def test_a_resource_column_is_removed_with_its_last_user() -> None:
    """Thousands of invented names, a few at a time, leave tables as they were."""
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE)
    world = harness.cache.world
    for at in range(300):
        groups = [
            builders.make_pod_group(
                f"g{at}-{each}",
                1,
                phase="Pending",
                min_resources={f"example.com/r{at}-{each}": "1"},
            )
            for each in range(5)
        ]
        pod = builders.make_pod(f"p{at}", f"g{at}-0", extra={f"example.com/p{at}": "1"})
        harness.see(*groups, pod)
        world.settle()
        assert len(world.resources.names) == 3 + 6
        harness.lose(pod, *groups)
    world.settle()
    assert world.resources.names == ["cpu", "memory", "pods"]
    assert len(world.nodes.allocatable) == 3
    harness.see(*default_sessions.gang("real", 4, cpu="1"))
    assert len(harness.session().decisions[0].binds) == 4


def test_a_resource_column_stays_while_any_user_is_left() -> None:
    """The amounts of the others are the same after the columns have moved."""
    harness = SchedulerHarness()
    nodes = [
        builders.make_node(f"n{at}", cpu="8", extra={f"example.com/{name}": "2"})
        for at, name in enumerate("abc")
    ]
    harness.see(QUEUE, *nodes, *default_sessions.gang("held", 2, extra={"example.com/c": "1"}))
    assert len(harness.session().decisions[0].binds) == 2
    invented = default_sessions.gang("invented", 1, extra={"example.com/invented": "1"})
    harness.see(*invented)
    harness.session()
    harness.lose(nodes[0], *invented)
    harness.see(*default_sessions.gang("more", 1, extra={"example.com/c": "1"}))
    assert not harness.session().decisions
    assert harness.cache.world.resources.names == [
        *("cpu", "memory", "pods"),
        *("example.com/b", "example.com/c"),
    ]
    harness.see(*default_sessions.gang("other", 2, extra={"example.com/b": "1"}))
    decided = harness.session().decisions
    assert {bind.node for each in decided for bind in each.binds} == {"n1"}


def test_a_refused_group_starts_once_a_node_offers_its_resource() -> None:
    harness = exhausted()
    harness.see(*default_sessions.gang("late", 1, extra={"example.com/late": "1"}))
    assert "such names are requested" in harness.cache.world.problems["pod", "default/late-0"]
    assert not harness.session().decisions
    harness.see(builders.make_node("n2", extra={"example.com/late": "1"}))
    assert harness.cache.session_cause is not None
    decided = harness.session().decisions
    assert [bind.node for each in decided for bind in each.binds] == ["n2"]


def test_refused_objects_are_admitted_one_by_one_as_names_are_released() -> None:
    harness = exhausted()
    late = [
        builders.make_pod_group(
            f"late{at}", 1, phase="Pending", min_resources={f"example.com/late{at}": "1"}
        )
        for at in range(3)
    ]
    harness.see(*late)
    assert refused(harness) == {"late0", "late1", "late2"}
    harness.lose(builders.make_pod_group("g0", 1))
    assert refused(harness) == {"late1", "late2"}
    assert "default/late0" in harness.cache.waiting
    harness.lose(late[0])
    assert refused(harness) == {"late2"}
    harness.lose(late[2])
    harness.lose(late[1])
    assert not refused(harness)


def refused(harness: SchedulerHarness) -> set[str]:
    return {key.removeprefix("default/") for _, key in harness.cache.world.problems}


def exhausted() -> SchedulerHarness:
    """A cluster in which as many resource names are invented as there may be."""
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE)
    for at in range(resource_columns.MAX_NAMES):
        named = {f"example.com/r{at}": "1"}
        harness.see(builders.make_pod_group(f"g{at}", 1, phase="Pending", min_resources=named))
    harness.session()
    return harness


def test_made_up_selectors_keep_no_masks_without_end() -> None:
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE)
    harness.cache.world.settle()
    nodes = harness.cache.world.nodes
    checks = node_constraints.ConstraintCache(nodes.labelled, bytes_kept=0)
    interned = requirements.RequirementsIndex()
    for at in range(10 * node_constraints.MIN_CACHED_ENTRIES):
        pod = builders.make_pod(node_selector={f"key-{at}": "x"})
        assert not checks.of(interned.of(pod.spec)).passed.any()
    assert len(checks) == node_constraints.MIN_CACHED_ENTRIES
    assert nodes.labelled.keys == 0


def test_one_answer_is_kept_for_all_requests_with_equal_constraints() -> None:
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE)
    harness.cache.world.settle()
    nodes = harness.cache.world.nodes
    interned = requirements.RequirementsIndex()
    for at in range(50):
        nodes.checks.of(interned.of(builders.make_pod(cpu=f"{at + 1}m").spec))
    assert len(nodes.checks) == 1


def test_the_answers_of_a_session_are_bounded_by_their_bytes() -> None:
    assert (
        filter_score.MAX_CACHED_BYTES // (filter_score.BYTES_PER_ROW * 10_000)
        >= filter_score.MIN_CACHED_CLASSES
    )
