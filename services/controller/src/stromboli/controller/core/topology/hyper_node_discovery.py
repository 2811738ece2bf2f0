"""Creates, updates and deletes HyperNodes from the sources of the network topology, as in Volcano.

HyperNodes of a source have its name as a label, and only HyperNodes with this label are changed.
Names are derived from the network element, so that an element keeps its object. Nothing is deleted
on the basis of an incomplete cache: deletions wait until nodes and HyperNodes are synced, and a
HyperNode with an unreadable node is kept.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from stromboli.controller.core import commands, manifests
from stromboli.controller.core.store import controller_cache, topology_sources
from stromboli.shared.api import kinds, topology

SOURCE = "volcano.sh/network-topology-source"
"""Label of a HyperNode: the source from which it was created."""
NEEDED = (kinds.NODES, kinds.HYPER_NODES)
LOOK_AGAIN = timedelta(seconds=1)
"""Interval of reconciles while nodes or HyperNodes are not synced."""


def reconcile(cache: controller_cache.ControllerCache, source: str, now: datetime) -> commands.Plan:
    """Update the HyperNodes of a source; nothing if there is no such source."""
    topology_source = cache.discovery.get(source)
    if topology_source is None or not _is_whole(cache):
        return ()
    wanted = {it.name: it for it in topology_source.wanted(cache.topology_index.labels)}
    unreadable = cache.unreadable(kinds.NODES)
    changed: list[commands.Command] = []
    gone: list[commands.Command] = []
    for hyper_node in sorted(cache.objects(kinds.HYPER_NODES), key=lambda it: it.metadata.name):
        name = hyper_node.metadata.name
        request = wanted.pop(name, None)
        if cache.is_terminating(hyper_node):
            continue
        if hyper_node.metadata.label(SOURCE) != source:
            if request is not None:
                changed.append(_taken(hyper_node, source, now))
        elif _holds(hyper_node, unreadable):
            continue
        elif request is None:
            gone.append(_delete(hyper_node))
        elif request.spec() != hyper_node.spec:
            changed.append(_patch(hyper_node, request))
    unreadable_names = cache.unreadable(kinds.HYPER_NODES)
    changed += [
        _create(request, source) for name, request in wanted.items() if name not in unreadable_names
    ]
    return tuple(tuple(stage) for stage in (changed, gone) if stage)


def due(cache: controller_cache.ControllerCache, source: str, now: datetime) -> datetime | None:
    """When to reconcile the source again: repeatedly until all kinds are synced, since the end of a
    sync triggers no reconcile."""
    if source not in cache.discovery or _is_whole(cache):
        return None
    return now + LOOK_AGAIN


def _is_whole(cache: controller_cache.ControllerCache) -> bool:
    return cache.sync.is_whole(NEEDED)


def _holds(hyper_node: topology.HyperNode, nodes: Collection[str]) -> bool:
    exact = (member.selector.exact_match for member in hyper_node.spec.members)
    return any(it is not None and it.name in nodes for it in exact)


def _create(request: topology_sources.DesiredHyperNode, source: str) -> commands.Create:
    body = {
        "apiVersion": kinds.HYPER_NODES.api_version,
        "kind": kinds.HYPER_NODES.kind,
        "metadata": {"name": request.name, "labels": {SOURCE: source}},
        "spec": request.spec(),
    }
    return commands.Create(
        kind=kinds.HYPER_NODES, namespace="", name=request.name, body=manifests.encode(body)
    )


def _patch(
    hyper_node: topology.HyperNode, request: topology_sources.DesiredHyperNode
) -> commands.Patch:
    changes = {
        "tier": request.tier,
        "tierName": request.tier_name or None,
        "members": request.spec().members,
    }
    return manifests.merge(kinds.HYPER_NODES, hyper_node, spec=changes)


def _delete(hyper_node: topology.HyperNode) -> commands.Delete:
    return commands.Delete(
        kind=kinds.HYPER_NODES,
        namespace="",
        name=hyper_node.metadata.name,
        uid=hyper_node.metadata.uid,
    )


def _taken(hyper_node: topology.HyperNode, source: str, now: datetime) -> commands.Command:
    text = (
        f"the source {source} would create a HyperNode of this name; this HyperNode is left "
        f"unchanged, because it is not labelled {SOURCE}={source}"
    )
    return commands.event_about(kinds.HYPER_NODES, hyper_node, "Warning", "NameTaken", text, now)
