"""Requests to the REST API of the history, as ``Call`` values, and the pages of a query, which a
client sends."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from stromboli.client.operations.calls import Call
from stromboli.shared import decoding
from stromboli.shared.api.views import accounting


class Paged(Protocol):
    """A page of a query."""

    @property
    def continue_(self) -> str:
        """The token of the next page; empty on the last one."""


T = TypeVar("T")
P = TypeVar("P", bound=Paged)
Q = TypeVar("Q", bound=msgspec.Struct)
_PARAMETERS = {"states": "state", "after": "continue"}
"""Field of a query -> its parameter in requests, where the names differ."""


def attempts(query: accounting.AttemptQuery) -> Call[accounting.AttemptPage]:
    """A page of attempts of all jobs that ran, also of deleted ones."""
    return _call("attempts", query, accounting.AttemptPage)


def jobs(query: accounting.JobQuery) -> Call[accounting.JobPage]:
    """A page of jobs that ran, also of deleted ones, with their phases."""
    return _call("jobs", query, accounting.JobPage)


def evictions(query: accounting.EvictionQuery) -> Call[accounting.EvictionPage]:
    """A page of the evictions of a job's pods, and of those that made room for the job."""
    return _call("evictions", query, accounting.EvictionPage)


def changes(query: accounting.ChangeQuery) -> Call[accounting.ChangePage]:
    """A page of changes of nodes, queues, priority classes and the configuration."""
    return _call("changes", query, accounting.ChangePage)


def explanations(query: accounting.ExplanationQuery) -> Call[accounting.ExplanationPage]:
    """A page of reasons why PodGroups were pending, and of their queue positions."""
    return _call("explanations", query, accounting.ExplanationPage)


def pages(send: Callable[[Call[P]], P], request: Callable[[Q], Call[P]], query: Q) -> Iterator[P]:
    """The pages of a query, each requested when it is read. ``request``: one of the functions
    above."""
    page = send(request(query))
    yield page
    while page.continue_:
        page = send(request(msgspec.structs.replace(query, after=page.continue_)))
        yield page


async def pages_async(
    send: Callable[[Call[P]], Awaitable[P]], request: Callable[[Q], Call[P]], query: Q
) -> AsyncIterator[P]:
    """The same as ``pages`` for an asynchronous client."""
    page = await send(request(query))
    yield page
    while page.continue_:
        page = await send(request(msgspec.structs.replace(query, after=page.continue_)))
        yield page


def usage(query: accounting.UsageQuery) -> Call[accounting.UsageReport]:
    """CPU, memory and GPU time used within an interval, by group."""
    return _call("usage", query, accounting.UsageReport)


def _call(what: str, query: msgspec.Struct, answer: type[T]) -> Call[T]:
    values = {name: _text(getattr(query, name)) for name in query.__struct_fields__}
    return Call(
        method="GET",
        path=f"/v1/history/{what}",
        what=f"{what} of the history",
        read=decoding.decoder_of(answer).decode,
        query={_PARAMETERS.get(name, name): text for name, text in values.items() if text},
        is_collection=True,
    )


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return value.isoformat()
        case dict():
            return ",".join(f"{key}={text}" for key, text in value.items())
        case tuple():
            return ",".join(value)
        case _:
            return str(value)
