"""What users make up costs no more memory than is set aside for it."""

from services.scheduler.tests.support import default_sessions
from services.scheduler.tests.support.harness import SchedulerHarness
from stromboli.scheduler.core.framework import filter_score
from stromboli.scheduler.core.model import node_constraints, requirements
from stromboli.testkit import builders

QUEUE, NODE = builders.make_queue(), builders.make_node("n1", cpu="4")


def test_made_up_resources_add_no_columns_without_end() -> None:
    """Each group beyond the bound says so; what nodes have is counted however late it comes."""
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE)
    for at in range(2 * requirements.MAX_NAMES):
        named = {f"example.com/r{at}": "1"}
        harness.see(builders.make_pod_group(f"g{at}", 1, phase="Pending", min_resources=named))
    assert len(harness.cache.world.resources.names) == 3 + requirements.MAX_NAMES
    assert "such names are asked for" in harness.cache.world.problems["podgroup", "default/g200"]
    harness.see(builders.make_node("n2", extra={"example.com/real": "1"}))
    harness.see(*default_sessions.gang("real", 1, extra={"example.com/real": "1"}))
    decided = harness.session()
    assert [bind.node for each in decided.decisions for bind in each.binds] == ["n2"]


def test_made_up_selectors_keep_no_masks_without_end() -> None:
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE)
    harness.cache.world.settle()
    nodes = harness.cache.world.nodes
    checks = node_constraints.ConstraintCache(nodes.labelled, bytes_kept=0)
    interned = requirements.RequirementsIndex(harness.cache.world.resources)
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
    interned = requirements.RequirementsIndex(harness.cache.world.resources)
    for at in range(50):
        nodes.checks.of(interned.of(builders.make_pod(cpu=f"{at + 1}m").spec))
    assert len(nodes.checks) == 1


def test_the_answers_of_a_session_are_bounded_by_their_bytes() -> None:
    assert (
        filter_score.MAX_CACHED_BYTES // (filter_score.BYTES_PER_ROW * 10_000)
        >= filter_score.MIN_CACHED_CLASSES
    )
