"""A data cache whose fetches a test runs, and origins that fail as networks and disks do."""

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

from stromboli.monitor.data_cache import cache, fetching, origins
from stromboli.monitor.data_cache.allowed import AllowedOrigins
from stromboli.monitor.data_cache.settings import CacheSettings
from stromboli.shared.jobspec import data_sets
from stromboli.shared.messages import data
from stromboli.testkit import builders


def digest_of(files: Mapping[str, bytes]) -> str:
    """The digest of a data set, as ``sha256sum`` and a shell would compute it."""
    lines = (f"{hashlib.sha256(files[path]).hexdigest()}  {path}\n" for path in sorted(files))
    return "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()


def lay(folder: Path, files: Mapping[str, bytes]) -> str:
    """Write a data set; returns its URI."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return f"file://{folder}"


def want(uri: str, digest: str = "", **more: Any) -> data.WantedCopy:
    """A wanted copy, with its true key."""
    return data.WantedCopy(key=data_sets.content_key(uri, digest), uri=uri, digest=digest, **more)


class Node:
    """A node with a cache. ``now`` is its clock; fetches run when the test says so."""

    def __init__(self, root: Path, **settings: Any) -> None:
        given: dict[str, Any] = {
            "allowed_origins": ("file:///", "memory://"),
            "disk_reserve_bytes": 0,
        }
        self.settings = CacheSettings(root=str(root), **given | settings)
        self.now = builders.NOON
        self.opened: fetching.OpenOrigin = origins.open_origin
        self.pending: list[Callable[[], None]] = []
        self.cache = self._make()
        self.cache.open()

    def _make(self) -> cache.NodeCache:
        return cache.NodeCache(
            "n1",
            self.settings,
            self._clock,
            lambda: None,
            spawn=self.pending.append,
            opened=self._open,
        )

    def _open(self, uri: str, allowed: AllowedOrigins) -> origins.Origin:
        return self.opened(uri, allowed)

    def _clock(self) -> datetime:
        return self.now

    def want(self, *items: data.WantedCopy) -> None:
        """The monitor's answer: exactly these copies."""
        self.cache.set_wanted(data.DataWanted(node="n1", items=items))

    def settle(self, seconds: float = 0.0) -> None:
        """Let time pass, and execute steps and fetches until nothing is due."""
        self.now += timedelta(seconds=seconds)
        for _ in range(50):
            self.cache.step()
            if not self.pending:
                return
            while self.pending:
                self.pending.pop(0)()
        raise AssertionError("the cache does not come to rest")

    def restart(self) -> None:
        """Another process takes over the folder."""
        self.cache.close()
        self.pending.clear()
        self.cache = self._make()
        self.cache.open()

    def copy(self, item: data.WantedCopy) -> data.DataCopy | None:
        """The reported copy."""
        copies = {copy.key: copy for copy in self.cache.report().copies}
        return copies.get(item.key)

    def state(self, item: data.WantedCopy) -> str:
        """The state of the reported copy; empty for none."""
        data_copy = self.copy(item)
        return "" if data_copy is None else data_copy.state

    def reason(self, item: data.WantedCopy) -> str:
        """The reason of the reported copy."""
        data_copy = self.copy(item)
        return "" if data_copy is None else data_copy.reason

    def content(self, item: data.WantedCopy) -> Path:
        """The folder that pods mount."""
        return Path(data_sets.volume_path(self.settings.root, item.key))

    def files(self, item: data.WantedCopy) -> dict[str, bytes]:
        """What a pod reads."""
        folder = self.content(item)
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }


class Origin:
    """An origin with these files. ``fail``: path -> error when that file is read, after half of
    it. ``stated``: sizes that it states instead of the true ones. ``reads``: the files read so
    far."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.content = dict(files)
        self.fail: dict[str, Exception] = {}
        self.stated: dict[str, int | None] = {}
        self.reads: list[str] = []
        self.on_read: Callable[[str], None] = lambda _: None

    def __call__(self, uri: str, allowed: object) -> "Origin":
        return self

    def files(self) -> list[origins.OriginFile]:
        return [
            origins.OriginFile(path=path, size=self.stated.get(path, len(content)), version="1")
            for path, content in sorted(self.content.items())
        ]

    @contextlib.contextmanager
    def open(self, file: origins.OriginFile) -> Iterator[BinaryIO]:
        self.reads.append(file.path)
        self.on_read(file.path)
        content = self.content[file.path]
        failure = self.fail.get(file.path)
        if failure is None:
            yield io.BytesIO(content)
            return
        yield _Broken(content[: len(content) // 2], failure)


class _Broken(io.BytesIO):
    def __init__(self, content: bytes, failure: Exception) -> None:
        super().__init__(content)
        self._failure = failure

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        if not found:
            raise self._failure
        return found
