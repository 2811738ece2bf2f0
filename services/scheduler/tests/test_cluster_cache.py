"""The cache: which decisions and pods hold resources, for how long, and what is unreadable."""

from typing import Literal

import msgspec
import pytest

from services.scheduler.tests.support import network_objects
from services.scheduler.tests.support.harness import (
    POLICY,
    SchedulerHarness,
    answer_to_undecodable,
    draft,
    fold,
)
from stromboli.scheduler.core import schedule
from stromboli.shared import envelope, topics
from stromboli.shared.api import core, meta, scheduling
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders

BASE = (builders.make_queue(), builders.make_node("n1", cpu="4"))
GROUP = builders.make_pod_group("g1", 2)
PODS = (builders.make_pod("g1-w-0", "g1"), builders.make_pod("g1-w-1", "g1"))


def bound(name: str, node: str = "n1") -> core.Pod:
    return builders.make_pod(name, "g1", node=node, version=2)


@pytest.fixture
def decided() -> SchedulerHarness:
    """A gang of two is decided, without outcomes or snapshots."""
    harness = SchedulerHarness()
    harness.see(*BASE, GROUP, *PODS)
    assert len(harness.session().decisions) == 1
    return harness


def test_a_decision_holds_its_resources_immediately(decided: SchedulerHarness) -> None:
    assert decided.used_cpu() == 2000


def test_annotations_of_a_bind_count_immediately() -> None:
    """Plugins read CPUs and devices from them before the pod's snapshot contains them."""
    harness = SchedulerHarness()
    harness.see(*BASE, GROUP, *PODS)
    statement = messages.StatementDecided(
        pod_group="default/g1",
        pod_group_uid=GROUP.metadata.uid,
        session=1,
        binds=tuple(
            messages.Bind(
                namespace="default",
                pod=pod.metadata.name,
                uid=pod.metadata.uid,
                node="n1",
                annotations={"on": "it"},
            )
            for pod in PODS
        ),
    )
    harness.apply(harness.log.append(draft(topics.DECISIONS, "default/g1", statement)))
    assert harness.cache.model.tasks["default/g1-w-0"].pod.metadata.annotation("on") == "it"
    harness.answer("refused", "g1-w-0")
    assert harness.cache.model.tasks["default/g1-w-0"].pod.metadata.annotation("on") is None


def test_nothing_is_decided_twice(decided: SchedulerHarness) -> None:
    assert decided.session().decisions == ()
    assert decided.cache.session_cause == ""


def test_an_executed_bind_holds_resources_until_the_pod_is_visibly_bound(
    decided: SchedulerHarness,
) -> None:
    decided.answer("executed")
    assert decided.used_cpu() == 2000
    decided.see(bound("g1-w-0"), bound("g1-w-1"))
    assert decided.used_cpu() == 2000
    assert decided.cache.unanswered() == 0


def test_a_refused_bind_releases_its_resources_and_is_decided_again(
    decided: SchedulerHarness,
) -> None:
    decided.answer("refused", "g1-w-1")
    assert decided.used_cpu() == 1000
    again = decided.session()
    assert [bind.pod for known in again.decisions for bind in known.binds] == ["g1-w-1"]
    assert decided.used_cpu() == 2000


def test_a_deleted_pod_releases_its_resources(decided: SchedulerHarness) -> None:
    decided.apply(*decided.log.lose(PODS[0]))
    assert decided.used_cpu() == 1000


def test_a_new_pod_of_the_same_name_does_not_inherit_a_bind(decided: SchedulerHarness) -> None:
    decided.see(builders.make_pod("g1-w-0", "g1", generation=2))
    assert decided.used_cpu() == 1000


def test_a_statement_appended_twice_counts_once(decided: SchedulerHarness) -> None:
    twice = next(known for known in decided.log.records if known.topic == topics.DECISIONS)
    statement = envelope.decode(twice)
    assert statement is not None
    repeated = decided.log.append(draft(topics.DECISIONS, twice.key, statement))
    decided.apply(repeated)
    assert decided.used_cpu() == 2000
    assert decided.cache.unanswered() == 2


