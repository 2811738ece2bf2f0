"""The content of the session's files: calls, results and announcements, pickled."""

import pickle
import platform
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle
import msgspec


class PickledCall(msgspec.Struct, frozen=True):
    """A call whose function and arguments are pickled separately, because many calls share one
    function."""

    function: bytes
    arguments: bytes


class Chunk(msgspec.Struct, frozen=True):
    """Calls that a worker executes one after another. ``calls``: id, index into ``functions``,
    pickled arguments."""

    functions: tuple[bytes, ...]
    calls: tuple[tuple[int, int, bytes], ...]


class CallResult(msgspec.Struct, frozen=True):
    """The result of a call. ``value``: the pickled return value or exception; ``traceback`` is the
    worker's, empty after success."""

    call: int
    value: bytes
    traceback: str = ""


class ChunkResult(msgspec.Struct, frozen=True):
    """The results of a chunk and the seconds that it took to execute."""

    results: tuple[CallResult, ...]
    seconds: float


class Announcement(msgspec.Struct, frozen=True):
    """The heartbeat of a worker. ``worker``: unique for each process; ``beat``: increases with each
    announcement; ``leaving``: the worker exits and executes no further calls.
    """

    worker: str
    python: str
    beat: int
    leaving: bool = False


class WorkerTerminated(BaseException):
    """The worker's process received SIGTERM, during a call or between calls."""


class RemoteTraceback(Exception):  # noqa: N818 - the standard library's executor calls it so
    """The traceback of a worker, as the ``__cause__`` of the exception that a future raises."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


PYTHON = ".".join(platform.python_version_tuple()[:2])
"""Pickled functions contain byte code, which only the same minor version executes."""
encode = msgspec.msgpack.encode
decode_chunk = msgspec.msgpack.Decoder(Chunk).decode
decode_chunk_result = msgspec.msgpack.Decoder(ChunkResult).decode
decode_announcement = msgspec.msgpack.Decoder(Announcement).decode


def pickle_function(function: Callable[..., Any]) -> bytes:
    """Pickle a function: one of ``__main__`` by value, others by name. Raises what pickling
    raises."""
    return bytes(cloudpickle.dumps(function))


def pickle_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Pickle the arguments of a call. Raises what pickling raises."""
    return bytes(cloudpickle.dumps((tuple(args), dict(kwargs))))


def chunk_of(calls: Sequence[tuple[int, PickledCall]]) -> Chunk:
    """A chunk that contains each function once."""
    functions: dict[bytes, int] = {}
    entries = tuple(
        (number, functions.setdefault(call.function, len(functions)), call.arguments)
        for number, call in calls
    )
    return Chunk(tuple(functions), entries)


def execute(chunk: Chunk, functions: dict[bytes, Callable[..., Any]]) -> tuple[CallResult, ...]:
    """Execute the calls in order. ``functions``: cache of unpickled functions, to which those of
    the chunk are added."""
    return tuple(
        _execute_call(number, chunk.functions[function], arguments, functions)
        for number, function, arguments in chunk.calls
    )


def _execute_call(
    number: int, function: bytes, arguments: bytes, functions: dict[bytes, Callable[..., Any]]
) -> CallResult:
    try:
        if function not in functions:
            functions[function] = pickle.loads(function)
        args, kwargs = pickle.loads(arguments)
        return CallResult(number, bytes(cloudpickle.dumps(functions[function](*args, **kwargs))))
    except WorkerTerminated:
        raise
    except BaseException as error:  # also SystemExit, which would end the worker otherwise
        text = traceback.format_exc()
        return CallResult(number, _pickle_exception(error), text)


def _pickle_exception(error: BaseException) -> bytes:
    """Pickle an exception; one that cannot be pickled or unpickled is replaced by one with its
    text."""
    try:
        pickled = bytes(cloudpickle.dumps(error))
        pickle.loads(pickled)
    except Exception:
        return bytes(cloudpickle.dumps(RuntimeError(f"{type(error).__name__}: {error}")))
    return pickled


def value_or_exception(result: CallResult) -> tuple[Any, BaseException | None]:
    """The return value, and the exception to raise or None. A value that cannot be unpickled here
    gives an exception, too."""
    try:
        value = pickle.loads(result.value)
    except Exception as error:
        error.add_note("the worker's result cannot be unpickled here")
        return None, error
    if not result.traceback:
        return value, None
    value.__cause__ = RemoteTraceback(result.traceback)
    return None, value
