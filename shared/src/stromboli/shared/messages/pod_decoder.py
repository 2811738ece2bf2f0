"""Decodes pods so that equal parts of different pods share one object.

A service keeps all pods of a cluster. The pods of a gang, and most pods of a user, differ in a few
fields only: name, uid, version, node and address. A pod that is decoded alone takes 4.8 KB in 79
objects, most of which are equal in thousands of other pods.

Shared are the spec without its node, the status without its address, the owner, and the values of
labels and annotations; all of them are immutable. Spec and status are recognised by their bytes, so
equal ones are decoded once. The result equals that of a plain decoder, also for invalid bytes.

Memory is bounded: a table that is full is emptied, after which pods share objects only with later
pods.
"""

from typing import Generic, TypeVar

import msgspec

from stromboli.shared.api import core, meta

T = TypeVar("T")

MOST_BYTES = 4 * 1024 * 1024
"""Maximum size of the table of specs, and of that of statuses, in bytes. An entry takes about
500."""
LARGEST_BYTES = 16 * 1024
"""A larger spec or status is not shared, so that a few cannot fill a table."""
LONGEST_TEXT = 128
"""Maximum length in characters of a value that is shared."""
MOST_TEXTS = 50_000
MOST_OWNERS = 10_000


class _Parts(msgspec.Struct, frozen=True, gc=False):
    """A pod whose spec and status are not decoded yet."""

    metadata: meta.ObjectMeta
    spec: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()


_POD = msgspec.json.Decoder(core.Pod)
_PARTS = msgspec.json.Decoder(_Parts)


class _Section(Generic[T]):
    """A decoder for a section of pods (spec or status) that shares equal sections. These may differ
    in the text of one field."""

    def __init__(self, absent: T, field: str, encoded: str) -> None:
        self._absent = absent
        self._decoder = msgspec.json.Decoder(type(absent))
        self._field = field
        self._begin = f'"{encoded}":"'.encode()
        self._known: dict[bytes, T] = {}
        self._bytes = 0

    def decode(self, raw: bytes) -> T:
        """Decode a section. Raises the errors of a plain decoder."""
        if not raw:
            return self._absent
        text, rest = self._split(raw)
        found = self._known.get(rest)
        if found is None:
            found = self._decoder.decode(rest)
            if text and getattr(found, self._field):
                return self._decoder.decode(raw)  # the field occurs twice: the last one counts
            self._put(rest, found)
        return msgspec.structs.replace(found, **{self._field: text}) if text else found  # type: ignore[type-var]

    def _put(self, raw: bytes, part: T) -> None:
        if len(raw) > LARGEST_BYTES:
            return
        self._bytes += len(raw)
        if self._bytes > MOST_BYTES:
            self._known, self._bytes = {}, len(raw)
        self._known[raw] = part

    def _split(self, raw: bytes) -> tuple[str, bytes]:
        """The text of the field, and the bytes without it; if the field cannot be located with
        certainty, an empty text and all bytes."""
        head, found, tail = raw.partition(self._begin)
        if not found or head.rfind(b"{") != 0 or b"[" in head:
            return "", raw  # not at the top level
        text, _, rest = tail.partition(b'"')
        if not rest.startswith(b",") or b"\\" in text or not text.isascii():
            return "", raw
        value = text.decode()
        return (value, head + rest[1:]) if value.isprintable() else ("", raw)


class PodDecoder:
    """A decoder of pods, with its own tables of shared objects."""

    def __init__(self) -> None:
        absent = core.Pod()  # its parts are the defaults, which are not encoded
        self._specs = _Section(absent.spec, "node_name", "nodeName")
        self._statuses = _Section(absent.status, "pod_ip", "podIP")
        self._texts: dict[str, str] = {}
        self._owners: dict[meta.OwnerReference, tuple[meta.OwnerReference, ...]] = {}

    def decode(self, buf: bytes | str | msgspec.Raw, /) -> core.Pod:
        """Decode a pod. Raises the errors of a plain decoder."""
        try:
            parts = _PARTS.decode(buf)
            spec = self._specs.decode(bytes(parts.spec))
            status = self._statuses.decode(bytes(parts.status))
        except (msgspec.DecodeError, ValueError, RecursionError):
            return _POD.decode(buf)  # its error has the path of the field
        self._share(parts.metadata)
        return core.Pod(metadata=parts.metadata, spec=spec, status=status)

    def _share(self, read: meta.ObjectMeta) -> None:
        """Replace parts of a new object, which has no other reference, by equal ones."""
        if len(self._texts) > MOST_TEXTS:
            self._texts = {}
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
            change(read, "owner_references", self._owners.setdefault(owners[0], owners))
