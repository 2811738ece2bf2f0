"""Rights on the broker follow the table of topics."""

import pytest

from stromboli.shared import topics
from stromboli.shared.bus.kafka import acls

CELL = "c"
TABLE = acls.table(CELL, {**acls.PRINCIPALS, "outside": "User:trainer"})


def principals(operation: str, topic: topics.Topic) -> set[str]:
    name = topic.full_name(CELL)
    return {
        it.principal
        for it in TABLE
        if it.operation == operation
        and (it.name == name or (it.pattern == "Prefixed" and name.startswith(it.name)))
    }


@pytest.mark.parametrize("topic", topics.ALL, ids=lambda it: it.name)
def test_only_the_writer_of_a_topic_appends_to_it(topic: topics.Topic) -> None:
    expected = {f"User:stromboli-{topic.writer}"}
    if topic.writer is None:
        expected = {acls.PRINCIPALS[name] for name in acls.SERVICES}
    elif topic.writer == topics.OUTSIDE:
        expected = {"User:trainer"}
    assert principals("Write", topic) == expected
    assert principals("AlterConfigs", topic) <= expected


def test_the_history_appends_only_dead_letters() -> None:
    appended = {it.name for it in topics.ALL if "User:stromboli-history" in principals("Write", it)}
    assert appended == {topics.DEAD_LETTERS.name}


def test_only_admission_reads_submissions() -> None:
    """They bear tokens."""
    assert principals("Read", topics.SUBMISSIONS) == {"User:stromboli-admission"}


def test_clients_may_not_read_internal_topics() -> None:
    read = {it.name for it in topics.ALL if "User:trainer" in principals("Read", it)}
    assert read == {topics.REVIEWS.name}


def test_acls_of_a_cluster_grant_no_right_in_another() -> None:
    assert all(it.name.startswith(f"{CELL}.") for it in TABLE)


def test_a_principal_that_cannot_be_read_is_refused() -> None:
    for wrong in ("monitor", "monitor=ann", "nobody=User:ann"):
        with pytest.raises(SystemExit):
            acls.main(["--principal", wrong])


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert acls.main(["--principal", "monitor=User:CN=watch"]) == 0
    printed = capsys.readouterr().out
    assert "User:CN=watch\tAllow\tWrite\tTopic:Literal:default.cluster.pods" in printed
    assert "stromboli-monitor" not in printed
