"""Rules of ``strom node get``: what is drawn of a node, and who has what."""

from datetime import datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from stromboli.cli.render.nodes import node_layout, node_text
from stromboli.shared import envelope, topics
from stromboli.shared.api import kinds
from stromboli.shared.messages import node_topology as topology
from stromboli.shared.messages import node_usage
from stromboli.testkit import builders

LATER = builders.NOON + timedelta(minutes=5)
MACHINE = topology.NodeTopology(
    numa_nodes=(
        topology.NumaNode(
            id=0, cpus="0,1,4,5", memory_bytes=64 * 2**30, allocatable_memory_bytes=60 * 2**30
        ),
        topology.NumaNode(id=1, cpus="2,3,6,7"),
    ),
    cores=(
        topology.CpuCore(cpus="0,4"),
        topology.CpuCore(cpus="1,5"),
        topology.CpuCore(cpus="2,6", numa_node=1, socket=1),
        topology.CpuCore(cpus="3,7", numa_node=1, socket=1),
    ),
    gpus=(
        topology.Gpu(index=0, uuid="GPU-a", model="NVIDIA A100", memory_bytes=2**30, numa_node=0),
        topology.Gpu(
            index=1,
            uuid="GPU-b",
            model="NVIDIA A100",
            numa_node=1,
            slices=(topology.MigSlice(uuid="MIG-b1", profile="1g.10gb"),),
        ),
        topology.Gpu(index=2, uuid="GPU-c", problems=("the driver no longer lists it",)),
    ),
    gpu_connections=(("X", "SYS", "SYS"), ("SYS", "X", "SYS"), ("SYS", "SYS", "X")),
    nvlinks=((0, 4, 0), (3, 0, 0), (0, 0, 0)),
    nics=(
        topology.Nic(name="ib0", numa_node=0, gpu_connections=("PIX", "SYS", "SYS"), is_up=True),
    ),
    kubelet=topology.KubeletConfiguration(cpu_policy="static", reserved_cpus="0,4"),
    exclusive_allocations=(
        topology.ExclusiveAllocation(
            namespace="team",
            pod="train-0",
            container="a",
            cpus="1,5",
            devices=(topology.AllocatedDevices(resource="nvidia.com/gpu", ids=("GPU-a",)),),
        ),
        topology.ExclusiveAllocation(namespace="team", pod="train-0", container="b", cpus="2"),
        topology.ExclusiveAllocation(
            uid="u2",
            container="c",
            devices=(topology.AllocatedDevices(resource="nvidia.com/mig", ids=("MIG-b1",)),),
        ),
    ),
    read_failures=(topology.ReadFailure(what="RDMA", why="no such folder"),),
)


def snapshot(
    machine: topology.NodeTopology = MACHINE, silent_since: datetime | None = None
) -> node_layout.NodeLayout:
    seen = topology.TopologyObserved(
        node="n1", at=builders.NOON, topology=machine, silent_since=silent_since
    )
    return node_layout.node_layout(seen, LATER)


def text(of: node_layout.NodeLayout) -> str:
    console = Console(width=120, highlight=False)
    with console.capture() as captured:
        console.print(node_text.render_text(of))
    return captured.get()


def test_each_thread_of_a_core_shows_who_has_it() -> None:
    """The pod of several containers is one."""
    marks = [
        ["".join(mark for _, mark in core) for core in numa_node.cores]
        for numa_node in snapshot().numa_nodes
    ]
    assert marks == [["rr", "AA"], ["A·", "··"], []]


def test_gpus_are_whose_their_ids_are_also_in_part() -> None:
    """A GPU of no known NUMA node is drawn all the same."""
    drawn = snapshot()
    assert [place.letters for place in drawn.gpus] == ["A", "B", ""]
    assert [holder.name for holder in drawn.holders] == ["team/train-0", "pod u2"]
    assert [numa_node.gpus for numa_node in drawn.numa_nodes] == [(0,), (1,), (2,)]


