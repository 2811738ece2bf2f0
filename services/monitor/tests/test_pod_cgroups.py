"""What is read from the cgroups of pods, of both versions and both drivers of the kubelet."""

from pathlib import Path

import pytest

from stromboli.monitor.agent.pod_cgroups import PodCgroups
from stromboli.monitor.core import pod_meter
from stromboli.testkit.doubles.recorded_machines import put

MIB = 2**20
GUARANTEED = "11111111-2222-3333-4444-555555555555"
BURSTABLE = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
CGROUPFS = {
    GUARANTEED: f"kubepods/pod{GUARANTEED}",
    BURSTABLE: f"kubepods/burstable/pod{BURSTABLE}",
}
SYSTEMD = {
    GUARANTEED: f"kubepods.slice/kubepods-pod{GUARANTEED.replace('-', '_')}.slice",
    BURSTABLE: "kubepods.slice/kubepods-burstable.slice/"
    f"kubepods-burstable-pod{BURSTABLE.replace('-', '_')}.slice",
}
KIND = {
    GUARANTEED: "kubelet.slice/kubelet-kubepods.slice/"
    f"kubelet-kubepods-pod{GUARANTEED.replace('-', '_')}.slice",
    BURSTABLE: "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
    f"kubelet-kubepods-burstable-pod{BURSTABLE.replace('-', '_')}.slice",
}

BELOW = {uid: f"strom/node-0/{folder}" for uid, folder in CGROUPFS.items()}
"""With the kubelet's ``cgroupRoot: /strom/node-0``."""


def write_v2(root: Path, folder: str, cpu_ms: int, memory: int, inactive: int) -> None:
    put(root / "cgroup.controllers", "cpu memory")
    put(root / folder / "cpu.stat", f"usage_usec {cpu_ms * 1000}\nuser_usec 1")
    put(root / folder / "memory.current", memory)
    put(root / folder / "memory.stat", f"anon 5\ninactive_file {inactive}")


def write_v1(root: Path, folder: str, cpu_ms: int, memory: int, inactive: int) -> None:
    put(root / "cpu,cpuacct" / folder / "cpuacct.usage", cpu_ms * 1_000_000)
    put(root / "memory" / folder / "memory.usage_in_bytes", memory)
    put(
        root / "memory" / folder / "memory.stat",
        f"inactive_file 0\ntotal_inactive_file {inactive}",
    )


def found(root: Path) -> dict[str, tuple[int, int]]:
    """CPU time and memory of all pods by uid."""
    opened = PodCgroups(root)
    pods = {uid: opened.read(uid) for uid in opened.find()}
    return {uid: (it.cpu_ms, it.memory_bytes) for uid, it in pods.items() if it is not None}


@pytest.mark.parametrize("write", [write_v1, write_v2])
@pytest.mark.parametrize("names", [CGROUPFS, SYSTEMD, KIND, BELOW])
def test_pods_of_all_classes_are_found_and_read(
    tmp_path: Path, write: object, names: dict[str, str]
) -> None:
    assert callable(write)
    write(tmp_path, names[GUARANTEED], 1500, 10 * MIB, 4 * MIB)
    write(tmp_path, names[BURSTABLE], 20, 3 * MIB, 5 * MIB)
    assert found(tmp_path) == {GUARANTEED: (1500, 6 * MIB), BURSTABLE: (20, 0)}


def test_cgroups_that_are_not_of_pods_and_unreadable_ones_are_left_out(tmp_path: Path) -> None:
    write_v2(tmp_path, CGROUPFS[BURSTABLE], 20, MIB, 0)
    write_v2(tmp_path, "kubepods/burstable/podnot-a-uid", 20, MIB, 0)
    write_v2(tmp_path, "system.slice/kubelet.service", 20, MIB, 0)
    write_v2(tmp_path, CGROUPFS[GUARANTEED], 20, MIB, 0)
    put(tmp_path / CGROUPFS[GUARANTEED] / "cpu.stat", "nonsense")
    assert found(tmp_path) == {BURSTABLE: (20, MIB)}
    assert found(tmp_path / "absent") == {}


def test_a_restarted_machine_and_a_new_cgroup_have_another_counter(tmp_path: Path) -> None:
    def counter(boot: str) -> str:
        put(tmp_path / "boot_id", boot)
        opened = PodCgroups(tmp_path / "cgroup", tmp_path / "boot_id")
        opened.find()
        reading = opened.read(BURSTABLE)
        assert isinstance(reading, pod_meter.Reading)
        return reading.counter

    write_v2(tmp_path / "cgroup", CGROUPFS[BURSTABLE], 20, MIB, 0)
    assert counter("one") == counter("one")
    assert counter("one") != counter("two")


def test_a_pod_whose_cgroup_is_gone_is_not_read(tmp_path: Path) -> None:
    write_v2(tmp_path, CGROUPFS[BURSTABLE], 20, MIB, 0)
    opened = PodCgroups(tmp_path)
    opened.find()
    (tmp_path / CGROUPFS[BURSTABLE] / "cpu.stat").unlink()
    assert opened.read(BURSTABLE) is None
    assert opened.read(GUARANTEED) is None
