"""``strom queue operate`` and ``update``: open, close and change queues that exist."""

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
"""Where commands for queues live, since queues have no namespace (spec/cli.md 2)."""

Capability = Annotated[
    str | None,
    typer.Option("--capability", metavar="AMOUNTS", help="The most it may use: cpu=8,memory=16Gi."),
]
Deserved = Annotated[
    str | None,
    typer.Option("--deserved", metavar="AMOUNTS", help="What it can claim back from others."),
]
Guarantee = Annotated[
    str | None, typer.Option("--guarantee", metavar="AMOUNTS", help="What it always has.")
]


class Action(StrEnum):
    """What can be done with a queue."""

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
            help="open: it takes jobs. close: it takes no more, and those in it go on.",
        ),
    ],
    server: options.Server = None,
) -> None:
    """Open a queue, or close it to new jobs."""
    with options.client(server) as client:
        send(client, name, action)
    output.show_lines([f"{output.title(kinds.QUEUES, name)} asked to {action.value}"])


def update(
    name: options.QueueName,
    weight: Annotated[
        int | None, typer.Option("--weight", "-w", min=1, max=65535, help="Its share.")
    ] = None,
    capability: Capability = None,
    deserved: Deserved = None,
    guarantee: Guarantee = None,
    priority: Annotated[
        int | None, typer.Option("--priority", help="Queues of higher priority are served first.")
    ] = None,
    reclaimable: Annotated[
        bool | None,
        typer.Option(
            "--reclaimable/--no-reclaimable",
            help="Whether others may claim back what it uses beyond its share.",
        ),
    ] = None,
    server: options.Server = None,
) -> None:
    """Change a queue's share and limits; amounts of resources that are not named stay.

    Amounts are resource=quantity with commas between them: cpu=8,memory=16Gi,nvidia.com/gpu=4
    """
    spec = amounts(capability, deserved, guarantee)
    given = {"weight": weight, "priority": priority, "reclaimable": reclaimable}
    spec |= {key: value for key, value in given.items() if value is not None}
    if not spec:
        raise typer.BadParameter("name what is to be changed", param_hint="--weight and others")
    with options.client(server) as client:
        result = change(client, name, spec)
    output.show_lines([f"{output.title(kinds.QUEUES, name)} {result}"])


def amounts(capability: str | None, deserved: str | None, guarantee: str | None) -> dict[str, Any]:
    """A queue's spec of what is given of the three. Raises BadParameter."""
    spec: dict[str, Any] = {}
    if found := options.resources(capability, "--capability"):
        spec["capability"] = found
    if found := options.resources(deserved, "--deserved"):
        spec["deserved"] = found
    if found := options.resources(guarantee, "--guarantee"):
        spec["guarantee"] = {"resource": found}
    return spec


def change(client: "Client", name: str, spec: dict[str, Any]) -> str:
    """Merge into a queue's spec; returns what became of it. Raises NotFoundError, RefusedError."""
    found = kinds.metadata_of(client.queue(name))
    (applied,) = client.apply([_document(found, {"spec": spec})])
    return applied.result


def send(client: "Client", name: str, action: Action) -> None:
    """Ask for a queue to be opened or closed. Raises NotFoundError, RefusedError."""
    found = kinds.metadata_of(client.queue(name))
    client.apply([command(found, action)], f"queue {name}")


def command(queue: ObjectMeta, action: Action) -> dict[str, Any]:
    """The Command for a queue, which owns it."""
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


def _document(found: ObjectMeta, changes: dict[str, Any]) -> dict[str, Any]:
    """The uid goes along: a queue made anew in between is not the one that was meant."""
    return {
        "apiVersion": kinds.QUEUES.api_version,
        "kind": kinds.QUEUES.kind,
        "metadata": msgspec.to_builtins(ObjectMeta(name=found.name, uid=found.uid)),
        **changes,
    }