def test_refusing_the_repeated_statement_does_not_undo_the_executed_one(
    decided: SchedulerHarness,
) -> None:
    first = next(known for known in decided.log.records if known.topic == topics.DECISIONS)
    statement = envelope.decode(first)
    assert statement is not None
    decided.apply(decided.log.append(draft(topics.DECISIONS, first.key, statement)))
    decided.answer("refused", "g1-w-0", "g1-w-1", decision=1)
    decided.answer("executed", decision=0)
    assert decided.used_cpu() == 2000


def test_an_outcome_before_its_decision_is_kept_for_it(decided: SchedulerHarness) -> None:
    decided.answer("refused", "g1-w-0")
    records = decided.log.records
    late = [known for known in records if known.topic != topics.DECISIONS]
    late += [known for known in records if known.topic == topics.DECISIONS]
    assert SchedulerHarness(late).used_cpu() == 1000


def test_an_entry_without_an_outcome_counts_as_entered() -> None:
    harness = SchedulerHarness()
    pending = builders.make_pod_group("g1", 2, phase="Pending")
    harness.see(*BASE, pending)
    assert [known.enqueue for known in harness.session().decisions] == [True]
    harness.see(*PODS)
    assert [known.enqueue for known in harness.session().decisions] == [False]


def _entry_answered(seen: Literal["first", "last"], version: int) -> SchedulerHarness:
    """A gang that was enqueued in version 5 is observed outside the queue in another version,
    before or after the outcome.

    Compaction has removed the observations in between.
    """
    harness = SchedulerHarness()
    harness.see(*BASE, builders.make_pod_group("g1", 2, phase="Pending"))
    harness.session()
    outside = builders.make_pod_group("g1", 2, phase="Pending", version=version)
    entered = messages.DecisionAnswered(
        decision=harness.statements[0].id,
        decision_offset=harness.statements[0].offset,
        pod_group="default/g1",
        enqueue="executed",
        enqueued_version=5,
    )
    if seen == "first":
        harness.see(outside)
    harness.apply(harness.log.append(draft(topics.OUTCOMES, entered.decision, entered)))
    if seen == "last":
        harness.see(outside)
    return harness


@pytest.mark.parametrize("seen", ["first", "last"])
def test_an_entry_that_was_revoked_before_it_was_visible_is_decided_again(
    seen: Literal["first", "last"],
) -> None:
    """Its PodGroup is outside the queue in a later version than the enqueue decision."""
    harness = _entry_answered(seen, version=6)
    assert [known.enqueue for known in harness.session().decisions] == [True]
    assert harness.cache.restart_from() == (2, 1), "the first entry is over, the second is not"


@pytest.mark.parametrize("seen", ["first", "last"])
def test_an_entry_whose_snapshot_is_late_is_not_decided_again(
    seen: Literal["first", "last"],
) -> None:
    """What is seen of the PodGroup is older than the entry."""
    harness = _entry_answered(seen, version=4)
    assert harness.session().decisions == ()
    assert harness.cache.restart_from() == (0, 0)


def test_pods_of_other_schedulers_count_as_used() -> None:
    harness = SchedulerHarness()
    harness.see(
        *BASE, builders.make_pod("other", cpu="3", node="n1", scheduler="default-scheduler")
    )
    assert harness.used_cpu() == 3000


def test_a_pod_that_finished_uses_nothing() -> None:
    harness = SchedulerHarness()
    harness.see(*BASE, builders.make_pod("p1", "g1", node="n1", phase="Running"))
    harness.see(builders.make_pod("p1", "g1", node="n1", phase="Succeeded", version=2))
    assert harness.used_cpu() == 0


def test_a_pod_that_is_read_before_its_node_counts_once_the_node_is_read() -> None:
    harness = SchedulerHarness()
    harness.see(builders.make_pod("p1", node="n1"), *BASE)
    assert harness.used_cpu() == 1000


def test_counts_in_a_queues_status_trigger_no_session() -> None:
    """Every session changes them, which would trigger the next session."""
    harness = SchedulerHarness()
    harness.see(*BASE, builders.make_pod_group("wide", 9, phase="Inqueue"), *PODS)
    harness.session()
    assert harness.cache.session_cause == ""
    queue = builders.make_queue(version=2)
    reported = scheduling.QueueStatus(state="Open", running=3, allocated={"cpu": "3"})
    harness.see(msgspec.structs.replace(queue, status=reported))
    assert harness.cache.session_cause == ""
    harness.see(builders.make_queue(version=3, weight=2))
    assert harness.cache.session_cause


