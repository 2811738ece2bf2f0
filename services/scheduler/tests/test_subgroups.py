"""Groups inside a gang: each starts as a whole, and enough of them start or none."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from services.scheduler.tests.support import default_sessions, sessions
from stromboli.scheduler.core import simulate
from stromboli.scheduler.core.framework import session
from stromboli.shared.api import core, meta, scheduling
from stromboli.testkit import builders

RACK = "rack"
CLASSES = [builders.make_priority_class("low", 1), builders.make_priority_class("high", 9)]


def policy(
    size: int | None = None, least: int | None = None, **more: Any
) -> scheduling.SubGroupPolicy:
    return scheduling.SubGroupPolicy(
        name="p",
        match_label_keys=more.pop("keys", (RACK,)),
        sub_group_size=size,
        min_sub_groups=least,
        **more,
    )


def divided(
    groups: Mapping[str, int],
    *policies: scheduling.SubGroupPolicy,
    least: int,
    name: str = "g",
    node: str = "",
    priority_class: str = "",
    **pod: Any,
) -> list[meta.Object]:
    """A gang with this number of pods per value of the label; the empty value means no label."""
    group = builders.make_pod_group(
        name, least, phase="Running" if node else "Inqueue", priority_class=priority_class
    )
    spec = msgspec.structs.replace(group.spec, sub_group_policy=policies)
    pods = [
        builders.make_pod(
            f"{name}-{value or 'x'}-{at}",
            name,
            labels={RACK: value} if value else None,
            node=node,
            phase="Running" if node else "Pending",
            **pod,
        )
        for value, count in groups.items()
        for at in range(count)
    ]
    return [msgspec.structs.replace(group, spec=spec), *pods]


def bound(decided: session.Session) -> list[str]:
    return sorted(default_sessions.binds(decided))


def node(cpu: int) -> core.Node:
    return builders.make_node("n1", cpu=cpu)


def test_a_group_that_does_not_fit_whole_takes_nothing() -> None:
    """The next group gets the room that is rolled back."""
    objects = divided({"0": 3, "1": 3}, policy(3, 1), least=3)
    assert bound(default_sessions.closed(node(5), *objects)) == ["g-0-0", "g-0-1", "g-0-2"]


def test_enough_groups_or_none() -> None:
    """Two of three groups must be complete; with room for only one of them none starts."""
    objects = divided({"0": 2, "1": 2, "2": 2}, policy(2, 2), least=2)
    assert bound(default_sessions.closed(node(3), *objects)) == []
    assert bound(default_sessions.closed(node(5), *objects)) == ["g-0-0", "g-0-1", "g-1-0", "g-1-1"]
    assert len(bound(default_sessions.closed(node(6), *objects))) == 6


def test_too_few_groups_make_the_job_invalid() -> None:
    """It is not tried, and its explanation has the reason."""
    decided = default_sessions.closed(node(8), *divided({"0": 4}, policy(2, 2), least=2))
    assert bound(decided) == []
    assert decided.jobs["default/g"].fit_error == (
        "Not enough valid subGroups of each task for gang-scheduling"
    )


def test_groups_come_in_the_order_of_their_index() -> None:
    """Label values that are numbers count as such: 2 before 10."""
    objects = divided({"10": 1, "2": 1, "9": 1}, policy(1, 1), least=2)
    assert bound(default_sessions.closed(node(2), *objects)) == ["g-2-0", "g-9-0"]


def test_a_group_that_is_nearer_to_need_goes_first() -> None:
    """The groups that the policy wants go before those that it can do without."""
    first = policy(1, 0, label_selector=core.LabelSelector(match_labels={"kind": "spare"}))
    second = msgspec.structs.replace(policy(1, 1), name="q")
    objs = divided({"0": 1, "1": 1}, first, second, least=1)
    spare = msgspec.structs.replace(
        objs[1],
        metadata=msgspec.structs.replace(objs[1].metadata, labels={RACK: "0", "kind": "spare"}),
    )
    assert bound(default_sessions.closed(node(1), objs[0], spare, objs[2])) == ["g-1-0"]


@pytest.mark.parametrize("keys", [(), ("absent",)], ids=["no keys", "a label that pods lack"])
def test_pods_that_no_policy_groups_are_one_group_of_their_own(keys: Sequence[str]) -> None:
    """Its minimum is 1, whatever sizes the policy sets."""
    objects = divided({"0": 3}, policy(3, keys=tuple(keys)), least=1)
    decided = default_sessions.closed(node(2), *objects)
    assert len(bound(decided)) == 2
    assert list(decided.jobs["default/g"].subjobs) == ["default/g"]


def test_the_minimum_of_the_whole_gang_holds_too() -> None:
    """Groups may be whole and the gang too small."""
    objects = divided({"0": 1, "1": 1, "2": 1}, policy(1, 1), least=3)
    assert bound(default_sessions.closed(node(2), *objects)) == []


def test_gangs_that_preempt_leave_enough_groups_whole() -> None:
    """Of three running groups where two must be whole, one may go without ending the job."""
    kept = {"gangpreempt": {"allowWholeBundle": False}}
    running = divided(
        {"0": 2, "1": 2, "2": 2}, policy(2, 2), least=2, name="old", node="n1", priority_class="low"
    )
    newcomer = [
        builders.make_pod_group("new", 1, priority_class="high"),
        builders.make_pod("new-0", "new", cpu=2),
    ]
    too_big = [
        builders.make_pod_group("new", 1, priority_class="high"),
        builders.make_pod("new-0", "new", cpu=4),
    ]
    assert len({each.rpartition("-")[0] for each in evicted(kept, running, newcomer)}) == 1
    assert evicted(kept, running, too_big) == []


def evicted(arguments: Mapping[str, Mapping[str, Any]], *objects: list[meta.Object]) -> list[str]:
    how = sessions.configured(default_sessions.TIER, run="gangpreempt")
    how = msgspec.structs.replace(how, action_arguments=arguments)
    ssn = sessions.open_given(
        how, sessions.given([builders.make_queue(), node(6), *CLASSES, *itertools.chain(*objects)])
    )
    simulate.run_actions(ssn)
    return [each.task for each in ssn.decisions.evictions]
