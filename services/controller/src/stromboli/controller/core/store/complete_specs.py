"""Complete specs of workloads: with the values that the snapshot topics leave out.

The topics carry workloads without literal values of environment variables and other secrets
(``stromboli.shared.jobspec.redaction``). Pods and child jobs need the values. Every response of the
API server contains them, so the response to a job's first status write completes the job, without
an extra request. A new leader reads a job when its plan first needs these values. Later records of
the same generation are completed from here; the API server increments the generation with each
change of the spec, and not with a change of the status.
"""

from typing import Any

import msgspec

from stromboli.controller.core import commands
from stromboli.shared import envelope, snapshot
from stromboli.shared.api import batch, flow, kinds, meta


class CompleteSpecs:
    """A map from uids to the newest known complete specs. Shares specs with the cached objects."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Any]] = {}

    def apply(self, objects: snapshot.Snapshot, record: envelope.Record) -> snapshot.Change | None:
        """Apply a record to ``objects``. Adds the values that the record leaves out, if they are
        known."""
        change = objects.apply(record)
        return None if change is None else self._complete(objects, change)

    def observe(
        self, objects: snapshot.Snapshot, kind: kinds.Kind[Any], read: meta.Object
    ) -> snapshot.Change | None:
        """Apply an object as the API server returned it. If the cached object is at least as new,
        it is completed instead, provided that its spec has the same generation."""
        self.note(read)
        change = objects.observe(kind, read)
        if change is not None:
            return change
        known = objects.state(kind, read.metadata.key)
        if not isinstance(known, meta.Object) or known.metadata.uid != read.metadata.uid:
            self.forget(read.metadata.uid)
            return None
        same = snapshot.Change(kind, read.metadata.key, known, known)
        completed = self._complete(objects, same)
        return None if completed is same else completed

    def _complete(self, objects: snapshot.Snapshot, change: snapshot.Change) -> snapshot.Change:
        after = change.after
        if not isinstance(after, meta.Object) or (completed := self.completed(after)) is after:
            return change
        objects.replace(change.kind, completed)
        return msgspec.structs.replace(change, after=completed)

    def note(self, read: meta.Object) -> None:
        """Note an object as the API server returned it. An older generation changes nothing."""
        if not isinstance(read, batch.Job | flow.JobTemplate | flow.JobFlow | flow.CronJob):
            return
        generation, _ = self._known.get(read.metadata.uid, (-1, None))
        if _edition(read) > generation:
            self._known[read.metadata.uid] = _edition(read), read.spec

    def has(self, obj: meta.Object) -> bool:
        """Whether the complete spec of this generation is known."""
        return self._known.get(obj.metadata.uid, (-1, None))[0] == _edition(obj)

    def completed(self, obj: meta.Object) -> meta.Object:
        """The object with its complete spec; unchanged if that is not known."""
        edition, spec = self._known.get(obj.metadata.uid, (-1, None))
        if edition != _edition(obj) or getattr(obj, "spec", None) is spec:
            return obj
        return msgspec.structs.replace(obj, spec=spec)

    def forget(self, uid: str) -> None:
        """Drop the spec of a deleted object."""
        self._known.pop(uid, None)


def read(kind: kinds.Kind[Any], obj: meta.Object) -> commands.ReadSpec:
    """The command that reads the complete spec of an object."""
    return commands.ReadSpec(kind=kind, namespace=obj.metadata.namespace, name=obj.metadata.name)


def _edition(obj: meta.Object) -> int:
    """The generation; without one, the resourceVersion, since any new version may have another
    spec."""
    return obj.metadata.generation or obj.metadata.version
