"""The order of a queue in chunks: records of bounded size, few of them for a small change."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stromboli.shared import queue_order, topics
from stromboli.testkit.strategies import depth

NAMES = st.lists(st.integers(0, 10_000).map(lambda at: f"ns/g{at}"), unique=True, max_size=60)


def test_the_order_of_half_a_million_gangs_is_in_records_of_bounded_size() -> None:
    line = [f"some-namespace-of-a-team/training-job-{at:06}-{'x' * 40}" for at in range(500_000)]
    orders = queue_order.QueueOrders()
    written = list(orders.changed_chunks("default", line))
    assert max(len(msgspec.json.encode(each)) for each in written) < topics.RECORD_BYTES // 16
    for each in written:
        orders.put(each)
    front = orders.in_front("default", line[400_000])
    assert front == tuple(line[:400_000])
    assert list(orders.changed_chunks("default", line)) == []
    assert len(list(orders.changed_chunks("default", line[1:]))) <= 2, "the first one has left"
    middle = [*line[:250_000], "ns/urgent", *line[250_000:]]
    assert len(list(orders.changed_chunks("default", middle))) <= 2


def test_names_of_any_length_fit_in_a_record() -> None:
    line = [f"{'n' * 63}/{'g' * 200}{at}" for at in range(5_000)]
    for each in queue_order.chunks("default", line):
        assert len(msgspec.json.encode(each)) < 2 * queue_order.MOST_BYTES


@depth.examples(100)
@given(before=NAMES, after=NAMES)
def test_a_reader_assembles_the_order_that_was_written_last(
    before: list[str], after: list[str]
) -> None:
    orders = queue_order.QueueOrders()
    for line in (before, after):
        for each in orders.changed_chunks("default", line):
            orders.put(each)
    for at, name in enumerate(after):
        assert orders.in_front("default", name) == tuple(after[:at])
    for name in set(before) - set(after):
        assert orders.in_front("default", name) is None
