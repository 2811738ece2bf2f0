"""What-if over REST: its rights, the question to the scheduler, and answers that need none."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stromboli.admission.review import what_ifs
from stromboli.shared import envelope, errors, keys, topics
from stromboli.shared.api import kinds
from stromboli.shared.messages import what_if as messages
from stromboli.testkit import builders
from stromboli.testkit.admission_cases import manifests
from stromboli.testkit.contracts.accounts import Scene
from stromboli.testkit.doubles.authorized_admission import AuthorizedAdmission, open_admission


class AnsweringLog:
    """A writer whose reader answers each question at once."""

    def __init__(self, server: AuthorizedAdmission) -> None:
        self._server = server
        self.requested: list[messages.WhatIfAsked] = []

    async def append(self, draft: envelope.Draft) -> tuple[()]:
        assert isinstance(draft.message, messages.WhatIfAsked)
        self.requested.append(draft.message)
        answer = messages.WhatIfAnswered(
            pod_group=draft.message.pod_group, at=builders.NOON, cannot_tell="it has started"
        )
        for key in ("of-another-replica", draft.key):
            found = envelope.Draft(
                topic=topics.FORECAST_ANSWERS, key=key, message=answer, time=builders.NOON
            )
            self._server.admission.fold(builders.make_record(found))
        return ()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AuthorizedAdmission]:
    async with open_admission(tmp_path, Scene()) as authorized_admission:
        yield authorized_admission


async def submit(server: AuthorizedAdmission, *, is_pending: bool = True) -> str:
    """A job of ann, by default explained as pending; returns the path of its what-if."""
    made = manifests.job()
    made["metadata"] = {"name": "train", "namespace": server.scene.blue}
    where = f"/v1/namespaces/{server.scene.blue}/jobs"
    async with server.as_("ann") as ann:
        answer = await ann.post(where, json=made)
    assert answer.status_code == 201, answer.text
    if is_pending:
        group = f"{server.scene.blue}/train-{answer.json()['metadata']['uid']}"
        draft = envelope.Draft(
            topic=topics.EXPLANATIONS,
            key=group,
            message=builders.make_explanation(group),
            time=builders.NOON,
        )
        server.admission.fold(builders.make_record(draft))
    return f"{where}/train/what-if"


async def ask(server: AuthorizedAdmission, user: str, path: str, **body: Any) -> tuple[int, Any]:
    async with server.as_(user) as client:
        answer = await client.post(path, json=body)
    return answer.status_code, answer.json()


async def test_who_may_read_a_job_may_ask_and_changes_nothing(server: AuthorizedAdmission) -> None:
    """ann may not change jobs. Answers to other replicas are ignored."""
    path = await submit(server)
    log = AnsweringLog(server)
    server.admission.what_ifs.open(log)  # type: ignore[arg-type]  # it appends
    before = await server.cluster.get(kinds.JOBS, server.scene.blue, "train")
    status, found = await ask(server, "ann", path, nodes=2, replicas={"": 3})
    assert (status, found["cannotTell"]) == (200, "it has started")
    (question,) = log.requested
    assert (question.nodes, question.is_new, question.sizes_change) == (2, False, True)
    assert question.changed is not None
    assert [task.replicas for task in question.changed.tasks] == [3]
    assert await server.cluster.get(kinds.JOBS, server.scene.blue, "train") == before


async def test_other_tenants_may_not_ask(server: AuthorizedAdmission) -> None:
    path = await submit(server)
    assert (await ask(server, "ben", path, nodes=1))[0] == 403
    assert (await ask(server, "eve", path, nodes=1))[0] == 403


async def test_a_queue_needs_the_permission_to_submit_to_it(server: AuthorizedAdmission) -> None:
    """The answer tells how busy it is."""
    made = {
        "apiVersion": kinds.QUEUES.api_version,
        "kind": kinds.QUEUES.kind,
        "metadata": {
            "name": "gold",
            "annotations": {f"{keys.PREFIX}allowed-users": "nobody-here"},
        },
        "spec": {},
    }
    await server.cluster.create(kinds.QUEUES, "", msgspec.json.encode(made))
    path = await submit(server)
    for queue in ("gold", "none"):
        status, found = await ask(server, "ann", path, queue=queue)
        assert (status, [each["path"] for each in found["violations"]]) == (422, ["spec.queue"])


@pytest.mark.parametrize(
    "body",
    [
        *({}, {"nodes": -1}, {"nodes": 1001}, {"gpu": 1}, {"replicas": {"x": 1}}, {"replicas": 3}),
        {"priorityClassName": "none"},
    ],
)
async def test_a_wrong_change_is_refused(server: AuthorizedAdmission, body: Any) -> None:
    path = await submit(server)
    assert (await ask(server, "ann", path, **body))[0] in (400, 422)


async def test_a_job_that_is_not_pending_needs_no_scheduler(server: AuthorizedAdmission) -> None:
    path = await submit(server, is_pending=False)
    status, found = await ask(server, "ann", path, nodes=1)
    assert status == 200
    assert "not pending" in found["cannotTell"]


class SilentLog:
    """A writer whose reader answers no question."""

    async def append(self, draft: envelope.Draft) -> tuple[()]:
        return ()


async def test_one_user_cannot_use_up_the_questions_of_all() -> None:
    """A question may wait for a minute, so a few scripts would stop all others."""
    asking = what_ifs.WhatIfs(lambda: builders.NOON)
    asking.open(SilentLog())  # type: ignore[arg-type]  # it appends
    gang = messages.Gang(queue="q", min_member=1)

    async def ask_as(user: str) -> messages.WhatIfAnswered:
        sizes: dict[str, Any] = {"is_new": False, "sizes_change": False, "nodes": 1}
        return await asking.ask("ns/job", gang, None, **sizes, principal=user)

    async with asyncio.TaskGroup() as tasks:
        first = [tasks.create_task(ask_as("ann")) for _ in range(what_ifs.MOST_OF_ONE)]
        await asyncio.sleep(0)
        with pytest.raises(errors.RateLimitedError, match="what-if requests of this user"):
            await ask_as("ann")
        first += [tasks.create_task(ask_as("ben")) for _ in range(what_ifs.MOST_OF_ONE)]
        await asyncio.sleep(0)
        with pytest.raises(errors.RateLimitedError, match="8 what-if requests wait"):
            await ask_as("eve")
        for task in first:
            task.cancel()
        await asyncio.wait(first)
        again = tasks.create_task(ask_as("ann"))
        await asyncio.sleep(0)
        assert not again.done()
        again.cancel()


async def test_without_the_log_a_question_fails_at_once(server: AuthorizedAdmission) -> None:
    path = await submit(server)
    assert (await ask(server, "ann", path, nodes=1))[0] == 503
