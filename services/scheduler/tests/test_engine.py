"""Steps of the core thread, in virtual time: when it decides, and what it says and does not say."""

from datetime import timedelta

from services.scheduler.tests.cell import POLICY, draft
from stromboli.scheduler import engine
from stromboli.scheduler.core import session, state
from stromboli.shared import envelope, topics
from stromboli.shared.api import meta
from stromboli.shared.bus import port
from stromboli.shared.messages import cluster
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, topic_log

EPOCH = 5
LATER = builders.NOON + session.PATIENCE


def synced_engine(log: topic_log.TopicLog, *objects: meta.Object) -> engine.Engine:
    """An engine that has folded these objects and may decide."""
    made = engine.Engine(POLICY, 0, EPOCH, timedelta(seconds=60))
    records = log.see(builders.make_queue(), *objects)
    for kind in state.KINDS:
        message = cluster.KindSynced(
            kind=kind.plural, state="synced", resource_version="1", at=builders.NOON
        )
        records.append(log.append(draft(topics.SYNC, kind.plural, message)))
    made.step([batch(*records)], builders.NOON, may_decide=False)
    return made


def batch(*records: envelope.Record, unheard: tuple[envelope.Record, ...] = ()) -> port.Batch:
    positions = {record.topic.name: record.offset + 1 for record in records}
    return port.Batch(records, positions, caught_up=True, unheard=unheard)


def said(step: engine.Step) -> dict[str, object]:
    assert step.publication is not None
    return {key: found.message for key, found in step.publication.explanations.items()}


def test_a_stale_picture_is_not_decided_on() -> None:
    log = topic_log.TopicLog()
    made = synced_engine(log, builders.make_node(), builders.make_pod_group(phase="Pending"))
    late = made.step([], builders.NOON + timedelta(seconds=61), may_decide=True)
    assert late.publication is None
    assert late.facts["sync"] is not None
    assert made.step([], builders.NOON, may_decide=True).publication is not None


def test_nothing_is_decided_until_the_own_decisions_came_back() -> None:
    log = topic_log.TopicLog()
    made = synced_engine(log, builders.make_node(), builders.make_pod_group(phase="Pending"))
    first = made.step([], builders.NOON, may_decide=True)
    assert first.publication is not None
    made.wait_for(1)
    seen = batch(*log.see(builders.make_pod("p1", "g1")))
    assert made.step([seen], builders.NOON, may_decide=True).publication is None
    returned = [log.append(found, epoch=EPOCH) for found in first.publication.decisions]
    after = made.step([batch(*returned)], builders.NOON, may_decide=True)
    assert after.publication is not None
    statement = after.publication.decisions[0].message
    assert isinstance(statement, messages.StatementDecided)
    assert [bind.pod for bind in statement.binds] == ["p1"]


def test_a_gang_whose_pods_do_not_come_is_explained_after_a_while() -> None:
    log = topic_log.TopicLog()
    made = synced_engine(log, builders.make_node(), builders.make_pod_group("g1", 2))
    first = made.step([], builders.NOON, may_decide=True)
    assert said(first) == {}
    assert first.look_again_s == session.PATIENCE.total_seconds()
    later = made.step([], LATER, may_decide=True)
    assert sorted(said(later)) == ["default/g1", "queue//default"]


def test_a_replaced_writers_explanation_is_said_anew() -> None:
    """Compaction keeps the last record of a key, whoever wrote it."""
    log = topic_log.TopicLog()
    pod = builders.make_pod("p1", "g1", cpu="99")
    made = synced_engine(log, builders.make_node(), builders.make_pod_group("g1"), pod)
    first = made.step([], builders.NOON, may_decide=True)
    assert first.publication is not None
    stale = log.append(draft(topics.EXPLANATIONS, "default/g1", _stale()), epoch=EPOCH - 1)
    again = made.step([batch(unheard=(stale,))], builders.NOON, may_decide=True)
    repeated = said(again)["default/g1"]
    assert isinstance(repeated, messages.PodGroupExplained)
    assert repeated.tier == "resources"


def test_a_step_without_news_says_nothing() -> None:
    log = topic_log.TopicLog()
    made = synced_engine(log, builders.make_node())
    made.step([], builders.NOON, may_decide=True)
    idle = made.step([], builders.NOON, may_decide=True)
    assert (idle.publication, idle.is_due) == (None, False)


def _stale() -> messages.PodGroupExplained:
    return messages.PodGroupExplained(
        pod_group="default/g1",
        pod_group_uid="podgroup-default-g1",
        queue="default",
        phase="Inqueue",
        tier="unknown",
        message="what a paused scheduler thought",
        min_member=1,
        members=1,
        running=0,
        pending=1,
        placeable=0,
    )
