"""Thousands of objects in one request: lines in, one result per line out.

Each line is validated and written separately as soon as it arrives: memory holds a few lines and
the results, however long the request is. Existing objects are unchanged, so an interrupted request
is repeated as it is. Jobs are written concurrently; any other kind is finished before the next line
begins, so that a queue may precede its jobs.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Literal

import msgspec

from stromboli.admission import idempotency, problems
from stromboli.admission.auth import authentication
from stromboli.admission.review import submitted_objects
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.review.submitted_objects import RejectedError
from stromboli.shared import decoding, errors
from stromboli.shared.api import kinds
from stromboli.shared.formats import warning_header
from stromboli.shared.formats.counts import counted
from stromboli.shared.messages.admission import Violation

LINE_BYTES = 3 * 1024 * 1024
"""The same limit as a request with one object."""
MAX_ITEMS = 10_000
"""Maximum number of objects in a request: their results are held until the request has been read,
some megabytes."""
MAX_VIOLATIONS = 20
"""Maximum violations per item: a thousand items with a thousand violations would be a response of
gigabytes.
"""
MAX_CONCURRENT = 32
"""Concurrent objects: they keep an API server on two cores busy."""
Outcome = Literal["created", "configured", "unchanged", "refused", "failed"]


class ItemResult(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The result of line ``index``, counted from 0 without empty lines.

    ``refused``: rejected, see ``violations`` (20 at most) and ``detail``. ``failed``: not possible
    now; ``status`` is an HTTP status.
    """

    index: int
    result: Outcome
    status: int = 200
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    detail: str = ""
    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()
    """Fields of the object without effect: 10 at most."""


class BulkResult(msgspec.Struct, frozen=True):
    """The number of each result, and all results in the order of the lines. ``unread``: lines
    beyond the limit, which were ignored.
    """

    counts: dict[str, int]
    items: list[ItemResult]
    unread: int = 0


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes | None]:
    """Lines that are not blank, without line ends; None for a line that is too long."""
    buffer = bytearray()
    is_too_long = False
    async for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        for part in ends:
            buffer += part
            if is_too_long or len(buffer) > LINE_BYTES:
                yield None
            elif line := bytes(buffer).strip():
                yield line
            buffer.clear()
            is_too_long = False
        buffer += rest
        if len(buffer) > LINE_BYTES:
            buffer.clear()
            is_too_long = True
    if is_too_long:
        yield None
    elif line := bytes(buffer).strip():
        yield line


async def submit(
    admission: AdmissionService,
    chunks: AsyncIterator[bytes],
    key: str,
    principal: authentication.Principal,
) -> BulkResult:
    """Submit each line as a separate object, with the principal's rights. ``key``: generated names
    derive from it.
    """
    key = idempotency.scoped(key, principal) if key else ""
    since = time.monotonic()
    results: list[ItemResult] = []
    under_way: set[asyncio.Task[None]] = set()
    unread = index = 0
    async with asyncio.TaskGroup() as group:
        async for line in lines(chunks):
            if index >= MAX_ITEMS:
                unread += 1
                continue
            task = group.create_task(
                _submit_line(admission, index, line, key, principal, since, results)
            )
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            index += 1
            if line is not None and not _is_job(line):
                await asyncio.wait(under_way)
                since = time.monotonic()  # the next lines may refer to what this one created
            while len(under_way) >= MAX_CONCURRENT:
                await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
    results.sort(key=lambda item: item.index)
    return BulkResult(dict(Counter(item.result for item in results)), results, unread)


async def _submit_line(
    admission: AdmissionService,
    index: int,
    line: bytes | None,
    key: str,
    principal: authentication.Principal,
    since: float,
    results: list[ItemResult],
) -> None:
    results.append(await _result_of(admission, index, line, key, principal, since))


async def _result_of(
    admission: AdmissionService,
    index: int,
    line: bytes | None,
    key: str,
    principal: authentication.Principal,
    since: float,
) -> ItemResult:
    if line is None:
        why = f"the line is longer than {LINE_BYTES} bytes"
        return ItemResult(index=index, result="refused", status=413, detail=why)
    try:
        document = decoding.document(line)
        if key:
            document = submitted_objects.with_generated_name(
                document, idempotency.digest(key, str(index))
            )
        (applied,) = await admission.submit([document], principal, since=since)
    except msgspec.DecodeError as error:
        why = f"not a JSON object: {error}"
        return ItemResult(index=index, result="refused", status=400, detail=why)
    except RejectedError as error:
        violations = error.violations[:MAX_VIOLATIONS]
        count = len(error.violations)
        detail = counted(count, "violation")
        return ItemResult(
            index=index, result="refused", status=422, detail=detail, violations=violations
        )
    except authentication.ForbiddenError as error:
        return ItemResult(
            index=index,
            result="refused",
            status=403,
            detail=str(error),
            violations=error.violations,
        )
    except errors.ExternalError as error:
        status = problems.status_of(error)
        return ItemResult(index=index, result="failed", status=status, detail=str(error))
    metadata = kinds.metadata_of(applied.object)
    return ItemResult(
        index=index,
        result=decoding.convert(applied.result, Outcome),
        kind=applied.kind,
        namespace=applied.namespace,
        name=applied.name,
        uid=metadata.uid,
        warnings=warning_header.bounded(applied.warnings),
    )


class _ObjectHeader(msgspec.Struct, frozen=True):
    kind: str = ""


_HEADER_DECODER = decoding.decoder_of(_ObjectHeader)


def _is_job(line: bytes) -> bool:
    try:
        return decoding.decode(_HEADER_DECODER, line).kind == kinds.JOBS.kind
    except msgspec.DecodeError:
        return True  # an unreadable line is rejected separately
