"""Why a gang is pending, in the terms and numbers of Kubernetes."""

from datetime import timedelta

import msgspec
import pytest

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core import policy, schedule
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.shared import envelope, topics
from stromboli.shared.api import core, meta
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, topic_log

POLICY = policy.Policy()
GANG = (
    builders.make_queue(),
    builders.make_pod_group("g1", 4),
    *(builders.make_pod(f"g1-worker-{at}", "g1", index=at) for at in range(4)),
)


def busy(node: str) -> list[meta.Object]:
    """A node of 2 cpu with a pod of another scheduler that takes one of them."""
    pod = builders.make_pod(f"other-{node}", cpu="1", node=node, scheduler="other")
    return [builders.make_node(node, cpu="2"), pod]


class Reported:
    """A cluster and the explanations for it, session by session."""

    def __init__(self) -> None:
        self.log = topic_log.TopicLog()
        self.cache = cluster_cache.ClusterCache(POLICY.scheduler_names)

    def see(self, *objects: meta.Object) -> None:
        for record in self.log.see(*objects):
            self.cache.apply(record)

    def decide(self, after: timedelta = timedelta(minutes=1)) -> schedule.SessionResult:
        """A session with explanations that are appended to their topic."""
        decided = schedule.run_session(self.cache, builders.NOON + after, POLICY)
        for key, message in decided.explanations.items():
            self.cache.record_explanation(key, message)
        for order in decided.orders:
            self.cache.record_explanation(messages.queue_order_key(order.queue, order.chunk), order)
        return decided

    def explain(self) -> messages.PodGroupExplained:
        explained = self.decide().explanations["default/g1"]
        assert explained is not None
        return explained


def test_the_message_has_volcanos_form() -> None:
    seen = Reported()
    seen.see(builders.make_node("n1", cpu="2"), *busy("n2"), *GANG)
    assert seen.explain().message == (
        "1/4 tasks in gang unschedulable: pod group is not ready, 4 Pending, 4 minAvailable; "
        "Pending: 1 Unschedulable, 3 Schedulable. "
        "Origin reason is g1-worker-3: 0/2 nodes are unavailable: 2 Insufficient cpu."
    )


def test_shortages_have_needed_free_and_total() -> None:
    seen = Reported()
    seen.see(builders.make_node("n1", cpu="2"), *busy("n2"), *GANG)
    explained = seen.explain()
    assert explained.tier == "resources"
    assert explained.placeable == 3
    assert explained.shortages == (
        messages.Shortage(resource="cpu", needed=4000, free=3000, total=4000),
    )


def test_fragmented_room_is_a_shortage_with_enough_free() -> None:
    seen = Reported()
    pod = builders.make_pod("p1", "g1", cpu="2")
    nodes = [each for at in range(3) for each in busy(f"n{at}")]
    seen.see(builders.make_queue(), *nodes, builders.make_pod_group("g1"), pod)
    assert seen.explain().shortages == (
        messages.Shortage(resource="cpu", needed=2000, free=3000, total=6000),
    )


def test_a_gang_without_pods_is_explained_with_their_number() -> None:
    seen = Reported()
    seen.see(builders.make_queue(), builders.make_node(), builders.make_pod_group("g1", 4))
    explained = seen.explain()
    assert explained.tier == "gang"
    assert explained.message == (
        "4/0 tasks in gang unschedulable: pod group is not ready, 4 minAvailable. "
        "Origin reason is: Not enough valid tasks for gang-scheduling, valid: 0, min: 4"
    )


def test_a_gang_whose_pods_are_being_created_needs_no_explanation() -> None:
    seen = Reported()
    seen.see(builders.make_queue(), builders.make_node(), builders.make_pod_group("g1", 4))
    decided = seen.decide(after=timedelta(seconds=1))
    assert decided.wake_at == builders.NOON + schedule.CREATION_GRACE
    assert decided.explanations == {}
    assert decided.orders == ()


