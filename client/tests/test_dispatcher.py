"""The dispatcher of calls: safety and liveness under any order of events."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from stromboli.client.executor.dispatcher import MAX_CALLS, PREFETCH, Assignment, Dispatcher


def always(_: int) -> bool:
    return True


def dispatcher_with(calls: int, *workers: str, max_losses: int = 2) -> Dispatcher:
    dispatcher = Dispatcher(max_losses)
    for worker in workers:
        dispatcher.worker_joined(worker)
    for call in range(calls):
        dispatcher.add(call)
    return dispatcher


def finish(dispatcher: Dispatcher, assigned: list[Assignment], call_s: float) -> list[int]:
    """Report all chunks as done. Returns their calls."""
    done: list[int] = []
    for each in assigned:
        done += dispatcher.chunk_done(each.chunk, each.calls, call_s * len(each.calls))
    return done


def test_without_a_worker_nothing_is_sent() -> None:
    dispatcher = dispatcher_with(3)
    assert dispatcher.assign(always) == []
    dispatcher.worker_joined("w")
    assert [each.calls for each in dispatcher.assign(always)] == [(0,), (1,)]


def test_short_calls_travel_in_large_chunks_and_long_ones_alone() -> None:
    for call_s, largest in ((1e-6, MAX_CALLS), (0.05, 5), (3.0, 1)):
        dispatcher = dispatcher_with(50_000, "w")
        finish(dispatcher, dispatcher.assign(always), call_s)
        assert {len(each.calls) for each in dispatcher.assign(always)} == {largest}


def test_the_last_calls_are_shared_by_all_workers() -> None:
    dispatcher = dispatcher_with(10, "a", "b")
    finish(dispatcher, dispatcher.assign(always), 1e-6)
    assigned = dispatcher.assign(always)
    assert {each.worker for each in assigned} == {"a", "b"}
    assert max(len(each.calls) for each in assigned) == 2  # of six that are left


def test_a_call_that_is_cancelled_before_it_is_sent_is_never_sent() -> None:
    dispatcher = dispatcher_with(4, "w")
    assigned = dispatcher.assign(lambda call: call % 2 == 1)
    assert [each.calls for each in assigned] == [(1,), (3,)]
    assert dispatcher.open_calls == {1, 3}


def test_a_call_that_ends_its_worker_is_given_up_and_the_others_of_its_chunk_are_not() -> None:
    dispatcher = dispatcher_with(20, "w0", max_losses=1)
    finish(dispatcher, dispatcher.assign(always), 0.01)  # calls 0 and 1
    given_up: list[int] = []
    done: set[int] = {0, 1}
    for turn in range(100):
        for each in dispatcher.assign(always):
            if 7 in each.calls:
                given_up += dispatcher.worker_lost(each.worker)
                dispatcher.worker_joined(f"w{turn + 1}")
                break
            done.update(dispatcher.chunk_done(each.chunk, each.calls, 0.01 * len(each.calls)))
        if dispatcher.is_idle:
            break
    assert given_up == [7]
    assert done == set(range(20)) - {7}


def test_of_two_results_of_a_call_the_first_counts() -> None:
    dispatcher = dispatcher_with(1, "slow")
    (first,) = dispatcher.assign(always)
    assert dispatcher.worker_lost("slow") == []
    dispatcher.worker_joined("other")
    (second,) = dispatcher.assign(always)
    assert dispatcher.chunk_done(first.chunk, first.calls, 1.0) == (0,)
    assert dispatcher.chunk_done(second.chunk, second.calls, 1.0) == ()
    assert dispatcher.is_idle


@given(st.data())
def test_every_call_ends_exactly_once_whatever_workers_do(data: st.DataObject) -> None:
    """Each call is completed, cancelled or abandoned; no worker holds more than its share of
    chunks; with one live worker, all calls end.
    """
    max_losses = data.draw(st.integers(0, 2), label="max losses")
    dispatcher = Dispatcher(max_losses)
    ended: list[int] = []
    at_workers: dict[str, list[Assignment]] = {}
    added = joined = 0
    losses: dict[int, int] = {}

    def is_wanted(call: int) -> bool:
        if data.draw(st.integers(0, 9), label="cancelled") == 0:
            ended.append(call)
            return False
        return True

    def assign(wanted: Any = is_wanted) -> None:
        for each in dispatcher.assign(wanted):
            at_workers[each.worker].append(each)
            assert len(at_workers[each.worker]) <= PREFETCH
            assert 1 <= len(each.calls) <= MAX_CALLS

    for _ in range(data.draw(st.integers(0, 30), label="steps")):
        step = data.draw(st.sampled_from(["add", "join", "lose", "finish", "assign"]))
        if step == "add":
            for _ in range(data.draw(st.integers(1, 20))):
                dispatcher.add(added)
                added += 1
        elif step == "join":
            dispatcher.worker_joined(f"w{joined}")
            at_workers[f"w{joined}"] = []
            joined += 1
        elif step == "lose" and at_workers:
            worker = data.draw(st.sampled_from(sorted(at_workers)))
            for each in at_workers.pop(worker):
                for call in each.calls:
                    losses[call] = losses.get(call, 0) + 1
            ended += dispatcher.worker_lost(worker)
        elif step == "finish" and any(at_workers.values()):
            worker = data.draw(
                st.sampled_from(sorted(w for w, assignments in at_workers.items() if assignments))
            )
            chunk = at_workers[worker].pop(0)
            seconds = data.draw(st.floats(0, 10))
            ended += dispatcher.chunk_done(chunk.chunk, chunk.calls, seconds)
        elif step == "assign":
            assign()
    dispatcher.worker_joined("last")
    at_workers["last"] = []
    for _ in range(added * (max_losses + 2) + 1):
        for assignments in at_workers.values():
            while assignments:
                chunk = assignments.pop()
                ended += dispatcher.chunk_done(chunk.chunk, chunk.calls, 0.1)
        assign(always)
        if dispatcher.is_idle:
            break
    assert dispatcher.is_idle
    assert sorted(ended) == list(range(added))
    assert all(lost <= max_losses + 1 for lost in losses.values())


def test_a_retried_call_is_sent_again_alone_and_is_open_until_its_next_result() -> None:
    dispatcher = dispatcher_with(2, "w")
    first, second = dispatcher.assign(always)
    assert dispatcher.chunk_done(first.chunk, first.calls, 1.0) == (0,)
    dispatcher.repeat(0)
    (again,) = dispatcher.assign(never)
    assert again.calls == (0,)
    assert dispatcher.open_calls == {0, 1}
    dispatcher.chunk_done(second.chunk, second.calls, 1.0)
    assert dispatcher.chunk_done(again.chunk, again.calls, 1.0) == (0,)
    assert dispatcher.is_idle


def never(call: int) -> bool:
    """No call is sent for the first time."""
    return False
