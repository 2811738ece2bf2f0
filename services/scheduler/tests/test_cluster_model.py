"""The cluster model as objects change: it decides as one built from scratch, and sessions roll
back.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import default_sessions, sessions
from stromboli.scheduler.core import plugins, simulate
from stromboli.scheduler.core.cluster import cluster_model, cluster_objects
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import opening, session
from stromboli.scheduler.core.model import entities, job_builder, resource_vectors
from stromboli.shared import keys
from stromboli.shared.api import core, meta, scheduling
from stromboli.testkit import builders
from stromboli.testkit.oracle import scheduler
from stromboli.testkit.strategies import depth, scarce_clusters

thorough = depth.examples(60)
NOW = cluster_objects.Cluster(now=builders.NOON + timedelta(minutes=1))
Tier = sessions.Tier


def tier(*names: str) -> Tier:
    return [sessions.plugin(name) for name in names]


CONFIGURATIONS = (
    sessions.configured(
        tier("priority", "gang", "conformance"),
        tier("overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack"),
        run="enqueue, allocate, backfill",
    ),
    sessions.configured(
        tier("priority", "gang", "conformance"),
        tier("drf", "predicates", "proportion", "nodeorder"),
        run="enqueue, allocate, preempt, reclaim, backfill",
    ),
    sessions.configured(
        tier("priority", "gang"),
        [
            sessions.plugin("capacity", enableHierarchy=True),
            *tier("sla", "predicates", "nodeorder"),
        ],
        run="enqueue, allocate, gangpreempt, gangreclaim, backfill, shuffle",
    ),
)


# What happens --------------------------------------------------------------------------------

NEAR = core.PodAffinityTerm(
    topology_key="zone",
    label_selector=core.LabelSelector(match_labels={"app": "a"}),
)
REQUIREMENT = core.WeightedPodAffinityTerm(weight=5, pod_affinity_term=NEAR)
DECORATIONS: tuple[Mapping[str, Any], ...] = (
    {},
    {},
    {
        "affinity": core.Affinity(
            pod_anti_affinity=core.PodAffinity(
                required_during_scheduling_ignored_during_execution=(NEAR,)
            )
        )
    },
    {
        "affinity": core.Affinity(
            pod_affinity=core.PodAffinity(
                preferred_during_scheduling_ignored_during_execution=(REQUIREMENT,)
            )
        )
    },
    {
        "topology_spread_constraints": (
            core.TopologySpreadConstraint(
                topology_key="zone",
                max_skew=1,
                when_unsatisfiable="DoNotSchedule",
                label_selector=core.LabelSelector(match_labels={"app": "a"}),
            ),
        )
    },
    {"containers": (core.Container(name="c", ports=(core.ContainerPort(host_port=80),)),)},
    {
        "containers": (
            core.Container(
                name="c",
                resources=core.ResourceRequirements(requests={"cpu": "1", "example.com/x": "1"}),
            ),
        )
    },
    {
        "containers": (
            core.Container(
                name="c", resources=core.ResourceRequirements(requests={"example.com/y": "1"})
            ),
        )
    },
    {
        "containers": (
            core.Container(name="c", resources=core.ResourceRequirements(requests={"cpu": "much"})),
        )
    },
)


def decorated(pod: core.Pod, chance: random.Random) -> core.Pod:
    """The pod with a label, and possibly with a property that only few pods have."""
    metadata = msgspec.structs.replace(
        pod.metadata, labels={**(pod.metadata.labels or {}), "app": chance.choice("ab")}
    )
    spec = msgspec.structs.replace(pod.spec, **chance.choice(DECORATIONS))
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def objects(found: scheduler.ClusterObjects, chance: random.Random) -> list[meta.Object]:
    pods = [decorated(pod, chance) for pod in found.pods]
    quota = core.ResourceQuota(
        metadata=builders.make_meta("resourcequota", "quota", namespace="default"),
        spec=core.ResourceQuotaSpec(hard={"cpu": chance.choice(("1", "9"))}),
    )
    return [
        *found.queues,
        sessions.queue("default", weight=chance.randint(1, 3), capability={"cpu": "6"}),
        *found.priority_classes,
        *found.nodes,
        *found.pod_groups,
        *pods,
        quota,
    ]


PUT: Mapping[type[meta.Object], str] = {
    core.Node: "node",
    core.Pod: "pod",
    scheduling.PodGroup: "pod_group",
    scheduling.Queue: "queue",
    core.PriorityClass: "priority_class",
}


class History:
    """A model and the present objects. An unreadable object is present as None."""

    def __init__(self) -> None:
        self.model = cluster_model.ClusterModel()
        self.there: dict[tuple[type[meta.Object], str], meta.Object | None] = {}

    def put(self, each: meta.Object) -> None:
        kind, key = type(each), each.metadata.key
        self.there[kind, key] = each
        _put(self.model, each)

    def put_unreadable(self, kind: type[meta.Object], key: str) -> None:
        """The object can no longer be decoded."""
        self.there[kind, key] = None
        _lose(self.model, kind, key)

    def remove(self, kind: type[meta.Object], key: str) -> None:
        del self.there[kind, key]
        if kind in PUT:
            getattr(self.model, f"remove_{PUT[kind]}")(key)
        else:
            self.model.auxiliary.remove(kind, key)

    def again(self) -> cluster_model.ClusterModel:
        """A model built from the present objects in the order of names."""
        model = cluster_model.ClusterModel()
        for (kind, key), each in sorted(self.there.items(), key=lambda entry: entry[0][1]):
            if each is None:
                _lose(model, kind, key)
            else:
                _put(model, each)
        return model


def _put(into: cluster_model.ClusterModel, each: meta.Object) -> None:
    if type(each) in PUT:
        getattr(into, f"put_{PUT[type(each)]}")(each)
    else:
        into.auxiliary.put(each)


def _lose(of: cluster_model.ClusterModel, kind: type[meta.Object], key: str) -> None:
    if kind is core.Pod:
        group, _, _ = key.partition("-task-")
        of.put_unreadable_pod(key, "garbled", "n0", group)
    elif kind in PUT:
        getattr(of, f"put_unreadable_{PUT[kind]}")(key, "garbled")
    else:
        of.auxiliary.put_unreadable(kind, key, "garbled")


def _later(pod: core.Pod) -> core.Pod:
    """Another version of a pod, which differs in its phase and in the decision's id."""
    phase = "Pending" if pod.status.phase == "Running" else "Running"
    annotations = {**(pod.metadata.annotations or {}), keys.DECISION: "scheduler/1/2"}
    metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
    status = msgspec.structs.replace(pod.status, phase=phase)
    return msgspec.structs.replace(pod, metadata=metadata, status=status)


