"""A web server whose files are data sets, and which a test can make wait."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HELD_S = 120.0
"""How long a response waits at most: a failed test leaves no thread behind."""


class DataOrigin:
    """``files``: name -> content. ``reads``: name -> how often its content was sent."""

    def __init__(self, address: str) -> None:
        self.files: dict[str, bytes] = {}
        self.reads: dict[str, int] = {}
        self._released = threading.Event()
        self._released.set()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer((address, 0), self._handler())
        self.url = f"http://{address}:{self._server.server_port}"

    def uri(self, name: str, content: bytes) -> str:
        """Add a file; returns its URI."""
        self.files[name] = content
        return f"{self.url}/{name}"

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Send only the first half of each file, and the rest afterwards."""
        self._released.clear()
        try:
            yield
        finally:
            self._released.set()

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve while inside."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            self._released.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        origin = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._send_head()

            def do_GET(self) -> None:
                content = self._send_head()
                half = len(content) // 2
                with contextlib.suppress(OSError):  # the client went away
                    self.wfile.write(content[:half])
                    self.wfile.flush()
                    origin._released.wait(HELD_S)
                    self.wfile.write(content[half:])
                    origin._sent(self.path[1:])

            def _send_head(self) -> bytes:
                content = origin.files.get(self.path[1:])
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                return content or b""

            def log_message(self, *_: object) -> None:
                """Not on stderr."""

        return Handler

    def _sent(self, name: str) -> None:
        with self._lock:
            self.reads[name] = self.reads.get(name, 0) + 1
