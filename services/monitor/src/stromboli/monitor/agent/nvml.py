"""Reads the GPUs from the NVIDIA driver, through NVML.

The library is loaded only where there is a driver: it takes 12 MiB. A call that a GPU does not
support is not an error; a lost GPU stays in the list with the reason.
"""

import contextlib
import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from stromboli.monitor.core import pod_meter
from stromboli.monitor.core.hardware import gpus

T = TypeVar("T")
LIBRARY = "libnvidia-ml.so.1"
NO_DRIVER = "no NVIDIA driver is installed"
MOST_EVENTS = 100
"""Maximum Xid errors in one read; a broken GPU may report them endlessly."""
_REMOTES: Mapping[int, str] = {0: "gpu", 2: "switch"}


def load() -> Any:
    """NVML's Python module, or None where the driver's library is missing."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    import pynvml

    return pynvml


class NvmlDriver:
    """A connection to the driver, reopened after an error. ``library``: the NVML module; None if no
    driver is installed."""

    def __init__(self, library: Any) -> None:
        self._nvml = library
        self._is_open = False
        self._events: Any = None
        self._xids: dict[str, set[int]] = {}

    def read(self) -> gpus.DriverReadings:
        """All current readings. Takes some milliseconds per GPU, more with NVLink."""
        if self._nvml is None:
            return gpus.DriverReadings(absent=NO_DRIVER)
        try:
            self._open()
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            self.close()
            return gpus.DriverReadings(failed={"GPUs": f"the NVIDIA driver: {error}"})
        self._take_events()
        handles: list[Any] = []
        gpu_readings = []
        for index in range(count):
            handle, answer = self._card(index)
            handles.append(handle)
            gpu_readings.append(answer)
        return gpus.DriverReadings(gpus=tuple(gpu_readings), ancestors=self._ancestors(handles))

    def usage(self, uuids: Iterable[str]) -> dict[str, pod_meter.GpuReading]:
        """The load and the memory in use of GPUs by uuid; a GPU whose memory cannot be read is left
        out. The load is the driver's average over at most the last second."""
        gpu_readings: dict[str, pod_meter.GpuReading] = {}
        if self._nvml is None:
            return gpu_readings
        nvml = self._nvml
        try:
            self._open()
        except nvml.NVMLError:
            self.close()
            return gpu_readings
        for uuid in uuids:
            try:
                handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
                memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
            except nvml.NVMLError:
                continue
            busy = None
            with contextlib.suppress(nvml.NVMLError):  # not supported in the MIG mode
                busy = min(1.0, max(0.0, nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100))
            gpu_readings[uuid] = pod_meter.GpuReading(busy, memory)
        return gpu_readings

    def close(self) -> None:
        """Close the connection; the next ``read`` opens it again."""
        if self._is_open:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
        self._is_open, self._events = False, None

    def _open(self) -> None:
        if self._is_open:
            return
        self._nvml.nvmlInit()
        self._is_open = True
        with contextlib.suppress(self._nvml.NVMLError):
            events = self._nvml.nvmlEventSetCreate()
            for index in range(self._nvml.nvmlDeviceGetCount()):
                with contextlib.suppress(self._nvml.NVMLError):
                    handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                    kind = self._nvml.nvmlEventTypeXidCriticalError
                    self._nvml.nvmlDeviceRegisterEvents(handle, kind, events)
            self._events = events

    def _take_events(self) -> None:
        """Read Xid errors since the last call. They stay with their GPU until this process ends: a
        GPU can be reset only while no process uses it, including the agent.
        """
        if self._events is None:
            return
        for _ in range(MOST_EVENTS):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = self._nvml.nvmlDeviceGetUUID(event.device)
            except self._nvml.NVMLError:
                return  # NVML reports a timeout when there are no more events
            self._xids.setdefault(uuid, set()).add(int(event.eventData))

    def _card(self, index: int) -> tuple[Any, gpus.GpuReading]:
        nvml = self._nvml
        failed: dict[str, str] = {}

        def ask(what: str, call: Callable[[], T], otherwise: T) -> T:
            try:
                return call()
            except nvml.NVMLError as error:
                if not self._is_unsupported(error):
                    failed[what] = str(error)
                return otherwise

        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.nvmlDeviceGetUUID(handle)
        except nvml.NVMLError as error:
            return None, gpus.GpuReading(index=index, lost=str(error))
        rows = ask("remapped rows", lambda: nvml.nvmlDeviceGetRemappedRows(handle), (0, 0, 0, 0))
        mode = ask("the MIG mode", lambda: nvml.nvmlDeviceGetMigMode(handle), (0, 0))
        answer = gpus.GpuReading(
            index=index,
            uuid=uuid,
            model=ask("the model", lambda: nvml.nvmlDeviceGetName(handle), ""),
            pci=ask("the PCI address", lambda: nvml.nvmlDeviceGetPciInfo(handle).busId, ""),
            memory_bytes=ask(
                "the memory", lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total), 0
            ),
            mig=bool(mode[0]),
            slices=tuple(self._slices(handle)) if mode[0] else (),
            links=tuple(self._links(handle)),
            fabric=ask("the NVLink domain", lambda: self._fabric(handle), ""),
            uncorrected=ask(
                "memory errors",
                lambda: int(
                    nvml.nvmlDeviceGetTotalEccErrors(
                        handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
                    )
                ),
                0,
            ),
            remap_pending=bool(rows[2]),
            remap_failed=bool(rows[3]),
            xids=tuple(sorted(self._xids.get(uuid, ()))),
        )
        is_lost = nvml.NVMLError(nvml.NVML_ERROR_GPU_IS_LOST)
        lost = str(is_lost) if str(is_lost) in failed.values() else ""
        return handle, msgspec.structs.replace(answer, lost=lost, failed={} if lost else failed)

    def _is_unsupported(self, error: Any) -> bool:
        return error.value in (
            self._nvml.NVML_ERROR_NOT_SUPPORTED,
            self._nvml.NVML_ERROR_INVALID_ARGUMENT,
            self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        )

    def _links(self, handle: Any) -> Iterator[gpus.LinkReading]:
        """The active NVLinks of a GPU; a link that cannot be read counts as absent."""
        nvml = self._nvml
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                    continue
                kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
                pci = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId
            except nvml.NVMLError as error:
                if self._is_unsupported(error):
                    return  # links are numbered consecutively, so this was the last one
                continue
            yield gpus.LinkReading(remote=_REMOTES.get(kind, "other"), pci=pci)

    def _slices(self, handle: Any) -> Iterator[gpus.SliceReading]:
        nvml = self._nvml
        for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
                uuid, name = nvml.nvmlDeviceGetUUID(part), nvml.nvmlDeviceGetName(part)
                size = int(nvml.nvmlDeviceGetMemoryInfo(part).total)
            except nvml.NVMLError:
                continue  # no device has this index
            yield gpus.SliceReading(
                uuid=uuid, profile=name.rpartition("MIG ")[2], memory_bytes=size
            )

    def _fabric(self, handle: Any) -> str:
        """``cluster.clique``, as in the label ``nvidia.com/gpu.clique``; empty if there is none."""
        nvml = self._nvml
        info = nvml.c_nvmlGpuFabricInfoV_t()
        nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        cluster = bytes(info.clusterUuid)
        if info.state != nvml.NVML_GPU_FABRIC_STATE_COMPLETED or not any(cluster):
            return ""
        text = cluster.hex()
        parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
        return f"{'-'.join(parts)}.{info.cliqueId}"

    def _ancestors(self, handles: list[Any]) -> tuple[tuple[int | None, ...], ...]:
        return tuple(
            tuple(0 if one is other else self._level(one, other) for other in handles)
            for one in handles
        )

    def _level(self, one: Any, other: Any) -> int | None:
        if one is None or other is None:
            return None
        try:
            return int(self._nvml.nvmlDeviceGetTopologyCommonAncestor(one, other))
        except self._nvml.NVMLError:
            return None
