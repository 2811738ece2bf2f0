"""A worker of an executor: the command of its pods, ``python -m stromboli.client.executor.worker``.

Executes the chunks in its inbox one after another until its pod is deleted with the executor's job.
When the executor has not been alive for ``--orphaned-after`` seconds, it removes the session and
exits 0.
"""

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, NoReturn

from stromboli.client.executor import wire
from stromboli.client.executor.session_store import SessionStore

ANNOUNCE_EVERY_S = 2.0
CHECK_EVERY_S = 1.0
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.1
MAX_FUNCTIONS = 64
"""Maximum unpickled functions that are cached."""


class Worker:
    """One process that executes calls. ``index``: the index of its pod in the job."""

    def __init__(self, store: SessionStore, index: str, orphaned_after_s: float) -> None:
        self._store = store
        self._index = index
        self._orphaned_after_s = orphaned_after_s
        self.id = f"{index}-{uuid.uuid4().hex[:12]}"
        self._functions: dict[bytes, Callable[..., Any]] = {}
        self._beat = 0
        self._client: bytes | None = None
        self._client_at = time.monotonic()
        self._ended = threading.Event()

    def run(self) -> None:
        """Execute calls until the session ends."""
        self._store.make(f"inbox/{self.id}")
        self._store.make("workers")
        self._store.make("results")
        self._announce()
        threading.Thread(target=self._announce_regularly, daemon=True).start()
        try:
            self._execute_chunks()
        finally:
            self._ended.set()
            with contextlib.suppress(Exception):
                self._announce(leaving=True)

    def _announce(self, *, leaving: bool = False) -> None:
        self._beat += 1
        announcement = wire.Announcement(self.id, wire.PYTHON, self._beat, leaving)
        self._store.write(f"workers/{self._index}", wire.encode(announcement))

    def _announce_regularly(self) -> None:
        while not self._ended.wait(ANNOUNCE_EVERY_S):
            with contextlib.suppress(OSError):  # the next one may succeed
                self._announce()

    def _execute_chunks(self) -> None:
        pause_s = SHORTEST_PAUSE_S
        checked_at = time.monotonic()
        while True:
            if self._execute_waiting():
                pause_s = SHORTEST_PAUSE_S
            else:
                time.sleep(pause_s)
                pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)
            if time.monotonic() >= checked_at + CHECK_EVERY_S:
                checked_at = time.monotonic()
                if self._is_over():
                    return

    def _execute_waiting(self) -> bool:
        names = self._store.names(f"inbox/{self.id}")
        for name in names:
            content = self._store.read(f"inbox/{self.id}/{name}")
            if content is None:
                continue  # not written completely yet
            chunk = wire.decode_chunk(content)
            began = time.perf_counter()
            results = wire.execute(chunk, self._functions)
            seconds = time.perf_counter() - began
            self._store.write(f"results/{name}", wire.encode(wire.ChunkResult(results, seconds)))
            self._store.remove(f"inbox/{self.id}/{name}")
            while len(self._functions) > MAX_FUNCTIONS:
                del self._functions[next(iter(self._functions))]
        return bool(names)

    def _is_over(self) -> bool:
        client = self._store.read("client")
        if client != self._client:
            self._client, self._client_at = client, time.monotonic()
        if time.monotonic() < self._client_at + self._orphaned_after_s:
            return False
        sys.stderr.write(
            "the executor is no longer alive; this worker removes the session and exits\n"
        )
        self._store.remove_all()
        return True


def main() -> None:
    """The entry point: parse the arguments and execute calls until the session ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", help="path or fsspec URL of the session")
    parser.add_argument(
        "--orphaned-after",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="exit if the executor sends no heartbeat for this time (default: %(default)s)",
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _terminate)
    index = os.environ.get("VC_TASK_INDEX", "0")
    try:
        Worker(SessionStore(arguments.store), index, arguments.orphaned_after).run()
    except wire.WorkerTerminated:
        sys.exit(128 + signal.SIGTERM)


def _terminate(number: int, frame: object) -> NoReturn:
    # An eviction or deletion: the worker announces that it leaves, so that its calls are sent to
    # another one immediately.
    raise wire.WorkerTerminated


if __name__ == "__main__":
    main()
