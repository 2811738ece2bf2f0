"""``strom apply``: create or update the objects of manifests, all of them or none."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.errors import CommandError
from stromboli.cli.render import output
from stromboli.shared import decoding
from stromboli.shared.api import kinds

if TYPE_CHECKING:
    from stromboli.cli.client import RejectedError
    from stromboli.cli.manifests import Manifest


class _Named(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""


ManifestNamespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        envvar="STROM_NAMESPACE",
        metavar="NAME",
        help="Namespace of objects whose manifest has none. [default: default]",
    ),
]


def apply(
    files: options.Files,
    namespace: ManifestNamespace = None,
    server: options.Server = None,
) -> None:
    """Create or update objects of manifests, all or none.

    Manifests are YAML or JSON: files with one or several documents, Lists, directories, or stdin.
    """
    from stromboli.cli.client import RejectedError

    input_manifests = manifests_of(files)
    documents = [in_namespace(manifest, namespace) for manifest in input_manifests]
    with options.client(server) as client:
        try:
            applied = client.apply(documents)
        except RejectedError as error:
            raise with_source(error, input_manifests) from None
    output.show_lines(f"{title(one.object, one.name)} {one.result}" for one in applied)


def title(stored: bytes | msgspec.Raw, name: str) -> str:
    """The name of an object of any kind, as ``kubectl`` writes it."""
    named = decoding.from_json(stored, _Named)
    group = named.api_version.rpartition("/")[0]
    return f"{named.kind.lower()}{'.' if group else ''}{group}/{name}"


def manifests_of(files: Sequence[str]) -> "list[Manifest]":
    """The manifests of all the files in order. Raises CommandError with file and line."""
    from stromboli.cli import manifests  # the import of YAML takes 20 ms

    return manifests.read(files, sys.stdin)


def in_namespace(manifest: "Manifest", namespace: str | None) -> dict[str, Any]:
    """The document in this namespace. Raises CommandError if it names another one."""
    document = manifest.document
    kind = kinds.BY_NAME.get((document["apiVersion"], document["kind"]))
    metadata = document.get("metadata")
    if kind is None or not kind.namespaced or not isinstance(metadata, dict):
        return document
    own = metadata.get("namespace") or namespace or options.default_namespace()
    if namespace is None:
        namespace = own
    if own != namespace:
        raise CommandError(
            manifest.place("metadata.namespace"),
            f"{manifest.title} is in namespace {own}, not in {namespace}",
            f"remove metadata.namespace or -n, or use: -n {own}",
        )
    return {**document, "metadata": {**metadata, "namespace": namespace}}


def with_source(error: "RejectedError", input_manifests: "Sequence[Manifest]") -> CommandError:
    """The rejection with file and line instead of the object's index."""
    details = []
    for violation in error.violations:
        index, path = 0, violation.path
        if path.startswith("objects["):
            number, _, path = path.removeprefix("objects[").partition("].")
            index = int(number)
        manifest = input_manifests[index]
        violation_text = msgspec.structs.replace(violation, path=path).message
        details.append(f"{manifest.place(path)}: {manifest.title}: {violation_text}")
    return CommandError(error.what, error.why, error.next_step, tuple(details))