@pytest.mark.parametrize("id_", ["GPU-a", "GPU-a::7", "nvidia0"])
def test_plugins_that_call_gpus_otherwise_are_understood(id_: str) -> None:
    allocated_devices = topology.AllocatedDevices(resource="nvidia.com/gpu", ids=(id_,))
    one = topology.ExclusiveAllocation(pod="p", devices=(allocated_devices,))
    drawn = snapshot(msgspec.structs.replace(MACHINE, exclusive_allocations=(one,)))
    assert drawn.holders[0].gpus == (0,)


def test_the_smaller_link_count_of_two_ends_is_used() -> None:
    links = snapshot().links
    assert links[0][1] == node_layout.Link("NV3", 3, differs=True)
    assert links[0][2] == node_layout.Link("SYS")
    assert links[0][0] is None


def test_a_switch_links_all_that_are_on_it() -> None:
    gpus = tuple(msgspec.structs.replace(gpu, nvswitch_links=12) for gpu in MACHINE.gpus)
    drawn = snapshot(msgspec.structs.replace(MACHINE, gpus=gpus, nvlinks=()))
    assert drawn.links[0][2] == node_layout.Link("NV12", 12)


def test_the_text_lists_all_data_and_what_is_unknown() -> None:
    said = text(snapshot())
    for part in (
        "2 sockets   2 NUMA nodes   4 cores, 8 CPUs   64 GiB   2 × A100",
        "kubelet: CPU manager static, CPUs 0,4 reserved",
        "unchanged for 5m",
        "NUMA node 0 · socket 0 · 64 GiB, 60 GiB allocatable",
        "CPUs  0  rr AA",
        "ib0  beside GPU 0",
        "NV3*",
        "team/train-0",
        "MIG: 1 × 1g.10gb",
        "the driver no longer lists it",
        "RDMA: no such folder",
    ):
        assert part in said


def test_an_old_report_is_shown_with_its_age() -> None:
    drawn = snapshot(silent_since=builders.NOON)
    assert "silent for 5m: the data may be outdated" in text(drawn)
    assert "silent for 5m" in image_text(drawn)


def image_text(of: node_layout.NodeLayout) -> str:
    """The text of the image, which is a valid document."""
    root = ElementTree.fromstring(node_text.render_svg(of))
    return "".join(root.itertext()).replace("\xa0", " ")


def test_the_svg_names_every_pod_and_gpu() -> None:
    drawn = image_text(snapshot())
    for part in ("n1", "GPU 0", "team/train-0", "NV3*", "RDMA: no such folder"):
        assert part in drawn


def test_the_svg_needs_nothing_from_the_network() -> None:
    assert "url(http" not in node_text.render_svg(snapshot()).replace('"', "")


def test_the_svg_takes_names_that_look_like_markup() -> None:
    odd = topology.ExclusiveAllocation(namespace="<b>", pod='"&', cpus="1")
    drawn = snapshot(msgspec.structs.replace(MACHINE, exclusive_allocations=(odd,)))
    assert '<b>/"&' in image_text(drawn)


CPUS = st.sampled_from(["", "0", "0-3", "7,1", "x", "99"])
CELL = st.integers(-1, 2)


@st.composite
def odd_machines(draw: st.DrawFn) -> topology.NodeTopology:
    """Reports of an agent that is broken: tables of other sizes, lists that are none."""
    few: Any = st.integers(0, 3)
    gpus = tuple(
        topology.Gpu(index=at, uuid=f"GPU-{at}", numa_node=draw(CELL), nvswitch_links=draw(few))
        for at in range(draw(few))
    )
    table = tuple(tuple(draw(few) for _ in range(draw(few))) for _ in range(draw(few)))
    gpu_connections = tuple(tuple("PIX" for _ in line) for line in table)
    return topology.NodeTopology(
        numa_nodes=tuple(topology.NumaNode(id=at, cpus=draw(CPUS)) for at in range(draw(few))),
        cores=tuple(
            topology.CpuCore(cpus=draw(CPUS), numa_node=draw(CELL)) for _ in range(draw(few))
        ),
        gpus=gpus,
        nvlinks=table,
        gpu_connections=gpu_connections,
        nics=tuple(
            topology.Nic(name="n", numa_node=draw(CELL), gpu_connections=("PIX",) * draw(few))
            for _ in range(draw(few))
        ),
        exclusive_allocations=tuple(
            topology.ExclusiveAllocation(pod=f"p{at}", cpus=draw(CPUS)) for at in range(draw(few))
        ),
        offline_cpus=draw(CPUS),
    )


