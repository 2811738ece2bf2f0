"""PodGroups for unmanaged pods: created from the pods and their owner, updated with them, and
deleted with the last pod.

1. The owner is read once, for its annotations, if it is of a built-in kind.
2. The PodGroup is created. The pods' owner owns it, so that garbage collection deletes it.
3. Each pod is annotated with its PodGroup; from then on the scheduler considers it.
4. Later changes of the owner or its pods are written to the PodGroup, too. The PodGroup records the
   fields it was created from, so that a field that a user changed is kept until the pods or their
   owner change it.

No webhook is needed: a Deployment's template names our scheduler, and a label names its queue. The
behaviour is Volcano's. Deliberate differences: the PodGroup is deleted with its last pod, a label
may name the queue, and annotations may be on the pods, for operators whose own objects cannot have
them.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from stromboli.controller.core import commands, manifests
from stromboli.controller.core.store import controller_cache, unmanaged_pod_index
from stromboli.controller.core.unmanaged_pods import group_template
from stromboli.shared import decoding, keys
from stromboli.shared.api import core, kinds
from stromboli.shared.api.meta import OwnerReference
from stromboli.shared.api.scheduling import PodGroup

_ENDED = ("Succeeded", "Failed")
_FIXED_ONCE_IN = ("queue", "networkTopology")
"""Fields that are not updated once the PodGroup was enqueued: it was admitted with their values."""


class LastWritten(msgspec.Struct, frozen=True):
    """The values that the controller last wrote to a PodGroup."""

    spec: dict[str, Any] = {}
    annotations: dict[str, str] = {}

    @property
    def least(self) -> int:
        """The recorded ``minMember``, from an annotation that users may edit."""
        min_member = self.spec.get("minMember")
        return min_member if isinstance(min_member, int) else 1


_MADE_FROM = decoding.decoder_of(LastWritten)


def reconcile(cache: controller_cache.ControllerCache, key: str, now: datetime) -> commands.Plan:
    """Create, update or delete one PodGroup, from its pods and their owner."""
    state = cache.state(kinds.POD_GROUPS, key)
    group = cache.pod_group(key)
    if state is not None and (group is None or cache.is_terminating(group)):
        return ()
    pods = [
        pod for pod in map(cache.pod, sorted(cache.unmanaged_pods.pods(key))) if pod is not None
    ]
    waiting = [
        pod for pod in pods if pod.status.phase not in _ENDED and not cache.is_terminating(pod)
    ]
    if (
        group is not None
        and not pods
        and unmanaged_pod_index.is_made(group)
        and _is_left(cache, group)
    ):
        return ((_delete(group),),)
    if not waiting:
        return ()
    speaker = group_template.newest(waiting)
    owner = _owner(cache, speaker)
    if group is not None:
        follow = () if owner is None else _follow(cache, group, speaker, owner, now)
        return (*follow, *_group_annotations(waiting))
    if owner is None:
        return ((_look(speaker),),)
    template = group_template.group_template(cache, speaker, owner)
    if template is None:
        return ()
    if refused := group_template.not_permitted(cache, speaker.metadata.namespace, template.spec):
        return (_refusal(speaker, refused, now),)
    return (_create(speaker, template, now), *_group_annotations(waiting))


def _owner(
    cache: controller_cache.ControllerCache, pod: core.Pod
) -> unmanaged_pod_index.Owner | None:
    """The fields of the pod's owner; None if the owner was not read yet. Owners of kinds that are
    not built in have no fields."""
    if unmanaged_pod_index.owner_kind(pod) is None or pod.metadata.controller is None:
        return unmanaged_pod_index.Owner()
    group = f"{pod.metadata.namespace}/{unmanaged_pod_index.group_name(pod)}"
    return cache.unmanaged_pods.owner(group)


def _look(pod: core.Pod) -> commands.ReadOwner:
    owner, kind = pod.metadata.controller, unmanaged_pod_index.owner_kind(pod)
    assert owner is not None
    assert kind is not None
    return commands.ReadOwner(
        kind=kind, namespace=pod.metadata.namespace, name=owner.name, uid=owner.uid
    )


def _create(pod: core.Pod, wanted: group_template.GroupTemplate, now: datetime) -> commands.Stage:
    """Create the PodGroup, with Warnings about invalid values."""
    name = unmanaged_pod_index.group_name(pod)
    own = {keys.MADE_FOR_PODS: "true", keys.MADE_FROM: _written(wanted.spec, wanted.annotations)}
    body = {
        "apiVersion": kinds.POD_GROUPS.api_version,
        "kind": kinds.POD_GROUPS.kind,
        "metadata": {
            "name": name,
            "namespace": pod.metadata.namespace,
            "annotations": {**wanted.annotations, **own},
            "ownerReferences": list(_owners(pod)),
        },
        "spec": wanted.spec,
        # There is no status subresource: a phase in this request is stored.
        "status": {"phase": "Pending"},
    }
    owned = pod.metadata.controller
    create = commands.Create(
        kind=kinds.POD_GROUPS,
        namespace=pod.metadata.namespace,
        name=name,
        body=manifests.encode(body),
        owner_uid=pod.metadata.uid if owned is None else owned.uid,
    )
    return (create, *_recorded(pod, wanted, now))


def _recorded(
    pod: core.Pod, wanted: group_template.GroupTemplate, now: datetime
) -> Iterator[commands.RecordEvent]:
    for why in wanted.wrong:
        yield commands.event_about(kinds.PODS, pod, "Warning", "PodGroupError", why, now)


def _refusal(pod: core.Pod, why: str, now: datetime) -> commands.Stage:
    return (commands.event_about(kinds.PODS, pod, "Warning", "PodGroupError", why, now),)


# Updates


def _follow(
    cache: controller_cache.ControllerCache,
    group: PodGroup,
    pod: core.Pod,
    owner: unmanaged_pod_index.Owner,
    now: datetime,
) -> commands.Plan:
    """Update the PodGroup with the changes since it was last written. The deletion of the owner
    changes nothing."""
    if not unmanaged_pod_index.is_made(group) or owner.is_gone:
        return ()
    before = _made_from(group)
    wanted = group_template.group_template(cache, pod, owner, before.least)
    if wanted is None:
        return ()
    if refused := group_template.not_permitted(
        cache, pod.metadata.namespace, wanted.spec, before.spec
    ):
        return (_refusal(pod, refused, now),)
    spec = dict(wanted.spec)
    if group.status.phase not in ("", "Pending"):
        for name in _FIXED_ONCE_IN:
            spec.pop(name, None)
            if name in before.spec:
                spec[name] = before.spec[name]
    events = tuple(_recorded(pod, wanted, now))
    if spec == before.spec and wanted.annotations == before.annotations:
        return (events,) if events else ()
    changes = {
        "metadata": {
            "uid": group.metadata.uid,
            "annotations": {
                **_differences(before.annotations, wanted.annotations),
                keys.MADE_FROM: _written(spec, wanted.annotations),
            },
        },
        "spec": _differences(before.spec, spec),
    }
    patch = commands.Patch(
        kind=kinds.POD_GROUPS,
        namespace=group.metadata.namespace,
        name=group.metadata.name,
        uid=group.metadata.uid,
        patch=manifests.encode(changes),
        patch_type="merge",
    )
    return ((patch, *events),)


def _made_from(group: PodGroup) -> LastWritten:
    """The values that were last written; empty if their record is unreadable, so that all fields
    are written again."""
    try:
        return decoding.decode(_MADE_FROM, group.metadata.annotation(keys.MADE_FROM) or "{}")
    except msgspec.DecodeError:
        return LastWritten()


def _written(spec: Mapping[str, Any], annotations: Mapping[str, str]) -> str:
    return manifests.encode(LastWritten(dict(spec), dict(annotations))).decode()


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that turns ``before`` into ``after``."""
    changed: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := _differences(old, value):
                changed[name] = inner
        elif name not in before or value != old:
            changed[name] = value
    return changed


