"""Validation of queues: created, updated, deleted, and as they exist.

A change is validated together with all related queues of the tree. For existing queues each
violation is reported for one queue: a sum over children for the parent, all others for the queue
that has the field.
"""

from collections.abc import Collection, Iterator, Mapping

from stromboli.shared import keys
from stromboli.shared.api.scheduling import Queue
from stromboli.shared.formats import counts, units
from stromboli.shared.jobspec.validation import amounts, naming
from stromboli.shared.jobspec.validation.queueing import permissions, queue_tree
from stromboli.shared.jobspec.validation.queueing.queue_tree import ROOT, QueueTree
from stromboli.shared.messages.admission import Violation

PROTECTED = (ROOT, "default")
MAX_DEPTH = 5
"""Default maximum depth of queues below the root: Volcano's limit, which also guards against
cycles."""
Queues = Mapping[str, Queue]
_SHARES: tuple[queue_tree.Field, ...] = ("capability", "deserved", "guarantee")


def validate_create(queue: Queue, queues: Queues, max_depth: int) -> Iterator[Violation]:
    """All violations of a new queue; ``queues``: all others by name."""
    if not naming.is_subdomain(queue.metadata.name):
        yield Violation(
            path="metadata.name",
            reason=f"{queue.metadata.name!r} is not a valid queue name",
            expected=naming.SUBDOMAIN_EXPECTED,
        )
    tree = QueueTree((*queues.values(), queue))
    yield from _of_itself(queue, tree)
    if queue.metadata.name != ROOT:
        yield from _of_place(queue, tree, max_depth, moves=True)


def validate_update(
    queue: Queue, before: Queue, queues: Queues, max_depth: int
) -> Iterator[Violation]:
    """All violations of a change of a queue. A change of labels, weight or our own annotations is
    always valid, even of a queue with violations."""
    if validated_fields(queue) == validated_fields(before):
        return
    tree = QueueTree((*queues.values(), queue))
    yield from _of_itself(queue, tree, before)
    if queue.metadata.name == ROOT:
        for name in _SHARES:
            if getattr(queue.spec, name) != getattr(before.spec, name):
                yield Violation(
                    path=f"spec.{name}",
                    reason="the resources of the root queue are those of the cluster",
                    expected="set them on queues below the root",
                )
        return
    same_place = queue_tree.parent_of(queue) == queue_tree.parent_of(before)
    same_amounts = all(getattr(queue.spec, name) == getattr(before.spec, name) for name in _SHARES)
    if not (same_place and same_amounts):
        yield from _of_place(queue, tree, max_depth, moves=not same_place)


def validate_existing(queue: Queue, tree: QueueTree, max_depth: int) -> Iterator[Violation]:
    """All violations of an existing queue of the tree. O(depth + children)."""
    yield from _of_itself(queue, tree, before=queue)
    if queue.metadata.name == ROOT:
        return
    fault = _misplaced(queue, tree) or _adrift(queue, tree)
    if fault is None:
        fault = _too_deep(queue, tree, max_depth, brings=0)
    if fault is not None:
        yield fault
    for name, wanted in tree.amounts(queue.metadata.name, "capability").items():
        yield from _more_than_above(queue, name, wanted, queue.metadata.name, tree)
    children = tree.children(queue.metadata.name)
    if children:
        yield from _sums(children, queue, tree, "of its children")


def validate_delete(name: str, queues: Queues, *, with_pods: bool = True) -> Iterator[Violation]:
    """Violations that prevent the deletion of a queue. ``with_pods``: whether it may be deleted
    while pods run in it.
    """
    if not with_pods and name in queues:
        pods = queue_tree.readable(queues[name].status.allocated).get("pods", 0)
        if pods:
            yield Violation(
                path="metadata.name",
                reason=f"queue {name!r} has {counts.counted(pods, 'pod')}",
                expected=f"let them finish first, or close the queue: strom queue close {name}",
            )
    if name in PROTECTED:
        yield Violation(
            path="metadata.name",
            reason=f"queue {name!r} always exists",
            expected="it cannot be deleted",
        )
    children = sorted(q.metadata.name for q in queues.values() if q.spec.parent == name)
    if children:
        yield Violation(
            path="metadata.name",
            reason=f"queue {name!r} has the children {', '.join(children)}",
            expected="delete these first",
        )


