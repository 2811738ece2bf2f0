"""Rules for queues at admission."""

from typing import Any

import msgspec
import pytest

from stromboli.shared import keys
from stromboli.shared.api import kinds, scheduling
from stromboli.shared.api.meta import ObjectMeta
from stromboli.shared.jobspec.validation import patch, review

POLICY = review.AdmissionPolicy(scheduler_names=("volcano",), plugins={}, max_queue_depth=3)
Document = dict[str, Any]


def document(name: str = "team", **spec: Any) -> Document:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def known(name: str, **spec: Any) -> scheduling.Queue:
    spec.setdefault("guarantee", scheduling.Guarantee())
    return scheduling.Queue(metadata=ObjectMeta(name=name), spec=scheduling.QueueSpec(**spec))


def refused(made: Document, *others: scheduling.Queue, before: Document | None = None) -> set[str]:
    violations = review.violations(
        kinds.QUEUES,
        "CREATE" if before is None else "UPDATE",
        made,
        before,
        review.ClusterContext(queues={queue.metadata.name: queue for queue in others}),
        POLICY,
    )
    return {violation.path for violation in violations}


def test_a_new_queue_is_reclaimable_and_weighs_one() -> None:
    bare = {"apiVersion": "v", "kind": "Queue", "metadata": {"name": "team"}}
    made = patch.applied(bare, review.default_patch(kinds.QUEUES, bare, POLICY, ""))
    assert made["spec"] == {"reclaimable": True, "weight": 1}


def test_a_hierarchy_starts_at_the_root() -> None:
    made = document()
    made["metadata"]["annotations"] = {keys.HIERARCHY: "eng/dev", keys.HIERARCHY_WEIGHTS: "2/3"}
    done = patch.applied(made, review.default_patch(kinds.QUEUES, made, POLICY, ""))
    assert done["metadata"]["annotations"] == {
        keys.HIERARCHY: "root/eng/dev",
        keys.HIERARCHY_WEIGHTS: "1/2/3",
    }


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"weight": 3, "capability": {"cpu": "4"}},
        {"deserved": {"cpu": 2}, "guarantee": {"resource": {"cpu": "1500m"}}},
        {"parent": "parent", "capability": {"cpu": 8}, "deserved": {"cpu": 3}},
    ],
)
def test_a_right_queue_passes(spec: Document) -> None:
    parent = known("parent", capability={"cpu": 8}, deserved={"cpu": 4})
    assert refused(document(**spec), parent) == set()


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"capability": {"cpu": "-1"}}, "spec.capability.cpu"),
        ({"capability": {"cpu": "many"}}, "spec.capability.cpu"),
        ({"guarantee": {"resource": {"cpu": "1"}}}, "spec.deserved.cpu"),
        ({"guarantee": {"resource": {"cpu": "2"}}, "deserved": {"cpu": "1"}}, "spec.deserved.cpu"),
        ({"deserved": {"cpu": "2"}, "capability": {"cpu": "1"}}, "spec.deserved.cpu"),
        ({"parent": "nowhere"}, "spec.parent"),
        ({"parent": "team"}, "spec.parent"),
        ({"parent": "third"}, "spec.parent"),
        ({"parent": "parent", "capability": {"cpu": 9}}, "spec.capability.cpu"),
        ({"parent": "parent", "deserved": {"cpu": 3}}, "spec.deserved.cpu"),
        ({"parent": "parent", "deserved": {"nvidia.com/gpu": 1}}, "spec.deserved.nvidia.com/gpu"),
    ],
)
def test_a_wrong_queue_is_refused_with_the_path(spec: Document, path: str) -> None:
    family = (
        known("parent", capability={"cpu": 8}, deserved={"cpu": 4}),
        known("sibling", parent="parent", deserved={"cpu": 2}),
        known("second", parent="parent"),
        known("third", parent="second"),
    )
    assert path in refused(document(**spec), *family)


@pytest.mark.parametrize(
    ("hierarchy", "weights"), [("root/a", "1"), ("root/a", "1/x"), ("root/a", "1/0"), ("root", "1")]
)
def test_a_wrong_hierarchy_is_refused(hierarchy: str, weights: str) -> None:
    below = scheduling.Queue(metadata=ObjectMeta(name="b", annotations={keys.HIERARCHY: "root/b"}))
    made = document()
    made["metadata"]["annotations"] = {keys.HIERARCHY: hierarchy, keys.HIERARCHY_WEIGHTS: weights}
    assert any(path.startswith("metadata.annotations") for path in refused(made, below))


def test_a_queue_may_not_shrink_below_its_children() -> None:
    child = known("child", parent="team", capability={"cpu": 4}, deserved={"cpu": 3})
    before = document(capability={"cpu": 8}, deserved={"cpu": 4})
    assert (
        refused(document(capability={"cpu": 4}, deserved={"cpu": 3}), child, before=before) == set()
    )
    smaller = document(capability={"cpu": 3}, deserved={"cpu": 2})
    assert refused(smaller, child, before=before) == {"spec.capability.cpu", "spec.deserved.cpu"}


