"""Reconcile keys, and an index of the flows, crons, templates and jobs that jobs refer to."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from stromboli.shared import keys, snapshot
from stromboli.shared.api import batch, core, kinds, meta
from stromboli.shared.jobspec import job_dependencies

ItemKind = Literal[
    "job",
    "podgroup",
    "queue",
    "queue counts",
    "queue rules",
    "unmanaged pods",
    "command",
    "flow",
    "template",
    "cron",
    "hyper nodes",
    "discovery",
    "numatopology",
]
SOURCES = ("label", "file")
"""The types of sources of HyperNodes; each has a reconcile key."""
T = TypeVar("T")


class ReconcileKey(msgspec.Struct, frozen=True):
    """The key of an object, or a group of objects, that is reconciled as a unit."""

    kind: ItemKind
    key: str


Maker = Literal["flow", "template", "cron"]
MAKERS: Mapping[kinds.Kind[Any], Maker] = {
    kinds.JOB_TEMPLATES: "template",
    kinds.JOB_FLOWS: "flow",
    kinds.CRON_JOBS: "cron",
}
"""Kinds whose objects create jobs -> the kind of their reconcile key."""


def template_of(job: batch.Job) -> str | None:
    """Key of the JobTemplate that the job was created from; None if no flow created it."""
    namespace, name = job.metadata.namespace, job.metadata.annotation(keys.CREATED_BY_TEMPLATE)
    if not name or not name.startswith(f"{namespace}."):
        return None
    return f"{namespace}/{name.removeprefix(namespace + '.')}"


def dependencies(state: snapshot.State) -> Iterator[str]:
    """Keys of the jobs that a job depends on."""
    if isinstance(state, batch.Job):
        for name in job_dependencies.job_names(state):
            yield f"{state.metadata.namespace}/{name}"


def creators(state: snapshot.State) -> Iterator[tuple[Maker, str]]:
    """The flow or cron that created a job, and its template."""
    if not isinstance(state, batch.Job):
        return
    owner, namespace = state.metadata.controller, state.metadata.namespace
    for kind, item in MAKERS.items():
        if owner and kind.controls(state):
            yield item, f"{namespace}/{owner.name}"
    template = template_of(state)
    if template:
        yield "template", template


def flows_of_name(objects: snapshot.Snapshot, key: str) -> Iterator[tuple[Maker, str]]:
    """Flows that may need the name of this job: a flow that did not create the job creates its own
    job of this name once this job is gone."""
    for flow in prefixes(key):
        if objects.state(kinds.JOB_FLOWS, flow) is not None:
            yield "flow", flow


def prefixes(key: str) -> Iterator[str]:
    """Keys that an object which creates a child of this key may have: the parts before each
    hyphen."""
    parts = key.split("-")
    return ("-".join(parts[:end]) for end in range(1, len(parts)))


Relation = Literal["maker", "template", "before"]


class JobRelations:
    """Keys of jobs by the namespace and uid of their owner, by the key of their template, and by
    the key of a job that they depend on. A change costs O(1)."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[Relation, str], set[str]] = {}

    def of(self, relation: Relation, to: str) -> Iterable[str]:
        """Keys of the jobs with this relation to ``to``, a key, or ``namespace/uid`` of an
        owner."""
        return self._jobs.get((relation, to), ())

    def follow(self, key: str, old: snapshot.State, new: snapshot.State) -> None:
        """Update the index after a change of a job."""
        for at in _relations(old):
            jobs = self._jobs.get(at, set())
            jobs.discard(key)
            if not jobs:
                self._jobs.pop(at, None)
        for at in _relations(new):
            self._jobs.setdefault(at, set()).add(key)


def _relations(state: snapshot.State) -> Iterator[tuple[Relation, str]]:
    if not isinstance(state, batch.Job):
        return
    if owner := state.metadata.controller_key:
        yield "maker", "/".join(owner)
    if template := template_of(state):
        yield "template", template
    for key in dependencies(state):
        yield "before", key


def group_of(pod: core.Pod) -> str | None:
    """Key of the PodGroup that the pod is a member of; None if it names none."""
    name = pod.metadata.annotation(keys.GROUP_NAME)
    return f"{pod.metadata.namespace}/{name}" if name else None


def job_of(obj: meta.Object) -> str | None:
    """Key of the job that manages the object; None if no job does."""
    owner = obj.metadata.controller
    if owner is None or not kinds.JOBS.controls(obj):
        return None
    return f"{obj.metadata.namespace}/{owner.name}"


def target_of(user_command: batch.Command) -> ReconcileKey | None:
    """The key of the job or queue that a user command targets; None for any other target."""
    target = user_command.target
    if target is None:
        return None
    match (target.api_version, target.kind):
        case (kinds.JOBS.api_version, kinds.JOBS.kind):
            return ReconcileKey("job", f"{user_command.metadata.namespace}/{target.name}")
        case (kinds.QUEUES.api_version, kinds.QUEUES.kind):
            return ReconcileKey("queue", target.name)
        case _:
            return None
