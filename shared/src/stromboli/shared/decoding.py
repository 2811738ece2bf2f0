"""Decoding: one documented error for untrusted bytes, and types that several threads may use.

msgspec raises ``DecodeError`` for invalid JSON or a wrong type, but ``UnicodeDecodeError`` for text
that is not UTF-8, ``RecursionError`` for deep nesting, and ``ValueError`` for some times outside
the calendar. A caller that handles only the first would crash on the others.

msgspec 0.22 keeps what it knows of a Struct in its class, from the first decoder or conversion
that contains it, and publishes it there before it is complete. Another thread that reads it in that
moment ends the process with a segmentation fault. So one thread at a time makes it, here: all
decoders and conversions to a type come from this module, and a test of the repository rejects
others. Encoders do not read it.
"""

import functools
import threading
from datetime import datetime
from typing import Annotated, Any, Protocol, TypeVar, overload

import msgspec

_READING_TYPES = threading.Lock()
MOST_TYPES = 1024
"""Types whose decoders are kept; the code names a few hundred."""
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
MOST_DIGITS = 19
"""Digits of a decimal number that certainly fits 64 bits."""
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with a zone; times without one cannot be compared with ours."""


class Decoder(Protocol[T_co]):
    """A msgspec decoder for JSON of one type."""

    def decode(self, buf: bytes | str | msgspec.Raw, /) -> T_co:
        """The value. May raise errors of several types."""


@overload
def decoder_of(form: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def decoder_of(form: Any) -> msgspec.json.Decoder[Any]: ...
def decoder_of(form: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of JSON for a type; the same one for each call. Threads may share it."""
    return _json_decoder(form)


@overload
def msgpack_decoder_of(form: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def msgpack_decoder_of(form: Any) -> msgspec.msgpack.Decoder[Any]: ...
def msgpack_decoder_of(form: Any) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of MessagePack for a type; the same one for each call. Threads may share it."""
    return _msgpack_decoder(form)


@functools.lru_cache(MOST_TYPES)
def _json_decoder(form: Any) -> msgspec.json.Decoder[Any]:
    with _READING_TYPES:
        return msgspec.json.Decoder(form)


@functools.lru_cache(MOST_TYPES)
def _msgpack_decoder(form: Any) -> msgspec.msgpack.Decoder[Any]:
    with _READING_TYPES:
        return msgspec.msgpack.Decoder(form)


def prepare(form: Any) -> None:
    """Read a type before a library decodes or converts to it."""
    with _READING_TYPES:
        msgspec.msgpack.Decoder(form)


@overload
def from_json(raw: bytes | str | msgspec.Raw, form: type[T]) -> T: ...
@overload
def from_json(raw: bytes | str | msgspec.Raw, form: Any) -> Any: ...
def from_json(raw: bytes | str | msgspec.Raw, form: Any) -> Any:
    """The value of a type. Raises only msgspec.DecodeError."""
    return decode(_json_decoder(form), raw)


@overload
def convert(
    value: Any, form: type[T], *, strict: bool = True, from_attributes: bool = False
) -> T: ...
@overload
def convert(
    value: Any, form: Any, *, strict: bool = True, from_attributes: bool = False
) -> Any: ...
def convert(value: Any, form: Any, *, strict: bool = True, from_attributes: bool = False) -> Any:
    """A decoded document as a type. Raises msgspec.ValidationError, and ValueError for some times
    outside the calendar. ``strict``: texts are not read as numbers. ``from_attributes``: the value
    may be any object with the type's attributes.
    """
    _msgpack_decoder(form)
    return msgspec.convert(value, form, strict=strict, from_attributes=from_attributes)


def decode(decoder: Decoder[T], raw: bytes | str | msgspec.Raw) -> T:
    """The value. Raises only msgspec.DecodeError."""
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError:
        raise
    except RecursionError:
        raise msgspec.DecodeError("nested too deeply") from None
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"not UTF-8 at byte {error.start}") from None
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None


_DOCUMENT: msgspec.json.Decoder[dict[str, Any]] = decoder_of(dict[str, Any])


def document(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """A JSON object. Raises only msgspec.DecodeError."""
    return decode(_DOCUMENT, raw)


def instant(text: str) -> datetime:
    """An RFC 3339 time with its zone. Raises only msgspec.DecodeError."""
    try:
        return convert(text, Instant)
    except msgspec.DecodeError:
        raise
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None


def number(text: str) -> int | None:
    """A whole number in decimal digits, such as an offset or a version; None if it is not one or
    has too many digits.
    """
    is_number = text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS
    return int(text) if is_number else None
