"""Rules of ``strom node view``: what is drawn of a node, and who has what."""

from datetime import datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from stromboli.cli.render import node_layout, node_svg, node_text
from stromboli.shared.api import kinds
from stromboli.shared.messages import node_topology as topology
from stromboli.testkit import builders

LATER = builders.NOON + timedelta(minutes=5)
MACHINE = topology.NodeTopology(
    cells=(
        topology.NumaCell(id=0, cpus="0,1,4,5", memory_bytes=64 * 2**30),
        topology.NumaCell(id=1, cpus="2,3,6,7"),
    ),
    cores=(
        topology.CpuCore(cpus="0,4"),
        topology.CpuCore(cpus="1,5"),
        topology.CpuCore(cpus="2,6", cell=1, socket=1),
        topology.CpuCore(cpus="3,7", cell=1, socket=1),
    ),
    gpus=(
        topology.Gpu(index=0, uuid="GPU-a", model="NVIDIA A100", memory_bytes=2**30, cell=0),
        topology.Gpu(
            index=1,
            uuid="GPU-b",
            model="NVIDIA A100",
            cell=1,
            slices=(topology.MigSlice(uuid="MIG-b1", profile="1g.10gb"),),
        ),
        topology.Gpu(index=2, uuid="GPU-c", problems=("the driver does not show it any more",)),
    ),
    ways=(("X", "SYS", "SYS"), ("SYS", "X", "SYS"), ("SYS", "SYS", "X")),
    nvlinks=((0, 4, 0), (3, 0, 0), (0, 0, 0)),
    nics=(topology.Nic(name="ib0", cell=0, ways=("PIX", "SYS", "SYS"), is_up=True),),
    kubelet=topology.KubeletFacts(cpu_policy="static", reserved_cpus="0,4"),
    holdings=(
        topology.Holding(
            namespace="team",
            pod="train-0",
            container="a",
            cpus="1,5",
            devices=(topology.HeldDevices(resource="nvidia.com/gpu", ids=("GPU-a",)),),
        ),
        topology.Holding(namespace="team", pod="train-0", container="b", cpus="2"),
        topology.Holding(
            uid="u2",
            container="c",
            devices=(topology.HeldDevices(resource="nvidia.com/mig", ids=("MIG-b1",)),),
        ),
    ),
    unread=(topology.Unread(what="RDMA", why="no such folder"),),
)


def picture(
    machine: topology.NodeTopology = MACHINE, silent_since: datetime | None = None
) -> node_layout.Picture:
    seen = topology.TopologyObserved(
        node="n1", at=builders.NOON, topology=machine, silent_since=silent_since
    )
    return node_layout.picture(seen, LATER)


def text(of: node_layout.Picture) -> str:
    console = Console(width=120, highlight=False)
    with console.capture() as captured:
        console.print(node_text.drawn(of))
    return captured.get()


def test_each_thread_of_a_core_shows_who_has_it() -> None:
    """The pod of several containers is one."""
    marks = [["".join(mark for _, mark in core) for core in cell.cores] for cell in picture().cells]
    assert marks == [["rr", "AA"], ["A·", "··"], []]


def test_gpus_are_whose_their_ids_are_also_in_part() -> None:
    """A GPU of no known NUMA node is drawn all the same."""
    drawn = picture()
    assert [place.letters for place in drawn.gpus] == ["A", "B", ""]
    assert [holder.name for holder in drawn.holders] == ["team/train-0", "pod u2"]
    assert [cell.gpus for cell in drawn.cells] == [(0,), (1,), (2,)]


@pytest.mark.parametrize("id_", ["GPU-a", "GPU-a::7", "nvidia0"])
def test_plugins_that_call_gpus_otherwise_are_understood(id_: str) -> None:
    held = topology.HeldDevices(resource="nvidia.com/gpu", ids=(id_,))
    one = topology.Holding(pod="p", devices=(held,))
    drawn = picture(msgspec.structs.replace(MACHINE, holdings=(one,)))
    assert drawn.holders[0].gpus == (0,)


def test_links_count_as_the_end_with_fewer_tells_them() -> None:
    links = picture().links
    assert links[0][1] == node_layout.Link("NV3", 3, differs=True)
    assert links[0][2] == node_layout.Link("SYS")
    assert links[0][0] is None


