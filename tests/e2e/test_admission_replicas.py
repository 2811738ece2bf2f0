"""Two admission replicas on one log and one cluster: each request is executed once, over REST,
through webhooks and over Kafka.
"""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from stromboli.admission import idempotency, service
from stromboli.admission.auth import authentication
from stromboli.admission.kafka import submission_consumer
from stromboli.admission.rest import application
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.embedded import accounts as files
from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import OWN_NAME, EmbeddedCluster, Webhook
from stromboli.shared import envelope, leader_election, topics
from stromboli.shared.api import kinds
from stromboli.shared.leader_election import cluster_lease
from stromboli.shared.messages.admission import SubmissionAnswered
from stromboli.shared.runtime import runtime
from stromboli.testkit import objects
from stromboli.testkit.contracts.accounts import OTHER_AUDIENCE, Scene
from stromboli.testkit.doubles import authorized_admission

WITHIN_S = 120.0
TERMS = leader_election.LeaseSettings(duration_s=60, renew_deadline_s=40.0, retry_period_s=0.05)
JOBS = "/v1/namespaces/{}/jobs"


class Replica:
    """One admission process: its service, its health, and a REST client of each account."""

    def __init__(self, name: str, admission: AdmissionService, app: Any) -> None:
        self.name = name
        self.admission = admission
        self.app = app
        self.health = runtime.Health("admission")
        self.task: asyncio.Task[None] | None = None

    def client(self, user: str) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {authorized_admission.token_of(user)}"}
        transport = httpx.ASGITransport(app=self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://door", headers=headers)

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
            self.task = None


class Replicas:
    """Two replicas, a log, and a cluster whose webhooks call the replicas alternately."""

    def __init__(self, bus: EmbeddedBus, scene: Scene) -> None:
        self.bus = bus
        self.scene = scene
        self.cluster: EmbeddedCluster
        self.all: list[Replica] = []
        self.sent = 0

    def hooks(self) -> list[Webhook]:
        turns = itertools.count()

        def call_for(path: str) -> Any:
            async def call(body: bytes) -> bytes:
                replica = self.all[next(turns) // 2 % len(self.all)]
                return await replica.admission.answer(path, body)

            return call

        return [
            Webhook(
                kind=kind,
                operations=frozenset(operations),
                mutating=entry_point == "mutate",
                call=call_for(f"/{kind.plural}/{entry_point}"),
            )
            for kind, entry_point, operations in webhooks.RULES
        ]

    def add(self, folder: Path) -> Replica:
        """One more, not started."""
        known = files.read(authorized_admission.accounts_file(folder, self.scene), OWN_NAME)
        authenticator = authentication.Authenticator(known, 10.0, asyncio.get_running_loop().time)
        admission = AdmissionService(
            AdmissionSettings(), self.cluster, runtime.utc_now, authenticator
        )
        name = f"admission-{len(self.all)}"
        app = application.rest_application(
            admission, self.cluster, AdmissionSettings(), [runtime.Health(name)], authenticator
        )
        self.all.append(Replica(name, admission, app))
        return self.all[-1]

    def start(self, replica: Replica, *, lease: leader_election.Lease | None = None) -> None:
        clock, settings = runtime.utc_now, msgspec.structs.replace(TERMS, identity=replica.name)
        held = lease or cluster_lease.lease(
            settings,
            "admission",
            "a",
            self.cluster,
            replica.health,
            clock,
            role=submission_consumer.ROLE,
            essential=False,
        )
        replica.task = asyncio.create_task(
            service.serve(
                replica.admission,
                AdmissionSettings(),
                self.bus,
                replica.health,
                clock,
                replica.name,
                held,
            )
        )

    async def until(self, is_so: Any) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not is_so():
                for replica in self.all:
                    if replica.task is not None and replica.task.done():
                        replica.task.result()
                await asyncio.sleep(0.01)

    async def log_is_open(self) -> None:
        """Wait until every replica has read the log: a request waits for that only for seconds."""
        caches = [replica.admission.idempotency_cache for replica in self.all]
        await self.until(lambda: all(cache._opened().done() for cache in caches))

    async def submit(self, *documents: dict[str, Any], name: str = "", user: str = "ann") -> str:
        """Append a submission; its id."""
        self.sent += 1
        name = name or f"s-{self.sent}"
        headers = {
            "ce_id": name,
            "ce_source": "test",
            "ce_type": "stromboli.admission.objects_submitted.v1",
            "ce_time": runtime.utc_now().isoformat(),
            "authorization": f"Bearer {authorized_admission.token_of(user, OTHER_AUDIENCE)}",
        }
        body = msgspec.json.encode({"objects": documents})
        await self.bus.put(topics.SUBMISSIONS, "", headers, body)
        return name

    async def answers(self, *names: str) -> list[SubmissionAnswered]:
        """All answers on the topic once each of these submissions has one, and no replica has work
        left."""
        answers: list[SubmissionAnswered] = []
        async with asyncio.timeout(WITHIN_S):
            async with contextlib.aclosing(self.bus.materialize((topics.REVIEWS,))) as batches:
                async for batch in batches:
                    messages = (envelope.decode(each) for each in batch.records)
                    answers += [each for each in messages if isinstance(each, SubmissionAnswered)]
                    if {each.submission for each in answers} >= set(names):
                        return answers
        raise AssertionError

    async def jobs(self, namespace: str) -> list[str]:
        listed = await self.cluster.list(kinds.JOBS, namespace)
        return [kinds.metadata_of(each).name for each in listed.items]


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Replicas]:
    async with EmbeddedBus(tmp_path / "log") as bus:
        made = Replicas(bus, Scene())
        async with EmbeddedCluster(tmp_path / "cluster", hooks=made.hooks()) as cluster:
            made.cluster = cluster
            for _ in range(2):
                made.add(tmp_path)
            for namespace in (made.scene.blue, made.scene.red):
                space = objects.make(kinds.NAMESPACES, namespace)
                await cluster.create(kinds.NAMESPACES, "", space)
            await cluster.create(kinds.QUEUES, "", objects.make(kinds.QUEUES, "default", spec={}))
            try:
                yield made
            finally:
                for replica in made.all:
                    await replica.stop()


def job(name: str, namespace: str, **metadata: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    named = {"name": name} if name else {}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {**named, "namespace": namespace, **metadata},
        "spec": {"tasks": [{"name": "w", "replicas": 1, "template": template}]},
    }


class OverlappingLease:
    """A lease that every replica believes it holds, as after a pause of its holder."""

    acts = True

    async def acquired(self) -> None:
        """Acquired immediately."""

    async def serve(self, term: leader_election.Term) -> None:
        """Serve one term that does not end."""
        await term(self)

    async def release(self) -> None:
        """Nothing to release."""


def both(first: Replica, second: Replica) -> Sequence[Replica]:
    return (first, second)


# --- Kafka -------------------------------------------------------------------------------------


async def test_one_of_two_replicas_consumes_submissions(replicas: Replicas) -> None:
    """Each submission is answered once; the standby reports its role and is ready."""
    first, second = replicas.all
    blue = replicas.scene.blue
    for replica in both(first, second):
        replicas.start(replica)

    def roles() -> set[str]:
        return {replica.health.notes.get("submissions", "") for replica in replicas.all}

    names = {"admission-0", "admission-1"}
    await replicas.until(lambda: roles() in [{"active", f"standby of {name}"} for name in names])
    sent = [await replicas.submit(job(f"j-{number}", blue)) for number in range(8)]
    sent.append(await replicas.submit(job("", blue, generateName="made-")))
    await replicas.answers(*sent)
    sent.append(await replicas.submit(job("last", blue)))
    answers = await replicas.answers(sent[-1])
    assert Counter(each.submission for each in answers) == Counter(sent)
    assert {each.status for each in answers} == {200}
    assert len(await replicas.jobs(blue)) == 10


async def test_a_standby_takes_over_submissions_with_their_answers(
    replicas: Replicas,
) -> None:
    """The next leader answers a repeated submission with the first answer, although the job was
    deleted.
    """
    first, second = replicas.all
    blue = replicas.scene.blue
    replicas.start(first)
    name = await replicas.submit(job("", blue, generateName="made-"))
    (before,) = await replicas.answers(name)
    (made,) = await replicas.jobs(blue)
    await first.stop()
    await replicas.cluster.delete(kinds.JOBS, blue, made)
    await replicas.submit(job("", blue, generateName="made-"), name=name)
    replicas.start(second)
    later = await replicas.submit(job("later", blue))
    answers = await replicas.answers(later)
    again = [each for each in answers if each.submission == name]
    assert [each.objects for each in again] == [before.objects] * 2
    assert await replicas.jobs(blue) == ["later"]


async def test_two_replicas_that_both_consume_create_each_object_once(replicas: Replicas) -> None:
    """Whatever the lease promised: names derive from the submission, so the API server arbitrates,
    and both answers name the same object."""
    blue = replicas.scene.blue
    for replica in replicas.all:
        replicas.start(replica, lease=OverlappingLease())
    submitted: list[str] = []
    answers: list[SubmissionAnswered] = []
    async with asyncio.timeout(WITHIN_S):
        while len(answers) == len(submitted):  # until both have executed the same submission
            for number in range(len(submitted), len(submitted) + 6):
                named, unnamed = job(f"j-{number}", blue), job("", blue, generateName="made-")
                submitted.append(await replicas.submit(unnamed, named))
            answers = await replicas.answers(*submitted)
    assert {each.status for each in answers} == {200}
    for name in submitted:
        uids = {tuple(it.uid for it in each.objects) for each in answers if each.submission == name}
        results = {it.result for each in answers if each.submission == name for it in each.objects}
        assert len(uids) == 1
        assert results == {"created"}
    assert len(await replicas.jobs(blue)) == 2 * len(submitted)


async def test_a_submission_redelivered_to_another_replica_reverts_no_later_change(
    replicas: Replicas,
) -> None:
    """The second replica does not know the first one's answer: the object identifies its
    submission.
    """
    first, second = replicas.all
    blue = replicas.scene.blue
    document = job("train", blue)
    document["spec"]["tasks"][0]["replicas"] = 1
    authenticator = first.admission.authenticator
    assert authenticator is not None
    op = await authenticator.authenticate(authorized_admission.token_of("op"), ("stromboli",))
    marks = (idempotency.digest("a submission"),)
    (applied,) = await first.admission.submit([document], op, entry_point="kafka", marks=marks)
    change = {**document, "spec": {**document["spec"], "minAvailable": 1}}
    change["spec"]["tasks"] = [{**document["spec"]["tasks"][0], "replicas": 3}]
    await first.admission.submit([change], op)
    (again,) = await second.admission.submit([document], op, entry_point="kafka", marks=marks)
    assert (applied.result, again.result) == ("created", "created")
    stored = kinds.JOBS.decode(await replicas.cluster.get(kinds.JOBS, blue, "train"))
    assert stored.spec.tasks[0].replicas == 3


# --- REST --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["train", ""])
async def test_a_request_sent_to_both_replicas_at_once_creates_one_job(
    replicas: Replicas, name: str
) -> None:
    """Neither replica knows the other's answer: both respond with 201 and the same object."""
    blue = replicas.scene.blue
    for replica in replicas.all:
        replicas.start(replica)
    await replicas.log_is_open()
    body = job(name, blue) if name else job("", blue, generateName="train-")
    answers = await asyncio.gather(
        *(
            client.post(JOBS.format(blue), json=body, headers={idempotency.HEADER: f"key-{number}"})
            for number in range(8)
            for client in (replica.client("ann") for replica in replicas.all)
            if number == 0 or not name
        )
    )
    assert [answer.text for answer in answers if answer.status_code != 201] == []
    uids = Counter(answer.json()["metadata"]["uid"] for answer in answers)
    assert set(uids.values()) == {2}
    assert len(await replicas.jobs(blue)) == len(uids)


async def test_a_command_sent_to_both_replicas_at_once_is_created_once(replicas: Replicas) -> None:
    blue = replicas.scene.blue
    document = msgspec.json.encode(job("train", blue))
    await replicas.cluster.create(kinds.JOBS, blue, document)
    plain = []
    for replica in replicas.all:
        replicas.start(replica)
        app = application.app(application.routes(replica.admission, replicas.cluster))
        transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]  # same ASGI
        plain.append(httpx.AsyncClient(transport=transport, base_url="http://door"))
    await replicas.log_is_open()
    path, key = f"{JOBS.format(blue)}/train/suspend", {idempotency.HEADER: "suspend it"}
    answers = await asyncio.gather(*(client.post(path, headers=key) for client in plain))
    assert [answer.status_code for answer in answers] == [202, 202]
    assert len((await replicas.cluster.list(kinds.COMMANDS)).items) == 1


# --- webhooks ----------------------------------------------------------------------------------


async def test_both_replicas_answer_webhooks(
    replicas: Replicas,
) -> None:
    """A queue that was created through one replica is valid for the other, which has not read it
    yet.
    """
    blue = replicas.scene.blue
    for number in range(4):
        queue = objects.make(kinds.QUEUES, f"q-{number}", spec={})
        await replicas.cluster.create(kinds.QUEUES, "", queue)
        document = job(f"j-{number}", blue)
        document["spec"]["queue"] = f"q-{number}"
        await replicas.cluster.create(kinds.JOBS, blue, msgspec.json.encode(document))
    assert len(await replicas.jobs(blue)) == 4
    counts = [replica.admission.pending_reviews.qsize() for replica in replicas.all]
    assert min(counts) > 0
