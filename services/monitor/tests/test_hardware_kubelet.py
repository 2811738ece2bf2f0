"""A kubelet's settings, state files and API: who holds what."""

import json
from pathlib import Path

import grpc
import pytest

from services.monitor.tests import readings
from stromboli.monitor.agent import machine
from stromboli.monitor.agent.kubelet import Kubelet
from stromboli.monitor.core.hardware import assembly, kubelet
from stromboli.shared.messages import node_topology
from stromboli.testkit.doubles import fake_kubelet as fake
from stromboli.testkit.doubles import recorded_machines

SETTINGS = """
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
memoryManagerPolicy: Static
topologyManagerPolicy: single-numa-node
topologyManagerScope: pod
kubeReserved: {cpu: 500m, memory: 1Gi}
systemReserved: {cpu: 1500m}
"""
ONLINE = frozenset(range(8))


def written(folder: Path, settings: str = SETTINGS) -> Path:
    """A kubelet's folder with its settings and state files."""
    recorded_machines.put(folder / "config.yaml", settings)
    entries = {"uid-1": {"main": "2-3"}, "uid-2": {"main": "6,7"}}
    state = {"policyName": "static", "defaultCpuSet": "0-1,4-5", "entries": entries, "checksum": 1}
    recorded_machines.put(folder / "cpu_manager_state", json.dumps(state))
    blocks = [{"numaAffinity": [1], "type": "memory", "size": 1024}]
    memory = {"policyName": "Static", "entries": {"uid-2": {"main": blocks}}}
    recorded_machines.put(folder / "memory_manager_state", json.dumps(memory))
    return folder


def test_settings_and_reservations_are_read(tmp_path: Path) -> None:
    found = kubelet.build_state(Kubelet(written(tmp_path)).read(), ONLINE)
    assert found.facts == node_topology.KubeletConfiguration(
        cpu_policy="static",
        memory_policy="Static",
        topology_policy="single-numa-node",
        topology_scope="pod",
        options={"full-pcpus-only": "true"},
        reserved={"cpu": "2", "memory": "1Gi"},
        source="state files",
    )


def test_settings_omit_defaults(tmp_path: Path) -> None:
    recorded_machines.put(tmp_path / "config.yaml", "kind: KubeletConfiguration")
    facts = kubelet.build_state(Kubelet(tmp_path).read(), ONLINE).facts
    assert (facts.cpu_policy, facts.topology_policy, facts.topology_scope) == (
        "none",
        "none",
        "container",
    )


def test_reserved_cpus_are_those_of_the_settings(tmp_path: Path) -> None:
    found = kubelet.build_state(
        Kubelet(written(tmp_path, f'{SETTINGS}reservedSystemCPUs: "0,4"')).read(), ONLINE
    )
    assert found.facts.reserved_cpus == "0,4"
    assert found.facts.reserved["cpu"] == "2"


def test_without_the_api_the_state_files_identify_pods_by_uid(tmp_path: Path) -> None:
    found = kubelet.build_state(Kubelet(written(tmp_path)).read(), ONLINE)
    block = node_topology.AllocatedMemory(kind="memory", size_bytes=1024, numa_nodes=(1,))
    assert found.exclusive_allocations == (
        node_topology.ExclusiveAllocation(uid="uid-1", container="main", cpus="2,3"),
        node_topology.ExclusiveAllocation(
            uid="uid-2", container="main", cpus="6,7", memory=(block,)
        ),
    )
    assert [each.what for each in found.read_failures] == ["the kubelet's PodResources API"]


def test_the_api_reports_cpus_devices_memory_and_claims_of_pods(tmp_path: Path) -> None:
    fake_kubelet = fake.FakeKubelet()
    fake_kubelet.given = (
        fake.ContainerAllocation(pod="idle"),
        fake.ContainerAllocation(
            pod="train-0",
            namespace="team",
            cpus=(2, 3, 300),
            devices={"nvidia.com/gpu": ("GPU-1", "GPU-0")},
            memory={"memory": 5 * 2**30},
            claims=(("gpu.example.com", "node-1", "gpu-7"),),
            numa_nodes=(0, 1),
        ),
    )
    fake_kubelet.allocatable = (2, 3, 4, 5, 6, 7)
    with fake.serve(fake_kubelet, written(tmp_path)):
        found = kubelet.build_state(Kubelet(tmp_path).read(), ONLINE)
    assert found.exclusive_allocations == (
        node_topology.ExclusiveAllocation(
            namespace="team",
            pod="train-0",
            container="c",
            cpus="2,3,300",
            devices=(
                node_topology.AllocatedDevices(resource="gpu.example.com", ids=("node-1/gpu-7",)),
                node_topology.AllocatedDevices(
                    resource="nvidia.com/gpu", ids=("GPU-0", "GPU-1"), numa_nodes=(0, 1)
                ),
            ),
            memory=(
                node_topology.AllocatedMemory(
                    kind="memory", size_bytes=5 * 2**30, numa_nodes=(0, 1)
                ),
            ),
        ),
    )
    assert found.facts.source == "podresources"
    assert found.facts.reserved_cpus == "0,1"
    assert found.facts.reserved["cpu"] == "2"
    assert found.read_failures == ()