# Deletion


def _is_left(cache: controller_cache.ControllerCache, group: PodGroup) -> bool:
    """Whether the PodGroup has no members left. An unreadable pod may be a member."""
    prefix = f"{group.metadata.namespace}/"
    hidden = any(key.startswith(prefix) for key in cache.unreadable(kinds.PODS))
    return not hidden and not cache.members(group.metadata.key)


def _delete(group: PodGroup) -> commands.Delete:
    return commands.Delete(
        kind=kinds.POD_GROUPS,
        namespace=group.metadata.namespace,
        name=group.metadata.name,
        uid=group.metadata.uid,
    )


# Members


def _group_annotations(pods: list[core.Pod]) -> commands.Plan:
    """Annotate pods with their PodGroup."""
    stage = tuple(
        manifests.annotated(kinds.PODS, pod, keys.GROUP_NAME, unmanaged_pod_index.group_name(pod))
        for pod in pods
        if not pod.metadata.annotation(keys.GROUP_NAME)
    )
    return (stage,) if stage else ()


def _owners(pod: core.Pod) -> Iterator[dict[str, Any]]:
    """The owner references for the PodGroup: the pod's own if one of them is its controller, else
    one to the pod."""
    if pod.metadata.controller is None:
        yield msgspec.to_builtins(
            OwnerReference(
                api_version=kinds.PODS.api_version,
                kind=kinds.PODS.kind,
                name=pod.metadata.name,
                uid=pod.metadata.uid,
                controller=True,
            )
        )
        return
    yield from (msgspec.to_builtins(it) for it in pod.metadata.owner_references)
