"""A small HTTP server that stands in for external systems: Prometheus, extenders."""

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib import parse

import msgspec


class Request(msgspec.Struct, frozen=True):
    """A received request: ``path`` without the query."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, decoded from JSON."""
        return msgspec.json.decode(self.body)


class Reply(msgspec.Struct, frozen=True):
    """The response to a request."""

    body: bytes = b""
    status: int = 200


Answer = Callable[[Request], Reply]


def json(value: object, status: int = 200) -> Reply:
    """A reply with a JSON body."""
    return Reply(msgspec.json.encode(value), status)


class Server:
    """Serves during the context, by default on a free port; ``answer`` may be replaced
    at any time.
    """

    def __init__(self, answer: Answer, host: str = "127.0.0.1", port: int = 0) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self._server = ThreadingHTTPServer((host, port), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    @property
    def url(self) -> str:
        """The URL of the server, without a slash at the end."""
        return f"http://{self._server.server_address[0]!s}:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._reply()

            def do_POST(self) -> None:
                self._reply()

            def log_message(self, *arguments: Any) -> None:
                """Suppress the access log."""

            def _reply(self) -> None:
                place = parse.urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                query = dict(parse.parse_qsl(place.query))
                request = Request(self.command, place.path, query, body)
                server.requests.append(request)
                reply = server.answer(request)
                self.send_response(reply.status)
                self.send_header("content-length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

        return Handler
