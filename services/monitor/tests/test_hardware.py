"""Recorded machines, from their files to the report."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.monitor.tests import readings
from stromboli.monitor.core.hardware import assembly, devices, gpus, sysfs_tree
from stromboli.shared import decoding
from stromboli.shared.formats import cpu_lists
from stromboli.shared.messages import base, node_topology
from stromboli.testkit.doubles import recorded_machines

NO_DRIVER = "GPUs: no NVIDIA driver is loaded"


# --- processors -----------------------------------------------------------------------------


@pytest.mark.parametrize("numa_nodes", [1, 2, 4, 8])
def test_every_cpu_is_in_its_numa_node_and_core(numa_nodes: int, tmp_path: Path) -> None:
    topology = readings.read(recorded_machines.plain_server(numa_nodes), tmp_path)
    assert [numa_node.id for numa_node in topology.numa_nodes] == list(range(numa_nodes))
    assert len(topology.cores) == 4 * numa_nodes
    total = 4 * numa_nodes
    for place, core in enumerate(topology.cores):
        assert cpu_lists.parsed(core.cpus) == {place, place + total}
        assert core.numa_node == place // 4
        assert core.socket == core.numa_node // max(numa_nodes // 2, 1)
    assert all(numa_node.memory_bytes == 64 * 2**30 for numa_node in topology.numa_nodes)
    assert readings.lines(topology) == [NO_DRIVER]


def test_each_numa_node_has_its_distances_and_huge_pages(tmp_path: Path) -> None:
    topology = readings.read(recorded_machines.plain_server(4), tmp_path)
    assert [numa_node.distances for numa_node in topology.numa_nodes] == [
        (10, 12, 21, 21),
        (12, 10, 21, 21),
        (21, 21, 10, 12),
        (21, 21, 12, 10),
    ]
    pages = node_topology.HugePages(size_bytes=2 * 2**20, total=512, free=512)
    assert all(numa_node.huge_pages == (pages,) for numa_node in topology.numa_nodes)


def test_offline_cpus_are_listed_and_in_no_core(tmp_path: Path) -> None:
    """A core that lost one of its threads continues with the other."""
    topology = readings.read(recorded_machines.with_offline_cpus(), tmp_path)
    assert topology.offline_cpus == "3,9,11"
    assert [core.cpus for core in topology.cores] == [
        "0,8",
        "1",
        "2,10",
        "4,12",
        "5,13",
        "6,14",
        "7,15",
    ]
    assert [numa_node.cpus for numa_node in topology.numa_nodes] == ["0-2,8,10", "4-7,12-15"]


def test_hidden_numa_nodes_are_reported_and_cpus_are_read(tmp_path: Path) -> None:
    sys, nvml = recorded_machines.write(recorded_machines.plain_server(2), tmp_path)
    shutil.rmtree(sys / "devices/system/node")
    topology = readings.opened(sys, nvml).read(0.0)
    assert topology.numa_nodes == (node_topology.NumaNode(id=0, cpus="0-15"),)
    assert len(topology.cores) == 8
    assert "NUMA nodes: the machine reports none: all CPUs count as node 0" in readings.lines(
        topology
    )


def test_an_unreadable_machine_lists_what_is_missing(tmp_path: Path) -> None:
    topology = readings.opened(tmp_path / "nowhere", tmp_path / "nothing.json").read(0.0)
    assert topology.cores == ()
    assert [each.what for each in topology.read_failures] == ["CPUs online", "NUMA nodes", "GPUs"]


@pytest.mark.parametrize("odd", ["", "x", "3-1", "\x00\xff", "-1", "0-99999999999"])
def test_an_invalid_file_affects_only_its_own_data(odd: str, tmp_path: Path) -> None:
    """Its CPU is a core of its own; every other core is as ever."""
    sys, nvml = recorded_machines.write(recorded_machines.plain_server(1), tmp_path)
    recorded_machines.put(sys / "devices/system/cpu/cpu1/topology/thread_siblings_list", odd)
    topology = readings.opened(sys, nvml).read(0.0)
    assert [core.cpus for core in topology.cores] == ["0,4", "1", "2,6", "3,7", "5"]
    line = next(line for line in readings.lines(topology) if "hyperthreads" in line)
    assert line.startswith("hyperthreads of CPU 1: ")


def test_equal_problems_are_one_line(tmp_path: Path) -> None:
    sys, nvml = recorded_machines.write(recorded_machines.plain_server(4), tmp_path)
    for cpu in range(32):
        (sys / f"devices/system/cpu/cpu{cpu}/topology/physical_package_id").unlink()
    topology = readings.opened(sys, nvml).read(0.0)
    (line,) = [line for line in readings.lines(topology) if "socket" in line]
    assert line.startswith(
        "the socket of CPU 0, CPU 1, CPU 2, CPU 3, CPU 4, CPU 5, CPU 6, CPU 7 and"
    )
    assert line.endswith("and 8 more: there is no such file")


TEXTS = st.one_of(
    st.sampled_from(["", "0", "-1", "0-3", "0,1", "1,0", "0x030000", "x", "4: ACTIVE", "99-1"]),
    st.text(max_size=6),
)
PATHS = [
    pattern.replace("[0-9]*", "1").replace("*", name, 1).replace("*", "1")
    for pattern in sysfs_tree.FILES
    for name in ("0000:17:00.0", "eth0")
]


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(PATHS), TEXTS))
def test_no_cpu_is_in_two_cores_for_any_file_content(texts: dict[str, str]) -> None:
    """Nor is there a core without CPUs, nor an exception."""
    read = sysfs_tree.SysfsTree(texts, {"class/net/eth0/device": "devices/pci0000:00/0000:17:00.0"})
    topology = assembly.with_gpus(
        assembly.read_layout(read), read, gpus.DriverReadings(absent="none"), None
    )
    everyone = [cpu for core in topology.cores for cpu in cpu_lists.parsed(core.cpus)]
    assert len(everyone) == len(set(everyone))
    assert decoding.from_json(base.encode(topology), node_topology.NodeTopology) == topology


# --- cards ----------------------------------------------------------------------------------


def test_an_8_gpu_server_has_its_gpus_switches_and_paths(tmp_path: Path) -> None:
    topology = readings.read(recorded_machines.eight_gpus_switched(), tmp_path)
    assert [gpu.numa_node for gpu in topology.gpus] == [0] * 4 + [1] * 4
    assert all(gpu.nvswitch_links == 18 and not gpu.problems for gpu in topology.gpus)
    assert topology.gpus[0].pci == "0000:13:00.0"
    assert topology.gpu_connections[0] == ("X", "NODE", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS")
    assert all(
        nic.rdma == f"mlx5_{at}" and nic.gbit_s == 400 for at, nic in enumerate(topology.nics)
    )
    for at, nic in enumerate(topology.nics):
        assert [place for place, way in enumerate(nic.gpu_connections) if way == "PIX"] == [at]
    assert [each.kind for each in topology.pci].count("display") == 8


def test_gpus_under_one_switch_are_closer_than_others(tmp_path: Path) -> None:
    topology = readings.read(recorded_machines.four_gpus_pcie(), tmp_path)
    assert topology.gpu_connections == (
        ("X", "PIX", "SYS", "SYS"),
        ("PIX", "X", "SYS", "SYS"),
        ("SYS", "SYS", "X", "PIX"),
        ("SYS", "SYS", "PIX", "X"),
    )
    assert topology.nics[0].gpu_connections == ("NODE", "NODE", "SYS", "SYS")
    assert topology.nics[0] == node_topology.Nic(
        name="eth0",
        pci="0000:31:00.0",
        numa_node=0,
        link="Ethernet",
        is_up=True,
        gbit_s=100,
        gpu_connections=topology.nics[0].gpu_connections,
    )


def test_links_that_differ_by_their_end_are_reported_for_each_end(tmp_path: Path) -> None:
    topology = readings.read(recorded_machines.asymmetric_links(), tmp_path)
    assert topology.nvlinks == ((0, 3, 0, 0), (4, 0, 0, 0), (0, 0, 0, 4), (0, 0, 0, 0))


@pytest.mark.parametrize(
    ("one", "other", "way"),
    [
        ("01.0/0000:02:00.0/0000:03:00.0", "01.0/0000:02:00.0/0000:03:01.0", "PIX"),
        ("01.0/0000:02:00.0/0000:03:00.0/0000:05:00.0", "01.0/0000:02:00.0/0000:03:01.0", "PXB"),
        ("01.0", "02.0", "PHB"),
        ("01.0", "01.0", "PIX"),
    ],
)
def test_a_path_is_named_after_its_bridges(one: str, other: str, way: str) -> None:
    links = {
        f"bus/pci/devices/{name}": f"devices/pci0000:00/0000:00:{above}/{name}"
        for name, above in (("0000:0a:00.0", one), ("0000:0b:00.0", other))
    }
    read = sysfs_tree.SysfsTree({}, links)
    assert devices.connection_type(read, ("0000:0a:00.0", 0), ("0000:0b:00.0", 0)) == way


def test_an_unknown_numa_node_is_not_node_0(tmp_path: Path) -> None:
    sys, nvml = recorded_machines.write(recorded_machines.four_gpus_pcie(), tmp_path)
    for card in (sys / "bus/pci/devices").iterdir():
        recorded_machines.put(card / "numa_node", "-1")
    topology = readings.opened(sys, nvml).read(0.0)
    assert {gpu.numa_node for gpu in topology.gpus} == {node_topology.UNKNOWN_NUMA_NODE}
    assert set(topology.nics[0].gpu_connections) == {"SYS"}


def test_virtual_functions_count_with_their_card(tmp_path: Path) -> None:
    sys, nvml = recorded_machines.write(recorded_machines.four_gpus_pcie(), tmp_path)
    real = sys / "devices/pci0000:30/0000:30:02.0"
    recorded_machines.put(real / "0000:31:00.1/class", "0x020000")
    recorded_machines.put(real / "0000:31:00.1/numa_node", "0")
    (real / "0000:31:00.1/physfn").symlink_to(real / "0000:31:00.0")
    (sys / "bus/pci/devices/0000:31:00.1").symlink_to(real / "0000:31:00.1")
    topology = readings.opened(sys, nvml).read(0.0)
    assert "0000:31:00.1" not in {each.address for each in topology.pci}


@pytest.mark.parametrize(
    ("driver", "kernel"),
    [("00000000:17:00.0", "0000:17:00.0"), ("0000ABCD:0A:00.0", "abcd:0a:00.0")],
)
def test_addresses_of_the_driver_are_the_kernels(driver: str, kernel: str) -> None:
    assert devices.address(driver) == kernel


# --- time -----------------------------------------------------------------------------------


def test_an_offline_cpu_is_detected_at_the_next_read(tmp_path: Path) -> None:
    sys, nvml = recorded_machines.write(recorded_machines.plain_server(1), tmp_path)
    machine = readings.opened(sys, nvml)
    assert len(machine.read(0.0).cores) == 4
    recorded_machines.put(sys / "devices/system/cpu/online", "0-2,4-6")
    assert len(machine.read(1.0).cores) == 3


def test_a_link_failure_is_detected_after_a_while(tmp_path: Path) -> None:
    sys, nvml = recorded_machines.write(recorded_machines.eight_gpus_switched(), tmp_path)
    machine = readings.opened(sys, nvml)
    assert machine.read(0.0).nics[0].is_up
    recorded_machines.put(sys / "class/infiniband/mlx5_0/ports/1/state", "1: DOWN")
    assert machine.read(1.0).nics[0].is_up
    assert not machine.read(100.0).nics[0].is_up
