"""CPUs and devices of a node: which are taken together, and what a kubelet accepts, compared with
full searches.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from stromboli.scheduler.core.numa import alignment, cpus, hardware
from stromboli.shared.api import numa
from stromboli.testkit.strategies import depth

EXAMPLES = 100


def machine(
    sockets: int,
    cores: int,
    threads: int,
    cells_per_socket: int = 1,
    *,
    cores_count_on: bool = True,
) -> cpus.Machine:
    """CPUs in Linux's order: the first thread of every core, then the second ones.

    ``cores_count_on``: core numbers continue from socket to socket; otherwise each socket starts at
    0.
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


def requested(
    made: cpus.Machine, available: cpus.Cpus, needs: Sequence[int], policy: str
) -> alignment.PodShares | None:
    """A request of CPUs for containers, on a machine without cached answers."""
    of = alignment.PodRequest(tuple(alignment.ContainerRequest(need) for need in needs))
    return alignment.place_pod(
        hardware.Hardware(made), hardware.AvailableHardware(available), of, policy
    )


def test_cores_with_one_number_on_two_sockets_are_different() -> None:
    """Two sockets of 4 cores and 2 threads, each with cores from 0: two CPUs are one core, not four
    CPUs of two cores.
    """
    made = machine(2, 4, 2, cores_count_on=False)
    assert made.taken(made.all, 2) == frozenset({0, 8})


def test_a_partly_used_socket_does_not_count_as_free() -> None:
    """Socket 1 is free although CPU 1 of socket 0 is taken."""
    made = machine(2, 2, 2)
    assert made.taken(made.all - {1}, 4) == made.sockets[1]


def test_single_cpus_come_from_partly_used_cores() -> None:
    made = machine(1, 4, 2)
    assert made.taken(made.all - {2}, 1) == frozenset({6})


def test_cpus_are_taken_by_socket_then_core_then_one_by_one() -> None:
    """Five of 8 CPUs on two sockets: one socket, then one CPU of the other."""
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
    """A machine, its available CPUs, and how many are taken."""
    made = draw(MACHINES)
    available = frozenset(draw(st.sets(st.sampled_from(sorted(made.all)))))
    return made, available, draw(st.integers(1, len(made.all)))


