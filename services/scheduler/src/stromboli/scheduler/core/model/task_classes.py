"""Task classes: pods that are equal for predicates and scores share one class.

The key of a class consists of the fields of ``entities.TaskClass`` in canonical form: maps by key;
images, ports and claims sorted. A field that no plugin reads never splits a class. This matters
because the API server gives each pod a token volume with a random name; with one class per pod, a
gang of thousands would lose all cached answers.

A label is part of a class only while the affinity or spread of some pod selects by it. Otherwise
the index label of a job's pods would put each pod into a separate class.

A class lives as long as it is referenced, for example by a task. The number of classes is therefore
bounded by the number of pods, and equal pods always share a class.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from stromboli.scheduler.core.model import entities, requirements
from stromboli.shared import keys
from stromboli.shared.api import core, meta
from stromboli.shared.jobspec import data_sets

ANY_ADDRESS = "0.0.0.0"
"""The host address that means all addresses of the node."""
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


class _SpecParts(NamedTuple):
    """What the classes of pods with one spec have in common.

    ``content``: the requirements, ports, images, names of claims and whether there are ephemeral
    volumes, as in ``entities.TaskClass``. ``read``: the parts of the spec that this was read from.
    ``plain_classes``: namespace -> the class of pods that nothing else distinguishes.
    """

    content: tuple[Any, ...]
    read: tuple[Any, ...]
    plain_classes: WeakValueDictionary[str, entities.TaskClass]


class TaskClassIndex:
    """Interns classes and numbers them in the order of creation."""

    def __init__(self) -> None:
        self._shapes = requirements.RequirementsIndex()
        self._known: WeakValueDictionary[bytes, entities.TaskClass] = WeakValueDictionary()
        self._made = 0
        self._by_parts: dict[tuple[int, ...], _SpecParts] = {}
        """Identities of the parts of a spec -> what classes take from them."""
        self._label_keys: Counter[str] = Counter()
        """Label key -> number of pods that select others by it; zero until
        ``take_unused_labels``.
        """
        self._selecting: dict[str, frozenset[str]] = {}
        """Pod -> label keys by which it selects others, if any."""

    def __len__(self) -> int:
        return len(self._known)

    @property
    def shapes(self) -> int:
        """Number of interned requirements."""
        return len(self._shapes)

    def select(self, pod: core.Pod) -> frozenset[str]:
        """Record the label keys by which the pod selects others. Returns the keys that are new.

        Classes of pods with a new key must be computed again.
        """
        self.deselect(pod.metadata.key)
        if pod.spec.affinity is None and not pod.spec.topology_spread_constraints:
            return frozenset()  # nearly always
        keys = frozenset(_selected(pod.spec))
        if not keys:
            return keys
        new = keys - self._label_keys.keys()
        self._label_keys.update(keys)
        self._selecting[pod.metadata.key] = keys
        return new

    def deselect(self, pod: str) -> None:
        """Drop the label keys by which the pod selects others."""
        if pod in self._selecting:
            self._label_keys.subtract(self._selecting.pop(pod))

    def take_unused_labels(self) -> frozenset[str]:
        """Drop the label keys that no pod selects by any longer; return them. Classes of pods
        with one of them must be computed again.
        """
        unused = frozenset(key for key, pods in self._label_keys.items() if not pods)
        for key in unused:
            del self._label_keys[key]
        return unused

    def _parts_of(self, spec: core.PodSpec) -> _SpecParts:
        """What classes take from a spec.

        The parts of specs that this reads are shared by equal pods (``sharing_decoders``), though
        each pod on a node has a spec of its own. The cache therefore finds parts by identity, and
        keeps references to them, so that no other object gets their identity.
        """
        read = (
            spec.containers,
            spec.init_containers,
            spec.overhead,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.volumes,
            spec.topology_spread_constraints,
        )
        key = tuple(map(id, read))
        known = self._by_parts.get(key)
        if known is None:
            claims = (each.persistent_volume_claim for each in spec.volumes)
            content = (
                self._shapes.of(spec),
                tuple(sorted(_ports(spec))),
                tuple(sorted(_tagged(container.image) for container in spec.containers)),
                tuple(sorted(claim.claim_name for claim in claims if claim is not None)),
                any(each.ephemeral is not None for each in spec.volumes),
            )
            if len(self._by_parts) >= requirements.MAX_CACHED_SPECS:
                self._by_parts.clear()
            known = self._by_parts[key] = _SpecParts(content, read, WeakValueDictionary())
        return known

    def of(self, pod: core.Pod) -> entities.TaskClass:
        """The class of a pod. Raises ValueError that names the invalid quantity."""
        parts, namespace = self._parts_of(pod.spec), pod.metadata.namespace
        is_plain = _is_plain(pod.metadata, self._label_keys.keys())
        if is_plain and (plain := parts.plain_classes.get(namespace)) is not None:
            return plain
        shape, *placed_by = parts.content
        content = _content(pod, placed_by, self._label_keys.keys())
        encoded = _ENCODER.encode((shape.number, content))
        key = hashlib.blake2b(encoded, digest_size=16).digest()
        task_class = self._known.get(key)
        if task_class is None:
            task_class = self._known[key] = entities.TaskClass(self._made, shape, *content)
            self._made += 1
        if is_plain:
            parts.plain_classes[namespace] = task_class
        return task_class


def _is_plain(metadata: meta.ObjectMeta, label_keys: Set[str]) -> bool:
    """Whether the class depends on the pod's spec and namespace alone."""
    return label_keys.isdisjoint(metadata.labels or ()) and (
        keys.DATA_SETS not in (metadata.annotations or ())
    )


