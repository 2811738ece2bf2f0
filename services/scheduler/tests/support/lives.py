"""What the scheduler's state machine compares and creates."""

import msgspec

from services.scheduler.tests.support.harness import POLICY
from stromboli.scheduler.core import schedule
from stromboli.scheduler.core.cache import cluster_cache, unschedulable
from stromboli.scheduler.core.model import resource_vectors
from stromboli.shared import envelope, keys, topics
from stromboli.shared.api import core, scheduling
from stromboli.shared.messages import cluster, plans
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders


def planned_gang(
    name: str, version: int, minimum: int, count: int, cpu: str
) -> tuple[scheduling.PodGroup, plans.PodsPlanned]:
    """A PodGroup of a job, and the plan of its pods."""
    job = builders.make_job(name)
    marks = {keys.JOB_VERSION: "0"}
    group = builders.make_pod_group(
        name, minimum, phase="Pending", version=version, owner=job, annotations=marks
    )
    template = builders.make_pod("", name, cpu=cpu, task="w", index=0, owner=job, annotations=marks)
    unborn = msgspec.structs.replace(template.metadata, uid="", creation_timestamp=None)
    template = msgspec.structs.replace(template, metadata=unborn)
    task = plans.PlannedTask(task="w", prefix=f"{name}-w", replicas=count, template=template)
    plan = plans.PodsPlanned(
        pod_group=group.metadata.key,
        job=job.metadata.key,
        job_uid=job.metadata.uid,
        version=0,
        digest=plans.digest_of(job.metadata.uid, 0, (task,)),
        tasks=(task,),
    )
    return group, plan


def unreadable(pod: core.Pod) -> cluster.Unreadable:
    """The monitor's record of a pod of which it can read no more than its node."""
    return cluster.Unreadable(
        uid=pod.metadata.uid,
        resource_version=pod.metadata.resource_version,
        reason="it is too large",
        node=pod.spec.node_name,
    )


def decision_of(record: envelope.Record) -> str:
    """The id of the decision that a record publishes, also again."""
    statement = envelope.decode(record)
    assert isinstance(statement, messages.StatementDecided)
    return statement.decision or record.id


def claims_of(pod: core.Pod) -> list[str]:
    """Keys of the claims that the pod names."""
    names = [each.resource_claim_name or "" for each in pod.spec.resource_claims]
    names += [
        each.persistent_volume_claim.claim_name
        for each in pod.spec.volumes
        if each.persistent_volume_claim is not None
    ]
    return [f"{pod.metadata.namespace}/{name}" for name in names]


def remembered(records: list[envelope.Record]) -> list[envelope.Record]:
    """What a restart reads: the last record of a key, and the log from the low-water marks."""
    last: dict[tuple[str, str], envelope.Record] = {}
    begin = {topics.DECISIONS.name: 0, topics.OUTCOMES.name: 0}
    for record in records:
        if record.topic.is_compacted:
            last[record.topic.name, record.key] = record
        elif record.key == messages.SESSION_KEY:
            message = envelope.decode(record)
            assert isinstance(message, messages.SessionRecorded)
            begin = {
                topics.DECISIONS.name: message.unconfirmed_from,
                topics.OUTCOMES.name: message.outcomes_from,
            }
    kept = set(map(id, last.values()))
    return [
        record
        for record in records
        if id(record) in kept
        or (not record.topic.is_compacted and record.offset >= begin[record.topic.name])
    ]


def settled(cache: cluster_cache.ClusterCache) -> cluster_cache.ClusterCache:
    """The cache, which has read all topics to their ends: what is absent is gone."""
    cache.settle()
    return cache


def seen_in(cache: cluster_cache.ClusterCache) -> dict[str, object]:
    """Everything of a cache that a decision depends on, in terms that do not depend on order."""
    model = cache.model
    model.settle()
    nodes, names = model.nodes, model.resources.names

    def named(values: resource_vectors.Vector | resource_vectors.Sum) -> dict[str, int]:
        return {name: int(value) for name, value in zip(names, values, strict=True) if value}

    return {
        "nodes": {
            name: (
                bool(nodes.labelled.usable[row]),
                named(nodes.allocatable[:, row]),
                named(nodes.used[:, row]),
            )
            for row, name in enumerate(nodes.names)
        },
        "gangs": {
            key: {task.key: (task.uid, str(task.status), task.node) for task in job.tasks.values()}
            for key, job in model.jobs.items()
        },
        "waiting": cache.waiting,
        "promised": {
            name: named(totals.inqueue) for name, totals in model.queue_usage.queues.items()
        },
        "unanswered": cache.unanswered(),
    }


def decided_on(cache: cluster_cache.ClusterCache) -> tuple[object, ...]:
    """When all gangs are evaluated again."""
    decided = schedule.run_session(cache, builders.NOON + unschedulable.RETRY_INTERVAL, POLICY)
    explained = {**cache.explained, **decided.explanations}
    known = {key: each for key, each in explained.items() if each is not None}
    return (by_content(decided), known, decided.orders)


def by_content(decided: schedule.SessionResult) -> list[messages.StatementDecided]:
    return [msgspec.structs.replace(known, session=0) for known in decided.decisions]
