"""What a session is told from outside, besides the cache, and how its record keeps it.

With the record and the log up to its offsets the session runs again and decides the same; see
``replay``. Measurements are a table of all nodes: a record holds them only if none before did.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

import msgspec

from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.framework import external_calls, plugin_isolation

DECISION_LIMIT = "allowance"
"""How many binds and evictions might be decided, as the controller's pace was measured."""
EXTERNAL_CALLS = "conversation"
"""What plugins asked the outside, answer by answer."""
MEASURED = "measured"
"""Measured use of nodes."""
PLUGIN_FAILURES = "troubles"
"""Plugins that were left out, and gangs held back for one."""

_T = TypeVar("_T")


class SessionInputs(msgspec.Struct, frozen=True, kw_only=True):
    """``allowance``: None for what the pace leaves. ``measured``: the newest there is. ``ask``: who
    answers what plugins ask."""

    decision_limit: int | None = None
    measured: cluster_objects.MeasuredUsage | None = None
    ask: external_calls.Ask | None = None


NO_INPUTS = SessionInputs()
"""Nobody says anything."""


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
    """What the record keeps. ``known``: of when the measurements are that a record holds."""
    found = {DECISION_LIMIT: _raw(decision_limit)}
    if calls.record:
        found[EXTERNAL_CALLS] = _raw(calls.record)
    if measured is not None:
        nodes = None if measured.at == known else measured.nodes
        found[MEASURED] = _raw(_Measured(measured.at, nodes))
    if plugin_failures.out or plugin_failures.held:
        found[PLUGIN_FAILURES] = _raw([plugin_failures.out, plugin_failures.held])
    return found


def measured_at(kept: Mapping[str, msgspec.Raw]) -> datetime | None:
    """Of when the measurements are that this record holds; None if it holds none."""
    found = _read(kept, MEASURED, _Measured)
    return None if found is None or found.nodes is None else found.at


class RecordedInputs:
    """Reads records in their order, since one may refer to measurements of one before."""

    def __init__(self) -> None:
        self._measured: cluster_objects.MeasuredUsage | None = None

    def told(
        self, kept: Mapping[str, msgspec.Raw]
    ) -> tuple[SessionInputs, plugin_isolation.FailureHistory]:
        """What the session of this record was told, and which plugins it went without.

        Raises LookupError if the measurements stand in an earlier record that was not read.
        """
        calls = _read(kept, EXTERNAL_CALLS, list[external_calls.Run]) or []
        return SessionInputs(
            decision_limit=_read(kept, DECISION_LIMIT, int),
            measured=self._measurements(_read(kept, MEASURED, _Measured)),
            ask=external_calls.replay_responses(calls),
        ), _troubles(kept)

    def _measurements(self, found: _Measured | None) -> cluster_objects.MeasuredUsage | None:
        if found is None:
            return None
        if found.nodes is not None:
            self._measured = cluster_objects.MeasuredUsage(found.at, found.nodes)
        if self._measured is None or self._measured.at != found.at:
            raise LookupError(f"the measurements of {found.at} stand in an earlier record")
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
    return msgspec.json.decode(kept[name], type=form) if name in kept else None
