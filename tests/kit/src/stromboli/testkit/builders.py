"""Objects and records for tests: name only what matters to the rule under test.

Uids derive from kind and name, so the same call returns an equal object; ``generation=2`` returns a
later object of the same name. Objects have resourceVersion 1 and were created at ``NOON`` by
default.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from stromboli.shared import envelope, keys, topics
from stromboli.shared.api import batch, core, flow, kinds, meta, reservation, scheduling
from stromboli.shared.messages import scheduling as messages

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""Creation time of all objects in tests, unless given."""

SCHEDULER = "volcano"
"""The scheduler name in existing manifests of users."""

Resources = Mapping[str, core.Quantity]


def make_meta(
    kind: str,
    name: str,
    namespace: str = "",
    *,
    version: int = 1,
    generation: int = 1,
    created: datetime = NOON,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: meta.Object | None = None,
    deleting: datetime | None = None,
) -> meta.ObjectMeta:
    """Metadata with the fields that an API server sets."""
    uid = f"{kind}-{namespace}-{name}" if namespace else f"{kind}-{name}"
    return meta.ObjectMeta(
        name=name,
        namespace=namespace,
        uid=uid if generation == 1 else f"{uid}-{generation}",
        resource_version=str(version),
        creation_timestamp=created,
        deletion_timestamp=deleting,
        labels=dict(labels) if labels else None,
        annotations=dict(annotations) if annotations else None,
        owner_references=() if owner is None else (_owned_by(owner),),
    )


def make_node(
    name: str = "n1",
    cpu: core.Quantity = "8",
    memory: core.Quantity = "32Gi",
    *,
    pods: int = 110,
    extra: Resources | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[core.Taint] = (),
    unschedulable: bool = False,
    version: int = 1,
    generation: int = 1,
) -> core.Node:
    """A node whose whole capacity is allocatable. ``extra``: further resources, such as GPUs."""
    resources = {"cpu": cpu, "memory": memory, "pods": pods, **(extra or {})}
    return core.Node(
        metadata=make_meta("node", name, version=version, generation=generation, labels=labels),
        spec=core.NodeSpec(unschedulable=unschedulable, taints=tuple(taints)),
        status=core.NodeStatus(capacity=resources, allocatable=resources),
    )


def make_container(
    cpu: core.Quantity | None = None,
    memory: core.Quantity | None = None,
    *,
    extra: Resources | None = None,
    restart_policy: str | None = None,
) -> core.Container:
    """A container with these requests. ``restart_policy="Always"``: a sidecar."""
    requests = dict(extra or {})
    if cpu is not None:
        requests["cpu"] = cpu
    if memory is not None:
        requests["memory"] = memory
    return core.Container(
        name="main",
        image="busybox",
        resources=core.ResourceRequirements(requests=requests),
        restart_policy=restart_policy,
    )


def make_pod(
    name: str = "p1",
    group: str | None = None,
    *,
    namespace: str = "default",
    cpu: core.Quantity | None = "1",
    memory: core.Quantity | None = "1Gi",
    extra: Resources | None = None,
    containers: Sequence[core.Container] | None = None,
    init_containers: Sequence[core.Container] = (),
    overhead: Resources | None = None,
    node: str = "",
    phase: str = "Pending",
    scheduler: str = SCHEDULER,
    task: str = "",
    index: int | None = None,
    priority: int | None = None,
    node_selector: Mapping[str, str] | None = None,
    affinity: core.Affinity | None = None,
    tolerations: Sequence[core.Toleration] = (),
    gates: Sequence[str] = (),
    decision: str = "",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    owner: meta.Object | None = None,
    version: int = 1,
    generation: int = 1,
    created: datetime = NOON,
    deleting: datetime | None = None,
) -> core.Pod:
    """A pod, by default pending and unbound; ``decision`` is the id of the decision
    that bound it.
    """
    marks = {
        keys.GROUP_NAME: group or "",
        keys.TASK_SPEC: task,
        keys.TASK_INDEX: "" if index is None else str(index),
        keys.DECISION: decision,
    }
    notes = {key: value for key, value in marks.items() if value} | dict(annotations or {})
    return core.Pod(
        metadata=make_meta(
            "pod",
            name,
            namespace,
            version=version,
            generation=generation,
            created=created,
            labels=labels,
            annotations=notes,
            owner=owner,
            deleting=deleting,
        ),
        spec=core.PodSpec(
            node_name=node,
            scheduler_name=scheduler,
            node_selector=dict(node_selector) if node_selector else None,
            affinity=affinity,
            tolerations=tuple(tolerations),
            priority=priority,
            containers=tuple(
                [make_container(cpu, memory, extra=extra)] if containers is None else containers
            ),
            init_containers=tuple(init_containers),
            overhead=dict(overhead) if overhead else None,
            scheduling_gates=tuple(core.SchedulingGate(name=gate) for gate in gates),
        ),
        status=core.PodStatus(phase=phase),
    )


