"""What is wrong with a queue. Behaviour: admission reference 6."""

from collections.abc import Iterator, Mapping

from stromboli.shared import keys, units
from stromboli.shared.admission import naming
from stromboli.shared.api.scheduling import Queue
from stromboli.shared.messages.admission import Violation

ROOT = "root"
PROTECTED = (ROOT, "default")
MAX_DEPTH = 5
"""Levels of queues below the root, unless settings say otherwise: Volcano's limit, and a guard
against cycles."""
Queues = Mapping[str, Queue]
Quantities = Mapping[str, str | int | float]


def created(queue: Queue, queues: Queues, max_depth: int) -> Iterator[Violation]:
    """Everything wrong with a new queue, ``queues`` being all others by name."""
    if not naming.is_subdomain(queue.metadata.name):
        yield Violation(
            path="metadata.name",
            reason=f"{queue.metadata.name!r} is not a queue's name",
            expected=naming.SUBDOMAIN_EXPECTED,
        )
    yield from _of_itself(queue, queues)
    if queue.metadata.name != ROOT:
        yield from _of_place(queue, queues, max_depth, moves=True)


def updated(queue: Queue, before: Queue, queues: Queues, max_depth: int) -> Iterator[Violation]:
    """Everything wrong with a change of a queue."""
    yield from _of_itself(queue, queues, before)
    if queue.metadata.name == ROOT:
        for name in ("capability", "deserved", "guarantee"):
            if getattr(queue.spec, name) != getattr(before.spec, name):
                yield Violation(
                    path=f"spec.{name}",
                    reason="the root's resources are the cluster's",
                    expected="set them on queues below the root",
                )
        return
    same_place = queue.spec.parent == before.spec.parent
    same_amounts = all(
        getattr(queue.spec, name) == getattr(before.spec, name)
        for name in ("capability", "deserved", "guarantee")
    )
    if not (same_place and same_amounts):
        yield from _of_place(queue, queues, max_depth, moves=not same_place)


def deleted(name: str, queues: Queues, *, with_pods: bool = True) -> Iterator[Violation]:
    """What keeps a queue from being deleted; ``with_pods``: it may go while pods run in it."""
    if not with_pods and name in queues:
        pods = _amounts(queues[name].status.allocated).get("pods", 0)
        if pods:
            yield Violation(
                path="metadata.name",
                reason=f"queue {name!r} has {pods} pods",
                expected="let them finish first, or close it: "
                f"strom queue operate {name} --action close",
            )
    if name in PROTECTED:
        yield Violation(
            path="metadata.name", reason=f"queue {name!r} always exists", expected="another queue"
        )
    children = sorted(q.metadata.name for q in queues.values() if q.spec.parent == name)
    if children:
        yield Violation(
            path="metadata.name",
            reason=f"queue {name!r} has the children {', '.join(children)}",
            expected="delete these first",
        )


def takes_work(name: str, queues: Queues) -> Iterator[Violation]:
    """What keeps jobs and PodGroups out of the queue ``name``."""
    queue = queues.get(name)
    # The protected ones are made by the controller where they are missing, as at the first start.
    if queue is None and name not in PROTECTED:
        yield Violation(
            path="spec.queue",
            reason=f"queue {name!r} does not exist",
            expected=f"create it first: strom queue create {name}",
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
            reason=f"queue {name!r} takes no jobs: {reason}",
            expected="a queue without children",
        )


def _amounts(quantities: Quantities | None) -> units.Amounts:
    """The readable amounts; unreadable ones are said by ``_of_itself``."""
    result = {}
    for name, text in (quantities or {}).items():
        try:
            result[name] = units.amount(name, text)
        except ValueError:
            continue
    return result


