"""What users invent costs a bounded amount of memory."""

import msgspec
import numpy as np

from services.scheduler.tests.support import default_sessions, sessions
from services.scheduler.tests.support.harness import SchedulerHarness
from stromboli.scheduler.core import plugins
from stromboli.scheduler.core.cluster import cluster_model, cluster_objects
from stromboli.scheduler.core.framework import filter_score, opening
from stromboli.scheduler.core.model import (
    array_cache,
    node_constraints,
    requirements,
    resource_columns,
)
from stromboli.shared import keys
from stromboli.shared.api import core
from stromboli.testkit import builders

QUEUE, NODE = builders.make_queue(), builders.make_node("n1", cpu="4")


def test_invented_resources_add_a_bounded_number_of_columns() -> None:
    """Each group beyond the limit is reported; resources of nodes are always counted."""
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE)
    for at in range(2 * resource_columns.MAX_NAMES):
        named = {f"example.com/r{at}": "1"}
        harness.see(builders.make_pod_group(f"g{at}", 1, phase="Pending", min_resources=named))
    assert len(harness.cache.model.resources.names) == 3 + resource_columns.MAX_NAMES
    assert "such names are requested" in harness.cache.model.problems["podgroup", "default/g200"]
    harness.see(builders.make_node("n2", extra={"example.com/real": "1"}))
    harness.see(*default_sessions.gang("real", 1, extra={"example.com/real": "1"}))
    decided = harness.session()
    assert [bind.node for each in decided.decisions for bind in each.binds] == ["n2"]


def test_a_resource_column_is_removed_with_its_last_user() -> None:
    """After thousands of invented names, a few at a time, the tables are as before."""
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE)
    model = harness.cache.model
    for at in range(300):
        groups = [
            builders.make_pod_group(
                f"g{at}-{each}",
                1,
                phase="Pending",
                min_resources={f"example.com/r{at}-{each}": "1"},
            )
            for each in range(5)
        ]
        pod = builders.make_pod(f"p{at}", f"g{at}-0", extra={f"example.com/p{at}": "1"})
        harness.see(*groups, pod)
        model.settle()
        assert len(model.resources.names) == 3 + 6
        harness.lose(pod, *groups)
    model.settle()
    assert model.resources.names == ["cpu", "memory", "pods"]
    assert len(model.nodes.allocatable) == 3
    harness.see(*default_sessions.gang("real", 4, cpu="1"))
    assert len(harness.session().decisions[0].binds) == 4


def test_a_resource_column_stays_while_any_user_is_left() -> None:
    """The amounts of the others are the same after the columns have moved."""
    harness = SchedulerHarness()
    nodes = [
        builders.make_node(f"n{at}", cpu="8", extra={f"example.com/{name}": "2"})
        for at, name in enumerate("abc")
    ]
    harness.see(QUEUE, *nodes, *default_sessions.gang("held", 2, extra={"example.com/c": "1"}))
    assert len(harness.session().decisions[0].binds) == 2
    invented = default_sessions.gang("invented", 1, extra={"example.com/invented": "1"})
    harness.see(*invented)
    harness.session()
    harness.lose(nodes[0], *invented)
    harness.see(*default_sessions.gang("more", 1, extra={"example.com/c": "1"}))
    assert not harness.session().decisions
    assert harness.cache.model.resources.names == [
        *("cpu", "memory", "pods"),
        *("example.com/b", "example.com/c"),
    ]
    harness.see(*default_sessions.gang("other", 2, extra={"example.com/b": "1"}))
    decided = harness.session().decisions
    assert {bind.node for each in decided for bind in each.binds} == {"n1"}


def test_a_refused_group_starts_once_a_node_offers_its_resource() -> None:
    harness = exhausted()
    harness.see(*default_sessions.gang("late", 1, extra={"example.com/late": "1"}))
    assert "such names are requested" in harness.cache.model.problems["pod", "default/late-0"]
    assert not harness.session().decisions
    harness.see(builders.make_node("n2", extra={"example.com/late": "1"}))
    assert harness.cache.session_cause is not None
    decided = harness.session().decisions
    assert [bind.node for each in decided for bind in each.binds] == ["n2"]


