"""``strom data``: data sets and their copies in the caches of nodes."""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from stromboli.cli import lazy, options
from stromboli.cli.errors import NotFoundError
from stromboli.cli.render import data_view, output
from stromboli.client.operations import calls, node_calls
from stromboli.shared.api.views.data_copies import DataSetCopies

if TYPE_CHECKING:
    from stromboli.cli.client import Client

_KEY = re.compile("[0-9a-f]{32}")
app = typer.Typer(cls=lazy.GetGroup, help="Inspect data sets in the caches of nodes.")


@app.callback()
def _group() -> None:
    """Inspect data sets in the caches of nodes."""


@app.command("list")
def list_data_sets(
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    all_namespaces: options.AllNamespaces = False,
    node: Annotated[
        str, typer.Option("--node", metavar="NODE", help="Only copies on this node.")
    ] = "",
    uri: Annotated[
        str, typer.Option("--uri", metavar="PREFIX", help="Only URIs with this prefix.")
    ] = "",
    output_format: options.DocumentFormat = output.DocumentFormat.TABLE,
    server: options.Server = None,
) -> None:
    """List data sets: size, copies by state, why copies failed or wait.

    Lists the data sets that jobs of the namespace use. With --all-namespaces, lists the data sets
    of all caches, which requires the right to list nodes.
    """
    inside = None if all_namespaces else namespace
    with options.client(server) as client:
        copies = read(client, inside, uri=uri, node=node)
    if output_format is not output.DocumentFormat.TABLE:
        output.show_document(output_format, _document(copies))
    elif not copies:
        output.show_empty_list("data sets", inside)
    else:
        _show_list(copies, is_of_node=bool(node))


@app.command("get")
def get(
    name: Annotated[
        str, typer.Argument(metavar="DATASET", help="URI or content key of the data set.")
    ],
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    all_namespaces: options.AllNamespaces = False,
    output_format: options.DocumentFormat = output.DocumentFormat.TABLE,
    server: options.Server = None,
) -> None:
    """Show a data set and its copies by node.

    If jobs request a URI with different digests, each digest is a data set.
    """
    inside = None if all_namespaces else namespace
    wanted = {"key": name} if _KEY.fullmatch(name) else {"uri": name}
    with options.client(server) as client:
        copies = [each for each in read(client, inside, **wanted) if name in (each.key, each.uri)]
    if not copies:
        where = "-A" if inside is None else f"-n {inside}"
        raise NotFoundError(
            f"data set {name}", "not found", f"list what exists: strom data list {where}"
        )
    if output_format is output.DocumentFormat.TABLE:
        for number, each in enumerate(copies):
            output.show_lines([""] if number else [])
            _show(each)
    else:
        output.show_document(output_format, _document(copies))


def read(
    client: "Client", namespace: str | None, *, key: str = "", uri: str = "", node: str = ""
) -> list[DataSetCopies]:
    """The data sets that jobs of a namespace use, or all, by URI. Raises CommandError."""
    copies: list[DataSetCopies] = []
    token = ""
    while True:
        call = node_calls.data_sets(
            namespace or "",
            key=key,
            uri=uri,
            node=node,
            limit=calls.PAGE_ITEMS,
            continue_=token,
        )
        page = client.send(call)
        copies += page.items
        token = page.continue_
        if not token:
            return sorted(copies, key=lambda each: (each.uri, each.key))


def _show_list(copies: list[DataSetCopies], *, is_of_node: bool) -> None:
    now = datetime.now(UTC)
    if is_of_node:
        rows = [data_view.on_node_row(each, copy, now) for each in copies for copy in each.nodes]
        output.show_table(data_view.ON_NODE_HEADERS, rows)
    else:
        output.show_table(data_view.HEADERS, [data_view.row(each, now) for each in copies])


def _show(copies: DataSetCopies) -> None:
    output.show_lines(data_view.facts(copies))
    if copies.nodes:
        output.show_lines([""])
        output.show_table(data_view.NODE_HEADERS, data_view.node_rows(copies, datetime.now(UTC)))


def _document(copies: list[DataSetCopies]) -> dict[str, Any]:
    return {"items": [msgspec.to_builtins(each) for each in copies]}
