"""Submitted objects: their names, the rights they need, and their violations."""

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from stromboli.admission.auth import authentication
from stromboli.shared import errors, keys
from stromboli.shared.api.kinds import Kind
from stromboli.shared.cluster.accounts import right
from stromboli.shared.jobspec.validation import patch
from stromboli.shared.jobspec.validation.patch import Document
from stromboli.shared.jobspec.validation.review import Operation
from stromboli.shared.messages.admission import Violation

_SUFFIXES = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: without vowels they form no words. Kubernetes uses the same."""


class RejectedError(Exception):
    """Submitted objects have violations; nothing was written."""

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        super().__init__("; ".join(violation.message for violation in violations))
        self.violations = violations


class SubmittedObject(msgspec.Struct, frozen=True):
    """One object of a submission.

    ``before``: the stored object if it exists. ``mark``: the digest of the request that creates the
    object, empty without an idempotency key. ``is_done``: this request created the object already,
    as its mark shows; it is not reviewed or written again.
    """

    kind: Kind[Any]
    namespace: str
    document: Document
    before: Document | None
    mark: str = ""
    is_done: bool = False

    @property
    def name(self) -> str:
        """The object's name."""
        name: str = self.document["metadata"]["name"]
        return name

    @property
    def operation(self) -> Operation:
        """The operation for the validation rules: a creation or an update."""
        return "UPDATE" if self.before and not self.is_done else "CREATE"


class Applied(msgspec.Struct, frozen=True):
    """The result of one submitted object."""

    kind: str
    namespace: str
    name: str
    result: str
    object: msgspec.Raw
    warnings: tuple[str, ...] = ()
    """Fields of the object that have no effect, or none yet."""


class SubmitAttempts:
    """The state of one request over its retries: by the object's index, the current verdict and the
    written object.
    """

    def __init__(self, marks: Sequence[str] = ()) -> None:
        self.marks = marks
        self.reviews: dict[int, tuple[SubmittedObject, tuple[Violation, ...]]] = {}
        self.written: dict[int, Applied] = {}

    def judged(
        self, submissions: Sequence[SubmittedObject], refused: Sequence[tuple[Violation, ...]]
    ) -> None:
        """Record the verdicts. The newest one applies, except for objects that are already
        written.
        """
        for place, review in enumerate(zip(submissions, refused, strict=True)):
            if place not in self.written:
                self.reviews[place] = review


def with_mark(document: Document, mark: str) -> Document:
    """The object with the digest of the request that creates it, so that a repeated request
    recognizes it on any replica.
    """
    metadata = document["metadata"]
    annotations = metadata.get("annotations") or {}
    if not mark or not isinstance(
        annotations, dict
    ):  # the rules reject a value that is not an object
        return document
    annotations = {**annotations, keys.IDEMPOTENCY: mark}
    return {**document, "metadata": {**metadata, "annotations": annotations}}


def has_mark(document: Document, mark: str) -> bool:
    """Whether the request with this digest has created the object."""
    annotations = document["metadata"].get("annotations")
    if not mark or not isinstance(annotations, dict):
        return False
    return annotations.get(keys.IDEMPOTENCY) == mark


def with_namespace_and_name(kind: Kind[Any], document: Document) -> tuple[str, Document]:
    """The namespace of an object, and the object with its namespace and name set."""
    metadata = {**document["metadata"]}
    namespace = (patch.text_of(document, "namespace") or "default") if kind.namespaced else ""
    if not patch.text_of(document, "name"):
        metadata["name"] = metadata.pop("generateName") + _suffix()
    if namespace:
        metadata["namespace"] = namespace
    return namespace, {**document, "metadata": metadata}


def may_repeat(documents: Sequence[Document]) -> bool:
    """Whether a repetition creates no object twice: each object has a name."""
    return all(patch.text_of(document, "name") for document in documents)


def with_generated_name(document: Document, suffix: str) -> Document:
    """An object without a name gets one derived from ``suffix``: the same for each repetition."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name"):
        return document
    stem = metadata.get("generateName")
    if not isinstance(stem, str) or not stem:
        return document
    rest = {key: value for key, value in metadata.items() if key != "generateName"}
    return {**document, "metadata": {**rest, "name": stem + suffix[:8]}}


def already_exists(kind: Kind[Any], namespace: str, name: str) -> errors.AlreadyExistsError:
    """The error for an object whose name is taken."""
    what = f"{kind.kind} {namespace}/{name}" if namespace else f"{kind.kind} {name}"
    return errors.AlreadyExistsError(what, "exists already; delete it or apply a change")


def raise_if_stale(kind: Kind[Any], document: Document, before: Document) -> None:
    """Raises ConflictError if the submitted object names a uid or version, and the stored object
    has another one: it changed since the client read it."""
    for field in ("uid", "resourceVersion"):
        read = patch.text_of(document, field)
        if read and read != patch.text_of(before, field):
            what = f"{kind.kind} {patch.text_of(before, 'name')}"
            why = f"changed since it was read: metadata.{field} is not {read}; read it again"
            raise errors.ConflictError(what, why)


async def missing_rights(
    submissions: list[SubmittedObject], principal: authentication.Principal
) -> list[tuple[Violation, ...]]:
    """The missing rights to write each object."""
    violations: list[tuple[Violation, ...]] = []
    for each in submissions:
        if each.is_done:
            violations.append(())
            continue
        name = each.name if each.before else ""  # a creation needs no right on a name
        requested = right("patch" if each.before else "create", each.kind, each.namespace, name)
        violations.append(await authentication.missing_rights(principal, (requested,)))
    return violations


def raise_if_missing(missing: list[tuple[Violation, ...]]) -> None:
    """Raise ForbiddenError if any object has missing rights. ``missing``: those of each object."""
    if violations := _placed(missing):
        raise authentication.ForbiddenError(violations)


def raise_if_any(refused: list[tuple[Violation, ...]]) -> None:
    """Raise RejectedError if any object has violations. ``refused``: those of each object."""
    if violations := _placed(refused):
        raise RejectedError(violations)


def violations_by_object(
    documents: Sequence[Document], violations: Sequence[Violation]
) -> Iterator[tuple[Document, tuple[Violation, ...]]]:
    """The violations of a whole request, grouped by object."""
    if len(documents) == 1:
        yield documents[0], tuple(violations)
        return
    of_each: dict[str, list[Violation]] = {}
    for violation in violations:
        of_each.setdefault(violation.path.partition(".")[0], []).append(violation)
    for index, document in enumerate(documents):
        if object_violations := of_each.get(f"objects[{index}]"):
            yield document, tuple(object_violations)


def _placed(refused: list[tuple[Violation, ...]]) -> tuple[Violation, ...]:
    """With several objects, each path begins with the object's index."""
    return tuple(
        msgspec.structs.replace(
            violation, path=(f"objects[{index}]." if len(refused) > 1 else "") + violation.path
        )
        for index, violations in enumerate(refused)
        for violation in violations
    )


def _suffix() -> str:
    return "".join(secrets.choice(_SUFFIXES) for _ in range(5))


def is_readable(submission: SubmittedObject) -> bool:
    """Whether the object decodes as its kind."""
    try:
        submission.kind.decode(msgspec.json.encode(submission.document))
    except msgspec.DecodeError:
        return False
    return True
