"""An admitted gang that no end of other gangs lets start keeps no room: others are admitted.

Each obstacle is tried on a cluster that is idle and on one where another gang runs indefinitely.
Once the obstacle is removed, the gang's room counts again, and it gets its turn.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from services.scheduler.tests.support import network_objects, sessions
from services.scheduler.tests.support import volume_objects as volumes
from services.scheduler.tests.support.closed_loop import Gang, Loop, Queue
from services.scheduler.tests.test_partial_gangs import run_for
from stromboli.scheduler.core.cache import lapsed_admissions
from stromboli.shared import decoding
from stromboli.shared.api import core, meta
from stromboli.testkit import builders

MARGIN = timedelta(seconds=25)
"""Skipped gangs are tried again within 10 seconds."""
NODES = ("n1", "n2")
WAITS = Gang("waits", "default", priority=1, minimum=2, cpu=3, waiting=2, is_inside=False)
NEXT = Gang("next", "default", priority=0, minimum=2, cpu=1, waiting=2, is_inside=False)
LATER = msgspec.structs.replace(NEXT, name="later")
OLD = Gang("old", "default", priority=2, minimum=2, cpu=1, running=NODES)
TOLERATION = core.Toleration(key="reserved", operator="Exists")
TAINT = core.Taint(key="reserved", effect="NoSchedule")
DATABASE = {"app": "database"}
NEAR = {"labelSelector": {"matchLabels": DATABASE}, "topologyKey": "zone"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NEAR_DATABASE = decoding.convert({"podAffinity": {REQUIRED: [NEAR]}}, core.Affinity)
AWAY_FROM_DATABASE = decoding.convert({"podAntiAffinity": {REQUIRED: [NEAR]}}, core.Affinity)
IN_ZONE = decoding.convert(
    {"nodeAffinity": {REQUIRED: volumes.zone("x")["required"]}}, core.Affinity
)
PORT = (core.ContainerPort(host_port=80),)
CLAIM = core.Volume(
    name="data", persistent_volume_claim=core.PersistentVolumeClaimSource(claim_name="data")
)


class Obstacle(msgspec.Struct, frozen=True):
    """``waits``: changes of the gang. ``node``: arguments of nodes. ``before``: further objects.
    ``lift``: removes the obstacle.
    """

    waits: Mapping[str, Any]
    lift: Callable[[Loop, Mapping[str, int]], None]
    node: Mapping[str, Any] = {}
    before: tuple[meta.Object, ...] = ()


def relabel(**fields: Any) -> Callable[[Loop, Mapping[str, int]], None]:
    """Replace all nodes."""

    def lift(loop: Loop, nodes: Mapping[str, int]) -> None:
        for name, cpu in nodes.items():
            loop.add_node(name, cpu, **fields)

    return lift


def create(*objects: meta.Object) -> Callable[[Loop, Mapping[str, int]], None]:
    return lambda loop, _: loop.put(*objects)


def delete(*objects: meta.Object) -> Callable[[Loop, Mapping[str, int]], None]:
    def lift(loop: Loop, _: Mapping[str, int]) -> None:
        for each in objects:
            loop.lose(each)

    return lift


def remove_gates(loop: Loop, _: Mapping[str, int]) -> None:
    loop.change_pods(msgspec.structs.replace(loop.gangs["waits"], pod={}))


def newer(obj: meta.Object) -> meta.Object:
    metadata = msgspec.structs.replace(obj.metadata, resource_version="2")
    return msgspec.structs.replace(obj, metadata=metadata)


def widen_rack(loop: Loop, _: Mapping[str, int]) -> None:
    loop.lose(network_objects.rack("r2", "n2"))
    loop.put(newer(network_objects.rack("r1", *NODES)))


def daemons(**fields: Any) -> tuple[core.Pod, ...]:
    """A pod of no gang on each node."""
    fields = {"cpu": None, "memory": None, "scheduler": "default-scheduler", **fields}
    return tuple(
        builders.make_pod(f"daemon-{node}", node=node, phase="Running", **fields) for node in NODES
    )


LABELS = {"labels": {"zone": "x"}}
OTHER_LABELS = {"labels": {"zone": "y"}}
PORT_USERS = daemons(containers=[core.Container(ports=PORT)])
SMALL_DAEMONS = daemons(cpu="100m")
LABELLED_DAEMONS = daemons(labels=DATABASE)
OBSTACLES = {
    "node selector": Obstacle({"pod": {"node_selector": {"zone": "x"}}}, relabel(**LABELS)),
    "node affinity": Obstacle({"pod": {"affinity": IN_ZONE}}, relabel(**LABELS), OTHER_LABELS),
    "taints": Obstacle({}, relabel(), {"taints": [TAINT]}),
    "absent volume claim": Obstacle(
        {"spec": {"volumes": (CLAIM,)}},
        create(volumes.volume("v"), volumes.claim("data", volumeName="v")),
    ),
    "volume claim that is not bound": Obstacle(
        {"spec": {"volumes": (CLAIM,)}},
        create(volumes.volume("v"), newer(volumes.claim("data", volumeName="v"))),
        before=(volumes.claim("data", storageClassName="absent"),),
    ),
    "zone of a volume": Obstacle(
        {"spec": {"volumes": (CLAIM,)}},
        relabel(**LABELS),
        OTHER_LABELS,
        (volumes.volume("v", zone_name="x"), volumes.claim("data", volumeName="v")),
    ),
    "scheduling gates": Obstacle({"pod": {"gates": ["example.com/hold"]}}, remove_gates),
    "pod affinity": Obstacle(
        {"pod": {"affinity": NEAR_DATABASE}}, create(*LABELLED_DAEMONS), LABELS
    ),
    "pod anti-affinity to pods of no gang": Obstacle(
        {"pod": {"affinity": AWAY_FROM_DATABASE}},
        delete(*LABELLED_DAEMONS),
        LABELS,
        LABELLED_DAEMONS,
    ),
    "host ports of pods of no gang": Obstacle(
        {
            "pod": {
                "containers": [
                    msgspec.structs.replace(builders.make_container(cpu="3"), ports=PORT)
                ]
            }
        },
        delete(*PORT_USERS),
        before=PORT_USERS,
    ),
    "requests of pods of no gang": Obstacle({}, delete(*SMALL_DAEMONS), before=SMALL_DAEMONS),
    "topology domains that are too small": Obstacle(
        {"topology": network_objects.hard(1)},
        widen_rack,
        before=(network_objects.rack("r1", "n1"), network_objects.rack("r2", "n2")),
    ),
    "a topology tier that does not exist": Obstacle(
        {"topology": network_objects.hard(name="rack")},
        create(network_objects.rack("r3", *NODES, tier_name="rack")),
    ),
}
ONLY_IDLE = ("pod anti-affinity to pods of no gang", "requests of pods of no gang")
"""While gangs run, the former could be resolved by their end as far as is known. For the latter see
below.
"""


def loop_of(obstacle: Obstacle, *, is_busy: bool) -> tuple[Loop, dict[str, int]]:
    """Room for either gang beside what runs, and not for both."""
    names = ("priority", "gang", "overcommit", "predicates", "nodeorder", "network-topology-aware")
    configured = sessions.configured(
        [sessions.plugin(name) for name in names], run="enqueue, allocate, backfill"
    )
    nodes = dict.fromkeys(NODES, (4 if is_busy else 3))
    loop = Loop(configured, {}, [Queue("default", deserved=sum(nodes.values()))])
    for name, cpu in nodes.items():
        loop.add_node(name, cpu, **obstacle.node)
    loop.put(*obstacle.before)
    if is_busy:
        loop.add(OLD)
    return loop, nodes


def tolerant(gang: Gang) -> Gang:
    return msgspec.structs.replace(gang, pod={"tolerations": [TOLERATION]})


CASES = [
    pytest.param(name, is_busy, id=f"{name}, {'busy' if is_busy else 'idle'}")
    for name in OBSTACLES
    for is_busy in (False, True)
    if not (is_busy and name in ONLY_IDLE)
]


@pytest.mark.parametrize(("name", "is_busy"), CASES)
def test_others_are_admitted_until_the_obstacle_is_removed(name: str, is_busy: bool) -> None:
    obstacle = OBSTACLES[name]
    loop, nodes = loop_of(obstacle, is_busy=is_busy)
    loop.add(msgspec.structs.replace(WAITS, **obstacle.waits))
    run_for(loop, MARGIN)
    assert loop.phase("waits") == "Inqueue"
    assert loop.places("waits") == []

    loop.add(tolerant(NEXT))
    run_for(loop, MARGIN)
    assert len(loop.places("next")) == 2

    obstacle.lift(loop, nodes)
    run_for(loop, MARGIN)
    loop.add(tolerant(LATER))
    run_for(loop, MARGIN)
    assert loop.phase("later") == "Pending"
    loop.end("next")
    run_for(loop, MARGIN)
    assert len(loop.places("waits")) == 2
    assert loop.phase("later") == "Pending"


def test_a_restart_does_not_keep_the_room_again() -> None:
    loop, _ = loop_of(Obstacle({}, relabel()), is_busy=True)
    loop.add(msgspec.structs.replace(WAITS, pod={"node_selector": {"zone": "x"}}))
    run_for(loop, MARGIN)
    loop.restart()
    assert loop.memory[lapsed_admissions.NAME]
    loop.add(NEXT)
    assert loop.settle(1) is not None
    assert len(loop.places("next")) == 2


def test_pods_of_no_gang_count_as_if_they_stayed() -> None:
    """The pods request whole nodes. They would fit the nodes' capacity."""
    loop, nodes = loop_of(Obstacle({}, relabel(), before=SMALL_DAEMONS), is_busy=True)
    loop.add(msgspec.structs.replace(WAITS, cpu=nodes["n1"], is_inside=True))
    loop.add(NEXT)
    run_for(loop, MARGIN)
    assert len(loop.places("next")) == 2
    loop.lose(SMALL_DAEMONS[0])
    loop.lose(SMALL_DAEMONS[1])
    loop.end("old")
    loop.end("next")
    run_for(loop, MARGIN)
    assert len(loop.places("waits")) == 2


