"""``strom job set``, ``resubmit`` and ``retry``: a job with other values, or a new job like it."""

import secrets
import string
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.commands.jobs import job_changes
from stromboli.cli.errors import CommandError
from stromboli.cli.job_specs import job_fields, job_reference, job_spec
from stromboli.cli.render import output
from stromboli.client.operations import job_calls
from stromboli.shared.api import kinds
from stromboli.shared.formats import indexes

if TYPE_CHECKING:
    from stromboli.cli.client import Client

SUFFIX_LENGTH = 5
Assignments = Annotated[
    list[str],
    typer.Argument(
        metavar="FIELD=VALUE...",
        help="priority=high, time-limit=4h, queue=research, min=4, replicas.TASK=8; replicas=8 for "
        "a job of one task.",
    ),
]
OptionalAssignments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FIELD=VALUE]...",
        help="Values that replace those of the job, as in job set.",
    ),
]
NewName = Annotated[
    str | None, typer.Option("--name", "-N", help="Name of the new job. [default: generated]")
]


def set_fields(
    name: options.JobName,
    assignments: Assignments,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Change priority, time limit, queue, min and replicas of a job.

    strom job set train priority=high replicas.worker=8

    The time limit counts from the first start of the job. The queue can change while no pod of the
    job has a node; the job then waits behind the jobs of the new queue.
    """
    fields = _parsed(assignments)
    with options.client(server) as client:
        spec = msgspec.json.decode(client.job(namespace, name))["spec"]
        try:
            tasks = {job_fields.task_named(spec, task): n for task, n in fields.replicas.items()}
        except job_fields.FieldError as error:
            raise typer.BadParameter(str(error), param_hint="FIELD=VALUE") from None
        call = job_calls.change(
            namespace, name, tasks, fields.minimum, fields.priority, fields.time_s, fields.queue
        )
        try:
            applied = client.send(call)
        except CommandError as error:
            command = f"strom job resubmit {name} {' '.join(assignments)} -n {namespace}"
            again = f"{job_changes.SUBMIT_AGAIN}: {command}"
            raise job_changes.without_paths(error, again) from None
    output.show_lines([f"{output.title(kinds.JOBS, name)} {applied.result}"])


def resubmit(
    name: options.JobName,
    assignments: OptionalAssignments = None,
    new_name: NewName = None,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Submit a new job with the spec of an existing or ended job.

    strom job resubmit train queue=research time-limit=8h
    """
    fields = _parsed(assignments or [])
    with options.client(server) as client:
        stored = msgspec.json.decode(client.job(namespace, name))
        document = job_fields.same_job(stored, new_name or _new_name(name))
        try:
            document = job_fields.with_fields(document, fields)
        except job_fields.FieldError as error:
            raise typer.BadParameter(str(error), param_hint="FIELD=VALUE") from None
        _create(client, document)


def retry(
    name: options.JobName,
    failed: Annotated[bool, typer.Option("--failed", help="All failed indexes.")] = False,
    new_name: NewName = None,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Run ended indexes of an array again, as a new array.

    strom job retry 'sweep[3,7-9]'

    strom job retry sweep --failed

    The array keeps its results; each index has the same STROM_ARRAY_INDEX again. For a job that is
    not an array: strom job resubmit.
    """
    job_name, wanted = job_reference.split(name)
    if failed == (wanted is not None):
        why = f"write {job_name}[3,7-9] or --failed; for a whole job: strom job resubmit {job_name}"
        raise typer.BadParameter(why, param_hint="JOB")
    with options.client(server) as client:
        raw = client.job(namespace, job_name)
        again = _to_retry(client, f"job {namespace}/{job_name}", raw, wanted)
        stored = msgspec.json.decode(raw)
        document = job_fields.same_job(stored, new_name or _new_name(job_name))
        _create(client, job_fields.with_indexes(document, again))


def _to_retry(
    client: "Client", what: str, raw: bytes, wanted: indexes.Indexes | None
) -> indexes.Indexes:
    """The indexes to run again. Raises CommandError unless all of them have ended."""
    job = client.decode(kinds.JOBS, raw)
    if job.spec.array is None:
        raise CommandError(
            what,
            "it is not an array",
            f"run any ended job again as a new job: strom job resubmit {what.rpartition('/')[2]}",
        )
    status = job.status.array
    succeeded, failed = (
        indexes.parse(text) for text in ((status.succeeded, status.failed) if status else ("", ""))
    )
    if wanted is None:
        if not failed:
            raise CommandError(what, "no index has failed", "name indexes: JOB[3,7-9]")
        return failed
    if unknown := wanted - indexes.parse(job.spec.array.indexes):
        has = f"its indexes are {job.spec.array.indexes}"
        raise CommandError(what, f"it has no index {unknown}; {has}", "name some of its indexes")
    cancelled = indexes.parse(job.spec.array.cancelled)
    if active := wanted - (succeeded | failed | cancelled):
        raise CommandError(
            what, f"these indexes have not ended: {active}", "wait for them, or name others"
        )
    return wanted


def _create(client: "Client", document: dict[str, Any]) -> None:
    stored = client.create_job(document["metadata"]["namespace"], document)
    created = output.title(kinds.JOBS, kinds.metadata_of(stored).name)
    output.show_lines([f"{created} created"])


def _parsed(assignments: list[str]) -> job_fields.Fields:
    try:
        return job_fields.parse(assignments)
    except job_fields.FieldError as error:
        raise typer.BadParameter(str(error), param_hint="FIELD=VALUE") from None


def _new_name(name: str) -> str:
    letters = string.ascii_lowercase + string.digits
    suffix = "".join(secrets.choice(letters) for _ in range(SUFFIX_LENGTH))
    return job_spec.generated_name(name, suffix)
