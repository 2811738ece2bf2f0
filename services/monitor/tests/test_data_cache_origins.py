"""Origins of data sets: what is allowed, web servers, object stores, and fetches that compete."""

import contextlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from services.monitor.tests.data_caches import Node, Origin, digest_of, lay, want
from stromboli.monitor.data_cache import allowed, cache
from stromboli.monitor.data_cache.settings import CacheSettings
from stromboli.shared.messages import data
from stromboli.shared.runtime import runtime
from stromboli.testkit import records

FILES = {"a.bin": b"a" * 300_000, "sub/b.bin": b"b" * 500}


# --- the allow list -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "uri", "is_allowed"),
    [
        ("https://", "https://any.example.org/x", True),
        ("https://", "http://any.example.org/x", False),
        ("https://a.org", "https://a.org/x", True),
        ("https://a.org", "https://A.ORG/x", True),
        ("https://a.org", "https://a.org.evil.org/x", False),
        ("https://a.org", "https://a.org:8443/x", False),
        ("https://a.org/sets", "https://a.org/sets/x", True),
        ("https://a.org/sets", "https://a.org/sets-private/x", False),
        ("https://a.org/sets", "https://a.org/sets/../x", False),
        ("https://a.org/sets", "https://a.org/sets/%2e%2E/x", False),
        ("https://a.org/sets", "https://a.org/sets/a%2f..%2f../x", False),
        ("https://", "https://user@a.org/x", False),
        ("https://", "https://a.org\\@b.org/x", False),
        ("https://", "https:a.org/x", False),
        ("s3://corpora", "s3://corpora/web", True),
        ("s3://corpora", "s3://corpora-private/web", False),
        ("s3://corpora", "simplecache::s3://corpora/web", False),
        ("s3://corpora", "s3://corpora/a::file:///etc/passwd", False),
        ("file:///shared", "file:///shared/x", True),
        ("file:///shared", "file:///sharedx", False),
        ("file:///shared", "file://host/shared/x", False),
        ("file:///shared", "/shared/x", False),
        ("file:///", "file:///etc/hosts", True),
        ("file:///shared", "local:///shared/x", False),
    ],
)
def test_an_entry_allows_what_is_below_it(entry: str, uri: str, is_allowed: bool) -> None:
    origins = allowed.AllowedOrigins([entry])
    if is_allowed:
        origins.check(uri)
    else:
        with pytest.raises(allowed.RefusedOriginError):
            origins.check(uri)


def test_without_entries_nothing_is_read() -> None:
    with pytest.raises(allowed.RefusedOriginError, match="allowed origins are none"):
        allowed.AllowedOrigins([]).check("https://a.org/x")


@pytest.mark.parametrize("entry", ["a.org", "*", "https://user@a.org", "/shared"])
def test_an_entry_that_is_no_uri_is_rejected(entry: str) -> None:
    with pytest.raises(ValueError, match="allowed origin"):
        allowed.AllowedOrigins([entry])


# --- web servers ----------------------------------------------------------------------------


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves ``/set/a.bin``, and errors by other paths."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(is_head=True)

    def do_GET(self) -> None:
        self._answer(is_head=False)

    def _answer(self, *, is_head: bool) -> None:
        body = FILES["a.bin"]
        if self.path == "/away":
            self._head(302, 0, ("Location", "http://localhost:1/secret"))
        elif self.path == "/near":
            self._head(302, 0, ("Location", "/set/a.bin"))
        elif self.path == "/nowhere":
            self._head(302, 0)
        elif self.path == "/set/cut.bin":
            self._head(200, len(body))
            self.close_connection = True
            if not is_head:
                self.wfile.write(body[:1000])
        elif self.path == "/set/a.bin":
            self._head(200, len(body), ("ETag", '"1"'))
            if not is_head:
                self.wfile.write(body)
        else:
            self._head(404, 0)

    def _head(self, status: int, length: int, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Nothing."""


@pytest.fixture
def web() -> Iterator[str]:
    """URL of a web server on loopback."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        serving.join()


def fetched(tmp_path: Path, web: str, path: str, digest: str = "") -> tuple[Node, data.WantedCopy]:
    node = Node(tmp_path / "cache", allowed_origins=(web,))
    item = want(f"{web}{path}", digest)
    node.want(item)
    node.settle()
    return node, item


@pytest.mark.parametrize("path", ["/set/a.bin", "/near"])
def test_a_file_of_a_web_server_is_fetched_and_its_rate_measured(
    tmp_path: Path, web: str, path: str
) -> None:
    name = path.rsplit("/", 1)[-1]
    node, item = fetched(tmp_path, web, path, digest_of({name: FILES["a.bin"]}))
    assert node.files(item) == {name: FILES["a.bin"]}
    assert node.cache.report().read_bytes_per_s["http"] > 0


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/set/missing.bin", "404"),
        ("/set/", "a web server has no folders"),
        (
            "/away",
            "the server redirects to another origin: this node may not read http://localhost:1",
        ),
        ("/nowhere", "the server's redirect has no address"),
        ("/set/cut.bin", "ContentLengthError|ClientPayloadError"),
    ],
)
def test_an_error_of_a_web_server_is_the_reason(
    tmp_path: Path, web: str, path: str, reason: str
) -> None:
    node, item = fetched(tmp_path, web, path)
    assert node.state(item) == "Failed"
    assert any(each in node.reason(item) for each in reason.split("|")), node.reason(item)
    assert not node.content(item).exists()


def test_a_web_server_that_does_not_respond_is_a_failure(tmp_path: Path) -> None:
    node, item = fetched(tmp_path, "http://127.0.0.1:1", "/x")
    assert "Connect call failed" in node.reason(item)


