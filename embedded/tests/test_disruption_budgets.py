"""Rules of PodDisruptionBudgets in the embedded cluster."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stromboli.embedded.cluster import EmbeddedCluster, disruption_budgets
from stromboli.shared import decoding, errors
from stromboli.shared.api import core, kinds
from stromboli.testkit import builders, objects

READY = core.Condition(type="Ready", status="True")


def pods(healthy: int, unhealthy: int = 0) -> list[core.Pod]:
    """Running pods with the label that budgets here select."""
    found = []
    for number in range(healthy + unhealthy):
        conditions = (READY,) if number < healthy else ()
        status = core.PodStatus(phase="Running", conditions=conditions)
        pod = builders.make_pod(f"p{number}", labels={"app": "a"})
        found.append(msgspec.structs.replace(pod, status=status))
    return found


def budget(name: str = "keep", **spec: Any) -> disruption_budgets.Budget:
    document = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, **spec},
    }
    return decoding.convert(document, disruption_budgets.Budget)


@pytest.mark.parametrize(
    ("spec", "desired", "allowed"),
    [
        ({"minAvailable": 3}, 3, 1),
        ({"minAvailable": 9}, 9, 0),
        ({"minAvailable": "50%"}, 2, 2),
        ({"minAvailable": "51%"}, 3, 1),
        ({"maxUnavailable": 1}, 3, 1),
        ({"maxUnavailable": "25%"}, 3, 1),
        ({"maxUnavailable": 9}, 0, 4),
        ({}, 0, 4),
    ],
)
def test_a_budget_allows_what_is_healthy_beyond_its_minimum(
    spec: dict[str, Any], desired: int, allowed: int
) -> None:
    counts = disruption_budgets.counts(budget(**spec), pods(4))
    assert counts == disruption_budgets.Counts(4, desired, 4, allowed)


def test_a_budget_without_a_selector_selects_no_pod_and_an_empty_one_all() -> None:
    none = budget(minAvailable=1, selector=None)
    every = budget(minAvailable=1, selector={})
    assert disruption_budgets.counts(none, pods(2)).expected_pods == 0
    assert disruption_budgets.counts(every, pods(2)).expected_pods == 2


def check(budgets: list[disruption_budgets.Budget], found: list[core.Pod], at: int) -> None:
    disruption_budgets.check(found[at], budgets, found, "evict")


def test_a_pod_that_is_not_ready_is_evicted_while_the_budget_is_kept() -> None:
    check([budget(minAvailable=2)], pods(2, unhealthy=1), 2)
    with pytest.raises(errors.DisruptionBudgetError):
        check([budget(minAvailable=3)], pods(2, unhealthy=1), 2)
    always = budget(minAvailable=3, unhealthyPodEvictionPolicy="AlwaysAllow")
    check([always], pods(2, unhealthy=1), 2)


@pytest.mark.parametrize(
    ("budgets", "text"),
    [
        ([budget("a"), budget("b")], "several PodDisruptionBudgets select the pod: a, b"),
        ([budget(minAvailable="many")], "keep cannot be read: 'many' is neither"),
    ],
)
def test_no_pod_is_evicted_under_budgets_that_cannot_be_evaluated(
    budgets: list[disruption_budgets.Budget], text: str
) -> None:
    with pytest.raises(errors.TransientError, match=text):
        check(budgets, pods(9), 0)


@pytest.fixture
def open_cluster(tmp_path: Path) -> Callable[[], EmbeddedCluster]:
    return lambda: EmbeddedCluster(tmp_path / "cluster.db")


async def test_an_unreadable_budget_does_not_stop_the_others(
    open_cluster: Callable[[], EmbeddedCluster],
) -> None:
    """Its namespace has no evictions, and the statuses of its other budgets are kept."""
    kind = kinds.DISRUPTION_BUDGETS
    spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": "a"}}}
    async with open_cluster() as cluster:
        broken = objects.make(kind, "broken", spec={**spec, "minAvailable": "many"})
        await cluster.create(kind, "default", broken)
        await cluster.create(kind, "default", objects.make(kind, "fine", spec=spec))
        await objects.eventually(
            cluster, kind, "default", "fine", lambda it: "status" in (it or {})
        )


async def test_budgets_are_kept_after_a_restart(
    open_cluster: Callable[[], EmbeddedCluster],
) -> None:
    kind = kinds.DISRUPTION_BUDGETS
    spec = {"minAvailable": 1, "selector": {}}
    async with open_cluster() as cluster:
        await cluster.create(kind, "default", objects.make(kind, "keep", spec=spec))
        pod = objects.read(await cluster.create(kinds.PODS, "default", objects.pod("p")))
        uid = pod["metadata"]["uid"]
        await cluster.bind("default", "p", uid=uid, node="n", annotations={})
        ready = objects.merge(
            status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        )
        await cluster.patch(
            kinds.PODS, "default", "p", ready, patch_type="merge", subresource="status"
        )
    async with open_cluster() as cluster:
        with pytest.raises(errors.DisruptionBudgetError, match="needs 1 healthy pods and has 1"):
            await cluster.evict("default", "p", uid=uid)
