"""Rules of comparing configurations: what is decided differently, gang by gang."""

from typing import Any

import msgspec

from stromboli.scheduler.core import actions, plugins
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import config_reader
from stromboli.scheduler.core.forecast import canary, expected_starts
from stromboli.shared.api import core, scheduling
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders


def options(used: str, *names: str) -> expected_starts.Options:
    document: dict[str, Any] = {
        "actions": used,
        "tiers": [{"plugins": [{"name": name} for name in names]}],
    }
    configured = config_reader.read_configuration(document, actions.NAMES, plugins.NAMES)
    return expected_starts.Options(configured=configured, find=plugins.find)


SPREAD = options("enqueue, allocate", "priority", "gang", "predicates", "nodeorder")
PACK = options("enqueue, allocate", "priority", "gang", "predicates", "binpack")
EVICT = options("enqueue, allocate, preempt", "priority", "gang", "predicates", "nodeorder")


def make_cluster(*found: scheduling.PodGroup | core.Pod) -> cluster_objects.Cluster:
    """Two nodes of 4 CPUs; the first one is half used."""
    used = builders.make_pod("used", "runs", cpu="2", node="n1", phase="Running")
    groups = [each for each in found if isinstance(each, scheduling.PodGroup)]
    return cluster_objects.Cluster(
        now=builders.NOON,
        nodes=(builders.make_node("n1", cpu="4"), builders.make_node("n2", cpu="4")),
        pods=(used, *(each for each in found if isinstance(each, core.Pod))),
        pod_groups=(builders.make_pod_group("runs", phase="Running"), *groups),
        queues=(builders.make_queue(),),
        priority_classes=(builders.make_priority_class("high", 1000),),
    )


def waiting(name: str, cpu: str, size: int = 1, priority: str = "") -> scheduling.PodGroup:
    return builders.make_pod_group(
        name, size, phase="Pending", priority_class=priority, min_resources={"cpu": cpu}
    )


def test_the_same_configuration_decides_the_same() -> None:
    cluster = make_cluster(waiting("a", "1"), waiting("wide", "9"))
    first, again = (canary.present_decisions(cluster, SPREAD) for _ in range(2))
    assert canary.differences(first, again, {}) == []
    assert first["default/a"].binds == {"n2": 1}
    assert first["default/wide"].tier == "never-fits"


def test_a_gang_that_is_placed_elsewhere_differs() -> None:
    cluster = make_cluster(waiting("a", "1"), waiting("wide", "9"))
    (difference,) = canary.differences(
        canary.present_decisions(cluster, SPREAD), canary.present_decisions(cluster, PACK), {}
    )
    assert difference.pod_group == "default/a"
    assert (difference.present.binds, difference.changed.binds) == ({"n2": 1}, {"n1": 1})


def test_evictions_are_shown_with_the_gang_that_they_start() -> None:
    """The cluster is full of pods of priority 0."""
    full = [
        builders.make_pod(f"low-{node}", "runs", cpu=cpu, node=node, phase="Running")
        for node, cpu in (("n1", "2"), ("n2", "4"))
    ]
    cluster = make_cluster(*full, waiting("vip", "4", priority="high"))
    differences = {
        each.pod_group: each
        for each in canary.differences(
            canary.present_decisions(cluster, SPREAD), canary.present_decisions(cluster, EVICT), {}
        )
    }
    assert differences["default/vip"].present.tier
    assert sum(differences["default/vip"].changed.binds.values()) == 1
    (evicted,) = differences["default/vip"].changed.evictions
    assert evicted == "default/low-n2"


def test_pods_that_do_not_exist_yet_have_no_names() -> None:
    cluster = make_cluster(waiting("a", "1"), waiting("wide", "9"))
    gang_decision = canary.present_decisions(cluster, SPREAD)["default/a"]
    assert (gang_decision.binds, gang_decision.pods) == ({"n2": 1}, {})


def test_the_gang_of_a_job_has_the_name_of_the_job() -> None:
    statement = messages.StatementDecided(
        pod_group="default/train-7", pod_group_uid="8", session=1, job_uid="7"
    )
    of_another = msgspec.structs.replace(statement, pod_group="default/other", job_uid="9")
    assert canary.jobs_of_statements([statement, of_another]) == {
        "default/train-7": "default/train"
    }


def test_reasons_that_differ_in_their_text_alone_are_the_same() -> None:
    one = {"a/b": canary.GangDecision(tier="gang", reason="3 of 4")}
    other = {"a/b": canary.GangDecision(tier="gang", reason="2 of 4")}
    assert canary.differences(one, other, {}) == []
    assert canary.differences(one, {}, {}) == [
        canary.Difference("a/b", one["a/b"], canary.GangDecision())
    ]
