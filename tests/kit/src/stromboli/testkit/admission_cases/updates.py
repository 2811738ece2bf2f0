"""Updates of objects, for the cases of admission: path of the violation ("" passes), before, after.

An object with a name of ``admission_cases.WORLD`` has that state before the update.
"""

from typing import Any

from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.api.kinds import Kind
from stromboli.testkit.admission_cases.manifests import (
    Document,
    annotated,
    cron,
    flow,
    hyper_node,
    job,
    member,
    queue,
    task,
    template,
)


def _tasks(*tasks: Document, **spec: Any) -> Document:
    return job(tasks=list(tasks), **{"minAvailable": 0, **spec})


JOB_CHANGES: dict[str, tuple[str, Document]] = {
    "scaled": ("", _tasks(task(replicas=5, minAvailable=1), minAvailable=1)),
    "a-gang-of-any-size": ("", job(minAvailable=0)),
    "more-pods-than-a-job-may-have": ("spec.tasks", _tasks(task(replicas=100_001))),
    "another-priority": ("", job(priorityClassName="high")),
    "another-time-limit": ("", job(activeDeadlineSeconds=60, runningEstimate="60s")),
    "another-queue": ("", job(queue="child")),
    "anothers-job": ("spec.schedulerName", job(schedulerName="default-scheduler")),
    "another-number-of-tries": ("spec.maxRetry", job(maxRetry=9)),
    "more-than-there-are": ("spec.minAvailable", job(minAvailable=9)),
    "a-task-more": ("spec.tasks", _tasks(task(), task(name="b"), minAvailable=2)),
    "a-task-of-more-at-least-than-at-all": (
        "spec.tasks[0].minAvailable",
        _tasks(task(minAvailable=3), minAvailable=2),
    ),
    "another-template": ("spec.tasks", job(tasks=[task(template=template(image="other"))])),
    "other-plugins": ("spec.plugins", job(plugins={"env": []})),
    "another-time-to-live": ("spec.ttlSecondsAfterFinished", job(ttlSecondsAfterFinished=1)),
    "other-policies": (
        "spec.policies",
        job(policies=[{"action": "AbortJob", "event": "PodFailed"}]),
    ),
}
"""Updates of the plain job."""


def _with_volume(**volume: Any) -> Document:
    return job(volumes=[{"mountPath": "/data", **volume}])


