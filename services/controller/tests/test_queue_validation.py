"""Queues that were created past admission get a Warning for each violation of admission's rules."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.controller.tests.support import service_harness
from services.controller.tests.support.core_harness import CoreHarness
from stromboli.controller.core.store import controller_cache, event_history
from stromboli.shared import keys, topics
from stromboli.shared.api import kinds, scheduling
from stromboli.shared.jobspec.validation.queueing import queues as rules
from stromboli.testkit.admission_cases import rules as admission_cases
from stromboli.testkit.builders import make_queue, make_record, snapshot_of, undecodable_record

SUMS = ("more-than-its-parent-has-left", "guaranteed-what-its-parent-is-not")
PASSING = ("a-bad-name", "below-one-that-runs-pods")
"""No API server accepts such a name, and the scheduler reports pods in a parent queue."""
CREATED = [
    case
    for case in admission_cases.CASES
    if case.kind == kinds.QUEUES and case.operation == "CREATE" and case.name not in PASSING
]


def wrong(harness: CoreHarness) -> dict[str, str]:
    """Queue -> its recorded violations."""
    marks = {
        name: harness.queue(name).metadata.annotation(keys.VIOLATIONS)
        for name in harness.names(kinds.QUEUES)
    }
    return {name: mark for name, mark in marks.items() if mark}


def said(harness: CoreHarness) -> list[tuple[str, str]]:
    return [(it.name, it.reason) for it in harness.events.values()]


def change(harness: CoreHarness, name: str, **spec: Any) -> None:
    body = harness.objects["queues", name]
    body["spec"] |= spec
    harness.put(kinds.QUEUES, body)
    harness.settle()


def family(*parents: tuple[str, str]) -> CoreHarness:
    harness = CoreHarness()
    for name, parent in parents:
        harness.submit(make_queue(name, parent=parent))
    harness.settle()
    return harness


@pytest.mark.parametrize("case", CREATED, ids=str)
def test_what_admission_refuses_is_reported_on_the_queue_that_came_past_it(
    case: admission_cases.Case,
) -> None:
    """Of its parent, where several children together have too much. It works all the same."""
    harness = CoreHarness()
    for document in (*admission_cases.EXISTING_OBJECTS, case.document):
        harness.put(kinds.QUEUES, document)
    harness.settle()
    found = wrong(harness)
    if not case.refused:
        assert found == {}
        return
    (sent,) = found
    name = case.document["metadata"]["name"]
    is_sum = case.name in SUMS
    assert sent == (case.document["spec"]["parent"] if is_sum else name)
    assert found[sent].startswith(f"{case.refused}: ")
    assert said(harness) == [(sent, "Refused")]
    assert harness.queue(name).status.state == "Open"


def test_a_violation_is_reported_once_and_removed_when_corrected() -> None:
    harness = family(("org", ""), ("team", "nowhere"))
    assert wrong(harness) == {
        "team": "spec.parent: queue 'nowhere' does not exist; "
        "create it first: strom queue create nowhere"
    }
    harness.restart()
    harness.settle()
    assert said(harness) == [("team", "Refused")]
    change(harness, "team", deserved={"cpu": "many"})
    assert "spec.parent: " in wrong(harness)["team"]
    assert "spec.deserved.cpu: " in wrong(harness)["team"]
    assert said(harness) == [("team", "Refused")] * 2
    change(harness, "team", parent="org", deserved=None)
    assert wrong(harness) == {}
    assert said(harness)[2:] == [("team", "Accepted")]


def test_a_parent_that_comes_mends_what_hangs_on_it() -> None:
    harness = family(("team", "org"), ("leaf", "team"))
    assert set(wrong(harness)) == {"team", "leaf"}
    harness.submit(make_queue("org"))
    harness.settle()
    assert wrong(harness) == {}
    harness.delete(kinds.QUEUES, "org")
    harness.settle()
    assert set(wrong(harness)) == {"team", "leaf"}


def test_a_cycle_is_reported_on_its_queues_and_descendants_until_corrected() -> None:
    harness = family(("a", "b"), ("b", "a"), ("leaf", "a"), ("free", ""))
    assert set(wrong(harness)) == {"a", "b", "leaf"}
    change(harness, "b", parent="root")
    assert wrong(harness) == {}


def test_a_tree_that_becomes_too_deep_is_reported_on_those_at_its_end() -> None:
    chain = [(f"q{level}", f"q{level - 1}" if level else "") for level in range(rules.MAX_DEPTH)]
    harness = family(*chain, ("top", ""))
    assert wrong(harness) == {}
    change(harness, "q0", parent="top")
    assert set(wrong(harness)) == {chain[-1][0]}


def test_shares_are_validated_again_after_changes_of_relatives() -> None:
    harness = family(("org", ""), ("a", "org"), ("b", "org"))
    change(harness, "org", deserved={"cpu": 4}, capability={"cpu": 8})
    change(harness, "a", deserved={"cpu": 3}, capability={"cpu": 8})
    assert wrong(harness) == {}
    change(harness, "b", deserved={"cpu": 2})
    assert set(wrong(harness)) == {"org"}
    change(harness, "org", capability={"cpu": 4})
    assert set(wrong(harness)) == {"org", "a"}
    harness.delete(kinds.QUEUES, "b")
    change(harness, "a", capability={"cpu": 4})
    assert wrong(harness) == {}


def test_a_parent_that_cannot_be_read_is_not_taken_for_absent() -> None:
    harness = family(("org", ""), ("team", "org"))
    team = make_record(snapshot_of(harness.queue("team")))
    harness.cache = controller_cache.ControllerCache(("volcano",), event_history.EventHistory())
    for record in (undecodable_record(topics.QUEUES, "org"), team):
        harness.dirty |= dict.fromkeys(harness.cache.apply(record).items)
    harness.settle()
    assert wrong(harness) == {}
    harness.see_again(topics.QUEUES.name)
    harness.delete(kinds.QUEUES, "org")
    harness.settle()
    assert set(wrong(harness)) == {"team"}


def test_foreign_values_of_the_annotation_are_overwritten() -> None:
    harness = family(("team", ""))
    body = harness.objects["queues", "team"]
    body["metadata"].setdefault("annotations", {})[keys.VIOLATIONS] = "nothing at all"
    harness.put(kinds.QUEUES, body)
    harness.settle()
    assert wrong(harness) == {}


def test_a_change_asks_for_a_look_at_those_that_it_concerns_and_no_others() -> None:
    """Among thousands of queues below one."""
    cache, many = controller_cache.ControllerCache(("volcano",), event_history.EventHistory()), 2000
    versions = iter(range(2, 10 * many))

    def put(queue: scheduling.Queue) -> set[tuple[str, str]]:
        metadata = msgspec.structs.replace(queue.metadata, resource_version=str(next(versions)))
        record = make_record(snapshot_of(msgspec.structs.replace(queue, metadata=metadata)))
        return {(item.kind, item.key) for item in cache.apply(record).items}

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
async def test_it_is_on_the_queue_though_the_controller_changes(
    tmp_path: Path, seed: int | None
) -> None:
    """As one process, on the embedded log and cluster."""
    async with service_harness.set_up(tmp_path, seed) as harness:
        await harness.submit(make_queue("team", parent="org", state=""))
        async with harness.controller():
            await harness.until(kinds.QUEUES, "team", lambda it: "'org'" in sent(it))
        await harness.submit(make_queue("leaf", parent="team", state=""))
        async with harness.controller():
            await harness.until(kinds.QUEUES, "leaf", lambda it: "'team'" in sent(it))
            await harness.submit(make_queue("org", parent="root", state=""))
        async with harness.controller():
            for name in ("team", "leaf"):
                await harness.until(kinds.QUEUES, name, lambda it: not sent(it))


def sent(queue: scheduling.Queue) -> str:
    return queue.metadata.annotation(keys.VIOLATIONS) or ""
