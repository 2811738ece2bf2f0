"""CPUs of a node: which are taken together, and what a kubelet accepts; held against all ways."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from stromboli.scheduler.core.numa import alignment, cpus
from stromboli.shared.api import numa
from stromboli.testkit import depth

EXAMPLES = 100


def machine(
    sockets: int,
    cores: int,
    threads: int,
    cells_per_socket: int = 1,
    *,
    cores_count_on: bool = True,
) -> cpus.Machine:
    """CPUs as Linux counts them: the first thread of every core, then the second ones.

    ``cores_count_on``: core numbers go on from socket to socket; else each socket begins at 0.
    """
    total = sockets * cores
    return cpus.Machine(
        {
            thread * total + at: numa.CpuPlace(
                socket=at // cores,
                core=at if cores_count_on else at % cores,
                numa=at // cores * cells_per_socket + at % cores * cells_per_socket // cores,
            )
            for thread in range(threads)
            for at in range(total)
        }
    )


def test_cores_of_two_sockets_with_one_number_are_two() -> None:
    """Two sockets of 4 cores and 2 threads whose cores count from 0 each: two CPUs are one core,
    not four CPUs of two."""
    made = machine(2, 4, 2, cores_count_on=False)
    assert made.taken(made.all, 2) == frozenset({0, 8})


def test_a_partly_used_socket_is_not_free() -> None:
    """Socket 1 is whole although CPU 1 of socket 0 is taken."""
    made = machine(2, 2, 2)
    assert made.taken(made.all - {1}, 4) == made.sockets[1]


def test_single_cpus_come_from_cores_that_are_broken_already() -> None:
    made = machine(1, 4, 2)
    assert made.taken(made.all - {2}, 1) == frozenset({6})


def test_whole_sockets_cores_and_singles() -> None:
    """Five of 8 on two sockets: one socket, then a CPU of the other."""
    made = machine(2, 2, 2)
    assert made.taken(made.all, 5) == made.sockets[0] | {2}
    assert made.taken(made.all, 9) is None


MACHINES = st.builds(
    machine,
    st.integers(1, 2),
    st.sampled_from([2, 4]),
    st.integers(1, 2),
    st.integers(1, 2),
    cores_count_on=st.booleans(),
)


@st.composite
def states(draw: st.DrawFn) -> tuple[cpus.Machine, cpus.Cpus, int]:
    """A machine, the CPUs that are available there, and how many are wanted."""
    made = draw(MACHINES)
    available = frozenset(draw(st.sets(st.sampled_from(sorted(made.all)))))
    return made, available, draw(st.integers(1, len(made.all)))


@depth.examples(EXAMPLES)
@given(states())
def test_what_is_taken_breaks_as_little_as_any_choice_does(
    state: tuple[cpus.Machine, cpus.Cpus, int],
) -> None:
    """Of all choices of so many CPUs, none takes more whole sockets, nor with as many sockets more
    whole cores."""
    made, available, count = state
    taken = made.taken(available, count)
    if len(available) < count:
        assert taken is None
        return
    assert taken is not None
    assert len(taken) == count
    assert taken <= available

    def whole(some: frozenset[int]) -> tuple[int, int]:
        return (
            sum(own <= some for own in made.sockets.values()),
            sum(own <= some for own in made.cores.values()),
        )

    best = max(whole(frozenset(some)) for some in combinations(sorted(available), count))
    assert whole(taken) == best


@depth.examples(EXAMPLES)
@given(states(), st.sampled_from(alignment.POLICIES))
def test_a_container_is_aligned_as_all_sets_of_numa_nodes_say(
    state: tuple[cpus.Machine, cpus.Cpus, int], policy: str
) -> None:
    """Restricted: some set of NUMA nodes that holds it now is as small as any that ever could.
    Single: that is one NUMA node. What is chosen lies in the narrowest set that will do."""
    made, available, need = state
    sets = [
        (some, frozenset[int]().union(*(made.cells[cell] for cell in some)))
        for width in range(1, len(made.cells) + 1)
        for some in combinations(made.cells, width)
    ]
    ever = min((len(some) for some, own in sets if len(own) >= need), default=None)
    now = [some for some, own in sets if len(own & available) >= need]
    narrowest = min((len(some) for some in now), default=None)
    fits_best = narrowest is not None and narrowest == ever
    accepted = {
        alignment.NONE: True,
        alignment.BEST_EFFORT: True,
        alignment.RESTRICTED: fits_best,
        alignment.SINGLE: fits_best and ever == 1,
    }[policy]
    placed = alignment.placed(made, available, [need], policy)
    assert (placed is not None) == accepted
    if placed is None:
        return
    if narrowest is None:
        assert placed.all == cpus.NOTHING
        return
    assert len(placed.all) == need
    assert placed.all <= available
    if policy != alignment.NONE:
        assert made.cells_of(placed.all) <= narrowest
        first = min(
            (some for some in now if len(some) == narrowest),
            key=lambda some: sum(1 << cell for cell in some),
        )
        assert placed.all <= frozenset[int]().union(*(made.cells[cell] for cell in first))


@depth.examples(EXAMPLES)
@given(states(), st.lists(st.integers(0, 4), min_size=1, max_size=3))
def test_containers_never_share_cpus(
    state: tuple[cpus.Machine, cpus.Cpus, int], needs: list[int]
) -> None:
    """Each has what it needs or nothing, and the same question has the same answer."""
    made, available, _ = state
    placed = alignment.placed(made, available, needs, alignment.BEST_EFFORT)
    assert placed is not None
    assert sum(map(len, placed.of_containers)) == len(placed.all)
    for need, own in zip(needs, placed.of_containers, strict=True):
        assert len(own) in (0, need)
    made.known.clear()
    assert alignment.placed(made, available, needs, alignment.BEST_EFFORT) == placed
