"""PodGroups for pods of others: made from the pods and their owner, and gone with the last pod.

1. The owner is read once, for its annotations, where Kubernetes itself has its kind.
2. The PodGroup is made. It belongs to the pods' owner, so that it goes with it.
3. Each pod is told its PodGroup; then the scheduler takes it.

No webhook is needed: a Deployment's template names our scheduler, and says its queue by a label.
Source: spec/jobs.md 7.1. On purpose unlike it: what belongs to pods goes with the last of them,
a queue may be said by a label, and pods of operators may say what their owner cannot.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from stromboli.controller.core import commands, manifest, quota, strays, view
from stromboli.shared import keys, units
from stromboli.shared.api import core, kinds
from stromboli.shared.api.meta import OwnerReference
from stromboli.shared.api.scheduling import PodGroup

INHERITED = "volcano.sh/"
"""An owner's annotations that begin so hold for its PodGroup, too."""
_OF_PODS = (
    keys.PREEMPTABLE,
    keys.COOLDOWN_TIME,
    keys.REVOCABLE_ZONE,
    keys.JDB_MIN_AVAILABLE,
    keys.JDB_MAX_UNAVAILABLE,
)
_LABELS = (keys.PREEMPTABLE, keys.COOLDOWN_TIME)
_OWNERS = {(kind.api_version, kind.kind): kind for kind in kinds.WORKLOADS}
_ENDED = ("Succeeded", "Failed")
_QUANTITIES = msgspec.json.Decoder(dict[str, str | int | float])


def reconcile(picture: view.View, key: str, now: datetime) -> commands.Plan:
    """Bring one PodGroup to what its pods are."""
    state = picture.state(kinds.POD_GROUPS, key)
    group = picture.pod_group(key)
    if state is not None and (group is None or picture.is_going(group)):
        return ()
    pods = [pod for pod in map(picture.pod, sorted(picture.strays.pods(key))) if pod is not None]
    waiting = [pod for pod in pods if pod.status.phase not in _ENDED and not picture.is_going(pod)]
    if group is not None:
        if not pods and strays.is_made(group) and _is_left(picture, group):
            return ((_delete(group),),)
        return _told(waiting)
    if not waiting:
        return ()
    first = waiting[0]
    owner = first.metadata.controller
    kind = None if owner is None else _OWNERS.get((owner.api_version, owner.kind))
    found: Mapping[str, str] = {}
    if owner is not None and kind is not None:
        known = picture.strays.owner(owner.uid)
        if known is None:
            look = commands.Look(
                kind=kind, namespace=first.metadata.namespace, name=owner.name, uid=owner.uid
            )
            return ((look,),)
        found = known
    return (_create(picture, first, found, now), *_told(waiting))


def _create(
    picture: view.View, pod: core.Pod, owner: Mapping[str, str], now: datetime
) -> commands.Stage:
    """The PodGroup, and what is wrong with how it was asked for."""
    said = {**(pod.metadata.annotations or {}), **owner}
    wrong: list[str] = []
    least = _min_member(said, wrong)
    spec: dict[str, Any] = {
        "minMember": least,
        "queue": _queue(picture, pod),
        "minResources": _min_resources(pod, said, least, wrong),
    }
    if pod.spec.priority_class_name:
        spec["priorityClassName"] = pod.spec.priority_class_name
    topology = _topology(pod)
    if topology:
        spec["networkTopology"] = topology
    name = strays.group_name(pod)
    body = {
        "apiVersion": kinds.POD_GROUPS.api_version,
        "kind": kinds.POD_GROUPS.kind,
        "metadata": {
            "name": name,
            "namespace": pod.metadata.namespace,
            "annotations": {**_annotations(pod, owner), keys.MADE_FOR_PODS: "true"},
            "ownerReferences": list(_owners(pod)),
        },
        "spec": spec,
        # There is no status subresource: a phase given here stays.
        "status": {"phase": "Pending"},
    }
    owned = pod.metadata.controller
    create = commands.Create(
        kind=kinds.POD_GROUPS,
        namespace=pod.metadata.namespace,
        name=name,
        body=manifest.encode(body),
        owner_uid=pod.metadata.uid if owned is None else owned.uid,
    )
    events = tuple(
        commands.event_about(kinds.PODS, pod, "Warning", "PodGroupError", why, now) for why in wrong
    )
    return (create, *events)


