"""Forms of a job: only what a viewer changed is sent; a new job has the spec of the old one."""

from typing import Any

import msgspec
import pytest

from stromboli.cli.job_specs.job_fields import FieldError
from stromboli.console.core import job_details, job_forms
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds


def stored(**parts: Any) -> dict[str, Any]:
    spec = {
        "queue": "research",
        "minAvailable": 2,
        "priorityClassName": "normal",
        "activeDeadlineSeconds": 3600,
        "tasks": [{"name": "worker", "replicas": 2, "template": {"spec": {"containers": []}}}],
        **parts.pop("spec", {}),
    }
    metadata = {"name": "train", "namespace": "vision", "uid": "u", "resourceVersion": "7"}
    return {"metadata": metadata | parts.pop("metadata", {}), "spec": spec, **parts}


def job(**parts: Any) -> batch.Job:
    return kinds.JOBS.decode(msgspec.json.encode(stored(**parts)))


UNCHANGED = {"priority": "normal", "time-limit": "3600s", "min": "2", "replicas.worker": "2"}


def test_an_unchanged_form_sends_nothing() -> None:
    fields = job_forms.changed(job_forms.change_fields(job()), UNCHANGED)
    assert job_forms.is_unchanged(fields)


def test_only_changed_fields_are_sent() -> None:
    """A form that was open for long does not undo the changes of others."""
    form = UNCHANGED | {"priority": "high", "replicas.worker": " 8 "}
    fields = job_forms.changed(job_forms.change_fields(job()), form)
    assert (fields.priority, fields.replicas) == ("high", {"worker": 8})
    assert (fields.time_s, fields.minimum, fields.queue) == (None, None, None)


@pytest.mark.parametrize(
    ("phase", "can_move"),
    [("", True), ("Pending", True), ("Aborted", True), ("Running", False), ("Restarting", False)],
)
def test_the_queue_can_change_while_the_job_waits(phase: str, *, can_move: bool) -> None:
    form_fields = job_forms.change_fields(job(status={"state": {"phase": phase}}))
    assert ("queue" in [it.name for it in form_fields]) is can_move
    fields = job_forms.changed(form_fields, UNCHANGED | {"queue": "teaching"})
    assert fields.queue == ("teaching" if can_move else None)
    assert job_forms.is_unchanged(job_forms.changed(form_fields, UNCHANGED | {"queue": ""}))


def test_an_empty_priority_is_the_default_one_and_an_empty_number_changes_nothing() -> None:
    form = UNCHANGED | {"priority": "", "min": "", "time-limit": ""}
    fields = job_forms.changed(job_forms.change_fields(job()), form)
    assert (fields.priority, fields.minimum, fields.time_s) == ("", None, None)


@pytest.mark.parametrize(
    "change", [{"min": "-1"}, {"replicas.worker": "many"}, {"time-limit": "soon"}]
)
def test_a_value_that_a_field_cannot_have_is_named(change: dict[str, str]) -> None:
    (name,) = change
    with pytest.raises(FieldError, match=name):
        job_forms.changed(job_forms.change_fields(job()), UNCHANGED | change)


def test_a_form_without_a_field_leaves_it_as_it_is() -> None:
    assert job_forms.is_unchanged(job_forms.changed(job_forms.change_fields(job()), {}))


def test_a_new_job_has_the_spec_of_the_old_one_with_the_changes() -> None:
    fields = job_forms.resubmit_fields(job(), "train-2")
    form = {"name": "train-2", "queue": "production", "priority": "normal"}
    made = job_forms.new_job(stored(), "train-2", job_forms.changed(fields, form))
    assert made["metadata"] == {"name": "train-2", "namespace": "vision"}
    assert made["spec"] == stored()["spec"] | {"queue": "production"}


def test_failed_indexes_of_an_array_run_again_as_a_new_array() -> None:
    array = {"spec": {"array": {"indexes": "0-9"}}, "status": {"array": {"failed": "3,7-8"}}}
    assert job_forms.failed_indexes(job(**array)) == "3,7-8"
    made = job_forms.failed_again(stored(**array), "3,7-8")
    assert made["spec"]["array"]["indexes"] == "3,7-8"


def test_a_job_that_is_no_array_has_no_failed_indexes() -> None:
    assert job_forms.failed_indexes(job()) == ""


def test_starting_a_tool_keeps_the_others_and_carries_the_version() -> None:
    notes = {"annotations": {keys.TOOLS: '[{"tool": "jupyter", "cpu": "2"}]'}}
    made = job_forms.with_tools(job(metadata=notes), start="terminal")
    assert made["metadata"]["resourceVersion"] == "7"
    assert msgspec.json.decode(made["metadata"]["annotations"][keys.TOOLS]) == [
        {"tool": "jupyter", "cpu": "2"},
        {"tool": "terminal"},
    ]
    made = job_forms.with_tools(job(metadata=notes), stop="jupyter")
    assert msgspec.json.decode(made["metadata"]["annotations"][keys.TOOLS]) == []


@pytest.mark.parametrize(
    ("phase", "status", "spec", "names"),
    [
        ("Running", {}, {}, ("change", "tools", "resubmit")),
        ("Pending", {}, {}, ("change", "resubmit")),
        ("Completed", {}, {}, ("resubmit",)),
        (
            "Failed",
            {"array": {"failed": "3"}},
            {"array": {"indexes": "0-9"}},
            ("resubmit", "retry"),
        ),
    ],
)
def test_a_page_offers_the_forms_of_the_phase(
    phase: str, status: dict[str, Any], spec: dict[str, Any], names: tuple[str, ...]
) -> None:
    found = job(status={"state": {"phase": phase}, **status}, spec=spec)
    assert job_details.forms(found) == names


def test_the_confirmation_of_a_pending_job_says_that_it_is_held() -> None:
    assert "held" in job_details.consequence("suspend", "Pending")
    assert "pods end now" in job_details.consequence("suspend", "Running")
