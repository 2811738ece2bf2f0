"""Options and arguments that several commands share."""

import contextvars
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from stromboli.cli import contexts
from stromboli.cli import server as server_address
from stromboli.cli.errors import CommandError, TimedOutError, UnreachableError
from stromboli.cli.parameters import parsing, selectors
from stromboli.cli.render import output
from stromboli.shared import keys
from stromboli.shared.api import kinds, meta

if TYPE_CHECKING:
    from stromboli.cli.client import Client

DEFAULT_NAMESPACE = "default"

CREDENTIALS: contextvars.ContextVar[tuple[str | None, str | None]] = contextvars.ContextVar(
    "credentials", default=(None, None)
)
"""Files with a token and a CA certificate, from the options before the command."""


def job_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of jobs with this prefix, for shell completion."""
    namespace = ctx.params.get("namespace") or DEFAULT_NAMESPACE
    return complete_names(ctx, incomplete, lambda client: client.jobs(namespace))


def queue_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of queues with this prefix, for shell completion."""
    return complete_names(ctx, incomplete, lambda client: client.queues())


def pod_group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of PodGroups with this prefix, for shell completion."""
    namespace = ctx.params.get("namespace") or DEFAULT_NAMESPACE
    return complete_names(ctx, incomplete, lambda client: client.pod_groups(namespace))


def pod_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of pods with this prefix, for shell completion."""
    namespace = ctx.params.get("namespace") or DEFAULT_NAMESPACE
    return complete_names(ctx, incomplete, lambda client: client.all_pods(namespace))


def workload_names(kind: "kinds.Kind[Any]") -> Callable[[typer.Context, str], list[str]]:
    """Names of flows, templates or crons with this prefix, for shell completion."""

    def of_makers(ctx: typer.Context, incomplete: str) -> list[str]:
        namespace = ctx.params.get("namespace") or DEFAULT_NAMESPACE
        return complete_names(ctx, incomplete, lambda client: client.workloads(kind, namespace))

    return of_makers


def complete_names(
    ctx: typer.Context,
    incomplete: str,
    read: "Callable[[Client], tuple[msgspec.Raw, ...]]",
) -> list[str]:
    """Names with this prefix; empty if no server responds, as completion shows no errors."""
    try:
        with client(ctx.params.get("server")) as connection:
            object_names = [kinds.metadata_of(raw).name for raw in read(connection)]
    except CommandError:
        return []
    return sorted(name for name in object_names if name.startswith(incomplete))


Namespace = Annotated[
    str,
    typer.Option("--namespace", "-n", envvar="STROM_NAMESPACE", help="Namespace.", metavar="NAME"),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        help="Base URL of the REST API. [default: STROM_SERVER, the context, the configuration "
        f"file, the URL that strom up stored, {server_address.DEFAULT_URL}]",
        metavar="URL",
    ),
]
Output = Annotated[
    output.Format,
    typer.Option(
        "--output",
        "-o",
        help="Output format: wide has more columns; name, json and yaml are for programs.",
        case_sensitive=False,
    ),
]
DocumentFormat = Annotated[
    output.DocumentFormat,
    typer.Option("--output", "-o", help="Output format.", case_sensitive=False),
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        "-w",
        help="Print a row for each change until Ctrl-C; with -o json a line for each change: "
        '{"type": "ADDED", "object": ...}.',
    ),
]
Selector = Annotated[
    str,
    typer.Option(
        "--selector",
        "--label",
        "-l",
        metavar="LABELS",
        help="Label selector: team=vision,stage!=test,'tier in (a,b)',gpu,!old.",
    ),
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Also show the messages of the scheduler's conditions."),
]
JobName = Annotated[
    str, typer.Argument(metavar="JOB", help="The job's name.", autocompletion=job_names)
]
QueueName = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The queue's name.", autocompletion=queue_names)
]
QueueNames = Annotated[
    list[str],
    typer.Argument(metavar="QUEUE...", help="Names of queues.", autocompletion=queue_names),
]
QueueFilter = Annotated[
    str | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="QUEUE",
        help="Only objects of this queue.",
        autocompletion=queue_names,
    ),
]
Me = Annotated[bool, typer.Option("--me", help="Only objects that you have submitted.")]
Phases = Annotated[
    str | None,
    typer.Option(
        "--phase",
        "--state",
        metavar="PHASES",
        help="Only jobs in these phases: Pending,Running, or short: PD,R,S,CG,CD,F,CA.",
    ),
]
OptionalJobNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="[JOB]...", help="Names of jobs.", autocompletion=job_names),
]
All = Annotated[bool, typer.Option("--all", help="All jobs of the namespace.")]
Yes = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Do not ask for confirmation on a terminal."),
]
Task = Annotated[
    str | None, typer.Option("--task", "-t", metavar="NAME", help="Only pods of this task.")
]
Index = Annotated[
    int | None,
    typer.Option("--index", "-i", min=0, help="Only the pod with this index in its task."),
]
Container = Annotated[
    str | None,
    typer.Option("--container", "-c", metavar="NAME", help="The container. [default: all]"),
]
Files = Annotated[
    list[str],
    typer.Option(
        "--filename",
        "-f",
        help="A manifest file, a directory, or - for stdin; may be repeated.",
        metavar="FILE",
    ),
]