def _of_itself(queue: Queue, queues: Queues, before: Queue | None = None) -> Iterator[Violation]:
    spec = queue.spec
    listed = (
        ("spec.capability", spec.capability),
        ("spec.deserved", spec.deserved),
        ("spec.guarantee.resource", spec.guarantee.resource),
    )
    for path, quantities in listed:
        for name, text in (quantities or {}).items():
            try:
                value = units.quantity(text)
            except ValueError as error:
                yield Violation(path=f"{path}.{name}", reason=str(error))
                continue
            if value < 0:
                yield Violation(
                    path=f"{path}.{name}", reason=f"{text} is negative", expected="0 or more"
                )
            elif naming.is_counted(name) and value % 1:
                yield Violation(
                    path=f"{path}.{name}", reason=f"{text} is not whole", expected="a whole number"
                )
    capability, deserved = _amounts(spec.capability), _amounts(spec.deserved)
    for name, guaranteed in _amounts(spec.guarantee.resource).items():
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
            reason=f"{queue.status.state!r} cannot be asked for",
            expected="Open or Closed",
        )
    yield from _of_hierarchy(queue, queues)


def _of_hierarchy(queue: Queue, queues: Queues) -> Iterator[Violation]:
    hierarchy = queue.metadata.annotation(keys.HIERARCHY)
    weights = queue.metadata.annotation(keys.HIERARCHY_WEIGHTS)
    if not hierarchy and not weights:
        return
    path = f"metadata.annotations[{keys.HIERARCHY_WEIGHTS}]"
    parts = (weights or "").split("/")
    if len((hierarchy or "").split("/")) != len(parts):
        yield Violation(
            path=path,
            reason=f"{weights!r} has another length than {hierarchy!r}",
            expected="one weight for each part of the hierarchy",
        )
    for part in parts:
        if not _is_positive(part):
            yield Violation(path=path, reason=f"{part!r} is no weight", expected="numbers above 0")
    for other in queues.values():
        theirs = other.metadata.annotation(keys.HIERARCHY) or ""
        if other.metadata.name != queue.metadata.name and theirs.startswith(f"{hierarchy}/"):
            yield Violation(
                path=f"metadata.annotations[{keys.HIERARCHY}]",
                reason=f"{hierarchy!r} lies above the queue {other.metadata.name!r} ({theirs})",
                expected="a path that no other queue lies below",
            )


