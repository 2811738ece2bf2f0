"""What a pod requires of a node: its request as integers, and its constraints.

Equal pods share one ``PodRequirements``, so that a session evaluates it once for all of them. The
request follows Kubernetes: containers and sidecars are summed; other init containers run before
them, so their maximum counts; overhead is added; every pod uses one unit of the resource ``pods``.
"""

import hashlib
from collections.abc import Iterable, Mapping
from weakref import WeakValueDictionary

import msgspec

from stromboli.shared.api import core
from stromboli.shared.formats import units

CPU, MEMORY, PODS = 0, 1, 2
"""Columns that every cluster has."""
GPU = "nvidia.com/gpu"

AMOUNT_LIMIT = 2**56
"""Exclusive limit of what one pod requests and one node has, so that a hundred times as much fits
64 bits (72 PB of memory).
"""
STEP = 2**40
"""The unit of weights: a million amounts below one step fit 64 bits."""
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
DEFAULT_SCORING_REQUEST: units.Amounts = {"cpu": 100, "memory": 200 * 2**20}
"""The request that scoring assumes for a container without one, as in Kubernetes."""
MAX_CACHED_SPECS = 4096
"""Limit of specs with cached requirements. When it is reached, the cache is cleared."""


class Constraints(msgspec.Struct, frozen=True):
    """Node selector, required node affinity and tolerations of a pod."""

    selector: tuple[tuple[str, str], ...]
    affinity: core.NodeSelector | None
    tolerations: tuple[core.Toleration, ...]


class PodRequirements(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """The interned request and constraints of equal pods, compared by identity.

    An instance lives as long as it is referenced; no two equal instances live at the same time.
    ``number``: in the order of creation, never reused. ``request``: amounts by name, pods
    included. ``assumed_cpu`` and ``assumed_memory``: the request as scoring counts it. ``weight``:
    the largest amount in steps of ``STEP``, rounded down; zero for usual pods. ``placement``:
    digest of the constraints.
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
        """Whether the pod requests no resource other than ``pods``."""
        return not any(value for name, value in self.request.items() if name != "pods")


class RequirementsIndex:
    """Interns requirements. A pod from a known template costs one encoding."""

    def __init__(self) -> None:
        self._by_spec: dict[bytes, PodRequirements] = {}
        """Digest of the requests and constraints in a spec -> requirements."""
        self._by_content: WeakValueDictionary[bytes, PodRequirements] = WeakValueDictionary()
        self._made = 0

    def __len__(self) -> int:
        return len(self._by_content)

    def of(self, spec: core.PodSpec) -> PodRequirements:
        """The requirements of a pod. Raises ValueError that names the invalid quantity."""
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
        except OverflowError:  # a quantity is written as an integer of more than 64 bits
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
    """The pod's request. ``unasked``: defaults for resources that a container does not request.

    Raises ValueError that names the container and the invalid quantity.
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
            raise ValueError(f"requests {name}: {units.text(name, value)} in total is too large")
    return {name: value for name, value in total.items() if name != "pods"} | {"pods": 1}


def parse_quantities(
    quantities: Mapping[str, core.Quantity], where: str, limit: int = AMOUNT_LIMIT
) -> units.Amounts:
    """Quantities as amounts, without names that are not resources of nodes.

    Raises ValueError for an invalid or negative quantity and for one that reaches the limit.
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
    """Quantities that apply to many pods, with the highest limit that a quantity can have."""
    return parse_quantities(quantities, where, units.MOST)


def node_allocatable(node: core.Node) -> units.Amounts:
    """The node's allocatable amounts, each capped below ``AMOUNT_LIMIT`` (65 TiB of
    ``ephemeral-storage``, which counts in thousandths). Raises ValueError like
    ``parse_quantities``.
    """
    quantities = parse_quantities(node.status.allocatable or {}, "allocatable", units.MOST)
    return {name: min(value, AMOUNT_LIMIT - 1) for name, value in quantities.items()}


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
