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
    configured: configuration.Configuration, cluster: cluster_objects.Cluster, find: FindPlugin
) -> session.Session:
    """A session over these objects with all plugins open; end it with ``Session.close``."""
    model, complaints = build_model(configured, cluster)
    opened = open_on_model(model, configured, cluster, find)
    opened.complaints[:0] = complaints
    return opened


def open_on_model(
    kept: cluster_model.ClusterModel,
    configured: configuration.Configuration,
    cluster: cluster_objects.Cluster,
    find: FindPlugin,
    *,
    seed: int = 0,
    decision_limit: int | None = None,
    calls: external_calls.ExternalCalls | None = None,
    timed: timing.Timed = timing.no_timing,
) -> session.Session:
    """A session on the cluster model; end it with ``Session.rollback``.

    ``cluster``: the time and measurements; its objects are not read. ``seed``, ``decision_limit``,
    ``calls`` and ``timed`` as in ``session.Session``. O(queues + pending jobs + changed objects),
    plus a few passes over the nodes.
    """
    with timed(timing.OPENING, ""):
        opened = session.Session(configured, kept, cluster, seed, decision_limit, calls, timed)
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
    reservations = reserved_nodes.of_cluster(opened.model.auxiliary, opened.nodes)
    limits, size = run_times.RunTimes(opened), len(opened.nodes)
    opened.reservations = rule.ReservationRule(reservations, opened.now, size, limits.of)
    opened.complaints += opened.reservations.complaints
    for at in opened.reservations.changes():
        opened.request_session_at(at)


def build_model(
    configured: configuration.Configuration, cluster: cluster_objects.Cluster
) -> tuple[cluster_model.ClusterModel, list[str]]:
    """A model of these objects, with a complaint for each duplicate."""
    model = cluster_model.ClusterModel(default_queue=configured.default_queue)
    complaints: list[str] = []
    for name, labels in cluster.namespace_labels.items():
        model.label_namespace(name, labels)
    for queue in _distinct(cluster.queues, complaints):
        model.put_queue(queue)
    for priority_class in _distinct(cluster.priority_classes, complaints):
        model.put_priority_class(priority_class)
    for node in _distinct(cluster.nodes, complaints):
        model.put_node(node)
    for field in auxiliary_objects.FIELDS.values():
        for each in _distinct(getattr(cluster, field), complaints):
            model.auxiliary.put(each)
    model.auxiliary.hardware = {each.node: each for each in cluster.hardware}
    for report in cluster.data_reports:
        model.auxiliary.data_copies.put(report.node, report)
    for loads in cluster.loads:
        model.auxiliary.put_usage(loads.node, loads)
    for group in _distinct(cluster.pod_groups, complaints):
        model.put_pod_group(group)
    pods = _distinct(cluster.pods, complaints)
    for pod in pods:
        model.select(pod)
    for pod in pods:
        model.put_pod(pod)
    return model, complaints


def _distinct(objects: Iterable[Found], complaints: list[str]) -> list[Found]:
    """Objects ordered by key; of duplicates, the newer object."""
    by_key: dict[str, Found] = {}
    for each in sorted(objects, key=lambda each: (each.metadata.key, each.metadata.version)):
        if each.metadata.key in by_key:
            complaints.append(
                f"{type(each).__name__} {each.metadata.key} exists twice; the newer one is used"
            )
        by_key[each.metadata.key] = each
    return list(by_key.values())
