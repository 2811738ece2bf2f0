"""A cluster, a log and monitors without a shell: each step of each is the test's to take."""

import msgspec

from stromboli.monitor.core import reflector_state
from stromboli.shared import envelope, snapshot, topics
from stromboli.shared.api import kinds, meta
from stromboli.shared.bus import fencing
from stromboli.shared.messages import base, cluster, log
from stromboli.testkit import builders

KIND = kinds.NODES
TOPIC = topics.NODES
NOW = builders.NOON


class ExpiredError(Exception):
    """The cluster no longer has the changes after this version."""


class Cluster:
    """Nodes with versions and a history that can be forgotten."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.history: list[tuple[int, str, bytes]] = []
        self.version = 0
        self._generations: dict[str, int] = {}

    def put(self, name: str, cpu: int) -> None:
        """Create or change a node; the same ``cpu`` is a change without effect on the
        projection.
        """
        kind = "MODIFIED" if name in self.objects else "ADDED"
        if kind == "ADDED":
            self._generations[name] = self._generations.get(name, 0) + 1
        self._happen(kind, name, cpu)

    def delete(self, name: str) -> None:
        """Delete a node, which takes a version of its own."""
        self._happen("DELETED", name, 0)

    def _happen(self, kind: str, name: str, cpu: int) -> None:
        self.version += 1
        node = builders.make_node(
            name, str(cpu), version=self.version, generation=self._generations[name]
        )
        raw = base.encode(node)
        self.history.append((self.version, kind, raw))
        if kind == "DELETED":
            del self.objects[name]
        else:
            self.objects[name] = raw

    def after(self, version: int) -> tuple[int, str, bytes] | None:
        """The first change after ``version``. Raises ExpiredError."""
        oldest = self.history[0][0] if self.history else self.version + 1
        if version + 1 < oldest:
            raise ExpiredError
        return next((event for event in self.history if event[0] > version), None)

    def forget(self) -> None:
        """Keep no history."""
        self.history.clear()

    def truth(self) -> dict[str, meta.Object]:
        """Every node without its version."""
        return {name: _unversioned(KIND.decode(raw)) for name, raw in self.objects.items()}


class Log:
    """Two topics of records that stay in their order."""

    def __init__(self) -> None:
        self.records: dict[str, list[envelope.Record]] = {TOPIC.name: [], topics.SYNC.name: []}
        self.ends: dict[str, int] = {TOPIC.name: 0, topics.SYNC.name: 0}

    def append(self, draft: envelope.Draft, epoch: int) -> int:
        """The offset of the appended draft."""
        name = draft.topic.name
        offset = self.ends[name]
        self.records[name].append(builders.make_record(draft, offset, epoch=epoch))
        self.ends[name] = offset + 1
        return offset

    def open(self) -> int:
        """A new writer's epoch."""
        message = log.Opened(writer="monitor", instance="test")
        draft = envelope.Draft(topic=topics.SYNC, key=log.OPENED_KEY, message=message, time=NOW)
        epoch = self.append(draft, self.ends[topics.SYNC.name])
        (announcement,) = fencing.announcements([TOPIC], "monitor", "test", NOW)
        self.append(announcement, epoch)
        return epoch

    def compact(self) -> None:
        """Every key keeps its last record."""
        for name, records in self.records.items():
            last = {record.key: record.offset for record in records}
            self.records[name] = [r for r in records if last[r.key] == r.offset]

    def lose_tail(self, count: int) -> None:
        """The last records of the snapshot topic were never on a disk."""
        self.ends[TOPIC.name] = max(0, self.ends[TOPIC.name] - count)
        kept = self.records[TOPIC.name]
        self.records[TOPIC.name] = [r for r in kept if r.offset < self.ends[TOPIC.name]]

    def cached(self) -> dict[str, meta.Object | snapshot.Unknown]:
        """The cache of a reader that starts now."""
        fence, read = fencing.Fence("default"), snapshot.Snapshot()
        for record in self.records[TOPIC.name]:
            if fence.accepts(record) and not fencing.is_announcement(record):
                read.apply(record)
        known: dict[str, meta.Object | snapshot.Unknown] = {
            node.metadata.key: _unversioned(node) for node in read.objects(KIND)
        }
        return known | dict(read.unknowns(KIND))


