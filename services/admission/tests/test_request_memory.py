"""Clients decide how many requests they send, so none may leave anything in memory."""

import gc
from pathlib import Path

import pytest

from services.admission.tests.test_entry_points import EntryPoints, opened

REQUESTS = 100
PATHS = ("/v1/jobs?limit=1", "/v1/queues", "/v1/jobs?unknown=1", "/v1/unknown")


async def objects_after(entry_points: EntryPoints, path: str) -> int:
    """The number of objects in memory after some requests to the path."""
    for _ in range(REQUESTS):
        await entry_points.rest.get(path)
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.parametrize("path", PATHS)
async def test_requests_leave_nothing_in_memory(tmp_path: Path, path: str) -> None:
    async with opened(tmp_path) as entry_points:
        first, second = [await objects_after(entry_points, path) for _ in range(2)]
    assert second - first < REQUESTS / 2
