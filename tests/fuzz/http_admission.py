"""Admission served over HTTP, and requests from mutated descriptions of requests.

The servers run on an event loop in a thread of this process, so the CPU time of a request and its
response can be measured on a busy machine. A second thread probes ``/livez`` all the time: a
request that blocks the event loop delays the probe.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from stromboli.admission.webhooks import webhooks
from stromboli.shared.api import kinds
from stromboli.shared.runtime import http
from stromboli.testkit.admission_cases import rules as admission_cases
from stromboli.testkit.contracts.accounts import Scene
from stromboli.testkit.doubles import authorized_admission

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
USER = "op"
TIMEOUT_S = 30.0
PROBE_EVERY_S = 0.05
RAW_BYTES = 64 * 1024
"""What is no description of a request is sent as it is, up to this length."""
CLIENT_ERRORS = (httpx.InvalidURL, httpx.LocalProtocolError, LookupError, ValueError, TypeError)
"""What the client itself refuses to send."""


class ServedAdmission:
    """REST at ``rest`` and webhooks at ``webhooks``, each a ``host:port``."""

    def __init__(self, folder: Path) -> None:
        self.rest = self.webhooks = ""
        self.scene = Scene()
        self.slowest_probe_s = 0.0
        """The most CPU time of this process between a request of ``/livez`` and its answer."""
        self.failed_probes = 0
        self._folder = folder
        self._started = threading.Event()
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._serve, self._probe)]

    def __enter__(self) -> ServedAdmission:
        """Return when both servers answer."""
        for thread in self._threads:
            thread.start()
        if not self._started.wait(TIMEOUT_S):
            raise TimeoutError("admission did not start")
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the servers and the probe."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        asyncio.run(self._serve_until_stopped())

    async def _serve_until_stopped(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            opened = await stack.enter_async_context(
                authorized_admission.open_admission(self._folder, self.scene)
            )
            apps = (opened.app, webhooks.app(opened.admission))
            self.rest, self.webhooks = [
                f"{HOST}:{await stack.enter_async_context(http.serving(app, http.listen(HOST, 0)))}"
                for app in apps
            ]
            self._started.set()
            await asyncio.to_thread(self._stopped.wait)

    def _probe(self) -> None:
        self._started.wait()
        with httpx.Client(base_url=f"http://{self.rest}", timeout=TIMEOUT_S) as client:
            while not self._stopped.wait(PROBE_EVERY_S):
                began = time.process_time()
                answer = client.get("/livez")
                self.slowest_probe_s = max(self.slowest_probe_s, time.process_time() - began)
                self.failed_probes += answer.status_code != httpx.codes.OK


class Sender:
    """Sends the request that an input describes: a JSON object of method, path, query, headers and
    body.

    Any other input is sent to the server byte for byte.
    """

    def __init__(self, address: str) -> None:
        self.closed = 0
        """How often the server closed the connection without an answer."""
        self._address = address
        self._client = httpx.Client(base_url=f"http://{address}", timeout=TIMEOUT_S)

    def close(self) -> None:
        self._client.close()

    def __call__(self, data: bytes) -> str:
        """Send the input; returns the status. Raises AssertionError for a status of 500 or more."""
        try:
            described = json.loads(data)
        except (ValueError, RecursionError):
            described = None
        status = self._raw(data) if not isinstance(described, dict) else self._request(described)
        assert status < 500, f"answered with {status}"
        return str(status)

    def _request(self, described: dict[str, Any]) -> int:
        """The status; 0 where the client refuses to send it or the server closes the connection."""
        try:
            body = described.get("body")
            content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            request = self._client.build_request(
                str(described.get("method", "GET")),
                quote(str(described.get("path", "/")), safe="/%"),
                params=described.get("query"),
                headers=described.get("headers"),
                content=b"" if body is None else content,
            )
            answer = self._client.send(request, stream=True)
        except (*CLIENT_ERRORS, AttributeError, RecursionError):
            return 0
        except (httpx.NetworkError, httpx.RemoteProtocolError):
            self.closed += 1
            return 0
        try:
            if "event-stream" not in answer.headers.get("content-type", ""):
                answer.read()
        finally:
            answer.close()
        return answer.status_code

    def _raw(self, data: bytes) -> int:
        host, _, port = self._address.partition(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
            try:
                connection.sendall(data[:RAW_BYTES])
                connection.shutdown(socket.SHUT_WR)
                head = connection.recv(64)
            except ConnectionError:
                return 0
        words = head.split(b" ", 2)
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def rest_requests(scene: Scene) -> list[bytes]:
    """A request for every operation of docs/openapi.json, and every document of admission."""
    token = authorized_admission.token_of(USER)
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    documents = [case.document for case in admission_cases.CASES]
    found = []
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text())["paths"]
    for number, (path, methods) in enumerate(sorted(paths.items())):
        filled = path.replace("{namespace}", scene.blue).replace("{name}", "train")
        for method in methods:
            body = documents[number % len(documents)] if method == "post" else None
            found.append(_described(method.upper(), filled, body, headers))
    for document in documents:
        found.append(_described("POST", "/v1/check", {"objects": [document]}, headers))
        found.append(_described("POST", "/v1/apply", {"objects": [document]}, headers))
    found.append(_described("GET", "/v1/jobs", None, headers, limit="5", **{"continue": "x"}))
    found.append(b"POST /v1/apply HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n{}")
    return found


def webhook_requests() -> list[bytes]:
    """A review for every rule of the webhooks and every document of its kind."""
    found = [
        _described(
            "POST",
            f"/{kind.plural}/{action}",
            _review(kind, operations[0], case.document),
            {"content-type": "application/json"},
            timeout="10s",
        )
        for kind, action, operations in (*webhooks.RULES, *webhooks.POD_RULES)
        for case in admission_cases.CASES
        if case.document.get("kind") == kind.kind
    ]
    found.append(b"POST /jobs/mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n{}")
    return found


def _review(kind: kinds.Kind[Any], operation: str, document: Any) -> dict[str, Any]:
    group, _, version = kind.api_version.rpartition("/")
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": group, "version": version, "kind": kind.kind},
            "operation": operation,
            "userInfo": {"username": "ada", "groups": ["system:authenticated"]},
            "object": document,
        },
    }


def _described(method: str, path: str, body: Any, headers: dict[str, str], **query: str) -> bytes:
    document = {"method": method, "path": path, "headers": headers, "query": query, "body": body}
    return msgspec.json.encode(document)


@contextlib.contextmanager
def target(folder: Path, name: str) -> Iterator[tuple[ServedAdmission, Sender, list[bytes]]]:
    """The served admission, and a sender with its corpus for ``REST`` or ``webhooks``."""
    with ServedAdmission(folder) as served:
        is_rest = name == "REST"
        sender = Sender(served.rest if is_rest else served.webhooks)
        try:
            yield served, sender, rest_requests(served.scene) if is_rest else webhook_requests()
        finally:
            sender.close()
