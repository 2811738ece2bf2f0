"""Sums of requests beyond 64 bits never become negative.

One quantity may be ``60Pi``; from the 128th on such a sum would overflow in 64 bits.
"""

from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import default_sessions, sessions
from stromboli.scheduler.core import policy, schedule, simulate
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.scheduler.core.cluster import cluster_model
from stromboli.scheduler.core.model import nodes, queue_usage, requirements
from stromboli.shared.api import core, meta
from stromboli.testkit import builders, topic_log

ENDLESS = "60Pi"
ENDLESS_BYTES = 60 * 2**50
MANY = 300
"""As many wrap around to less than nothing."""
USUAL = ("priority", "gang", "overcommit", "drf", "predicates", "nodeorder", "binpack")


def tier(*names: str) -> sessions.Tier:
    return [sessions.plugin(name) for name in names]


def endless_nodes(count: int) -> list[core.Node]:
    return [builders.make_node(f"e{at:03}", memory=ENDLESS) for at in range(count)]


def filled(group: str, queue: str, count: int) -> list[meta.Object]:
    """A gang that fills as many endless nodes."""
    return [
        builders.make_pod_group(group, 1, queue=queue, phase="Running"),
        *(
            builders.make_pod(
                f"{group}-{at}", group, node=f"e{at:03}", phase="Running", memory=ENDLESS
            )
            for at in range(count)
        ),
    ]


# Jobs and queues -----------------------------------------------------------------------------


@pytest.mark.parametrize("limiting", ["proportion", "capacity"])
@pytest.mark.parametrize("held", [140, 150, 200, MANY])
def test_a_queue_that_holds_endlessly_much_may_not_have_more(limiting: str, held: int) -> None:
    """After an overflow its usage would be negative, and its limit would admit everything."""
    ssn = default_sessions.closed(
        sessions.queue("full", capability={"memory": "1Ti"}),
        *endless_nodes(held),
        builders.make_node("n1"),
        *filled("g", "full", held),
        *sessions.gang("more", "full", 1),
        tier=tier(*USUAL, limiting),
    )
    assert "more-0" not in default_sessions.binds(ssn)


@pytest.mark.parametrize("limiting", ["proportion", "capacity"])
@pytest.mark.parametrize("waiting", [140, 200, MANY])
def test_pods_that_ask_endlessly_much_keep_no_others_of_their_queue_out(
    limiting: str, waiting: int
) -> None:
    ssn = default_sessions.closed(
        builders.make_node("n1"),
        *default_sessions.gang("g", waiting, memory=ENDLESS),
        *default_sessions.gang("small", 2),
        tier=tier(*USUAL, limiting),
    )
    assert default_sessions.binds(ssn) == {"small-0": "n1", "small-1": "n1"}


