"""Annotation formats: GPUs of nodes, GPU requests of pods, and the GPUs that binds allocate.

Two device plugins read these annotations, each in its own format: the GPU share plugin
``volcano.sh/gpu-memory`` and ``gpu-number``, the vGPU plugin ``volcano.sh/vgpu-*``.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from stromboli.scheduler.core.plugins.deviceshare import gpu_devices, mig
from stromboli.shared.api import core
from stromboli.shared.formats import units

GPU_MEMORY = "volcano.sh/gpu-memory"
GPU_NUMBER = "volcano.sh/gpu-number"
GPU_INDEX = "volcano.sh/gpu-index"
UNHEALTHY = "volcano.sh/gpu-unhealthy-ids"
VGPU_NUMBER = "volcano.sh/vgpu-number"
VGPU_MEMORY = "volcano.sh/vgpu-memory"
VGPU_PERCENT = "volcano.sh/vgpu-memory-percentage"
VGPU_CORES = "volcano.sh/vgpu-cores"
REGISTER = "volcano.sh/node-vgpu-register"
IDS = "volcano.sh/vgpu-ids-new"
BIND_TIME = "volcano.sh/bind-time"
BIND_PHASE = "volcano.sh/bind-phase"
ALLOCATING = "allocating"
VENDOR = "NVIDIA"
"""The vendor name that the device plugin expects in allocations."""

_INSTANCE = re.compile(r"(?P<uuid>[^\[\]]+)\[(?P<instance>[^\[\]]+-\d+)\]")


class AnnotationFormat(Protocol):
    """One format. Values that cannot be read raise ValueError."""

    lock: str
    """The node annotation by which other schedulers mark that a device plugin is setting up a
    pod."""

    def gpus_of(self, node: core.Node) -> list[gpu_devices.Gpu]:
        """Return the node's GPUs; none if it has none in this format."""

    def request_of(self, pod: core.Pod) -> gpu_devices.GpuRequest | None:
        """Return the pod's GPU request; None if it has none."""

    def allocation_of(self, pod: core.Pod) -> gpu_devices.PodAllocation | None:
        """Return the GPUs that the pod's annotations state; None if they state none."""

    def annotations(
        self, allocation: gpu_devices.PodAllocation, node: str, now: datetime
    ) -> dict[str, str]:
        """Return the annotations for the pod."""


class GpuShare:
    """Part of one GPU's memory, or whole GPUs by number, as ``with_memory`` and ``with_number``
    enable. GPUs are identified by index."""

    lock = "gpu"

    def __init__(self, *, with_memory: bool, with_number: bool) -> None:
        self._with_memory = with_memory
        self._with_number = with_number

    def gpus_of(self, node: core.Node) -> list[gpu_devices.Gpu]:
        capacity = node.status.capacity or {}
        total, number = _amount(capacity, GPU_MEMORY), _amount(capacity, GPU_NUMBER)
        if number <= 0:
            return []
        unhealthy = _listed(node.metadata.annotation(UNHEALTHY))
        return [
            gpu_devices.Gpu(
                str(place),
                place,
                gpu_devices.UNLIMITED,
                total // number,
                is_healthy=str(place) not in unhealthy,
            )
            for place in range(number)
        ]

    def request_of(self, pod: core.Pod) -> gpu_devices.GpuRequest | None:
        memory = _most(pod.spec, GPU_MEMORY) if self._with_memory else 0
        number = _most(pod.spec, GPU_NUMBER) if self._with_number else 0
        if memory:
            return gpu_devices.GpuRequest((gpu_devices.ContainerRequest(1, memory_mib=memory),))
        if number:
            return gpu_devices.GpuRequest(
                (gpu_devices.ContainerRequest(number, cores=gpu_devices.ALL_CORES),)
            )
        return None

    def allocation_of(self, pod: core.Pod) -> gpu_devices.PodAllocation | None:
        text, gpu_request = pod.metadata.annotation(GPU_INDEX), self.request_of(pod)
        if not text or gpu_request is None:
            return None
        demand = gpu_request.containers[0]
        return (
            tuple(
                gpu_devices.GpuAllocation(place, demand.memory_mib, demand.cores)
                for place in sorted(_listed(text))
            ),
        )

    def annotations(
        self, allocation: gpu_devices.PodAllocation, node: str, now: datetime
    ) -> dict[str, str]:
        places = sorted(int(share.uuid) for shares in allocation for share in shares)
        return {
            GPU_INDEX: ",".join(map(str, places)),
            "volcano.sh/predicate-time": f"{int(now.timestamp())}000000000",
        }


