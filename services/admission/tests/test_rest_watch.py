"""Watching explanations over REST: the first event, resumption after an interruption,
and the end.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import envelope, topics
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders
from stromboli.testkit.doubles import shared_rest

JOBS = "/v1/namespaces/default/jobs"
WATCH = "/v1/watch/namespaces/default/jobs/train/explanation?timeoutSeconds=0.02"


class WatchedServer:
    """An admission service of which many streams can be read, one after the other."""

    def __init__(self, admission: AdmissionService, client: httpx.AsyncClient) -> None:
        self.admission = admission
        self.client = client
        self.last_id = ""

    async def make(self) -> str:
        """A job called train; its uid."""
        container = {"name": "c", "image": "busybox"}
        task = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
        job = {"metadata": {"name": "train"}, "spec": {"tasks": [task]}}
        answer = await self.client.post(JOBS, json=job)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["metadata"]["uid"])

    async def delete(self) -> None:
        assert (await self.client.delete(f"{JOBS}/train")).status_code == 204

    def explain(self, uid: str, message: str) -> None:
        """Publish the scheduler's explanation of the job."""
        group = f"default/train-{uid}"
        explained = builders.make_explanation(group, message=message)
        draft = envelope.Draft(
            topic=topics.EXPLANATIONS, key=group, message=explained, time=builders.NOON
        )
        self.admission.fold(builders.make_record(draft))

    async def read(self) -> list[str]:
        """The types of the events of one stream, behind what was seen last."""
        headers = {"last-event-id": self.last_id} if self.last_id else {}
        answer = await self.client.get(WATCH, headers=headers)
        assert answer.status_code == 200, answer.text
        lines = answer.text.splitlines()
        for line in lines:
            if line.startswith("id: "):
                self.last_id = line.removeprefix("id: ")
        return [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]


@pytest.fixture
async def watched_server(tmp_path: Path) -> AsyncIterator[WatchedServer]:
    async with EmbeddedCluster(tmp_path / "cluster.db") as cluster:
        admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
        async with (
            shared_rest.client_of(admission, cluster) as client,
            admission.watch_caches,
        ):
            await client.post("/v1/queues", json={"metadata": {"name": "default"}})
            yield WatchedServer(admission, client)


async def test_events_before_an_interruption_are_not_repeated(
    watched_server: WatchedServer,
) -> None:
    """But changes that were missed are sent, as changes."""
    uid = await watched_server.make()
    watched_server.explain(uid, "too little")
    assert await watched_server.read() == ["added", "synced"]
    assert await watched_server.read() == []
    watched_server.explain(uid, "still too little")
    assert await watched_server.read() == ["modified"]
    assert await watched_server.read() == []


async def test_an_unknown_event_id_resets_the_reader(
    watched_server: WatchedServer,
) -> None:
    """Otherwise it would keep objects that were deleted."""
    await watched_server.make()
    answer = await watched_server.client.get(
        "/v1/watch/jobs?timeoutSeconds=0.02", headers={"last-event-id": "another-server/7"}
    )
    lines = answer.text.splitlines()
    seen = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert seen == ["reset", "added", "synced"]


@pytest.mark.parametrize("is_made_again", [False, True], ids=["gone", "another of its name"])
async def test_a_deletion_during_an_interruption_is_sent_once(
    watched_server: WatchedServer, is_made_again: bool
) -> None:
    uid = await watched_server.make()
    watched_server.explain(uid, "too little")
    await watched_server.read()
    await watched_server.delete()
    if is_made_again:
        await watched_server.make()
    assert await watched_server.read() == ["deleted"]
    if is_made_again:
        assert await watched_server.read() == ["added", "synced"]
    else:
        again = await watched_server.client.get(
            WATCH, headers={"last-event-id": watched_server.last_id}
        )
        assert again.status_code == 404


@pytest.mark.parametrize("strange", ["7", "x", ".", "ü.1"])
async def test_an_event_id_of_another_stream_resets_the_reader_or_is_gone(
    watched_server: WatchedServer, strange: str
) -> None:
    """Never an error: a proxy or a browser may send any."""
    await watched_server.make()
    answer = await watched_server.client.get(WATCH, headers={b"last-event-id": strange.encode()})
    assert answer.status_code == 200
    assert ("event: added" in answer.text) != ("event: deleted" in answer.text)
