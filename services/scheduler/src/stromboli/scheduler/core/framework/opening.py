"""Opens a session on the cluster model, or on a model built from a cluster's objects."""

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from stromboli.scheduler.core.advance_reservations import reserved_nodes, rule
from stromboli.scheduler.core.cluster import auxiliary_objects, cluster_model, cluster_objects
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import (
    external_calls,
    interfaces,
    run_times,
    session,
    timing,
)
from stromboli.shared.api import meta

FindPlugin = Callable[[str, Collection[str]], interfaces.PluginFactory]
"""(name, plugins already open) -> factory of the plugin. Raises LookupError for an unknown
plugin.
"""
Found = TypeVar("Found", bound=meta.Object)


def open_session(
    configured: configuration.Configuration, given: cluster_objects.Cluster, find: FindPlugin
) -> session.Session:
    """A session over these objects with all plugins open; end it with ``Session.close``."""
    made, complaints = build_model(configured, given)
    opened = open_on_model(made, configured, given, find)
    opened.complaints[:0] = complaints
    return opened


def open_on_model(
    kept: cluster_model.ClusterModel,
    configured: configuration.Configuration,
    given: cluster_objects.Cluster,
    find: FindPlugin,
    *,
    seed: int = 0,
    decision_limit: int | None = None,
    calls: external_calls.ExternalCalls | None = None,
    timed: timing.Timed = timing.no_timing,
) -> session.Session:
    """A session on the cluster model; end it with ``Session.rollback``.

    ``given``: the time and measurements; its objects are not read. ``seed``, ``decision_limit``,
    ``calls`` and ``timed`` as in ``session.Session``. O(queues + pending jobs + a few passes over
    nodes) and what changed.
    """
    with timed(timing.OPENING, ""):
        opened = session.Session(configured, kept, given, seed, decision_limit, calls, timed)
        _open_reservations(opened)
        try:
            opened.open_plugins(find)
        except BaseException:
            kept.changed.update(opened.waiting)  # the next attempt needs these jobs, too
            raise
    return opened


def _open_reservations(opened: session.Session) -> None:
    """Set the rule of AdvanceReservations, and request sessions for the times at which its results
    change."""
    found = reserved_nodes.of_cluster(opened.world.auxiliary, opened.nodes)
    limits, size = run_times.RunTimes(opened), len(opened.nodes)
    opened.reservations = rule.ReservationRule(found, opened.now, size, limits.of)
    opened.complaints += opened.reservations.complaints
    for at in opened.reservations.changes():
        opened.request_session_at(at)


def build_model(
    configured: configuration.Configuration, given: cluster_objects.Cluster
) -> tuple[cluster_model.ClusterModel, list[str]]:
    """A model of these objects, with a complaint for each duplicate."""
    made = cluster_model.ClusterModel(default_queue=configured.default_queue)
    complaints: list[str] = []
    for name, labels in given.namespace_labels.items():
        made.label_namespace(name, labels)
    for queue in _distinct(given.queues, complaints):
        made.put_queue(queue)
    for priority_class in _distinct(given.priority_classes, complaints):
        made.put_priority_class(priority_class)
    for node in _distinct(given.nodes, complaints):
        made.put_node(node)
    for field in auxiliary_objects.FIELDS.values():
        for each in _distinct(getattr(given, field), complaints):
            made.auxiliary.put(each)
    made.auxiliary.hardware = {each.node: each for each in given.hardware}
    for report in given.data_reports:
        made.auxiliary.data_copies.put(report.node, report)
    for loads in given.loads:
        made.auxiliary.put_usage(loads.node, loads)
    for group in _distinct(given.pod_groups, complaints):
        made.put_pod_group(group)
    pods = _distinct(given.pods, complaints)
    for pod in pods:
        made.select(pod)
    for pod in pods:
        made.put_pod(pod)
    return made, complaints


def _distinct(objects: Iterable[Found], complaints: list[str]) -> list[Found]:
    """Objects ordered by key; of duplicates, the newer object."""
    found: dict[str, Found] = {}
    for each in sorted(objects, key=lambda each: (each.metadata.key, each.metadata.version)):
        if each.metadata.key in found:
            complaints.append(f"{type(each).__name__} {each.metadata.key} exists twice")
        found[each.metadata.key] = each
    return list(found.values())
