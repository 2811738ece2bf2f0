"""Messages on topics: golden records decode indefinitely, one writer per topic, round trips."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from stromboli.shared import envelope, topics
from stromboli.shared.messages import base, cluster

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.txt"))
TOPICS = {topic.name: topic for topic in topics.ALL}
SIMPLE: dict[type[inspect.Type], st.SearchStrategy[Any]] = {
    inspect.StrType: st.text(max_size=8),
    inspect.FloatType: st.floats(allow_nan=False, allow_infinity=False),
    inspect.BoolType: st.booleans(),
    inspect.BytesType: st.binary(max_size=8),
    inspect.NoneType: st.none(),
    inspect.AnyType: st.recursive(st.integers(-9, 9) | st.text(max_size=3), st.lists),
    inspect.DateTimeType: st.datetimes(datetime(1970, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - hypothesis wants it naive
    inspect.RawType: st.sampled_from([b"{}", b'{"a":[1,2.5,null]}', b"[ ]"]).map(msgspec.Raw),
}


def read(path: Path) -> envelope.Record:
    """The record of a golden file; see golden/README.md."""
    place, headers, value = path.read_bytes().split(b"\n\n", 2)
    where, written = (
        dict(line.split(": ", 1) for line in part.decode().splitlines())
        for part in (place, headers)
    )
    return envelope.Record(
        TOPICS[where["topic"]], 0, where["key"], value.removesuffix(b"\n") or None, written
    )


def values(of: inspect.Type) -> st.SearchStrategy[Any]:
    """Values of any type that our messages are made of."""
    match of:
        case inspect.IntType(ge=least, le=most):
            return st.integers(
                -(2**63) if least is None else least, 2**63 - 1 if most is None else most
            )
        case inspect.StructType(cls=struct, fields=fields):
            needed = {field.name: values(field.type) for field in fields if field.required}
            others = {field.name: values(field.type) for field in fields if not field.required}
            made = st.fixed_dictionaries(needed, optional=others)
            return made.map(lambda chosen: struct(**chosen))
        case inspect.UnionType(types=types):
            return st.one_of(*map(values, types))
        case inspect.LiteralType(values=literals):
            return st.sampled_from(literals)
        case inspect.VarTupleType(item_type=item):
            return st.lists(values(item), max_size=2).map(tuple)
        case inspect.DictType(value_type=value):
            return st.dictionaries(SIMPLE[inspect.StrType], values(value), max_size=2)
        case _:
            return SIMPLE[type(of)]


# --- golden ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_records_are_read_and_written_byte_for_byte(path: Path) -> None:
    """Including those of versions that are no longer written: decoded, they encode to the same
    bytes.
    """
    record = read(path)
    draft = envelope.Draft(
        topic=record.topic,
        key=record.key,
        message=envelope.decode(record),
        time=record.time,
        cause=record.cause,
        traceparent=record.traceparent,
        object_uid=record.headers.get("ce_objectuid", ""),
        object_version=record.headers.get("ce_objectversion", ""),
        position=int(found) if (found := record.headers.get("ce_position")) else None,
    )
    writer, epoch, sequence = record.id.split("/")
    headers, value = envelope.seal(draft, writer, int(epoch), int(sequence), cluster_name="default")
    others = {"authorization"} if record.topic is topics.SUBMISSIONS else set()
    assert list(headers.items()) == [
        (name, text) for name, text in record.headers.items() if name not in others
    ]
    assert value == record.value


def test_every_type_has_a_golden_record() -> None:
    recorded = {read(path).type for path in GOLDEN}
    assert recorded == {*base.TYPES, cluster.GONE}


def test_golden_files_are_named_by_their_type() -> None:
    assert [path for path in GOLDEN if not path.name.startswith(read(path).type + ".")] == []


# --- topics ---------------------------------------------------------------------------------


def test_each_topic_has_one_writer() -> None:
    """Everyone's ``dead.letters`` is the one exception."""
    assert [topic.name for topic in topics.ALL if topic.writer is None] == ["dead.letters"]
    assert len({topic.name for topic in topics.ALL}) == len(topics.ALL)


def test_a_type_is_on_topics_of_one_writer() -> None:
    """Except what every service writes: how it opened. ``cluster.changes`` has copies of others."""
    writers: dict[type, set[str | None]] = {}
    for topic in topics.ALL:
        for message in () if topic == topics.CHANGES else topic.messages:
            writers.setdefault(message, set()).add(topic.writer)
    shared = {message.__name__ for message, names in writers.items() if len(names) > 1}
    assert shared == {"Opened"}


def test_every_type_has_a_topic_and_every_message_a_type() -> None:
    on_topics = {message for topic in topics.ALL for message in topic.carries}
    assert on_topics == set(base.TYPES.values())


def test_each_service_has_one_main_topic() -> None:
    services = {topic.writer for topic in topics.ALL} - {None, topics.OUTSIDE}
    assert set(topics.MAIN) == services
    assert sorted(topic.name for topic in topics.ALL if topic.main) == sorted(
        topic.name for topic in topics.MAIN.values()
    )


def test_names_carry_a_version() -> None:
    for name in (*base.TYPES, cluster.GONE):
        area, fact, version = name.removeprefix("stromboli.").split(".")
        assert area.isalpha()
        assert fact.replace("_", "").isalpha()
        assert version.removeprefix("v").isdecimal()


def test_type_names_are_unique() -> None:
    with pytest.raises(ValueError, match="has a type name already"):
        base.register("stromboli.log.opened.v1")(msgspec.defstruct("Other", []))


def test_compacted_topics_keep_a_record_of_every_key_and_others_two_weeks() -> None:
    """Answers to repeated requests are kept for a day: they are folded whole at every start.
    Submissions are kept for a week: what is deleted unread is never answered. A client waits
    seconds for the answer to a what-if question, so both are kept for an hour only."""
    kept = {
        topics.ANSWERS.name: topics.DAY_MS,
        topics.SUBMISSIONS.name: 7 * topics.DAY_MS,
        topics.QUESTIONS.name: topics.HOUR_MS,
        topics.FORECAST_ANSWERS.name: topics.HOUR_MS,
    }
    for topic in topics.ALL:
        if topic.is_compacted:
            assert topic.settings["cleanup.policy"] == "compact"
            assert topic.settings["min.compaction.lag.ms"] == str(topics.COMPACTION_LAG_MS)
        else:
            kept_ms = kept.get(topic.name, 14 * topics.DAY_MS)
            assert topic.settings["retention.ms"] == str(kept_ms)


# --- round trips ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(base.TYPES))
def test_any_message_survives_a_round_trip(name: str) -> None:
    """And its second encoding is the first: nothing depends on how it was made."""

    @given(values(inspect.type_info(base.TYPES[name])))
    @settings(max_examples=30)  # of each of the types
    def holds(message: msgspec.Struct) -> None:
        value = base.encode(message)
        again = base.decode(name, value)
        assert again == message
        assert base.encode(again) == value

    holds()


@pytest.mark.parametrize("name", sorted(base.TYPES))
def test_messages_may_grow_and_old_readers_ignore_unknown_fields(name: str) -> None:
    path = next(path for path in GOLDEN if read(path).type == name)
    record = read(path)
    assert record.value is not None
    grown = b'{"aFieldOfTomorrow":{"x":[1]},' + record.value.removeprefix(b"{")
    assert base.decode(name, grown) == envelope.decode(record)
