"""Rules of notifications: which are stored, and how they are sent."""

import asyncio
import hashlib
import hmac
import http.server
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
import sqlalchemy as sa
import structlog

from services.history.tests.support import events
from stromboli.history.notifications import channels, notices, sender, targets, texts
from stromboli.history.store import tables, writer
from stromboli.history.store.database import Database
from stromboli.shared import errors

MAIL = targets.Mail(host="localhost", sender="batch@example.org", domains=("example.org",))
OPS = targets.Target(name="ops", type="slack", url="https://hooks.example.org/x", namespaces=("*",))
CONFIGURATION = targets.Configuration(targets=(OPS,), mail=MAIL, per_minute=3, long_wait_s=100)


def of(message: msgspec.Struct, configuration: targets.Configuration = CONFIGURATION) -> list[str]:
    """The ids of the notices of an event that has just happened."""
    found = notices.notices(message, configuration, events.at(5))
    return sorted(each.id for each in found)


@pytest.mark.parametrize(
    ("phase", "event"),
    [
        ("Running", "Started"),
        ("Completed", "Completed"),
        ("Failed", "Failed"),
        ("Terminated", "Stopped"),
        ("Aborted", "Stopped"),
        ("Pending", "LongWait"),
    ],
)
def test_a_job_gets_the_notifications_that_it_requests(phase: str, event: str) -> None:
    others = ",".join({"Started", "Failed", "Preempted"} - {event})
    request = f"ops={event} mail:ann@example.org={others}"
    assert of(events.phase(phase, 0, 1, notify=request)) == [f"u1/0/{event}/ops"]


def test_many_preempted_pods_of_one_attempt_are_one_notification() -> None:
    request = "ops=Preempted"
    ids = {
        each
        for pod in ("p1", "p2")
        for each in of(events.task("Terminating", 0, pod, reason="Preempted", notify=request))
    }
    assert ids == {"u1/0/Preempted/ops"}
    assert of(events.task("Terminating", 0, reason="Deleted", notify=request)) == []


def test_a_job_cannot_choose_hosts_other_tenants_targets_or_mail_domains() -> None:
    private = targets.Target(name="theirs", type="slack", url="https://x", namespaces=("other",))
    configuration = msgspec.structs.replace(CONFIGURATION, targets=(OPS, private))
    for target in ("theirs", "unknown", "mail:ann@elsewhere.org", "https://10.0.0.1/"):
        message = events.phase("Failed", 0, 1, notify=f"{target}=Failed")
        assert of(message, configuration) == []


def test_an_installation_gets_events_of_all_jobs_or_of_some_queues() -> None:
    every = msgspec.structs.replace(OPS, events=("Failed",))
    some = msgspec.structs.replace(OPS, name="some", events=("Failed",), queues=("other",))
    configuration = msgspec.structs.replace(CONFIGURATION, targets=(every, some))
    assert of(events.phase("Failed", 0, 1), configuration) == ["u1/0/Failed/ops"]
    assert of(events.phase("Failed", 0, 1, queue="other"), configuration) == [
        "u1/0/Failed/ops",
        "u1/0/Failed/some",
    ]


def test_an_old_event_causes_no_notification() -> None:
    """A history that lost its database reads two weeks of events again."""
    message = events.phase("Failed", 0, 1, notify="ops=Failed")
    late = events.at(notices.MAX_AGE_S + 1)
    assert list(notices.notices(message, CONFIGURATION, late)) == []


# Storing and sending


