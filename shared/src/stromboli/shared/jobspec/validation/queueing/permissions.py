"""Permissions of queues and PriorityClasses, and the submitter of an object.

A Queue or PriorityClass lists who may use it in three annotations,
``stromboli.sh/allowed-{namespaces,users,groups}``. Without them it is open to all. With at least
one, it may be used in one of the namespaces, by one of the users, and by members of one of the
groups. An empty list permits no one. Names are separated by lines, or by commas in a single line
(for a group such as ``cn=a,ou=b``, end the line).

The submitter of an object is recorded in its annotations ``stromboli.sh/user`` and ``user-groups``
at admission: the user who created it, or who last changed the spec of an object that creates jobs
(a flow, a cron job). Writes by our services on behalf of a user keep that user's name.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from stromboli.shared import keys
from stromboli.shared.api import batch, kinds, meta, scheduling
from stromboli.shared.api.kinds import Kind
from stromboli.shared.jobspec.validation import pod_template
from stromboli.shared.jobspec.validation.patch import Add, Document, pointer
from stromboli.shared.messages.admission import Violation

ALLOWED = (keys.ALLOWED_NAMESPACES, keys.ALLOWED_USERS, keys.ALLOWED_GROUPS)
SUBMITTER_KINDS: tuple[Kind[Any], ...] = (
    kinds.JOBS,
    kinds.POD_GROUPS,
    kinds.JOB_FLOWS,
    kinds.CRON_JOBS,
)
"""Kinds whose submitter is recorded."""
WORKLOAD_KINDS = (kinds.JOB_FLOWS, kinds.CRON_JOBS)
"""Kinds that create jobs: a user who changes their spec becomes their submitter."""
MAX_GROUPS, MAX_GROUPS_LENGTH = 500, 16 * 1024
"""Limits of recorded groups and their total length. Groups beyond them grant no permission."""


class Submitter(msgspec.Struct, frozen=True):
    """The user who submitted an object, with their groups at that time. An empty name means
    unknown."""

    name: str = ""
    groups: tuple[str, ...] = ()


def names(text: str | None) -> frozenset[str]:
    """The names in an annotation."""
    text = text or ""
    parts = text.split("\n") if "\n" in text else text.split(",")
    return frozenset(part.strip() for part in parts) - {""}


def is_restricted(metadata: meta.ObjectMeta) -> bool:
    """Whether a queue or priority class lists permitted namespaces, users or groups."""
    return any(metadata.annotation(key) is not None for key in ALLOWED)


def allows(metadata: meta.ObjectMeta, namespace: str, submitter: Submitter) -> bool:
    """Whether a submitter may use a queue or priority class from a namespace."""
    if not is_restricted(metadata):
        return True
    return (
        namespace in names(metadata.annotation(keys.ALLOWED_NAMESPACES))
        or submitter.name in names(metadata.annotation(keys.ALLOWED_USERS))
        or not names(metadata.annotation(keys.ALLOWED_GROUPS)).isdisjoint(submitter.groups)
    )


def usable(
    metadata: Iterable[meta.ObjectMeta], namespace: str, submitter: Submitter | None
) -> tuple[str, ...]:
    """The names of the queues or priority classes that a submitter may use (for an unknown
    submitter: those that are open to all), without Kubernetes' own (``system-...``). Names of
    others are left out, because the submitter may lack the right to read them."""
    effective_submitter = submitter or Submitter()
    return tuple(
        sorted(
            it.name
            for it in metadata
            if not it.name.startswith("system-") and allows(it, namespace, effective_submitter)
        )
    )


def recorded(metadata: meta.ObjectMeta) -> Submitter:
    """The submitter that an object's annotations record."""
    groups = names(f"{metadata.annotation(keys.USER_GROUPS) or ''}\n")
    return Submitter(metadata.annotation(keys.USER) or "", tuple(sorted(groups)))


def annotations(submitter: Submitter) -> dict[str, str]:
    """The annotations that record a submitter."""
    if not submitter.name:
        return {}
    kept: list[str] = []
    size = 0
    for group in sorted({*submitter.groups} - {""}):
        size += len(group) + 1
        if "\n" not in group and len(kept) < MAX_GROUPS and size <= MAX_GROUPS_LENGTH:
            kept.append(group)
    return {keys.USER: submitter.name} | ({keys.USER_GROUPS: "\n".join(kept)} if kept else {})


def identity_of(metadata: meta.ObjectMeta) -> dict[str, str]:
    """The annotations of an object that record its submitter."""
    submitter_annotations = {key: metadata.annotation(key) for key in (keys.USER, keys.USER_GROUPS)}
    return {key: value for key, value in submitter_annotations.items() if value is not None}


