"""What ran, over REST: the rights of the objects, and what the history is asked for."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stromboli.testkit.builders import NOON
from stromboli.testkit.contracts.accounts import Scene
from stromboli.testkit.doubles.authorized_admission import AuthorizedAdmission, open_admission
from stromboli.testkit.doubles.empty_history import EmptyHistory

INTERVAL = {"since": "2026-01-01T12:00:00Z", "until": "2026-01-02T12:00:00Z"}
NAMES = ("attempts", "jobs", "evictions", "explanations", "usage")
PATHS = tuple(f"/v1/history/{name}" for name in NAMES)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AuthorizedAdmission]:
    async with open_admission(tmp_path, Scene()) as authorized_admission:
        yield authorized_admission


@pytest.fixture
def past(server: AuthorizedAdmission) -> EmptyHistory:
    server.admission.history = empty_history = EmptyHistory()
    return empty_history


@pytest.mark.parametrize("path", PATHS)
async def test_a_tenant_reads_the_past_of_its_own_namespace_only(
    server: AuthorizedAdmission, past: EmptyHistory, path: str
) -> None:
    """Whom the cluster lets list the jobs and pods there now, and no other user."""
    blue, red = server.scene.blue, server.scene.red
    interval = {} if path == "/v1/history/jobs" else INTERVAL
    async with server.as_("ann") as ann, server.as_("op") as operator:
        own = await ann.get(path, params={**interval, "namespace": blue})
        assert own.status_code == 200, own.text
        assert [query.namespace for query in past.requested] == [blue]
        for other in ({"namespace": red}, {}):
            refused = await ann.get(path, params=interval | other)
            assert refused.status_code == 403
        # The operator of jobs may list no pods.
        assert (await operator.get(path, params=interval)).status_code == 403
        assert len(past.requested) == 1


async def test_changes_of_the_cluster_are_for_readers_of_all_its_objects(
    server: AuthorizedAdmission, past: EmptyHistory
) -> None:
    """Nodes, queues and priority classes have no namespace that could be a tenant's."""
    async with server.as_("ann") as ann, server.as_("op") as operator:
        for query in ({}, {"namespace": server.scene.blue}, {"kind": "Queue"}):
            for client in (ann, operator):
                answer = await client.get("/v1/history/changes", params=query)
                assert answer.status_code == 403
        assert past.requested == []


async def test_parameters_become_the_query(server: AuthorizedAdmission, past: EmptyHistory) -> None:
    async with server.as_("ann") as client:
        own = {"namespace": server.scene.blue}
        requested = {**INTERVAL, **own, "state": "Failed, Gone", "labels": "team=vision,stage="}
        page = await client.get(
            "/v1/history/attempts",
            params={**requested, "limit": "7", "continue": "here", "job": "a"},
        )
        assert page.json() == {"attempts": [], "continue": "", "complete": True}
        (query,) = past.requested
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


async def test_parameters_select_jobs_and_evictions(
    server: AuthorizedAdmission, past: EmptyHistory
) -> None:
    own = {"namespace": server.scene.blue}
    async with server.as_("ann") as client:
        jobs = await client.get(PATHS[1], params={**own, "name": "a", "uid": "u", "limit": "7"})
        assert jobs.json() == {"jobs": [], "continue": "", "complete": True}
        requested = {**own, "job": "a", "uid": "u", "continue": "here"}
        evictions = await client.get(PATHS[2], params={**INTERVAL, **requested})
        assert evictions.json() == {"evictions": [], "continue": "", "complete": True}
        refused = await client.get(PATHS[1], params={**own, "limit": "101"})
        assert refused.status_code == 400
    of_jobs, of_evictions = past.requested
    assert (of_jobs.name, of_jobs.uid, of_jobs.limit) == ("a", "u", 7)
    assert (of_evictions.job, of_evictions.uid, of_evictions.after) == ("a", "u", "here")
    assert (of_evictions.since, of_evictions.namespace) == (NOON, server.scene.blue)


async def test_parameters_select_explanations(
    server: AuthorizedAdmission, past: EmptyHistory
) -> None:
    requested = {"namespace": server.scene.blue, "job": "a", "uid": "u", "limit": "7", **INTERVAL}
    async with server.as_("ann") as client:
        response = await client.get("/v1/history/explanations", params=requested)
    assert response.json() == {
        "explanations": [],
        "positions": [],
        "continue": "",
        "complete": True,
    }
    (query,) = past.requested
    assert (query.job, query.uid, query.limit, query.since) == ("a", "u", 7, NOON)


async def test_without_a_history_service_it_is_unavailable(server: AuthorizedAdmission) -> None:
    async with server.as_("ann") as client:
        answer = await client.get("/v1/history/attempts", params={"namespace": server.scene.blue})
    assert answer.status_code == 503
    assert "without a history service" in answer.json()["detail"]
