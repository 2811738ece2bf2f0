"""Decodes pods, PodGroups and jobs so that equal parts of different objects are one object.

A service keeps all pods of a cluster. The pods of a gang, and most pods of a user, differ in a few
fields only: name, uid, version, node and address. A pod that is decoded alone takes 4.8 KB in 79
objects, most of which are equal in thousands of other pods.

Shared are the spec without its node, the status without its address, the owner, and the texts of
labels, annotations and conditions; all of them are immutable. Spec and status are recognized by
their bytes, so equal ones are decoded once. The result equals that of a plain decoder, also for
invalid bytes.

The status of a job has times and is decoded alone. The spec of a job has raw JSON, which refers to
the bytes that were decoded: a copy of the spec's bytes, not the whole object.

Memory is bounded: a table that is full is emptied, after which pods share objects only with later
pods.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from stromboli.shared import decoding
from stromboli.shared.api import batch, core, meta, scheduling

T = TypeVar("T")
P = TypeVar("P", core.Pod, scheduling.PodGroup, batch.Job)

MOST_BYTES = 4 * 1024 * 1024
"""Maximum size in bytes of each of the two tables, of specs and of statuses. An entry takes about
500."""
LARGEST_BYTES = 16 * 1024
"""A larger spec or status is not shared, so that a few cannot fill a table."""
LONGEST_TEXT = 128
"""Maximum length in characters of a value that is shared."""
MOST_TEXTS = 50_000
MOST_OWNERS = 10_000


class _Parts(msgspec.Struct, frozen=True, gc=False):
    """An object whose spec and status are not decoded yet."""

    metadata: meta.ObjectMeta
    spec: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()


_PARTS = decoding.decoder_of(_Parts)


class _Section(Generic[T]):
    """A decoder for a section of objects (spec or status) that shares equal sections. These may
    differ in the text of one field, if it is named. ``absent``: the section that is not encoded.
    ``largest_bytes``: a larger section is not shared. ``made``: called with each new section."""

    def __init__(
        self, absent: T, field: str = "", encoded: str = "", *, largest_bytes: int = LARGEST_BYTES
    ) -> None:
        self._absent, self._largest_bytes = absent, largest_bytes
        self.made: Callable[[T], None] | None = None
        self._decoder = decoding.decoder_of(type(absent))
        self._field = field
        self._begin = f'"{encoded}":"'.encode()
        self._known: dict[bytes, T] = {}
        self._bytes = 0

    def decode(self, raw: bytes) -> T:
        """Decode a section. Raises the errors of a plain decoder."""
        if not raw:
            return self._absent
        text, rest = self._split(raw) if self._field else ("", raw)
        section = self._known.get(rest)
        if section is None:
            section = self._decoder.decode(rest)
            if text and getattr(section, self._field):
                return self._decoder.decode(raw)  # the field occurs twice: the last one counts
            if self.made is not None:
                self.made(section)
            self._put(rest, section)
        return msgspec.structs.replace(section, **{self._field: text}) if text else section  # type: ignore[type-var]

    def _put(self, raw: bytes, part: T) -> None:
        if len(raw) > self._largest_bytes:
            return
        self._bytes += len(raw)
        if self._bytes > MOST_BYTES:
            self._known, self._bytes = {}, len(raw)
        self._known[raw] = part

    def _split(self, raw: bytes) -> tuple[str, bytes]:
        """The text of the field, and the bytes without it; if the field cannot be located with
        certainty, an empty text and all bytes."""
        head, separator, tail = raw.partition(self._begin)
        if not separator or head.rfind(b"{") != 0 or b"[" in head:
            return "", raw  # not at the top level
        text, _, rest = tail.partition(b'"')
        if not rest.startswith(b",") or b"\\" in text or not text.isascii():
            return "", raw
        value = text.decode()
        return (value, head + rest[1:]) if value.isprintable() else ("", raw)


class _SharingDecoder(Generic[P]):
    """A decoder with its own tables of shared objects."""

    def __init__(self, kind: type[P], specs: _Section[Any], statuses: _Section[Any]) -> None:
        self._kind: type[P] = kind
        self._plain: decoding.Decoder[P] = decoding.decoder_of(kind)
        self._specs = specs
        self._statuses = statuses
        statuses.made = self._share_conditions
        self._texts: dict[str, str] = {}
        self._owners: dict[meta.OwnerReference, tuple[meta.OwnerReference, ...]] = {}

    def decode(self, buf: bytes | str | msgspec.Raw, /) -> P:
        """Decode an object. Raises the errors of a plain decoder."""
        try:
            parts = _PARTS.decode(buf)
            spec = self._specs.decode(bytes(parts.spec))
            status = self._statuses.decode(bytes(parts.status))
        except (msgspec.DecodeError, ValueError, RecursionError):
            plain: P = self._plain.decode(buf)  # its error has the path of the field
            return plain
        self._share(parts.metadata)
        obj: P = self._kind(metadata=parts.metadata, spec=spec, status=status)
        return obj

    def _share(self, read: meta.ObjectMeta) -> None:
        """Replace parts of a new object, which has no other reference, by equal ones."""
        if len(self._texts) > MOST_TEXTS:
            self._texts.clear()
        shared = self._texts.setdefault
        for texts in (read.labels, read.annotations):
            if texts:
                for name, value in texts.items():
                    if len(value) <= LONGEST_TEXT:
                        texts[name] = shared(value, value)
        change = msgspec.structs.force_setattr
        change(read, "namespace", shared(read.namespace, read.namespace))
        if len(read.owner_references) == 1:
            if len(self._owners) > MOST_OWNERS:
                self._owners = {}
            owners = read.owner_references
            known = self._owners.setdefault(owners[0], owners)
            if known is owners:
                self._share_texts(owners[0], "api_version", "kind", "name")
            change(read, "owner_references", known)

    def _share_conditions(self, status: core.PodStatus | scheduling.PodGroupStatus) -> None:
        for condition in status.conditions:
            self._share_texts(condition, "type", "status", "reason", "message")

    def _share_texts(self, read: msgspec.Struct, *fields: str) -> None:
        for field in fields:
            text = getattr(read, field)
            if len(text) <= LONGEST_TEXT:
                msgspec.structs.force_setattr(read, field, self._texts.setdefault(text, text))


class PodDecoder(_SharingDecoder[core.Pod]):
    """A decoder of pods."""

    def __init__(self) -> None:
        absent = core.Pod()
        specs = _Section(absent.spec, "node_name", "nodeName")
        super().__init__(core.Pod, specs, _Section(absent.status, "pod_ip", "podIP"))


class PodGroupDecoder(_SharingDecoder[scheduling.PodGroup]):
    """A decoder of PodGroups."""

    def __init__(self) -> None:
        absent = scheduling.PodGroup()
        super().__init__(scheduling.PodGroup, _Section(absent.spec), _Section(absent.status))


class JobDecoder(_SharingDecoder[batch.Job]):
    """A decoder of jobs."""

    def __init__(self) -> None:
        absent = batch.Job()
        statuses = _Section(absent.status, largest_bytes=0)
        super().__init__(batch.Job, _Section(absent.spec), statuses)
        statuses.made = self._share_phases

    def _share_phases(self, status: batch.JobStatus) -> None:
        self._share_texts(status.state, "phase", "reason")
        for condition in status.conditions:
            self._share_texts(condition, "status")
