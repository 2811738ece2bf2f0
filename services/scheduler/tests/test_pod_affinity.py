"""Pod affinity, anti-affinity and topology spread."""

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from stromboli.scheduler.core import plugins
from stromboli.scheduler.core.cluster import cluster_objects, pod_affinity_index
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import opening, session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import affinity, spread
from stromboli.shared import decoding
from stromboli.shared.api import core
from stromboli.testkit import builders

ZONE = "zone"
ZONES = {"n1": "a", "n2": "a", "n3": "b", "n4": ""}
"""Node -> zone; n4 has none."""


def opened(
    pods: Sequence[core.Pod], labels: Mapping[str, Mapping[str, str]] | None = None
) -> session.Session:
    nodes = [
        builders.make_node(name, labels={ZONE: zone} if zone else None)
        for name, zone in ZONES.items()
    ]
    cluster = cluster_objects.Cluster(
        now=builders.NOON,
        nodes=tuple(nodes),
        pods=tuple(pods),
        pod_groups=(builders.make_pod_group("g"),),
        queues=(builders.make_queue(),),
        namespace_labels=labels or {},
    )
    return opening.open_session(configuration.Configuration((), ()), cluster, plugins.find)


def lies(name: str, node: str, **labels: str) -> core.Pod:
    return builders.make_pod(name, node=node, phase="Running", labels=labels)


def term(
    namespace_selector: core.LabelSelector | None = None, **labels: str
) -> core.PodAffinityTerm:
    return core.PodAffinityTerm(
        topology_key=ZONE,
        label_selector=core.LabelSelector(match_labels=labels),
        namespace_selector=namespace_selector,
    )


def near(*terms: core.PodAffinityTerm) -> core.Affinity:
    rule = core.PodAffinity(required_during_scheduling_ignored_during_execution=terms)
    return core.Affinity(pod_affinity=rule)


def away(*terms: core.PodAffinityTerm) -> core.Affinity:
    rule = core.PodAffinity(required_during_scheduling_ignored_during_execution=terms)
    return core.Affinity(pod_anti_affinity=rule)


def likes(weight: int, of: core.PodAffinityTerm) -> core.PodAffinity:
    requirement = core.WeightedPodAffinityTerm(weight=weight, pod_affinity_term=of)
    return core.PodAffinity(preferred_during_scheduling_ignored_during_execution=(requirement,))


def new(affinity: core.Affinity | None = None, **labels: str) -> core.Pod:
    return builders.make_pod("new", "g", affinity=affinity, labels=labels)


def task_of(ssn: session.Session, name: str = "new") -> entities.Task:
    tasks = ssn.jobs["default/g"].tasks.values()
    return next(task for task in tasks if task.name == name)


def requested(ssn: session.Session) -> tuple[entities.Task, node_views.NodeView]:
    """The task ``new`` and all nodes."""
    task = task_of(ssn)
    return task, node_views.NodeView(ssn.nodes, task)


def affinity_index(ssn: session.Session) -> pod_affinity_index.PodAffinityIndex:
    return pod_affinity_index.PodAffinityIndex(ssn.nodes, ssn.model.pod_index)


