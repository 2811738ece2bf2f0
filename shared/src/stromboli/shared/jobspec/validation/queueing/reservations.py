"""Validation of AdvanceReservations, and of jobs that name one."""

from collections.abc import Iterable, Iterator, Mapping

from stromboli.shared import keys
from stromboli.shared.api import core, meta
from stromboli.shared.api.reservation import AdvanceReservation, AdvanceReservationSpec
from stromboli.shared.jobspec import reservations
from stromboli.shared.jobspec.validation.queueing import permissions
from stromboli.shared.messages.admission import Violation

PATH = f"metadata.annotations[{keys.RESERVATION}]"
NODES_IN_MESSAGE = 3
"""Number of nodes that a message names; further ones are counted."""


def violations(
    reservation: AdvanceReservation,
    others: Mapping[str, AdvanceReservation],
    nodes: Iterable[core.Node],
) -> Iterator[Violation]:
    """All violations beyond the schema. ``others``: all reservations by name, with or without this
    one. O(reservations x nodes)."""
    spec = reservation.spec
    own_violations = [*_of_period(spec), *_of_principals(spec), *_of_nodes(spec)]
    yield from own_violations
    if not own_violations and not spec.maintenance:
        rest = (each for name, each in sorted(others.items()) if name != reservation.metadata.name)
        yield from _overlaps(spec, rest, list(nodes))


def _of_period(spec: AdvanceReservationSpec) -> Iterator[Violation]:
    try:
        reservations.period(spec)
    except ValueError as error:
        path = "spec.duration" if spec.duration else "spec.endTime"
        expected = "startTime, and a later endTime or a duration"
        yield Violation(path=path, reason=str(error), expected=expected)
    try:
        reservations.lead_time(spec)
    except ValueError as error:
        yield Violation(path="spec.leadTime", reason=str(error), expected="a duration such as 24h")


def _of_principals(spec: AdvanceReservationSpec) -> Iterator[Violation]:
    has_any = bool(spec.users or spec.groups or spec.namespaces or spec.queues)
    if has_any == spec.maintenance:
        yield Violation(
            path="spec.maintenance",
            reason="is set together with users, groups, namespaces or queues"
            if has_any
            else "no job may use the nodes",
            expected="either maintenance, or users, groups, namespaces or queues",
        )


def _of_nodes(spec: AdvanceReservationSpec) -> Iterator[Violation]:
    ways = (bool(spec.node_names), bool(spec.node_selector), spec.all_nodes)
    if sum(ways) != 1:
        yield Violation(
            path="spec.nodeNames",
            reason="several ways to choose nodes" if any(ways) else "no nodes",
            expected="one of nodeNames, nodeSelector and allNodes",
        )


def _overlaps(
    spec: AdvanceReservationSpec, others: Iterable[AdvanceReservation], nodes: list[core.Node]
) -> Iterator[Violation]:
    """A violation for each other reservation of the same node at the same time. Maintenance may
    overlap others, as with Slurm's flag MAINT."""
    period, own = reservations.period(spec), covered(spec, nodes)
    for other in others:
        try:
            is_apart = not period.overlaps(reservations.period(other.spec))
        except ValueError:
            continue
        shared = [] if is_apart else sorted(own & covered(other.spec, nodes))
        if shared:
            more = f" and {len(shared) - NODES_IN_MESSAGE} more" * (len(shared) > NODES_IN_MESSAGE)
            named = ", ".join(shared[:NODES_IN_MESSAGE]) + more
            yield Violation(
                path="spec.startTime",
                reason=f"overlaps AdvanceReservation {other.metadata.name} on {named}",
                expected="another period or other nodes",
            )


def covered(spec: AdvanceReservationSpec, nodes: Iterable[core.Node]) -> set[str]:
    """The names of the reserved nodes, including nodes that do not exist."""
    there = (each.metadata for each in nodes)
    return {*spec.node_names} | {
        each.name for each in there if reservations.covers(spec, each.name, each.labels)
    }


def warnings(reservation: AdvanceReservation, nodes: Iterable[core.Node]) -> Iterator[str]:
    """Warnings about nodes that do not exist, which are probably mistakes."""
    known = {each.metadata.name for each in nodes}
    unknown = sorted({*reservation.spec.node_names} - known)
    if unknown:
        yield f"spec.nodeNames: there is no node {', '.join(unknown)}"
    if reservation.spec.node_selector and not covered(reservation.spec, nodes):
        yield "spec.nodeSelector: no node has these labels now"


def of_job(
    metadata: meta.ObjectMeta,
    queue: str,
    known: Mapping[str, AdvanceReservation],
    submitter: permissions.Submitter | None,
) -> Iterator[Violation]:
    """The violation if a job names a reservation that its submitter may not use."""
    name = metadata.annotation(keys.RESERVATION)
    reservation = known.get(name) if name else None
    if reservation is None or submitter is None:
        return
    if not reservations.may_use(
        reservation.spec,
        user=submitter.name,
        groups=submitter.groups,
        namespace=metadata.namespace,
        queue=queue,
    ):
        yield Violation(
            path=PATH,
            reason=f"AdvanceReservation {name} is not open to user {submitter.name!r} in namespace "
            f"{metadata.namespace!r} and queue {queue!r}",
            expected="leave it out, or ask the administrator of the reservation",
        )


def warnings_of_job(
    metadata: meta.ObjectMeta, known: Mapping[str, AdvanceReservation]
) -> Iterator[str]:
    """The warning about a reservation that does not exist; it may be created later."""
    name = metadata.annotation(keys.RESERVATION)
    if name and name not in known:
        yield f"{PATH}: AdvanceReservation {name} does not exist; the job waits for it"