def validate_open(
    name: str,
    queues: Queues,
    namespace: str = "",
    submitter: permissions.Submitter | None = None,
) -> Iterator[Violation]:
    """Violations that keep jobs and PodGroups out of the queue ``name``. If it does not exist, the
    violation lists the queues that the submitter may use; O(queues)."""
    queue = queues.get(name)
    # The controller creates protected queues if they do not exist, e.g. at the first start.
    if queue is None and name not in PROTECTED:
        parents = {each.spec.parent for each in queues.values()} | {ROOT}
        leaves = (
            each.metadata
            for each in queues.values()
            if each.metadata.name not in parents and each.status.state in ("Open", "")
        )
        usable = permissions.usable(leaves, namespace, submitter)
        yield Violation(
            path="spec.queue",
            reason=f"queue {name!r} does not exist",
            expected=naming.alternatives(name, usable, "Queues", f"strom queue create {name}"),
        )
        return
    if queue is not None and queue.status.state not in ("Open", ""):
        yield Violation(
            path="spec.queue",
            reason=f"queue {name!r} is {queue.status.state}",
            expected="an open queue",
        )
    children = sorted(q.metadata.name for q in queues.values() if q.spec.parent == name)
    if name == ROOT or children:
        reason = f"it has the children {', '.join(children)}" if children else "it is the root"
        yield Violation(
            path="spec.queue",
            reason=f"queue {name!r} accepts no jobs: {reason}",
            expected="a queue without children",
        )


def validated_fields(queue: Queue) -> tuple[object, ...]:
    """The fields of a queue that the validation rules read."""
    shares = (getattr(queue.spec, name) for name in _SHARES)
    annotations = (
        queue.metadata.annotation(key) for key in (keys.HIERARCHY, keys.HIERARCHY_WEIGHTS)
    )
    return (queue_tree.parent_of(queue), queue.status.state, *shares, *annotations)


def _of_itself(queue: Queue, tree: QueueTree, before: Queue | None = None) -> Iterator[Violation]:
    spec = queue.spec
    listed = (
        ("spec.capability", spec.capability),
        ("spec.deserved", spec.deserved),
        ("spec.guarantee.resource", spec.guarantee.resource),
    )
    for path, quantities in listed:
        for name, text in (quantities or {}).items():
            yield from amounts.violations(path, name, text)
    called = queue.metadata.name
    capability, deserved = tree.amounts(called, "capability"), tree.amounts(called, "deserved")
    for name, guaranteed in tree.amounts(called, "guarantee").items():
        if deserved.get(name, -1) < guaranteed:
            yield Violation(
                path=f"spec.deserved.{name}",
                reason=f"less than the guarantee of {units.text(name, guaranteed)}",
                expected=f"at least {units.text(name, guaranteed)}",
            )
    for name, wanted in deserved.items():
        if name in capability and wanted > capability[name]:
            yield Violation(
                path=f"spec.deserved.{name}",
                reason=f"{units.text(name, wanted)} is more than the capability",
                expected=f"at most {units.text(name, capability[name])}",
            )
    stands = before.status.state if before else ""
    if queue.status.state not in ("", "Open", "Closed", stands):
        yield Violation(
            path="status.state",
            reason=f"{queue.status.state!r} cannot be requested",
            expected="Open or Closed",
        )
    yield from _of_hierarchy(queue, tree)


