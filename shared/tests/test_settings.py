"""Settings come from the environment, all of them or none."""

import msgspec
import pytest

from stromboli.shared.runtime import settings


class Kafka(msgspec.Struct, frozen=True, kw_only=True):
    bootstrap: str
    password: str = ""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    kafka: Kafka
    limit: int = 3
    names: tuple[str, ...] = ("volcano",)


def test_defaults_hold_where_the_environment_is_silent() -> None:
    read = settings.load(Example, "example", {"STROM_KAFKA_BOOTSTRAP": "b:9092"})
    assert read == Example(kafka=Kafka(bootstrap="b:9092"))


def test_values_are_converted_and_tuples_are_comma_separated() -> None:
    environment = {
        "STROM_KAFKA_BOOTSTRAP": "b:9092",
        "STROM_EXAMPLE_LIMIT": "7",
        "STROM_EXAMPLE_NAMES": "a, b",
    }
    read = settings.load(Example, "example", environment)
    assert (read.limit, read.names) == (7, ("a", "b"))


def test_all_invalid_settings_are_reported_together() -> None:
    environment = {"STROM_EXAMPLE_LIMIT": "many", "STROM_EXAMPLE_LIMITT": "7"}
    with pytest.raises(settings.SettingsError) as caught:
        settings.load(Example, "example", environment)
    assert [line.split(":")[0] for line in caught.value.lines] == [
        "STROM_KAFKA_BOOTSTRAP",
        "STROM_EXAMPLE_LIMIT='many'",
        "STROM_EXAMPLE_LIMITT",
    ]
    assert "did you mean STROM_EXAMPLE_LIMIT?" in caught.value.lines[2]


def test_secrets_are_never_shown() -> None:
    shown = settings.shown(Example(kafka=Kafka(bootstrap="b", password="p")))
    assert shown["kafka"] == {"bootstrap": "b", "password": "***"}