def make_pod_group(
    name: str = "g1",
    min_member: int = 1,
    *,
    namespace: str = "default",
    queue: str = "default",
    phase: str = "Inqueue",
    min_resources: Resources | None = None,
    min_task_member: Mapping[str, int] | None = None,
    priority_class: str = "",
    annotations: Mapping[str, str] | None = None,
    owner: meta.Object | None = None,
    version: int = 1,
    generation: int = 1,
    created: datetime = NOON,
    deleting: datetime | None = None,
) -> scheduling.PodGroup:
    """A gang that has entered its queue, unless ``phase`` is given."""
    return scheduling.PodGroup(
        metadata=make_meta(
            "podgroup",
            name,
            namespace,
            version=version,
            generation=generation,
            created=created,
            annotations=annotations,
            owner=owner,
            deleting=deleting,
        ),
        spec=scheduling.PodGroupSpec(
            min_member=min_member,
            min_task_member=dict(min_task_member) if min_task_member else None,
            queue=queue,
            priority_class_name=priority_class,
            min_resources=dict(min_resources) if min_resources else None,
        ),
        status=scheduling.PodGroupStatus(phase=phase),
    )


def make_queue(
    name: str = "default",
    *,
    weight: int = 1,
    state: str = "Open",
    parent: str = "",
    version: int = 1,
) -> scheduling.Queue:
    """A queue, by default open."""
    return scheduling.Queue(
        metadata=make_meta("queue", name, version=version),
        spec=scheduling.QueueSpec(weight=weight, parent=parent),
        status=scheduling.QueueStatus(state=state),
    )


def make_priority_class(
    name: str, value: int, *, is_default: bool = False, version: int = 1
) -> core.PriorityClass:
    """A PriorityClass."""
    return core.PriorityClass(
        metadata=make_meta("priorityclass", name, version=version),
        value=value,
        global_default=is_default,
    )


def make_task(
    name: str = "worker",
    replicas: int = 1,
    *,
    cpu: core.Quantity = "1",
    memory: core.Quantity = "1Gi",
    min_available: int | None = None,
    policies: Sequence[batch.LifecyclePolicy] = (),
    max_retry: int = 0,
    depends_on: Sequence[str] = (),
    pod_spec: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    **more: Any,
) -> batch.TaskSpec:
    """A task with pods of one container. ``pod_spec``: further fields of the pod's spec, as in
    YAML; ``more``: further fields of the task."""
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    spec = {"restartPolicy": "Never", "containers": [container], **(pod_spec or {})}
    return batch.TaskSpec(
        name=name,
        replicas=replicas,
        min_available=min_available,
        template=batch.PodTemplate(
            metadata=meta.ObjectMeta(annotations=dict(annotations) if annotations else None),
            spec=msgspec.Raw(msgspec.json.encode(spec)),
        ),
        policies=tuple(policies),
        max_retry=max_retry,
        depends_on=batch.DependsOn(name=tuple(depends_on)) if depends_on else None,
        **more,
    )


def make_job(
    name: str = "j1",
    *,
    namespace: str = "default",
    tasks: Sequence[batch.TaskSpec] | None = None,
    min_available: int | None = None,
    queue: str = "default",
    scheduler: str = SCHEDULER,
    policies: Sequence[batch.LifecyclePolicy] = (),
    plugins: Mapping[str, tuple[str, ...] | None] | None = None,
    max_retry: int = 3,
    ttl_seconds_after_finished: int | None = None,
    priority_class: str = "",
    min_success: int | None = None,
    status: batch.JobStatus | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    version: int = 1,
    generation: int = 1,
    created: datetime = NOON,
    deleting: datetime | None = None,
    **more: Any,
) -> batch.Job:
    """A job, by default with one task of one pod and with minAvailable of all pods. ``more``:
    further fields of its spec.
    """
    whole = (make_task(),) if tasks is None else tuple(tasks)
    return batch.Job(
        metadata=make_meta(
            "job",
            name,
            namespace,
            version=version,
            generation=generation,
            created=created,
            labels=labels,
            annotations=annotations,
            deleting=deleting,
        ),
        spec=batch.JobSpec(
            scheduler_name=scheduler,
            min_available=(
                sum(task.replicas for task in whole) if min_available is None else min_available
            ),
            tasks=whole,
            policies=tuple(policies),
            plugins=None if plugins is None else dict(plugins),
            queue=queue,
            max_retry=max_retry,
            ttl_seconds_after_finished=ttl_seconds_after_finished,
            priority_class_name=priority_class,
            min_success=min_success,
            **more,
        ),
        status=batch.JobStatus() if status is None else status,
    )


def make_template(name: str, job: batch.Job | None = None, *, version: int = 1) -> flow.JobTemplate:
    """A JobTemplate with a job's spec."""
    spec = msgspec.json.encode((job or make_job()).spec)
    return flow.JobTemplate(
        metadata=make_meta("jobtemplate", name, "default", version=version), spec=msgspec.Raw(spec)
    )


