"""The request that a reviewed object makes about an existing job: its deletion, a change, a
command.

A change is described by its fields. Only numbers and names of Stromboli's own fields are quoted: a
pod template may contain values that do not belong on a topic.
"""

from collections.abc import Iterator
from typing import Any

from stromboli.shared.api import kinds
from stromboli.shared.api.kinds import Kind
from stromboli.shared.api.views import accounting
from stromboli.shared.jobspec.validation.patch import Document
from stromboli.shared.messages.admission import EntryPoint, JobRequested

MAX_LENGTH = 300
"""Maximum characters of a description and of each name."""
MAX_NAME, MAX_UID = 253, 64
"""Characters of the longest name and uid of a job. Users write the targets of commands."""
_QUOTED = (
    "queue",
    "priorityClassName",
    "minAvailable",
    "minSuccess",
    "maxRetry",
    "activeDeadlineSeconds",
    "runningEstimate",
    "ttlSecondsAfterFinished",
)
_OF_TASK = ("replicas", "minAvailable")


def deletion(job: Document, user: str, entry_point: EntryPoint) -> JobRequested | None:
    """The request to delete a job; None for an object without a uid."""
    return _requested(job, user, entry_point, accounting.DELETE_JOB)


def written(
    kind: Kind[Any], document: Document, before: Document | None, user: str, entry_point: EntryPoint
) -> JobRequested | None:
    """The request that a write of this object makes: a change of a job's spec or a new command for
    a job; None for any other write."""
    if kind == kinds.COMMANDS and before is None:
        return _command(document, user, entry_point)
    if kind != kinds.JOBS or before is None:
        return None
    detail = ", ".join(_changes(_part(before, "spec"), _part(document, "spec")))
    version = str(_part(before, "metadata").get("resourceVersion", ""))
    if not detail:
        return None
    return _requested(before, user, entry_point, accounting.CHANGE_JOB, version, detail)


def _command(document: Document, user: str, entry_point: EntryPoint) -> JobRequested | None:
    target, metadata = _part(document, "target"), _part(document, "metadata")
    if target.get("kind") != kinds.JOBS.kind:
        return None
    namespace = metadata.get("namespace", "")
    job = {"metadata": {**target, "namespace": namespace}}
    name, action = str(metadata.get("name", "")), str(document.get("action", ""))
    return _requested(job, user, entry_point, action, name)


def _requested(
    job: Document,
    user: str,
    entry_point: EntryPoint,
    action: str,
    subject: str = "",
    detail: str = "",
) -> JobRequested | None:
    metadata = _part(job, "metadata")
    name, uid = (str(metadata.get(part) or "") for part in ("name", "uid"))
    if not 0 < len(name) <= MAX_NAME or not 0 < len(uid) <= MAX_UID:
        return None
    return JobRequested(
        job=f"{metadata.get('namespace', '')}/{name}",
        uid=uid,
        user=user[:MAX_LENGTH],
        action=action[:MAX_LENGTH],
        entry_point=entry_point,
        subject=subject[:MAX_LENGTH],
        detail=detail[:MAX_LENGTH],
    )


def _changes(before: Document, after: Document) -> Iterator[str]:
    for name in _QUOTED:
        yield from _change(name, before.get(name), after.get(name))
    then, now = _tasks(before), _tasks(after)
    for task in dict.fromkeys((*then, *now)):
        for name in _OF_TASK:
            yield from _change(
                f"{name} of task {task}", then.get(task, {}).get(name), now.get(task, {}).get(name)
            )
    was, is_ = (_part(spec, "array").get("cancelled") for spec in (before, after))
    yield from _change("array.cancelled", was, is_)
    others = (before.keys() | after.keys()) - {*_QUOTED, "tasks", "array"}
    yield from sorted(name for name in others if before.get(name) != after.get(name))
    if _without_counts(then) != _without_counts(now):
        yield "tasks"


def _change(name: str, before: object, after: object) -> Iterator[str]:
    if before != after:
        yield f"{name} {_text(before)} -> {_text(after)}"


def _text(value: object) -> str:
    return "none" if value is None or value == "" else str(value)


def _tasks(spec: Document) -> dict[str, Document]:
    tasks = spec.get("tasks")
    task_documents = [it for it in tasks if isinstance(it, dict)] if isinstance(tasks, list) else []
    return {str(it.get("name", at)): it for at, it in enumerate(task_documents)}


def _without_counts(tasks: dict[str, Document]) -> dict[str, Document]:
    return {
        name: {key: value for key, value in task.items() if key not in _OF_TASK}
        for name, task in tasks.items()
    }


def _part(document: Document, name: str) -> Document:
    value = document.get(name)
    return value if isinstance(value, dict) else {}