def submitter_patch(
    kind: Kind[Any], document: Document, before: Document | None, submitter: Submitter
) -> tuple[Add, ...]:
    """The patch that records the submitter of a new object, or of a changed object that creates
    jobs. It overwrites the annotations in the object. Empty for an object with invalid metadata.
    """
    if kind not in SUBMITTER_KINDS or not submitter.name or (before and kind not in WORKLOAD_KINDS):
        return ()
    metadata, earlier = document.get("metadata"), _annotations_of(before or {})
    metadata_annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata_annotations, dict | None):
        return ()
    if before is None or document.get("spec") != before.get("spec"):
        wanted = annotations(submitter)
    else:
        wanted = {key: earlier[key] for key in (keys.USER, keys.USER_GROUPS) if key in earlier}
    if keys.USER_GROUPS in (
        metadata_annotations or {}
    ):  # an addition cannot remove the annotation, so set it to no groups
        wanted = {keys.USER_GROUPS: "", **wanted}
    if metadata_annotations is None:
        return (Add(path="/metadata/annotations", value=wanted),)
    return tuple(
        Add(path=pointer("metadata", "annotations", key), value=value)
        for key, value in wanted.items()
        if metadata_annotations.get(key) != value
    )


def _annotations_of(document: Document) -> dict[str, Any]:
    metadata = document.get("metadata")
    metadata_annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return metadata_annotations if isinstance(metadata_annotations, dict) else {}


def forged_submitter(
    kind: Kind[Any], read: meta.Object, old: meta.Object | None, submitter: Submitter | None
) -> Iterator[Violation]:
    """Violations of the submitter annotations. ``submitter``: the user of the request; None for one
    of our services, which writes on behalf of others.
    """
    if kind not in SUBMITTER_KINDS:
        return
    now, then = identity_of(read.metadata), identity_of(old.metadata) if old else {}
    stays = old is not None and kind not in WORKLOAD_KINDS
    if now == then or (submitter is None and not stays):
        return
    claimed = {key: value for key, value in now.items() if value}
    if not stays and submitter is not None and claimed == annotations(submitter):
        return
    name = submitter.name if submitter is not None else ""
    yield Violation(
        path=f"metadata.annotations[{keys.USER}]",
        reason="records who submitted the object",
        expected="do not change it" if stays else f"leave it out; it will be {name!r}",
    )


def violations(
    path: str, kind: str, metadata: meta.ObjectMeta, namespace: str, submitter: Submitter
) -> Iterator[Violation]:
    """The violation if the submitter may not use a queue or priority class. The message does not
    list the permitted users, which only users who may read the object should see.
    """
    if not allows(metadata, namespace, submitter):
        submitter_text = (
            f"user {submitter.name!r}" if submitter.name else "a submitter that is not recorded"
        )
        yield Violation(
            path=path,
            reason=f"{kind} {metadata.name} is not open to {submitter_text} in namespace "
            f"{namespace!r}",
            expected=f"use another {kind}, or ask its administrator for permission",
        )


class RestrictedReferences(msgspec.Struct, frozen=True):
    """References to objects that may be restricted: path of the field -> name of the object."""

    queues: dict[str, str] = {}
    priority_classes: dict[str, str] = {}

    def beyond(self, others: "RestrictedReferences") -> "RestrictedReferences":
        """The references that an object has beyond ``others``, which are the references of its
        admitted version."""
        return RestrictedReferences(
            {path: name for path, name in self.queues.items() if others.queues.get(path) != name},
            {
                path: name
                for path, name in self.priority_classes.items()
                if name not in others.priority_classes.values()
            },
        )


def restricted_references(read: meta.Object) -> RestrictedReferences:
    """The queues and priority classes that an object names."""
    match read:
        case batch.Job():
            priority_classes = {"spec.priorityClassName": read.spec.priority_class_name}
            for index, task in enumerate(read.spec.tasks):
                template = pod_template.read(task.template.spec)
                if template is not None:
                    path = f"spec.tasks[{index}].template.spec.priorityClassName"
                    priority_classes[path] = template.priority_class_name or ""
            return RestrictedReferences({"spec.queue": read.spec.queue}, _given(priority_classes))
        case scheduling.PodGroup():
            priority_classes = {"spec.priorityClassName": read.spec.priority_class_name}
            return RestrictedReferences(
                _given({"spec.queue": read.spec.queue}), _given(priority_classes)
            )
    return RestrictedReferences()


def _given(names_by_path: dict[str, str]) -> dict[str, str]:
    return {path: name for path, name in names_by_path.items() if name}