def test_rejected_nodes_are_another_tier_than_missing_room() -> None:
    seen = Reported()
    pod = builders.make_pod("p1", "g1", node_selector={"zone": "mars"})
    seen.see(builders.make_queue(), builders.make_node(), builders.make_pod_group("g1"), pod)
    assert seen.explain().tier == "predicates"


def test_an_explanation_is_published_once() -> None:
    seen = Reported()
    seen.see(builders.make_node("n1", cpu="3"), *GANG)
    seen.decide()
    again = seen.decide()
    assert again.explanations == {}
    assert again.orders == ()


def test_the_explanation_of_a_gang_that_started_is_deleted() -> None:
    seen = Reported()
    seen.see(builders.make_node("n1", cpu="3"), *GANG)
    seen.decide()
    seen.see(builders.make_node("n2", cpu="3"))
    decided = seen.decide()
    assert decided.explanations == {"default/g1": None}
    assert decided.orders == (messages.QueueOrdered(queue="default", pod_groups=()),)


def test_a_queues_order_is_the_order_in_which_gangs_are_tried() -> None:
    seen = Reported()
    seen.see(
        builders.make_queue(),
        builders.make_priority_class("high", 5),
        builders.make_pod_group("a", 1),
        builders.make_pod("a-0", "a"),
        builders.make_pod_group("b", 1, priority_class="high"),
        builders.make_pod("b-0", "b"),
    )
    assert seen.decide().orders == (
        messages.QueueOrdered(queue="default", pod_groups=("default/b", "default/a")),
    )


def test_a_restart_does_not_repeat_explanations() -> None:
    seen = Reported()
    seen.see(builders.make_node("n1", cpu="3"), *GANG)
    decided = seen.decide()
    later = Reported()
    later.see(builders.make_node("n1", cpu="3"), *GANG)
    for key, message in decided.explanations.items():
        draft = envelope.Draft(
            topic=topics.EXPLANATIONS, key=key, message=message, time=builders.NOON
        )
        later.cache.apply(later.log.append(draft))
    assert later.decide().explanations == {}


# What can never fit


def explained(*objects: meta.Object) -> messages.PodGroupExplained:
    seen = Reported()
    seen.see(builders.make_queue(), *objects)
    return seen.explain()


def test_a_pod_larger_than_every_node_can_never_fit() -> None:
    explanation = explained(
        builders.make_node("n1", cpu="32"),
        builders.make_node("n2", cpu="16"),
        builders.make_pod_group("g1"),
        builders.make_pod("p1", "g1", cpu="64"),
    )
    assert explanation.tier == "never-fits"
    assert explanation.message.startswith(
        "can never fit: largest node has 32 cpu, a pod needs 64 cpu. "
    )


def test_a_combination_that_no_node_has_can_never_fit() -> None:
    explanation = explained(
        builders.make_node("n1", cpu="32", memory="1Gi"),
        builders.make_node("n2", cpu="1", memory="64Gi"),
        builders.make_pod_group("g1"),
        builders.make_pod("p1", "g1", cpu="8", memory="8Gi"),
    )
    assert explanation.message.startswith("can never fit: no node has 8 cpu with 8Gi memory. ")


def test_a_gang_larger_than_the_cluster_can_never_fit() -> None:
    explanation = explained(builders.make_node("n1", cpu="3"), *GANG[1:])
    assert explanation.message.startswith(
        "can never fit: all nodes together have 3 cpu, the gang needs 4 cpu. "
    )


def test_a_gang_that_can_never_fit_is_explained_on_an_empty_cluster() -> None:
    """Its pods are not created yet: what it needs is known from its PodGroup. That the cluster is
    *overused*, as Volcano's text has it, is wrong there."""
    explanation = explained(
        builders.make_node("n1", cpu="32"),
        builders.make_pod_group("g1", 2, phase="Pending", min_resources={"cpu": "64"}),
    )
    assert explanation.tier == "never-fits"
    assert (
        explanation.message
        == "can never fit: all nodes together have 32 cpu, the gang needs 64 cpu"
    )


