"""Queues that came past admission are told what is wrong with them, by admission's own rules."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.controller.tests import stage as stages
from services.controller.tests.world import World
from stromboli.controller.core.store import cache, event_history
from stromboli.shared import keys, topics
from stromboli.shared.api import kinds, scheduling
from stromboli.shared.jobspec.validation import queues as rules
from stromboli.testkit import admission_cases
from stromboli.testkit.builders import garbled, make_queue, make_record, observed

SUMS = ("more-than-its-parent-has-left", "guaranteed-what-its-parent-is-not")
PASSING = ("a-bad-name", "below-one-that-runs-pods")
"""No API server has a queue of such a name, and what pods of a parent's own are told says the
scheduler."""
CREATED = [
    case
    for case in admission_cases.CASES
    if case.kind == kinds.QUEUES and case.operation == "CREATE" and case.name not in PASSING
]


def wrong(world: World) -> dict[str, str]:
    """Queue -> what stands on it."""
    marks = {
        name: world.queue(name).metadata.annotation(keys.VIOLATIONS)
        for name in world.names(kinds.QUEUES)
    }
    return {name: mark for name, mark in marks.items() if mark}


def said(world: World) -> list[tuple[str, str]]:
    return [(it.name, it.reason) for it in world.events.values()]


def change(world: World, name: str, **spec: Any) -> None:
    body = world.objects["queues", name]
    body["spec"] |= spec
    world.put(kinds.QUEUES, body)
    world.settle()


def family(*parents: tuple[str, str]) -> World:
    world = World()
    for name, parent in parents:
        world.submit(make_queue(name, parent=parent))
    world.settle()
    return world


@pytest.mark.parametrize("case", CREATED, ids=str)
def test_what_admission_refuses_is_told_of_the_queue_that_came_past_it(
    case: admission_cases.Case,
) -> None:
    """Of its parent, where several children together have too much. It works all the same."""
    world = World()
    for document in (*admission_cases.WORLD, case.document):
        world.put(kinds.QUEUES, document)
    world.settle()
    found = wrong(world)
    if not case.refused:
        assert found == {}
        return
    (told,) = found
    name = case.document["metadata"]["name"]
    is_sum = case.name in SUMS
    assert told == (case.document["spec"]["parent"] if is_sum else name)
    assert found[told].startswith(f"{case.refused}: ")
    assert said(world) == [(told, "Refused")]
    assert world.queue(name).status.state == "Open"


def test_it_is_said_once_and_taken_back_when_it_is_mended() -> None:
    world = family(("org", ""), ("team", "nowhere"))
    assert wrong(world) == {
        "team": "spec.parent: queue 'nowhere' does not exist; "
        "create it first: strom queue create nowhere"
    }
    world.restart()
    world.settle()
    assert said(world) == [("team", "Refused")]
    change(world, "team", deserved={"cpu": "many"})
    assert "spec.parent: " in wrong(world)["team"]
    assert "spec.deserved.cpu: " in wrong(world)["team"]
    assert said(world) == [("team", "Refused")] * 2
    change(world, "team", parent="org", deserved=None)
    assert wrong(world) == {}
    assert said(world)[2:] == [("team", "Accepted")]


def test_a_parent_that_comes_mends_what_hangs_on_it() -> None:
    world = family(("team", "org"), ("leaf", "team"))
    assert set(wrong(world)) == {"team", "leaf"}
    world.submit(make_queue("org"))
    world.settle()
    assert wrong(world) == {}
    world.delete(kinds.QUEUES, "org")
    world.settle()
    assert set(wrong(world)) == {"team", "leaf"}


def test_a_circle_is_told_of_all_that_hang_on_it_until_it_is_opened() -> None:
    world = family(("a", "b"), ("b", "a"), ("leaf", "a"), ("free", ""))
    assert set(wrong(world)) == {"a", "b", "leaf"}
    change(world, "b", parent="root")
    assert wrong(world) == {}


def test_a_tree_that_becomes_too_deep_is_told_of_those_at_its_end() -> None:
    chain = [(f"q{level}", f"q{level - 1}" if level else "") for level in range(rules.MAX_DEPTH)]
    world = family(*chain, ("top", ""))
    assert wrong(world) == {}
    change(world, "q0", parent="top")
    assert set(wrong(world)) == {chain[-1][0]}


def test_shares_are_judged_anew_whoever_of_the_family_changes() -> None:
    world = family(("org", ""), ("a", "org"), ("b", "org"))
    change(world, "org", deserved={"cpu": 4}, capability={"cpu": 8})
    change(world, "a", deserved={"cpu": 3}, capability={"cpu": 8})
    assert wrong(world) == {}
    change(world, "b", deserved={"cpu": 2})
    assert set(wrong(world)) == {"org"}
    change(world, "org", capability={"cpu": 4})
    assert set(wrong(world)) == {"org", "a"}
    world.delete(kinds.QUEUES, "b")
    change(world, "a", capability={"cpu": 4})
    assert wrong(world) == {}


def test_a_parent_that_cannot_be_read_is_not_taken_for_absent() -> None:
    world = family(("org", ""), ("team", "org"))
    team = make_record(observed(world.queue("team")))
    world.picture = cache.Cache(("volcano",), event_history.Published())
    for record in (garbled(topics.QUEUES, "org"), team):
        world.dirty |= dict.fromkeys(world.picture.apply(record).items)
    world.settle()
    assert wrong(world) == {}
    world.see_again(topics.QUEUES.name)
    world.delete(kinds.QUEUES, "org")
    world.settle()
    assert set(wrong(world)) == {"team"}


def test_what_somebody_else_writes_there_does_not_stay() -> None:
    world = family(("team", ""))
    body = world.objects["queues", "team"]
    body["metadata"].setdefault("annotations", {})[keys.VIOLATIONS] = "nothing at all"
    world.put(kinds.QUEUES, body)
    world.settle()
    assert wrong(world) == {}


def test_a_change_asks_for_a_look_at_those_that_it_concerns_and_no_others() -> None:
    """Among thousands of queues below one."""
    picture, many = cache.Cache(("volcano",), event_history.Published()), 2000
    versions = iter(range(2, 10 * many))

    def put(queue: scheduling.Queue) -> set[tuple[str, str]]:
        metadata = msgspec.structs.replace(queue.metadata, resource_version=str(next(versions)))
        record = make_record(observed(msgspec.structs.replace(queue, metadata=metadata)))
        return {(item.kind, item.key) for item in picture.apply(record).items}

    org = make_queue("org", parent="root")
    put(org)
    children = [make_queue(f"q{number}", parent="org") for number in range(many)]
    assert max(len(put(child)) for child in children) < 10
    shares = msgspec.structs.replace(children[0].spec, deserved={"cpu": 1})
    touched = put(msgspec.structs.replace(children[0], spec=shares))
    assert {key for kind, key in touched if kind == "queue rules"} == {"q0", "org"}
    counted = msgspec.structs.replace(org, status=scheduling.QueueStatus(state="Open", running=1))
    assert {key for kind, key in put(counted) if kind != "queue counts"} == {"org"}
    bounded = msgspec.structs.replace(org.spec, capability={"cpu": 1})
    assert len(put(msgspec.structs.replace(org, spec=bounded))) >= many


@pytest.mark.parametrize("seed", [None, 1], ids=["in order", "disorder"])
async def test_it_stands_on_the_queue_though_the_controller_changes(
    tmp_path: Path, seed: int | None
) -> None:
    """As one process, on the embedded log and cluster."""
    async with stages.set_up(tmp_path, seed) as stage:
        await stage.submit(make_queue("team", parent="org", state=""))
        async with stage.controller():
            await stage.until(kinds.QUEUES, "team", lambda it: "'org'" in told(it))
        await stage.submit(make_queue("leaf", parent="team", state=""))
        async with stage.controller():
            await stage.until(kinds.QUEUES, "leaf", lambda it: "'team'" in told(it))
            await stage.submit(make_queue("org", parent="root", state=""))
        async with stage.controller():
            for name in ("team", "leaf"):
                await stage.until(kinds.QUEUES, name, lambda it: not told(it))


def told(queue: scheduling.Queue) -> str:
    return queue.metadata.annotation(keys.VIOLATIONS) or ""
