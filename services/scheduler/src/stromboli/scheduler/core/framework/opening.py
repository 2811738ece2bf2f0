"""Opening a session: the model is built from a cluster's objects.

An object that cannot be read never stops the others: it is left out and complained of, and where
it might hold something of a node, nothing is placed on that node.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from stromboli.scheduler.core import shapes
from stromboli.scheduler.core.framework import (
    classes,
    cluster,
    configuration,
    jobs,
    model,
    nodes,
    session,
)
from stromboli.shared.api import core, meta, scheduling

FindPlugin = Callable[
    [str, Collection[str]], Callable[[configuration.PluginOptions], session.Plugin]
]
"""(name, plugins already open) -> what makes the plugin; LookupError if it cannot be had."""
Found = TypeVar("Found", bound=meta.Object)


def open_session(
    configured: configuration.Configuration, given: cluster.Cluster, find: FindPlugin
) -> session.Session:
    """A session with all plugins open; close it with ``Session.close``."""
    complaints: list[str] = []
    resources = shapes.Resources()
    queues = _queues(_distinct(given.queues, complaints), complaints)
    for queue in queues.values():
        for amounts in (queue.capability, queue.deserved, queue.guarantee):
            resources.amounts(amounts)
    pods = _distinct(given.pods, complaints)
    known = _classes(pods, resources, complaints)
    groups = _readable_groups(_distinct(given.pod_groups, complaints), resources, complaints)
    table = nodes.Nodes(resources, _distinct(given.nodes, complaints))
    complaints.extend(f"node {name}: {why}" for name, why in table.labelled.excluded.items())
    priorities = _distinct(given.priority_classes, complaints)
    found = {
        key: jobs.job(group, resources, priorities, configured)
        for key, group in groups.items()
        if (group.spec.queue or configured.default_queue) in queues
    }
    for key, pod in pods.items():
        _place(pod, known.get(key), found, table)
    opened = session.Session(configured, given, resources, table, found, queues)
    opened.complaints.extend(complaints)
    opened.open_plugins(find)
    return opened


def _distinct(objects: Iterable[Found], complaints: list[str]) -> dict[str, Found]:
    """By key, in the order of keys. Of two with one name the newer stands."""
    found: dict[str, Found] = {}
    for each in sorted(objects, key=lambda each: (each.metadata.key, each.metadata.version)):
        if each.metadata.key in found:
            complaints.append(f"{type(each).__name__} {each.metadata.key} is there twice")
        found[each.metadata.key] = each
    return found


def _queues(given: Mapping[str, scheduling.Queue], complaints: list[str]) -> dict[str, model.Queue]:
    found = {}
    for name, queue in given.items():
        try:
            found[name] = jobs.queue(queue)
        except ValueError as error:
            complaints.append(str(error))
    return found


def _classes(
    pods: Mapping[str, core.Pod], resources: shapes.Resources, complaints: list[str]
) -> dict[str, model.TaskClass]:
    interned = classes.Classes(resources, pods.values())
    found = {}
    for key, pod in pods.items():
        try:
            found[key] = interned.of(pod)
        except ValueError as error:
            complaints.append(f"pod {key}: {error}")
    return found


def _readable_groups(
    groups: Mapping[str, scheduling.PodGroup],
    resources: shapes.Resources,
    complaints: list[str],
) -> dict[str, scheduling.PodGroup]:
    readable = {}
    for key, group in groups.items():
        try:
            resources.amounts(jobs.minimum(group) or {})
        except ValueError as error:
            complaints.append(str(error))
        else:
            readable[key] = group
    return readable


def _place(
    pod: core.Pod,
    task_class: model.TaskClass | None,
    found: Mapping[str, model.Job],
    table: nodes.Nodes,
) -> None:
    row = table.rows.get(pod.spec.node_name)
    if task_class is None:
        if row is not None and jobs.status(pod) not in model.COMPLETED:
            table.labelled.block(pod.spec.node_name)
        return
    task = jobs.task(pod, task_class, table.resources)
    if row is not None and task.status in model.ON_NODE:
        table.add((task,), (row,))
    job = found.get(task.job)
    if job is not None:
        jobs.join(job, task)