def machine_with(folder: Path, *sizes: int) -> node_topology.NodeTopology:
    """A machine with NUMA nodes of these sizes, as its kubelet describes it."""
    numa_nodes = tuple(
        node_topology.NumaNode(id=at, memory_bytes=size) for at, size in enumerate(sizes)
    )
    bare = node_topology.NodeTopology(numa_nodes=numa_nodes)
    described = assembly.with_kubelet(bare, ONLINE, Kubelet(folder).read())
    assert [each.memory_bytes for each in described.numa_nodes] == list(sizes)
    return described


def allocatable(machine: node_topology.NodeTopology) -> list[int | None]:
    return [each.allocatable_memory_bytes for each in machine.numa_nodes]


def test_memory_for_pods_is_what_the_memory_manager_can_assign(tmp_path: Path) -> None:
    """A NUMA node whose memory is reserved completely is not in the API's response."""
    answers = fake.FakeKubelet()
    answers.given = (fake.ContainerAllocation(pod="train-0", cpus=(2, 3)),)
    answers.allocatable_memory = {0: 600}
    with fake.serve(answers, written(tmp_path)):
        assert allocatable(machine_with(tmp_path, 1000, 1000)) == [600, 0]


def test_without_the_api_the_state_file_has_the_memory_for_pods(tmp_path: Path) -> None:
    written(tmp_path)
    blocks = {"memory": {"total": 1000, "systemReserved": 400, "allocatable": 600, "free": 100}}
    state = {"policyName": "Static", "machineState": {"0": {"memoryMap": blocks, "cells": [0]}}}
    recorded_machines.put(tmp_path / "memory_manager_state", json.dumps(state))
    assert allocatable(machine_with(tmp_path, 1000, 1000)) == [600, 0]


@pytest.mark.parametrize("policy", ["None", "Static"])
def test_memory_that_is_not_known_to_be_assigned_by_numa_node_is_unknown(
    tmp_path: Path, policy: str
) -> None:
    recorded_machines.put(tmp_path / "config.yaml", f"memoryManagerPolicy: {policy}")
    assert allocatable(machine_with(tmp_path, 1000)) == [None]


def test_state_files_that_are_not_mounted_are_no_failure_while_the_api_answers(
    tmp_path: Path,
) -> None:
    """The chart mounts the API's socket and the settings alone unless `stateFiles` is set."""
    recorded_machines.put(tmp_path / "config.yaml", SETTINGS)
    answers = fake.FakeKubelet()
    answers.given = (fake.ContainerAllocation(pod="train-0", cpus=(2, 3)),)
    with fake.serve(answers, tmp_path):
        found = kubelet.build_state(Kubelet(tmp_path).read(), ONLINE)
    assert found.read_failures == ()
    assert found.facts.cpu_policy == "static"
    assert [each.cpus for each in found.exclusive_allocations] == ["2,3"]


def test_missing_state_files_are_a_failure_when_the_api_does_not_answer(tmp_path: Path) -> None:
    """Then who holds which CPUs is unknown."""
    recorded_machines.put(tmp_path / "config.yaml", SETTINGS)
    found = kubelet.build_state(Kubelet(tmp_path).read(), ONLINE)
    assert [each.what for each in found.read_failures] == [
        "the kubelet's PodResources API",
        "cpu_manager_state",
    ]


def test_a_restarted_kubelet_is_called_again_and_its_last_answer_holds_until_then(
    tmp_path: Path,
) -> None:
    """Its socket is removed and created again. Without a kubelet containers run on and nothing is
    allocated; its files do not contain devices."""
    reader = Kubelet(written(tmp_path))
    for round_ in range(2):
        answers = fake.FakeKubelet()
        devices = {"nvidia.com/gpu": (f"GPU-{round_}",)}
        answers.given = (fake.ContainerAllocation(pod=f"p{round_}", devices=devices),)
        answers.allocatable = (2, 3)
        with fake.serve(answers, tmp_path):
            answered = kubelet.build_state(reader.read(), ONLINE)
            assert [each.pod for each in answered.exclusive_allocations] == [f"p{round_}"]
            assert answered.read_failures == ()
        away = kubelet.build_state(reader.read(), ONLINE)
        assert away.exclusive_allocations == answered.exclusive_allocations
        assert away.facts == answered.facts
        assert [each.what for each in away.read_failures] == ["the kubelet's PodResources API"]


