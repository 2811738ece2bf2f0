"""scheduling.stromboli.sh/v1alpha1 AdvanceReservation, a kind of Stromboli's own."""

from stromboli.shared.api.meta import Object, Part
from stromboli.shared.decoding import Instant

LEAVE, EVICT = "Leave", "Evict"
"""What happens to running pods at the start and at the end of a reservation."""


class AdvanceReservationSpec(Part, frozen=True, kw_only=True):
    """Nodes, a period, and the jobs that may use the nodes in it.

    The period ends at ``end_time`` or after ``duration``. The nodes are those of ``node_names``,
    those with all labels of ``node_selector``, or ``all_nodes``. Jobs of one of the users, of a
    member of one of the groups, in one of the namespaces or in one of the queues may use them;
    none may during ``maintenance``. ``lead_time``: the time before the start in which pods without
    a time limit are not placed on the nodes. ``at_start``, ``at_end``: what happens at the start to
    running pods of other jobs, and at the end to running pods of the reservation.
    """

    start_time: Instant | None = None
    end_time: Instant | None = None
    duration: str = ""
    maintenance: bool = False
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()
    node_selector: dict[str, str] | None = None
    all_nodes: bool = False
    lead_time: str = ""
    at_start: str = ""
    at_end: str = ""


class AdvanceReservation(Object, frozen=True, kw_only=True):
    """Nodes that are reserved for a period; cluster scoped."""

    spec: AdvanceReservationSpec = AdvanceReservationSpec()