@depth.examples(EXAMPLES)
@given(states())
def test_no_choice_of_cpus_breaks_fewer_sockets_and_cores(
    state: tuple[cpus.Machine, cpus.Cpus, int],
) -> None:
    """No choice of as many CPUs takes more whole sockets, or with as many sockets more whole
    cores.
    """
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
def test_the_hint_of_one_resource_equals_that_of_a_full_search(
    state: tuple[cpus.Machine, cpus.Cpus, int], policy: str
) -> None:
    """Restricted: a set of NUMA nodes with enough free is as small as any that could ever hold the
    request. Single: that is one NUMA node. The choice lies in the smallest set with enough free.
    """
    made, available, need = state
    sets = [
        (some, frozenset[int]().union(*(made.numa_nodes[numa_node] for numa_node in some)))
        for width in range(1, len(made.numa_nodes) + 1)
        for some in combinations(made.numa_nodes, width)
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
    placed = requested(made, available, [need], policy)
    assert (placed is not None) == accepted
    if placed is None:
        return
    if narrowest is None:
        assert placed.all_cpus == cpus.NOTHING
        return
    assert len(placed.all_cpus) == need
    assert placed.all_cpus <= available
    if policy != alignment.NONE:
        assert made.cells_of(placed.all_cpus) <= narrowest
        first = min(
            (some for some in now if len(some) == narrowest),
            key=lambda some: sum(1 << numa_node for numa_node in some),
        )
        assert placed.all_cpus <= frozenset[int]().union(
            *(made.numa_nodes[numa_node] for numa_node in first)
        )


@depth.examples(EXAMPLES)
@given(states(), st.lists(st.integers(0, 4), min_size=1, max_size=3))
def test_containers_never_share_cpus(
    state: tuple[cpus.Machine, cpus.Cpus, int], needs: list[int]
) -> None:
    """Each gets its request or nothing, and equal requests get equal answers."""
    made, available, _ = state
    placed = requested(made, available, needs, alignment.BEST_EFFORT)
    assert placed is not None
    assert sum(len(share.cpus) for share in placed.of_containers) == len(placed.all_cpus)
    for need, own in zip(needs, placed.of_containers, strict=True):
        assert len(own.cpus) in (0, need)
    assert requested(made, available, needs, alignment.BEST_EFFORT) == placed


# Devices and memory with them

Hints = list[tuple[frozenset[int], bool]]


def said(
    machine: hardware.Hardware, room: hardware.AvailableHardware, need: alignment.ContainerRequest
) -> list[Hints]:
    """The hints of a kubelet's managers: for each resource every set of NUMA nodes with enough
    free, preferred if no smaller set could ever hold the request.
    """
    every = list(machine.machine.numa_nodes)
    amounts: list[tuple[int, dict[int, int], dict[int, int]]] = []
    if need.cpus:
        own = machine.machine.numa_nodes
        now = {numa_node: len(own[numa_node] & room.cpus) for numa_node in every}
        amounts.append((need.cpus, {numa_node: len(own[numa_node]) for numa_node in every}, now))
    for name, count in need.devices:
        numa_nodes = machine.pools[name].numa_nodes
        if any(numa_node in every for numa_node in numa_nodes):
            free = [numa_nodes[place] for place in room.places(name)]
            now = {numa_node: free.count(numa_node) for numa_node in every}
            amounts.append(
                (count, {numa_node: numa_nodes.count(numa_node) for numa_node in every}, now)
            )
    if need.memory and machine.memory:
        amounts.append(
            (need.memory, dict(machine.memory), dict(zip(every, room.memory, strict=True)))
        )
    sets = [some for width in range(1, len(every) + 1) for some in combinations(every, width)]
    found = []
    for count, ever, now in amounts:
        could = [len(some) for some in sets if sum(ever[numa_node] for numa_node in some) >= count]
        found.append(
            [
                (frozenset(some), len(some) == min(could, default=len(every)))
                for some in sets
                if sum(now[numa_node] for numa_node in some) >= count
            ]
        )
    return found


def kubelets_best(every: frozenset[int], lists: list[Hints], policy: str) -> frozenset[int] | None:
    """The merge of the kubelet's topology manager over all permutations; None if it refuses."""
    if policy == alignment.SINGLE:
        lists = [[hint for hint in some if hint[1] and len(hint[0]) == 1] for some in lists]
        if not all(lists):
            return None
    filled = [some or [(every, False)] for some in lists]
    # A resource without a hint has no width.
    aim = max((min(len(numa_nodes) for numa_nodes, _ in some) for some in lists if some), default=0)
    best: tuple[frozenset[int], bool] | None = None
    for each in product(*filled):
        numa_nodes = every.intersection(*(hint[0] for hint in each))
        if not numa_nodes:
            continue
        agrees = all(hint[0] == each[0][0] for hint in each)
        candidate = (numa_nodes, agrees and all(hint[1] for hint in each))
        best = candidate if best is None else better(best, candidate, aim)
    numa_nodes, preferred = best or (every, False)
    return numa_nodes if preferred or policy == alignment.BEST_EFFORT else None


def better(
    now: tuple[frozenset[int], bool], new: tuple[frozenset[int], bool], aim: int
) -> tuple[frozenset[int], bool]:
    if now[1] != new[1]:
        return now if now[1] else new

    def narrower() -> tuple[frozenset[int], bool]:
        def bits(numa_nodes: frozenset[int]) -> tuple[int, int]:
            return len(numa_nodes), sum(1 << numa_node for numa_node in numa_nodes)

        return min(now, new, key=lambda hint: bits(hint[0]))

    here, there = len(now[0]), len(new[0])
    if now[1] or here > aim:
        return narrower()
    if there > aim:
        return now
    return narrower() if here == there else max(now, new, key=lambda hint: len(hint[0]))


@st.composite
def boards(
    draw: st.DrawFn,
) -> tuple[hardware.Hardware, hardware.AvailableHardware, alignment.ContainerRequest]:
    """A small machine with GPUs and other devices, what is free, and a request."""
    made = machine(draw(st.integers(1, 2)), 2, 1, draw(st.integers(1, 2)))
    numa_nodes = sorted(made.numa_nodes)
    place = st.sampled_from([*numa_nodes, hardware.UNKNOWN])
    gpus = draw(st.lists(place, max_size=5))
    links = [[0] * len(gpus) for _ in gpus]
    for one, other in combinations(range(len(gpus)), 2):
        links[one][other] = links[other][one] = draw(st.sampled_from([10, 50, 150]))
    pools = {
        "gpu": hardware.DevicePool(tuple(gpus), tuple(map(tuple, links))),
        "fpga": hardware.DevicePool(tuple(draw(st.lists(place, max_size=3)))),
    }
    memory = draw(st.sampled_from([{}, dict.fromkeys(numa_nodes, 4)]))
    affinity_index = hardware.Hardware(made, pools, memory)
    everything = affinity_index.everything

    def some(given: frozenset[int]) -> frozenset[int]:
        return given - draw(st.frozensets(st.sampled_from(sorted(given) or [0]), max_size=2))

    room = hardware.AvailableHardware(
        some(everything.cpus),
        tuple((name, some(free)) for name, free in everything.devices),
        tuple(draw(st.integers(0, 4)) for _ in everything.memory),
    )
    wanted = [(name, draw(st.integers(0, 3))) for name in ("fpga", "gpu")]
    need = alignment.ContainerRequest(
        draw(st.integers(0, 5)),
        tuple(each for each in wanted if each[1]),
        draw(st.sampled_from([0, 3, 6])),
    )
    return affinity_index, room, need


@depth.examples(EXAMPLES)
@given(boards(), st.sampled_from(alignment.POLICIES))
def test_merged_hints_equal_those_of_a_full_search(
    affinity_index: tuple[
        hardware.Hardware, hardware.AvailableHardware, alignment.ContainerRequest
    ],
    policy: str,
) -> None:
    """CPUs, devices and memory together, merged as the kubelet does over all permutations. The GPUs
    have the best links of all free ones on those NUMA nodes.
    """
    of, room, need = affinity_index
    every = frozenset(of.machine.numa_nodes)
    best: frozenset[int] | None = every
    lists = said(of, room, need)
    if policy != alignment.NONE and lists:
        best = kubelets_best(every, lists, policy)
    has_devices = all(len(room.places(name)) >= count for name, count in need.devices)
    placed = alignment.place_pod(of, room, alignment.PodRequest((need,)), policy)
    assert (placed is not None) == (best is not None and has_devices)
    if placed is None or best is None:
        return
    (share,) = placed.of_containers
    if need:
        assert set(alignment.align_container(of, room, need, policy) or ()) == best
    for name, count in need.devices:
        taken = dict(share.devices)[name]
        free = room.places(name)
        inside = [at for at in free if of.pools[name].numa_nodes[at] in best]
        choice = inside if len(inside) >= count else sorted(free)
        assert set(taken) <= set(choice)
        assert len(taken) == count

        def worth(places: Iterable[int], name: str = name) -> tuple[int, int]:
            others = room.places(name) - set(places)
            return of.link_score(name, list(places)), of.link_score(name, others)

        assert worth(taken) == max(worth(some) for some in combinations(choice, count))
    if len(room.cpus) >= need.cpus:
        own = (
            frozenset[int]().union(*(of.machine.numa_nodes[numa_node] for numa_node in best))
            & room.cpus
        )
        assert len(share.cpus) == need.cpus
        assert share.cpus <= own or len(own) < need.cpus
    assert sum(size for _, size in share.memory) in (0, need.memory)


@depth.examples(EXAMPLES)
@given(boards())
def test_assigned_and_returned_hardware_leaves_the_machine_unchanged(
    affinity_index: tuple[
        hardware.Hardware, hardware.AvailableHardware, alignment.ContainerRequest
    ],
) -> None:
    of, room, need = affinity_index
    placed = alignment.place_pod(of, room, alignment.PodRequest((need,)), alignment.BEST_EFFORT)
    if placed is not None:
        (share,) = placed.of_containers
        left = room.less(share, of)
        assert left.cpus.isdisjoint(share.cpus)
        assert all(left.places(name).isdisjoint(places) for name, places in share.devices)
        assert left.plus(share, of) == room
