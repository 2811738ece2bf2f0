"""Sessions over a few objects: tests name only the plugins and objects that matter to the rule."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from stromboli.scheduler.core import actions, plugins, simulate
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import config_reader, configuration
from stromboli.scheduler.core.framework import opening, session
from stromboli.shared import decoding
from stromboli.shared.api import core, meta, scheduling
from stromboli.shared.messages import data, node_topology, node_usage
from stromboli.testkit import builders

FIELDS: Mapping[type[msgspec.Struct], str] = {
    node_topology.TopologyObserved: "hardware",
    data.DataObserved: "data_reports",
    node_usage.UsageObserved: "loads",
    **{struct: field for field, struct in simulate.FIELDS.values()},
}
Tier = Sequence[Mapping[str, Any]]


def plugin(name: str, arguments: Mapping[str, Any] | None = None, **flags: bool) -> dict[str, Any]:
    """A plugin as a configuration has it; absent flags have their defaults."""
    return {"name": name, "arguments": arguments or {}, **flags}


def configured(*tiers: Tier, run: str = "allocate") -> configuration.Configuration:
    document = {"actions": run, "tiers": [{"plugins": list(tier)} for tier in tiers]}
    return config_reader.read_configuration(document, actions.NAMES, plugins.NAMES)


def given(
    objects: Sequence[msgspec.Struct],
    now: datetime = builders.NOON,
    memory: Mapping[str, str] | None = None,
) -> cluster_objects.Cluster:
    found: dict[str, list[msgspec.Struct]] = {}
    for each in objects:
        found.setdefault(FIELDS[type(each)], []).append(each)
    fields = {name: tuple(members) for name, members in found.items()}
    return decoding.convert({"now": now, "memory": memory or {}, **fields}, cluster_objects.Cluster)


def opened(
    *objects: msgspec.Struct,
    tier: Tier,
    now: datetime = builders.NOON,
    memory: Mapping[str, str] | None = None,
) -> session.Session:
    """An open session without decisions, with one tier of plugins."""
    return open_given(configured(tier), given(objects, now, memory))


def open_given(how: configuration.Configuration, what: cluster_objects.Cluster) -> session.Session:
    """An open session with everything given."""
    return opening.open_session(how, what, plugins.find)


def decided(
    *objects: meta.Object, tiers: Sequence[Tier], run: str = "allocate"
) -> simulate.Outcome:
    """The result of a whole session."""
    ssn = simulate.run(configured(*tiers, run=run), given(objects))
    return simulate.summarize("", ssn)


def queue(
    name: str,
    *,
    weight: int = 1,
    priority: int = 0,
    state: str = "Open",
    parent: str = "",
    capability: Mapping[str, core.Quantity] | None = None,
    deserved: Mapping[str, core.Quantity] | None = None,
    guarantee: Mapping[str, core.Quantity] | None = None,
    affinity: scheduling.QueueAffinity | None = None,
    dequeue: str = "",
    annotations: Mapping[str, str] | None = None,
) -> scheduling.Queue:
    """A queue with its limits."""
    return scheduling.Queue(
        metadata=builders.make_meta("queue", name, annotations=annotations),
        spec=scheduling.QueueSpec(
            weight=weight,
            priority=priority,
            parent=parent,
            capability=dict(capability) if capability else None,
            deserved=dict(deserved) if deserved else None,
            guarantee=scheduling.Guarantee(resource=dict(guarantee) if guarantee else None),
            affinity=affinity,
            dequeue_strategy=dequeue,
        ),
        status=scheduling.QueueStatus(state=state),
    )


def gang(
    name: str,
    queue_name: str,
    pods: int,
    *,
    node: str = "",
    min_member: int = 1,
    **pod: Any,
) -> list[meta.Object]:
    """A PodGroup and its pods ``name-0`` and on; ``node``: where they run; pending if empty."""
    phase = "Running" if node else "Pending"
    return [
        builders.make_pod_group(
            name, min_member, queue=queue_name, phase="Running" if node else "Inqueue"
        ),
        *(
            builders.make_pod(f"{name}-{at}", name, node=node, phase=phase, **pod)
            for at in range(pods)
        ),
    ]
