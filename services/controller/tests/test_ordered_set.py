"""A set that returns its least elements, compared with sorting."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from stromboli.controller.core.ordered_set import LeastFirst

ELEMENTS = st.integers(0, 9).map(lambda number: (number,))


@given(
    st.sets(ELEMENTS),
    st.lists(st.tuples(st.sampled_from(["add", "discard", "first"]), ELEMENTS), max_size=50),
)
def test_it_returns_what_sorting_returns(
    initial: set[tuple[int]], steps: list[tuple[str, tuple[int]]]
) -> None:
    least_first, model = LeastFirst(initial), set(initial)
    for what, element in steps:
        if what == "add":
            least_first.add(element)
            model.add(element)
        elif what == "discard":
            least_first.discard(element)
            model.discard(element)
        else:
            (most,) = element
            assert least_first.first(most) == sorted(model)[:most]
        assert len(least_first) == len(model)
        assert (element in least_first) == (element in model)


def test_an_emptied_set_takes_no_memory() -> None:
    """Each job keeps one of its missing pods, which are all pods until they are created."""
    tracemalloc.start()
    emptied = LeastFirst((f"{index:01000}",) for index in range(100))
    for index in range(100):
        emptied.discard((f"{index:01000}",))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(emptied) == 0
    assert size < 50_000
