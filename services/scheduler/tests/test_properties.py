"""Rules that hold for every small cluster: what decides nothing, and what never happens."""

import random
from collections.abc import Sequence
from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support.harness import POLICY, fold
from stromboli.scheduler.core import schedule
from stromboli.shared.api import core, meta
from stromboli.shared.formats import units
from stromboli.testkit import builders, topic_log
from stromboli.testkit.oracle import scheduler
from stromboli.testkit.strategies import depth, scarce_clusters

thorough = depth.examples(100)


def objects(model: scheduler.ClusterObjects) -> list[meta.Object]:
    return [
        *model.queues,
        *model.priority_classes,
        *model.nodes,
        *model.pod_groups,
        *model.pods,
    ]


def decide(objs: Sequence[meta.Object]) -> schedule.SessionResult:
    log = topic_log.TopicLog()
    log.see(*objs)
    return schedule.run_session(fold(log.records), builders.NOON + timedelta(minutes=1), POLICY)


def used(pods: Sequence[core.Pod]) -> units.Amounts:
    total: units.Amounts = {}
    for pod in pods:
        total = units.add(total, scheduler.request(pod))
    return total


def found(decided: schedule.SessionResult) -> dict[str, dict[str, str]]:
    """PodGroup -> pod -> node."""
    return {
        known.pod_group: {bind.pod: bind.node for bind in known.binds}
        for known in decided.decisions
    }


@thorough
@given(scarce_clusters.scarce_clusters(), st.randoms(use_true_random=False))
def test_the_order_of_arrival_decides_nothing(
    model: scheduler.ClusterObjects, chance: random.Random
) -> None:
    objs = objects(model)
    mixed = list(objs)
    chance.shuffle(mixed)
    first, other = (msgspec.structs.replace(decide(order), cause="") for order in (objs, mixed))
    assert msgspec.json.encode(other) == msgspec.json.encode(first)


@thorough
@given(scarce_clusters.scarce_clusters())
def test_no_node_gives_more_than_it_has(model: scheduler.ClusterObjects) -> None:
    decided = decide(objects(model))
    placed = {bind.pod: bind.node for known in decided.decisions for bind in known.binds}
    for node in model.nodes:
        name = node.metadata.name
        new = [pod for pod in model.pods if placed.get(pod.metadata.name) == name]
        old = [
            pod
            for pod in model.pods
            if pod.spec.node_name == name and pod.status.phase not in ("Succeeded", "Failed")
        ]
        has = units.amounts(node.status.allocatable or {})
        before, after = used(old), used([*old, *new])
        if new:
            assert all(
                amount <= max(has.get(resource, 0), before.get(resource, 0))
                for resource, amount in after.items()
            )


@thorough
@given(scarce_clusters.scarce_clusters())
def test_a_gang_is_whole_or_absent(model: scheduler.ClusterObjects) -> None:
    """Members without requests count wherever they are, as in Volcano: backfill places them."""
    decided = found(decide(objects(model)))
    for group in model.pod_groups:
        binds = decided.get(group.metadata.key, {})
        if binds:
            ready = [
                pod
                for pod in model.pods
                if pod.metadata.annotation("scheduling.k8s.io/group-name") == group.metadata.name
                and (
                    pod.metadata.name in binds
                    or (pod.spec.node_name and pod.status.phase != "Failed")
                    or not any(
                        used([pod]).get(name) for name in ("cpu", "memory", "nvidia.com/gpu")
                    )
                )
            ]
            assert len(ready) >= group.spec.min_member


@thorough
@given(scarce_clusters.scarce_clusters())
def test_every_gang_that_waits_is_explained(model: scheduler.ClusterObjects) -> None:
    decided = decide(objects(model))
    placed = {bind.pod for known in decided.decisions for bind in known.binds}
    entering = {known.pod_group for known in decided.decisions if known.enqueue}
    for group in model.pod_groups:
        if group.metadata.key in entering and group.metadata.key not in decided.explanations:
            continue  # its pods may be on their way
        unplaced = [
            pod
            for pod in model.pods
            if pod.metadata.annotation("scheduling.k8s.io/group-name") == group.metadata.name
            and pod.status.phase == "Pending"
            and not pod.spec.node_name
            and pod.metadata.deletion_timestamp is None
            and pod.metadata.name not in placed
        ]
        if unplaced:
            explained = decided.explanations[group.metadata.key]
            assert explained is not None
            assert explained.pending == len(unplaced)
