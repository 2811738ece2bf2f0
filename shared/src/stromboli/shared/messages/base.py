"""The base class of all messages, and the registry of their type names."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from stromboli.shared import decoding

S = TypeVar("S", bound=type[msgspec.Struct])

TYPES: dict[str, type[msgspec.Struct]] = {}
"""Type name -> Struct."""
_NAMES: dict[type[msgspec.Struct], str] = {}
_DECODERS: dict[str, decoding.Decoder[Any]] = {}


class Message(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """Base class of messages and their parts."""


def register(name: str, decoder: decoding.Decoder[Any] | None = None) -> Callable[[S], S]:
    """Decorator that registers a Struct under its type name on topics. ``decoder``: replaces
    msgspec's default decoder."""

    def with_name(struct: S) -> S:
        if name in TYPES or struct in _NAMES:
            raise ValueError(f"{name} or {struct.__name__} has a type name already")
        TYPES[name] = struct
        _NAMES[struct] = name
        if decoder is not None:
            _DECODERS[name] = decoder
        return struct

    return with_name


def type_name(message: msgspec.Struct | type[msgspec.Struct]) -> str:
    """The registered type name. Raises KeyError for a type that is not a message."""
    return _NAMES[message if isinstance(message, type) else type(message)]


def is_message(struct: type[msgspec.Struct]) -> bool:
    """Whether a type has a type name on topics."""
    return struct in _NAMES


def encode(message: msgspec.Struct) -> bytes:
    """The value of a record: JSON with a stable order of fields."""
    return _ENCODER.encode(message)


_ENCODER = msgspec.json.Encoder(order="deterministic")


def decode(name: str, value: bytes) -> msgspec.Struct:
    """The message of type ``name``. Raises KeyError or msgspec.DecodeError."""
    decoder = _DECODERS.get(name)
    if decoder is None:
        decoder = _DECODERS[name] = decoding.decoder_of(TYPES[name])
    message: msgspec.Struct = decoding.decode(decoder, value)
    return message
