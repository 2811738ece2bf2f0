"""What a pod asks for: its request as integers and its constraints on nodes, as one *shape*.

Identical pods share a shape, so that a session asks once for all of them. The request follows
spec/scheduling 1.2: containers and sidecars are summed, other init containers run before them and
count by their maximum, overhead is added, and every pod takes one of ``pods``.
"""

import hashlib
from collections.abc import Iterable, Mapping
from weakref import WeakValueDictionary

import msgspec

from stromboli.shared.api import core
from stromboli.shared.formats import units

CPU, MEMORY, PODS = 0, 1, 2
"""Columns that every cluster has; further resources follow as they appear."""
GPU = "nvidia.com/gpu"

AMOUNT_LIMIT = 2**56
"""What a pod asks for and what a node has stays below it, so that a hundred times one fits 64 bits
(72 PB of memory)."""
STEP = 2**40
"""Of what is less than a step not even a million times as much fills 64 bits."""
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
DEFAULT_SCORING_REQUEST: units.Amounts = {"cpu": 100, "memory": 200 * 2**20}
"""What scoring takes a container to use that requests nothing, as Kubernetes does."""
MAX_CACHED_SPECS = 4096
"""Specs whose shape is remembered; beyond, pods of a template are read again, once each."""


class Constraints(msgspec.Struct, frozen=True):
    """Where pods of a shape may run."""

    selector: tuple[tuple[str, str], ...]
    affinity: core.NodeSelector | None
    tolerations: tuple[core.Toleration, ...]


class PodRequirements(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """An interned request with constraints; compared by identity. It lives as long as something
    refers to it, and no two that are equal live at the same time.

    ``number``: in the order of first sight, never used twice. ``request``: amounts by name, pods
    included. ``assumed_cpu`` and ``assumed_memory``: the request as scoring sees it. ``weight``:
    the largest of all these, in steps of ``STEP``, rounded down: nothing for what pods usually ask
    for. ``placement``: digest of the constraints.
    """

    number: int
    request: Mapping[str, int]
    assumed_cpu: int
    assumed_memory: int
    weight: int
    constraints: Constraints
    placement: bytes

    @property
    def is_best_effort(self) -> bool:
        """It asks for nothing but its place."""
        return not any(value for name, value in self.request.items() if name != "pods")


class RequirementsIndex:
    """Interns shapes. A pod made from a template seen before costs one encoding."""

    def __init__(self) -> None:
        self._by_spec: dict[bytes, PodRequirements] = {}
        """Digest of what a spec says of requests and constraints -> shape."""
        self._by_content: WeakValueDictionary[bytes, PodRequirements] = WeakValueDictionary()
        self._made = 0

    def __len__(self) -> int:
        return len(self._by_content)

    def of(self, spec: core.PodSpec) -> PodRequirements:
        """The shape of a pod. Raises ValueError that names the bad quantity."""
        affinity = spec.affinity.node_affinity if spec.affinity else None
        constraints = Constraints(
            tuple(sorted((spec.node_selector or {}).items())),
            affinity.required_during_scheduling_ignored_during_execution if affinity else None,
            spec.tolerations,
        )
        parts = (
            [container.resources.requests for container in spec.containers],
            [
                (container.resources.requests, container.restart_policy)
                for container in spec.init_containers
            ],
            spec.overhead,
            constraints,
        )
        try:
            key = _digest(parts)
        except OverflowError:  # a quantity that is written as an integer of more than 64 bits
            return self._interned(spec, constraints)
        shape = self._by_spec.get(key)
        if shape is None:
            shape = self._interned(spec, constraints)
            if len(self._by_spec) >= MAX_CACHED_SPECS:
                self._by_spec.clear()
            self._by_spec[key] = shape
        return shape

    def _interned(self, spec: core.PodSpec, constraints: Constraints) -> PodRequirements:
        request = pod_request(spec)
        assumed = pod_request(spec, DEFAULT_SCORING_REQUEST)
        key = _digest((request, assumed, constraints))
        known = self._by_content.get(key)
        if known is not None:
            return known
        shape = PodRequirements(
            self._made,
            request,
            assumed.get("cpu", 0),
            assumed.get("memory", 0),
            max(*request.values(), *assumed.values()) // STEP,
            constraints,
            _digest(constraints),
        )
        self._made += 1
        self._by_content[key] = shape
        return shape


def _digest(content: object) -> bytes:
    return hashlib.blake2b(_ENCODER.encode(content), digest_size=16).digest()


def pod_request(spec: core.PodSpec, unasked: Mapping[str, int] | None = None) -> units.Amounts:
    """What the pod takes of a node. ``unasked``: taken for what a container does not name.

    Raises ValueError that names the container and the bad quantity.
    """
    sidecars: units.Amounts = {}
    highest_init: units.Amounts = {}
    for container in spec.init_containers:
        own = dict(unasked or {}) | _container_request(container)
        if container.restart_policy == "Always":
            sidecars = units.add(sidecars, own)
            highest_init = units.highest(highest_init, sidecars)
        else:
            highest_init = units.highest(highest_init, units.add(own, sidecars))
    running = sidecars
    for container in spec.containers:
        running = units.add(running, dict(unasked or {}) | _container_request(container))
    total = units.highest(running, highest_init)
    total = units.add(total, parse_quantities(spec.overhead or {}, "overhead"))
    for name, value in total.items():
        if value >= AMOUNT_LIMIT:
            raise ValueError(f"requests {name}: {units.text(name, value)} in all is too large")
    return {name: value for name, value in total.items() if name != "pods"} | {"pods": 1}


def parse_quantities(
    quantities: Mapping[str, core.Quantity], where: str, limit: int = AMOUNT_LIMIT
) -> units.Amounts:
    """Quantities as amounts, without names that are no resources of nodes.

    Raises ValueError for what is no quantity, negative or not below the limit.
    """
    amounts: units.Amounts = {}
    for name, quantity in quantities.items():
        if name.startswith(("count/", "requests.", "limits.")):
            continue
        try:
            value = units.amount(name, quantity)
        except ValueError as error:
            raise ValueError(f"{where} {name}: {error}") from None
        if not 0 <= value < limit:
            raise ValueError(f"{where} {name}: {quantity!r} is negative or too large")
        amounts[name] = value
    return amounts


def parse_sums(quantities: Mapping[str, core.Quantity], where: str) -> units.Amounts:
    """The same for what is meant for many pods: it may be as much as a quantity can."""
    return parse_quantities(quantities, where, units.MOST)


def node_allocatable(node: core.Node) -> units.Amounts:
    """What a node has, below ``AMOUNT_LIMIT`` of each: more is not given away (65 TiB of
    ``ephemeral-storage``, which counts in thousandths). Raises ValueError like ``checked``."""
    found = parse_quantities(node.status.allocatable or {}, "allocatable", units.MOST)
    return {name: min(value, AMOUNT_LIMIT - 1) for name, value in found.items()}


def total_request(shapes: Iterable[PodRequirements]) -> units.Amounts:
    """The sum of requests."""
    amounts: units.Amounts = {}
    for shape in shapes:
        amounts = units.add(amounts, shape.request)
    return amounts


def _container_request(container: core.Container) -> units.Amounts:
    return parse_quantities(
        container.resources.requests or {}, f"container {container.name} requests"
    )