class Vgpu:
    """Memory and compute of GPUs per container. ``known``: MIG geometries by GPU model. ``rules``:
    labels of pods that share no GPU with others of the same rule. ``memory_factor``: MiB per unit
    of requested memory."""

    lock = "hamivgpu"

    def __init__(
        self,
        known: Sequence[mig.ModelGeometries] = (),
        rules: Sequence[Mapping[str, str]] = (),
        memory_factor: int = 1,
    ) -> None:
        self._known = known
        self._memory_factor = memory_factor
        self._rules = rules

    def gpus_of(self, node: core.Node) -> list[gpu_devices.Gpu]:
        text = node.metadata.annotation(REGISTER)
        has = node.status.allocatable or {}
        if not text or not all(
            _amount(has, name) > 0 for name in (VGPU_NUMBER, VGPU_MEMORY, VGPU_CORES)
        ):
            return []
        return [
            self._card(place, part) for place, part in enumerate(text.removesuffix(":").split(":"))
        ]

    def _card(self, place: int, text: str) -> gpu_devices.Gpu:
        fields = text.split(",")
        if len(fields) < 6:
            raise ValueError(f"{REGISTER}: {text!r} has {len(fields)} fields, not 6")
        uuid, users, memory, kind, health, mode = (field.strip() for field in fields[:6])
        if not (users.isdecimal() and memory.isdecimal()):
            raise ValueError(f"{REGISTER}: {text!r}: its second and third field must be numbers")
        return gpu_devices.Gpu(
            uuid,
            place,
            int(users),
            int(memory),
            kind,
            gpu_devices.MIG if mode == gpu_devices.MIG else "hami-core",
            is_healthy=health.lower() != "false",
            layouts=mig.layouts(self._known, kind) if mode == gpu_devices.MIG else (),
        )

    def request_of(self, pod: core.Pod) -> gpu_devices.GpuRequest | None:
        wants = tuple(_want(each, self._memory_factor) for each in pod.spec.containers)
        if not any(demand.number for demand in wants):
            return None
        existing = pod.metadata.annotations or {}
        labels = pod.metadata.labels or {}
        exclusive_job = existing.get("volcano.sh/vgpu-podgroup-policy") == "spread"
        return gpu_devices.GpuRequest(
            wants,
            existing.get("volcano.sh/vgpu-mode", ""),
            _words(existing.get("nvidia.com/use-gputype", "").upper()),
            _words(existing.get("nvidia.com/nouse-gputype", "").upper()),
            _words(existing.get("volcano.sh/vgpu-use-gpuuuid", "")),
            _words(existing.get("volcano.sh/vgpu-nouse-gpuuuid", "")),
            exclusive_job=f"{pod.metadata.namespace}/{_group(pod)}"
            if exclusive_job and _group(pod)
            else "",
            rules=frozenset(
                number
                for number, rule in enumerate(self._rules)
                if all(labels.get(key) == value for key, value in rule.items())
            ),
        )

    def allocation_of(self, pod: core.Pod) -> gpu_devices.PodAllocation | None:
        text = pod.metadata.annotation(IDS)
        if text is None:
            return None
        return tuple(
            tuple(_share(part) for part in container.split(":") if part)
            for container in text.split(";")
        )

    def annotations(
        self, allocation: gpu_devices.PodAllocation, node: str, now: datetime
    ) -> dict[str, str]:
        text = ";".join("".join(_written(share) for share in shares) for shares in allocation)
        seconds = str(int(now.timestamp()))
        return {
            IDS: text,
            "volcano.sh/devices-to-allocate": text,
            "volcano.sh/vgpu-node": node,
            "volcano.sh/vgpu-time": seconds,
            BIND_TIME: seconds,
            BIND_PHASE: ALLOCATING,
        }


def _group(pod: core.Pod) -> str:
    return pod.metadata.annotation("scheduling.k8s.io/group-name") or ""


def _want(container: core.Container, memory_factor: int) -> gpu_devices.ContainerRequest:
    number = _of(container, VGPU_NUMBER)
    memory, percent = _of(container, VGPU_MEMORY), _of(container, VGPU_PERCENT)
    if not number:
        number = 1 if memory or percent else 0
    if not number:
        return gpu_devices.ContainerRequest(0)
    if not percent and not memory:
        percent = 100
    return gpu_devices.ContainerRequest(
        number, memory * memory_factor, min(percent, 100), _of(container, VGPU_CORES)
    )


def _of(container: core.Container, name: str) -> int:
    resources = container.resources
    return _amount(resources.limits or {}, name) or _amount(resources.requests or {}, name)


def _most(spec: core.PodSpec, name: str) -> int:
    """Return what the pod needs: the sum of its containers, or its largest init container if that
    needs more."""
    running = sum(_of(container, name) for container in spec.containers)
    return max(running, *(_of(container, name) for container in spec.init_containers), 0)


def _amount(amounts: Mapping[str, core.Quantity], name: str) -> int:
    return int(units.quantity(amounts[name])) if name in amounts else 0


def _listed(text: str | None) -> set[str]:
    indices = {part.strip() for part in (text or "").split(",") if part.strip()}
    wrong = sorted(part for part in indices if not part.isdecimal())
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not a GPU index")
    return indices


def _words(text: str) -> tuple[str, ...]:
    return tuple(sorted({part.strip() for part in text.split(",") if part.strip()}))


def _share(text: str) -> gpu_devices.GpuAllocation:
    fields = text.split(",")
    if len(fields) != 4 or not (fields[2].isdecimal() and fields[3].isdecimal()):
        raise ValueError(f"{IDS}: {text!r} is not id,type,memory,cores")
    match = _INSTANCE.fullmatch(fields[0])
    uuid, instance = (match["uuid"], match["instance"]) if match else (fields[0], "")
    return gpu_devices.GpuAllocation(uuid, int(fields[2]), int(fields[3]), instance)


def _written(share: gpu_devices.GpuAllocation) -> str:
    place = f"{share.uuid}[{share.instance}]" if share.instance else share.uuid
    return f"{place},{VENDOR},{share.memory_mib},{share.cores}:"
