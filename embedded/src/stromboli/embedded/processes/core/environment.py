"""A container's environment and command line, as ``core/v1`` defines them."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec

from stromboli.embedded.processes.core import pod as pods
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.formats import units

Objects = Mapping[tuple[str, str], Mapping[str, bytes]]
"""(kind, name) -> data of existing ConfigMaps and Secrets."""

_REFERENCE = re.compile(r"\$(\$|\([^()]*\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class PodContext(msgspec.Struct, frozen=True):
    """Inputs that are not in the pod's spec. ``machine``: amounts available to a container without
    a limit.
    """

    objects: Objects
    address: str
    machine: units.Amounts


class MissingError(Exception):
    """An object or key that a container requires does not exist; the message names it."""


class MissingDataError(MissingError):
    """A data set is not on the node yet; the message has the progress of its copy."""


def referenced_objects(pod: pods.Pod) -> list[tuple[str, str]]:
    """Return (kind, name) of every ConfigMap and Secret that the pod references, without
    duplicates.
    """
    object_refs: dict[tuple[str, str], None] = {}
    for container in pod.containers:
        for each in container.env:
            source = each.value_from or pods.ValueFrom()
            _note(object_refs, source.config_map_key_ref, source.secret_key_ref)
        for every in container.env_from:
            _note(object_refs, every.config_map_ref, every.secret_ref)
    for volume in pod.spec.volumes:
        if volume.config_map:
            object_refs[kinds.CONFIG_MAPS.kind, volume.config_map.name] = None
        if volume.secret:
            object_refs[kinds.SECRETS.kind, volume.secret.secret_name] = None
        for part in volume.projected.sources if volume.projected else ():
            _note(object_refs, part.config_map, part.secret)
    return list(object_refs)


def _note(object_refs: dict[tuple[str, str], None], config_map: Any, secret: Any) -> None:
    if config_map:
        object_refs[kinds.CONFIG_MAPS.kind, config_map.name] = None
    if secret:
        object_refs[kinds.SECRETS.kind, secret.name] = None


def variables(
    pod: pods.Pod,
    container: pods.Container,
    context: PodContext,
    base: Mapping[str, str],
) -> dict[str, str]:
    """Return the whole environment: ``base``, ``envFrom``, then ``env``; later entries override
    earlier ones. ``$(NAME)`` in a value expands to an earlier variable. Raises MissingError.
    """
    base_variables = {**base, "HOSTNAME": pod.hostname}
    for every in container.env_from:
        for kind, source in (
            (kinds.CONFIG_MAPS.kind, every.config_map_ref),
            (kinds.SECRETS.kind, every.secret_ref),
        ):
            data = _data(context.objects, kind, source.name, source.optional) if source else {}
            base_variables |= {
                f"{every.prefix}{name}": _text(value) for name, value in data.items()
            }
    own: dict[str, str] = {}
    for each in container.env:
        if each.value_from is None:
            own[each.name] = expand(each.value, {**base_variables, **own})
        elif (value := _value(pod, container, each, context)) is not None:
            own[each.name] = value
    return base_variables | own


def expand(text: str, known: Mapping[str, str]) -> str:
    """Expand ``$(NAME)`` for known names, and ``$$`` to ``$``."""

    def replace(match: re.Match[str]) -> str:
        token = match[1]
        return "$" if token == "$" else known.get(token[1:-1], match[0])

    return _REFERENCE.sub(replace, text)


def command(container: pods.Container, known: Mapping[str, str]) -> list[str]:
    """Return command and arguments of a container; without an image there are no defaults for
    them."""
    return [expand(each, known) for each in (*container.command, *container.args)]


def submit_directory(
    pod: pods.Pod, mounts: Iterable[Mapping[str, object]], is_directory: Callable[[str], bool]
) -> str:
    """Return the directory in which a container without a ``workingDir`` starts: the directory in
    which its script was submitted, as with sbatch, if it exists and no volume hides it, else
    ``/``."""
    path = pod.metadata.annotation(keys.SUBMIT_DIRECTORY) or "/"
    is_hidden = any(PurePosixPath(path).is_relative_to(str(it["target"])) for it in mounts)
    return path if path.startswith("/") and not is_hidden and is_directory(path) else "/"


def field(pod: pods.Pod, path: str, address: str) -> str:
    """Return a field of the pod by its path. Raises MissingError for an unsupported path."""
    meta, spec = pod.metadata, pod.spec
    fields = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "metadata.labels": _lines(meta.labels),
        "metadata.annotations": _lines(meta.annotations),
        "spec.nodeName": spec.node_name,
        "spec.serviceAccountName": spec.service_account_name,
        "status.hostIP": "127.0.0.1",
        "status.hostIPs": "127.0.0.1",
        "status.podIP": address,
        "status.podIPs": address,
    }
    if path in fields:
        return fields[path]
    if match := _SUBSCRIPT.fullmatch(path):
        entries = meta.labels if match[1] == "labels" else meta.annotations
        return (entries or {}).get(match[2], "")
    raise MissingError(f"pod field {path!r} is not supported")


def resource(
    pod: pods.Pod,
    container: pods.Container,
    requested: pods.ResourceSelector,
    machine: units.Amounts,
) -> str:
    """Return a request or limit in units of the divisor, rounded up. Without a limit it is the
    machine's amount; without a request it is the limit, or 0.
    """
    name = requested.container_name
    meant = next((each for each in pod.containers if each.name == name), container)
    which, _, what = requested.resource.partition(".")
    amounts = meant.resources.limits if which == "limits" else meant.resources.requests
    text = (amounts or {}).get(what)
    if text is None and which == "requests":
        text = (meant.resources.limits or {}).get(what, "0")
    try:
        amount = machine.get(what, 0) if text is None else units.amount(what, text)
        divisor = units.amount(what, requested.divisor) or units.amount(what, 1)
    except ValueError as error:
        raise MissingError(f"{requested.resource}: {error}") from None
    return str(-(-amount // divisor))


def _value(
    pod: pods.Pod,
    container: pods.Container,
    variable: pods.Variable,
    context: PodContext,
) -> str | None:
    source = variable.value_from or pods.ValueFrom()
    if source.field_ref:
        return field(pod, source.field_ref.field_path, context.address)
    if source.resource_field_ref:
        return resource(pod, container, source.resource_field_ref, context.machine)
    for kind, selector in (
        (kinds.CONFIG_MAPS.kind, source.config_map_key_ref),
        (kinds.SECRETS.kind, source.secret_key_ref),
    ):
        if selector is not None:
            data = _data(context.objects, kind, selector.name, selector.optional)
            if selector.key in data:
                return _text(data[selector.key])
            if selector.optional:
                return None
            raise MissingError(f"{kind} {selector.name} has no key {selector.key}")
    raise MissingError(f"variable {variable.name} has a valueFrom without a source")


def _data(objects: Objects, kind: str, name: str, optional: bool) -> Mapping[str, bytes]:
    if (kind, name) in objects:
        return objects[kind, name]
    if optional:
        return {}
    raise MissingError(f"{kind} {name} does not exist")


def _text(value: bytes) -> str:
    return value.decode(errors="surrogateescape")


def _lines(pairs: Mapping[str, str] | None) -> str:
    return "\n".join(f'{name}="{value}"' for name, value in sorted((pairs or {}).items()))