@pytest.mark.parametrize("limiting", ["overcommit", "proportion", "capacity"])
@pytest.mark.parametrize("admitted", [140, 200, MANY])
def test_jobs_that_were_promised_endlessly_much_let_no_other_in(
    limiting: str, admitted: int
) -> None:
    most = {"memory": ENDLESS}
    ssn = default_sessions.closed(
        sessions.queue("full", capability={"memory": "1Ti"}),
        builders.make_node("n1"),
        *(
            builders.make_pod_group(f"g{at}", 1, queue="full", min_resources=most)
            for at in range(admitted)
        ),
        builders.make_pod_group(
            "one", 1, queue="full", phase="Pending", min_resources={"memory": "1Gi"}
        ),
        tier=tier("gang", limiting),
        run="enqueue, allocate",
    )
    assert ssn.jobs["default/one"].phase == "Pending"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.integers(0, requirements.AMOUNT_LIMIT - 1) | st.just(requirements.AMOUNT_LIMIT - 1),
            st.integers(1, 200),
            st.booleans(),
        ),
        max_size=4,
    )
)
def test_the_usage_of_a_queue_is_exact_for_any_requests(
    kinds: list[tuple[str, int, int, bool]],
) -> None:
    """And zero when all pods are deleted."""
    of = cluster_model.ClusterModel()
    of.put_queue(builders.make_queue())
    of.put_node(builders.make_node())
    pods, held, requested = [], 0, 0
    for number, (group, memory, count, is_placed) in enumerate(kinds):
        of.put_pod_group(builders.make_pod_group(group, 1))
        for at in range(count):
            node, phase = ("elsewhere", "Running") if is_placed else ("", "Pending")
            pod = builders.make_pod(
                f"{group}-{number}-{at}", group, memory=memory, node=node, phase=phase
            )
            of.put_pod(pod)
            pods.append(pod)
        requested += memory * count
        held += memory * count * is_placed
    of.settle()
    more = builders.make_pod("g", "c", extra={"new": 2**55 // 1000})
    of.put_pod_group(builders.make_pod_group("c", 1))
    of.put_pod(more)
    pods.append(more)
    requested += 2**30
    of.settle()
    books = of.queue_usage.queues["default"]
    assert {type(each) for each in books.table.ravel().tolist()} == {int}
    assert books.request.tolist()[requirements.MEMORY] == requested
    assert books.allocated.tolist()[requirements.MEMORY] == held
    for pod in pods:
        of.remove_pod(pod.metadata.key)
    of.settle()
    books = of.queue_usage.queues.get("default", queue_usage.UsageTotals(3))
    assert not any(map(any, (books.request.tolist(), books.allocated.tolist())))


def test_a_gang_may_need_a_hundred_tebibytes_of_disks() -> None:
    """Disks are counted in thousandths of bytes: the sum is more than one pod may request."""
    each = {"ephemeral-storage": "100Gi"}
    ssn = default_sessions.closed(
        sessions.queue("wide", capability={"ephemeral-storage": "1Pi"}),
        *(
            builders.make_node(f"n{at:03}", extra={"ephemeral-storage": "1200Gi"})
            for at in range(100)
        ),
        *(
            builders.make_pod_group(
                name,
                1000,
                queue="wide",
                phase="Pending" if name == "more" else "Inqueue",
                min_resources={"ephemeral-storage": f"{size}Gi"},
            )
            for name, size in (("g", 100_000), ("more", 950_000))
        ),
        *(
            builders.make_pod(f"g-{at}", "g", cpu="100m", memory="1Mi", extra=each)
            for at in range(1000)
        ),
        tier=tier(*USUAL, "capacity"),
        run="enqueue, allocate",
    )
    assert ssn.model.complaints() == []
    assert len(default_sessions.binds(ssn)) == 1000
    assert ssn.jobs["default/more"].phase == "Pending"


@pytest.mark.parametrize("said", ["100Ti", "1Pi", "4Pi"])
def test_a_node_with_more_than_counts_has_as_much_as_counts(said: str) -> None:
    most = (requirements.AMOUNT_LIMIT - 1) // (1000 * 2**40)
    pods = {
        f"g-{at}": builders.make_pod(f"g-{at}", "g", extra={"ephemeral-storage": f"{size}Ti"})
        for at, size in enumerate([most - 1, 1, 1])
    }
    ssn = default_sessions.closed(
        builders.make_node("n1", extra={"ephemeral-storage": said}),
        builders.make_pod_group("g", 1),
        *pods.values(),
    )
    assert ssn.model.complaints() == []
    assert len(default_sessions.binds(ssn)) == 2


# Pods ----------------------------------------------------------------------------------------


def test_a_pod_whose_containers_request_too_much_together_is_rejected_with_a_reason() -> None:
    containers = [builders.make_container("1", ENDLESS)] * MANY
    of = cluster_model.ClusterModel()
    of.put_queue(builders.make_queue())
    of.put_pod_group(builders.make_pod_group("g", 1))
    of.put_pod(builders.make_pod("p", "g", containers=containers))
    (complaint,) = of.complaints()
    assert complaint.startswith("pod default/p: requests memory: ")
    assert "too large" in complaint
    assert of.jobs["default/g"].problems.keys() == {"default/p"}


# Nodes ---------------------------------------------------------------------------------------


def crowd(node: str, count: int) -> list[core.Pod]:
    """Other pods that were bound to the node without a check."""
    return [
        builders.make_pod(f"x{at}", node=node, memory=ENDLESS, scheduler="other")
        for at in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 100, 130, 150, 200, MANY])
def test_nothing_is_placed_on_a_node_that_was_given_endlessly_much(count: int) -> None:
    """After an overflow it would seem to have room."""
    ssn = default_sessions.closed(
        builders.make_node("n1"), *crowd("n1", count), *default_sessions.gang("g", 1)
    )
    assert not default_sessions.binds(ssn)


@pytest.mark.parametrize("count", [130, 150, 200, MANY])
def test_overcommitted_nodes_enqueue_no_gang(count: int) -> None:
    waits = builders.make_pod_group("g", 1, phase="Pending", min_resources={"memory": "64Gi"})
    ssn = default_sessions.closed(
        builders.make_node("n1", memory="32Gi"),
        *crowd("n1", count),
        waits,
        tier=tier("gang", "overcommit"),
        run="enqueue",
    )
    assert ssn.jobs["default/g"].phase == "Pending"


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["", "1Gi", "1Pi", ENDLESS, ENDLESS])),
        max_size=12,
    )
)
def test_what_a_node_has_left_follows_from_the_pods_on_it_alone(
    changes: list[tuple[int, str]],
) -> None:
    """Whatever was added and deleted before, in any amounts; blank: the pod is deleted."""
    of, now = cluster_model.ClusterModel(), dict[str, core.Pod]()
    of.put_node(builders.make_node(memory=ENDLESS))
    of.settle()
    for number, memory in changes:
        for copy in range(50):  # three times as many wrap
            pod = builders.make_pod(f"p{number}-{copy}", node="n1", memory=memory or "1")
            if memory:
                of.put_pod(pod)
                now[pod.metadata.key] = pod
            else:
                of.remove_pod(pod.metadata.key)
                now.pop(pod.metadata.key, None)
    fresh = cluster_model.ClusterModel()
    fresh.put_node(builders.make_node(memory=ENDLESS))
    fresh.settle()
    for pod in now.values():
        fresh.put_pod(pod)
    assert tables(of.nodes) == tables(fresh.nodes)
    assert of.complaints() == fresh.complaints()
    used = sum(task.request[requirements.MEMORY].item() for task in of.tasks.values())
    left = int(of.nodes.idle[requirements.MEMORY, 0])
    assert left == ENDLESS_BYTES - used or (left <= 0 and used > ENDLESS_BYTES)


