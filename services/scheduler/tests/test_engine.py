"""Steps of the engine in virtual time: when a session runs and what it publishes."""

from datetime import datetime, timedelta

import msgspec
import pytest

from services.scheduler.tests.support.harness import POLICY, draft
from stromboli.scheduler import engine
from stromboli.scheduler.core import schedule
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.shared import envelope, topics
from stromboli.shared.api import meta
from stromboli.shared.bus import port
from stromboli.shared.messages import cluster
from stromboli.shared.messages import scheduling as messages
from stromboli.shared.messages.log import OPENED_KEY, Opened
from stromboli.testkit import builders, topic_log

EPOCH = 5
LATER = builders.NOON + schedule.CREATION_GRACE


def synced_engine(
    log: topic_log.TopicLog,
    *objects: meta.Object,
    epoch: int | None = EPOCH,
    host: datetime = builders.NOON,
) -> engine.Engine:
    """An engine that has read these objects and may decide; without an epoch, a standby.

    ``host``: the clock of its host.
    """
    made = engine.Engine(POLICY, 0, epoch, timedelta(seconds=60))
    records = log.see(builders.make_queue(), *objects)
    for kind in cluster_cache.KINDS:
        message = cluster.KindSynced(
            kind=kind.plural, state="synced", resource_version="1", at=host
        )
        records.append(log.append(draft(topics.SYNC, kind.plural, message)))
    made.step([batch(*records)], host, may_decide=False)
    return made


def batch(*records: envelope.Record, fenced: tuple[envelope.Record, ...] = ()) -> port.Batch:
    positions = {record.topic.name: record.offset + 1 for record in records}
    return port.Batch(
        records,
        port.Position(positions),
        caught_up=True,
        fenced=fenced,
        at_end={topics.SYNC.name: 0.0},
    )


def said(step: engine.StepResult) -> dict[str, object]:
    assert step.publication is not None
    return {key: found.message for key, found in step.publication.explanations.items()}


def test_no_session_runs_on_a_stale_cache() -> None:
    log = topic_log.TopicLog()
    made = synced_engine(log, builders.make_node(), builders.make_pod_group(phase="Pending"))
    late = made.step([], builders.NOON, may_decide=True, at_s=61.0)
    assert late.publication is None
    assert late.facts["sync"] is not None
    assert made.step([], builders.NOON, may_decide=True, at_s=60.0).publication is not None


@pytest.mark.parametrize("off", [timedelta(minutes=-10), timedelta(minutes=10)])
def test_freshness_does_not_depend_on_the_monitors_clock(off: timedelta) -> None:
    """A clock that is behind would make the monitor look dead, one that is ahead alive."""
    log = topic_log.TopicLog()
    made = synced_engine(log, builders.make_node(), builders.make_pod_group(phase="Pending"))
    assert made.step([], builders.NOON + off, may_decide=True, at_s=61.0).publication is None
    decided = made.step([], builders.NOON + off, may_decide=True, at_s=1.0)
    assert decided.publication is not None


def test_no_session_runs_until_the_last_decisions_are_read_back() -> None:
    log = topic_log.TopicLog()
    made = synced_engine(log, builders.make_node(), builders.make_pod_group(phase="Pending"))
    first = made.step([], builders.NOON, may_decide=True)
    assert first.publication is not None
    made.require_offset(1)
    seen = batch(*log.see(builders.make_pod("p1", "g1")))
    assert made.step([seen], builders.NOON, may_decide=True).publication is None
    returned = [log.append(found, epoch=EPOCH) for found in first.publication.decisions]
    after = made.step([batch(*returned)], builders.NOON, may_decide=True)
    assert after.publication is not None
    statement = after.publication.decisions[0].message
    assert isinstance(statement, messages.StatementDecided)
    assert [bind.pod for bind in statement.binds] == ["p1"]


def test_a_new_leader_decides_nothing_until_its_opened_record_is_read() -> None:
    """Then it decides what the previous leader had not."""
    log = topic_log.TopicLog()
    group = builders.make_pod_group(phase="Pending")
    made = synced_engine(log, builders.make_node(), group, epoch=None)
    standby = made.step([], builders.NOON, may_decide=True)
    assert (standby.publication, standby.is_due) == (None, False)
    assert not any(standby.facts.values())
    made.lead(EPOCH, EPOCH, {})
    assert made.step([], builders.NOON, may_decide=True).publication is None
    reached = port.Batch((), port.Position({topics.DECISIONS.name: EPOCH + 1}), caught_up=True)
    assert made.step([reached], builders.NOON, may_decide=True).publication is not None


