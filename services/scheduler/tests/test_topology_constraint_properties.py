"""On any network, with any gangs and failures, a hard topology constraint always holds.

The location of nodes is taken from the generated objects and not from the scheduler's tree.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import network_objects, sessions
from stromboli.scheduler.core import simulate
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.shared.api import batch, core, meta, scheduling
from stromboli.testkit import builders
from stromboli.testkit.strategies import depth

EXAMPLES = 60
RUNS = (
    "enqueue, allocate, backfill",
    "enqueue, allocate, preempt, reclaim, backfill",
    "allocate, gangpreempt, gangreclaim, backfill",
)
CLASSES = [builders.make_priority_class("low", 1), builders.make_priority_class("high", 9)]


class Gang(msgspec.Struct, frozen=True):
    """``sizes``: pods of each subgroup; ``tier``: the gang's limit; ``part_tier``: that of each
    subgroup.
    """

    name: str
    sizes: Sequence[int]
    least: int
    tier: int | None
    part_tier: int | None
    is_soft: bool
    priority_class: str
    cpu: int


class Room(msgspec.Struct, frozen=True):
    """``rack_of`` and ``spine_of``: node or rack -> what contains it; absent for nothing."""

    nodes: Sequence[core.Node]
    rack_of: Mapping[str, str]
    spine_of: Mapping[str, str]

    def domain(self, node: str, tier: int) -> str | None:
        """The domain of a tier that contains the node; the tier above the highest is the
        cluster.
        """
        if tier >= (3 if self.spine_of else 2):
            return "cluster"
        rack = self.rack_of.get(node)
        return rack if tier == 1 or rack is None else self.spine_of.get(rack)

    def is_near(self, nodes: Sequence[str], tier: int) -> bool:
        """Whether one domain of the tier or a lower one contains all."""
        for each in range(1, tier + 1):
            found = {self.domain(node, each) for node in nodes}
            if len(found) == 1 and None not in found:
                return True
        return not nodes

    @property
    def hyper_nodes(self) -> list[meta.Object]:
        racks, spines = defaultdict(list), defaultdict(list)
        for node, rack in self.rack_of.items():
            racks[rack].append(node)
        for rack, spine in self.spine_of.items():
            spines[spine].append(rack)
        return [
            *(network_objects.rack(name, *nodes) for name, nodes in racks.items()),
            *(network_objects.spine(name, *found) for name, found in spines.items()),
        ]


@st.composite
def capacities(draw: st.DrawFn) -> Room:
    names = [f"n{at:02}" for at in range(draw(st.integers(2, 9)))]
    nodes = [builders.make_node(name, cpu=draw(st.integers(1, 3))) for name in names]
    racks = ["r1", "r2", "r3", "r4"]
    rack_of = {name: draw(st.sampled_from([*racks, *racks, ""])) for name in names}
    spine_of = {rack: draw(st.sampled_from(["s1", "s2", "s1", ""])) for rack in racks}
    used = set(rack_of.values())
    return Room(
        nodes,
        {name: rack for name, rack in rack_of.items() if rack},
        {rack: spine for rack, spine in spine_of.items() if spine and rack in used},
    )


@st.composite
def gangs(draw: st.DrawFn, name: str) -> Gang:
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    return Gang(
        name,
        sizes,
        draw(st.integers(1, sum(sizes))),
        draw(st.sampled_from([None, 1, 2, 3])),
        draw(st.sampled_from([None, None, 1, 2])),
        draw(st.booleans()),
        draw(st.sampled_from(["low", "high"])),
        draw(st.sampled_from([1, 1, 2])),
    )


def objects(gang: Gang, placed: Mapping[str, str]) -> list[meta.Object]:
    """The gang's PodGroup and pods; ``placed``: where pods run."""
    policies: tuple[scheduling.SubGroupPolicy, ...] = ()
    if gang.part_tier is not None:
        policies = (
            scheduling.SubGroupPolicy(
                name="p",
                match_label_keys=("part",),
                sub_group_size=1,
                network_topology=network_objects.hard(gang.part_tier),
            ),
        )
    requirement = None
    if gang.tier is not None:
        mode = "soft" if gang.is_soft else "hard"
        requirement = batch.NetworkTopology(mode=mode, highest_tier_allowed=gang.tier)
    runs = any(pod in placed for pod in pods(gang))
    group = builders.make_pod_group(
        gang.name,
        gang.least,
        phase="Running" if runs else "Inqueue",
        priority_class=gang.priority_class,
    )
    objs: list[meta.Object] = [
        builders.make_pod(
            name,
            gang.name,
            cpu=gang.cpu,
            node=placed.get(name, ""),
            phase="Running" if name in placed else "Pending",
            labels={"part": part},
            annotations={"volcano.sh/preemptable": "true"},
            priority=9 if gang.priority_class == "high" else 1,
        )
        for name, part in pods(gang).items()
    ]
    return network_objects.asking([group, *objs], requirement, *policies)


