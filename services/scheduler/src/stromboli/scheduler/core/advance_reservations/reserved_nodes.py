"""The reservations of a cluster with the nodes that each covers."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
import numpy as np

from stromboli.scheduler.core.cluster import auxiliary_objects
from stromboli.scheduler.core.model import node_attributes, nodes
from stromboli.shared.api import reservation
from stromboli.shared.jobspec import reservations


class ReservedNodes(msgspec.Struct, frozen=True, eq=False):
    """A valid reservation. ``mask``: the nodes that it covers."""

    name: str
    spec: reservation.AdvanceReservationSpec
    start: datetime
    end: datetime
    lead_time: timedelta
    mask: node_attributes.Mask

    @property
    def text(self) -> str:
        """The reservation and its period, as a part of a reason."""
        what = "under maintenance" if self.spec.maintenance else "reserved"
        return f"{what} by {self.name} from {time_text(self.start)} to {time_text(self.end)}"


class Reservations(msgspec.Struct, frozen=True):
    """All reservations by name, in the order of names. ``invalid``: name -> what is wrong."""

    valid: Mapping[str, ReservedNodes]
    invalid: Mapping[str, str]


def of_cluster(around: auxiliary_objects.AuxiliaryObjects, table: nodes.Nodes) -> Reservations:
    """The reservations of a cluster; cached until one of them, or a label of a node, changes."""
    objects = around.listed("advance_reservations")
    unreadable = around.unreadable["advance_reservations"]
    parts = (objects, len(unreadable), table.names, table.labelled.placement_version)
    return around.cached("advance_reservations", parts, lambda: read(objects, unreadable, table))


def read(
    advance_reservations: Sequence[reservation.AdvanceReservation],
    unreadable: Mapping[str, str],
    table: nodes.Nodes,
) -> Reservations:
    """The reservations of a cluster. O(reservations x nodes).

    An invalid reservation reserves nothing: neither its nodes nor its period are certain.
    """
    valid, invalid = {}, dict(unreadable)
    for each in advance_reservations:
        try:
            period = reservations.period(each.spec)
            lead_time = reservations.lead_time(each.spec)
        except ValueError as error:
            invalid[each.metadata.name] = str(error)
            continue
        valid[each.metadata.name] = ReservedNodes(
            each.metadata.name,
            each.spec,
            period.start,
            period.end,
            lead_time,
            _covered(each.spec, table),
        )
    return Reservations(valid, invalid)


def time_text(moment: datetime) -> str:
    """The time as text for a reason, in the time zone that the user wrote."""
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _covered(spec: reservation.AdvanceReservationSpec, table: nodes.Nodes) -> node_attributes.Mask:
    if spec.all_nodes:
        return np.ones(len(table), np.bool_)
    mask: node_attributes.Mask = np.zeros(len(table), np.bool_)
    if spec.node_selector:
        mask |= True
        for key, value in spec.node_selector.items():
            codes, known = table.labelled.label_codes(key)
            mask &= codes == known[value] if value in known else False
    for name in spec.node_names:
        if name in table.rows:
            mask[table.rows[name]] = True
    return mask