def test_a_gang_that_repels_its_own_pods_needs_as_many_nodes() -> None:
    """Two of its three pods would find a node."""
    label = {"app": "replica"}
    term = {"labelSelector": {"matchLabels": label}, "topologyKey": "name"}
    apart = decoding.convert({"podAntiAffinity": {REQUIRED: [term]}}, core.Affinity)
    loop, _ = loop_of(Obstacle({}, relabel()), is_busy=True)
    for name in NODES:
        loop.add_node(name, 4, labels={"name": name})
    pod = {"affinity": apart, "labels": label}
    loop.add(msgspec.structs.replace(WAITS, minimum=3, cpu=2, waiting=3, pod=pod))
    run_for(loop, MARGIN)
    loop.add(NEXT)
    run_for(loop, MARGIN)
    assert len(loop.places("next")) == 2
    loop.add_node("n3", 4, labels={"name": "n3"})
    run_for(loop, MARGIN)
    assert sorted(loop.places("waits")) == ["n1", "n2", "n3"]


def test_a_gang_starts_beside_pods_of_another_gang_once_they_are_placed() -> None:
    """Both are submitted together; the one that needs the other is tried first."""
    loop, _ = loop_of(Obstacle({}, relabel(), LABELS), is_busy=False)
    near = msgspec.structs.replace(WAITS, cpu=1, pod={"affinity": NEAR_DATABASE})
    loop.add(near)
    loop.add(msgspec.structs.replace(NEXT, pod={"labels": DATABASE}))
    run_for(loop, MARGIN)
    assert len(loop.places("waits")) == 2, loop.history


def test_a_gang_that_waits_for_room_keeps_its_reservation() -> None:
    """Small gangs that arrive all the time do not take the room that becomes free, on nodes that
    the gang's node selector allows."""
    loop, _ = loop_of(Obstacle({}, relabel(), LABELS), is_busy=False)
    small = [msgspec.structs.replace(NEXT, name=f"small{at}") for at in range(12)]
    for each in small[:3]:
        loop.add(each)
    run_for(loop, MARGIN)
    selector = {"node_selector": {"zone": "x"}}
    loop.add(msgspec.structs.replace(WAITS, is_inside=True, pod=selector))
    for at, each in enumerate(small[3:]):
        run_for(loop, MARGIN)
        loop.add(each)
        running = [name for name in loop.gangs if name != "waits" and loop.places(name)]
        if at % 2 and running:
            loop.end(running[0])
    run_for(loop, MARGIN)
    assert len(loop.places("waits")) == 2, loop.history
