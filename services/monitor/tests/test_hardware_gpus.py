"""GPUs: the meaning of the driver's responses, including those of failed or missing cards."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.monitor.tests import readings
from stromboli.monitor.core.hardware import gpus
from stromboli.testkit.doubles import recorded_machines


def card(**answers: Any) -> gpus.GpuReading:
    return gpus.GpuReading(index=0, uuid="GPU-0", **answers)


def only(answer: gpus.GpuReading) -> Any:
    (gpu,) = gpus.build_inventory(gpus.DriverReadings(gpus=(answer,)), {}).gpus
    return gpu


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (card(uncorrected=2), "2 memory errors that could not be corrected"),
        (card(remap_pending=True), "a broken memory row is remapped once the GPU is reset"),
        (
            card(remap_pending=True, remap_failed=True),
            "a broken memory row could not be remapped: replace the GPU",
        ),
        (card(xids=(79, 48)), "the driver reported Xid 48, 79"),
        (card(lost="GPU is lost"), "it does not respond: GPU is lost"),
    ],
)
def test_problems_of_a_gpu_are_reported(answer: gpus.GpuReading, problem: str) -> None:
    assert only(answer).problems == (problem,)


def test_errors_of_programs_are_no_problems_of_the_gpu() -> None:
    assert only(card(xids=(13, 31, 43))).problems == ()


def test_mig_devices_are_listed_with_their_gpu() -> None:
    part = gpus.SliceReading(uuid="MIG-1", profile="1g.10gb", memory_bytes=10)
    found = only(card(mig=True, slices=(part,)))
    assert found.mig
    assert [(each.uuid, each.profile, each.memory_bytes) for each in found.slices] == [
        ("MIG-1", "1g.10gb", 10)
    ]


def test_an_unknown_path_counts_as_the_farthest() -> None:
    two = tuple(gpus.GpuReading(index=at, uuid=f"GPU-{at}") for at in range(2))
    for table in ((), ((0, None), (7, 0)), ((0,),)):
        gpu_inventory = gpus.build_inventory(gpus.DriverReadings(gpus=two, ancestors=table), {})
        assert gpu_inventory.gpu_connections == (("X", "SYS"), ("SYS", "X"))


def test_a_gpu_without_a_name_is_reported_as_unreadable() -> None:
    answers = gpus.DriverReadings(gpus=(gpus.GpuReading(index=3, lost="GPU is lost"),))
    gpu_inventory = gpus.build_inventory(answers, {})
    assert gpu_inventory.gpus == ()
    assert [(each.what, each.why) for each in gpu_inventory.read_failures] == [
        ("GPU 3", "GPU is lost")
    ]


def test_a_vanished_gpu_remains_listed_with_its_problem(tmp_path: Path) -> None:
    """Its users can see where it was; when it responds again it is healthy again."""
    sys, nvml = recorded_machines.write(recorded_machines.four_gpus_pcie(), tmp_path)
    machine = readings.opened(sys, nvml)
    before = machine.read(0.0)
    all_of_them = nvml.read_text()
    answers = json.loads(all_of_them)
    del answers["gpus"][1]
    answers["ancestors"] = [[0, 50, 50], [50, 0, 10], [50, 10, 0]]
    nvml.write_text(json.dumps(answers))
    now = machine.read(1.0)
    assert [gpu.uuid for gpu in now.gpus] == ["GPU-0", "GPU-2", "GPU-3", "GPU-1"]
    assert now.gpus[3].problems == (gpus.GONE,)
    assert now.gpus[3].pci == before.gpus[1].pci
    assert now.gpu_connections[3] == ("SYS", "SYS", "SYS", "X")
    assert [line[3] for line in now.gpu_connections] == ["SYS", "SYS", "SYS", "X"]
    assert machine.read(2.0) == now
    nvml.write_text(all_of_them)
    assert machine.read(3.0) == before


def test_gpus_remain_listed_when_the_driver_stops(tmp_path: Path) -> None:
    sys, nvml = recorded_machines.write(recorded_machines.four_gpus_pcie(), tmp_path)
    machine = readings.opened(sys, nvml)
    machine.read(0.0)
    nvml.write_text("{")
    now = machine.read(1.0)
    assert [gpu.problems for gpu in now.gpus] == [(gpus.GONE,)] * 4
    assert readings.lines(now)[0].startswith("GPUs: ")