def test_refused_objects_are_admitted_one_by_one_as_names_are_released() -> None:
    harness = exhausted()
    late = [
        builders.make_pod_group(
            f"late{at}", 1, phase="Pending", min_resources={f"example.com/late{at}": "1"}
        )
        for at in range(3)
    ]
    harness.see(*late)
    assert refused(harness) == {"late0", "late1", "late2"}
    harness.lose(builders.make_pod_group("g0", 1))
    assert refused(harness) == {"late1", "late2"}
    assert "default/late0" in harness.cache.waiting
    harness.lose(late[0])
    assert refused(harness) == {"late2"}
    harness.lose(late[2])
    harness.lose(late[1])
    assert not refused(harness)


def refused(harness: SchedulerHarness) -> set[str]:
    return {key.removeprefix("default/") for _, key in harness.cache.model.problems}


def exhausted() -> SchedulerHarness:
    """A cluster in which as many resource names are invented as there may be."""
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE)
    for at in range(resource_columns.MAX_NAMES):
        named = {f"example.com/r{at}": "1"}
        harness.see(builders.make_pod_group(f"g{at}", 1, phase="Pending", min_resources=named))
    harness.session()
    return harness


def test_invented_selectors_keep_a_bounded_number_of_masks() -> None:
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE)
    harness.cache.model.settle()
    nodes = harness.cache.model.nodes
    checks = node_constraints.ConstraintCache(nodes.labelled, bytes_kept=0)
    interned = requirements.RequirementsIndex()
    for at in range(10 * node_constraints.MIN_CACHED_ENTRIES):
        pod = builders.make_pod(node_selector={f"key-{at}": "x"})
        assert not checks.of(interned.of(pod.spec)).passed.any()
    assert len(checks) == node_constraints.MIN_CACHED_ENTRIES
    assert nodes.labelled.keys == 0


def test_one_answer_is_kept_for_all_requests_with_equal_constraints() -> None:
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE)
    harness.cache.model.settle()
    nodes = harness.cache.model.nodes
    interned = requirements.RequirementsIndex()
    for at in range(50):
        nodes.checks.of(interned.of(builders.make_pod(cpu=f"{at + 1}m").spec))
    assert len(nodes.checks) == 1


def test_the_answers_of_a_session_are_bounded_by_their_bytes() -> None:
    assert (
        filter_score.MAX_CACHED_BYTES // (filter_score.BYTES_PER_ROW * 10_000)
        >= filter_score.MIN_CACHED_CLASSES
    )


def test_terms_and_ports_of_pods_cost_memory_by_pod_and_not_by_node() -> None:
    """Each pod has a unique term and port. Both reject other pods while the pod exists, and are
    removed with it.
    """
    model = cluster_model.ClusterModel()
    model.put_queue(QUEUE)
    for at in range(2_000):
        model.put_node(builders.make_node(f"n{at:04}", labels={"host": str(at)}))
    model.settle()
    pods = [carrier(f"p{at}", f"n{at:04}", str(at), 1024 + at) for at in range(500)]
    for pod in pods:
        model.put_pod(pod)
    index = model.pod_index
    assert (len(index.anti_affinity_carriers), len(index.ports)) == (500, 500)
    assert index.anti_affinity_carriers.bytes_used + index.ports.bytes_used <= 2 * 500 * 100
    assert feasible(model, carrier("new", "", "7", 9999)) == set(range(2_000)) - {7}
    assert feasible(model, carrier("new", "", "none", 1024 + 9)) == set(range(2_000)) - {9}
    for pod in pods:
        model.remove_pod(pod.metadata.key)
    assert (len(index.anti_affinity_carriers), len(index.ports)) == (0, 0)
    assert feasible(model, carrier("new", "", "7", 1024 + 7)) == set(range(2_000))


def carrier(name: str, node: str, app: str, port: int) -> core.Pod:
    """A pod that avoids nodes with pods of its app, and takes a host port."""
    term = core.PodAffinityTerm(
        topology_key="host",
        label_selector=core.LabelSelector(match_labels={"app": app}),
    )
    rule = core.PodAffinity(required_during_scheduling_ignored_during_execution=(term,))
    return builders.make_pod(
        name,
        node=node,
        phase="Running" if node else "Pending",
        labels={"app": app},
        affinity=core.Affinity(pod_anti_affinity=rule),
        containers=[core.Container(ports=(core.ContainerPort(host_port=port),))],
    )


