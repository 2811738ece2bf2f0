"""Notifications of a running system: from the annotation of a job to a signed request."""

import hashlib
import hmac
import http.server
import json
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import conftest
from tests.e2e.support import rest_user

SECRET = "of-the-test"
Received = tuple[dict[str, str], bytes]


@pytest.fixture
def hook() -> Iterator[tuple[str, "queue.Queue[Received]"]]:
    """The URL of a receiver, and what it gets."""
    got: queue.Queue[Received] = queue.Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.put((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_job_is_notified_of_its_start_and_end(
    hook: tuple[str, "queue.Queue[Received]"], tmp_path: Path
) -> None:
    url, got = hook
    file = tmp_path / "notifications.toml"
    file.write_text(
        f'[[targets]]\nname = "ci"\ntype = "webhook"\nurl = "{url}"\nsecret = "{SECRET}"\n'
        'namespaces = ["*"]\n'
    )
    (tmp_path / "up").mkdir()
    with conftest.embedded(tmp_path / "up", "--nodes", "1", "--notifications", str(file)) as system:
        user = rest_user.User(system.url)
        job = rest_user.job("notified", 0.1)
        job["metadata"]["annotations"] = {"stromboli.sh/notify": "ci=Started,Completed"}
        user.submit(job)
        user.comes_to("notified", "Completed")
        user.await_history()
        events = {}
        for _ in range(2):
            headers, body = got.get(timeout=rest_user.WITHIN_S)
            time, _, signature = headers["Stromboli-Signature"].partition(",v1=")
            signed = f"{time.removeprefix('t=')}.".encode() + body
            assert hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest() == signature
            sent = json.loads(body)
            events[sent["event"]] = sent["job"]
        user.close()
    assert events == {"Started": "default/notified", "Completed": "default/notified"}
    assert got.empty()
