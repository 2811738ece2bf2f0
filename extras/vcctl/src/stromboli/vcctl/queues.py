"""Commands about queues: ``vcctl queue`` and vqueues."""

from typing import Annotated, Any

import msgspec
import typer

from stromboli.cli.commands import queue_changes
from stromboli.cli.commands import queues as own
from stromboli.cli.errors import CommandError
from stromboli.cli.render import output
from stromboli.shared import decoding
from stromboli.shared.api import kinds
from stromboli.vcctl import shell, tables

queue = shell.program("queue")


@queue.callback()
def _queue() -> None:
    """Queue operations."""


class _Counted(msgspec.Struct):
    status: dict[str, Any] = {}


@queue.command("create", context_settings=shell.CONTEXT)
def create(
    name: shell.OwnName = "test",
    weight: Annotated[int, typer.Option("--weight", "-w", help="The weight of the queue.")] = 1,
    state: Annotated[
        str, typer.Option("--state", "-S", help="Ignored: a new queue is opened by the controller.")
    ] = "Open",
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """Create a queue."""
    document = {
        "apiVersion": kinds.QUEUES.api_version,
        "kind": kinds.QUEUES.kind,
        "metadata": {"name": name},
        "spec": {"weight": weight},
        "status": {"state": state},
    }
    with shell.client(master, kubeconfig) as client:
        client.create_queue(document)


@queue.command("delete", context_settings=shell.CONTEXT)
def delete(
    name: shell.OwnName = "",
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """Delete a queue."""
    with shell.client(master, kubeconfig) as client:
        client.delete_queue(shell.required(name))


@queue.command("operate", context_settings=shell.CONTEXT)
def operate(
    name: shell.OwnName = "",
    action: Annotated[str, typer.Option("--action", "-a", help="open, close or update.")] = "",
    weight: Annotated[
        int, typer.Option("--weight", "-w", help="With update: the weight of the queue.")
    ] = 0,
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """Open, close or update a queue."""
    shell.required(name)
    known = [each.value for each in queue_changes.Action]
    if action not in (*known, "update"):
        raise CommandError(f"queue action {action!r}", "unknown", "use open, close or update")
    if action == "update" and weight == 0:
        raise CommandError(
            "weight", "0 is not a weight", "set a weight of at least 1 with --weight"
        )
    with shell.client(master, kubeconfig) as client:
        if action == "update":
            queue_changes.change(client, name, {"weight": weight})
        else:
            queue_changes.send(client, name, queue_changes.Action(action))


@queue.command("get", context_settings=shell.CONTEXT)
def get(
    name: shell.OwnName = "",
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """Show a queue."""
    with shell.client(master, kubeconfig) as client:
        queue = client.decode(kinds.QUEUES, client.queue(shell.required(name)))
        output.show_lines(tables.queues([queue], own.count_pod_groups(client)))


@queue.command("list", context_settings=shell.CONTEXT)
def list_queues(master: shell.Master = None, kubeconfig: shell.Kubeconfig = None) -> None:
    """List queues."""
    with shell.client(master, kubeconfig) as client:
        queues = [client.decode(kinds.QUEUES, raw) for raw in client.queues()]
        counts = own.count_pod_groups(client)
    queues.sort(key=lambda each: each.metadata.name)
    output.show_lines(tables.queues(queues, counts) if queues else [shell.NOTHING])


def vqueues(
    name: shell.OwnName = "",
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """List queues, or show one."""
    with shell.client(master, kubeconfig) as client:
        raws = [client.queue(name)] if name else client.queues()
        rows = [
            (client.decode(kinds.QUEUES, raw), decoding.from_json(raw, _Counted).status)
            for raw in raws
        ]
    rows.sort(key=lambda pair: pair[0].metadata.name)
    output.show_lines(tables.own_queues(rows) if rows else [shell.NOTHING])