@settings(max_examples=200)
@given(odd_machines())
def test_any_report_of_an_agent_can_be_drawn(machine: topology.NodeTopology) -> None:
    drawn = snapshot(machine)
    assert text(drawn)
    assert image_text(drawn)


def test_more_pods_than_letters_are_drawn() -> None:
    many = tuple(topology.ExclusiveAllocation(pod=f"p{at}", cpus="1") for at in range(60))
    drawn = snapshot(msgspec.structs.replace(MACHINE, exclusive_allocations=many))
    assert drawn.holders[-1].letter == node_layout.MANY
    assert text(drawn)
    assert image_text(drawn)


def test_a_node_without_an_agent_is_not_said_to_be_absent(api_server: Any, strom: Any) -> None:
    api_server.create(kinds.NODES, {"metadata": {"name": "silent"}})
    refused = strom("node", "topology", "silent", "-o", "json")
    assert refused.exit_code == 1
    assert refused.stderr.startswith(
        "strom: node silent: no node agent has reported its hardware\nnext: install"
    )
    absent = strom("node", "view", "none")
    assert absent.stderr == (
        "strom: node none: not found\nnext: list what exists: strom node list\n"
    )


@pytest.mark.parametrize("command", ["get", "view", "describe"])
def test_a_node_for_programs_is_the_object(api_server: Any, strom: Any, command: str) -> None:
    """As for every other kind; the report of its node agent has its own command."""
    labels = {"pool": "a100"}
    api_server.create(kinds.NODES, {"metadata": {"name": "n1", "labels": labels}})
    shown = strom("node", command, "n1", "-o", "json")
    assert shown.exit_code == 0, shown.stderr
    assert kinds.NODES.decode(shown.stdout.encode()).metadata.labels == labels
    assert strom("node", command, "n1", "-o", "name").stdout == "node/n1\n"


def test_the_topology_for_programs_is_the_report_of_the_node_agent(
    api_server: Any, strom: Any
) -> None:
    api_server.create(kinds.NODES, {"metadata": {"name": "n1"}})
    report = topology.TopologyObserved(node="n1", at=builders.NOON, topology=MACHINE)
    draft = envelope.Draft(topic=topics.TOPOLOGY, key="n1", message=report, time=builders.NOON)
    api_server.tell(builders.make_record(draft))
    shown = strom("node", "topology", "n1", "-o", "json")
    assert shown.exit_code == 0, shown.stderr
    assert [gpu["uuid"] for gpu in msgspec.json.decode(shown.stdout)["topology"]["gpus"]] == [
        "GPU-a", "GPU-b", "GPU-c",
    ]  # fmt: skip
    assert "GPU-a" not in strom("node", "get", "n1", "-o", "json").stdout
    assert strom("node", "topology", "n1", "-o", "svg").stdout.startswith("<svg")
    drawn = strom("node", "topology", "n1").stdout
    assert drawn.strip()
    assert strom("node", "get", "n1").stdout.endswith(drawn)


def test_a_node_is_shown_with_the_measured_loads_of_its_disks_and_network(
    api_server: Any, strom: Any
) -> None:
    api_server.create(kinds.NODES, {"metadata": {"name": "n1"}})
    assert "busy" not in strom("node", "get", "n1").stdout
    disk = node_usage.DeviceLoad(busiest="nvme0n1", percent=85, out_bytes_per_s=450_000_000)
    report = node_usage.UsageObserved(
        node="n1", observed_at=builders.NOON, usage=node_usage.NodeLoad(window_s=60, disk=disk)
    )
    draft = envelope.Draft(topic=topics.USAGE, key="n1", message=report, time=builders.NOON)
    api_server.tell(builders.make_record(draft))
    shown = strom("node", "get", "n1").stdout
    assert "nvme0n1 85 % busy, 0 bytes/s read, 450.0 MB/s written (as of " in shown
    assert "received" not in shown