# --- object stores --------------------------------------------------------------------------


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    """An object store in this process."""
    store = fsspec.filesystem("memory")
    store.store.clear()
    store.pseudo_dirs.clear()
    yield store
    store.store.clear()


def test_all_objects_below_a_prefix_are_one_data_set(
    tmp_path: Path, memory: fsspec.AbstractFileSystem
) -> None:
    for path, content in FILES.items():
        memory.pipe_file(f"/bucket/set/{path}", content)
    memory.pipe_file("/bucket/set-other/x", b"no part of it")
    node = Node(tmp_path / "cache")
    item = want("memory://bucket/set", digest_of(FILES))
    node.want(item)
    node.settle()
    assert node.files(item) == FILES


def test_one_object_is_a_data_set(tmp_path: Path, memory: fsspec.AbstractFileSystem) -> None:
    memory.pipe_file("/bucket/set/a.bin", FILES["a.bin"])
    node = Node(tmp_path / "cache")
    item = want("memory://bucket/set/a.bin")
    node.want(item)
    node.settle()
    assert node.files(item) == {"a.bin": FILES["a.bin"]}


def test_a_scheme_without_its_package_says_what_is_missing(tmp_path: Path) -> None:
    node = Node(tmp_path / "cache", allowed_origins=("abfs://",))
    item = want("abfs://container/set")
    node.want(item)
    node.settle()
    assert node.reason(item).startswith("this cache cannot read abfs://: ")
    assert "add the package to the image of the data cache" in node.reason(item)


# --- fetches that compete -------------------------------------------------------------------


class ThreadedCache:
    """A cache with real threads. ``until`` steps when the cache asks for it."""

    def __init__(self, root: Path, opened: Any, **settings: Any) -> None:
        self._due = threading.Event()
        given: dict[str, Any] = {"allowed_origins": ("memory://",), "disk_reserve_bytes": 0}
        self.cache = cache.NodeCache(
            "n1",
            CacheSettings(root=str(root), **given | settings),
            runtime.utc_now,
            self._due.set,
            opened=opened,
        )
        self.cache.open()

    def until(self, key: str, state: str) -> None:
        """Step until the copy is in this state."""
        for _ in range(1000):
            self._due.clear()
            self.cache.step()
            if any(c.key == key and c.state == state for c in self.cache.report().copies):
                return
            assert self._due.wait(records.DEADLINE_S), "the cache asks for no step"
        raise AssertionError(f"{key} does not become {state}")


def test_a_running_fetch_gives_its_room_to_one_that_pods_wait_for(tmp_path: Path) -> None:
    """The new one starts only when the thread of the old one has ended: until then it may write."""
    first, second = want("memory://first", bytes=8000), want("memory://second", pinned=True)
    slow, quick = Origin({"a": b"a" * 4000, "b": b"b" * 4000}), Origin({"f": b"f" * 5000})
    reading, released = threading.Event(), threading.Event()

    def block(path: str) -> None:
        if path == "b":
            reading.set()
            assert released.wait(records.DEADLINE_S)

    slow.on_read = block
    quick.on_read = lambda _: None
    node = ThreadedCache(
        tmp_path / "cache",
        lambda uri, _: slow if uri == first.uri else quick,
        capacity_bytes=10_000,
    )
    with contextlib.closing(node.cache):
        node.cache.set_wanted(data.DataWanted(node="n1", items=(first,)))
        node.cache.step()
        assert reading.wait(records.DEADLINE_S)
        sized = want("memory://second", pinned=True, bytes=5000)
        node.cache.set_wanted(data.DataWanted(node="n1", items=(first, sized)))
        node.cache.step()
        assert quick.reads == []
        released.set()
        node.until(second.key, "Complete")
        assert node.cache.report().used_bytes <= 10_000


def test_a_growing_fetch_waits_for_the_room_of_one_that_ends(tmp_path: Path) -> None:
    """Its size becomes known only at its origin."""
    first = want("memory://first", bytes=8000)
    growing = want("memory://growing", pinned=True, bytes=1)
    slow, large = Origin({"a": b"a" * 4000, "b": b"b" * 4000}), Origin({"f": b"f" * 9000})
    reading = threading.Event()
    stopped = threading.Event()

    def block(path: str) -> None:
        if path == "b":
            reading.set()
            assert stopped.wait(records.DEADLINE_S)

    slow.on_read = block
    node = ThreadedCache(
        tmp_path / "cache",
        lambda uri, _: slow if uri == first.uri else large,
        capacity_bytes=10_000,
    )
    with contextlib.closing(node.cache):
        node.cache.set_wanted(data.DataWanted(node="n1", items=(first,)))
        node.cache.step()
        assert reading.wait(records.DEADLINE_S)
        node.cache.set_wanted(data.DataWanted(node="n1", items=(first, growing)))
        node.cache.step()
        stopped.set()
        node.until(growing.key, "Complete")
        assert node.cache.report().used_bytes <= 10_000


def test_many_fetches_at_once_all_end(tmp_path: Path) -> None:
    uris = [lay(tmp_path / f"set{number}", {"f": bytes([number]) * 100}) for number in range(20)]
    items = [want(uri) for uri in uris]
    due = threading.Event()
    node = cache.NodeCache(
        "n1",
        CacheSettings(
            root=str(tmp_path / "cache"), allowed_origins=("file:///",), disk_reserve_bytes=0
        ),
        runtime.utc_now,
        due.set,
    )
    node.open()
    with contextlib.closing(node):
        node.set_wanted(data.DataWanted(node="n1", items=tuple(items)))
        while {copy.state for copy in node.report().copies} != {"Complete"}:
            due.clear()
            node.step()
            if {copy.state for copy in node.report().copies} != {"Complete"}:
                assert due.wait(records.DEADLINE_S)
        assert node.report().used_bytes == 2000
