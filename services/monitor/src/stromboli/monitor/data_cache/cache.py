"""A node's cache of data sets: executes the plans of the policy, and reports the copies.

``step`` is one pass: find copies that vanished, plan, stop, evict, start fetches, verify. It runs
when something changed (``wake`` is called) and from time to time. Fetches and verifications run in
threads, which change entries under the cache's lock.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from stromboli.monitor.data_cache import entries, fetching, origins, store
from stromboli.monitor.data_cache.allowed import AllowedOrigins, RefusedOriginError
from stromboli.monitor.data_cache.settings import CacheSettings
from stromboli.shared import decoding
from stromboli.shared.data_cache import policy
from stromboli.shared.jobspec import data_sets
from stromboli.shared.messages import base, data
from stromboli.shared.runtime import telemetry

FIRST_RETRY_S, LONGEST_RETRY_S = 5.0, 600.0
"""Seconds until a failed fetch is repeated: they double from the first to the longest."""
NEW_RATE_WEIGHT = 0.3
"""Weight of the newest fetch in the measured rate of a scheme."""
LEAST_MEASURED_BYTES = 64 * 1024
"""Smaller fetches are not measured: they show the latency of the connection, not the rate."""
MOST_REPORTED = 2000
"""Maximum copies in a report: with the longest URIs it stays below the monitor's limit of 4 MiB."""
_DECODER = decoding.decoder_of(data.DataWanted)

_fetched = telemetry.meter.create_counter(
    "stromboli.data_cache.fetched_bytes", description="Bytes read from origins of data sets"
)
_evicted = telemetry.meter.create_counter(
    "stromboli.data_cache.evicted_bytes", description="Bytes of copies that were evicted"
)
_evictions = telemetry.meter.create_counter(
    "stromboli.data_cache.evictions", description="Copies that were evicted"
)
_failures = telemetry.meter.create_counter(
    "stromboli.data_cache.failures", description="Failed fetches, and corrupt or vanished copies"
)


def start_thread(work: Callable[[], None]) -> None:
    """Run work in a thread that does not keep the process alive: an origin may not respond."""
    threading.Thread(target=work, daemon=True).start()


