"""Dry run of a job: the controller's pods and the scheduler's sessions over a snapshot of a
cluster. Nothing is written.

The job's PodGroup and pods are created as the controller creates them, last in their queue. A first
session decides; its decisions are applied to the snapshot, and a second session explains the gangs
that are still pending.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from stromboli.cli.commands.jobs.job_check import DryRunResult
from stromboli.controller.core.pod_groups import pod_groups
from stromboli.controller.core.pods import pods
from stromboli.controller.core.store import controller_cache, event_history
from stromboli.controller.core.tasks import tasks
from stromboli.embedded import scheduler_file
from stromboli.scheduler import discovery
from stromboli.scheduler.core import policy, schedule
from stromboli.scheduler.core.cache import cluster_cache, subscriptions
from stromboli.shared import decoding, envelope, keys
from stromboli.shared.api import batch, core, kinds, meta, scheduling
from stromboli.shared.jobspec import quota, quota_scopes
from stromboli.shared.messages import scheduling as messages

UID = "trial"
"""A placeholder for the uid of the job, which is assigned at its creation."""
_PATIENT = schedule.CREATION_GRACE + timedelta(seconds=1)
"""Virtual time between the two sessions: gangs that have been pending for less time are not
explained."""


class _Named(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str


def dry_run_job(
    items: Sequence[bytes | msgspec.Raw], document: bytes, configuration: str | None, now: datetime
) -> DryRunResult:
    """Return the decision about a job in a cluster of these objects.

    ``document``: the job with the defaults that admission sets. ``configuration``: the scheduler's
    configuration file, None for the built-in one. Raises CommandError for an invalid file. Costs
    two sessions.
    """
    loaded = scheduler_file.read(configuration)
    registry = discovery.discover_plugins()
    by = policy.Policy(configured=loaded.configuration)
    scheduler_cache = cluster_cache.ClusterCache(
        by.scheduler_names, loaded.configuration.default_queue
    )
    scheduler_cache.sessions_may_evict = bool(
        policy.EVICTING_ACTIONS.intersection(loaded.configuration.actions)
    )
    objs = [_decoded(item) for item in items]
    job = kinds.JOBS.decode(document)
    job = msgspec.structs.replace(
        job,
        metadata=msgspec.structs.replace(job.metadata, uid=UID, creation_timestamp=now),
        status=batch.JobStatus(),
    )
    classes = [each for each in objs if isinstance(each, core.PriorityClass)]
    alone = controller_cache.ControllerCache(
        [job.spec.scheduler_name], event_history.EventHistory()
    )
    for one in classes:
        alone.observe(kinds.PRIORITY_CLASSES, one)
    job_objects = _create_objects(alone, job, classes, now)
    for offset, each in enumerate([*objs, *job_objects]):
        scheduler_cache.apply(_record(each, offset, now))
    scheduler_cache.request_session(UID)
    first = schedule.run_session(scheduler_cache, now, by, find=registry.find)
    group = f"{job.metadata.namespace}/{pods.group_name(job)}"
    own = next((each for each in first.decisions if each.pod_group == group), None)
    for offset, statement in enumerate(first.decisions):
        scheduler_cache.assume(f"{UID}/{offset}", offset, statement)
    _apply_decisions(scheduler_cache, first)
    second = schedule.run_session(scheduler_cache, now + _PATIENT, by, find=registry.find)
    _apply_decisions(scheduler_cache, second)
    explained = scheduler_cache.explained.get(group)
    return DryRunResult(
        pod_group=group,
        pods=len(job_objects) - 1,
        nodes=_nodes(own),
        evicted=tuple(f"{one.namespace}/{one.pod}" for one in own.evictions) if own else (),
        explained=explained,
        in_front=scheduler_cache.ordered.in_front(job.spec.queue, group),
        configuration=loaded.origin,
        complaints=(*loaded.warnings, *first.complaints),
        quotas=tuple(_exceeded_quotas(job, job_objects, objs, alone)),
    )


def _exceeded_quotas(
    job: batch.Job,
    job_objects: Sequence[scheduling.PodGroup | core.Pod],
    objs: Sequence[meta.Object],
    scheduler_cache: controller_cache.ControllerCache,
) -> Iterator[str]:
    """Yield the quotas of the namespace that the job's minimum gang would exceed."""
    specs = {
        pod.metadata.annotation(keys.TASK_SPEC): pod.spec
        for pod in job_objects
        if isinstance(pod, core.Pod)
    }
    gang = [
        (specs[task], count)
        for task, count in pod_groups.smallest(scheduler_cache, job).items()
        if count
    ]
    for each in objs:
        is_near = each.metadata.namespace == job.metadata.namespace
        if not isinstance(each, core.ResourceQuota) or not is_near:
            continue
        needs, used = quota_scopes.needs(each.spec, gang), each.status.used or {}
        for name, limit in sorted((each.spec.hard or {}).items()):
            needed, usage = needs.get(name, 0), used.get(name, 0)
            if needed and quota.amount(name, usage) + needed > quota.amount(name, limit):
                yield (
                    f"quota {each.metadata.name}: {name}: needs {quota.text(name, needed)}, "
                    f"{usage} of {limit} are used"
                )