def test_a_new_leader_decides_nothing_until_it_has_read_what_the_previous_one_had() -> None:
    """A decision about a pod that was not read holds no room, which would be assigned twice."""
    log = topic_log.TopicLog()
    groups = [builders.make_pod_group(name) for name in ("g1", "g2")]
    other = builders.make_pod("p2", "g2", cpu="8")
    made = synced_engine(log, builders.make_node(), *groups, other, epoch=None)
    bind = messages.Bind(namespace="default", pod="p1", uid="pod-default-p1", node="n1")
    decided = messages.StatementDecided(
        session=1, pod_group="default/g1", pod_group_uid=groups[0].metadata.uid, binds=(bind,)
    )
    before = log.append(draft(topics.DECISIONS, "default/g1", decided))
    made.lead(EPOCH, EPOCH, {topics.PODS.name: 2})
    opened = port.Batch(
        (before,), port.Position({topics.DECISIONS.name: EPOCH + 1}), caught_up=True
    )
    assert made.step([opened], builders.NOON, may_decide=True).publication is None
    pods = batch(*log.see(builders.make_pod("p1", "g1", cpu="8")))
    publication = made.step([pods], builders.NOON, may_decide=True).publication
    assert publication is not None
    assert publication.decisions == (), "the node is full"


def test_a_scheduler_that_opens_the_log_later_replaces_this_one() -> None:
    log = topic_log.TopicLog()
    made = synced_engine(log, builders.make_node(), builders.make_pod_group(phase="Pending"))
    opened = Opened(writer="scheduler", instance="other")
    record = msgspec.structs.replace(
        log.append(draft(topics.DECISIONS, OPENED_KEY, opened)), offset=EPOCH + 1
    )
    step = made.step([batch(record)], builders.NOON, may_decide=True)
    assert step.publication is None
    assert made.replaced_by == f"other has led since offset {EPOCH + 1} of scheduling.decisions"


def test_nothing_is_decided_under_a_scheduler_name_with_a_competitor() -> None:
    log = topic_log.TopicLog()
    made = synced_engine(log, builders.make_node(), builders.make_pod_group(phase="Pending"))
    rival = cluster.Competitor(
        lease="volcano-system/volcano", holder="vc", since="noon", scheduler_name="volcano"
    )
    for found, is_held_back in (((rival,), True), ((), False)):
        message = cluster.CompetitorsObserved(competitors=found)
        seen = batch(log.append(draft(topics.SYNC, cluster.COMPETITORS_KEY, message)))
        step = made.step([seen], builders.NOON, may_decide=True)
        assert (step.publication is None) == is_held_back
        assert bool(step.facts["competitors"]) == is_held_back


def test_a_gang_without_pods_is_explained_after_the_creation_grace() -> None:
    log = topic_log.TopicLog()
    made = synced_engine(log, builders.make_node(), builders.make_pod_group("g1", 2))
    first = made.step([], builders.NOON, may_decide=True)
    assert said(first) == {}
    assert first.next_step_s == schedule.CREATION_GRACE.total_seconds()
    later = made.step([], LATER, may_decide=True)
    assert sorted(said(later)) == ["default/g1", "queue//default//0"]


def test_an_explanation_that_a_fenced_record_hides_is_published_again() -> None:
    """Compaction keeps the last record of a key, of fenced writers, too."""
    log = topic_log.TopicLog()
    pod = builders.make_pod("p1", "g1", cpu="99")
    made = synced_engine(log, builders.make_node(), builders.make_pod_group("g1"), pod)
    first = made.step([], builders.NOON, may_decide=True)
    assert first.publication is not None
    stale = log.append(draft(topics.EXPLANATIONS, "default/g1", _stale()), epoch=EPOCH - 1)
    again = made.step([batch(fenced=(stale,))], builders.NOON, may_decide=True)
    repeated = said(again)["default/g1"]
    assert isinstance(repeated, messages.PodGroupExplained)
    assert repeated.tier == "never-fits"


def test_a_step_without_changes_publishes_nothing() -> None:
    log = topic_log.TopicLog()
    made = synced_engine(log, builders.make_node())
    made.step([], builders.NOON, may_decide=True)
    idle = made.step([], builders.NOON, may_decide=True)
    assert (idle.publication, idle.is_due) == (None, False)


def _stale() -> messages.PodGroupExplained:
    return builders.make_explanation(
        "default/g1",
        "podgroup-default-g1",
        phase="Inqueue",
        tier="unknown",
        message="what a paused scheduler thought",
    )
