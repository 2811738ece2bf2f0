"""What a node's cache fetches and evicts: examples, and properties of arbitrary caches."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.shared.data_cache import policy
from stromboli.shared.messages import data

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PARALLEL = 4


def complete(key: str, size: int, idle_s: float = 0, **more: Any) -> policy.CachedCopy:
    return policy.CachedCopy(
        key=key,
        state="Complete",
        held_bytes=size,
        size_bytes=size,
        last_used_at=NOW - timedelta(seconds=idle_s),
        **more,
    )


def partial(key: str, held: int, size: int = 0, **more: Any) -> policy.CachedCopy:
    return policy.CachedCopy(key=key, state="Partial", held_bytes=held, size_bytes=size, **more)


def fetching(key: str, held: int, size: int, **more: Any) -> policy.CachedCopy:
    return policy.CachedCopy(key=key, state="Fetching", held_bytes=held, size_bytes=size, **more)


def cache(
    capacity: int, *copies: policy.CachedCopy, rates: dict[str, float] | None = None
) -> policy.CacheContent:
    return policy.CacheContent(
        capacity_bytes=capacity, copies={copy.key: copy for copy in copies}, rates=rates or {}
    )


def want(key: str, size: int = 0, priority: int = 0, *, pinned: bool = False) -> data.WantedCopy:
    return data.WantedCopy(key=key, uri="", bytes=size, priority=priority, pinned=pinned)


def planned(content: policy.CacheContent, *wanted: data.WantedCopy) -> policy.Plan:
    return policy.plan(content, wanted, NOW, PARALLEL)


# --- fetching -------------------------------------------------------------------------------


def test_pinned_copies_are_fetched_first_then_by_priority_then_by_key() -> None:
    wanted = [want("a", 1), want("b", 1, 9), want("c", 1, pinned=True), want("d", 1)]
    assert planned(cache(10), *wanted).start == ("c", "b", "a")
    assert planned(cache(10), *wanted).waiting == {"d": "3 other copies are being fetched"}


def test_one_slot_is_kept_for_copies_that_pods_wait_for() -> None:
    busy = [fetching(key, 0, 1) for key in "abc"]
    kept = [want(key, 1) for key in "abc"]
    assert planned(cache(10, *busy), *kept, want("d", 1)).start == ()
    assert planned(cache(10, *busy), *kept, want("d", 1, pinned=True)).start == ("d",)


def test_a_copy_is_not_fetched_twice() -> None:
    assert planned(cache(10, complete("a", 5)), want("a", 5), want("a", 5, 3)) == policy.Plan()
    assert planned(cache(10, fetching("a", 1, 5)), want("a", 5)) == policy.Plan()


def test_a_failed_copy_is_fetched_again_only_at_its_time() -> None:
    failed = partial("a", 2, 5, retry_at=NOW + timedelta(seconds=1))
    assert planned(cache(10, failed), want("a", 5)).start == ()
    due = msgspec.structs.replace(failed, retry_at=NOW)
    assert planned(cache(10, due), want("a", 5)).start == ("a",)


def test_the_bytes_of_a_partial_copy_count_for_its_fetch() -> None:
    assert planned(cache(5, partial("a", 3, 5)), want("a", 5)).start == ("a",)


def test_the_size_of_the_origin_counts_and_not_that_of_the_job() -> None:
    assert planned(cache(5, partial("a", 0, 6)), want("a", 1)).waiting["a"].startswith("needs 6")


def test_a_fetch_that_is_no_longer_wanted_is_stopped_and_its_bytes_stay() -> None:
    assert planned(cache(10, fetching("a", 1, 5))) == policy.Plan(stop=("a",))


def test_a_copy_larger_than_the_cache_says_so() -> None:
    (reason,) = planned(cache(10_000_000_000), want("a", 12_000_000_000)).waiting.values()
    assert reason == (
        "needs 12.0 GB, and the cache has 10.0 GB: enlarge the cache of this node, or reduce "
        "the data set"
    )


# --- eviction -------------------------------------------------------------------------------


def test_copies_that_are_not_wanted_stay_until_room_is_needed() -> None:
    assert planned(cache(10, complete("a", 5)), want("b", 5)).evict == ()
    assert planned(cache(10, complete("a", 5)), want("b", 6)) == policy.Plan(
        evict=("a",), start=("b",)
    )


def test_the_longest_unused_copy_is_evicted_first() -> None:
    content = cache(10, complete("a", 5, idle_s=10), complete("b", 5, idle_s=20))
    assert planned(content, want("c", 5)).evict == ("b",)


def test_partial_copies_are_evicted_before_complete_ones() -> None:
    content = cache(10, complete("a", 5, idle_s=1000), partial("b", 5))
    assert planned(content, want("c", 5)).evict == ("b",)


def test_a_copy_that_costs_more_to_fetch_again_is_kept_longer() -> None:
    """Twice the time to fetch again keeps it twice as long."""
    slow, fast = {"uri": "https://a/b"}, {"uri": "s3://a/b"}
    rates = {"https": 100.0, "s3": 200.0}
    content = cache(10, complete("a", 5, 19, **slow), complete("b", 5, 10, **fast), rates=rates)
    assert planned(content, want("c", 5)).evict == ("b",)
    content = cache(10, complete("a", 5, 21, **slow), complete("b", 5, 10, **fast), rates=rates)
    assert planned(content, want("c", 5)).evict == ("a",)


def test_no_more_is_evicted_than_necessary() -> None:
    content = cache(10, complete("a", 2, idle_s=30), complete("b", 7, idle_s=20))
    assert planned(content, want("c", 8)).evict == ("b",)


@pytest.mark.parametrize(
    "protected",
    [
        (cache(10, complete("a", 5, in_use=True), complete("b", 5)), ()),
        (cache(10, complete("a", 5), complete("b", 5)), (want("a", 5, pinned=True),)),
    ],
    ids=["in use", "pinned"],
)
def test_protected_copies_are_not_evicted_and_others_not_in_vain(
    protected: tuple[policy.CacheContent, tuple[data.WantedCopy, ...]],
) -> None:
    content, wanted = protected
    plan = planned(content, *wanted, want("c", 6, 100, pinned=True))
    assert (plan.evict, plan.start) == ((), ())
    assert plan.waiting["c"] == (
        "short of room: needs 6 bytes, 0 bytes are free, 5 bytes can be evicted, and the rest is "
        "in use or has a higher priority"
    )


def test_a_wanted_copy_is_evicted_only_for_one_that_comes_before_it() -> None:
    content = cache(10, complete("a", 10))
    assert planned(content, want("a", 10, 5), want("b", 10, 4)).start == ()
    assert planned(content, want("a", 10, 5), want("b", 10, 6)).evict == ("a",)


def test_a_fetch_is_stopped_for_one_that_comes_before_it() -> None:
    content = cache(10, fetching("a", 3, 10))
    assert planned(content, want("a", 10), want("b", 10, pinned=True)) == policy.Plan(
        stop=("a",),
        evict=("a",),
        start=("b",),
        waiting={
            "a": "short of room: needs 10 bytes, 0 bytes are free, 0 bytes can be evicted, and the "
            "rest is in use or has a higher priority"
        },
    )


def test_small_copies_use_the_room_that_a_large_one_waits_for_and_give_it_back() -> None:
    used = complete("used", 5, in_use=True)
    large, small = want("large", 8, 9), want("small", 4)
    assert planned(cache(10, used), large, small).start == ("small",)
    later = cache(10, complete("used", 5), complete("small", 4))
    assert set(planned(later, large, small).evict) == {"used", "small"}


def test_a_smaller_capacity_evicts_what_is_not_protected() -> None:
    content = cache(5, complete("a", 5, in_use=True), complete("b", 5), fetching("c", 1, 5))
    assert set(planned(content, want("c", 5)).evict) == {"b", "c"}
    assert "c" in planned(content, want("c", 5)).stop


# --- growing --------------------------------------------------------------------------------


def test_a_fetch_that_grows_evicts_by_the_same_rules() -> None:
    content = cache(10, fetching("a", 4, 5), complete("b", 5))
    assert policy.grow(content, [want("a")], "a", 5, NOW) == ()
    assert policy.grow(content, [want("a")], "a", 6, NOW) == ("b",)
    assert policy.grow(content, [want("a")], "a", 11, NOW) is None
    assert policy.grow(content, [want("a"), want("b", pinned=True)], "a", 6, NOW) is None


def test_a_fetch_that_is_no_longer_wanted_does_not_grow() -> None:
    assert policy.grow(cache(10, fetching("a", 4, 5)), [], "a", 6, NOW) is None


# --- properties -----------------------------------------------------------------------------

KEYS = st.sampled_from("abcdefgh")
SIZES = st.integers(0, 12)
URIS = st.sampled_from(["https://a/b", "s3://a/b", ""])


@st.composite
def copies(draw: st.DrawFn) -> policy.CachedCopy:
    size, held = draw(SIZES), draw(SIZES)
    state: policy.State = draw(st.sampled_from(["Partial", "Fetching", "Complete"]))
    return policy.CachedCopy(
        key=draw(KEYS),
        uri=draw(URIS),
        state=state,
        held_bytes=size if state == "Complete" else min(held, size),
        size_bytes=size,
        last_used_at=draw(st.none() | st.integers(0, 99).map(lambda s: NOW - timedelta(seconds=s))),
        in_use=draw(st.booleans()) and state == "Complete",
        retry_at=draw(st.none() | st.integers(-9, 9).map(lambda s: NOW + timedelta(seconds=s))),
    )


CONTENTS = st.builds(
    lambda capacity, found, rates: cache(capacity, *found, rates=rates),
    st.integers(0, 40),
    st.lists(copies(), max_size=8),
    st.dictionaries(st.sampled_from(["https", "s3"]), st.floats(0, 9)),
)
WANTED = st.lists(
    st.builds(
        lambda key, size, priority, pinned: want(key, size, priority, pinned=pinned),
        KEYS,
        SIZES,
        st.integers(0, 2),
        st.booleans(),
    ),
    max_size=8,
)


def execute(content: policy.CacheContent, plan: policy.Plan, wanted: Any) -> policy.CacheContent:
    """The cache after a plan, its fetches begun."""
    cached_copies = dict(content.copies)
    sizes = {item.key: item.bytes for item in policy.ordered_once(wanted)}
    for key in plan.stop:
        cached_copies[key] = msgspec.structs.replace(cached_copies[key], state="Partial")
    for key in plan.evict:
        del cached_copies[key]
    for key in plan.start:
        before = cached_copies.get(key) or policy.CachedCopy(key=key, state="Partial")
        size = before.size_bytes or sizes[key]
        cached_copies[key] = msgspec.structs.replace(before, state="Fetching", size_bytes=size)
    return msgspec.structs.replace(content, copies=cached_copies)


def protected_bytes(content: policy.CacheContent, wanted: list[data.WantedCopy]) -> int:
    pinned = {item.key for item in policy.ordered_once(wanted) if item.pinned}
    return sum(
        copy.reserved_bytes for copy in content.copies.values() if copy.in_use or copy.key in pinned
    )


@given(CONTENTS, WANTED)
def test_reservations_never_exceed_the_capacity_unless_protected_copies_do(
    content: policy.CacheContent, wanted: list[data.WantedCopy]
) -> None:
    after = execute(content, policy.plan(content, wanted, NOW, PARALLEL), wanted)
    assert after.reserved_bytes <= max(content.capacity_bytes, protected_bytes(content, wanted))


@given(CONTENTS, WANTED)
def test_protected_copies_are_never_evicted(
    content: policy.CacheContent, wanted: list[data.WantedCopy]
) -> None:
    plan = policy.plan(content, wanted, NOW, PARALLEL)
    pinned = {item.key for item in policy.ordered_once(wanted) if item.pinned}
    assert not any(key in pinned or content.copies[key].in_use for key in plan.evict)


@given(CONTENTS, WANTED, KEYS, SIZES)
def test_growth_keeps_the_capacity_and_protected_copies(
    content: policy.CacheContent, wanted: list[data.WantedCopy], key: str, size: int
) -> None:
    grown = fetching(key, 0, 1)
    content = msgspec.structs.replace(content, copies={**content.copies, key: grown})
    victims = policy.grow(content, wanted, key, size, NOW)
    if victims is None:
        return
    assert key not in victims
    pinned = {item.key for item in policy.ordered_once(wanted) if item.pinned}
    assert not any(each in pinned or content.copies[each].in_use for each in victims)
    left = sum(
        copy.reserved_bytes for k, copy in content.copies.items() if k not in (key, *victims)
    )
    assert left + max(size, 1) <= content.capacity_bytes


@given(CONTENTS, WANTED, st.randoms(use_true_random=False))
def test_equal_inputs_give_equal_plans_in_any_order(
    content: policy.CacheContent, wanted: list[data.WantedCopy], rng: Any
) -> None:
    wanted = policy.ordered_once(wanted)
    keys = list(content.copies)
    shuffled = rng.sample(wanted, len(wanted))
    reordered = {key: content.copies[key] for key in rng.sample(keys, len(keys))}
    again = msgspec.structs.replace(content, copies=reordered)
    first = policy.plan(content, wanted, NOW, PARALLEL)
    second = policy.plan(again, shuffled, NOW, PARALLEL)
    assert set(first.stop) == set(second.stop)
    assert (first.evict, first.start, first.waiting) == (second.evict, second.start, second.waiting)


@given(CONTENTS, WANTED, st.integers(1, 4))
def test_a_copy_that_fits_beside_those_before_it_is_eventually_fetched(
    content: policy.CacheContent, wanted: list[data.WantedCopy], parallel: int
) -> None:
    """And the cache comes to rest: no two copies evict each other in turn."""
    now = NOW + timedelta(seconds=10)  # retries are due
    for _ in range(30):
        plan = policy.plan(content, wanted, now, parallel)
        content = execute(content, plan, wanted)
        if not (plan.start or plan.stop or plan.evict):
            running = [copy for copy in content.copies.values() if copy.state == "Fetching"]
            if not running:
                break
        content = finish_fetches(content, now)
    else:
        raise AssertionError("the cache does not come to rest")
    assert_best_are_complete(content, wanted)


def finish_fetches(content: policy.CacheContent, now: datetime) -> policy.CacheContent:
    cached_copies = {
        key: copy
        if copy.state != "Fetching"
        else msgspec.structs.replace(
            copy, state="Complete", held_bytes=copy.reserved_bytes, last_used_at=now
        )
        for key, copy in content.copies.items()
    }
    return msgspec.structs.replace(content, copies=cached_copies)


def assert_best_are_complete(content: policy.CacheContent, wanted: list[data.WantedCopy]) -> None:
    """Each wanted copy that fits beside protected ones and complete ones before it, is complete."""
    ordered = policy.ordered_once(wanted)
    pinned = {item.key for item in ordered if item.pinned}
    taken = sum(
        copy.reserved_bytes for copy in content.copies.values() if copy.in_use or copy.key in pinned
    )
    for item in ordered:
        copy = content.copies.get(item.key)
        if copy is not None and copy.state == "Complete":
            taken += 0 if copy.in_use or item.pinned else copy.reserved_bytes
            continue
        held = copy.held_bytes if copy is not None and item.pinned else 0
        size = policy.size_bytes(copy, item)
        assert taken - held + max(size, held) > content.capacity_bytes


@given(CONTENTS, WANTED)
def test_each_wanted_copy_is_there_or_on_its_way_or_has_a_reason(
    content: policy.CacheContent, wanted: list[data.WantedCopy]
) -> None:
    plan = policy.plan(content, wanted, NOW, PARALLEL)
    after = execute(content, plan, wanted)
    for item in policy.ordered_once(wanted):
        copy = after.copies.get(item.key)
        is_coming = copy is not None and copy.state != "Partial"
        is_delayed = copy is not None and copy.retry_at is not None and copy.retry_at > NOW
        assert is_coming or is_delayed or item.key in plan.waiting
