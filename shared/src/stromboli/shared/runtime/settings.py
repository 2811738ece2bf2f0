"""Settings: frozen Structs, read from the environment once at start.

A field ``write_limit`` of the controller's Struct is ``STROM_CONTROLLER_WRITE_LIMIT``. A nested
Struct in a field ``kafka`` reads ``STROM_KAFKA_...``, in every service. Tuples are comma separated.
"""

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from stromboli.shared import decoding

S = TypeVar("S", bound=msgspec.Struct)
_SECRET_WORDS = ("password", "token", "secret")


class SettingsError(Exception):
    """All invalid variables of the environment, one per line."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def load(struct: type[S], service: str, environment: Mapping[str, str]) -> S:
    """The settings of ``service``. Raises SettingsError, which names every invalid variable."""
    lines: list[str] = []
    known: set[str] = set()
    values = _read(struct, f"STROM_{service.upper()}_", environment, known, lines)
    prefixes = {name[: name.index("_", len("STROM_")) + 1] for name in known}
    for name in sorted(environment):
        if name not in known and any(name.startswith(prefix) for prefix in prefixes):
            close = difflib.get_close_matches(name, known, n=1)
            hint = (
                f"; did you mean {close[0]}?"
                if close
                else f"; known settings: {', '.join(sorted(known))}"
            )
            lines.append(f"{name}: unknown setting{hint}")
    if lines:
        raise SettingsError(lines)
    try:
        return decoding.convert(values, struct, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError([f"settings of {service}: {error}"]) from None


def _read(
    struct: type[msgspec.Struct],
    prefix: str,
    environment: Mapping[str, str],
    known: set[str],
    lines: list[str],
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            nested = f"STROM_{field.name.upper()}_"
            values[field.encode_name] = _read(field.type, nested, environment, known, lines)
            continue
        name = prefix + field.name.upper()
        known.add(name)
        text = environment.get(name)
        if text is None:
            if field.required:
                lines.append(f"{name}: not set, and it has no default")
            continue
        is_tuple = getattr(field.type, "__origin__", None) is tuple
        value: Any = (
            [part.strip() for part in text.split(",") if part.strip()] if is_tuple else text
        )
        try:
            decoding.convert(value, field.type, strict=False)
        except msgspec.ValidationError as error:
            lines.append(f"{name}={text!r}: {error}")
        values[field.encode_name] = value
    return values


def shown(settings: msgspec.Struct) -> dict[str, Any]:
    """The settings for the log, with secrets masked."""
    fields: dict[str, Any] = {}
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if isinstance(value, msgspec.Struct):
            fields[name] = shown(value)
        elif value and any(word in name for word in _SECRET_WORDS):
            fields[name] = "***"
        else:
            fields[name] = value
    return fields
