"""The desired PodGroup of unmanaged pods, from the pods, their owner and their namespace.

It is derived from the newest pod, as in Volcano: pods of one owner are alike, except during a
rollout of a changed template. Pure.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from stromboli.controller.core import manifests
from stromboli.controller.core.store import controller_cache, unmanaged_pod_index
from stromboli.shared import decoding, keys, snapshot
from stromboli.shared.api import core, kinds
from stromboli.shared.formats import units
from stromboli.shared.jobspec import quota
from stromboli.shared.jobspec.validation.queueing import permissions

_OF_PODS = (
    keys.PREEMPTABLE,
    keys.COOLDOWN_TIME,
    keys.REVOCABLE_ZONE,
    keys.JDB_MIN_AVAILABLE,
    keys.JDB_MAX_UNAVAILABLE,
)
_LABELS = (keys.PREEMPTABLE, keys.COOLDOWN_TIME)
LONGEST_SHOWN = 40
"""Number of characters of an invalid value that messages show."""
_EMPTY: Mapping[str, Any] = {}
_BEGINNING = datetime.min.replace(tzinfo=UTC)
_QUANTITIES = decoding.decoder_of(dict[str, str | int | float])


class GroupTemplate(msgspec.Struct, frozen=True):
    """Spec and annotations of the PodGroup, and messages about invalid values."""

    spec: Mapping[str, Any] = {}
    annotations: Mapping[str, str] = {}
    wrong: tuple[str, ...] = ()


def newest(pods: Iterable[core.Pod]) -> core.Pod:
    """The pod that determines the template."""
    return max(
        pods, key=lambda it: (it.metadata.creation_timestamp or _BEGINNING, it.metadata.name)
    )


def group_template(
    cache: controller_cache.ControllerCache,
    pod: core.Pod,
    owner: unmanaged_pod_index.Owner,
    least: int = 1,
) -> GroupTemplate | None:
    """The PodGroup for this pod and its siblings; None while its queue is unknown. ``least``: the
    ``minMember`` to use if its annotation is invalid."""
    queue = _queue(cache, pod, owner)
    if queue is None:
        return None
    merged_annotations = {**(pod.metadata.annotations or {}), **owner.annotations}
    wrong: list[str] = []
    min_member = _min_member(merged_annotations, least, wrong)
    spec: dict[str, Any] = {
        "minMember": min_member,
        "queue": queue,
        "minResources": _min_resources(pod, merged_annotations, min_member, wrong),
    }
    if pod.spec.priority_class_name:
        spec["priorityClassName"] = pod.spec.priority_class_name
    topology = _topology(pod)
    if topology:
        spec["networkTopology"] = topology
    return GroupTemplate(spec, _annotations(pod, owner), tuple(wrong))


def not_permitted(
    cache: controller_cache.ControllerCache,
    namespace: str,
    spec: Mapping[str, Any],
    before: Mapping[str, Any] = _EMPTY,
) -> str:
    """Why pods of a namespace may not use the queue or priority class of their PodGroup; empty if
    they may. Only the namespace counts: most pods are created by controllers, whose names do not
    identify the user. ``before``: the current spec of the PodGroup."""
    for kind, word, field in (
        (kinds.QUEUES, "queue", "queue"),
        (kinds.PRIORITY_CLASSES, "priority class", "priorityClassName"),
    ):
        name = spec.get(field)
        if not name or name == before.get(field):
            continue
        state = cache.state(kind, name)
        if isinstance(state, snapshot.Unknown):
            return f"{word} {name} cannot be read: {state.reason}"
        if state is not None and not permissions.allows(
            state.metadata, namespace, permissions.Submitter()
        ):
            return f"{word} {name} is not open to pods of namespace {namespace!r}"
    return ""


def _min_member(annotations: Mapping[str, str], least: int, wrong: list[str]) -> int:
    text = annotations.get(keys.GROUP_MIN_MEMBER)
    if text is None:
        return 1
    min_member = manifests.count(text)
    if min_member is None:
        excerpt = text[:LONGEST_SHOWN]
        wrong.append(
            f"{keys.GROUP_MIN_MEMBER}: {excerpt!r} is not a number of pods; {least} is used"
        )
    return least if min_member is None else min_member


def _min_resources(
    pod: core.Pod, annotations: Mapping[str, str], least: int, wrong: list[str]
) -> dict[str, Any]:
    text = annotations.get(keys.GROUP_MIN_RESOURCES)
    if text is not None:
        try:
            quantities = decoding.decode(_QUANTITIES, text)
            units.amounts(quantities)
        except (msgspec.DecodeError, ValueError) as error:
            wrong.append(f"{keys.GROUP_MIN_RESOURCES}: {error}; the resources of the pods are used")
        else:
            return dict(quantities)
    try:
        return dict(quota.total([(pod.spec, least)]))
    except ValueError as error:
        wrong.append(f"the pod's resources: {error}")
        return {}


def _queue(
    cache: controller_cache.ControllerCache, pod: core.Pod, owner: unmanaged_pod_index.Owner
) -> str | None:
    """The queue of the pod, else of its owner, else of its namespace; None if that is
    unreadable."""
    queue_name = (
        pod.metadata.annotation(keys.NAMESPACE_QUEUE)
        or pod.metadata.label(keys.QUEUE_NAME)
        or pod.metadata.annotation(keys.QUEUE_NAME)
        or owner.annotations.get(keys.NAMESPACE_QUEUE)
        or owner.queue_label
        or owner.annotations.get(keys.QUEUE_NAME)
    )
    if queue_name:
        return queue_name
    namespace = cache.state(kinds.NAMESPACES, pod.metadata.namespace)
    if isinstance(namespace, snapshot.Unknown):
        return None
    return (namespace and namespace.metadata.annotation(keys.NAMESPACE_QUEUE)) or "default"


def _annotations(pod: core.Pod, owner: unmanaged_pod_index.Owner) -> dict[str, str]:
    group_annotations = {
        name: value
        for name, value in owner.annotations.items()
        if name.startswith(unmanaged_pod_index.INHERITED)
    }
    for names, entries in (
        (_OF_PODS, pod.metadata.annotations),
        (_LABELS, pod.metadata.labels),
    ):
        group_annotations |= {
            name: value for name, value in (entries or {}).items() if name in names
        }
    return group_annotations


def _topology(pod: core.Pod) -> dict[str, Any]:
    mode = pod.metadata.annotation(keys.NETWORK_TOPOLOGY_MODE)
    tier = pod.metadata.annotation(keys.NETWORK_TOPOLOGY_TIER)
    if mode is None and tier is None:
        return {}
    constraints: dict[str, Any] = {"mode": "soft" if (mode or "").lower() == "soft" else "hard"}
    highest = manifests.count(tier or "")
    if highest is not None:
        constraints["highestTierAllowed"] = highest
    return constraints
