"""Rules of an executor's session that need no worker."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from stromboli.client import Client
from stromboli.client.executor.session import Session
from stromboli.client.executor.session_store import SessionStore

STEP_S = 0.1


@pytest.fixture
def client() -> Iterator[Client]:
    """Of a server that is away, which no session minds."""

    def answer(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with Client("http://s", transport=httpx.MockTransport(answer)) as opened:
        yield opened


@pytest.mark.parametrize("orphaned_after_s", [1, 10, 300])
def test_a_live_executor_has_heartbeats_within_the_time_after_which_its_workers_end(
    client: Client, tmp_path: Path, orphaned_after_s: int
) -> None:
    """However short the user has made it: a worker that sees no new one ends."""
    store = SessionStore(str(tmp_path / "session"))
    session = Session(client, store, "default", "j", 0, orphaned_after_s=orphaned_after_s)
    session.open()
    seen, seen_at = store.read("client"), 0.0
    for number in range(int(2 * orphaned_after_s / STEP_S)):
        now_s = number * STEP_S
        session.step(now_s, lambda _: True)
        if store.read("client") != seen:
            seen, seen_at = store.read("client"), now_s
        assert now_s - seen_at <= orphaned_after_s / 2
