"""Which GPUs are taken together: on common machines, and compared with all sets on random ones."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support.numa_machines import CUBE_MESH
from stromboli.scheduler.core.numa import gpu_interconnect
from stromboli.testkit.strategies import depth

EXAMPLES = 200


def table(pairs: dict[tuple[int, int], int], size: int) -> list[list[int]]:
    found = [[0] * size for _ in range(size)]
    for (one, other), value in pairs.items():
        found[one][other] = found[other][one] = value
    return found


def two_sockets(size: int, near: str = "NODE") -> list[list[str]]:
    half = size // 2
    return [
        [near if one // half == other // half else "SYS" for other in range(size)]
        for one in range(size)
    ]


def cube_mesh() -> gpu_interconnect.Scores:
    return gpu_interconnect.scores(two_sockets(8), table(CUBE_MESH, 8))


def switched(links: int = 18) -> gpu_interconnect.Scores:
    """Eight GPUs on NVSwitch, four per socket."""
    return gpu_interconnect.scores(two_sockets(8, "PXB"), table({}, 8), [links] * 8)


def test_pairs_of_a_cube_mesh_have_two_links() -> None:
    assert gpu_interconnect.best_gpus(cube_mesh(), range(8), 2) == (0, 3)


def test_four_of_a_cube_mesh_are_a_quad() -> None:
    assert gpu_interconnect.best_gpus(cube_mesh(), range(8), 4) == (0, 1, 2, 3)
    assert gpu_interconnect.best_gpus(cube_mesh(), [1, 2, 4, 5, 6, 7], 4) == (4, 5, 6, 7)


@pytest.mark.parametrize("links", [0, 18])
def test_behind_a_switch_the_sockets_decide(links: int) -> None:
    """All NVLinks are equal, the connections across sockets are not. Small sets are taken from a
    partly used half, so that the other half stays complete for four.
    """
    pairs, free = switched(links), [0, 1, 2, 4, 5, 6, 7]
    assert gpu_interconnect.best_gpus(pairs, free, 4) == (4, 5, 6, 7)
    assert gpu_interconnect.best_gpus(pairs, free, 3) == (0, 1, 2)
    assert gpu_interconnect.best_gpus(pairs, free, 2) == (0, 1)
    assert gpu_interconnect.best_gpus(pairs, free, 1) == (0,)


def test_a_single_gpu_is_the_one_with_the_weakest_links() -> None:
    """GPU 3 has no link."""
    pairs = gpu_interconnect.scores(two_sockets(4), table({(0, 1): 4, (0, 2): 4, (1, 2): 4}, 4))
    assert gpu_interconnect.best_gpus(pairs, range(4), 1) == (3,)


def test_links_that_only_one_end_reports_do_not_count() -> None:
    links = table({}, 2)
    links[0][1] = 4
    assert (
        gpu_interconnect.scores(two_sockets(2, "PIX"), links)[0, 1]
        == gpu_interconnect.LINK_SCORES["SYS"]
    )


def test_a_gpu_with_fewer_links_to_the_switch_has_fewer_to_others() -> None:
    pairs = gpu_interconnect.scores(two_sockets(4), table({}, 4), [18, 18, 18, 6])
    assert gpu_interconnect.best_gpus(pairs, range(4), 3) == (0, 1, 2)
    assert pairs[0, 3] == 10 + 600


def test_equal_sets_take_the_fewest_numa_nodes_and_then_the_lowest_numbers() -> None:
    """Unknown NUMA nodes do not count."""
    flat = gpu_interconnect.scores([["PHB"] * 4] * 4, table({}, 4))
    assert gpu_interconnect.best_gpus(flat, range(4), 2) == (0, 1)
    assert gpu_interconnect.best_gpus(flat, range(4), 2, numa_nodes=[0, 1, 1, 0]) == (0, 3)
    assert gpu_interconnect.best_gpus(flat, range(4), 2, numa_nodes=[-1] * 4) == (0, 1)


def test_too_few_free_gpus_give_none_and_a_request_of_zero_gives_an_empty_set() -> None:
    pairs = switched()
    assert gpu_interconnect.best_gpus(pairs, [1, 2], 3) is None
    assert gpu_interconnect.best_gpus(pairs, [1, 2], 0) == ()


@pytest.mark.parametrize(
    ("gpu_connections", "links", "nvswitch_links", "said"),
    [
        ([["PIX"]], [[0, 0]], (), "tables of 1 x 1"),
        ([["PIX"]], [[0]], (1, 2), "NVSwitch links are given for 2 GPUs"),
        ([["PIX", "X"], ["PIX", "PIX"]], table({}, 2), (), "'X' is not one of INTERNAL"),
    ],
)
def test_inconsistent_link_tables_are_refused(
    gpu_connections: Sequence[Sequence[str]],
    links: Sequence[Sequence[int]],
    nvswitch_links: Sequence[int],
    said: str,
) -> None:
    with pytest.raises(ValueError, match=said):
        gpu_interconnect.scores(gpu_connections, links, nvswitch_links)


@st.composite
def machines(draw: st.DrawFn, largest: int = 8) -> tuple[gpu_interconnect.Scores, list[int], int]:
    """Random links between some GPUs, the free ones among them, and the number to take."""
    size = draw(st.integers(1, largest))
    gpu_connections = [
        [draw(st.sampled_from(sorted(gpu_interconnect.LINK_SCORES))) for _ in range(size)]
        for _ in range(size)
    ]
    links = [[draw(st.integers(0, 4)) for _ in range(size)] for _ in range(size)]
    free = sorted(draw(st.sets(st.integers(0, size - 1))))
    return gpu_interconnect.scores(gpu_connections, links), free, draw(st.integers(0, len(free)))


def linked(pairs: gpu_interconnect.Scores, some: Sequence[int]) -> int:
    return sum(int(pairs[one, other]) for one, other in combinations(some, 2))


@depth.examples(EXAMPLES)
@given(machines())
def test_no_other_set_has_better_links_or_leaves_better_ones(
    machine: tuple[gpu_interconnect.Scores, list[int], int],
) -> None:
    """The set has the best links of all sets; of those the best remaining links; of those it is the
    first.
    """
    pairs, free, count = machine
    chosen = gpu_interconnect.best_gpus(pairs, free, count)

    def rank(some: Sequence[int]) -> tuple[int, int, tuple[int, ...]]:
        others = [gpu for gpu in free if gpu not in some]
        return (-linked(pairs, some), -linked(pairs, others), tuple(some))

    assert chosen == min(combinations(free, count), key=rank)


def test_beyond_the_exact_search_cliques_are_still_found() -> None:
    """Twenty GPUs in cliques of four, some taken: one whole clique for four, two for eight."""
    clique = np.array(
        [[60 if one // 4 == other // 4 else 10 for other in range(20)] for one in range(20)]
    )
    np.fill_diagonal(clique, 0)
    free = [gpu for gpu in range(20) if gpu != 5]
    assert gpu_interconnect.best_gpus(clique, free, 4) == (0, 1, 2, 3)
    eight = gpu_interconnect.best_gpus(clique, free, 8)
    assert eight is not None
    assert linked(clique, eight) == 12 * 60 + 16 * 10
