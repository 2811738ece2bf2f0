"""The calls to the GPU driver, against its Python library with simulated cards."""

from typing import Any

import pynvml
import pytest

from stromboli.monitor.agent import nvml
from stromboli.monitor.core import pod_meter
from stromboli.monitor.core.hardware import gpus


class Cards:
    """NVML with cards that are dictionaries: whatever is not in one, the card does not support."""

    NVML_NVLINK_MAX_LINKS = 3

    def __init__(self, *cards: dict[str, Any]) -> None:
        self.cards = cards
        self.events: list[tuple[int, int]] = []
        self.fails: int | None = None

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml") or name.startswith("nvmlEventType"):
            return getattr(pynvml, name)

        def call(*arguments: Any) -> Any:
            if self.fails is not None:
                raise pynvml.NVMLError(self.fails)
            card = self.cards[arguments[0]] if arguments and arguments[0] in (0, 1, 2) else {}
            answer = card.get(name, pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED))
            if isinstance(answer, Exception):
                raise answer
            is_asked = callable(answer) and not isinstance(answer, type)
            return answer(*arguments[1:]) if is_asked else answer

        return call

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's name
        if self.fails is not None:
            raise pynvml.NVMLError(self.fails)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        for index, each in enumerate(self.cards):
            if each["nvmlDeviceGetUUID"] == uuid:
                return index
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlEventSetCreate(self) -> str:  # noqa: N802
        return "events"

    def nvmlEventSetWait_v2(self, events: str, wait_ms: int) -> Any:  # noqa: N802
        if not self.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        device, xid = self.events.pop(0)
        return type("Event", (), {"device": device, "eventData": xid})


def lost() -> Exception:
    error: Exception = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
    return error


def card(number: int, **more: Any) -> dict[str, Any]:
    return {
        "nvmlDeviceGetUUID": f"GPU-{number}",
        "nvmlDeviceGetName": "NVIDIA A100-SXM4-40GB",
        "nvmlDeviceGetPciInfo": type("Pci", (), {"busId": f"00000000:1{number}:00.0"}),
        "nvmlDeviceGetMemoryInfo": type("Memory", (), {"total": 40}),
        "nvmlDeviceGetTopologyCommonAncestor": 20,
        **more,
    }


def test_without_a_driver_no_call_is_made() -> None:
    assert nvml.NvmlDriver(None).read() == gpus.DriverReadings(absent=nvml.NO_DRIVER)


def test_a_card_that_supports_little_has_no_troubles() -> None:
    (gpu_reading,) = nvml.NvmlDriver(Cards(card(0))).read().gpus
    assert gpu_reading == gpus.GpuReading(
        index=0,
        uuid="GPU-0",
        model="NVIDIA A100-SXM4-40GB",
        pci="00000000:10:00.0",
        memory_bytes=40,
    )


def test_paths_and_active_links_are_read_for_each_gpu() -> None:
    remote = type("Pci", (), {"busId": "00000000:11:00.0"})
    linked = card(
        0,
        nvmlDeviceGetNvLinkState=lambda link: link != 1,
        nvmlDeviceGetNvLinkRemoteDeviceType=lambda link: 0 if link == 0 else 2,
        nvmlDeviceGetNvLinkRemotePciInfo=remote,
    )
    driver_readings = nvml.NvmlDriver(Cards(linked, card(1))).read()
    assert [link.remote for link in driver_readings.gpus[0].links] == ["gpu", "switch"]
    assert driver_readings.gpus[1].links == ()
    assert driver_readings.ancestors == ((0, 20), (20, 0))


def test_mig_devices_are_named_by_their_profile() -> None:
    parent = card(
        0,
        nvmlDeviceGetMigMode=(1, 1),
        nvmlDeviceGetMaxMigDeviceCount=7,
        nvmlDeviceGetMigDeviceHandleByIndex=lambda place: 1 if place == 2 else _no_part(),
    )
    part = card(1, nvmlDeviceGetName="NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    gpu_reading = nvml.NvmlDriver(Cards(parent, part)).read().gpus[0]
    assert gpu_reading.slices == (
        gpus.SliceReading(uuid="GPU-1", profile="1g.5gb", memory_bytes=40),
    )


def _no_part() -> Any:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)


def test_a_lost_gpu_keeps_its_index() -> None:
    dead = {"nvmlDeviceGetUUID": lost()}
    half_dead = card(1, nvmlDeviceGetMemoryInfo=lambda: _raise(lost()))
    gpu_readings = nvml.NvmlDriver(Cards(dead, half_dead)).read().gpus
    assert [(each.uuid, each.lost, each.failed) for each in gpu_readings] == [
        ("", "GPU is lost", {}),
        ("GPU-1", "GPU is lost", {}),
    ]


def _raise(error: Exception) -> Any:
    raise error


def test_errors_of_gpus_are_stored_with_them() -> None:
    library = Cards(card(0), card(1))
    driver = nvml.NvmlDriver(library)
    library.events = [(1, 79), (1, 79), (1, 31)]
    assert [each.xids for each in driver.read().gpus] == [(), (31, 79)]
    assert [each.xids for each in driver.read().gpus] == [(), (31, 79)]


def test_a_failed_driver_is_opened_again() -> None:
    """As when it is replaced under the agent."""
    library = Cards(card(0))
    driver = nvml.NvmlDriver(library)
    library.fails = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert driver.read().failed == {"GPUs": "the NVIDIA driver: Driver Not Loaded"}
    library.fails = None
    assert len(driver.read().gpus) == 1


def test_the_cards_of_this_machine_are_read() -> None:
    library = nvml.load()
    if library is None:
        pytest.skip("this machine has no NVIDIA driver: needs one GPU at least")
    driver_readings = nvml.NvmlDriver(library).read()
    assert not driver_readings.failed
    for each in driver_readings.gpus:
        assert each.uuid.startswith("GPU-")
        assert each.memory_bytes > 2**30
        assert not each.lost


def test_the_load_and_memory_of_gpus_are_read_by_uuid() -> None:
    """A GPU in the MIG mode has no load, and one that is lost is left out."""
    memory = {"nvmlDeviceGetMemoryInfo": type("Memory", (), {"total": 40, "used": 9})}
    load = {"nvmlDeviceGetUtilizationRates": type("Rates", (), {"gpu": 85})}
    cards = Cards(
        card(0, **memory, **load),
        card(1, **memory),
        card(2, nvmlDeviceGetMemoryInfo=lost()),
    )
    driver = nvml.NvmlDriver(cards)
    assert driver.usage(["GPU-0", "GPU-1", "GPU-2", "GPU-absent"]) == {
        "GPU-0": pod_meter.GpuReading(0.85, 9),
        "GPU-1": pod_meter.GpuReading(None, 9),
    }
    cards.fails = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert nvml.NvmlDriver(cards).usage(["GPU-0"]) == {}
    assert nvml.NvmlDriver(None).usage(["GPU-0"]) == {}