@pytest.mark.parametrize(
    ("owner", "tier"),
    [(builders.make_job("j1"), "never-fits"), (None, "enqueue")],
    ids=["job", "other author"],
)
def test_what_a_podgroup_asks_for_is_one_pod_only_if_the_controller_wrote_it_for_a_job(
    owner: meta.Object | None, tier: str
) -> None:
    """Spark's operator asks for room for a driver and its executors, with a minimum of one pod."""
    explanation = explained(
        builders.make_node("n1", cpu="1"),
        builders.make_node("n2", cpu="1"),
        builders.make_pod("busy", cpu="1", node="n1", phase="Running"),
        builders.make_pod("also", cpu="1", node="n2", phase="Running"),
        builders.make_pod_group(
            "g1", 1, phase="Pending", min_resources={"cpu": "1400m"}, owner=owner
        ),
    )
    assert explanation.tier == tier


def test_a_gang_that_waits_for_others_to_end_may_fit_later() -> None:
    explanation = explained(
        builders.make_node("n1", cpu="4"),
        builders.make_pod("busy", cpu="3", node="n1", phase="Running"),
        *GANG[1:],
    )
    assert explanation.tier == "resources"


def test_no_gang_counts_as_never_fitting_while_a_node_is_unreadable() -> None:
    """Unknown never means absent: that node may be the largest."""
    seen = Reported()
    seen.see(builders.make_queue(), builders.make_node("n1", cpu="2"), builders.make_node("n2"))
    seen.cache.apply(seen.log.garble(topics.NODES, "n2"))
    seen.see(builders.make_pod_group("g1"), builders.make_pod("p1", "g1", cpu="64"))
    assert seen.explain().tier == "resources"


def test_a_gang_larger_than_its_queue_may_ever_hold_can_never_fit() -> None:
    explanation = explained(
        builders.make_node("n1", cpu="32"),
        sessions.queue("small", capability={"cpu": "8"}),
        builders.make_pod_group("g1", 1, queue="small"),
        builders.make_pod("p1", "g1", cpu="16"),
    )
    assert explanation.tier == "never-fits"
    assert explanation.message.startswith(
        "can never fit: queue small is limited to 8 cpu, the gang needs 16 cpu. "
    )


# Nodes that are not ready


def test_a_node_that_is_not_ready_takes_no_pod_and_is_a_reason() -> None:
    seen = Reported()
    seen.see(builders.make_queue(), with_ready(builders.make_node("n1"), "False"))
    seen.see(builders.make_pod_group("g1"), builders.make_pod("p1", "g1"))
    explanation = seen.explain()
    assert explanation.tier == "predicates"
    assert explanation.refusals == (
        messages.NodeRejection(nodes=1, reason="node(s) were not ready"),
    )


def test_a_node_that_becomes_ready_takes_the_pods_that_wait() -> None:
    seen = Reported()
    seen.see(builders.make_queue(), with_ready(builders.make_node("n1"), "Unknown"))
    seen.see(builders.make_pod_group("g1"), builders.make_pod("p1", "g1"))
    assert seen.decide().decisions == ()
    seen.cache.finish_session(is_throttled=False)
    seen.see(with_ready(builders.make_node("n1", version=2), "True"))
    assert seen.cache.session_cause
    (statement,) = seen.decide().decisions
    assert [bind.node for bind in statement.binds] == ["n1"]


def test_a_pod_that_tolerates_nodes_that_are_not_ready_is_placed() -> None:
    seen = Reported()
    seen.see(builders.make_queue(), with_ready(builders.make_node("n1"), "False"))
    pod = builders.make_pod("p1", "g1")
    toleration = core.Toleration(key="node.kubernetes.io/not-ready", operator="Exists")
    spec = msgspec.structs.replace(pod.spec, tolerations=(toleration,))
    seen.see(builders.make_pod_group("g1"), msgspec.structs.replace(pod, spec=spec))
    assert seen.decide().decisions


def with_ready(node: core.Node, status: str) -> core.Node:
    """The node with this condition Ready."""
    condition = core.Condition(type="Ready", status=status)
    changed = msgspec.structs.replace(node.status, conditions=(condition,))
    return msgspec.structs.replace(node, status=changed)
