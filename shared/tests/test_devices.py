"""The device annotations of a pod, as text for users and for the log."""

import pytest

from stromboli.shared import device_annotations, keys


def test_devices_of_all_containers_are_listed_together() -> None:
    """CPUs, GPUs and cards by resource."""
    found = device_annotations.assigned_devices(
        {
            keys.CPUS: '{"a":"0-3","b":"8"}',
            keys.DEVICES: '{"a":{"nvidia.com/gpu":["GPU-1","GPU-2"]},"b":{"rdma/hca":["mlx5_0"]}}',
        }
    )
    assert found == {
        "cpu": ("0-3", "8"),
        "nvidia.com/gpu": ("GPU-1", "GPU-2"),
        "rdma/hca": ("mlx5_0",),
    }
    assert device_annotations.format_assignments(found) == "cpu 0-3,8; gpu GPU-1,GPU-2; hca mlx5_0"


def test_gpu_fractions_are_listed_with_their_amounts() -> None:
    assert device_annotations.assigned_devices(
        {device_annotations.VGPU_IDS: "GPU-1,NVIDIA,5000,30:;GPU-2,NVIDIA,100,0:"}
    ) == {"volcano.sh/vgpu": ("GPU-1 (5000MiB)", "GPU-2 (100MiB)")}
    assert device_annotations.assigned_devices({device_annotations.GPU_INDEX: "0,2"}) == {
        "volcano.sh/gpu": ("0", "2")
    }


@pytest.mark.parametrize(
    "notes",
    [None, {}, {keys.CPUS: "x"}, {keys.DEVICES: "[]"}, {device_annotations.VGPU_IDS: "a,b:"}],
)
def test_an_unreadable_annotation_lists_nothing(notes: dict[str, str] | None) -> None:
    assert device_annotations.assigned_devices(notes) == {}
