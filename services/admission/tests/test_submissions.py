"""Submissions over Kafka are executed with the rights of their user, and always answered."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.admission.core import submissions, token_claims
from stromboli.admission.core.submissions import RejectedSubmission, Submission
from stromboli.admission.kafka import submission_consumer as shell
from stromboli.admission.review import pipeline
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.bus import EmbeddedBus
from stromboli.shared import envelope, keys, leader_election, topics
from stromboli.shared.api import kinds
from stromboli.shared.messages.admission import ObjectReviewed, SubmissionAnswered
from stromboli.shared.runtime import runtime
from stromboli.testkit import poison_records, records
from stromboli.testkit.contracts.accounts import OTHER_AUDIENCE, Scene
from stromboli.testkit.doubles import authorized_admission

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MAX_AGE = timedelta(seconds=900)
TYPE = "stromboli.admission.objects_submitted.v1"
Document = dict[str, Any]


def headers(**changes: str | None) -> dict[str, str]:
    found: dict[str, str | None] = {
        "ce_id": "train-1",
        "ce_source": "nightly",
        "ce_type": TYPE,
        "ce_time": "2026-01-01T12:00:00Z",
        "authorization": "Bearer t",
        **changes,
    }
    return {name: value for name, value in found.items() if value is not None}


def record(value: bytes | None = b'{"objects":[{}]}', **changes: str | None) -> envelope.Record:
    return envelope.Record(topics.SUBMISSIONS, 7, "k", value, headers(**changes))


def jwt(issued: float, ends: float) -> str:
    claims = msgspec.json.encode({"iat": issued, "exp": ends})
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.c2ln"


# --- what can be read ------------------------------------------------------------------------


def test_a_submission_is_read_with_its_name_token_and_objects() -> None:
    value = b'{"objects":[{"kind":"Job"},{"kind":"Queue"}],"later":1}'
    found = submissions.read(record(value), NOW, MAX_AGE)
    assert isinstance(found, Submission)
    assert (found.name.id, found.name.source, found.token) == ("train-1", "nightly", "t")
    assert [each["kind"] for each in found.documents] == ["Job", "Queue"]


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"ce_id": None}, 400, "ce_id"),
        ({"ce_id": "x" * 256}, 400, "255"),
        ({"ce_source": None}, 400, "ce_source"),
        ({"ce_time": None}, 400, "ce_time"),
        ({"ce_time": "yesterday"}, 400, "ce_time"),
        ({"ce_time": "2026-01-01T11:44:00Z"}, 408, "960 s ago; at most 900 s"),
        ({"ce_time": "2025-12-26T12:00:00Z"}, 408, "518400 s ago"),
        ({"ce_time": "2026-01-01T12:02:00Z"}, 400, "is in the future"),
        ({"ce_type": None}, 400, "does not belong"),
        ({"ce_type": "stromboli.admission.object_reviewed.v1"}, 400, "does not belong"),
        ({"authorization": None}, 401, "authorization"),
        ({"authorization": "Basic YTpi"}, 401, "bearer"),
        ({"authorization": f"Bearer {jwt(0, 86400)}"}, 401, "86400 s; at most 3660 s"),
        ({"value": None}, 400, "not a submission"),
        ({"value": b""}, 400, ""),
        ({"value": b"\xff{"}, 400, ""),
        ({"value": b"[]"}, 400, "object"),
        ({"value": b'{"objects":[]}'}, 400, "the list is empty"),
        ({"value": b'{"objects":["x"]}'}, 400, "objects[0]"),
        ({"value": b"x" * (3 * 1024 * 1024 + 1)}, 413, "at most 3145728"),
    ],
)
def test_an_invalid_submission_is_rejected_with_the_reason(
    changes: dict[str, Any], status: int, said: str
) -> None:
    found = submissions.read(record(**changes), NOW, MAX_AGE)
    assert isinstance(found, RejectedSubmission)
    assert found.status == status
    assert said in found.detail


@given(
    value=st.none() | st.binary(max_size=64),
    given_headers=st.dictionaries(
        st.sampled_from(["ce_id", "ce_source", "ce_time", "ce_type", "authorization", "x"]),
        st.text(max_size=20) | st.sampled_from([TYPE, "Bearer t", "2026-01-01T12:00:00Z"]),
    ),
)
def test_no_record_fails_the_consumer_or_leaks_its_token(
    value: bytes | None, given_headers: dict[str, str]
) -> None:
    marked = given_headers | {"Authorization": "Bearer eyMARKED.secret"}
    found = submissions.read(
        envelope.Record(topics.SUBMISSIONS, 0, "", value, marked), NOW, MAX_AGE
    )
    assert "MARKED" not in repr(found)


def test_a_tokens_life_is_from_its_making_to_its_end() -> None:
    assert token_claims.lifetime_s(jwt(100, 700)) == 600
    for other in ("opaque", "a.b.c", "..", jwt(0, 1) + ".x"):
        assert token_claims.lifetime_s(other) is None


# --- results -----------------------------------------------------------------------------------


class SubmissionSetup:
    """A house, a log, and a desk between them; ``at`` is the time."""

    def __init__(
        self, server: authorized_admission.AuthorizedAdmission, bus: EmbeddedBus, folder: Path
    ) -> None:
        self.server = server
        self.bus = bus
        self.at = datetime.now(UTC)
        self.sent = 0
        self.folder = folder

    async def send(self, value: Any, user: str = "ann", key: str = "", **changes: Any) -> str:
        """Hand something in; its id."""
        self.sent += 1
        token = authorized_admission.token_of(user, OTHER_AUDIENCE)
        given = {
            "ce_id": f"s-{self.sent}",
            "ce_time": self.at.isoformat(),
            "authorization": f"Bearer {token}",
            **changes,
        }
        body = value if isinstance(value, bytes | None) else msgspec.json.encode(value)
        await self.bus.put(topics.SUBMISSIONS, key, headers(**given), body)
        return str(given["ce_id"])

    async def answers(self, count: int) -> list[SubmissionAnswered]:
        """The first answers in order, up to this number."""
        answers: list[SubmissionAnswered] = []
        async with asyncio.timeout(records.DEADLINE_S):
            async with contextlib.aclosing(self.bus.materialize((topics.REVIEWS,))) as batches:
                async for batch in batches:
                    messages = (envelope.decode(each) for each in batch.records)
                    answers += [each for each in messages if isinstance(each, SubmissionAnswered)]
                    if len(answers) >= count:
                        return answers
        raise AssertionError

    async def answer(self) -> SubmissionAnswered:
        """The newest."""
        return (await self.answers(self.sent))[-1]

    async def jobs(self, namespace: str) -> list[str]:
        listing = await self.server.cluster.list(kinds.JOBS, namespace)
        return [kinds.metadata_of(each).name for each in listing.items]


async def knows_all_answers() -> None:
    """There was no leader before."""


@contextlib.asynccontextmanager
async def serving(setup: SubmissionSetup, *, accounts: bool = True) -> AsyncIterator[None]:
    """The desk is open while inside."""
    writer = await setup.bus.open_writer("admission", "test")
    authenticator = setup.server.authenticator if accounts else None
    submission_consumer = shell.SubmissionConsumer(
        setup.server.admission, AdmissionSettings(), authenticator, lambda: setup.at
    )
    async with asyncio.TaskGroup() as group:
        health = runtime.Health("admission")
        serving = submission_consumer.serve(
            leader_election.SingleReplica(health), setup.bus, writer, health, knows_all_answers
        )
        task = group.create_task(serving)
        if not setup.server.admission.idempotency_cache._opened().done():
            setup.server.admission.idempotency_cache.open(writer)
        try:
            yield
        finally:
            task.cancel()


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[SubmissionSetup]:
    async with (
        authorized_admission.open_admission(tmp_path, Scene()) as server,
        EmbeddedBus(tmp_path / "log.db") as bus,
    ):
        yield SubmissionSetup(server, bus, tmp_path)


def job(name: str, namespace: str, **spec: Any) -> Document:
    template = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"tasks": [{"name": "w", "replicas": 1, "template": template}], **spec},
    }


def objects(*documents: Document) -> Document:
    return {"objects": documents}


async def test_a_submission_is_done_as_its_owner_and_answered(setup: SubmissionSetup) -> None:
    blue = setup.server.scene.blue
    async with serving(setup):
        name = await setup.send(objects(job("train", blue)))
        answer = await setup.answer()
    assert (answer.submission, answer.source, answer.status) == (name, "nightly", 200)
    assert answer.user == setup.server.scene.user("ann")
    (submitted_object,) = answer.objects
    assert (submitted_object.kind, submitted_object.object, submitted_object.result) == (
        "Job",
        f"{blue}/train",
        "created",
    )
    stored = kinds.JOBS.decode(await setup.server.cluster.get(kinds.JOBS, blue, "train"))
    assert stored.metadata.uid == submitted_object.uid
    assert stored.metadata.annotation(keys.USER) == answer.user
    review = setup.server.admission.pending_reviews
    entry_points = {
        m.entry_point
        for m in (review.get_nowait().message for _ in range(review.qsize()))
        if isinstance(m, ObjectReviewed)
    }
    assert "kafka" in entry_points


async def test_a_rejected_user_gets_all_missing_rights(setup: SubmissionSetup) -> None:
    """And nothing is written."""
    blue, red = setup.server.scene.blue, setup.server.scene.red
    async with serving(setup):
        await setup.send(objects(job("a", blue), job("b", red), job("c", red)))
        answer = await setup.answer()
    assert answer.status == 403
    assert [each.path for each in answer.violations] == ["objects[1].rights", "objects[2].rights"]
    assert all(f'in the namespace "{red}"' in each.reason for each in answer.violations)
    assert await setup.jobs("") == []


async def test_a_wrong_job_is_answered_with_every_mistake(setup: SubmissionSetup) -> None:
    async with serving(setup):
        await setup.send(objects(job("a", setup.server.scene.blue, queue="none", minAvailable=9)))
        answer = await setup.answer()
    assert answer.status == 422
    assert {each.path for each in answer.violations} == {"spec.queue", "spec.minAvailable"}


async def test_a_token_for_rest_is_not_valid_for_submissions(setup: SubmissionSetup) -> None:
    """Nor an unknown token."""
    for token in (authorized_admission.token_of("ann"), "made-up"):
        async with serving(setup):
            await setup.send(objects(job("a", "x")), authorization=f"Bearer {token}")
            answer = await setup.answer()
        assert (answer.status, answer.user) == (401, "")
        assert token not in repr(answer)


async def test_a_broken_submission_stops_no_other(setup: SubmissionSetup) -> None:
    blue = setup.server.scene.blue
    async with serving(setup):
        await setup.send(b"\x00not json")
        await setup.send(None, ce_id=None)
        await setup.send(objects(job("fine", blue)))
        await setup.send(objects({"kind": ["odd"], "metadata": 7}))
        answers = await setup.answers(4)
    assert sorted(each.status for each in answers) == [200, 400, 400, 422]
    assert await setup.jobs(blue) == ["fine"]


async def test_a_poison_record_stops_no_other_submission(setup: SubmissionSetup) -> None:
    """Not even the consumer: each is answered."""
    blue = setup.server.scene.blue
    async with serving(setup):
        for number, (changes, value) in enumerate(poison_records.SUBMISSIONS.values()):
            now = {"ce_time": setup.at.isoformat(), "ce_id": f"p-{number}"}
            await setup.send(value, **(now | changes))
        await setup.send(objects(job("fine", blue)))
        answers = await setup.answers(len(poison_records.SUBMISSIONS) + 1)
    assert {each.status for each in answers} == {200, 400, 408, 422}
    assert await setup.jobs(blue) == ["fine"]


async def test_an_answer_is_recorded_however_many_violations_a_submission_has(
    setup: SubmissionSetup,
) -> None:
    """An answer that no record holds would end the consumer, again and again: the submission
    stays on the topic."""
    blue = setup.server.scene.blue
    async with serving(setup):
        await setup.send(objects(*[{}] * 12_000))
        await setup.send(objects(*[{"kind": "\U0001f600" * 500}] * pipeline.MAX_OBJECTS))
        await setup.send(objects(job("fine", blue)))
        answers = await setup.answers(3)
    assert sorted(each.status for each in answers) == [200, 422, 422]
    assert await setup.jobs(blue) == ["fine"]


async def test_a_repeated_submission_is_executed_once_and_answered_the_same(
    setup: SubmissionSetup,
) -> None:
    """Also one with a generated name, and also if the job was deleted in between."""
    blue = setup.server.scene.blue
    made = job("", blue)
    made["metadata"] = {"generateName": "train-", "namespace": blue}
    async with serving(setup):
        for _ in range(2):
            await setup.send(objects(made), ce_id="same", key="k")
        first, second = await setup.answers(2)
        (name,) = await setup.jobs(blue)
        await setup.server.cluster.delete(kinds.JOBS, blue, name)
        await setup.send(objects(made), ce_id="same")
        third = await setup.answer()
        assert await setup.jobs(blue) == []
        await setup.send(objects(job("another", blue)), ce_id="same")
        reused = await setup.answer()
    assert first.objects == second.objects == third.objects
    assert name.startswith("train-")
    assert reused.status == 422
    assert "ce_id" in reused.detail


async def test_the_same_name_of_another_is_another_submission(setup: SubmissionSetup) -> None:
    blue, red = setup.server.scene.blue, setup.server.scene.red
    async with serving(setup):
        await setup.send(objects(job("a", blue)), ce_id="same", key="k")
        await setup.send(objects(job("a", red)), user="ben", ce_id="same", key="k")
        answers = await setup.answers(2)
    assert [each.status for each in answers] == [200, 200]


async def test_those_of_one_key_are_done_in_order(setup: SubmissionSetup) -> None:
    blue = setup.server.scene.blue
    changes = [job("a", blue, minAvailable=number) for number in range(1, 6)]
    for each in changes:
        each["spec"]["tasks"][0]["replicas"] = 5
    async with serving(setup):
        for each in changes:
            await setup.send(objects(each), user="op", key="a")
        answers = await setup.answers(5)
    assert [each.submission for each in answers] == [f"s-{number}" for number in range(1, 6)]
    stored = kinds.JOBS.decode(await setup.server.cluster.get(kinds.JOBS, blue, "a"))
    assert stored.spec.min_available == 5


async def test_submissions_during_an_outage_are_executed_and_finished_ones_are_not_repeated(
    setup: SubmissionSetup,
) -> None:
    blue = setup.server.scene.blue
    await setup.send(objects(job("early", blue)))
    async with serving(setup):
        assert (await setup.answer()).status == 200
    async with serving(setup):
        await setup.send(objects(job("later", blue)))
        assert (await setup.answer()).status == 200
    assert len(await setup.answers(2)) == 2


async def test_a_submission_waits_for_the_api_server_until_its_deadline(
    setup: SubmissionSetup,
) -> None:
    blue = setup.server.scene.blue
    setup.server.accounts.is_away = True
    async with serving(setup):
        await setup.send(objects(job("waits", blue)))
        await setup.server.accounts.was_away.wait()
        setup.server.accounts.is_away = False
        assert (await setup.answer()).status == 200
        setup.server.accounts.is_away = True
        setup.server.now += 60  # what was known is forgotten
        await setup.send(objects(job("late", blue)))
        setup.server.accounts.was_away.clear()
        await setup.server.accounts.was_away.wait()
        setup.at += MAX_AGE + timedelta(seconds=1)
        late = await setup.answer()
    assert late.status == 503
    assert "not finished in time" in late.detail
    assert await setup.jobs(blue) == ["waits"]


async def test_without_accounts_every_submission_is_refused(setup: SubmissionSetup) -> None:
    """Never done, and never left without an answer."""
    async with serving(setup, accounts=False):
        await setup.send(objects(job("a", setup.server.scene.blue)))
        answer = await setup.answer()
    assert answer.status == 501
    assert "STROM_ADMISSION_ACCOUNTS" in answer.detail
