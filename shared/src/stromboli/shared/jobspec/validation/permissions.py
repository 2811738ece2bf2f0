"""Who may use a queue or a PriorityClass, and who submitted an object.

A Queue or PriorityClass names who may use it in three annotations, ``stromboli.sh/allowed-
{namespaces,users,groups}``. With none of them it is open to all; with any of them it takes what is
in one of the namespaces, or submitted by one of the users, or by a member of one of the groups. An
empty list is a list that names nobody. Names stand in lines, or in one line with commas (a group
may be called ``cn=a,ou=b``: end its line).

The submitter of an object is recorded in its annotations ``stromboli.sh/user`` and ``user-groups``
when it is admitted: the user who created it, or who last changed the spec of what makes jobs (a
flow, a cron). What services of ours write for a user keeps that user's name.
"""

from collections.abc import Iterator
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
"""Kinds of which the submitter is recorded."""
WORKLOAD_KINDS = (kinds.JOB_FLOWS, kinds.CRON_JOBS)
"""Kinds that make jobs: whoever changes their spec becomes their submitter."""
MAX_GROUPS, MAX_GROUPS_LENGTH = 500, 16 * 1024
"""Groups that are recorded, and the characters of all of them. What is beyond gives no right."""


class Submitter(msgspec.Struct, frozen=True):
    """A user, with the groups they had then. Without a name: not known."""

    name: str = ""
    groups: tuple[str, ...] = ()


def names(text: str | None) -> frozenset[str]:
    """The names in an annotation."""
    text = text or ""
    parts = text.split("\n") if "\n" in text else text.split(",")
    return frozenset(part.strip() for part in parts) - {""}


def is_restricted(metadata: meta.ObjectMeta) -> bool:
    """Whether a queue or priority class names who may use it."""
    return any(metadata.annotation(key) is not None for key in ALLOWED)


def allows(metadata: meta.ObjectMeta, namespace: str, submitter: Submitter) -> bool:
    """Whether a queue or priority class may be used from a namespace by a submitter."""
    if not is_restricted(metadata):
        return True
    return (
        namespace in names(metadata.annotation(keys.ALLOWED_NAMESPACES))
        or submitter.name in names(metadata.annotation(keys.ALLOWED_USERS))
        or not names(metadata.annotation(keys.ALLOWED_GROUPS)).isdisjoint(submitter.groups)
    )


def recorded(metadata: meta.ObjectMeta) -> Submitter:
    """Who submitted an object, as its annotations say."""
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
    """The annotations of an object that say who submitted it."""
    found = {key: metadata.annotation(key) for key in (keys.USER, keys.USER_GROUPS)}
    return {key: value for key, value in found.items() if value is not None}


def submitter_patch(
    kind: Kind[Any], document: Document, before: Document | None, submitter: Submitter
) -> tuple[Add, ...]:
    """What records the submitter of a new object, or of a changed one that makes jobs; over
    whatever the object claims. Nothing for an object whose metadata cannot be read."""
    if kind not in SUBMITTER_KINDS or not submitter.name or (before and kind not in WORKLOAD_KINDS):
        return ()
    metadata, earlier = document.get("metadata"), _annotations_of(before or {})
    held = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(held, dict | None):
        return ()
    if before is None or document.get("spec") != before.get("spec"):
        wanted = annotations(submitter)
    else:
        wanted = {key: earlier[key] for key in (keys.USER, keys.USER_GROUPS) if key in earlier}
    if keys.USER_GROUPS in (held or {}):  # an addition cannot remove: no groups instead
        wanted = {keys.USER_GROUPS: "", **wanted}
    if held is None:
        return (Add(path="/metadata/annotations", value=wanted),)
    return tuple(
        Add(path=pointer("metadata", "annotations", key), value=value)
        for key, value in wanted.items()
        if held.get(key) != value
    )


def _annotations_of(document: Document) -> dict[str, Any]:
    metadata = document.get("metadata")
    held = metadata.get("annotations") if isinstance(metadata, dict) else None
    return held if isinstance(held, dict) else {}


def forged_submitter(
    kind: Kind[Any], read: meta.Object, old: meta.Object | None, submitter: Submitter | None
) -> Iterator[Violation]:
    """What is wrong with the submitter that an object names. ``submitter``: who asks for the
    change; None for a service of ours, which writes for others."""
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
        expected="leave it as it is" if stays else f"leave it out; it will be {name!r}",
    )


def violations(
    path: str, kind: str, metadata: meta.ObjectMeta, namespace: str, submitter: Submitter
) -> Iterator[Violation]:
    """That a queue or priority class may not be used. It names nobody who may: that is for those
    who may read the object."""
    if not allows(metadata, namespace, submitter):
        who = f"user {submitter.name!r}" if submitter.name else "a submitter that is not recorded"
        yield Violation(
            path=path,
            reason=f"{kind} {metadata.name} is not open to {who} in namespace {namespace!r}",
            expected=f"a {kind} that is, or ask its administrator",
        )


class RestrictedReferences(msgspec.Struct, frozen=True):
    """What an object uses that may be restricted: path -> name."""

    queues: dict[str, str] = {}
    priority_classes: dict[str, str] = {}

    def beyond(self, others: "RestrictedReferences") -> "RestrictedReferences":
        """What is not used by another version of the object: that has been admitted."""
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
            found = {"spec.priorityClassName": read.spec.priority_class_name}
            for index, task in enumerate(read.spec.tasks):
                template = pod_template.read(task.template.spec)
                if template is not None:
                    path = f"spec.tasks[{index}].template.spec.priorityClassName"
                    found[path] = template.priority_class_name or ""
            return RestrictedReferences({"spec.queue": read.spec.queue}, _given(found))
        case scheduling.PodGroup():
            found = {"spec.priorityClassName": read.spec.priority_class_name}
            return RestrictedReferences(_given({"spec.queue": read.spec.queue}), _given(found))
    return RestrictedReferences()


def _given(found: dict[str, str]) -> dict[str, str]:
    return {path: name for path, name in found.items() if name}
