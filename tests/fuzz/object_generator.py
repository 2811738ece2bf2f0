"""Objects at the limits of their types, generated from the types.

A valid document of each kind is changed in a few places, or filled completely: each field gets an
unusual value of its type, or sometimes of another type. Names come from a small set, so that
objects refer to each other.
"""

import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Any

import msgspec

from stromboli.shared import keys
from stromboli.shared.api import core, kinds, scheduling
from stromboli.shared.api import scheduling_view as api_seen
from stromboli.testkit import builders, served_pods

NODES = tuple(f"n{at}" for at in range(4))
GROUPS = tuple(f"g{at}" for at in range(6))
QUEUES = ("default", "q1", "q2", "root")
NAMES = (*NODES, *GROUPS, *QUEUES, "x")
INTEGERS = (0, 1, -1, 2, 100, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), 10**30)
WORDS = ("", "a", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "Always", "Never")
STATES = ("Pending", "Running", "Inqueue", "Succeeded", "Failed", "Open", "Closed", "hard", "soft")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule", "DoNotSchedule", "ScheduleAnyway")
LONG = ("x" * 300, "é\u0000\ud7ff", "9" * 5000, "-" * 40, "{" * 200)
AMOUNTS = ("0", "1", "-1", "500m", "1n", "8Ei", "9223372036854775807", "1e400", "1Gb", "0.1", "4Gi")
TEXTS = (
    "1h",
    "99999999999999h",
    "-1s",
    "1.5",
    "NaN",
    "inf",
    "50%",
    "true",
    "[]",
    '{"a": 1}',
    "a,b",
)
TIMES = (
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "2026-01-01T12:00:00+23:59",
    "2026-01-01T12:00:00Z",
    "2026-01-01T12:00:00",
)
RESOURCES = (
    "cpu",
    "memory",
    "pods",
    "nvidia.com/gpu",
    "example.com/what",
    "volcano.sh/vgpu-number",
)
PLUGIN_KEYS = (
    "volcano.sh/gpu-memory",
    "volcano.sh/gpu-number",
    "volcano.sh/gpu-index",
    "volcano.sh/bind-time",
    "volcano.sh/bind-phase",
    "volcano.sh/devices-to-allocate",
    "volcano.sh/vgpu-memory",
    "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-cores",
    "volcano.sh/vgpu-mode",
    "volcano.sh/vgpu-ids-new",
    "volcano.sh/node-vgpu-register",
    "volcano.sh/task-topology-affinity",
    "volcano.sh/task-topology-task-order",
    "volcano.sh/resource-strategy-weight",
    "volcano.sh/resource-strategy-scoring-type",
    "volcano.sh/nodegroup-name",
    "volcano.sh/nodegroup-resource-limits",
    "volcano.sh/sla-waiting-time",
)
KEYS = tuple(
    f"volcano.sh/{name}"
    for name in [
        "gpu-memory",
        "gpu-number",
        "gpu-index",
        "bind-time",
        "bind-phase",
        "devices-to-allocate",
        "vgpu-memory",
        "vgpu-number",
        "vgpu-cores",
        "vgpu-mode",
        "vgpu-ids-new",
        "node-vgpu-register",
        "task-topology-affinity",
        "task-topology-task-order",
        "resource-strategy-weight",
        "resource-strategy-scoring-type",
        "nodegroup-name",
        "nodegroup-resource-limits",
        "sla-waiting-time",
        "predicate-time",
    ]
)
KEYS = tuple(
    value
    for name, value in vars(keys).items()
    if name.isupper() and isinstance(value, str) and not name.startswith("_")
)
LABELS = (
    "app",
    "zone",
    "topology.kubernetes.io/zone",
    "kubernetes.io/hostname",
    *PLUGIN_KEYS,
    *KEYS,
)
MAX_ITEMS = 3


def document(random: Random) -> tuple[kinds.Kind[Any], dict[str, Any]]:
    """An object of any kind that the scheduler reads."""
    kind = random.choice(KINDS)
    make: Callable[[Random], Any] = _MADE.get(kind.kind, _filled(kind))
    made = make(random)
    found: dict[str, Any] = made if isinstance(made, dict) else msgspec.to_builtins(made)
    if random.random() < 0.1:
        found |= fields(random, kind.struct, density=0.5, leave=("metadata",))
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        change(random, found, kind.struct)
    return kind, found


def change(random: Random, document: dict[str, Any], of: Any) -> None:
    """Another value at a random place, which is made if it is not there."""
    known = msgspec.structs.fields(of)
    if not known:
        return
    field = random.choice(known)
    inner = _struct(field.type)
    if inner is None or random.random() < 0.1:
        document[field.encode_name] = value(random, field.type)
        return
    there = document.get(field.encode_name)
    if isinstance(there, list) and there:
        there = random.choice(there)
    if not isinstance(there, dict):
        there = fields(random, inner, density=0.3)
        is_many = typing.get_origin(_plain(field.type)) is tuple
        document[field.encode_name] = [there] if is_many else there
    change(random, there, inner)


