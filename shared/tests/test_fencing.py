"""Which records readers drop: the rules of ``fencing``, one by one."""

import pytest

from stromboli.shared import envelope, topics
from stromboli.shared.bus import fencing, port
from stromboli.testkit import builders, records

EVENTS = topics.BATCH_EVENTS
FORGED = 10**12


class Topic:
    """A topic with records of the test, read by one fence."""

    def __init__(self, topic: topics.Topic = EVENTS) -> None:
        self.fence = fencing.Fence("default")
        self.topic = topic
        self.end = 0

    def announce(self, epoch: int) -> bool:
        """A writer announces its epoch; whether it passes."""
        (draft,) = fencing.announcements([self.topic], "controller", "c", builders.NOON)
        return self._passes(builders.make_record(draft, self.end, epoch=epoch))

    def open(self, floor: int) -> bool:
        """A writer opens on its main topic; whether it passes."""
        draft = fencing.opening_draft("controller", "c", floor, builders.NOON)
        return self._passes(builders.make_record(draft, self.end))

    def say(self, epoch: int) -> bool:
        """A writer appends; whether it passes."""
        draft = records.outcome_of("d") if self.topic.main else records.phase_change()
        return self._passes(builders.make_record(draft, self.end, epoch=epoch))

    def lose(self, count: int) -> None:
        """The next records are missing: compaction or retention removed them."""
        self.end += count

    def _passes(self, record: envelope.Record) -> bool:
        self.end += 1
        return self.fence.accepts(record)


def test_a_lower_epoch_behind_a_higher_one_is_dropped() -> None:
    topic = Topic()
    assert topic.announce(3)
    assert topic.say(3)
    assert topic.announce(9)
    assert not topic.say(3)
    assert topic.say(9)
    assert not topic.announce(4)
    assert topic.announce(10)
    assert not topic.say(9)


def test_a_higher_epoch_that_was_not_announced_is_refused() -> None:
    """One forged or garbled id must not end the writer that everyone reads."""
    topic = Topic()
    topic.announce(3)
    assert not topic.say(FORGED)
    assert topic.say(3)
    assert topic.fence.accepted == {EVENTS.name: 3}


def test_on_the_main_topic_opened_announces() -> None:
    topic = Topic(topics.OUTCOMES)
    assert topic.open(floor=5)
    assert not topic.say(FORGED)
    assert topic.say(5)
    assert topic.open(floor=6)
    assert not topic.say(5)


def test_opened_announces_nothing_on_other_topics() -> None:
    topic = Topic()
    topic.announce(3)
    opened = builders.make_record(
        fencing.opening_draft("controller", "c", 0, builders.NOON), epoch=9
    )
    unmanaged = envelope.Record(EVENTS, topic.end, opened.key, opened.value, opened.headers)
    assert unmanaged.epoch == 9
    assert not topic.fence.accepts(unmanaged)


def test_missing_records_may_contain_an_announcement() -> None:
    """Compaction keeps only the last announcement, so a late reader must accept what was announced
    before.
    """
    topic = Topic()
    topic.announce(3)
    topic.lose(1)
    assert topic.say(7)
    assert not topic.say(FORGED)


def test_a_resumed_reader_fences_like_a_continuous_one() -> None:
    topic = Topic()
    topic.announce(3)
    topic.fence = fencing.Fence("default", topic.fence.accepted, {EVENTS.name: topic.end})
    assert not topic.say(FORGED)
    assert topic.say(3)


def test_the_first_epoch_that_is_read_needs_no_announcement() -> None:
    """Retention removes the announcement of a writer that has been there for two weeks."""
    topic = Topic()
    topic.lose(100)
    assert topic.say(3)
    assert not topic.say(2)


def test_a_recreated_topic_is_judged_from_its_start() -> None:
    topic = Topic()
    topic.announce(9)
    topic.fence.forget(EVENTS)
    topic.end = 0
    assert topic.announce(3)


def test_each_topic_is_fenced_by_itself() -> None:
    """Order across topics is not guaranteed, so a higher epoch elsewhere does not apply here."""
    topic, other = Topic(), Topic(topics.OUTCOMES)
    other.fence = topic.fence
    assert topic.announce(9)
    assert other.say(3)


def test_a_record_without_an_epoch_is_accepted_and_makes_its_key_unknown() -> None:
    topic = Topic()
    topic.announce(9)
    for id_ in ("somebody", f"controller/{'9' * 5000}/1", "controller/٣/1"):
        foreign = envelope.Record(EVENTS, topic.end, "k", b"{}", {"ce_id": id_})
        assert topic.fence.accepts(foreign)
    assert topic.fence.accepted == {EVENTS.name: 9}


@pytest.mark.parametrize("topic", [topics.DEAD_LETTERS, topics.ANSWERS, topics.SUBMISSIONS])
def test_nothing_is_fenced_where_writers_act_side_by_side(topic: topics.Topic) -> None:
    fence = fencing.Fence("default")
    for epoch in (9, 3):
        headers = {"ce_id": f"admission/{epoch}/1"}
        assert fence.accepts(envelope.Record(topic, 0, "k", b"{}", headers))
    assert fence.accepted == {}


def test_announcements_are_the_logs_own() -> None:
    """Neither among the records that count nor among those that are dropped."""
    (draft,) = fencing.announcements([EVENTS], "controller", "c", builders.NOON)
    made = [
        builders.make_record(draft, 0, epoch=3),
        builders.make_record(records.phase_change("default/a"), 1, epoch=3),
        builders.make_record(records.phase_change("default/b"), 2, epoch=2),
        builders.make_record(draft, 3, epoch=2),
    ]
    accepted, fenced, announced = fencing.Fence("default").split(made)
    assert (records.keys(accepted), records.keys(fenced)) == (["default/a"], ["default/b"])
    assert [record.offset for record in announced] == [0, 3]


def test_the_floor_is_above_every_known_epoch() -> None:
    """Of records of replaced writers and forged ones, too: the next writer is above them all."""
    epochs = (3, 17, 5)
    made = [builders.make_record(records.phase_change(), 0, epoch=epoch) for epoch in epochs]
    assert fencing.epoch_floor(made) == 18
    assert fencing.epoch_floor([]) == 0


def test_a_position_in_a_recreated_topic_is_void() -> None:
    place = port.Position({"a": 3, "b": 4}, {"a": 1, "b": 2}, {"a": "x", "b": "y"})
    assert place.valid_in({"a": "x", "b": "z"}) == port.Position({"a": 3}, {"a": 1}, {"a": "x"})
    unnamed = port.Position({"a": 3}, {"a": 1})
    assert unnamed.valid_in({"a": "x"}) == unnamed
