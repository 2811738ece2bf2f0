"""Every rule of admission as a case that passes and one that does not, for every way in.

A case is an object, what it changes if it is an update, and the path that is refused ("" passes).
``WORLD`` are the queues around it, ``RACK`` the only HyperNode. The same cases are asked of the
rules, the webhook, REST and the policies in CEL.
"""

import copy
from collections.abc import Iterator
from typing import Any

import msgspec

from stromboli.shared import keys
from stromboli.shared.admission.review import Operation
from stromboli.shared.api import kinds
from stromboli.shared.api.kinds import Kind
from stromboli.testkit import admission_changes
from stromboli.testkit.admission_documents import (
    Document,
    command,
    cron,
    flow,
    hyper_node,
    job,
    made,
    member,
    pod,
    pod_group,
    queue,
    task,
    template,
)

JDB_MIN = keys.JDB_MIN_AVAILABLE
JDB_MAX = keys.JDB_MAX_UNAVAILABLE


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """An object on its way in. ``refused`` is the path of its one violation, empty if it passes.

    ``in_cel``: the object alone shows it, so a policy in CEL says the same.
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


WORLD: tuple[tuple[Document, str], ...] = (
    (queue("root"), "Open"),
    (queue("default"), "Open"),
    (queue("closed"), "Closed"),
    (queue("shut"), "Closed"),
    (queue("below-shut", parent="shut"), "Closed"),
    (queue("parent", capability={"cpu": 8}, deserved={"cpu": 4}), "Open"),
    (queue("child", parent="parent", deserved={"cpu": 2}), "Open"),
    (queue("level2", parent="parent"), "Open"),
    (queue("level3", parent="level2"), "Open"),
    (queue("level4", parent="level3"), "Open"),
    (queue("level5", parent="level4"), "Open"),
    (queue("below", annotations={keys.HIERARCHY: "root/a/b"}), "Open"),
)
"""Queues with their states."""


def job_after(text: str) -> Document:
    """The job, which waits for others."""
    document = job()
    document["metadata"]["annotations"] = {keys.AFTER: text}
    return document


def _tasks(*tasks: Document, **spec: Any) -> Document:
    return job(tasks=list(tasks), **{"minAvailable": 0, **spec})


PARTITIONS = {"totalPartitions": 2, "partitionSize": 2}
BOTH_TIERS = {"highestTierAllowed": 1, "highestTierName": "rack"}
RESTART = {"action": "RestartJob"}
ABORT = {"action": "AbortJob"}

JOBS_RIGHT: dict[str, Document] = {
    "plain": job(),
    "everything-it-may-have": job(
        policies=[{**RESTART, "event": "PodFailed"}, {**ABORT, "exitCode": 3}],
        plugins={"env": [], "svc": []},
        volumes=[{"mountPath": "/data", "volumeClaimName": "data"}],
    ),
    "any-event-and-an-exit-code": job(
        policies=[{**ABORT, "event": "*"}, {**RESTART, "exitCode": 3}]
    ),
    "tasks-that-wait-for-each-other-in-order": _tasks(
        task(name="a"), task(name="b", dependsOn={"name": ["a"]})
    ),
    "whole-partitions": _tasks(task(replicas=4, minAvailable=4, partitionPolicy=PARTITIONS)),
    "one-event-for-the-job-and-for-a-task": _tasks(
        task(policies=[{**ABORT, "event": "PodFailed"}]),
        policies=[{**RESTART, "event": "PodFailed"}],
    ),
    "an-event-that-one-policy-names-twice": job(
        policies=[{**ABORT, "event": "PodFailed", "events": ["PodFailed", "PodEvicted"]}]
    ),
    "whole-cpus-for-numa": _tasks(task(topologyPolicy="restricted")),
    "as-many-pods-as-a-job-may-have": _tasks(task(replicas=100_000)),
    "a-tier-by-number": job(networkTopology={"mode": "hard", "highestTierAllowed": 1}),
}
JOBS_WRONG: dict[str, tuple[str, Document]] = {
    "no-task": ("spec.tasks", job(tasks=[], minAvailable=0)),
    "a-bad-name": ("metadata.name", job(name="a.b")),
    "two-tasks-of-one-name": ("spec.tasks[1].name", _tasks(task(), task())),
    "a-bad-task-name": ("spec.tasks[0].name", _tasks(task(name="a.b"))),
    "names-too-long-for-pods": ("spec.tasks[0].name", _tasks(task(name="t" * 60))),
    "more-at-least-than-at-all": ("spec.minAvailable", job(minAvailable=3)),
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
    "both-tiers": ("spec.networkTopology", job(networkTopology=BOTH_TIERS)),
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
                partitionPolicy={**PARTITIONS, "networkTopology": BOTH_TIERS},
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
}
JOBS_WRONG_AROUND: dict[str, tuple[str, Document]] = {
    "waiting-in-words-that-are-none": (
        f"metadata.annotations[{keys.AFTER}]",
        job_after("later:other"),
    ),
    "waiting-for-itself": (f"metadata.annotations[{keys.AFTER}]", job_after("afterok:train")),
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
}
"""Refused by what is around the job, or by what CEL cannot say."""
QUEUES_RIGHT: dict[str, Document] = {
    "plain": queue("team"),
    "with-amounts": queue(
        "team", capability={"cpu": 4}, deserved={"cpu": 2}, guarantee={"resource": {"cpu": "1500m"}}
    ),
    "below-a-parent": queue("team", parent="parent", capability={"cpu": 8}, deserved={"cpu": 2}),
}
QUEUES_WRONG: dict[str, tuple[str, Document]] = {
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
    "a-weight-that-is-none": (
        f"metadata.annotations[{keys.HIERARCHY_WEIGHTS}]",
        queue("team", annotations={keys.HIERARCHY: "root/x", keys.HIERARCHY_WEIGHTS: "1/0"}),
    ),
    "its-own-parent": ("spec.parent", queue("team", parent="team")),
}
QUEUES_WRONG_AROUND: dict[str, tuple[str, Document]] = {
    "no-such-parent": ("spec.parent", queue("team", parent="nowhere")),
    "too-deep": ("spec.parent", queue("team", parent="level5")),
    "more-than-its-parent-may-have": (
        "spec.capability.cpu",
        queue("team", parent="parent", capability={"cpu": 9}),
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


RACK = hyper_node(member(exactMatch={"name": "n1"}), name="rack-0", tierName="rack")
OTHERS: dict[Kind[Any], dict[str, tuple[str, Document]]] = {
    kinds.POD_GROUPS: {
        "plain": ("", pod_group(queue="default")),
        "a-tier-by-name": ("", pod_group(networkTopology={"highestTierName": "rack"})),
        "both-tiers": ("spec.networkTopology", pod_group(networkTopology=BOTH_TIERS)),
        "a-hard-wish-without-a-tier": (
            "spec.networkTopology",
            pod_group(networkTopology={"mode": "hard"}),
        ),
        "a-soft-wish-without-a-tier": ("", pod_group(networkTopology={"mode": "soft"})),
        "both-tiers-of-a-part": (
            "spec.subGroupPolicy[0].networkTopology",
            pod_group(subGroupPolicy=[{"name": "a", "networkTopology": BOTH_TIERS}]),
        ),
    },
    kinds.PODS: {
        "plain": ("", pod()),
        "a-number": ("", pod(**{JDB_MIN: "2"})),
        "a-share": ("", pod(**{JDB_MAX: "30%"})),
        "of-another-scheduler": ("", pod("default-scheduler", **{JDB_MIN: "none"})),
        "no-number": (f"metadata.annotations[{JDB_MIN}]", pod(**{JDB_MIN: "some"})),
        "none-at-all": (f"metadata.annotations[{JDB_MIN}]", pod(**{JDB_MIN: "0"})),
        "all-of-them": (f"metadata.annotations[{JDB_MAX}]", pod(**{JDB_MAX: "100%"})),
        "both": ("metadata.annotations", pod(**{JDB_MIN: "1", JDB_MAX: "1"})),
    },
    kinds.JOB_FLOWS: {
        "in-order": ("", flow(a=[], b=["a"])),
        "empty": ("", flow()),
        "an-unknown-target": ("spec.flows[0].dependsOn.targets[0]", flow(a=["b"])),
        "waiting-for-itself": ("spec.flows", flow(a=["a"])),
    },
    kinds.CRON_JOBS: {
        "every-five-minutes": ("", cron()),
        "a-descriptor": ("", cron("@daily")),
        "an-interval": ("", cron("@every 1h30m")),
        "names-and-steps": ("", cron("0 8-18/2 1,15 jan-mar mon")),
        "a-time-zone": ("", cron(timeZone="Europe/Berlin")),
        "of-another-scheduler": (
            "",
            cron("* * * *", jobTemplate={"spec": job(schedulerName="other")["spec"]}),
        ),
        "no-schedule": ("spec.schedule", cron("")),
        "four-fields": ("spec.schedule", cron("* * * *")),
        "an-unknown-descriptor": ("spec.schedule", cron("@sometimes")),
        "a-time-zone-in-the-schedule": ("spec.schedule", cron("TZ=UTC * * * * *")),
        "a-time-zone-without-a-name": ("spec.timeZone", cron(timeZone="")),
        "the-local-time-zone": ("spec.timeZone", cron(timeZone="Local")),
        "a-path-as-a-time-zone": ("spec.timeZone", cron(timeZone="../etc/passwd")),
        "a-name-too-long": ("metadata.name", cron(name="n" * 53)),
    },
    kinds.HYPER_NODES: {
        "by-name": ("", hyper_node(member(exactMatch={"name": "n1"}))),
        "by-pattern": ("", hyper_node(member(regexMatch={"pattern": "^n[0-9]+$"}))),
        "no-members": ("spec.members", made(kinds.HYPER_NODES, "rack-1", spec={"tier": 1})),
    },
    kinds.COMMANDS: {
        "for-a-job": ("", command("AbortJob")),
        "for-a-queue": ("", command("CloseQueue", kinds.QUEUES)),
        "open-what-is-closed": ("", command("OpenQueue", kinds.QUEUES, "closed")),
        "for-nobody": ("target", made(kinds.COMMANDS, "wish", action="AbortJob")),
        "for-a-node": ("target.kind", command("AbortJob", kinds.NODES)),
        "for-a-podgroup": ("target.kind", command("AbortJob", kinds.POD_GROUPS)),
        "for-a-job-of-kubernetes": (
            "target.apiVersion",
            command("AbortJob", kinds.KUBERNETES_JOBS),
        ),
        "an-unknown-action": ("action", command("Explode")),
        "a-part-that-it-cannot-name": ("action", command("RestartPod")),
    },
}
OTHERS_AROUND: dict[Kind[Any], dict[str, tuple[str, Document]]] = {
    kinds.POD_GROUPS: {
        "an-unknown-tier-name": (
            "spec.networkTopology",
            pod_group(networkTopology={"mode": "hard", "highestTierName": "rock"}),
        ),
        "an-unknown-queue": ("spec.queue", pod_group(queue="nowhere")),
        "a-closed-queue": ("spec.queue", pod_group(queue="closed")),
    },
    kinds.COMMANDS: {
        "close-the-root": ("target.name", command("CloseQueue", kinds.QUEUES, "root")),
        "open-below-a-closed-one": (
            "target.name",
            command("OpenQueue", kinds.QUEUES, "below-shut"),
        ),
    },
    kinds.JOB_FLOWS: {"in-a-circle": ("spec.flows", flow(a=["b"], b=["a"]))},
    kinds.HYPER_NODES: {
        "a-pattern-that-is-none": (
            "spec.members[0].selector.regexMatch.pattern",
            hyper_node(member(regexMatch={"pattern": "n["})),
        ),
        "a-pattern-of-a-page": (
            "spec.members[0].selector.regexMatch.pattern",
            hyper_node(member(regexMatch={"pattern": "n" * 5000})),
        ),
    },
    kinds.CRON_JOBS: {
        "a-bad-name": ("metadata.name", cron(name="a_b")),
        "a-minute-that-is-none": ("spec.schedule", cron("60 * * * *")),
        "a-time-zone-that-nobody-has": ("spec.timeZone", cron(timeZone="Mars/Base")),
    },
}


def cases() -> Iterator[Case]:
    """All of them."""
    for kind, right, wrong, around in (
        (kinds.JOBS, JOBS_RIGHT, JOBS_WRONG, JOBS_WRONG_AROUND),
        (kinds.QUEUES, QUEUES_RIGHT, QUEUES_WRONG, QUEUES_WRONG_AROUND),
    ):
        for name, document in right.items():
            yield Case(name=name, kind=kind, document=document)
        for name, (path, document) in wrong.items():
            yield Case(name=name, kind=kind, document=document, refused=path)
        for name, (path, document) in around.items():
            yield Case(name=name, kind=kind, document=document, refused=path, in_cel=False)
    for name, (path, document) in admission_changes.JOB_CHANGES.items():
        yield Case(
            name=f"changed-to-{name}",
            kind=kinds.JOBS,
            document=document,
            before=job(),
            refused=path,
            operation="UPDATE",
        )
    for in_cel, changes in (
        (True, admission_changes.CHANGES),
        (False, admission_changes.CHANGES_AROUND),
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
    for in_cel, table in ((True, OTHERS), (False, OTHERS_AROUND)):
        for kind, found in table.items():
            for name, (path, document) in found.items():
                yield Case(name=name, kind=kind, document=document, refused=path, in_cel=in_cel)


CASES = tuple(copy.deepcopy(list(cases())))
