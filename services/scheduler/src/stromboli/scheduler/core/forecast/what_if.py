"""The expected start of a pending gang if the gang or the cluster were different.

The present cluster is copied with the change, and both are simulated forward with the same draws of
run times, so that they differ by the change alone. Fields that a running system changes in place
(priority, replicas, minAvailable) change in place. A job with another queue or other requests is
*new*: it is submitted now, and is the last one in its queue. Members of a gang whose pods are not
created yet are built from the templates of its tasks, as the controller does.

A change whose effect cannot be simulated raises ``CannotTellError`` with the reason.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.forecast import expected_starts, gang_pods, run_times
from stromboli.scheduler.core.model import job_builder
from stromboli.shared import keys
from stromboli.shared.api import core, meta, scheduling, taints
from stromboli.shared.formats import units
from stromboli.shared.formats.counts import counted
from stromboli.shared.jobspec import quota
from stromboli.shared.messages import what_if as messages

_ENDED = ("Succeeded", "Failed")
_HOSTNAME = "kubernetes.io/hostname"
_SHOWN = ("cpu", "memory")
"""Resources of added nodes that notes name in addition to devices."""


class CannotTellError(Exception):
    """The effect of the change cannot be simulated; the message is the reason."""


class OutOfTimeError(Exception):
    """The time limit of the simulations is exceeded."""


class Case(msgspec.Struct, frozen=True):
    """A cluster to simulate. ``members``: PodGroup -> the pods that it gets once it is admitted.
    ``notes``: the assumptions of the simulation."""

    cluster: cluster_objects.Cluster
    members: Mapping[str, tuple[core.Pod, ...]] = {}
    notes: tuple[str, ...] = ()


class Answer(msgspec.Struct, frozen=True):
    """The expected starts without and with the change. ``draws``: the number of simulations of
    each."""

    present: expected_starts.ExpectedStart
    changed: expected_starts.ExpectedStart
    draws: int
    notes: tuple[str, ...]


def answer(
    cluster: cluster_objects.Cluster,
    requested: messages.WhatIfAsked,
    options: expected_starts.Options,
    draw: expected_starts.Draw,
    parts: Iterable[Sequence[float]],
    has_time: Callable[[], bool] = lambda: True,
) -> Answer:
    """Simulate the present and the changed cluster, a pair for each of ``parts`` (see
    ``expected_starts``) while ``has_time``, and at least one pair. Raises CannotTellError, and
    OutOfTimeError if ``options.pause`` raises it before the first pair is complete.
    """
    present, changed = present_case(cluster, requested), changed_case(cluster, requested)
    only = frozenset((requested.pod_group,))
    here = msgspec.structs.replace(options, only=only, members=present.members)
    there = msgspec.structs.replace(options, only=only, members=changed.members)
    drawn: list[tuple[expected_starts.DrawnStarts, expected_starts.DrawnStarts]] = []
    for numbers in parts:
        if drawn and not has_time():
            break
        try:
            pair = (
                expected_starts.Forecast(present.cluster, here, draw, numbers).run(),
                expected_starts.Forecast(changed.cluster, there, draw, numbers).run(),
            )
        except OutOfTimeError:
            if not drawn:
                raise
            break
        drawn.append(pair)
    starts = [
        expected_starts.summarize(requested.pod_group, each)
        for each in zip(*drawn, strict=True)
        if requested.pod_group in each[0].queues
    ]
    if len(starts) < 2 or starts[0] is None or starts[1] is None:
        raise CannotTellError("enough pods of the job are on nodes: it has started")
    return Answer(starts[0], starts[1], len(drawn), changed.notes)


def present_case(cluster: cluster_objects.Cluster, requested: messages.WhatIfAsked) -> Case:
    """The cluster as it is. Raises CannotTellError."""
    group, pods = _gang_of(cluster, requested.pod_group)
    members = () if pods else _members(cluster, group, requested.present)
    return Case(cluster, {requested.pod_group: members} if members else {})


def changed_case(cluster: cluster_objects.Cluster, requested: messages.WhatIfAsked) -> Case:
    """The cluster with the change. Raises CannotTellError."""
    group, pods = _gang_of(cluster, requested.pod_group)
    gang, members = requested.present, pods
    notes: list[str] = []
    if requested.changed is not None:
        gang = requested.changed
        placed = [pod for pod in pods if pod.spec.node_name and pod.status.phase not in _ENDED]
        if placed and (requested.is_new or requested.sizes_change):
            raise CannotTellError(
                f"this change would delete pods that have nodes already: {len(placed)} of "
                f"{counted(len(pods), 'pod')}"
            )
        group = _changed_group(group, gang, cluster, is_new=requested.is_new)
        members = () if requested.is_new else _resized(cluster, group, pods, gang)
        if requested.is_new:
            notes.append(
                "a job's queue and requests cannot change: this is the job submitted again now"
            )
    new = () if members else _members(cluster, group, gang)
    others = tuple(
        pod for pod in cluster.pods if job_builder.job_key_of(pod) != requested.pod_group
    )
    groups = tuple(
        group if each.metadata.key == requested.pod_group else each for each in cluster.pod_groups
    )
    changed_cluster = msgspec.structs.replace(cluster, pods=(*others, *members), pod_groups=groups)
    if requested.nodes:
        changed_cluster, note = _with_nodes(
            changed_cluster, requested.nodes, group, (*members, *new)
        )
        notes.append(note)
    return Case(changed_cluster, {requested.pod_group: new} if new else {}, tuple(notes))


def _gang_of(
    cluster: cluster_objects.Cluster, key: str
) -> tuple[scheduling.PodGroup, tuple[core.Pod, ...]]:
    group = next((each for each in cluster.pod_groups if each.metadata.key == key), None)
    if group is None:
        raise CannotTellError("the scheduler does not know the job yet; ask again in a few seconds")
    return group, tuple(pod for pod in cluster.pods if job_builder.job_key_of(pod) == key)


def _changed_group(
    group: scheduling.PodGroup,
    gang: messages.Gang,
    cluster: cluster_objects.Cluster,
    *,
    is_new: bool,
) -> scheduling.PodGroup:
    fields: dict[str, Any] = {
        "queue": gang.queue,
        "priority_class_name": gang.priority_class_name,
    }
    if gang.tasks:  # else the present ones are kept, which the controller derived
        fields |= {
            "min_member": gang.min_member,
            "min_task_member": gang.min_task_member,
            "min_resources": gang.min_resources,
        }
    group = msgspec.structs.replace(group, spec=msgspec.structs.replace(group.spec, **fields))
    if is_new:
        metadata = msgspec.structs.replace(group.metadata, creation_timestamp=cluster.now)
        status = scheduling.PodGroupStatus(phase="Pending")
        group = msgspec.structs.replace(group, metadata=metadata, status=status)
    return group


def _resized(
    cluster: cluster_objects.Cluster,
    group: scheduling.PodGroup,
    pods: Sequence[core.Pod],
    gang: messages.Gang,
) -> tuple[core.Pod, ...]:
    """The existing pods, without pods of tasks that have fewer replicas now, and with the pods that
    are missing; none if no pods exist."""
    if not pods or not gang.tasks:
        return tuple(pods)
    wanted = {pod.metadata.name: pod for pod in _members(cluster, group, gang)}
    existing = {pod.metadata.name: pod for pod in pods}
    return tuple(existing.get(name, pod) for name, pod in wanted.items())


def _members(
    cluster: cluster_objects.Cluster, group: scheduling.PodGroup, gang: messages.Gang
) -> tuple[core.Pod, ...]:
    """The pods of a gang as the controller creates them; none if its tasks are not known."""
    if not gang.tasks:
        return ()
    if any(claim for task in gang.tasks for claim in task.spec.resource_claims):
        raise CannotTellError(
            "its pods claim devices by ResourceClaims, which are created with the pods"
        )
    values = {each.metadata.name: each.value for each in cluster.priority_classes}
    default = next((each.value for each in cluster.priority_classes if each.global_default), 0)
    claims = {each.metadata.key for each in cluster.claims}
    return tuple(
        _member(group, gang, task, index, values, default, claims)
        for task in gang.tasks
        for index in range(task.replicas)
    )


def _member(
    group: scheduling.PodGroup,
    gang: messages.Gang,
    task: messages.GangTask,
    index: int,
    priorities: Mapping[str, int],
    default_priority: int,
    claims: set[str],
) -> core.Pod:
    job = run_times.job_name(group.metadata.name)
    namespace = group.metadata.namespace
    own = {keys.TASK_SPEC: task.name, keys.TASK_INDEX: str(index), keys.JOB_NAME: job}
    labels = {**task.labels, **own, keys.JOB_NAMESPACE: namespace, keys.QUEUE_NAME: gang.queue}
    if task.partition_size > 0:
        labels[keys.PARTITION_ID] = str(index // task.partition_size)
    class_name = task.spec.priority_class_name or gang.priority_class_name
    spec = msgspec.structs.replace(
        task.spec,
        priority_class_name=class_name,
        priority=priorities.get(class_name, default_priority),
        # Claims of the job are created with it; only existing ones bind a pod to nodes.
        volumes=tuple(
            volume
            for volume in task.spec.volumes
            if volume.persistent_volume_claim is not None
            and f"{namespace}/{volume.persistent_volume_claim.claim_name}" in claims
        ),
    )
    own |= {keys.GROUP_NAME: group.metadata.name, keys.QUEUE_NAME: gang.queue}
    name = f"{job}-{task.name}-{index}"
    return core.Pod(
        metadata=meta.ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"what-if-{namespace}/{name}",
            creation_timestamp=group.metadata.creation_timestamp,
            labels=labels,
            annotations={**task.annotations, **own},
        ),
        spec=spec,
        status=core.PodStatus(phase="Pending"),
    )


# Nodes


def _with_nodes(
    cluster: cluster_objects.Cluster,
    count: int,
    group: scheduling.PodGroup,
    pods: Sequence[core.Pod],
) -> tuple[cluster_objects.Cluster, str]:
    """The cluster with empty copies of the kind of node that takes most of the job's pods (if there
    are several, the most frequent kind), and a note that describes them. Raises CannotTellError."""
    if _is_bound_to_domains(group):
        raise CannotTellError(
            "its pods must share a topology domain, and the domain of new nodes is unknown"
        )
    if cluster.node_shards:
        raise CannotTellError(
            "the nodes are divided into shards, and the shard of new nodes is unknown"
        )
    if any(pod.spec.resource_claims for pod in pods):
        raise CannotTellError("its pods claim devices of a node's ResourceSlices")
    like, alike = _template(cluster, pods or (gang_pods.member(group, 0, "what-if", ""),))
    names = [f"what-if-{number}" for number in range(count)]

    def copies(objs: Iterable[meta.Object]) -> tuple[Any, ...]:
        return tuple(_renamed(each, name) for each in objs for name in names)

    same = like.metadata.name
    changed_cluster = msgspec.structs.replace(
        cluster,
        nodes=(*cluster.nodes, *copies([like])),
        csi_nodes=(
            *cluster.csi_nodes,
            *copies(each for each in cluster.csi_nodes if each.metadata.name == same),
        ),
        numa_topologies=(
            *cluster.numa_topologies,
            *copies(each for each in cluster.numa_topologies if each.metadata.name == same),
        ),
    )
    amounts = like.status.allocatable or {}
    has = ", ".join(
        f"{amounts[name]} {name}" for name in sorted(amounts) if name in _SHOWN or "/" in name
    )
    return (
        changed_cluster,
        f"{counted(count, 'empty node')} with {has}, like {alike} of the cluster's nodes",
    )


def _template(cluster: cluster_objects.Cluster, pods: Sequence[core.Pod]) -> tuple[core.Node, int]:
    """A node to copy, and the number of nodes of the same kind. O(nodes + kinds of nodes x
    pods)."""
    classes: dict[bytes, list[core.Node]] = {}
    for node in sorted(cluster.nodes, key=lambda it: it.metadata.name):
        classes.setdefault(_class_of(node), []).append(node)
    pod_counts = {
        kind: sum(_takes(members[0], pod) for pod in pods) for kind, members in classes.items()
    }
    best = max(classes, key=lambda kind: (pod_counts[kind], len(classes[kind])), default=None)
    if best is None or not pod_counts[best]:
        raise CannotTellError(
            "no node of the cluster would take one of its pods even if it were empty, so it is "
            "unknown which nodes to add"
        )
    return classes[best][0], len(classes[best])


def _class_of(node: core.Node) -> bytes:
    labels = {
        name: value for name, value in (node.metadata.labels or {}).items() if name != _HOSTNAME
    }
    parts = (labels, node.status.allocatable or {}, node.spec, taints.rejection(node, ()) == "")
    return msgspec.json.encode(parts, order="sorted")


def _takes(node: core.Node, pod: core.Pod) -> bool:
    """Whether an empty node takes the pod, by its node selector, tolerations and requests."""
    labels = node.metadata.labels or {}
    if any(labels.get(key) != value for key, value in (pod.spec.node_selector or {}).items()):
        return False
    if taints.rejection(node, pod.spec.tolerations):
        return False
    free = units.amounts(node.status.allocatable or {})
    return all(free.get(name, 0) >= amount for name, amount in quota.requests(pod.spec).items())


def _renamed(obj: meta.Object, name: str) -> Any:
    labels = obj.metadata.labels
    metadata = msgspec.structs.replace(
        obj.metadata,
        name=name,
        uid=f"{name}-{type(obj).__name__}",
        labels={**labels, _HOSTNAME: name} if labels and _HOSTNAME in labels else labels,
    )
    return msgspec.structs.replace(obj, metadata=metadata)


def _is_bound_to_domains(group: scheduling.PodGroup) -> bool:
    parts = (
        group.spec.network_topology,
        *(it.network_topology for it in group.spec.sub_group_policy),
    )
    return any(each is not None and each.mode != "soft" for each in parts)
