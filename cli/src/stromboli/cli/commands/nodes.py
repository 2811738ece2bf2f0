"""``strom node``: nodes with their hardware, and the pods that hold it."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec
import typer

from stromboli.cli import lazy, options
from stromboli.cli.errors import CommandError, NotFoundError
from stromboli.cli.render import node_layout, output
from stromboli.shared.api import kinds


class NodeGroup(lazy.Group):
    """Commands about nodes."""

    aliases: ClassVar[dict[str, str]] = {"view": "get", "describe": "get"}


app = typer.Typer(cls=NodeGroup, help="Inspect nodes and their devices.")
NARROWEST = 100
"""The least columns of a drawing; a narrower terminal wraps it."""


class DrawingFormat(StrEnum):
    """Values of ``--output`` for a drawing."""

    TEXT = "text"
    SVG = "svg"
    JSON = "json"
    YAML = "yaml"


@app.callback()
def _group() -> None:
    """Inspect nodes and their devices."""


def _names(ctx: typer.Context, incomplete: str) -> list[str]:
    return options.complete_names(ctx, incomplete, lambda client: client.nodes())


@app.command("get")
def get(
    node: Annotated[str, typer.Argument(help="Name of the node.", autocompletion=_names)],
    output_format: Annotated[
        DrawingFormat, typer.Option("--output", "-o", help="Output format; svg is an image.")
    ] = DrawingFormat.TEXT,
    server: options.Server = None,
) -> None:
    """Show a node: NUMA nodes, CPUs, GPUs, network cards, interconnects, and pods.

    The data is from the node agent (docs/node-agent.md). Each group of letters is a CPU core, each
    letter a thread; the letter names the pod that holds it exclusively.
    """
    with options.client(server) as client:
        try:
            seen = client.node_topology(node)
        except NotFoundError:
            if all(kinds.metadata_of(raw).name != node for raw in client.nodes()):
                there = "list nodes: strom top nodes"
                raise CommandError(f"node {node}", "not found", there) from None
            raise CommandError(
                f"node {node}",
                "no node agent has reported its hardware",
                "install the node agent: docs/node-agent.md",
            ) from None
    if output_format in (DrawingFormat.JSON, DrawingFormat.YAML):
        output.show_document(output.DocumentFormat(output_format.value), msgspec.to_builtins(seen))
        return
    picture = node_layout.node_layout(seen, datetime.now(UTC))
    if output_format is DrawingFormat.SVG:
        from stromboli.cli.render import node_svg

        output.show_lines([node_svg.render_svg(picture)])
        return
    from rich.console import Console

    from stromboli.cli.render import node_text

    console = Console(highlight=False)
    console.width = max(console.width, NARROWEST)
    console.print(node_text.render_text(picture))
