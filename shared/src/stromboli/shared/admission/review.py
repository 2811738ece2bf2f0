"""One review, for every way in: complete the object, then say what is wrong with it.

Objects that are none of our business (a job of another scheduler) pass untouched. What has no
rules here is judged by its schema alone, if it is of one of our groups.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from stromboli.shared import crds
from stromboli.shared.admission import defaults, jobs, queues
from stromboli.shared.admission.patch import Add, Document
from stromboli.shared.api import batch, kinds
from stromboli.shared.api.kinds import Kind
from stromboli.shared.api.scheduling import Queue
from stromboli.shared.messages.admission import Violation

Operation = Literal["CREATE", "UPDATE", "DELETE"]
OUR_GROUPS = frozenset(document["spec"]["group"] for document in crds.documents())


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator chose.

    ``scheduler_names``: whose jobs are ours, the first one being the default. ``plugins``: the job
    plugins that the controller carries out. ``max_queue_depth``: levels of queues below the root.
    """

    scheduler_names: tuple[str, ...]
    plugins: frozenset[str]
    max_queue_depth: int


def completed(
    kind: Kind[Any], document: Document, policy: Policy, traceparent: str
) -> tuple[Add, ...]:
    """Defaults for a new object; none if it cannot be read (``violations`` then says why)."""
    try:
        read = kind.decode(msgspec.json.encode(document))
    except msgspec.DecodeError:
        return ()
    if isinstance(read, batch.Job) and _is_ours(read, policy):
        return defaults.of_job(read, policy.scheduler_names[0], traceparent)
    if isinstance(read, Queue):
        return defaults.of_queue(read, frozenset(document), frozenset(document.get("spec") or ()))
    return ()


def violations(
    kind: Kind[Any],
    operation: Operation,
    document: Document,
    before: Document | None,
    known: Mapping[str, Queue],
    policy: Policy,
) -> tuple[Violation, ...]:
    """All that is wrong. ``document`` is the completed object, or the one to be deleted;
    ``before`` is what an update changes; ``known`` are all queues by name."""
    if operation == "DELETE":
        name = document.get("metadata", {}).get("name", "")
        return tuple(queues.deleted(name, known)) if kind == kinds.QUEUES else ()
    found: tuple[Violation, ...] = ()
    if kind.group in OUR_GROUPS:
        found = crds.violations(kind.group, kind.kind, document)
    try:
        read = kind.decode(msgspec.json.encode(document))
        old = None if before is None else kind.decode(msgspec.json.encode(before))
    except msgspec.DecodeError as error:
        return found or (Violation(path="", reason=str(error)),)
    if isinstance(read, batch.Job):
        if not _is_ours(read, policy):
            return ()
        ours = jobs.updated(read, old) if old else jobs.created(read, known, policy.plugins)
    elif isinstance(read, Queue):
        others = {name: queue for name, queue in known.items() if name != read.metadata.name}
        depth = policy.max_queue_depth
        ours = (
            queues.updated(read, old, others, depth) if old else queues.created(read, others, depth)
        )
    else:
        return found
    said = {violation.path for violation in found}
    return (*found, *(violation for violation in ours if violation.path not in said))


def queues_in_doubt(found: tuple[Violation, ...]) -> bool:
    """Whether a newer picture of the queues could change the verdict: a queue that seems absent or
    closed may just have been made or opened."""
    return any(violation.path in ("spec.queue", "spec.parent") for violation in found)


def _is_ours(job: batch.Job, policy: Policy) -> bool:
    return job.spec.scheduler_name in ("", *policy.scheduler_names)