def test_an_unreadable_node_takes_no_pods_and_is_reported() -> None:
    harness = SchedulerHarness()
    harness.see(*BASE, GROUP, *PODS)
    harness.apply(harness.log.garble(topics.NODES, "n1"))
    decided = harness.session()
    assert decided.decisions == ()
    assert list(harness.cache.model.nodes.excluded) == ["n1"]
    assert len(harness.parked) == 1
    explained = decided.explanations["default/g1"]
    assert explained is not None
    assert explained.refusals == (
        messages.NodeRejection(nodes=1, reason="node(s) could not be read"),
    )


@pytest.mark.parametrize("quantity", ["many", "-1", "10Ei"])
def test_a_node_with_an_invalid_quantity_is_excluded_with_the_reason(quantity: str) -> None:
    harness = SchedulerHarness()
    harness.see(builders.make_queue(), builders.make_node("n1", cpu=quantity), GROUP, *PODS)
    assert harness.session().decisions == ()
    assert "allocatable cpu" in harness.cache.model.nodes.excluded["n1"]


def test_an_unreadable_pod_excludes_its_node() -> None:
    harness = SchedulerHarness()
    harness.see(*BASE, builders.make_pod("other", node="n1", scheduler="default"), GROUP, *PODS)
    garbled = harness.log.garble(topics.PODS, "default/other")
    harness.apply(garbled)
    assert harness.session().decisions == ()
    harness.apply(*harness.log.lose(builders.make_pod("other")))
    assert len(harness.session().decisions) == 1


@pytest.mark.parametrize("is_compacted", [False, True])
def test_an_undecodable_pod_excludes_its_node_also_after_compaction(*, is_compacted: bool) -> None:
    """Its record is JSON that another version writes, with the node where it always was."""
    harness = SchedulerHarness()
    pod = builders.make_pod("other", node="n1", scheduler="default")
    harness.see(*BASE, GROUP, *PODS, *(() if is_compacted else (pod,)))
    garbled = harness.log.garble(topics.PODS, "default/other")
    value = b'{"metadata": 5, "spec": {"nodeName": "n1", "containers": null}}'
    harness.apply(msgspec.structs.replace(garbled, value=value))
    assert harness.session().decisions == ()
    assert list(harness.cache.model.nodes.excluded) == ["n1"]


def test_an_unreadable_member_freezes_its_gang() -> None:
    harness = SchedulerHarness()
    harness.see(*BASE, GROUP, *PODS, builders.make_pod("g1-w-2", "g1"))
    harness.apply(harness.log.garble(topics.PODS, "default/g1-w-2"))
    decided = harness.session()
    assert decided.decisions == ()
    explained = decided.explanations["default/g1"]
    assert explained is not None
    assert explained.tier == "unknown"
    assert "default/g1-w-2" in explained.message


def test_an_unreadable_pod_group_is_frozen_and_not_forgotten() -> None:
    harness = SchedulerHarness()
    harness.see(*BASE, *PODS)
    harness.apply(harness.log.garble(topics.POD_GROUPS, "default/g1"))
    decided = harness.session()
    explained = decided.explanations["default/g1"]
    assert decided.decisions == ()
    assert explained is not None
    assert explained.tier == "unknown"


def unreadable_decision() -> tuple[SchedulerHarness, envelope.Record]:
    """A gang that fits, and a decision about it that cannot be decoded."""
    harness = SchedulerHarness()
    harness.see(*BASE, GROUP, *PODS)
    bad = harness.log.garble(topics.DECISIONS, "default/g1")
    harness.apply(bad)
    return harness, bad


def test_a_decision_that_cannot_be_decoded_freezes_its_gang_until_its_outcome() -> None:
    """The controller may be of another version and execute it; then it has answered, and the gang
    goes on."""
    harness, bad = unreadable_decision()
    decided = harness.session()
    assert decided.decisions == ()
    explained = decided.explanations["default/g1"]
    assert explained is not None
    assert explained.tier == "unknown"
    assert "cannot be decoded, and has no outcome yet" in explained.message
    assert len(harness.parked) == 1
    harness.apply(harness.log.append(answer_to_undecodable(bad)))
    assert harness.cache.session_cause
    assert len(harness.session().decisions) == 1


