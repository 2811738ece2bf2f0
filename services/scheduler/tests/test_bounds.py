"""What users make up costs no more memory than is set aside for it."""

from services.scheduler.tests import usual
from services.scheduler.tests.cell import Cell
from stromboli.scheduler.core.framework import filter_score
from stromboli.scheduler.core.model import node_constraints, requirements
from stromboli.testkit import builders

QUEUE, NODE = builders.make_queue(), builders.make_node("n1", cpu="4")


def test_made_up_resources_add_no_columns_without_end() -> None:
    """Each group beyond the bound says so; what nodes have is counted however late it comes."""
    cell = Cell()
    cell.see(QUEUE, NODE)
    for at in range(2 * requirements.MOST_ASKED):
        named = {f"example.com/r{at}": "1"}
        cell.see(builders.make_pod_group(f"g{at}", 1, phase="Pending", min_resources=named))
    assert len(cell.picture.world.resources.names) == 3 + requirements.MOST_ASKED
    assert "such names are asked for" in cell.picture.world.problems["podgroup", "default/g200"]
    cell.see(builders.make_node("n2", extra={"example.com/real": "1"}))
    cell.see(*usual.gang("real", 1, extra={"example.com/real": "1"}))
    decided = cell.session()
    assert [bind.node for each in decided.decisions for bind in each.binds] == ["n2"]


def test_made_up_selectors_keep_no_masks_without_end() -> None:
    cell = Cell()
    cell.see(QUEUE, NODE)
    cell.picture.world.settle()
    nodes = cell.picture.world.nodes
    checks = node_constraints.Checks(nodes.labelled, bytes_kept=0)
    interned = requirements.RequirementsIndex(cell.picture.world.resources)
    for at in range(10 * node_constraints.LEAST_KEPT):
        pod = builders.make_pod(node_selector={f"key-{at}": "x"})
        assert not checks.of(interned.of(pod.spec)).passed.any()
    assert len(checks) == node_constraints.LEAST_KEPT
    assert nodes.labelled.keys == 0


def test_one_answer_is_kept_for_all_requests_with_equal_constraints() -> None:
    cell = Cell()
    cell.see(QUEUE, NODE)
    cell.picture.world.settle()
    nodes = cell.picture.world.nodes
    interned = requirements.RequirementsIndex(cell.picture.world.resources)
    for at in range(50):
        nodes.checks.of(interned.of(builders.make_pod(cpu=f"{at + 1}m").spec))
    assert len(nodes.checks) == 1


def test_the_answers_of_a_session_are_bounded_by_their_bytes() -> None:
    assert (
        filter_score.BYTES_KEPT // (filter_score.BYTES_OF_A_ROW * 10_000) >= filter_score.LEAST_KEPT
    )