class NodeCache:
    """The cache of one node. ``wake`` is called from any thread when ``step`` has something to do.
    ``spawn`` runs a fetch or a verification, usually in a thread. ``monotonic``: seconds, for
    rates.
    """

    def __init__(
        self,
        node: str,
        settings: CacheSettings,
        clock: Callable[[], datetime],
        wake: Callable[[], None],
        *,
        spawn: Callable[[Callable[[], None]], None] = start_thread,
        monotonic: Callable[[], float] = time.monotonic,
        opened: fetching.OpenOrigin = origins.open_origin,
    ) -> None:
        self.node = node
        self._settings = settings
        self._allowed = AllowedOrigins(settings.allowed_origins)
        self._folder = store.CacheFolder(Path(settings.root))
        self._clock = clock
        self._wake = wake
        self._spawn = spawn
        self._monotonic = monotonic
        self._opened = opened
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._entries: dict[str, entries.Entry] = {}
        self._wanted: tuple[data.WantedCopy, ...] = ()
        self._knows_wanted = False
        """False until a list is known: before, every copy may be in use."""
        self._used: frozenset[str] = frozenset()
        self._waiting: Mapping[str, str] = {}
        self._rates: dict[str, float] = {}
        self._verifying = ""
        self._is_closed = False

    # --- inputs ----------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the folder, and load the copies in it. Raises CacheFolderError."""
        self._folder.open()
        with self._lock:
            for key in self._folder.all_keys():
                self._load(key)
            remembered = self._folder.remembered()
            with contextlib.suppress(msgspec.DecodeError):
                if remembered is not None:
                    self._wanted = decoding.decode(_DECODER, remembered).items
                    self._knows_wanted = True

    def close(self) -> None:
        """Stop all fetches, and release the folder."""
        with self._lock:
            self._is_closed = True
            for entry in self._entries.values():
                entry.stop.set()
            self._changed.notify_all()
            self._folder.close()

    def set_wanted(self, wanted: data.DataWanted) -> bool:
        """Set the data that the node should have; returns whether the list is new. The list is
        stored, so that a restarted cache does not evict copies in use before the monitor responds.
        Raises OSError."""
        with self._lock:
            if self._knows_wanted and wanted.items == self._wanted:
                return False
            self._folder.remember(base.encode(wanted))
            before = self._in_use()
            self._wanted, self._knows_wanted = wanted.items, True
            self._end_of_use(before)
            self._wake()
            return True

    def use(self, keys: frozenset[str]) -> None:
        """Set the keys that pods use, as if pinned; for a cache that knows its node's pods."""
        with self._lock:
            if keys != self._used:
                before = self._in_use()
                self._used = keys
                self._end_of_use(before)
                self._wake()

    # --- outputs ---------------------------------------------------------------------------

    def report(self) -> data.DataObserved:
        """The content of the cache now."""
        with self._lock:
            items = {item.key: item for item in self._wanted}
            used = self._in_use()
            data_copies = []
            for key in sorted(self._entries.keys() | items.keys()):
                entry = self._entries.get(key) or entries.Entry(key=key)
                reason = self._refusal(items[key]) if key in items else ""
                if reason and entry.stored is None:
                    entry = entries.Entry(key=key, failure=reason)
                waiting = self._waiting.get(key, "")
                copy = entries.reported(entry, items.get(key), waiting, in_use=key in used)
                if copy is not None:
                    data_copies.append(copy)
            return data.DataObserved(
                node=self.node,
                observed_at=self._clock(),
                capacity_bytes=self._capacity(),
                used_bytes=self._held(),
                copies=entries.most_relevant(data_copies, items.keys(), MOST_REPORTED),
                read_bytes_per_s={name: round(rate) for name, rate in sorted(self._rates.items())},
            )

    # --- a step ----------------------------------------------------------------------------

    def step(self) -> None:
        """Find vanished copies, execute the policy's plan, and start a verification that is due."""
        with self._lock:
            if self._is_closed:
                return
            self._find_vanished()
            if self._knows_wanted:
                self._execute()
            self._verify_next()

    def next_step_s(self) -> float:
        """Seconds until a step is due without any change."""
        with self._lock:
            now = self._clock()
            retries = [each.retry_at for each in self._entries.values() if each.retry_at]
            due = [(at - now).total_seconds() for at in retries if at > now]
            return max(min([self._settings.report_every_s, *due]), 0.05)

    def _execute(self) -> None:
        wanted = [item for item in self._wanted if not self._refusal(item)]
        now, parallel = self._clock(), max(self._settings.parallel, 1)
        for key in policy.plan(self._content(), wanted, now, parallel).stop:
            self._entries[key].stop.set()
        # Fetches end a moment after they are stopped: until then their room is not free.
        content = self._content(is_stopping_protected=True)
        plan = policy.plan(content, wanted, now, parallel)
        self._waiting = plan.waiting
        for key in plan.evict:
            self._evict(key)
        items = {item.key: item for item in policy.ordered_once(wanted)}
        for key in plan.start:
            self._start(items[key])
        for key in [key for key, entry in self._entries.items() if entry.is_empty]:
            if key not in items:
                self._folder.release(key)
                del self._entries[key]

    def _start(self, item: data.WantedCopy) -> None:
        entry = self._entries.setdefault(item.key, entries.Entry(key=item.key))
        entry.uri, entry.stop = item.uri, threading.Event()
        entry.size_bytes = entry.size_bytes or max(item.bytes, 0)
        fetch = fetching.Fetch(
            item,
            self._folder,
            self._allowed,
            lambda total: self._grant(entry, total),
            entry.stop.is_set,
            self._monotonic,
            self._opened,
        )
        self._folder.reserve(item.key)
        entry.fetch = fetch
        telemetry.log.info("data fetch started", node=self.node, key=item.key, uri=item.uri)
        self._spawn(lambda: self._run(entry, fetch))

    def _run(self, entry: entries.Entry, fetch: fetching.Fetch) -> None:
        """Execute a fetch, in its thread."""
        failure, stored = "", None
        try:
            files = fetch.run()
            with self._lock:
                if self._is_closed or entry.stop.is_set():
                    raise fetching.FetchStoppedError
                item = fetch.item
                stored = self._folder.complete(item.key, item.uri, item.digest, files)
        except fetching.FetchStoppedError:
            pass
        except fetching.NoRoomError as error:
            # Content of known size waits until the policy has room for it, without attempts.
            failure = "" if fetch.progress.size_bytes else str(error)
        except fetching.FetchFailedError as error:
            failure = str(error)
        except (OSError, ValueError) as error:
            failure = f"the copy cannot be completed: {error}"
        with self._lock:
            if not self._is_closed:
                self._ended(entry, fetch, stored, failure)
            self._changed.notify_all()
        self._wake()

    def _ended(
        self,
        entry: entries.Entry,
        fetch: fetching.Fetch,
        stored: store.StoredCopy | None,
        failure: str,
    ) -> None:
        now, progress = self._clock(), fetch.progress
        entry.fetch = None
        scheme = origins.scheme_of(fetch.item.uri)
        _fetched.add(progress.read_bytes, {"scheme": scheme})
        if progress.read_bytes >= LEAST_MEASURED_BYTES and progress.read_s > 0:
            rate = progress.read_bytes / progress.read_s
            before = self._rates.get(scheme, rate)
            self._rates[scheme] = before + NEW_RATE_WEIGHT * (rate - before)
        entry.size_bytes = progress.size_bytes or entry.size_bytes
        entry.failure, entry.retry_at = failure, None
        if stored is not None:
            entry.attempts = 0
            self._keep(entry, stored, now)
            self._folder.used(entry.key, now)
            self._folder.verified(entry.key, now)
            telemetry.log.info(
                "data fetched", node=self.node, key=entry.key, uri=entry.uri, bytes=stored.bytes
            )
            return
        entry.partial_bytes = self._folder.partial_bytes(entry.key)
        if failure:
            self._failed(entry, now)

    def _failed(self, entry: entries.Entry, now: datetime) -> None:
        _failures.add(1, {"kind": "fetch"})
        delay_s = min(FIRST_RETRY_S * 2**entry.attempts, LONGEST_RETRY_S)
        entry.attempts = min(entry.attempts + 1, 16)
        entry.retry_at = now + timedelta(seconds=delay_s)
        telemetry.log.warning(
            "data fetch failed", node=self.node, key=entry.key, uri=entry.uri, reason=entry.failure
        )
        entry.failure = f"{entry.failure} (retried after {delay_s:.0f} s)"

    def _grant(self, entry: entries.Entry, total: int) -> bool:
        """Make room for ``total`` bytes of a fetch, in its thread; returns whether there is."""
        with self._lock:
            while not (self._is_closed or entry.stop.is_set()):
                if total <= max(entry.size_bytes, entry.held_bytes) and entry.size_bytes:
                    return True
                content = self._content(is_stopping_protected=True)
                wanted, now = list(self._wanted), self._clock()
                victims = policy.grow(content, wanted, entry.key, total, now)
                if victims is None:
                    freeing = any(
                        each.fetch is not None and each.stop.is_set()
                        for each in self._entries.values()
                    )
                    if not freeing:
                        return False
                    self._changed.wait()  # another fetch is ending, and its room becomes free
                    continue
                running = [key for key in victims if self._entries[key].fetch is not None]
                for key in running:
                    self._entries[key].stop.set()
                if running:
                    self._changed.wait()
                    continue
                for key in victims:
                    self._evict(key)
                entry.size_bytes = total
                return True
            return False

    # --- copies ----------------------------------------------------------------------------

    def _load(self, key: str) -> None:
        """Load the complete or partial copy of a key from the folder."""
        now = self._clock()
        stored = self._folder.describe(key)
        entry = entries.Entry(key=key)
        reason = "its description is missing" if stored is None else self._folder.fault(key, stored)
        if stored is not None and not reason:
            entry.uri = stored.uri
            self._keep(entry, stored, self._folder.last_used_at(key) or now)
            entry.verified_at = self._folder.verified_at(key)
        elif self._folder.content(key).exists() or stored is not None:
            self._lost(key, reason, "vanished" if stored is not None else "corrupt")
        if entry.stored is None:
            entry.partial_bytes = self._folder.partial_bytes(key)
            if not entry.partial_bytes:
                self._folder.drop_partial(key)
        if not entry.is_empty or self._folder.is_reserved(key):
            self._entries[key] = entry

    def _keep(self, entry: entries.Entry, stored: store.StoredCopy, used_at: datetime) -> None:
        entry.stored, entry.stored_bytes, entry.size_bytes = stored, stored.bytes, stored.bytes
        entry.partial_bytes, entry.last_used_at = 0, used_at
        entry.checked_at = entry.verified_at = self._clock()
        with contextlib.suppress(OSError):
            entry.identity = _identity(self._folder.content(entry.key))

    def _find_vanished(self) -> None:
        """Forget copies whose folder was removed or replaced: a check of one folder per copy."""
        for key, entry in list(self._entries.items()):
            if entry.stored is None:
                continue
            try:
                is_same = _identity(self._folder.content(key)) == entry.identity
            except OSError:
                is_same = False
            if not is_same:
                self._forget(entry, "its folder is missing or was replaced", "vanished")
        self._drop_foreign()

    def _drop_foreign(self) -> None:
        """Delete folders that others created in the place of copies: pods would start with them."""
        for key in self._folder.all_keys():
            entry = self._entries.get(key) or entries.Entry(key=key)
            if entry.stored is None and entry.fetch is None and self._folder.is_occupied(key):
                self._lost(key, "its folder was not created by this cache", "corrupt")
                self._entries[key] = entry

    def _forget(self, entry: entries.Entry, reason: str, kind: str) -> None:
        self._lost(entry.key, reason, kind)
        entry.stored, entry.stored_bytes, entry.last_used_at = None, 0, None

    def _lost(self, key: str, reason: str, kind: str) -> None:
        """Delete a copy that must not be used. Pods that read it get errors instead of wrong
        data."""
        _failures.add(1, {"kind": kind})
        telemetry.log.warning("data copy lost", node=self.node, key=key, kind=kind, reason=reason)
        self._folder.drop_content(key)

    def _evict(self, key: str) -> None:
        entry = self._entries[key]
        self._folder.evict(key)
        del self._entries[key]
        _evictions.add(1)
        _evicted.add(entry.held_bytes)
        telemetry.log.info(
            "data evicted", node=self.node, key=key, uri=entry.uri, bytes=entry.held_bytes
        )

    # --- verification ----------------------------------------------------------------------

    def _verify_next(self) -> None:
        """Verify the copy that was checked longest ago, if it is due; one at a time."""
        now = self._clock()
        if self._verifying:
            return
        check_s, verify_s = self._settings.check_every_s, self._settings.verify_every_s
        for entry in sorted(self._entries.values(), key=lambda each: _age_key(each.checked_at)):
            if entry.stored is None:
                continue
            is_deep = _is_older(entry.verified_at, now, verify_s)
            if is_deep or _is_older(entry.checked_at, now, check_s):
                self._verifying = entry.key
                stored = entry.stored
                self._spawn(functools.partial(self._compare, entry, stored, is_deep=is_deep))
                return

    def _compare(self, entry: entries.Entry, stored: store.StoredCopy, *, is_deep: bool) -> None:
        """Compare a copy with its description, in a thread."""
        reason, kind = "", "corrupt"
        is_done = True

        def stopped() -> bool:
            return self._is_closed or entry.stored is not stored

        try:
            if is_deep:
                reason = self._folder.deep_fault(entry.key, stored, stopped)
            else:
                reason = self._folder.fault(entry.key, stored)
        except InterruptedError:
            is_done = False
        with self._lock:
            self._verifying = ""
            if is_done and not stopped():
                if reason:
                    self._forget(entry, reason, kind)
                else:
                    entry.checked_at = self._clock()
                    if is_deep:
                        entry.verified_at = self._clock()
                        self._folder.verified(entry.key, entry.verified_at)
        self._wake()

    # --- facts -----------------------------------------------------------------------------

    def _content(self, *, is_stopping_protected: bool = False) -> policy.CacheContent:
        used = self._in_use()
        return policy.CacheContent(
            capacity_bytes=self._capacity(),
            copies={
                key: entries.as_policy_sees(
                    entry, in_use=key in used, is_stopping_protected=is_stopping_protected
                )
                for key, entry in self._entries.items()
            },
            rates=self._rates,
        )

    def _in_use(self) -> frozenset[str]:
        """Keys that pods use: pinned by the scheduler, or known from the node's pods. Before a list
        is known, all of them."""
        if not self._knows_wanted:
            return frozenset(self._entries)
        return self._used | {item.key for item in self._wanted if item.pinned}

    def _end_of_use(self, before: frozenset[str]) -> None:
        now = self._clock()
        for key in before - self._in_use():
            entry = self._entries.get(key)
            if entry is not None and entry.stored is not None:
                entry.last_used_at = now
                self._folder.used(key, now)

    def _held(self) -> int:
        return sum(entry.held_bytes for entry in self._entries.values())

    def _capacity(self) -> int:
        """The configured capacity, or less if others fill the disk."""
        on_disk = self._held() + self._folder.free_bytes() - self._settings.disk_reserve_bytes
        return max(min(self._settings.capacity_bytes, on_disk), 0)

    def _refusal(self, item: data.WantedCopy) -> str:
        """Why this node does not fetch a data set at all; empty if it does."""
        if data_sets.content_key(item.uri, item.digest) != item.key:
            return "the key does not belong to this URI and digest"
        try:
            self._allowed.check(item.uri)
        except RefusedOriginError as error:
            return str(error)
        return ""


def _identity(path: Path) -> tuple[int, int]:
    file_stat = path.stat(follow_symlinks=False)
    return file_stat.st_dev, file_stat.st_ino


def _is_older(at: datetime | None, now: datetime, seconds: float) -> bool:
    return at is None or not 0 <= (now - at).total_seconds() < seconds


def _age_key(at: datetime | None) -> float:
    return at.timestamp() if at is not None else 0.0