def tables(of: nodes.Nodes) -> list[list[list[int]]]:
    return [table.tolist() for table in (of.idle, of.used, of.releasing, of.pipelined)]


def test_a_node_is_usable_again_once_the_crowd_has_gone() -> None:
    of = cluster_model.ClusterModel()
    of.put_node(builders.make_node())
    of.settle()
    before = tables(of.nodes)
    for pod in crowd("n1", MANY):
        of.put_pod(pod)
    (complaint,) = of.complaints()
    assert complaint.startswith("node n1: ")
    assert not of.nodes.labelled.usable.any()
    of.put_node(builders.make_node())
    assert of.complaints() == [complaint]
    for pod in crowd("n1", MANY):
        of.remove_pod(pod.metadata.key)
    assert of.complaints() == []
    assert of.nodes.labelled.usable.all()
    assert tables(of.nodes) == before


# All of them -----------------------------------------------------------------------------------

EVERYTHING: Sequence[sessions.Tier] = (
    tier("priority", "gang", "conformance", "pdb"),
    tier(
        "overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack", "reservation",
        "network-topology-aware", "resource-strategy-fit", "queue-policy", "sla", "usage",
    ),
)  # fmt: skip
BY_TREE: Sequence[sessions.Tier] = (
    tier("priority", "gang", "conformance"),
    [
        sessions.plugin("capacity", enableHierarchy=True),
        *tier("overcommit", "predicates", "task-topology", "nodeorder", "reservation"),
    ],
)
ACTIONS = (
    "enqueue, allocate, backfill",
    "enqueue, allocate, preempt, reclaim, backfill",
    "enqueue, allocate, gangpreempt, gangreclaim, backfill",
)


@pytest.mark.parametrize("tiers", [EVERYTHING, BY_TREE], ids=["flat", "tree"])
@pytest.mark.parametrize("run", ACTIONS)
def test_no_plugin_fails_over_large_sums(tiers: Sequence[sessions.Tier], run: str) -> None:
    """They decide, their explanations can be encoded, and room of others is not used."""
    log = topic_log.TopicLog()
    least = {"memory": ENDLESS}
    log.see(
        builders.make_queue(),
        sessions.queue("full", capability={"memory": "1Ti"}, guarantee={"memory": ENDLESS}),
        *(sessions.queue(f"q{at}", guarantee={"memory": ENDLESS}) for at in range(150)),
        builders.make_node("n1"),
        *endless_nodes(200),
        *filled("held", "full", 200),
        *default_sessions.gang("asks", MANY, memory=ENDLESS),
        *(
            builders.make_pod_group(f"due{at}", 1, queue="full", min_resources=least)
            for at in range(150)
        ),
        builders.make_pod_group("door", 1, phase="Pending", min_resources=least),
        *sessions.gang("more", "full", 1),
    )
    cache = cluster_cache.ClusterCache(policy.Policy().scheduler_names)
    for record in log.records:
        cache.apply(record)
    by = policy.Policy(configured=sessions.configured(*tiers, run=run))
    now = builders.NOON + timedelta(minutes=5)
    decided = schedule.run_session(cache, now, by, with_gauges=True)
    assert not decided.failures
    assert decided.explanations.keys() >= {"default/asks", "default/more", "default/door"}
    for explanation in decided.explanations.values():
        assert msgspec.json.decode(msgspec.json.encode(explanation)) is not None
    assert not [bind for known in decided.decisions for bind in known.binds]
    assert all(gauge.value >= 0 for gauge in decided.gauges or () if gauge.name != "queue_overused")


def test_what_is_written_of_an_absurd_simulation_can_be_read() -> None:
    outcome = sessions.decided(
        builders.make_queue(),
        builders.make_node("n1"),
        *default_sessions.gang("g", MANY, memory=ENDLESS),
        tiers=[tier(*USUAL, "proportion")],
    )
    assert isinstance(outcome, simulate.Outcome)
    assert msgspec.json.encode(outcome)