def feasible(model: cluster_model.ClusterModel, pod: core.Pod) -> set[int]:
    """The rows of nodes that predicates allow the pod."""
    group = builders.make_pod_group("asked")
    requested = msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(
            pod.metadata, annotations={keys.GROUP_NAME: group.metadata.name}
        ),
    )
    model.put_pod_group(group)
    model.put_pod(requested)
    configured = sessions.configured(default_sessions.TIER, run="allocate")
    cluster = cluster_objects.Cluster(now=builders.NOON)
    opened = opening.open_on_model(model, configured, cluster, plugins.find)
    found = opened.finder.filter_result(opened.model.tasks[requested.metadata.key]).passed
    opened.rollback()
    model.remove_pod(requested.metadata.key)
    model.remove_pod_group(group.metadata.key)
    return set(np.flatnonzero(found).tolist())


def test_taints_and_labels_that_nodes_had_are_forgotten() -> None:
    """Controllers write times into both: 2,000 of them cost what one costs."""
    model = cluster_model.ClusterModel()
    model.put_queue(QUEUE)
    model.put_node(builders.make_node("n1"))
    model.settle()
    labelled = model.nodes.labelled
    for at in range(2_000):
        taint = core.Taint(key="example.com/at", value=str(at), effect="NoSchedule")
        model.put_node(
            builders.make_node("n0", labels={"beat": str(at)}, taints=(taint, *TAINTS[at % 3]))
        )
        model.settle()
        assert len(labelled.taint_sets) <= 3
        codes, values = labelled.label_codes("beat")
        assert values[str(at)] == codes[0]
        assert len(values) <= 2 * 2 + 16
    assert feasible(model, builders.make_pod("new")) == {1}
    chosen = builders.make_pod("new", node_selector={"beat": "1999"}, tolerations=[EVERYTHING])
    assert feasible(model, chosen) == {0}
    model.put_node(builders.make_node("n0"))
    assert feasible(model, builders.make_pod("new")) == {0, 1}
    assert labelled.keys == 0
    model.put_node(builders.make_node("n0", taints=TAINTS[1]))
    model.remove_node("n0")
    model.settle()
    assert set(labelled.taint_sets) == {()}


TAINTS = (
    (),
    (core.Taint(key="a", effect="NoSchedule"),),
    (core.Taint(key="b", effect="NoExecute"),),
)
EVERYTHING = core.Toleration(operator="Exists")


def test_labels_by_which_no_pod_selects_any_more_split_no_class() -> None:
    """A pod that selects by the pods' index makes each of them a class of its own while it is
    there.
    """
    model = cluster_model.ClusterModel()
    model.put_queue(QUEUE)
    model.put_pod_group(builders.make_pod_group("g", 20))
    for at in range(20):
        model.put_pod(builders.make_pod(f"g-{at}", "g", labels={"index": str(at)}))
    for at in range(50):
        selecting = carrier(f"s{at}", "", "x", 80)
        term = core.LabelSelector(match_labels={"index": "1", f"key-{at}": "x"})
        spread = core.TopologySpreadConstraint(
            topology_key="zone", max_skew=1, when_unsatisfiable="DoNotSchedule", label_selector=term
        )
        spec = msgspec.structs.replace(selecting.spec, topology_spread_constraints=(spread,))
        model.put_pod(msgspec.structs.replace(selecting, spec=spec))
        assert len({task.task_class for task in model.tasks.values()}) == 20
        model.remove_pod(f"default/s{at}")
        model.settle()
        assert len({task.task_class for task in model.tasks.values()}) == 1


def test_a_cache_of_arrays_drops_the_least_recently_used() -> None:
    cache: array_cache.ArrayCache[str, int] = array_cache.ArrayCache(10**9)
    made: list[str] = []

    def ask(key: str) -> int:
        def make() -> int:
            made.append(key)
            return len(made)

        return cache.get(key, make)

    for at in range(array_cache.MIN_ENTRIES):
        ask(f"key-{at}")
    assert ask("key-0") == 1
    ask("new")
    assert (len(cache), ask("key-0"), len(made)) == (array_cache.MIN_ENTRIES, 1, 17)
    ask("key-1")
    assert len(made) == 18, "the one that was asked for longest ago had gone"