def passing(pods: Sequence[core.Pod], labels: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """The numbers of the nodes that are feasible for the task ``new``."""
    ssn = opened(pods, labels)
    checks = affinity.Affinity(affinity_index(ssn)).checks(*requested(ssn))
    return "".join(
        name[1:]
        for row, name in enumerate(ssn.nodes.names)
        if all(check.passed[row] for check in checks)
    )


OTHER = lies("old", "n1", app="a")


@pytest.mark.parametrize(
    ("pods", "nodes"),
    [
        ([OTHER, new()], "1234"),
        ([OTHER, new(near(term(app="a")))], "12"),
        ([OTHER, new(near(term(app="b")))], ""),
        ([OTHER, new(near(term(app="b")), app="b")], "123"),
        ([OTHER, new(near(term(app="a"), term(kind="x")), app="a", kind="x")], "123"),
        ([OTHER, new(away(term(app="a")))], "34"),
        ([builders.make_pod("old", node="n1", affinity=away(term(app="a"))), new(app="a")], "34"),
        ([builders.make_pod("old", node="n1", affinity=away(term(app="a"))), new(app="b")], "1234"),
    ],
    ids=[
        "who wants nothing goes anywhere",
        "near a pod: in its zone",
        "near nobody: nowhere",
        "the first that means itself: where there is a zone",
        "all terms must mean one pod: else it is the first",
        "away from a pod: outside its zone",
        "those that shun it are kept apart too",
        "but only those that mean it",
    ],
)
def test_required_terms_decide_which_nodes_are_feasible(pods: list[core.Pod], nodes: str) -> None:
    assert passing(pods) == nodes


def test_a_term_selects_the_pods_own_namespace_by_default() -> None:
    foreign = builders.make_pod("old", node="n1", namespace="team", labels={"app": "a"})
    by_label = core.LabelSelector(match_labels={"tier": "gold"})
    assert passing([foreign, new(away(term(app="a")))]) == "1234"
    wanted = new(away(term(by_label, app="a")))
    assert passing([foreign, wanted], {"team": {"tier": "gold"}}) == "34"
    assert passing([foreign, wanted], {"team": {"tier": "tin"}}) == "1234"
    everywhere = new(away(term(core.LabelSelector(), app="a")))
    assert passing([foreign, everywhere]) == "34"


def test_preferences_score_from_0_to_100_among_candidates() -> None:
    liked = core.Affinity(pod_affinity=likes(10, term(app="a")))
    ssn = opened([OTHER, lies("more", "n2", app="a"), new(liked)])
    rules = affinity.Affinity(affinity_index(ssn))
    scores = rules.scores(*requested(ssn))
    assert scores is not None
    assert scores.tolist() == [100, 100, 0, 0]
    shunned = core.Affinity(pod_anti_affinity=likes(10, term(app="a")))
    ssn = opened([OTHER, new(shunned)])
    scores = affinity.Affinity(affinity_index(ssn)).scores(*requested(ssn))
    assert scores is not None
    assert scores.tolist() == [0, 0, 100, 100]


def test_placements_and_evictions_of_the_session_count_immediately() -> None:
    ssn = opened(
        [new(away(term(app="a")), app="a"), builders.make_pod("p", "g", labels={"app": "a"})]
    )
    counted = affinity_index(ssn)
    rules = affinity.Affinity(counted)
    other = task_of(ssn, "p")

    def free() -> list[bool]:
        checks = rules.checks(*requested(ssn))
        return [all(check.passed[row] for check in checks) for row in range(4)]

    assert all(free())
    other.node = "n3"
    counted.add([other])
    assert free() == [True, True, False, True]
    counted.remove([other])
    assert all(free())


def spread_over(
    pods: Sequence[core.Pod], **constraint: object
) -> tuple[spread.Spread, session.Session]:
    fields = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "a"}}, **constraint}
    wanted = new(app="a")
    spec = msgspec.structs.replace(
        wanted.spec,
        topology_spread_constraints=(decoding.convert(fields, core.TopologySpreadConstraint),),
    )
    ssn = opened([*pods, msgspec.structs.replace(wanted, spec=spec)])
    everywhere = ssn.nodes.labelled.usable
    return spread.Spread(affinity_index(ssn), lambda _: everywhere, lambda _: everywhere), ssn


@pytest.mark.parametrize(
    ("pods", "constraint", "nodes"),
    [
        ([], {}, "123"),
        ([OTHER], {}, "3"),
        ([OTHER], {"maxSkew": 2}, "123"),
        ([OTHER, lies("more", "n3", app="a")], {}, "123"),
        ([OTHER, lies("more", "n3", app="a")], {"minDomains": 3}, ""),
        ([lies("old", "n1", app="b")], {}, "123"),
        ([OTHER], {"whenUnsatisfiable": "ScheduleAnyway"}, "1234"),
    ],
    ids=[
        "a node without a zone is no place",
        "not where there is one more already",
        "unless the skew allows it",
        "even again",
        "too few zones: as if one were empty",
        "others do not count",
        "soft constraints refuse nothing",
    ],
)
def test_hard_spread_keeps_zones_within_the_skew(
    pods: list[core.Pod], constraint: dict[str, object], nodes: str
) -> None:
    rules, ssn = spread_over(pods, **constraint)
    checks = rules.checks(*requested(ssn))
    passed = [all(check.passed[row] for check in checks) for row in range(4)]
    assert "".join(str(row + 1) for row in range(4) if passed[row]) == nodes


def test_pods_being_deleted_do_not_count_for_spread() -> None:
    leaving = builders.make_pod("old", node="n1", labels={"app": "a"}, deleting=builders.NOON)
    rules, ssn = spread_over([leaving])
    passed = rules.checks(*requested(ssn))[1].passed
    assert passed.all()


def test_soft_spread_scores_the_emptiest_zone_highest() -> None:
    rules, ssn = spread_over([OTHER], whenUnsatisfiable="ScheduleAnyway")
    scores = rules.scores(*requested(ssn))
    assert scores is not None
    assert scores.tolist() == [0, 0, 100, 0]