def client(flag: str | None) -> "Client":
    """A client of the configured server. Raises CommandError if its address is not a URL."""
    # Importing httpx costs 0.09 s, which --help need not pay. httpx also imports its own command
    # line (0.15 s), and continues without it if that import fails: None in sys.modules makes it
    # fail.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # as import has it
    from stromboli.cli.client import Client

    token_file, ca_file = CREDENTIALS.get()
    address = server_address.address(flag, os.environ, Path.cwd())
    return Client(address, token_file, ca_file)


def default_namespace() -> str:
    """The namespace without ``--namespace``: ``STROM_NAMESPACE``, that of the context, default.
    Raises CommandError."""
    named = os.environ.get("STROM_NAMESPACE")
    if named:
        return named
    selected = contexts.current(os.environ)
    return (selected and selected[1].namespace) or DEFAULT_NAMESPACE


def submitter(client: "Client", *, is_me: bool, user: str | None = None) -> str | None:
    """The user whose objects are listed; None for all users, also on a server without accounts.
    Raises BadParameter for ``--me`` together with ``--user``."""
    if is_me and user is not None:
        raise typer.BadParameter("set either --me or --user", param_hint="--me")
    return (client.user_name() or None) if is_me else user


def is_submitted_by(user: str | None, obj: meta.Object) -> bool:
    """Whether this user has submitted an object; None is any user."""
    return user is None or obj.metadata.annotation(keys.USER) == user


def for_each(names: Sequence[str], work: Callable[[str], str]) -> None:
    """Call ``work`` for every name and print its results. An error about one name is printed, the
    others are still processed, and the exit code is 1. Raises UnreachableError, TimedOutError."""
    has_failed = False
    for name in names:
        try:
            output.show_lines([work(name)])
        except (UnreachableError, TimedOutError):
            raise
        except CommandError as error:
            output.show_error(error.lines())
            has_failed = True
    if has_failed:
        raise typer.Exit(1)


def selector(text: str) -> selectors.Selector:
    """The selector of ``--selector``. Raises BadParameter."""
    try:
        return selectors.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--selector") from None


def phases(text: str, option: str) -> frozenset[str]:
    """Phases of jobs, with commas between them. Raises BadParameter."""
    try:
        return parsing.phases(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def duration_s(text: str | None, option: str) -> float | None:
    """A duration in seconds, None if there is none. Raises BadParameter."""
    try:
        return None if text is None else parsing.duration_s(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def resources(text: str | None, option: str) -> dict[str, str]:
    """``cpu=1,memory=1Gi`` as a resource list. Raises BadParameter for any other shape."""
    try:
        return parsing.amounts(text or "")
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
