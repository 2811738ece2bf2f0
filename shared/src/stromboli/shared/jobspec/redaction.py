"""Redaction of secret values in objects that are published on topics.

More accounts can read the topics ``cluster.*`` and ``admission.answers`` than the objects in them,
and the topics keep old versions. Readers need an object's identity and structure, but no literal
values of environment variables, no data of Secrets, no private keys in arguments of the job plugin
``ssh`` and no header values of probes. The controller needs the values to create pods and jobs: it
reads them from the API server (``stromboli.controller.core.store.complete_specs``).
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from stromboli.shared.api import batch, flow, meta

REDACTED = "(redacted)"
PRIVATE_KEY_ARGUMENT = "ssh-private-key"
_PLUGIN = "ssh"
_MARK = REDACTED.encode()
_SECRET_FIELDS = ("data", "stringData")
_LISTS_OF_VALUES = ("env", "httpHeaders")
"""Fields whose entries are ``{name, value}``. No field below an entry has such entries."""
_CONTAINERS = (dict, list)
T = TypeVar("T", bound=meta.Object)


def redacted(body: bytes) -> bytes:
    """A JSON document without secrets. A document without secrets, and bytes that are not JSON, are
    returned unchanged. O(values)."""
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body
    return msgspec.json.encode(document) if _redact(document) else body


def without_values(obj: T) -> T:
    """A workload without secrets; an object of another kind is returned unchanged. O(values)."""
    match obj:
        case batch.Job():
            return msgspec.structs.replace(obj, spec=_job_spec(obj.spec))
        case flow.JobTemplate():
            return msgspec.structs.replace(obj, spec=_raw(obj.spec))
        case flow.JobFlow():
            flows = tuple(_flow(each) for each in obj.spec.flows)
            return msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, flows=flows))
        case flow.CronJob():
            template = msgspec.structs.replace(
                obj.spec.job_template, spec=_raw(obj.spec.job_template.spec)
            )
            spec = msgspec.structs.replace(obj.spec, job_template=template)
            return msgspec.structs.replace(obj, spec=spec)
        case _:
            return obj


def is_redacted(obj: meta.Object) -> bool:
    """Whether a workload may lack values, because a field contains the marker of redaction. O(bytes
    of its spec)."""
    return any(_MARK in part for part in _parts(obj))


def _parts(obj: meta.Object) -> Iterator[bytes]:
    match obj:
        case batch.Job():
            yield from (bytes(task.template.spec) for task in obj.spec.tasks)
            yield " ".join((obj.spec.plugins or {}).get(_PLUGIN) or ()).encode()
        case flow.JobTemplate():
            yield bytes(obj.spec)
        case flow.JobFlow():
            yield from (bytes(each.patch.job_spec) for each in obj.spec.flows if each.patch)
            yield from (header.value.encode() for header in _headers(obj))
        case flow.CronJob():
            yield bytes(obj.spec.job_template.spec)
        case _:
            return


def _headers(job_flow: flow.JobFlow) -> Iterator[flow.HttpHeader]:
    for each in job_flow.spec.flows:
        probe = each.depends_on.probe if each.depends_on else None
        for requested in probe.http_get_list if probe else ():
            if requested.http_header is not None:
                yield requested.http_header


def _raw(raw: msgspec.Raw) -> msgspec.Raw:
    return msgspec.Raw(redacted(bytes(raw)))


def _job_spec(spec: batch.JobSpec) -> batch.JobSpec:
    tasks = tuple(
        msgspec.structs.replace(
            task,
            template=msgspec.structs.replace(task.template, spec=_raw(task.template.spec)),
        )
        for task in spec.tasks
    )
    plugins = spec.plugins
    if plugins and (arguments := plugins.get(_PLUGIN)):
        plugins = {**plugins, _PLUGIN: tuple(_without_private_key(arguments))}
    return msgspec.structs.replace(spec, tasks=tasks, plugins=plugins)


def _flow(entry: flow.Flow) -> flow.Flow:
    patch, waits = entry.patch, entry.depends_on
    if patch is not None:
        patch = msgspec.structs.replace(patch, job_spec=_raw(patch.job_spec))
    if waits is not None and waits.probe is not None:
        requested = tuple(_without_header_value(each) for each in waits.probe.http_get_list)
        probe = msgspec.structs.replace(waits.probe, http_get_list=requested)
        waits = msgspec.structs.replace(waits, probe=probe)
    return msgspec.structs.replace(entry, patch=patch, depends_on=waits)


def _without_header_value(requested: flow.HttpGet) -> flow.HttpGet:
    if requested.http_header is None or not requested.http_header.value:
        return requested
    header = msgspec.structs.replace(requested.http_header, value=REDACTED)
    return msgspec.structs.replace(requested, http_header=header)


def _redact(value: Any) -> bool:
    """Redact in place; returns whether anything changed."""
    changed = False
    pending = [value]
    while pending:
        json_value = pending.pop()
        if isinstance(json_value, list):
            pending += [each for each in json_value if isinstance(each, _CONTAINERS)]
        elif isinstance(json_value, dict):
            for name in _LISTS_OF_VALUES:
                changed |= _redact_entries(json_value.get(name))
            changed |= _redact_entries([json_value.get("httpHeader")])
            changed |= _redact_plugins(json_value.get("plugins"))
            if json_value.get("kind") == "Secret":
                for name in _SECRET_FIELDS:
                    changed |= _redact_members(json_value.get(name))
            pending += [
                each
                for name, each in json_value.items()
                if name not in _LISTS_OF_VALUES and isinstance(each, _CONTAINERS)
            ]
    return changed


def _redact_entries(entries: Any) -> bool:
    """Redact the values of entries ``{name, value}``."""
    changed = False
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("value"):
            entry["value"] = REDACTED
            changed = True
    return changed


def _redact_members(members: Any) -> bool:
    if not isinstance(members, dict) or not members:
        return False
    members.update(dict.fromkeys(members, REDACTED))
    return True


def _redact_plugins(plugins: Any) -> bool:
    arguments = plugins.get(_PLUGIN) if isinstance(plugins, dict) else None
    if not isinstance(arguments, list):
        return False
    before = list(arguments)
    arguments[:] = _without_private_key(before)
    return arguments != before


def _without_private_key(arguments: Sequence[Any]) -> list[Any]:
    """The arguments of the plugin ``ssh`` without the private key, given as ``--name=value`` or
    ``--name value``."""
    redacted_arguments = list(arguments)
    for index, argument in enumerate(arguments):
        name, sign, _ = argument.partition("=") if isinstance(argument, str) else ("", "", "")
        if name.lstrip("-") != PRIVATE_KEY_ARGUMENT:
            continue
        if sign:
            redacted_arguments[index] = f"{name}={REDACTED}"
        elif index + 1 < len(redacted_arguments):
            redacted_arguments[index + 1] = REDACTED
    return redacted_arguments
