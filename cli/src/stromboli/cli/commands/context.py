"""``strom context``, ``login`` and ``whoami``: the server, the user and the namespace."""

import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from stromboli.cli import contexts, lazy, options
from stromboli.cli.errors import CommandError
from stromboli.cli.render import output
from stromboli.client.operations import calls

HEADERS = ("CURRENT", "NAME", "SERVER", "NAMESPACE", "TOKEN FILE", "CA FILE")
app = typer.Typer(
    cls=lazy.Group, help="Show, select and change contexts: servers with a namespace."
)


def _names(incomplete: str) -> list[str]:
    try:
        known = contexts.load(os.environ).contexts
    except CommandError:
        return []
    return sorted(name for name in known if name.startswith(incomplete))


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The context's name.", autocompletion=_names)
]
ServerUrl = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="Base URL of the REST API.")
]
CaFile = Annotated[
    str | None, typer.Option("--ca-file", metavar="FILE", help="CA certificate of the server.")
]
ContextNamespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Default namespace.")
]


@app.command("list")
def list_contexts() -> None:
    """List contexts; * marks the selected one."""
    stored_contexts = contexts.load(os.environ)
    selected = os.environ.get(contexts.VARIABLE) or stored_contexts.current
    if not stored_contexts.contexts:
        output.show_empty_list("contexts")
        return
    rows = [
        ("*" if name == selected else "", name, it.server, it.namespace, it.token_file, it.ca_file)
        for name, it in sorted(stored_contexts.contexts.items())
    ]
    output.show_table(HEADERS, rows)


@app.command("use")
def use(name: Name) -> None:
    """Select a context for further commands."""
    stored_contexts = contexts.load(os.environ)
    if name not in stored_contexts.contexts:
        known = ", ".join(stored_contexts.contexts) or "none"
        why = f"it does not exist; known contexts: {known}"
        next_step = "create it: strom context set"
        raise CommandError(f"context {name}", why, next_step)
    contexts.save(os.environ, msgspec.structs.replace(stored_contexts, current=name))
    output.show_lines([f"context {name} selected"])


@app.command("set")
def set_context(
    name: Name,
    server: ServerUrl = None,
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="File with a bearer token.")
    ] = None,
    ca_file: CaFile = None,
    namespace: ContextNamespace = None,
) -> None:
    """Create or change a context; values without an option stay unchanged."""
    _store(name, server, token_file, ca_file, namespace, is_selected=False)
    output.show_lines([f"context {name} set"])


@app.command("delete")
def delete(name: Name) -> None:
    """Delete a context and the token that login stored for it."""
    stored_contexts = contexts.load(os.environ)
    if name not in stored_contexts.contexts:
        raise CommandError(f"context {name}", "it does not exist", "list: strom context list")
    left = {key: value for key, value in stored_contexts.contexts.items() if key != name}
    current = "" if stored_contexts.current == name else stored_contexts.current
    contexts.save(os.environ, contexts.Contexts(current, left))
    _token_file(name).unlink(missing_ok=True)
    output.show_lines([f"context {name} deleted"])


def login(
    name: Annotated[
        str, typer.Argument(metavar="[CONTEXT]", help="Name of the context to create or change.")
    ] = "default",
    server: ServerUrl = None,
    ca_file: CaFile = None,
    namespace: ContextNamespace = None,
) -> None:
    """Store a token from stdin in a context and select it.

    kubectl create token trainer --audience stromboli | strom login --server https://strom.example

    A token that the server refuses is not stored.
    """
    token = _token()
    context = _changed(name, server, "", ca_file, namespace)
    from stromboli.cli.client import Client
    from stromboli.cli.server import checked

    file = _token_file(name)
    address = checked(context.server, f"from context {name}")
    draft = file.with_suffix(".new")
    contexts.write_private(draft, token.encode())
    try:
        with Client(address, str(draft), context.ca_file or None) as client:
            user = client.user_name()
        contexts.write_private(file, token.encode())
    finally:
        draft.unlink(missing_ok=True)
    _store(name, server, str(file), ca_file, namespace, is_selected=True)
    identity = f"you are {user}" if user else "the server has no accounts"
    output.show_lines([f"context {name} selected: {identity}"])


def whoami(server: options.Server = None) -> None:
    """Show your user, groups, server and namespace."""
    selected = contexts.current(os.environ)
    with options.client(server) as client:
        me = client.send(calls.me())
        address = client.address
    facts = [
        ("user", me.name or "none: the server has no accounts"),
        ("groups", ", ".join(me.groups)),
        ("server", f"{address.url} ({address.origin})"),
        ("namespace", options.default_namespace()),
        ("context", selected[0] if selected else ""),
    ]
    output.show_lines(output.facts(*((label, text) for label, text in facts if text)))


def _token() -> str:
    if sys.stdin.isatty():
        import getpass

        token = getpass.getpass("Token: ").strip()
    else:
        token = sys.stdin.read().strip()
    if not token:
        raise CommandError("token", "stdin is empty", "pipe a token into strom login")
    return token


def _token_file(name: str) -> Path:
    return contexts.folder(os.environ) / contexts.TOKENS / name


def _changed(
    name: str,
    server: str | None,
    token_file: str | None,
    ca_file: str | None,
    namespace: str | None,
) -> contexts.Context:
    """The context with the given values. Raises BadParameter for an invalid name or no server."""
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name[0] == ".":
        raise typer.BadParameter(
            f"{name!r} is not a valid name; use letters, digits, - _ and .", param_hint="NAME"
        )
    before = contexts.load(os.environ).contexts.get(name)
    if before is None and server is None:
        raise typer.BadParameter("a new context needs a server", param_hint="--server")
    fields = {
        "server": server,
        "token_file": token_file and str(Path(token_file).absolute()),
        "ca_file": ca_file and str(Path(ca_file).absolute()),
        "namespace": namespace,
    }
    known = {key: value for key, value in fields.items() if value is not None}
    base = before or contexts.Context(server or "")
    return msgspec.structs.replace(base, **known)


def _store(
    name: str,
    server: str | None,
    token_file: str | None,
    ca_file: str | None,
    namespace: str | None,
    *,
    is_selected: bool,
) -> None:
    context = _changed(name, server, token_file, ca_file, namespace)
    from stromboli.cli.server import checked

    checked(context.server, "from --server")
    stored_contexts = contexts.load(os.environ)
    current = name if is_selected or not stored_contexts.current else stored_contexts.current
    contexts.save(
        os.environ, contexts.Contexts(current, {**stored_contexts.contexts, name: context})
    )
