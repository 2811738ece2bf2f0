"""``strom explain``: why a job is pending, with numbers."""

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.commands import data
from stromboli.cli.commands.accounting import explain_at, explanation_records
from stromboli.cli.errors import CommandError, NotFoundError, UsageError
from stromboli.cli.parameters import parsing
from stromboli.cli.render import data_view, explanation_view, output, pod_status, what_if_view
from stromboli.cli.render.nodes import node_health
from stromboli.client.operations import calls
from stromboli.shared.api import coordination, kinds
from stromboli.shared.api.views.data_copies import DataSetCopies

if TYPE_CHECKING:
    from stromboli.cli.client import Client

NODES_READ = 8
"""Maximum nodes of a job whose leases are read; those with pods that no kubelet has acknowledged
come first."""


def explain(
    name: options.JobName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--if",
            metavar="CHANGE",
            help="Show the expected start with this change; may be repeated to combine changes: "
            "priority=NAME, queue=NAME, gpus=[TASK:]N, nodes=+N, minAvailable=N, "
            "replicas=[TASK:]N.",
        ),
    ] = None,
    at: Annotated[
        datetime | None,
        typer.Option(
            parser=parsing.timestamp,
            metavar="TIME",
            help="Explain why the job was pending at this time (RFC 3339), from the history "
            "or from --log.",
        ),
    ] = None,
    log: Annotated[
        str,
        typer.Option(
            metavar="LOG",
            help="With --at: compute the explanation from the log. The folder of `strom up`, or "
            "HOST:PORT[/CLUSTER] of a broker. [default: .strom with --config, else the history]",
        ),
    ] = "",
    configs: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="With --at: compute the explanation from the log with a scheduler configuration "
            "that may have been in force, in addition to the built-in one. May be repeated.",
        ),
    ] = None,
    verbose: options.Verbose = False,
    output_format: options.DocumentFormat = output.DocumentFormat.TABLE,
    server: options.Server = None,
) -> None:
    """Explain why a job is pending, with numbers.

    Shows the reason, the expected start, the shortage of each resource, and the jobs in front of it
    in its queue. --verbose adds the messages of the scheduler's conditions.

    With --if, the scheduler simulates the future of the cluster twice, as it is and with the
    changes, and both expected starts are shown. Nothing is changed.

    --at shows the explanation that the history recorded at that time. With --log, strom reads the
    state of the cluster at that time from the log and runs a session that explains the job again.
    """
    if changes and at is not None:
        raise UsageError("--if", "it cannot be combined with --at", "leave out --if or --at")
    if at is not None and not (log or configs):
        with options.client(server) as client:
            explanation_records.show(client, namespace, name, at, output_format)
        return
    if at is not None:
        explain_at.show(namespace, name, at, log, configs or (), output_format)
        return
    if log or configs:
        raise UsageError("--log, --config", "they require --at", "add --at TIME")
    if changes:
        _what_if(name, namespace, changes, output_format, server)
        return
    with options.client(server) as client:
        answer = client.explanation(namespace, name)
        is_shown = output_format is output.DocumentFormat.TABLE
        pods = read_pods(client, namespace, name) if is_shown else []
        now = datetime.now(UTC)
        waiting = waiting_pods(client, pods, now)
    if is_shown:
        output.show_lines(explanation_view.render(answer, waiting, now=now, verbose=verbose))
    else:
        output.show_document(output_format, msgspec.to_builtins(answer))


def _what_if(
    name: str,
    namespace: str,
    changes: list[str],
    output_format: output.DocumentFormat,
    server: str | None,
) -> None:
    try:
        wanted = parsing.changes(changes)
    except ValueError as error:
        raise UsageError("--if", str(error), "correct it") from None
    with options.client(server) as client:
        what_if = client.what_if(namespace, name, wanted)
    if output_format is output.DocumentFormat.TABLE:
        output.show_lines(what_if_view.render(what_if, changes, datetime.now(UTC)))
    else:
        output.show_document(output_format, msgspec.to_builtins(what_if))


def read_pods(client: "Client", namespace: str, name: str) -> list[pod_status.Pod]:
    """A job's pods; none if the user may not list pods."""
    with contextlib.suppress(CommandError):
        return [pod_status.decode(raw) for raw in client.pods(namespace, name)]
    return []


def waiting_pods(
    client: "Client", pods: Sequence[pod_status.Pod], now: datetime
) -> explanation_view.WaitingPods:
    """The pods that wait for their nodes or for data, with the leases of these nodes. Nodes whose
    lease the user may not read are left out. ``pods``: of one namespace."""
    leases: dict[str, coordination.Lease | None] = {}
    for node in node_health.nodes_of(pods)[:NODES_READ]:
        try:
            leases[node] = kinds.LEASES.decode(client.send(calls.node_lease(node)))
        except NotFoundError:
            leases[node] = None
        except CommandError:
            break
    stuck = node_health.stuck_pods(pods, leases, now)
    failing = tuple(pod for pod in pods if pod_status.start_error(pod) is not None)
    return explanation_view.WaitingPods(
        failing,
        tuple(node_health.lines(stuck, now)),
        sum(it.untaken for it in stuck),
        sum(bool(pod.spec.node_name) for pod in pods),
        _awaited_data(client, pods, now),
    )


def _awaited_data(
    client: "Client", pods: Sequence[pod_status.Pod], now: datetime
) -> tuple[str, ...]:
    """What nodes fetch for pods that have not started: only the scheduler's estimates if the server
    does not respond."""
    waiting = data_view.waiting_for_data(pods)
    if not waiting:
        return ()
    copies: list[DataSetCopies] = []
    with contextlib.suppress(CommandError):
        copies = data.read(client, waiting[0].metadata.namespace)
    return data_view.waiting_lines(waiting, {each.key: each for each in copies}, now)