def make_flow(
    name: str,
    entries: Mapping[str, Sequence[str]] | Sequence[flow.Flow],
    *,
    retain: str = "",
    version: int = 1,
) -> flow.JobFlow:
    """A JobFlow. ``entries``: template -> its dependencies, or complete entries."""
    if isinstance(entries, Mapping):
        entries = [
            flow.Flow(name=it, depends_on=flow.FlowDependsOn(targets=tuple(targets)))
            for it, targets in entries.items()
        ]
    return flow.JobFlow(
        metadata=make_meta("jobflow", name, "default", version=version),
        spec=flow.JobFlowSpec(flows=tuple(entries), job_retain_policy=retain),
    )


def make_cron(
    name: str = "c",
    schedule: str = "0 * * * *",
    job: batch.Job | None = None,
    *,
    version: int = 1,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> flow.CronJob:
    """A CronJob; ``labels`` and ``annotations`` of its jobs, further fields of its spec."""
    template = flow.CronJobTemplate(
        metadata=meta.ObjectMeta(
            name="",
            labels=dict(labels) if labels else None,
            annotations=dict(annotations) if annotations else None,
        ),
        spec=msgspec.Raw(msgspec.json.encode((job or make_job()).spec)),
    )
    return flow.CronJob(
        metadata=make_meta("cronjob", name, "default", version=version),
        spec=flow.CronJobSpec(schedule=schedule, job_template=template, **spec),
    )


def make_command(
    name: str,
    action: str,
    target: meta.Object,
    *,
    namespace: str = "default",
    version: int = 1,
) -> batch.Command:
    """A user's Command for ``target``."""
    return batch.Command(
        metadata=make_meta("command", name, namespace, version=version),
        action=action,
        target=_owned_by(target),
    )


def make_reservation(
    name: str, start: datetime, length: timedelta, *nodes: str, version: int = 1, **spec: Any
) -> reservation.AdvanceReservation:
    """A reservation of these nodes, by default of all, for maintenance unless ``spec`` says who
    may use them.
    """
    principals = {"users", "groups", "namespaces", "queues"}
    usual: dict[str, Any] = {"start_time": start, "end_time": start + length, "node_names": nodes}
    usual |= {"maintenance": principals.isdisjoint(spec), "all_nodes": not nodes}
    return reservation.AdvanceReservation(
        metadata=make_meta("advancereservation", name, version=version),
        spec=reservation.AdvanceReservationSpec(**{**usual, **spec}),
    )


def make_explanation(
    pod_group: str, uid: str = "u", members: int = 1, **fields: Any
) -> messages.PodGroupExplained:
    """The explanation of a pending gang with this number of pods, none of which runs or
    is placed.
    """
    usual = {"queue": "default", "phase": "Pending", "tier": "enqueue", "message": ""}
    counts = {"min_member": members, "members": members, "running": 0, "pending": members}
    return messages.PodGroupExplained(
        pod_group=pod_group, pod_group_uid=uid, **{**usual, **counts, "placeable": 0, **fields}
    )


def kind_of(obj: meta.Object) -> kinds.Kind[Any]:
    """The Kind of an object."""
    return next(kind for kind in kinds.WATCHED if kind.struct is type(obj))


def snapshot_of(obj: meta.Object) -> envelope.Draft:
    """The monitor's draft of an object."""
    topic = topics.SNAPSHOTS[kind_of(obj)]
    return envelope.Draft(topic=topic, key=obj.metadata.key, message=obj, time=NOON)


def tombstone_of(obj: meta.Object) -> envelope.Draft:
    """The monitor's tombstone of an object."""
    return envelope.Draft(
        topic=topics.SNAPSHOTS[kind_of(obj)],
        key=obj.metadata.key,
        message=None,
        time=NOON,
        object_uid=obj.metadata.uid,
        object_version=obj.metadata.resource_version,
    )


def make_record(
    draft: envelope.Draft,
    offset: int = 0,
    *,
    epoch: int = 0,
    sequence: int | None = None,
    cluster_name: str = "default",
) -> envelope.Record:
    """The record that readers get for a draft at ``offset`` of its topic."""
    writer = draft.topic.writer or "test"
    headers, value = envelope.seal(
        draft,
        writer,
        epoch,
        offset if sequence is None else sequence,
        cluster_name=cluster_name,
    )
    return envelope.Record(draft.topic, offset, draft.key, value, headers)


def undecodable_record(topic: topics.Topic, key: str, offset: int = 0) -> envelope.Record:
    """A record whose value cannot be decoded."""
    headers = {"ce_id": f"{topic.writer}/0/{offset}", "ce_type": "stromboli.test.garbled.v1"}
    return envelope.Record(topic, offset, key, b"{", headers)


def _owned_by(owner: meta.Object) -> meta.OwnerReference:
    kind = kind_of(owner)
    return meta.OwnerReference(
        api_version=kind.api_version,
        kind=kind.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