NEEDS_TOO_MUCH = {"spec": job(minAvailable=9)["spec"]}
CHANGES: dict[str, tuple[str, Kind[Any], Document, Document]] = {
    "to-the-name-of-the-claim-that-was-made-for-it": (
        "",
        kinds.JOBS,
        _with_volume(volumeClaim={}),
        _with_volume(volumeClaim={}, volumeClaimName="train-pvc"),
    ),
    "a-job-in-a-closed-queue": (
        "",
        kinds.JOBS,
        job(queue="closed"),
        job(queue="closed", priorityClassName="high"),
    ),
    "to-fewer-indexes": (
        "",
        kinds.JOBS,
        job(array={"indexes": "0-9"}),
        job(array={"indexes": "0-9", "cancelled": "3,7-9"}),
    ),
    "to-other-indexes": (
        "spec.array",
        kinds.JOBS,
        job(array={"indexes": "0-9"}),
        job(array={"indexes": "0-8"}),
    ),
    "to-another-weight": (
        "",
        kinds.QUEUES,
        queue("level5", parent="level4"),
        queue("level5", parent="level4", weight=2),
    ),
    "to-a-place-where-all-below-it-fit": (
        "",
        kinds.QUEUES,
        queue("level3", parent="level2"),
        queue("level3", parent="child"),
    ),
    "to-a-negative-capability": (
        "spec.capability.cpu",
        kinds.QUEUES,
        queue("level5", parent="level4"),
        queue("level5", parent="level4", capability={"cpu": "-1"}),
    ),
    "to-another-schedule": ("", kinds.CRON_JOBS, cron(), cron("@daily")),
    "of-a-cron-whose-template-is-wrong-already": (
        "",
        kinds.CRON_JOBS,
        cron(jobTemplate=NEEDS_TOO_MUCH),
        cron(jobTemplate=NEEDS_TOO_MUCH, suspend=True),
    ),
    "to-no-schedule": ("spec.schedule", kinds.CRON_JOBS, cron(), cron("* * * *")),
    "to-another-order": ("", kinds.JOB_FLOWS, flow(a=[], b=["a"]), flow(a=[], b=[])),
    "to-an-unknown-target": (
        "spec.flows[1].dependsOn.targets[0]",
        kinds.JOB_FLOWS,
        flow(a=[], b=["a"]),
        flow(a=[], b=["c"]),
    ),
    "to-two-members": (
        "",
        kinds.HYPER_NODES,
        hyper_node(member(exactMatch={"name": "n1"})),
        hyper_node(member(exactMatch={"name": "n1"}), member(exactMatch={"name": "n2"})),
    ),
    "to-no-members": (
        "spec.members",
        kinds.HYPER_NODES,
        hyper_node(member(exactMatch={"name": "n1"})),
        hyper_node(),
    ),
}
CONTEXT_CHANGES: dict[str, tuple[str, Kind[Any], Document, Document]] = {
    "to-another-claim": (
        "spec.volumes",
        kinds.JOBS,
        _with_volume(volumeClaimName="a"),
        _with_volume(volumeClaimName="b"),
    ),
    "to-none-of-its-indexes": (
        "spec.array.cancelled",
        kinds.JOBS,
        job(array={"indexes": "0-9"}),
        job(array={"indexes": "0-9", "cancelled": "0-9"}),
    ),
    "to-an-index-that-it-does-not-have": (
        "spec.array.cancelled",
        kinds.JOBS,
        job(array={"indexes": "0-9"}),
        job(array={"indexes": "0-9", "cancelled": "10"}),
    ),
    "to-a-closed-queue": ("spec.queue", kinds.JOBS, job(), job(queue="closed")),
    **{
        f"to-{name}": (
            f"metadata.annotations[{key}]",
            kinds.JOBS,
            job(),
            annotated(job(), key, value),
        )
        for name, key, value in (
            ("an-unknown-tool", keys.TOOLS, '[{"tool": "hammer"}]'),
            ("waiting-for-itself", keys.AFTER, "afterok:train"),
            ("anothers-name", keys.USER, "somebody-else"),
        )
    },
    "to-one-with-a-tool": (
        "",
        kinds.JOBS,
        job(),
        annotated(job(), keys.TOOLS, '[{"tool": "terminal"}]'),
    ),
    "to-less-than-its-children-deserve": (
        "spec.deserved.cpu",
        kinds.QUEUES,
        queue("parent", capability={"cpu": 8}, deserved={"cpu": 4}),
        queue("parent", capability={"cpu": 8}, deserved={"cpu": 1}),
    ),
    "to-less-than-a-queue-below-may-use": (
        "spec.capability.cpu",
        kinds.QUEUES,
        queue("parent", capability={"cpu": 8}, deserved={"cpu": 4}),
        queue("parent", capability={"cpu": 5}, deserved={"cpu": 4}),
    ),
    "to-a-place-too-deep-for-those-below-it": (
        "spec.parent",
        kinds.QUEUES,
        queue("level2", parent="parent"),
        queue("level2", parent="child"),
    ),
    "to-a-circle-of-queues": (
        "spec.parent",
        kinds.QUEUES,
        queue("level2", parent="parent"),
        queue("level2", parent="level4"),
    ),
    "to-a-circle-of-flows": (
        "spec.flows",
        kinds.JOB_FLOWS,
        flow(a=[], b=["a"]),
        flow(a=["b"], b=["a"]),
    ),
    "to-a-pattern-that-is-none": (
        "spec.members[0].selector.regexMatch.pattern",
        kinds.HYPER_NODES,
        hyper_node(member(regexMatch={"pattern": "n"})),
        hyper_node(member(regexMatch={"pattern": "n["})),
    ),
}
