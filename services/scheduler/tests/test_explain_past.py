"""Rules of explaining the past: the state, the decisions and the configuration of that time."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import pytest

from stromboli.scheduler.core import actions, plugins, policy
from stromboli.scheduler.core.config import config_reader
from stromboli.scheduler.core.replay import explain_past
from stromboli.shared import envelope, topics
from stromboli.shared.api import meta
from stromboli.shared.messages import cluster
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, topic_log

DOCUMENT = {
    "actions": "enqueue, allocate",
    "tiers": [{"plugins": [{"name": name} for name in ("priority", "gang", "predicates")]}],
}
CONFIGURED = config_reader.read_configuration(DOCUMENT, actions.NAMES, plugins.NAMES)
KEY = "default/me"


def at(seconds: float) -> datetime:
    return builders.NOON + timedelta(seconds=seconds)


class History:
    """``cluster.changes`` and the decisions, written at chosen times."""

    def __init__(self) -> None:
        self._log = topic_log.TopicLog()
        self._originals = topic_log.TopicLog()
        self.records = self._log.records

    def see(self, seconds: float, *objects: meta.Object) -> None:
        """The monitor observes these objects."""
        self._copy(seconds, self._originals.see(*objects))

    def delete(self, seconds: float, *objects: meta.Object) -> None:
        """The monitor observes that these objects are gone."""
        self._copy(seconds, self._originals.lose(*objects))

    def checkpoint(self, seconds: float) -> None:
        """Everything until now is an image of the snapshot topics."""
        ends: dict[str, int] = {}
        for record in self._originals.records:
            ends[record.topic.name] = record.offset + 1
        message = cluster.HistoryCheckpointed(positions=ends, image_offset=0, imaged_at=at(seconds))
        self._append(seconds, topics.CHANGES, "$kept", message)

    def image(self, seconds: float) -> None:
        """The monitor copies everything again, as it does once a day."""
        self._copy(seconds, list(self._originals.records))

    def decide(self, seconds: float, number: int, digest: str) -> None:
        """A session with this configuration."""
        message = messages.SessionRecorded(
            session=number, offsets={}, now=at(seconds), configuration=digest
        )
        self._append(seconds, topics.DECISIONS, messages.SESSION_KEY, message)

    def _copy(self, seconds: float, originals: Sequence[envelope.Record]) -> None:
        for each in originals:
            encoded = None if each.value is None else envelope.Encoded(each.type, each.value)
            self._log.append(
                envelope.Draft(
                    topic=topics.CHANGES,
                    key=f"{each.topic.name}/{each.key}",
                    message=None,
                    encoded=encoded,
                    time=at(seconds),
                    cause=each.id,
                    object_uid=each.headers.get("ce_objectuid", ""),
                    object_version=each.headers.get("ce_objectversion", ""),
                    position=each.offset,
                )
            )

    def _append(
        self, seconds: float, topic: topics.Topic, key: str, message: msgspec.Struct
    ) -> None:
        self._log.append(envelope.Draft(topic=topic, key=key, message=message, time=at(seconds)))

    def explain(self, seconds: float, *, known: bool = True) -> list[explain_past.PastGang]:
        configurations = [CONFIGURED] if known else []
        return explain_past.explain_past(
            self.records, at(seconds), [KEY], configurations, policy.Policy()
        )


@pytest.fixture
def history() -> History:
    """From second 0 a node of one CPU that a job uses; a job that waits for it from second 100;
    the first job ends at second 200, and the other one is placed at second 201."""
    found = History()
    used = builders.make_pod("used", "runs", cpu="1", node="n1", phase="Running")
    found.see(
        0,
        builders.make_node("n1", cpu="1"),
        builders.make_queue(),
        builders.make_pod_group("runs", phase="Running"),
        used,
    )
    found.checkpoint(1)
    found.decide(2, 1, CONFIGURED.digest)
    group = builders.make_pod_group("me", created=at(100))
    pod = builders.make_pod("me-0", "me", cpu="1")
    found.see(100, group, pod)
    found.delete(200, used)
    placed = builders.make_pod("me-0", "me", cpu="1", node="n1", phase="Running", version=5)
    found.see(201, placed)
    return found


def one(past_gangs: Sequence[explain_past.PastGang]) -> explain_past.PastGang:
    (gang,) = past_gangs
    return gang


def test_a_job_is_explained_with_the_numbers_of_that_time(history: History) -> None:
    past_gang = one(history.explain(150))
    assert past_gang.explained is not None
    assert past_gang.explained.tier == "resources"
    (cpu,) = (it for it in past_gang.explained.shortages if it.resource == "cpu")
    assert (cpu.needed, cpu.free, cpu.total) == (1000, 0, 1000)
    assert (past_gang.placed, past_gang.pods, past_gang.in_front) == (0, 1, ())


def test_a_later_image_of_the_topics_changes_nothing(history: History) -> None:
    """Its copies are younger than the changes."""
    before = history.explain(150)
    history.image(86_400)
    assert history.explain(150) == before


def test_a_job_that_is_placed_at_that_time_is_decided(history: History) -> None:
    past_gang = one(history.explain(200.5))
    assert past_gang.is_decided
    assert past_gang.explained is None


def test_a_job_that_runs_then_is_not_explained(history: History) -> None:
    past_gang = one(history.explain(300))
    assert (past_gang.explained, past_gang.placed) == (None, 1)


def test_a_job_that_did_not_exist_is_left_out(history: History) -> None:
    assert history.explain(50) == []


def test_a_time_before_the_log_names_the_oldest_that_has_an_answer(history: History) -> None:
    with pytest.raises(explain_past.TooEarlyError) as caught:
        history.explain(0.5)
    assert caught.value.oldest == at(1)
    with pytest.raises(explain_past.TooEarlyError, match="no complete state"):
        explain_past.explain_past([], at(5), [KEY], [CONFIGURED], policy.Policy())


def test_another_configuration_than_the_one_then_is_refused(history: History) -> None:
    with pytest.raises(explain_past.UnknownConfigurationError) as caught:
        history.explain(150, known=False)
    assert caught.value.digest == CONFIGURED.digest


def test_pod_groups_are_found_by_the_name_of_their_job(history: History) -> None:
    assert explain_past.pod_groups_of(history.records, "default/m", at(150)) == [KEY]
    assert explain_past.pod_groups_of(history.records, "default/m", at(50)) == []