def live(history: History, objs: list[meta.Object], chance: random.Random) -> None:
    """These objects are applied in any order; some of the existing ones are deleted."""
    keys = {(type(each), each.metadata.key) for each in objs}
    placed = [each for each in objs if isinstance(each, core.Pod) and each.spec.node_name]
    steps: list[Callable[[], None]] = [
        lambda each=each: history.put(each)  # type: ignore[misc]  # bound now
        for each in (*objs, *map(_later, placed))
    ]
    for kind, key in sorted(history.there, key=lambda known: (known[1], known[0].__name__)):
        if (kind, key) not in keys and chance.random() < 0.5:
            steps.append(lambda known=(kind, key): history.remove(*known))  # type: ignore[misc]
    chance.shuffle(steps)
    for step in steps:
        step()
        if chance.random() < 0.05:
            decided(history.model, chance.choice(CONFIGURATIONS))
    for kind, key in sorted(history.there, key=lambda known: (known[1], known[0].__name__)):
        if kind is not core.ResourceQuota and chance.random() < 0.05:
            history.put_unreadable(kind, key)


# Results ----------------------------------------------------------------------------


def decided(on: cluster_model.ClusterModel, how: configuration.Configuration) -> dict[str, Any]:
    """The results of a session, which is then rolled back. What it keeps for later sessions, such
    as sums and limits of queues, is then part of the model."""
    opened = opening.open_on_model(on, how, NOW, plugins.find)
    simulate.run_actions(opened)
    found = said(opened)
    opened.rollback()
    return found