def fields(
    random: Random, of: Any, density: float = 0.4, leave: Sequence[str] = ()
) -> dict[str, Any]:
    """A Struct's fields, each with this probability, and those that it needs."""
    return {
        field.encode_name: value(random, field.type)
        for field in msgspec.structs.fields(of)
        if field.encode_name not in leave and (field.required or random.random() < density)
    }


def value(random: Random, of: Any) -> Any:
    """An odd value of a type; rarely of another."""
    if random.random() < 0.02:
        return random.choice((None, [], {}, "", 0, True, 1.5, [[]]))
    bounds = _bounds(of)
    of, arguments = _plain(of), typing.get_args(_plain(of))
    if isinstance(of, type) and issubclass(of, msgspec.Struct):
        return fields(random, of)
    if typing.get_origin(of) is tuple:
        return [value(random, arguments[0]) for _ in range(random.randrange(MAX_ITEMS))]
    if typing.get_origin(of) is dict:
        return _mapping(random, arguments[1])
    if set(arguments) >= {str, int, float}:
        return random.choice((*AMOUNTS, *INTEGERS, 1e308, 0.5))
    if of is int:
        least, most = (-(2**70), 2**70) if random.random() < 0.02 else bounds
        return random.choice([each for each in (*INTEGERS, least, most) if least <= each <= most])
    if of is bool:
        return random.random() < 0.5
    if of is datetime:
        return random.choice(TIMES)
    return text(random)


def text(random: Random) -> str:
    """A text that may mean something."""
    some = random.choice(
        (NAMES, WORDS, STATES, EFFECTS, TEXTS, AMOUNTS, RESOURCES, LABELS, TIMES, LONG)
    )
    return random.choice(some)


def _mapping(random: Random, of: Any) -> dict[str, Any]:
    is_amounts = set(typing.get_args(_plain(of))) >= {str, int, float}
    found = {}
    for _ in range(random.randrange(MAX_ITEMS)):
        is_new = random.random() < 0.1
        names = RESOURCES if is_amounts else LABELS
        found[f"example.com/{random.randrange(10**6)}" if is_new else random.choice(names)] = value(
            random, of
        )
    return found


def _plain(of: Any) -> Any:
    """The type without bounds and None."""
    if typing.get_origin(of) is typing.Annotated:
        return _plain(typing.get_args(of)[0])
    parts = [part for part in typing.get_args(of) if part is not type(None)]
    is_optional = type(None) in typing.get_args(of)
    return _plain(parts[0]) if is_optional and len(parts) == 1 else of


def _bounds(of: Any) -> tuple[int, int]:
    for part in (of, *typing.get_args(of)):
        if typing.get_origin(part) is typing.Annotated:
            bounds = typing.get_args(part)[1]
            if bounds.ge is not None:
                return bounds.ge, bounds.le
    return -(2**63), 2**63 - 1


def _struct(of: Any) -> Any:
    plain = _plain(of)
    if isinstance(plain, type) and issubclass(plain, msgspec.Struct):
        return plain
    for part in typing.get_args(plain) if typing.get_origin(plain) is tuple else ():
        return _struct(part)
    return None


# Valid documents ----------------------------------------------------------------------------------


def _pod(random: Random) -> core.Pod:
    node = random.choice((*NODES, "", "", ""))
    group = random.choice(GROUPS)
    notes = {random.choice(LABELS): random.choice(TEXTS) for _ in range(random.randrange(3))}
    return builders.make_pod(
        f"{group}-w-{random.randrange(4)}",
        group,
        cpu="1",
        node=node,
        phase="Running" if node else "Pending",
        labels={"app": random.choice("ab")},
        annotations=notes,
        generation=random.randrange(1, 3),
    )


def _group(random: Random) -> scheduling.PodGroup:
    phase = random.choice(("", "Pending", "Inqueue", "Running"))
    queue = random.choice(QUEUES)
    return builders.make_pod_group(random.choice(GROUPS), 1, queue=queue, phase=phase)


def _node(random: Random) -> core.Node:
    return builders.make_node(random.choice(NODES), cpu="8", labels={"zone": random.choice("ab")})


def _filled(kind: kinds.Kind[Any]) -> Callable[[Random], dict[str, Any]]:
    """A document with a value in most fields: its kind is rarely read without them."""

    def make(random: Random) -> dict[str, Any]:
        namespace = "default" if kind.namespaced else ""
        metadata = builders.make_meta(kind.kind, random.choice(NAMES), namespace)
        found = fields(random, kind.struct, density=0.8, leave=("metadata",))
        return {"metadata": msgspec.to_builtins(metadata), **found}

    return make


_MADE: Mapping[str, Callable[[Random], Any]] = {
    "Pod": lambda random: served_pods.document(_pod(random)),
    "PodGroup": _group,
    "Node": _node,
    "Queue": lambda random: builders.make_queue(random.choice(QUEUES)),
    "PriorityClass": lambda random: builders.make_priority_class(random.choice(NAMES), 5),
}
KINDS = (*api_seen.SCHEDULING_KINDS, *(kinds.PODS, kinds.POD_GROUPS, kinds.NODES, kinds.QUEUES) * 4)
"""Those that decisions hang on most are drawn most."""
