"""``strom get``, ``delete`` and ``diff``: objects of any kind, by kind and name or by manifest."""

import difflib
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from typer.core import TyperCommand

from stromboli.cli import options, usage_errors
from stromboli.cli.commands import apply
from stromboli.cli.errors import CommandError, NotFoundError
from stromboli.cli.parameters import object_names, resources, selectors
from stromboli.cli.render import output
from stromboli.shared.api import kinds

if TYPE_CHECKING:
    from stromboli.cli.client import Client
    from stromboli.cli.manifests import Manifest

WORDS = ", ".join(each.word for each in resources.RESOURCES)
SYSTEM_FIELDS = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
"""Metadata that the API server writes; a diff does not show them."""


def get(
    ctx: typer.Context,
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"One of {WORDS}.")],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Names. [default: all objects]")
    ] = None,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    all_namespaces: options.AllNamespaces = False,
    selector: options.Selector = "",
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """Show objects of a kind: strom get job train -o yaml.

    KIND/NAME is KIND with one name: strom get job/train. Without -o the output is that of the
    kind's own commands get and list.
    """
    word, slash, name = kind.partition("/")
    resource = _resource(word.partition(".")[0] if slash else kind)
    names = [name, *(names or ())] if slash else names
    if output_format.is_table:
        _delegate(ctx, resource, names, namespace, all_namespaces, selector, output_format, server)
        return
    wanted = options.selector(selector)
    names = [object_names.without_kind(resource.word, name) for name in names or ()]
    with options.client(server) as client:
        if names:
            raws = [msgspec.Raw(client.send(resource.get(namespace, name))) for name in names]
        else:
            items = client.send(resource.list("" if all_namespaces else namespace)).items
            labelled = [(kinds.metadata_of(raw).labels, raw) for raw in items]
            raws = [raw for labels, raw in labelled if selectors.matches(wanted, labels)]
    output.show_objects(output_format, resource.kind, raws, many=len(names) != 1)


class DeleteCommand(TyperCommand):
    """``strom delete``. Unlike ``kubectl delete``, it takes only manifests, no names."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Refuse ``delete KIND NAME`` with the command that deletes by name."""
        if args and not args[0].startswith("-"):
            ctx.fail(
                "it deletes the objects of manifests (-f FILE); by name: strom job delete NAME, "
                "strom queue delete NAME"
            )
        return super().parse_args(ctx, args)


def delete(
    files: options.Files,
    ignore_not_found: Annotated[
        bool,
        typer.Option("--ignore-not-found", help="Do not fail if an object does not exist."),
    ] = False,
    namespace: apply.ManifestNamespace = None,
    server: options.Server = None,
) -> None:
    """Delete the objects of manifests.

    The last object is deleted first, so that jobs precede their queue. An error about one object
    does not stop the others.
    """
    documents = [
        apply.in_namespace(each, namespace) for each in reversed(apply.manifests_of(files))
    ]
    titles = {title(document): document for document in documents}
    with options.client(server) as client:

        def remove(name: str) -> str:
            document = titles[name]
            resource = _resource_of(document)
            if resource.delete is None:
                why = f"a {resource.kind.kind} is deleted with its owner"
                raise CommandError(name, why, "delete its job")
            metadata = document["metadata"]
            space = metadata.get("namespace") or options.DEFAULT_NAMESPACE
            try:
                client.send(resource.delete(space, metadata["name"]))
            except NotFoundError:
                if not ignore_not_found:
                    raise
                return f"{name} not found"
            return f"{name} deleted"

        options.for_each(list(titles), remove)


def diff(
    files: options.Files,
    namespace: apply.ManifestNamespace = None,
    server: options.Server = None,
) -> None:
    """Show what apply would change; writes nothing.

    The defaults and errors of admission are included. Exit code 0: no difference. 1: differences,
    or rejected.
    """
    manifests = apply.manifests_of(files)
    documents = [apply.in_namespace(each, namespace) for each in manifests]
    with options.client(server) as client:
        lines = [line for pair in _pairs(client, manifests, documents) for line in _diff(*pair)]
    output.show_lines(lines)
    if lines:
        raise typer.Exit(1)


