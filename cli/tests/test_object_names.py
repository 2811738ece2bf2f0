"""Rules of names in the forms of ``-o name``."""

from typing import Any

import pytest
import typer

from stromboli.cli.parameters import object_names


@pytest.mark.parametrize("form", ["job.batch.volcano.sh/a", "job/a", "jobs/a", "a"])
def test_commands_take_the_names_that_lists_print(api_server: Any, strom: Any, form: str) -> None:
    strom("job", "run", "a")
    assert "a" in strom("job", "get", form).stdout
    assert strom("get", "job", form, "-o", "name").stdout == "job.batch.volcano.sh/a\n"
    if "/" in form:
        assert strom("get", form, "-o", "name").stdout == "job.batch.volcano.sh/a\n"
    assert strom("job", "delete", form).stdout == "job.batch.volcano.sh/a deleted\n"


def test_every_kind_has_these_forms() -> None:
    forms = {
        "QUEUE": "queue.scheduling.volcano.sh/a", "[JOB]...": "job/a", "POD": "pod/a",
        "NODE...": "node/a", "PODGROUP": "podgroup.scheduling.volcano.sh/a",
        "FLOW": "jobflow.flow.volcano.sh/a", "CRON": "cronjob/a",
    }  # fmt: skip
    assert {metavar: object_names.bare(metavar, text) for metavar, text in forms.items()} == (
        dict.fromkeys(forms, "a")
    )
    assert object_names.bare("JOB", ["job/a", "b"]) == ["a", "b"]


@pytest.mark.parametrize("text", ["other/a", "job.example.org/a", "job"])
def test_other_texts_are_unchanged(text: str) -> None:
    assert object_names.bare("JOB", text) == text


@pytest.mark.parametrize("metavar", [None, "PATH", "JOB|SCRIPT", "FIELD=VALUE..."])
def test_parameters_that_are_no_names_are_unchanged(metavar: str | None) -> None:
    assert object_names.bare(metavar, "job/a") == "job/a"


def test_the_name_of_another_kind_is_an_error(strom: Any) -> None:
    with pytest.raises(typer.BadParameter):
        object_names.bare("JOB", "queue/a")
    refused = strom("job", "get", "queue/a")
    assert refused.exit_code == 2
    assert "'queue/a' is a queue, not a job" in refused.stderr
