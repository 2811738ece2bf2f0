"""Tests of generated parts of pages: they are complete, and special characters do not break
tables."""

import json
from collections import Counter

import msgspec
import pytest
import yaml

from stromboli.controller.core import lifecycle
from stromboli.scheduler.core.cache.in_flight import assumption_states
from stromboli.scheduler.core.config import config_reader
from stromboli.shared import topics
from stromboli.shared.bus.kafka import KafkaSettings
from stromboli.shared.jobspec import crds
from tools.docs import (
    assumption_diagram,
    gang_diagram,
    lifecycle_diagram,
    markdown,
    objects,
    rest,
    settings,
    site_extension,
)
from tools.docs import topics as topics_page


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    address: str = "here"
    """Where it is | ``host``."""


class Usual(msgspec.Struct, frozen=True, kw_only=True):
    names: tuple[str, ...] = ("a", "b")
    """Whose they
    are."""
    wait_s: float
    password: str = "hidden"


class Settings(Usual, frozen=True, kw_only=True):
    kafka: KafkaSettings = KafkaSettings()
    is_on: bool = False


def test_settings_have_the_names_of_the_environment_and_their_docstrings() -> None:
    found = {it.name: it for it in settings.settings(Settings, "STROM_X_")}
    assert [*found] == ["STROM_X_NAMES", "STROM_X_WAIT_S", "STROM_X_PASSWORD", "STROM_X_IS_ON"]
    assert found["STROM_X_NAMES"] == settings.Setting(
        name="STROM_X_NAMES", kind="list of text", default="`a,b`", text="Whose they are."
    )
    assert found["STROM_X_WAIT_S"].default == "none"
    assert found["STROM_X_IS_ON"].default == "`false`"


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    broker: Broker = Broker()


def test_nested_settings_without_a_section_are_an_error() -> None:
    """Otherwise the page would silently omit them."""
    with pytest.raises(LookupError, match="Broker has no section"):
        list(settings.settings(Forgotten, "STROM_X_"))


def test_a_secrets_default_is_not_shown() -> None:
    assert "hidden" not in str(list(settings.settings(Settings, "")))


def test_text_of_the_code_breaks_no_table() -> None:
    (setting,) = settings.settings(Broker, "")
    assert list(markdown.table(("", ""), [(setting.name, setting.text)]))[-1] == (
        "| ADDRESS | Where it is \\| `host`. |"
    )
    assert list(markdown.table(("a",), [])) == []


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array", "items": {"type": "string"}}, "list of string"),
        ({"$ref": "#/components/schemas/Job"}, "Job"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer or null"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map to integer"),
        ({"enum": ["", "Open"]}, "one of nothing, `Open`"),
        ({}, "anything"),
    ],
)
def test_types_are_reported_in_words(schema: markdown.Document, words: str) -> None:
    assert markdown.kind(schema) == words


def test_every_topic_and_message_is_on_the_page() -> None:
    text = site_extension.generated("topics")
    for topic in topics.ALL:
        assert f"| `{topic.name}` |" in text
        for message in topic.messages:
            assert f"### {message.__name__}\n" in text


def test_every_request_is_on_the_page_with_its_parameters() -> None:
    description = json.loads((site_extension.DOCS / "openapi.json").read_text())
    text = "\n".join(rest.lines(description))
    for path, methods in description["paths"].items():
        for method in methods:
            assert f"### {method.upper()} {path}\n" in text


def test_fields_of_objects_are_paths_and_a_nested_job_is_described_once() -> None:
    text = "\n".join(
        objects.lines({each["spec"]["names"]["kind"]: each for each in crds.documents()})
    )
    assert "| `spec.tasks[].policies[].exitCode` | integer |" in text
    assert text.count("`spec.tasks[].replicas`") == 1
    assert "| `spec.jobTemplate.spec` | [a Job's spec](#job) |" in text
    assert "spec.jobTemplate.spec." not in text
    assert "| `action` | string |" in text


def test_pages_get_the_generated_parts_they_name() -> None:
    source = [
        "a\n<!-- generated: objects -->\n```mermaid\nstateDiagram-v2\n A --> B\n```\n"
        "[b](../cli/README.md#c)"
    ]
    site_extension.complete(source)
    assert "## Queue" in source[0]
    assert "A --> B" not in source[0]
    assert "<svg" in source[0]
    assert source[0].endswith("[b](strom.md#c)")
    with pytest.raises(ValueError, match="no generator of 'x'"):
        site_extension.generated("x")
    with pytest.raises(ValueError, match="no diagram of type 'graph'"):
        site_extension.complete(["```mermaid\ngraph TD\n```"])


def test_the_lifecycle_diagram_has_every_transition_of_the_table() -> None:
    """Each transition is drawn once: from the phase, or from the box if all phases in the box have
    it."""
    drawn = {
        (phase, to)
        for origin, to in lifecycle_diagram.edges()
        for phase in (lifecycle_diagram.ALIVE if origin == "alive" else (origin,))
    }
    moves = {(phase, move.to) for (phase, _), move in lifecycle.TABLE.items()}
    assert drawn == {(phase, to) for phase, to in moves if phase != to}
    assert lifecycle_diagram.diagram().count("marker-end") == len(lifecycle_diagram.edges())


def test_the_assumption_diagram_has_every_transition_of_the_table() -> None:
    drawn = {
        (origin, event, to)
        for (origin, to), events in assumption_diagram.edges().items()
        for event in events
    }
    assert drawn == {
        (state, event.replace("_", " "), to)
        for (state, event), to in assumption_states.TRANSITIONS.items()
    }
    assert assumption_diagram.diagram().count("marker-end") == len(assumption_diagram.edges())


def test_the_gang_diagram_shows_what_its_captions_say() -> None:
    """Placed one by one, the pods take all nodes and no job is complete; placed as gangs, two jobs
    are complete and the others take nothing."""
    alone = Counter(pod[0] for pod in gang_diagram.decided(yaml.safe_load(gang_diagram.ONE_BY_ONE)))
    assert alone.total() == gang_diagram.NODES * gang_diagram.PLACES
    assert max(alone.values()) < gang_diagram.PODS
    whole = Counter(pod[0] for pod in gang_diagram.decided(dict(config_reader.DEFAULT)))
    assert whole == {"A": gang_diagram.PODS, "B": gang_diagram.PODS}


def test_a_message_without_fields_is_its_type() -> None:
    assert list(topics_page.fields({"type": "string"}, {})) == ["string"]
