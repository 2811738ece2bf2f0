"""``strom queue update``, ``open`` and ``close``: changes of existing queues."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.render import output
from stromboli.shared.api import kinds
from stromboli.shared.api.meta import ObjectMeta

if TYPE_CHECKING:
    from stromboli.cli.client import Client

COMMANDS_NAMESPACE = "default"
"""The namespace of Commands for queues, which have none themselves; vcctl uses the same."""

Capability = Annotated[
    str | None,
    typer.Option(
        "--capability",
        metavar="AMOUNTS",
        help="Upper limit of the queue's usage: cpu=8,memory=16Gi.",
    ),
]
Deserved = Annotated[
    str | None,
    typer.Option(
        "--deserved",
        metavar="AMOUNTS",
        help="Fair share of the queue, which it can reclaim from other queues.",
    ),
]
Guarantee = Annotated[
    str | None,
    typer.Option("--guarantee", metavar="AMOUNTS", help="Minimum that is reserved for the queue."),
]


class Action(StrEnum):
    """Actions on a queue."""

    OPEN = "open"
    CLOSE = "close"

    @property
    def command(self) -> str:
        """The action's name in a Command."""
        return "OpenQueue" if self is Action.OPEN else "CloseQueue"


def operate(
    name: options.QueueName,
    action: Annotated[
        Action,
        typer.Option(
            "--action",
            "-a",
            help="open: it accepts jobs. close: it accepts no new jobs, and its jobs continue.",
        ),
    ],
    server: options.Server = None,
) -> None:
    """Open or close a queue."""
    _send_all([name], action, server)


def open_queues(names: options.QueueNames, server: options.Server = None) -> None:
    """Open queues: they accept jobs again."""
    _send_all(names, Action.OPEN, server)


def close_queues(names: options.QueueNames, server: options.Server = None) -> None:
    """Close queues to new jobs; their jobs continue."""
    _send_all(names, Action.CLOSE, server)


def _send_all(names: Sequence[str], action: Action, server: str | None) -> None:
    with options.client(server) as client:

        def request(name: str) -> str:
            send(client, name, action)
            return f"{output.title(kinds.QUEUES, name)} {action.value} requested"

        options.for_each(names, request)


def update(
    name: options.QueueName,
    weight: Annotated[
        int | None,
        typer.Option("--weight", "-w", min=1, max=65535, help="Weight of the queue's fair share."),
    ] = None,
    capability: Capability = None,
    deserved: Deserved = None,
    guarantee: Guarantee = None,
    priority: Annotated[
        int | None,
        typer.Option("--priority", help="Priority; queues of higher priority are scheduled first."),
    ] = None,
    reclaimable: Annotated[
        bool | None,
        typer.Option(
            "--reclaimable/--no-reclaimable",
            help="Whether other queues may reclaim its usage beyond its share.",
        ),
    ] = None,
    server: options.Server = None,
) -> None:
    """Change the share and the limits of a queue.

    Resources that are not listed keep their amounts. Amounts are resource=quantity, separated by
    commas: cpu=8,memory=16Gi,nvidia.com/gpu=4
    """
    spec = amounts(capability, deserved, guarantee)
    fields = {"weight": weight, "priority": priority, "reclaimable": reclaimable}
    spec |= {key: value for key, value in fields.items() if value is not None}
    if not spec:
        raise typer.BadParameter(
            "set at least one option", param_hint="--weight, --capability, ..."
        )
    with options.client(server) as client:
        result = change(client, name, spec)
    output.show_lines([f"{output.title(kinds.QUEUES, name)} {result}"])


def amounts(capability: str | None, deserved: str | None, guarantee: str | None) -> dict[str, Any]:
    """A queue's spec from these options. Raises BadParameter."""
    spec: dict[str, Any] = {}
    if quantities := options.resources(capability, "--capability"):
        spec["capability"] = quantities
    if quantities := options.resources(deserved, "--deserved"):
        spec["deserved"] = quantities
    if quantities := options.resources(guarantee, "--guarantee"):
        spec["guarantee"] = {"resource": quantities}
    return spec


def change(client: "Client", name: str, spec: dict[str, Any]) -> str:
    """Merge into a queue's spec; returns the result. Raises NotFoundError, RejectedError."""
    metadata = kinds.metadata_of(client.queue(name))
    (applied,) = client.apply([_document(metadata, {"spec": spec})])
    return applied.result


def send(client: "Client", name: str, action: Action) -> None:
    """Request that a queue is opened or closed. Raises NotFoundError, RejectedError."""
    metadata = kinds.metadata_of(client.queue(name))
    client.apply([command(metadata, action)], f"queue {name}")


def command(queue: ObjectMeta, action: Action) -> dict[str, Any]:
    """The Command object for a queue. The queue owns it."""
    target = {
        "apiVersion": kinds.QUEUES.api_version,
        "kind": kinds.QUEUES.kind,
        "name": queue.name,
        "uid": queue.uid,
        "controller": True,
    }
    return {
        "apiVersion": kinds.COMMANDS.api_version,
        "kind": kinds.COMMANDS.kind,
        "metadata": {
            "generateName": f"{queue.name}-{action.command.lower()}-",
            "namespace": COMMANDS_NAMESPACE,
            "ownerReferences": [target],
        },
        "action": action.command,
        "target": target,
    }


def _document(metadata: ObjectMeta, changes: dict[str, Any]) -> dict[str, Any]:
    """A patch with the uid, so that a recreated queue of this name is not changed."""
    return {
        "apiVersion": kinds.QUEUES.api_version,
        "kind": kinds.QUEUES.kind,
        "metadata": msgspec.to_builtins(ObjectMeta(name=metadata.name, uid=metadata.uid)),
        **changes,
    }
