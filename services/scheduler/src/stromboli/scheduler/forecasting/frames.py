"""The protocol between the scheduler and its forecast process: length-prefixed frames on pipes.

The scheduler writes ``Start`` once, then any number of ``Events``. For each forecast it writes
``Objects`` and then ``Compute``, which the process answers with ``Computed`` or ``Failed``. For
each what-if question it writes ``Objects`` and then ``Ask``, which the process answers with
``Answered`` or ``Failed``.
"""

import struct

import msgspec

from stromboli.scheduler.core.forecast import expected_starts, range_calibration
from stromboli.shared import decoding
from stromboli.shared.messages import what_if

LENGTH = struct.Struct(">Q")
OBJECTS_PER_FRAME = 500
"""Number of objects in a frame. Only one frame is encoded at a time, which limits the scheduler's
memory."""


class Start(msgspec.Struct, frozen=True, tag=True):
    """The configuration of the process. ``share``: CPU seconds per second that it may use.
    ``configuration``: the scheduler's configuration file, empty for the built-in configuration.
    ``widening``: the factors that an earlier process learned."""

    configuration: str
    scheduler_names: tuple[str, ...]
    share: float
    memory_mib: int
    widening: range_calibration.Widening = range_calibration.Widening()


class Events(msgspec.Struct, frozen=True, tag=True):
    """Records of ``batch.events``, each as its type and value."""

    records: list[tuple[str, bytes]]


class Objects(msgspec.Struct, frozen=True, tag=True):
    """Objects of one field of ``cluster_objects.Cluster``, each encoded with MessagePack."""

    field: str
    encoded: list[bytes]


class Compute(msgspec.Struct, frozen=True, tag=True):
    """A request to forecast from the objects sent before. ``first``: as in
    ``expected_starts.Options``. ``draws``: simulations, fewer if they take longer than
    ``within_s``. ``spent_s``: CPU seconds that the scheduler spent on the objects."""

    now: str
    first: int | None
    draws: int
    within_s: float
    spent_s: float


class Computed(msgspec.Struct, frozen=True, tag=True):
    """The answer to ``Compute``, with ranges widened by ``widening``. ``cpu_s``: CPU seconds
    used."""

    starts: list[expected_starts.ExpectedStart]
    draws: int
    cpu_s: float
    widening: range_calibration.Widening


class Ask(msgspec.Struct, frozen=True, tag=True):
    """A what-if question about the objects sent before. ``draws``, ``within_s`` and ``spent_s``: as
    in ``Compute``; the simulation ends after ``within_s``, with or without an answer.
    ``widening``: the factors that the forecasts have learned; the ranges in the answer are widened
    by them."""

    question: what_if.WhatIfAsked
    now: str
    draws: int
    within_s: float
    spent_s: float
    widening: range_calibration.Widening


class Answered(msgspec.Struct, frozen=True, tag=True):
    """The answer to ``Ask``. ``cannot_tell``: why there is no answer; the other fields are then
    empty."""

    present: expected_starts.ExpectedStart | None = None
    changed: expected_starts.ExpectedStart | None = None
    draws: int = 0
    notes: tuple[str, ...] = ()
    cannot_tell: str = ""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The forecast failed; the process waits for the next request."""

    reason: str


Request = Start | Events | Objects | Compute | Ask
Answer = Computed | Answered | Failed
_REQUESTS: msgspec.msgpack.Decoder[Request] = decoding.msgpack_decoder_of(Request)
_ANSWERS: msgspec.msgpack.Decoder[Answer] = decoding.msgpack_decoder_of(Answer)


def frame(message: Request | Answer) -> bytes:
    """Encode a message, prefixed with its length."""
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body


def request(body: bytes) -> Request:
    """Decode a request without its length."""
    return _REQUESTS.decode(body)


def answer(body: bytes) -> Answer:
    """Decode an answer without its length."""
    return _ANSWERS.decode(body)