def title(document: dict[str, Any]) -> str:
    """The name of a manifest's object, such as ``job.batch.volcano.sh/train``. Raises CommandError
    for a manifest without a name."""
    name = (document.get("metadata") or {}).get("name")
    if not name:
        raise CommandError(str(document.get("kind")), "it has no name", "set metadata.name")
    group = str(document["apiVersion"]).rpartition("/")[0]
    return f"{str(document['kind']).lower()}{'.' if group else ''}{group}/{name}"


def _pairs(
    client: "Client", manifests: "list[Manifest]", documents: list[dict[str, Any]]
) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The title of each object, as it is stored and as ``apply`` would store it."""
    from stromboli.cli.client import RejectedError

    try:
        checked = client.check(documents)
    except RejectedError as error:
        raise apply.with_source(error, manifests) from None
    pairs = []
    for document, after in zip(documents, checked, strict=True):
        resource = _resource_of(document)
        try:
            raw = client.send(resource.get(after.namespace, after.name))
            before = output.with_type_meta(resource.kind, raw)
        except NotFoundError:
            before = {}
        pairs.append((title(document), before, msgspec.json.decode(after.object)))
    return pairs


def _diff(name: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    old, new = (_yaml(each) for each in (before, after))
    return list(difflib.unified_diff(old, new, f"stored/{name}", f"applied/{name}", lineterm=""))


def _yaml(document: dict[str, Any]) -> list[str]:
    """The lines of an object, without status and system fields; none if there is no object."""
    import yaml

    if not document:
        return []
    metadata = {k: v for k, v in document["metadata"].items() if k not in SYSTEM_FIELDS}
    manifest = {**document, "metadata": metadata}
    manifest.pop("status", None)
    text: str = yaml.safe_dump(manifest, allow_unicode=True)
    return text.splitlines()


def _delegate(
    ctx: typer.Context,
    resource: resources.Resource,
    names: list[str] | None,
    namespace: str,
    all_namespaces: bool,
    selector: str,
    wanted: output.Format,
    server: str | None,
) -> None:
    """Call the kind's own ``get`` for each name, or its ``list``."""
    place = ["-n", namespace] if resource.kind.namespaced else []
    common = [*(["--server", server] if server else [])]
    if not names:
        scope = ["-A"] if all_namespaces and resource.kind.namespaced else place
        labels = ["-l", selector] if selector else []
        return _call(ctx, [resource.word, "list", *scope, *labels, "-o", wanted.value, *common])
    for name in names:
        _call(ctx, [resource.word, "get", name, *place, *common])
    return None


def _call(ctx: typer.Context, words: list[str]) -> None:
    code = ctx.find_root().command.main(words, prog_name="strom", standalone_mode=False)
    if code:
        raise typer.Exit(code)


def _resource(word: str) -> resources.Resource:
    resource = resources.named(word)
    if resource is None:
        hint = usage_errors.did_you_mean(word, [it.word for it in resources.RESOURCES])
        raise typer.BadParameter(f"{word!r} is not one of {WORDS}{hint}", param_hint="KIND")
    return resource


def _resource_of(document: dict[str, Any]) -> resources.Resource:
    """The REST resource of a manifest's kind. Raises CommandError for an unsupported kind."""
    kind = kinds.BY_NAME.get((document["apiVersion"], document["kind"]))
    resource = None if kind is None else resources.BY_KIND.get(kind)
    if resource is None:
        known = ", ".join(it.kind.kind for it in resources.RESOURCES)
        why = f"unsupported kind; supported are {known}"
        raise CommandError(title(document), why, "use kubectl for other kinds")
    return resource
