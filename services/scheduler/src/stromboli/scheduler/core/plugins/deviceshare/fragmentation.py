"""The policy ``fragmentation`` of ``deviceshare``: keeps GPUs usable for typical pods.

The measures are those of ``core.packing``. The free part of a GPU, in thousandths, is the smaller
of its free memory and compute. Typical pods are the pods on nodes with GPUs and the pending ones. A
choice is scored by the growth of the GPU capacity that typical pods cannot use, then by the growth
of the capacity that stays free when pods of one kind fill the node.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, requirements
from stromboli.scheduler.core.packing import kernels, policies, trace
from stromboli.scheduler.core.plugins.deviceshare import gpu_devices

RequestOf = Callable[[entities.Task], gpu_devices.GpuRequest | None]
"""Returns a task's GPU request; None if it has none."""
_MIB = 2**20


def compile_kernels() -> None:
    """Compile the measures before a session needs them: 2 s, once for all processes."""
    mix = policies.scale_mix([{}], 0)
    state = (0, 0, np.zeros(1, np.int64), 0, mix)
    kernels.fragmented(*state)
    kernels.stranded(*state)
    kernels.sigmoid_score(0)


class FragmentationPolicy:
    """Chooses GPUs on any node of a session."""

    def __init__(
        self,
        ssn: session.Session,
        gpu_inventory: Mapping[int, Sequence[gpu_devices.Gpu]],
        request_of: RequestOf,
    ) -> None:
        self._nodes = ssn.nodes
        self._models: dict[tuple[str, str, int], int] = {}
        examples: list[gpu_devices.Gpu] = []
        self._model_of: dict[int, int] = {}
        for row, owned in gpu_inventory.items():
            first = owned[0]
            sort = (first.kind, first.mode, first.memory_mib)
            if sort not in self._models:
                self._models[sort] = len(examples)
                examples.append(msgspec.structs.replace(first, is_healthy=True))
            self._model_of[row] = self._models[sort]
        usual = Counter(
            (gpu_request._replace(exclusive_job="", ids=(), not_ids=()), *_size(task))
            for task in _tasks(ssn, gpu_inventory)
            if (gpu_request := request_of(task)) is not None
        )
        self._mix = _mix(usual, examples)

    def fit(
        self,
        row: int,
        trial: list[gpu_devices.Gpu],
        gpu_request: gpu_devices.GpuRequest,
        owner: gpu_devices.Owner,
        task: entities.Task,
        before: int,
    ) -> tuple[gpu_devices.PodAllocation, float] | None:
        """Like ``gpu_devices.allocate``; the score is 0 to 101, with 50.5 for a neutral choice.

        ``before``: the number of equal tasks to be placed first. If negative, its absolute value is
        the number of tasks, this one and later ones, that are already deducted from the node's idle
        resources.
        """
        cpu, memory = _size(task)
        idle = self._nodes.idle[:, row]
        room = (
            int(idle[requirements.CPU]) - (before + 1) * cpu,
            int(idle[requirements.MEMORY]) // _MIB - (before + 1) * memory,
        )
        begun = self._measures(row, room[0] + cpu, room[1] + memory, trial)

        def order(
            left: Sequence[gpu_devices.Gpu], demand: gpu_devices.ContainerRequest
        ) -> Iterable[gpu_devices.Gpu]:
            now = _left(trial)
            milli = {gpu.uuid: _milli(gpu, demand) for gpu in left}
            return sorted(
                left,
                key=lambda gpu: self._choice_key(row, room, trial, now, gpu, milli[gpu.uuid]),
            )

        allocation = gpu_devices.allocate(
            trial, gpu_request, owner, gpu_devices.Policy(order, lambda gpu, share: 0.0)
        )
        if allocation is None:
            return None
        return allocation[0], self._worth(begun, self._measures(row, *room, trial))

    def _choice_key(
        self,
        row: int,
        room: tuple[int, int],
        trial: Sequence[gpu_devices.Gpu],
        now: trace.Integers,
        gpu: gpu_devices.Gpu,
        milli: int,
    ) -> tuple[int, int, int]:
        after = now.copy()
        at = next(place for place, each in enumerate(trial) if each is gpu)
        after[at] = max(0, after[at] - milli)
        return (*self._of(row, *room, after), gpu.place)

    def _measures(
        self, row: int, cpu: int, memory: int, owned: Sequence[gpu_devices.Gpu]
    ) -> tuple[int, int]:
        return self._of(row, cpu, memory, _left(owned))

    def _of(self, row: int, cpu: int, memory: int, left: trace.Integers) -> tuple[int, int]:
        """Return what typical pods cannot use, and what stays free when pods of one kind fill the
        node."""
        state = (cpu, memory, left, self._model_of[row], self._mix)
        return int(kernels.fragmented(*state)), int(kernels.stranded(*state))

    def _worth(self, before: tuple[int, int], after: tuple[int, int]) -> float:
        pods = max(1, self._mix.total)
        unusable, staying = (
            int(kernels.sigmoid_score((then - now) // pods))
            for then, now in zip(before, after, strict=True)
        )
        return unusable + staying / 100


def _tasks(ssn: session.Session, gpu_inventory: Iterable[int]) -> Iterable[entities.Task]:
    for row in gpu_inventory:
        yield from ssn.nodes.tasks[row].values()
    for job in ssn.waiting_jobs():
        yield from job.by_status.get(entities.Status.PENDING, {}).values()


def _size(task: entities.Task) -> tuple[int, int]:
    """Return cpu (milli) and memory (MiB) that a task requests."""
    return int(task.request[requirements.CPU]), -(-int(task.request[requirements.MEMORY]) // _MIB)


def _mix(
    usual: Mapping[tuple[gpu_devices.GpuRequest, int, int], int],
    examples: Sequence[gpu_devices.Gpu],
) -> policies.PodMix:
    """Return the typical pods by kind of GPU, one of each kind in ``examples``."""
    mix: list[dict[tuple[int, ...], int]] = []
    for gpu in examples:
        kinds: dict[tuple[int, ...], int] = {}
        for (gpu_request, cpu, memory), pods in usual.items():
            if gpu_request.allows(gpu):
                wants = [demand for demand in gpu_request.containers if demand.number]
                milli = max(_milli(gpu, demand) for demand in wants)
                kind = (cpu, memory, sum(demand.number for demand in wants), milli)
                kinds[kind] = kinds.get(kind, 0) + pods
        mix.append(kinds)
    return policies.scale_mix(mix, sum(usual.values()))


def _milli(gpu: gpu_devices.Gpu, demand: gpu_devices.ContainerRequest) -> int:
    """Return the thousandths of the GPU that a request takes, at least one."""
    memory = -(-demand.memory_on(gpu) * 1000 // gpu.memory_mib) if gpu.memory_mib else 0
    return max(1, memory, demand.cores * 10)


def _left(owned: Sequence[gpu_devices.Gpu]) -> trace.Integers:
    """Return the free thousandths of each GPU; none where no further user is allowed."""
    free = []
    for gpu in owned:
        memory = gpu.used_mib * 1000 // gpu.memory_mib if gpu.memory_mib else 0
        is_open = gpu.is_healthy and len(gpu.users) < gpu.max_users
        free.append(max(0, 1000 - max(memory, gpu.used_cores * 10)) if is_open else 0)
    return np.array(free, np.int64)