def said(ssn: session.Session) -> dict[str, Any]:
    decisions = ssn.decisions
    return {
        "binds": list(decisions.binds.items()),
        "evictions": [msgspec.to_builtins(each) for each in decisions.evictions],
        "events": ssn.events,
        "complaints": sorted(ssn.complaints),
        "shares": {
            name: {
                resource: amounts
                for resource, *amounts in zip(ssn.resources.names, *share, strict=True)
            }
            for name, queue in ssn.queues.items()
            if (share := ssn.queue_usage(queue)) is not None
        },
        "gauges": sorted(each for each in ssn.gauges() if each.name.startswith("queue_")),
        "waiting": {
            key: job.explain()
            for key, job in ssn.jobs.items()
            if job_builder.needs_session(job) or job.count(entities.Status.PIPELINED)
        },
    }


def dump(of: cluster_model.ClusterModel) -> dict[str, Any]:
    """The model without what depends on the order of changes."""
    names = of.resources.names

    def named(values: Iterable[Any]) -> dict[str, int]:
        return {name: int(value) for name, value in zip(names, values, strict=True) if value}

    table = of.nodes
    return {
        "nodes": {
            name: (
                *(
                    named(each[:, row])
                    for each in (
                        table.allocatable,
                        table.idle,
                        table.used,
                        table.releasing,
                        table.pipelined,
                    )
                ),
                table.assumed_used[:, row].tolist(),
                int(table.pods[row]),
                sorted(table.tasks[row]),
                bool(table.labelled.usable[row]),
            )
            for row, name in enumerate(table.names)
        },
        "jobs": dict(_jobs(of, named)),
        "queues": {
            name: (totals.jobs, *(named(row) for row in totals.table), *map(named, totals.rows))
            for name, totals in of.queue_usage.queues.items()
        },
        "totals": (
            named(table.allocatable_total),
            named(table.used_total),
            table.has_moving_tasks,
        ),
        "waiting": of.jobs.keys() & of._waiting,
        **{
            name: {key: counts.tolist() for key, counts in table.dense().items()}
            for name, table in (
                ("carried", of.pod_index.anti_affinity_carriers),
                ("preferences", of.pod_index.preference_carriers),
                ("ports", of.pod_index.ports),
            )
        },
    }


def _jobs(
    of: cluster_model.ClusterModel,
    named: Callable[[resource_vectors.Vector | resource_vectors.Sum], object],
) -> Iterator[tuple[str, Any]]:
    for key, job in of.jobs.items():
        yield (
            key,
            (
                job.phase,
                job.priority,
                job.frozen,
                job.fit_error,
                dict(job.fit_errors),
                list(job.conditions),
                named(job.allocated),
                named(job.total_request),
                sorted((task.key, task.status, task.node) for task in job.tasks.values()),
                sorted(
                    (status, task.key)
                    for status, tasks in job.by_status.items()
                    for task in tasks.values()
                ),
            ),
        )


@thorough
@given(st.lists(scarce_clusters.scarce_clusters(), min_size=1, max_size=3), st.integers(0, 2**32))
def test_an_updated_model_decides_as_one_built_from_scratch(
    history: list[scheduler.ClusterObjects], seed: int
) -> None:
    chance = random.Random(seed)
    lived = History()
    for found in history:
        live(lived, objects(found, chance), chance)
    again = lived.again()
    for how in CONFIGURATIONS:
        assert decided(lived.model, how) == decided(again, how)
    assert dump(lived.model) == dump(again)


