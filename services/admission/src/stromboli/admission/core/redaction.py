"""Redaction of secrets in answers that are kept on ``admission.answers``.

The topic is kept for a day and is read by more accounts than the objects in it. A repeated answer
needs the object's identity and shape, but no literal values of environment variables, no data of
Secrets and no private keys in arguments of the job plugin ``ssh``.
"""

from typing import Any

import msgspec

REDACTED = "(redacted)"
PRIVATE_KEY_ARGUMENT = "ssh-private-key"
_SECRET_FIELDS = ("data", "stringData")


def redacted(body: bytes) -> bytes:
    """A JSON document without secrets; one without any, and what is no JSON, comes back unchanged.
    O(values)."""
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body
    return msgspec.json.encode(document) if _redact(document) else body


def _redact(value: Any) -> bool:
    """Redact in place; returns whether anything changed."""
    changed = False
    pending = [value]
    while pending:
        found = pending.pop()
        if isinstance(found, list):
            pending += found
        elif isinstance(found, dict):
            changed |= _redact_environment(found.get("env"))
            changed |= _redact_plugins(found.get("plugins"))
            if found.get("kind") == "Secret":
                for name in _SECRET_FIELDS:
                    changed |= _redact_members(found.get(name))
            pending += found.values()
    return changed


def _redact_environment(entries: Any) -> bool:
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
    arguments = plugins.get("ssh") if isinstance(plugins, dict) else None
    if not isinstance(arguments, list):
        return False
    changed = False
    for index, argument in enumerate(arguments):
        if not isinstance(argument, str):
            continue
        name, sign, _ = argument.partition("=")
        if name.lstrip("-") == PRIVATE_KEY_ARGUMENT:
            if sign:
                arguments[index] = f"{name}={REDACTED}"
            elif index + 1 < len(arguments):
                arguments[index + 1] = REDACTED
            changed = True
    return changed