def test_a_kubelet_that_has_started_again_and_lists_no_pods_has_not_read_them_yet(
    tmp_path: Path,
) -> None:
    """A kubelet answers before the API server has sent it its pods. The same kubelet without pods
    has none."""
    reader = Kubelet(written(tmp_path))
    answers = fake.FakeKubelet()
    answers.given = (fake.ContainerAllocation(pod="p0", devices={"nvidia.com/gpu": ("GPU-0",)}),)
    with fake.serve(answers, tmp_path):
        before = kubelet.build_state(reader.read(), ONLINE)
    starting = fake.FakeKubelet()
    with fake.serve(starting, tmp_path):
        found = kubelet.build_state(reader.read(), ONLINE)
        assert found.exclusive_allocations == before.exclusive_allocations
        assert [each.why for each in found.read_failures] == [
            "it has restarted and lists no pods yet"
        ]
        starting.given = (fake.ContainerAllocation(pod="p1"),)
        for given in (starting.given, ()):
            starting.given = given
            found = kubelet.build_state(reader.read(), ONLINE)
            assert (found.exclusive_allocations, found.read_failures) == ((), ())


@pytest.mark.parametrize(
    ("ids", "unhealthy"),
    [(("GPU-0", "GPU-2", "GPU-3"), {"GPU-1"}), (("GPU-0::0", "GPU-0::1"), set()), ((), set())],
    ids=["GPUs", "shared GPUs", "no plugin"],
)
def test_a_gpu_that_its_device_plugin_does_not_report_as_healthy_has_that_problem(
    ids: tuple[str, ...], unhealthy: set[str], tmp_path: Path
) -> None:
    """The kubelet would allocate another one, or reject the pod where none is left."""
    sys, driver = recorded_machines.write(recorded_machines.four_gpus_pcie(), tmp_path)
    answers = fake.FakeKubelet()
    answers.healthy = {"nvidia.com/gpu": ids} if ids else {}
    read = machine.Machine(sys, machine.recorded(driver), Kubelet(written(tmp_path)))
    with fake.serve(answers, tmp_path):
        found = {gpu.uuid for gpu in read.read(0.0).gpus if gpu.problems}
    assert found == unhealthy


def test_the_state_files_are_used_if_the_api_fails(tmp_path: Path) -> None:
    fake_kubelet = fake.FakeKubelet()
    fake_kubelet.fails = grpc.StatusCode.UNIMPLEMENTED
    with fake.serve(fake_kubelet, written(tmp_path)):
        found = kubelet.build_state(Kubelet(tmp_path).read(), ONLINE)
    assert found.facts.source == "state files"
    assert found.read_failures[0].why == "UNIMPLEMENTED: failure set by the test"


@pytest.mark.parametrize("name", ["cpu_manager_state", "memory_manager_state", "config.yaml"])
@pytest.mark.parametrize("odd", ["", "{", "[]", '"x"', "null: ]"])
def test_a_truncated_file_is_reported_and_the_others_are_used(
    name: str, odd: str, tmp_path: Path
) -> None:
    written(tmp_path).joinpath(name).write_text(odd)
    found = kubelet.build_state(Kubelet(tmp_path).read(), ONLINE)
    if (name, odd) != ("config.yaml", ""):  # an empty YAML file is valid and contains nothing
        assert len(found.read_failures) == 2
    assert found.facts.cpu_policy == "static"


def test_invalid_amounts_and_lists_are_reported(tmp_path: Path) -> None:
    odd = 'kubeReserved: {cpu: much}\nreservedSystemCPUs: "x"\ncpuManagerPolicy: static'
    recorded_machines.put(tmp_path / "config.yaml", odd)
    state = {"policyName": "static", "entries": {"uid-1": {"main": "?"}}}
    recorded_machines.put(tmp_path / "cpu_manager_state", json.dumps(state))
    found = kubelet.build_state(Kubelet(tmp_path).read(), ONLINE)
    assert [each.what for each in found.read_failures] == [
        "the kubelet's PodResources API",
        "the CPUs of main of pod uid-1",
        "reservedSystemCPUs",
        "kubeReserved.cpu",
    ]
    assert found.exclusive_allocations == ()


def test_a_machine_without_a_kubelet_is_reported(tmp_path: Path) -> None:
    topology = readings.read(recorded_machines.plain_server(1), tmp_path, tmp_path / "nowhere")
    assert f"the kubelet: {tmp_path / 'nowhere'} is not a directory" in readings.lines(topology)
    assert len(topology.cores) == 4