def pods(gang: Gang) -> dict[str, str]:
    """Pod -> its subgroup."""
    return {
        f"{gang.name}-{part}-{at}": str(part)
        for part, size in enumerate(gang.sizes)
        for at in range(size)
    }


def configured(run: str, *, with_plugin: bool) -> configuration.Configuration:
    tier = list(network_objects.TIER) if with_plugin else list(network_objects.TIER[:-1])
    return sessions.configured([*tier, sessions.plugin("conformance")], run=run)


def held_by(room: Room, found: Sequence[Gang], placed: Mapping[str, str]) -> None:
    for gang in found:
        own = {pod: placed[pod] for pod in pods(gang) if pod in placed}
        if gang.tier is not None and not gang.is_soft:
            assert room.is_near(list(own.values()), gang.tier), (gang, own)
        if gang.part_tier is not None:
            for part in {str(at) for at in range(len(gang.sizes))}:
                of_part = [node for pod, node in own.items() if pods(gang)[pod] == part]
                assert room.is_near(of_part, gang.part_tier), (gang, own)


def decided(
    how: configuration.Configuration,
    room: Room,
    found: Sequence[Gang],
    placed: Mapping[str, str],
) -> session.Session:
    objs = [each for gang in found for each in objects(gang, placed)]
    everything = [builders.make_queue(), *CLASSES, *room.nodes, *room.hyper_nodes, *objs]
    return simulate.run(how, sessions.given(everything))


@depth.examples(EXAMPLES)
@given(
    room=capacities(),
    found=st.tuples(gangs("a"), gangs("b"), gangs("c")),
    run=st.sampled_from(RUNS),
    with_plugin=st.booleans(),
    losses=st.lists(st.integers(0, 2**8 - 1), min_size=2, max_size=4),
)
def test_a_gang_never_spans_more_than_its_tier(
    room: Room,
    found: Sequence[Gang],
    run: str,
    with_plugin: bool,
    losses: Sequence[int],
) -> None:
    """Bound, nominated and running pods together, session by session, while pods fail and are
    evicted. No pod of a gang below its minimum is bound.
    """
    how = configured(run, with_plugin=with_plugin)
    placed: dict[str, str] = {}
    for lost in losses:
        closed = decided(how, room, found, placed)
        promised = {
            task.name: task.node
            for job in closed.jobs.values()
            for task in job.tasks.values()
            if task.status == "Pipelined"
        }
        gone = {each.task.partition("/")[2] for each in closed.decisions.evictions}
        bound = {key.partition("/")[2]: node for key, node in closed.decisions.binds.items()}
        stay = {pod: node for pod, node in placed.items() if pod not in gone}
        held_by(room, found, {**stay, **bound, **promised})
        placed = {**stay, **bound}
        for gang in found:
            own = [pod for pod in pods(gang) if pod in placed]
            assert len(own) >= gang.least or not any(pod in bound for pod in own)
        order = sorted(placed)
        broken = {pod for at, pod in enumerate(order) if lost >> at % 8 & 1}
        placed = {pod: node for pod, node in placed.items() if pod not in broken}


@depth.examples(EXAMPLES)
@given(room=capacities(), size=st.integers(1, 6), cpu=st.integers(1, 2), tier=st.integers(1, 3))
def test_a_gang_of_equal_pods_starts_if_any_domain_has_the_room(
    room: Room, size: int, cpu: int, tier: int
) -> None:
    """It starts in the lowest tier with room, found by trying every domain."""
    gang = Gang("a", [size], size, tier, None, is_soft=False, priority_class="low", cpu=cpu)
    placed = {
        key.partition("/")[2]: node
        for key, node in decided(
            configured("allocate", with_plugin=True), room, [gang], {}
        ).decisions.binds.items()
    }
    lowest = next((each for each in range(1, tier + 1) if _has_room(room, each, size, cpu)), None)
    exists = bool(room.hyper_nodes)
    if lowest is None or not exists:
        assert not placed
    else:
        assert len(placed) == size
        assert room.is_near(list(placed.values()), lowest)


def _has_room(room: Room, tier: int, size: int, cpu: int) -> bool:
    fits: dict[str | None, int] = defaultdict(int)
    for node in room.nodes:
        free = int(str((node.status.allocatable or {})["cpu"]))
        fits[room.domain(node.metadata.name, tier)] += free // cpu
    return any(count >= size for domain, count in fits.items() if domain is not None)
