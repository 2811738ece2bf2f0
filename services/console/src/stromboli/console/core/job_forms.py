"""Forms about a job: fields that can change, a new job of the same spec, debug tools. Pure.

Fields have the names and the meaning of ``strom job set`` and ``strom job resubmit``, whose code
reads them. A field that a viewer left as it was is not sent, so that a form that was open for long
overwrites nothing.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from stromboli.cli.job_specs import job_fields
from stromboli.client import phases
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds
from stromboli.shared.formats import indexes
from stromboli.shared.jobspec import debug_tools

Document = dict[str, Any]
MOVABLE = ("Pending", "Aborting", "Aborted")
"""Phases in which the queue of a job can change."""
TASK = "replicas."
"""Prefix of the field with the replicas of a task, as in ``strom job set``."""


class FormField(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a form. ``hint``: what an empty field means, and examples."""

    name: str
    label: str
    value: str = ""
    hint: str = ""
    is_number: bool = False


class ToolRow(msgspec.Struct, frozen=True, kw_only=True):
    """A debug tool that a job requests. ``asks``: the tool requires the secret token; ``user``: the
    user name that it also requires, empty for none."""

    tool: str
    port: int
    asks: bool
    user: str


def change_fields(job: batch.Job) -> list[FormField]:
    """The fields of a job that can change, with their values: the queue only while the job waits or
    is suspended. REST also refuses a new queue if pods of the job are on nodes already."""
    queue = FormField(
        name="queue",
        label="Queue",
        value=job.spec.queue,
        hint="You must be allowed to use both queues.",
    )
    return [
        *([queue] if phases.phase_of(job) in MOVABLE else []),
        _priority(job),
        _time_limit(job),
        FormField(
            name="min",
            label="Pods that must start together (minAvailable)",
            value=str(job.spec.min_available),
            is_number=True,
        ),
        *(
            FormField(
                name=f"{TASK}{task.name}",
                label=f"Replicas of {task.name}",
                value=str(task.replicas),
                is_number=True,
            )
            for task in job.spec.tasks
        ),
    ]


def resubmit_fields(job: batch.Job, name: str) -> list[FormField]:
    """The fields of a new job with the spec of this one; ``name``: a free name."""
    return [
        FormField(name="name", label="Name", value=name),
        FormField(name="queue", label="Queue", value=job.spec.queue),
        _priority(job),
        _time_limit(job),
    ]


def given(fields: list[FormField], form: Mapping[str, str]) -> list[FormField]:
    """The fields with the values of a form."""
    return [msgspec.structs.replace(it, value=form.get(it.name, it.value).strip()) for it in fields]


def changed(fields: list[FormField], form: Mapping[str, str]) -> job_fields.Fields:
    """The fields whose value differs from the job's. An emptied number, time limit or queue is left
    as it is: none can be removed from a job. Raises FieldError."""
    words = [
        f"{after.name}={after.value}"
        for before, after in zip(fields, given(fields, form), strict=True)
        if after.name != "name"
        and after.value != before.value
        and (after.value or after.name == "priority")
    ]
    return job_fields.parse(words)


def is_unchanged(fields: job_fields.Fields) -> bool:
    """Whether no field differs."""
    return fields == job_fields.Fields()


def new_job(stored: Document, name: str, fields: job_fields.Fields) -> Document:
    """The manifest of a new job with the spec of a stored one. Raises FieldError."""
    return job_fields.with_fields(job_fields.same_job(stored, name), fields)


def failed_indexes(job: batch.Job) -> str:
    """The failed indexes of an array that has ended, such as ``3,7-9``; empty for none."""
    if job.spec.array is None or job.status.array is None:
        return ""
    return job.status.array.failed


def failed_again(document: Document, failed: str) -> Document:
    """The manifest of a new array with these indexes only."""
    return job_fields.with_indexes(document, indexes.parse(failed))


def tools(job: batch.Job) -> list[ToolRow]:
    """The debug tools that the job requests."""
    named_tools = [(it.tool, debug_tools.TOOLS[it.tool]) for it in debug_tools.requested_tools(job)]
    return [
        ToolRow(tool=name, port=tool.port, asks=tool.asks, user=tool.user)
        for name, tool in named_tools
    ]


def with_tools(job: batch.Job, *, start: str = "", stop: str = "") -> Document:
    """The manifest that starts or stops a debug tool of a job. Its resource version makes a
    concurrent change a conflict."""
    kept = [it for it in debug_tools.requested_tools(job) if it.tool not in (start, stop)]
    added = [debug_tools.DebugToolRequest(tool=start)] if start else []
    metadata = {
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "uid": job.metadata.uid,
        "resourceVersion": job.metadata.resource_version,
        "annotations": {keys.TOOLS: debug_tools.encode_annotation((*kept, *added))},
    }
    head = {"apiVersion": kinds.JOBS.api_version, "kind": kinds.JOBS.kind}
    return {**head, "metadata": metadata}


def _priority(job: batch.Job) -> FormField:
    return FormField(
        name="priority",
        label="PriorityClass",
        value=job.spec.priority_class_name,
        hint="Empty: the default PriorityClass.",
    )


def _time_limit(job: batch.Job) -> FormField:
    limit = job.spec.active_deadline_seconds
    return FormField(
        name="time-limit",
        label="Time limit",
        value="" if limit is None else f"{limit}s",
        hint="Such as 90m or 4h, from the first start of a pod. Empty: unchanged.",
    )
