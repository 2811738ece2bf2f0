"""Jobs that evict each other are found, and no others."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.controller.tests.support import service_harness
from services.controller.tests.support.pending_gangs import holds, waiting
from stromboli.controller.core.store import eviction_cycles
from stromboli.controller.core.store.controller_cache import ReconcileKey
from stromboli.controller.core.store.eviction_cycles import WINDOW, EvictionCycles, Member
from stromboli.shared.api import core, kinds
from stromboli.testkit.builders import NOON, make_job, make_node, make_task
from stromboli.testkit.strategies import depth

NAMES = "abcdef"
A, B, C = (Member(f"default/{name}", name) for name in "abc")
SECOND = timedelta(seconds=1)


def members(*names: str) -> list[Member]:
    return [Member(f"default/{name}", name) for name in names]


@pytest.mark.parametrize("length", [2, 3, 5])
def test_a_cycle_of_any_length_names_all_its_members(length: int) -> None:
    cycles = EvictionCycles()
    ring = members(*NAMES[:length])
    for at, beneficiary in enumerate(ring[:-1]):
        assert cycles.note(beneficiary, ring[at + 1], NOON) == ()
    assert cycles.note(ring[-1], ring[0], NOON) == (ring[-1], *ring[:-1])
    for each in ring:
        assert set(cycles.of(each.uid, NOON)) == set(ring)


def test_evictions_further_apart_than_the_window_are_no_cycle() -> None:
    cycles = EvictionCycles()
    cycles.note(A, B, NOON)
    assert cycles.note(B, A, NOON + WINDOW) == ()
    assert cycles.of("a", NOON + WINDOW) == ()


def test_a_cycle_is_reported_once_and_ends_a_window_after_its_last_eviction() -> None:
    cycles = EvictionCycles()
    cycles.note(A, B, NOON)
    assert cycles.note(B, A, NOON) == (B, A)
    later = NOON + WINDOW - SECOND
    assert cycles.note(A, B, later) == ()
    assert cycles.until("a") == cycles.until("b") == later + WINDOW
    assert cycles.of("a", later + WINDOW) == ()


def test_a_job_that_is_submitted_again_is_another_member() -> None:
    cycles = EvictionCycles()
    cycles.note(A, B, NOON)
    assert cycles.note(Member(B.key, "b2"), A, NOON) == ()


def test_members_released_for_their_own_gang_are_no_cycle() -> None:
    """A gang of which only a part was started is evicted in its own name."""
    assert EvictionCycles().note(A, A, NOON) == ()


def test_the_oldest_evictions_are_dropped_beyond_the_limit() -> None:
    cycles = EvictionCycles()
    cycles.note(A, B, NOON)
    for number in range(eviction_cycles.MOST_EVICTIONS):
        cycles.note(C, Member("default/x", str(number)), NOON)
    assert cycles.note(B, A, NOON) == ()


@settings(depth.examples(200))
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 400)), max_size=60))
def test_evictions_that_follow_one_order_are_no_cycle(drawn: list[tuple[int, int, int]]) -> None:
    """As when only higher priorities evict lower ones."""
    cycles, now = EvictionCycles(), NOON
    all_members = members(*NAMES)
    for first, second, seconds in drawn:
        now += timedelta(seconds=seconds)
        above, below = sorted((first, second))
        assert cycles.note(all_members[above], all_members[below], now) == ()
    assert all(cycles.of(each.uid, now) == () for each in all_members)


@settings(depth.examples(200))
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 400)), max_size=40))
def test_a_cycle_is_found_exactly_if_a_search_of_the_window_finds_one(
    drawn: list[tuple[int, int, int]],
) -> None:
    """Each eviction has a time of its own: a cycle that was found then was closed by it."""
    cycles, now = EvictionCycles(), NOON
    all_members = members(*NAMES)
    last = {}
    for first, second, seconds in drawn:
        now += timedelta(seconds=seconds)
        cycles.note(all_members[first], all_members[second], now)
        if first != second:
            last[first, second] = now
            fresh = [edge for edge, at in last.items() if at > now - WINDOW]
            is_cycle = first in _reached(second, fresh)
            assert is_cycle == (cycles.until(NAMES[first]) == now + WINDOW)


def test_three_seeded_cycles_are_found_and_none_in_ten_thousand_other_runs() -> None:
    """A run is an hour of evictions by priority: nine jobs, each evicts only jobs below it. Three
    runs have a ring of other jobs among them."""
    random = Random(20)
    seeded = {1_234: 2, 5_678: 3, 9_999: 5}
    others = [Member(f"default/{name}", name) for name in "pqrstuvwx"]
    found = {}
    for run in range(10_000):
        evictions = [
            (others[above], others[below])
            for above, below in (sorted(random.sample(range(9), 2)) for _ in range(15))
        ]
        ring = members(*NAMES[: seeded.get(run, 0)])
        begin = 0
        for edge in zip(ring, [*ring[1:], *ring[:1]], strict=True):
            begin = random.randint(begin, len(evictions))
            evictions.insert(begin, edge)
            begin += 1
        cycles, now = EvictionCycles(), NOON
        for beneficiary, victim in evictions:
            now += WINDOW / 30
            if reported := cycles.note(beneficiary, victim, now):
                found[run] = {member.uid for member in reported}
    assert found == {run: set(NAMES[:length]) for run, length in seeded.items()}


def _reached(start: int, edges: list[tuple[int, int]]) -> set[int]:
    reached = {start}
    for _ in edges:
        reached |= {end for begin, end in edges if begin in reached}
    return reached


def test_names_in_other_namespaces_are_not_shown() -> None:
    text = eviction_cycles.message_of((A, Member("secret/x", "x")), "default")
    assert "default/a evicted a job in another namespace evicted default/a" in text
    assert "secret" not in text


# The condition


def test_the_condition_and_event_of_a_cycle_end_with_the_window() -> None:
    harness = waiting()
    group = harness.group()
    own = Member(group.metadata.key, group.metadata.uid)
    harness.cache.eviction_cycles.note(own, A, harness.now)
    assert harness.cache.eviction_cycles.note(A, own, harness.now)
    harness.dirty[ReconcileKey("podgroup", own.key)] = None
    harness.settle()
    status, reason, message = holds(harness.group())["EvictionCycle"]
    assert (status, reason) == ("True", "EvictEachOther")
    assert f"{own.key} evicted default/a" in message
    assert harness.reasons().count("EvictionCycle") == 2  # of the PodGroup and of the job
    harness.wait(WINDOW.total_seconds())
    harness.settle()
    assert holds(harness.group())["EvictionCycle"][0] == "False"
    assert holds(harness.group())["Unschedulable"][0] == "True"


# The service


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[service_harness.Harness]:
    async with service_harness.set_up(tmp_path, None) as made:
        await made.submit(make_node())
        yield made


async def started(harness: service_harness.Harness, name: str) -> core.Pod:
    """The pod of a new job, bound."""
    await harness.submit(make_job(name, tasks=[make_task(replicas=1)]))
    group = await harness.group(f"default/{name}")
    await harness.answer(await harness.enqueue(group))
    key = f"default/{name}-worker-0"
    pod = await harness.until(kinds.PODS, key, lambda found: found is not None)
    await harness.answer(await harness.place(group, [pod]))
    return pod


async def evict(harness: service_harness.Harness, pod: core.Pod, beneficiary: str) -> None:
    group = await harness.group(beneficiary)
    decision = await harness.evict(group, pod)
    answer = await harness.answer(decision)
    assert [it.result for it in answer.tasks] == ["executed"]


async def test_executed_evictions_in_a_circle_are_a_condition_of_both_pod_groups(
    harness: service_harness.Harness,
) -> None:
    async with harness.controller():
        one, two = await started(harness, "j1"), await started(harness, "j2")
        await evict(harness, two, "default/j1")
        await evict(harness, one, "default/j2")
        for job in ("default/j1", "default/j2"):
            key = (await harness.group(job)).metadata.key
            await harness.until(
                kinds.POD_GROUPS,
                key,
                lambda it: any(each.type == "EvictionCycle" for each in it.status.conditions),
            )