def test_the_roots_resources_are_the_clusters() -> None:
    before = document("root")
    assert refused(document("root", capability={"cpu": 1}), before=before) == {"spec.capability"}


@pytest.mark.parametrize(
    ("name", "allowed"), [("default", False), ("root", False), ("parent", False), ("free", True)]
)
def test_only_a_childless_queue_of_ones_own_can_be_deleted(name: str, allowed: bool) -> None:
    queues = {q.metadata.name: q for q in (known(name), known("child", parent="parent"))}
    violations = review.violations(
        kinds.QUEUES, "DELETE", document(name), None, review.ClusterContext(queues=queues), POLICY
    )
    assert (not violations) == allowed


@pytest.mark.parametrize(
    ("pods", "goes", "allowed"), [(2, True, True), (2, False, False), (0, False, True)]
)
def test_an_operator_may_keep_queues_from_going_while_pods_run_in_them(
    pods: int, goes: bool, allowed: bool
) -> None:
    status = scheduling.QueueStatus(allocated={"pods": str(pods), "cpu": "1"})
    busy = msgspec.structs.replace(known("busy"), status=status)
    policy = msgspec.structs.replace(POLICY, allow_deleting_queues_with_pods=goes)
    around = review.ClusterContext(queues={"busy": busy})
    violations = review.violations(kinds.QUEUES, "DELETE", document("busy"), None, around, policy)
    assert [it.path for it in violations] == ([] if allowed else ["metadata.name"])
    gone = review.ClusterContext(queues={"other": busy})
    assert review.violations(kinds.QUEUES, "DELETE", document("busy"), None, gone, policy) == ()


@pytest.mark.parametrize("name", ["capability", "deserved", "guarantee"])
def test_the_amounts_of_a_queue_are_validated_only_when_they_change(name: str) -> None:
    """Others may have changed since: who edits the weight cannot mend that."""
    parent = known("parent", capability={"cpu": 1})
    amounts: Document = {
        "capability": {"cpu": 4},
        "deserved": {"cpu": 3},
        "guarantee": {"resource": {"cpu": 2}},
    }
    before = document(parent="parent", **amounts)
    assert refused(document(parent="parent", weight=2, **amounts), parent, before=before) == set()
    less = {"resource": {"cpu": 1}} if name == "guarantee" else {"cpu": 3.5}
    changed = document(parent="parent", **{**amounts, name: less})
    assert "spec.capability.cpu" in refused(changed, parent, before=before)


def test_the_capability_of_a_queue_limits_its_descendants() -> None:
    family = (
        known("child", parent="team", capability={"cpu": 2}),
        known("grandchild", parent="child", capability={"cpu": 9}),
        known("open", parent="team"),
        known("below-open", parent="open", capability={"cpu": 3}),
    )
    assert refused(document(capability={"cpu": 3}), *family) == set()
    assert refused(document(capability={"cpu": 2.5}), *family) == {"spec.capability.cpu"}


def test_a_queue_that_is_closing_can_be_edited() -> None:
    """The state is in the stored object; the update does not request it."""
    closing = {"status": {"state": "Closing"}}
    before, after = document(weight=1) | closing, document(weight=2) | closing
    assert refused(after, before=before) == set()
    assert refused(after, before=document(weight=1)) == {"status.state"}


def test_an_invalid_queue_may_change_fields_that_are_not_validated() -> None:
    """Otherwise it could not be closed, and its violations could not be recorded."""
    wrong = document(parent="nowhere", capability={"cpu": "-1"}, guarantee={"resource": {"cpu": 1}})
    marked = document(weight=2, **wrong["spec"])
    marked["metadata"]["annotations"] = {keys.CLOSED_BY_PARENT: "true"}
    assert refused(marked, before=wrong) == set()
    assert refused(document(**wrong["spec"] | {"parent": ""}), before=wrong) >= {
        "spec.capability.cpu",
        "spec.deserved.cpu",
    }


def test_an_invalid_queue_without_a_parent_is_a_child_of_the_root() -> None:
    wrong = document(capability={"cpu": "-1"})
    assert refused(document(capability={"cpu": "-1"}, parent="root"), before=wrong) == set()


def test_an_only_child_in_which_pods_run_can_be_changed() -> None:
    """What its parent holds is what it holds itself."""
    status = scheduling.QueueStatus(allocated={"pods": 3})
    parent = scheduling.Queue(metadata=ObjectMeta(name="parent"), status=status)
    changed = document(parent="parent", capability={"cpu": 4})
    assert refused(changed, parent, before=document(parent="parent")) == set()
    assert refused(changed, parent, before=document()) == {"spec.parent"}


def test_a_moved_queue_is_validated_with_its_descendants() -> None:
    narrow, wide = known("narrow", capability={"cpu": 2}), known("c", capability={"cpu": 3})
    below = msgspec.structs.replace(wide, spec=msgspec.structs.replace(wide.spec, parent="team"))
    moved = document(parent="narrow")
    assert refused(moved, narrow, below, before=document()) == {"spec.capability.cpu"}
    assert refused(moved, narrow, wide, before=document()) == set()
