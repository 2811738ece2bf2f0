"""Metadata common to all objects."""

from typing import Annotated

import msgspec

from stromboli.shared import decoding
from stromboli.shared.decoding import Instant

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Integers of Kubernetes' types. The schema of a custom resource may allow larger integers; an
object with one cannot be decoded, as in Go.
"""


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of every object and its parts: camelCase in JSON; absent fields take defaults."""


class OwnerReference(Part, frozen=True, kw_only=True):
    """The owner of an object; garbage collection deletes the object with it."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Part, frozen=True, kw_only=True):
    """Name, identity, version and timestamps of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int32 = 0
    creation_timestamp: Instant | None = None
    deletion_timestamp: Instant | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    def label(self, key: str) -> str | None:
        """The label's value or None."""
        return self.labels.get(key) if self.labels else None

    def annotation(self, key: str) -> str | None:
        """The annotation's value or None."""
        return self.annotations.get(key) if self.annotations else None

    @property
    def key(self) -> str:
        """``namespace/name``, or the name alone for cluster scoped objects: the record key."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def version(self) -> int:
        """The resourceVersion as a number: comparable within one resource; 0 when it is absent or
        not a number.
        """
        return decoding.number(self.resource_version) or 0

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference with ``controller: true``, if there is one."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    @property
    def controller_key(self) -> tuple[str, str] | None:
        """The namespace and uid of the controlling owner.

        An owner is found by both: a user may write a reference with the uid of an object of another
        namespace, and such an object does not own this one (KEP-2336, garbage collection).
        """
        owner = self.controller
        return None if owner is None else (self.namespace, owner.uid)

    @property
    def owner_key(self) -> tuple[str, str]:
        """The value of ``controller_key`` of the objects that this object controls."""
        return self.namespace, self.uid

    def controls(self, dependent: "ObjectMeta") -> bool:
        """Whether this object is the controlling owner of a dependent of the same namespace."""
        return dependent.controller_key == self.owner_key


class Object(Part, frozen=True, kw_only=True):
    """Any object; only its metadata is decoded."""

    metadata: ObjectMeta = ObjectMeta()