class Receiver:
    """Records what is sent; raises the next of ``faults`` first."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.faults: list[Exception] = []

    def __call__(self, notice: notices.Notice, target: targets.Target, *_: object) -> None:
        if self.faults:
            raise self.faults.pop(0)
        self.got.append(f"{notice.event} {target.name}")


class Outbox:
    """A store, a sender and a clock that a test advances."""

    def __init__(self, store: Database) -> None:
        self.store, self.now, self.receiver = store, events.at(0), Receiver()
        self.sender = sender.Sender(store, CONFIGURATION, lambda: self.now, self.receiver)
        self._offset = 0

    async def happen(self, *messages: msgspec.Struct) -> None:
        """Events are read."""
        made = writer.Writer(self.store, lambda it: notices.notices(it, CONFIGURATION, self.now))
        await made.position()
        records = [events.record(it, self._offset + n) for n, it in enumerate(messages)]
        self._offset += len(records)
        await made.apply(records, events.position(self._offset))

    async def after(self, seconds: float) -> list[str]:
        """What has been received once this time has passed."""
        self.now += timedelta(seconds=seconds)
        await self.sender.send_due()
        return self.receiver.got

    async def failures(self) -> list[str]:
        query = sa.select(tables.NOTICES.c.failure).where(tables.NOTICES.c.is_open == 0)
        async with self.store.transaction() as connection:
            return [row.failure for row in await connection.execute(query)]


@pytest.fixture
async def outbox(store: Database) -> Outbox:
    return Outbox(store)


def failed(job: str = "u1") -> msgspec.Struct:
    return events.phase("Failed", 0, 1, uid=job, notify="ops=Failed")


async def test_an_event_that_is_read_twice_is_sent_once(outbox: Outbox) -> None:
    await outbox.happen(failed())
    assert await outbox.after(1) == ["Failed ops"]
    await outbox.happen(failed())
    assert await outbox.after(100) == ["Failed ops"]


async def test_a_failed_try_is_repeated_with_a_growing_pause(outbox: Outbox) -> None:
    outbox.receiver.faults = [errors.TransientError("w", "busy"), errors.UnavailableError("w", "")]
    await outbox.happen(failed())
    assert await outbox.after(1) == []
    assert await outbox.after(sender.FIRST_RETRY_S - 1) == []
    assert await outbox.after(1) == []
    assert not outbox.receiver.faults
    assert await outbox.after(sender.FIRST_RETRY_S) == []
    assert await outbox.after(sender.FIRST_RETRY_S) == ["Failed ops"]


async def test_a_permanent_fault_and_too_many_tries_end_a_notification(outbox: Outbox) -> None:
    outbox.receiver.faults = [errors.PermanentError("w", "status 404")]
    await outbox.happen(failed())
    await outbox.after(1)
    assert await outbox.failures() == ["status 404"]
    outbox.receiver.faults = [errors.TransientError("w", "busy")] * sender.MOST_TRIES
    await outbox.happen(failed("u2"))
    for _ in range(sender.MOST_TRIES):
        await outbox.after(sender.LONGEST_RETRY_S)
    assert "12 attempts failed; the last one: busy" in await outbox.failures()
    assert outbox.receiver.got == []


async def test_a_target_gets_at_most_its_limit_per_minute_and_the_rest_later(
    outbox: Outbox,
) -> None:
    await outbox.happen(*(failed(f"u{number}") for number in range(5)))
    assert len(await outbox.after(1)) == CONFIGURATION.per_minute
    assert len(await outbox.after(30)) == CONFIGURATION.per_minute
    assert len(await outbox.after(31)) == 5


@pytest.mark.parametrize(("later", "expected"), [("", 1), ("Running", 0)])
async def test_a_long_wait_is_sent_only_if_the_job_still_waits(
    outbox: Outbox, later: str, expected: int
) -> None:
    await outbox.happen(events.phase("Pending", 0, 1, notify="ops=LongWait"))
    assert await outbox.after(99) == []
    if later:
        await outbox.happen(events.phase(later, 50, 2))
    with structlog.testing.capture_logs() as logged:
        assert len(await outbox.after(2)) == expected
    assert logged == [], "a job that has started is no fault"
    assert await outbox.failures() == ["" if expected else sender.NOT_WAITING]


async def test_long_waits_that_are_not_sent_do_not_count_for_the_limit_of_a_target(
    outbox: Outbox,
) -> None:
    jobs = [f"u{number}" for number in range(CONFIGURATION.per_minute)]
    for job in jobs:
        await outbox.happen(events.phase("Pending", 0, 1, uid=job, notify="ops=LongWait"))
        await outbox.happen(events.phase("Running", 1, 2, uid=job))
    await outbox.happen(events.phase("Pending", 2, 1, uid="waits", notify="ops=LongWait"))
    assert len(await outbox.after(103)) == 1


async def test_a_target_cannot_put_a_try_off_for_longer_than_the_longest_pause(
    outbox: Outbox,
) -> None:
    outbox.receiver.faults = [errors.TransientError("w", "busy", 1e9)]
    await outbox.happen(failed())
    await outbox.after(1)
    assert await outbox.after(sender.LONGEST_RETRY_S) == ["Failed ops"]


async def test_of_two_replicas_one_sends(outbox: Outbox) -> None:
    other = sender.Sender(outbox.store, CONFIGURATION, lambda: outbox.now, outbox.receiver)
    await outbox.happen(failed())
    outbox.now += timedelta(seconds=1)
    (notice,) = await outbox.sender._due()
    await asyncio.gather(outbox.sender._handle(notice), other._handle(notice))
    assert outbox.receiver.got == ["Failed ops"]


# Channels


class Hook(http.server.BaseHTTPRequestHandler):
    """Records requests and answers with ``status``."""

    got: ClassVar[list[tuple[dict[str, str], bytes]]]
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((dict(self.headers), body))
        self.send_response(self.status)
        if self.status == 302:
            self.send_header("Location", "http://127.0.0.1:1/internal")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def hook() -> Iterator[tuple[type[Hook], str]]:
    handler = type("OneHook", (Hook,), {"got": [], "status": 200})
    server = http.server.HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_port}/hook"
    server.shutdown()
    thread.join()
    server.server_close()


def notice(**fields: Any) -> notices.Notice:
    message = events.phase("Failed", 0, 1, notify="ops=Failed", **fields)
    (found,) = notices.notices(message, CONFIGURATION, events.at(0))
    return found


def test_a_webhook_is_signed_with_its_time(hook: tuple[type[Hook], str]) -> None:
    handler, url = hook
    target = targets.Target(name="ops", type="webhook", url=url, secret="key")
    channels.send(notice(message="OOM"), target, CONFIGURATION, 1234)
    ((headers, body),) = handler.got
    digest = hmac.new(b"key", b"1234." + body, hashlib.sha256).hexdigest()
    assert headers[texts.SIGNATURE] == f"t=1234,v1={digest}"
    assert headers["Idempotency-Key"] == "u1/0/Failed/ops"
    sent = msgspec.json.decode(body)
    assert (sent["job"], sent["event"], sent["detail"]) == ("team/train", "Failed", "OOM")


def test_a_message_of_a_job_cannot_add_markup_to_slack(hook: tuple[type[Hook], str]) -> None:
    handler, url = hook
    target = msgspec.structs.replace(OPS, url=url)
    channels.send(notice(message="<!channel> & <http://x|y>"), target, CONFIGURATION, 0)
    text = msgspec.json.decode(handler.got[0][1])["text"]
    assert "&lt;!channel&gt; &amp; &lt;http://x|y&gt;" in text
    assert text.splitlines()[-1] == "see: strom job describe train -n team"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (302, errors.PermanentError),
        (404, errors.PermanentError),
        (429, errors.TransientError),
        (503, errors.TransientError),
    ],
)
def test_a_redirect_is_not_followed_and_a_busy_target_is_tried_again(
    hook: tuple[type[Hook], str], status: int, error: type[Exception]
) -> None:
    handler, url = hook
    handler.status = status
    with pytest.raises(error, match=f"status {status}"):
        channels.send(notice(), msgspec.structs.replace(OPS, url=url), CONFIGURATION, 0)
    assert len(handler.got) == 1


@pytest.fixture
async def smtp() -> AsyncIterator[tuple[int, list[str]]]:
    """A server that takes every mail; its port and the lines that it got."""
    got: list[str] = []

    async def serve(reader: asyncio.StreamReader, writing: asyncio.StreamWriter) -> None:
        in_data = False
        writing.write(b"220 test\r\n")
        while raw := await reader.readline():
            line = raw.decode().rstrip()
            got.append(line)
            if in_data and line != ".":
                continue
            in_data = line.lower() == "data"
            writing.write(b"354 go on\r\n" if in_data else b"250 ok\r\n")
            if line.lower() == "quit":
                break
        writing.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], got
    server.close()
    await server.wait_closed()


async def test_a_mail_is_delivered_over_smtp(smtp: tuple[int, list[str]]) -> None:
    port, got = smtp
    mail = msgspec.structs.replace(MAIL, host="127.0.0.1", port=port, encryption="none")
    configuration = msgspec.structs.replace(CONFIGURATION, mail=mail)
    target = configuration.target("mail:ann@example.org")
    assert target is not None
    await asyncio.to_thread(channels.send, notice(), target, configuration, 0)
    assert "rcpt to:<ann@example.org>" in [line.lower() for line in got]
    assert "Subject: Job team/train failed" in got


def test_a_mail_names_the_job_and_can_be_recognised_as_a_repetition() -> None:
    made = texts.mail(notice(), "blue", "batch@example.org", ("ann@example.org",))
    assert made["Subject"] == "Job team/train failed (blue)"
    assert made["Message-ID"] == texts.mail(notice(), "blue", "b@example.org", ())["Message-ID"]
    assert "see: strom job describe train -n team" in made.get_content()


# The file


def written(path: Path, text: str) -> str:
    (path / "notifications.toml").write_text(text)
    return str(path / "notifications.toml")


def test_secrets_are_read_from_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("https://hooks.example.org/secret\n")
    text = f'[[targets]]\nname="ops"\ntype="slack"\nurl_file="{tmp_path}/url"\n'
    assert targets.load(written(tmp_path, text)).targets[0].url.endswith("/secret")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[[targets]]\nname="a"\ntype="slack"\nurl="http://hooks.example.org"', "https://"),
        ('[[targets]]\nname="a"\ntype="webhook"\nurl="https://x.org"', "needs a secret"),
        ('[[targets]]\nname="a"\ntype="mail"\nto=["a@b.org"]', r"\[mail\]"),
        ('[[targets]]\nname="a"\ntype="slack"\nurl="https://x"\nevents=["End"]', "End"),
        ("per_minute = 0", "per_minute"),
        ("colour = 1", "colour"),
        ("= broken", "Invalid"),
    ],
)
def test_a_wrong_file_is_an_error_at_the_start(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=reason):
        targets.load(written(tmp_path, text))


def test_the_file_in_the_documentation_is_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "notifications.md").read_text()
    text = page.partition("```toml\n")[2].partition("```")[0]
    configuration = targets.load(written(tmp_path, text))
    assert [each.name for each in configuration.targets] == ["ops-slack", "tracker"]
    assert configuration.may_request("mail:ann@example.org", "vision")
