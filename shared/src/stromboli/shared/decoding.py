"""Decoding of untrusted bytes, with one documented exception for any invalid input.

msgspec raises ``DecodeError`` for invalid JSON or a wrong type, but ``UnicodeDecodeError`` for text
that is not UTF-8, ``RecursionError`` for deep nesting, and ``ValueError`` for some times outside
the calendar. A caller that handles only ``DecodeError`` would crash on the others.
"""

import threading
from datetime import datetime
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

_MAKING_DECODERS = threading.Lock()
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


def decoder_of(struct: type[T]) -> msgspec.json.Decoder[T]:
    """Create a JSON decoder at run time. A lock lets one thread at a time create decoders: msgspec
    0.22 publishes its type information of a Struct before that is complete, and another thread that
    reads it causes a segmentation fault.
    """
    with _MAKING_DECODERS:
        return msgspec.json.Decoder(struct)


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


_DOCUMENT: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


def document(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """Decode a JSON object. Raises only msgspec.DecodeError."""
    return decode(_DOCUMENT, raw)


def instant(text: str) -> datetime:
    """Decode an RFC 3339 time with time zone. Raises only msgspec.DecodeError."""
    try:
        return msgspec.convert(text, Instant)
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
