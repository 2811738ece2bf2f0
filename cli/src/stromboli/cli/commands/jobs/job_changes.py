"""``strom job suspend``, ``resume``, ``restart``, ``delete`` and ``scale``: changes of jobs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.commands.jobs import job_selection
from stromboli.cli.errors import CommandError
from stromboli.cli.job_specs import job_reference
from stromboli.cli.render import output
from stromboli.client.operations import job_calls
from stromboli.client.phases import FINAL, phase_of
from stromboli.shared.api import kinds

if TYPE_CHECKING:
    from stromboli.cli.client import Client


class BulkChange(msgspec.Struct, frozen=True):
    """A change of many jobs: its verb, what is printed for each job, the request for one job, and
    the job action behind it, empty for a deletion."""

    verb: str
    done: str
    request: Callable[["Client", str, str], object]
    action: str = ""
    of_indexes: Callable[["Client", str, str, str], object] | None = None
    """The request for some indexes of an array; None: there is none."""

    def is_ignored(self, phase: str) -> bool:
        """Whether the change has no effect on a job in this phase."""
        return self.action in ignored_actions(phase)


def _bulk_command(change: BulkChange, doc: str) -> Callable[..., None]:
    """The command that applies a change to jobs selected by name or by options."""

    def command(
        names: options.OptionalJobNames = None,
        selector: options.Selector = "",
        phase: options.Phases = None,
        all_jobs: options.All = False,
        yes: options.Yes = False,
        namespace: options.Namespace = options.DEFAULT_NAMESPACE,
        server: options.Server = None,
    ) -> None:
        takes_indexes = change.of_indexes is not None
        job_selection.check(names, selector, phase, all_jobs=all_jobs, takes_indexes=takes_indexes)
        with options.client(server) as client:

            def make(name: str) -> str:
                job, indexes = job_reference.split(name)
                if change.of_indexes is not None and indexes is not None:
                    change.of_indexes(client, namespace, job, str(indexes))
                    return f"{output.title(kinds.JOBS, name)} cancelled"
                if change.action:
                    _raise_if_ignored(client, namespace, name, change.action)
                change.request(client, namespace, name)
                return f"{output.title(kinds.JOBS, name)} {change.done}"

            chosen = job_selection.select(
                client, namespace, names, selector, phase, change.is_ignored
            )
            if not names and not yes:
                job_selection.confirm(chosen, change.verb, namespace)
            options.for_each(chosen, make)

    command.__doc__ = doc
    return command


def _action(verb: str, action: str, doc: str) -> Callable[..., None]:
    def request(client: "Client", namespace: str, name: str) -> None:
        client.command_job(namespace, name, action)

    return _bulk_command(BulkChange(verb, f"{verb} requested", request, action), doc)


def _delete(client: "Client", namespace: str, name: str) -> None:
    client.delete_job(namespace, name)


def _cancel(client: "Client", namespace: str, name: str, indexes: str) -> None:
    try:
        client.send(job_calls.change(namespace, name, cancelled_indexes=indexes))
    except CommandError as error:
        again = f"run the indexes again: strom job retry '{name}[{indexes}]' -n {namespace}"
        raise without_paths(error, again) from None


suspend = _action(
    "suspend",
    "AbortJob",
    """Suspend jobs.

    Their pods are deleted; the jobs remain and can be resumed. A pending job is held: it does not
    start before it is resumed. The command does not wait:

    strom job wait JOB --for Aborted
    """,
)
resume = _action(
    "resume",
    "ResumeJob",
    """Resume suspended jobs.

    Their pods start again from the beginning. Resuming does not count against maxRetry.
    """,
)
restart = _action(
    "restart",
    "RestartJob",
    """Restart jobs.

    All pods are deleted and created again. This does not count against maxRetry.
    """,
)
delete = _bulk_command(
    BulkChange("delete", "deleted", _delete, of_indexes=_cancel),
    """Delete jobs with their pods, or cancel indexes of an array.

    strom job delete 'sweep[3,7-9]'

    Cancelled indexes end without a result and do not run again; the other indexes run on.
    """,
)


SUBMIT_AGAIN = "submit it again with these values"


def scale(
    name: options.JobName,
    replicas: Annotated[
        int, typer.Option("--replicas", "-r", min=0, help="New number of pods of the task.")
    ],
    task: Annotated[
        str | None,
        typer.Option(
            "--task", "-t", metavar="NAME", help="The task; required if the job has several."
        ),
    ] = None,
    minimum: Annotated[
        int | None,
        typer.Option(
            "--min",
            "-m",
            min=0,
            help="New minAvailable. Without it, a job whose minAvailable was all of its pods keeps "
            "requiring all of them.",
        ),
    ] = None,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Set the number of replicas of a task."""
    with options.client(server) as client:
        try:
            applied = client.scale(namespace, name, replicas, task or "", minimum)
        except CommandError as error:
            field = f"replicas.{task}" if task else "replicas"
            again = f"{SUBMIT_AGAIN}: strom job resubmit {name} {field}={replicas} -n {namespace}"
            raise without_paths(error, again) from None
    output.show_lines([f"{output.title(kinds.JOBS, name)} {applied.result}"])


def without_paths(error: CommandError, again: str) -> CommandError:
    """The error with names of fields instead of JSON paths: the user wrote no manifest. ``again``:
    the next step if the job has ended."""
    violations = getattr(error, "violations", ())
    ended = [it.reason for it in violations if it.path.startswith(_STATUS)]
    if ended:
        return CommandError(error.what, ended[0], again)
    details = tuple(
        ": ".join(
            filter(None, (_field(it.path), "; ".join(filter(None, (it.reason, it.expected)))))
        )
        for it in violations
    )
    if not violations or getattr(error, "is_forbidden", False):
        return error
    return CommandError(error.what, error.why, error.next_step, details)


def _field(path: str) -> str:
    """The last part of a path in a spec."""
    return path.rpartition(".")[2]


def _raise_if_ignored(client: "Client", namespace: str, name: str, action: str) -> None:
    """Raises CommandError if the action has no effect on the job in its phase."""
    now = phase_of(client.decode(kinds.JOBS, client.job(namespace, name)))
    if action in ignored_actions(now):
        why, next_step = _IDLE[action]
        next_step = next_step.format(job=f"{name} -n {namespace}")
        raise CommandError(f"job {namespace}/{name}", f"it is {now}{why}", next_step)


def ignored_actions(phase: str) -> frozenset[str]:
    """The actions that have no effect on a job in this phase: it has ended, is suspended already,
    or is not suspended. Pure."""
    if phase in FINAL:
        return frozenset(_IDLE)
    if phase in ("Aborting", "Aborted"):
        return frozenset({"AbortJob"})
    return frozenset({"ResumeJob"})


_STATUS = "status."
"""Path prefix of the violations which say that the job has ended."""
_IDLE = {
    "AbortJob": (", so there is nothing to suspend", "see its state: strom job get {job}"),
    "ResumeJob": (
        ", and only a suspended job can be resumed",
        "run an ended job again: strom job resubmit {job}",
    ),
    "RestartJob": (
        ", so there is nothing to restart",
        "run it again: strom job resubmit {job}",
    ),
}
"""Action -> why it has no effect on a job, and the next step for ``{job}``."""