def _is_positive(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


def _of_place(queue: Queue, queues: Queues, max_depth: int, *, moves: bool) -> Iterator[Violation]:
    name, parent = queue.metadata.name, queue.spec.parent
    if parent not in ("", ROOT):
        if parent == name:
            yield Violation(path="spec.parent", reason="is the queue itself", expected="another")
            return
        if parent not in queues:
            yield Violation(
                path="spec.parent",
                reason=f"queue {parent!r} does not exist",
                expected=f"create it first: strom queue create {parent}",
            )
            return
        if _lies_below(parent, name, queues):
            yield Violation(
                path="spec.parent",
                reason=f"queue {parent!r} lies below {name!r} itself",
                expected="a queue that does not",
            )
            return
        if moves and (fault := _too_deep(name, parent, queues, max_depth)):
            yield fault
            return
        yield from _becomes_parent(queues[parent], queues, without=name)
        yield from _below(queue, queues, max_depth)
    yield from _above(queue, queues)


def _too_deep(name: str, parent: str, queues: Queues, max_depth: int) -> Violation | None:
    """Whether the queue, or what hangs on it, would be deeper than queues may be."""
    above, below = _depth(parent, queues, max_depth), _height(name, queues, max_depth)
    if above + 1 + below <= max_depth:
        return None
    brings = f" with the {below} levels below it" if below else ""
    return Violation(
        path="spec.parent",
        reason=f"below {parent!r} the queue{brings} would be deeper than {max_depth}",
        expected=f"at most {max_depth} levels, without a cycle",
    )


def _becomes_parent(parent: Queue, queues: Queues, *, without: str) -> Iterator[Violation]:
    """A queue that runs pods of its own cannot become one that only divides."""
    pods = _amounts(parent.status.allocated).get("pods", 0)
    if pods and not _children(parent.metadata.name, queues, without=without):
        yield Violation(
            path="spec.parent",
            reason=f"queue {parent.metadata.name!r} has {pods} pods of its own",
            expected="a parent without pods: let them finish, or choose another queue",
        )


def _lies_below(name: str, above: str, queues: Queues) -> bool:
    """Whether ``above`` is among the ancestors of ``name``; it need not be in ``queues``."""
    seen: set[str] = set()
    while name in queues and name not in seen:
        seen.add(name)
        name = queues[name].spec.parent
        if name == above:
            return True
    return False


def _depth(name: str, queues: Queues, limit: int) -> int:
    """Levels from the root's children (1) down to ``name``; stops beyond ``limit`` (a cycle)."""
    depth = 1
    while (parent := queues[name].spec.parent) not in ("", ROOT) and parent in queues:
        name, depth = parent, depth + 1
        if depth > limit:
            break
    return depth


def _height(name: str, queues: Queues, limit: int) -> int:
    """Levels below a queue, 0 without children; stops at ``limit`` (a cycle)."""
    height, level = 0, {name}
    while height < limit:
        level = {each.metadata.name for each in queues.values() if each.spec.parent in level}
        if not level:
            break
        height += 1
    return height


def _below(queue: Queue, queues: Queues, max_depth: int) -> Iterator[Violation]:
    """What the ancestors allow."""
    for name, wanted in _amounts(queue.spec.capability).items():
        ancestor = queues.get(queue.spec.parent)
        for _ in range(max_depth):
            if ancestor is None or ancestor.metadata.name == ROOT:
                break
            allowed = _amounts(ancestor.spec.capability).get(name, 0)
            if allowed > 0:
                if wanted > allowed:
                    yield Violation(
                        path=f"spec.capability.{name}",
                        reason=f"{units.text(name, wanted)} is more than queue "
                        f"{ancestor.metadata.name!r} may use",
                        expected=f"at most {units.text(name, allowed)}",
                    )
                break
            ancestor = queues.get(ancestor.spec.parent)
    parent = queues[queue.spec.parent]
    family = [*_children(queue.spec.parent, queues, without=queue.metadata.name), queue]
    yield from _sums(family, parent, "of all children of the parent")


def _above(queue: Queue, queues: Queues) -> Iterator[Violation]:
    """What the queue's own children have already."""
    children = _children(queue.metadata.name, queues, without="")
    for name, allowed in _amounts(queue.spec.capability).items():
        highest = max((_highest_below(child, name, queues) for child in children), default=0)
        if highest > allowed:
            yield Violation(
                path=f"spec.capability.{name}",
                reason=f"a queue below may use {units.text(name, highest)}",
                expected=f"at least {units.text(name, highest)}",
            )
    if children:
        yield from _sums(children, queue, "of its children")


def _sums(children: list[Queue], parent: Queue, whose: str) -> Iterator[Violation]:
    for field, amounts_of in (("guarantee.resource", _guarantee), ("deserved", _deserved)):
        total: units.Amounts = {}
        for child in children:
            total = units.add(total, amounts_of(child))
        available = amounts_of(parent)
        for name, wanted in total.items():
            if wanted > available.get(name, 0):
                yield Violation(
                    path=f"spec.{field}.{name}",
                    reason=f"the sum {whose} is {units.text(name, wanted)}, more than queue "
                    f"{parent.metadata.name!r} has",
                    expected=f"in all at most {units.text(name, available.get(name, 0))}",
                )


def _guarantee(queue: Queue) -> units.Amounts:
    return _amounts(queue.spec.guarantee.resource)


def _deserved(queue: Queue) -> units.Amounts:
    return _amounts(queue.spec.deserved)


def _children(name: str, queues: Queues, *, without: str) -> list[Queue]:
    return [q for q in queues.values() if q.spec.parent == name and q.metadata.name != without]


def _highest_below(queue: Queue, resource: str, queues: Queues) -> int:
    """The highest capability in this subtree; a queue's own value hides what is below it."""
    own = _amounts(queue.spec.capability).get(resource, 0)
    if own:
        return own
    return max(
        (
            _highest_below(child, resource, queues)
            for child in _children(queue.metadata.name, queues, without=queue.metadata.name)
        ),
        default=0,
    )