def _is_left(picture: view.View, group: PodGroup) -> bool:
    """Whether nothing is in it any more. A pod that cannot be read may be."""
    prefix = f"{group.metadata.namespace}/"
    hidden = any(key.startswith(prefix) for key in picture.unreadable(kinds.PODS))
    return not hidden and not picture.members(group.metadata.key)


def _delete(group: PodGroup) -> commands.Delete:
    return commands.Delete(
        kind=kinds.POD_GROUPS,
        namespace=group.metadata.namespace,
        name=group.metadata.name,
        uid=group.metadata.uid,
    )


def _told(pods: list[core.Pod]) -> commands.Plan:
    """Tell pods their PodGroup."""
    stage = tuple(_tell(pod) for pod in pods if not pod.metadata.annotation(keys.GROUP_NAME))
    return (stage,) if stage else ()


def _tell(pod: core.Pod) -> commands.Patch:
    name = strays.group_name(pod)
    tests = [manifest.test("/metadata/uid", pod.metadata.uid)]
    if pod.metadata.annotations:
        path = keys.GROUP_NAME.replace("~", "~0").replace("/", "~1")
        put = manifest.put(f"/metadata/annotations/{path}", name)
    else:
        # Whoever annotates it meanwhile must not lose that.
        tests.append(manifest.test("/metadata/resourceVersion", pod.metadata.resource_version))
        put = manifest.put("/metadata/annotations", {keys.GROUP_NAME: name})
    return commands.Patch(
        kind=kinds.PODS,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        patch=manifest.encode([*tests, put]),
    )


# What is asked for


def _min_member(said: Mapping[str, str], wrong: list[str]) -> int:
    text = said.get(keys.GROUP_MIN_MEMBER)
    if text is None:
        return 1
    if text.isascii() and text.isdecimal():
        return int(text)
    wrong.append(f"{keys.GROUP_MIN_MEMBER}: {text!r} is no count of pods; 1 is taken")
    return 1


def _min_resources(
    pod: core.Pod, said: Mapping[str, str], least: int, wrong: list[str]
) -> dict[str, Any]:
    text = said.get(keys.GROUP_MIN_RESOURCES)
    if text is not None:
        try:
            found = _QUANTITIES.decode(text)
            units.amounts(found)
        except (msgspec.DecodeError, ValueError) as error:
            wrong.append(f"{keys.GROUP_MIN_RESOURCES}: {error}; that of the pods is taken")
        else:
            return dict(found)
    try:
        return dict(quota.total([(pod.spec, least)]))
    except ValueError as error:
        wrong.append(f"the pod's resources: {error}")
        return {}


def _queue(picture: view.View, pod: core.Pod) -> str:
    """What the pod says, else its namespace."""
    metadata = pod.metadata
    namespace = picture.get(kinds.NAMESPACES, metadata.namespace)
    return (
        metadata.annotation(keys.NAMESPACE_QUEUE)
        or metadata.label(keys.QUEUE_NAME)
        or metadata.annotation(keys.QUEUE_NAME)
        or (namespace and namespace.metadata.annotation(keys.NAMESPACE_QUEUE))
        or "default"
    )


def _annotations(pod: core.Pod, owner: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in owner.items() if name.startswith(INHERITED)}
    for names, given in (
        (_OF_PODS, pod.metadata.annotations),
        (_LABELS, pod.metadata.labels),
    ):
        found |= {name: value for name, value in (given or {}).items() if name in names}
    return found


def _topology(pod: core.Pod) -> dict[str, Any]:
    mode = pod.metadata.annotation(keys.NETWORK_TOPOLOGY_MODE)
    tier = pod.metadata.annotation(keys.NETWORK_TOPOLOGY_TIER)
    if mode is None and tier is None:
        return {}
    found: dict[str, Any] = {"mode": "soft" if (mode or "").lower() == "soft" else "hard"}
    if tier is not None and tier.isascii() and tier.isdecimal():
        found["highestTierAllowed"] = int(tier)
    return found


def _owners(pod: core.Pod) -> Iterator[dict[str, Any]]:
    """The pods' owners if one of them manages it, else the pod."""
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
