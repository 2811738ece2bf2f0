"""``strom flow``, ``strom template``, ``strom cron``: objects that create jobs.

They are created and changed with ``strom apply``, because they have too many fields for options.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from stromboli.cli import lazy, options
from stromboli.cli.parameters import selectors
from stromboli.cli.render import listing, output, workload_view
from stromboli.client.operations import workload_calls
from stromboli.shared.api import kinds


class WorkloadKind(msgspec.Struct, frozen=True):
    """A kind in ``workload_calls.WORKLOADS``, with its columns."""

    kind: kinds.Kind[Any]
    headers: tuple[str, ...]
    row: Callable[[Any, datetime], tuple[str, ...]]
    facts: Callable[[Any, datetime], list[str]]
    rows: Callable[[Any, datetime], Sequence[tuple[str, ...]]] | None = None
    """The function that lists the object's jobs as rows; None if the kind has no such list."""
    row_headers: tuple[str, ...] = ()
    state: str = "AGE"
    """The column in which a watch marks a deleted object."""


FLOWS = WorkloadKind(
    kinds.JOB_FLOWS,
    workload_view.FLOW_HEADERS,
    workload_view.flow_row,
    workload_view.flow_facts,
    workload_view.flow_jobs,
    workload_view.FLOW_JOB_HEADERS,
    "PHASE",
)
TEMPLATES = WorkloadKind(
    kinds.JOB_TEMPLATES,
    workload_view.TEMPLATE_HEADERS,
    workload_view.template_row,
    workload_view.template_facts,
)
CRONS = WorkloadKind(
    kinds.CRON_JOBS, workload_view.CRON_HEADERS, workload_view.cron_row, workload_view.cron_facts
)


HAVE_SUBMITTER = (kinds.JOB_FLOWS, kinds.CRON_JOBS)
"""Kinds on which admission records who submitted them."""


def kind_app(workload: WorkloadKind, text: str) -> typer.Typer:
    """The commands of a kind in ``workload_calls.WORKLOADS``: list, get and delete."""
    word = workload_calls.WORKLOADS[workload.kind]
    app = typer.Typer(cls=lazy.GetGroup, help=text)
    complete = options.workload_names(workload.kind)
    one = typer.Argument(metavar=word.upper(), help=f"Name of the {word}.", autocompletion=complete)
    several = typer.Argument(
        metavar=f"{word.upper()}...", help=f"Names of {word}s.", autocompletion=complete
    )

    @app.command("list", help=f"List {word}s.")
    def list_all(
        namespace: options.Namespace = options.DEFAULT_NAMESPACE,
        all_namespaces: options.AllNamespaces = False,
        me: options.Me = False,
        selector: options.Selector = "",
        watch: options.Watch = False,
        output_format: options.Output = output.Format.TABLE,
        server: options.Server = None,
    ) -> None:
        space = None if all_namespaces else namespace
        _list(workload, space, selector, output_format, server, watch=watch, me=me)

    @app.command("get", help=f"Show a {word} and its events.")
    def get(
        name: Annotated[str, one],
        namespace: options.Namespace = options.DEFAULT_NAMESPACE,
        output_format: options.Output = output.Format.TABLE,
        server: options.Server = None,
    ) -> None:
        _get(workload, namespace, name, output_format, server)

    @app.command("delete", help=f"Delete {word}s and the objects that they own.")
    def delete(
        names: Annotated[list[str], several],
        namespace: options.Namespace = options.DEFAULT_NAMESPACE,
        server: options.Server = None,
    ) -> None:
        with options.client(server) as client:

            def remove(name: str) -> str:
                client.send(workload_calls.delete_workload(workload.kind, namespace, name))
                return f"{output.title(workload.kind, name)} deleted"

            options.for_each(names, remove)

    return app


def _list(
    workload: WorkloadKind,
    namespace: str | None,
    selector: str,
    output_format: output.Format,
    server: str | None,
    *,
    watch: bool,
    me: bool,
) -> None:
    wanted = options.selector(selector)
    if me and workload.kind not in HAVE_SUBMITTER:
        word = workload_calls.WORKLOADS[workload.kind]
        raise typer.BadParameter(f"the submitter of a {word} is not recorded", param_hint="--me")
    submitter: str | None = None

    def is_wanted(workload_object: Any) -> bool:
        labels = workload_object.metadata.labels
        return selectors.matches(wanted, labels) and options.is_submitted_by(
            submitter, workload_object
        )

    workload_listing = listing.Listing(
        kind=workload.kind,
        what=f"{workload_calls.WORKLOADS[workload.kind]}s",
        headers=workload.headers,
        row=workload.row,
        is_wanted=is_wanted,
        namespace=namespace,
        state=workload.state,
    )
    with options.client(server) as client:
        submitter = options.submitter(client, is_me=me)
        if watch:
            call = workload_calls.watch_workloads(workload.kind, namespace or "")
            listing.follow(client, workload_listing, output_format, call)
        else:
            listing.show(
                client, workload_listing, output_format, client.workloads(workload.kind, namespace)
            )


def _get(
    workload: WorkloadKind,
    namespace: str,
    name: str,
    output_format: output.Format,
    server: str | None,
) -> None:
    with options.client(server) as client:
        raw = client.send(workload_calls.workload(workload.kind, namespace, name))
        if not output_format.is_table:
            output.show_objects(output_format, workload.kind, [raw])
            return
        workload_object = client.decode(workload.kind, raw)
        events = client.send(workload_calls.workload_events(workload.kind, namespace, name)).items
    now = datetime.now(UTC)
    output.show_lines(workload.facts(workload_object, now))
    if workload.rows is not None:
        output.show_lines([""])
        output.show_table(workload.row_headers, workload.rows(workload_object, now))
    if events:
        output.show_lines([""])
        output.show_table(workload_view.EVENT_HEADERS, workload_view.event_rows(events, now))


def _suspend(name: str, namespace: str, server: str | None, *, is_suspended: bool) -> None:
    document = {
        "apiVersion": kinds.CRON_JOBS.api_version,
        "kind": kinds.CRON_JOBS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"suspend": is_suspended},
    }
    with options.client(server) as client:
        # Without this check, apply would create an incomplete cron.
        client.send(workload_calls.workload(kinds.CRON_JOBS, namespace, name))
        client.apply([document])
    new_state = "suspended" if is_suspended else "resumed"
    output.show_lines([f"{output.title(kinds.CRON_JOBS, name)} {new_state}"])


flows = kind_app(FLOWS, "Inspect flows: jobs created in order from templates.")
templates = kind_app(TEMPLATES, "Inspect templates, from which flows create jobs.")
crons = kind_app(CRONS, "Inspect, suspend and resume crons: jobs on a schedule.")
CronName = Annotated[
    str,
    typer.Argument(
        metavar="CRON",
        help="Name of the cron.",
        autocompletion=options.workload_names(kinds.CRON_JOBS),
    ),
]


@crons.command("suspend")
def suspend(
    name: CronName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Suspend a cron; its running jobs continue."""
    _suspend(name, namespace, server, is_suspended=True)


@crons.command("resume")
def resume(
    name: CronName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Resume a cron and create the last job that it missed."""
    _suspend(name, namespace, server, is_suspended=False)
