"""Free CPUs, devices and memory of nodes in a session.

A node's report states the hardware that its pods use. For pods that are not in the report yet, the
shares that their binds allocated are read from their annotations, so that nothing is allocated
twice, even after a restart. If neither source states which devices a pod has, that resource of its
node is uncertain and is not allocated.
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.numa import alignment, cpus, nodes, requests
from stromboli.scheduler.core.numa.hardware import AvailableHardware, Share
from stromboli.shared import decoding, keys
from stromboli.shared.api import core
from stromboli.shared.formats import cpu_lists, units

_CPUS = decoding.decoder_of(dict[str, str])
_DEVICES = decoding.decoder_of(dict[str, dict[str, tuple[str, ...]]])


class _DecidedAllocation(msgspec.Struct, frozen=True):
    numa: dict[str, dict[str, Any]] = {}


_DECIDED = decoding.decoder_of(_DecidedAllocation)
_NEWLY_PLACED = (entities.Status.ALLOCATED, entities.Status.PIPELINED)


class _NodeHardware(msgspec.Struct, frozen=True, eq=False):
    """The free hardware of a node according to its report and pods, and the uncertain resources."""

    report: nodes.NodeHardware
    pods: list[core.Pod]
    room: AvailableHardware
    uncertain: frozenset[str]


CachedHardware = dict[str, _NodeHardware]
"""Node -> its hardware; valid while its report and pods are the same objects."""


class FreeHardware:
    """The free hardware of nodes by row. ``reports``: row -> the node's report. A node's pods are
    read on demand, and again in later sessions only after a change (``kept``)."""

    def __init__(
        self,
        ssn: session.Session,
        reports: Mapping[int, nodes.NodeHardware],
        kept: CachedHardware | None = None,
    ) -> None:
        self._session = ssn
        self._kept: CachedHardware = {} if kept is None else kept
        self.reports = reports
        self._available: dict[int, AvailableHardware] = {}
        self._uncertain: dict[int, frozenset[str]] = {}
        self._chosen: dict[str, tuple[int, alignment.PodShares]] = {}
        """Task -> the row where this session placed it, and its shares."""
        self._freed: dict[str, tuple[int, Share]] = {}
        """Task to be evicted -> its row and share."""
        self.changed: list[int] = []
        """Rows, in the order of changes."""

    def room(self, row: int) -> AvailableHardware:
        """Return the free hardware of a node, reserved CPUs included."""
        if row not in self._available:
            self._read(row)
        return self._available[row]

    def accounted_request(self, row: int, wanted: requests.HardwareRequest) -> alignment.PodRequest:
        """Return the part of the request that the node accounts for."""
        report, unknown = self.reports[row], self.uncertain(row)

        def kept(need: alignment.ContainerRequest) -> alignment.ContainerRequest:
            return alignment.ContainerRequest(
                need.cpus if report.is_static else 0,
                tuple(it for it in need.devices if it[0] in report.ids and it[0] not in unknown),
                need.memory if report.hardware.memory else 0,
            )

        return alignment.PodRequest(
            tuple(map(kept, wanted.requested.containers)),
            tuple(map(kept, wanted.requested.before)),
            report.by_pod,
        )

    def add(self, task: entities.Task, row: int, shares: alignment.PodShares | None) -> None:
        """Allocate hardware to a task that was placed, nominated or restored."""
        freed = self._freed.pop(task.uid, None)
        if freed is not None:
            self._put(row, self.room(row).less(freed[1], self.reports[row].hardware))
        elif shares is not None and any(shares.of_containers):
            room = self.room(row)
            for share in shares.of_containers:
                room = room.less(share, self.reports[row].hardware)
            self._chosen[task.uid] = (row, shares)
            self._put(row, room)

    def remove(self, task: entities.Task) -> None:
        """Release the hardware that this session chose for the task, or that it held before."""
        kept = self._chosen.pop(task.uid, None)
        if kept is not None:
            row, shares = kept
            room = self.room(row)
            for share in shares.of_containers:
                room = room.plus(share, self.reports[row].hardware)
            self._put(row, room)
            return
        at = self._session.nodes.rows.get(task.node)
        if at is None or at not in self.reports or task.uid in self._freed:
            return
        room, share = self.room(at), self._share(at, task)
        if share:
            self._freed[task.uid] = (at, share)
            self._put(at, room.plus(share, self.reports[at].hardware))

    def chosen(self, task: entities.Task) -> tuple[int, alignment.PodShares] | None:
        """Return the row and the shares that this session chose for the task."""
        return self._chosen.get(task.uid)

    def is_new(self, task: entities.Task) -> bool:
        """Return whether the session placed the task; else its eviction was undone."""
        return task.status in _NEWLY_PLACED and task.uid not in self._freed

    def _put(self, row: int, room: AvailableHardware) -> None:
        self._available[row] = room
        self.changed.append(row)

    def uncertain(self, row: int) -> frozenset[str]:
        """Return the resources for which the devices of some pod on the node are unknown."""
        self.room(row)
        return self._uncertain[row]

    def _read(self, row: int) -> None:
        report, name = self.reports[row], self._session.nodes.names[row]
        there = self._session.nodes.tasks[row].values()
        tasks = [task for task in there if task.status in entities.ON_NODE]
        pods = [task.pod for task in tasks]
        known = self._kept.get(name)
        if (
            known is None
            or known.report is not report
            or len(known.pods) != len(pods)
            or not all(map(operator.is_, known.pods, pods))
        ):
            known = self._kept[name] = _NodeHardware(report, pods, *self._left(report, tasks))
        self._available[row], self._uncertain[row] = known.room, known.uncertain

    def _left(
        self, report: nodes.NodeHardware, tasks: Sequence[entities.Task]
    ) -> tuple[AvailableHardware, frozenset[str]]:
        room, unknown = report.free, set[str]()
        for task in tasks:
            reported_share = self._held(report, task)
            share = _unreported(task.pod, report, reported_share)
            if share:
                room = room.less(share, report.hardware)
            device_names = {
                name for name, _ in (*share.devices, *(reported_share or Share()).devices)
            }
            unknown |= {
                name
                for container in task.pod.spec.containers
                for name in container.resources.limits or {}
                if name in report.ids and name not in device_names
            }
        return room, frozenset(unknown)

    def _share(self, row: int, task: entities.Task) -> Share:
        report = self.reports[row]
        reported_share = self._held(report, task)
        share = _unreported(task.pod, report, reported_share)
        return (
            share
            if reported_share is None
            else reported_share._replace(devices=(*reported_share.devices, *share.devices))
        )

    def _held(self, report: nodes.NodeHardware, task: entities.Task) -> Share | None:
        share = report.held.get(task.pod.metadata.uid)
        return report.held.get(task.key) if share is None else share


def _unreported(pod: core.Pod, report: nodes.NodeHardware, reported_share: Share | None) -> Share:
    """Return the part of a pod's share that its bind decided and its node does not report:
    everything, or devices if the report has no device of that resource (state files of kubelets
    contain none)."""
    decided = _decided_for(pod, report)
    if reported_share is None:
        return decided
    reported = {name for name, _ in reported_share.devices}
    return Share(devices=tuple(each for each in decided.devices if each[0] not in reported))


def _decided_for(pod: core.Pod, report: nodes.NodeHardware) -> Share:
    """Return the share that a bind decided for a pod; empty if it cannot be read."""
    note = pod.metadata.annotation
    own: cpus.Cpus = cpus.NOTHING
    devices: dict[str, set[int]] = {}
    memory: dict[int, int] = {}
    try:
        own = cpus.NOTHING.union(
            *map(cpu_lists.parsed, decoding.decode(_CPUS, note(keys.CPUS) or "{}").values())
        )
        for container_devices in decoding.decode(_DEVICES, note(keys.DEVICES) or "{}").values():
            for resource, ids in container_devices.items():
                places = {name: place for place, name in enumerate(report.ids.get(resource, ()))}
                indices = {places[name] for name in ids if name in places}
                devices.setdefault(resource, set()).update(indices)
        decided = decoding.decode(_DECIDED, note(keys.TOPOLOGY_DECISION) or "{}")
        for numa_node, amounts in decided.numa.items() if report.hardware.memory else ():
            memory[int(numa_node)] = units.amounts(amounts).get("memory", 0)
    except (ValueError, msgspec.DecodeError):
        pass
    return Share(
        own & report.hardware.machine.all,
        tuple(sorted((name, tuple(sorted(some))) for name, some in devices.items() if some)),
        tuple(sorted(memory.items())),
    )


def annotations(
    names: Sequence[str], shares: alignment.PodShares, report: nodes.NodeHardware
) -> dict[str, str]:
    """Return the annotations of a pod: the CPUs and devices of its containers, and the amounts per
    NUMA node."""
    named = list(zip(names, shares.of_containers, strict=True))
    own = {name: cpu_lists.written(share.cpus) for name, share in named if share.cpus}
    devices = {
        name: {
            resource: [report.ids[resource][place] for place in places]
            for resource, places in share.devices
        }
        for name, share in named
        if share.devices
    }
    has_memory = any(share.memory for _, share in named)
    # CPUs alone are in their own annotation.
    by_cell = _by_cell(shares, report) if devices or has_memory else {}
    return {
        **({keys.CPUS: _text(own)} if own else {}),
        **({keys.DEVICES: _text(devices)} if devices else {}),
        **({keys.TOPOLOGY_DECISION: _text({"numa": by_cell})} if by_cell else {}),
    }


def _by_cell(shares: alignment.PodShares, report: nodes.NodeHardware) -> dict[str, dict[str, str]]:
    amounts: dict[int, dict[str, int]] = {}

    def add(numa_node: int, resource: str, amount: int) -> None:
        if amount and numa_node >= 0:
            at = amounts.setdefault(numa_node, {})
            at[resource] = at.get(resource, 0) + amount

    for share in shares.of_containers:
        for numa_node, own in report.hardware.machine.numa_nodes.items():
            add(numa_node, "cpu", len(own & share.cpus))
        for resource, places in share.devices:
            for place in places:
                add(report.hardware.pools[resource].numa_nodes[place], resource, 1)
        for numa_node, size in share.memory:
            add(numa_node, "memory", size)
    return {
        str(numa_node): {name: str(amount) for name, amount in sorted(amount_by_name.items())}
        for numa_node, amount_by_name in sorted(amounts.items())
    }


def _text(payload: Mapping[str, Any]) -> str:
    return msgspec.json.encode(payload, order="deterministic").decode()