@thorough
@given(scarce_clusters.scarce_clusters(), st.sampled_from(CONFIGURATIONS), st.integers(0, 2**32))
def test_a_session_leaves_the_model_unchanged(
    found: scheduler.ClusterObjects, how: configuration.Configuration, seed: int
) -> None:
    chance = random.Random(seed)
    lived = History()
    live(lived, objects(found, chance), chance)
    lived.model.settle()
    before = dump(lived.model)
    first = decided(lived.model, how)
    assert dump(lived.model) == before
    assert decided(lived.model, how) == first


def test_a_placed_pod_that_changes_in_its_status_only_keeps_its_task() -> None:
    """Bound where it was assumed, then running: its class and the sums of its node are the same."""
    model = cluster_model.ClusterModel()
    model.put_queue(builders.make_queue())
    model.put_node(builders.make_node("n1", cpu="9"))
    group, pending = default_sessions.gang("a", 1)
    assert isinstance(pending, core.Pod)
    _put(model, group)
    model.put_pod(pending, "n1")
    task = model.tasks[pending.metadata.key]
    bound = msgspec.structs.replace(
        pending, spec=msgspec.structs.replace(pending.spec, node_name="n1")
    )
    running = _later(bound)
    for pod, status in ((bound, "BOUND"), (running, "RUNNING"), (running, "RUNNING")):
        model.put_pod(pod)
        assert model.tasks[pending.metadata.key] is task
        assert (task.status.name, task.node, task.pod) == (status, "n1", pod)
        assert list(model.jobs[task.job].by_status[task.status].values()) == [task]


@pytest.mark.parametrize("change", ["labels", "uid", "requests", "node"])
def test_a_placed_pod_that_changes_otherwise_gets_a_new_task(change: str) -> None:
    model = cluster_model.ClusterModel()
    for name in ("n1", "n2"):
        model.put_node(builders.make_node(name, cpu="9"))
    _, pod = default_sessions.gang("a", 1, node="n1")
    assert isinstance(pod, core.Pod)
    model.put_pod(pod)
    task = model.tasks[pod.metadata.key]
    large = core.ResourceRequirements(requests={"cpu": "7"})
    parts: dict[str, dict[str, Any]] = {
        "labels": {"metadata": msgspec.structs.replace(pod.metadata, labels={"app": "b"})},
        "uid": {"metadata": msgspec.structs.replace(pod.metadata, uid="another")},
        "requests": {
            "spec": msgspec.structs.replace(
                pod.spec, containers=(core.Container(name="c", resources=large),)
            )
        },
        "node": {"spec": msgspec.structs.replace(pod.spec, node_name="n2")},
    }
    model.put_pod(msgspec.structs.replace(pod, **parts[change]))
    assert model.tasks[pod.metadata.key] is not task


def test_opening_costs_the_pending_jobs_and_not_the_running_ones() -> None:
    """Plugins of the default configuration see no job that neither waits nor changed."""
    model = cluster_model.ClusterModel()
    model.put_queue(builders.make_queue())
    model.put_node(builders.make_node("n1", cpu="99", pods=99))
    for name in ("a", "b"):
        for each in default_sessions.gang(name, 2, node="n1"):
            _put(model, each)
    decided(model, CONFIGURATIONS[0])
    for each in default_sessions.gang("new", 2):
        _put(model, each)
    opened = opening.open_on_model(model, CONFIGURATIONS[0], NOW, plugins.find)
    assert opened.waiting == ["default/new"]


def test_the_first_session_visits_no_job_that_runs() -> None:
    """After a start all jobs of the cluster have changed, and few of them wait."""
    model = cluster_model.ClusterModel()
    model.put_queue(builders.make_queue())
    model.put_node(builders.make_node("n1", cpu="99", pods=99))
    running = default_sessions.gang("running", 2, node="n1")
    for each in (*running, *default_sessions.gang("new", 2)):
        _put(model, each)
    opened = opening.open_on_model(model, CONFIGURATIONS[0], NOW, plugins.find)
    assert opened.waiting == ["default/new"]
