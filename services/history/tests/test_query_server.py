"""Queries over HTTP: admission gets what the history answers, and no other client anything."""

import contextlib
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest

from services.history.tests.support import events
from stromboli.admission import remote_history
from stromboli.history import __main__ as process
from stromboli.history import query_server
from stromboli.history.settings import Settings
from stromboli.history.store import (
    change_queries,
    explanation_queries,
    job_queries,
    queries,
    usage,
    writer,
)
from stromboli.history.store.database import Database
from stromboli.shared import errors
from stromboli.shared.api.views import accounting
from stromboli.shared.runtime import http

WEEK = accounting.UsageQuery(since=events.at(0), until=events.at(600), by=("user", "label:team"))
RUN = (
    events.phase("Pending", 0, 1),
    events.task("Pending", 0),
    events.task("Bound", 1, node="n1"),
    events.task("Succeeded", 9, node="n1", exit_code=0),
)


class Stored:
    """The queries of a store, without a service that fills it."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self.now: datetime = events.at(100)

    async def attempts(self, query: accounting.AttemptQuery) -> accounting.AttemptPage:
        return await queries.attempts(self._store, query, self.now)

    async def jobs(self, query: accounting.JobQuery) -> accounting.JobPage:
        return await job_queries.jobs(self._store, query)

    async def evictions(self, query: accounting.EvictionQuery) -> accounting.EvictionPage:
        return await job_queries.evictions(self._store, query)

    async def changes(self, query: accounting.ChangeQuery) -> accounting.ChangePage:
        return await change_queries.changes(self._store, query)

    async def explanations(self, query: accounting.ExplanationQuery) -> accounting.ExplanationPage:
        return await explanation_queries.explanations(self._store, query)

    async def usage(self, query: accounting.UsageQuery) -> accounting.UsageReport:
        return await usage.report(self._store, query, self.now)


@pytest.fixture
async def stored(tmp_path: Path) -> AsyncIterator[Stored]:
    store = Database(f"sqlite:///{tmp_path / 'h.db'}")
    await store.migrate()
    filling = writer.Writer(store)
    await filling.position()
    await filling.apply(events.records(*RUN), events.position(len(RUN)))
    yield Stored(store)
    await store.close()


@contextlib.asynccontextmanager
async def remote(
    stored: Stored, folder: Path, shown: str = "secret"
) -> AsyncIterator[remote_history.RemoteHistory]:
    file = folder / "token"
    file.write_text(f"{shown}\n")
    app = query_server.app(stored, "secret")
    async with (
        http.serving(app, http.listen("127.0.0.1", 0)) as port,
        remote_history.connect(f"http://127.0.0.1:{port}/", str(file), "") as client,
    ):
        yield client


async def test_the_answers_are_those_of_the_history(stored: Stored, tmp_path: Path) -> None:
    wanted = accounting.AttemptQuery(
        user="ann", states=("Succeeded",), since=events.at(1), labels={}, limit=5
    )
    async with remote(stored, tmp_path) as client:
        page = await client.attempts(wanted)
        assert page == await stored.attempts(wanted)
        assert [it.cpu_seconds for it in page.attempts] == [16.0]
        assert await client.usage(WEEK) == await stored.usage(WEEK)
        jobs = await client.jobs(accounting.JobQuery(name="train"))
        assert jobs == await stored.jobs(accounting.JobQuery())
        assert [[it.phase for it in job.phases] for job in jobs.jobs] == [["Pending"]]
        why = accounting.ExplanationQuery(uid="u1", until=events.at(9))
        assert await client.explanations(why) == await stored.explanations(why)
        own = accounting.EvictionQuery(job="train")
        assert await client.evictions(own) == await stored.evictions(own)


async def test_a_query_that_the_history_refuses_is_invalid(stored: Stored, tmp_path: Path) -> None:
    async with remote(stored, tmp_path) as client:
        with pytest.raises(errors.InvalidError, match="continue"):
            await client.attempts(accounting.AttemptQuery(after="nonsense"))


async def test_another_token_is_refused(stored: Stored, tmp_path: Path) -> None:
    async with remote(stored, tmp_path, shown="guess") as client:
        with pytest.raises(errors.UnavailableError, match="401"):
            await client.attempts(accounting.AttemptQuery())


async def test_a_history_that_is_away_is_unavailable(tmp_path: Path) -> None:
    with contextlib.closing(http.listen("127.0.0.1", 0)) as bound:
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        async with remote_history.connect(url, "", "") as client:
            with pytest.raises(errors.UnavailableError):
                await client.usage(WEEK)
    async with remote_history.connect(url, str(tmp_path / "none"), "") as client:
        with pytest.raises(errors.UnavailableError, match="none"):
            await client.usage(WEEK)


@pytest.mark.parametrize("text", [None, "", "secret\n"])
def test_beyond_loopback_queries_need_a_token(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    assert process.read_token(Settings()) == ""
    with pytest.raises(SystemExit, match="STROM_HISTORY_QUERIES_TOKEN_FILE"):
        process.read_token(Settings(queries_host="0.0.0.0"))
    settings = Settings(queries_host="0.0.0.0", queries_token_file=str(file))
    if text:
        assert process.read_token(settings) == "secret"
    else:
        with pytest.raises(SystemExit, match="STROM_HISTORY_QUERIES_TOKEN_FILE"):
            process.read_token(settings)
