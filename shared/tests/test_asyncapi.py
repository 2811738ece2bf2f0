"""The published description of the topics matches their records and the message types."""

from pathlib import Path

import jsonschema_rs
import msgspec
import pytest
import yaml

from stromboli.shared import asyncapi, topics

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.txt"))
DOCUMENT = yaml.safe_load(asyncapi.text())
SCHEMAS = DOCUMENT["components"]["schemas"]


def validator(schema: dict[str, object]) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for({**schema, "components": DOCUMENT["components"]})


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_records_are_as_described(path: Path) -> None:
    _, headers, value = path.read_bytes().split(b"\n\n", 2)
    written = dict(line.split(": ", 1) for line in headers.decode().splitlines())
    messages = DOCUMENT["components"]["messages"].values()
    message = next(one for one in messages if one["name"] == written["ce_type"])
    validator(message["headers"]).validate(written)
    validator(message["payload"]).validate(msgspec.json.decode(value) if value else None)


def test_headers_that_are_missing_are_not_as_described() -> None:
    envelope = validator({"$ref": "#/components/schemas/Envelope"})
    assert not envelope.is_valid({"ce_id": "controller/41/7"})


def test_every_topic_is_described_with_its_writer_and_whether_it_is_stable() -> None:
    described = {
        name: (channel["x-writer"], channel["x-stability"] == "stable")
        for name, channel in DOCUMENT["channels"].items()
    }
    assert described == {
        topic.name: (topic.writer or "everyone", topic.stable) for topic in topics.ALL
    }


def test_the_committed_file_is_up_to_date() -> None:
    asyncapi.main(["--check"])


def test_an_unknown_argument_is_rejected() -> None:
    """A mistyped ``--check`` must not overwrite what it should have compared."""
    with pytest.raises(SystemExit, match="--check"):
        asyncapi.main(["--chek"])


class Documented(msgspec.Struct):
    """A thing on
    two lines (key: its name). ``size``: in bytes; 0 if unknown. ``first`` and ``last``: of its
    life, ``None`` before.
    """

    size: int
    first: str
    last: str
    plain: int


def test_the_fields_that_a_docstring_describes_are_described() -> None:
    life = "of its life, ``None`` before"
    assert asyncapi.field_descriptions(Documented) == {
        "size": "in bytes; 0 if unknown",
        "first": life,
        "last": life,
    }


def test_descriptions_are_whole_sentences() -> None:
    described = [it["description"] for it in SCHEMAS.values() if "description" in it]
    described += [it["summary"] for it in DOCUMENT["components"]["messages"].values()]
    assert [text for text in described if not text.endswith((".", ":"))] == []
