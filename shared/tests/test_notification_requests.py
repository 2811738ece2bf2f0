"""Rules of the annotation with which a job requests notifications."""

import msgspec
import pytest

from stromboli.shared import keys
from stromboli.shared.jobspec import notifications
from stromboli.shared.jobspec.validation import jobs
from stromboli.testkit import builders


def test_each_target_has_its_events() -> None:
    subscriptions = notifications.parse("ops-slack=Failed,LongWait mail:ann@example.org=Completed")
    assert [(each.target, sorted(each.events)) for each in subscriptions] == [
        ("ops-slack", ["Failed", "LongWait"]),
        ("mail:ann@example.org", ["Completed"]),
    ]
    assert notifications.parse("") == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ops-slack", "no target"),
        ("=Failed", "no target"),
        ("ops=", "'' is not an event"),
        ("ops=End", "'End' is not an event; use one of Started"),
        ("ann@example.org=Failed", "write mail:ann@example.org"),
        ("https://10.0.0.1/x=Failed", "no target"),
        ("mail:ann@example.org,bob@example.org=Failed", "no target"),
        (" ".join(f"t{number}=Failed" for number in range(9)), "at most 8"),
        (f"ops={'Failed,' * 200}Failed", "at most 1000"),
    ],
)
def test_a_request_that_cannot_be_read_is_rejected_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        notifications.parse(text)


def test_admission_judges_a_new_and_a_changed_annotation_only() -> None:
    """A job that was admitted without the rule must still be changeable."""
    before = builders.make_job(annotations={keys.NOTIFY: "ops"})
    path = f"metadata.annotations[{keys.NOTIFY}]"
    assert [it.path for it in notifications.violations(before)] == [path]
    spec = msgspec.structs.replace(before.spec, priority_class_name="high")
    assert list(jobs.validate_update(msgspec.structs.replace(before, spec=spec), before, {})) == []
    other = builders.make_job(annotations={keys.NOTIFY: "other"})
    assert path in [it.path for it in jobs.validate_update(other, before, {})]