def test_an_undecodable_decision_that_the_controller_has_passed_freezes_nothing() -> None:
    """Its own outcome may be lost."""
    harness, bad = unreadable_decision()
    passed = messages.DecisionAnswered(
        decision="scheduler/0/77",
        decision_offset=bad.offset + 1,
        pod_group="default/other",
        unanswered_from=bad.offset + 1,
    )
    harness.apply(harness.log.append(draft(topics.OUTCOMES, passed.decision, passed)))
    assert len(harness.session().decisions) == 1


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_restart_knows_whether_an_undecodable_decision_has_its_outcome(
    *, is_answered: bool
) -> None:
    """In any order of the two topics, and from the offsets that the first process noted."""
    harness, bad = unreadable_decision()
    if is_answered:
        harness.apply(harness.log.append(answer_to_undecodable(bad)))
    decisions, _ = harness.cache.restart_from()
    assert decisions == bad.offset + is_answered
    records = harness.log.records
    late = [each for each in records if each.topic != topics.DECISIONS]
    late += [each for each in records if each.topic == topics.DECISIONS]
    for restarted in (fold(records), fold(late)):
        decided = schedule.run_session(restarted, builders.NOON, POLICY)
        assert len(decided.decisions) == is_answered


def test_a_gang_that_lacks_pods_triggers_no_session() -> None:
    harness = SchedulerHarness()
    harness.see(*BASE, GROUP)
    harness.session()
    harness.see(PODS[0])
    assert harness.cache.session_cause == ""
    harness.see(PODS[1])
    assert harness.cache.session_cause != ""


def test_a_condition_triggers_no_session() -> None:
    """Otherwise the condition of an explanation would trigger the next explanation."""
    harness = SchedulerHarness()
    harness.see(*BASE, builders.make_pod_group("g1", 2, phase="Inqueue"))
    harness.session()
    condition = scheduling.PodGroupCondition(type="Unschedulable", status="True")
    reported = builders.make_pod_group("g1", 2, phase="Inqueue", version=2)
    status = scheduling.PodGroupStatus(phase="Inqueue", conditions=(condition,))
    harness.see(msgspec.structs.replace(reported, status=status))
    assert harness.cache.session_cause == ""


def test_freed_room_triggers_a_session_while_a_gang_waits() -> None:
    harness = SchedulerHarness()
    other = builders.make_pod("other", cpu="4", node="n1", phase="Running", scheduler="default")
    harness.see(*BASE, other, GROUP, *PODS)
    assert harness.session().decisions == ()
    harness.apply(*harness.log.lose(other))
    assert harness.cache.session_cause != ""
    assert len(harness.session().decisions) == 1


def test_a_restart_reads_from_the_oldest_open_decision(
    decided: SchedulerHarness,
) -> None:
    decided.answer("executed")
    decided.session()
    assert decided.cache.restart_from() == (0, 0)
    decided.see(bound("g1-w-0"), bound("g1-w-1"))
    decided.session()
    assert decided.cache.restart_from() == (2, 1)


# --- the network -------------------------------------------------------------------------------


def insisting() -> list[meta.Object]:
    """A gang of two with a hard constraint to one rack, and nodes for one pod each."""
    nodes = [builders.make_node(f"n{at}", cpu="1") for at in (1, 2)]
    requirement = network_objects.hard(1)
    return [builders.make_queue(), *nodes, *network_objects.asking([GROUP, *PODS], requirement)]


def test_a_new_rack_lets_a_gang_with_a_hard_constraint_start() -> None:
    """It waits with an explanation until there are HyperNodes."""
    harness = SchedulerHarness()
    harness.see(*insisting())
    explanation = harness.session().explanations["default/g1"]
    assert explanation is not None
    assert explanation.tier == "topology"
    assert "the cluster has no HyperNodes" in explanation.message
    harness.see(network_objects.rack("r1", "n1", "n2"))
    assert harness.cache.session_cause
    decided = harness.session()
    assert sorted(bind.node for known in decided.decisions for bind in known.binds) == ["n1", "n2"]


def test_an_unreadable_or_deleted_rack_takes_no_gang() -> None:
    """Its nodes are in no known rack."""
    for lose in (False, True):
        harness = SchedulerHarness()
        rack = network_objects.rack("r1", "n1", "n2")
        harness.see(rack, network_objects.rack("r2"), *insisting())
        if lose:
            harness.apply(*harness.log.lose(rack))
        else:
            harness.apply(harness.log.garble(topics.HYPER_NODES, "r1"))
        assert harness.session().decisions == ()
