"""Decoding of untrusted bytes: one documented error for any input.

msgspec raises ``DecodeError`` for invalid JSON or a wrong type, but ``UnicodeDecodeError`` for text
that is not UTF-8, ``RecursionError`` for deep nesting, and ``ValueError`` for some times outside
the calendar. A caller that handles only the first would crash on the others.
"""

import threading
from datetime import datetime
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

_MAKING_DECODERS = threading.Lock()
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


def decoder_of(struct: type[T]) -> msgspec.json.Decoder[T]:
    """A decoder of JSON that is made at run time. One thread at a time makes decoders: msgspec 0.22
    publishes what it knows of a Struct before it is complete, and a segmentation fault ends the
    process when another thread reads it.
    """
    with _MAKING_DECODERS:
        return msgspec.json.Decoder(struct)


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


_DOCUMENT: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


def document(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """A JSON object. Raises only msgspec.DecodeError."""
    return decode(_DOCUMENT, raw)


def instant(text: str) -> datetime:
    """An RFC 3339 time with its zone. Raises only msgspec.DecodeError."""
    try:
        return msgspec.convert(text, Instant)
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
