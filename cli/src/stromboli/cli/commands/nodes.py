"""``strom node``: what nodes really have, and who has it."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.errors import CommandError, NotFoundError
from stromboli.cli.render import node_layout, output
from stromboli.shared.api import kinds

app = typer.Typer(cls=options.Group, help="See what nodes really have, and who has it.")
NARROWEST = 100
"""Columns that a picture takes at least: a narrower terminal wraps it."""


class DrawingFormat(StrEnum):
    """What ``--output`` takes where something is drawn."""

    TEXT = "text"
    SVG = "svg"
    JSON = "json"
    YAML = "yaml"


@app.callback()
def _group() -> None:
    """See what nodes really have, and who has it."""


def _names(ctx: typer.Context, incomplete: str) -> list[str]:
    return options.complete_names(ctx, incomplete, lambda client: client.nodes())


@app.command("view")
def view(
    node: Annotated[str, typer.Argument(help="Name of the node.", autocompletion=_names)],
    output_format: Annotated[
        DrawingFormat, typer.Option("--output", "-o", help="How to show it; svg is a picture.")
    ] = DrawingFormat.TEXT,
    server: options.Server = None,
) -> None:
    """Draw a node: NUMA nodes, CPUs, GPUs and network cards, the ways between them, and who has
    what.

    As the node's agent tells (docs/node-agent.md). A word of CPUs is a core, a letter in it a
    thread: of the pod that holds it alone.
    """
    with options.client(server) as client:
        try:
            seen = client.node_topology(node)
        except NotFoundError:
            if all(kinds.metadata_of(raw).name != node for raw in client.nodes()):
                there = "see what there is: strom top nodes"
                raise CommandError(f"node {node}", "there is none of this name", there) from None
            raise CommandError(
                f"node {node}",
                "no agent has told what it has",
                "run the agent on it: docs/node-agent.md",
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
