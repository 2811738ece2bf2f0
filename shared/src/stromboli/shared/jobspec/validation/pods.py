"""Defaults and validation of pods that Stromboli schedules.

A pod of another scheduler is never rejected, and is changed only if a resource group that the
operator configured selects it. No webhook blocks the creation of pods (see docs/decisions).
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from stromboli.shared import decoding, keys
from stromboli.shared.jobspec.validation.patch import Add, Document, pointer
from stromboli.shared.messages.admission import Violation

_PERCENT = re.compile(r"([1-9]|[1-9][0-9])%")
_NUMBER = re.compile(r"[0-9]{1,9}")


class GroupObject(msgspec.Struct, frozen=True, kw_only=True):
    """Selects the pods of a resource group: by namespace, or by annotation."""

    key: str = ""
    value: tuple[str, ...] = ()


class ResourceGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the cluster, with the fields to add to pods that are placed in it."""

    resource_group: str
    object: GroupObject = GroupObject()
    scheduler_name: str = ""
    labels: dict[str, str] = {}
    affinity: str = ""
    tolerations: tuple[dict[str, Any], ...] = ()


class ResourceGroups(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All resource groups; the first match applies. ``queue_gates``: whether pods that request it
    get a scheduling gate until their queue has room.
    """

    resource_groups: tuple[ResourceGroup, ...] = ()
    queue_gates: bool = False


class _Metadata(msgspec.Struct, frozen=True):
    namespace: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_name: str = "default-scheduler"
    node_selector: dict[str, str] | None = None
    affinity: dict[str, Any] | None = None
    tolerations: list[Any] | None = None
    scheduling_gates: list[dict[str, Any]] | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


_TOLERATION_KEYS = {name.lower(): name for name in ("tolerationSeconds",)}
"""Volcano's files have these field names in lower case."""


def default_patch(document: Document, namespace: str, groups: ResourceGroups) -> tuple[Add, ...]:
    """The patch with the fields that the operator's resource groups add to a new pod. Raises
    msgspec.ValidationError."""
    pod = decoding.convert(document, _Pod)
    annotations = pod.metadata.annotations or {}
    namespace = pod.metadata.namespace or namespace
    additions = []
    if groups.queue_gates and annotations.get(keys.QUEUE_GATE) == "true":
        gates = pod.spec.scheduling_gates or []
        if all(gate.get("name") != keys.QUEUE_GATE for gate in gates):
            additions.append(
                Add(path="/spec/schedulingGates", value=[*gates, {"name": keys.QUEUE_GATE}])
            )
    group = next(
        (group for group in groups.resource_groups if _matches(group, namespace, annotations)), None
    )
    return (*additions, *(() if group is None else _into(group, pod.spec)))


def violations(document: Document, scheduler_names: Sequence[str]) -> Iterator[Violation]:
    """All violations of a new pod of our schedulers. Raises msgspec.ValidationError."""
    pod = decoding.convert(document, _Pod)
    if pod.spec.scheduler_name not in scheduler_names:
        return
    annotations = pod.metadata.annotations or {}
    budget_keys = [
        key for key in (keys.JDB_MIN_AVAILABLE, keys.JDB_MAX_UNAVAILABLE) if key in annotations
    ]
    for key in budget_keys:
        value = annotations[key]
        is_number = _NUMBER.fullmatch(value) is not None and int(value) > 0
        if not is_number and not _PERCENT.fullmatch(value):
            yield Violation(
                path=f"metadata.annotations[{key}]",
                reason=f"{value!r} is not a number of pods",
                expected="a whole number above 0, or 1% to 99%",
            )
    if len(budget_keys) == 2:
        yield Violation(
            path="metadata.annotations",
            reason=f"both {budget_keys[0]} and {budget_keys[1]}",
            expected="one of the two",
        )


def _matches(group: ResourceGroup, namespace: str, annotations: dict[str, str]) -> bool:
    if group.object.key == "namespace":
        return namespace in group.object.value
    if group.object.key not in ("", "annotation"):
        return False
    if any(_holds(snippet, annotations) for snippet in group.object.value):
        return True
    own = annotations.get(keys.RESOURCE_GROUP)
    return group.object.key == "" and own == group.resource_group


def _holds(snippet: str, annotations: dict[str, str]) -> bool:
    """Whether the annotations match the line ``key: value``."""
    key, colon, value = snippet.partition(":")
    return bool(colon) and annotations.get(key.strip().strip("\"'")) == value.strip().strip("\"'")


def _into(group: ResourceGroup, spec: _Spec) -> Iterator[Add]:
    if group.labels:
        selector = {**(spec.node_selector or {}), **group.labels}
        yield Add(path="/spec/nodeSelector", value=selector)
    if group.affinity and spec.affinity is None:
        yield Add(path="/spec/affinity", value=json.loads(group.affinity))
    if group.tolerations:
        added = [
            {_TOLERATION_KEYS.get(key, key): value for key, value in toleration.items()}
            for toleration in group.tolerations
        ]
        yield Add(path="/spec/tolerations", value=[*(spec.tolerations or []), *added])
    if group.scheduler_name:
        yield Add(path=pointer("spec", "schedulerName"), value=group.scheduler_name)
