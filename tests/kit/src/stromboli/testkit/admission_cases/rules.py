"""Every rule of admission as one accepted and one rejected case, for all entry points.

A case has an object, for updates the previous object, and the path of the violation ("" if it is
accepted). ``WORLD`` contains the existing queues; ``other_kinds.RACK`` is the only HyperNode. The
rules, the webhook, REST and the CEL policies are tested with the same cases.
"""

import copy
from collections.abc import Iterator
from typing import Any

import msgspec

from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.api.kinds import Kind
from stromboli.shared.jobspec.validation.review import Operation
from stromboli.testkit.admission_cases import data_sets, other_kinds, updates
from stromboli.testkit.admission_cases.manifests import (
    Document,
    annotated,
    job,
    queue,
    task,
    template,
)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A submitted object. ``refused`` is the path of its only violation, empty if it is accepted.

    ``in_cel``: the violation depends on the object alone, so a CEL policy can detect it.
    """

    name: str
    kind: Kind[Any]
    document: Document
    refused: str = ""
    before: Document | None = None
    in_cel: bool = True
    operation: Operation = "CREATE"

    def __str__(self) -> str:
        return f"{self.kind.plural}-{self.name}"


def _with_state(document: Document, state: str = "Open", **allocated: str) -> Document:
    """The queue with its state in ``WORLD``."""
    return {**document, "status": {"state": state, "allocated": allocated}}


EXISTING_OBJECTS: tuple[Document, ...] = (
    _with_state(queue("root")),
    _with_state(queue("default")),
    _with_state(queue("closed"), "Closed"),
    _with_state(queue("shut"), "Closed"),
    _with_state(queue("below-shut", parent="shut"), "Closed"),
    _with_state(queue("parent", capability={"cpu": 8}, deserved={"cpu": 4})),
    _with_state(queue("child", parent="parent", capability={"cpu": 6}, deserved={"cpu": 2})),
    _with_state(queue("level2", parent="parent")),
    _with_state(queue("level3", parent="level2")),
    _with_state(queue("level4", parent="level3")),
    _with_state(queue("level5", parent="level4")),
    _with_state(
        queue("below", annotations={keys.HIERARCHY: "root/a/b", keys.HIERARCHY_WEIGHTS: "1/1/1"})
    ),
    _with_state(queue("busy"), cpu="2", pods="2"),
    _with_state(queue("divides"), cpu="1", pods="1"),
    _with_state(queue("divided", parent="divides"), cpu="1", pods="1"),
)
"""Queues with their states."""


def job_depending_on(text: str) -> Document:
    """A job with dependencies on other jobs."""
    return annotated(job(), keys.AFTER, text)


def _tasks(*tasks: Document, **spec: Any) -> Document:
    return job(tasks=list(tasks), **{"minAvailable": 0, **spec})


PARTITIONS = {"totalPartitions": 2, "partitionSize": 2}
RESTART = {"action": "RestartJob"}
ABORT = {"action": "AbortJob"}

VALID_JOBS: dict[str, Document] = {
    "with-a-tool": annotated(job(), keys.TOOLS, '[{"tool": "terminal", "task": "work"}]'),
    "plain": job(),
    "in-a-queue-of-ones-own": job(queue="child"),
    "everything-it-may-have": job(
        policies=[{**RESTART, "event": "PodFailed"}, {**ABORT, "exitCode": 3}],
        plugins={"env": [], "svc": []},
        volumes=[{"mountPath": "/data", "volumeClaimName": "data"}],
    ),
    **data_sets.VALID,
    "any-event-and-an-exit-code": job(
        policies=[{**ABORT, "event": "*"}, {**RESTART, "exitCode": 3}]
    ),
    "tasks-that-wait-for-each-other-in-order": _tasks(
        task(name="a"), task(name="b", dependsOn={"name": ["a"]})
    ),
    "whole-partitions": _tasks(task(replicas=4, minAvailable=4, partitionPolicy=PARTITIONS)),
    "a-part-of-its-partitions-at-least": _tasks(
        task(replicas=4, minAvailable=2, partitionPolicy={**PARTITIONS, "minPartitions": 1})
    ),
    "a-task-that-the-gang-can-do-without": _tasks(task(minAvailable=0)),
    "one-event-for-the-job-and-for-a-task": _tasks(
        task(policies=[{**ABORT, "event": "PodFailed"}]),
        policies=[{**RESTART, "event": "PodFailed"}],
    ),
    "an-event-that-one-policy-names-twice": job(
        policies=[{**ABORT, "event": "PodFailed", "events": ["PodFailed", "PodEvicted"]}]
    ),
    "whole-cpus-for-numa": _tasks(task(topologyPolicy="restricted")),
    "names-as-long-as-pods-may-have": _tasks(task(name="t" * 55, replicas=10)),
    "names-as-long-in-an-array": job(
        array={"indexes": "0-9"}, minAvailable=1, tasks=[task(name="t" * 55, replicas=11)]
    ),
    "as-many-pods-as-a-job-may-have": _tasks(task(replicas=100_000)),
    "a-tier-by-number": job(networkTopology={"mode": "hard", "highestTierAllowed": 1}),
}
INVALID_JOBS: dict[str, tuple[str, Document]] = {
    "no-task": ("spec.tasks", job(tasks=[], minAvailable=0)),
    "a-bad-name": ("metadata.name", job(name="a.b")),
    "two-tasks-of-one-name": ("spec.tasks[1].name", _tasks(task(), task())),
    "a-letter-more-than-a-name-has": ("metadata.name", job(name="n" * 64)),
    "a-bad-task-name": ("spec.tasks[0].name", _tasks(task(name="a.b"))),
    "names-too-long-for-pods": ("spec.tasks[0].name", _tasks(task(name="t" * 60))),
    "a-letter-too-long-for-the-last-pod": (
        "spec.tasks[0].name",
        _tasks(task(name="t" * 55, replicas=11)),
    ),
    "more-at-least-than-at-all": ("spec.minAvailable", job(minAvailable=3)),
    "a-gang-of-none": (
        "spec.minAvailable",
        _tasks(task(replicas=0, minAvailable=0), minAvailable=1),
    ),
    "more-of-a-task-than-it-has": (
        "spec.tasks[0].minAvailable",
        _tasks(task(minAvailable=3), minAvailable=2),
    ),
    "more-pods-than-anybody-has": (
        "spec.tasks",
        _tasks(task(replicas=2_147_483_647), plugins={"svc": []}),
    ),
    "a-pod-more-than-a-job-may-have": (
        "spec.tasks",
        _tasks(task(name="a", replicas=100_000), task(name="b", replicas=1, minAvailable=1)),
    ),
    "both-tiers": ("spec.networkTopology", job(networkTopology=other_kinds.BOTH_TIERS)),
    "a-hard-wish-without-a-tier": ("spec.networkTopology", job(networkTopology={"mode": "hard"})),
    "a-part-with-a-hard-wish-without-a-tier": (
        "spec.tasks[0].partitionPolicy.networkTopology",
        _tasks(
            task(
                replicas=4,
                minAvailable=4,
                partitionPolicy={**PARTITIONS, "networkTopology": {"mode": "hard"}},
            )
        ),
    ),
    "both-tiers-of-a-partition": (
        "spec.tasks[0].partitionPolicy.networkTopology",
        _tasks(
            task(
                replicas=4,
                minAvailable=4,
                partitionPolicy={**PARTITIONS, "networkTopology": other_kinds.BOTH_TIERS},
            )
        ),
    ),
    "replicas-that-are-no-partitions": (
        "spec.tasks[0].replicas",
        _tasks(task(replicas=5, partitionPolicy=PARTITIONS)),
    ),
    "half-partitions-at-least": (
        "spec.tasks[0].minAvailable",
        _tasks(
            task(replicas=4, minAvailable=3, partitionPolicy={**PARTITIONS, "minPartitions": 2})
        ),
    ),
    "a-policy-without-an-event": ("spec.policies[0]", job(policies=[ABORT])),
    "a-policy-for-event-and-exit-code": (
        "spec.policies[0]",
        job(policies=[{**ABORT, "event": "PodFailed", "exitCode": 3}]),
    ),
    "a-policy-for-exit-code-0": (
        "spec.policies[0].exitCode",
        job(policies=[{**ABORT, "exitCode": 0}]),
    ),
    "a-policy-for-an-event-that-is-none": (
        "spec.policies[0].event",
        job(policies=[{**ABORT, "event": "OutOfSync"}]),
    ),
    "a-policy-with-an-unknown-action": (
        "spec.policies[0].action",
        job(policies=[{"action": "Explode", "event": "PodFailed"}]),
    ),
    "two-policies-for-an-event": (
        "spec.policies[1]",
        job(policies=[{**ABORT, "event": "PodFailed"}, {**RESTART, "events": ["PodFailed"]}]),
    ),
    "two-policies-for-an-exit-code": (
        "spec.policies[1].exitCode",
        job(policies=[{**ABORT, "exitCode": 3}, {**RESTART, "exitCode": 3}]),
    ),
    "any-event-beside-another": (
        "spec.policies[0]",
        job(policies=[{**ABORT, "event": "*"}, {**RESTART, "event": "PodFailed"}]),
    ),
    "a-wrong-policy-of-a-task": ("spec.tasks[0].policies[0]", _tasks(task(policies=[ABORT]))),
    "an-unknown-plugin": ("spec.plugins.magic", job(plugins={"magic": []})),
    "a-volume-mounted-twice": (
        "spec.volumes[1].mountPath",
        job(volumes=[{"mountPath": "/d", "volumeClaimName": n} for n in ("a", "b")]),
    ),
    "a-volume-without-a-claim": ("spec.volumes[0]", job(volumes=[{"mountPath": "/d"}])),
    "a-volume-with-two-claims": (
        "spec.volumes[0]",
        job(volumes=[{"mountPath": "/d", "volumeClaimName": "a", "volumeClaim": {}}]),
    ),
    **data_sets.INVALID,
}
CONTEXT_INVALID_JOBS: dict[str, tuple[str, Document]] = {
    "waiting-in-words-that-are-none": (
        f"metadata.annotations[{keys.AFTER}]",
        job_depending_on("later:other"),
    ),
    "a-tool-that-nobody-knows": (
        f"metadata.annotations[{keys.TOOLS}]",
        annotated(job(), keys.TOOLS, '[{"tool": "hammer"}]'),
    ),
    "waiting-for-itself": (
        f"metadata.annotations[{keys.AFTER}]",
        job_depending_on("afterok:train"),
    ),
    "a-tier-name-that-no-hypernode-has": (
        "spec.networkTopology",
        job(networkTopology={"mode": "hard", "highestTierName": "rock"}),
    ),
    "a-tier-below-all-hypernodes": (
        "spec.networkTopology",
        job(networkTopology={"mode": "hard", "highestTierAllowed": 0}),
    ),
    "a-part-of-an-unknown-tier": (
        "spec.tasks[0].partitionPolicy.networkTopology",
        _tasks(
            task(
                replicas=4,
                minAvailable=4,
                partitionPolicy={**PARTITIONS, "networkTopology": {"highestTierName": "rock"}},
            )
        ),
    ),
    "an-unknown-queue": ("spec.queue", job(queue="nowhere")),
    "a-closed-queue": ("spec.queue", job(queue="closed")),
    "the-root": ("spec.queue", job(queue="root")),
    "a-queue-with-children": ("spec.queue", job(queue="parent")),
    "tasks-in-a-circle": (
        "spec.tasks",
        _tasks(
            task(name="a", dependsOn={"name": ["b"]}), task(name="b", dependsOn={"name": ["a"]})
        ),
    ),
    "a-task-that-waits-for-none": (
        "spec.tasks[0].dependsOn.name",
        _tasks(task(dependsOn={"name": ["x"]})),
    ),
    "no-whole-cpus-for-numa": (
        "spec.tasks[0].topologyPolicy",
        _tasks(
            task(
                topologyPolicy="restricted",
                template=template(resources={"requests": {"cpu": "1500m"}}),
            )
        ),
    ),
    "a-container-without-an-image": (
        "spec.tasks[0].template.spec.containers[0].image",
        _tasks(task(template=template(image=" "))),
    ),
    "a-mount-of-no-volume": (
        "spec.tasks[0].template.spec.containers[0].volumeMounts[0].name",
        _tasks(task(template=template(volumeMounts=[{"name": "data", "mountPath": "/data"}]))),
    ),
    "a-label-that-is-none": (
        "spec.tasks[0].template.metadata.labels[my app]",
        _tasks(task(template={**template(), "metadata": {"labels": {"my app": "x"}}})),
    ),
    "no-partitions": (
        "spec.tasks[0].partitionPolicy.partitionSize",
        _tasks(task(partitionPolicy={"totalPartitions": 2, "partitionSize": 0})),
    ),
    "a-volume-without-a-path": (
        "spec.volumes[0].mountPath",
        job(volumes=[{"mountPath": "", "volumeClaimName": "data"}]),
    ),
    "a-claim-that-has-no-name": (
        "spec.volumes[0].volumeClaimName",
        job(volumes=[{"mountPath": "/d", "volumeClaimName": "A_b"}]),
    ),
    "mpi-without-its-master": ("spec.plugins.mpi", job(plugins={"mpi": [], "svc": []})),
    **data_sets.CONTEXT_INVALID,
}
"""Cases that are rejected because of other objects, or by a rule that CEL cannot express."""
VALID_QUEUES: dict[str, Document] = {
    "plain": queue("team"),
    "with-amounts": queue(
        "team", capability={"cpu": 4}, deserved={"cpu": 2}, guarantee={"resource": {"cpu": "1500m"}}
    ),
    "that-deserves-no-more-than-it-must-nor-less-than-it-may": queue(
        "team",
        capability={"cpu": 2, "memory": 0, "nvidia.com/gpu": "2"},
        deserved={"cpu": 2},
        guarantee={"resource": {"cpu": 2}},
    ),
    "below-a-parent": queue("team", parent="parent", capability={"cpu": 8}, deserved={"cpu": 2}),
    "below-one-whose-pods-are-its-childrens": queue("team", parent="divides"),
}
INVALID_QUEUES: dict[str, tuple[str, Document]] = {
    "a-negative-capability": ("spec.capability.cpu", queue("team", capability={"cpu": "-1"})),
    "half-a-device": (
        "spec.capability.nvidia.com/gpu",
        queue("team", capability={"nvidia.com/gpu": "500m"}),
    ),
    "a-guarantee-that-it-does-not-deserve": (
        "spec.deserved.cpu",
        queue("team", guarantee={"resource": {"cpu": "1"}}),
    ),
    "deserves-more-than-it-may-have": (
        "spec.deserved.cpu",
        queue("team", deserved={"cpu": "2"}, capability={"cpu": "1"}),
    ),
    "fewer-weights-than-parts": (
        f"metadata.annotations[{keys.HIERARCHY_WEIGHTS}]",
        queue("team", annotations={keys.HIERARCHY: "root/x", keys.HIERARCHY_WEIGHTS: "1"}),
    ),
    "parts-without-weights": (
        f"metadata.annotations[{keys.HIERARCHY_WEIGHTS}]",
        queue("team", annotations={keys.HIERARCHY: "root/x"}),
    ),
    "weights-without-parts": (
        f"metadata.annotations[{keys.HIERARCHY_WEIGHTS}]",
        queue("team", annotations={keys.HIERARCHY_WEIGHTS: "1/2"}),
    ),
    "a-weight-that-is-none": (
        f"metadata.annotations[{keys.HIERARCHY_WEIGHTS}]",
        queue("team", annotations={keys.HIERARCHY: "root/x", keys.HIERARCHY_WEIGHTS: "1/0"}),
    ),
    "a-weight-that-is-no-number": (
        f"metadata.annotations[{keys.HIERARCHY_WEIGHTS}]",
        queue("team", annotations={keys.HIERARCHY: "root/x", keys.HIERARCHY_WEIGHTS: "1/x"}),
    ),
    "its-own-parent": ("spec.parent", queue("team", parent="team")),
}
CONTEXT_INVALID_QUEUES: dict[str, tuple[str, Document]] = {
    "a-bad-name": ("metadata.name", queue("a_b")),
    "no-such-parent": ("spec.parent", queue("team", parent="nowhere")),
    "below-one-that-runs-pods": ("spec.parent", queue("team", parent="busy")),
    "too-deep": ("spec.parent", queue("team", parent="level5")),
    "more-than-its-parent-may-have": (
        "spec.capability.cpu",
        queue("team", parent="parent", capability={"cpu": 9}),
    ),
    "more-than-one-further-above-may-have": (
        "spec.capability.cpu",
        queue("team", parent="level3", capability={"cpu": 9}),
    ),
    "guaranteed-what-its-parent-is-not": (
        "spec.guarantee.resource.cpu",
        queue("team", parent="parent", deserved={"cpu": 1}, guarantee={"resource": {"cpu": 1}}),
    ),
    "more-than-its-parent-has-left": (
        "spec.deserved.cpu",
        queue("team", parent="parent", deserved={"cpu": 3}),
    ),
    "above-another-queue": (
        f"metadata.annotations[{keys.HIERARCHY}]",
        queue("team", annotations={keys.HIERARCHY: "root/a", keys.HIERARCHY_WEIGHTS: "1/1"}),
    ),
}


def all_cases() -> Iterator[Case]:
    """All cases of this module, of ``updates`` and of ``other_kinds``."""
    for kind, right, wrong, around in (
        (kinds.JOBS, VALID_JOBS, INVALID_JOBS, CONTEXT_INVALID_JOBS),
        (kinds.QUEUES, VALID_QUEUES, INVALID_QUEUES, CONTEXT_INVALID_QUEUES),
    ):
        for name, document in right.items():
            yield Case(name=name, kind=kind, document=document)
        for name, (path, document) in wrong.items():
            yield Case(name=name, kind=kind, document=document, refused=path)
        for name, (path, document) in around.items():
            yield Case(name=name, kind=kind, document=document, refused=path, in_cel=False)
    for name, (path, document) in updates.JOB_CHANGES.items():
        yield Case(
            name=f"changed-to-{name}",
            kind=kinds.JOBS,
            document=document,
            before=job(),
            refused=path,
            operation="UPDATE",
        )
    for in_cel, changes in (
        (True, updates.CHANGES),
        (False, updates.CONTEXT_CHANGES),
    ):
        for name, (path, kind, before, document) in changes.items():
            yield Case(
                name=f"changed-{name}",
                kind=kind,
                document=document,
                before=before,
                refused=path,
                operation="UPDATE",
                in_cel=in_cel,
            )
    yield Case(
        name="the-roots-resources",
        kind=kinds.QUEUES,
        document=queue("root", capability={"cpu": 1}),
        before=queue("root"),
        refused="spec.capability",
        operation="UPDATE",
    )
    for name in ("default", "root", "parent", "closed"):
        yield Case(
            name=f"{name}-is-deleted",
            kind=kinds.QUEUES,
            document=queue(name),
            refused="" if name == "closed" else "metadata.name",
            operation="DELETE",
            in_cel=name != "parent",
        )
    for in_cel, table in (
        (True, other_kinds.OTHER_KINDS),
        (False, other_kinds.CONTEXT_OTHER_KINDS),
    ):
        for kind, found in table.items():
            for name, (path, document) in found.items():
                yield Case(name=name, kind=kind, document=document, refused=path, in_cel=in_cel)


CASES = tuple(copy.deepcopy(list(all_cases())))
