"""Fields of a job as ``FIELD=VALUE``, and new jobs from the spec of an existing one. Pure."""

import math
from typing import Any

import msgspec

from stromboli.cli.parameters import parsing
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.formats import indexes

Document = dict[str, Any]
FIELDS = "queue, priority, time-limit, min, replicas or replicas.TASK"
OPTIONS = {
    "--queue": "queue", "-q": "queue", "--priority": "priority", "--priority-class": "priority",
    "--time": "time-limit", "--time-limit": "time-limit", "--min": "min", "-m": "min",
    "--replicas": "replicas", "-r": "replicas",
}  # fmt: skip
"""Options of ``job run`` and ``job scale`` -> the fields with their meaning."""
OF_ONE_JOB = frozenset(
    {
        keys.TRACEPARENT,
        keys.USER,
        keys.USER_GROUPS,
        keys.IDEMPOTENCY,
        keys.HELD,
        keys.TOOLS,
        keys.LAST_APPLIED,
        keys.CRON_SCHEDULED_AT,
        keys.CREATED_BY_TEMPLATE,
        keys.CREATED_BY_FLOW,
    }
)
"""Labels and annotations about one job, which a new job with the same spec does not get."""


class FieldError(ValueError):
    """A field or value that a job cannot have."""


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that the user set; None is not set. ``replicas``: task -> pods, with the empty
    name for the only task."""

    queue: str | None = None
    priority: str | None = None
    time_s: int | None = None
    minimum: int | None = None
    replicas: dict[str, int] = {}


def parse(words: list[str]) -> Fields:
    """Parse ``queue=research priority=high time-limit=4h replicas.worker=8``. Raises FieldError."""
    values: dict[str, Any] = {}
    replicas: dict[str, int] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise FieldError(f"{word!r} is not FIELD=VALUE; fields are {FIELDS}")
        field, _, task = name.partition(".")
        if name in ("queue", "priority"):
            values[name] = value
        elif name == "time-limit":
            values["time_s"] = _time_s(value)
        elif name == "min":
            values["minimum"] = _count(name, value)
        elif field == "replicas":
            replicas[task] = _count(name, value)
        else:
            meant = OPTIONS.get(f"--{name}", "")
            hint = f"; did you mean {meant}? " if meant else "; "
            raise FieldError(f"{name!r} is not a field that can be set{hint}fields are {FIELDS}")
    return Fields(**values, replicas=replicas)


def with_fields(document: Document, fields: Fields) -> Document:
    """A new job's manifest with these fields. Raises FieldError for an unknown task."""
    spec = {**document["spec"]}
    if fields.queue is not None:
        spec["queue"] = fields.queue
    if fields.priority is not None:
        spec["priorityClassName"] = fields.priority
    if fields.time_s is not None:
        spec |= {"activeDeadlineSeconds": fields.time_s, "runningEstimate": f"{fields.time_s}s"}
    for task, count in fields.replicas.items():
        spec = _scaled(spec, task_named(spec, task), count)
    if fields.minimum is not None:
        spec["minAvailable"] = fields.minimum
    return {**document, "spec": spec}


def task_named(spec: Document, task: str) -> str:
    """The name of a task; an empty one selects the only task. Raises FieldError."""
    names = [str(each.get("name", "")) for each in spec.get("tasks", ())]
    if not task and len(names) == 1:
        return names[0]
    if task not in names:
        what = f"there is no task {task!r}" if task else "the job has several tasks"
        raise FieldError(f"{what}; write {' or '.join(f'replicas.{name}=N' for name in names)}")
    return task


def same_job(stored: Document, name: str) -> Document:
    """The manifest of a new job with the spec of a stored job, which may be in any phase."""
    before = stored["metadata"]
    metadata: Document = {"name": name, "namespace": before["namespace"]}
    for part in ("labels", "annotations"):
        entries = before.get(part) or {}
        if kept := {key: value for key, value in entries.items() if key not in OF_ONE_JOB}:
            metadata[part] = kept
    spec = {**stored["spec"]}
    if array := spec.get("array"):
        spec["array"] = {key: value for key, value in array.items() if key != "cancelled"}
    if volumes := spec.get("volumes"):
        spec["volumes"] = [_own_claim(each) for each in volumes]
    return {
        "apiVersion": kinds.JOBS.api_version,
        "kind": kinds.JOBS.kind,
        "metadata": metadata,
        "spec": spec,
    }


def with_indexes(document: Document, wanted: indexes.Indexes) -> Document:
    """A new array with these indexes only: not more pods than indexes at the same time, and all of
    them have to succeed."""
    spec = {key: value for key, value in document["spec"].items() if key != "minSuccess"}
    spec["array"] = {**spec["array"], "indexes": str(wanted)}
    count = len(wanted)
    spec["tasks"] = [_at_most(task, count) for task in spec["tasks"]]
    spec["minAvailable"] = min(spec.get("minAvailable", 1), count)
    return {**document, "spec": spec}


def _at_most(task: Document, count: int) -> Document:
    most = {**task, "replicas": min(task.get("replicas", 1), count)}
    if "minAvailable" in task:
        most["minAvailable"] = min(task["minAvailable"], most["replicas"])
    return most


def _own_claim(volume: Document) -> Document:
    """A volume without the name of the claim that was created for the earlier job."""
    if not volume.get("volumeClaim"):
        return volume
    return {key: value for key, value in volume.items() if key != "volumeClaimName"}


def _scaled(spec: Document, name: str, count: int) -> Document:
    """The spec with replicas of a task; a gang of all pods remains one."""
    tasks = spec["tasks"]
    total = sum(each.get("replicas", 0) for each in tasks)
    changed = [_with_replicas(each, count) if each.get("name") == name else each for each in tasks]
    left = sum(each.get("replicas", 0) for each in changed)
    least = spec.get("minAvailable", total)
    return {
        **spec,
        "tasks": changed,
        "minAvailable": left if least == total else min(least, left),
    }


def _with_replicas(task: Document, count: int) -> Document:
    least = task.get("minAvailable")
    if least is None:
        return {**task, "replicas": count}
    of_all = least == task.get("replicas", 0)
    return {**task, "replicas": count, "minAvailable": count if of_all else min(least, count)}


def _count(field: str, value: str) -> int:
    if not value.isdecimal() or int(value) >= 2**31:
        raise FieldError(f"{field}={value}: {value!r} is not a number of pods")
    return int(value)


def _time_s(value: str) -> int:
    try:
        return math.ceil(parsing.time_limit(value).total_seconds())
    except ValueError as error:
        raise FieldError(f"time-limit={value}: {error}") from None
