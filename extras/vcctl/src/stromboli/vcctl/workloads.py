"""``vcctl jobflow`` and ``vcctl jobtemplate``: create from files, list as tables. Source: Volcano,
pkg/cli."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stromboli.cli.commands import apply
from stromboli.cli.errors import CommandError, NotFoundError
from stromboli.cli.render import output
from stromboli.client.operations import workload_calls
from stromboli.shared.api import kinds
from stromboli.vcctl import shell, tables

if TYPE_CHECKING:
    from stromboli.cli.client import Client

NAMESPACE = "default"
Kind = kinds.Kind[Any]
MakerName = Annotated[str, typer.Option("--name", "-N", help="The name.")]
Filename = Annotated[
    str, typer.Option("--filename", "-f", help="A file with one or more objects of the kind.")
]
OutputText = Annotated[str, typer.Option("--output", "-o", help="yaml or json.")]


def _commands(kind: Kind) -> typer.Typer:
    """The commands of ``vcctl jobflow`` or ``vcctl jobtemplate``."""
    word = kind.kind.lower()
    app = shell.program(word)

    @app.callback(help=f"{kind.kind} operations.")
    def _group() -> None: ...

    @app.command("create", context_settings=shell.CONTEXT, help=f"Create {kind.kind}s from a file.")
    def create(
        filename: Filename = "", master: shell.Master = None, kubeconfig: shell.Kubeconfig = None
    ) -> None:
        documents = _of_file(kind, filename)
        with shell.client(master, kubeconfig) as client:
            for document in documents:
                _tell(kind, "create", "Created", document, lambda it: _create(client, kind, it))

    @app.command("delete", context_settings=shell.CONTEXT, help=f"Delete {kind.kind}s.")
    def delete(
        name: MakerName = "",
        namespace: shell.Namespace = NAMESPACE,
        filename: Filename = "",
        master: shell.Master = None,
        kubeconfig: shell.Kubeconfig = None,
    ) -> None:
        if filename:
            documents = _of_file(kind, filename)
        else:
            metadata = {"name": shell.required(name), "namespace": namespace}
            documents = [{"metadata": metadata}]
        with shell.client(master, kubeconfig) as client:
            for document in documents:
                if filename:
                    _tell(kind, "delete", "Deleted", document, lambda it: _delete(client, kind, it))
                else:
                    _delete(client, kind, document)
                    output.show_lines([f"Deleted {kind.kind}: {namespace}/{name}"])

    @app.command("get", context_settings=shell.CONTEXT, help=f"Show a {kind.kind}.")
    def get(
        name: MakerName = "",
        namespace: shell.Namespace = NAMESPACE,
        master: shell.Master = None,
        kubeconfig: shell.Kubeconfig = None,
    ) -> None:
        with shell.client(master, kubeconfig) as client:
            raw = client.send(workload_calls.workload(kind, namespace, shell.required(name)))
            objects = [client.decode(kind, raw)]
        output.show_lines(tables.workloads(kind, objects, datetime.now(UTC)))

    def show_all(namespace: str, master: str | None, kubeconfig: str | None) -> None:
        with shell.client(master, kubeconfig) as client:
            objects = [
                client.decode(kind, raw) for raw in client.workloads(kind, namespace or None)
            ]
        objects.sort(key=lambda each: each.metadata.key)
        lines = tables.workloads(kind, objects, datetime.now(UTC)) if objects else [shell.NOTHING]
        output.show_lines(lines)

    if kind is kinds.JOB_FLOWS:

        @app.command("list", context_settings=shell.CONTEXT, help=f"List {kind.kind}s.")
        def list_flows(
            namespace: shell.Namespace = NAMESPACE,
            all_namespaces: shell.AllNamespaces = False,
            master: shell.Master = None,
            kubeconfig: shell.Kubeconfig = None,
        ) -> None:
            show_all("" if all_namespaces else namespace, master, kubeconfig)

    else:

        @app.command("list", context_settings=shell.CONTEXT, help=f"List {kind.kind}s.")
        def list_templates(
            namespace: shell.Namespace = NAMESPACE,
            master: shell.Master = None,
            kubeconfig: shell.Kubeconfig = None,
        ) -> None:
            show_all(namespace, master, kubeconfig)

    @app.command("describe", context_settings=shell.CONTEXT, help=f"Show a {kind.kind} in full.")
    def describe(
        name: MakerName = "",
        namespace: shell.Namespace = NAMESPACE,
        output_format: OutputText = "yaml",
        master: shell.Master = None,
        kubeconfig: shell.Kubeconfig = None,
    ) -> None:
        if output_format not in ("yaml", "json"):
            output.show_lines([f"Unsupported output format: {output_format}"])
            return
        with shell.client(master, kubeconfig) as client:
            if name:
                raws = [client.send(workload_calls.workload(kind, namespace, name))]
            else:
                raws = [bytes(raw) for raw in client.workloads(kind, namespace)]
        for number, raw in enumerate(raws):
            document = output.with_type_meta(kind, raw)
            document["metadata"].pop("managedFields", None)
            if number:
                output.show_lines([""])
            output.show_document(output.DocumentFormat(output_format), document)

    return app


def _tell(kind: Kind, verb: str, done: str, document: dict[str, Any], act: Any) -> None:
    """Execute an action with one document and print its result. A failure does not stop the
    others."""
    metadata = document["metadata"]
    try:
        act(document)
    except CommandError as error:
        output.show_lines([f"Failed to {verb} {kind.kind}: {shell.reason(error)}"])
    else:
        output.show_lines([f"{done} {kind.kind}: {metadata['namespace']}/{metadata['name']}"])


def _create(client: "Client", kind: Kind, document: dict[str, Any]) -> None:
    namespace, name = document["metadata"]["namespace"], document["metadata"]["name"]
    try:
        client.send(workload_calls.workload(kind, namespace, name))
    except NotFoundError:
        client.apply([document])
    else:
        raise CommandError(f"{kind.kind} {name}", "already exists", "delete it, or apply a change")


def _delete(client: "Client", kind: Kind, document: dict[str, Any]) -> None:
    metadata = document["metadata"]
    client.send(workload_calls.delete_workload(kind, metadata["namespace"], metadata["name"]))


def _of_file(kind: Kind, filename: str) -> list[dict[str, Any]]:
    """The documents of a file, each with its kind, a namespace and a name."""
    if not filename:
        raise CommandError("filename", "it is mandatory, and it is empty", "set -f")
    documents = []
    for manifest in apply.manifests_of([filename]):
        metadata = {"namespace": NAMESPACE, **(manifest.document.get("metadata") or {})}
        if manifest.document.get("kind") != kind.kind or not metadata.get("name"):
            raise CommandError(
                filename, f"a document is not a {kind.kind} with a name", "remove or correct it"
            )
        documents.append({**manifest.document, "metadata": metadata})
    return documents


jobflow = _commands(kinds.JOB_FLOWS)
jobtemplate = _commands(kinds.JOB_TEMPLATES)
