"""No record, whatever its bytes, ends the consumer of submissions or raises anything but its
documented error."""

from datetime import UTC, datetime, timedelta

import pytest

from stromboli.admission.core import admission_review, submissions
from stromboli.admission.core.submissions import RejectedSubmission
from stromboli.shared import envelope, topics
from stromboli.testkit import poison_records

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("what", poison_records.SUBMISSIONS)
def test_a_poison_record_is_refused_with_a_status(what: str) -> None:
    changes, value = poison_records.SUBMISSIONS[what]
    record = envelope.Record(topics.SUBMISSIONS, 7, "k", value, poison_records.SUBMISSION | changes)
    found = submissions.read(record, NOW, timedelta(seconds=900))
    if isinstance(found, RejectedSubmission):
        assert found.status in (400, 401, 408, 413)
        assert poison_records.DIGITS not in found.detail


@pytest.mark.parametrize("body", [value for _, value in poison_records.SUBMISSIONS.values()])
def test_a_webhook_body_that_cannot_be_read_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match="not an AdmissionReview"):
        admission_review.decode_request(body)