def _create_objects(
    alone: controller_cache.ControllerCache,
    job: batch.Job,
    classes: Sequence[core.PriorityClass],
    now: datetime,
) -> list[scheduling.PodGroup | core.Pod]:
    """Return the PodGroup and the pods as the controller creates and the API server defaults
    them.
    """
    group = kinds.POD_GROUPS.decode(pod_groups.create(alone, job).body)
    objects: list[scheduling.PodGroup | core.Pod] = [_stored(group, now)]
    for member in tasks.Members(job):
        pod = _stored(kinds.PODS.decode(pods.create(job, member).body), now)
        spec = msgspec.structs.replace(pod.spec, priority=_priority(pod, classes))
        status = core.PodStatus(phase="Pending")
        objects.append(msgspec.structs.replace(pod, spec=spec, status=status))
    return objects


def _priority(pod: core.Pod, classes: Sequence[core.PriorityClass]) -> int:
    """Return the priority that the API server resolves."""
    named = pod.spec.priority_class_name
    return next(
        (
            each.value
            for each in classes
            if each.metadata.name == named or (not named and each.global_default)
        ),
        0,
    )


def _stored(api_object: Any, now: datetime) -> Any:
    metadata = msgspec.structs.replace(
        api_object.metadata,
        uid=f"{UID}-{api_object.metadata.name}",
        resource_version="1",
        creation_timestamp=now,
    )
    return msgspec.structs.replace(api_object, metadata=metadata)


def _decoded(item: bytes | msgspec.Raw) -> meta.Object:
    named = decoding.from_json(item, _Named)
    return kinds.BY_NAME[named.api_version, named.kind].decode(item)


def _record(obj: meta.Object, offset: int, now: datetime) -> envelope.Record:
    """Return the record that the monitor would publish."""
    topic = next(topic for topic in subscriptions.TOPICS if type(obj) in topic.messages)
    key = obj.metadata.key
    draft = envelope.Draft(topic=topic, key=key, message=obj, time=now)
    headers, value = envelope.seal(draft, UID, 0, offset, cluster_name="default")
    return envelope.Record(topic, offset, key, value, headers)


def _apply_decisions(
    scheduler_cache: cluster_cache.ClusterCache, decided: schedule.SessionResult
) -> None:
    for key, explained in decided.explanations.items():
        scheduler_cache.record_explanation(key, explained)
    for order in decided.orders:
        scheduler_cache.record_explanation(
            messages.queue_order_key(order.queue, order.chunk), order
        )


def _nodes(own: messages.StatementDecided | None) -> dict[str, int]:
    counts: dict[str, int] = {}
    for bind in own.binds if own else ():
        counts[bind.node] = counts.get(bind.node, 0) + 1
    return dict(sorted(counts.items()))
