"""Checks of a system with accounts from outside: each entry point rejects users without rights, and
no token is stored on a topic, in a log or in an object.

``AdmissionUnderTest`` is implemented by each test environment: one process, or the real parts.
"""

import asyncio
import contextlib
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import httpx
import msgspec

from stromboli.shared import envelope, topics
from stromboli.shared.bus import port
from stromboli.shared.messages.admission import SubmissionAnswered
from stromboli.testkit import records
from stromboli.testkit.contracts.accounts import AUDIENCE, OTHER_AUDIENCE, Scene

FORGED_TOKEN = "a-token-that-nobody-has"


class AdmissionUnderTest(Protocol):
    """Admission with accounts, and the tenants of ``scene``."""

    @property
    def url(self) -> str:
        """Address of REST."""

    @property
    def scene(self) -> Scene:
        """The users and their roles."""

    @property
    def tokens(self) -> dict[tuple[str, str], str]:
        """(user, audience) -> token."""

    @property
    def bus(self) -> port.Bus:
        """The log."""

    async def put(self, headers: dict[str, str], value: bytes) -> None:
        """Submit an object as an external client."""

    def written(self) -> str:
        """Return all log lines so far."""


def job(name: str, namespace: str) -> dict[str, Any]:
    """The manifest of a job."""
    template = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"tasks": [{"name": "w", "replicas": 1, "template": template}]},
    }


def missing_right_message(verb: str, namespace: str) -> str:
    """The message for a missing right on jobs, the same for all entry points."""
    what = 'resource "jobs" in API group "batch.volcano.sh"'
    return f'cannot {verb} {what} in the namespace "{namespace}"'


async def check_rest(cell: AdmissionUnderTest) -> None:
    """Send requests as a user without rights, as one with rights, and without a token."""
    blue = cell.scene.blue
    jobs = f"/v1/namespaces/{blue}/jobs"

    async def ask(token: str, method: str = "GET", path: str = jobs, **rest: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=cell.url, headers=headers, timeout=60) as client:
            return await client.request(method, path, **rest)

    eve, ann = cell.tokens["eve", AUDIENCE], cell.tokens["ann", AUDIENCE]
    refused = await ask(eve)
    assert refused.status_code == 403, refused.text
    (violation,) = refused.json()["violations"]
    assert (
        violation["reason"]
        == f'User "{cell.scene.user("eve")}" {missing_right_message("list", blue)}'
    )
    refused = await ask(eve, "POST", json=job("theirs", blue))
    assert missing_right_message("create", blue) in refused.json()["detail"]
    response = await ask(ann, "POST", json=job("over-rest", blue))
    assert response.status_code == 201, response.text
    assert (await ask(ann)).status_code == 200
    for token in (FORGED_TOKEN, cell.tokens["ann", OTHER_AUDIENCE]):
        assert (await ask(token)).status_code == 401
    declared = {"content-type": "application/json"}
    broken = await ask(ann, "POST", content=b"{", path="/v1/apply", headers=declared)
    assert broken.status_code == 400


async def check_command_line(cell: AdmissionUnderTest, folder: Path) -> None:
    """``strom`` reports the missing right and the rule that grants it."""
    file = folder / "token"
    file.write_text(cell.tokens["eve", AUDIENCE])
    code, output = await _strom(
        cell, "--token-file", str(file), "job", "list", "-n", cell.scene.blue
    )
    assert code == 1
    assert missing_right_message("list", cell.scene.blue) in output
    assert "verbs: [list]" in output
    code, output = await _strom(cell, "job", "list", "-n", cell.scene.blue)
    assert code == 1
    assert "kubectl create token" in output
    file.write_text(cell.tokens["ann", AUDIENCE])
    code, output = await _strom(
        cell, "--token-file", str(file), "job", "list", "-n", cell.scene.blue
    )
    assert (code, "over-rest" in output) == (0, True), output


async def _strom(cell: AdmissionUnderTest, *arguments: str) -> tuple[int, str]:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("strom"),
        *arguments,
        env={**environment, "STROM_SERVER": cell.url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def check_kafka(cell: AdmissionUnderTest) -> None:
    """Submit over Kafka with the same users, and a record that cannot be decoded."""
    blue = cell.scene.blue
    tokens = {user: cell.tokens[user, OTHER_AUDIENCE] for user in ("ann", "eve")}
    tokens |= {
        "rest": cell.tokens["ann", AUDIENCE],
        "nobody": FORGED_TOKEN,
        "broken": tokens["ann"],
    }
    for who, token in tokens.items():
        objects = {"objects": [job(f"of-{who}", blue)]}
        headers = {
            "ce_id": who,
            "ce_source": "test",
            "ce_type": "stromboli.admission.objects_submitted.v1",
            "ce_time": datetime.now(UTC).isoformat(),
            "authorization": f"Bearer {token}",
        }
        await cell.put(headers, b"{broken" if who == "broken" else msgspec.json.encode(objects))
    answers = await _answers(cell, len(tokens))
    found = {who: answer.status for who, answer in answers.items()}
    assert found == {"ann": 200, "eve": 403, "rest": 401, "nobody": 401, "broken": 400}
    (violation,) = answers["eve"].violations
    assert 'cannot get resource "jobs" named "of-eve"' in violation.reason
    assert f'in the namespace "{blue}"' in violation.reason


async def _answers(cell: AdmissionUnderTest, count: int) -> dict[str, SubmissionAnswered]:
    answers: dict[str, SubmissionAnswered] = {}
    async with asyncio.timeout(records.DEADLINE_S):
        async with contextlib.aclosing(cell.bus.materialize((topics.REVIEWS,))) as batches:
            async for batch in batches:
                for message in map(envelope.decode, batch.records):
                    if isinstance(message, SubmissionAnswered):
                        answers[message.submission] = message
                if len(answers) == count:
                    return answers
    raise AssertionError(answers)


async def assert_no_token_left(cell: AdmissionUnderTest, spans: bytes = b"") -> None:
    """Check that no token is on a topic, except in the header of its submission, nor in a log line
    or a span."""
    tokens = [*cell.tokens.values(), FORGED_TOKEN]
    handed_in = 0
    async with contextlib.aclosing(cell.bus.materialize(topics.ALL)) as batches:
        async for batch in batches:
            for record in batch.records:
                headers = dict(record.headers)
                if record.topic == topics.SUBMISSIONS:
                    token = headers.pop("authorization").removeprefix("Bearer ")
                    assert token in tokens
                    handed_in += 1
                assert record.topic != topics.DEAD_LETTERS, "it keeps headers for two weeks"
                kept = "\n".join((record.key, *headers.values())).encode() + (record.value or b"")
                _assert_free(kept, tokens, f"{record.topic.name}@{record.offset}")
            if batch.caught_up:
                break
    assert handed_in >= 5
    _assert_free(cell.written().encode(), tokens, "the log lines")
    _assert_free(spans, tokens, "the spans")


def _assert_free(kept: bytes, tokens: list[str], where: str) -> None:
    """Check that the text contains no token; for a JWT, neither its claims nor its signature."""
    for token in tokens:
        parts = token.split(".")[1:] if token.count(".") == 2 else [token]
        for part in parts:
            assert part.encode() not in kept, f"{where} contain a token"