def test_a_switch_links_all_that_are_on_it() -> None:
    gpus = tuple(msgspec.structs.replace(gpu, to_switch=12) for gpu in MACHINE.gpus)
    drawn = picture(msgspec.structs.replace(MACHINE, gpus=gpus, nvlinks=()))
    assert drawn.links[0][2] == node_layout.Link("NV12", 12)


def test_the_text_says_all_that_is_known_and_what_is_not() -> None:
    said = text(picture())
    for part in (
        "2 sockets   2 NUMA nodes   4 cores, 8 CPUs   64 GiB   2 × A100",
        "kubelet: CPU manager static, CPUs 0,4 reserved",
        "unchanged for 5m",
        "NUMA node 0 · socket 0 · 64 GiB",
        "CPUs  0  rr AA",
        "ib0  beside GPU 0",
        "NV3*",
        "team/train-0",
        "MIG: 1 × 1g.10gb",
        "the driver does not show it any more",
        "RDMA: no such folder",
    ):
        assert part in said


def test_old_news_say_how_old_they_are() -> None:
    drawn = picture(silent_since=builders.NOON)
    assert "silent for 5m: nothing here is sure" in text(drawn)
    assert "silent for 5m" in node_svg.drawn(drawn)


def elements(of: node_layout.Picture) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(node_svg.drawn(of)).iter())


def test_the_svg_names_every_pod_and_gpu() -> None:
    said = [each.text or "" for each in elements(picture())]
    for part in ("n1", "GPU 0", "GPU 2", "team/train-0", "NV3*", "faulty", "RDMA: no such folder"):
        assert part in said


def test_the_svg_takes_names_that_look_like_markup() -> None:
    odd = topology.Holding(namespace="<b>", pod='"&', cpus="1")
    drawn = picture(msgspec.structs.replace(MACHINE, holdings=(odd,)))
    assert '<b>/"&' in [each.text for each in elements(drawn)]


CPUS = st.sampled_from(["", "0", "0-3", "7,1", "x", "99"])
CELL = st.integers(-1, 2)


@st.composite
def odd_machines(draw: st.DrawFn) -> topology.NodeTopology:
    """Reports of an agent that is broken: tables of other sizes, lists that are none."""
    few: Any = st.integers(0, 3)
    gpus = tuple(
        topology.Gpu(index=at, uuid=f"GPU-{at}", cell=draw(CELL), to_switch=draw(few))
        for at in range(draw(few))
    )
    table = tuple(tuple(draw(few) for _ in range(draw(few))) for _ in range(draw(few)))
    ways = tuple(tuple("PIX" for _ in line) for line in table)
    return topology.NodeTopology(
        cells=tuple(topology.NumaCell(id=at, cpus=draw(CPUS)) for at in range(draw(few))),
        cores=tuple(topology.CpuCore(cpus=draw(CPUS), cell=draw(CELL)) for _ in range(draw(few))),
        gpus=gpus,
        nvlinks=table,
        ways=ways,
        nics=tuple(
            topology.Nic(name="n", cell=draw(CELL), ways=("PIX",) * draw(few))
            for _ in range(draw(few))
        ),
        holdings=tuple(topology.Holding(pod=f"p{at}", cpus=draw(CPUS)) for at in range(draw(few))),
        offline_cpus=draw(CPUS),
    )


@settings(max_examples=200)
@given(odd_machines())
def test_whatever_an_agent_says_is_drawn(machine: topology.NodeTopology) -> None:
    drawn = picture(machine)
    assert text(drawn)
    assert elements(drawn)


def test_more_pods_than_letters_are_drawn_all_the_same() -> None:
    many = tuple(topology.Holding(pod=f"p{at}", cpus="1") for at in range(60))
    drawn = picture(msgspec.structs.replace(MACHINE, holdings=many))
    assert drawn.holders[-1].letter == node_layout.MANY
    assert text(drawn)
    assert elements(drawn)


def test_a_node_without_an_agent_is_not_said_to_be_absent(house: Any, strom: Any) -> None:
    house.create(kinds.NODES, {"metadata": {"name": "silent"}})
    refused = strom("node", "view", "silent")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("strom: node silent: no agent has told what it has\nnext: run")
    absent = strom("node", "view", "none")
    assert absent.stderr == (
        "strom: node none: there is none of this name\nnext: see what there is: strom top nodes\n"
    )
