"""Decoding of what others send: one documented error, whatever the bytes.

msgspec raises ``DecodeError`` for what is no JSON or not of the type, but ``UnicodeDecodeError``
for text that is not UTF-8, ``RecursionError`` for deep nesting, and ``ValueError`` for some times
that no calendar has. A caller that knows only the first would end with the process.
"""

from datetime import datetime
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
MOST_DIGITS = 19
"""Digits of a decimal number that is certain to fit 64 bits."""
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with a zone: one without cannot be compared with any other of ours."""


class Decoder(Protocol[T_co]):
    """A decoder of msgspec, for JSON of one type."""

    def decode(self, buf: bytes | str | msgspec.Raw, /) -> T_co:
        """The value. Raises whatever it likes."""


def decode(decoder: Decoder[T], raw: bytes | str | msgspec.Raw) -> T:
    """The value. Raises msgspec.DecodeError, and nothing else."""
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
    """A JSON object. Raises msgspec.DecodeError, and nothing else."""
    return decode(_DOCUMENT, raw)


def instant(text: str) -> datetime:
    """A time as RFC 3339 has it, with its zone. Raises msgspec.DecodeError, and nothing else."""
    try:
        return msgspec.convert(text, Instant)
    except msgspec.DecodeError:
        raise
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None


def number(text: str) -> int | None:
    """A whole number in decimal digits, such as an offset or a version; None if it is none, or is
    longer than any of those."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS
    return int(text) if is_number else None
