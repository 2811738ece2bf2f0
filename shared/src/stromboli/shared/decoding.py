"""Decoding: one documented exception for untrusted bytes, and types that threads may share.

msgspec raises ``DecodeError`` for invalid JSON or a wrong type, but ``UnicodeDecodeError`` for text
that is not UTF-8, ``RecursionError`` for deep nesting, and ``ValueError`` for some times outside
the calendar. A caller that handles only ``DecodeError`` would crash on the others.

msgspec 0.22 stores its type information of a Struct in the class when the first decoder or
conversion for it is created, and publishes it before it is complete. Another thread that reads it
at that moment causes a segmentation fault. Therefore all decoders and conversions to a type are
created in this module, one at a time; a test of the repository rejects others. Encoders do not use
this information.
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
"""Maximum number of digits of an accepted decimal number; any such number fits 64 bits,
unsigned."""
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with a time zone; times without one cannot be compared with ours."""


class Decoder(Protocol[T_co]):
    """A msgspec decoder for JSON of one type."""

    def decode(self, buf: bytes | str | msgspec.Raw, /) -> T_co:
        """Decode a value. May raise several types of exceptions, see the module."""


@overload
def decoder_of(form: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def decoder_of(form: Any) -> msgspec.json.Decoder[Any]: ...
def decoder_of(form: Any) -> msgspec.json.Decoder[Any]:
    """The JSON decoder of a type: one for all calls, which threads may share."""
    return _json_decoder(form)


@overload
def msgpack_decoder_of(form: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def msgpack_decoder_of(form: Any) -> msgspec.msgpack.Decoder[Any]: ...
def msgpack_decoder_of(form: Any) -> msgspec.msgpack.Decoder[Any]:
    """The MessagePack decoder of a type: one for all calls, which threads may share."""
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
    """Create the type information of a type before a library does."""
    with _READING_TYPES:
        msgspec.msgpack.Decoder(form)


@overload
def from_json(raw: bytes | str | msgspec.Raw, form: type[T]) -> T: ...
@overload
def from_json(raw: bytes | str | msgspec.Raw, form: Any) -> Any: ...
def from_json(raw: bytes | str | msgspec.Raw, form: Any) -> Any:
    """Decode JSON as a type. Raises only msgspec.DecodeError."""
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
    """Convert a decoded document to a type. Raises msgspec.ValidationError, and ValueError for some
    times outside the calendar. ``strict``: strings are not converted to numbers.
    ``from_attributes``: the value may be any object with the attributes of the type.
    """
    _msgpack_decoder(form)
    return msgspec.convert(value, form, strict=strict, from_attributes=from_attributes)


def decode(decoder: Decoder[T], raw: bytes | str | msgspec.Raw) -> T:
    """Decode a value. Raises only msgspec.DecodeError."""
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
    """Decode a JSON object. Raises only msgspec.DecodeError."""
    return decode(_DOCUMENT, raw)


def instant(text: str) -> datetime:
    """Decode an RFC 3339 time with time zone. Raises only msgspec.DecodeError."""
    try:
        return convert(text, Instant)
    except msgspec.DecodeError:
        raise
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None


def number(text: str) -> int | None:
    """A whole number in decimal digits, such as an offset or a version; None if the text is not a
    number or has too many digits.
    """
    is_number = text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS
    return int(text) if is_number else None