def _content(pod: core.Pod, placed_by: Sequence[Any], label_keys: Set[str]) -> tuple[Any, ...]:
    """The fields of a class in their order, without ``number`` and ``shape``."""
    spec, labels = pod.spec, pod.metadata.labels or {}
    return (
        pod.metadata.namespace,
        {key: labels[key] for key in sorted(label_keys & labels.keys())},
        spec.affinity,
        spec.topology_spread_constraints,
        *placed_by,
        *_data_sets(pod),
    )


def _data_sets(pod: core.Pod) -> tuple[tuple[data_sets.DataSetRequest, ...], str]:
    """The pod's data sets, or why they cannot be read."""
    try:
        return data_sets.requests_of(pod.metadata.annotations), ""
    except ValueError as error:
        return (), str(error)


def _ports(spec: core.PodSpec) -> Iterator[entities.Port]:
    """The host ports of the pod's containers and sidecars."""
    sidecars = (each for each in spec.init_containers if each.restart_policy == "Always")
    for container in (*spec.containers, *sidecars):
        for port in container.ports:
            if port.host_port > 0:
                yield (port.protocol or "TCP", port.host_port, port.host_ip or ANY_ADDRESS)


def _tagged(image: str) -> str:
    """The image name as nodes list it; an image without a tag means ``latest``."""
    has_tag = image.rfind(":") > image.rfind("/")
    return image if has_tag else f"{image}:latest"


def _selected(spec: core.PodSpec) -> Iterator[str]:
    for constraint in spec.topology_spread_constraints:
        yield from constraint.match_label_keys
        yield from _keys(constraint.label_selector)
    for term in _terms(spec.affinity):
        yield from term.match_label_keys
        yield from term.mismatch_label_keys
        yield from _keys(term.label_selector)


def _terms(affinity: core.Affinity | None) -> Iterator[core.PodAffinityTerm]:
    if affinity is None:
        return
    for rule in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if rule is not None:
            yield from rule.required_during_scheduling_ignored_during_execution
            for preferred in rule.preferred_during_scheduling_ignored_during_execution:
                yield preferred.pod_affinity_term


def _keys(selector: core.LabelSelector | None) -> Iterator[str]:
    if selector is not None:
        yield from selector.match_labels or ()
        yield from (expression.key for expression in selector.match_expressions)
