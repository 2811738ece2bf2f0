"""What ran, over REST: the rights of the objects, and what the history is asked for."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stromboli.shared.api import accounting
from stromboli.testkit.builders import NOON
from stromboli.testkit.contracts.accounts import Scene
from stromboli.testkit.doubles.authorized_admission import AuthorizedAdmission, open_admission

INTERVAL = {"since": "2026-01-01T12:00:00Z", "until": "2026-01-02T12:00:00Z"}


class Past:
    """A history that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def attempts(self, query: accounting.AttemptQuery) -> accounting.AttemptPage:
        self.asked.append(query)
        return accounting.AttemptPage(attempts=(), continue_="next")

    async def usage(self, query: accounting.UsageQuery) -> accounting.UsageReport:
        self.asked.append(query)
        return accounting.UsageReport(since=query.since, until=query.until, usage=())


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AuthorizedAdmission]:
    async with open_admission(tmp_path, Scene()) as made:
        yield made


@pytest.fixture
def past(server: AuthorizedAdmission) -> Past:
    server.admission.history = made = Past()
    return made


@pytest.mark.parametrize("path", ["/v1/history/attempts", "/v1/history/usage"])
async def test_a_tenant_reads_the_past_of_its_own_namespace_only(
    server: AuthorizedAdmission, past: Past, path: str
) -> None:
    """Whom the cluster lets list the jobs and pods there now, and no other user."""
    blue, red = server.scene.blue, server.scene.red
    async with server.as_("ann") as ann, server.as_("op") as operator:
        own = await ann.get(path, params={**INTERVAL, "namespace": blue})
        assert own.status_code == 200, own.text
        assert [query.namespace for query in past.asked] == [blue]
        for other in ({"namespace": red}, {}):
            refused = await ann.get(path, params=INTERVAL | other)
            assert refused.status_code == 403
        # The operator of jobs may list no pods.
        assert (await operator.get(path, params=INTERVAL)).status_code == 403
        assert len(past.asked) == 1


async def test_parameters_become_the_query(server: AuthorizedAdmission, past: Past) -> None:
    async with server.as_("ann") as client:
        own = {"namespace": server.scene.blue}
        asked = {**INTERVAL, **own, "state": "Failed, Gone", "labels": "team=vision,stage="}
        page = await client.get(
            "/v1/history/attempts", params={**asked, "limit": "7", "continue": "here", "job": "a"}
        )
        assert page.json() == {"attempts": [], "continue": "next", "complete": True}
        (query,) = past.asked
        assert (query.states, query.labels) == (
            ("Failed", "Gone"),
            {"team": "vision", "stage": ""},
        )
        assert (query.since, query.limit, query.after, query.job) == (NOON, 7, "here", "a")
        for wrong in ({"since": "soon"}, {"labels": "team"}, {"limit": "0"}, {"colour": "red"}):
            refused = await client.get("/v1/history/attempts", params=own | wrong)
            assert refused.status_code in (400, 422), refused.text
            assert next(iter(wrong)) in refused.text
        assert (await client.get("/v1/history/usage", params=own)).status_code == 400


async def test_without_a_history_service_it_is_unavailable(server: AuthorizedAdmission) -> None:
    async with server.as_("ann") as client:
        answer = await client.get("/v1/history/attempts", params={"namespace": server.scene.blue})
    assert answer.status_code == 503
    assert "without a history service" in answer.json()["detail"]