def _of_hierarchy(queue: Queue, tree: QueueTree) -> Iterator[Violation]:
    hierarchy = queue.metadata.annotation(keys.HIERARCHY)
    weights = queue.metadata.annotation(keys.HIERARCHY_WEIGHTS)
    if not hierarchy and not weights:
        return
    path = f"metadata.annotations[{keys.HIERARCHY_WEIGHTS}]"
    parts = (weights or "").split("/")
    if len((hierarchy or "").split("/")) != len(parts):
        yield Violation(
            path=path,
            reason=f"{weights!r} does not have as many parts as {hierarchy!r}",
            expected="one weight for each part of the hierarchy",
        )
    for part in parts:
        if not _is_positive(part):
            yield Violation(
                path=path, reason=f"{part!r} is not a weight", expected="numbers above 0"
            )
    for name in tree.under(hierarchy or ""):
        other = tree.get(name)
        if other is not None and name != queue.metadata.name:
            theirs = queue_tree.hierarchy_of(other)
            yield Violation(
                path=f"metadata.annotations[{keys.HIERARCHY}]",
                reason=f"{hierarchy!r} is above the queue {name!r} ({theirs})",
                expected="a path that is not above another queue",
            )


def _is_positive(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


def _of_place(queue: Queue, tree: QueueTree, max_depth: int, *, moves: bool) -> Iterator[Violation]:
    name, parent = queue.metadata.name, queue.spec.parent
    if parent not in ("", ROOT):
        fault = _misplaced(queue, tree)
        if fault is None and moves:
            fault = _too_deep(queue, tree, max_depth, brings=_height(name, tree))
        if fault is not None:
            yield fault
            return
        if moves:
            yield from _becomes_parent(parent, tree, without=name)
        yield from _below(queue, tree, moves=moves)
    yield from _above(queue, tree)


def _misplaced(queue: Queue, tree: QueueTree) -> Violation | None:
    """The violation if the parent is the queue itself, does not exist, or is a descendant."""
    name, parent = queue.metadata.name, queue_tree.parent_of(queue)
    if parent == ROOT:
        return None
    if parent == name:
        return Violation(path="spec.parent", reason="a queue cannot be its own parent")
    if tree.get(parent) is None:
        return Violation(
            path="spec.parent",
            reason=f"queue {parent!r} does not exist",
            expected=f"create it first: strom queue create {parent}",
        )
    if tree.is_in_a_circle(name):
        return Violation(
            path="spec.parent",
            reason=f"queue {parent!r} is a descendant of {name!r}",
            expected="use another parent",
        )
    return None


def _adrift(queue: Queue, tree: QueueTree) -> Violation | None:
    """The violation if an ancestor has no existing parent, so that no path leads to the root."""
    broken = tree.broken_at(queue.metadata.name)
    if broken is None:
        return None
    return Violation(
        path="spec.parent",
        reason=f"no path of parents leads from queue {queue.spec.parent!r} to the root",
        expected=f"use another parent, or correct spec.parent of queue {broken!r}",
    )


def _too_deep(queue: Queue, tree: QueueTree, max_depth: int, *, brings: int) -> Violation | None:
    """The violation if the queue or its descendants, ``brings`` levels, exceed the maximum
    depth."""
    name, parent = queue.metadata.name, queue_tree.parent_of(queue)
    depth = sum(each != ROOT for each in tree.above(name))
    if depth + brings <= max_depth and not tree.is_endless(parent):
        return None
    all_of_it = f" with the {brings} levels below it" if brings else ""
    return Violation(
        path="spec.parent",
        reason=f"below {parent!r}, the queue{all_of_it} would be deeper than {max_depth} levels",
        expected=f"at most {max_depth} levels, without a cycle",
    )


def _becomes_parent(parent: str, tree: QueueTree, *, without: str) -> Iterator[Violation]:
    """The violation if a queue that has pods would become a parent."""
    queue = tree.get(parent)
    usage = queue_tree.readable(queue.status.allocated if queue else None)
    pods = usage.get("pods", 0)
    if pods and set(tree.children(parent)) <= {without}:
        yield Violation(
            path="spec.parent",
            reason=f"queue {parent!r} has {counts.counted(pods, 'pod')}",
            expected="a parent without pods: let them finish, or choose another queue",
        )


def _height(name: str, tree: QueueTree) -> int:
    """The number of levels below a queue that is not in a cycle; 0 without children."""
    height, level = -1, {name}
    while level:
        height, level = height + 1, {child for each in level for child in tree.children(each)}
    return height


def _below(queue: Queue, tree: QueueTree, *, moves: bool) -> Iterator[Violation]:
    """Violations of the limits of ancestors by the queue and its descendants."""
    name = queue.metadata.name
    coming = tree.below(name) if moves else (name,)
    for resource in sorted({each for it in coming for each in tree.amounts(it, "capability")}):
        wanted, whose = _highest_below(name, resource, tree)
        if moves or whose == name:
            yield from _more_than_above(queue, resource, wanted, whose, tree)
    parent = tree.get(queue.spec.parent)
    if parent is not None:
        family = tree.children(queue.spec.parent)
        yield from _sums(family, parent, tree, "of all children of the parent")


def _more_than_above(
    queue: Queue, resource: str, wanted: int, whose: str, tree: QueueTree
) -> Iterator[Violation]:
    """The violation if ``wanted``, of the queue or its descendant ``whose``, exceeds the limit of
    the nearest ancestor that has one.
    """
    name = queue.metadata.name
    for above in tree.above(name):
        if above in (name, ROOT) or tree.get(above) is None:
            continue
        allowed = tree.amounts(above, "capability").get(resource, 0)
        if allowed > 0:
            if wanted > allowed:
                which = f" of queue {whose!r} below it" if whose != name else ""
                yield Violation(
                    path=f"spec.capability.{resource}",
                    reason=f"{units.text(resource, wanted)}{which} is more than queue {above!r} "
                    "may use",
                    expected=f"at most {units.text(resource, allowed)}",
                )
            return


def _above(queue: Queue, tree: QueueTree) -> Iterator[Violation]:
    """Violations of the queue's limits by its own children."""
    name = queue.metadata.name
    children = tree.children(name)
    for resource, allowed in tree.amounts(name, "capability").items():
        highest, whose = max(
            (_highest_below(child, resource, tree) for child in children), default=(0, "")
        )
        if highest > allowed:
            yield Violation(
                path=f"spec.capability.{resource}",
                reason=f"queue {whose!r} below it may use {units.text(resource, highest)}",
                expected=f"at least {units.text(resource, highest)}",
            )
    if children:
        yield from _sums(children, queue, tree, "of its children")


def _sums(
    children: Collection[str], parent: Queue, tree: QueueTree, whose: str
) -> Iterator[Violation]:
    fields: tuple[tuple[str, queue_tree.Field], ...] = (
        ("guarantee.resource", "guarantee"),
        ("deserved", "deserved"),
    )
    for path, field in fields:
        total: units.Amounts = {}
        for child in children:
            for name, value in tree.amounts(child, field).items():
                total[name] = total.get(name, 0) + value
        available = tree.amounts(parent.metadata.name, field)
        for name, wanted in total.items():
            if wanted > available.get(name, 0):
                yield Violation(
                    path=f"spec.{path}.{name}",
                    reason=f"the sum {whose} is {units.text(name, wanted)}, more than queue "
                    f"{parent.metadata.name!r} has",
                    expected=f"a sum of at most {units.text(name, available.get(name, 0))}",
                )


def _highest_below(name: str, resource: str, tree: QueueTree) -> tuple[int, str]:
    """The highest capability in this subtree (without cycles), and its queue. Below a queue with a
    value, no other values count.
    """
    own = tree.amounts(name, "capability").get(resource, 0)
    if own:
        return own, name
    return max(
        (_highest_below(child, resource, tree) for child in tree.children(name)),
        default=(0, name),
    )
