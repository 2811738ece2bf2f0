"""The configuration and allocations of the node's kubelet, from its settings, state files and API.

The kubelet's API is the preferred source of allocations; its state files are the fallback, and
identify pods by uid only. Source: Kubernetes, KubeletConfiguration v1beta1; the files
``cpu_manager_state`` and ``memory_manager_state``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stromboli.shared import decoding
from stromboli.shared.formats import cpu_lists, units
from stromboli.shared.messages import node_topology

STATIC = "static"
API, STATE_FILES = "podresources", "state files"
MEMORY = "memory"
"""The kind of memory that is not huge pages."""


class Allocatable(msgspec.Struct, frozen=True):
    """What containers can get exclusively, as the kubelet's API reports it. ``cpus``: none unless
    the CPU manager policy is static. ``devices``: resource -> the ids that its device plugin
    reports as healthy. ``memory``: NUMA node -> bytes, none unless the memory manager policy is
    Static.
    """

    cpus: frozenset[int] = frozenset()
    devices: Mapping[str, frozenset[str]] = {}
    memory: Mapping[int, int] = {}


class KubeletReadings(msgspec.Struct, frozen=True, kw_only=True):
    """Readings of a kubelet. ``config``: its settings, parsed. ``cpu_state``, ``memory_state``: its
    state files. ``exclusive_allocations``, ``allocatable``: the API's response, None without one.
    ``failed``: which of these could not be read, and why.
    """

    config: Any = None
    cpu_state: bytes | None = None
    memory_state: bytes | None = None
    exclusive_allocations: tuple[node_topology.ExclusiveAllocation, ...] | None = None
    allocatable: Allocatable | None = None
    failed: Mapping[str, str] = {}


class KubeletState(msgspec.Struct, frozen=True):
    """The kubelet's configuration, its allocations, and what could not be read.
    ``allocatable_memory``: NUMA node -> bytes; empty if unknown.
    """

    facts: node_topology.KubeletConfiguration
    exclusive_allocations: tuple[node_topology.ExclusiveAllocation, ...]
    read_failures: tuple[node_topology.ReadFailure, ...]
    allocatable_memory: Mapping[int, int] = {}


class _CpuState(msgspec.Struct, rename="camel"):
    policy_name: str = ""
    entries: dict[str, dict[str, str]] | None = None


class _Block(msgspec.Struct, rename="camel"):
    numa_affinity: tuple[int, ...] = ()
    type: str = ""
    size: int = 0


class _MemoryTable(msgspec.Struct, rename="camel"):
    allocatable: int = 0


class _NumaNodeState(msgspec.Struct, rename="camel"):
    memory_map: dict[str, _MemoryTable] | None = None


class _MemoryState(msgspec.Struct, rename="camel"):
    policy_name: str = ""
    machine_state: dict[int, _NumaNodeState] | None = None
    entries: dict[str, dict[str, tuple[_Block, ...]]] | None = None


class _Config(msgspec.Struct, rename="camel"):
    cpu_manager_policy: str | None = None
    cpu_manager_policy_options: dict[str, str] | None = None
    memory_manager_policy: str | None = None
    topology_manager_policy: str | None = None
    topology_manager_policy_options: dict[str, str] | None = None
    topology_manager_scope: str | None = None
    kube_reserved: dict[str, str] | None = None
    system_reserved: dict[str, str] | None = None
    reserved_cpus: str | None = msgspec.field(default=None, name="reservedSystemCPUs")


def build_state(readings: KubeletReadings, online: frozenset[int]) -> KubeletState:
    """The kubelet's state from all valid readings. ``online``: the machine's online CPUs."""
    read_failures = [
        node_topology.ReadFailure(what=what, why=why) for what, why in readings.failed.items()
    ]
    cpu_state = _decoded(readings.cpu_state, _CpuState, "cpu_manager_state", read_failures)
    memory_state = _decoded(
        readings.memory_state, _MemoryState, "memory_manager_state", read_failures
    )
    config = _config(readings.config, read_failures)
    exclusive_allocations: Iterable[node_topology.ExclusiveAllocation] = ()
    source = ""
    if readings.exclusive_allocations is not None:
        source, exclusive_allocations = API, readings.exclusive_allocations
    elif cpu_state is not None or memory_state is not None:
        source, exclusive_allocations = STATE_FILES, _held(cpu_state, memory_state, read_failures)
    # The state files contain the active policies, the settings those of the last start.
    policy = (cpu_state.policy_name if cpu_state else "") or config.cpu_manager_policy or ""
    kept = _reserved_cpus(config, readings, online, policy, read_failures)
    facts = node_topology.KubeletConfiguration(
        cpu_policy=policy,
        memory_policy=(memory_state.policy_name if memory_state else "")
        or config.memory_manager_policy
        or "",
        topology_policy=config.topology_manager_policy or "",
        topology_scope=config.topology_manager_scope or "",
        options={
            **(config.cpu_manager_policy_options or {}),
            **(config.topology_manager_policy_options or {}),
        },
        reserved=_reserved(config, kept, read_failures),
        reserved_cpus=cpu_lists.written(kept),
        source=source,
    )
    return KubeletState(
        facts,
        tuple(sorted(exclusive_allocations, key=_order)),
        tuple(read_failures),
        _allocatable_memory(readings.allocatable, memory_state),
    )


def _order(each: node_topology.ExclusiveAllocation) -> tuple[str, str, str, str]:
    return each.namespace, each.pod, each.uid, each.container


def _config(document: Any, read_failures: list[node_topology.ReadFailure]) -> _Config:
    """The kubelet's settings, with its defaults for absent ones; empty if there is no settings
    file."""
    if document is None:
        return _Config()
    try:
        read = decoding.convert(document, _Config, strict=False)
    except msgspec.ValidationError as error:
        read_failures.append(
            node_topology.ReadFailure(what="the kubelet's settings", why=str(error))
        )
        return _Config()
    return msgspec.structs.replace(
        read,
        cpu_manager_policy=read.cpu_manager_policy or "none",
        memory_manager_policy=read.memory_manager_policy or "None",
        topology_manager_policy=read.topology_manager_policy or "none",
        topology_manager_scope=read.topology_manager_scope or "container",
    )


def _decoded(
    raw: bytes | None, struct: type[Any], name: str, read_failures: list[node_topology.ReadFailure]
) -> Any:
    if raw is None:
        return None
    try:
        return decoding.from_json(raw, struct)
    except msgspec.DecodeError as error:
        # A restarting kubelet rewrites the file: it may be empty for a moment.
        read_failures.append(node_topology.ReadFailure(what=name, why=str(error)))
        return None


def _held(
    cpus: _CpuState | None,
    memory: _MemoryState | None,
    read_failures: list[node_topology.ReadFailure],
) -> list[node_topology.ExclusiveAllocation]:
    by_container: dict[tuple[str, str], node_topology.ExclusiveAllocation] = {}
    for uid, container, own in _each(cpus.entries if cpus else None):
        try:
            listed = cpu_lists.written(cpu_lists.parsed(own))
        except ValueError as error:
            what = f"the CPUs of {container} of pod {uid}"
            read_failures.append(node_topology.ReadFailure(what=what, why=str(error)))
            continue
        by_container[uid, container] = node_topology.ExclusiveAllocation(
            uid=uid, container=container, cpus=listed
        )
    for uid, container, blocks in _each(memory.entries if memory else None):
        known = by_container.get((uid, container))
        by_container[uid, container] = msgspec.structs.replace(
            known or node_topology.ExclusiveAllocation(uid=uid, container=container),
            memory=tuple(
                node_topology.AllocatedMemory(
                    kind=block.type, size_bytes=block.size, numa_nodes=tuple(block.numa_affinity)
                )
                for block in blocks
            ),
        )
    return list(by_container.values())


def _each(entries: dict[str, dict[str, Any]] | None) -> Iterable[tuple[str, str, Any]]:
    for uid, containers in (entries or {}).items():
        for container, own in containers.items():
            yield uid, container, own


def _reserved_cpus(
    config: _Config,
    readings: KubeletReadings,
    online: frozenset[int],
    policy: str,
    read_failures: list[node_topology.ReadFailure],
) -> frozenset[int]:
    """CPUs that pods never get: those that the API leaves out, or the list in the settings."""
    if policy == STATIC and readings.allocatable and readings.allocatable.cpus:
        return online - readings.allocatable.cpus
    try:
        return cpu_lists.parsed(config.reserved_cpus or "")
    except ValueError as error:
        read_failures.append(node_topology.ReadFailure(what="reservedSystemCPUs", why=str(error)))
        return frozenset()


def _allocatable_memory(
    allocatable: Allocatable | None, state: _MemoryState | None
) -> Mapping[int, int]:
    """NUMA node -> bytes for pods, from the API, else from the state file."""
    if allocatable is not None and allocatable.memory:
        return allocatable.memory
    return {
        numa_node: tables[MEMORY].allocatable
        for numa_node, each in ((state and state.machine_state) or {}).items()
        if MEMORY in (tables := each.memory_map or {})
    }


def _reserved(
    config: _Config, kept: frozenset[int], read_failures: list[node_topology.ReadFailure]
) -> dict[str, str]:
    total: units.Amounts = {}
    for what, reservation in (
        ("kubeReserved", config.kube_reserved),
        ("systemReserved", config.system_reserved),
    ):
        for name, quantity in (reservation or {}).items():
            try:
                total = units.add(total, {name: units.amount(name, quantity)})
            except ValueError as error:
                read_failures.append(
                    node_topology.ReadFailure(what=f"{what}.{name}", why=str(error))
                )
    if kept:
        total["cpu"] = 1000 * len(kept)
    return {name: units.text(name, value) for name, value in sorted(total.items())}
