"""The plugin ``deviceshare``: GPUs that pods share by memory and compute.

The plugin decides which GPU a pod gets and writes it to the pod with the bind, where device plugins
read it. Allocations depend on one node alone, so results are valid until that node's tasks
change.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np

from stromboli.scheduler.core.config import configuration, durations
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.plugins.deviceshare import (
    fragmentation,
    gpu_annotations,
    gpu_devices,
    interconnect,
    inventory,
    mig,
)
from stromboli.shared import decoding

NOT_ENOUGH = "node(s) without enough free GPUs"
UNREADABLE = "node(s) with invalid GPU annotations or GPU allocations"
LOCKED = "node(s) where a device plugin is setting up a pod's devices"
PREFIX = "deviceshare."
FRAGMENTATION, LINKS = "fragmentation", "links"
LOCK_TIMEOUT = timedelta(minutes=5)
"""How long a lock, or a pod that is being set up, counts. After that the setup has failed."""


class Plugin:
    """Arguments, each with the prefix ``deviceshare.``: ``GPUSharingEnable``, ``GPUNumberEnable``
    or ``VGPUEnable``, ``NodeLockEnable``, ``SchedulePolicy`` (binpack, spread, fragmentation, links
    or empty), ``ScheduleWeight``, ``GPUExclusiveRules``, ``KnownGeometries``,
    ``GPUMemoryFactor``."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = arguments = options.typed()
        shared = arguments.boolean(f"{PREFIX}GPUSharingEnable", default=False)
        number = arguments.boolean(f"{PREFIX}GPUNumberEnable", default=False)
        vgpu = arguments.boolean(f"{PREFIX}VGPUEnable", default=False)
        if shared + number + vgpu > 1:
            raise ValueError(
                f"{PREFIX}GPUSharingEnable, GPUNumberEnable and VGPUEnable exclude each other: "
                "they count the same GPUs differently; enable only one"
            )
        self._locks = arguments.boolean(f"{PREFIX}NodeLockEnable", default=False)
        self._weight = arguments.integer(f"{PREFIX}ScheduleWeight", 0)
        self._policy = arguments.text(f"{PREFIX}SchedulePolicy", "")
        if self._policy not in (*gpu_devices.POLICIES, FRAGMENTATION, LINKS):
            known = ", ".join([*filter(None, gpu_devices.POLICIES), FRAGMENTATION, LINKS])
            self._policy = arguments.record_invalid(
                f"{PREFIX}SchedulePolicy", self._policy, f"one of {known}", ""
            )
        rules, known_layouts = self._rules(), self._layouts()
        self._dialect: gpu_annotations.AnnotationFormat | None = None
        if vgpu:
            factor = arguments.integer(f"{PREFIX}GPUMemoryFactor", 1)
            if factor < 1:
                factor = arguments.record_invalid(
                    f"{PREFIX}GPUMemoryFactor", factor, "a number of MiB of at least 1", 1
                )
            self._dialect = gpu_annotations.Vgpu(known_layouts, rules, factor)
        elif shared or number:
            self._dialect = gpu_annotations.GpuShare(with_memory=shared, with_number=number)
            self._policy, self._weight = "", 0
        for name in ("AscendMindClusterVNPUEnable", "AscendHAMiVNPUEnable"):
            if arguments.boolean(f"{PREFIX}{name}", default=False):
                arguments.complain(f"{PREFIX}{name}", "Ascend GPUs are not supported")
        if self._policy == FRAGMENTATION:
            fragmentation.compile_kernels()

    def _rules(self) -> list[Mapping[str, str]]:
        name = f"{PREFIX}GPUExclusiveRules"
        rules: list[Mapping[str, str]] = self._read(
            name, list[dict[str, str]], "a list of labels by name", []
        )
        return rules

    def _layouts(self) -> tuple[mig.ModelGeometries, ...]:
        for name in ("KnownGeometriesCMName", "KnownGeometriesCMNamespace"):
            if self._arguments.text(f"{PREFIX}{name}", ""):
                self._arguments.complain(
                    f"{PREFIX}{name}",
                    "ConfigMaps are not read; write its knownMigGeometries into "
                    f"{PREFIX}KnownGeometries",
                )
        name = f"{PREFIX}KnownGeometries"
        written = self._read(name, list[dict[str, Any]], "a list of models with geometries", [])
        try:
            return mig.read(written)
        except (ValueError, msgspec.ValidationError) as error:
            return self._arguments.record_invalid(
                name, written, f"a list of geometries ({error})", ()
            )

    def _read(self, name: str, kind: Any, wanted: str, default: Any) -> Any:
        value = self._arguments.values.get(name, default)
        try:
            return decoding.convert(value, kind)
        except msgspec.ValidationError:
            return self._arguments.record_invalid(name, value, wanted, default)

    def open(self, ssn: session.Session) -> None:
        """Register if any kind of sharing is enabled."""
        ssn.complaints.extend(self._arguments.complaints)
        if self._dialect is None:
            return
        own = _SessionState(
            ssn,
            self._dialect,
            self._policy,
            self._weight,
            locks=self._locks,
            version=self._arguments.values,
        )
        ssn.add_class_key(own.class_key)
        ssn.add_pre_predicate(own.missing)
        ssn.add_predicate(own.checks)
        ssn.add_event_handler(own.add, own.remove)
        ssn.add_annotation(own.annotations)
        if self._weight and (self._policy or isinstance(self._dialect, gpu_annotations.Vgpu)):
            ssn.add_node_order(own.scores)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions: allocations are annotations of pods."""


class _SessionState:
    """The allocations of one session. GPUs are read when the first task that requests GPUs is
    evaluated."""

    def __init__(
        self,
        ssn: session.Session,
        annotation_format: gpu_annotations.AnnotationFormat,
        policy: str,
        weight: int,
        *,
        locks: bool,
        version: object,
    ) -> None:
        self._version = version
        self._session = ssn
        self._dialect = annotation_format
        self._policy = policy
        self._weight = weight
        self._locks = locks
        self._requests: dict[str, gpu_devices.GpuRequest | None] = {}
        self._known_stock: inventory.GpuInventory | None = None
        self._packing: fragmentation.FragmentationPolicy | None = None
        self._locked: dict[int, bool] = {}
        self._links: dict[int, interconnect.GpuLinks] = {}

    # Requests --------------------------------------------------------------------------

    def class_key(self, task: entities.Task) -> gpu_devices.GpuRequest | None:
        """Return the key that distinguishes tasks of one class: their GPU request."""
        try:
            return self._request(task)
        except ValueError:
            return None

    def missing(self, task: entities.Task) -> str | None:
        """Return why the task fits nowhere: its request cannot be read."""
        try:
            self._request(task)
        except ValueError as error:
            return f"its GPU request cannot be read: {error}"
        return None

    def checks(
        self, task: entities.Task, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        """Return the nodes whose GPUs have room for the task, after the tasks that the view
        adds."""
        if self._request(task) is None:
            return []
        gpu_inventory = self._inventory()
        enough = np.zeros(view.size, np.bool_)
        readable = np.ones(view.size, np.bool_)
        unlocked = np.ones(view.size, np.bool_)
        for at, row, before in self._asked(view):
            readable[at] = row not in gpu_inventory.problems
            enough[at] = gpu_inventory.answer(task, row, before) is not None
            if self._locks:
                unlocked[at] = not before and not self._is_locked(row)
        node_checks = [
            extension_points.Check(UNREADABLE, extension_points.Code.ERROR, readable),
            extension_points.Check(NOT_ENOUGH, extension_points.Code.UNSCHEDULABLE, enough),
        ]
        if self._locks:
            node_checks.append(
                extension_points.Check(LOCKED, extension_points.Code.UNRESOLVABLE, unlocked)
            )
        return node_checks

    def scores(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        """Return the policy's score of the GPUs that the task would get, times the weight."""
        if self._request(task) is None:
            return None
        gpu_inventory = self._inventory()
        scores = np.zeros(view.size, np.int64)
        for at, row, before in self._asked(view):
            allocation = gpu_inventory.answer(task, row, before)
            if allocation is not None:
                scores[at] = (
                    round(allocation.link_score * extension_points.SCORE_UNIT) * self._weight
                )
        return scores

    def annotations(self, task: entities.Task) -> dict[str, str]:
        """Return the annotations that device plugins read on the pod."""
        if self._request(task) is None:
            return {}
        allocation = self._inventory().allocation_of(task)
        now = self._session.cluster.now
        return {} if allocation is None else self._dialect.annotations(allocation, task.node, now)

    # Events ---------------------------------------------------------------------------------

    def add(self, tasks: Sequence[entities.Task]) -> None:
        """Allocate GPUs to tasks that were placed, nominated or restored."""
        following = Counter(task.node for task in tasks)
        for task in tasks:
            following[task.node] -= 1
            if self.class_key(task) is not None:
                self._inventory().add(task, following[task.node])

    def remove(self, tasks: Sequence[entities.Task]) -> None:
        """Release the GPUs of tasks."""
        for task in tasks:
            if self.class_key(task) is not None:
                self._inventory().remove(task)

    # ----------------------------------------------------------------------------------------

    def _request(self, task: entities.Task) -> gpu_devices.GpuRequest | None:
        if task.uid not in self._requests:
            self._requests[task.uid] = self._dialect.request_of(task.pod)
        return self._requests[task.uid]

    def _asked(self, view: node_views.NodeView) -> list[tuple[int, int, int]]:
        """Return (index in the answer, row, added tasks) for each node with GPUs."""
        rows = np.arange(len(self._session.nodes))[view.rows].tolist()
        added = [0] * len(rows) if view.added is None else view.added.tolist()
        gpu_inventory = self._inventory()
        return [
            (at, row, before)
            for at, (row, before) in enumerate(zip(rows, added, strict=True))
            if row in gpu_inventory.gpus or row in gpu_inventory.problems
        ]

    def _inventory(self) -> inventory.GpuInventory:
        if self._known_stock is None:
            by_room = self._policy == FRAGMENTATION
            gpu_inventory = inventory.GpuInventory(
                self._session,
                self._dialect,
                self._choose,
                by_room=by_room,
                by_identity=self._policy == LINKS,
                version=self._version,
            )
            self._session.complaints.extend(gpu_inventory.reported_problems)
            if by_room:
                self._packing = fragmentation.FragmentationPolicy(
                    self._session, gpu_inventory.gpus, self.class_key
                )
            self._known_stock = gpu_inventory
        return self._known_stock

    def _choose(
        self,
        row: int,
        trial: list[gpu_devices.Gpu],
        gpu_request: gpu_devices.GpuRequest,
        owner: gpu_devices.Owner,
        before: int,
        task: entities.Task,
    ) -> inventory.NodeAllocation | None:
        if self._policy == LINKS:
            allocation = interconnect.allocate(
                trial, gpu_request, owner, self._links_of(row, trial)
            )
        elif self._packing is not None:
            allocation = self._packing.fit(row, trial, gpu_request, owner, task, before)
        elif isinstance(self._dialect, gpu_annotations.GpuShare):
            allocation = gpu_devices.allocate(trial, gpu_request, owner, gpu_devices.LOWEST)
        else:
            allocation = gpu_devices.allocate(
                trial, gpu_request, owner, gpu_devices.POLICIES[self._policy]
            )
        return None if allocation is None else inventory.NodeAllocation(*allocation)

    def _links_of(self, row: int, some: list[gpu_devices.Gpu]) -> interconnect.GpuLinks:
        if row not in self._links:
            node = self._session.nodes.objects[row]
            around = self._session.model.auxiliary
            reported = around.hardware.get(node.metadata.name)
            known = None
            if reported is not None:
                known = around.machines.observe(reported, node.status.allocatable)
            self._links[row] = interconnect.links_of(some, known)
        return self._links[row]

    def _is_locked(self, row: int) -> bool:
        """Return whether a pod on the node is being set up, or another system holds the node's
        lock."""
        if self._inventory().given_here.get(row):
            return True
        if row not in self._locked:
            node = self._session.nodes.objects[row].metadata.annotation(self._dialect.lock)
            reported = [node] + [
                task.pod.metadata.annotation(gpu_annotations.BIND_TIME)
                for task in self._session.nodes.tasks[row].values()
                if task.pod.metadata.annotation(gpu_annotations.BIND_PHASE)
                == gpu_annotations.ALLOCATING
            ]
            self._locked[row] = any(_is_young(text, self._session) for text in reported if text)
        return self._locked[row]


def _is_young(text: str, ssn: session.Session) -> bool:
    """Return whether the time, in seconds or RFC 3339, is recent. An invalid time counts as
    recent."""
    try:
        then = (
            datetime.fromtimestamp(int(text), UTC)
            if text.isdecimal()
            else datetime.fromisoformat(text)
        )
        return not ssn.reached(durations.after(then, LOCK_TIMEOUT))
    except (ValueError, OverflowError, OSError, TypeError):
        return True
