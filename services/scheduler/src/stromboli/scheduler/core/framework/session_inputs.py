"""The inputs of a session besides the cache, and their form in the session's record.

With the record, and the log up to the offsets in it, the session can be repeated with the same
decisions (``replay``). Measurements are a table of all nodes; a record contains them only if no
earlier record does.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

import msgspec

from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.framework import external_calls, plugin_isolation
from stromboli.shared import decoding

DECISION_LIMIT = "allowance"
"""How many binds and evictions the in-flight limit allowed."""
EXTERNAL_CALLS = "conversation"
"""Responses to the plugins' external calls."""
MEASURED = "measured"
"""Measured usage of nodes."""
PLUGIN_FAILURES = "troubles"
"""Removed plugins and excluded jobs."""

_T = TypeVar("_T")


class SessionInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of one session besides the cache. ``decision_limit``: None if the in-flight limit
    decides. ``measured``: the latest measurements. ``ask``: makes the plugins' external calls.
    """

    decision_limit: int | None = None
    measured: cluster_objects.MeasuredUsage | None = None
    ask: external_calls.Ask | None = None


NO_INPUTS = SessionInputs()
"""No limit, no measurements, no external calls."""


class _Measured(msgspec.Struct, frozen=True, omit_defaults=True):
    at: datetime
    nodes: Mapping[str, cluster_objects.NodeUsage] | None = None


def encode_inputs(
    decision_limit: int,
    calls: external_calls.ExternalCalls,
    measured: cluster_objects.MeasuredUsage | None,
    plugin_failures: plugin_isolation.FailureHistory,
    known: datetime | None,
) -> dict[str, msgspec.Raw]:
    """The inputs in the form of the session's record. ``known``: the time of the measurements that
    an earlier record contains.
    """
    encoded = {DECISION_LIMIT: _raw(decision_limit)}
    if calls.record:
        encoded[EXTERNAL_CALLS] = _raw(calls.record)
    if measured is not None:
        nodes = None if measured.at == known else measured.nodes
        encoded[MEASURED] = _raw(_Measured(measured.at, nodes))
    if plugin_failures.out or plugin_failures.held:
        encoded[PLUGIN_FAILURES] = _raw([plugin_failures.out, plugin_failures.held])
    return encoded


def measured_at(kept: Mapping[str, msgspec.Raw]) -> datetime | None:
    """The time of the measurements in this record; None if it has none."""
    measured = _read(kept, MEASURED, _Measured)
    return None if measured is None or measured.nodes is None else measured.at


class RecordedInputs:
    """Reads records in order, because a record may refer to measurements in an earlier record."""

    def __init__(self) -> None:
        self._measured: cluster_objects.MeasuredUsage | None = None

    def inputs_for(
        self, kept: Mapping[str, msgspec.Raw]
    ) -> tuple[SessionInputs, plugin_isolation.FailureHistory]:
        """The inputs of the record's session, and the plugins that were left out of it.

        Raises LookupError if the measurements are in an earlier record that was not read.
        """
        calls = _read(kept, EXTERNAL_CALLS, list[external_calls.Run]) or []
        return SessionInputs(
            decision_limit=_read(kept, DECISION_LIMIT, int),
            measured=self._measurements(_read(kept, MEASURED, _Measured)),
            ask=external_calls.replay_responses(calls),
        ), _troubles(kept)

    def _measurements(self, measured: _Measured | None) -> cluster_objects.MeasuredUsage | None:
        if measured is None:
            return None
        if measured.nodes is not None:
            self._measured = cluster_objects.MeasuredUsage(measured.at, measured.nodes)
        if self._measured is None or self._measured.at != measured.at:
            raise LookupError(
                f"the measurements of {measured.at} are in an earlier record, which was not read"
            )
        return self._measured


def _troubles(kept: Mapping[str, msgspec.Raw]) -> plugin_isolation.FailureHistory:
    plugin_failures = plugin_isolation.FailureHistory()
    known = _read(
        kept,
        PLUGIN_FAILURES,
        tuple[dict[str, plugin_isolation.PluginFailure], dict[str, plugin_isolation.PluginFailure]],
    )
    if known is not None:
        plugin_failures.out, plugin_failures.held = known
    return plugin_failures


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value, order="deterministic"))


def _read(kept: Mapping[str, msgspec.Raw], name: str, form: type[_T]) -> _T | None:
    return decoding.from_json(kept[name], form) if name in kept else None
