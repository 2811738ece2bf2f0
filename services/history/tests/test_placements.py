"""What kubelets confirmed of attempts, whatever is read first; on both databases."""

from typing import Any

import pytest

from services.history.tests.support import events
from stromboli.history.core import placements
from stromboli.history.store import queries
from stromboli.history.store.database import Database
from stromboli.history.store.writer import Writer
from stromboli.shared import envelope, topics
from stromboli.shared.api.views import accounting
from stromboli.shared.bus import port
from stromboli.shared.messages import node_topology
from stromboli.testkit.builders import make_record

GPU = "nvidia.com/gpu"
CELLS = (node_topology.NumaNode(id=0, cpus="0-7"), node_topology.NumaNode(id=1, cpus="8-15"))
Held = tuple[tuple[int, ...], str, dict[str, tuple[str, ...]]]


def holding(pod: str = "p1", cell: int = 1, **fields: str) -> node_topology.ExclusiveAllocation:
    """A container with CPUs and a GPU of a NUMA node."""
    gpu = node_topology.AllocatedDevices(resource=GPU, ids=(f"GPU-{cell}",), numa_nodes=(cell,))
    known: dict[str, Any] = {"namespace": "team", "pod": pod, "cpus": "8-10" if cell else "0-2"}
    return node_topology.ExclusiveAllocation(**(known | fields), devices=(gpu,))


def report(
    second: float, *exclusive_allocations: node_topology.ExclusiveAllocation
) -> envelope.Record:
    """The agent of the node n1 reports its exclusive allocations."""
    topology = node_topology.NodeTopology(
        numa_nodes=CELLS, exclusive_allocations=exclusive_allocations
    )
    message = node_topology.TopologyObserved(node="n1", at=events.at(second), topology=topology)
    draft = envelope.Draft(topic=topics.TOPOLOGY, key="n1", message=message, time=message.at)
    return make_record(draft)


def life(pod: str = "p1", begin: float = 0, uid: str = "") -> list[envelope.Record]:
    """A pod that is bound, runs and ends after ten seconds."""
    named = {"pod_uid": uid or f"{pod}-uid", "node": "n1"}
    steps = (("Bound", 1), ("Running", 2), ("Succeeded", 10))
    return [events.record(events.task(it, begin + at, pod, **named), 0) for it, at in steps]


async def apply(store: Database, *batches: list[envelope.Record]) -> None:
    writer = Writer(store)
    await writer.position()
    for batch in batches:
        assert await writer.apply(batch, port.Position({}, {}, {})) == []


async def held(store: Database) -> dict[str, Held]:
    """Uid of a pod -> NUMA nodes, exclusive CPUs and devices."""
    page = await queries.attempts(store, accounting.AttemptQuery(), events.at(1000))
    return {
        it.pod_uid: (it.numa_nodes, it.exclusive_cpus, it.confirmed_devices) for it in page.attempts
    }


ON_1: Held = ((1,), "8-10", {GPU: ("GPU-1",)})
UNKNOWN: Held = ((), "", {})


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("is_one_batch", [True, False])
async def test_a_report_confirms_an_attempt_wherever_it_is_read(
    store: Database, place: int, *, is_one_batch: bool
) -> None:
    """Before the pod's first event, between two, or behind the last one of its batch. Read in a
    later batch than the end of the pod, it confirms nothing."""
    bound, running, ended = life()
    read = [bound, running, ended]
    read.insert(place, report(3, holding()))
    await apply(store, *([read] if is_one_batch else [[it] for it in read]))
    assert await held(store) == {"p1-uid": UNKNOWN if place == 3 and not is_one_batch else ON_1}


async def test_a_report_again_changes_nothing_and_an_empty_one_forgets_nothing(
    store: Database,
) -> None:
    bound, running, ended = life()
    first, empty = report(3, holding()), report(4)
    await apply(store, [bound, running, first], [empty], [first], [ended])
    assert await held(store) == {"p1-uid": ON_1}


async def test_the_next_attempt_of_the_same_name_has_its_own_placement(store: Database) -> None:
    """A report is of the attempt that had the node at its time."""
    first, second = life(), life(begin=20, uid="again")
    reports = report(3, holding(cell=1)), report(23, holding(cell=0))
    together = [*first, *second, *reports]
    on_0 = ((0,), "0-2", {GPU: ("GPU-0",)})
    await apply(store, together)
    assert await held(store) == {"p1-uid": ON_1, "again": on_0}


async def test_without_a_report_at_its_time_an_attempt_has_no_placement(store: Database) -> None:
    await apply(store, [report(3, holding())], life(begin=20))
    assert await held(store) == {"p1-uid": UNKNOWN}


async def test_state_files_name_a_pod_by_its_uid(store: Database) -> None:
    named = holding(pod="", namespace="", uid="p1-uid")
    await apply(store, [*life(), report(3, named)])
    assert await held(store) == {"p1-uid": ON_1}


def test_containers_of_a_pod_add_up_and_unknown_places_are_left_out() -> None:
    """The NUMA node of a device without one is -1; a list of CPUs may be invalid."""
    memory = node_topology.AllocatedMemory(kind="memory", size_bytes=1, numa_nodes=(0, -1))
    odd = node_topology.ExclusiveAllocation(
        namespace="team", pod="p1", cpus="x-y", memory=(memory,)
    )
    found = placements.of(CELLS, [holding(cell=1), holding(cell=1, cpus="11-12"), odd])
    (placement,) = found.values()
    assert placement.numa_nodes == (0, 1)
    assert placement.cpus == "8-12"
    assert placement.devices == {GPU: ("GPU-1", "GPU-1")}
    assert list(found) == ["team/p1"]
