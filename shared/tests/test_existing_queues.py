"""Existing queues, however they were created: each violation is reported on one queue, and on none
that passed admission one by one.
"""

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from stromboli.shared import keys
from stromboli.shared.api import scheduling
from stromboli.shared.api.meta import ObjectMeta
from stromboli.shared.jobspec.validation.queueing import queue_tree, queues

DEPTH = 3
NAMES = ("a", "b", "c", "d", "e")


def queue(
    name: str, parent: str = "", cpu: int | None = None, deserved: int = 0, guarantee: int = 0
) -> scheduling.Queue:
    return scheduling.Queue(
        metadata=ObjectMeta(name=name),
        spec=scheduling.QueueSpec(
            parent=parent,
            capability=None if cpu is None else {"cpu": cpu},
            deserved={"cpu": deserved} if deserved else None,
            guarantee=scheduling.Guarantee(resource={"cpu": guarantee} if guarantee else None),
        ),
    )


def faults(*found: scheduling.Queue) -> dict[str, set[str]]:
    """Queue -> paths, of those that are wrong."""
    tree = queue_tree.QueueTree(found)
    seen = {
        it.metadata.name: {fault.path for fault in queues.validate_existing(it, tree, DEPTH)}
        for it in found
    }
    return {name: paths for name, paths in seen.items() if paths}


def test_an_absent_parent_is_reported_on_each_child() -> None:
    tree = (queue("a", "nowhere"), queue("b", "a"), queue("c"))
    assert faults(*tree) == {"a": {"spec.parent"}, "b": {"spec.parent"}}
    violations = queues.validate_existing(tree[1], queue_tree.QueueTree(tree), DEPTH)
    assert "queue 'a'" in next(iter(violations)).message


def test_a_cycle_is_reported_on_its_queues_and_their_descendants() -> None:
    tree = (queue("a", "b"), queue("b", "a"), queue("c", "a"), queue("d", "d"), queue("e"))
    assert faults(*tree) == {key: {"spec.parent"} for key in "abcd"}


def test_a_queue_without_a_name_is_validated_like_any_other() -> None:
    """Webhooks receive whatever a user writes."""
    others = {it.metadata.name: it for it in (queue("a"), queue("b", "a"))}
    violations = queues.validate_create(queue("", "b"), others, DEPTH)
    assert {fault.path for fault in violations} == {"metadata.name"}


def test_only_the_queue_that_is_too_deep_is_reported() -> None:
    tree = (queue("a"), queue("b", "a"), queue("c", "b"), queue("d", "c"))
    assert faults(*tree) == {"d": {"spec.parent"}}


def test_the_sum_of_children_is_reported_on_their_parent() -> None:
    tree = (
        queue("a", deserved=4, guarantee=1),
        queue("b", "a", deserved=3, guarantee=1),
        queue("c", "a", deserved=2, guarantee=1),
    )
    assert faults(*tree) == {"a": {"spec.deserved.cpu", "spec.guarantee.resource.cpu"}}


def test_a_capability_above_that_of_an_ancestor_is_reported_on_the_descendant() -> None:
    tree = (queue("a", cpu=4), queue("b", "a"), queue("c", "b", cpu=5))
    assert faults(*tree) == {"c": {"spec.capability.cpu"}}


def test_all_violations_of_a_queue_are_reported() -> None:
    wrong = scheduling.Queue(
        metadata=ObjectMeta(name="a", annotations={keys.HIERARCHY: "root/a"}),
        spec=scheduling.QueueSpec(
            parent="nowhere",
            capability={"cpu": "many", "memory": "-1"},
            guarantee=scheduling.Guarantee(resource={"cpu": 1}),
        ),
    )
    assert faults(wrong)["a"] == {
        "spec.parent",
        "spec.capability.cpu",
        "spec.capability.memory",
        "spec.deserved.cpu",
        f"metadata.annotations[{keys.HIERARCHY_WEIGHTS}]",
    }


def test_the_present_state_of_a_queue_is_not_validated() -> None:
    closing = scheduling.Queue(
        metadata=ObjectMeta(name="a"), status=scheduling.QueueStatus(state="Closing")
    )
    assert faults(closing) == {}


places = st.sampled_from(("", *NAMES))
bounded = st.builds(queue, st.sampled_from(NAMES), places, st.none() | st.integers(1, 3))
promised = st.builds(
    queue,
    st.sampled_from(NAMES),
    places,
    st.none() | st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 3),
)
wanted = st.one_of(bounded, promised)


@settings(max_examples=300)
@given(st.lists(wanted, min_size=8, max_size=25))
def test_queues_admitted_one_by_one_are_valid_together(
    requested: Iterable[scheduling.Queue],
) -> None:
    there: dict[str, scheduling.Queue] = {}
    for each in requested:
        name = each.metadata.name
        others = {key: it for key, it in there.items() if key != name}
        if name in there:
            violations = queues.validate_update(each, there[name], others, DEPTH)
        else:
            violations = queues.validate_create(each, others, DEPTH)
        if not any(violations):
            there[name] = each
    assert faults(*there.values()) == {}


@settings(max_examples=300)
@given(st.lists(wanted, max_size=12), st.lists(st.sampled_from(NAMES), max_size=3))
def test_an_incrementally_updated_tree_equals_a_new_one(
    put: list[scheduling.Queue], gone: list[str]
) -> None:
    """Also with circles, which end every walk, and orphans."""
    kept = queue_tree.QueueTree()
    for each in put:
        kept.put(each)
    for name in gone:
        kept.remove(name)
    there = {each.metadata.name: each for each in put if each.metadata.name not in gone}
    made = queue_tree.QueueTree(there.values())
    for name, each in there.items():
        assert set(kept.below(name)) == set(made.below(name))
        assert list(kept.above(name)) == list(made.above(name))
        assert sorted(map(repr, queues.validate_existing(each, kept, DEPTH))) == sorted(
            map(repr, queues.validate_existing(each, made, DEPTH))
        )