class Monitor:
    """The shell's steps, one at a time. ``pending``: drafts that are not in the log yet."""

    def __init__(self, cluster_: Cluster, log_: Log) -> None:
        self.cluster, self.log = cluster_, log_
        self.epoch = log_.open()
        self.cached = reflector_state.ReflectorState(KIND)
        self.pending: list[envelope.Draft] = []
        self.said: list[envelope.Draft] = []
        self._fence = fencing.Fence("default")
        self._followed = 0
        for record in log_.records[topics.SYNC.name]:
            message = envelope.decode(record)
            if self._fence.accepts(record) and isinstance(message, cluster.KindSynced):
                assert record.epoch is not None
                self.cached.apply_sync(message, record.epoch)
        self.follow()
        self.cached.open(log_.ends[TOPIC.name])

    def follow(self) -> None:
        """Read the own topic on."""
        for record in self.log.records[TOPIC.name]:
            if record.offset < self._followed:
                continue
            received = self._fence.accepts(record)
            if fencing.is_announcement(record):
                continue
            assert record.epoch is not None
            if not received or (record.epoch < self.epoch and self.cached.state != "folding"):
                self.cached.mark_overwritten(record.key)
            elif record.epoch != self.epoch:
                self.cached.apply(record)
        self._followed = self.log.ends[TOPIC.name]

    def watch(self) -> bool:
        """Take in the next change; whether there was one."""
        if self.cached.state != "watching":
            return False
        try:
            event = self.cluster.after(int(self.cached.version))
        except ExpiredError:
            self.cached.expired()
            return True
        if event is None:
            return False
        _, kind, raw = event
        step = self.cached.delete if kind == "DELETED" else self.cached.upsert
        self._draft_change(step(raw, NOW))
        return True

    def list(self) -> bool:
        """List everything, if that is due."""
        if self.cached.state == "watching":
            return False
        self.cached.list_begins()
        self._sync(0)
        for raw in list(self.cluster.objects.values()):
            self._draft_change(self.cached.upsert(raw, NOW))
        for draft in self.cached.list_ends(str(self.cluster.version), NOW):
            self._draft_change(draft)
        return True

    def append(self, count: int = 1) -> bool:
        """Bring the oldest drafts to the log; whether there were any."""
        drafts, self.pending = self.pending[:count], self.pending[count:]
        for draft in drafts:
            self.log.append(draft, self.epoch)
        return bool(drafts)

    def restore(self) -> bool:
        """Read overwritten keys again; whether anything is published."""
        drafts = [
            self.cached.restore(key, self.cluster.objects.get(key), NOW)
            for key in self.cached.overwritten
        ]
        for draft in drafts:
            self._draft_change(draft)
        return any(drafts)

    def mark_synced(self) -> None:
        """Publish a sync marker if nothing is unacknowledged and nothing is hidden."""
        if self.cached.state != "watching" or self.pending:
            return
        self.follow()
        if not self.cached.overwritten:
            self._sync(self.log.ends[TOPIC.name])

    def settle(self) -> None:
        """Continue until there is nothing left to do."""
        self.follow()
        while self.list() or self.watch() or self.append(100) or self.restore():
            self.follow()
        self.mark_synced()

    def _sync(self, position: int) -> None:
        self.log.append(self.cached.sync_marker(self.cached.sync_point(NOW), position), self.epoch)

    def _draft_change(self, draft: envelope.Draft | None) -> None:
        if draft is not None:
            self.pending.append(draft)
            self.said.append(draft)


def _unversioned(node: meta.Object) -> meta.Object:
    metadata = msgspec.structs.replace(node.metadata, resource_version="")
    return msgspec.structs.replace(node, metadata=metadata)
